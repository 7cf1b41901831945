"""What any store must do for forks and deletion; see `contract.py`, whose makers it uses.

A backend subclasses `ForkContract` beside `StoreContract`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Earlier
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import About, Change, Place, Weight
from agentstate.ground.errors import AlreadyDecided, Conflict, NotFound, StoreError
from agentstate.ground.forks import Deletion, ForkAsk, Origin
from agentstate.ground.records import Query, Served, StepRow
from agentstate.store.base import Store
from tests.store.contract import (
    KEYS,
    START_MS,
    MakeStore,
    answer_of,
    answered,
    attempt_of,
    checkpoint_of,
    claim_of,
    identity_of,
    message,
    note_of,
    request_of,
    run,
    tail_of,
)
from tests.store.contract_control import active_of, run_of, session_of, take_back
from tests.store.contract_durable import begin_of, call_in, result_of
from tests.store.contract_events import event_of, wants
from tests.store.contract_gate import (
    FAR_MS,
    approval_of,
    asked,
    decided,
    question_of,
    rejection_of,
    request_question_of,
    status_of,
)

LATER_MS = START_MS + 9000


async def fork(store: Store, before: int | None = None, **changes: Any) -> str:
    """Fork the session "s" before a step number, or whole."""
    place = None if before is None else Place(step_number=before)
    return await store.fork_session("s", ForkAsk(place, **changes), at_ms=LATER_MS)


async def step_of(store: Store, index: int, session: str = "s") -> StepRow:
    """Read a step that must be there, by its index."""
    row = await store.find_step(session, index)
    assert row is not None
    return row


async def answer_at(store: Store, session: str, index: int) -> int:
    """Return the id of the answer of a step that must have one."""
    step = await step_of(store, index, session)
    assert step.answer_id is not None
    return step.answer_id


async def delete(store: Store, session: str = "s") -> Deletion:
    """Delete a session, and wait until nothing of it is left."""
    deletion = await store.delete_session(session)
    await store.finish_removals()
    return deletion


class ForkContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- what a fork has --------------------------------------------------------------------

    def test_a_fork_has_the_steps_before_a_place(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 5)
            assert await fork(store, 3, by="ann") == "s-fork-1"
            assert await fork(store, session="mine", title="My try") == "mine"
            third = ForkAsk(Place(index=1))
            assert await store.fork_session("s", third, at_ms=LATER_MS) == "s-fork-2"
            assert await active_of(store, "s-fork-1") == [0, 1, 2]
            assert await active_of(store, "mine") == [0, 1, 2, 3, 4]
            assert await active_of(store, "s-fork-2") == [0]
            row = await session_of(store, "s-fork-1")
            assert row.origin == Origin("s", LATER_MS, "ann", Place(step_number=3), 3)
            assert (row.steps, row.last_step_number, row.status) == (3, 2, "RUNNING")
            assert (row.created_ms, row.updated_ms) == (LATER_MS, LATER_MS)
            row = await session_of(store, "mine")
            assert (row.name, row.origin) == ("My try", Origin("s", LATER_MS, None, None, 5))
            assert (await session_of(store)).origin is None

        run(make_store, scenario)

    def test_what_was_done_before_a_place_is_not_done_again(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "0", created_ms=START_MS)
            done = await store.begin_durable(begin_of("a", at_ms=START_MS + 10))
            again = await store.begin_durable(begin_of("a", at_ms=START_MS + 11, begin_id="2"))
            await answered(store, "1", created_ms=START_MS + 20)
            later = await store.begin_durable(begin_of("b", at_ms=START_MS + 30))
            running = await store.begin_durable(begin_of("c", at_ms=START_MS + 5))
            for begun in (done, again, later):
                assert begun.state == "run"
                call = call_in(begun).call
                await store.report_durable("s", call, result_of(), at_ms=START_MS + 40)
            assert running.state == "run"
            name, whole = await fork(store, 1), await fork(store)
            await delete(store)

            async def states(session: str) -> list[str]:
                asked = [("a", "x"), ("a", "y"), ("a", "z"), ("b", "x"), ("c", "x")]
                return [
                    (
                        await store.begin_durable(
                            begin_of(text, session=session, owner="o", begin_id=begin_id)
                        )
                    ).state
                    for text, begin_id in asked
                ]

            assert await states(name) == ["replay", "replay", "run", "run", "run"]
            assert await states(whole) == ["replay", "replay", "run", "replay", "run"]

        run(make_store, scenario)

    def test_its_steps_are_found_and_read_as_those_they_copy(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            request = request_of(message("a"), message("b"), shared={"tools": [{"name": "t"}]})
            call = ToolCall(0, "call_1", "lookup", '{"q": 1}')
            await answered(store, "0", run_id="r", call_id="c", request=request, step_number=7)
            claimed = await store.claim_step(claim_of("1", streams=True))
            partial = answer_of(b"data: 1\n\n", form="events", is_sealed=False)
            checkpoint = checkpoint_of(claimed.step_id, answer=partial, tool_calls=((0, call),))
            await store.record_answer(checkpoint)
            await store.append_tail(tail_of(claimed.step_id, b"data: [DONE]\n\n", seals=True))
            await store.record_alias("s", identity_of("other").exact, claimed.step_id)
            name = await fork(store)
            for index, text in enumerate(("0", "1")):
                old, new = await step_of(store, index), await step_of(store, index, name)
                assert old.step_id != new.step_id
                assert old.answer_id != new.answer_id
                assert await store.read_answer(old.step_id) == await store.read_answer(new.step_id)
                wanted = await store.read_request(old.step_id)
                assert await store.read_request(new.step_id) == wanted
                wanted_attempts = await store.list_attempts(old.step_id)
                assert await store.list_attempts(new.step_id) == wanted_attempts
                assert (new.step_number, new.run_id, new.prompt) == (
                    old.step_number,
                    old.run_id,
                    old.prompt,
                )
                for key in KEYS:
                    value = getattr(identity_of(text), key)
                    [found] = await store.find_candidates(name, key, value)
                    assert (found.step_id, found.index) == (new.step_id, index)
                    assert (found.replayed_ms, found.answer_id) == (None, new.answer_id)
            [alias] = await store.find_candidates(name, "alias", identity_of("other").exact)
            assert alias.index == 1
            emitters = await store.find_emitters(name, ("call_1",))
            assert [one.step_id for one in emitters["call_1"]] == [alias.step_id]
            assert await store.count_steps_at(name, 7) == 1
            found_again = await store.find_response(name, "chatcmpl-1")
            assert found_again is not None
            assert found_again.step_id == alias.step_id

        run(make_store, scenario)

    def test_keys_asked_for_before_are_found_after(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 2)
            exact = identity_of("1").exact
            assert await store.find_candidates("mine", "exact", exact) == ()
            await fork(store, session="mine")
            assert len(await store.find_candidates("mine", "exact", exact)) == 1

        run(make_store, scenario)

    def test_what_is_in_flight_or_taken_back_is_not_shared(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 6)
            await take_back(store, 4)
            await run_of(store, 1, first=4)
            await store.claim_step(claim_of("flying"))
            flying = await step_of(store, 1)
            ask = ForkAsk()
            but_not = {flying.step_id}
            name = await store.fork_session("s", ask, at_ms=LATER_MS, but_not=but_not)
            assert await active_of(store, name) == [0, 2, 3, 6]
            claimed = await store.claim_step(claim_of("next", session=name))
            assert (claimed.index, claimed.step_number) == (7, 5)
            assert await store.find_step(name, 1) is None

        run(make_store, scenario)

    def test_indexes_that_a_fork_lacks_are_named(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 6)
            await take_back(store, 4)  # index 4 and 5
            for number in (40, 50, 60):
                await answered(store, str(number), step_number=number)
            await take_back(store, 60)
            await answered(store, "70", step_number=70)
            assert await store.list_gaps("s") == ()

            mine, early = await fork(store), await fork(store, 3)
            await answered(store, "80", step_number=80, session=mine)

            assert await active_of(store, mine) == [0, 1, 2, 3, 6, 7, 9, 10]
            assert await store.list_gaps(mine) == ((4, 5), (8, 8))
            assert await store.list_gaps(early) == ()
            assert await store.list_gaps("none") == ()

        run(make_store, scenario)

    def test_it_pays_for_what_is_recorded_in_it(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 4)
            step = await step_of(store, 0)
            store.note_replay(note_of(step.step_id))
            name = await fork(store, 2)
            row = await session_of(store, name)
            assert (row.input_tokens, row.output_tokens, row.cost_microusd) == (0, 0, 0)
            assert (row.unknown_costs, row.replays, row.saved_microusd) == (0, 0, 0)
            assert (await step_of(store, 0, name)).cost_microusd == 25
            await answered(store, "2", session=name)
            shared = await step_of(store, 1, name)
            again = claim_of("1", session=name, step_id=shared.step_id)
            await store.record_answer(
                checkpoint_of((await store.claim_step(again)).step_id, cost_microusd=None)
            )
            row = await session_of(store, name)
            assert (row.input_tokens, row.cost_microusd, row.unknown_costs) == (20, 25, 1)
            weight = await store.weigh_rollback(name, Place(index=0))
            assert (weight.steps, weight.cost_microusd) == (3, 50)
            twice = await store.fork_session(name, ForkAsk(), at_ms=LATER_MS)
            assert (await session_of(store, twice)).cost_microusd == 0

        run(make_store, scenario)

    def test_a_refresh_that_fails_leaves_what_is_shared(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 1)
            name = await fork(store)
            shared = await step_of(store, 0, name)
            await store.claim_step(claim_of("0", session=name, step_id=shared.step_id))
            await store.record_failure(shared.step_id, (attempt_of(),), failed_ms=LATER_MS)
            after = await step_of(store, 0, name)
            assert (after.state, after.answer_id) == ("complete", shared.answer_id)
            assert (await session_of(store, name)).cost_microusd == 0

        run(make_store, scenario)

    def test_it_is_called_as_the_other_unless_somebody_says(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            said = About("Invoices", "boss", (("team", "ops"),))
            await answered(store, "a", about=said)
            first, second = await fork(store), await fork(store, title="")
            row = await session_of(store, first)
            assert (row.name, row.parent, row.tags) == ("Invoices", "boss", (("team", "ops"),))
            assert (await session_of(store, second)).name is None
            await store.change_session(second, Change(tags=(("team", None),)), at_ms=LATER_MS)
            await answered(store, "b", session=second, about=said)
            row = await session_of(store, second)
            assert (row.name, row.tags) == (None, ())  # it says what it said before
            assert (await session_of(store)).tags == (("team", "ops"),)

        run(make_store, scenario)

    def test_forks_are_listed_by_where_they_come_from(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 2)
            await run_of(store, 1, session="t")
            await fork(store)
            await fork(store)
            page = await store.list_sessions(Query(forked_from="s", newest_first=False))
            assert [row.session for row in page.rows] == ["s-fork-1", "s-fork-2"]
            assert (await store.list_sessions(Query(forked_from="t"))).rows == ()

        run(make_store, scenario)

    def test_what_runs_were_served_there_they_are_served_anew(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "a", run_id="r")
            step = await step_of(store, 0)
            await store.record_served(Served(step.step_id, None, START_MS, True), "s", "r")
            name = await fork(store)
            mine = await step_of(store, 0, name)
            assert await store.list_served(name, "r", (mine.step_id,)) == ()
            served = Served(mine.step_id, None, START_MS, False)
            await store.record_served(served, name, "r")
            assert await store.list_served(name, "r", (mine.step_id,)) == (served,)
            for other in (step.step_id, 10**6):
                with pytest.raises(NotFound):
                    await store.record_served(Served(other, None, 1, False), name, "r")
                with pytest.raises(NotFound):
                    await store.record_alias(name, b"x" * 32, other)

        run(make_store, scenario)

    def test_nobody_is_told_that_a_fork_is_idle(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 1)
            name = await fork(store)
            idle = await store.find_idle(idle_since_ms=FAR_MS, limit=9)
            assert [one.session for one in idle] == ["s"]
            await answered(store, "x", session=name, created_ms=LATER_MS + 1)
            idle = await store.find_idle(idle_since_ms=FAR_MS, limit=9)
            assert [one.session for one in idle] == ["s", name]

        run(make_store, scenario)

    # --- what is refused --------------------------------------------------------------------

    def test_a_fork_that_cannot_be_is_refused(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 2)
            with pytest.raises(NotFound):
                await store.fork_session("none", ForkAsk(), at_ms=LATER_MS)
            with pytest.raises(Conflict, match="before step 0"):
                await fork(store, 0)
            with pytest.raises(Conflict, match="before index 0"):
                await store.fork_session("s", ForkAsk(Place(index=0)), at_ms=LATER_MS)
            await store.claim_step(claim_of("x", session="t"))
            with pytest.raises(Conflict, match="no finished step that"):
                await store.fork_session("t", ForkAsk(), at_ms=LATER_MS)
            with pytest.raises(Conflict, match="already"):
                await fork(store, session="t")
            names = {row.session for row in (await store.list_sessions(Query())).rows}
            assert names == {"s", "t"}
            assert await fork(store, session="u") == "u"
            with pytest.raises(Conflict, match="already"):
                await fork(store, session="u")

        run(make_store, scenario)

    def test_a_place_that_is_not_there_is_refused(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 5)
            await take_back(store, 4)
            await store.claim_step(claim_of("x", step_number=9))  # at index 5, in flight
            await store.claim_step(claim_of("y", session="t"))
            for place, says in (
                (Place(index=7), "ends with index 5; found a fork before index 7"),
                (Place(step_number=11), "ends with step 9; found a fork before step 11"),
                (Place(step_number=999), "step 999"),
            ):
                with pytest.raises(Conflict, match=says):
                    await store.fork_session("s", ForkAsk(place), at_ms=LATER_MS)
            names = [
                await store.fork_session("s", ForkAsk(place), at_ms=LATER_MS)
                for place in (Place(index=6), Place(step_number=10))
            ]
            assert [await active_of(store, name) for name in names] == [[0, 1, 2, 3]] * 2

        run(make_store, scenario)

    def test_a_name_that_is_made_is_free_and_no_longer_than_one_may_be(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            long = "x" * 512
            await run_of(store, 1, session=long)
            made = [await store.fork_session(long, ForkAsk(), at_ms=LATER_MS) for _ in range(2)]
            assert made == ["x" * 505 + "-fork-1", "x" * 505 + "-fork-2"]

        run(make_store, scenario)

    # --- apart ------------------------------------------------------------------------------

    def test_what_happens_to_one_never_changes_the_other(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await run_of(store, 4)
            name = await fork(store, 3)
            before = (await store.list_steps(Query(session=name))).rows
            await take_back(store, 1)
            again = claim_of("0", step_id=(await step_of(store, 0)).step_id)
            await store.claim_step(again)
            await store.pause("s", at_ms=LATER_MS)
            store.note_replay(note_of((await step_of(store, 0)).step_id))
            assert (await store.list_steps(Query(session=name))).rows == before
            assert await store.read_pause(name) is None
            theirs = (await store.list_steps(Query(session="s"))).rows
            await store.roll_back(name, Place(index=1), at_ms=LATER_MS)
            await store.restore(name, None, at_ms=LATER_MS)
            await answered(store, "3", session=name)
            assert (await store.list_steps(Query(session="s"))).rows == theirs
            assert await active_of(store, name) == [0, 1, 2, 3]

        run(make_store, scenario)

    def test_a_fork_outlives_what_it_was_forked_from(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for number in range(4):
                messages = [message(f"{place}" * 40) for place in range(number + 1)]
                await answered(
                    store, str(number), step_number=number, request=request_of(*messages)
                )
            name = await fork(store, 3)
            steps = (await store.list_steps(Query(session=name))).rows
            read = [
                (await store.read_request(step.step_id), await store.read_answer(step.step_id))
                for step in steps
            ]
            deletion = await delete(store)
            assert deletion.forks == (name,)
            assert (await store.list_steps(Query(session=name))).rows == steps
            assert read == [
                (await store.read_request(step.step_id), await store.read_answer(step.step_id))
                for step in steps
            ]
            row = await session_of(store, name)
            assert row.origin is not None
            assert row.origin.session == "s"
            twice = await store.fork_session(name, ForkAsk(), at_ms=LATER_MS)
            await delete(store, name)
            assert await active_of(store, twice) == [0, 1, 2]

        run(make_store, scenario)

    # --- the gate ---------------------------------------------------------------------------

    def test_an_approval_allows_nothing_in_a_fork(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            edited = approval_of(reason="looks \ud83d fine", arguments='{"to": "b\ud83d"}')
            approval = await decided(store, edited)
            answer_id = await answer_at(store, "s", 0)
            await store.record_delivered(answer_id, answer_of(b"edited"))
            await store.record_release(answer_id, "r", at_ms=LATER_MS)
            name = await fork(store)
            mine = await answer_at(store, name, 0)
            assert await store.approvals_of(mine) == ()
            assert await store.read_delivered(mine) is None
            assert await store.read_borrowed(mine) == answer_of(b"edited")
            said = replace(edited, reason="looks \ufffd fine")
            assert await store.precedents_of(mine) == (Earlier("s", said, START_MS + 5),)
            assert await store.precedents_of(answer_id) == ()
            assert await store.list_releases(mine) == ()
            await delete(store)
            step_id = (await step_of(store, 0, name)).step_id
            [new] = await store.open_approvals(step_id, mine, (question_of(),), at_ms=LATER_MS)
            assert new.approval_id != approval.approval_id
            assert new.decision is None
            told = approval_of(reason="looks \ufffd fine", arguments='{"to": "b\ud83d"}')
            assert new.earlier == Earlier("s", told, START_MS + 5)
            assert new.proposed == '{"to": "b\ud83d"}'
            for word in ("'s'", "approved by ann", "2026-09-21", "looks", "arguments"):
                assert word in new.question.why
            assert await status_of(store, name) == "RUNNING"  # its deadline is long past
            [again] = await store.open_approvals(step_id, mine, (question_of(),), at_ms=LATER_MS)
            assert again.approval_id == new.approval_id
            other = question_of("another call")
            [fresh] = await store.open_approvals(step_id, mine, (other,), at_ms=LATER_MS)
            assert (fresh.earlier, fresh.question.why) == (None, "")
            await store.record_delivered(mine, answer_of(b"here"))
            assert await store.read_delivered(mine) == answer_of(b"here")
            assert await store.read_borrowed(mine) == answer_of(b"here")
            first = await store.record_delivered(mine, answer_of(b"late"))
            assert first == answer_of(b"here")

        run(make_store, scenario)

    def test_what_was_decided_goes_from_fork_to_fork(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await decided(store, approval_of(reason="one"))
            first = await fork(store)
            second = await store.fork_session(first, ForkAsk(), at_ms=LATER_MS)
            step = await step_of(store, 0, first)
            place = (step.step_id, step.answer_id)
            [mine] = await store.open_approvals(*place, (question_of(),), at_ms=LATER_MS)
            await store.decide(mine.approval_id, rejection_of(then="stop"), at_ms=LATER_MS)
            third = await store.fork_session(first, ForkAsk(), at_ms=LATER_MS)
            for name, session in ((second, "s"), (third, first)):
                step = await step_of(store, 0, name)
                place = (step.step_id, step.answer_id)
                [new] = await store.open_approvals(*place, (question_of(),), at_ms=LATER_MS)
                assert new.decision is None
                assert new.earlier is not None
                assert (new.earlier.session, new.earlier.decision.is_approved) == (
                    session,
                    session == "s",
                )
                assert new.proposed is None

        run(make_store, scenario)

    def test_a_refusal_that_the_model_was_told_of_goes_along(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await decided(store, rejection_of())
            step, root_id = await step_of(store, 0), await answer_at(store, "s", 0)
            round_id = await store.record_round(checkpoint_of(step.step_id), root_id, 1)
            await store.record_delivered(root_id, answer_of(b"round"))
            assert await store.list_refusals("mine") == ()
            name = await fork(store, session="mine")
            mine, my_step = await answer_at(store, name, 0), await step_of(store, 0, name)
            [approval] = await store.approvals_of(mine)
            assert approval.decision == rejection_of()
            assert (approval.session, approval.step_id) == (name, my_step.step_id)
            assert await store.read_delivered(mine) == answer_of(b"round")
            [my_round] = await store.rounds_of(mine)
            assert my_round not in (round_id, mine)
            assert await store.read_answer_by_id(my_round) == await store.read_answer_by_id(
                round_id
            )
            [refusal] = await store.list_refusals(name)
            assert (refusal.answer_id, refusal.root_id) == (mine, mine)
            assert (await session_of(store, name)).cost_microusd == 0
            await delete(store)
            assert (await store.approvals_of(mine))[0].decision == rejection_of()
            with pytest.raises(AlreadyDecided):
                await store.decide(approval.approval_id, approval_of(), at_ms=LATER_MS)

        run(make_store, scenario)

    def test_what_is_decided_in_part_is_decided_anew(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await decided(store, rejection_of())
            step, root_id = await step_of(store, 0), await answer_at(store, "s", 0)
            round_id = await store.record_round(checkpoint_of(step.step_id), root_id, 1)
            [late] = await store.open_approvals(
                step.step_id, round_id, (question_of("late", deadline_ms=FAR_MS),), at_ms=START_MS
            )
            await store.record_delivered(root_id, answer_of(b"instead"))
            for decision in (None, approval_of()):
                if decision is not None:
                    await store.decide(late.approval_id, decision, at_ms=START_MS)
                mine = await answer_at(store, await fork(store), 0)
                assert await store.read_delivered(mine) is None
                assert await store.read_borrowed(mine) == answer_of(b"instead")
                [my_round] = await store.rounds_of(mine)
                assert await store.approvals_of(my_round) == ()
            name = await fork(store, inherits_decisions=True)
            mine = await answer_at(store, name, 0)
            assert await store.read_delivered(mine) == answer_of(b"instead")

        run(make_store, scenario)

    def test_decisions_that_are_inherited_count(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await decided(store, approval_of(arguments="{}"), "a")
            await decided(store, rejection_of(then="stop"), "b")
            await asked(store, "c", deadline_ms=FAR_MS)
            claimed = await store.claim_step(claim_of("d"))
            request = request_question_of()
            [first] = await store.open_approvals(claimed.step_id, None, (request,), at_ms=START_MS)
            await store.decide(first.approval_id, approval_of(), at_ms=START_MS)
            await store.record_failure(claimed.step_id, (), failed_ms=START_MS)
            await store.record_delivered(await answer_at(store, "s", 0), answer_of(b"edited"))
            name = await fork(store, inherits_decisions=True)
            answers = [await answer_at(store, name, index) for index in range(3)]
            [approved] = await store.approvals_of(answers[0])
            assert approved.decision == approval_of(arguments="{}")
            [rejected] = await store.approvals_of(answers[1])
            assert rejected.decision == rejection_of(then="stop")
            assert await store.approvals_of(answers[2]) == ()
            assert await store.read_delivered(answers[0]) == answer_of(b"edited")
            of_fork = (await store.list_approvals(Query(session=name), at_ms=1)).rows
            assert {each.question.kind for each in of_fork} == {"tool_call", "request"}
            assert len(of_fork) == 3
            assert await status_of(store, name) == "RUNNING"
            assert await store.count_pending(at_ms=START_MS) == 1  # of "s" alone

        run(make_store, scenario)

    # --- deleting ---------------------------------------------------------------------------

    def test_what_is_deleted_is_nowhere(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            approval = await asked(store, "0", deadline_ms=FAR_MS)
            await run_of(store, 3, first=1)
            await store.pause("s", at_ms=LATER_MS)
            await take_back(store, 3)
            await run_of(store, 1, session="t")
            await store.record_event(event_of(7, session="t"))
            step, answer_id = await step_of(store, 0), await answer_at(store, "s", 0)
            weighed = await store.weigh_deletion("s")
            deletion = await store.delete_session("s")
            assert deletion == weighed
            assert deletion.weight == Weight(4, 40, 16, 100, 0)
            assert deletion.forks == ()
            for _ in range(2):  # at once, and when all of it is removed
                assert await store.read_session("s") is None
                assert [row.session for row in (await store.list_sessions(Query())).rows] == ["t"]
                assert (await store.list_steps(Query(session="s"))).rows == ()
                assert await store.read_step(step.step_id) is None
                assert await store.find_step("s", 0) is None
                assert await store.read_approval(approval.approval_id) is None
                assert (await store.list_approvals(Query(), at_ms=1)).rows == ()
                assert await store.count_pending(at_ms=1) == 0
                assert await store.read_pause("s") is None
                assert await store.list_rollbacks("s", limit=9) == ()
                assert await store.list_refusals("s") == ()
                assert await store.weigh_deletion("s") is None
                for key in KEYS:
                    value = getattr(identity_of("0"), key)
                    assert await store.find_candidates("s", key, value) == ()
                totals = await store.read_totals()
                assert (totals["sessions"], totals["steps"]) == (1, 1)
                await store.finish_removals()
            assert await store.read_answer(step.step_id) is None
            assert await store.read_answer_by_id(answer_id) is None
            assert await store.approvals_of(answer_id) == ()
            told = (await store.list_deliveries(Query())).rows
            assert [one.event.session for one in told] == ["t"]

        run(make_store, scenario)

    def test_nothing_more_is_put_on_record_of_it(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            approval = await asked(store, "0")
            step, answer_id = await step_of(store, 0), await answer_at(store, "s", 0)
            flying = await store.claim_step(claim_of("flying", run_id="r"))
            await store.delete_session("s")
            await answered(store, "new")  # another session of that name
            for _ in range(2):
                for call in (
                    store.record_answer(checkpoint_of(flying.step_id)),
                    store.record_failure(flying.step_id, (attempt_of(),), failed_ms=LATER_MS),
                    store.append_tail(tail_of(step.step_id, b"more")),
                    store.open_approvals(step.step_id, answer_id, (question_of("x"),), at_ms=1),
                    store.decide(approval.approval_id, approval_of(), at_ms=1),
                    store.record_round(checkpoint_of(step.step_id), answer_id, 1),
                    store.record_served(Served(flying.step_id, None, 1, False), "s", "r"),
                    store.record_alias("s", identity_of("x").exact, step.step_id),
                    store.claim_step(claim_of("0", step_id=step.step_id)),
                    store.delete_session("none"),
                ):
                    with pytest.raises(NotFound):
                        await call
                store.note_replay(note_of(step.step_id))
                store.note_delivered("s", "r", flying.step_id)
                row = await session_of(store)
                assert (row.steps, row.replays, row.cost_microusd) == (1, 0, 25)
                assert (await store.list_approvals(Query(), at_ms=1)).rows == ()
                await store.finish_removals()

        run(make_store, scenario)

    def test_its_name_is_free_at_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await run_of(store, 3)
            await store.delete_session("s")
            claimed = await store.claim_step(claim_of("0"))
            assert (claimed.index, claimed.step_number) == (0, 0)
            await store.record_answer(checkpoint_of(claimed.step_id))
            await store.record_event(event_of(1, session="s"))
            await store.finish_removals()
            assert await active_of(store) == [0]
            row = await session_of(store)
            assert (row.steps, row.cost_microusd, row.origin) == (1, 25, None)
            assert len(await store.find_candidates("s", "exact", identity_of("0").exact)) == 1
            assert len((await store.list_deliveries(Query())).rows) == 1

        run(make_store, scenario)

    def test_ids_are_used_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            approval = await asked(store, "0")
            step = await step_of(store, 0)
            await delete(store)
            after = await asked(store, "0")
            assert after.step_id > step.step_id
            assert after.answer_id is not None
            assert step.answer_id is not None
            assert after.answer_id > step.answer_id
            assert after.approval_id != approval.approval_id

        run(make_store, scenario)

    # --- what is not there --------------------------------------------------------------------

    def test_a_closed_store_neither_forks_nor_deletes(self, make_store: MakeStore) -> None:
        async def scenario() -> None:
            store = make_store()
            await store.open()
            await run_of(store, 1)
            await store.close()
            for call in (
                fork(store),
                fork(store, session="mine"),
                store.read_borrowed(1),
                store.weigh_deletion("s"),
                store.delete_session("s"),
            ):
                with pytest.raises(StoreError):
                    await call

        asyncio.run(scenario())

    def test_both_survive_the_end_of_the_process(self, make_store: MakeStore) -> None:
        async def write(store: Store) -> None:
            await run_of(store, 3)
            await fork(store, 2)
            await store.delete_session("s")

        async def look(store: Store) -> None:
            await store.finish_removals()
            assert await active_of(store, "s-fork-1") == [0, 1]
            assert await store.read_session("s") is None

        for scenario in (write, look):
            run(make_store, scenario)
