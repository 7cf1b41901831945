"""What is read to find a step again that is not quite the same: see `Store`, "the life of a call".

Beside `sqlite_read.py`, which finds steps by their keys. All of it only selects.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from agentstate.ground.records import Candidate, Emitter, Served
from agentstate.store.base import readable
from agentstate.store.sqlite_read import read_candidates, select_candidate

Connection = sqlite3.Connection

_LIST_SERVED = """
    select served.step_id, served.call_id, served.at_ms, served.is_delivered
    from session
    join run on run.session_id = session.id
    join served on served.run_id = run.id
    where session.name = ? and run.name = ? and served.step_id in ({places})
    order by served.step_id
    """


def list_served(
    connection: Connection, session: str, run_id: str, step_ids: tuple[int, ...]
) -> tuple[Served, ...]:
    """See `Store.list_served`."""
    places = ",".join("?" * len(step_ids))
    rows = connection.execute(_LIST_SERVED.format(places=places), (session, run_id, *step_ids))
    return tuple(Served(row[0], row[1], row[2], bool(row[3])) for row in rows)


# Also by what an agent saw of the rounds after the answer. A call id may stand in several places.
_FIND_EMITTERS = """
    select distinct step.id, coalesce(node.depth, 0), step.replayed_ms
    from session
    join tool_call on tool_call.session_id = session.id
    left join round on round.answer_id = tool_call.answer_id
    join answer on answer.id = coalesce(round.root_id, tool_call.answer_id)
      and answer.taken_back_ms is null
    join step on step.answer_id = answer.id and step.id = answer.step_id
    left join node on node.id = step.node_id
    where session.name = ? and tool_call.call_id = ? and step.rolled_back_ms is null
      and step.state = 'complete'
    order by step.step_index
    """


def find_emitters(
    connection: Connection,
    session: str,
    call_ids: tuple[str, ...],
    replayed_ms: Mapping[int, int],
) -> dict[str, tuple[Emitter, ...]]:
    """See `Store.find_emitters`. `replayed_ms` says, by step id, what is not in the file yet."""
    found: dict[str, tuple[Emitter, ...]] = {}
    for call_id in call_ids:
        rows = connection.execute(_FIND_EMITTERS, (session, call_id))
        found[call_id] = tuple(
            Emitter(step_id, depth, max(in_file_ms or 0, replayed_ms.get(step_id, 0)) or None)
            for step_id, depth, in_file_ms in rows
        )
    return found


_COUNT_STEPS_AT = """
    select count(*)
    from session
    join step on step.session_id = session.id
    left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    where session.name = ? and step.step_number = ? and step.rolled_back_ms is null
      and (answer.id is not null or step.state = 'in_flight')
    """


def count_steps_at(connection: Connection, session: str, step_number: int) -> int:
    """See `Store.count_steps_at`."""
    (count,) = connection.execute(_COUNT_STEPS_AT, (session, step_number)).fetchone()
    return int(count)


_FIND_ALIKE = select_candidate(
    """
    from session
    join step on step.session_id = session.id
    left join node on node.id = step.node_id
    left join run on run.id = step.run_id
    left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    where session.name = :session and step.rolled_back_ms is null
      and case
        when :step_number is null then node.depth = :depth
        else step.step_number = :step_number
      end
    order by step.step_index desc
    limit :limit
    """
)


def find_alike(
    connection: Connection,
    session: str,
    depth: int,
    step_number: int | None,
    replayed_ms: Mapping[int, int],
    limit: int,
) -> tuple[Candidate, ...]:
    """See `Store.find_alike`. `replayed_ms` says, by step id, what is not in the file yet."""
    values = {"session": session, "depth": depth, "step_number": step_number, "limit": limit}
    return read_candidates(connection.execute(_FIND_ALIKE, values), replayed_ms)


# There is no index on the ids: it would cost every answer, and this is asked once in a long while.
_FIND_RESPONSE = select_candidate(
    """
    from session
    join step on step.session_id = session.id
    join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    left join run on run.id = step.run_id
    where session.name = ? and answer.response_id = ? and step.rolled_back_ms is null
    order by step.step_index desc
    limit 1
    """
)


def find_response(
    connection: Connection, session: str, response_id: str, replayed_ms: Mapping[int, int]
) -> Candidate | None:
    """See `Store.find_response`. `replayed_ms` says, by step id, what is not in the file yet."""
    rows = connection.execute(_FIND_RESPONSE, (session, readable(response_id)))
    return next(iter(read_candidates(rows, replayed_ms)), None)
