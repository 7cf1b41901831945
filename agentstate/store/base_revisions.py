"""The store, as far as edits and reruns need it: answers that a person put in place of others.

A part of `Store` (`base.py`), whose promises hold here as well.

A revision is an answer of the step. Which one stands is all that changes: the others keep what they
have, and a restore (`base_control.py`) brings them back. Approvals of an answer that does not stand
because a person put another in its place are shown as rolled back: nobody waits for them.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.control import Ranges, Rollback
from agentstate.ground.records import Attempt, Checkpoint
from agentstate.ground.revisions import AnswerRow, Link, Placed, Revised, Revision


class RevisionStore(Protocol):
    """What is on record of edits and reruns."""

    async def revise(
        self, checkpoint: Checkpoint, revision: Revision, *, taken: Ranges, seen: int, at_ms: int
    ) -> Rollback | None:
        """Commit an answer that stands from now on, and make steps inactive that go on from the one
        it replaces; fsynced.

        `taken` are indexes, of which those that are active count. `seen`: how many steps the
        session had when they were worked out; None = it has more by now, and nothing was changed.

        A session that is COMPLETED stays so where no step is taken back or returned and the last
        answer calls no tool: its run is at its end yet. Else it is RUNNING, also if it is FAILED.

        Raises:
            NotFound: there is no such step.
            Conflict: it is rolled back or in flight, or `revision.replaces_id` does not stand.
        """
        ...

    async def record_attempts(self, step_id: int, attempts: tuple[Attempt, ...]) -> None:
        """Write tries that came to nothing and change nothing: the answer that stands stands.

        Raises:
            NotFound: there is no such step.
        """
        ...

    async def answers_of(self, step_id: int) -> tuple[AnswerRow, ...]:
        """Return the answers a step has had, rounds left out, in order."""
        ...

    async def read_revision(self, answer_id: int) -> Revision | None:
        """Return a revision with what its model was asked; None = the answer is none."""
        ...

    async def list_revised(self, session: str) -> tuple[Revised, ...]:
        """Return the active steps that have a revision, by index. Asked by every new call, so it
        costs next to nothing where there is none."""
        ...

    async def find_answered(self, session: str, response_id: str) -> Link | None:
        """Return the step that had an answer of this id of the provider's: the last active one,
        else the last one."""
        ...

    async def list_placed(self, session: str, after: int, limit: int) -> tuple[Placed, ...]:
        """Return all steps of `session` by index from `after` + 1 on."""
        ...
