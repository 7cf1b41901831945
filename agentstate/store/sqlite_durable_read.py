"""What is read of durable tool calls. All of it only selects.

The counterpart that writes is `sqlite_durable_record.py`.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from agentstate.ground.approvals import Approval
from agentstate.ground.durable import DurableCall, DurablePage
from agentstate.ground.records import Query
from agentstate.store.base import check_limit, make_cursor, read_cursor, readable
from agentstate.store.durables import Known, Taken
from agentstate.store.sqlite_gate_read import read_approval
from agentstate.store.sqlite_pack import unpack_text
from agentstate.store.sqlite_read import before_first

Connection = sqlite3.Connection

_COLUMNS = """
    select durable_call.id, durable_call.name, session.name, tool, digest, occurrence, state,
      durable_call.created_ms, key, call_id, owner, begin_id, begun_ms, lease_ms, runs,
      approval_name, outcome, finished_ms, reason, settled_as, settled_by, settled_why, settled_ms,
      forgotten_ms, forgotten_by, forgotten_why, size, arguments, edited_size, edited, value_size,
      {value}
    from durable_call
    join session on session.id = durable_call.session_id
    """

_READ = _COLUMNS.format(value="value") + "where durable_call.name = ?"
_READ_BY_ID = _COLUMNS.format(value="value") + "where durable_call.id = ?"


def read_durable(connection: Connection, call: str) -> DurableCall | None:
    """See `Store.read_durable`."""
    row = connection.execute(_READ, (readable(call),)).fetchone()
    return None if row is None else _call(row)


def read_by_id(connection: Connection, durable_id: int) -> DurableCall:
    """Return a call that is there."""
    return _call(connection.execute(_READ_BY_ID, (durable_id,)).fetchone())


_LIST = (
    _COLUMNS.format(value="null")
    + """
    where {filter} durable_call.id {after} :id
      and (:state is null or state = :state)
    order by durable_call.id {order}
    limit :limit
    """
)
_OF_SESSION = "durable_call.session_id = (select id from session where name = :session) and"


def list_durables(connection: Connection, query: Query) -> DurablePage:
    """See `Store.list_durables`."""
    limit = check_limit(query)
    place = read_cursor(query.after, 1) or before_first(query)
    statement = _LIST.format(
        filter="" if query.session is None else _OF_SESSION,
        after="<" if query.newest_first else ">",
        order="desc" if query.newest_first else "asc",
    )
    values = {
        "session": query.session,
        "state": query.state,
        "id": place[-1],
        "limit": limit + 1,
    }
    rows = connection.execute(statement, values).fetchall()
    cursor = make_cursor(rows[limit - 1][0]) if len(rows) > limit else None
    return DurablePage(tuple(map(_call, rows[:limit])), cursor)


_LIST_EQUAL = """
    select durable_call.id, state, durable_call.call_id, durable_taken.owner is not null,
      durable_taken.begin_id, durable_taken.call_id
    from durable_call
    left join durable_taken
      on durable_taken.durable_id = durable_call.id and durable_taken.owner = ?
    where session_id = ? and digest = ? and forgotten_ms is null
    order by occurrence
    """


def list_equal(
    connection: Connection, session_id: int, digest: bytes, owner: str | None
) -> list[Known]:
    """Return the equal calls that are not forgotten, as `choose` wants them."""
    rows = connection.execute(_LIST_EQUAL, (owner or "", session_id, digest))
    return [
        Known(row[0], row[1], row[2], Taken(row[4], row[5]) if row[3] else None) for row in rows
    ]


_LIST_LET_OUT = """
    select approval.name
    from approval
    join session on session.id = approval.session_id
    join step on step.id = approval.step_id
    left join round on round.answer_id = approval.answer_id
    where session.name = ? and approval.tool = ? and approval.is_approved = 1
      and approval.kind in ('tool_call', 'text') and approval.generation = 0
      and step.rolled_back_ms is null
      and exists (
        select 1
        from released
        where released.answer_id = coalesce(round.root_id, approval.answer_id)
      )
      and not exists (
        select 1
        from durable_call
        where durable_call.approval_name = approval.name
      )
    order by approval.asked_ms, approval.id
    """


def list_let_out(connection: Connection, session: str, tool: str) -> tuple[Approval, ...]:
    """See `Store.list_let_out`."""
    names = connection.execute(_LIST_LET_OUT, (session, readable(tool))).fetchall()
    found = (read_approval(connection, name) for (name,) in names)
    return tuple(each for each in found if each is not None)


def _call(row: tuple[Any, ...]) -> DurableCall:
    return DurableCall(
        call=row[1],
        session=row[2],
        tool=row[3],
        digest=row[4],
        occurrence=row[5],
        state=row[6],
        created_ms=row[7],
        key=row[8],
        call_id=row[9],
        owner=row[10],
        begin_id=row[11],
        begun_ms=row[12],
        lease_ms=row[13],
        runs=row[14],
        approval_id=row[15],
        outcome=row[16],
        finished_ms=row[17],
        reason=row[18],
        settled_as=row[19],
        settled_by=row[20],
        settled_why=row[21],
        settled_ms=row[22],
        forgotten_ms=row[23],
        forgotten_by=row[24],
        forgotten_why=row[25],
        arguments=unpack_text(row[26], row[27]),
        edited=None if row[29] is None else unpack_text(row[28], row[29]),
        value=None if row[31] is None else unpack_text(row[30], row[31]),
        value_bytes=row[30],
    )
