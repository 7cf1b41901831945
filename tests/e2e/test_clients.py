"""The real clients, Python and Node: fifty steps, killed again and again, each step paid once.

The agents are processes of their own and get SIGKILL, as a crash would; or the proxy does. The
upstream counts what was paid. The transcript at the end must be the one of a run without a proxy
and without a kill.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.node import module_path, need_node
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import CountingUpstream

pytestmark = [pytest.mark.slow, pytest.mark.clients]

AGENTS = Path(__file__).parent / "agents"
STEPS = 50
KILLS = 5
SEED = 20240229
THINKING_S = 0.01  # long enough that a kill after "asking" finds the call in flight
LIFE_TIMEOUT_S = 120
MODES = ("sync", "async", "node")


@dataclass(slots=True)
class Life:
    """What one life of an agent told."""

    asked: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    hits: dict[int, str | None] = field(default_factory=dict)  # step → x-agentstate-cache-hit
    transcript: list[dict[str, Any]] | None = None  # None = it did not live to the end


@contextmanager
def living(mode: str, base_url: str, session: str, retries: int) -> Iterator[subprocess.Popen[str]]:
    """Start an agent; it is dead afterwards, or when its time is over."""
    env = dict(os.environ)
    if mode == "node":
        command = [need_node(), str(AGENTS / "agent.mjs")]
        env["OPENAI_MODULE"] = str(module_path("openai"))
    else:
        if importlib.util.find_spec("openai") is None:
            pytest.skip("needs the openai package")
        command = [sys.executable, str(AGENTS / "agent.py")]
    command += [base_url, session, str(STEPS), mode, str(retries)]
    agent = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(LIFE_TIMEOUT_S, agent.kill)
    watchdog.start()
    try:
        yield agent
    finally:
        watchdog.cancel()
        agent.kill()
        agent.communicate()


def read_life(agent: subprocess.Popen[str], until: tuple[str, int] | None = None) -> Life:
    """Read what an agent tells until it ends, or until it tells `until`."""
    life = Life()
    assert agent.stdout is not None
    for line in agent.stdout:
        match json.loads(line):
            case {"asking": int(step)}:
                life.asked.append(step)
                if until == ("asking", step):
                    return life
            case {"answered": int(step)}:
                life.answered.append(step)
                if until == ("answered", step):
                    return life
            case {"hit": hit, "step": int(step)}:
                life.hits[step] = hit
            case {"transcript": transcript}:
                life.transcript = transcript
    return life


def language_of(mode: str) -> str:
    """Name the mode whose undisturbed transcript counts: both Python clients must give the same."""
    return "node" if mode == "node" else "sync"


@functools.cache
def undisturbed_transcript(mode: str) -> list[dict[str, Any]]:
    """Run the agent straight against the upstream; once per mode is enough."""
    with CountingUpstream() as upstream, living(mode, f"{upstream.url}/v1", "none", 0) as agent:
        life = read_life(agent)
    assert life.transcript is not None, "the agent does not even run without a proxy"
    return life.transcript


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_killed_five_times_pays_each_step_once(mode: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    wanted = undisturbed_transcript(language_of(mode))
    with (
        CountingUpstream(delay_s=THINKING_S, log_path=tmp_path / "paid.jsonl") as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        reached = 0
        for _ in range(KILLS):
            target = chance.randrange(reached + 1, min(reached + 12, STEPS - 1))
            moment = chance.choice(("asking", "answered"))
            with living(mode, proxy.base_url, "killed", 0) as agent:
                read_life(agent, until=(moment, target))
            reached = target
        # An agent may get further than what it told before it was killed.
        known = len(proxy.settled_steps("killed"))
        with living(mode, proxy.base_url, "killed", 0) as agent:
            last = read_life(agent)
        paid = upstream.counts
        steps = proxy.settled_steps("killed")
    assert known >= reached
    assert last.transcript == wanted
    assert sorted(paid.values()) == [1] * STEPS
    assert [step["step_number"] for step in steps] == list(range(STEPS))
    assert {step["state"] for step in steps} == {"complete"}
    assert {hit for step, hit in last.hits.items() if step < known} == {"true"}
    assert {hit for step, hit in last.hits.items() if step >= known} == {"false"}


@pytest.mark.parametrize("mode", MODES)
def test_a_proxy_killed_five_times_under_an_agent_loses_no_finished_step(
    mode: str, tmp_path: Path
) -> None:
    chance = random.Random(SEED + 1)
    wanted = undisturbed_transcript(language_of(mode))
    targets = sorted(chance.sample(range(1, STEPS - 1), KILLS))
    in_flight: set[int] = set()
    with (
        CountingUpstream(delay_s=THINKING_S) as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
        living(mode, proxy.base_url, "killed", 10) as agent,
    ):
        for target in targets:
            moment = chance.choice(("asking", "answered"))
            life = read_life(agent, until=(moment, target))
            assert life.asked, "the agent died with the proxy"
            proxy.restart()
            # After "answered" the agent goes on at once, so the next call may be in flight too.
            in_flight.add(target if moment == "asking" else target + 1)
        last = read_life(agent)
        paid = list(upstream.counts.values())  # by first arrival, so by step
        steps = proxy.settled_steps("killed")
    assert last.transcript == wanted
    assert len(paid) == STEPS
    assert all(paid[step] == 1 for step in range(STEPS) if step not in in_flight)
    assert all(paid[step] <= 2 for step in in_flight)
    assert {step["state"] for step in steps} == {"complete"}
    assert len(steps) == STEPS
