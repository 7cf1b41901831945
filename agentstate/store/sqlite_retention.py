"""Making room in the SQLite store: which sessions may go, and how one goes.

As in `sqlite.py`, which builds on it, what is said here is where each method runs; with its SQL,
which is one condition. What a session leaves on the disk is removed as after any deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agentstate.ground.retention import KEEP_TAG, Quiet
from agentstate.store.sqlite_forks import SqliteForks
from agentstate.store.sqlite_record import Recorder

# Claims in flight and open questions are few at any time, and each has an index of its own.
_MAY_GO = f"""
    updated_ms < :quiet_since_ms
    and paused_ms is null
    and id not in (select session_id from step where state = 'in_flight')
    and id not in (
      select approval.session_id
      from approval
      left join step on step.id = approval.step_id
      where approval.is_approved is null
        and (approval.deadline_ms is null or approval.deadline_ms > :at_ms)
        and coalesce(step.rolled_back_ms, approval.replaced_ms) is null
    )
    and id not in (
      select session_id
      from durable_call
      where state in ('asked', 'ready', 'running', 'unknown') and forgotten_ms is null
    )
    and not exists (select 1 from tag where session_id = session.id and name = '{KEEP_TAG}')
    """

_LIST_QUIET = f"""
    select name, updated_ms, steps
    from session
    where {_MAY_GO}
    order by updated_ms, id
    limit :limit
    """

_STILL_MAY_GO = f"""
    select 1
    from session
    where name = :name and updated_ms = :updated_ms and {_MAY_GO}
    """


class SqliteRetention(SqliteForks):
    """The methods of `Store` about making room."""

    _write_notes: Callable[[], Awaitable[None]]  # has what was noted of replays on the disk

    async def list_quiet(self, *, quiet_since_ms: int, at_ms: int, limit: int) -> tuple[Quiet, ...]:
        """See `Store.list_quiet`."""
        await self._write_notes()  # a replay is something that was heard
        values = {"quiet_since_ms": quiet_since_ms, "at_ms": at_ms, "limit": limit}
        return await self._readers.aside(
            lambda reader: tuple(Quiet(*row) for row in reader.execute(_LIST_QUIET, values))
        )

    async def retire_session(self, quiet: Quiet, *, quiet_since_ms: int, at_ms: int) -> bool:
        """See `Store.retire_session`."""
        await self._write_notes()
        values = {
            "name": quiet.session,
            "updated_ms": quiet.updated_ms,
            "quiet_since_ms": quiet_since_ms,
            "at_ms": at_ms,
        }
        retiring = self._writer.start(lambda recorder: _retire(recorder, values), is_durable=True)
        retiring.add_done_callback(lambda done: self._retired(quiet.session, done))
        return bool(await asyncio.shield(retiring))

    def _retired(self, session: str, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None and done.result():
            self._forget_deleted(session)


def _retire(recorder: Recorder, values: dict[str, Any]) -> bool:
    """Have a session be gone if it may; in the transaction of the writer, so nothing comes
    between."""
    if not recorder.removals.finds(_STILL_MAY_GO, values):
        return False
    recorder.removals.begin(str(values["name"]))
    return True
