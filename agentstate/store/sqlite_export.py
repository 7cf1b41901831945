"""Export's part of the SQLite store: all of it reads in a thread. SQL: `sqlite_export_read.py`.

As in `sqlite.py`, which builds on it, what is said here is where each method runs.
"""

from __future__ import annotations

from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.lineage import Lineage
from agentstate.ground.records import SessionPage
from agentstate.store import sqlite_export_read as export_read
from agentstate.store.sqlite_readers import Readers


class SqliteExport:
    """The methods of `Store` about export. Belongs to the event loop that opened its parts."""

    _readers: Readers

    async def walk_sessions(self, after: str | None, limit: int) -> SessionPage:
        """See `ExportStore.walk_sessions`."""
        return await self._readers.aside(
            lambda reader: export_read.walk_sessions(reader, after, limit, now_ms())
        )

    async def list_lineage(self, session: str, after: int, limit: int) -> tuple[Lineage, ...]:
        """See `ExportStore.list_lineage`."""
        return await self._readers.aside(
            lambda reader: export_read.list_lineage(reader, session, after, limit)
        )

    async def list_places(self, place: int, limit: int) -> tuple[int, ...]:
        """See `ExportStore.list_places`."""
        return await self._readers.aside(
            lambda reader: export_read.list_places(reader, place, limit)
        )

    async def read_messages(self, places: tuple[int, ...]) -> tuple[JSON, ...]:
        """See `ExportStore.read_messages`."""
        return await self._readers.aside(lambda reader: export_read.read_messages(reader, places))

    async def list_answers(self, step_id: int) -> tuple[int, ...]:
        """See `ExportStore.list_answers`."""
        return await self._readers.aside(lambda reader: export_read.list_answers(reader, step_id))
