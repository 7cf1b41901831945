"""What any store must do for the gate; see `contract.py`, whose makers it uses.

A backend subclasses `GateContract` beside `StoreContract`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import struct
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Approval, Decision, Question, Refusal, Release
from agentstate.ground.chat import ToolCall, Usage
from agentstate.ground.errors import AlreadyDecided, BadRequest, NotFound, StoreError
from agentstate.ground.records import Query, RecordedAnswer, SessionStatus
from agentstate.store.base import LIST_LIMIT_MAX, Store
from tests.store.contract import (
    START_MS,
    MakeStore,
    answer_of,
    answered,
    attempt_of,
    checkpoint_of,
    claim_of,
    identity_of,
    run,
    step_at,
    tail_of,
)

SOON_MS = START_MS + 60_000
LONG_AGO_MS = 1  # before any real time: `read_session` asks the clock
FAR_MS = 2**50  # after any
ODD, MENDED = "a\ud83d\ude00 b\ud83d", "a😀 b\ufffd"
MANY = 70  # more than is read at once on the event loop


# --- makers ---------------------------------------------------------------------------------------


def question_of(text: str = "", **changes: Any) -> Question:
    """Make a question about a call whose digest follows from `text`."""
    question = Question(
        kind="tool_call",
        choice=0,
        position=0,
        digest=hashlib.sha256(text.encode()).digest(),
        tool="send_email",
        call_id="call_0",
        arguments='{"to": "a@example.org"}',
        rule="gate.tools: send_email",
        why="",
        deadline_ms=SOON_MS,
    )
    return replace(question, **changes)


def request_question_of(**changes: Any) -> Question:
    """Make a question about a whole request."""
    request: dict[str, Any] = {"kind": "request", "tool": "gpt-4o-mini", "call_id": None}
    return question_of(**(request | {"arguments": ""} | changes))


def approval_of(**changes: Any) -> Decision:
    """Make the decision that approves."""
    return replace(Decision(True, "ann"), **changes)


def rejection_of(**changes: Any) -> Decision:
    """Make the decision that rejects and goes on."""
    return replace(Decision(False, "ann", "not today", then="continue"), **changes)


async def answer_id_of(store: Store, text: str = "hi", **changes: Any) -> tuple[int, int]:
    """Record one whole step; return its id and its answer's."""
    claimed = await store.claim_step(claim_of(text, **changes))
    return claimed.step_id, await store.record_answer(checkpoint_of(claimed.step_id))


async def asked(store: Store, text: str = "hi", **changes: Any) -> Approval:
    """Record one whole step, of the session "s" or that given, and ask one question about it."""
    session = changes.pop("session", "s")
    step_id, answer_id = await answer_id_of(store, text, session=session)
    question = question_of(**changes)
    (approval,) = await store.open_approvals(step_id, answer_id, (question,), at_ms=START_MS)
    return approval


async def decided(store: Store, decision: Decision, text: str = "hi", **changes: Any) -> Approval:
    """As `asked`, and decide it."""
    approval = await asked(store, text, **changes)
    return await store.decide(approval.approval_id, decision, at_ms=START_MS + 5)


async def status_of(store: Store, session: str = "s") -> SessionStatus:
    """Read the status of a session that must be there."""
    row = await store.read_session(session)
    assert row is not None
    return row.status


# --- the contract ---------------------------------------------------------------------------------


class GateContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- life -------------------------------------------------------------------------------

    def test_a_new_record_has_nothing_for_the_gate(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for name in ("apr_", "", ODD):
                assert await store.read_approval(name) is None
            assert await store.approvals_of(1) == ()
            assert (await store.list_approvals(Query(), at_ms=START_MS)).rows == ()
            assert await store.count_pending(at_ms=START_MS) == 0
            assert await store.rounds_of(1) == ()
            assert await store.read_answer_by_id(1) is None
            assert await store.read_delivered(1) is None
            assert await store.list_releases(1) == ()
            assert await store.list_refusals("s") == ()
            assert await store.find_response("s", "resp_1") is None

        run(make_store, scenario)

    def test_what_the_gate_wrote_is_there_after_opening_again(self, make_store: MakeStore) -> None:
        async def write(store: Store) -> tuple[Any, ...]:
            approval = await decided(store, rejection_of())
            assert approval.answer_id == 1
            await store.record_round(checkpoint_of(approval.step_id, text="sorry"), 1, 1)
            await store.record_delivered(1, answer_of(b"instead"))
            store.note_released(await store.record_release(1, "r", at_ms=START_MS))
            await asked(store, "b", session="other", deadline_ms=None)
            return await read(store)

        async def read(store: Store) -> tuple[Any, ...]:
            return (
                await store.list_approvals(Query(), at_ms=START_MS),
                await store.approvals_of(1),
                await store.rounds_of(1),
                await store.read_answer_by_id(2),
                await store.read_delivered(1),
                await store.list_releases(1),
                await store.list_refusals("s"),
                await store.list_sessions(Query()),
            )

        assert run(make_store, write) == run(make_store, read)

    def test_a_closed_store_refuses_the_gate(self, make_store: MakeStore) -> None:
        async def scenario() -> None:
            store = make_store()
            await store.open()
            approval = await asked(store)
            name = approval.approval_id
            await store.close()
            for call in (
                store.open_approvals(1, 1, (question_of(),), at_ms=START_MS),
                store.decide(name, approval_of(), at_ms=START_MS),
                store.decide(name, rejection_of(), at_ms=START_MS),
                store.read_approval(name),
                store.approvals_of(1),
                store.list_approvals(Query(), at_ms=START_MS),
                store.count_pending(at_ms=START_MS),
                store.record_round(checkpoint_of(1), 1, 1),
                store.rounds_of(1),
                store.read_answer_by_id(1),
                store.record_delivered(1, answer_of()),
                store.read_delivered(1),
                store.record_release(1, None, at_ms=START_MS),
                store.list_releases(1),
                store.list_refusals("s"),
                store.find_response("s", "resp_1"),
            ):
                with pytest.raises(StoreError):
                    await call
            store.note_released(1)  # never fails

        asyncio.run(scenario())

    # --- asking -----------------------------------------------------------------------------

    def test_an_answer_is_recorded_under_an_id_of_its_own(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, first = await answer_id_of(store)
            await store.claim_step(claim_of(step_id=step_id))
            second = await store.record_answer(checkpoint_of(step_id, answer=answer_of(b"2")))

            assert first != second
            assert (await step_at(store, step_id)).answer_id == second
            (candidate,) = await store.find_candidates("s", "exact", identity_of("hi").exact)
            assert candidate.answer_id == second
            assert await store.read_answer_by_id(first) == answer_of()
            assert await store.read_answer_by_id(second) == answer_of(b"2")
            await store.record_failure(step_id, (), failed_ms=START_MS)
            assert await store.read_answer_by_id(second) == answer_of(b"2")  # taken back
            assert (await step_at(store, step_id)).answer_id == first  # it stands again
            await store.claim_step(claim_of(step_id=step_id))
            assert (await step_at(store, step_id)).answer_id == first

        run(make_store, scenario)

    def test_an_answer_that_was_taken_back_is_still_the_one_to_look_at(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            step_id, answer_id = await answer_id_of(store)

            await store.record_failure(step_id, (), failed_ms=START_MS)

            row = await step_at(store, step_id)
            assert (row.state, row.answer_id) == ("failed", answer_id)
            assert await store.read_answer(step_id) is None

        run(make_store, scenario)

    def test_an_answer_is_read_by_its_id_with_its_tail(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            begun = answer_of(b"data: 1\n\n", form="events", pace=b"\1" * 8, is_sealed=False)
            claimed = await store.claim_step(claim_of(streams=True))
            answer_id = await store.record_answer(checkpoint_of(claimed.step_id, answer=begun))
            assert await store.read_answer_by_id(answer_id) == begun

            await store.append_tail(tail_of(claimed.step_id, b"data: 2\n\n", pace=b"\2" * 8))

            whole = replace(begun, content=b"data: 1\n\ndata: 2\n\n", pace=b"\1" * 8 + b"\2" * 8)
            assert await store.read_answer_by_id(answer_id) == replace(whole, is_sealed=True)

        run(make_store, scenario)

    def test_an_approval_tells_what_a_person_needs_to_know(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "before", step_number=3)
            step_id, answer_id = await answer_id_of(store, run_id="r", step_number=7)
            question = question_of(
                choice=1,
                position=2,
                why="released before, at noon",
                on_reject="continue",
                generation=3,
            )

            (approval,) = await store.open_approvals(
                step_id, answer_id, (question,), at_ms=START_MS
            )

            assert re.fullmatch(r"apr_[0-9a-f]{20}", approval.approval_id)
            assert approval == Approval(
                approval_id=approval.approval_id,
                session="s",
                step_id=step_id,
                step_number=7,
                index=1,
                answer_id=answer_id,
                dialect="openai_chat",
                model="gpt-4o-mini-2024",
                run_id="r",
                question=question,
                created_ms=START_MS,
                asked_ms=START_MS,
            )
            assert await store.read_approval(approval.approval_id) == approval
            assert await store.approvals_of(answer_id) == (approval,)

        run(make_store, scenario)

    def test_questions_are_answered_in_order(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, answer_id = await answer_id_of(store)
            questions = tuple(question_of(str(place), position=place) for place in range(5))

            async def ask(*places: int) -> tuple[Approval, ...]:
                some = tuple(questions[place] for place in places)
                return await store.open_approvals(step_id, answer_id, some, at_ms=START_MS)

            first = await ask(3, 1)
            then = await ask(0, 1, 2, 3)

            assert (then[1], then[3]) == (first[1], first[0])
            assert [one.question.position for one in then] == [0, 1, 2, 3]
            assert len({one.approval_id for one in then}) == 4
            assert await ask() == ()

        run(make_store, scenario)

    @pytest.mark.parametrize(
        "changes",
        [
            {"choice": 1},
            {"position": 1},
            {"kind": "text"},
            {"digest": b"\0" * 32},
            {"generation": 1},
        ],
    )
    def test_what_an_approval_is_bound_to_makes_it_another_one(
        self, make_store: MakeStore, changes: dict[str, Any]
    ) -> None:
        async def scenario(store: Store) -> None:
            first = await asked(store)
            other = replace(question_of(), **changes)

            (second,) = await store.open_approvals(first.step_id, 1, (other,), at_ms=START_MS)

            assert second.approval_id != first.approval_id
            assert second.question == other

        run(make_store, scenario)

    def test_an_approval_is_of_one_answer(self, make_store: MakeStore) -> None:
        """A refresh, or another step with an equal call, asks again."""

        async def scenario(store: Store) -> None:
            first = await asked(store)
            await store.claim_step(claim_of(step_id=first.step_id))
            new_id = await store.record_answer(checkpoint_of(first.step_id))

            (again,) = await store.open_approvals(
                first.step_id, new_id, (question_of(),), at_ms=START_MS
            )
            elsewhere = await asked(store, "b")

            names = {one.approval_id for one in (first, again, elsewhere)}
            assert len(names) == 3

        run(make_store, scenario)

    def test_what_is_only_shown_does_not_make_it_another_one(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            first = await asked(store)
            alike = question_of(
                tool="Send_Email",
                call_id="call_9",
                arguments='{"to":"a@example.org"}',
                rule="gate.rule 2: send_*",
                why="because",
                deadline_ms=SOON_MS + 9,
                on_reject="continue",
            )

            again = await store.open_approvals(1, 1, (alike, alike), at_ms=START_MS + 9)

            assert again == (first, first)
            page = await store.list_approvals(Query(), at_ms=START_MS)
            assert page.rows == (first,)

        run(make_store, scenario)

    def test_those_who_ask_at_once_get_the_same_rows(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, answer_id = await answer_id_of(store)
            questions = tuple(question_of(str(place), position=place) for place in range(3))

            found = await asyncio.gather(
                *(
                    store.open_approvals(step_id, answer_id, questions, at_ms=START_MS)
                    for _ in range(30)
                )
            )

            assert len(set(found)) == 1
            assert len((await store.list_approvals(Query(), at_ms=START_MS)).rows) == 3

        run(make_store, scenario)

    def test_only_about_what_is_there_can_be_asked(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, answer_id = await answer_id_of(store)
            other_id, other_answer_id = await answer_id_of(store, "b", session="other")
            for step, answer in (
                (99, None),
                (99, answer_id),
                (step_id, 99),
                (step_id, other_answer_id),
                (other_id, answer_id),
            ):
                with pytest.raises(NotFound):
                    await store.open_approvals(step, answer, (question_of(),), at_ms=START_MS)
            assert (await store.list_approvals(Query(), at_ms=START_MS)).rows == ()

        run(make_store, scenario)

    @pytest.mark.parametrize(
        "arguments",
        [
            "",
            '{"a": 1.0}',
            "not json {",
            '{"half": "\ud83d", "pair": "\ud83d\ude00", "whole": "😀"}',
            "\0",
            "x" * 100_000,
            "\ud83d" * 40_000,
        ],
    )
    def test_arguments_come_back_exactly(self, make_store: MakeStore, arguments: str) -> None:
        async def scenario(store: Store) -> None:
            approval = await asked(store, arguments=arguments)
            edited = approval_of(arguments=arguments)
            await store.decide(approval.approval_id, edited, at_ms=START_MS)

            found = await store.read_approval(approval.approval_id)

            assert found is not None
            assert found.question.arguments == arguments
            assert found.decision == edited
            assert await store.approvals_of(1) == (found,)
            assert (await store.list_approvals(Query(), at_ms=START_MS)).rows == (found,)

        run(make_store, scenario)

    def test_text_of_the_gate_that_is_no_unicode_is_mended(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            shown = {"tool": ODD, "call_id": ODD, "rule": ODD, "why": ODD}
            approval = await asked(store, arguments=ODD, **shown)
            question = approval.question
            assert {question.tool, question.call_id, question.rule, question.why} == {MENDED}
            assert question.arguments == ODD

            decision = rejection_of(by=ODD, reason=ODD)
            done = await store.decide(approval.approval_id, decision, at_ms=START_MS)

            assert done.decision == rejection_of(by=MENDED, reason=MENDED)
            assert await store.read_approval(approval.approval_id) == done

        run(make_store, scenario)

    def test_approvals_of_an_answer_are_in_the_order_of_its_calls(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            places = [(1, 0, 0), (0, 1, 1), (0, 1, 0), (0, 0, 2), (0, 10, 0)]
            step_id, answer_id = await answer_id_of(store)
            for choice, position, generation in places:
                question = question_of(choice=choice, position=position, generation=generation)
                await store.open_approvals(step_id, answer_id, (question,), at_ms=START_MS)
            await asked(store, "b")

            found = [one.question for one in await store.approvals_of(answer_id)]

            assert [(one.choice, one.position, one.generation) for one in found] == sorted(places)

        run(make_store, scenario)

    # --- expiry -----------------------------------------------------------------------------

    @pytest.mark.parametrize("late_ms", [0, 1, 10**9])
    def test_one_that_has_expired_is_opened_again(
        self, make_store: MakeStore, late_ms: int
    ) -> None:
        async def scenario(store: Store) -> None:
            first = await asked(store)
            late = question_of(
                deadline_ms=SOON_MS + 2 * 10**9, rule="another", on_reject="continue"
            )

            (again,) = await store.open_approvals(1, 1, (late,), at_ms=SOON_MS + late_ms)

            assert again == replace(
                first,
                question=replace(first.question, deadline_ms=SOON_MS + 2 * 10**9),
                asked_ms=SOON_MS + late_ms,
            )
            assert await store.read_approval(first.approval_id) == again

        run(make_store, scenario)

    def test_each_of_the_same_questions_gets_the_row_as_it_was_then(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            place = await answer_id_of(store)
            asks = (question_of(deadline_ms=LONG_AGO_MS), question_of(deadline_ms=None))

            expired, opened = await store.open_approvals(*place, asks, at_ms=START_MS)

            assert expired.question.deadline_ms == LONG_AGO_MS
            deadline_gone = replace(expired.question, deadline_ms=None)
            assert opened == replace(expired, question=deadline_gone)

        run(make_store, scenario)

    def test_one_that_has_not_expired_keeps_its_deadline(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            first = await asked(store)
            never = await asked(store, "b", deadline_ms=None)
            late = question_of(deadline_ms=FAR_MS)

            again = await store.open_approvals(1, 1, (late,), at_ms=SOON_MS - 1)
            assert again == (first,)
            again = await store.open_approvals(2, 2, (late,), at_ms=FAR_MS)
            assert again == (never,)

        run(make_store, scenario)

    @pytest.mark.parametrize("decision", [approval_of(), rejection_of()])
    def test_what_is_decided_is_not_opened_again(
        self, make_store: MakeStore, decision: Decision
    ) -> None:
        async def scenario(store: Store) -> None:
            done = await decided(store, decision)
            late = question_of(deadline_ms=FAR_MS)

            again = await store.open_approvals(1, 1, (late,), at_ms=SOON_MS + 5)

            assert again == (done,)

        run(make_store, scenario)

    # --- requests, before they go upstream --------------------------------------------------

    def test_a_request_that_waits_is_found_by_its_step(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of(run_id="r"))
            question = request_question_of()

            (first,) = await store.open_approvals(
                claimed.step_id, None, (question,), at_ms=START_MS
            )
            elsewhere = replace(question, choice=3, position=4)  # a request has no place
            again = await store.open_approvals(
                claimed.step_id, None, (question, elsewhere), at_ms=START_MS + 1
            )

            assert (first.answer_id, first.model, first.run_id) == (None, "gpt-4o-mini", "r")
            assert first.question == question
            assert again == (first, first)
            for change in ({"digest": b"x"}, {"generation": 1}, {"kind": "text"}):
                (other,) = await store.open_approvals(
                    claimed.step_id, None, (replace(question, **change),), at_ms=START_MS
                )
                assert other.approval_id != first.approval_id

        run(make_store, scenario)

    def test_an_approved_request_is_bound_to_its_answer(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            step_id, questions = claimed.step_id, (request_question_of(),)
            (first,) = await store.open_approvals(step_id, None, questions, at_ms=START_MS)
            done = await store.decide(first.approval_id, approval_of(), at_ms=START_MS)
            await store.record_failure(step_id, (), failed_ms=START_MS)
            await store.claim_step(claim_of(step_id=step_id))
            # A failure used nothing up.
            assert await store.open_approvals(step_id, None, questions, at_ms=START_MS) == (done,)

            answer_id = await store.record_answer(
                checkpoint_of(step_id, approval_id=first.approval_id)
            )

            bound = await store.read_approval(first.approval_id)
            assert bound == replace(done, answer_id=answer_id, model="gpt-4o-mini-2024")
            assert await store.approvals_of(answer_id) == (bound,)
            (again,) = await store.open_approvals(step_id, None, questions, at_ms=START_MS)
            assert again.approval_id != first.approval_id

            # What is bound stays so.
            await store.record_answer(checkpoint_of(step_id, approval_id=first.approval_id))
            assert await store.read_approval(first.approval_id) == bound

        run(make_store, scenario)

    def test_an_answer_that_names_no_approval_binds_none(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            questions = (request_question_of(),)
            before = await store.open_approvals(claimed.step_id, None, questions, at_ms=START_MS)

            await store.record_answer(checkpoint_of(claimed.step_id))
            # An answer is never lost over its approval.
            await store.record_answer(checkpoint_of(claimed.step_id, approval_id="apr_gone"))

            after = await store.open_approvals(claimed.step_id, None, questions, at_ms=START_MS)
            assert after == before

        run(make_store, scenario)

    # --- deciding ---------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "decision",
        [
            Decision(True, None),
            Decision(True, "ann", "fine"),
            Decision(True, "ann", None, ""),
            Decision(True, "ann", None, '{"to": "b@example.org"}'),
            Decision(False, None),
            Decision(False, "gate.rule 2: x", "no", None, "stop"),
            Decision(False, "ann", "no", None, "continue"),
        ],
    )
    def test_a_decision_comes_back(self, make_store: MakeStore, decision: Decision) -> None:
        async def scenario(store: Store) -> None:
            approval = await asked(store)

            done = await store.decide(approval.approval_id, decision, at_ms=START_MS + 7)

            assert done == replace(approval, decision=decision, decided_ms=START_MS + 7)
            assert await store.read_approval(approval.approval_id) == done
            assert await store.approvals_of(1) == (done,)

        run(make_store, scenario)

    @pytest.mark.parametrize("second", [approval_of(by="bob"), rejection_of(by="bob")])
    def test_the_first_decision_stands(self, make_store: MakeStore, second: Decision) -> None:
        async def scenario(store: Store) -> None:
            done = await decided(store, approval_of(arguments="{}"))
            for late in (second, replace(second, then="stop"), done.decision):
                assert late is not None
                with pytest.raises(AlreadyDecided) as caught:
                    await store.decide(done.approval_id, late, at_ms=START_MS + 99)
                assert caught.value.approval == done
                assert "ann" in caught.value.message

            assert await store.read_approval(done.approval_id) == done
            assert await store.list_refusals("s") == ()
            assert await status_of(store) == "RUNNING"

        run(make_store, scenario)

    def test_of_those_who_decide_at_once_one_decides(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            approval = await asked(store)
            people = [f"person {place}" for place in range(12)]

            outcomes = await asyncio.gather(
                *(
                    store.decide(approval.approval_id, approval_of(by=by), at_ms=START_MS)
                    for by in people
                ),
                return_exceptions=True,
            )

            (won,) = [one for one in outcomes if isinstance(one, Approval)]
            lost = [one for one in outcomes if isinstance(one, AlreadyDecided)]
            assert len(lost) == len(people) - 1
            assert {one.approval for one in lost} == {won}
            assert await store.read_approval(approval.approval_id) == won

        run(make_store, scenario)

    @pytest.mark.parametrize("decision", [approval_of(), rejection_of(), rejection_of(then="stop")])
    @pytest.mark.parametrize("name", ["apr_0", "", ODD])
    def test_what_was_not_asked_cannot_be_decided(
        self, make_store: MakeStore, decision: Decision, name: str
    ) -> None:
        async def scenario(store: Store) -> None:
            await asked(store)
            with pytest.raises(NotFound):
                await store.decide(name, decision, at_ms=START_MS)

        run(make_store, scenario)

    def test_what_has_expired_can_be_decided(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            approval = await asked(store)
            done = await store.decide(approval.approval_id, approval_of(), at_ms=SOON_MS + 1)
            assert done.status(SOON_MS + 2) == "APPROVED"

        run(make_store, scenario)

    # --- listing ----------------------------------------------------------------------------

    @pytest.mark.parametrize("newest_first", [True, False])
    @pytest.mark.parametrize(
        ("session", "status", "count"),
        [(None, None, 9), ("s", None, 5), (None, "PENDING", 9), ("s", "PENDING", 5)],
    )
    def test_approvals_are_listed_page_by_page(
        self,
        make_store: MakeStore,
        newest_first: bool,
        session: str | None,
        status: str | None,
        count: int,
    ) -> None:
        async def scenario(store: Store) -> None:
            asked_of: list[Approval] = []
            for place in range(9):
                name = ("s", "other")[place % 2]
                step_id, answer_id = await answer_id_of(store, str(place), session=name)
                asked_of += await store.open_approvals(
                    step_id, answer_id, (question_of(),), at_ms=START_MS + place // 3
                )
            query = Query(session=session, status=status, limit=2, newest_first=newest_first)

            pages = [await store.list_approvals(query, at_ms=START_MS)]
            while (after := pages[-1].next_cursor) is not None:
                pages.append(
                    await store.list_approvals(replace(query, after=after), at_ms=START_MS)
                )

            rows = [row for page in pages for row in page.rows]
            expected = [one for one in asked_of if session in (None, one.session)]
            assert len(expected) == count
            assert rows == (expected[::-1] if newest_first else expected)
            assert [len(page.rows) for page in pages] == [2] * (count // 2) + [1]

        run(make_store, scenario)

    @pytest.mark.parametrize("session", [None, "s"])
    @pytest.mark.parametrize(
        ("status", "found"),
        [
            (None, ["rejected", "approved", "expired", "never", "pending"]),
            ("PENDING", ["expired", "never", "pending"]),
            ("EXPIRED", ["expired"]),
            ("APPROVED", ["approved"]),
            ("REJECTED", ["rejected"]),
            ("WAITING", []),
            ("' or 1 --", []),
        ],
    )
    def test_approvals_are_filtered_by_status(
        self, make_store: MakeStore, session: str | None, status: str | None, found: list[str]
    ) -> None:
        async def scenario(store: Store) -> None:
            await asked(store, "1", tool="pending", deadline_ms=SOON_MS + 1)
            await asked(store, "2", tool="never", deadline_ms=None)
            await asked(store, "3", tool="expired", deadline_ms=SOON_MS)
            await decided(store, approval_of(), "4", tool="approved")
            await decided(store, rejection_of(), "5", tool="rejected")
            query = Query(session=session, status=status)

            page = await store.list_approvals(query, at_ms=SOON_MS)

            assert [row.question.tool for row in page.rows] == found
            assert await store.count_pending(at_ms=SOON_MS) == 2

        run(make_store, scenario)

    def test_one_that_is_opened_again_is_the_last_asked(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            first = await asked(store, "a")
            second = await asked(store, "b", deadline_ms=None)
            question = question_of(deadline_ms=FAR_MS)
            (again,) = await store.open_approvals(1, 1, (question,), at_ms=SOON_MS)

            page = await store.list_approvals(Query(), at_ms=SOON_MS)

            assert page.rows == (again, second)
            assert again.approval_id == first.approval_id

        run(make_store, scenario)

    def test_approvals_are_listed_by_step(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await asked(store, "a")
            step_id, first = await answer_id_of(store, "b")
            (old,) = await store.open_approvals(step_id, first, (question_of(),), at_ms=START_MS)
            await store.claim_step(claim_of("b", step_id=step_id))  # a refresh
            question = request_question_of()
            (sent,) = await store.open_approvals(step_id, None, (question,), at_ms=SOON_MS)
            query = Query(session="s", step_id=step_id, newest_first=False)

            page = await store.list_approvals(query, at_ms=SOON_MS)

            assert page.rows == (old, sent)
            other = replace(query, session="gone")
            assert (await store.list_approvals(other, at_ms=SOON_MS)).rows == ()

        run(make_store, scenario)

    def test_a_session_that_is_not_there_has_no_approvals(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await asked(store)
            for status in (None, "PENDING"):
                query = Query(session="gone", status=status)
                assert (await store.list_approvals(query, at_ms=START_MS)).rows == ()

        run(make_store, scenario)

    @pytest.mark.parametrize(
        "query",
        [Query(limit=0), Query(limit=LIST_LIMIT_MAX + 1), Query(after="x"), Query(after="WzFd")],
    )
    def test_odd_pages_of_approvals_are_refused(self, make_store: MakeStore, query: Query) -> None:
        async def scenario(store: Store) -> None:
            with pytest.raises(BadRequest):
                await store.list_approvals(query, at_ms=START_MS)

        run(make_store, scenario)

    # --- the status of a session ------------------------------------------------------------

    @pytest.mark.parametrize(
        ("deadline_ms", "decision", "status"),
        [
            (None, None, "WAITING"),
            (FAR_MS, None, "WAITING"),
            (LONG_AGO_MS, None, "RUNNING"),
            (FAR_MS, approval_of(), "RUNNING"),
            (FAR_MS, rejection_of(), "RUNNING"),
            (FAR_MS, rejection_of(then="stop"), "FAILED"),
            (FAR_MS, rejection_of(then=None), "FAILED"),
            (LONG_AGO_MS, rejection_of(then="stop"), "FAILED"),
        ],
    )
    def test_a_session_waits_goes_on_or_has_failed(
        self,
        make_store: MakeStore,
        deadline_ms: int | None,
        decision: Decision | None,
        status: SessionStatus,
    ) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, session="other")
            approval = await asked(store, deadline_ms=deadline_ms)
            if decision is not None:
                await store.decide(approval.approval_id, decision, at_ms=START_MS)

            assert await status_of(store) == status
            assert await status_of(store, "other") == "RUNNING"
            rows = (await store.list_sessions(Query())).rows
            assert {row.session: row.status for row in rows} == {"s": status, "other": "RUNNING"}
            for wanted in ("RUNNING", "WAITING", "FAILED", "PAUSED"):
                page = await store.list_sessions(Query(status=wanted))
                assert page.rows == tuple(row for row in rows if row.status == wanted)

        run(make_store, scenario)

    def test_the_next_claim_goes_on_after_a_failure(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for place, step_id in enumerate((None, 1)):
                await decided(store, rejection_of(then="stop"), f"refused {place}")
                assert await status_of(store) == "FAILED"
                await store.claim_step(claim_of("next", step_id=step_id))
                assert await status_of(store) == "RUNNING"

        run(make_store, scenario)

    def test_one_that_waits_has_not_failed_yet(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await decided(store, rejection_of(then="stop"), "a")
            approval = await asked(store, "b", deadline_ms=None)
            assert await status_of(store) == "WAITING"
            await store.decide(approval.approval_id, rejection_of(then="stop"), at_ms=START_MS)
            assert await status_of(store) == "FAILED"
            expired = await asked(store, "c", deadline_ms=LONG_AGO_MS)  # with a claim of its own
            assert await status_of(store) == "RUNNING"
            await decided(store, rejection_of(then="stop"), "d")
            await store.decide(expired.approval_id, approval_of(), at_ms=START_MS)
            assert await status_of(store) == "FAILED"

        run(make_store, scenario)

    def test_asking_and_deciding_is_activity(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            async def updated_ms() -> int:
                row = await store.read_session("s")
                assert row is not None
                return row.updated_ms

            step_id, answer_id = await answer_id_of(store)
            questions = (question_of(),)
            times_ms = []
            for at_ms in (START_MS + 2000, START_MS + 3000, SOON_MS):
                (approval,) = await store.open_approvals(step_id, answer_id, questions, at_ms=at_ms)
                times_ms.append(await updated_ms())
            await store.decide(approval.approval_id, approval_of(), at_ms=SOON_MS + 1)

            # Asked, asked once more without a change, opened again, decided.
            assert times_ms == [START_MS + 2000, START_MS + 2000, SOON_MS]
            assert await updated_ms() == SOON_MS + 1

        run(make_store, scenario)

    # --- rounds -----------------------------------------------------------------------------

    def test_the_answer_that_replays_stays_the_first(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            before = await step_at(store, step_id)
            candidates = await store.find_candidates("s", "exact", identity_of("hi").exact)
            second = checkpoint_of(
                step_id,
                answer=answer_of(b"second"),
                text="second",
                usage=Usage(30, 6),
                cost_microusd=40,
                answered_ms=START_MS + 9000,
                attempts=(attempt_of(started_ms=START_MS + 8000),),
            )

            round_id = await store.record_round(second, root_id, 1)

            assert round_id != root_id
            assert await store.rounds_of(root_id) == (round_id,)
            assert await store.read_answer_by_id(round_id) == answer_of(b"second")
            assert await store.read_answer(step_id) == answer_of()
            assert await step_at(store, step_id) == before
            found = await store.find_candidates("s", "exact", identity_of("hi").exact)
            assert found == candidates
            attempts = await store.list_attempts(step_id)
            assert attempts == (attempt_of(), attempt_of(started_ms=START_MS + 8000))
            session = await store.read_session("s")
            assert session is not None
            assert (session.steps, session.cost_microusd) == (1, 65)
            assert (session.input_tokens, session.output_tokens) == (40, 10)
            assert session.updated_ms == START_MS + 9000

        run(make_store, scenario)

    def test_a_round_of_unknown_cost_is_counted_as_such(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            unknown = checkpoint_of(step_id, usage=None, cost_microusd=None)
            await store.record_round(unknown, root_id, 1)

            session = await store.read_session("s")
            assert session is not None
            assert (session.cost_microusd, session.unknown_costs) == (25, 1)

        run(make_store, scenario)

    def test_a_second_answer_of_a_round_changes_nothing(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            round_id = await store.record_round(checkpoint_of(step_id), root_id, 1)
            before = await store.read_session("s")

            other = checkpoint_of(step_id, answer=answer_of(b"other"), answered_ms=SOON_MS)
            assert await store.record_round(other, root_id, 1) == round_id

            assert await store.rounds_of(root_id) == (round_id,)
            assert await store.read_answer_by_id(round_id) == answer_of()
            assert await store.read_session("s") == before
            assert len(await store.list_attempts(step_id)) == 2

        run(make_store, scenario)

    def test_rounds_come_by_number_and_are_of_one_answer(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            _, other_id = await answer_id_of(store, "b")
            ids = {
                number: await store.record_round(checkpoint_of(step_id), root_id, number)
                for number in (2, 1, 3)
            }

            assert await store.rounds_of(root_id) == (ids[1], ids[2], ids[3])
            assert await store.rounds_of(other_id) == ()
            assert await store.rounds_of(ids[1]) == ()

        run(make_store, scenario)

    def test_a_round_needs_its_step_and_its_answer(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            other_id, other_root_id = await answer_id_of(store, "b", session="other")
            before = await store.list_sessions(Query())
            for step, root in (
                (99, root_id),
                (step_id, 99),
                (step_id, other_root_id),
                (other_id, root_id),
            ):
                with pytest.raises(NotFound):
                    await store.record_round(checkpoint_of(step), root, 1)
            assert await store.list_sessions(Query()) == before
            assert len(await store.list_attempts(step_id)) == 1

        run(make_store, scenario)

    def test_a_large_round_comes_back(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            large = answer_of(b"{}\n" * 60_000)
            round_id = await store.record_round(checkpoint_of(step_id, answer=large), root_id, 1)
            assert await store.read_answer_by_id(round_id) == large

        run(make_store, scenario)

    def test_a_taken_back_answer_is_not_followed_by_its_round(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            round_id = await store.record_round(checkpoint_of(step_id, text="2"), root_id, 1)

            await store.record_failure(step_id, (), failed_ms=START_MS)

            assert await store.read_answer(step_id) is None
            row = await step_at(store, step_id)
            assert (row.state, row.text) == ("failed", "hello")
            (candidate,) = await store.find_candidates("s", "exact", identity_of("hi").exact)
            assert candidate.answer_id is None
            assert await store.rounds_of(root_id) == (round_id,)
            session = await store.read_session("s")
            assert session is not None
            assert session.cost_microusd == 25  # the round was answered, and paid

        run(make_store, scenario)

    def test_a_failed_refresh_brings_back_the_answer_not_its_round(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            await store.record_round(checkpoint_of(step_id, answer=answer_of(b"2")), root_id, 1)
            await store.claim_step(claim_of(step_id=step_id))
            await store.record_answer(checkpoint_of(step_id, answer=answer_of(b"refreshed")))

            await store.record_failure(step_id, (), failed_ms=START_MS)

            assert await store.read_answer(step_id) == answer_of()
            (candidate,) = await store.find_candidates("s", "exact", identity_of("hi").exact)
            assert (candidate.state, candidate.answer_id) == ("complete", root_id)

        run(make_store, scenario)

    def test_an_interrupted_refresh_leaves_the_answer_not_its_round(
        self, make_store: MakeStore
    ) -> None:
        async def refresh(store: Store) -> None:
            step_id, root_id = await answer_id_of(store)
            await store.record_round(checkpoint_of(step_id, answer=answer_of(b"2")), root_id, 1)
            await store.claim_step(claim_of(step_id=step_id))

        async def look(store: Store) -> None:
            assert (await step_at(store, 1)).state == "complete"
            assert await store.read_answer(1) == answer_of()

        run(make_store, refresh)
        run(make_store, look)

    def test_a_tail_is_of_the_answer_not_of_its_round(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            begun = answer_of(b"1", form="events", is_sealed=False)
            claimed = await store.claim_step(claim_of(streams=True))
            root_id = await store.record_answer(checkpoint_of(claimed.step_id, answer=begun))
            round_id = await store.record_round(checkpoint_of(claimed.step_id), root_id, 1)

            await store.append_tail(tail_of(claimed.step_id, b"2", pace=b""))

            whole = replace(begun, content=b"12", is_sealed=True)
            assert await store.read_answer(claimed.step_id) == whole
            assert await store.read_answer_by_id(round_id) == answer_of()

        run(make_store, scenario)

    def test_a_step_is_found_by_the_tool_calls_of_its_rounds(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            def calling(*call_ids: str) -> dict[str, Any]:
                calls = [(0, ToolCall(n, name, "f", "{}")) for n, name in enumerate(call_ids)]
                return {"tool_calls": tuple(calls)}

            async def found() -> dict[str, list[int]]:
                emitters = await store.find_emitters("s", ("c0", "c1", "c2"))
                return {name: [one.step_id for one in steps] for name, steps in emitters.items()}

            claimed = await store.claim_step(claim_of())
            step_id = claimed.step_id
            root_id = await store.record_answer(checkpoint_of(step_id, **calling("c0")))
            await store.record_round(checkpoint_of(step_id, **calling("c0", "c1")), root_id, 1)
            await store.record_round(checkpoint_of(step_id, **calling("c2", "c2")), root_id, 2)
            assert await found() == {"c0": [step_id], "c1": [step_id], "c2": [step_id]}

            await store.claim_step(claim_of(step_id=step_id))
            assert await found() == {"c0": [], "c1": [], "c2": []}
            await store.record_answer(checkpoint_of(step_id))
            assert await found() == {"c0": [], "c1": [], "c2": []}
            await store.record_failure(step_id, (), failed_ms=START_MS)
            assert await found() == {"c0": [step_id], "c1": [step_id], "c2": [step_id]}

        run(make_store, scenario)

    # --- what the provider keeps -------------------------------------------------------------

    def test_a_step_is_found_by_the_id_its_provider_gave(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            async def answer(text: str, response_id: str | None, **changes: Any) -> int:
                step_id = (await store.claim_step(claim_of(text, **changes))).step_id
                await store.record_answer(checkpoint_of(step_id, response_id=response_id))
                return step_id

            async def found(response_id: str, session: str = "s") -> int | None:
                candidate = await store.find_response(session, response_id)
                return None if candidate is None else candidate.step_id

            one = await answer("a", "resp_1")
            await answer("b", None)
            two = await answer("c", "resp_2")
            odd = await answer("d", ODD)
            (candidate,) = await store.find_candidates("s", "exact", identity_of("a").exact)

            assert await store.find_response("s", "resp_1") == candidate
            assert (await found("resp_2"), await found(ODD)) == (two, odd)
            assert (await found("resp_3"), await found("")) == (None, None)
            assert await found("resp_1", "other") is None

            # Of two the later one; and what was replaced or taken back is none.
            again = await answer("e", "resp_1")
            assert await found("resp_1") == again
            await store.record_failure(again, (), failed_ms=START_MS)
            assert await found("resp_1") == one
            await answer("a", "resp_9", step_id=one)
            assert (await found("resp_1"), await found("resp_9")) == (None, one)

        run(make_store, scenario)

    # --- what went out ----------------------------------------------------------------------

    @pytest.mark.parametrize(
        "delivered",
        [
            answer_of(),
            answer_of(b"", status=403, headers=()),
            answer_of(headers=((b"x", bytes(range(256))), (b"", b""))),
            answer_of(b"{}\n" * 60_000),
            answer_of(b"data: 1\n\n" * 50, form="events", pace=struct.pack("<II", 9, 70) * 50),
            answer_of(b"data: 1\n\n", form="events", is_sealed=False),
        ],
    )
    def test_what_went_out_instead_comes_back_byte_for_byte(
        self, make_store: MakeStore, delivered: RecordedAnswer
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of(streams=True))
            begun = answer_of(b"data: 1\n\n", form="events", is_sealed=False)
            answer_id = await store.record_answer(checkpoint_of(claimed.step_id, answer=begun))
            await store.append_tail(tail_of(claimed.step_id))
            whole = await store.read_answer_by_id(answer_id)
            assert await store.read_delivered(answer_id) is None

            assert await store.record_delivered(answer_id, delivered) == delivered

            assert await store.read_delivered(answer_id) == delivered
            assert await store.read_answer_by_id(answer_id) == whole
            assert await store.read_answer(claimed.step_id) == whole

        run(make_store, scenario)

    def test_what_went_out_first_stands(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            _, answer_id = await answer_id_of(store)
            _, other_id = await answer_id_of(store, "b")
            many = [answer_of(b"%d" % place) for place in range(9)]

            first = await asyncio.gather(*(store.record_delivered(answer_id, one) for one in many))

            assert len(set(first)) == 1
            assert await store.record_delivered(answer_id, answer_of(b"x" * 90_000)) == first[0]
            assert await store.read_delivered(answer_id) == first[0]
            assert await store.read_delivered(other_id) is None

        run(make_store, scenario)

    def test_nothing_goes_out_instead_of_no_answer(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            with pytest.raises(NotFound):
                await store.record_delivered(9, answer_of())
            with pytest.raises(NotFound):
                await store.record_release(9, "r", at_ms=START_MS)
            assert await store.read_delivered(9) is None
            assert await store.list_releases(9) == ()

        run(make_store, scenario)

    def test_releases_are_listed_in_order(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            _, answer_id = await answer_id_of(store)
            _, other_id = await answer_id_of(store, "b")

            first = await store.record_release(answer_id, "r1", at_ms=START_MS + 9)
            await store.record_release(other_id, "r1", at_ms=START_MS)
            second = await store.record_release(answer_id, None, at_ms=START_MS + 8)
            third = await store.record_release(answer_id, "r1", at_ms=START_MS + 7)
            store.note_released(second)
            store.note_released(99)

            assert await store.list_releases(answer_id) == (
                Release(first, "r1", START_MS + 9, False),
                Release(second, None, START_MS + 8, True),
                Release(third, "r1", START_MS + 7, False),
            )

        run(make_store, scenario)

    # --- refusals ---------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("decision", "is_told"),
        [
            (None, False),
            (approval_of(), False),
            (rejection_of(), True),
            (rejection_of(then="stop"), False),
            (rejection_of(then=None), False),
        ],
    )
    def test_what_the_model_was_told_is_told_again(
        self, make_store: MakeStore, decision: Decision | None, is_told: bool
    ) -> None:
        async def scenario(store: Store) -> None:
            assert await store.list_refusals("s") == ()
            approval = await asked(store)
            assert approval.answer_id is not None
            assert await store.list_refusals("s") == ()
            if decision is not None:
                await store.decide(approval.approval_id, decision, at_ms=START_MS)

            refusal = Refusal(approval.answer_id, approval.step_id, approval.answer_id, 0)
            assert await store.list_refusals("s") == ((refusal,) if is_told else ())
            assert await store.list_refusals("other") == ()

        run(make_store, scenario)

    def test_refusals_come_by_step_and_round(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            async def refuse(step_id: int, answer_id: int) -> None:
                questions = tuple(question_of(str(place), position=place) for place in range(2))
                for one in await store.open_approvals(
                    step_id, answer_id, questions, at_ms=START_MS
                ):
                    await store.decide(one.approval_id, rejection_of(), at_ms=START_MS)

            one, root = await answer_id_of(store, "one")
            two, last = await answer_id_of(store, "two")
            second = await store.record_round(checkpoint_of(one), root, 2)
            first = await store.record_round(checkpoint_of(one), root, 1)
            for step_id, answer_id in ((two, last), (one, second), (one, root), (one, first)):
                await refuse(step_id, answer_id)

            assert await store.list_refusals("s") == (
                Refusal(root, one, root, 0),
                Refusal(first, one, root, 1),
                Refusal(second, one, root, 2),
                Refusal(last, two, last, 0),
            )

        run(make_store, scenario)

    def test_a_refused_request_has_no_model_to_tell(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            (approval,) = await store.open_approvals(
                claimed.step_id, None, (request_question_of(),), at_ms=START_MS
            )
            await store.decide(approval.approval_id, rejection_of(), at_ms=START_MS)
            assert await store.list_refusals("s") == ()

        run(make_store, scenario)

    def test_however_many_refusals_there_are_they_are_told(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for place in range(MANY):
                await decided(store, rejection_of(), str(place))

            found = await store.list_refusals("s")

            assert [one.number for one in found] == [0] * MANY
            assert [one.step_id for one in found] == sorted(one.step_id for one in found)

        run(make_store, scenario)
