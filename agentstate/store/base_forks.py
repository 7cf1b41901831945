"""The store, as far as forks and deletion need it.

A part of `Store` (`base.py`), whose promises hold here as well.

A fork has rows of its own for all it shares with the session it was forked from, so whatever
happens to either never changes the other. What was paid there is not in its sums: they count the
answers that were recorded in it. What agents were served there, and how often it was replayed, it
does not have.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from agentstate.ground.approvals import Earlier
from agentstate.ground.forks import Deletion, ForkAsk
from agentstate.ground.records import RecordedAnswer


class ForkStore(Protocol):
    """Sessions that begin as another one stood, and sessions that go."""

    async def fork_session(
        self, session: str, ask: ForkAsk, *, at_ms: int, but_not: Collection[int] = ()
    ) -> str:
        """Make a session that has the active steps of `session` before `ask.before`, under the same
        indexes and step numbers; return its name. Fsynced.

        Not those in flight, nor those of the ids in `but_not`; calls go on while it is made, and
        what they ask or answer then is not shared. Nobody sees it before all of it is there.
        Refusals of which the model was told are decided in the fork as well, with their rounds and
        what was delivered; all else that was decided is what its approvals have as `earlier`,
        unless the fork inherits it.

        Raises:
            NotFound: there is no such session.
            Conflict: the name is taken, there is no step to share, or the place is after its end.
        """
        ...

    async def read_borrowed(self, answer_id: int) -> RecordedAnswer | None:
        """Return what went out instead of an answer, here or in the session it was copied from; so
        `read_delivered`, or what that has once it is decided here too."""
        ...

    async def precedents_of(self, answer_id: int) -> tuple[Earlier, ...]:
        """Return what was decided about an answer's calls where it was copied from, and is not
        decided here by that; it allows nothing."""
        ...

    async def weigh_deletion(self, session: str) -> Deletion | None:
        """Return what `delete_session` would delete; None = there is no such session."""
        ...

    async def delete_session(self, session: str) -> Deletion:
        """Make a session be gone: no method finds it or anything of it any more, and what is still
        written to its steps raises `NotFound`. Fsynced. Its name is free.

        What it leaves on the disk is removed behind, a little at a time, also after a restart;
        `finish_removals` waits for it. Content that others refer to stays. Of its events those go
        with it that were written before, delivered or not.

        Raises:
            NotFound: there is no such session.
        """
        ...

    async def finish_removals(self) -> None:
        """Wait until nothing is left on the disk of what was deleted before.

        Raises:
            StoreError: the disk fails, or the record is closed; a restart takes it up again.
        """
        ...
