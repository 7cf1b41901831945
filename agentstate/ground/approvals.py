"""The values of the gate that cross seams: what is asked of a person, and what was decided.

Steps ask and wait, the store keeps, doors show and decide. All frozen; time is integer milliseconds
UTC (`_ms`). An approval is bound to an answer, a place in it and a digest of what is called, never
to the provider's call id, which some models repeat or leave out (DESIGN section 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Place = tuple[int, int]  # (choice index, position): names a call of an answer for good

# New arguments of a call, or None = the call is left out.
Changes = Mapping[Place, str | None]

ApprovalKind = Literal["tool_call", "text", "request", "durable", "budget"]
# tool_call  a call the model emitted               text  one that its text spells, as in ReAct
# request    a whole request, before it goes upstream
# durable    a call that a durable tool is about to carry out; it belongs to no step
# budget     a session that has come to a cap: whether it may go on, whichever call is the next

ApprovalStatus = Literal["PENDING", "APPROVED", "REJECTED", "EXPIRED"]
# EXPIRED is PENDING past its deadline: the next call that meets it opens it again.

Then = Literal["stop", "continue"]  # what follows a rejection; see DESIGN section 6


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is to be asked, before it has a row."""

    kind: ApprovalKind
    choice: int  # 0 for a request
    position: int  # order within its choice; texts count on their own; 0 for a request
    digest: bytes  # over name and canonical arguments, or over the request
    tool: str  # the name as the model spelled it; of a request: what it is for, e.g. its model
    call_id: str | None  # the provider's: shown, never trusted
    arguments: str  # exact text as sent; '' for a request
    rule: str  # which rule asks, for people, e.g. 'gate.rule 2: stripe_*'
    why: str  # why it is asked where the rule alone does not say; '' = it does
    deadline_ms: int | None  # None = never expires
    on_reject: Then = "stop"  # what a rejection means that does not say it
    # How often this place of this answer was asked about and decided before: a release to a further
    # run may be asked about anew. 0 = never.
    generation: int = 0
    is_quiet: bool = False  # a rule decides it at once: nobody is told of it, nor of the decision


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person, or a rule, said."""

    is_approved: bool
    by: str | None  # None = not given
    reason: str | None = None
    arguments: str | None = None  # edited ones; None = as the model sent them
    then: Then | None = None  # of a rejection; None = as header or setting say


@dataclass(frozen=True, slots=True)
class Earlier:
    """What was decided about a call in the session that the asking one was forked from."""

    session: str
    decision: Decision
    decided_ms: int


@dataclass(frozen=True, slots=True)
class Approval:
    """One question with its row, and its decision once there is one."""

    approval_id: str
    session: str
    step_id: int | None  # None = of a durable call, and so are the next two
    step_number: int | None
    index: int | None  # of the step
    answer_id: int | None  # None = of a request that has no answer yet
    dialect: str  # '' = of a durable call, and so is the model
    model: str
    run_id: str | None  # of the call that claimed the step
    question: Question
    created_ms: int  # first asked
    asked_ms: int  # last asked: it may have expired and been opened again
    decision: Decision | None = None  # None = not decided
    decided_ms: int | None = None
    # Since when its step is rolled back, or a person has another answer stand: then nobody waits.
    # None = somebody may.
    rolled_back_ms: int | None = None
    durable: str | None = None  # the durable call it is asked about; None = it is of a step
    # What was decided about it before the session was forked; None = nothing. It allows nothing
    # here, but arguments that were edited there are what is asked about.
    earlier: Earlier | None = None

    @property
    def proposed(self) -> str | None:
        """The arguments it goes out with unless they are edited; None = as the model sent them."""
        earlier = None if self.earlier is None else self.earlier.decision
        return earlier.arguments if earlier is not None and earlier.is_approved else None

    def status(self, at_ms: int) -> ApprovalStatus:
        """Return what it is at a time: expiry is nothing that happens, but a time that has come."""
        if self.decision is not None:
            return "APPROVED" if self.decision.is_approved else "REJECTED"
        deadline_ms = self.question.deadline_ms
        return "EXPIRED" if deadline_ms is not None and deadline_ms <= at_ms else "PENDING"


@dataclass(frozen=True, slots=True)
class ApprovalPage:
    """One page of approvals. `next_cursor` None = the last page."""

    rows: tuple[Approval, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """That the calls of an answer which a person approved went out to an agent."""

    release_id: int
    run_id: str | None  # None = the caller named no run
    released_ms: int
    is_written: bool  # whole to the client, as far as its socket can tell


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of which calls were refused and the model is told so, for the upstream history."""

    answer_id: int
    step_id: int
    root_id: int  # the first answer of the step's rounds; its own id if this is that one
    number: int  # of the round: 0 = the first answer
