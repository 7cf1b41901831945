"""What is read to fork and delete sessions. All of it only selects.

The counterparts that write are `sqlite_forks_record.py` and `sqlite_removal.py`.
"""

from __future__ import annotations

import sqlite3

from agentstate.ground.approvals import Earlier
from agentstate.ground.control import Weight
from agentstate.ground.forks import Deletion
from agentstate.store.forks import free_name
from agentstate.store.sqlite_precedents import about_answer

Connection = sqlite3.Connection

# A fork that is being made has its name already.
_HAS_SESSION = """
    select 1 from session where name = :name
    union all
    select 1 from leftover where kind = 'fork' and name = :name
    """


def name_fork(connection: Connection, session: str) -> str:
    """Return a name for a fork that no session has, nor is about to have."""
    return free_name(session, lambda name: not is_free(connection, name))


def is_free(connection: Connection, name: str) -> bool:
    """Say whether no session has this name, nor a fork that is being made."""
    return connection.execute(_HAS_SESSION, {"name": name}).fetchone() is None


_READ_SESSION = """
    select id, steps, input_tokens, output_tokens, cost_microusd, unknown_costs
    from session
    where name = ?
    """

# A length is in the row's head: the content itself is not read.
_WEIGH_ANSWERS = """
    select coalesce(sum(length(answer.content) + length(answer.pace)), 0)
    from step
    join answer on answer.step_id = step.id
    where step.session_id = ?
    """

_LIST_FORKS = "select name from session where fork_of = ? order by id"


def weigh_deletion(connection: Connection, session: str) -> Deletion | None:
    """See `Store.weigh_deletion`."""
    row = connection.execute(_READ_SESSION, (session,)).fetchone()
    if row is None:
        return None
    session_id, *counts = row
    (content_bytes,) = connection.execute(_WEIGH_ANSWERS, (session_id,)).fetchone()
    forks = tuple(name for (name,) in connection.execute(_LIST_FORKS, (session,)))
    return Deletion(session, Weight(*counts), content_bytes, forks)


_READ_PRECEDENTS = """
    select precedents
    from answer
    join step on step.id = answer.step_id
    where answer.id = ? and precedents is not null
    """


def precedents_of(connection: Connection, answer_id: int) -> tuple[Earlier, ...]:
    """See `Store.precedents_of`."""
    row = connection.execute(_READ_PRECEDENTS, (answer_id,)).fetchone()
    return () if row is None else about_answer(row[0], answer_id)


_HAS_REMOVALS = "select exists (select * from leftover)"


def has_removals(connection: Connection) -> bool:
    """Say whether rows of sessions that are gone are left."""
    (exists,) = connection.execute(_HAS_REMOVALS).fetchone()
    return bool(exists)
