"""How far results are looked for, and how little is read where that is enough. What is found, in
every dialect, is in `test_tool_calls.py`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentstate.ground.calls import Calling, Growth
from agentstate.ground.canonical import JSON
from agentstate.steps import tool_results
from agentstate.steps.tool_results import find_results
from agentstate.store.memory import MemoryStore
from tests.helpers.calling import CHAT, RESPONSES, Call
from tests.helpers.recording import record

SEND: Call = ("call_1", "send", {})


class Counting(MemoryStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    async def read_growth(
        self, session: str, places: tuple[int, ...], after: int, limit: int
    ) -> Growth:
        self.read["growth"] += 1
        return await super().read_growth(session, places, after, limit)

    async def read_messages(self, places: tuple[int, ...]) -> tuple[JSON, ...]:
        self.read["messages"] += len(places)
        return await super().read_messages(places)

    async def list_requests(self, *asked: Any) -> Any:
        self.read["requests"] += 1
        return await super().list_requests(*asked)


def play(scenario: Callable[[Counting], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = Counting()
        await store.open()
        await scenario(store)

    asyncio.run(whole())


async def callings(store: Counting) -> tuple[Calling, ...]:
    return await store.list_callings("s", (0, 0), 1000)


async def run_of(store: Counting, turns: int, *, tells: bool = True) -> None:
    """Record a run that tells each result, or one that never tells the first."""
    messages: list[Any] = [CHAT.asks("go")]
    for turn in range(turns):
        call: Call = (f"c{turn}", "send", {})
        await record(store, CHAT.body(list(messages)), CHAT.answer([call]))
        messages += CHAT.said([call])
        if turn or tells:
            messages += CHAT.results([(call[0], "send", "sent")])
    await record(store, CHAT.body(messages), CHAT.ends)


def test_a_run_is_read_once_and_only_where_results_stand() -> None:
    async def scenario(store: Counting) -> None:
        await run_of(store, 20)
        found = await find_results(store, "s", await callings(store))
        assert len(found.by_call) == len(found.continued) == 20
        assert found.is_all
        # Of each step the model's message and the result.
        assert store.read == {"growth": 1, "messages": 40}

    play(scenario)


def test_all_is_looked_at_only_if_a_result_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_results, "FOLLOWING_MAX", 10)

    async def scenario(store: Counting) -> None:
        await run_of(store, 20)
        few = (await callings(store))[:5]
        assert len((await find_results(store, "s", few)).by_call) == 5
        assert store.read["growth"] == 1
        await find_results(store, "s", await callings(store))
        assert store.read["growth"] == 3

    play(scenario)


def test_a_call_of_which_the_agent_never_told_is_continued_all_the_same() -> None:
    async def scenario(store: Counting) -> None:
        await run_of(store, 3, tells=False)
        found = await find_results(store, "s", await callings(store))
        assert (len(found.by_call), len(found.continued)) == (2, 3)

    play(scenario)


def test_links_are_followed_only_where_a_form_has_them() -> None:
    async def scenario(store: Counting) -> None:
        await run_of(store, 2)
        await find_results(store, "s", await callings(store))
        assert store.read["requests"] == 0
        body = RESPONSES.body([RESPONSES.asks("go")])
        await record(store, body, RESPONSES.answer([SEND]), dialect=RESPONSES.dialect)
        await find_results(store, "s", await callings(store))
        assert store.read["requests"] == 1

    play(scenario)


def test_branches_and_ways_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_results, "BRANCHES_MAX", 3)

    async def scenario(store: Counting) -> None:
        first = [CHAT.asks("go")]
        await record(store, CHAT.body(first), CHAT.answer([SEND]))
        for number in range(9):
            told = CHAT.results([("call_1", "send", f"sent {number}")])
            await record(store, CHAT.body([*first, *CHAT.said([SEND]), *told]), CHAT.ends)
        (results,) = (await find_results(store, "s", await callings(store))).by_call.values()
        assert [came.content for came in results] == ["sent 0", "sent 1", "sent 2"]

    play(scenario)


def test_nothing_to_look_for_reads_nothing() -> None:
    async def scenario(store: Counting) -> None:
        found = await find_results(store, "s", ())
        assert (found.by_call, found.continued, found.is_all) == ({}, set(), True)
        assert not store.read

    play(scenario)
