"""What the writer thread runs for webhooks: events, their deliveries, and that a session is idle.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. The counterpart that reads is `sqlite_events_read.py`.

Invariant: of the events that are `EVENTS_KEPT_MAX` or more places back, those are kept that still
have to be delivered. Each event that is written looks at the one that falls out, and each delivery
that ends at its own; so nothing is ever searched for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from agentstate.ground.canonical import encode
from agentstate.ground.events import Delivery, DeliveryState, Event, Subscription
from agentstate.store.events import (
    EVENTS_KEPT_MAX,
    hooks_of,
    no_delivery,
    readable_error,
    readable_event,
    why_of,
)
from agentstate.store.sqlite_events_read import but_not_hooks, read_delivery
from agentstate.store.sqlite_pack import pack


class EventRecorder:
    """The writing methods about events, bound to the writing connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute

    # --- events -----------------------------------------------------------------------------

    _ADD_EVENT = """
        insert into event (
          name, kind, session, step_number, step_index, approval_name, is_sample, created_ms, size,
          facts
        )
        values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        on conflict do nothing
        """

    _ADD_DELIVERY = "insert into delivery (event_id, hook, next_ms) values (?, ?, ?)"

    def write(self, event: Event, subscriptions: Sequence[Subscription]) -> bool:
        """Write an event with a delivery for each webhook that wants it; see `Store.subscribe`.

        One with the same id is left as it is: then False.
        """
        event = readable_event(event)
        values = (
            event.event_id,
            event.kind,
            event.session,
            event.step_number,
            event.index,
            event.approval_id,
            event.is_sample,
            event.created_ms,
            *pack(encode(event.facts)),
        )
        done = self._execute(self._ADD_EVENT, values)
        if done.rowcount == 0:
            return False
        row_id = done.lastrowid
        assert row_id is not None, "an insert has a row id"
        for hook in hooks_of(event, subscriptions):
            self._execute(self._ADD_DELIVERY, (row_id, hook, event.created_ms))
        self._drop_if_done(row_id - EVENTS_KEPT_MAX)
        return True

    _IS_DONE = """
        select 1
        from event
        where id = ?
          and not exists (
            select 1
            from delivery indexed by delivery_event
            where event_id = event.id and state = 'due'
          )
        """

    _DROP_DELIVERIES = "delete from delivery where event_id = ?"

    _DROP_EVENT = "delete from event where id = ?"

    def _drop_if_done(self, row_id: int) -> None:
        if self._execute(self._IS_DONE, (row_id,)).fetchone() is not None:
            self._execute(self._DROP_DELIVERIES, (row_id,))
            self._execute(self._DROP_EVENT, (row_id,))

    _FAIL_SESSION = """
        update session
        set status = 'FAILED', status_reason = ?, status_by = null, status_ms = ?
        where id = (select session_id from step where id = ?) and status != 'FAILED'
        """

    def fail_session(self, step_id: int, why: str | None, at_ms: int) -> None:
        """Write that the session of a step cannot go on as it is; see `Store.record_failure`."""
        self._execute(self._FAIL_SESSION, (readable_error(why), at_ms, step_id))

    _NOTE_REFUSED = """
        update session
        set status = 'FAILED', status_reason = ?, status_by = ?, status_ms = ?
        where name = ? and status != 'FAILED'
        """

    def note_refused(self, session: str, why: str, by: str | None, at_ms: int) -> None:
        """Write that a call was refused as it was before; see `Store.note_refused`."""
        self._execute(self._NOTE_REFUSED, (readable_error(why), by, at_ms, session))

    # --- deliveries -------------------------------------------------------------------------

    _FIND_DUE = """
        select id
        from delivery indexed by delivery_due
        where state = 'due' and next_ms <= ? and (leased_ms is null or leased_ms <= ?)
          and hook not in ({places})
        order by next_ms, id
        limit ?
        """

    _LEASE = "update delivery set leased_ms = ?, tries = tries + 1 where id = ?"

    def claim_deliveries(
        self, at_ms: int, lease_ms: int, limit: int, but_not: Collection[str] = ()
    ) -> tuple[Delivery, ...]:
        """Lease deliveries to the caller; see `Store.claim_deliveries`."""
        statement, hooks = but_not_hooks(self._FIND_DUE, but_not)
        rows = self._execute(statement, (at_ms, at_ms, *hooks, limit)).fetchall()
        for (delivery_id,) in rows:
            self._execute(self._LEASE, (at_ms + lease_ms, delivery_id))
        return tuple(self._read(delivery_id) for (delivery_id,) in rows)

    _SETTLE = """
        update delivery
        set state = ?, next_ms = ?, leased_ms = null, status = ?, error = ?, settled_ms = ?
        where id = ? and state = 'due'
        """

    _EVENT_OF = "select event_id, (select max(id) from event) from delivery where id = ?"

    def settle_delivery(
        self,
        delivery_id: int,
        state: DeliveryState,
        at_ms: int,
        next_ms: int | None,
        status: int | None,
        error: str | None,
    ) -> None:
        """Write how a try ended; see `Store.settle_delivery`."""
        times = (next_ms or at_ms, None) if state == "due" else (None, at_ms)
        values = (state, times[0], status, readable_error(error), times[1], delivery_id)
        if self._execute(self._SETTLE, values).rowcount and state != "due":
            event_id, last_id = self._execute(self._EVENT_OF, (delivery_id,)).fetchone()
            if event_id <= last_id - EVENTS_KEPT_MAX:
                self._drop_if_done(event_id)

    _REDELIVER = """
        update delivery
        set state = 'due', tries = 0, next_ms = ?, settled_ms = null
        where id = ?
        """

    def redeliver(self, delivery_id: int, at_ms: int) -> Delivery:
        """Make a delivery due again; see `Store.redeliver`."""
        self._execute(self._REDELIVER, (at_ms, delivery_id))
        return self._read(delivery_id)

    def _read(self, delivery_id: int) -> Delivery:
        delivery = read_delivery(self._connection, delivery_id)
        if delivery is None:
            raise no_delivery(delivery_id)
        return delivery

    # --- idle sessions ----------------------------------------------------------------------

    # Something may have happened since it was found, so what was found is looked at once more.
    _NOTE_IDLE = """
        update session
        set
          idle_ms = updated_ms,
          status = case when :kind = 'session.completed' then 'COMPLETED' else status end,
          status_reason = case when :kind = 'session.completed' then :why else status_reason end,
          status_by = case when :kind = 'session.completed' then null else status_by end,
          status_ms = case when :kind = 'session.completed' then :at_ms else status_ms end
        where name = :session and status = 'RUNNING' and paused_ms is null
          and (idle_ms is null or idle_ms < updated_ms)
          and (
            :index is null
            or :index = (
              select step_index
              from step
              where session_id = session.id and rolled_back_ms is null
              order by step_index desc
              limit 1
            )
          )
          and not exists (
            select 1
            from step indexed by step_in_flight
            where state = 'in_flight' and session_id = session.id
          )
          and not exists (
            select 1
            from approval
            left join step on step.id = approval.step_id
            where approval.session_id = session.id and approval.is_approved is null
              and (approval.deadline_ms is null or approval.deadline_ms > :at_ms)
              and coalesce(step.rolled_back_ms, approval.replaced_ms) is null
          )
        """

    def note_idle(self, event: Event, subscriptions: Sequence[Subscription]) -> None:
        """Write that a session is idle, with the event; see `Store.note_idle`."""
        values = {
            "kind": event.kind,
            "session": event.session,
            "index": event.index,
            "at_ms": event.created_ms,
            "why": why_of(event),
        }
        if self._execute(self._NOTE_IDLE, values).rowcount:
            self.write(event, subscriptions)
