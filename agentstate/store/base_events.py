"""The store, as far as webhooks need it: events, their deliveries, and idle sessions.

A part of `Store` (`base.py`), whose promises hold here as well.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.events import (
    Delivery,
    DeliveryPage,
    DeliveryState,
    Event,
    IdleSession,
    Subscription,
)
from agentstate.ground.records import Query


class EventStore(Protocol):
    """What is on record of events and who is told."""

    def subscribe(self, subscriptions: tuple[Subscription, ...]) -> None:
        """Say who is told what from now on. Never waits and never fails.

        Each event is written in the transaction of its cause, with a delivery, due at once, for
        every subscription that wants it: `open_approvals` writes approval.required for each row it
        makes or opens again, `decide` approval.decided (neither for a quiet question), and
        session.failed where the session was not FAILED before.

        What nobody wants is written as well. The newest `events.EVENTS_KEPT_MAX` events stay on
        record; an older one goes with its deliveries once none of them is due.
        """
        ...

    async def record_event(self, event: Event) -> None:
        """Write an event with no other cause, and its deliveries. One with the same id is there."""
        ...

    async def claim_deliveries(
        self, *, at_ms: int, lease_ms: int, limit: int, but_not: frozenset[str] = frozenset()
    ) -> tuple[Delivery, ...]:
        """Return deliveries that are due, the longest due first, and lease them to the caller: no
        other claim returns them before `at_ms + lease_ms`. Counts a try. Survives a kill.

        `but_not`: webhooks whose deliveries are left alone, since they are busy or asked to wait.
        """
        ...

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
        """Write how a try ended: sent, dead, or due again at `next_ms` (None = at once). Ends the
        lease. One that has ended, or is gone, is left as it is."""
        ...

    async def next_due_ms(self, *, but_not: frozenset[str] = frozenset()) -> int | None:
        """Return when the next delivery is due or its lease ends, of other webhooks than
        `but_not`; None = there is none."""
        ...

    async def list_deliveries(self, query: Query) -> DeliveryPage:
        """List deliveries, newest first; `session` filters, `state` is a `DeliveryState`.

        Raises:
            BadRequest: as `list_sessions`.
        """
        ...

    async def count_deliveries(self) -> dict[str, dict[DeliveryState, int]]:
        """Count the deliveries of each webhook by state; a state with none may be absent."""
        ...

    async def read_delivery(self, delivery_id: int) -> Delivery | None:
        """Return one delivery, or None."""
        ...

    async def redeliver(self, delivery_id: int, *, at_ms: int) -> Delivery:
        """Make a delivery due again, whatever became of it; its event keeps its id, its tries are
        counted anew. Somebody who is sending it keeps the lease.

        Raises:
            NotFound: there is none.
        """
        ...

    async def find_idle(self, *, idle_since_ms: int, limit: int) -> tuple[IdleSession, ...]:
        """Return RUNNING sessions in which nothing has happened since then and nothing is in
        flight or waits for a person; not those that this was said of before (see `note_idle`)."""
        ...

    async def note_idle(self, event: Event) -> None:
        """Write that a session was found idle (session.stalled or session.completed), with the
        event; it is found again once something has happened in it.

        session.completed makes it COMPLETED until its next call. If the session has gone on since
        it was found (`event.index` is no longer its last step, something is in flight or waits),
        or this was said before, nothing is written.
        """
        ...

    async def note_refused(self, session: str, why: str, by: str | None, *, at_ms: int) -> None:
        """Write that a call was refused by what stands on record: its session, which is RUNNING
        since something of it was replayed, is FAILED again. Nobody is told: they were when it was
        decided. Of a session that is FAILED already, or gone, nothing is written."""
        ...
