"""What any store must do for durable tools; see `contract.py`, whose makers it uses.

A backend subclasses `DurableContract` beside `StoreContract`. What becomes of a call is tested in
`test_durables.py`; here, that a backend finds, keeps and tells it.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Decision, Question
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import Place
from agentstate.ground.durable import Begin, Begun, DurableCall, Report, Settlement
from agentstate.ground.errors import BadRequest, Conflict, NotFound, StoreError
from agentstate.ground.records import Query
from agentstate.store.base import Store
from tests.store.contract import START_MS, MakeStore, checkpoint_of, claim_of, run
from tests.store.contract_events import wants
from tests.store.contract_gate import (
    FAR_MS,
    LONG_AGO_MS,
    MENDED,
    ODD,
    approval_of,
    question_of,
    rejection_of,
    status_of,
)

LATER_MS = START_MS + 9000
LONG = "x" * 100_000  # longer than the writer packs by itself


def begin_of(text: str = "", **changes: Any) -> Begin:
    """Make a begin of owner "a"; calls are equal by `text` and key."""
    name = f"{text}|{changes.get('key')}"
    begin = Begin(
        session="s",
        tool="send_email",
        arguments='{"to": "a@example.org"}',
        digest=hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest(),
        at_ms=START_MS,
        owner="a",
    )
    return replace(begin, **changes)


def durable_question(**changes: Any) -> Question:
    """Make the question of a guarded call."""
    return question_of(**{"kind": "durable", "deadline_ms": FAR_MS, **changes})


async def begun(store: Store, text: str = "", **changes: Any) -> DurableCall:
    """Begin a call; it must be run."""
    found = await store.begin_durable(begin_of(text, **changes))
    assert found.state == "run"
    return call_in(found)


async def lost(store: Store, text: str = "", **changes: Any) -> DurableCall:
    """Begin a call whose owner dies, and begin it again: nobody knows."""
    await begun(store, text, **changes)
    found = await store.begin_durable(begin_of(text, **(changes | {"owner": "b"})))
    assert found.state == "unknown"
    return call_in(found)


def call_in(found: Begun) -> DurableCall:
    """Return the call of a begin."""
    assert found.call is not None
    return found.call


def result_of(value: str = '{"id": 7}', **changes: Any) -> Report:
    """Make the report of owner "a"."""
    return replace(Report("result", value, "a"), **changes)


class DurableContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- beginning and reporting ------------------------------------------------------------

    def test_a_call_is_run_once_and_then_replayed_to_each_run(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            row = await begun(store)
            assert (row.session, row.tool, row.occurrence, row.runs) == ("s", "send_email", 0, 1)
            again = await store.begin_durable(begin_of())
            assert (again.state, call_in(again).call) == ("run", row.call)

            done = await store.report_durable("s", row.call, result_of(), at_ms=LATER_MS)

            assert (done.state, done.value, done.finished_ms) == ("done", '{"id": 7}', LATER_MS)
            for owner in ("b", "c"):
                replay = await store.begin_durable(begin_of(owner=owner))
                assert (replay.state, call_in(replay)) == ("replay", done)
            assert await store.read_durable(row.call) == done

        run(make_store, scenario)

    def test_the_session_is_made_on_first_sight_and_is_active(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            row = await begun(store, session="new")
            session = await store.read_session("new")
            assert session is not None
            assert (session.steps, session.status, session.updated_ms) == (0, "RUNNING", START_MS)
            await store.report_durable("new", row.call, result_of(), at_ms=LATER_MS)
            session = await store.read_session("new")
            assert session is not None
            assert session.updated_ms == LATER_MS
            claimed = await store.claim_step(claim_of("first", session="new"))
            assert (claimed.index, claimed.step_number) == (0, 0)

        run(make_store, scenario)

    def test_equal_calls_of_a_run_are_counted_and_found_in_their_order(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            names = []
            for number in range(3):
                row = await begun(store)
                names.append(row.call)
                assert row.occurrence == number
                report = result_of(str(number))
                await store.report_durable("s", row.call, report, at_ms=LATER_MS)

            for name in names:
                replay = await store.begin_durable(begin_of(owner="b"))
                assert (replay.state, call_in(replay).call) == ("replay", name)
            assert (await begun(store, owner="b")).occurrence == 3
            assert (await begun(store, session="t")).occurrence == 0
            assert (await begun(store, "other")).occurrence == 0

        run(make_store, scenario)

    def test_what_an_owner_has_taken_survives_a_restart(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            first = await begun(store, begin_id="1")
            await store.report_durable("s", first.call, result_of(), at_ms=LATER_MS)
            second = await begun(store, begin_id="2")
            await store.close()
            await store.open()

            again = await store.begin_durable(begin_of(begin_id="1"))
            assert (again.state, call_in(again).call) == ("replay", first.call)
            again = await store.begin_durable(begin_of(begin_id="2"))
            assert (again.state, call_in(again).call) == ("run", second.call)

        run(make_store, scenario)

    def test_two_who_begin_at_once_are_not_both_told_to_run(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            found = await asyncio.gather(
                *(
                    store.begin_durable(begin_of(owner=owner, lease_ms=LATER_MS))
                    for owner in "abcdefgh"
                )
            )
            assert sorted(each.state for each in found) == ["held"] * 7 + ["run"]
            assert {call_in(each).call for each in found} == {call_in(found[0]).call}

        run(make_store, scenario)

    def test_a_lease_is_as_long_as_its_owner_last_said(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await begun(store, lease_ms=START_MS + 10)
            await begun(store, lease_ms=START_MS + 20)

            held = await store.begin_durable(begin_of(owner="b", at_ms=START_MS + 19))
            late = await store.begin_durable(begin_of(owner="b", at_ms=START_MS + 20))

            assert (held.state, held.held_by, late.state) == ("held", "running", "unknown")

        run(make_store, scenario)

    def test_an_error_that_is_not_kept_is_run_again_as_the_same_call(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            row = await begun(store, begin_id="1")
            report = Report("error", '"busy"', "a", is_final=False)
            freed = await store.report_durable("s", row.call, report, at_ms=LATER_MS)
            assert (freed.state, freed.outcome, freed.value) == ("ready", None, None)

            again = await begun(store, begin_id="2")

            assert (again.call, again.runs) == (row.call, 2)

        run(make_store, scenario)

    def test_a_call_that_was_interrupted_is_unknown_to_its_own_owner_as_well(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("a"),))
            row = await begun(store, begin_id="1")
            for _ in range(2):
                await store.report_durable("s", row.call, Report("unknown", owner="a"), at_ms=1)

            again = await store.begin_durable(begin_of(begin_id="2"))

            assert (again.state, call_in(again).call) == ("unknown", row.call)
            assert len(await store.claim_deliveries(at_ms=FAR_MS, lease_ms=1, limit=9)) == 1

        run(make_store, scenario)

    def test_content_comes_back_as_it_went_in_and_names_are_mended(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            odd = {"owner": ODD, "key": ODD, "begin_id": ODD, "call_id": ODD, "tool": ODD}
            row = await begun(store, arguments=LONG + ODD, **odd)
            await store.report_durable("s", row.call, result_of(LONG + ODD, owner=ODD), at_ms=1)
            found = await store.read_durable(row.call)
            assert found is not None
            assert (found.arguments, found.value) == (LONG + ODD, LONG + ODD)
            mended = (found.tool, found.owner, found.key, found.call_id)
            assert mended == (MENDED, MENDED, MENDED, MENDED)
            again = await store.begin_durable(begin_of(arguments=LONG + ODD, **odd))
            assert again.state == "replay"

        run(make_store, scenario)

    def test_what_is_not_there_or_of_another_session_is_not_found(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            row = await begun(store)
            assert await store.read_durable("dur_none") is None
            for session, call in (("t", row.call), ("s", "dur_none"), ("s", ODD)):
                with pytest.raises(NotFound):
                    await store.report_durable(session, call, result_of(), at_ms=1)
                with pytest.raises(NotFound):
                    await store.settle_durable(session, call, Settlement("skip"), at_ms=1)
                with pytest.raises(NotFound):
                    await store.forget_durable(session, call, at_ms=1)

        run(make_store, scenario)

    def test_a_closed_store_begins_nothing(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await store.close()
            with pytest.raises(StoreError):
                await store.begin_durable(begin_of())
            await store.open()
            assert (await store.list_durables(Query())).rows == ()

        run(make_store, scenario)

    # --- nobody knows -----------------------------------------------------------------------

    def test_a_call_of_a_dead_owner_is_unknown_and_people_are_told_once(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("a"),))
            row = await lost(store)
            await store.begin_durable(begin_of(owner="c"))

            (delivery,) = await store.claim_deliveries(at_ms=FAR_MS, lease_ms=1, limit=9)

            assert (delivery.event.kind, delivery.event.session) == ("approval.required", "s")
            assert delivery.event.facts is not None
            assert delivery.event.facts["call"] == row.call
            assert delivery.event.facts["kind"] == "unknown"

        run(make_store, scenario)

    def test_the_first_word_on_it_stands(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            row = await lost(store)
            word = Settlement("happened", LONG + ODD, ODD, ODD)
            done = await store.settle_durable("s", row.call, word, at_ms=LATER_MS)
            assert (done.state, done.value) == ("done", LONG + ODD)
            assert (done.settled_by, done.settled_why) == (MENDED, MENDED)
            with pytest.raises(Conflict, match="settled as happened"):
                await store.settle_durable("s", row.call, Settlement("skip"), at_ms=LATER_MS)
            assert await store.read_durable(row.call) == done
            assert (await store.begin_durable(begin_of(owner="b"))).state == "replay"

        run(make_store, scenario)

    def test_what_has_not_happened_is_run_by_the_next(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            row = await lost(store)
            await store.settle_durable("s", row.call, Settlement("not_happened"), at_ms=LATER_MS)

            again = await begun(store, owner="b")

            assert (again.call, again.owner, again.runs) == (row.call, "b", 2)
            with pytest.raises(Conflict, match="another owner"):
                await store.report_durable("s", row.call, result_of(), at_ms=LATER_MS)

        run(make_store, scenario)

    def test_a_forgotten_call_stays_visible_and_the_next_is_a_new_one(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            row = await begun(store, key="k")
            with pytest.raises(Conflict):
                await store.forget_durable("s", row.call, at_ms=LATER_MS)
            await store.report_durable("s", row.call, result_of(), at_ms=LATER_MS)
            gone = await store.forget_durable("s", row.call, at_ms=LATER_MS, by=ODD, reason="why")
            assert (gone.forgotten_ms, gone.forgotten_by) == (LATER_MS, MENDED)

            again = await begun(store, key="k")

            assert (again.occurrence, again.call == row.call) == (1, False)
            assert len((await store.list_durables(Query(session="s"))).rows) == 2

        run(make_store, scenario)

    def test_a_rollback_forgets_nothing(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await store.claim_step(claim_of("hi"))
            row = await begun(store)
            await store.report_durable("s", row.call, result_of(), at_ms=LATER_MS)
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            assert (await store.begin_durable(begin_of(owner="b"))).state == "replay"

        run(make_store, scenario)

    # --- asking -----------------------------------------------------------------------------

    def test_a_guarded_call_is_asked_about_once_for_all_who_begin_it(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("a"),))
            guarded = begin_of(question=durable_question())
            held = await store.begin_durable(guarded)
            again = await store.begin_durable(replace(guarded, owner="b"))

            assert (held.state, held.held_by) == ("held", "approval")
            assert held.approval is not None
            assert again.approval == held.approval
            shown = held.approval
            assert (shown.durable, shown.session) == (call_in(held).call, "s")
            assert (shown.step_id, shown.step_number, shown.index) == (None, None, None)
            assert (shown.answer_id, shown.rolled_back_ms, shown.dialect) == (None, None, "")
            assert await store.read_approval(shown.approval_id) == shown
            assert call_in(held).approval_id == shown.approval_id
            page = await store.list_approvals(Query(session="s"), at_ms=START_MS)
            assert page.rows == (shown,)
            page = await store.list_approvals(Query(status="PENDING"), at_ms=START_MS)
            assert page.rows == (shown,)
            assert await store.count_pending(at_ms=START_MS) == 1
            assert await status_of(store) == "WAITING"
            assert len(await store.claim_deliveries(at_ms=FAR_MS, lease_ms=1, limit=9)) == 1
            assert await store.list_refusals("s") == ()

        run(make_store, scenario)

    @pytest.mark.parametrize(
        ("decision", "state", "status"),
        [
            (approval_of(arguments='{"to": "b"}'), "run", "RUNNING"),
            (rejection_of(), "refused", "RUNNING"),
            (rejection_of(then="stop"), "refused", "FAILED"),
        ],
    )
    def test_a_decision_is_what_the_next_begin_is_told(
        self, make_store: MakeStore, decision: Decision, state: str, status: str
    ) -> None:
        async def scenario(store: Store) -> None:
            guarded = begin_of(question=durable_question())
            held = await store.begin_durable(guarded)
            assert held.approval is not None
            await store.decide(held.approval.approval_id, decision, at_ms=LATER_MS)

            told = await store.begin_durable(replace(guarded, question=None))

            assert told.state == state
            row = call_in(told)
            assert (row.edited, row.reason) == (
                decision.arguments, None if decision.is_approved else decision.reason
            )  # fmt: skip
            assert await status_of(store) == status
            assert await store.read_durable(row.call) == row

        run(make_store, scenario)

    def test_a_question_that_has_expired_is_asked_again_under_its_name(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("a"),))
            question = durable_question(deadline_ms=LONG_AGO_MS)
            held = await store.begin_durable(begin_of(question=question))
            assert await status_of(store) == "RUNNING"

            again = await store.begin_durable(begin_of(question=durable_question(), at_ms=LATER_MS))

            assert held.approval is not None
            assert again.approval is not None
            assert again.approval.approval_id == held.approval.approval_id
            assert again.approval.question.deadline_ms == FAR_MS
            assert await status_of(store) == "WAITING"
            assert len(await store.claim_deliveries(at_ms=FAR_MS, lease_ms=1, limit=9)) == 2

        run(make_store, scenario)

    def test_an_approval_of_the_models_call_stands_for_one_call(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("hi"))
            call = (0, ToolCall(0, "call_0", "send_email", "{}"))
            answer_id = await store.record_answer(
                checkpoint_of(claimed.step_id, tool_calls=(call,))
            )
            (asked,) = await store.open_approvals(
                claimed.step_id, answer_id, (question_of(),), at_ms=START_MS
            )
            assert await store.list_let_out("s", "send_email") == ()
            await store.decide(asked.approval_id, approval_of(), at_ms=START_MS)
            assert await store.list_let_out("s", "send_email") == ()
            await store.record_release(answer_id, None, at_ms=START_MS)
            (standing,) = await store.list_let_out("s", "send_email")
            assert standing.approval_id == asked.approval_id
            assert await store.list_let_out("s", "other") == ()
            assert await store.list_let_out("t", "send_email") == ()

            covered = {"question": durable_question(), "covered_by": (standing.approval_id,)}
            row = await begun(store, begin_id="1", **covered)
            assert row.approval_id == standing.approval_id
            assert await store.list_let_out("s", "send_email") == ()
            held = await store.begin_durable(begin_of(begin_id="2", **covered))
            assert held.state == "held", "it stands for one call alone"

        run(make_store, scenario)

    def test_an_approval_of_a_step_that_was_rolled_back_stands_for_nothing(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("hi"))
            answer_id = await store.record_answer(checkpoint_of(claimed.step_id))
            (asked,) = await store.open_approvals(
                claimed.step_id, answer_id, (question_of(),), at_ms=START_MS
            )
            await store.decide(asked.approval_id, approval_of(), at_ms=START_MS)
            await store.record_release(answer_id, None, at_ms=START_MS)
            await store.roll_back("s", Place(index=0), at_ms=LATER_MS)
            assert await store.list_let_out("s", "send_email") == ()

        run(make_store, scenario)

    def test_what_a_dead_owner_left_is_settled_before_another_begins(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            row = await begun(store, begin_id="1")
            done = await store.settle_durable("s", row.call, Settlement("happened"), at_ms=LATER_MS)
            assert (done.state, done.runs) == ("done", 1)
            told = await store.begin_durable(begin_of(owner="b"))
            assert (told.state, call_in(told).call) == ("replay", row.call)
            with pytest.raises(Conflict, match=r"settled as happened .* was not recorded"):
                await store.report_durable("s", row.call, result_of(), at_ms=LATER_MS)
            assert await store.read_durable(row.call) == done

            leased = await begun(store, "2", lease_ms=LATER_MS)
            skip = Settlement("skip")
            for at_ms in (START_MS, LATER_MS - 1):
                with pytest.raises(Conflict, match=r"is being run, until .* as its owner said"):
                    await store.settle_durable("s", leased.call, skip, at_ms=at_ms)
            found = await store.settle_durable("s", leased.call, skip, at_ms=LATER_MS)
            assert (found.state, found.outcome) == ("done", "skipped")

        run(make_store, scenario)

    def test_who_lives_after_all_may_say_that_it_happened_until_it_is_run_again(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            row = await begun(store)
            no = Settlement("not_happened", by="ann")
            await store.settle_durable("s", row.call, no, at_ms=LATER_MS)

            report = result_of()
            done = await store.report_durable("s", row.call, report, at_ms=LATER_MS)

            assert (done.state, done.outcome, done.value) == ("done", "result", report.value)
            told = await store.begin_durable(begin_of(owner="b"))
            assert (told.state, call_in(told).value) == ("replay", report.value)
            with pytest.raises(Conflict, match="its result was recorded at"):
                await store.report_durable("s", row.call, result_of("8"), at_ms=LATER_MS)
            with pytest.raises(Conflict, match="its result was recorded at"):
                await store.settle_durable("s", row.call, no, at_ms=LATER_MS)

        run(make_store, scenario)

    # --- listing ----------------------------------------------------------------------------

    def test_calls_are_listed_newest_first_by_session_and_state(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            done = await begun(store, "1")
            await store.report_durable("s", done.call, result_of(), at_ms=LATER_MS)
            unknown = await lost(store, "2")
            other = await begun(store, "3", session="t")

            async def listed(**changes: Any) -> list[str]:
                page = await store.list_durables(Query(**changes))
                return [row.call for row in page.rows]

            assert await listed() == [other.call, unknown.call, done.call]
            assert await listed(newest_first=False) == [done.call, unknown.call, other.call]
            assert await listed(session="s") == [unknown.call, done.call]
            assert await listed(state="unknown") == [unknown.call]
            assert await listed(session="t", state="unknown") == []
            assert await listed(session="none") == []
            page = await store.list_durables(Query(session="s", limit=1))
            rest = await store.list_durables(Query(session="s", limit=1, after=page.next_cursor))
            assert [row.call for row in (*page.rows, *rest.rows)] == [unknown.call, done.call]
            assert rest.next_cursor is None
            assert (rest.rows[0].value, rest.rows[0].value_bytes) == (None, len('{"id": 7}'))
            for bad in (Query(limit=0), Query(after="?")):
                with pytest.raises(BadRequest):
                    await store.list_durables(bad)

        run(make_store, scenario)
