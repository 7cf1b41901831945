"""Durable tool calls in the SQLite store.

As in `sqlite.py`, which builds on it, what is said here is where each method runs. SQL is in
`sqlite_durable_record.py` and `sqlite_durable_read.py`. All that writes is synced: after a begin
the tool acts, and after a report its agent goes on.
"""

from __future__ import annotations

from agentstate.ground.approvals import Approval
from agentstate.ground.durable import Begin, Begun, DurableCall, DurablePage, Report, Settlement
from agentstate.ground.records import Query
from agentstate.store import sqlite_durable_read as durable_read
from agentstate.store.sqlite_gate import SqliteGate
from agentstate.store.sqlite_pack import Packed


class SqliteDurable(SqliteGate):
    """The methods of `Store` about durable calls. Belongs to the event loop that opened its
    parts."""

    async def begin_durable(self, begin: Begin) -> Begun:
        """See `Store.begin_durable`."""
        packed, told = await self._pack_one(begin.arguments), self._subscriptions
        return await self._writer.write(
            lambda recorder: recorder.durable.begin(begin, packed, told), is_durable=True
        )

    async def report_durable(
        self, session: str, call: str, report: Report, *, at_ms: int
    ) -> DurableCall:
        """See `Store.report_durable`."""
        packed, told = await self._pack_one(report.value), self._subscriptions
        return await self._writer.write(
            lambda recorder: recorder.durable.report(session, call, report, at_ms, packed, told),
            is_durable=True,
        )

    async def settle_durable(
        self, session: str, call: str, settlement: Settlement, *, at_ms: int
    ) -> DurableCall:
        """See `Store.settle_durable`."""
        packed = await self._pack_one(settlement.value or "")
        return await self._writer.write(
            lambda recorder: recorder.durable.settle(session, call, settlement, at_ms, packed),
            is_durable=True,
        )

    async def forget_durable(
        self,
        session: str,
        call: str,
        *,
        at_ms: int,
        by: str | None = None,
        reason: str | None = None,
    ) -> DurableCall:
        """See `Store.forget_durable`."""
        return await self._writer.write(
            lambda recorder: recorder.durable.forget(session, call, at_ms, by, reason),
            is_durable=True,
        )

    async def read_durable(self, call: str) -> DurableCall | None:
        """See `Store.read_durable`."""
        return await self._readers.aside(lambda reader: durable_read.read_durable(reader, call))

    async def list_durables(self, query: Query) -> DurablePage:
        """See `Store.list_durables`."""
        return await self._readers.aside(lambda reader: durable_read.list_durables(reader, query))

    async def list_let_out(self, session: str, tool: str) -> tuple[Approval, ...]:
        """See `Store.list_let_out`."""
        return await self._readers.aside(
            lambda reader: durable_read.list_let_out(reader, session, tool)
        )

    async def _pack_one(self, text: str) -> Packed | None:
        packed = await self._pack_large([text])
        return None if packed is None else packed[0]
