"""Tool calls and recovery in the SQLite store: all of it reads in a thread. SQL:
`sqlite_calls_read.py`.

As in `sqlite.py`, which builds on it, what is said here is where each method runs.
"""

from __future__ import annotations

from agentstate.ground.calls import Calling, Growth, Request, Standing
from agentstate.store import sqlite_calls_read as calls_read
from agentstate.store.base_calls import CallStore
from agentstate.store.sqlite_readers import Readers


class SqliteCalls(CallStore):
    """The methods of `Store` about tool calls. Belongs to the event loop that opened its parts."""

    _readers: Readers

    async def list_callings(
        self,
        session: str,
        start: tuple[int, int],
        limit: int,
        *,
        last: int | None = None,
        newest_first: bool = False,
    ) -> tuple[Calling, ...]:
        """See `CallStore.list_callings`."""
        return await self._readers.aside(
            lambda reader: calls_read.list_callings(
                reader, session, start, limit, last=last, newest_first=newest_first
            )
        )

    async def read_growth(
        self, session: str, places: tuple[int, ...], after: int, limit: int
    ) -> Growth:
        """See `CallStore.read_growth`."""
        return await self._readers.aside(
            lambda reader: calls_read.read_growth(reader, session, places, after, limit)
        )

    async def list_requests(
        self, session: str, dialect: str, after: int, limit: int
    ) -> tuple[Request, ...]:
        """See `CallStore.list_requests`."""
        return await self._readers.aside(
            lambda reader: calls_read.list_requests(reader, session, dialect, after, limit)
        )

    async def read_standing(self, session: str, open_max: int) -> Standing:
        """See `CallStore.read_standing`."""
        return await self._readers.aside(
            lambda reader: calls_read.read_standing(reader, session, open_max)
        )
