"""What the writer thread runs for durable tool calls.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. What becomes of a call is worked out in `durables.py`; here it is read and
written. The counterpart that reads is `sqlite_durable_read.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agentstate.ground.approvals import Approval
from agentstate.ground.durable import Begin, Begun, DurableCall, Report, Settlement
from agentstate.ground.events import Subscription
from agentstate.store.base import readable
from agentstate.store.durables import (
    choose,
    forgotten,
    meet,
    new_call,
    no_call,
    readable_begin,
    readable_report,
    readable_settlement,
    reported,
    settled,
    takes,
    unknown_event,
)
from agentstate.store.sqlite_columns import maybe_readable
from agentstate.store.sqlite_durable_read import list_equal, read_by_id
from agentstate.store.sqlite_events_record import EventRecorder
from agentstate.store.sqlite_gate_record import GateRecorder
from agentstate.store.sqlite_pack import Packed, pack_text
from agentstate.store.sqlite_removal import NEXT_SESSION_ID


class DurableRecorder:
    """The writing methods about durable calls, bound to the writing connection."""

    def __init__(
        self, connection: sqlite3.Connection, gate: GateRecorder, events: EventRecorder
    ) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute
        self._gate = gate
        self._events = events

    # --- beginning --------------------------------------------------------------------------

    def begin(
        self, begin: Begin, packed: Packed | None, subscriptions: Sequence[Subscription]
    ) -> Begun:
        """Write a begin; see `Store.begin_durable`.

        `packed`: its arguments, if large. None = pack them here. `subscriptions`: who is told.
        """
        begin = readable_begin(begin)
        session_id = self._session(begin)
        known = list_equal(self._connection, session_id, begin.digest, begin.owner)
        durable_id = choose(known, begin)
        if durable_id is None:
            durable_id = self._add(session_id, begin, packed)
        call = read_by_id(self._connection, durable_id)
        approval = self._approval_of(session_id, durable_id, call, begin, packed, subscriptions)
        if approval is not None and call.approval_id is None:
            self._execute(self._SET_APPROVAL, (approval.approval_id, durable_id))
            call = read_by_id(self._connection, durable_id)
        begun = meet(call, begin, approval)
        assert begun.call is not None, "it was just met"
        if begun.call != call:
            self._write(durable_id, call, begun.call)
            self._touch(session_id, begin.at_ms)
            if begun.state == "unknown":
                self._events.write(unknown_event(begun.call, begin.at_ms), subscriptions)
        if takes(begun):
            taken = (durable_id, begin.owner or "", begin.begin_id, begin.call_id)
            self._execute(self._TAKE, taken)
        return begun

    _FIND_SESSION = "select id from session where name = ?"

    _ADD_SESSION = f"""
        insert into session (id, name, created_ms, updated_ms)
        values ({NEXT_SESSION_ID}, ?, ?, ?)
        """

    _SET_APPROVAL = "update durable_call set approval_name = ? where id = ?"

    # The first begin that took it stays: its retries are known by it.
    _TAKE = """
        insert into durable_taken (durable_id, owner, begin_id, call_id)
        values (?, ?, ?, ?)
        on conflict do nothing
        """

    def _session(self, begin: Begin) -> int:
        row = self._execute(self._FIND_SESSION, (begin.session,)).fetchone()
        if row is None:
            self._execute(self._ADD_SESSION, (begin.session, begin.at_ms, begin.at_ms))
            row = self._execute(self._FIND_SESSION, (begin.session,)).fetchone()
        return int(row[0])

    _NEXT_OCCURRENCE = """
        select coalesce(max(occurrence) + 1, 0)
        from durable_call
        where session_id = ? and digest = ?
        """

    _IS_STANDING = "select 1 from durable_call where approval_name = ?"

    _ADD = """
        insert into durable_call (
          name, session_id, digest, occurrence, tool, key, call_id, state, created_ms, runs,
          approval_name, size, arguments
        )
        values (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)
        """

    def _add(self, session_id: int, begin: Begin, packed: Packed | None) -> int:
        (occurrence,) = self._execute(self._NEXT_OCCURRENCE, (session_id, begin.digest)).fetchone()
        call = new_call(begin, occurrence)
        standing = None if begin.question is None else self._standing(begin)
        values = (
            call.call,
            session_id,
            call.digest,
            call.occurrence,
            call.tool,
            call.key,
            call.call_id,
            call.state if standing is None else "ready",
            call.created_ms,
            standing,
            *(packed or pack_text(call.arguments)),
        )
        durable_id = self._execute(self._ADD, values).lastrowid
        assert durable_id is not None, "an insert has a row id"
        self._touch(session_id, begin.at_ms)
        return durable_id

    def _standing(self, begin: Begin) -> str | None:
        """Return the first approval of the model's own call that stands for no other call."""
        for name in begin.covered_by:
            if self._execute(self._IS_STANDING, (name,)).fetchone() is None:
                return name
        return None

    def _approval_of(
        self,
        session_id: int,
        durable_id: int,
        call: DurableCall,
        begin: Begin,
        packed: Packed | None,
        subscriptions: Sequence[Subscription],
    ) -> Approval | None:
        """Return the approval that a call waits for, asked or asked again; None = it waits for
        none."""
        if call.state != "asked":
            return None
        if begin.question is None:  # the policy asks no more: what was asked stands
            assert call.approval_id is not None, "it was asked about when it was made"
            return self._gate.read(call.approval_id)
        return self._gate.open_for_durable(
            session_id, durable_id, begin.question, begin.at_ms, packed, subscriptions
        )

    # --- what came of it ----------------------------------------------------------------------

    _UNTAKE = "delete from durable_taken where durable_id = ? and owner = ?"

    def report(
        self,
        session: str,
        call: str,
        report: Report,
        at_ms: int,
        packed: Packed | None,
        subscriptions: Sequence[Subscription],
    ) -> DurableCall:
        """Write a report; see `Store.report_durable`."""
        durable_id, before = self._find(session, call)
        after = reported(before, readable_report(report), at_ms)
        if after != before:
            self._write(durable_id, before, after, packed)
            if report.gives_back:
                self._execute(self._UNTAKE, (durable_id, before.owner or ""))
            if after.state == "unknown":
                self._events.write(unknown_event(after, at_ms), subscriptions)
            self._touch_name(session, at_ms)
        return after

    def settle(
        self,
        session: str,
        call: str,
        settlement: Settlement,
        at_ms: int,
        packed: Packed | None,
    ) -> DurableCall:
        """Write what a person says; see `Store.settle_durable`."""
        durable_id, before = self._find(session, call)
        after = settled(before, readable_settlement(settlement), at_ms)
        self._write(durable_id, before, after, packed)
        self._touch_name(session, at_ms)
        return after

    def forget(
        self, session: str, call: str, at_ms: int, by: str | None, reason: str | None
    ) -> DurableCall:
        """Have no begin find a call; see `Store.forget_durable`."""
        durable_id, before = self._find(session, call)
        said = {"by": maybe_readable(by), "reason": maybe_readable(reason)}
        after = forgotten(before, at_ms=at_ms, **said)
        self._write(durable_id, before, after)
        return after

    # --- shared -----------------------------------------------------------------------------

    _FIND_CALL = """
        select durable_call.id
        from durable_call
        join session on session.id = durable_call.session_id
        where durable_call.name = ? and session.name = ?
        """

    def _find(self, session: str, call: str) -> tuple[int, DurableCall]:
        row = self._execute(self._FIND_CALL, (readable(call), session)).fetchone()
        if row is None:
            raise no_call(session, call)
        return row[0], read_by_id(self._connection, row[0])

    _CHANGE = """
        update durable_call
        set
          state = ?, owner = ?, begin_id = ?, begun_ms = ?, lease_ms = ?, runs = ?, outcome = ?,
          finished_ms = ?, reason = ?, settled_as = ?, settled_by = ?, settled_why = ?,
          settled_ms = ?, forgotten_ms = ?, forgotten_by = ?, forgotten_why = ?
        where id = ?
        """

    _SET_EDITED = "update durable_call set edited_size = ?, edited = ? where id = ?"

    _SET_VALUE = "update durable_call set value_size = ?, value = ? where id = ?"

    def _write(
        self,
        durable_id: int,
        before: DurableCall,
        after: DurableCall,
        packed: Packed | None = None,
    ) -> None:
        """Write what has changed of a call; `packed`: the value, if it is large and new."""
        columns = (
            after.state,
            after.owner,
            after.begin_id,
            after.begun_ms,
            after.lease_ms,
            after.runs,
            after.outcome,
            after.finished_ms,
            after.reason,
            after.settled_as,
            after.settled_by,
            after.settled_why,
            after.settled_ms,
            after.forgotten_ms,
            after.forgotten_by,
            after.forgotten_why,
        )
        self._execute(self._CHANGE, (*columns, durable_id))
        if after.edited != before.edited and after.edited is not None:
            self._execute(self._SET_EDITED, (*pack_text(after.edited), durable_id))
        if after.value != before.value and after.value is not None:
            self._execute(self._SET_VALUE, (*(packed or pack_text(after.value)), durable_id))

    _TOUCH = "update session set updated_ms = max(updated_ms, ?) where id = ?"

    def _touch(self, session_id: int, at_ms: int) -> None:
        self._execute(self._TOUCH, (at_ms, session_id))

    _TOUCH_NAME = "update session set updated_ms = max(updated_ms, ?) where name = ?"

    def _touch_name(self, session: str, at_ms: int) -> None:
        self._execute(self._TOUCH_NAME, (at_ms, session))
