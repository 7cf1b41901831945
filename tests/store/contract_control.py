"""What any store must do for control over a run; see `contract.py`, whose makers it uses.

A backend subclasses `ControlContract` beside `StoreContract`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentstate.ground.budget import Caps
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import TAGS_MAX, About, Change, Pause, Place, Rollback, Weight
from agentstate.ground.errors import Conflict, NotFound, StoreError
from agentstate.ground.records import Query, SessionRow
from agentstate.store import base_control
from agentstate.store.base import Store
from tests.store.contract import (
    KEYS,
    START_MS,
    MakeStore,
    answered,
    checkpoint_of,
    claim_of,
    identity_of,
    note_of,
    run,
    step_at,
)
from tests.store.contract_events import event_of, wants
from tests.store.contract_gate import (
    FAR_MS,
    ODD,
    answer_id_of,
    approval_of,
    asked,
    question_of,
    rejection_of,
    status_of,
)

LATER_MS = START_MS + 9000


async def run_of(store: Store, count: int, *, first: int = 0, session: str = "s") -> None:
    """Record steps of a run that numbers them; each is found by its number as text."""
    for number in range(first, first + count):
        await answered(store, str(number), step_number=number, session=session)


async def active_of(store: Store, session: str = "s") -> list[int]:
    """Return the indexes of the steps that are not rolled back."""
    page = await store.list_steps(Query(session=session, newest_first=False, limit=1000))
    return [row.index for row in page.rows if row.rolled_back_ms is None]


async def session_of(store: Store, session: str = "s") -> SessionRow:
    """Read a session that must be there."""
    row = await store.read_session(session)
    assert row is not None
    return row


async def take_back(store: Store, number: int, **changes: Any) -> Rollback:
    """Roll back to a step number; something must be there."""
    row = await store.roll_back("s", Place(step_number=number), at_ms=LATER_MS, **changes)
    assert row is not None
    return row


class ControlContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- rolling back -----------------------------------------------------------------------

    def test_steps_from_a_number_on_are_taken_back_and_stay_visible(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 5)

            row = await take_back(store, 3, by="ann")

            assert row == Rollback(
                rollback_id=1,
                session="s",
                made_ms=LATER_MS,
                by="ann",
                place=Place(step_number=3),
                undoes=None,
                taken=((3, 4),),
                returned=(),
                weight=Weight(2, 20, 8, 50, 0),
            )
            assert await store.list_rollbacks("s", limit=9) == (row,)
            rows = (await store.list_steps(Query(session="s", newest_first=False))).rows
            assert [one.rolled_back_ms for one in rows] == [None, None, None, LATER_MS, LATER_MS]
            assert rows[3].text == "hello"
            found = await store.find_step("s", 4)
            assert found is not None
            assert found.rolled_back_ms == LATER_MS

        run(make_store, scenario)

    def test_steps_from_an_index_on_are_taken_back(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for text in "abcd":
                await answered(store, text, step_number=7)  # one constant number
            row = await store.roll_back("s", Place(index=2), at_ms=LATER_MS)
            assert row is not None
            assert row.place == Place(index=2)
            assert await active_of(store) == [0, 1]

        run(make_store, scenario)

    def test_numbers_out_of_order_are_taken_by_number(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for number in (5, 1, 6, 2, 7):
                await answered(store, str(number), step_number=number)
            row = await take_back(store, 5)
            assert row.taken == ((0, 0), (2, 2), (4, 4))
            assert await active_of(store) == [1, 3]

        run(make_store, scenario)

    @pytest.mark.parametrize("place", [Place(step_number=3), Place(index=3)])
    def test_where_there_is_nothing_nothing_is_changed(
        self, make_store: MakeStore, place: Place
    ) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 3)
            before = await session_of(store)
            assert await store.roll_back("s", place, at_ms=LATER_MS) is None
            assert await store.weigh_rollback("s", place) == Weight()
            assert await store.list_rollbacks("s", limit=9) == ()
            assert await session_of(store) == before

        run(make_store, scenario)

    def test_nothing_looks_at_what_was_taken_back(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 2)
            claimed = await store.claim_step(claim_of("2", step_number=2))
            call = (0, ToolCall(0, "call_0", "f", "{}"))
            await store.record_answer(checkpoint_of(claimed.step_id, tool_calls=(call,)))
            await store.record_alias("s", b"e" * 32, claimed.step_id)

            await take_back(store, 2)

            for key in KEYS:
                value = getattr(identity_of("2"), key)
                assert await store.find_candidates("s", key, value) == ()
                value = getattr(identity_of("1"), key)
                assert len(await store.find_candidates("s", key, value)) == 1
            assert await store.find_candidates("s", "alias", b"e" * 32) == ()
            assert await store.find_emitters("s", ("call_0",)) == {"call_0": ()}
            assert await store.count_steps_at("s", 2) == 0
            assert [one.index for one in await store.find_alike("s", 1, None, 9)] == [1, 0]
            assert await store.find_alike("s", 1, 2, 9) == ()
            found = await store.find_response("s", "chatcmpl-1")
            assert found is not None
            assert found.index == 1

        run(make_store, scenario)

    def test_a_step_in_flight_is_taken_back_and_its_answer_does_not_replay(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 1)
            claimed = await store.claim_step(claim_of("1", step_number=1))

            row = await take_back(store, 1)
            await store.record_answer(checkpoint_of(claimed.step_id))

            assert row.weight == Weight(steps=1)
            assert await store.find_candidates("s", "exact", identity_of("1").exact) == ()
            assert (await step_at(store, claimed.step_id)).state == "complete"

        run(make_store, scenario)

    def test_a_row_that_was_taken_back_is_not_claimed_again(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 1)
            lost = await store.claim_step(claim_of("1", step_number=1))
            await store.record_failure(lost.step_id, (), failed_ms=START_MS)
            await take_back(store, 1)

            again = await store.claim_step(claim_of("1", step_number=1, step_id=lost.step_id))

            assert (again.index, again.step_number) == (2, 1)
            assert await active_of(store) == [0, 2]
            assert (await step_at(store, lost.step_id)).state == "failed"

        run(make_store, scenario)

    def test_the_next_free_number_is_that_after_the_active_ones(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 5)
            await take_back(store, 3)
            assert (await session_of(store)).last_step_number == 2
            assert (await store.claim_step(claim_of("new"))).step_number == 3
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            assert (await session_of(store)).last_step_number is None
            assert (await store.claim_step(claim_of("newer"))).step_number == 0

        run(make_store, scenario)

    def test_what_was_paid_stays_counted(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 4)
            store.note_replay(note_of(2))
            before = await session_of(store)
            await take_back(store, 1)
            after = await session_of(store)
            assert (after.steps, after.cost_microusd, after.input_tokens) == (4, 100, 40)
            assert (after.replays, after.saved_microusd) == (before.replays, before.saved_microusd)
            await run_of(store, 3, first=1)
            assert (await session_of(store)).cost_microusd == 175

        run(make_store, scenario)

    @pytest.mark.parametrize("status", ["FAILED", "COMPLETED"])
    def test_the_session_goes_on(self, make_store: MakeStore, status: Any) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 2)
            await store.change_session("s", Change(status=status), at_ms=START_MS)
            assert await status_of(store) == status
            await take_back(store, 1)
            assert await status_of(store) == "RUNNING"

        run(make_store, scenario)

    def test_it_is_weighed_before_it_is_done(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 3)
            unpriced = await store.claim_step(claim_of("u"))
            checkpoint = checkpoint_of(unpriced.step_id, usage=None, cost_microusd=None)
            await store.record_answer(checkpoint)
            weight = await store.weigh_rollback("s", Place(step_number=1))
            assert weight == Weight(3, 20, 8, 50, 1)
            assert (await take_back(store, 1)).weight == weight
            assert await store.weigh_rollback("unknown", Place(index=0)) == Weight()

        run(make_store, scenario)

    # --- restoring ----------------------------------------------------------------------------

    def test_a_restore_swaps(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 5)
            await take_back(store, 3)
            await run_of(store, 2, first=3)  # indexes 5 and 6

            row = await store.restore("s", None, at_ms=LATER_MS + 1, by="bob")

            assert (row.rollback_id, row.kind, row.undoes, row.by) == (2, "restore", 1, "bob")
            assert (row.taken, row.returned) == (((5, 6),), ((3, 4),))
            assert row.weight == Weight(2, 20, 8, 50, 0)
            assert await active_of(store) == [0, 1, 2, 3, 4]
            (candidate,) = await store.find_candidates("s", "exact", identity_of("3").exact)
            assert candidate.index == 3
            second, first = await store.list_rollbacks("s", limit=9)
            assert second == row
            assert (first.undone_ms, first.undone_by) == (LATER_MS + 1, 2)
            assert (await session_of(store)).last_step_number == 4

        run(make_store, scenario)

    def test_a_restore_can_be_undone(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 5)
            await take_back(store, 3)
            await run_of(store, 2, first=3)
            await store.restore("s", 1, at_ms=LATER_MS)

            again = await store.restore("s", 2, at_ms=LATER_MS)

            assert (again.kind, again.undoes) == ("restore", 2)
            assert await active_of(store) == [0, 1, 2, 5, 6]
            undone = [one.undone_by for one in await store.list_rollbacks("s", limit=9)]
            assert undone == [None, 3, None]  # the first is in force again
            await store.restore("s", None, at_ms=LATER_MS)
            assert await active_of(store) == [0, 1, 2, 3, 4]

        run(make_store, scenario)

    def test_a_restore_takes_back_later_rollbacks_too(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 6)
            await take_back(store, 4)
            await run_of(store, 1, first=4)
            await take_back(store, 2)
            await run_of(store, 1, first=2)

            await store.restore("s", 1, at_ms=LATER_MS)

            assert await active_of(store) == [0, 1, 2, 3, 4, 5]
            undone = [one.undone_by for one in await store.list_rollbacks("s", limit=9)]
            assert undone == [None, 3, 3]
            with pytest.raises(Conflict):
                await store.restore("s", None, at_ms=LATER_MS)

        run(make_store, scenario)

    def test_rollbacks_are_undone_one_by_one(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 6)
            for number in (5, 3, 1):
                await take_back(store, number)
            seen = []
            for _ in range(3):
                await store.restore("s", None, at_ms=LATER_MS)
                seen.append(len(await active_of(store)))
            assert seen == [3, 5, 6]

        run(make_store, scenario)

    def test_what_cannot_be_undone_is_refused(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 3)
            with pytest.raises(Conflict):
                await store.restore("s", None, at_ms=LATER_MS)
            await take_back(store, 1)
            with pytest.raises(NotFound):
                await store.restore("s", 2, at_ms=LATER_MS)
            await store.restore("s", 1, at_ms=LATER_MS)
            with pytest.raises(Conflict):
                await store.restore("s", 1, at_ms=LATER_MS)
            assert await active_of(store) == [0, 1, 2]

        run(make_store, scenario)

    def test_what_is_in_flight_while_it_is_restored_answers_again(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("0", step_number=0))
            await take_back(store, 0)
            await store.restore("s", None, at_ms=LATER_MS)
            await store.record_answer(checkpoint_of(claimed.step_id))
            assert len(await store.find_candidates("s", "exact", identity_of("0").exact)) == 1

        run(make_store, scenario)

    def test_rollbacks_are_kept_up_to_a_number(
        self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in ("sqlite_control_record", "memory_control"):
            monkeypatch.setattr(f"agentstate.store.{module}.ROLLBACKS_MAX", 3)
        assert base_control.ROLLBACKS_MAX == 1000

        async def scenario(store: Store) -> None:
            await run_of(store, 6)
            for number in (5, 4, 3, 2):
                await take_back(store, number)
            ids = [one.rollback_id for one in await store.list_rollbacks("s", limit=9)]
            assert ids == [4, 3, 2]
            with pytest.raises(NotFound):
                await store.restore("s", 1, at_ms=LATER_MS)
            await store.restore("s", 2, at_ms=LATER_MS)
            assert await active_of(store) == [0, 1, 2, 3, 4]
            newest = await store.list_rollbacks("s", limit=1)
            assert [one.rollback_id for one in newest] == [5]

        run(make_store, scenario)

    # --- the gate and the sweep ---------------------------------------------------------------

    def test_nobody_waits_for_a_decision_about_what_was_taken_back(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            kept = await asked(store, "a", deadline_ms=FAR_MS)
            lost = await asked(store, "b", deadline_ms=FAR_MS)
            await store.roll_back("s", Place(index=1), at_ms=LATER_MS)

            pending = await store.list_approvals(Query(status="PENDING"), at_ms=START_MS)
            assert [one.approval_id for one in pending.rows] == [kept.approval_id]
            assert await store.count_pending(at_ms=START_MS) == 1
            row = await store.read_approval(lost.approval_id)
            assert row is not None
            assert row.rolled_back_ms == LATER_MS
            assert await status_of(store) == "WAITING"
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            assert await status_of(store) == "RUNNING"
            assert await store.count_pending(at_ms=START_MS) == 0

            await store.restore("s", 1, at_ms=LATER_MS)
            assert await status_of(store) == "WAITING"
            assert await store.count_pending(at_ms=START_MS) == 2

        run(make_store, scenario)

    def test_the_model_is_not_told_of_what_was_taken_back(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id, answer_id = await answer_id_of(store, "a")
            (approval,) = await store.open_approvals(
                step_id, answer_id, (question_of(),), at_ms=START_MS
            )
            await store.decide(approval.approval_id, rejection_of(), at_ms=START_MS)
            assert len(await store.list_refusals("s")) == 1
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            assert await store.list_refusals("s") == ()
            await store.restore("s", None, at_ms=LATER_MS)
            assert len(await store.list_refusals("s")) == 1

        run(make_store, scenario)

    def test_a_session_is_as_idle_as_its_last_active_step(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 3)
            await take_back(store, 1)
            (idle,) = await store.find_idle(idle_since_ms=FAR_MS, limit=9)
            assert (idle.index, idle.awaits_tools) == (0, False)
            await store.note_idle(event_of(kind="session.completed", session="s", index=2))
            assert await status_of(store) == "RUNNING"
            await store.note_idle(event_of(kind="session.completed", session="s", index=0))
            assert await status_of(store) == "COMPLETED"
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            assert await store.find_idle(idle_since_ms=FAR_MS, limit=9) == ()

        run(make_store, scenario)

    # --- pauses -------------------------------------------------------------------------------

    def test_a_pause_is_kept_until_it_ends(self, make_store: MakeStore) -> None:
        async def pause(store: Store) -> None:
            await run_of(store, 1)
            assert await store.read_pause("s") is None
            await store.pause("s", at_ms=LATER_MS, reason="too dear", by="ann")
            assert await store.read_pause("s") == Pause(LATER_MS, "too dear", "ann")
            assert await status_of(store) == "PAUSED"

        async def resume(store: Store) -> None:
            assert await store.read_pause("s") == Pause(LATER_MS, "too dear", "ann")
            assert (await session_of(store)).pause == Pause(LATER_MS, "too dear", "ann")
            paused = await store.list_sessions(Query(status="PAUSED"))
            assert [row.session for row in paused.rows] == ["s"]
            await store.resume("s", at_ms=LATER_MS)
            await store.resume("s", at_ms=LATER_MS)
            assert await store.read_pause("s") is None
            assert await status_of(store) == "RUNNING"

        run(make_store, pause)
        run(make_store, resume)

    def test_a_second_pause_keeps_the_time_of_the_first(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 1)
            await store.pause("s", at_ms=LATER_MS, reason="a")
            await store.pause("s", at_ms=LATER_MS + 5, reason="b", by="bob")
            assert await store.read_pause("s") == Pause(LATER_MS, "b", "bob")

        run(make_store, scenario)

    def test_a_pause_hides_what_the_status_was_and_ends_in_it(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 1)
            await store.change_session("s", Change(status="FAILED"), at_ms=START_MS)
            await store.pause("s", at_ms=LATER_MS)
            assert await status_of(store) == "PAUSED"
            assert await store.find_idle(idle_since_ms=FAR_MS, limit=9) == ()
            await store.resume("s", at_ms=LATER_MS)
            assert await status_of(store) == "FAILED"

        run(make_store, scenario)

    def test_a_paused_session_is_not_idle(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 1)
            await store.pause("s", at_ms=LATER_MS)
            assert await store.find_idle(idle_since_ms=FAR_MS, limit=9) == ()
            await store.note_idle(event_of(kind="session.completed", session="s", index=0))
            await store.resume("s", at_ms=LATER_MS)
            assert await status_of(store) == "RUNNING"
            assert len(await store.find_idle(idle_since_ms=FAR_MS, limit=9)) == 1

        run(make_store, scenario)

    # --- what a session is called -------------------------------------------------------------

    def test_a_name_and_tags_are_given_and_taken_away(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 1)
            change = Change(name="Invoices " + ODD, tags=(("team", "ops"), ("env", ODD)))
            await store.change_session("s", change, at_ms=LATER_MS)
            row = await session_of(store)
            assert row.name == "Invoices a😀 b\ufffd"
            assert row.tags == (("env", "a😀 b\ufffd"), ("team", "ops"))
            assert row.updated_ms == START_MS + 1000  # nothing happened in it
            change = Change(name="", tags=(("env", None), ("team", "dev"), ("none", None)))
            await store.change_session("s", change, at_ms=LATER_MS)
            row = await session_of(store)
            assert (row.name, row.tags) == (None, (("team", "dev"),))

        run(make_store, scenario)

    def test_what_an_agent_says_again_changes_nothing(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            said = About("Invoices", "boss", (("team", "ops"),))
            await answered(store, "a", about=said)
            row = await session_of(store)
            assert (row.name, row.parent, row.tags) == ("Invoices", "boss", (("team", "ops"),))
            change = Change(name="Mine", tags=(("team", None),))
            await store.change_session("s", change, at_ms=LATER_MS)
            await answered(store, "b", about=said)
            await answered(store, "c")
            row = await session_of(store)
            assert (row.name, row.parent, row.tags) == ("Mine", "boss", ())
            await answered(store, "d", about=About(tags=(("env", "test"),)))
            row = await session_of(store)
            assert (row.name, row.tags) == ("Mine", (("env", "test"),))
            await answered(store, "e", about=said)
            assert (await session_of(store)).name == "Invoices"

        run(make_store, scenario)

    def test_a_call_that_claims_nothing_says_it_as_well(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            said = About("Invoices", None, (("team", "ops"),))
            await answered(store, "a", about=said)
            change = Change(name="Mine")
            await store.change_session("s", change, at_ms=LATER_MS)
            await store.record_about("s", said)
            assert (await session_of(store)).name == "Mine"
            await store.record_about("s", About("Letters", "boss", (("env", "x"),), Caps(steps=3)))
            row = await session_of(store)
            assert (row.name, row.parent) == ("Letters", "boss")
            assert row.tags == (("env", "x"), ("team", "ops"))
            assert store.may_have_budget("s")
            assert (await store.read_budget("s")).said == Caps(steps=3)
            with pytest.raises(NotFound):
                await store.record_about("unknown", said)

        run(make_store, scenario)

    def test_tags_are_bounded(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            many = tuple((f"t{number:03}", "x") for number in range(TAGS_MAX + 5))
            await answered(store, "a", about=About(tags=many))
            assert (await session_of(store)).tags == many[:TAGS_MAX]
            change = Change(name="no", tags=(("more", "x"),))
            with pytest.raises(Conflict):
                await store.change_session("s", change, at_ms=LATER_MS)
            assert (await session_of(store)).name is None
            change = Change(tags=(("more", "x"), ("t000", None), ("t001", "y")))
            await store.change_session("s", change, at_ms=LATER_MS)
            tags = dict((await session_of(store)).tags)
            assert (len(tags), tags["more"], tags["t001"]) == (TAGS_MAX, "x", "y")

        run(make_store, scenario)

    def test_sessions_are_found_by_what_they_are_called(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for session, about in (
                ("a", About("Invoices", "boss", (("team", "ops"), ("env", "x")))),
                ("b", About("Letters", "boss", (("team", "dev"),))),
                ("c", About()),
            ):
                await answered(store, session=session, about=about)

            async def found(**query: Any) -> list[str]:
                page = await store.list_sessions(Query(**query))
                return sorted(row.session for row in page.rows)

            assert await found(search="invoi") == ["a"]
            assert await found(search="c") == ["a", "c"]
            assert await found(parent="boss") == ["a", "b"]
            assert await found(parent="b") == []
            assert await found(tags=(("team", None),)) == ["a", "b"]
            assert await found(tags=(("team", "ops"),)) == ["a"]
            assert await found(tags=(("team", None), ("env", "x"))) == ["a"]
            assert await found(tags=(("team", "dev"), ("env", None))) == []
            assert await found(tags=(("team", "dev"),), parent="boss", search="lett") == ["b"]

        run(make_store, scenario)

    def test_a_status_that_somebody_sets_is_told_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await run_of(store, 1)
            for name in ("evt_1", "evt_2"):
                await store.change_session(
                    "s",
                    Change(status="COMPLETED"),
                    at_ms=LATER_MS,
                    event=event_of(event_id=name, kind="session.completed", session="s"),
                )
            told = (await store.list_deliveries(Query())).rows
            assert [one.event.event_id for one in told] == ["evt_1"]
            assert await status_of(store) == "COMPLETED"
            await run_of(store, 1, first=1)
            assert await status_of(store) == "RUNNING"

        run(make_store, scenario)

    @pytest.mark.parametrize("status", ["FAILED", "COMPLETED"])
    def test_a_status_stands_until_the_next_replay_as_well(
        self, make_store: MakeStore, status: Any
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store, "a")
            store.note_replay(note_of(claimed.step_id))
            change = Change(status=status)
            await store.change_session("s", change, at_ms=START_MS, reason="done", by="ann")
            row = await session_of(store)
            assert (row.status, row.status_reason, row.status_by) == (status, "done", "ann")

            store.note_replay(note_of(claimed.step_id, session="another"))
            assert await status_of(store) == status
            store.note_replay(note_of(claimed.step_id))
            row = await session_of(store)
            assert (row.status, row.status_reason, row.status_ms) == ("RUNNING", None, None)
            assert len(await store.find_idle(idle_since_ms=FAR_MS, limit=9)) == 1

        run(make_store, scenario)

    @pytest.mark.parametrize("cause", ["failure", "decision", "budget", "refusal"])
    def test_what_was_replayed_before_a_status_takes_none_back(
        self, make_store: MakeStore, cause: str
    ) -> None:
        async def fail(store: Store) -> None:
            match cause:
                case "failure":
                    step_id = (await store.claim_step(claim_of("b"))).step_id
                    store.note_replay(note_of(1))
                    await store.record_failure(step_id, (), failed_ms=LATER_MS, fails_session=True)
                case "decision":
                    approval_id = (await asked(store, "b")).approval_id
                    store.note_replay(note_of(1))
                    await store.decide(approval_id, rejection_of(then="stop"), at_ms=LATER_MS)
                case "budget":
                    failed = event_of(2, kind="session.failed", facts={"why": "no"})
                    store.note_replay(note_of(1))
                    await store.record_budget_reached(event_of(kind="budget.reached"), failed)
                case "refusal":
                    store.note_replay(note_of(1))
                    await store.note_refused("s", "no", None, at_ms=LATER_MS)

        async def scenario(store: Store) -> None:
            assert (await answered(store, "a")).step_id == 1
            await fail(store)
            await store.keep_replays()
            row = await session_of(store)
            assert (row.status, row.replays) == ("FAILED", 1)

        run(make_store, scenario)

    def test_a_call_that_is_refused_again_has_its_session_failed_again(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            claimed = await answered(store, "a")
            await store.note_refused("s", "send_email was " + ODD, "ann", at_ms=START_MS)
            await store.note_refused("s", "another", "bob", at_ms=LATER_MS)
            await store.note_refused("unknown", "another", "bob", at_ms=LATER_MS)
            row = await session_of(store)
            said = (row.status, row.status_reason, row.status_by, row.status_ms)
            assert said == ("FAILED", "send_email was a😀 b\ufffd", "ann", START_MS)
            store.note_replay(note_of(claimed.step_id))
            assert await status_of(store) == "RUNNING"
            await store.note_refused("s", "another", "bob", at_ms=LATER_MS)
            assert (await session_of(store)).status_reason == "another"
            assert (await store.list_deliveries(Query())).rows == ()

        run(make_store, scenario)

    # --- what is not there --------------------------------------------------------------------

    def test_what_is_no_session_is_refused(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for call in (
                store.roll_back("s", Place(index=0), at_ms=LATER_MS),
                store.restore("s", None, at_ms=LATER_MS),
                store.pause("s", at_ms=LATER_MS),
                store.resume("s", at_ms=LATER_MS),
                store.change_session("s", Change(name="x"), at_ms=LATER_MS),
            ):
                with pytest.raises(NotFound):
                    await call
            assert await store.read_pause("s") is None
            assert await store.list_rollbacks("s", limit=9) == ()

        run(make_store, scenario)

    def test_a_closed_store_controls_nothing(self, make_store: MakeStore) -> None:
        async def scenario() -> None:
            store = make_store()
            await store.open()
            await run_of(store, 1)
            await store.close()
            for call in (
                store.roll_back("s", Place(index=0), at_ms=LATER_MS),
                store.weigh_rollback("s", Place(index=0)),
                store.restore("s", None, at_ms=LATER_MS),
                store.list_rollbacks("s", limit=9),
                store.pause("s", at_ms=LATER_MS),
                store.resume("s", at_ms=LATER_MS),
                store.read_pause("s"),
                store.change_session("s", Change(name="x"), at_ms=LATER_MS),
            ):
                with pytest.raises(StoreError):
                    await call

        asyncio.run(scenario())

    def test_it_survives_the_end_of_the_process(self, make_store: MakeStore) -> None:
        async def write(store: Store) -> None:
            await run_of(store, 4)
            await take_back(store, 2)
            await run_of(store, 1, first=2)

        async def undo(store: Store) -> None:
            assert await active_of(store) == [0, 1, 4]
            await store.restore("s", 1, at_ms=LATER_MS)

        async def look(store: Store) -> None:
            assert await active_of(store) == [0, 1, 2, 3]
            assert len(await store.list_rollbacks("s", limit=9)) == 2

        for scenario in (write, undo, look):
            run(make_store, scenario)

    def test_a_decision_about_what_was_taken_back_can_still_be_written(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            approval = await asked(store)
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            done = await store.decide(approval.approval_id, approval_of(), at_ms=LATER_MS)
            assert done.decision == approval_of()
            assert done.rolled_back_ms == LATER_MS

        run(make_store, scenario)
