"""What is read of events: one function of a connection for each method of the store that reads.

As in `sqlite_read.py` all of it only selects. The counterpart that writes is
`sqlite_events_record.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from typing import Any

from agentstate.ground.events import (
    Delivery,
    DeliveryPage,
    DeliveryState,
    Event,
    IdleSession,
)
from agentstate.ground.records import Query
from agentstate.store.base import check_limit, make_cursor, read_cursor
from agentstate.store.sqlite_pack import unpack
from agentstate.store.sqlite_read import before_first

Connection = sqlite3.Connection

# --- deliveries -----------------------------------------------------------------------------------

_DELIVERY_COLUMNS = """
    select delivery.id, delivery.hook, delivery.state, delivery.tries, delivery.next_ms,
      delivery.leased_ms, delivery.status, delivery.error, delivery.settled_ms, event.name,
      event.kind, event.session, event.created_ms, event.step_number, event.step_index,
      event.approval_name, event.size, event.facts, event.is_sample
    from delivery
    join event on event.id = delivery.event_id
    """

_READ_DELIVERY = _DELIVERY_COLUMNS + "where delivery.id = ?"


def read_delivery(connection: Connection, delivery_id: int) -> Delivery | None:
    """See `Store.read_delivery`."""
    row = connection.execute(_READ_DELIVERY, (delivery_id,)).fetchone()
    return None if row is None else _delivery(row)


_LIST_DELIVERIES = (
    _DELIVERY_COLUMNS
    + """
    where {filter}
      (:state is null or delivery.state = :state) and delivery.id {after} :id
    order by delivery.id {order}
    limit :limit
    """
)
_OF_SESSION = "event.session = :session and"
_IN_STATE = "delivery.state = :state and"

_NEWEST = _LIST_DELIVERIES.format(filter="", after="<", order="desc")
_OLDEST = _LIST_DELIVERIES.format(filter="", after=">", order="asc")
_NEWEST_OF_SESSION = _LIST_DELIVERIES.format(filter=_OF_SESSION, after="<", order="desc")
_OLDEST_OF_SESSION = _LIST_DELIVERIES.format(filter=_OF_SESSION, after=">", order="asc")
_NEWEST_IN_STATE = _LIST_DELIVERIES.format(filter=_IN_STATE, after="<", order="desc")
_OLDEST_IN_STATE = _LIST_DELIVERIES.format(filter=_IN_STATE, after=">", order="asc")


def list_deliveries(connection: Connection, query: Query) -> DeliveryPage:
    """See `Store.list_deliveries`."""
    limit = check_limit(query)
    (place,) = read_cursor(query.after, 1) or before_first(query)
    values = {"session": query.session, "state": query.state, "id": place, "limit": limit + 1}
    rows = connection.execute(_listing(query), values).fetchall()
    cursor = make_cursor(rows[limit - 1][0]) if len(rows) > limit else None
    return DeliveryPage(tuple(map(_delivery, rows[:limit])), cursor)


def _listing(query: Query) -> str:
    """Choose the statement whose index gives the fewest rows."""
    if query.session is not None:
        return _NEWEST_OF_SESSION if query.newest_first else _OLDEST_OF_SESSION
    if query.state is not None:
        return _NEWEST_IN_STATE if query.newest_first else _OLDEST_IN_STATE
    return _NEWEST if query.newest_first else _OLDEST


_COUNT_DELIVERIES = """
    select hook, state, count(*)
    from delivery indexed by delivery_state
    group by hook, state
    """


def count_deliveries(connection: Connection) -> dict[str, dict[DeliveryState, int]]:
    """See `Store.count_deliveries`."""
    counts: dict[str, dict[DeliveryState, int]] = {}
    for hook, state, count in connection.execute(_COUNT_DELIVERIES):
        counts.setdefault(hook, {})[state] = count
    return counts


# The first of the queue that nobody has, and the few that somebody has: those may come before it.
_NEXT_DUE = """
    select min(due_ms)
    from (
      select *
      from (
        select next_ms as due_ms
        from delivery indexed by delivery_due
        where state = 'due' and leased_ms is null and hook not in ({places})
        order by next_ms
        limit 1
      )
      union all
      select max(next_ms, leased_ms)
      from delivery indexed by delivery_leased
      where leased_ms is not null and hook not in ({places})
    )
    """


def next_due_ms(connection: Connection, but_not: Collection[str] = ()) -> int | None:
    """See `Store.next_due_ms`."""
    statement, hooks = but_not_hooks(_NEXT_DUE, but_not)
    (due_ms,) = connection.execute(statement, hooks * 2).fetchone()
    return None if due_ms is None else int(due_ms)


def but_not_hooks(statement: str, but_not: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Put a place for each webhook that is left out into a statement; return it and the values."""
    return statement.format(places=", ".join("?" * len(but_not))), tuple(sorted(but_not))


# --- idle sessions --------------------------------------------------------------------------------

# Of a row of `step`: an agent owes results if the last answer it was to get calls a tool, or an
# answer before it, whose refused calls the model was told of, calls one that was not refused.
AWAITS_TOOLS = """
      exists (
        select 1
        from tool_call
        where answer_id = coalesce(
          (select answer_id from round where root_id = step.answer_id order by number desc limit 1),
          step.answer_id
        )
      )
      or exists (
        select 1
        from tool_call
        where answer_id in (
            select step.answer_id
            union all
            select answer_id from round where root_id = step.answer_id
          )
          and not exists (
            select 1
            from approval
            where approval.answer_id = tool_call.answer_id
              and approval.choice = tool_call.choice and approval.position = tool_call.position
              and approval.kind = 'tool_call' and approval.is_approved = 0
          )
      )
    """

_FIND_IDLE = (
    """
    select session.name, step.step_index, step.step_number,
    """
    + AWAITS_TOOLS
    + """,
      session.updated_ms, step.state != 'complete'
    from session indexed by session_updated
    join step on step.id = (
      select id
      from step as last
      where last.session_id = session.id and last.rolled_back_ms is null
      order by last.step_index desc
      limit 1
    )
    where session.updated_ms < :idle_since_ms and session.status = 'RUNNING'
      and session.paused_ms is null
      and (session.idle_ms is null or session.idle_ms < session.updated_ms)
      and not exists (
        select 1
        from step as flying indexed by step_in_flight
        where flying.state = 'in_flight' and flying.session_id = session.id
      )
      and not exists (
        select 1
        from approval
        left join step as held on held.id = approval.step_id
        where approval.session_id = session.id and approval.is_approved is null
          and (approval.deadline_ms is null or approval.deadline_ms > :now_ms)
          and coalesce(held.rolled_back_ms, approval.replaced_ms) is null
      )
    order by session.updated_ms, session.id
    limit :limit
    """
)


def find_idle(
    connection: Connection, idle_since_ms: int, limit: int, now_ms: int
) -> tuple[IdleSession, ...]:
    """See `Store.find_idle`."""
    values = {"idle_since_ms": idle_since_ms, "limit": limit, "now_ms": now_ms}
    rows = connection.execute(_FIND_IDLE, values)
    return tuple(
        IdleSession(row[0], row[1], row[2], bool(row[3]) and not row[5], row[4], bool(row[5]))
        for row in rows
    )


# --- shared ---------------------------------------------------------------------------------------


def _delivery(row: tuple[Any, ...]) -> Delivery:
    return Delivery(
        delivery_id=row[0],
        hook=row[1],
        event=Event(
            event_id=row[9],
            kind=row[10],
            session=row[11],
            created_ms=row[12],
            step_number=row[13],
            index=row[14],
            approval_id=row[15],
            facts=json.loads(unpack(row[16], row[17])),
            is_sample=bool(row[18]),
        ),
        state=row[2],
        tries=row[3],
        next_ms=row[4],
        leased_ms=row[5],
        status=row[6],
        error=row[7],
        settled_ms=row[8],
    )
