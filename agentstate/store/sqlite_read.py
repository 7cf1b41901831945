"""What is read: one function of a connection for each method of the store that reads.

All of them only select. Each sees one state of the record: those of several statements run in a
transaction. The counterpart that writes is `sqlite_record.py`; sessions are read in
`sqlite_sessions.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from agentstate.ground.chat import Usage
from agentstate.ground.records import (
    Attempt,
    Candidate,
    Identity,
    Query,
    RecordedAnswer,
    StepPage,
    StepRow,
)
from agentstate.store.base import (
    Key,
    check_limit,
    check_session,
    make_cursor,
    read_cursor,
)
from agentstate.store.sqlite_pack import (
    BYTES_UNLIMITED,
    ContentTooLarge,
    parse_answer,
    read_quote,
    unpack,
)

Connection = sqlite3.Connection

# --- the life of a call ---------------------------------------------------------------------------

# The planner would rather walk all steps of the session in order than sort the one it finds.
_FIND_CANDIDATES = """
    select step.id, answer.id, step.step_index, step.step_number, step.state, run.name,
      step.call_id, step.occurrence, step.model, step.streams, step.raw, step.exact, step.pinned,
      step.masked, step.is_mock, step.created_ms, answer.answered_ms, step.replayed_ms,
      answer.cost_microusd, answer.provider,
      exists (select 1 from tool_call where tool_call.answer_id = answer.id), answer.model,
      exists (select 1 from censored where censored.answer_id = answer.id)
    from session
    join step indexed by step_{key} on step.session_id = session.id
    left join run on run.id = step.run_id
    left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    where session.name = ? and substr(step.{key}, 1, 8) = ? and step.{key} = ?
      and step.rolled_back_ms is null
    order by step.step_index
    limit ?
    """


def select_candidate(rest: str) -> str:
    """Return a statement with the columns that `read_candidates` reads, and this rest."""
    return _FIND_CANDIDATES.partition("    from session\n")[0] + rest


_FIND_ALIASES = select_candidate(
    """
    from session
    join alias on alias.session_id = session.id
    join step on step.id = alias.step_id
    left join run on run.id = step.run_id
    left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    where session.name = ? and substr(alias.exact, 1, 8) = ? and alias.exact = ?
      and step.rolled_back_ms is null
    order by step.step_index
    limit ?
    """
)

_CANDIDATES: dict[Key, str] = {
    "alias": _FIND_ALIASES,
    "raw": _FIND_CANDIDATES.format(key="raw"),
    "exact": _FIND_CANDIDATES.format(key="exact"),
    "pinned": _FIND_CANDIDATES.format(key="pinned"),
    "masked": _FIND_CANDIDATES.format(key="masked"),
}


def find_candidates(
    connection: Connection,
    session: str,
    key: Key,
    value: bytes,
    replayed_ms: Mapping[int, int],
    limit: int = -1,
) -> tuple[Candidate, ...]:
    """See `Store.find_candidates`. At most `limit` of them; -1 = all.

    `replayed_ms` says, by step id, what is not in the file yet.
    """
    rows = connection.execute(_CANDIDATES[key], (session, value[:8], value, limit))
    return read_candidates(rows, replayed_ms)


def read_candidates(rows: Iterable[Any], replayed_ms: Mapping[int, int]) -> tuple[Candidate, ...]:
    """Read rows that begin with the columns of `select_candidate`."""
    return tuple(
        Candidate(
            step_id=row[0],
            answer_id=row[1],
            index=row[2],
            step_number=row[3],
            state=row[4],
            run_id=row[5],
            call_id=row[6],
            occurrence=row[7],
            model=row[8],
            streams=bool(row[9]),
            identity=Identity(row[10], row[11], row[12], row[13]),
            is_mock=bool(row[14]),
            created_ms=row[15],
            answered_ms=row[16],
            replayed_ms=max(row[17] or 0, replayed_ms.get(row[0], 0)) or None,
            cost_microusd=row[18],
            provider=row[19],
            calls_tools=bool(row[20]),
            answer_model=row[21],
            is_censored=bool(row[22]),
        )
        for row in rows
    )


# The content of a large answer is left where it is, so that it can be read by another thread.
_ANSWER_COLUMNS = """
    select answer.id, answer.status, answer.form, answer.is_sealed, answer.pace_size, answer.size,
      case when answer.size <= ? then answer.pace end,
      case when answer.size <= ? then answer.content end
    """

_FIND_ANSWER = (
    _ANSWER_COLUMNS
    + """
    from step
    join answer on answer.id = step.answer_id and answer.taken_back_ms is null
    where step.id = ?
    """
)

_FIND_ANSWER_BY_ID = _ANSWER_COLUMNS + "from answer where answer.id = ?"

_LIST_TAILS = """
    select pace, size, content
    from answer_tail
    where answer_id = ?
    order by position
    """


def read_answer(
    connection: Connection, step_id: int, bytes_max: int = BYTES_UNLIMITED
) -> RecordedAnswer | None:
    """See `Store.read_answer`.

    Raises:
        ContentTooLarge: it has over `bytes_max` bytes (its tail not counted); none was read.
    """
    return _read_answer(connection, _FIND_ANSWER, step_id, bytes_max)


def read_answer_by_id(
    connection: Connection, answer_id: int, bytes_max: int = BYTES_UNLIMITED
) -> RecordedAnswer | None:
    """See `Store.read_answer_by_id`; raises as `read_answer`."""
    return _read_answer(connection, _FIND_ANSWER_BY_ID, answer_id, bytes_max)


def _read_answer(
    connection: Connection, statement: str, row_id: int, bytes_max: int
) -> RecordedAnswer | None:
    answer = _read_parts(connection, statement, row_id, bytes_max)
    if answer is None or answer.is_sealed:
        return answer
    # Its tail may have been appended between the two statements: once more, seeing one commit.
    with _one_state(connection):
        return _read_parts(connection, statement, row_id, bytes_max)


def _read_parts(
    connection: Connection, statement: str, row_id: int, bytes_max: int
) -> RecordedAnswer | None:
    row = connection.execute(statement, (bytes_max, bytes_max, row_id)).fetchone()
    if row is None:
        return None
    answer = recorded_answer(*row[1:])
    if answer.form == "body":  # it has no tail: its end is its length
        return answer
    tails = connection.execute(_LIST_TAILS, (row[0],)).fetchall()
    if not tails:
        return answer
    return replace(
        answer,
        content=answer.content + b"".join(unpack(size, content) for _, size, content in tails),
        pace=answer.pace + b"".join(pace for pace, _, _ in tails),
    )


def recorded_answer(
    status: int,
    form: Literal["body", "events"],
    is_sealed: int,
    pace_size: int,
    size: int,
    pace: bytes | None,
    content: bytes | None,
) -> RecordedAnswer:
    """Make an answer of its columns; raises `ContentTooLarge` if its content was not read."""
    if pace is None or content is None:
        raise ContentTooLarge
    headers, body = parse_answer(unpack(size, content))
    return RecordedAnswer(
        status=status,
        headers=headers,
        form=form,
        content=body,
        pace=unpack(pace_size, pace),
        is_sealed=bool(is_sealed),
    )


# --- steps ----------------------------------------------------------------------------------------

_STEP_COLUMNS = """
    select step.id, session.name, step.step_index, step.step_number, step.state, step.exact,
      step.dialect, step.path, coalesce(answer.model, step.model), answer.provider, step.streams,
      run.name, answer.response_id, answer.finish_reason, prompt.text, coalesce(answer.text, ''),
      answer.input_tokens, answer.output_tokens, answer.cached_tokens, answer.cache_write_tokens,
      answer.reasoning_tokens, coalesce(answer.usage_estimated, 0), answer.cost_microusd,
      answer.latency_ms, answer.first_content_ms, step.created_ms, answer.answered_ms,
      step.replays, step.replayed_ms, step.saved_microusd, attempt.error_code, attempt.error,
      step.is_mock, step.rolled_back_ms, answer.text_offset, answer.text_length,
      case when answer.text_offset is not null then answer.size end,
      case when answer.text_offset is not null then answer.content end, step.miss, step.answer_id
    from step
    join session on session.id = step.session_id
    join prompt on prompt.id = step.prompt_id
    left join run on run.id = step.run_id
    left join answer on answer.id = step.answer_id
    left join attempt on attempt.step_id = step.id
      and attempt.position = (select max(position) from attempt where step_id = step.id)
    """

_READ_STEP = _STEP_COLUMNS + "where step.id = ?"

_FIND_STEP = _STEP_COLUMNS + "where session.name = ? and step.step_index = ?"

_LIST_STEPS = (
    _STEP_COLUMNS
    + """
    where step.session_id = (select id from session where name = :session)
      and (:state is null or step.state = :state)
      and step.step_index {after} :place
    order by step.step_index {order}
    limit :limit
    """
)

_NEWEST_STEPS = _LIST_STEPS.format(after="<", order="desc")
_OLDEST_STEPS = _LIST_STEPS.format(after=">", order="asc")


def read_step(connection: Connection, step_id: int) -> StepRow | None:
    """See `Store.read_step`."""
    row = connection.execute(_READ_STEP, (step_id,)).fetchone()
    return None if row is None else _step_row(row)


def find_step(connection: Connection, session: str, index: int) -> StepRow | None:
    """See `Store.find_step`."""
    row = connection.execute(_FIND_STEP, (session, index)).fetchone()
    return None if row is None else _step_row(row)


def list_steps(connection: Connection, query: Query) -> StepPage:
    """See `Store.list_steps`."""
    session, limit = check_session(query), check_limit(query)
    (place,) = read_cursor(query.after, 1) or before_first(query)
    statement = _NEWEST_STEPS if query.newest_first else _OLDEST_STEPS
    values = {"session": session, "state": query.state, "place": place, "limit": limit + 1}
    rows = connection.execute(statement, values).fetchall()
    cursor = make_cursor(rows[limit - 1][2]) if len(rows) > limit else None
    return StepPage(tuple(map(_step_row, rows[:limit])), cursor)


_LIST_ATTEMPTS = """
    select provider, model, started_ms, ended_ms, status, error_code, error, first_byte_ms, excerpt,
      dropped
    from attempt
    where step_id = ?
    order by position
    """


def list_attempts(connection: Connection, step_id: int) -> tuple[Attempt, ...]:
    """See `Store.list_attempts`."""
    return tuple(
        Attempt(
            provider=row[0],
            model=row[1],
            started_ms=row[2],
            ended_ms=row[3],
            status=row[4],
            error_code=row[5],
            error=row[6],
            first_byte_ms=row[7],
            excerpt=row[8],
            dropped=tuple(json.loads(row[9])) if row[9] else (),
        )
        for row in connection.execute(_LIST_ATTEMPTS, (step_id,))
    )


# --- shared ---------------------------------------------------------------------------------------


@contextmanager
def _one_state(connection: Connection) -> Iterator[None]:
    """Have all statements inside see the same commit."""
    connection.execute("begin")
    try:
        yield
    finally:
        connection.execute("commit")


def before_first(query: Query) -> tuple[int]:
    """Return a place before every row of a listing; good for any of its columns."""
    return (2**63 - 1,) if query.newest_first else (-(2**63),)


def quoted(columns: tuple[int, int, int, bytes]) -> str:
    """Read a text that stands in an answer: offset, length, and the packed answer."""
    offset, length, size, content = columns
    return read_quote(unpack(size, content), (offset, length))


def _step_row(row: tuple[Any, ...]) -> StepRow:
    return StepRow(
        step_id=row[0],
        session=row[1],
        index=row[2],
        step_number=row[3],
        state=row[4],
        fingerprint=row[5],
        dialect=row[6],
        path=row[7],
        model=row[8],
        provider=row[9],
        streams=bool(row[10]),
        run_id=row[11],
        response_id=row[12],
        finish_reason=row[13],
        prompt=row[14],
        text=row[15] if row[34] is None else quoted(row[34:38]),
        usage=None if row[16] is None else Usage(*row[16:21]),
        usage_estimated=bool(row[21]),
        cost_microusd=row[22],
        latency_ms=row[23],
        first_content_ms=row[24],
        created_ms=row[25],
        answered_ms=row[26],
        replays=row[27],
        replayed_ms=row[28],
        saved_microusd=row[29],
        error_code=row[30],
        error=row[31],
        is_mock=bool(row[32]),
        rolled_back_ms=row[33],
        miss=None if row[38] is None else json.loads(row[38]),
        answer_id=row[39],
    )
