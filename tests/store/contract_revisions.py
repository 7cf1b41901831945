"""What any store must do for edits and reruns; see `contract.py`, whose makers it uses.

A backend subclasses `RevisionsContract` beside `StoreContract`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.ground.chat import ToolCall
from agentstate.ground.control import Change, Place, Rollback, Swap
from agentstate.ground.errors import Conflict, NotFound
from agentstate.ground.forks import ForkAsk
from agentstate.ground.revisions import Revised, Revision
from agentstate.store.base import Store
from tests.store.contract import (
    START_MS,
    MakeStore,
    answer_of,
    answered,
    attempt_of,
    checkpoint_of,
    claim_of,
    run,
    tail_of,
)
from tests.store.contract_control import LATER_MS, active_of, run_of, session_of
from tests.store.contract_gate import approval_of, question_of, status_of


async def standing_of(store: Store, index: int = 0) -> int:
    """Return which answer of a step stands."""
    step = await store.find_step("s", index)
    assert step is not None
    assert step.answer_id is not None
    return step.answer_id


async def revised(
    store: Store,
    text: str,
    index: int = 0,
    *,
    taken: Any = (),
    tool_calls: tuple[tuple[int, ToolCall], ...] = (),
    **changes: Any,
) -> Rollback:
    """Put an answer that says `text` in place of the one that stands."""
    step = await store.find_step("s", index)
    assert step is not None
    assert step.answer_id is not None
    checkpoint = checkpoint_of(
        step.step_id,
        answer=answer_of(text.encode()),
        text=text,
        usage=None,
        cost_microusd=0,
        attempts=(),
        answered_ms=LATER_MS,
        tool_calls=tool_calls,
    )
    revision = Revision(**{"kind": "edit", "replaces_id": step.answer_id, "by": "ann"} | changes)
    seen = (await session_of(store)).steps
    row = await store.revise(checkpoint, revision, taken=taken, seen=seen, at_ms=LATER_MS)
    assert row is not None
    return row


async def says(store: Store, index: int = 0) -> bytes:
    """Return what a step answers."""
    step = await store.find_step("s", index)
    assert step is not None
    answer = await store.read_answer(step.step_id)
    assert answer is not None
    return answer.content


class RevisionsContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    @pytest.mark.parametrize(
        ("status", "index", "taken", "calls", "then"),
        [
            ("COMPLETED", 2, (), False, "COMPLETED"),
            ("COMPLETED", 1, (), False, "COMPLETED"),  # another lane than the last answer's
            ("COMPLETED", 1, ((2, 2),), False, "RUNNING"),  # its end was taken back
            ("COMPLETED", 2, (), True, "RUNNING"),  # its new end calls a tool
            ("FAILED", 2, (), False, "RUNNING"),  # the way on from a refusal
        ],
    )
    def test_a_run_that_is_at_its_end_yet_is_completed_yet(
        self, make_store: MakeStore, status: Any, index: int, taken: Any, calls: bool, then: str
    ) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 3)
            await store.change_session("s", Change(status=status), at_ms=START_MS, reason="done")
            said = ((0, ToolCall(0, "call_1", "send_email", "{}")),) if calls else ()
            await revised(store, "new", index, taken=taken, tool_calls=said)
            row = await session_of(store)
            assert (row.status, row.status_reason) == (then, "done" if then == status else None)
            await store.restore("s", None, at_ms=LATER_MS)
            assert (await session_of(store)).status == then

        run(make_store, scenario)

    def test_what_is_put_in_place_stands_and_the_old_one_is_kept(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 4)
            before = await session_of(store)
            row = await revised(store, "new", 1, taken=((2, 3),), reason="why")
            assert (row.kind, row.place, row.taken) == ("edit", Place(index=1), ((2, 3),))
            assert row.swaps == (Swap(1, 2, 5),)
            assert row.weight.steps == 2
            assert await says(store, 1) == b"new"
            assert await active_of(store) == [0, 1]
            old, new = await store.answers_of(2)
            assert (old.stands, old.revision, old.text) == (False, None, "hello")
            assert (new.stands, new.text, new.has_request) == (True, "new", False)
            assert new.revision == Revision("edit", 2, "ann", "why")
            after = await session_of(store)
            assert (after.cost_microusd, after.input_tokens, after.unknown_costs) == (
                before.cost_microusd,
                before.input_tokens,
                0,
            )
            assert await store.list_revised("s") == (Revised(2, 5, True, (2,), LATER_MS),)
            candidates = await store.find_candidates("s", "exact", claim_of("1").identity.exact)
            assert [one.answer_id for one in candidates] == [5]

        run(make_store, scenario)

    def test_a_restore_brings_back_the_answer_and_the_steps(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 3)
            await revised(store, "new", 0, taken=((1, 2),))
            await run_of(store, 2, first=1)
            undone = await store.restore("s", None, at_ms=LATER_MS)
            assert undone.swaps == (Swap(0, 4, 1),)
            assert await active_of(store) == [0, 1, 2]
            assert await says(store) == answer_of().content
            await store.restore("s", undone.rollback_id, at_ms=LATER_MS)
            assert await says(store) == b"new"
            assert await active_of(store) == [0, 3, 4]
            with pytest.raises(Conflict):
                await store.restore("s", undone.rollback_id, at_ms=LATER_MS)

        run(make_store, scenario)

    def test_a_fork_that_lacks_some_indexes_is_revised_and_restored(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 4)
            await store.roll_back("s", Place(index=1), at_ms=LATER_MS)
            await run_of(store, 2, first=4)
            fork = await store.fork_session("s", ForkAsk(), at_ms=LATER_MS)
            placed = await store.list_placed(fork, 0, 10)
            assert [one.index for one in placed] == [4, 5]
            step = await store.find_step(fork, 4)
            assert step is not None
            assert step.answer_id is not None
            checkpoint = checkpoint_of(step.step_id, answer=answer_of(b"new"))
            revision = Revision("edit", step.answer_id)
            made = await store.revise(checkpoint, revision, taken=((5, 5),), seen=6, at_ms=LATER_MS)
            assert made is not None
            assert await active_of(store, fork) == [0, 4]
            undone = await store.restore(fork, None, at_ms=LATER_MS)
            assert undone.swaps == (Swap(4, made.swaps[0].to_id, step.answer_id),)
            assert await active_of(store, fork) == [0, 4, 5]

        run(make_store, scenario)

    def test_a_refresh_that_fails_leaves_what_stood(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            step_id = (await answered(store, "0")).step_id
            await revised(store, "one")
            await revised(store, "two")
            await store.restore("s", 2, at_ms=LATER_MS)
            assert await says(store) == b"one"
            await store.claim_step(claim_of("0", step_id=step_id))
            await store.record_failure(step_id, (), failed_ms=LATER_MS)
            assert await says(store) == b"one"
            await store.claim_step(claim_of("0", step_id=step_id))
            await store.record_answer(checkpoint_of(step_id))
            await store.record_failure(step_id, (), failed_ms=LATER_MS)
            assert await says(store) == b"one"

        run(make_store, scenario)

    def test_a_tail_goes_to_its_own_answer(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("0"))
            begun = answer_of(b"begun", form="events", is_sealed=False)
            answer_id = await store.record_answer(checkpoint_of(claimed.step_id, answer=begun))
            await revised(store, "new")
            await store.append_tail(tail_of(claimed.step_id, b"!", answer_id=answer_id))
            assert await says(store) == b"new"
            old = await store.read_answer_by_id(answer_id)
            assert old is not None
            assert old.content == b"begun!"

        run(make_store, scenario)

    def test_nobody_waits_for_what_was_asked_about_the_old_answer(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            step_id = (await answered(store, "0")).step_id
            answer_id = await standing_of(store)
            question = question_of(deadline_ms=None)
            await store.open_approvals(step_id, answer_id, (question,), at_ms=START_MS)
            assert await status_of(store) == "WAITING"
            await revised(store, "new")
            [approval] = await store.approvals_of(answer_id)
            assert approval.rolled_back_ms == LATER_MS
            assert await status_of(store) == "RUNNING"
            assert await store.count_pending(at_ms=LATER_MS) == 0
            await store.restore("s", None, at_ms=LATER_MS)
            assert await status_of(store) == "WAITING"
            await store.decide(approval.approval_id, approval_of(), at_ms=LATER_MS)

        run(make_store, scenario)

    def test_what_is_not_there_or_has_changed_is_refused(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 2)
            revision = Revision("edit", 1)
            for step_id, error in ((9, NotFound), (2, Conflict)):
                with pytest.raises(error):
                    await store.revise(
                        checkpoint_of(step_id), revision, taken=(), seen=2, at_ms=LATER_MS
                    )
            moved = await store.revise(checkpoint_of(1), revision, taken=(), seen=1, at_ms=LATER_MS)
            assert moved is None
            await store.claim_step(claim_of("0", step_id=1))
            with pytest.raises(Conflict, match="in flight"):
                await store.revise(checkpoint_of(1), revision, taken=(), seen=2, at_ms=LATER_MS)
            await store.roll_back("s", Place(index=1), at_ms=LATER_MS)
            with pytest.raises(Conflict, match="rolled back"):
                await store.revise(
                    checkpoint_of(2), Revision("edit", 2), taken=(), seen=2, at_ms=LATER_MS
                )
            assert len(await store.answers_of(1)) == 1
            assert (await session_of(store)).cost_microusd == 50

        run(make_store, scenario)

    def test_a_rerun_keeps_what_was_asked(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "0")
            request = {"model": "n", "messages": [{"content": "å" * 50_000}]}
            row = await revised(store, "new", kind="rerun", request=request)
            assert row.kind == "rerun"
            found = await store.read_revision(row.swaps[0].to_id)
            assert found == Revision("rerun", 1, "ann", None, request)
            assert await store.read_revision(1) is None
            assert (await store.answers_of(1))[1].has_request
            [one] = await store.list_revised("s")
            assert not one.is_edited

        run(make_store, scenario)

    def test_tries_that_came_to_nothing_are_kept(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "0")
            failed = attempt_of(status=500, error_code="x", error="y")
            await store.record_attempts(1, (failed,))
            assert (await store.list_attempts(1))[-1] == failed
            assert await says(store) == answer_of().content
            with pytest.raises(NotFound):
                await store.record_attempts(7, (failed,))

        run(make_store, scenario)

    def test_an_answer_is_found_by_its_id_also_once_it_is_replaced(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 2)
            row = await revised(store, "new", 1)
            link = await store.find_answered("s", "chatcmpl-1")
            assert link is not None
            assert (link.step_id, link.answer_id) == (2, row.swaps[0].to_id)
            assert (link.is_replaced, link.answered_ms) == (False, LATER_MS)
            await store.roll_back("s", Place(index=1), at_ms=LATER_MS)
            link = await store.find_answered("s", "chatcmpl-1")
            assert link is not None
            assert link.step_id == 1  # an active one before one that is not
            assert await store.find_answered("s", "no") is None
            assert await store.list_revised("s") == ()
            placed = await store.list_placed("s", -1, 9)
            assert [(one.index, one.is_active) for one in placed] == [(0, True), (1, False)]
            assert placed[1].response_ids == ("chatcmpl-1",)

        run(make_store, scenario)

    def test_it_is_still_so_after_the_end_of_the_process(self, make_store: MakeStore) -> None:
        async def write(store: Store) -> None:
            await run_of(store, 2)
            await revised(store, "new", 0, taken=((1, 1),))

        async def undo(store: Store) -> None:
            assert await says(store) == b"new"
            assert len(await store.list_revised("s")) == 1
            await store.restore("s", None, at_ms=LATER_MS)

        async def look(store: Store) -> None:
            assert await says(store) == answer_of().content
            assert await active_of(store) == [0, 1]

        for scenario in (write, undo, look):
            run(make_store, scenario)


def check_any_order(make_store: MakeStore) -> None:
    """Compare what stands and is active after anything in any order with a whole copy kept of each
    moment, as an editor keeps them."""
    verbs = st.lists(
        st.tuples(st.sampled_from(["edit", "rollback", "restore", "step"]), st.integers(0, 9)),
        max_size=12,
    )

    @settings(max_examples=25, deadline=None)
    @given(verbs)
    def hold(chosen: list[tuple[str, int]]) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 3)
            moments: list[tuple[list[int], dict[int, int]]] = []  # before each row
            for number, (verb, choice) in enumerate(chosen):
                active = await active_of(store)
                moment = (active, {index: await standing_of(store, index) for index in active})
                rows = await store.list_rollbacks("s", limit=99)
                can = sorted(row.rollback_id for row in rows if row.undone_by is None)
                if verb == "edit" and active:
                    index = active[choice % len(active)]
                    later = tuple((one, one) for one in active if one > index)
                    await revised(store, f"{number}", index, taken=later)
                    moments.append(moment)
                elif verb == "rollback" and active:
                    place = Place(index=active[choice % len(active)])
                    assert await store.roll_back("s", place, at_ms=LATER_MS) is not None
                    moments.append(moment)
                elif verb == "restore" and can:
                    target = can[choice % len(can)]
                    await store.restore("s", target, at_ms=LATER_MS)
                    moments.append(moment)
                    then, stood = moments[target - 1]
                    assert await active_of(store) == then
                    assert {index: await standing_of(store, index) for index in then} == stood
                elif verb == "step":
                    await answered(store, f"more {number}", step_number=50 + number)

        run(make_store, scenario)

    hold()
