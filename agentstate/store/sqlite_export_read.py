"""What is read for export: one function of a connection for each method of `ExportStore`.

As in `sqlite_read.py` all of it only selects. Nodes are the places: a node is a prefix of requests.
"""

from __future__ import annotations

import json
import sqlite3

from agentstate.ground.canonical import JSON, parse
from agentstate.ground.lineage import PLACES_MAX, Lineage
from agentstate.ground.records import Query, SessionPage
from agentstate.store.base import check_limit, make_cursor, read_cursor
from agentstate.store.sqlite_pack import unpack, unpack_after
from agentstate.store.sqlite_sessions import read_session

Connection = sqlite3.Connection

_WALK_SESSIONS = """
    select id, name
    from session
    where id > ?
    order by id
    limit ?
    """


def walk_sessions(
    connection: Connection, after: str | None, limit: int, now_ms: int
) -> SessionPage:
    """See `ExportStore.walk_sessions`."""
    check_limit(Query(limit=limit))
    (place,) = read_cursor(after, 1) or (0,)
    rows = connection.execute(_WALK_SESSIONS, (place, limit + 1)).fetchall()
    cursor = make_cursor(rows[limit - 1][0]) if len(rows) > limit else None
    found = (read_session(connection, name, now_ms) for _, name in rows[:limit])
    return SessionPage(tuple(row for row in found if row is not None), cursor)


# Bits: 1 = one is not decided, 2 = one is, 4 = one is and not by a rule.
_DECISIONS = """
    select coalesce(max(is_approved is null), 0)
      + 2 * coalesce(max(is_approved is not null), 0)
      + 4 * coalesce(max(is_approved is not null and is_quiet = 0), 0)
    from approval
    where generation = 0
      and answer_id in (
        select answer.id
        union all
        select round.answer_id from round where round.root_id = answer.id
      )
    """

_ROUND_IDS = """
    select json_group_array(later.response_id)
    from round
    join answer as later on later.id = round.answer_id
    where round.root_id = answer.id and later.response_id is not null
    """

_LIST_LINEAGE = f"""
    select step.id, step.step_index, step.dialect, step.is_mock, step.rolled_back_ms is not null,
      answer.id, answer.taken_back_ms is not null, answer.provider, answer.finish_reason,
      answer.cost_microusd, answer.response_id, ({_ROUND_IDS}), ({_DECISIONS}), step.envelope_id,
      step.node_id, coalesce(revision.kind = 'edit', 0)
    from step
    join answer on answer.id = step.answer_id
    left join revision on revision.answer_id = answer.id
    where step.session_id = (select id from session where name = ?) and step.step_index > ?
    order by step.step_index
    limit ?
    """

_READ_ENVELOPE = "select size, content from envelope where id = ?"


def read_envelope(connection: Connection, envelope_id: int) -> JSON:
    """Return the rest of a request's body."""
    (packed,) = connection.execute(_READ_ENVELOPE, (envelope_id,)).fetchall()
    return parse(unpack(*packed))


def list_lineage(
    connection: Connection, session: str, after: int, limit: int
) -> tuple[Lineage, ...]:
    """See `ExportStore.list_lineage`."""
    envelopes: dict[int, JSON] = {}  # most steps of a session share one
    parents: dict[int, int | None] = {}  # a step mostly stands below the one before it
    found: list[Lineage] = []
    for row in connection.execute(_LIST_LINEAGE, (session, after, limit)).fetchall():
        envelope_id, node_id = row[13], row[14]
        if envelope_id not in envelopes:
            envelopes[envelope_id] = read_envelope(connection, envelope_id)
        own = () if row[10] is None else (row[10],)
        found.append(
            Lineage(
                step_id=row[0],
                index=row[1],
                dialect=row[2],
                is_mock=bool(row[3]),
                is_rolled_back=bool(row[4]),
                answer_id=row[5],
                is_taken_back=bool(row[6]),
                provider=row[7],
                finish_reason=row[8],
                cost_microusd=row[9],
                response_ids=(*own, *json.loads(row[11])),
                is_waiting=bool(row[12] & 1),
                is_decided=bool(row[12] & 2),
                is_touched=bool(row[12] & 4),
                is_edited=bool(row[15]),
                envelope_id=envelope_id,
                envelope=envelopes[envelope_id],
                place=node_id or 0,
                above=()
                if node_id is None
                else places_above(connection, node_id, PLACES_MAX, parents),
            )
        )
    return tuple(found)


_FIND_PARENT = "select parent_id from node where id = ?"


def list_places(connection: Connection, place: int, limit: int) -> tuple[int, ...]:
    """See `ExportStore.list_places`."""
    return places_above(connection, place, limit, {})


def places_above(
    connection: Connection, place: int, limit: int, parents: dict[int, int | None]
) -> tuple[int, ...]:
    """As `list_places`; `parents` has those that were read before, and gets the others."""
    found: list[int] = []
    while len(found) < limit:
        if place not in parents:
            row = connection.execute(_FIND_PARENT, (place,)).fetchone()
            parents[place] = None if row is None else row[0]
        above = parents[place]
        if above is None:
            break
        found.append(above)
        place = above
    return tuple(found)


_READ_MESSAGE = """
    select blob.size, blob.content, answer.size, answer.content
    from node
    join blob on blob.id = node.blob_id
    left join answer on answer.id = blob.answer_id
    where node.id = ?
    """


def read_messages(connection: Connection, places: tuple[int, ...]) -> tuple[JSON, ...]:
    """See `ExportStore.read_messages`."""
    rows = (connection.execute(_READ_MESSAGE, (place,)).fetchone() for place in places)
    return tuple(None if row is None else _message(*row) for row in rows)


def _message(size: int, content: bytes, answer_size: int | None, answer: bytes | None) -> JSON:
    """Unpack a message; `answer` is the one it was packed with, if any."""
    if answer_size is None or answer is None:
        return parse(unpack(size, content))
    return parse(unpack_after(size, content, unpack(answer_size, answer)))


_LIST_ANSWERS = """
    select answer.id
    from answer
    left join round on round.answer_id = answer.id
    where answer.step_id = ? and answer.taken_back_ms is null and round.answer_id is null
    order by answer.id
    """


def list_answers(connection: Connection, step_id: int) -> tuple[int, ...]:
    """See `ExportStore.list_answers`."""
    return tuple(answer_id for (answer_id,) in connection.execute(_LIST_ANSWERS, (step_id,)))
