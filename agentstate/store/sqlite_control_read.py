"""What is read for control over a run: rollbacks, what they weigh, pauses. All of it only selects.

The counterpart that writes is `sqlite_control_record.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from agentstate.ground.control import Pause, Place, Ranges, Rollback, Swap, Weight, ranges_of
from agentstate.store.rollbacks import marked

Connection = sqlite3.Connection

_ACTIVE_FROM = """
    select step_index
    from step
    where session_id = :session_id and rolled_back_ms is null
      and (:index is null or step_index >= :index)
      and (:step_number is null or step_number >= :step_number)
    order by step_index
    """


def active_from(connection: Connection, session_id: int, place: Place) -> list[int]:
    """Return the indexes of the active steps from a place on, in order."""
    values = {"session_id": session_id, "index": place.index, "step_number": place.step_number}
    return [index for (index,) in connection.execute(_ACTIVE_FROM, values)]


_WEIGH = """
    select count(*), coalesce(sum(answer.input_tokens), 0), coalesce(sum(answer.output_tokens), 0),
      coalesce(sum(answer.cost_microusd), 0),
      coalesce(sum(answer.id is not null and answer.cost_microusd is null), 0)
    from step
    left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    where step.session_id = ? and step.step_index between ? and ?
    """


def weigh(connection: Connection, session_id: int, ranges: Ranges) -> Weight:
    """Return what the answers of steps have cost."""
    sums = [0, 0, 0, 0, 0]
    for first, last in ranges:
        row = connection.execute(_WEIGH, (session_id, first, last)).fetchone()
        sums = [total + each for total, each in zip(sums, row, strict=True)]
    return Weight(*sums)


_FIND_SESSION = "select id from session where name = ?"


def weigh_rollback(connection: Connection, session: str, place: Place) -> Weight:
    """See `Store.weigh_rollback`."""
    row = connection.execute(_FIND_SESSION, (session,)).fetchone()
    if row is None:
        return Weight()
    return weigh(connection, row[0], ranges_of(active_from(connection, row[0], place)))


_LIST_ROLLBACKS = """
    select number, made_ms, made_by, step_number, step_index, undoes, taken, returned, steps,
      input_tokens, output_tokens, cost_microusd, unknown_costs, next_index, verb, swaps
    from rollback
    where session_id = ?
    order by number
    """


def read_rollbacks(
    connection: Connection, session_id: int, session: str
) -> list[tuple[Rollback, int]]:
    """Return all rollbacks of a session in order, each with how many steps there were then."""
    rows = connection.execute(_LIST_ROLLBACKS, (session_id,))
    return [(_rollback(row, session), row[13]) for row in rows]


def list_rollbacks(connection: Connection, session: str, limit: int) -> tuple[Rollback, ...]:
    """See `Store.list_rollbacks`."""
    row = connection.execute(_FIND_SESSION, (session,)).fetchone()
    if row is None:
        return ()
    rows = [each for each, _ in read_rollbacks(connection, row[0], session)]
    return marked(rows)[::-1][:limit]


_READ_PAUSE = "select paused_ms, pause_reason, paused_by from session where name = ?"


def read_pause(connection: Connection, session: str) -> Pause | None:
    """See `Store.read_pause`."""
    row = connection.execute(_READ_PAUSE, (session,)).fetchone()
    return None if row is None or row[0] is None else Pause(*row)


_LIST_PAUSED = """
    select name
    from session indexed by session_paused
    where paused_ms is not null
    limit ?
    """


def list_paused(connection: Connection, limit: int) -> list[str]:
    """Return the sessions that are paused, at most `limit`."""
    return [name for (name,) in connection.execute(_LIST_PAUSED, (limit,))]


def _rollback(row: tuple[Any, ...], session: str) -> Rollback:
    is_restore = row[5] is not None
    return Rollback(
        rollback_id=row[0],
        session=session,
        made_ms=row[1],
        by=row[2],
        place=None if is_restore else Place(row[3], row[4]),
        undoes=row[5],
        taken=_ranges(json.loads(row[6])),
        returned=_ranges(json.loads(row[7])),
        weight=Weight(*row[8:13]),
        verb=row[14] or "rollback",
        swaps=tuple(Swap(*swap) for swap in json.loads(row[15])),
    )


def _ranges(found: Iterable[tuple[int, int]]) -> Ranges:
    return tuple((first, last) for first, last in found)
