"""The webhooks' part of the dictionary store; `memory_gate.py` builds on it."""

from __future__ import annotations

from dataclasses import replace

from agentstate.ground.clock import now_ms
from agentstate.ground.events import (
    Delivery,
    DeliveryPage,
    DeliveryState,
    Event,
    IdleSession,
    Subscription,
)
from agentstate.ground.records import Query
from agentstate.store.events import (
    EVENTS_KEPT_MAX,
    hooks_of,
    no_delivery,
    readable_error,
    readable_event,
    why_of,
)
from agentstate.store.memory_rows import KeptSession, KeptStep, Rows, StatusSaid, cut_page


class MemoryEvents(Rows):
    """The methods of `Store` about events."""

    def __init__(self) -> None:
        super().__init__()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._events: dict[int, Event] = {}  # by number, from 1
        self._deliveries: dict[int, Delivery] = {}
        self._last_event = 0
        self._last_delivery = 0

    # --- events -----------------------------------------------------------------------------

    def subscribe(self, subscriptions: tuple[Subscription, ...]) -> None:
        """See `Store.subscribe`."""
        self._subscriptions = subscriptions

    async def record_event(self, event: Event) -> None:
        """See `Store.record_event`."""
        self._check_open()
        self._tell(event)

    def _tell(self, event: Event) -> bool:
        """Write an event; False = one with the same id is there."""
        event = readable_event(event)
        if any(one.event_id == event.event_id for one in self._events.values()):
            return False
        self._last_event += 1
        self._events[self._last_event] = event
        for hook in hooks_of(event, self._subscriptions):
            self._last_delivery += 1
            self._deliveries[self._last_delivery] = Delivery(
                delivery_id=self._last_delivery,
                hook=hook,
                event=event,
                state="due",
                tries=0,
                next_ms=event.created_ms,
                leased_ms=None,
            )
        self._forget()
        return True

    def _forget(self) -> None:
        """Drop the events that are neither among the newest nor still to be delivered."""
        due = {one.event.event_id for one in self._deliveries.values() if one.state == "due"}
        for number in [*self._events]:
            event_id = self._events[number].event_id
            if number <= self._last_event - EVENTS_KEPT_MAX and event_id not in due:
                del self._events[number]
                for one in [*self._deliveries.values()]:
                    if one.event.event_id == event_id:
                        del self._deliveries[one.delivery_id]

    def _drop_events(self, session: str) -> None:
        self._events = {
            number: event for number, event in self._events.items() if event.session != session
        }
        self._deliveries = {
            number: one for number, one in self._deliveries.items() if one.event.session != session
        }

    # --- deliveries -------------------------------------------------------------------------

    async def claim_deliveries(
        self, *, at_ms: int, lease_ms: int, limit: int, but_not: frozenset[str] = frozenset()
    ) -> tuple[Delivery, ...]:
        """See `Store.claim_deliveries`."""
        self._check_open()
        due = [
            (one.next_ms, one.delivery_id)
            for one in self._due(but_not)
            if one.next_ms is not None and max(one.next_ms, one.leased_ms or 0) <= at_ms
        ]
        claimed = []
        for _, delivery_id in sorted(due)[:limit]:
            one = self._deliveries[delivery_id]
            leased = replace(one, leased_ms=at_ms + lease_ms, tries=one.tries + 1)
            self._deliveries[delivery_id] = leased
            claimed.append(leased)
        return tuple(claimed)

    async def settle_delivery(
        self,
        delivery_id: int,
        *,
        state: DeliveryState,
        at_ms: int,
        next_ms: int | None = None,
        status: int | None = None,
        error: str | None = None,
    ) -> None:
        """See `Store.settle_delivery`."""
        self._check_open()
        one = self._deliveries.get(delivery_id)
        if one is None or one.state != "due":
            return
        self._deliveries[delivery_id] = replace(
            one,
            state=state,
            next_ms=(next_ms or at_ms) if state == "due" else None,
            leased_ms=None,
            status=status,
            error=readable_error(error),
            settled_ms=None if state == "due" else at_ms,
        )
        self._forget()

    async def next_due_ms(self, *, but_not: frozenset[str] = frozenset()) -> int | None:
        """See `Store.next_due_ms`."""
        self._check_open()
        times = [max(one.next_ms or 0, one.leased_ms or 0) for one in self._due(but_not)]
        return min(times, default=None)

    def _due(self, but_not: frozenset[str]) -> list[Delivery]:
        kept = self._deliveries.values()
        return [one for one in kept if one.state == "due" and one.hook not in but_not]

    async def list_deliveries(self, query: Query) -> DeliveryPage:
        """See `Store.list_deliveries`."""
        self._check_open()
        rows = [
            ((one.delivery_id,), one)
            for one in self._deliveries.values()
            if query.session in (None, one.event.session) and query.state in (None, one.state)
        ]
        page, cursor = cut_page(rows, query, cursor_size=1)
        return DeliveryPage(page, cursor)

    async def count_deliveries(self) -> dict[str, dict[DeliveryState, int]]:
        """See `Store.count_deliveries`."""
        self._check_open()
        counts: dict[str, dict[DeliveryState, int]] = {}
        for one in self._deliveries.values():
            of_hook = counts.setdefault(one.hook, {})
            of_hook[one.state] = of_hook.get(one.state, 0) + 1
        return counts

    async def read_delivery(self, delivery_id: int) -> Delivery | None:
        """See `Store.read_delivery`."""
        self._check_open()
        return self._deliveries.get(delivery_id)

    async def redeliver(self, delivery_id: int, *, at_ms: int) -> Delivery:
        """See `Store.redeliver`."""
        self._check_open()
        one = self._deliveries.get(delivery_id)
        if one is None:
            raise no_delivery(delivery_id)
        again = replace(one, state="due", tries=0, next_ms=at_ms, settled_ms=None)
        self._deliveries[delivery_id] = again
        return again

    # --- idle sessions ----------------------------------------------------------------------

    async def find_idle(self, *, idle_since_ms: int, limit: int) -> tuple[IdleSession, ...]:
        """See `Store.find_idle`."""
        self._check_open()
        found = [
            (session.updated_ms, session.session_id, _idle(session, session.active()[-1]))
            for session in self._sessions.values()
            if session.updated_ms < idle_since_ms
            and _is_idle(session, now_ms())
            and session.active()
        ]
        return tuple(one for _, _, one in sorted(found, key=lambda row: row[:2])[:limit])

    async def note_idle(self, event: Event) -> None:
        """See `Store.note_idle`."""
        self._check_open()
        session = self._sessions.get(event.session)
        if session is None or not _is_idle(session, event.created_ms):
            return
        last = session.active()[-1:]
        if event.index is not None and event.index not in [step.index for step in last]:
            return
        session.idle_ms = session.updated_ms
        self._changed(session.name)
        if event.kind == "session.completed":
            session.stored_status = "COMPLETED"
            session.status_said = StatusSaid(why_of(event), None, event.created_ms)
        self._tell(event)

    async def note_refused(self, session: str, why: str, by: str | None, *, at_ms: int) -> None:
        """See `Store.note_refused`."""
        self._check_open()
        if session in self._sessions and self._sessions[session].fail(why, by, at_ms):
            self._changed(session)


def is_at_end(session: KeptSession) -> bool:
    """Say whether the last active step is answered, and its answer asks for nothing."""
    last = session.active()[-1:]
    return any(step.state == "complete" and not _awaits_tools(session, step) for step in last)


def _is_idle(session: KeptSession, at_ms: int) -> bool:
    return (
        session.status(at_ms) == "RUNNING"
        and (session.idle_ms is None or session.idle_ms < session.updated_ms)
        and not any(step.state == "in_flight" for step in session.steps)
    )


def _idle(session: KeptSession, last: KeptStep) -> IdleSession:
    return IdleSession(
        session=session.name,
        index=last.index,
        step_number=last.step_number,
        awaits_tools=last.state == "complete" and _awaits_tools(session, last),
        updated_ms=session.updated_ms,
        is_broken=last.state != "complete",
    )


def _awaits_tools(session: KeptSession, step: KeptStep) -> bool:
    """Say whether the agent owes the result of a call: see `_FIND_IDLE` of the SQLite store."""
    root = step.standing()
    if root is None:
        return False
    places = sorted(place for place in step.rounds if place[0] == root.answer_id)
    chain = [root, *(step.rounds[place] for place in places)]
    refused = {
        (one.answer_id, one.question.choice, one.question.position)
        for one in session.approvals
        if one.question.kind == "tool_call" and one.decision and not one.decision.is_approved
    }
    return bool(chain[-1].checkpoint.tool_calls) or any(
        (answer.answer_id, choice, call.position) not in refused
        for answer in chain
        for choice, call in answer.checkpoint.tool_calls
    )
