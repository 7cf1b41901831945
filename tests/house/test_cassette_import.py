"""What a cassette holds comes into a record as if it had been recorded there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.errors import Conflict, TooLarge
from agentstate.ground.records import Query, StepRow
from agentstate.house import cassette_import
from agentstate.house.cassette import BadCassette
from agentstate.house.cassette_import import read_sessions
from agentstate.store.base import Store
from tests.house.tapes import (
    ABOUT,
    call,
    chat,
    chat_body,
    chat_events,
    copied,
    on_store,
    play,
    said,
    same,
    tape,
    user,
)
from tests.store.contract import START_MS

CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}


async def rows_of(store: Store, session: str = "s") -> tuple[StepRow, ...]:
    return (await store.list_steps(Query(session=session, newest_first=False))).rows


async def a_run(store: Store) -> None:
    tools: Any = {"tools": [{"type": "function", "function": {"name": "look"}}]}
    calling = chat_body("", tool_calls=[CALL])
    asked: Any = {"model": "gpt-4o", "messages": [user("a")], **tools}
    await call(store, asked, calling, about=ABOUT)
    result: Any = {"role": "tool", "tool_call_id": "call_1", "content": "42 \ud800"}
    made: Any = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    await chat(store, user("a"), made, result, answer="one", fields=tools)
    stream: Any = {"model": "m", "stream": True, "messages": [user("b")], "big": 10**25}
    await call(store, stream, chat_events("tw", "o"))
    vector: Any = {"model": "e", "input": "x"}
    body = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.10]}]}'
    await call(store, vector, body, path="/v1/embeddings")


def test_a_session_is_the_same_in_another_record() -> None:
    async def scenario(store: Store) -> None:
        await a_run(store)
        raw = await tape(store)
        other = await copied(raw)

        assert await tape(other) == raw
        for mine, theirs in zip(await rows_of(store), await rows_of(other), strict=True):
            told = ("dialect", "path", "model", "provider", "streams", "fingerprint", "text",
                    "finish_reason", "response_id", "prompt", "usage", "step_number")  # fmt: skip
            for name in told:
                assert getattr(mine, name) == getattr(theirs, name), name
            request = await other.read_request(theirs.step_id)
            assert same(request, await store.read_request(mine.step_id))
            one, two = (
                await store.read_answer(mine.step_id),
                await other.read_answer(theirs.step_id),
            )
            assert one is not None
            assert two is not None
            assert (one.content, one.form, one.status) == (two.content, two.form, two.status)
        row = await other.read_session("s")
        assert row is not None
        assert (row.name, row.parent, row.tags) == ("Invoices", "the-parent", (("team", "ops"),))
        assert "call_1" in await other.find_emitters("s", ("call_1",))
        assert (await other.find_emitters("s", ("call_1",)))["call_1"]

    on_store(scenario)


def test_a_session_may_come_under_another_name() -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user("a"))
        other = await copied(await tape(store))
        await play(other, await tape(store), renamed="t")

        assert len(await rows_of(other, "t")) == 1

    on_store(scenario)


def test_several_sessions_have_no_one_name() -> None:
    async def scenario(store: Store) -> None:
        for name in ("s", "t"):
            await chat(store, user("a"), session=name)
        raw = await tape(store, "s", "t")

        with pytest.raises(Conflict, match="several sessions"):
            read_sessions(raw, at_ms=START_MS, renamed="u")
        assert read_sessions(raw, at_ms=START_MS).steps == 2

    on_store(scenario)


def test_what_it_cost_there_is_what_it_costs() -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user("a"))
        raw = (await tape(store)).replace(
            b'"provider":"openai"', b'"provider":"openai","cost_microusd":1234'
        )
        row = await (await copied(raw)).read_session("s")
        assert row is not None
        assert (row.cost_microusd, row.unknown_costs) == (1234, 0)

    on_store(scenario)


@pytest.mark.parametrize(
    ("old", "new", "said_"),
    [
        (b'"finish_reason":"stop"', b'"finish_reason":null', "Line 4.*answer is not complete"),
        (b'"model":"gpt-4o","messages"', b'"modul":"gpt-4o","messages"', "Line 3.*request is none"),
        (b'"messages":[', b'"messages":[1,', "Line 3"),
    ],
)
def test_what_is_no_call_is_refused(old: bytes, new: bytes, said_: str) -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user("a"), answer="one")
        await chat(store, user("a"), said("one"), answer="two")
        raw = await tape(store)
        head, tail = raw.rsplit(old, 1) if "Line 4" in said_ else raw.split(old, 1)
        with pytest.raises(BadCassette, match=said_):
            read_sessions(head + new + tail, at_ms=START_MS)

    on_store(scenario)


def test_a_cassette_that_grows_when_it_is_read_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(store: Store) -> None:
        for number in range(5):
            await chat(store, *(user(f"{each}" * 40) for each in range(number + 1)))
        raw = await tape(store)
        monkeypatch.setattr(cassette_import, "MESSAGES_MAX", 9)
        with pytest.raises(TooLarge, match=r"Line 6.*over 9 messages"):
            read_sessions(raw, at_ms=START_MS)

    on_store(scenario)


def test_the_about_of_a_session_is_said_once() -> None:
    async def scenario(store: Store) -> None:
        for text in ("a", "b"):
            await chat(store, user(text), about=replace(ABOUT, name=text))
        [session] = read_sessions(await tape(store), at_ms=START_MS).sessions

        assert [step.claim.about is None for step in session.steps] == [False, True]

    on_store(scenario)
