"""Making room in the dictionary store. A part of `MemoryStore`."""

from __future__ import annotations

from agentstate.ground.retention import KEEP_TAG, Quiet
from agentstate.store.memory_forks import MemoryForks
from agentstate.store.memory_rows import KeptSession

_OPEN_STATES = ("asked", "ready", "running", "unknown")


class MemoryRetention(MemoryForks):
    """The methods of `Store` about making room."""

    async def list_quiet(self, *, quiet_since_ms: int, at_ms: int, limit: int) -> tuple[Quiet, ...]:
        """See `Store.list_quiet`."""
        self._check_open()
        found = sorted(
            (session.updated_ms, session.session_id, session)
            for session in self._sessions.values()
            if self._may_go(session, quiet_since_ms, at_ms)
        )
        return tuple(
            Quiet(session.name, session.updated_ms, len(session.steps))
            for _, _, session in found[:limit]
        )

    async def retire_session(self, quiet: Quiet, *, quiet_since_ms: int, at_ms: int) -> bool:
        """See `Store.retire_session`."""
        self._check_open()
        session = self._sessions.get(quiet.session)
        if (
            session is None
            or session.updated_ms != quiet.updated_ms
            or not self._may_go(session, quiet_since_ms, at_ms)
        ):
            return False
        await self.delete_session(quiet.session)
        return True

    def _may_go(self, session: KeptSession, quiet_since_ms: int, at_ms: int) -> bool:
        return (
            session.updated_ms < quiet_since_ms
            and session.status(at_ms) not in ("WAITING", "PAUSED")
            and KEEP_TAG not in session.tags
            and not any(step.state == "in_flight" for step in session.steps)
            and not any(
                kept.row.session == session.name
                and kept.row.state in _OPEN_STATES
                and kept.row.forgotten_ms is None
                for kept in self._durables
            )
        )
