"""Agents over an upstream that fails three calls in ten, in every way of the fault table.

Each lives to the end of its fifty steps: every answer comes once, whole and in its place, and
nothing is asked again after it was answered. A second life is answered from the record alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fault_rig import SHORT_S, FaultyUpstream, forward_toml, post_body
from tests.e2e.faults import SEEN, UNANSWERED, UNSEEN
from tests.e2e.forms import CHAT
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Reception
from tests.helpers.upstream import Received, Reply, digest_of, model_reply

pytestmark = pytest.mark.slow

SEED = 2718
STEPS = 50
FAULTS = 0.3  # of all calls
WORDS = 6
ASKED_AGAIN_MAX = 20  # by the agent itself, of one step: streams that fail after content
# Model: in which form each step asks, over and over. It is the agent's session as well.
AGENTS = {"whole": (False,), "stream": (True,), "mixed": (False, True, True)}
# Their pauses are long, and tried elsewhere.
_KINDS = [fault for fault in (*UNSEEN, *SEEN) if not fault.name.startswith("429")]


class Unreliable(FaultyUpstream):
    """Answers from the request alone, or fails: drawn for each model apart, so that it does not
    matter how the calls of several agents fall."""

    def __init__(self) -> None:
        super().__init__()
        self._chances: dict[str, random.Random] = {}
        self.said: dict[str, list[tuple[str, bool]]] = {}  # (digest, was answered), by model
        self.failed: Counter[str] = Counter()  # how often, by the kind of fault

    def reply_to(self, request: Received) -> Reply:
        ask = request.json()
        model, streams = ask["model"], ask.get("stream", False)
        with self._lock:
            chance = self._chances.setdefault(model, random.Random(f"{SEED} {model}"))
            fails = chance.random() < FAULTS
            self.said.setdefault(model, []).append((digest_of(ask), not fails))
            if not fails:
                return model_reply(ask, words=WORDS)
            kinds = [fault for fault in _KINDS if streams in fault.streams]
            fault = chance.choice([None, *kinds])
            self.failed["reset-unanswered" if fault is None else fault.name] += 1
        return UNANSWERED if fault is None else fault.make(CHAT, model, streams)

    def count(self, model: str) -> int:
        with self._lock:
            return len(self.said.get(model, ()))


@dataclass(slots=True)
class Life:
    """What an agent went through."""

    answers: list[Reception] = field(default_factory=list)  # one a step
    wanted: list[str] = field(default_factory=list)  # what the model says to each
    digests: list[str] = field(default_factory=list)
    spoiled: int = 0  # responses that were none


def live(proxy: Proxy, model: str) -> Life:
    """Live once: each answer is said to the model again with the next question."""
    life, messages = Life(), list[dict[str, Any]]()
    for number, streams in zip(range(STEPS), cycle(AGENTS[model]), strict=False):
        messages.append({"role": "user", "content": f"What is step {number}?"})
        body = {"model": model, "messages": messages, "stream": streams}
        got, spoiled = ask_until_answered(proxy, model, body)
        life.spoiled += spoiled
        life.answers.append(got)
        life.digests.append(digest_of(body))
        life.wanted.append(" ".join(f"{digest_of(body)}-{n}" for n in range(WORDS)))
        messages.append({"role": "assistant", "content": CHAT.read(got).text})
    return life


def ask_until_answered(proxy: Proxy, session: str, body: dict[str, Any]) -> tuple[Reception, int]:
    """Ask as a client does that retries by itself; return the answer, and how many were none."""
    for spoiled in range(ASKED_AGAIN_MAX):
        got = post_body(proxy, CHAT, body, session=session)
        if got.status == 200 and CHAT.read(got).is_whole:
            return got, spoiled
        assert got.ending != "timeout"
    raise AssertionError(f"{session}: no answer after {ASKED_AGAIN_MAX} requests")


@dataclass(slots=True)
class House:
    """The proxy, the upstream, and the lives of the agents: twice each."""

    proxy: Proxy
    upstream: Unreliable
    lives: dict[str, Future[tuple[Life, int, Life, int]]]  # life, calls so far; and once more

    def of(self, agent: str) -> tuple[Life, int, Life, int]:
        """Wait for an agent."""
        return self.lives[agent].result()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """All agents live at the same time."""
    folder: Path = tmp_path_factory.mktemp("unreliable")
    limits = dict.fromkeys(("first_byte_timeout_s", "gap_timeout_s"), SHORT_S)
    config = forward_toml(retries=8, **limits)
    (folder / "agentstate.toml").write_text(config, encoding="utf-8")
    with (
        Unreliable() as upstream,
        Proxy(upstream_url=upstream.url, db=folder / "record.db") as proxy,
        ThreadPoolExecutor(len(AGENTS)) as pool,
    ):

        def live_twice(agent: str) -> tuple[Life, int, Life, int]:
            first = live(proxy, agent)
            calls = upstream.count(agent)
            return first, calls, live(proxy, agent), upstream.count(agent)

        yield House(proxy, upstream, {agent: pool.submit(live_twice, agent) for agent in AGENTS})


by_agent = pytest.mark.parametrize("agent", AGENTS)


@by_agent
def test_every_step_is_answered_once_whole_and_in_order(house: House, agent: str) -> None:
    life, calls, _, _ = house.of(agent)

    assert [CHAT.read(got).text for got in life.answers] == life.wanted
    assert calls > STEPS * 1.2, "the upstream did not fail often enough for this to mean much"
    steps = house.proxy.settled_steps(agent)
    assert [step["index"] for step in steps] == list(range(STEPS))
    assert {step["state"] for step in steps} == {"complete"}
    assert [step["response"] for step in steps] == life.wanted


@by_agent
def test_nothing_is_asked_again_once_it_was_answered(house: House, agent: str) -> None:
    life, _, _, _ = house.of(agent)

    said = house.upstream.said[agent]
    answered = [digest for digest, was_answered in said if was_answered]
    assert answered == life.digests
    # Failures of a step lie between the answer before it and its own: never after that.
    order = [digest for at, (digest, _) in enumerate(said) if at == 0 or said[at - 1][0] != digest]
    assert order == life.digests


def test_what_was_not_streamed_needed_no_retry_of_the_client(house: House) -> None:
    life, calls, _, _ = house.of("whole")

    assert life.spoiled == 0
    tries = [int(got.header("x-agentstate-attempts") or 0) for got in life.answers]
    assert sum(tries) > STEPS
    assert sum(tries) <= calls


@by_agent
def test_a_second_life_is_answered_from_the_record_alone(house: House, agent: str) -> None:
    life, calls, again, calls_again = house.of(agent)

    assert calls_again == calls
    assert [got.header("x-agentstate-cache-hit") for got in again.answers] == ["true"] * STEPS
    assert [got.body for got in again.answers] == [got.body for got in life.answers]
    assert again.spoiled == 0
    assert len(house.proxy.settled_steps(agent)) == STEPS


def test_the_upstream_failed_in_many_ways(house: House) -> None:
    for agent in AGENTS:
        house.of(agent)

    assert len(house.upstream.failed) >= 15, house.upstream.failed
