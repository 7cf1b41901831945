"""What any store must do to make room; see `contract.py`, whose makers it uses.

A backend subclasses `RetentionContract` beside `StoreContract`.
"""

from __future__ import annotations

from dataclasses import replace

from agentstate.ground.approvals import Decision
from agentstate.ground.control import Change, Place
from agentstate.ground.durable import Settlement
from agentstate.ground.forks import ForkAsk
from agentstate.ground.retention import KEEP_TAG, Quiet
from agentstate.store.base import Store
from tests.store.contract import (
    START_MS,
    MakeStore,
    answered,
    claim_of,
    note_of,
    run,
)
from tests.store.contract_control import active_of
from tests.store.contract_durable import begin_of, begun, call_in, lost, result_of
from tests.store.contract_gate import FAR_MS, asked

HEARD_MS = START_MS + 1000  # when `answered` has the answer come
LATER_MS = HEARD_MS + 1_000_000


async def quiet(store: Store, since_ms: int = LATER_MS) -> list[str]:
    """Return the names of the sessions that may go."""
    found = await store.list_quiet(quiet_since_ms=since_ms, at_ms=LATER_MS, limit=100)
    return [one.session for one in found]


async def retire(store: Store, one: Quiet) -> bool:
    """Have a session go, if it may."""
    return await store.retire_session(one, quiet_since_ms=LATER_MS, at_ms=LATER_MS)


class RetentionContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    def test_the_longest_quiet_is_first(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for name, at_ms in (("new", 30_000), ("old", 10_000), ("middle", 20_000)):
                await answered(store, name, session=name, created_ms=START_MS + at_ms)
            await answered(store, "again", session="old", created_ms=START_MS + 25_000)
            assert await quiet(store) == ["middle", "old", "new"]
            assert await quiet(store, START_MS + 25_000) == ["middle"]
            found = await store.list_quiet(quiet_since_ms=LATER_MS, at_ms=LATER_MS, limit=2)
            assert found == (
                Quiet("middle", START_MS + 20_000, 1),
                Quiet("old", START_MS + 25_000, 2),
            )

        run(make_store, scenario)

    def test_a_call_in_flight_has_its_session_stay(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("0"))
            assert await quiet(store) == []
            await store.record_failure(claimed.step_id, (), failed_ms=START_MS)
            assert await quiet(store) == ["s"]

        run(make_store, scenario)

    def test_who_waits_for_a_person_stays_as_long_as_there_is_time(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            open_one = await asked(store, "0", session="open", deadline_ms=FAR_MS)
            await asked(store, "1", session="endless", deadline_ms=None)
            await asked(store, "2", session="over", deadline_ms=LATER_MS)
            await asked(store, "3", session="back", deadline_ms=FAR_MS)
            await store.roll_back("back", Place(index=0), at_ms=START_MS)
            assert await quiet(store) == ["over", "back"]
            await store.decide(open_one.approval_id, Decision(True, "ann"), at_ms=START_MS + 5)
            assert await quiet(store) == ["open", "over", "back"]

        run(make_store, scenario)

    def test_what_a_person_paused_or_keeps_stays(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for name in ("paused", "kept", "tagged"):
                await answered(store, name, session=name)
            await store.pause("paused", at_ms=START_MS)
            for name, tag in (("kept", KEEP_TAG), ("tagged", "other")):
                change = Change(tags=((tag, ""),))
                await store.change_session(name, change, at_ms=START_MS)
            assert await quiet(store) == ["tagged"]
            await store.resume("paused", at_ms=START_MS)
            await store.change_session("kept", Change(tags=((KEEP_TAG, None),)), at_ms=START_MS)
            assert await quiet(store) == ["paused", "kept", "tagged"]

        run(make_store, scenario)

    def test_a_durable_call_that_has_not_ended_has_its_session_stay(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            running = await begun(store, "a", session="running")
            unknown = await lost(store, "b", session="unknown")
            done = call_in(await store.begin_durable(begin_of("c", session="done")))
            await store.report_durable("done", done.call, result_of(), at_ms=START_MS)
            assert await quiet(store) == ["done"]
            await store.report_durable("running", running.call, result_of(), at_ms=START_MS)
            settlement = Settlement("happened", "1")
            await store.settle_durable("unknown", unknown.call, settlement, at_ms=START_MS)
            assert sorted(await quiet(store)) == ["done", "running", "unknown"]

        run(make_store, scenario)

    def test_what_is_retired_is_gone_and_forks_of_it_stay(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "0")
            await answered(store, "1")
            [one] = await store.list_quiet(quiet_since_ms=LATER_MS, at_ms=LATER_MS, limit=9)
            await store.fork_session("s", ForkAsk(session="f"), at_ms=LATER_MS)
            assert (await store.read_totals())["steps"] == 4
            assert await retire(store, one)
            await store.finish_removals()
            assert await store.read_session("s") is None
            assert await active_of(store, "f") == [0, 1]
            assert (await store.read_totals())["steps"] == 2
            assert not await retire(store, one)

        run(make_store, scenario)

    def test_what_was_heard_of_since_it_was_listed_stays(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for name in ("called", "replayed", "paused", "kept", "same"):
                await answered(store, name, session=name)
            found = await store.list_quiet(quiet_since_ms=LATER_MS, at_ms=LATER_MS, limit=9)
            await store.claim_step(claim_of("more", session="called"))
            step = await store.find_step("replayed", 0)
            assert step is not None
            store.note_replay(replace(note_of(step.step_id), session="replayed"))
            await store.pause("paused", at_ms=START_MS)
            await store.change_session("kept", Change(tags=((KEEP_TAG, "1"),)), at_ms=START_MS)
            assert [one.session for one in found if await retire(store, one)] == ["same"]
            for name in ("called", "replayed", "paused", "kept"):
                assert await store.read_session(name) is not None

        run(make_store, scenario)

    def test_a_session_that_is_quiet_for_too_short_is_not_retired(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "0")
            [one] = await store.list_quiet(quiet_since_ms=LATER_MS, at_ms=LATER_MS, limit=9)
            assert not await store.retire_session(one, quiet_since_ms=HEARD_MS, at_ms=LATER_MS)
            assert await retire(store, one)

        run(make_store, scenario)
