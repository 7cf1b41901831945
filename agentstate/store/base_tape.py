"""The store, as far as cassettes need it: whole sessions that were recorded elsewhere.

A part of `Store` (`base.py`), whose promises hold here as well. To write a cassette the methods
that are there do.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.control import Rollback
from agentstate.ground.errors import Conflict, shorten
from agentstate.ground.tapes import TapedSession


class TapeStore(Protocol):
    """What is on record of other records."""

    async def import_sessions(
        self, sessions: tuple[TapedSession, ...], *, at_ms: int, replaces: bool, by: str | None
    ) -> tuple[Rollback, ...]:
        """Write sessions with all their steps and answers: all of them or none. Fsynced.

        Each is COMPLETED then, until its next call: nothing runs in it. One whose last answer calls
        a tool is RUNNING, since it is not at its end; nobody is told that it is silent. With
        `replaces` the steps of a session that is there are rolled back, and the new ones come after
        them; these rollbacks are returned, and can be undone like any. The session's sums show what
        it cost where it was recorded; of what it has paid here (`base_budget.py`) it is no part.

        Raises:
            Conflict: one of them is there, and `replaces` does not say what to do.
        """
        ...


def session_stands(session: str) -> Conflict:
    """Return the error that says so."""
    return Conflict(
        f"There is a session {shorten(session)!r} on record already; nothing was imported.",
        hint="Import it under another name, or say that it is to be replaced: its steps are then "
        "rolled back, which can be undone.",
    )
