"""The gate's part of the dictionary store; `memory.py` builds on it."""

from __future__ import annotations

from dataclasses import replace

from agentstate.ground.approvals import (
    Approval,
    ApprovalPage,
    Decision,
    Question,
    Refusal,
    Release,
)
from agentstate.ground.budget import cap_of, read_more
from agentstate.ground.errors import NotFound
from agentstate.ground.records import Checkpoint, Query, RecordedAnswer
from agentstate.store.approvals import (
    already_decided,
    fails_session,
    new_approval_id,
    no_approval,
    readable_decision,
    readable_question,
    tells_model,
    why_failed,
)
from agentstate.store.events import decided_event, failed_event, required_event
from agentstate.store.forks import with_earlier
from agentstate.store.memory_events import MemoryEvents
from agentstate.store.memory_rows import (
    KeptApproval,
    KeptSession,
    KeptStep,
    cut_page,
    earlier_of,
    shown_approval,
)


class MemoryGate(MemoryEvents):
    """The methods of `Store` about the gate."""

    # --- approvals --------------------------------------------------------------------------

    async def open_approvals(
        self, step_id: int, answer_id: int | None, questions: tuple[Question, ...], *, at_ms: int
    ) -> tuple[Approval, ...]:
        """See `Store.open_approvals`."""
        self._check_open()
        step = self._step(step_id)
        if answer_id is not None:
            self._check_answer_of(step, answer_id)
        return tuple(
            self._shown(self._open(step, answer_id, readable_question(one), at_ms))
            for one in questions
        )

    async def decide(self, approval_id: str, decision: Decision, *, at_ms: int) -> Approval:
        """See `Store.decide`."""
        self._check_open()
        kept = self._approvals.get(approval_id)
        if kept is None:
            raise no_approval(approval_id)
        if kept.decision is not None:
            raise already_decided(self._shown(kept))
        if kept.question.kind == "budget" and decision.is_approved:
            arguments = decision.arguments or kept.question.arguments
            read_more(cap_of(kept.question.tool), arguments)  # raises before anything is changed
        kept.decision = readable_decision(decision)
        kept.decided_ms = at_ms
        session = kept.session
        session.touch(at_ms)
        approval = self._shown(kept)
        if not approval.question.is_quiet:
            self._tell(decided_event(approval))
        if fails_session(decision) and session.fail(why_failed(approval), kept.decision.by, at_ms):
            self._tell(failed_event(approval))
        if approval.question.kind == "budget" and decision.is_approved:
            self._go_on(session, approval)
        return approval

    def _go_on(self, session: KeptSession, approval: Approval) -> None:
        """Let a session pay for more; of `memory_budget.py`."""
        raise NotImplementedError

    async def read_approval(self, approval_id: str) -> Approval | None:
        """See `Store.read_approval`."""
        self._check_open()
        kept = self._approvals.get(approval_id)
        return None if kept is None else self._shown(kept)

    async def approvals_of(self, answer_id: int) -> tuple[Approval, ...]:
        """See `Store.approvals_of`."""
        self._check_open()
        found = [self._shown(one) for one in self._approvals.values() if one.answer_id == answer_id]
        return tuple(sorted(found, key=_place))

    async def list_approvals(self, query: Query, *, at_ms: int) -> ApprovalPage:
        """See `Store.list_approvals`."""
        self._check_open()
        rows = [
            ((one.asked_ms, one.number), self._shown(one))
            for one in self._approvals.values()
            if query.session in (None, one.session.name)
            and query.step_id in (None, one.step and one.step.step_id)
        ]
        fit = [row for row in rows if _has_status(row[1], query.status, at_ms)]
        page, cursor = cut_page(fit, query, cursor_size=2)
        return ApprovalPage(page, cursor)

    async def count_pending(self, *, at_ms: int) -> int:
        """See `Store.count_pending`."""
        self._check_open()
        shown = map(self._shown, self._approvals.values())
        return sum(one.status(at_ms) == "PENDING" and one.rolled_back_ms is None for one in shown)

    async def list_refusals(self, session: str) -> tuple[Refusal, ...]:
        """See `Store.list_refusals`."""
        self._check_open()
        found = self._sessions.get(session)
        told = {
            one.answer_id
            for one in (found.approvals if found else ())
            if one.decision is not None and tells_model(one.decision)
        }
        refusals = [
            Refusal(answer_id, step.step_id, root_id, number)
            for step in (found.active() if found else ())
            for root_id, number, answer_id in _answers_of(step)
            if answer_id in told and step.gone_ms(answer_id) is None
        ]
        return tuple(refusals)

    def _open(
        self, step: KeptStep, answer_id: int | None, question: Question, at_ms: int
    ) -> KeptApproval:
        binding = _binding(step, answer_id, question)
        if question.kind == "budget":
            step.session.budget.is_known = True
        for kept in step.session.approvals:
            if kept.step is None:
                continue
            is_gone = kept.question.kind == "budget" and kept.step.rolled_back_ms is not None
            if not is_gone and _binding(kept.step, kept.answer_id, kept.question) == binding:
                self._reopen(kept, question, at_ms)
                return kept
        if answer_id is not None:
            earlier = earlier_of(self._answer(answer_id), question)
            question = question if earlier is None else with_earlier(question, earlier)
        return self._add_approval(step.session, step, answer_id, question, at_ms, None)

    def _open_for_durable(
        self, session: KeptSession, call: str, question: Question, at_ms: int
    ) -> Approval:
        """Find or make the approval of a durable call."""
        question = readable_question(question)
        for kept in session.approvals:
            if (kept.durable, kept.question.generation) == (call, question.generation):
                self._reopen(kept, question, at_ms)
                return self._shown(kept)
        return self._shown(self._add_approval(session, None, None, question, at_ms, call))

    def _add_approval(
        self,
        session: KeptSession,
        step: KeptStep | None,
        answer_id: int | None,
        question: Question,
        at_ms: int,
        durable: str | None,
    ) -> KeptApproval:
        kept = KeptApproval(
            approval_id=new_approval_id(),
            number=self._new_id("approval"),
            session=session,
            step=step,
            answer_id=answer_id,
            question=question,
            created_ms=at_ms,
            asked_ms=at_ms,
            durable=durable,
        )
        self._approvals[kept.approval_id] = kept
        session.approvals.append(kept)
        self._ask(kept, at_ms, is_quiet=question.is_quiet)
        return kept

    def _reopen(self, kept: KeptApproval, question: Question, at_ms: int) -> None:
        is_heard_of = kept.question.is_quiet and not question.is_quiet and kept.decision is None
        if self._shown(kept).status(at_ms) == "EXPIRED" or is_heard_of:
            is_quiet = kept.question.is_quiet and question.is_quiet
            deadline_ms = question.deadline_ms
            kept.question = replace(kept.question, deadline_ms=deadline_ms, is_quiet=is_quiet)
            kept.asked_ms = at_ms
            self._ask(kept, at_ms, is_quiet=question.is_quiet)

    def _ask(self, kept: KeptApproval, at_ms: int, *, is_quiet: bool) -> None:
        kept.session.touch(at_ms)
        if not is_quiet:
            self._tell(required_event(self._shown(kept)))

    def _bind(self, approval_id: str, answer_id: int) -> None:
        kept = self._approvals.get(approval_id)
        if kept is not None and kept.answer_id is None:
            kept.answer_id = answer_id

    def _shown(self, kept: KeptApproval) -> Approval:
        answer = None if kept.answer_id is None else self._answers[kept.answer_id]
        return shown_approval(kept, answer)

    def _check_answer_of(self, step: KeptStep, answer_id: int) -> None:
        if self._answer(answer_id).checkpoint.step_id != step.step_id:
            raise NotFound(f"There is no step {step.step_id} with the answer {answer_id}.")

    # --- rounds -----------------------------------------------------------------------------

    async def record_round(self, checkpoint: Checkpoint, root_id: int, number: int) -> int:
        """See `Store.record_round`."""
        self._check_open()
        step = self._step(checkpoint.step_id)
        self._check_answer_of(step, root_id)
        if (root_id, number) not in step.rounds:
            step.rounds[root_id, number] = self._add_answer(step, checkpoint)
        return step.rounds[root_id, number].answer_id

    async def rounds_of(self, root_id: int) -> tuple[int, ...]:
        """See `Store.rounds_of`."""
        self._check_open()
        if root_id not in self._answers:
            return ()
        step = self._step(self._answers[root_id].checkpoint.step_id)
        return tuple(
            answer.answer_id
            for (root, _), answer in sorted(step.rounds.items(), key=lambda item: item[0])
            if root == root_id
        )

    async def read_answer_by_id(self, answer_id: int) -> RecordedAnswer | None:
        """See `Store.read_answer_by_id`."""
        self._check_open()
        answer = self._answers.get(answer_id)
        return None if answer is None else answer.recorded

    # --- what went out ----------------------------------------------------------------------

    async def record_delivered(self, answer_id: int, delivered: RecordedAnswer) -> RecordedAnswer:
        """See `Store.record_delivered`."""
        self._check_open()
        answer = self._answer(answer_id)
        if answer.delivered is None or answer.is_borrowed:
            answer.delivered, answer.is_borrowed = delivered, False
        return answer.delivered

    async def read_delivered(self, answer_id: int) -> RecordedAnswer | None:
        """See `Store.read_delivered`."""
        self._check_open()
        answer = self._answers.get(answer_id)
        return None if answer is None or answer.is_borrowed else answer.delivered

    async def record_release(self, answer_id: int, run_id: str | None, *, at_ms: int) -> int:
        """See `Store.record_release`."""
        self._check_open()
        answer = self._answer(answer_id)
        release_id = self._new_id("release")
        answer.releases.append(Release(release_id, run_id, at_ms, is_written=False))
        return release_id

    def note_released(self, release_id: int) -> None:
        """See `Store.note_released`."""
        for answer in self._answers.values():
            answer.releases = [
                replace(one, is_written=one.is_written or one.release_id == release_id)
                for one in answer.releases
            ]

    async def list_releases(self, answer_id: int) -> tuple[Release, ...]:
        """See `Store.list_releases`."""
        self._check_open()
        answer = self._answers.get(answer_id)
        return () if answer is None else tuple(answer.releases)


def _binding(step: KeptStep, answer_id: int | None, question: Question) -> tuple[object, ...]:
    """Return what makes a question the same one."""
    what = (question.kind, question.digest, question.generation)
    if question.kind == "budget":
        return what
    if answer_id is None:
        return (step.step_id, None, *what)
    return (answer_id, (question.choice, question.position), *what)


def _place(approval: Approval) -> tuple[int, int, int]:
    question = approval.question
    return question.choice, question.position, question.generation


def _has_status(approval: Approval, status: str | None, at_ms: int) -> bool:
    if status == "PENDING":
        return approval.decision is None and approval.rolled_back_ms is None
    return status in (None, approval.status(at_ms))


def _answers_of(step: KeptStep) -> list[tuple[int, int, int]]:
    """Return (root, number, answer) of all answers of a step; number 0 is the root itself."""
    roots = [(answer.answer_id, 0, answer.answer_id) for answer in step.answers]
    rounds = [(root, number, answer.answer_id) for (root, number), answer in step.rounds.items()]
    return sorted(roots + rounds)
