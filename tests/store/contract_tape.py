"""What any store must do with sessions that were recorded elsewhere; see `contract.py`.

A backend subclasses `TapeContract` beside `StoreContract`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.budget import Spent
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import About
from agentstate.ground.errors import Conflict
from agentstate.ground.records import Query, StepRow
from agentstate.ground.tapes import TAPE_RUN, TapedSession, TapedStep
from agentstate.store.base import Store
from tests.store.contract import (
    KEYS,
    START_MS,
    MakeStore,
    answer_of,
    answered,
    checkpoint_of,
    claim_of,
    identity_of,
    message,
    request_of,
    run,
)
from tests.store.contract_control import active_of, session_of

LATER_MS = START_MS + 9000


def taped_step(text: str, session: str = "s", **changes: Any) -> TapedStep:
    """Make a step that was recorded elsewhere; its keys follow from `text`."""
    claim = claim_of(text, session=session, run_id=TAPE_RUN, created_ms=LATER_MS, **changes)
    checkpoint = checkpoint_of(0, attempts=(), answer=answer_of(text.encode()))
    return TapedStep(claim, replace(checkpoint, answered_ms=LATER_MS))


def taped(*texts: str, session: str = "s", **changes: Any) -> TapedSession:
    """Make a session of such steps."""
    return TapedSession(session, tuple(taped_step(text, session, **changes) for text in texts))


async def imported(store: Store, *sessions: TapedSession, replaces: bool = False) -> None:
    """Import sessions."""
    await store.import_sessions(sessions, at_ms=LATER_MS, replaces=replaces, by="ann")


async def steps_of(store: Store, session: str = "s") -> tuple[StepRow, ...]:
    """Return the steps of a session in order."""
    page = await store.list_steps(Query(session=session, newest_first=False))
    return page.rows


class TapeContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    def test_a_session_that_ends_in_a_tool_call_is_not_completed(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            session = taped("a", "b")
            last = session.steps[-1]
            called = ((0, ToolCall(0, "call_1", "send_email", "{}")),)
            checkpoint = replace(last.checkpoint, tool_calls=called)
            steps = (session.steps[0], replace(last, checkpoint=checkpoint))
            await imported(store, replace(session, steps=steps), taped("c", session="whole"))

            assert (await session_of(store)).status == "RUNNING"
            assert (await session_of(store, "whole")).status == "COMPLETED"
            # Nobody is told of a silence that nobody heard begin.
            assert await store.find_idle(idle_since_ms=LATER_MS * 2, limit=9) == ()
            await answered(store, "d", created_ms=LATER_MS + 1)
            assert len(await store.find_idle(idle_since_ms=LATER_MS * 2, limit=9)) == 1

        run(make_store, scenario)

    def test_a_session_comes_with_its_steps_and_answers(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await imported(store, taped("a", "b"))

            row = await session_of(store)
            rows = await steps_of(store)
            assert (row.steps, row.status) == (2, "COMPLETED")
            assert (row.input_tokens, row.output_tokens, row.cost_microusd) == (20, 8, 50)
            assert [each.state for each in rows] == ["complete", "complete"]
            assert [each.run_id for each in rows] == [TAPE_RUN, TAPE_RUN]
            for each, text in zip(rows, ("a", "b"), strict=True):
                answer = await store.read_answer(each.step_id)
                assert answer is not None
                assert answer.content == text.encode()
                assert await store.list_attempts(each.step_id) == ()

        run(make_store, scenario)

    def test_its_steps_are_found_by_every_key_also_if_they_were_looked_for_before(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            for key in KEYS:
                value = getattr(identity_of("b"), key)
                assert await store.find_candidates("s", key, value) == ()
            await imported(store, taped("a", "b"))

            for key in KEYS:
                [found] = await store.find_candidates("s", key, getattr(identity_of("b"), key))
                assert found.index == 1

        run(make_store, scenario)

    def test_its_tool_calls_are_evidence(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step = taped_step("a")
            call = ToolCall(call_id="call_1", name="look", arguments="{}", position=0)
            calling = replace(step.checkpoint, tool_calls=((0, call),))
            await imported(store, TapedSession("s", (replace(step, checkpoint=calling),)))

            [emitter] = (await store.find_emitters("s", ("call_1",)))["call_1"]
            assert emitter.replayed_ms is None

        run(make_store, scenario)

    def test_what_is_said_of_it_comes_too(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            about = About("Invoices", "parent", (("team", "ops"),))
            first = taped_step("a", about=about)
            await imported(store, TapedSession("s", (first, taped_step("b"))))

            row = await session_of(store)
            assert (row.name, row.parent, row.tags) == ("Invoices", "parent", (("team", "ops"),))

        run(make_store, scenario)

    def test_all_sessions_come_or_none(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "mine", session="t")
            with pytest.raises(Conflict, match="'t' on record"):
                await imported(store, taped("a"), taped("b", session="t"))

            assert await store.read_session("s") is None
            assert await store.find_candidates("s", "exact", identity_of("a").exact) == ()
            assert len(await steps_of(store, "t")) == 1
            await imported(store, taped("a"), taped("b", session="u"))
            assert [(await session_of(store, name)).steps for name in ("s", "u")] == [1, 1]

        run(make_store, scenario)

    def test_replacing_rolls_back_what_is_there_and_can_be_undone(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "old", step_number=0)
            [turned] = await store.import_sessions(
                (taped("a", "b"), taped("c", session="new")),
                at_ms=LATER_MS,
                replaces=True,
                by="ann",
            )

            assert (turned.session, turned.taken, turned.by) == ("s", ((0, 0),), "ann")
            assert await active_of(store) == [1, 2]
            assert await store.find_candidates("s", "exact", identity_of("old").exact) == ()
            assert (await session_of(store)).status == "COMPLETED"
            await store.restore("s", turned.rollback_id, at_ms=LATER_MS + 1)
            assert await active_of(store) == [0]

        run(make_store, scenario)

    def test_what_was_paid_elsewhere_counts_towards_no_cap(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await imported(store, taped("a"))
            assert (await session_of(store)).cost_microusd > 0
            assert (await store.read_budget("s")).spent == Spent()

        run(make_store, scenario)

    def test_nothing_runs_in_it_until_its_next_call(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await imported(store, taped("a"))
            idle = await store.find_idle(idle_since_ms=LATER_MS + 10**9, limit=10)
            assert idle == ()

            await store.claim_step(claim_of("b"))
            assert (await session_of(store)).status == "RUNNING"

        run(make_store, scenario)

    def test_large_requests_and_answers_come_too(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            text = "".join(chr(97 + number * 7919 % 26) for number in range(200_000))
            request = request_of(message(text), shared={"tools": [{"name": text}]})
            step = taped_step("a", request=request)
            large = replace(step.checkpoint, answer=answer_of(text.encode()))
            await imported(store, TapedSession("s", (replace(step, checkpoint=large),)))

            [row] = await steps_of(store)
            answer = await store.read_answer(row.step_id)
            assert answer is not None
            assert answer.content == text.encode()
            body = await store.read_request(row.step_id)
            assert isinstance(body, dict)
            assert body["messages"] == [message(text)]

        run(make_store, scenario)
