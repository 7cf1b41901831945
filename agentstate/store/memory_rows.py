"""What the dictionary store keeps, and how its parts look things up.

They build on each other: `Rows` here, `MemoryEvents`, `MemoryGate`, `MemoryStore`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agentstate.ground.approvals import Approval, Decision, Earlier, Question, Release
from agentstate.ground.budget import NO_CAPS, Caps
from agentstate.ground.chat import Usage
from agentstate.ground.control import About, Pause, Rollback
from agentstate.ground.errors import NotFound, StoreError
from agentstate.ground.forks import Origin
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
from agentstate.ground.revisions import Revision
from agentstate.store.base import (
    check_limit,
    clamp,
    clamp_usage,
    make_cursor,
    read_cursor,
    readable,
)
from agentstate.store.events import readable_error

_Row = TypeVar("_Row")


def _tell_nobody(session: str) -> None:
    """Nobody is to be told."""


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
    is_shared: bool = False  # it was paid in the session that this one was forked from
    copied_from: int | None = None  # the answer it is a copy of; None = it is none
    is_borrowed: bool = False  # `delivered` is what an agent got there, and is not decided here
    # What was decided there, by choice, position, kind and digest.
    earlier: dict[tuple[int, int, str, bytes], Earlier] = field(default_factory=dict)


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
    chosen: KeptAnswer | None = None  # the answer that replays unless it was taken back
    before: KeptAnswer | None = None  # the one that stood when the last claim got its own
    revisions: dict[int, Revision] = field(default_factory=dict)  # by answer
    # Answers in whose place a person has another one stand, and since when.
    replaced_ms: dict[int, int] = field(default_factory=dict)
    rounds: dict[tuple[int, int], KeptAnswer] = field(default_factory=dict)  # by root, number
    attempts: list[Attempt] = field(default_factory=list)
    replays: int = 0
    replayed_ms: int | None = None
    saved_microusd: int = 0
    rolled_back_ms: int | None = None  # None = active

    def standing(self) -> KeptAnswer | None:
        """The answer that replays."""
        return None if self.chosen is None or self.chosen.is_taken_back else self.chosen

    def shown(self) -> KeptAnswer | None:
        """The answer to look at: the standing one, else what was taken back."""
        return self.standing() or (self.answers[-1] if self.answers else None)

    def gone_ms(self, answer_id: int | None) -> int | None:
        """Since when nobody waits for what was asked about an answer; None = somebody may."""
        if self.rolled_back_ms is not None or answer_id is None:
            return self.rolled_back_ms
        roots = (root for (root, _), one in self.rounds.items() if one.answer_id == answer_id)
        return self.replaced_ms.get(next(roots, answer_id))


@dataclass(slots=True)
class KeptApproval:
    """A question with its decision."""

    approval_id: str
    number: int  # order of first asking, from 1
    session: KeptSession
    step: KeptStep | None  # None = of a durable call
    answer_id: int | None
    question: Question
    created_ms: int
    asked_ms: int
    decision: Decision | None = None
    decided_ms: int | None = None
    durable: str | None = None  # the durable call it is of; None = of a step

    @property
    def rolled_back_ms(self) -> int | None:
        """Since when nobody waits for it; None = somebody may."""
        return None if self.step is None else self.step.gone_ms(self.answer_id)


@dataclass(slots=True)
class KeptRollback:
    """A change of what replays, and which steps (by index) were active before it."""

    row: Rollback
    active_before: frozenset[int]


@dataclass(frozen=True, slots=True)
class StatusSaid:
    """Why a session stands as it does."""

    reason: str | None = None
    by: str | None = None
    at_ms: int | None = None  # None = nobody said why


@dataclass(slots=True)
class KeptBudget:
    """What a session has paid, and its own caps."""

    paid: list[KeptAnswer] = field(default_factory=list)  # those taken back included
    calls: bytes | None = None  # of the last answer
    repeats: int = 0
    row: int = 0
    set: Caps = NO_CAPS
    said: Caps = NO_CAPS
    until: Caps = NO_CAPS
    until_row: int | None = None
    changes: int = 0
    set_ms: int | None = None
    set_by: str | None = None
    is_known: bool = False  # something of it was said, set or asked

    def paid_count(self) -> int:
        return sum(not answer.is_taken_back for answer in self.paid)

    def count(self, answer: KeptAnswer) -> None:
        """Take in an answer that was just paid."""
        calls = answer.checkpoint.calls
        is_same = calls is not None and calls == self.calls
        if calls != self.calls:
            self.row = self.paid_count()
        self.repeats = 0 if calls is None else self.repeats + 1 if is_same else 1
        self.calls = calls
        self.paid.append(answer)


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
    name_shown: str | None = None  # for people; None = it has none
    parent: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    said: About | None = None  # what its agent last said of it
    pause: Pause | None = None
    rollbacks: list[KeptRollback] = field(default_factory=list)
    origin: Origin | None = None  # None = it was not forked
    status_said: StatusSaid | None = None  # None = nobody said why
    budget: KeptBudget = field(default_factory=KeptBudget)
    tell: Callable[[str], None] = _tell_nobody  # told on each touch

    @property
    def next_index(self) -> int:
        """The index of the next new step; a fork may lack some before."""
        return self.steps[-1].index + 1 if self.steps else 0

    def step_at(self, index: int) -> KeptStep | None:
        """The step of this index."""
        return next((step for step in self.steps if step.index == index), None)

    def active(self) -> list[KeptStep]:
        """The steps that were not rolled back, in order."""
        return [step for step in self.steps if step.rolled_back_ms is None]

    def touch(self, at_ms: int) -> None:
        self.updated_ms = max(self.updated_ms, at_ms)
        self.tell(self.name)

    def go_on(self) -> None:
        """Take back that it had ended."""
        if self.stored_status in ("FAILED", "COMPLETED"):
            self.stored_status, self.status_said = "RUNNING", None

    def fail(self, why: str | None, by: str | None, at_ms: int) -> bool:
        """Set it to FAILED; False = it was, and the first reason stands."""
        is_news = self.stored_status != "FAILED"
        if is_news:
            self.stored_status, self.status_said = (
                "FAILED",
                StatusSaid(readable_error(why), by, at_ms),
            )
        return is_news

    def why(self, at_ms: int) -> StatusSaid:
        """Why it stands as it does, where that is what is shown of it."""
        is_shown = self.status(at_ms) == self.stored_status
        return self.status_said if is_shown and self.status_said else StatusSaid()

    def status(self, at_ms: int) -> SessionStatus:
        if self.pause is not None:
            return "PAUSED"
        for approval in self.approvals:
            deadline_ms = approval.question.deadline_ms
            is_open = approval.decision is None and approval.rolled_back_ms is None
            if is_open and (deadline_ms is None or deadline_ms > at_ms):
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
        self._last_ids: Counter[str] = Counter()  # none is used twice, whatever is deleted
        self._tell_change: Callable[[str], None] = _tell_nobody

    def _new_id(self, kind: str) -> int:
        self._last_ids[kind] += 1
        return self._last_ids[kind]

    def _new_session(self, name: str, at_ms: int) -> KeptSession:
        return KeptSession(self._new_id("session"), name, at_ms, at_ms, tell=self._changed)

    def _changed(self, session: str) -> None:
        """Say that something was written of a session."""
        self._tell_change(session)

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

    def _add_answer(
        self, step: KeptStep, checkpoint: Checkpoint, *, is_paid: bool = True
    ) -> KeptAnswer:
        """Keep an answer, and the attempts that led to it. `is_paid`: a model was asked for it."""
        cost = checkpoint.cost_microusd
        answer = KeptAnswer(
            answer_id=self._new_id("answer"),
            checkpoint=checkpoint,
            recorded=checkpoint.answer,
            usage=clamp_usage(checkpoint.usage),
            usage_estimated=checkpoint.usage_estimated,
            cost_microusd=None if cost is None else clamp(cost),
        )
        self._answers[answer.answer_id] = answer
        step.attempts += map(readable_attempt, checkpoint.attempts)
        step.session.touch(checkpoint.answered_ms)
        if is_paid:
            step.session.budget.count(answer)
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
    step = kept.step
    claim = None if step is None else step.claim
    asked_model = "" if claim is None else claim.model
    return Approval(
        approval_id=kept.approval_id,
        session=kept.session.name,
        step_id=None if step is None else step.step_id,
        step_number=None if step is None else step.step_number,
        index=None if step is None else step.index,
        answer_id=kept.answer_id,
        dialect="" if claim is None else claim.dialect,
        model=readable(asked_model if answer is None else answer.checkpoint.model),
        run_id=None if claim is None else claim.run_id,
        question=kept.question,
        created_ms=kept.created_ms,
        asked_ms=kept.asked_ms,
        decision=kept.decision,
        decided_ms=kept.decided_ms,
        rolled_back_ms=kept.rolled_back_ms,
        earlier=None if answer is None else earlier_of(answer, kept.question),
        durable=kept.durable,
    )


def earlier_of(answer: KeptAnswer, question: Question) -> Earlier | None:
    """Return what was decided about a call where its answer was copied from."""
    place = (question.choice, question.position, question.kind, question.digest)
    return answer.earlier.get(place)


def paid_in(session: KeptSession) -> list[KeptAnswer]:
    """Return the answers that a session's sums count."""
    return [
        answer
        for step in session.steps
        for answer in (*step.answers, *step.rounds.values())
        if not (answer.is_taken_back or answer.is_shared)
    ]
