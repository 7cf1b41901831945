"""How the rows of some steps are copied for a fork, all tables of each step at once.

A part of what `sqlite_forks_record.py` runs, in its transaction. So a step is copied as it stood at
one moment, whatever is written between two batches of them.

Invariant: new ids rise with what they copy, within a batch and from one to the next.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from agentstate.ground.approvals import Decision, Earlier
from agentstate.store.sqlite_pack import unpack_text
from agentstate.store.sqlite_precedents import (
    Row,
    encode_precedents,
    precedent_row,
    read_precedents,
)

# About 4 ms of small steps: a slice has some of them, and on a busy machine not many more slices.
STEPS_AT_ONCE = 256

# Old ids to new ones. Temporary, so nobody else sees them. Prompts are kept for all batches of a
# fork, since many steps have the same; two forks may be on their way at once.
_MAPS = (
    """
    create temp table if not exists step_copy (
      old integer primary key, new integer not null, step_index integer not null,
      step_number integer not null, prompt_id integer not null
    )
    """,
    """
    create temp table if not exists answer_copy (
      old integer primary key, new integer not null, new_step_id integer not null
    )
    """,
    """
    create temp table if not exists prompt_copy (
      session_id integer not null, old integer not null, new integer not null,
      primary key (session_id, old)
    ) without rowid
    """,
)

_CLEAR = ("delete from step_copy", "delete from answer_copy")

_FORGET_PROMPTS = "delete from prompt_copy where session_id = ?"

_LAST_IDS = """
    select
      coalesce((select seq from sqlite_sequence where name = 'step'), 0),
      coalesce((select seq from sqlite_sequence where name = 'answer'), 0),
      coalesce((select max(id) from prompt), 0)
    """

# What was asked or answered anew since the fork began is in the air, or was a moment ago.
_CHOOSE_STEPS = """
    insert into step_copy (old, new, step_index, step_number, prompt_id)
    select id, :step_id + 1 + step_index - :from_index, step_index, step_number, prompt_id
    from step
    where session_id = :parent_id and step_index >= :from_index and step_index < :end_index
      and rolled_back_ms is null and state <> 'in_flight'
      and coalesce(answer_id, 0) <= :seen_answer_id
      and (:step_number is null or step_number < :step_number)
    order by step_index
    limit :at_once
    """

_COUNT_CHOSEN = "select count(*), max(step_index), max(step_number) from step_copy"

_LAST_ANSWER = "select max(new) from answer_copy"

_LEAVE_OUT = "delete from step_copy where old = ?"

_CHOOSE_ANSWERS = """
    insert into answer_copy (old, new, new_step_id)
    select answer.id, :answer_id + row_number() over (order by answer.id), step_copy.new
    from step_copy
    cross join answer on answer.step_id = step_copy.old
    where answer.id <= :seen_answer_id
    """

# A prompt belongs to one session, so that it goes with it.
_CHOOSE_PROMPTS = """
    insert into prompt_copy (session_id, old, new)
    select :session_id, prompt_id, :prompt_id + row_number() over (order by prompt_id)
    from (
      select distinct prompt_id
      from step_copy
      where not exists (
        select 1 from prompt_copy where session_id = :session_id and old = prompt_id
      )
    )
    """

# A statement for each table of which a step has rows of its own; each names all its columns. New
# ids are in the order of the old ones, which takes no sorting.
_COPIES = (
    """
    insert or ignore into run (session_id, name)
    select :session_id, name
    from run
    where id in (select run_id from step_copy cross join step on step.id = step_copy.old)
    order by id
    """,
    """
    insert into prompt (id, text)
    select prompt_copy.new, prompt.text
    from (select distinct prompt_id from step_copy) as used
    cross join prompt_copy on prompt_copy.session_id = :session_id
      and prompt_copy.old = used.prompt_id
    cross join prompt on prompt.id = prompt_copy.old
    where prompt_copy.new > :prompt_id
    order by prompt_copy.new
    """,
    """
    insert into step (
      id, session_id, step_index, step_number, state, answer_id, run_id, call_id, occurrence,
      dialect, path, model, streams, is_mock, raw, exact, pinned, masked, envelope_id, node_id,
      created_ms, prompt_id, miss
    )
    select step_copy.new, :session_id, step.step_index, step.step_number, state, answer_copy.new,
      case when run_id is not null then (
        select mine.id
        from run
        join run as mine on mine.session_id = :session_id and mine.name = run.name
        where run.id = run_id
      ) end,
      call_id, occurrence, dialect, path, model, streams, is_mock, raw, exact, pinned, masked,
      envelope_id, node_id, created_ms, prompt_copy.new, miss
    from step_copy
    cross join step on step.id = step_copy.old
    cross join prompt_copy on prompt_copy.session_id = :session_id
      and prompt_copy.old = step_copy.prompt_id
    left join answer_copy on answer_copy.old = step.answer_id
    order by step_copy.old
    """,
    """
    insert into answer (
      id, step_id, taken_back_ms, answered_ms, provider, model, response_id, finish_reason,
      input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens,
      usage_estimated, cost_microusd, latency_ms, first_content_ms, status, form, is_sealed, text,
      text_offset, text_length, size, pace_size, pace, content
    )
    select answer_copy.new, answer_copy.new_step_id, taken_back_ms, answered_ms, provider, model,
      response_id, finish_reason, input_tokens, output_tokens, cached_tokens, cache_write_tokens,
      reasoning_tokens, usage_estimated, cost_microusd, latency_ms, first_content_ms, status, form,
      is_sealed, text, text_offset, text_length, size, pace_size, pace, content
    from answer_copy
    cross join answer on answer.id = answer_copy.old
    order by answer_copy.old
    """,
    """
    insert into answer_tail (answer_id, position, pace, size, content)
    select answer_copy.new, position, pace, size, content
    from answer_copy
    cross join answer_tail on answer_tail.answer_id = answer_copy.old
    order by answer_copy.old
    """,
    """
    insert into tool_call (
      answer_id, choice, position, session_id, call_id, name, kind, quote_offset, quote_length,
      size, arguments
    )
    select answer_copy.new, choice, position, :session_id, call_id, name, kind, quote_offset,
      quote_length, size, arguments
    from answer_copy
    cross join tool_call on tool_call.answer_id = answer_copy.old
    order by answer_copy.old
    """,
    """
    insert into attempt (
      step_id, position, provider, model, started_ms, ended_ms, status, error_code, error,
      first_byte_ms, dropped, excerpt
    )
    select step_copy.new, position, provider, model, started_ms, ended_ms, status, error_code,
      error, first_byte_ms, dropped, excerpt
    from step_copy
    cross join attempt on attempt.step_id = step_copy.old
    order by step_copy.old
    """,
    """
    insert into alias (session_id, exact, step_id)
    select :session_id, exact, step_copy.new
    from step_copy
    cross join alias on alias.step_id = step_copy.old
    where alias.session_id = :parent_id
    """,
    """
    insert into round (root_id, number, answer_id)
    select root.new, round.number, own.new
    from answer_copy as root
    cross join round on round.root_id = root.old
    cross join answer_copy as own on own.old = round.answer_id
    """,
    # It is borrowed unless all that was asked about the answer, or about a round after it, is
    # decided here too.
    """
    insert into delivered (
      answer_id, status, form, is_sealed, size, pace_size, pace, content, is_borrowed
    )
    select answer_copy.new, status, form, is_sealed, size, pace_size, pace, content,
      is_borrowed or exists (
        select 1
        from (
          select answer_copy.old as answer_id
          union all
          select round.answer_id from round where round.root_id = answer_copy.old
        ) as seen
        join approval on approval.answer_id = seen.answer_id
        where generation = 0 and kind <> 'request' and case
          when is_approved is null then 1
          when :inherits then 0
          else is_approved = 1 or follows <> 'continue'
        end
      )
    from answer_copy
    cross join delivered on delivered.answer_id = answer_copy.old
    """,
    """
    insert into revision (
      answer_id, session_id, replaces_id, kind, made_by, reason, size, request
    )
    select answer_copy.new, :session_id, replaced.new, kind, made_by, reason, size, request
    from answer_copy
    cross join revision on revision.answer_id = answer_copy.old
    join answer_copy as replaced on replaced.old = revision.replaces_id
    """,
    """
    insert into set_aside (answer_id)
    select answer_copy.new
    from answer_copy
    cross join set_aside on set_aside.answer_id = answer_copy.old
    """,
    """
    insert into censored (answer_id)
    select answer_copy.new
    from answer_copy
    cross join censored on censored.answer_id = answer_copy.old
    """,
    # What is decided there and here as well: see `store.forks.goes_along`.
    """
    insert into approval (
      name, session_id, step_id, answer_id, kind, choice, position, digest, generation, tool,
      call_id, rule, why, on_reject, deadline_ms, created_ms, asked_ms, is_approved, decided_ms,
      decided_by, reason, follows, edited_size, edited, size, arguments, is_quiet, replaced_ms
    )
    select 'apr_' || lower(hex(randomblob(10))), :session_id, step_copy.new, answer_copy.new, kind,
      choice, position, digest, generation, tool, call_id, rule, why, on_reject, deadline_ms,
      created_ms, asked_ms, is_approved, decided_ms, decided_by, reason, follows, edited_size,
      edited, size, arguments, is_quiet, replaced_ms
    from (
      select approval.id as id
      from answer_copy
      cross join approval on approval.answer_id = answer_copy.old
      union all
      select approval.id
      from step_copy
      cross join approval on approval.step_id = step_copy.old
      where approval.answer_id is null
    ) as found
    cross join approval on approval.id = found.id
    cross join step_copy on step_copy.old = approval.step_id
    left join answer_copy on answer_copy.old = approval.answer_id
    where is_approved is not null and generation = 0 and kind <> 'budget'
      and (:inherits or (kind <> 'request' and is_approved = 0 and follows = 'continue'))
    order by approval.id
    """,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What was copied at once."""

    steps: int
    next_index: int | None  # from where the next one goes on; None = there is none
    last_index: int | None  # of the copied ones; None = there are none
    last_number: int | None
    last_answer_id: int | None  # the highest new id; None = there are none


class StepCopier:
    """Copies steps, bound to the writing connection."""

    def __init__(self, execute: Callable[..., sqlite3.Cursor]) -> None:
        self._execute = execute

    def begin(self, session_id: int) -> None:
        """Get ready for a new fork, whose own id that is."""
        for statement in _MAPS:
            self._execute(statement)
        self.forget(session_id)

    def forget(self, session_id: int) -> None:
        """Drop what is known of a fork; nothing of it is copied any more."""
        self._execute(_FORGET_PROMPTS, (session_id,))

    def copy(self, values: Mapping[str, object], but_not: Collection[int]) -> Batch:
        """Copy the next steps, those in `but_not` left out. `values`: see `Copying.values`."""
        for statement in _CLEAR:
            self._execute(statement)
        step_id, answer_id, prompt_id = self._execute(_LAST_IDS).fetchone()
        values = {
            **values,
            "at_once": STEPS_AT_ONCE,
            "step_id": step_id,
            "answer_id": answer_id,
            "prompt_id": prompt_id,
        }
        self._execute(_CHOOSE_STEPS, values)
        seen, last_seen, _ = self._execute(_COUNT_CHOSEN).fetchone()
        for left_out in but_not:
            self._execute(_LEAVE_OUT, (left_out,))
        self._execute(_CHOOSE_ANSWERS, values)
        self._execute(_CHOOSE_PROMPTS, values)
        for statement in _COPIES:
            self._execute(statement, values)
        self._keep_precedents(values)
        count, last_index, last_number = self._execute(_COUNT_CHOSEN).fetchone()
        (last_answer_id,) = self._execute(_LAST_ANSWER).fetchone()
        next_index = last_seen + 1 if seen == STEPS_AT_ONCE else None
        return Batch(count, next_index, last_index, last_number, last_answer_id)

    # Those of the session itself go first: they are newer than what it had from another.
    _DECISIONS = """
        select step_copy.new, answer_copy.new, choice, position, kind, digest, is_approved,
          decided_by, reason, edited_size, edited, follows, decided_ms
        from answer_copy
        cross join approval on approval.answer_id = answer_copy.old
        cross join step_copy on step_copy.old = approval.step_id
        where is_approved is not null and generation = 0
          and kind <> 'request' and not :inherits and (is_approved = 1 or follows <> 'continue')
        order by approval.id
        """

    # Not a join: for a condition on the joined row SQLite would first look at all steps there are.
    _OLDER = """
        select new, precedents
        from (
          select new, (select precedents from step where id = old) as precedents
          from step_copy
          where exists (select 1 from session where id = :parent_id and fork_of is not null)
        )
        where precedents is not null
        """

    _NEW_ANSWER = "select new from answer_copy where old = ?"

    _SET_PRECEDENTS = "update step set precedents = ? where id = ?"

    def _keep_precedents(self, values: Mapping[str, object]) -> None:
        """Write beside the steps what was decided about their calls and is not decided here."""
        session = str(values["parent"])
        found: dict[int, list[Row]] = {}
        for step_id, *place, approved, by, reason, size, edited, then, at_ms in self._execute(
            self._DECISIONS, values
        ).fetchall():
            arguments = None if edited is None else unpack_text(size, edited)
            decision = Decision(bool(approved), by, reason, arguments, then)
            row = precedent_row(tuple(place), Earlier(session, decision, at_ms))
            found.setdefault(step_id, []).append(row)
        for step_id, text in self._execute(self._OLDER, values).fetchall():
            for row in read_precedents(text):
                (answer_id,) = self._execute(self._NEW_ANSWER, (row["answer"],)).fetchone()
                found.setdefault(step_id, []).append(row | {"answer": answer_id})
        for step_id, rows in found.items():
            self._execute(self._SET_PRECEDENTS, (encode_precedents(rows), step_id))
