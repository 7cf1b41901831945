"""What a scene of the full demo is; see `demo_full.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentstate.house.demo_stage import Stage


@dataclass(frozen=True, slots=True)
class Scene:
    """One feature, shown and checked."""

    name: str
    words: str  # what happens, in a line or two
    play: Callable[[Stage], str]
    # Makes it happen and checks it; returns what was found. Raises `DemoFailed` if it is not so.
