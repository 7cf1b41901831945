"""What the writer thread runs to fork a session: rows are copied, content is shared.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. Prefixes, parts and envelopes of requests are shared, since they never change.
All else is copied inside SQL, so that nothing that happens to one session touches the other. The
counterpart is `sqlite_removal.py`: what is copied here is removed there.

Invariant: a fork's sums count the answers with an id over its `shared_answer_id`. Ids only rise, so
those are the ones that were recorded in it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping

from agentstate.ground.approvals import Decision, Earlier
from agentstate.ground.control import Place
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.forks import ForkAsk
from agentstate.store.base import readable
from agentstate.store.forks import NameTaken, check_place, nothing_before
from agentstate.store.sqlite_columns import maybe_readable
from agentstate.store.sqlite_pack import unpack_text
from agentstate.store.sqlite_precedents import (
    Row,
    encode_precedents,
    precedent_row,
    read_precedents,
)
from agentstate.store.sqlite_removal import NEXT_SESSION_ID

# Old ids to new ones, while a fork is made. Temporary, so nobody else sees them.
_MAPS = (
    "create temp table if not exists step_copy (old integer primary key, new integer not null)",
    "create temp table if not exists answer_copy (old integer primary key, new integer not null)",
    "create temp table if not exists prompt_copy (old integer primary key, new integer not null)",
    "delete from step_copy",
    "delete from answer_copy",
    "delete from prompt_copy",
)

_CHOOSE_STEPS = """
    insert into step_copy (old, new)
    select id, :step_id + step_index + 1
    from step
    where session_id = :parent_id and rolled_back_ms is null and state <> 'in_flight'
      and (:index is null or step_index < :index)
      and (:step_number is null or step_number < :step_number)
    """

_LEAVE_OUT = "delete from step_copy where old = ?"

_CHOOSE_ANSWERS = """
    insert into answer_copy (old, new)
    select answer.id, :answer_id + row_number() over (order by answer.id)
    from step_copy
    cross join answer on answer.step_id = step_copy.old
    """

# A prompt belongs to one session, so that it goes with it.
_CHOOSE_PROMPTS = """
    insert into prompt_copy (old, new)
    select prompt_id, :prompt_id + row_number() over (order by prompt_id)
    from (select distinct prompt_id from step_copy cross join step on step.id = step_copy.old)
    """

# A statement for each table of which a fork has rows of its own; each names all its columns.
_COPIES = (
    """
    insert into tag (session_id, name, value)
    select :session_id, name, value
    from tag
    where session_id = :parent_id
    """,
    # What its agent said goes along, since it is known to have been said; what a person set, and
    # how far people let the other one go on, does not.
    """
    insert into budget (
      session_id, said_steps, said_tokens, said_microusd, said_repeats, said_action
    )
    select :session_id, said_steps, said_tokens, said_microusd, said_repeats, said_action
    from budget
    where session_id = :parent_id
      and coalesce(said_steps, said_tokens, said_microusd, said_repeats, said_action) is not null
    """,
    """
    insert into run (session_id, name)
    select :session_id, name
    from run
    where session_id = :parent_id and id in (
      select run_id from step_copy cross join step on step.id = step_copy.old
    )
    order by id
    """,
    """
    insert into prompt (id, text)
    select prompt_copy.new, prompt.text
    from prompt_copy
    cross join prompt on prompt.id = prompt_copy.old
    order by prompt_copy.new
    """,
    """
    insert into step (
      id, session_id, step_index, step_number, state, answer_id, run_id, call_id, occurrence,
      dialect, path, model, streams, is_mock, raw, exact, pinned, masked, envelope_id, node_id,
      created_ms, prompt_id, miss
    )
    select step_copy.new, :session_id, step_index, step_number, state, answer_copy.new,
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
    cross join prompt_copy on prompt_copy.old = step.prompt_id
    left join answer_copy on answer_copy.old = step.answer_id
    order by step_copy.new
    """,
    """
    insert into answer (
      id, step_id, taken_back_ms, answered_ms, provider, model, response_id, finish_reason,
      input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens,
      usage_estimated, cost_microusd, latency_ms, first_content_ms, status, form, is_sealed, text,
      text_offset, text_length, size, pace_size, pace, content
    )
    select answer_copy.new, step_copy.new, taken_back_ms, answered_ms, provider, model, response_id,
      finish_reason, input_tokens, output_tokens, cached_tokens, cache_write_tokens,
      reasoning_tokens, usage_estimated, cost_microusd, latency_ms, first_content_ms, status, form,
      is_sealed, text, text_offset, text_length, size, pace_size, pace, content
    from answer_copy
    cross join answer on answer.id = answer_copy.old
    cross join step_copy on step_copy.old = answer.step_id
    order by answer_copy.new
    """,
    """
    insert into answer_tail (answer_id, position, pace, size, content)
    select answer_copy.new, position, pace, size, content
    from answer_copy
    cross join answer_tail on answer_tail.answer_id = answer_copy.old
    order by answer_copy.new
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
    order by answer_copy.new
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
    order by step_copy.new
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
    from approval
    join step_copy on step_copy.old = approval.step_id
    left join answer_copy on answer_copy.old = approval.answer_id
    where approval.session_id = :parent_id and is_approved is not null and generation = 0
      and kind <> 'budget'
      and (:inherits or (kind <> 'request' and is_approved = 0 and follows = 'continue'))
    order by approval.id
    """,
    # What was done before the first step that is not shared is not done again. In the same
    # millisecond nobody knows which was first; then it was done.
    """
    insert into durable_call (
      name, session_id, digest, occurrence, tool, key, call_id, state, created_ms, begun_ms, runs,
      outcome, finished_ms, settled_as, settled_by, settled_why, settled_ms, size, arguments,
      edited_size, edited, value_size, value
    )
    select 'dur_' || lower(hex(randomblob(10))), :session_id, digest,
      row_number() over (partition by digest order by occurrence) - 1, tool, key, call_id, state,
      created_ms, begun_ms, runs, outcome, finished_ms, settled_as, settled_by, settled_why,
      settled_ms, size, arguments, edited_size, edited, value_size, value
    from durable_call
    where session_id = :parent_id and state = 'done' and forgotten_ms is null
      and created_ms <= coalesce(
        (
          select min(created_ms)
          from step
          where session_id = :parent_id and rolled_back_ms is null
            and (step_index >= :index or step_number >= :step_number)
        ),
        created_ms
      )
    order by id
    """,
)


class ForkRecorder:
    """The writing method about forks, bound to the writing connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.cursor().execute

    _FIND = "select id, title from session where name = ?"

    _LAST_IDS = """
        select
          coalesce((select seq from sqlite_sequence where name = 'step'), 0),
          coalesce((select seq from sqlite_sequence where name = 'answer'), 0),
          coalesce((select max(id) from prompt), 0)
        """

    _COUNT_CHOSEN = """
        select count(*), max(step.step_index), max(step.step_number),
          (select max(new) from answer_copy)
        from step_copy
        cross join step on step.id = step_copy.old
        """

    _LAST_PROMPT = """
        select prompt_copy.new
        from step
        join prompt_copy on prompt_copy.old = step.prompt_id
        where step.session_id = ? and step.step_index = ?
        """

    _ADD_SESSION = f"""
        insert into session (
          id, name, created_ms, updated_ms, steps, next_index, last_step_number, prompt_id, title,
          parent, said, fork_of, fork_step_number, fork_index, forked_by, shared_steps,
          shared_answer_id, idle_ms
        )
        select {NEXT_SESSION_ID}, :name, :at_ms, :at_ms, :steps, :next_index, :last_number,
          :last_prompt_id, :title, parent, said, :parent, :step_number, :index, :by, :steps,
          :last_answer_id, :at_ms
        from session
        where id = :parent_id
        """

    _LAST_PLACE = """
        select max(step_index), max(step_number)
        from step
        where session_id = ? and rolled_back_ms is null
        """

    def fork(
        self, session: str, name: str, ask: ForkAsk, at_ms: int, but_not: Collection[int] = ()
    ) -> None:
        """Make the session `name` as a fork; see `Store.fork_session`."""
        row = self._execute(self._FIND, (session,)).fetchone()
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        if self._execute(self._FIND, (name,)).fetchone() is not None:
            raise NameTaken(name)
        parent_id, title = row
        before = ask.before or Place()
        index, number = self._execute(self._LAST_PLACE, (parent_id,)).fetchone()
        check_place(session, before, None if index is None else (index, number))
        step_id, answer_id, prompt_id = self._execute(self._LAST_IDS).fetchone()
        values: dict[str, object] = {
            "parent_id": parent_id,
            "parent": session,
            "name": name,
            "at_ms": at_ms,
            "index": before.index,
            "step_number": before.step_number,
            "by": maybe_readable(ask.by),
            "title": title if ask.title is None else readable(ask.title) or None,
            "inherits": ask.inherits_decisions,
            "step_id": step_id,
            "answer_id": answer_id,
            "prompt_id": prompt_id,
        }
        for statement in _MAPS:
            self._execute(statement)
        self._execute(_CHOOSE_STEPS, values)
        for left_out in but_not:
            self._execute(_LEAVE_OUT, (left_out,))
        self._execute(_CHOOSE_ANSWERS, values)
        self._execute(_CHOOSE_PROMPTS, values)
        count, last_index, last_number, last_answer_id = self._execute(
            self._COUNT_CHOSEN
        ).fetchone()
        if not count:
            raise nothing_before(session, ask.before)
        (last_prompt_id,) = self._execute(self._LAST_PROMPT, (parent_id, last_index)).fetchone()
        values |= {
            "steps": count,
            "next_index": last_index + 1,
            "last_number": last_number,
            "last_prompt_id": last_prompt_id,
            "last_answer_id": last_answer_id or 0,
        }
        values["session_id"] = self._execute(self._ADD_SESSION, values).lastrowid
        for statement in _COPIES:
            self._execute(statement, values)
        self._keep_precedents(values)

    # Those of the session itself go first: they are newer than what it had from another.
    _DECISIONS = """
        select step_copy.new, answer_copy.new, choice, position, kind, digest, is_approved,
          decided_by, reason, edited_size, edited, follows, decided_ms
        from approval
        join answer_copy on answer_copy.old = approval.answer_id
        join step_copy on step_copy.old = approval.step_id
        where approval.session_id = :parent_id and is_approved is not null and generation = 0
          and kind <> 'request' and not :inherits and (is_approved = 1 or follows <> 'continue')
        order by approval.id
        """

    _OLDER = """
        select step_copy.new, precedents
        from session
        join step on step.session_id = session.id
        join step_copy on step_copy.old = step.id
        where session.id = :parent_id and session.fork_of is not null and precedents is not null
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
