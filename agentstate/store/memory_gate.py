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
)
from agentstate.store.events import decided_event, failed_event, required_event
from agentstate.store.memory_events import MemoryEvents
from agentstate.store.memory_rows import KeptApproval, KeptStep, cut_page, shown_approval


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
        kept.decision = readable_decision(decision)
        kept.decided_ms = at_ms
        session = kept.step.session
        session.touch(at_ms)
        approval = self._shown(kept)
        if not approval.question.is_quiet:
            self._tell(decided_event(approval))
        if fails_session(decision) and session.stored_status != "FAILED":
            session.stored_status = "FAILED"
            self._tell(failed_event(approval))
        return approval

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
            if query.session in (None, one.step.session.name)
            and query.step_id in (None, one.step.step_id)
        ]
        fit = [row for row in rows if _has_status(row[1], query.status, at_ms)]
        page, cursor = cut_page(fit, query, cursor_size=2)
        return ApprovalPage(page, cursor)

    async def count_pending(self, *, at_ms: int) -> int:
        """See `Store.count_pending`."""
        self._check_open()
        shown = map(self._shown, self._approvals.values())
        return sum(one.status(at_ms) == "PENDING" for one in shown)

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
            for step in (found.steps if found else ())
            for root_id, number, answer_id in _answers_of(step)
            if answer_id in told
        ]
        return tuple(refusals)

    def _open(
        self, step: KeptStep, answer_id: int | None, question: Question, at_ms: int
    ) -> KeptApproval:
        binding = _binding(step, answer_id, question)
        for kept in step.session.approvals:
            if _binding(kept.step, kept.answer_id, kept.question) == binding:
                self._reopen(kept, question, at_ms)
                return kept
        number = len(self._approvals) + 1
        kept = KeptApproval(new_approval_id(), number, step, answer_id, question, at_ms, at_ms)
        self._approvals[kept.approval_id] = kept
        step.session.approvals.append(kept)
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
        kept.step.session.touch(at_ms)
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
        if answer.delivered is None:
            answer.delivered = delivered
        return answer.delivered

    async def read_delivered(self, answer_id: int) -> RecordedAnswer | None:
        """See `Store.read_delivered`."""
        self._check_open()
        answer = self._answers.get(answer_id)
        return None if answer is None else answer.delivered

    async def record_release(self, answer_id: int, run_id: str | None, *, at_ms: int) -> int:
        """See `Store.record_release`."""
        self._check_open()
        answer = self._answer(answer_id)
        release_id = 1 + sum(len(one.releases) for one in self._answers.values())
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
    if answer_id is None:
        return (step.step_id, None, *what)
    return (answer_id, (question.choice, question.position), *what)


def _place(approval: Approval) -> tuple[int, int, int]:
    question = approval.question
    return question.choice, question.position, question.generation


def _has_status(approval: Approval, status: str | None, at_ms: int) -> bool:
    is_undecided = approval.decision is None
    return status in (None, approval.status(at_ms)) or (status == "PENDING" and is_undecided)


def _answers_of(step: KeptStep) -> list[tuple[int, int, int]]:
    """Return (root, number, answer) of all answers of a step; number 0 is the root itself."""
    roots = [(answer.answer_id, 0, answer.answer_id) for answer in step.answers]
    rounds = [(root, number, answer.answer_id) for (root, number), answer in step.rounds.items()]
    return sorted(roots + rounds)
