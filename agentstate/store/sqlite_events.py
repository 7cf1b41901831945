"""The webhooks' part of the SQLite store: events, their deliveries, idle sessions.

As in `sqlite.py`, which builds on it, what is said here is where each method runs. Events with a
cause are written by the method of the cause, which is given who is subscribed; SQL is in
`sqlite_events_record.py` and `sqlite_events_read.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentstate.ground.events import Delivery, DeliveryPage, DeliveryState, Event, Subscription
from agentstate.ground.records import Query
from agentstate.store import sqlite_events_read as events_read
from agentstate.store.sqlite_readers import Readers
from agentstate.store.sqlite_writer import GroupWriter


class SqliteEvents:
    """The methods of `Store` about events. Belongs to the event loop that opened its parts."""

    _write_notes: Callable[[], Awaitable[None]]  # has what was noted of replays on the disk

    def __init__(self, writer: GroupWriter, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers
        self._subscriptions: tuple[Subscription, ...] = ()

    # --- events -----------------------------------------------------------------------------

    def subscribe(self, subscriptions: tuple[Subscription, ...]) -> None:
        """See `Store.subscribe`."""
        self._subscriptions = subscriptions

    async def record_event(self, event: Event) -> None:
        """See `Store.record_event`."""
        told = self._subscriptions
        await self._writer.write(lambda recorder: recorder.events.write(event, told))

    async def note_idle(self, event: Event) -> None:
        """See `Store.note_idle`."""
        told = self._subscriptions
        await self._writer.write(lambda recorder: recorder.events.note_idle(event, told))

    async def note_refused(self, session: str, why: str, by: str | None, *, at_ms: int) -> None:
        """See `Store.note_refused`."""
        await self._write_notes()
        await self._writer.write(
            lambda recorder: recorder.events.note_refused(session, why, by, at_ms)
        )

    # --- deliveries -------------------------------------------------------------------------

    async def claim_deliveries(
        self, *, at_ms: int, lease_ms: int, limit: int, but_not: frozenset[str] = frozenset()
    ) -> tuple[Delivery, ...]:
        """See `Store.claim_deliveries`."""
        return await self._writer.write(
            lambda recorder: recorder.events.claim_deliveries(at_ms, lease_ms, limit, but_not)
        )

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
        await self._writer.write(
            lambda recorder: recorder.events.settle_delivery(
                delivery_id, state, at_ms, next_ms, status, error
            )
        )

    async def next_due_ms(self, *, but_not: frozenset[str] = frozenset()) -> int | None:
        """See `Store.next_due_ms`."""
        return await self._readers.aside(lambda reader: events_read.next_due_ms(reader, but_not))

    async def list_deliveries(self, query: Query) -> DeliveryPage:
        """See `Store.list_deliveries`."""
        return await self._readers.aside(lambda reader: events_read.list_deliveries(reader, query))

    async def count_deliveries(self) -> dict[str, dict[DeliveryState, int]]:
        """See `Store.count_deliveries`."""
        return await self._readers.aside(events_read.count_deliveries)

    async def read_delivery(self, delivery_id: int) -> Delivery | None:
        """See `Store.read_delivery`."""
        return self._readers.here(lambda reader: events_read.read_delivery(reader, delivery_id))

    async def redeliver(self, delivery_id: int, *, at_ms: int) -> Delivery:
        """See `Store.redeliver`."""
        return await self._writer.write(
            lambda recorder: recorder.events.redeliver(delivery_id, at_ms)
        )
