"""What any store must do for webhooks; see `contract.py`, whose makers it uses.

A backend subclasses `EventsContract` beside `StoreContract` and `GateContract`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.chat import ToolCall
from agentstate.ground.errors import AlreadyDecided, BadRequest, NotFound, StoreError
from agentstate.ground.events import (
    EVENT_KINDS,
    Delivery,
    Event,
    IdleSession,
    Subscription,
)
from agentstate.ground.records import Query
from agentstate.store import memory_events, sqlite_events_record
from agentstate.store.base import LIST_LIMIT_MAX, Store
from agentstate.store.events import ARGUMENTS_CHARS_MAX, ERROR_CHARS_MAX
from tests.store.contract import (
    START_MS,
    MakeStore,
    answered,
    checkpoint_of,
    claim_of,
    note_of,
    run,
)
from tests.store.contract_gate import (
    FAR_MS,
    LONG_AGO_MS,
    MENDED,
    ODD,
    SOON_MS,
    answer_id_of,
    approval_of,
    asked,
    decided,
    question_of,
    rejection_of,
    request_question_of,
    status_of,
)

LATER_MS = START_MS + 3_600_000
CALL = ToolCall(0, "call_0", "look_up", "{}")
SECOND_CALL = ToolCall(1, "call_1", "send_email", "{}")


# --- makers ---------------------------------------------------------------------------------------


def wants(hook: str = "all", *kinds: str, sessions: tuple[str, ...] = ()) -> Subscription:
    """Make a subscription; without kinds to all of them."""
    return Subscription(hook, frozenset(kinds or EVENT_KINDS), sessions)


def event_of(number: int = 1, **changes: Any) -> Event:
    """Make an event that has no other cause."""
    event = Event(
        event_id=f"evt_{number:024x}",
        kind="fallback.used",
        session="s",
        created_ms=START_MS,
        facts={"model": "gpt-4o-mini", "tries": 2},
    )
    return replace(event, **changes)


def idle_event_of(**changes: Any) -> Event:
    """Make the event that a session of one step was found idle."""
    whole: dict[str, Any] = {"kind": "session.stalled", "index": 0, "step_number": 0}
    return event_of(**(whole | changes))


async def deliveries(store: Store, **filters: Any) -> tuple[Delivery, ...]:
    """List deliveries, oldest first."""
    return (await store.list_deliveries(Query(newest_first=False, **filters))).rows


async def told(store: Store) -> list[str]:
    """Return the kinds of all events somebody is told of, oldest first."""
    return [one.event.kind for one in await deliveries(store)]


async def claim(
    store: Store,
    at_ms: int = START_MS,
    *,
    limit: int = 10,
    but_not: frozenset[str] = frozenset(),
) -> list[int]:
    """Claim what is due, for a second; return the ids."""
    found = await store.claim_deliveries(at_ms=at_ms, lease_ms=1000, limit=limit, but_not=but_not)
    return [one.delivery_id for one in found]


async def idle(store: Store, since_ms: int = LATER_MS, limit: int = 10) -> list[str]:
    """Return the names of idle sessions."""
    return [one.session for one in await store.find_idle(idle_since_ms=since_ms, limit=limit)]


# --- the contract ---------------------------------------------------------------------------------


class EventsContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- life -------------------------------------------------------------------------------

    def test_a_new_record_has_nothing_to_tell(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            assert await claim(store) == []
            assert await store.next_due_ms() is None
            assert (await store.list_deliveries(Query())).rows == ()
            assert await store.count_deliveries() == {}
            assert await store.read_delivery(1) is None
            assert await idle(store) == []
            with pytest.raises(NotFound):
                await store.redeliver(1, at_ms=START_MS)
            await store.settle_delivery(1, state="sent", at_ms=START_MS)  # it may be gone

        run(make_store, scenario)

    def test_what_is_to_be_told_is_there_after_opening_again(self, make_store: MakeStore) -> None:
        async def write(store: Store) -> tuple[Any, ...]:
            store.subscribe((wants("a"), wants("b")))
            await store.record_event(event_of())
            await claim(store, limit=1)
            await decided(store, approval_of())
            await answered(store, session="idle")
            await store.note_idle(idle_event_of(session="idle", event_id="evt_idle"))
            return await read(store)

        async def read(store: Store) -> tuple[Any, ...]:
            return (
                await deliveries(store),
                await store.count_deliveries(),
                await store.next_due_ms(),
                await idle(store),
            )

        before = run(make_store, write)
        assert before == run(make_store, read)
        assert len(before[0]) == 8

    def test_a_closed_store_refuses_events(self, make_store: MakeStore) -> None:
        async def scenario() -> None:
            store = make_store()
            await store.open()
            await store.close()
            store.subscribe((wants(),))  # never fails
            for call in (
                store.record_event(event_of()),
                store.claim_deliveries(at_ms=START_MS, lease_ms=1, limit=1),
                store.settle_delivery(1, state="dead", at_ms=START_MS),
                store.next_due_ms(),
                store.list_deliveries(Query()),
                store.count_deliveries(),
                store.read_delivery(1),
                store.redeliver(1, at_ms=START_MS),
                store.find_idle(idle_since_ms=START_MS, limit=1),
                store.note_idle(idle_event_of()),
            ):
                with pytest.raises(StoreError):
                    await call

        asyncio.run(scenario())

    # --- who is told ------------------------------------------------------------------------

    def test_an_event_is_delivered_to_whoever_wants_it(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe(
                (
                    wants("kind", "fallback.used"),
                    wants("other", "budget.reached", "session.failed"),
                    wants("mine", sessions=("x*", "prod-?")),
                    wants("not mine", sessions=("Prod-1",)),
                    wants("kind", sessions=("prod-1",)),  # once is enough
                )
            )

            await store.record_event(event_of(session="prod-1"))
            await store.record_event(event_of(2, session="dev"))

            found = [(one.hook, one.event.session) for one in await deliveries(store)]
            assert found == [("kind", "prod-1"), ("mine", "prod-1"), ("kind", "dev")]
            assert (await deliveries(store))[0] == Delivery(
                delivery_id=1,
                hook="kind",
                event=event_of(session="prod-1"),
                state="due",
                tries=0,
                next_ms=START_MS,
                leased_ms=None,
            )

        run(make_store, scenario)

    def test_what_is_subscribed_holds_for_later_events(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await store.record_event(event_of(1))
            store.subscribe((wants("a"),))
            await store.record_event(event_of(2))
            store.subscribe((wants("b"),))
            await store.record_event(event_of(3))
            store.subscribe(())
            await store.record_event(event_of(4))

            found = [(one.hook, one.event.event_id) for one in await deliveries(store)]
            assert found == [("a", event_of(2).event_id), ("b", event_of(3).event_id)]

        run(make_store, scenario)

    def test_an_event_is_written_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await store.record_event(event_of())
            await store.record_event(event_of(created_ms=START_MS + 1, kind="budget.reached"))

            assert [one.event for one in await deliveries(store)] == [event_of()]

        run(make_store, scenario)

    def test_an_event_comes_back_as_it_went_in(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            whole = event_of(
                step_number=7, index=3, approval_id="apr_1", is_sample=True, facts={"a": [ODD, 1.5]}
            )
            await store.record_event(whole)
            await store.record_event(event_of(2, facts=None))
            await store.record_event(event_of(3, facts={"text": "x" * 5000, "none": None}))

            found = [one.event for one in await deliveries(store)]
            assert found == [
                replace(whole, facts={"a": [MENDED, 1.5]}),
                event_of(2, facts=None),
                event_of(3, facts={"text": "x" * 5000, "none": None}),
            ]

        run(make_store, scenario)

    # --- approvals --------------------------------------------------------------------------

    def test_a_question_is_told_with_what_a_person_needs(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await answered(store, "before")
            step_id, answer_id = await answer_id_of(store, step_number=7)
            asks = (question_of(why="again", arguments=ODD), question_of(position=1))

            approvals = await store.open_approvals(step_id, answer_id, asks, at_ms=START_MS)

            first, second = await deliveries(store)
            assert re.fullmatch(r"evt_[0-9a-f]{24}", first.event.event_id)
            assert first.event == Event(
                event_id=first.event.event_id,
                kind="approval.required",
                session="s",
                created_ms=START_MS,
                step_number=7,
                index=1,
                approval_id=approvals[0].approval_id,
                facts={
                    "tool": "send_email",
                    "arguments": MENDED,
                    "arguments_cut": 0,
                    "kind": "tool_call",
                    "rule": "gate.tools: send_email",
                    "why": "again",
                    "model": "gpt-4o-mini-2024",
                    "dialect": "openai_chat",
                    "call_id": "call_0",
                    "deadline_ms": SOON_MS,
                },
            )
            assert second.event.approval_id == approvals[1].approval_id
            assert second.event.event_id != first.event.event_id

        run(make_store, scenario)

    def test_a_question_that_is_there_is_not_told_again(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            step_id, answer_id = await answer_id_of(store)
            asks = (question_of(deadline_ms=START_MS + 5),)

            async def ask(at_ms: int, *questions: Any) -> int:
                asks = (*questions, *questions)
                await store.open_approvals(step_id, answer_id, asks, at_ms=at_ms)
                return len(await deliveries(store))

            assert await ask(START_MS, *asks) == 1
            assert await ask(START_MS + 4, *asks) == 1
            later = question_of(deadline_ms=SOON_MS)
            assert await ask(START_MS + 5, later) == 2  # it has expired: opened again
            assert await ask(START_MS + 6, later) == 2

            again = (await deliveries(store))[1].event
            assert again.created_ms == START_MS + 5
            assert again.facts is not None
            assert again.facts["deadline_ms"] == SOON_MS

        run(make_store, scenario)

    def test_a_request_is_told_of_before_it_goes_upstream(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            claimed = await store.claim_step(claim_of())
            asks = (request_question_of(),)
            await store.open_approvals(claimed.step_id, None, asks, at_ms=START_MS)

            (one,) = await deliveries(store)
            assert one.event.facts is not None
            assert one.event.facts["kind"] == "request"
            assert one.event.facts["call_id"] is None

        run(make_store, scenario)

    def test_long_arguments_are_cut_and_what_is_left_out_counted(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await decided(
                store,
                approval_of(arguments="y" * (ARGUMENTS_CHARS_MAX + 1)),
                arguments="x" * (ARGUMENTS_CHARS_MAX + 100_000),
            )

            found = [one.event.facts or {} for one in await deliveries(store)]
            assert [one["arguments_cut"] for one in found] == [100_000, 1]
            texts = ["x" * ARGUMENTS_CHARS_MAX, "y" * ARGUMENTS_CHARS_MAX]
            assert [one["arguments"] for one in found] == texts

        run(make_store, scenario)

    @pytest.mark.parametrize(
        "decision",
        [
            approval_of(),
            approval_of(by=None, arguments='{"to": "b@example.org"}'),
            rejection_of(),
            rejection_of(reason=ODD),
        ],
    )
    def test_a_decision_is_told(self, make_store: MakeStore, decision: Decision) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            approval = await decided(store, decision)

            asked_for, one = (delivery.event for delivery in await deliveries(store))
            assert (one.kind, one.created_ms) == ("approval.decided", START_MS + 5)
            assert one.approval_id == approval.approval_id
            assert (one.session, one.step_number, one.index) == ("s", 0, 0)
            assert asked_for.facts is not None
            reason = MENDED if decision.reason == ODD else decision.reason
            assert one.facts == asked_for.facts | {
                "arguments": decision.arguments or approval.question.arguments,
                "by": decision.by,
                "reason": reason,
                "then": decision.then,
                "status": "APPROVED" if decision.is_approved else "REJECTED",
                "is_approved": decision.is_approved,
                "arguments_are_edited": decision.arguments is not None,
            }

        run(make_store, scenario)

    def test_a_session_fails_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            step_id, answer_id = await answer_id_of(store)
            asks = (question_of(), question_of(position=1))
            first, second = await store.open_approvals(step_id, answer_id, asks, at_ms=START_MS)
            stop = rejection_of(then="stop")

            await store.decide(first.approval_id, stop, at_ms=START_MS)
            await store.decide(second.approval_id, stop, at_ms=START_MS)

            assert await told(store) == [
                *("approval.required", "approval.required"),
                *("approval.decided", "session.failed", "approval.decided"),
            ]
            failed = (await deliveries(store))[3].event
            assert failed.approval_id == first.approval_id
            assert failed.facts is not None
            assert failed.facts["status"] == "FAILED"
            assert failed.facts["reason"] == "not today"

            await decided(store, stop, "next")  # a claim has taken the failure back
            assert (await told(store))[-1] == "session.failed"

        run(make_store, scenario)

    def test_a_decision_that_was_made_is_not_told_twice(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            approval = await decided(store, approval_of())
            for decision in (approval_of(), rejection_of(then="stop")):
                with pytest.raises(AlreadyDecided):
                    await store.decide(approval.approval_id, decision, at_ms=START_MS)

            assert await told(store) == ["approval.required", "approval.decided"]

        run(make_store, scenario)

    def test_what_a_rule_decides_at_once_alarms_nobody(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            for text, decision in (("a", approval_of()), ("b", rejection_of())):
                approval = await decided(store, decision, text, is_quiet=True)
                assert approval.question.is_quiet
                assert await store.read_approval(approval.approval_id) == approval
            assert await told(store) == []

            await decided(store, rejection_of(then="stop"), "c", is_quiet=True)
            assert await told(store) == ["session.failed"]  # that is worth a word

        run(make_store, scenario)

    def test_a_quiet_question_that_is_asked_of_a_person_after_all_is_told(
        self, make_store: MakeStore
    ) -> None:
        """Whoever was to decide it has died, and the rule is no more."""

        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            quiet = question_of(is_quiet=True)
            heard = question_of(deadline_ms=SOON_MS + 9)
            step_id, answer_id = await answer_id_of(store)

            async def ask(question: Any, at_ms: int) -> Any:
                (approval,) = await store.open_approvals(
                    step_id, answer_id, (question,), at_ms=at_ms
                )
                return approval

            first = await ask(quiet, START_MS)
            assert await ask(quiet, START_MS + 1) == first
            assert await told(store) == []

            again = await ask(heard, START_MS + 2)
            assert again.approval_id == first.approval_id
            assert (again.question, again.asked_ms) == (heard, START_MS + 2)
            assert await ask(heard, START_MS + 3) == again
            assert await ask(quiet, START_MS + 4) == again  # who was alarmed hears the end
            expired = await ask(replace(quiet, deadline_ms=FAR_MS), SOON_MS + 9)
            assert expired.question == replace(heard, deadline_ms=FAR_MS)
            assert await told(store) == ["approval.required"]
            await store.decide(first.approval_id, approval_of(), at_ms=SOON_MS + 9)
            assert await ask(quiet, FAR_MS + 1) == await ask(heard, FAR_MS + 1)
            assert await told(store) == ["approval.required", "approval.decided"]

        run(make_store, scenario)

    def test_a_quiet_question_that_was_decided_stays_so(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            done = await decided(store, approval_of(), is_quiet=True)
            (found,) = await store.open_approvals(1, 1, (question_of(),), at_ms=FAR_MS)
            assert found == done
            assert await told(store) == []

        run(make_store, scenario)

    def test_what_fails_tells_nobody(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            step_id, _ = await answer_id_of(store)
            with pytest.raises(NotFound):
                await store.open_approvals(step_id, 99, (question_of(),), at_ms=START_MS)
            with pytest.raises(NotFound):
                await store.decide("apr_none", rejection_of(then="stop"), at_ms=START_MS)
            assert await told(store) == []

        run(make_store, scenario)

    # --- deliveries -------------------------------------------------------------------------

    def test_what_is_due_is_leased_to_one_caller(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            for number, after_ms in ((1, 5), (2, 0), (3, 0), (4, 2000)):
                event = event_of(number, created_ms=START_MS + after_ms)
                await store.record_event(event)

            assert await store.next_due_ms() == START_MS
            assert await claim(store, START_MS - 1) == []
            assert await claim(store, START_MS, limit=1) == [2]
            assert await store.next_due_ms() == START_MS
            assert await claim(store, START_MS + 5) == [3, 1]
            assert await claim(store, START_MS + 999) == []
            assert await store.next_due_ms() == START_MS + 1000
            assert await claim(store, START_MS + 1000) == [2]  # whoever had it has died
            assert await store.next_due_ms() == START_MS + 1005
            found = [(one.tries, one.leased_ms) for one in await deliveries(store)]
            assert found == [
                *((1, START_MS + 1005), (2, START_MS + 2000)),
                *((1, START_MS + 1005), (0, None)),
            ]

        run(make_store, scenario)

    def test_those_who_claim_at_once_share(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            for number in range(10):
                await store.record_event(event_of(number))

            shares = await asyncio.gather(*(claim(store, limit=3) for _ in range(5)))

            assert sorted(one for share in shares for one in share) == list(range(1, 11))

        run(make_store, scenario)

    def test_a_webhook_that_has_to_wait_holds_up_no_other(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("slow"), wants("fast"), wants("third")))
            await store.record_event(event_of(1))
            await store.record_event(event_of(2, created_ms=START_MS + 1))
            slow = frozenset(("slow", "unknown"))

            assert await store.next_due_ms(but_not=frozenset(("fast", "slow", "third"))) is None
            assert await claim(store, START_MS, but_not=slow | {"third"}) == [2]
            assert await claim(store, START_MS + 1, but_not=slow) == [3, 5, 6]
            assert await store.next_due_ms(but_not=slow) == START_MS + 1000
            assert await store.next_due_ms() == START_MS
            assert await claim(store, START_MS + 1) == [1, 4]

        run(make_store, scenario)

    def test_a_try_ends_in_one_of_three_ways(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("a"), wants("b"), wants("c")))
            await store.record_event(event_of())
            await claim(store)

            await store.settle_delivery(1, state="sent", at_ms=START_MS + 7, status=204)
            await store.settle_delivery(
                2, state="due", at_ms=START_MS + 8, next_ms=SOON_MS, status=500, error="no"
            )
            await store.settle_delivery(
                3, state="dead", at_ms=START_MS + 9, error=ODD + "x" * ERROR_CHARS_MAX
            )

            before = Delivery(1, "a", event_of(), "sent", 1, None, None)
            sent, due, dead = await deliveries(store)
            assert sent == replace(before, status=204, settled_ms=START_MS + 7)
            waits = replace(before, delivery_id=2, hook="b", state="due")
            assert due == replace(waits, next_ms=SOON_MS, status=500, error="no")
            assert (dead.state, dead.next_ms, dead.settled_ms) == ("dead", None, START_MS + 9)
            assert dead.error is not None
            assert dead.error.startswith(MENDED)
            assert len(dead.error) == ERROR_CHARS_MAX
            assert await store.next_due_ms() == SOON_MS
            assert await claim(store, SOON_MS - 1) == []
            assert await claim(store, SOON_MS) == [2]
            assert await store.count_deliveries() == {
                "a": {"sent": 1},
                "b": {"due": 1},
                "c": {"dead": 1},
            }

        run(make_store, scenario)

    def test_what_has_ended_is_not_ended_again(self, make_store: MakeStore) -> None:
        """A sender that was taken for dead comes back after another one has delivered."""

        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await store.record_event(event_of())
            await claim(store)
            await store.settle_delivery(1, state="sent", at_ms=START_MS, status=200)
            before = await store.read_delivery(1)

            await store.settle_delivery(1, state="due", at_ms=START_MS + 1, next_ms=SOON_MS)
            await store.settle_delivery(1, state="dead", at_ms=START_MS + 1)

            assert await store.read_delivery(1) == before

        run(make_store, scenario)

    def test_without_a_time_it_is_due_at_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await store.record_event(event_of())
            await claim(store)
            await store.settle_delivery(1, state="due", at_ms=START_MS + 3)
            assert await store.next_due_ms() == START_MS + 3

        run(make_store, scenario)

    @pytest.mark.parametrize("state", ["sent", "dead"])
    def test_whatever_became_of_it_it_can_be_delivered_again(
        self, make_store: MakeStore, state: Any
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await store.record_event(event_of())
            await claim(store)
            await store.settle_delivery(1, state=state, at_ms=START_MS, status=410, error="gone")

            again = await store.redeliver(1, at_ms=SOON_MS)

            assert again == Delivery(1, "all", event_of(), "due", 0, SOON_MS, None, 410, "gone")
            assert await store.read_delivery(1) == again
            assert await claim(store, SOON_MS) == [1]

        run(make_store, scenario)

    def test_what_is_being_sent_is_not_sent_a_second_time_by_that(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await store.record_event(event_of())
            await claim(store)

            again = await store.redeliver(1, at_ms=START_MS + 1)

            assert (again.state, again.leased_ms) == ("due", START_MS + 1000)
            assert await claim(store, START_MS + 1) == []
            assert await claim(store, START_MS + 1000) == [1]

        run(make_store, scenario)

    def test_deliveries_are_listed_by_page(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            for number in range(1, 8):
                await store.record_event(event_of(number, session="st"[number % 2]))
            await claim(store, limit=2)
            await store.settle_delivery(1, state="sent", at_ms=START_MS)
            await store.settle_delivery(2, state="dead", at_ms=START_MS)

            async def pages(**filters: Any) -> list[list[int]]:
                found: list[list[int]] = []
                after: str | None = None
                while True:
                    page = await store.list_deliveries(Query(after=after, limit=3, **filters))
                    found.append([one.delivery_id for one in page.rows])
                    after = page.next_cursor
                    if after is None:
                        return found

            assert await pages() == [[7, 6, 5], [4, 3, 2], [1]]
            assert await pages(newest_first=False) == [[1, 2, 3], [4, 5, 6], [7]]
            assert await pages(session="s") == [[6, 4, 2]]
            assert await pages(session="t", newest_first=False) == [[1, 3, 5], [7]]
            assert await pages(state="due") == [[7, 6, 5], [4, 3]]
            assert await pages(state="dead") == [[2]]
            assert await pages(state="sent", session="t") == [[1]]
            assert await pages(session="none") == await pages(state="none") == [[]]

        run(make_store, scenario)

    @pytest.mark.parametrize(
        "query", [Query(limit=0), Query(limit=LIST_LIMIT_MAX + 1), Query(after="x")]
    )
    def test_a_wrong_page_of_deliveries_is_refused(
        self, make_store: MakeStore, query: Query
    ) -> None:
        async def scenario(store: Store) -> None:
            with pytest.raises(BadRequest):
                await store.list_deliveries(query)

        run(make_store, scenario)

    def test_old_events_go_once_they_are_delivered(
        self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (memory_events, sqlite_events_record):
            monkeypatch.setattr(module, "EVENTS_KEPT_MAX", 3)

        async def scenario(store: Store) -> None:
            async def write(number: int) -> list[int]:
                await store.record_event(event_of(number))
                return [one.delivery_id for one in await deliveries(store)]

            store.subscribe((wants(),))
            for number in (1, 2, 3, 4):
                await write(number)
            await store.settle_delivery(2, state="dead", at_ms=START_MS)
            assert await write(5) == [1, 3, 4, 5]  # the first is still to be delivered
            await store.settle_delivery(4, state="sent", at_ms=START_MS)
            assert await write(6) == [1, 3, 4, 5, 6]
            await store.settle_delivery(1, state="sent", at_ms=START_MS)
            await store.settle_delivery(3, state="due", at_ms=START_MS)
            assert await write(7) == [3, 5, 6, 7]
            assert await write(2) == [3, 5, 6, 7, 8]  # nobody remembers that one
            assert (await store.read_delivery(8)) is not None
            assert (await store.read_delivery(1)) is None

        run(make_store, scenario)

    # --- idle sessions ----------------------------------------------------------------------

    def test_a_session_in_which_nothing_happens_is_found(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "a", step_number=4)
            await answered(store, "b")

            found = await store.find_idle(idle_since_ms=LATER_MS, limit=10)

            updated_ms = START_MS + 1000
            assert found == (IdleSession("s", 1, 5, awaits_tools=False, updated_ms=updated_ms),)
            assert await idle(store, updated_ms) == []
            assert await idle(store, updated_ms + 1) == ["s"]

        run(make_store, scenario)

    def test_the_longest_idle_are_found_first(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for name, after_ms in (("a", 9), ("b", 3), ("c", 6), ("d", 3)):
                claimed = await store.claim_step(claim_of(session=name))
                answered_ms = START_MS + after_ms
                await store.record_answer(checkpoint_of(claimed.step_id, answered_ms=answered_ms))

            assert await idle(store, limit=3) == ["b", "d", "c"]
            assert await idle(store, START_MS + 6) == ["b", "d"]

        run(make_store, scenario)

    def test_what_goes_on_or_waits_is_not_idle(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "flying", session="flying")
            await store.claim_step(claim_of("more", session="flying"))
            refreshed = await answered(store, "refreshed", session="refreshed")
            await answered(store, "last", session="refreshed")
            again = claim_of("refreshed", session="refreshed", step_id=refreshed.step_id)
            await store.claim_step(again)
            await asked(store, "waits", session="waits", deadline_ms=FAR_MS)
            await asked(store, "forever", session="forever", deadline_ms=None)
            await asked(store, "expired", session="expired", deadline_ms=LONG_AGO_MS)
            await decided(store, rejection_of(then="stop"), "failed", session="failed")

            assert await idle(store) == ["expired"]

            await store.record_failure(refreshed.step_id, (), failed_ms=START_MS)
            assert sorted(await idle(store)) == ["expired", "refreshed"]

        run(make_store, scenario)

    @pytest.mark.parametrize("ending", ["failed", "interrupted"])
    def test_one_whose_last_call_came_to_nothing_is_owed_another_try(
        self, make_store: MakeStore, ending: str
    ) -> None:
        async def begin(store: Store) -> None:
            await answered(store, "a")
            claimed = await store.claim_step(claim_of("b", created_ms=START_MS + 2000))
            if ending == "failed":
                await store.record_failure(claimed.step_id, (), failed_ms=START_MS + 2000)

        async def look(store: Store) -> None:
            (found,) = await store.find_idle(idle_since_ms=LATER_MS, limit=9)
            assert (found.index, found.awaits_tools, found.is_broken) == (1, False, True)
            await store.note_idle(idle_event_of(kind="session.stalled", index=1))
            assert await idle(store) == []
            assert await status_of(store) == "RUNNING"

        run(make_store, begin)  # a claim of a dead process is interrupted at the next start
        run(make_store, look)

    def test_a_replay_is_something_that_happens(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            store.note_replay(note_of(claimed.step_id, replayed_ms=LATER_MS))
            assert await idle(store) == []
            assert await idle(store, LATER_MS + 1) == ["s"]

        run(make_store, scenario)

    @pytest.mark.parametrize("kind", ["session.stalled", "session.completed"])
    def test_it_is_said_once_until_something_happens(
        self, make_store: MakeStore, kind: Any
    ) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants(),))
            await answered(store, "a")
            event = idle_event_of(kind=kind, created_ms=LATER_MS)

            await store.note_idle(event)
            await store.note_idle(replace(event, event_id="evt_other"))

            assert [one.event for one in await deliveries(store)] == [event]
            assert await idle(store) == []
            is_completed = kind == "session.completed"
            assert await status_of(store) == ("COMPLETED" if is_completed else "RUNNING")
            row = await store.read_session("s")
            assert row is not None
            assert row.updated_ms == START_MS + 1000  # that it is idle is nothing that happens

            claimed = await store.claim_step(claim_of("b", created_ms=LATER_MS))
            assert await status_of(store) == "RUNNING"
            assert await idle(store, FAR_MS) == []
            await store.record_answer(checkpoint_of(claimed.step_id, answered_ms=LATER_MS))
            assert await idle(store, FAR_MS) == ["s"]
            await store.note_idle(idle_event_of(kind=kind, index=1, event_id="evt_third"))
            assert len(await told(store)) == 2

        run(make_store, scenario)

    def test_a_completed_session_that_is_refreshed_runs(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            await store.note_idle(idle_event_of(kind="session.completed"))
            await store.claim_step(claim_of(step_id=claimed.step_id))
            assert await status_of(store) == "RUNNING"

        run(make_store, scenario)

    def test_a_completed_session_can_wait_and_fail(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            store.subscribe((wants("h", "session.failed"),))
            await answer_id_of(store)
            await store.note_idle(idle_event_of(kind="session.completed"))
            question = question_of(deadline_ms=None)
            (approval,) = await store.open_approvals(1, 1, (question,), at_ms=START_MS)
            assert await status_of(store) == "WAITING"
            await store.decide(approval.approval_id, rejection_of(then="stop"), at_ms=START_MS)
            assert await status_of(store) == "FAILED"
            assert await told(store) == ["session.failed"]

        run(make_store, scenario)

    @pytest.mark.parametrize("kind", ["session.stalled", "session.completed"])
    @pytest.mark.parametrize("what", ["claim", "answer", "wait", "fail", "nothing there"])
    def test_a_session_that_went_on_since_it_was_found_is_not_idle(
        self, make_store: MakeStore, what: str, kind: Any
    ) -> None:
        async def go_on(store: Store) -> None:
            match what:
                case "claim":
                    await store.claim_step(claim_of("b"))
                case "answer":
                    await answered(store, "b")
                case "wait":
                    asks = (question_of(deadline_ms=None),)
                    await store.open_approvals(1, 1, asks, at_ms=START_MS)
                case "fail":
                    asks = (question_of(),)
                    (one,) = await store.open_approvals(1, 1, asks, at_ms=START_MS)
                    stop = rejection_of(then="stop")
                    await store.decide(one.approval_id, stop, at_ms=START_MS)

        async def scenario(store: Store) -> None:
            await answered(store, "a")
            await go_on(store)
            before = await status_of(store)
            store.subscribe((wants(),))
            session = "t" if what == "nothing there" else "s"

            await store.note_idle(idle_event_of(kind=kind, session=session))

            assert await told(store) == []
            assert await status_of(store) == before

        run(make_store, scenario)

    @pytest.mark.parametrize(
        ("play", "awaits_tools"),
        [
            ("answers", False),
            ("calls", True),
            ("approved", True),
            ("refused, nobody came back", True),
            ("refused, then answered", False),
            ("refused, then called", True),
            ("one of two refused, then answered", True),
            ("refused, refreshed", False),
        ],
    )
    def test_an_agent_owes_the_results_of_what_it_was_given(
        self, make_store: MakeStore, play: str, awaits_tools: bool
    ) -> None:
        calls: tuple[tuple[int, ToolCall], ...] = () if play == "answers" else ((0, CALL),)
        if "two" in play:
            calls = ((0, CALL), (0, SECOND_CALL))

        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            step_id = claimed.step_id
            root_id = await store.record_answer(checkpoint_of(step_id, tool_calls=calls))
            decision = approval_of() if play == "approved" else rejection_of()
            if play == "approved" or "refused" in play:
                position = len(calls) - 1
                (one,) = await store.open_approvals(
                    step_id, root_id, (question_of(position=position),), at_ms=START_MS
                )
                await store.decide(one.approval_id, decision, at_ms=START_MS)
            if "then" in play:
                again = ((0, CALL),) if "called" in play else ()
                checkpoint = checkpoint_of(step_id, tool_calls=again)
                await store.record_round(checkpoint, root_id, 1)
            if "refreshed" in play:
                await store.claim_step(claim_of(step_id=step_id))
                await store.record_answer(checkpoint_of(step_id))

            (found,) = await store.find_idle(idle_since_ms=LATER_MS, limit=1)

            assert found.awaits_tools == awaits_tools

        run(make_store, scenario)
