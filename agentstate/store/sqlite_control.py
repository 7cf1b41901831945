"""Control over a run in the SQLite store: rollbacks, pauses, what a session is called.

As in `sqlite.py`, which builds on it, what is said here is where each method runs. SQL is in
`sqlite_control_record.py` and `sqlite_control_read.py`.

Each call asks whether its session is paused, and most are not: which are is known in memory, since
this process is the only writer. What is kept may be too much (a pause that could not be written),
never too little.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from agentstate.ground.control import Change, Pause, Place, Rollback, Weight
from agentstate.ground.errors import StoreError
from agentstate.ground.events import Event
from agentstate.store import sqlite_control_read as control_read
from agentstate.store.sqlite_gate import SqliteGate
from agentstate.store.sqlite_keys import KeyIndex
from agentstate.store.sqlite_readers import Readers
from agentstate.store.sqlite_writer import GroupWriter

PAUSED_KEPT_MAX = 10_000  # sessions known to be paused; with more, each call asks the file


class SqliteControl(SqliteGate):
    """The methods of `Store` about control. Belongs to the event loop that opened its parts."""

    def __init__(self, writer: GroupWriter, readers: Readers, keys: KeyIndex) -> None:
        super().__init__(writer, readers, keys)
        self._paused: set[str] | None = set()  # that may be paused; None = too many to keep
        self._pausing: Counter[str] = Counter()  # pauses on their way to the file

    def _load_paused(self) -> None:
        """Read which sessions are paused, once the file is open."""
        names = self._readers.here(
            lambda reader: control_read.list_paused(reader, PAUSED_KEPT_MAX + 1)
        )
        self._paused = set(names) if len(names) <= PAUSED_KEPT_MAX else None

    # --- rollbacks --------------------------------------------------------------------------

    async def roll_back(
        self, session: str, place: Place, *, at_ms: int, by: str | None = None
    ) -> Rollback | None:
        """See `Store.roll_back`."""
        return await self._writer.write(
            lambda recorder: recorder.control.roll_back(session, place, at_ms, by), is_durable=True
        )

    async def weigh_rollback(self, session: str, place: Place) -> Weight:
        """See `Store.weigh_rollback`."""
        return await self._readers.aside(
            lambda reader: control_read.weigh_rollback(reader, session, place)
        )

    async def restore(
        self, session: str, rollback_id: int | None, *, at_ms: int, by: str | None = None
    ) -> Rollback:
        """See `Store.restore`."""
        return await self._writer.write(
            lambda recorder: recorder.control.restore(session, rollback_id, at_ms, by),
            is_durable=True,
        )

    async def list_rollbacks(self, session: str, *, limit: int) -> tuple[Rollback, ...]:
        """See `Store.list_rollbacks`."""
        return await self._readers.aside(
            lambda reader: control_read.list_rollbacks(reader, session, limit)
        )

    # --- pauses -----------------------------------------------------------------------------

    async def pause(
        self, session: str, *, at_ms: int, reason: str | None = None, by: str | None = None
    ) -> None:
        """See `Store.pause`."""
        writing = self._writer.start(
            lambda recorder: recorder.control.pause(session, at_ms, reason, by), is_durable=True
        )
        if self._paused is not None:
            self._paused.add(session)
            if len(self._paused) > PAUSED_KEPT_MAX:
                self._paused = None
        self._pausing[session] += 1
        writing.add_done_callback(lambda _: self._wrote_pause(session))
        # It is written also if the caller goes away.
        await asyncio.shield(writing)

    async def resume(self, session: str, *, at_ms: int) -> None:
        """See `Store.resume`."""
        await self._writer.write(
            lambda recorder: recorder.control.resume(session, at_ms), is_durable=True
        )
        self._forget_pause(session)

    async def read_pause(self, session: str) -> Pause | None:
        """See `Store.read_pause`."""
        is_known = self._paused is None or session in self._paused
        if not is_known and self._readers.is_open:
            return None
        return self._readers.here(lambda reader: control_read.read_pause(reader, session))

    def _wrote_pause(self, session: str) -> None:
        self._pausing[session] -= 1
        if not self._pausing[session]:
            del self._pausing[session]
        with suppress(StoreError):  # then it is kept, and the file is asked
            self._forget_pause(session)

    def _forget_pause(self, session: str) -> None:
        """Take a session that is not paused out of memory, unless it is just being paused."""
        if self._paused is None or session in self._pausing:
            return
        if self._readers.here(lambda reader: control_read.read_pause(reader, session)) is None:
            self._paused.discard(session)

    # --- what a session is called -------------------------------------------------------------

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
        """See `Store.change_session`."""
        await self._write_notes()
        told = self._subscriptions
        await self._writer.write(
            lambda recorder: recorder.control.change(
                session, change, at_ms, reason, by, event, told
            ),
            is_durable=True,
        )
