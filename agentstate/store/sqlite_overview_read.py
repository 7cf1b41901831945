"""What is read for the dashboard: one function of a connection for each method of `OverviewStore`.

As in `sqlite_read.py` all of it only selects. Answers and steps have no index by time: both come in
the order of their ids, so a span begins at an id that is found by halving. A span costs what was
recorded since it began.
"""

from __future__ import annotations

import sqlite3

from agentstate.ground.overview import (
    BINS_MS,
    MINUTE_MS,
    TOOLS_SHOWN_MAX,
    TOP_MAX,
    AnswerCount,
    Counts,
    Mark,
    Saving,
    SlotCount,
    Span,
    ToolCount,
)

Connection = sqlite3.Connection

CLOCK_SLACK_MS = 10 * MINUTE_MS  # calls end out of order, and clocks are set

_TOOLS_BETWEEN = "\x1f"

_LIST_MARKS = f"""
    select step.step_index,
      (select count(*) from attempt where step_id = step.id),
      (
        select first.provider || '/' || first.model
        from attempt as first
        join attempt as last on last.step_id = first.step_id
          and last.position = (select max(position) from attempt where step_id = step.id)
        where first.step_id = step.id and first.position = 0
          and (first.provider, first.model) <> (last.provider, last.model)
      ),
      (
        select group_concat(name, '{_TOOLS_BETWEEN}')
        from (
          select name
          from tool_call
          where answer_id = step.answer_id
          order by choice, position
          limit {TOOLS_SHOWN_MAX}
        )
      ),
      (select count(*) from tool_call where answer_id = step.answer_id)
    from session
    join step on step.session_id = session.id
    where session.name = ? and step.step_index between ? and ?
    order by step.step_index
    """

# One walk through an index, and none where the counts say that nothing is missing.
_LIST_GAPS = """
    select before + 1, step_index - 1
    from (
      select step.step_index,
        lag(step.step_index, 1, -1) over (order by step.step_index) as before
      from session
      join step on step.session_id = session.id
      where session.name = ? and session.steps < session.next_index
    )
    where step_index > before + 1
    order by step_index
    """


def list_marks(connection: Connection, session: str, first: int, last: int) -> tuple[Mark, ...]:
    """See `OverviewStore.list_marks`."""
    return tuple(
        Mark(
            index=row[0],
            attempts=row[1],
            asked_of=row[2],
            tools=() if row[3] is None else tuple(row[3].split(_TOOLS_BETWEEN)),
            tool_calls=row[4],
        )
        for row in connection.execute(_LIST_MARKS, (session, first, last))
    )


def list_gaps(connection: Connection, session: str) -> tuple[tuple[int, int], ...]:
    """See `OverviewStore.list_gaps`."""
    return tuple((row[0], row[1]) for row in connection.execute(_LIST_GAPS, (session,)))


def _bin_of(column: str) -> str:
    """Return the SQL of `ground.overview.bin_of`."""
    cases = " ".join(
        f"when {column} >= {least} then {least} + ({column} - {least}) / {width} * {width}"
        for least, width in BINS_MS
    )
    return f"case {cases} else 0 end"


_COUNT_ANSWERS = f"""
    select answered_ms / :slot_ms * :slot_ms as slot, provider, model,
      {_bin_of("latency_ms")} as bin, count(*), coalesce(sum(input_tokens), 0),
      coalesce(sum(output_tokens), 0), coalesce(sum(cached_tokens), 0),
      coalesce(sum(cost_microusd), 0), sum(cost_microusd is null)
    from answer
    where id >= :first_id and answered_ms >= :since_ms and answered_ms < :until_ms
      and taken_back_ms is null
    group by slot, provider, model, bin
    order by slot, provider, model, bin
    """

_COUNT_FIRST = f"""
    select {_bin_of("first_content_ms")} as bin, count(*)
    from answer
    where id >= :first_id and answered_ms >= :since_ms and answered_ms < :until_ms
      and taken_back_ms is null and first_content_ms is not null
    group by bin
    order by bin
    """

_COUNT_FAILED = """
    select created_ms / :slot_ms * :slot_ms as slot, count(*)
    from step
    where id >= :first_id and created_ms >= :since_ms and created_ms < :until_ms
      and state = 'failed'
    group by slot
    order by slot
    """

# Most steps have one attempt, so those with another target are looked for among the others.
_COUNT_FALLBACKS = """
    select step.created_ms / :slot_ms * :slot_ms as slot, count(*)
    from (
      select later.step_id as step_id
      from attempt as later
      join attempt as first on first.step_id = later.step_id and first.position = 0
      where later.step_id >= :first_id and later.position > 0
        and (first.provider, first.model) <> (later.provider, later.model)
      group by later.step_id
    ) as found
    join step on step.id = found.step_id
    where step.created_ms >= :since_ms and step.created_ms < :until_ms
    group by slot
    order by slot
    """

_COUNT_TOOLS = f"""
    select tool_call.name, count(*) as calls
    from tool_call
    join answer on answer.id = tool_call.answer_id
    where tool_call.answer_id >= :first_id
      and answer.answered_ms >= :since_ms and answer.answered_ms < :until_ms
      and answer.taken_back_ms is null
    group by tool_call.name
    order by calls desc, tool_call.name
    limit {TOP_MAX}
    """

_SUM_SAVINGS = """
    select slot_ms / :slot_ms * :slot_ms as slot, sum(replays), sum(saved_microusd), sum(saved_ms)
    from saving
    where slot_ms >= :since_ms and slot_ms < :until_ms
    group by slot
    order by slot
    """


def count_between(connection: Connection, span: Span) -> Counts:
    """See `OverviewStore.count_between`."""
    values = {"since_ms": span.since_ms, "until_ms": span.until_ms, "slot_ms": span.slot_ms}
    connection.execute("begin")  # all of it sees the same commit
    try:
        since_ms = span.since_ms - CLOCK_SLACK_MS
        of_answers = values | {"first_id": _first_since(connection, _ANSWERS, since_ms)}
        of_steps = values | {"first_id": _first_since(connection, _STEPS, since_ms)}
        return Counts(
            answers=tuple(
                AnswerCount(*row) for row in connection.execute(_COUNT_ANSWERS, of_answers)
            ),
            first_ms=tuple(SlotCount(*row) for row in connection.execute(_COUNT_FIRST, of_answers)),
            failed=tuple(SlotCount(*row) for row in connection.execute(_COUNT_FAILED, of_steps)),
            fallbacks=tuple(
                SlotCount(*row) for row in connection.execute(_COUNT_FALLBACKS, of_steps)
            ),
            savings=tuple(Saving(*row) for row in connection.execute(_SUM_SAVINGS, values)),
            tools=tuple(ToolCount(*row) for row in connection.execute(_COUNT_TOOLS, of_answers)),
        )
    finally:
        connection.execute("commit")


_FIND_FIRST = "select min(created_ms) from session"


def find_first(connection: Connection) -> int | None:
    """See `OverviewStore.find_first`."""
    (found,) = connection.execute(_FIND_FIRST).fetchone()
    return None if found is None else int(found)


# (the last id, the first row from an id on with its time)
_ANSWERS = (
    "select max(id) from answer",
    "select id, answered_ms from answer where id >= ? order by id limit 1",
)
_STEPS = (
    "select max(id) from step",
    "select id, created_ms from step where id >= ? order by id limit 1",
)


def _first_since(connection: Connection, statements: tuple[str, str], since_ms: int) -> int:
    """Return an id before which every row is older, as far as rows came in order."""
    last_id, probe = statements
    low, high = 1, (connection.execute(last_id).fetchone()[0] or 0) + 1
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(probe, (middle,)).fetchone()
        if row is not None and row[1] < since_ms:
            low = row[0] + 1
        else:
            high = middle
    return low
