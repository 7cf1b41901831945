"""Cassettes in the SQLite store. SQL is in `sqlite_tape_record.py`.

As in `sqlite.py`, which builds on it, what is said here is where each method runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from agentstate.ground.control import Rollback
from agentstate.ground.tapes import TapedSession
from agentstate.store.sqlite_keys import KeyIndex
from agentstate.store.sqlite_tape_record import import_sessions
from agentstate.store.sqlite_writer import GroupWriter


class SqliteTape:
    """The methods of `Store` about cassettes. Belongs to the event loop that opened its parts."""

    _writer: GroupWriter
    _keys: KeyIndex
    _write_notes: Callable[[], Awaitable[None]]  # has what was noted of replays on the disk

    async def import_sessions(
        self, sessions: tuple[TapedSession, ...], *, at_ms: int, replaces: bool, by: str | None
    ) -> tuple[Rollback, ...]:
        """See `TapeStore.import_sessions`."""
        await self._write_notes()
        with ExitStack() as stack:
            for taped in sessions:
                stack.enter_context(self._keys.writing(taped.session))
                for step in taped.steps:
                    self._keys.add_step(taped.session, step.claim.identity)
            return await self._writer.write(
                lambda recorder: import_sessions(recorder, sessions, at_ms, replaces, by),
                is_durable=True,
            )
