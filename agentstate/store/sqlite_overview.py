"""The dashboard's part of the SQLite store. SQL: `sqlite_overview_read.py` and `_record.py`.

As in `sqlite.py`, which builds on it, what is said here is where each method runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentstate.ground.overview import Counts, Mark, Span
from agentstate.store import sqlite_overview_read as overview_read
from agentstate.store.base_overview import Tell
from agentstate.store.sqlite_readers import Readers
from agentstate.store.sqlite_writer import GroupWriter


class SqliteOverview:
    """The methods of `Store` for the dashboard. Belongs to the event loop that opened its parts."""

    _writer: GroupWriter
    _readers: Readers
    _write_notes: Callable[[], Awaitable[None]]  # has what was noted of replays on the disk

    def watch(self, tell: Tell) -> None:
        """See `OverviewStore.watch`."""
        self._writer.on_change = tell

    async def list_marks(self, session: str, first: int, last: int) -> tuple[Mark, ...]:
        """See `OverviewStore.list_marks`."""
        return await self._readers.aside(
            lambda reader: overview_read.list_marks(reader, session, first, last)
        )

    async def list_gaps(self, session: str) -> tuple[tuple[int, int], ...]:
        """See `OverviewStore.list_gaps`."""
        return await self._readers.aside(lambda reader: overview_read.list_gaps(reader, session))

    async def count_between(self, span: Span) -> Counts:
        """See `OverviewStore.count_between`."""
        await self._write_notes()
        return await self._readers.aside(lambda reader: overview_read.count_between(reader, span))

    async def find_first(self) -> int | None:
        """See `OverviewStore.find_first`."""
        return self._readers.here(overview_read.find_first)
