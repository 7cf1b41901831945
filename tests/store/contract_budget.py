"""What any store must do for budgets; see `contract.py`, whose makers it uses.

A backend subclasses `BudgetContract` beside `StoreContract`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentstate.ground.approvals import Approval, Decision, Question
from agentstate.ground.budget import Budget, BudgetChange, Caps, Spent
from agentstate.ground.chat import Usage
from agentstate.ground.control import About, Change, Place
from agentstate.ground.errors import AlreadyDecided, BadRequest, NotFound, StoreError
from agentstate.ground.forks import ForkAsk
from agentstate.ground.records import Query
from agentstate.store.base import Store
from tests.store.contract import (
    START_MS,
    MakeStore,
    answered,
    checkpoint_of,
    claim_of,
    note_of,
    run,
    tail_of,
)
from tests.store.contract_control import session_of
from tests.store.contract_events import event_of, told, wants
from tests.store.contract_gate import (
    FAR_MS,
    approval_of,
    question_of,
    rejection_of,
    status_of,
)

LATER_MS = START_MS + 9000
CALLS = b"c" * 32


def budget_question(cap: str = "steps", more: str = "5", **changes: Any) -> Question:
    """Make the question whether a session may go on past a cap."""
    return question_of(
        kind="budget", tool=f"budget.{cap}", arguments=f'{{"more": {more}}}', call_id=None,
        **{"deadline_ms": FAR_MS, "digest": b"d" * 32, **changes},
    )  # fmt: skip


async def asked(store: Store, step_id: int, **changes: Any) -> Approval:
    """Ask whether a session may go on, from one of its steps."""
    questions = (budget_question(**changes),)
    (approval,) = await store.open_approvals(step_id, None, questions, at_ms=START_MS)
    return approval


async def spent_of(store: Store, session: str = "s") -> Spent:
    """Return what a session has paid."""
    return (await store.read_budget(session)).spent


async def calls_of(store: Store, text: str, calls: bytes | None) -> None:
    """Record an answer that asks for something, or for nothing."""
    claimed = await store.claim_step(claim_of(text))
    await store.record_answer(checkpoint_of(claimed.step_id, calls=calls))


class BudgetContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- what was paid ----------------------------------------------------------------------

    def test_a_session_never_seen_has_paid_nothing(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            assert await store.read_budget("s") == Budget()
            assert not store.may_have_budget("s")
            assert await store.find_budget_question("s", b"d" * 32) is None

        run(make_store, scenario)

    def test_what_was_recorded_counts_and_outlasts_the_process(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "a")
            unknown = await store.claim_step(claim_of("b"))
            await store.record_answer(checkpoint_of(unknown.step_id, cost_microusd=None))
            await store.claim_step(claim_of("open"))
            assert await spent_of(store) == Spent(2, 28, 25, 1)

        run(make_store, scenario)

        async def again(store: Store) -> None:
            budget = await store.read_budget("s")
            assert (budget.spent, budget.created_ms) == (Spent(2, 28, 25, 1), START_MS)

        run(make_store, again)

    def test_a_fork_has_what_its_agent_said_and_has_paid_nothing(
        self, make_store: MakeStore
    ) -> None:
        caps = Caps(steps=3, action="refuse")
        about = About(budget=caps)

        async def scenario(store: Store) -> None:
            claimed = await answered(store, "a", about=about)
            approval = await asked(store, claimed.step_id)
            await store.decide(approval.approval_id, Decision(True, "ann"), at_ms=LATER_MS)
            await store.set_budget("s", BudgetChange({"tokens": 9}), at_ms=LATER_MS)
            ask = ForkAsk(inherits_decisions=True)
            fork = await store.fork_session("s", ask, at_ms=LATER_MS)
            assert store.may_have_budget(fork)
            assert (await store.list_approvals(Query(session=fork), at_ms=LATER_MS)).rows == ()
            # The agent says the same again, which changes nothing.
            await store.claim_step(claim_of("b", session=fork, about=about))
            assert await store.read_budget(fork) == Budget(said=caps, created_ms=LATER_MS)

        async def again(store: Store) -> None:
            assert store.may_have_budget("s-fork-1")
            assert (await store.read_budget("s-fork-1")).said == caps

        run(make_store, scenario)
        run(make_store, again)

    def test_refreshes_and_rounds_count_and_replays_do_not(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store, "a")
            await store.claim_step(claim_of("a", step_id=claimed.step_id))
            answer_id = await store.record_answer(checkpoint_of(claimed.step_id))
            await store.record_round(checkpoint_of(claimed.step_id), answer_id, 1)
            await store.record_round(checkpoint_of(claimed.step_id), answer_id, 1)  # the same
            store.note_replay(note_of(claimed.step_id))
            await store.keep_replays()
            assert await spent_of(store) == Spent(3, 42, 75, 0)
            assert (await session_of(store)).steps == 1

        run(make_store, scenario)

    def test_a_tail_corrects_what_was_paid(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            checkpoint = checkpoint_of(claimed.step_id, usage=None, cost_microusd=None)
            await store.record_answer(checkpoint)
            assert await spent_of(store) == Spent(1, 0, 0, 1)
            tail = tail_of(claimed.step_id, usage=Usage(100, 20), cost_microusd=7)
            await store.append_tail(tail)
            assert await spent_of(store) == Spent(1, 120, 7, 0)

        run(make_store, scenario)

    def test_what_is_taken_back_was_not_paid(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "a")
            claimed = await store.claim_step(claim_of("b"))
            await store.record_answer(checkpoint_of(claimed.step_id, calls=CALLS))
            await store.record_failure(claimed.step_id, (), failed_ms=START_MS)
            assert await spent_of(store) == Spent(1, 14, 25, 0, repeats=0, row=1)

        run(make_store, scenario)

    def test_a_rollback_gives_nothing_back(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for text in "abc":
                await answered(store, text)
            await store.roll_back("s", Place(index=1), at_ms=LATER_MS)
            assert (await spent_of(store)).steps == 3

        run(make_store, scenario)

    def test_the_same_calls_in_a_row_are_counted(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            seen: list[tuple[int, int]] = []
            for number, calls in enumerate((None, b"a", b"a", b"a", b"b", None, None, b"b", b"b")):
                await calls_of(store, str(number), None if calls is None else calls * 32)
                spent = await spent_of(store)
                seen.append((spent.repeats, spent.row))
            repeats = [0, 1, 2, 3, 1, 0, 0, 1, 2]
            assert [count for count, _ in seen] == repeats
            rows = [row for count, row in seen if count]
            assert rows == [1, 1, 1, 4, 7, 7]

        run(make_store, scenario)

    # --- caps of a session ------------------------------------------------------------------

    def test_what_a_person_sets_stands(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store)
            change = BudgetChange({"steps": 5, "cost_usd": 1_500_000}, "refuse")
            await store.set_budget("s", change, at_ms=LATER_MS, by="ann")
            await store.set_budget("s", BudgetChange({"tokens": 9, "steps": None}), at_ms=LATER_MS)
            assert store.may_have_budget("s")

        run(make_store, scenario)

        async def again(store: Store) -> None:
            budget = await store.read_budget("s")
            assert store.may_have_budget("s")
            assert budget.set == Caps(None, 9, 1_500_000, None, "refuse")
            assert (budget.set_ms, budget.set_by, budget.changes) == (LATER_MS, None, 2)
            assert (await session_of(store)).updated_ms == LATER_MS
            await store.set_budget("s", BudgetChange(clears=True), at_ms=LATER_MS)
            assert (await store.read_budget("s")).set == Caps()
            with pytest.raises(NotFound):
                await store.set_budget("nobody", BudgetChange({"steps": 1}), at_ms=LATER_MS)

        run(make_store, again)

    def test_what_an_agent_says_last_stands(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            caps = Caps(steps=5, action="refuse")
            await answered(store, "a", about=About(budget=caps))
            await answered(store, "b")
            assert store.may_have_budget("s")
            assert (await store.read_budget("s")).said == caps
            await answered(store, "c", about=About(name="other"))
            assert (await store.read_budget("s")).said == caps
            await answered(store, "d", about=About(name="other", budget=Caps(tokens=7)))

        run(make_store, scenario)

        async def again(store: Store) -> None:
            assert store.may_have_budget("s")
            assert (await store.read_budget("s")).said == Caps(tokens=7)
            assert (await store.read_budget("s")).set == Caps()

        run(make_store, again)

    # --- questions --------------------------------------------------------------------------

    def test_one_question_for_all_calls_of_a_session(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            first = await store.claim_step(claim_of("a"))
            second = await store.claim_step(claim_of("b"))
            other = await store.claim_step(claim_of("c", session="t"))
            assert not store.may_have_budget("s")

            one = await asked(store, first.step_id)

            assert store.may_have_budget("s")
            assert (one.question.kind, one.answer_id) == ("budget", None)
            assert await status_of(store) == "WAITING"
            assert (await asked(store, second.step_id)).approval_id == one.approval_id
            assert (await store.find_budget_question("s", b"d" * 32)) == one
            assert (await asked(store, other.step_id)).approval_id != one.approval_id
            changed = await asked(store, second.step_id, digest=b"e" * 32)
            assert changed.approval_id != one.approval_id

        run(make_store, scenario)

    def test_a_question_of_a_step_that_was_rolled_back_is_asked_anew(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            first = await store.claim_step(claim_of("a"))
            one = await asked(store, first.step_id)
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            assert await store.find_budget_question("s", b"d" * 32) is None
            second = await store.claim_step(claim_of("a"))
            assert (await asked(store, second.step_id)).approval_id != one.approval_id

        run(make_store, scenario)

    @pytest.mark.parametrize(
        ("cap", "more", "edited", "until"),
        [
            ("steps", "5", None, Caps(steps=7)),
            ("steps", "5", '{"more": 1}', Caps(steps=3)),
            ("tokens", "100", None, Caps(tokens=128)),
            ("cost_usd", "0.5", None, Caps(cost_microusd=500_050)),
            ("cost_usd", "1", '{"more": 0.000001}', Caps(cost_microusd=51)),
            ("repeats", "3", None, Caps(repeats=5)),
        ],
    )
    def test_an_approval_lets_it_go_on_for_as_much(
        self, make_store: MakeStore, cap: str, more: str, edited: str | None, until: Caps
    ) -> None:
        async def scenario(store: Store) -> None:
            for text in "ab":
                await calls_of(store, text, CALLS)
            claimed = await store.claim_step(claim_of("c"))
            one = await asked(store, claimed.step_id, cap=cap, more=more)
            decision = approval_of(arguments=edited)
            decided = await store.decide(one.approval_id, decision, at_ms=LATER_MS)
            assert decided.status(LATER_MS) == "APPROVED"
            with pytest.raises(AlreadyDecided):
                await store.decide(one.approval_id, decision, at_ms=LATER_MS)

        run(make_store, scenario)

        async def again(store: Store) -> None:
            budget = await store.read_budget("s")
            assert (budget.until, budget.changes) == (until, 1)
            # Of a row it holds for that row alone, of all else until a person sets it anew.
            await calls_of(store, "d", b"other" * 8)
            after = (await store.read_budget("s")).until
            assert after == (Caps() if cap == "repeats" else until)
            change = BudgetChange({cap: 1})  # type: ignore[dict-item]
            await store.set_budget("s", change, at_ms=LATER_MS)
            assert (await store.read_budget("s")).until == Caps()

        run(make_store, again)

    def test_a_decision_whose_arguments_say_no_amount_changes_nothing(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("a"))
            one = await asked(store, claimed.step_id)
            decision = approval_of(arguments='{"more": "all"}')
            with pytest.raises(BadRequest):
                await store.decide(one.approval_id, decision, at_ms=LATER_MS)
            row = await store.read_approval(one.approval_id)
            assert row is not None
            assert row.decision is None
            assert (await store.read_budget("s")).until == Caps()

        run(make_store, scenario)

    def test_a_rejection_fails_the_session_and_stands(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("a"))
            one = await asked(store, claimed.step_id)
            decision = rejection_of(then="stop", by="ann", reason="enough")
            await store.decide(one.approval_id, decision, at_ms=LATER_MS)
            row = await session_of(store)
            assert (row.status, row.status_by, row.status_ms) == ("FAILED", "ann", LATER_MS)
            assert row.status_reason == "budget.steps was rejected: enough"
            budget = await store.read_budget("s")
            assert (budget.until, budget.changes) == (Caps(), 0)
            found = await store.find_budget_question("s", b"d" * 32)
            assert found is not None
            assert found.decision == decision

        run(make_store, scenario)

    def test_a_change_closes_the_questions_that_wait(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("a"))
            one = await asked(store, claimed.step_id)
            call = (question_of(deadline_ms=FAR_MS),)
            (other,) = await store.open_approvals(claimed.step_id, None, call, at_ms=START_MS)
            await store.set_budget("s", BudgetChange({"steps": 9}), at_ms=LATER_MS, by="ann")
            row = await store.read_approval(one.approval_id)
            assert row is not None
            assert row.decision == approval_of(by="ann", reason="the budget was changed")
            assert row.decided_ms == LATER_MS
            assert (await store.read_budget("s")).until == Caps()
            left = await store.read_approval(other.approval_id)
            assert left is not None
            assert left.decision is None

        run(make_store, scenario)

    def test_questions_that_nothing_is_left_of_are_closed(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("a"))
            one = await asked(store, claimed.step_id)
            assert (await store.read_budget("s")).is_asked
            await store.close_budget_questions("s", at_ms=LATER_MS)
            row = await store.read_approval(one.approval_id)
            assert row is not None
            assert row.decision == approval_of(by=None, reason="the cap is no longer reached")
            budget = await store.read_budget("s")
            assert (budget.is_asked, budget.changes, budget.set_ms) == (False, 0, None)
            assert await status_of(store) == "RUNNING"
            await store.close_budget_questions("nobody", at_ms=LATER_MS)

        run(make_store, scenario)

    # --- caps that are reached ----------------------------------------------------------------

    def test_that_a_cap_is_reached_is_told_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("h", "budget.reached", "session.failed"),))
            await answered(store)
            event = event_of(event_id="evt_1", kind="budget.reached", session="s")
            assert await store.record_budget_reached(event)
            assert not await store.record_budget_reached(event)
            assert await told(store) == ["budget.reached"]
            assert await status_of(store) == "RUNNING"

            second = event_of(event_id="evt_2", kind="budget.reached", session="s")
            failed = event_of(
                event_id="evt_3", kind="session.failed", session="s", created_ms=LATER_MS,
                facts={"why": "5 of 5"},
            )  # fmt: skip
            assert await store.record_budget_reached(second, failed)
            assert not await store.record_budget_reached(second, failed)
            assert await told(store) == ["budget.reached", "budget.reached", "session.failed"]
            row = await session_of(store)
            assert (row.status, row.status_reason, row.status_ms) == ("FAILED", "5 of 5", LATER_MS)

            third = event_of(event_id="evt_4", kind="budget.reached", session="s")
            again = event_of(event_id="evt_5", kind="session.failed", session="s")
            assert await store.record_budget_reached(third, again)
            assert (await told(store)).count("session.failed") == 1  # it was FAILED before

            await store.claim_step(claim_of("b"))
            row = await session_of(store)
            assert (row.status, row.status_reason, row.status_ms) == ("RUNNING", None, None)

        run(make_store, scenario)

    def test_one_of_a_session_that_is_not_on_record_is_told(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("h", "budget.reached"),))
            event = event_of(kind="budget.reached", session="new")
            failed = event_of(event_id="evt_f", kind="session.failed", session="new")
            assert await store.record_budget_reached(event, failed)
            assert await store.read_session("new") is None

        run(make_store, scenario)

    def test_a_closed_store_refuses_budgets(self, make_store: MakeStore) -> None:
        async def scenario() -> None:
            store = make_store()
            await store.open()
            await answered(store)
            await store.close()
            for call in (
                store.read_budget("s"),
                store.set_budget("s", BudgetChange({"steps": 1}), at_ms=LATER_MS),
                store.find_budget_question("s", b""),
                store.close_budget_questions("s", at_ms=LATER_MS),
                store.record_budget_reached(event_of(kind="budget.reached")),
            ):
                with pytest.raises(StoreError):
                    await call
            store.may_have_budget("s")  # never fails

        asyncio.run(scenario())

    # --- why a session stands as it does ------------------------------------------------------

    def test_why_a_person_says_how_it_ended_stands_beside_it(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            change = Change(status="COMPLETED")
            await store.change_session("s", change, at_ms=LATER_MS, reason="done", by="ann")
            row = await session_of(store)
            said = (row.status_reason, row.status_by, row.status_ms)
            assert said == ("done", "ann", LATER_MS)

            await store.pause("s", at_ms=LATER_MS)
            paused = await session_of(store)
            assert (paused.status, paused.status_reason, paused.status_ms) == ("PAUSED", None, None)
            await store.resume("s", at_ms=LATER_MS)

            await store.change_session("s", Change(name="n"), at_ms=LATER_MS, reason="no", by="bob")
            assert (await session_of(store)).status_by == "ann"
            await store.claim_step(claim_of(step_id=claimed.step_id))
            assert (await session_of(store)).status_ms is None

        run(make_store, scenario)

    def test_why_it_failed_or_was_completed_stands_beside_it(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("a"))
            await store.record_failure(
                claimed.step_id, (), failed_ms=LATER_MS, fails_session=True, why="no target"
            )
            row = await session_of(store)
            assert (row.status_reason, row.status_ms) == ("no target", LATER_MS)
            await store.record_failure(
                claimed.step_id, (), failed_ms=LATER_MS + 1, fails_session=True, why="the same"
            )
            assert (await session_of(store)).status_reason == "no target"  # the first one stands
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            assert (await session_of(store)).status_ms is None

            await answered(store, "b")
            event = event_of(
                kind="session.completed", session="s", index=1, facts={"why": "quiet"},
                created_ms=LATER_MS,
            )  # fmt: skip
            await store.note_idle(event)
            row = await session_of(store)
            assert (row.status, row.status_reason) == ("COMPLETED", "quiet")
            assert (row.status_by, row.status_ms) == (None, LATER_MS)

        run(make_store, scenario)
