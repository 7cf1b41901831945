"""What the writer thread runs: one method of a `Recorder` for each method of the store that writes.

A method runs inside a transaction that its caller has begun and will commit. It may raise at any
point, and may be run a second time after what it did was rolled back; so it keeps nothing in memory
that could differ from the file. The counterpart that reads is `sqlite_read.py`.

Invariant: the sums on a session change in the same transaction as what they sum up, and equal it at
every commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from agentstate.ground.canonical import encode
from agentstate.ground.chat import ToolCall
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.events import Subscription
from agentstate.ground.records import Attempt, Checkpoint, Claim, Claimed, Served, Tail
from agentstate.store.base import clamp, clamp_usage, readable
from agentstate.store.sqlite_attempt_record import AttemptRecorder
from agentstate.store.sqlite_budget_record import BudgetRecorder
from agentstate.store.sqlite_columns import (
    GOES_ON,
    column_sums,
    maybe_readable,
    sums_of,
    usage_columns,
)
from agentstate.store.sqlite_control_record import ControlRecorder
from agentstate.store.sqlite_durable_record import DurableRecorder
from agentstate.store.sqlite_events_record import EventRecorder
from agentstate.store.sqlite_forks_record import ForkRecorder
from agentstate.store.sqlite_gate_record import GateRecorder
from agentstate.store.sqlite_pack import Packed, answer_raw, find_quote, pack, pack_text
from agentstate.store.sqlite_removal import NEXT_SESSION_ID, RemovalRecorder
from agentstate.store.sqlite_replays_record import NoteSums, ReplayRecorder
from agentstate.store.sqlite_request import HeavyParts, RequestRecorder
from agentstate.store.sqlite_revisions_record import RevisionRecorder


class Recorder:
    """The writing methods, bound to the writing connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.cursor().execute
        self._requests = RequestRecorder(self._execute)
        self._attempts = AttemptRecorder(self._execute)
        self._replays = ReplayRecorder(self._execute)
        self.events = EventRecorder(connection)
        self.budget = BudgetRecorder(connection, self.events)
        self.gate = GateRecorder(connection, self.events, self.budget)
        self.control = ControlRecorder(connection, self.events, self.budget)
        self.forks = ForkRecorder(connection)
        self.removals = RemovalRecorder(connection)
        self.durable = DurableRecorder(connection, self.gate, self.events)
        self.revisions = RevisionRecorder(connection, self.control)

    # --- claims -----------------------------------------------------------------------------

    _FIND_SESSION = """
        select session.id, session.next_index, session.last_step_number, session.prompt_id,
          prompt.text
        from session
        left join prompt on prompt.id = session.prompt_id
        where session.name = ?
        """

    _ADD_SESSION = f"""
        insert into session (id, name, created_ms, updated_ms)
        values ({NEXT_SESSION_ID}, ?, ?, ?)
        """

    _ADD_PROMPT = "insert into prompt (text) values (?)"

    _ADD_STEP = """
        insert into step (
          session_id, step_index, step_number, state, run_id, call_id, occurrence, dialect, path,
          model, streams, is_mock, raw, exact, pinned, masked, envelope_id, node_id, created_ms,
          prompt_id, miss
        )
        values (?, ?, ?, 'in_flight', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """

    _COUNT_STEP = f"""
        update session
        set
          steps = steps + 1,
          next_index = next_index + 1,
          last_step_number = ?,
          prompt_id = ?,
          updated_ms = max(updated_ms, ?),
          {GOES_ON}
        where id = ?
        """

    def claim_step(
        self, claim: Claim, packed: Mapping[bytes, Packed] | None = None
    ) -> Claimed | HeavyParts:
        """Write a claim; see `Store.claim_step`.

        `packed`: what `HeavyParts.pack` returned. None = a first try, which hands a claim with much
        to pack back to its caller.
        """
        plan = self._requests.plan(claim.request)
        if packed is None and (heavy := plan.heavy()):
            return heavy
        envelope_id, node_id = self._requests.store(plan, packed or {})
        row = self._execute(self._FIND_SESSION, (claim.session,)).fetchone()
        if row is None:
            added = (claim.session, claim.created_ms, claim.created_ms)
            row = (self._insert(self._ADD_SESSION, added), 0, None, None, None)
        session_id, index, last_number, prompt_id, last_prompt = row
        if claim.about is not None:
            self.control.say(session_id, claim.about)
        prompt = readable(claim.prompt)
        if prompt != last_prompt:
            prompt_id = self._insert(self._ADD_PROMPT, (prompt,))
        columns = (
            None if claim.run_id is None else self._run(session_id, claim.run_id),
            claim.call_id,
            claim.occurrence,
            claim.dialect,
            readable(claim.path),
            readable(claim.model),
            claim.streams,
            claim.is_mock,
            claim.identity.raw,
            claim.identity.exact,
            claim.identity.pinned,
            claim.identity.masked,
            envelope_id,
            node_id,
            claim.created_ms,
            prompt_id,
            None if claim.miss is None else encode(claim.miss).decode("ascii"),
        )
        if claim.step_id is not None:
            claimed = self._claim_again(claim, claim.step_id, session_id, columns)
            if claimed is not None:
                return claimed
        highest = -1 if last_number is None else last_number
        number = highest + 1 if claim.step_number is None else claim.step_number
        step_id = self._insert(self._ADD_STEP, (session_id, index, number, *columns))
        counted = (max(highest, number), prompt_id, claim.created_ms, session_id)
        self._execute(self._COUNT_STEP, counted)
        self._serve(claim, columns[0], step_id)
        return Claimed(step_id, index, number)

    _CLAIM_AGAIN = """
        update step
        set
          state = 'in_flight', is_claim_answered = 0,
          run_id = ?, call_id = ?, occurrence = ?, dialect = ?, path = ?, model = ?, streams = ?,
          is_mock = ?, raw = ?, exact = ?, pinned = ?, masked = ?, envelope_id = ?, node_id = ?,
          created_ms = ?, prompt_id = ?, miss = ?
        where id = ? and session_id = ? and rolled_back_ms is null
        """

    _IS_STEP_OF = "select exists (select * from step where id = ? and session_id = ?)"

    _TOUCH_SESSION = f"""
        update session
        set prompt_id = ?, updated_ms = max(updated_ms, ?),
          {GOES_ON}
        where id = ?
        """

    _READ_CONTENT = "select prompt_id, envelope_id, node_id from step where id = ?"
    _READ_PLACE = "select step_index, step_number from step where id = ?"

    def _claim_again(
        self, claim: Claim, step_id: int, session_id: int, columns: Sequence[object]
    ) -> Claimed | None:
        """Claim a row that is there; None = it was rolled back, so it is not to be used again."""
        before = self._execute(self._READ_CONTENT, (step_id,)).fetchone()
        done = self._execute(self._CLAIM_AGAIN, (*columns, step_id, session_id))
        if done.rowcount == 0:
            (exists,) = self._execute(self._IS_STEP_OF, (step_id, session_id)).fetchone()
            if exists:
                return None
            raise NotFound(f"Step {step_id} is no step of session {shorten(claim.session)!r}.")
        self._execute(self._TOUCH_SESSION, (columns[-2], claim.created_ms, session_id))
        if before != self._execute(self._READ_CONTENT, (step_id,)).fetchone():
            self.removals.replaced(session_id, *before)
        self._serve(claim, columns[0], step_id)
        index, number = self._execute(self._READ_PLACE, (step_id,)).fetchone()
        return Claimed(step_id, index, number)

    def _serve(self, claim: Claim, run_row: object, step_id: int) -> None:
        if run_row is not None:
            self._execute(self._ADD_SERVED, (run_row, step_id, claim.call_id, claim.created_ms))

    _FIND_RUN = "select id from run where session_id = ? and name = ?"
    _ADD_RUN = "insert into run (session_id, name) values (?, ?)"

    def _run(self, session_id: int, name: str) -> int:
        row = self._execute(self._FIND_RUN, (session_id, name)).fetchone()
        return row[0] if row else self._insert(self._ADD_RUN, (session_id, name))

    # --- answers ----------------------------------------------------------------------------

    _ADD_ANSWER = """
        insert into answer (
          step_id, answered_ms, provider, model, response_id, finish_reason, input_tokens,
          output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, usage_estimated,
          cost_microusd, latency_ms, first_content_ms, status, form, is_sealed, text, text_offset,
          text_length, pace_size, pace, size, content
        )
        values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """

    _CENSOR = "insert into censored (answer_id) values (?)"
    _COMPLETE_STEP = """
        update step
        set state = 'complete', answer_id = ?, is_claim_answered = 1, is_mock = coalesce(?, is_mock)
        where id = ?
        """

    def record_answer(
        self,
        checkpoint: Checkpoint,
        packed: Packed | None = None,
        subscriptions: Sequence[Subscription] = (),
        *,
        is_paid: bool = True,
    ) -> int:
        """Write an answer; see `Store.record_answer`.

        `packed`: its `answer_raw`, for a large one. None = pack it here, and quote from it.
        `subscriptions`: who is told of its event. `is_paid` as in `add_answer`.
        """
        answer_id = self.add_answer(checkpoint, packed, is_paid=is_paid)
        self._execute(self._COMPLETE_STEP, (answer_id, checkpoint.is_mock, checkpoint.step_id))
        if checkpoint.approval_id is not None:
            self.gate.bind(checkpoint.approval_id, answer_id)
        if checkpoint.event is not None:
            self.events.write(checkpoint.event, subscriptions)
        return answer_id

    def record_round(
        self, checkpoint: Checkpoint, root_id: int, number: int, packed: Packed | None = None
    ) -> int:
        """Write the answer of a round; see `Store.record_round`. `packed` as in `record_answer`."""
        answer_id = self.gate.find_round(checkpoint.step_id, root_id, number)
        if answer_id is None:
            answer_id = self.add_answer(checkpoint, packed)
            self.gate.add_round(root_id, number, answer_id)
        return answer_id

    def add_answer(
        self, checkpoint: Checkpoint, packed: Packed | None, *, is_paid: bool = True
    ) -> int:
        """Write an answer, and what it adds to its session; return its id. `is_paid`: a model was
        asked for it, here."""
        step_id, answer = checkpoint.step_id, checkpoint.answer
        # Nothing is quoted from a large answer: each look at the text would unpack all of it.
        raw = b"" if packed else answer_raw(answer)
        text = readable(checkpoint.text)
        quote = find_quote(raw, text)
        usage = clamp_usage(checkpoint.usage)
        cost = None if checkpoint.cost_microusd is None else clamp(checkpoint.cost_microusd)
        answer_id = self._insert(
            self._ADD_ANSWER,
            (
                step_id,
                checkpoint.answered_ms,
                readable(checkpoint.provider),
                readable(checkpoint.model),
                maybe_readable(checkpoint.response_id),
                maybe_readable(checkpoint.finish_reason),
                *usage_columns(usage),
                checkpoint.usage_estimated,
                cost,
                checkpoint.latency_ms,
                checkpoint.first_content_ms,
                answer.status,
                answer.form,
                answer.is_sealed,
                "" if quote else text,
                *(quote or (None, None)),
                *pack(answer.pace),
                *(packed or pack(raw)),
            ),
        )
        if is_paid:
            self.budget.note_calls(step_id, checkpoint.calls)
        sums = sums_of(usage, cost)
        self.budget.add_up(step_id, sums, checkpoint.answered_ms, paid_steps=1, is_paid=is_paid)
        self._add_tool_calls(step_id, answer_id, checkpoint.tool_calls, raw)
        if checkpoint.is_censored:
            self._execute(self._CENSOR, (answer_id,))
        self._attempts.add(step_id, checkpoint.attempts)
        return answer_id

    _FIND_ANSWER = """
        select answer.id, answer.input_tokens, answer.output_tokens, answer.cost_microusd
        from step
        join answer on answer.id = coalesce(?, step.answer_id) and answer.step_id = step.id
          and answer.taken_back_ms is null
        where step.id = ?
        """

    _ADD_TAIL = """
        insert into answer_tail (answer_id, position, pace, size, content)
        values (
          ?, (select coalesce(max(position) + 1, 0) from answer_tail where answer_id = ?), ?, ?, ?
        )
        """

    _SEAL_ANSWER = "update answer set is_sealed = 1 where id = ?"

    _CORRECT_USAGE = """
        update answer
        set
          input_tokens = ?, output_tokens = ?, cached_tokens = ?, cache_write_tokens = ?,
          reasoning_tokens = ?, usage_estimated = ?, cost_microusd = ?
        where id = ?
        """

    def append_tail(self, tail: Tail) -> None:
        """Write what came after an answer's completing frame; see `Store.append_tail`."""
        row = self._execute(self._FIND_ANSWER, (tail.answer_id, tail.step_id)).fetchone()
        if row is None:
            raise NotFound(f"Step {tail.step_id} has no answer to append to.")
        answer_id, *before = row
        if tail.content or tail.pace:
            place = (answer_id, answer_id, tail.pace)
            self._execute(self._ADD_TAIL, (*place, *pack(tail.content)))
        if tail.seals:
            self._execute(self._SEAL_ANSWER, (answer_id,))
        if tail.usage is not None:
            usage = clamp_usage(tail.usage)
            cost = None if tail.cost_microusd is None else clamp(tail.cost_microusd)
            corrected = (*usage_columns(usage), tail.usage_estimated, cost, answer_id)
            self._execute(self._CORRECT_USAGE, corrected)
            sums = zip(sums_of(usage, cost), column_sums(*before), strict=True)
            self.budget.add_up(tail.step_id, [now - then for now, then in sums])

    _ADD_TOOL_CALL = """
        insert into tool_call (
          session_id, answer_id, choice, position, call_id, name, kind, quote_offset, quote_length,
          size, arguments
        )
        values ((select session_id from step where id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """

    def _add_tool_calls(
        self, step_id: int, answer_id: int, calls: Iterable[tuple[int, ToolCall]], raw: bytes
    ) -> None:
        for choice, call in calls:
            place = (step_id, answer_id, choice, call.position)
            names = (maybe_readable(call.call_id), readable(call.name), readable(call.kind))
            quote = find_quote(raw, call.arguments)
            arguments: Sequence[object] = (*(quote or (None, None)), None, None)
            if quote is None:
                arguments = (None, None, *pack_text(call.arguments))
            self._execute(self._ADD_TOOL_CALL, (*place, *names, *arguments))

    # --- failures ---------------------------------------------------------------------------

    _READ_CLAIM = """
        select step.is_claim_answered, answer.id, answer.input_tokens, answer.output_tokens,
          answer.cost_microusd
        from step
        left join answer on answer.id = step.answer_id
        where step.id = ?
        """

    _TAKE_BACK = "update answer set taken_back_ms = ? where id = ?"

    _STANDING_ANSWER = """
        select max(id)
        from answer
        where step_id = ? and taken_back_ms is null
          and not exists (select * from round where answer_id = answer.id)
          and not exists (select * from set_aside where answer_id = answer.id)
        """

    _END_CLAIM = """
        update step
        set state = ?, answer_id = ?, is_claim_answered = 0
        where id = ?
        """

    def record_failure(self, step_id: int, attempts: Sequence[Attempt], failed_ms: int) -> None:
        """Write that a claim came to nothing; see `Store.record_failure`."""
        row = self._execute(self._READ_CLAIM, (step_id,)).fetchone()
        if row is None:
            raise NotFound(f"There is no step with the id {step_id}.")
        is_claim_answered, answer_id, *counted = row
        sums = column_sums(*counted) if is_claim_answered else (0, 0, 0, 0)
        if is_claim_answered:
            self._execute(self._TAKE_BACK, (failed_ms, answer_id))
        (standing_id,) = self._execute(self._STANDING_ANSWER, (step_id,)).fetchone()
        state = "failed" if standing_id is None else "complete"
        self._execute(self._END_CLAIM, (state, standing_id or answer_id, step_id))
        self._attempts.add(step_id, attempts)
        taken_count = 1 if is_claim_answered else 0
        if taken_count:
            self.budget.forget_calls(step_id)
        self.budget.add_up(step_id, [-count for count in sums], failed_ms, paid_steps=-taken_count)

    _COUNT_LOST = """
        select count(*)
        from step
        join session on session.id = step.session_id
        left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
        where step.state = 'in_flight' and answer.id is null
        """

    _END_LOST = """
        update step
        set state =
          case
            when exists (select * from answer where id = step.answer_id and taken_back_ms is null)
            then 'complete'
            else 'interrupted'
          end
        where state = 'in_flight'
        """

    def mark_interrupted(self) -> int:
        """End claims and forks of a dead process; return how many have no answer from before."""
        (lost_count,) = self._execute(self._COUNT_LOST).fetchone()
        self._execute(self._END_LOST)
        self.forks.abandon_all()
        return int(lost_count)

    # --- replays ----------------------------------------------------------------------------

    def note_replays(self, sums: NoteSums) -> None:
        """Write what was noted; steps and sessions that are gone are passed over."""
        self._replays.note(sums)

    _STEP_EXISTS = "select exists (select * from step where id = ?)"

    _ADD_SERVED = """
        insert into served (run_id, step_id, call_id, at_ms)
        values (?, ?, ?, ?)
        on conflict do update
        set call_id = excluded.call_id, at_ms = excluded.at_ms, is_delivered = 0
        """

    def record_served(self, served: Served, session: str, run_id: str) -> None:
        """Write that a run was served a step; see `Store.record_served`."""
        session_id = self._session_and_step(session, served.step_id)
        row = (self._run(session_id, run_id), served.step_id, served.call_id, served.at_ms)
        self._execute(self._ADD_SERVED, row)

    _DELIVER = """
        update served
        set is_delivered = 1
        where step_id = ? and run_id = (
          select run.id
          from session
          join run on run.session_id = session.id
          where session.name = ? and run.name = ?
        )
        """

    def note_delivered(self, session: str, run_id: str, step_id: int) -> None:
        """Write that it arrived; what is gone is passed over."""
        self._execute(self._DELIVER, (step_id, session, run_id))

    _ADD_ALIAS = """
        insert into alias (session_id, exact, step_id)
        values (?, ?, ?)
        on conflict do nothing
        """

    def record_alias(self, session: str, exact: bytes, step_id: int) -> None:
        """Write an alias; see `Store.record_alias`."""
        session_id = self._session_and_step(session, step_id)
        self._execute(self._ADD_ALIAS, (session_id, exact, step_id))

    def _session_and_step(self, session: str, step_id: int) -> int:
        row = self._execute(self._FIND_SESSION, (session,)).fetchone()
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        (exists,) = self._execute(self._IS_STEP_OF, (step_id, row[0])).fetchone()
        if not exists:
            raise NotFound(f"Step {step_id} is no step of session {shorten(session)!r}.")
        return int(row[0])

    # --- the disk ---------------------------------------------------------------------------

    _PULSE = "update pulse set checked_ms = ? where id = 1"

    def check(self, at_ms: int) -> None:
        """Write something, to prove that it can be done."""
        self._execute(self._PULSE, (at_ms,))

    # --- shared -----------------------------------------------------------------------------

    def _insert(self, statement: str, values: Sequence[object]) -> int:
        row_id = self._execute(statement, values).lastrowid
        assert row_id is not None, "an insert has a row id"
        return row_id
