"""A cassette has what an agent would get again, and nothing that changes by itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.control import Place
from agentstate.ground.errors import NotFound
from agentstate.ground.forks import ForkAsk
from agentstate.ground.records import Query, Tail
from agentstate.store.base import Store
from tests.house.tapes import (
    ABOUT,
    call,
    chat,
    chat_body,
    chat_events,
    copied,
    lines_of,
    on_store,
    said,
    tape,
    user,
)
from tests.store.contract import START_MS, answer_of, claim_of
from tests.store.contract_gate import question_of


def test_it_has_a_head_the_session_its_steps_and_an_end() -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user("a"), answer="one", about=ABOUT)
        await chat(store, user("a"), said("one"), user("b"), answer="two")

        head, session, first, second, end = lines_of(await tape(store))

        assert head == {"format": "agentstate-cassette", "version": 1}
        assert session == {
            "session": "s", "name": "Invoices", "parent": "the-parent", "tags": {"team": "ops"}
        }  # fmt: skip
        assert list(first) == ["dialect", "path", "model", "keys", "request", "answer"]
        assert list(first["keys"]) == ["raw", "exact"]
        assert first["request"] == {"model": "gpt-4o", "messages": [user("a")]}
        assert first["answer"] == {
            "provider": "openai",
            "model": "gpt-4o-2024-08-06",
            "type": "application/json",
            "body": json.loads(chat_body("one")),
            "layout": "indented",
        }
        assert second["request"]["messages"][-1] == user("b")
        assert end == {"end": {"sessions": 1, "steps": 2}}

    on_store(scenario)


def test_two_recordings_of_the_same_are_the_same_file() -> None:
    async def scenario(store: Store) -> None:
        for session, delay_ms in (("s", 0), ("t", 5000)):
            for text in ("a", "b"):
                await chat(
                    store,
                    user(text),
                    session=session,
                    created_ms=START_MS + delay_ms,
                    run_id=f"run-{session}",
                )

        one, other = await tape(store, "s"), await tape(store, "t")
        assert one.replace(b'"session":"s"', b'"session":"t"') == other

    on_store(scenario)


def test_what_does_not_answer_stays_out() -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user("kept"))
        await chat(store, user("rolled back"))
        await store.roll_back("s", Place(index=1), at_ms=START_MS)
        failed = await store.claim_step(claim_of("failed"))
        await store.record_failure(failed.step_id, (), failed_ms=START_MS)
        await store.claim_step(claim_of("in flight"))

        raw = await tape(store)

        assert lines_of(raw)[-1] == {"end": {"sessions": 1, "steps": 1}}
        assert b"rolled back" not in raw

    on_store(scenario)


def test_numbers_that_follow_by_themselves_are_not_said() -> None:
    async def scenario(store: Store) -> None:
        for number, text in ((0, "a"), (1, "b"), (1, "c"), (7, "d"), (8, "e")):
            await chat(store, user(text), step_number=number)

        steps = lines_of(await tape(store))[2:-1]
        assert [each.get("step") for each in steps] == [None, None, 1, 7, None]
        other = await copied(await tape(store))
        rows = (await other.list_steps(Query(session="s", newest_first=False))).rows
        assert [row.step_number for row in rows] == [0, 1, 1, 7, 8]

    on_store(scenario)


def test_a_stream_that_lacks_its_end_gets_it() -> None:
    async def scenario(store: Store) -> None:
        body = {"model": "m", "stream": True, "messages": [user("a")]}
        # As after a kill between the answer and its tail.
        content = chat_events("one").removesuffix(b"data: [DONE]\n\n")
        await call(store, body, content, is_sealed=False)

        events = lines_of(await tape(store))[2]["answer"]["events"]

        assert "".join(events).encode() == chat_events("one")

    on_store(scenario)


def test_timing_comes_only_if_it_is_asked_for() -> None:
    async def scenario(store: Store) -> None:
        body = {"model": "m", "stream": True, "messages": [user("a")]}
        step_id = await call(store, body, chat_events("one"))
        pace = (8).to_bytes(4, "little") + (120).to_bytes(4, "little")
        await store.append_tail(Tail(step_id, b": more\n\n", pace, True, None, False, None))

        plain = lines_of(await tape(store))[2]["answer"]
        timed = lines_of(await tape(store, has_timing=True))[2]["answer"]

        assert {*timed} - {*plain} == {"latency_ms", "pace"}
        assert (timed["latency_ms"], timed["pace"]) == (950, [[8, 120]])

    on_store(scenario)


@pytest.mark.parametrize(
    ("decision", "found"),
    [
        (None, {"waiting": 1}),
        (Decision(is_approved=True, by=None), None),
        (Decision(is_approved=False, by=None), {"refused": 1}),
        (Decision(is_approved=True, by=None, arguments='{"to": "bob"}'), {"waiting": 1}),
    ],
)
def test_what_no_agent_got_is_left_out_and_counted(
    decision: Decision | None, found: dict[str, int] | None
) -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user("a"))
        step_id = await chat(store, user("b"))
        row = await store.read_step(step_id)
        assert row is not None
        [approval] = await store.open_approvals(
            step_id, row.answer_id, (question_of(),), at_ms=START_MS
        )
        if decision is not None:
            await store.decide(approval.approval_id, decision, at_ms=START_MS)

        end = lines_of(await tape(store))[-1]["end"]

        assert end.get("left_out") == found
        assert end["steps"] == (2 if found is None else 1)

    on_store(scenario)


@pytest.mark.parametrize(
    ("decision", "found"),
    [
        (Decision(is_approved=True, by=None), None),
        (Decision(is_approved=False, by=None), {"refused": 1}),
        (Decision(is_approved=True, by=None, arguments='{"to": "bob"}'), {"waiting": 1}),
    ],
)
def test_what_was_refused_before_a_fork_does_not_come_out_of_the_fork(
    decision: Decision, found: dict[str, int] | None
) -> None:
    async def scenario(store: Store) -> None:
        step_id = await chat(store, user("a"))
        await chat(store, user("b"))
        row = await store.read_step(step_id)
        assert row is not None
        [approval] = await store.open_approvals(
            step_id, row.answer_id, (question_of(),), at_ms=START_MS
        )
        await store.decide(approval.approval_id, decision, at_ms=START_MS)
        fork = await store.fork_session("s", ForkAsk(), at_ms=START_MS)
        again = await store.fork_session(fork, ForkAsk(), at_ms=START_MS)
        await store.delete_session("s")

        for name in (fork, again):
            assert lines_of(await tape(store, name))[-1]["end"].get("left_out") == found

    on_store(scenario)


def test_a_fork_has_what_an_agent_got_where_it_comes_from() -> None:
    async def scenario(store: Store) -> None:
        step_id = await chat(store, user("a"), answer="as the model said")
        row = await store.read_step(step_id)
        assert row is not None
        assert row.answer_id is not None
        [approval] = await store.open_approvals(
            step_id, row.answer_id, (question_of(),), at_ms=START_MS
        )
        edited = Decision(is_approved=True, by=None, arguments='{"to": "bob"}')
        await store.decide(approval.approval_id, edited, at_ms=START_MS)
        await store.record_delivered(row.answer_id, answer_of(chat_body("as a person said")))
        fork = await store.fork_session("s", ForkAsk(), at_ms=START_MS)

        raw = await tape(store, fork)

        assert b"as the model said" not in raw
        assert b"as a person said" in raw

    on_store(scenario)


def test_what_the_agent_got_is_what_it_has() -> None:
    async def scenario(store: Store) -> None:
        step_id = await chat(store, user("a"), answer="as the model said")
        row = await store.read_step(step_id)
        assert row is not None
        assert row.answer_id is not None
        got = answer_of(chat_body("as a person said"))
        await store.record_delivered(row.answer_id, got)

        raw = await tape(store)

        assert b"as the model said" not in raw
        other = await copied(raw)
        answer = await other.read_answer(1)
        assert answer is not None
        assert answer.content == got.content

    on_store(scenario)


def test_sessions_come_in_the_order_they_are_named() -> None:
    async def scenario(store: Store) -> None:
        for name in ("b", "a"):
            await chat(store, user(name), session=name)
        failed = await store.claim_step(replace(claim_of(), session="empty"))
        await store.record_failure(failed.step_id, (), failed_ms=START_MS)

        lines = lines_of(await tape(store, "a", "b", "empty"))

        assert [each["session"] for each in lines if "session" in each] == ["a", "b"]
        assert lines[-1] == {"end": {"sessions": 2, "steps": 2}}
        with pytest.raises(NotFound, match="no session 'c'"):
            await tape(store, "a", "c")

    on_store(scenario)
