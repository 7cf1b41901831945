"""What the writer thread runs for the gate: approvals, decisions, rounds, what went out instead.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. The counterpart that reads is `sqlite_gate_read.py`. Events are written with
what they tell of, in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agentstate.ground.approvals import Approval, Decision, Earlier, Question
from agentstate.ground.errors import NotFound
from agentstate.ground.events import Subscription
from agentstate.ground.records import RecordedAnswer
from agentstate.store.approvals import (
    already_decided,
    fails_session,
    new_approval_id,
    no_approval,
    readable_decision,
    readable_question,
    why_failed,
)
from agentstate.store.base import readable
from agentstate.store.events import decided_event, failed_event, required_event
from agentstate.store.forks import with_earlier
from agentstate.store.sqlite_budget_record import BudgetRecorder
from agentstate.store.sqlite_events_record import EventRecorder
from agentstate.store.sqlite_gate_read import read_approval
from agentstate.store.sqlite_pack import Packed, answer_raw, pack, pack_text
from agentstate.store.sqlite_precedents import encode_earlier, find_earlier


class GateRecorder:
    """The gate's writing methods, bound to the writing connection."""

    def __init__(
        self, connection: sqlite3.Connection, events: EventRecorder, budget: BudgetRecorder
    ) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute
        self._events = events
        self._budget = budget

    # --- approvals --------------------------------------------------------------------------

    _FIND_SESSION = """
        select session_id
        from step
        join session on session.id = step.session_id
        where step.id = :step_id and (
          :answer_id is null
          or exists (select * from answer where id = :answer_id and step_id = step.id)
        )
        """

    def open_approvals(
        self,
        step_id: int,
        answer_id: int | None,
        questions: Sequence[Question],
        at_ms: int,
        packed: Sequence[Packed] | None = None,
        subscriptions: Sequence[Subscription] = (),
    ) -> tuple[Approval, ...]:
        """Find or make approvals; see `Store.open_approvals`.

        `packed`: the arguments of each question, if they are large. None = pack them here.
        `subscriptions`: who is told of those that are made or opened again.
        """
        place = {"step_id": step_id, "answer_id": answer_id}
        row = self._execute(self._FIND_SESSION, place).fetchone()
        if row is None:
            answer = "" if answer_id is None else f" with the answer {answer_id}"
            raise NotFound(f"There is no step {step_id}{answer}.")
        changes_before = self._connection.total_changes
        approvals: list[Approval] = []
        for number, question in enumerate(questions):
            name, is_asked = self._open(
                (*row, step_id, answer_id),
                readable_question(question),
                at_ms,
                packed[number] if packed else None,
            )
            approvals.append(self.read(name))
            if is_asked:
                self._events.write(required_event(approvals[-1]), subscriptions)
        if self._connection.total_changes != changes_before:
            self._execute(self._TOUCH_SESSION, (at_ms, *row))
        return tuple(approvals)

    _TOUCH_SESSION = "update session set updated_ms = max(updated_ms, ?) where id = ?"

    _FIND_FOR_ANSWER = """
        select name, is_approved is null
          and (coalesce(deadline_ms <= :at_ms, 0) or is_quiet > :is_quiet)
        from approval
        where answer_id = :answer_id and choice = :choice and position = :position and kind = :kind
          and digest = :digest and generation = :generation
        """

    _FIND_FOR_REQUEST = """
        select name, is_approved is null
          and (coalesce(deadline_ms <= :at_ms, 0) or is_quiet > :is_quiet)
        from approval
        where answer_id is null and step_id = :step_id and kind = :kind and digest = :digest
          and generation = :generation
        """

    # Whichever call asks: it is about the session.
    _FIND_FOR_BUDGET = """
        select name, is_approved is null
          and (coalesce(deadline_ms <= :at_ms, 0) or is_quiet > :is_quiet)
        from approval
        join step on step.id = approval.step_id
        where approval.session_id = :session_id and kind = 'budget' and digest = :digest
          and step.rolled_back_ms is null
        """

    _REOPEN = """
        update approval
        set deadline_ms = ?, asked_ms = ?, is_quiet = min(is_quiet, ?)
        where name = ?
        """

    _ADD_APPROVAL = """
        insert into approval (
          name, session_id, step_id, answer_id, durable_id, kind, choice, position, digest,
          generation, tool, call_id, rule, why, on_reject, deadline_ms, created_ms, asked_ms,
          is_quiet, earlier, size, arguments
        )
        values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """

    def _open(
        self,
        place: tuple[int, int, int | None],
        question: Question,
        at_ms: int,
        packed: Packed | None,
    ) -> tuple[str, bool]:
        """Return the name of the approval of a question, and whether a person is asked anew.

        `place`: session, step, answer.
        """
        session_id, step_id, answer_id = place
        binding = {
            "session_id": session_id,
            "at_ms": at_ms,
            "step_id": step_id,
            "answer_id": answer_id,
            "kind": question.kind,
            "choice": question.choice,
            "position": question.position,
            "digest": question.digest,
            "generation": question.generation,
            "is_quiet": question.is_quiet,
        }
        statement = self._FIND_FOR_REQUEST if answer_id is None else self._FIND_FOR_ANSWER
        if question.kind == "budget":
            statement = self._FIND_FOR_BUDGET
            self._budget.note_asked(session_id)
        row = self._execute(statement, binding).fetchone()
        if row is not None:
            name, is_reopened = row
            if is_reopened:
                changes = (question.deadline_ms, at_ms, question.is_quiet, name)
                self._execute(self._REOPEN, changes)
            return name, bool(is_reopened) and not question.is_quiet
        earlier = self._earlier(step_id, answer_id, question)
        if earlier is not None:
            question = with_earlier(question, earlier)
        name = self._add((*place, None), question, earlier, at_ms, packed)
        return name, not question.is_quiet

    def _add(
        self,
        place: tuple[int, int | None, int | None, int | None],
        question: Question,
        earlier: Earlier | None,
        at_ms: int,
        packed: Packed | None,
    ) -> str:
        """Write an approval; return its name. `place`: session, step, answer, durable call."""
        name = new_approval_id()
        values = (
            name,
            *place,
            question.kind,
            question.choice,
            question.position,
            question.digest,
            question.generation,
            question.tool,
            question.call_id,
            question.rule,
            question.why,
            question.on_reject,
            question.deadline_ms,
            at_ms,
            at_ms,
            question.is_quiet,
            None if earlier is None else encode_earlier(earlier),
            *(packed or pack_text(question.arguments)),
        )
        self._execute(self._ADD_APPROVAL, values)
        return name

    _PRECEDENTS = "select precedents from step where id = ?"

    def _earlier(self, step_id: int, answer_id: int | None, question: Question) -> Earlier | None:
        """Return what was decided about a call before its session was forked."""
        if answer_id is None:
            return None
        (precedents,) = self._execute(self._PRECEDENTS, (step_id,)).fetchone()
        return None if precedents is None else find_earlier(precedents, answer_id, question)

    _FIND_FOR_DURABLE = """
        select name, is_approved is null
          and (coalesce(deadline_ms <= :at_ms, 0) or is_quiet > :is_quiet)
        from approval
        where durable_id = :durable_id and generation = :generation
        """

    def open_for_durable(
        self,
        session_id: int,
        durable_id: int,
        question: Question,
        at_ms: int,
        packed: Packed | None,
        subscriptions: Sequence[Subscription],
    ) -> Approval:
        """Find or make the approval of a durable call; as `open_approvals`."""
        question = readable_question(question)
        binding = {
            "at_ms": at_ms,
            "durable_id": durable_id,
            "generation": question.generation,
            "is_quiet": question.is_quiet,
        }
        row = self._execute(self._FIND_FOR_DURABLE, binding).fetchone()
        if row is None:
            place = (session_id, None, None, durable_id)
            name, is_asked = self._add(place, question, None, at_ms, packed), True
        else:
            name, is_asked = row
            if is_asked:
                changes = (question.deadline_ms, at_ms, question.is_quiet, name)
                self._execute(self._REOPEN, changes)
        approval = self.read(name)
        if is_asked:
            self._execute(self._TOUCH_SESSION, (at_ms, session_id))
        if is_asked and not question.is_quiet:
            self._events.write(required_event(approval), subscriptions)
        return approval

    _BIND = "update approval set answer_id = ? where name = ? and answer_id is null"

    def bind(self, approval_id: str, answer_id: int) -> None:
        """Bind the approval of a request to the answer it got; one that is bound stays so."""
        self._execute(self._BIND, (answer_id, approval_id))

    _DECIDE = """
        update approval
        set
          is_approved = ?, decided_ms = ?, decided_by = ?, reason = ?, follows = ?,
          edited_size = ?, edited = ?
        where name = ? and is_approved is null
          and exists (select 1 from session where session.id = approval.session_id)
        """

    _STATUS_OF = """
        select session.status
        from approval
        join session on session.id = approval.session_id
        where approval.name = ?
        """

    _TELL_SESSION = """
        update session
        set
          status = case when :fails then 'FAILED' else status end,
          status_reason = case when :fails then :reason else status_reason end,
          status_by = case when :fails then :by else status_by end,
          status_ms = case when :fails then :at_ms else status_ms end,
          updated_ms = max(updated_ms, :at_ms)
        where id = (select session_id from approval where name = :approval_id)
        """

    def decide(
        self,
        approval_id: str,
        decision: Decision,
        at_ms: int,
        packed: Packed | None = None,
        subscriptions: Sequence[Subscription] = (),
    ) -> Approval:
        """Write a decision; see `Store.decide`.

        `packed`: the edited arguments, if large. `subscriptions`: who is told.
        """
        approval_id, decision = readable(approval_id), readable_decision(decision)
        if decision.arguments is not None and packed is None:
            packed = pack_text(decision.arguments)
        values = (
            decision.is_approved,
            at_ms,
            decision.by,
            decision.reason,
            decision.then,
            *(packed or (None, None)),
            approval_id,
        )
        if self._execute(self._DECIDE, values).rowcount == 0:
            raise already_decided(self.read(approval_id))
        (status,) = self._execute(self._STATUS_OF, (approval_id,)).fetchone()
        # A reason that stands already is nearer to the cause.
        fails = fails_session(decision) and status != "FAILED"
        approval = self.read(approval_id)
        said = {"fails": fails, "reason": why_failed(approval), "by": decision.by, "at_ms": at_ms}
        self._execute(self._TELL_SESSION, said | {"approval_id": approval_id})
        if approval.question.kind == "budget" and decision.is_approved:
            self._budget.go_on(approval)
        if not approval.question.is_quiet:
            self._events.write(decided_event(approval), subscriptions)
        if fails:
            self._events.write(failed_event(approval), subscriptions)
        return approval

    def read(self, approval_id: str) -> Approval:
        """Return an approval; raises `NotFound`."""
        approval = read_approval(self._connection, approval_id)
        if approval is None:
            raise no_approval(approval_id)
        return approval

    # --- rounds -----------------------------------------------------------------------------

    _FIND_ROOT = "select 1 from answer where id = ? and step_id = ?"

    _FIND_ROUND = "select answer_id from round where root_id = ? and number = ?"

    def find_round(self, step_id: int, root_id: int, number: int) -> int | None:
        """Return the answer of a round; None = there is none yet.

        Raises:
            NotFound: there is no such step, or `root_id` is no answer of it.
        """
        if self._execute(self._FIND_ROOT, (root_id, step_id)).fetchone() is None:
            raise NotFound(f"There is no step {step_id} with the answer {root_id}.")
        row = self._execute(self._FIND_ROUND, (root_id, number)).fetchone()
        return None if row is None else int(row[0])

    _ADD_ROUND = "insert into round (root_id, number, answer_id) values (?, ?, ?)"

    def add_round(self, root_id: int, number: int, answer_id: int) -> None:
        """Write that an answer is the one of a round."""
        self._execute(self._ADD_ROUND, (root_id, number, answer_id))

    # --- what went out ----------------------------------------------------------------------

    # What an agent got where the session was forked from; then it is decided here as well.
    _DROP_BORROWED = "delete from delivered where answer_id = ? and is_borrowed"

    _ADD_DELIVERED = """
        insert into delivered (
          answer_id, status, form, is_sealed, pace_size, pace, size, content
        )
        values (?, ?, ?, ?, ?, ?, ?, ?)
        on conflict do nothing
        """

    def record_delivered(
        self, answer_id: int, delivered: RecordedAnswer, packed: Packed | None = None
    ) -> bool:
        """Write what goes out instead of an answer; False = something was written before.

        `packed`: its `answer_raw`, for a large one. None = pack it here.

        Raises:
            NotFound: there is no such answer.
        """
        self._check_answer(answer_id)
        self._execute(self._DROP_BORROWED, (answer_id,))
        values = (
            answer_id,
            delivered.status,
            delivered.form,
            delivered.is_sealed,
            *pack(delivered.pace),
            *(packed or pack(answer_raw(delivered))),
        )
        return self._execute(self._ADD_DELIVERED, values).rowcount == 1

    _ADD_RELEASE = "insert into released (answer_id, run_name, released_ms) values (?, ?, ?)"

    def record_release(self, answer_id: int, run_id: str | None, at_ms: int) -> int:
        """Write that approved calls are about to go out; see `Store.record_release`.

        Raises:
            NotFound: there is no such answer.
        """
        self._check_answer(answer_id)
        release_id = self._execute(self._ADD_RELEASE, (answer_id, run_id, at_ms)).lastrowid
        assert release_id is not None, "an insert has a row id"
        return release_id

    _NOTE_RELEASED = "update released set is_written = 1 where id = ?"

    def note_released(self, release_id: int) -> None:
        """Write that a release went out whole; one that is gone is passed over."""
        self._execute(self._NOTE_RELEASED, (release_id,))

    _FIND_ANSWER = "select 1 from answer where id = ?"

    def _check_answer(self, answer_id: int) -> None:
        if self._execute(self._FIND_ANSWER, (answer_id,)).fetchone() is None:
            raise NotFound(f"There is no answer with the id {answer_id}.")
