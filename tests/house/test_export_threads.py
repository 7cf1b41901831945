"""The ends of conversations are found, whatever the order, the dialect and the shape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentstate.house.export_base import Wanted
from agentstate.house.export_threads import trace
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from tests.helpers.recording import record
from tests.house.export_calls import (
    Body,
    asking,
    block,
    chat,
    claude,
    output,
    response,
    said,
    texts_of,
    user,
)

Talk = tuple[str, ...]  # what the user says, what the model says, and so on


def in_memory(scenario: Any) -> Any:
    async def whole() -> Any:
        store = MemoryStore()
        await store.open()
        return await scenario(store)

    return asyncio.run(whole())


@st.composite
def trees(draw: st.DrawFn) -> list[Talk]:
    """Draw the conversations of a session, each with an answer, in the order of their calls: each
    begins anew or goes on from one before. Few words, so that many are asked the same."""
    found: list[Talk] = []
    for number in range(draw(st.integers(1, 9))):
        before: Talk = ()
        if found and draw(st.booleans()):
            before = draw(st.sampled_from(found))
        asked = draw(st.sampled_from(["x", "y"]))
        # Answers differ, or a step would be a run made again.
        found.append((*before, asked, f"answer {number}"))
    return found


def messages_of(talk: Talk) -> list[Body]:
    return [said(text) if at % 2 else user(text) for at, text in enumerate(talk)]


async def record_chat(store: Store, talk: Talk, ids: dict[Talk, str]) -> None:
    await record(store, asking(*messages_of(talk[:-1])), chat(talk[-1]))


async def record_claude(store: Store, talk: Talk, ids: dict[Talk, str]) -> None:
    body = {"model": "claude", "max_tokens": 1, "messages": messages_of(talk[:-1])}
    await record(store, body, claude(block(talk[-1])), dialect="anthropic_messages")


async def record_list(store: Store, talk: Talk, ids: dict[Talk, str]) -> None:
    """Responses that send all of it; the first message may be a text."""
    items = [output(text) if at % 2 else user(text) for at, text in enumerate(talk[:-1])]
    asked: Any = talk[0] if len(talk) == 2 else items
    answer = response(f"resp_{talk[-1]}", output(talk[-1]))
    await record(store, {"model": "m", "input": asked}, answer, dialect="openai_responses")


async def record_linked(store: Store, talk: Talk, ids: dict[Talk, str]) -> None:
    """Responses that go on by an id."""
    body: Body = {"model": "m", "input": talk[-2]}
    if len(talk) > 2:
        body["previous_response_id"] = ids[talk[:-2]]
    ids[talk] = f"resp_{talk[-1]}"
    await record(store, body, response(ids[talk], output(talk[-1])), dialect="openai_responses")


RECORDERS = (record_chat, record_claude, record_list, record_linked)


@given(trees(), st.sampled_from(RECORDERS))
def test_each_conversation_that_nothing_continues_is_an_example(
    talks: list[Talk], recorder: Any
) -> None:
    async def scenario(store: Store) -> list[list[Any]]:
        ids: dict[Talk, str] = {}
        for talk in talks:
            await recorder(store, talk, ids)
        return await texts_of(store)

    expected = [list(talk) for talk in talks if not any(goes_on(other, talk) for other in talks)]
    assert in_memory(scenario) == expected


def goes_on(talk: Talk, before: Talk) -> bool:
    return len(talk) > len(before) and talk[: len(before)] == before


@given(trees(), trees())
def test_the_other_lanes_of_a_session_change_nothing(talks: list[Talk], others: list[Talk]) -> None:
    """Dialects do not meet, though their messages may be the same ones."""

    async def scenario(store: Store) -> list[list[Any]]:
        for talk, other in pairs(talks, others):
            if talk:
                await record_chat(store, talk, {})
            if other:
                await record_claude(store, other, {})
        return await texts_of(store, Wanted(dedupe=False))

    expected = [
        list(talk)
        for lane in (talks, others)
        for talk in lane
        if not any(goes_on(other, talk) for other in lane)
    ]
    assert sorted(in_memory(scenario)) == sorted(expected)


def pairs(talks: list[Talk], others: list[Talk]) -> Iterator[tuple[Talk | None, Talk | None]]:
    for at in range(max(len(talks), len(others))):
        yield (
            talks[at] if at < len(talks) else None,
            others[at] if at < len(others) else None,
        )


def test_batches_end_anywhere(monkeypatch: Any) -> None:
    talks: list[Talk] = [("x", "1"), ("x", "1", "y", "2"), ("x", "1", "y", "3"), ("z", "4")]

    async def scenario(store: Store) -> list[int]:
        for talk in talks:
            await record_chat(store, talk, {})
        return list((await trace(store, "s", Wanted())).leaves())

    for size in (1, 2, 3, 4, 5):
        monkeypatch.setattr("agentstate.house.export_threads.BATCH", size)
        assert in_memory(scenario) == [1, 2, 3]


def test_what_was_asked_often_is_compared_a_bounded_number_of_times(monkeypatch: Any) -> None:
    """Also where each answer was gone on with: the last steps that were asked it are looked at."""
    heard: list[int] = []

    async def scenario(store: Store) -> int:
        read = store.read_answer_by_id

        async def counted(answer_id: int) -> Any:
            heard.append(answer_id)
            return await read(answer_id)

        for number in range(150):
            await record_chat(store, ("x", f"{number}"), {})
        for number in range(150):
            await record_chat(store, ("x", f"{number}", "y", "end"), {})
        monkeypatch.setattr(store, "read_answer_by_id", counted)
        return len(list((await trace(store, "s", Wanted())).leaves()))

    assert in_memory(scenario) >= 150
    assert len(heard) <= 300
