"""What the dictionary store keeps, and how its parts look things up.

They build on each other: `Rows` here, `MemoryEvents`, `MemoryGate`, `MemoryStore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agentstate.ground.approvals import Approval, Decision, Question, Release
from agentstate.ground.chat import Usage
from agentstate.ground.errors import NotFound, StoreError
from agentstate.ground.records import (
    Attempt,
    Checkpoint,
    Claim,
    Query,
    RecordedAnswer,
    Served,
    SessionStatus,
    StepState,
)
from agentstate.store.base import (
    check_limit,
    clamp,
    clamp_usage,
    make_cursor,
    read_cursor,
    readable,
)

_Row = TypeVar("_Row")


@dataclass(slots=True)
class KeptAnswer:
    """An answer, of a step or of a round."""

    answer_id: int
    checkpoint: Checkpoint
    recorded: RecordedAnswer
    usage: Usage | None
    usage_estimated: bool
    cost_microusd: int | None
    is_taken_back: bool = False
    delivered: RecordedAnswer | None = None  # None = the answer itself, or nothing yet
    releases: list[Release] = field(default_factory=list)


@dataclass(slots=True)
class KeptStep:
    """A step with all it has ever got."""

    step_id: int
    session: KeptSession
    index: int
    step_number: int
    claim: Claim  # the last one
    state: StepState = "in_flight"
    is_claim_answered: bool = False  # the last answer came from the last claim
    answers: list[KeptAnswer] = field(default_factory=list)
    rounds: dict[tuple[int, int], KeptAnswer] = field(default_factory=dict)  # by root, number
    attempts: list[Attempt] = field(default_factory=list)
    replays: int = 0
    replayed_ms: int | None = None
    saved_microusd: int = 0

    def standing(self) -> KeptAnswer | None:
        """The answer that replays."""
        return next((one for one in reversed(self.answers) if not one.is_taken_back), None)

    def shown(self) -> KeptAnswer | None:
        """The answer to look at: the standing one, else what was taken back."""
        return self.standing() or (self.answers[-1] if self.answers else None)


@dataclass(slots=True)
class KeptApproval:
    """A question with its decision."""

    approval_id: str
    number: int  # order of first asking, from 1
    step: KeptStep
    answer_id: int | None
    question: Question
    created_ms: int
    asked_ms: int
    decision: Decision | None = None
    decided_ms: int | None = None


@dataclass(slots=True)
class KeptSession:
    """A session with its steps."""

    session_id: int
    name: str
    created_ms: int
    updated_ms: int
    steps: list[KeptStep] = field(default_factory=list)
    approvals: list[KeptApproval] = field(default_factory=list)
    stored_status: SessionStatus = "RUNNING"  # FAILED and COMPLETED: and nothing was claimed since
    idle_ms: int | None = None  # the last activity when it was found idle; None = it never was
    served: dict[str, dict[int, Served]] = field(default_factory=dict)  # by run id, step id
    aliases: dict[bytes, set[int]] = field(default_factory=dict)  # fingerprint → step ids
    replays: int = 0
    saved_microusd: int = 0

    def touch(self, at_ms: int) -> None:
        self.updated_ms = max(self.updated_ms, at_ms)

    def status(self, at_ms: int) -> SessionStatus:
        for approval in self.approvals:
            deadline_ms = approval.question.deadline_ms
            if approval.decision is None and (deadline_ms is None or deadline_ms > at_ms):
                return "WAITING"
        return self.stored_status


class Rows:
    """The dictionaries."""

    def __init__(self) -> None:
        self._sessions: dict[str, KeptSession] = {}
        self._steps: dict[int, KeptStep] = {}
        self._answers: dict[int, KeptAnswer] = {}
        self._approvals: dict[str, KeptApproval] = {}
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("The record is closed.")

    def _session(self, session: str) -> KeptSession:
        if session not in self._sessions:
            raise NotFound(f"There is no session {session!r}.")
        return self._sessions[session]

    def _step(self, step_id: int) -> KeptStep:
        if step_id not in self._steps:
            raise NotFound(f"There is no step with the id {step_id}.")
        return self._steps[step_id]

    def _answer(self, answer_id: int) -> KeptAnswer:
        if answer_id not in self._answers:
            raise NotFound(f"There is no answer with the id {answer_id}.")
        return self._answers[answer_id]

    def _add_answer(self, step: KeptStep, checkpoint: Checkpoint) -> KeptAnswer:
        """Keep an answer, and the attempts that led to it."""
        cost = checkpoint.cost_microusd
        answer = KeptAnswer(
            answer_id=len(self._answers) + 1,
            checkpoint=checkpoint,
            recorded=checkpoint.answer,
            usage=clamp_usage(checkpoint.usage),
            usage_estimated=checkpoint.usage_estimated,
            cost_microusd=None if cost is None else clamp(cost),
        )
        self._answers[answer.answer_id] = answer
        step.attempts += map(readable_attempt, checkpoint.attempts)
        step.session.touch(checkpoint.answered_ms)
        return answer


def cut_page(
    rows: Sequence[tuple[tuple[int, ...], _Row]], query: Query, *, cursor_size: int
) -> tuple[tuple[_Row, ...], str | None]:
    """Sort rows by their place and cut out one page of them."""
    limit = check_limit(query)
    after = read_cursor(query.after, cursor_size)
    rows = sorted(rows, key=lambda row: row[0], reverse=query.newest_first)
    if after is not None:
        rows = [row for row in rows if (row[0] < after if query.newest_first else row[0] > after)]
    cursor = make_cursor(*rows[limit - 1][0]) if len(rows) > limit else None
    return tuple(row for _, row in rows[:limit]), cursor


def readable_attempt(attempt: Attempt) -> Attempt:
    """Return an attempt whose text can be shown."""
    return replace(
        attempt,
        provider=readable(attempt.provider),
        model=readable(attempt.model),
        error=maybe_readable(attempt.error),
        dropped=tuple(map(readable, attempt.dropped)),
    )


def maybe_readable(text: str | None) -> str | None:
    """As `readable`; None stays None."""
    return None if text is None else readable(text)


def shown_approval(kept: KeptApproval, answer: KeptAnswer | None) -> Approval:
    """Return an approval as callers see it; `answer` is the one it is bound to."""
    claim = kept.step.claim
    return Approval(
        approval_id=kept.approval_id,
        session=kept.step.session.name,
        step_id=kept.step.step_id,
        step_number=kept.step.step_number,
        index=kept.step.index,
        answer_id=kept.answer_id,
        dialect=claim.dialect,
        model=readable(claim.model if answer is None else answer.checkpoint.model),
        run_id=claim.run_id,
        question=kept.question,
        created_ms=kept.created_ms,
        asked_ms=kept.asked_ms,
        decision=kept.decision,
        decided_ms=kept.decided_ms,
    )
