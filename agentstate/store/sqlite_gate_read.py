"""What is read for the gate: one function of a connection for each method of the store that reads.

As in `sqlite_read.py` all of it only selects. The counterpart that writes is
`sqlite_gate_record.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from agentstate.ground.approvals import (
    Approval,
    ApprovalPage,
    Decision,
    Question,
    Refusal,
    Release,
)
from agentstate.ground.records import Query, RecordedAnswer
from agentstate.store.base import check_limit, make_cursor, read_cursor, readable
from agentstate.store.sqlite_pack import BYTES_UNLIMITED, ContentTooLarge, unpack_text
from agentstate.store.sqlite_precedents import read_earlier
from agentstate.store.sqlite_read import before_first, recorded_answer

Connection = sqlite3.Connection

# --- approvals ------------------------------------------------------------------------------------

_APPROVAL_COLUMNS = """
    select approval.id, approval.name, session.name, approval.step_id, step.step_number,
      step.step_index, approval.answer_id, coalesce(step.dialect, ''),
      coalesce(answer.model, step.model, ''),
      run.name, approval.kind, approval.choice, approval.position, approval.digest, approval.tool,
      approval.call_id, approval.rule, approval.why, approval.deadline_ms, approval.on_reject,
      approval.generation, approval.created_ms, approval.asked_ms, approval.is_approved,
      approval.decided_ms, approval.decided_by, approval.reason, approval.follows, approval.size,
      case when approval.size <= :bytes_max then approval.arguments end,
      coalesce(approval.edited_size, 0),
      case when approval.edited_size <= :bytes_max then approval.edited end, approval.is_quiet,
      coalesce(step.rolled_back_ms, approval.replaced_ms), approval.earlier, durable_call.name
    from approval
    join session on session.id = approval.session_id
    left join step on step.id = approval.step_id
    left join durable_call on durable_call.id = approval.durable_id
    left join run on run.id = step.run_id
    left join answer on answer.id = approval.answer_id
    """

_READ_APPROVAL = _APPROVAL_COLUMNS + "where approval.name = :name"

_APPROVALS_OF = (
    _APPROVAL_COLUMNS
    + """
    where approval.answer_id = :answer_id
    order by approval.choice, approval.position, approval.generation, approval.id
    """
)


def read_approval(
    connection: Connection, approval_id: str, bytes_max: int = BYTES_UNLIMITED
) -> Approval | None:
    """See `Store.read_approval`.

    Raises:
        ContentTooLarge: its arguments have over `bytes_max` bytes; they were not read.
    """
    values = {"name": readable(approval_id), "bytes_max": bytes_max}
    rows = connection.execute(_READ_APPROVAL, values).fetchall()
    return next(iter(_approvals(rows, bytes_max)), None)


def approvals_of(
    connection: Connection, answer_id: int, bytes_max: int = BYTES_UNLIMITED
) -> tuple[Approval, ...]:
    """See `Store.approvals_of`; raises as `read_approval`, for all arguments together."""
    values = {"answer_id": answer_id, "bytes_max": bytes_max}
    return _approvals(connection.execute(_APPROVALS_OF, values).fetchall(), bytes_max)


_LIST_APPROVALS = (
    _APPROVAL_COLUMNS
    + """
    where {filter}
      (approval.asked_ms, approval.id) {after} (:asked_ms, :id)
      and (:step_id is null or approval.step_id = :step_id)
      and case :status
        when 'PENDING' then approval.is_approved is null
          and coalesce(step.rolled_back_ms, approval.replaced_ms) is null
        when 'EXPIRED' then approval.is_approved is null and approval.deadline_ms <= :at_ms
        when 'APPROVED' then approval.is_approved = 1
        when 'REJECTED' then approval.is_approved = 0
        else :status is null
      end
    order by approval.asked_ms {order}, approval.id {order}
    limit :limit
    """
)
_OF_SESSION = "approval.session_id = (select id from session where name = :session) and"
_UNDECIDED = "approval.is_approved is null and"

_NEWEST = _LIST_APPROVALS.format(filter="", after="<", order="desc")
_OLDEST = _LIST_APPROVALS.format(filter="", after=">", order="asc")
_NEWEST_OF_SESSION = _LIST_APPROVALS.format(filter=_OF_SESSION, after="<", order="desc")
_OLDEST_OF_SESSION = _LIST_APPROVALS.format(filter=_OF_SESSION, after=">", order="asc")
_NEWEST_UNDECIDED = _LIST_APPROVALS.format(filter=_UNDECIDED, after="<", order="desc")
_OLDEST_UNDECIDED = _LIST_APPROVALS.format(filter=_UNDECIDED, after=">", order="asc")


def list_approvals(connection: Connection, query: Query, at_ms: int) -> ApprovalPage:
    """See `Store.list_approvals`."""
    limit = check_limit(query)
    place = read_cursor(query.after, 2) or before_first(query)
    values = {
        "session": query.session,
        "step_id": query.step_id,
        "status": query.status,
        "at_ms": at_ms,
        "asked_ms": place[0],
        "id": place[-1],
        "limit": limit + 1,
        "bytes_max": BYTES_UNLIMITED,
    }
    rows = connection.execute(_listing(query), values).fetchall()
    cursor = make_cursor(rows[limit - 1][22], rows[limit - 1][0]) if len(rows) > limit else None
    return ApprovalPage(_approvals(rows[:limit]), cursor)


def _listing(query: Query) -> str:
    """Choose the statement whose index gives the fewest rows."""
    if query.session is not None:
        return _NEWEST_OF_SESSION if query.newest_first else _OLDEST_OF_SESSION
    if query.status in ("PENDING", "EXPIRED"):
        return _NEWEST_UNDECIDED if query.newest_first else _OLDEST_UNDECIDED
    return _NEWEST if query.newest_first else _OLDEST


_COUNT_PENDING = """
    select count(*)
    from approval indexed by approval_waiting
    left join step on step.id = approval.step_id
    where approval.is_approved is null
      and coalesce(step.rolled_back_ms, approval.replaced_ms) is null
      and (approval.deadline_ms is null or approval.deadline_ms > ?)
    """


def count_pending(connection: Connection, at_ms: int) -> int:
    """See `Store.count_pending`."""
    (count,) = connection.execute(_COUNT_PENDING, (at_ms,)).fetchone()
    return int(count)


_SESSION_OF = """
    select session.name
    from approval
    join session on session.id = approval.session_id
    where approval.name = ?
    """


def session_of(connection: Connection, approval_id: str) -> str | None:
    """Return the session of an approval; None = there is no such approval."""
    row = connection.execute(_SESSION_OF, (readable(approval_id),)).fetchone()
    return None if row is None else str(row[0])


# --- rounds and what went out ---------------------------------------------------------------------

_ROUNDS_OF = """
    select answer_id
    from round
    where root_id = ?
    order by number
    """


def rounds_of(connection: Connection, root_id: int) -> tuple[int, ...]:
    """See `Store.rounds_of`."""
    return tuple(answer_id for (answer_id,) in connection.execute(_ROUNDS_OF, (root_id,)))


_READ_BORROWED = """
    select status, form, is_sealed, pace_size, size,
      case when size <= ? then pace end,
      case when size <= ? then content end
    from delivered
    where answer_id = ?
    """

_READ_DELIVERED = _READ_BORROWED + "and not is_borrowed"


def read_delivered(
    connection: Connection, answer_id: int, bytes_max: int = BYTES_UNLIMITED
) -> RecordedAnswer | None:
    """See `Store.read_delivered`.

    Raises:
        ContentTooLarge: it has over `bytes_max` bytes; none was read.
    """
    row = connection.execute(_READ_DELIVERED, (bytes_max, bytes_max, answer_id)).fetchone()
    return None if row is None else recorded_answer(*row)


def read_borrowed(
    connection: Connection, answer_id: int, bytes_max: int = BYTES_UNLIMITED
) -> RecordedAnswer | None:
    """See `Store.read_borrowed`; raises as `read_delivered`."""
    row = connection.execute(_READ_BORROWED, (bytes_max, bytes_max, answer_id)).fetchone()
    return None if row is None else recorded_answer(*row)


_LIST_RELEASES = """
    select id, run_name, released_ms, is_written
    from released
    where answer_id = ?
    order by id
    """


def list_releases(connection: Connection, answer_id: int) -> tuple[Release, ...]:
    """See `Store.list_releases`."""
    rows = connection.execute(_LIST_RELEASES, (answer_id,))
    return tuple(Release(row[0], row[1], row[2], bool(row[3])) for row in rows)


_LIST_REFUSALS = """
    select distinct approval.answer_id, approval.step_id,
      coalesce(round.root_id, approval.answer_id), coalesce(round.number, 0)
    from session
    join approval on approval.session_id = session.id
    join step on step.id = approval.step_id
    left join round on round.answer_id = approval.answer_id
    where session.name = ? and approval.is_approved = 0 and approval.follows = 'continue'
      and approval.answer_id is not null
      and coalesce(step.rolled_back_ms, approval.replaced_ms) is null
    order by step.step_index, 3, 4
    limit ?
    """


def list_refusals(connection: Connection, session: str, limit: int = -1) -> tuple[Refusal, ...]:
    """See `Store.list_refusals`. At most `limit` of them; -1 = all."""
    return tuple(Refusal(*row) for row in connection.execute(_LIST_REFUSALS, (session, limit)))


# --- shared ---------------------------------------------------------------------------------------


def _approvals(
    rows: Sequence[tuple[Any, ...]], bytes_max: int = BYTES_UNLIMITED
) -> tuple[Approval, ...]:
    if sum(row[28] + row[30] for row in rows) > bytes_max:
        raise ContentTooLarge
    return tuple(map(_approval, rows))


def _approval(row: tuple[Any, ...]) -> Approval:
    return Approval(
        approval_id=row[1],
        session=row[2],
        step_id=row[3],
        step_number=row[4],
        index=row[5],
        answer_id=row[6],
        dialect=row[7],
        model=row[8],
        run_id=row[9],
        question=Question(
            kind=row[10],
            choice=row[11],
            position=row[12],
            digest=row[13],
            tool=row[14],
            call_id=row[15],
            arguments=unpack_text(row[28], row[29]),
            rule=row[16],
            why=row[17],
            deadline_ms=row[18],
            on_reject=row[19],
            generation=row[20],
            is_quiet=bool(row[32]),
        ),
        created_ms=row[21],
        asked_ms=row[22],
        decision=_decision(row),
        decided_ms=row[24],
        rolled_back_ms=row[33],
        earlier=None if row[34] is None else read_earlier(row[34]),
        durable=row[35],
    )


def _decision(row: tuple[Any, ...]) -> Decision | None:
    if row[23] is None:
        return None
    return Decision(
        is_approved=bool(row[23]),
        by=row[25],
        reason=row[26],
        arguments=None if row[31] is None else unpack_text(row[30], row[31]),
        then=row[27],
    )
