"""The store, as far as control over a run needs it: rollbacks, pauses, what a session is called.

A part of `Store` (`base.py`), whose promises hold here as well.

A step that was rolled back keeps all it has and is listed as before; whatever looks for a step that
answers, or that says where a session stands, passes it over: candidates, emitters, refusals, what
waits for a decision, the highest step number, the last step. A claim never reuses its row.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.control import About, Change, Pause, Place, Rollback, Weight
from agentstate.ground.events import Event

ROLLBACKS_MAX = 1000  # of a session; the oldest goes, and can then no longer be undone


class ControlStore(Protocol):
    """What people do to a run."""

    async def roll_back(
        self, session: str, place: Place, *, at_ms: int, by: str | None = None
    ) -> Rollback | None:
        """Make the active steps from `place` on inactive, those in flight too; None = there are
        none, and nothing was changed. Fsynced.

        A session that is FAILED or COMPLETED is RUNNING then. What was paid stays counted.

        Raises:
            NotFound: there is no such session.
        """
        ...

    async def weigh_rollback(self, session: str, place: Place) -> Weight:
        """Return what `roll_back` would take back."""
        ...

    async def restore(
        self, session: str, rollback_id: int | None, *, at_ms: int, by: str | None = None
    ) -> Rollback:
        """Bring a session back to how it was just before a rollback or a restore: steps it took
        back are active again, what was recorded since is not. Fsynced. None = before the last
        rollback that is in force. Of its status holds what `revise` says.

        Raises:
            NotFound: there is no such session, or none of that id.
            Conflict: it is undone already, or (None) nothing is in force.
        """
        ...

    async def list_rollbacks(self, session: str, *, limit: int) -> tuple[Rollback, ...]:
        """Return the last rollbacks and restores of a session, the newest first."""
        ...

    async def pause(
        self, session: str, *, at_ms: int, reason: str | None = None, by: str | None = None
    ) -> None:
        """Write that calls of a session are to be held. Fsynced. Again: the time stays.

        Raises:
            NotFound: there is no such session.
        """
        ...

    async def resume(self, session: str, *, at_ms: int) -> None:
        """Write that they are no longer held; nothing if they were not. Fsynced.

        Raises:
            NotFound: there is no such session.
        """
        ...

    async def read_pause(self, session: str) -> Pause | None:
        """Return why calls of a session are held; None = they are not."""
        ...

    async def change_session(
        self,
        session: str,
        change: Change,
        *,
        at_ms: int,
        reason: str | None = None,
        by: str | None = None,
        event: Event | None = None,
    ) -> None:
        """Write what somebody changes of a session. Fsynced. `reason` and `by` stand beside the
        status, if that is changed; `event` is told if it has become another by it.

        Raises:
            NotFound: there is no such session.
            Conflict: it would have over `TAGS_MAX` tags.
        """
        ...

    async def record_about(self, session: str, about: About) -> None:
        """Write what an agent says of its session with a call that claims no step, as a claim
        writes it: nothing, if it is what the agent said last.

        Raises:
            NotFound: there is no such session.
        """
        ...
