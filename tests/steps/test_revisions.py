"""Edits against a store: what is taken back with the old answer, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import Conflict
from agentstate.ground.records import Claim, Identity, Part, RequestRecord
from agentstate.steps.edits import Edit
from agentstate.steps.identify import message_digest
from agentstate.steps.reruns import Rerun
from agentstate.steps.revisions import Made, Maker, Revisions
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from tests.store.contract import START_MS, answer_of, checkpoint_of

NOBODY = Maker(None, None)
LONG = "It is a long way to the northernmost town of the country."


def user(text: str) -> JSON:
    return {"role": "user", "content": text}


def said(text: str) -> JSON:
    return {"role": "assistant", "content": text}


def called(call_id: str) -> JSON:
    call: JSON = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result(call_id: str) -> JSON:
    return {"role": "tool", "tool_call_id": call_id, "content": "42"}


async def step(store: Store, messages: list[JSON], answer: JSON, response_id: str = "r") -> int:
    """Record a call of chat and return its index."""
    key = message_digest(messages)
    chain = tuple(Part(message_digest(each), each) for each in messages)
    claim = Claim(
        session="s",
        step_number=None,
        run_id=None,
        call_id=None,
        occurrence=0,
        dialect="openai_chat",
        path="/v1/chat/completions",
        model="m",
        streams=False,
        identity=Identity(key, key, key, key),
        request=RequestRecord({"model": "m", "messages": None}, (), "messages", chain),
        created_ms=START_MS,
    )
    claimed = await store.claim_step(claim)
    choices: JSON = [{"index": 0, "message": answer, "finish_reason": "stop"}]
    body = encode({"id": response_id, "model": "m", "choices": choices})
    read = OpenAIChat().read_answer(body)
    checkpoint = checkpoint_of(
        claimed.step_id,
        answer=answer_of(body),
        text=read.text,
        tool_calls=read.tool_calls,
        response_id=response_id,
    )
    await store.record_answer(checkpoint)
    return claimed.index


def taken_back(*steps: tuple[list[JSON], JSON], index: int = 0) -> list[int]:
    """Record steps, edit one, and return which others were taken back."""

    async def scenario() -> list[int]:
        store = MemoryStore()
        await store.open()
        for messages, answer in steps:
            await step(store, messages, answer)
        made = await Revisions(store).edit("s", index, Edit(text="Another text."), NOBODY)
        return [number for first, last in made.change.taken for number in range(first, last + 1)]

    return asyncio.run(scenario())


def test_what_continues_the_answer_is_taken_back_and_parallel_lanes_are_not() -> None:
    one, two = [user("a")], [user("b")]
    assert taken_back(
        (one, said("A")),
        (two, said("A")),
        ([*one, said("A"), user("more")], said("x")),
        ([*two, said("A"), user("more")], said("x")),
        ([*one, said("A"), user("more"), said("x"), user("on")], said("y")),
    ) == [2, 4]


def test_of_two_that_were_asked_the_same_the_one_that_was_edited_counts() -> None:
    ask = [user("a")]
    steps = (
        (ask, said("one")),
        (ask, said("two")),
        ([*ask, said("one"), user("on")], said("x")),
        ([*ask, said("two"), user("on")], said("x")),
        ([*ask, said(" one\n"), user("off")], said("x")),
    )
    assert taken_back(*steps) == [2, 4]
    assert taken_back(*steps, index=1) == [3]


def test_a_trimmed_history_is_told_by_the_results_of_its_calls() -> None:
    assert taken_back(
        ([user("a")], called("call_1")),
        ([user("b")], called("call_2")),
        ([user("kept"), called("call_1"), result("call_1")], said("x")),
        ([user("kept"), called("call_2"), result("call_2")], said("y")),
    ) == [2]


def test_ids_that_several_answers_gave_tell_nothing() -> None:
    assert (
        taken_back(
            ([user("a")], called("call_0")),
            ([user("b")], called("call_0")),
            ([user("kept"), called("call_0"), result("call_0")], said("x")),
        )
        == []
    )


def test_a_rewritten_history_is_told_by_the_words_of_the_answer() -> None:
    assert taken_back(
        ([user("a")], said(LONG)),
        ([user("Summary: " + LONG + " So?")], said("x")),
        ([user("Summary: OK. So?")], said("y")),
    ) == [1]
    # What was there before it was said is no evidence, and few words are none.
    assert taken_back(([user(LONG)], said(LONG)), ([user(LONG + " So?")], said("x"))) == []
    assert taken_back(([user("a")], said("Yes.")), ([user("Yes. So?")], said("x"))) == []


def test_what_goes_on_from_what_went_on_is_taken_back_however_little_it_keeps() -> None:
    words = "The answer that came second is long enough to be known again."
    assert taken_back(
        ([user("a")], said("A")),
        ([user("a"), said("A"), user("b")], said(words)),
        ([user("b"), said(words), user("c")], said("x")),
    ) == [1, 2]


def test_of_steps_in_a_line_no_message_is_read_but_one() -> None:
    async def scenario() -> tuple[Made, list[int]]:
        store = MemoryStore()
        await store.open()
        messages: list[JSON] = [user("0")]
        for number in range(200):
            await step(store, messages, said(f"{number}"))
            messages = [*messages, said(f"{number}"), user(f"{number}")]
        read: list[int] = []
        plain = store.read_messages

        async def counted(places: tuple[int, ...]) -> tuple[JSON, ...]:
            read.append(len(places))
            return await plain(places)

        store.read_messages = counted  # type: ignore[method-assign]
        return await Revisions(store).edit("s", 3, Edit(text="Another."), NOBODY), read

    made, read = asyncio.run(scenario())
    assert made.change.taken == ((4, 199),)
    assert read == [2]


def test_two_at_once_and_nobody_to_ask_are_refused() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.open()
        await step(store, [user("a")], said("A"))
        revisions = Revisions(store)
        with pytest.raises(Conflict, match="needs a running server"):
            await revisions.rerun("s", 0, Rerun(), NOBODY)
        revisions.is_in_air = lambda session, step_id: (session, step_id) == ("s", 1)
        with pytest.raises(Conflict, match="in flight"):
            await revisions.edit("s", 0, Edit(text="B"), NOBODY)
        revisions.is_in_air = lambda session, step_id: False
        revisions._busy.add(1)
        with pytest.raises(Conflict, match="at the moment"):
            await revisions.edit("s", 0, Edit(text="B"), NOBODY)
        revisions._busy.clear()
        told: list[Any] = []
        revisions.on_turn = told.append
        made = await revisions.edit("s", 0, Edit(text="B"), Maker("ann", "so", seen_id=1))
        assert told == [made.change]
        assert made.step.text == "B"
        assert now_ms() >= made.change.made_ms

    asyncio.run(scenario())
