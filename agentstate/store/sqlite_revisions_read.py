"""What is read of edits and reruns: one function of a connection for each method of the store.

As in `sqlite_read.py` all of it only selects. The counterpart that writes is
`sqlite_revisions_record.py`.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from agentstate.ground.canonical import JSON, parse
from agentstate.ground.chat import Usage
from agentstate.ground.lineage import PLACES_MAX
from agentstate.ground.revisions import AnswerRow, Link, Placed, Revised, Revision
from agentstate.store.base import readable
from agentstate.store.sqlite_export_read import places_above, read_envelope
from agentstate.store.sqlite_pack import unpack
from agentstate.store.sqlite_read import quoted

Connection = sqlite3.Connection

_ANSWERS_OF = """
    select answer.id, answer.answered_ms, step.answer_id = answer.id,
      answer.taken_back_ms is not null, revision.kind, revision.replaces_id, revision.made_by,
      revision.reason, revision.request is not null, answer.provider, answer.model,
      answer.finish_reason, answer.input_tokens, answer.output_tokens, answer.cached_tokens,
      answer.cache_write_tokens, answer.reasoning_tokens, answer.usage_estimated,
      answer.cost_microusd, answer.text, answer.text_offset, answer.text_length,
      case when answer.text_offset is not null then answer.size end,
      case when answer.text_offset is not null then answer.content end
    from answer
    join step on step.id = answer.step_id
    left join revision on revision.answer_id = answer.id
    where answer.step_id = ? and not exists (select 1 from round where answer_id = answer.id)
    order by answer.id
    """


def answers_of(connection: Connection, step_id: int) -> tuple[AnswerRow, ...]:
    """See `Store.answers_of`."""
    return tuple(map(_answer_row, connection.execute(_ANSWERS_OF, (step_id,))))


def _answer_row(row: tuple[Any, ...]) -> AnswerRow:
    is_taken_back = bool(row[3])
    return AnswerRow(
        answer_id=row[0],
        answered_ms=row[1],
        stands=bool(row[2]) and not is_taken_back,
        is_taken_back=is_taken_back,
        revision=None if row[4] is None else Revision(*row[4:8]),
        has_request=bool(row[8]),
        provider=row[9],
        model=row[10],
        finish_reason=row[11],
        text=row[19] if row[20] is None else quoted(row[20:24]),
        usage=None if row[12] is None else Usage(*row[12:17]),
        usage_estimated=bool(row[17]),
        cost_microusd=row[18],
    )


_READ_REVISION = """
    select kind, replaces_id, made_by, reason, size, request
    from revision
    where answer_id = ?
    """


def read_revision(connection: Connection, answer_id: int) -> Revision | None:
    """See `Store.read_revision`."""
    row = connection.execute(_READ_REVISION, (answer_id,)).fetchone()
    if row is None:
        return None
    request = None if row[5] is None else parse(unpack(row[4], row[5]))
    return Revision(row[0], row[1], row[2], row[3], request)


# With each revision, what it replaced: that may have been replaced by something else before.
_LIST_REVISED = """
    select step.id, step.answer_id, standing.kind, revision.answer_id, revision.replaces_id,
      (
        select max(made_ms)
        from rollback
        where rollback.session_id = session.id and rollback.swaps != '[]'
      )
    from session
    join revision on revision.session_id = session.id
    join answer on answer.id = revision.answer_id
    join step on step.id = answer.step_id
    left join revision as standing on standing.answer_id = step.answer_id
    where session.name = ? and step.rolled_back_ms is null
    order by step.step_index, revision.answer_id
    """


def list_revised(connection: Connection, session: str) -> tuple[Revised, ...]:
    """See `Store.list_revised`."""
    found: dict[int, Revised] = {}
    for step_id, standing_id, kind, *seen, changed_ms in connection.execute(
        _LIST_REVISED, (session,)
    ):
        before = found[step_id].others if step_id in found else ()
        others = dict.fromkeys((*before, *(one for one in seen if one != standing_id)))
        found[step_id] = Revised(
            step_id, standing_id, kind == "edit", tuple(sorted(others)), changed_ms or 0
        )
    return tuple(found.values())


# There is no index on the ids: it would cost every answer, and this is asked of few calls.
_FIND_ANSWERED = """
    select step.id, step.answer_id, step.answer_id != answer.id, answer.answered_ms
    from session
    join step on step.session_id = session.id
    join answer on answer.step_id = step.id and answer.taken_back_ms is null
    where session.name = ? and answer.response_id = ?
    order by step.rolled_back_ms is null desc, step.step_index desc,
      step.answer_id = answer.id desc, answer.id desc
    limit 1
    """


def find_answered(connection: Connection, session: str, response_id: str) -> Link | None:
    """See `Store.find_answered`."""
    row = connection.execute(_FIND_ANSWERED, (session, readable(response_id))).fetchone()
    return None if row is None else Link(row[0], row[1], bool(row[2]), row[3])


_LIST_PLACED = """
    select step.id, step.step_index, step.dialect, step.rolled_back_ms is null, step.envelope_id,
      step.node_id,
      (
        select json_group_array(answer.response_id)
        from answer
        where answer.step_id = step.id and answer.response_id is not null
      )
    from step
    where step.session_id = (select id from session where name = ?) and step.step_index > ?
    order by step.step_index
    limit ?
    """


def list_placed(connection: Connection, session: str, after: int, limit: int) -> tuple[Placed, ...]:
    """See `Store.list_placed`."""
    envelopes: dict[int, JSON] = {}  # most steps of a session share one
    parents: dict[int, int | None] = {}  # a step mostly stands below the one before it
    found: list[Placed] = []
    for row in connection.execute(_LIST_PLACED, (session, after, limit)).fetchall():
        step_id, index, dialect, is_active, envelope_id, node_id, response_ids = row
        if envelope_id not in envelopes:
            envelopes[envelope_id] = read_envelope(connection, envelope_id)
        found.append(
            Placed(
                step_id=step_id,
                index=index,
                dialect=dialect,
                is_active=bool(is_active),
                response_ids=tuple(dict.fromkeys(json.loads(response_ids))),
                envelope_id=envelope_id,
                envelope=envelopes[envelope_id],
                place=node_id or 0,
                above=()
                if node_id is None
                else places_above(connection, node_id, PLACES_MAX, parents),
            )
        )
    return tuple(found)
