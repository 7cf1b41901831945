"""Where a session stands, and the advice in words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.calls import UnknownCall
from agentstate.ground.control import Change, Place
from agentstate.ground.errors import NotFound
from agentstate.steps.recovery import Recovery, look
from agentstate.store.memory import MemoryStore
from tests.helpers.calling import CHAT, MESSAGES, Call
from tests.helpers.recording import START_MS, record
from tests.store.contract import claim_of
from tests.store.contract_control import run_of
from tests.store.contract_gate import question_of

AT_MS = START_MS + 1000
SEND: Call = ("call_1", "send", {"to": "ann"})
READ: Call = ("call_2", "read", {})


def play(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = MemoryStore()
        await store.open()
        await scenario(store)

    asyncio.run(whole())


async def seen(store: MemoryStore) -> Recovery:
    return await look(store, "s", at_ms=AT_MS)


async def ask(store: MemoryStore, messages: list[Any], answer: Any, **changes: Any) -> Any:
    return await record(store, CHAT.body(messages), answer, **changes)


def test_a_session_nobody_knows_is_not_found() -> None:
    async def scenario(store: MemoryStore) -> None:
        with pytest.raises(NotFound, match="'nobody'"):
            await look(store, "nobody", at_ms=AT_MS)

    play(scenario)


def test_a_run_that_broke_off_says_what_replays_and_what_is_paid_again() -> None:
    async def scenario(store: MemoryStore) -> None:
        await run_of(store, 44)
        claimed = await store.claim_step(claim_of("44", step_number=44))
        await store.close()
        await store.open()  # the proxy died while it was in flight
        found = await seen(store)
        assert found.standing.open == ((claimed.index, 44, "interrupted"),)
        assert (found.asked_again, found.last and found.last.index) == (1, 43)
        assert found.advice() == (
            "Run the agent again with the session id s: 44 steps replay, 1 is asked again. "
            "616 tokens ($0.001100) are not paid again.",
        )

    play(scenario)


def test_a_gap_is_told() -> None:
    async def scenario(store: MemoryStore) -> None:
        await run_of(store, 2)
        failing = await store.claim_step(claim_of("x"))
        await store.record_failure(failing.step_id, (), failed_ms=START_MS)
        await run_of(store, 1, first=3)
        (advice,) = (await seen(store)).advice()
        assert "3 steps replay, 1 is asked again. The first 2 stand without a gap." in advice

    play(scenario)


def test_nothing_answered_yet() -> None:
    async def scenario(store: MemoryStore) -> None:
        await store.claim_step(claim_of("x"))
        found = await seen(store)
        assert found.last is None
        assert found.advice() == (
            "Step 0 is in flight now: an agent seems to be at work.",
            "No step has an answer yet: run the agent with the session id s, all is asked.",
        )

    play(scenario)


def test_a_price_that_is_not_known_makes_it_at_least() -> None:
    async def scenario(store: MemoryStore) -> None:
        await ask(store, [CHAT.asks("go")], CHAT.ends, cost_microusd=None)
        found = await seen(store)
        assert found.standing.saves.unknown_costs == 1
        assert "(at least $0.000000) are not paid again" in found.advice()[-1]
        assert "1 step replays." in found.advice()[-1]

    play(scenario)


def test_calls_of_the_last_answer_without_a_result_are_named() -> None:
    async def scenario(store: MemoryStore) -> None:
        first = [CHAT.asks("go")]
        await ask(store, first, CHAT.answer([SEND, READ]))
        found = await seen(store)
        assert [one.call.name for one in found.unanswered] == ["send", "read"]
        assert found.advice()[0] == (
            "No result is on record of send (step 0, call_1), read (step 0, call_2): they may or "
            "may not have happened. A re-run is given the same again, so look first whether it may "
            "happen twice."
        )
        results = CHAT.results([("call_1", "send", "sent"), ("call_2", "read", "text")])
        await ask(store, [*first, *CHAT.said([SEND, READ]), *results], CHAT.ends)
        found = await seen(store)
        assert (found.unanswered, len(found.advice())) == ((), 1)

    play(scenario)


def test_what_the_provider_ran_needs_no_result() -> None:
    async def scenario(store: MemoryStore) -> None:
        content = [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]
        answer = MESSAGES.answer([]) | {"content": content}
        body = MESSAGES.body([MESSAGES.asks("go")])
        await record(store, body, answer, dialect=MESSAGES.dialect)
        assert (await seen(store)).unanswered == ()

    play(scenario)


def test_a_call_of_a_step_that_was_rolled_back_is_not_named() -> None:
    async def scenario(store: MemoryStore) -> None:
        await ask(store, [CHAT.asks("go")], CHAT.ends)
        await ask(store, [CHAT.asks("more")], CHAT.answer([SEND]))
        await store.roll_back("s", Place(index=1), at_ms=START_MS)
        found = await seen(store)
        assert (found.unanswered, found.standing.steps) == ((), 1)

    play(scenario)


def test_what_waits_for_a_person_comes_first() -> None:
    async def scenario(store: MemoryStore) -> None:
        step = await ask(store, [CHAT.asks("go")], CHAT.answer([SEND, READ]))
        questions = (
            question_of(tool="send", position=0),
            question_of(tool="read", position=1, deadline_ms=AT_MS - 1),
        )
        opened = await store.open_approvals(step.step_id, step.answer_id, questions, at_ms=START_MS)
        await store.pause("s", at_ms=START_MS, reason="a look", by="ann")
        found = await seen(store)
        assert found.waiting == opened
        assert found.unanswered == ()  # neither has gone out
        paused, waits, expired, _ = found.advice()
        assert paused == (
            "It was paused by ann (a look): its calls wait until `agentstate sessions resume s`."
        )
        assert waits == (
            f"send of step 0 waits for a decision: `agentstate approvals approve "
            f"{opened[0].approval_id}`, or reject."
        )
        assert expired.startswith("1 question expired before anybody answered")

    play(scenario)


@pytest.mark.parametrize(("by", "who"), [("bob", "bob"), ("rule", "a rule"), (None, "a person")])
def test_a_refusal_that_ends_the_run_says_the_way_out(by: str | None, who: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        step = await ask(store, [CHAT.asks("go")], CHAT.answer([SEND]), step_number=5)
        (approval,) = await store.open_approvals(
            step.step_id, step.answer_id, (question_of(tool="send"),), at_ms=START_MS
        )
        await store.decide(approval.approval_id, Decision(False, by=by), at_ms=START_MS)
        found = await seen(store)
        assert ([one.approval_id for one in found.refused], found.unanswered) == (
            [approval.approval_id], ()
        )  # fmt: skip
        assert found.advice()[0] == (
            f"send of step 5 was refused by {who}, and a re-run ends there again. To go on another "
            "way: `agentstate sessions rollback s 5`."
        )

    play(scenario)


def test_a_refusal_of_which_the_model_was_told_ends_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        step = await ask(store, [CHAT.asks("go")], CHAT.answer([SEND]))
        (approval,) = await store.open_approvals(
            step.step_id, step.answer_id, (question_of(tool="send"),), at_ms=START_MS
        )
        told = Decision(False, by="bob", then="continue")
        await store.decide(approval.approval_id, told, at_ms=START_MS)
        assert (await seen(store)).refused == ()

    play(scenario)


def test_a_session_that_is_completed_and_durable_calls_nobody_knows_of() -> None:
    async def scenario(store: MemoryStore) -> None:
        await run_of(store, 2)
        await store.change_session("s", Change(status="COMPLETED"), at_ms=START_MS)
        found = await seen(store)
        assert found.advice() == (
            "It is completed. Run again with the session id s, 2 steps replay.",
        )
        calls = (
            UnknownCall("t1", "charge", START_MS),
            UnknownCall("t2", "send", START_MS, is_running=True),
            UnknownCall("t3", "send", START_MS, is_running=True, lease_ms=AT_MS),
            UnknownCall("t4", "send", START_MS, is_running=True, lease_ms=AT_MS + 1),
        )
        advice = replace(found, unknown=calls).advice()
        assert advice[0].startswith("Nobody knows what came of charge (t1). Say whether it")
        assert advice[1].startswith("Begun and not reported so far: send (t2), send (t3). If its")
        assert all("agentstate tools settle CALL --happened" in each for each in advice[:2])
        assert advice[2].startswith("send (t4) is being run until 20")
        assert "after that it can be settled" in advice[2]

    play(scenario)
