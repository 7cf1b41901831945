"""What is read about tool calls and recovery: one function of a connection for each method of
`CallStore` that reads. As in `sqlite_read.py` all of it only selects.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from agentstate.ground.calls import Calling, CallState, Growth, Request, Standing, grow
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import Weight
from agentstate.store.sqlite_gate_read import approvals_of
from agentstate.store.sqlite_pack import read_quote, unpack, unpack_text

Connection = sqlite3.Connection

_OF_SESSION = "(select id from session where name = :session)"

# A text that spells a call has no row of its own but that of the question about it.
_LIST_CALLINGS = f"""
    select step.id, step.step_index, step.step_number, step.dialect, answer.model, answer.id,
      answer.answered_ms, answer.response_id, coalesce(round.root_id, answer.id),
      coalesce(round.number, 0), step.rolled_back_ms, root.taken_back_ms, step.answer_id,
      coalesce(step.node_id, 0)
    from step
    join answer on answer.step_id = step.id
    left join round on round.answer_id = answer.id
    join answer as root on root.id = coalesce(round.root_id, answer.id)
    where step.session_id = {_OF_SESSION}
      and step.step_index {{sign}}= :index and step.step_index {{other}}= :last
      and (step.step_index != :index or answer.id {{sign}}= :answer_id)
      and (
        exists (select * from tool_call where tool_call.answer_id = answer.id)
        or exists (
          select * from approval where approval.answer_id = answer.id and approval.kind = 'text'
        )
      )
    order by step.step_index {{order}}, answer.id {{order}}
    limit :limit
    """

_NO_INDEX = 2**62  # higher than any step's

_OLDEST_CALLINGS = _LIST_CALLINGS.format(sign=">", other="<", order="asc")
_NEWEST_CALLINGS = _LIST_CALLINGS.format(sign="<", other=">", order="desc")


def list_callings(
    connection: Connection,
    session: str,
    start: tuple[int, int],
    limit: int,
    *,
    last: int | None,
    newest_first: bool,
) -> tuple[Calling, ...]:
    """See `CallStore.list_callings`."""
    statement = _NEWEST_CALLINGS if newest_first else _OLDEST_CALLINGS
    end = -1 if newest_first else _NO_INDEX
    values = {
        "session": session,
        "index": start[0],
        "answer_id": start[1],
        "last": end if last is None else last,
        "limit": limit,
    }
    rows = connection.execute(statement, values).fetchall()
    return tuple(_calling(connection, session, row) for row in rows)


def _calling(connection: Connection, session: str, row: tuple[Any, ...]) -> Calling:
    return Calling(
        session=session,
        step_id=row[0],
        index=row[1],
        step_number=row[2],
        dialect=row[3],
        model=row[4],
        answer_id=row[5],
        answered_ms=row[6],
        response_id=row[7],
        root_id=row[8],
        number=row[9],
        state=_state(*row[8:13]),
        place=row[13],
        calls=_list_calls(connection, row[5]),
        approvals=approvals_of(connection, row[5]),
    )


def _state(
    root_id: int,
    _: int,
    rolled_back_ms: int | None,
    taken_back_ms: int | None,
    standing_id: int | None,
) -> CallState:
    if rolled_back_ms is not None:
        return "rolled_back"
    if taken_back_ms is not None:
        return "taken_back"
    return "active" if root_id == standing_id else "replaced"


_LIST_CALLS = """
    select choice, position, call_id, name, kind, quote_offset, quote_length, size, arguments
    from tool_call
    where answer_id = ?
    order by choice, position
    """

_READ_CONTENT = "select size, content from answer where id = ?"


def _list_calls(connection: Connection, answer_id: int) -> tuple[tuple[int, ToolCall], ...]:
    found: list[tuple[int, ToolCall]] = []
    raw: bytes | None = None  # the answer, once something is quoted from it
    for row in connection.execute(_LIST_CALLS, (answer_id,)).fetchall():
        if row[5] is None:
            arguments = unpack_text(row[7], row[8])
        else:
            if raw is None:
                raw = unpack(*connection.execute(_READ_CONTENT, (answer_id,)).fetchone())
            arguments = read_quote(raw, (row[5], row[6]))
        found.append((row[0], ToolCall(row[1], row[2], row[3], arguments, row[4])))
    return tuple(found)


# --- how requests grow ----------------------------------------------------------------------------

_LIST_ASKED = f"""
    select step_index, step_number, coalesce(node_id, 0)
    from step
    where session_id = {_OF_SESSION} and step_index > :after
    order by step_index
    limit :limit
    """

_LIST_TWINS = f"""
    select step.step_index, step.step_number, step.node_id
    from json_each(:places) as place
    cross join step indexed by step_node on step.node_id = place.value
    where step.session_id = {_OF_SESSION}
    """

_LOWEST = "select min(depth) from node where id in (select value from json_each(?))"

_STEP_UP = """
    select node.id, node.parent_id, node.blob_id, node.depth
    from json_each(:places) as place
    cross join node on node.id = place.value
    where node.depth > :depth
    """

# For the few that are far below: one statement, however long the way.
_ALL_UP = """
    with recursive way (id, parent_id, blob_id, depth) as (
      select node.id, node.parent_id, node.blob_id, node.depth
      from json_each(:places) as place
      cross join node on node.id = place.value
      where node.depth > :depth
      union
      select node.id, node.parent_id, node.blob_id, node.depth
      from way
      join node on node.id = way.parent_id
      where node.depth > :depth
    )
    select id, parent_id, blob_id, depth from way
    """

_FEW = 64


def read_growth(
    connection: Connection, session: str, places: tuple[int, ...], after: int, limit: int
) -> Growth:
    """See `CallStore.read_growth`.

    All steps take one step up at once: a request is mostly a few messages longer than one before
    it, so after a few of these the ways have met.
    """
    named = json.dumps(places)
    values = {"session": session, "after": after, "limit": limit}
    asked = connection.execute(_LIST_ASKED, values).fetchall()
    twins = connection.execute(_LIST_TWINS, {"session": session, "places": named}).fetchall()
    depth = 0
    if 0 not in places:
        (lowest,) = connection.execute(_LOWEST, (named,)).fetchone()
        depth = lowest or 0
    nodes: dict[int, tuple[int | None, tuple[int, int]]] = {}
    wanted = {place for _, _, place in asked if place}
    while wanted:
        statement = _ALL_UP if len(wanted) <= _FEW else _STEP_UP
        step_up = {"places": json.dumps(list(wanted)), "depth": depth}
        found = connection.execute(statement, step_up).fetchall()
        nodes.update((row[0], (row[1], (row[2], row[3]))) for row in found)
        wanted = {row[1] for row in found if row[1] is not None and row[1] not in nodes}
        if statement is _ALL_UP:
            break
    return grow([*asked, *twins], nodes, is_all=len(asked) < limit)


_LIST_REQUESTS = f"""
    select step_index, step_number, coalesce(node_id, 0), envelope_id
    from step
    where session_id = {_OF_SESSION} and step_index > :after and dialect = :dialect
    order by step_index
    limit :limit
    """

_READ_ENVELOPE = "select size, content from envelope where id = ?"


def list_requests(
    connection: Connection, session: str, dialect: str, after: int, limit: int
) -> tuple[Request, ...]:
    """See `CallStore.list_requests`."""
    values = {"session": session, "dialect": dialect, "after": after, "limit": limit}
    envelopes: dict[int, JSON] = {}  # most steps of a session share one
    found: list[Request] = []
    for index, number, place, envelope_id in connection.execute(_LIST_REQUESTS, values).fetchall():
        if envelope_id not in envelopes:
            packed = connection.execute(_READ_ENVELOPE, (envelope_id,)).fetchone()
            envelopes[envelope_id] = parse(unpack(*packed))
        found.append(Request(index, number, place, envelopes[envelope_id]))
    return tuple(found)


# --- where a session stands -----------------------------------------------------------------------

_SUM_UP = f"""
    select count(*), count(answer.id), max(case when answer.id is not null then step_index end),
      coalesce(sum(answer.input_tokens), 0), coalesce(sum(answer.output_tokens), 0),
      coalesce(sum(answer.cost_microusd), 0),
      count(answer.id) - count(answer.cost_microusd)
    from step
    left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    where step.session_id = {_OF_SESSION} and step.rolled_back_ms is null
    """

# One whose refresh is in flight has an answer all the same.
_LIST_OPEN = f"""
    select step.step_index, step.step_number, step.state
    from step
    left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    where step.session_id = {_OF_SESSION} and step.rolled_back_ms is null
      and step.state != 'complete' and answer.id is null
    order by step.step_index
    limit :limit
    """

_COUNT_BEFORE = f"""
    select count(*)
    from step
    where session_id = {_OF_SESSION} and rolled_back_ms is null and step_index < :index
    """

# Rounds are few, and each belongs to an answer that somebody decided about.
_SUM_UP_ROUNDS = f"""
    select coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
      coalesce(sum(cost_microusd), 0), count(*) - count(cost_microusd)
    from answer
    where id in (
      select round.answer_id
      from approval
      join round on round.root_id = approval.answer_id
      join answer as root on root.id = round.root_id and root.taken_back_ms is null
      join step on step.answer_id = root.id
      where approval.session_id = {_OF_SESSION} and step.rolled_back_ms is null
    )
    """


def read_standing(connection: Connection, session: str, open_max: int) -> Standing:
    """See `CallStore.read_standing`."""
    own = {"session": session}
    steps, answered, last_index, *paid = connection.execute(_SUM_UP, own).fetchone()
    rounds = connection.execute(_SUM_UP_ROUNDS, own).fetchone()
    unanswered = connection.execute(_LIST_OPEN, own | {"limit": open_max}).fetchall()
    prefix = answered
    if unanswered:
        before = own | {"index": unanswered[0][0]}
        (prefix,) = connection.execute(_COUNT_BEFORE, before).fetchone()
    return Standing(
        steps=steps,
        answered=answered,
        prefix=prefix,
        last_index=last_index,
        open=tuple(map(tuple, unanswered)),
        saves=Weight(answered, *(one + more for one, more in zip(paid, rounds, strict=True))),
    )
