"""What is read of sessions: one by its id, pages of them, sums over all.

Beside `sqlite_read.py`, which reads their steps; all of it only selects.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from agentstate.ground.control import TAGS_SOUGHT_MAX, Pause, Place, Tags
from agentstate.ground.forks import Origin
from agentstate.ground.records import Query, SessionPage, SessionRow
from agentstate.store.base import check_limit, make_cursor, read_cursor, readable
from agentstate.store.sqlite_columns import maybe_readable
from agentstate.store.sqlite_read import before_first

Connection = sqlite3.Connection

# Neither stands in a tag: control characters are refused where tags come in.
BETWEEN_TAGS, AFTER_NAME = "\x1e", "\x1f"

# Expiry is nothing that is written, but a time that has come. Nobody waits for a rolled back step.
_SESSION_COLUMNS = f"""
    select id, name, created_ms, updated_ms, steps, last_step_number, input_tokens, output_tokens,
      cost_microusd, unknown_costs, replays, saved_microusd,
      case
        when paused_ms is not null then 'PAUSED'
        when exists (
          select 1
          from approval
          left join step on step.id = approval.step_id
          where approval.session_id = session.id and approval.is_approved is null
            and (approval.deadline_ms is null or approval.deadline_ms > :now_ms)
            and coalesce(step.rolled_back_ms, approval.replaced_ms) is null
        )
        then 'WAITING'
        else status
      end as status_now,
      title, parent, paused_ms, pause_reason, paused_by,
      (
        select group_concat(tag.name || '{AFTER_NAME}' || tag.value, '{BETWEEN_TAGS}')
        from tag
        where tag.session_id = session.id
      ),
      fork_of, forked_by, fork_step_number, fork_index, shared_steps,
      status, status_reason, status_by, status_ms
    from session
    """

_READ_SESSION = _SESSION_COLUMNS + "where name = :name"

# The planner passes over the conditions of tags that are not asked for.
_HAS_TAG = """
      and (:tag_{number} is null or exists (
        select 1
        from tag
        where tag.session_id = session.id and tag.name = :tag_{number}
          and (:value_{number} is null or tag.value = :value_{number})
      ))
    """

_LIST_SESSIONS = (
    _SESSION_COLUMNS
    + """
    where (
        :search is null or name like :search escape '\\'
        or (title is not null and title like :search escape '\\')
      )
      and (:status is null or status_now = :status)
      and (:parent is null or parent = :parent)
      and (:fork_of is null or fork_of = :fork_of)
      and (updated_ms, id) {after} (:updated_ms, :id)
    """
    + "".join(_HAS_TAG.format(number=number) for number in range(TAGS_SOUGHT_MAX))
    + """
    order by updated_ms {order}, id {order}
    limit :limit
    """
)

_NEWEST_SESSIONS = _LIST_SESSIONS.format(after="<", order="desc")
_OLDEST_SESSIONS = _LIST_SESSIONS.format(after=">", order="asc")


def read_session(connection: Connection, session: str, now_ms: int) -> SessionRow | None:
    """See `Store.read_session`."""
    row = connection.execute(_READ_SESSION, {"name": session, "now_ms": now_ms}).fetchone()
    return None if row is None else _session_row(row)


def list_sessions(connection: Connection, query: Query, now_ms: int) -> SessionPage:
    """See `Store.list_sessions`."""
    limit = check_limit(query)
    place = read_cursor(query.after, 2) or before_first(query)
    values: dict[str, Any] = {
        "search": None if query.search is None else f"%{_escape_like(readable(query.search))}%",
        "status": query.status,
        "parent": maybe_readable(query.parent),
        "fork_of": maybe_readable(query.forked_from),
        "updated_ms": place[0],
        "id": place[-1],
        "limit": limit + 1,
        "now_ms": now_ms,
    }
    sought = (*query.tags, *[(None, None)] * TAGS_SOUGHT_MAX)[:TAGS_SOUGHT_MAX]
    for number, (name, value) in enumerate(sought):
        values[f"tag_{number}"] = maybe_readable(name)
        values[f"value_{number}"] = maybe_readable(value)
    statement = _NEWEST_SESSIONS if query.newest_first else _OLDEST_SESSIONS
    rows = connection.execute(statement, values).fetchall()
    cursor = make_cursor(rows[limit - 1][3], rows[limit - 1][0]) if len(rows) > limit else None
    return SessionPage(tuple(map(_session_row, rows[:limit])), cursor)


_READ_TOTALS = """
    select count(*), coalesce(sum(steps), 0), coalesce(sum(replays), 0),
      coalesce(sum(cost_microusd), 0), coalesce(sum(saved_microusd), 0)
    from session
    """


def read_totals(connection: Connection) -> dict[str, int]:
    """See `Store.read_totals`; without the bytes on disk."""
    row = connection.execute(_READ_TOTALS).fetchone()
    names = ("sessions", "steps", "replays", "cost_microusd", "saved_microusd")
    return dict(zip(names, row, strict=True))


_SESSION_OF_STEP = """
    select session.name
    from step
    join session on session.id = step.session_id
    where step.id = ?
    """


def session_of_step(connection: Connection, step_id: int) -> str | None:
    """Return the session of a step; None = there is no such step."""
    row = connection.execute(_SESSION_OF_STEP, (step_id,)).fetchone()
    return None if row is None else str(row[0])


def _escape_like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _session_row(row: tuple[Any, ...]) -> SessionRow:
    # Why it is stored as it is says nothing of one that waits or is paused.
    is_said = row[27] is not None and row[12] == row[24]
    return SessionRow(
        session=row[1],
        status=row[12],
        created_ms=row[2],
        updated_ms=row[3],
        steps=row[4],
        last_step_number=row[5],
        input_tokens=row[6],
        output_tokens=row[7],
        cost_microusd=row[8],
        unknown_costs=row[9],
        replays=row[10],
        saved_microusd=row[11],
        name=row[13],
        parent=row[14],
        tags=_tags(row[18]),
        pause=None if row[15] is None else Pause(row[15], row[16], row[17]),
        origin=None if row[19] is None else _origin(row),
        status_reason=row[25] if is_said else None,
        status_by=row[26] if is_said else None,
        status_ms=row[27] if is_said else None,
    )


def _origin(row: tuple[Any, ...]) -> Origin:
    _, _, number, index, shared_steps = row[19:24]
    before = None if number is None and index is None else Place(number, index)
    return Origin(row[19], row[2], row[20], before, shared_steps)


def _tags(text: str | None) -> Tags:
    if text is None:
        return ()
    pairs = (each.partition(AFTER_NAME) for each in text.split(BETWEEN_TAGS))
    return tuple(sorted((name, value) for name, _, value in pairs))


def bytes_used(connection: Connection) -> int:
    """Return what the record needs, without what was freed: the file itself is cut when the log is
    folded into it."""
    sizes = [connection.execute(f"pragma {name}").fetchone()[0]
             for name in ("page_count", "freelist_count", "page_size")]  # fmt: skip
    return int((sizes[0] - sizes[1]) * sizes[2])
