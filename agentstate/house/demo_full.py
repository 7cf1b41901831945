"""`agentstate demo full`: every feature once, each shown and checked, on this machine alone.

A *scene* is a row of `SCENES`: its name, what happens in a line or two, and a function that makes
it happen, checks it, and returns what was found in a few words. A check that does not hold raises;
the next scene plays all the same, and the exit code is 1. So a new feature is one function in a
`demo_scenes_*.py` and one row there; what scenes play on is in `demo_stage.py`.

The model is the built-in mock behind a socket, which counts what reaches it: what is said of calls
that were paid or not does not rest on the proxy's own word.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import AgentStateError
from agentstate.ground.logs import printable
from agentstate.house import (
    demo_scenes_calls,
    demo_scenes_data,
    demo_scenes_people,
    demo_scenes_steer,
)
from agentstate.house.demo import CODE_FAILED, CODE_OK, CODE_STOPPED
from agentstate.house.demo_scene import Scene
from agentstate.house.demo_stage import Stage, staged
from agentstate.house.launch import stoppable

SCENES: tuple[Scene, ...] = (
    *demo_scenes_calls.SCENES,
    *demo_scenes_people.SCENES,
    *demo_scenes_steer.SCENES,
    *demo_scenes_data.SCENES,
)


@dataclass(frozen=True, slots=True)
class Played:
    """A scene that was played."""

    scene: Scene
    found: str  # what was checked; of one that failed, what was not so
    holds: bool
    ms: float


def full(scenes: Iterable[Scene] = SCENES, *, keeps: bool = False) -> int:
    """Play all scenes; return the exit code: 0 if every check held, 1 if one did not.

    keeps: the proxy runs on after the last scene, until Ctrl-C.
    """
    began_s = monotonic_s()
    try:
        with stoppable(), staged() as stage:
            _say(
                f"A proxy listens on {stage.url}. The model is the built-in mock: offline and "
                "free.\nCosts are what its tokens would cost at list prices. What a person would "
                "decide,\nthe demo decides through the API.\n"
            )
            played = _play_all(stage, tuple(scenes))
            _print_table(played, monotonic_s() - began_s)
            if keeps:
                _keep(stage)
    except AgentStateError as error:
        _say(f"\nThe demo failed. {printable(error.message)}")
        return CODE_FAILED
    except KeyboardInterrupt:
        _say("\nStopped; everything the demo started has ended.")
        return CODE_STOPPED
    return CODE_OK if all(row.holds for row in played) else CODE_FAILED


def _play_all(stage: Stage, scenes: tuple[Scene, ...]) -> list[Played]:
    played: list[Played] = []
    for number, scene in enumerate(scenes, 1):
        _say(f"{number:2}. {scene.name}")
        for line in scene.words.splitlines():
            _say(f"    {line}")
        row = _play(stage, scene)
        _say(f"  {_mark(row.holds)} {row.found}  ({row.ms:.0f} ms)\n")
        played.append(row)
    return played


def _play(stage: Stage, scene: Scene) -> Played:
    began_s = monotonic_s()
    try:
        found, holds = scene.play(stage), True
    except AgentStateError as error:
        found, holds = f"FAILED: {printable(error.message)}", False
    except (LookupError, TypeError, ValueError, OSError) as error:
        # What came was not of the shape that a scene counts on.
        found, holds = f"FAILED: {printable(repr(error))}", False
    return Played(scene, found, holds, (monotonic_s() - began_s) * 1000)


def _print_table(played: list[Played], took_s: float) -> None:
    width = max((len(row.scene.name) for row in played), default=0)
    _say(f"    {'feature':{width}}  {'ms':>6}  checked")
    for row in played:
        found = row.found if row.holds else "FAILED, see above"
        _say(f"  {_mark(row.holds)} {row.scene.name:{width}}  {row.ms:6.0f}  {found}")
    held = sum(row.holds for row in played)
    _say(f"\n{held} of {len(played)} held, in {took_s:.1f} s. No real model was asked.")


def _keep(stage: Stage) -> None:
    # The line is inside: who reads it may press Ctrl-C at once.
    with suppress(KeyboardInterrupt):
        _say("\nThe proxy runs on, until Ctrl-C; then its record goes too:")
        _say(f"{stage.url}/dashboard/")
        threading.Event().wait()


def _mark(holds: bool) -> str:
    marks = ("✗", "✓")
    try:
        "".join(marks).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        marks = ("-", "+")
    return marks[holds]


def _say(text: str) -> None:
    print(text, flush=True)
