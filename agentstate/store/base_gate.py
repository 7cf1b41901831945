"""The store, as far as the gate needs it: approvals, decisions, and what was delivered.

A part of `Store` (`base.py`), whose promises hold here as well.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.approvals import (
    Approval,
    ApprovalPage,
    Decision,
    Question,
    Refusal,
    Release,
)
from agentstate.ground.records import Candidate, Checkpoint, Query, RecordedAnswer


class GateStore(Protocol):
    """What is on record of questions, decisions and deliveries."""

    async def open_approvals(
        self, step_id: int, answer_id: int | None, questions: tuple[Question, ...], *, at_ms: int
    ) -> tuple[Approval, ...]:
        """Return the approval of each question, in order; make those that have no row. Fsynced.

        A question is the same by (answer, choice, position, kind, digest, generation); with
        `answer_id` None by (step, kind, digest, generation) among those not yet bound to an answer.
        One that has expired and is not decided is opened again: same id, the question's deadline.
        So is one that was quiet, once it is asked about aloud; one that was not does not become so.

        Raises:
            NotFound: there is no such step or answer.
        """
        ...

    async def decide(self, approval_id: str, decision: Decision, *, at_ms: int) -> Approval:
        """Write a decision; the first one stands. Fsynced.

        A rejection whose `then` is not "continue" sets the session to FAILED, until its next call.

        Raises:
            NotFound: there is no such approval.
            AlreadyDecided: it has a decision; the error holds that row.
        """
        ...

    async def read_approval(self, approval_id: str) -> Approval | None:
        """Return one approval, or None."""
        ...

    async def approvals_of(self, answer_id: int) -> tuple[Approval, ...]:
        """Return the approvals of an answer, by choice, position and generation."""
        ...

    async def list_approvals(self, query: Query, *, at_ms: int) -> ApprovalPage:
        """List approvals, last asked first; `session`, `step_id` and `status` filter, the last as
        of `at_ms`. "PENDING" gives the expired and undecided ones as well, but none of a step that
        was rolled back.

        Raises:
            BadRequest: as `list_sessions`.
        """
        ...

    async def count_pending(self, *, at_ms: int) -> int:
        """Return how many approvals of active steps wait for a decision and have not expired."""
        ...

    async def find_response(self, session: str, response_id: str) -> Candidate | None:
        """Return the active step whose standing answer has this id of the provider's, or None."""
        ...

    async def record_round(self, checkpoint: Checkpoint, root_id: int, number: int) -> int:
        """Commit and fsync the answer of a round (from 1) after a refusal; return its id.

        It belongs to the step and is counted and listed like an answer, but the answer that replays
        stays `root_id`. A second one with the same number changes nothing and returns the first.

        Raises:
            NotFound: there is no such step or answer.
        """
        ...

    async def rounds_of(self, root_id: int) -> tuple[int, ...]:
        """Return the answers of the rounds after an answer, in order."""
        ...

    async def read_answer_by_id(self, answer_id: int) -> RecordedAnswer | None:
        """Return any recorded answer, its tail included, or None."""
        ...

    async def record_delivered(self, answer_id: int, delivered: RecordedAnswer) -> RecordedAnswer:
        """Write what the agent gets where it is not the answer itself; fsynced. The first one
        stands and is returned."""
        ...

    async def read_delivered(self, answer_id: int) -> RecordedAnswer | None:
        """Return what the agent got in place of an answer; None = the answer itself, or nothing
        yet."""
        ...

    async def record_release(self, answer_id: int, run_id: str | None, *, at_ms: int) -> int:
        """Write that the approved calls of an answer are about to go out to an agent; return the
        release's id. Survives a kill of the process."""
        ...

    def note_released(self, release_id: int) -> None:
        """Note that a release was written whole. Written behind; `list_releases` sees it at once.
        Never waits and never fails."""
        ...

    async def list_releases(self, answer_id: int) -> tuple[Release, ...]:
        """Return the releases of an answer, in order."""
        ...

    async def list_refusals(self, session: str) -> tuple[Refusal, ...]:
        """Return the answers of active steps that have a call which was rejected with "continue",
        by step and round."""
        ...
