"""Deletes what has been kept long enough: by age, by how many steps there are, by size on the disk.

Sessions go whole and the longest unused first. Never: one that waits for a person or was paused by
one, one with the tag `keep`, and, where only room is wanted, one that was active in the last hour.
What goes is gone; so a look without deleting (`plan`) says the same as a run would do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from agentstate.ground.clock import now_ms
from agentstate.ground.errors import AgentStateError, NotFound
from agentstate.ground.forks import Deletion
from agentstate.ground.records import Query, SessionRow
from agentstate.ground.settings import StoreSettings
from agentstate.ground.tasks import TaskSet
from agentstate.store.base import LIST_LIMIT_MAX, Store

log = logging.getLogger("agentstate.retention")

EVERY_S = 600.0  # what is to go after days may be so much late
KEEP = "keep"  # a tag: its session stays
ACTIVE_MS = 3_600_000  # a run that was active so lately is not over, however full the disk is
STAYS = ("WAITING", "PAUSED")
DAY_MS = 86_400_000
MIB = 1024 * 1024

Why = Literal["age", "steps", "size"]


@dataclass(frozen=True, slots=True)
class Going:
    """A session that is to go."""

    session: str
    updated_ms: int
    steps: int
    content_bytes: int  # of its answers alone: requests may be other sessions' too
    why: Why


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is, as sessions go."""

    steps: int
    bytes: int

    def without(self, going: Going) -> Standing:
        """Return what there is without a session, at most."""
        return Standing(self.steps - going.steps, self.bytes - going.content_bytes)


def why_goes(row: SessionRow, standing: Standing, limits: StoreSettings, at_ms: int) -> Why | None:
    """Say why a session is to go, if it is the longest unused one; None = it is not."""
    idle_ms = at_ms - row.updated_ms
    if limits.retention_days is not None and idle_ms > limits.retention_days * DAY_MS:
        return "age"
    if idle_ms <= ACTIVE_MS:
        return None
    if limits.steps_max is not None and standing.steps > limits.steps_max:
        return "steps"
    if limits.size_max_mb is not None and standing.bytes > limits.size_max_mb * MIB:
        return "size"
    return None


def stays(row: SessionRow) -> bool:
    """Say whether a session stays, however old it is."""
    return row.status in STAYS or any(name == KEEP for name, _ in row.tags)


class Retention:
    """The loop that deletes. One per server."""

    def __init__(
        self,
        store: Store,
        limits: StoreSettings,
        delete: Callable[[str], Awaitable[object]],
        *,
        every_s: float = EVERY_S,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`delete`: has a session be gone, for all that speak of it."""
        self.limits = limits
        self._store = store
        self._delete = delete
        self._every_s = every_s
        self._now_ms = clock_ms
        self._tasks = TaskSet()
        self._bell = asyncio.Event()

    @property
    def has_limits(self) -> bool:
        """Whether anything ever goes."""
        limits = self.limits
        return any(each is not None for each in
                   (limits.retention_days, limits.steps_max, limits.size_max_mb))  # fmt: skip

    def start(self) -> None:
        """Begin to look; without limits there is nothing to look for."""
        if self.has_limits:
            self._tasks.start(self._run(), "retention")

    async def stop(self) -> None:
        """Look no more. May be called again."""
        self._bell.set()
        await self._tasks.close(1.0)

    async def plan(self) -> list[Going]:
        """Return what would go now, the first first. Nothing is changed.

        Raises:
            StoreError: the record cannot be read.
        """
        standing = await self._standing()
        found: list[Going] = []
        async for row in self._oldest_first():
            why = why_goes(row, standing, self.limits, self._now_ms())
            if why is None:
                break
            if stays(row):
                continue
            going = await self._going(row, why)
            if going is not None:
                found.append(going)
                standing = standing.without(going)
        return found

    async def run(self) -> list[Going]:
        """Delete what is to go now; return what went.

        Raises:
            StoreError: the record cannot be read, or written.
        """
        gone: list[Going] = []
        for going in await self.plan():
            if self._bell.is_set():
                break
            # Something may have happened to it, and what went before may have been enough.
            row = await self._store.read_session(going.session)
            standing = await self._standing()
            if row is None or stays(row):
                continue
            if why_goes(row, standing, self.limits, self._now_ms()) is None:
                continue
            try:
                await self._delete(going.session)
            except NotFound:
                continue  # by a person, meanwhile
            await self._store.finish_removals()
            gone.append(going)
        return gone

    async def _run(self) -> None:
        while not self._bell.is_set():
            try:
                gone = await self.run()
            except AgentStateError as error:
                log.warning("what was kept long enough cannot be deleted: %s", error.message)
            else:
                if gone:
                    steps = sum(each.steps for each in gone)
                    log.info("%d sessions with %d steps were kept long enough", len(gone), steps)
            try:
                async with asyncio.timeout(self._every_s):
                    await self._bell.wait()
            except TimeoutError:
                continue

    async def _oldest_first(self) -> AsyncIterator[SessionRow]:
        query = Query(limit=LIST_LIMIT_MAX, newest_first=False)
        while True:
            page = await self._store.list_sessions(query)
            for row in page.rows:
                yield row
            if page.next_cursor is None:
                return
            query = replace(query, after=page.next_cursor)

    async def _going(self, row: SessionRow, why: Why) -> Going | None:
        deletion: Deletion | None = await self._store.weigh_deletion(row.session)
        if deletion is None:
            return None
        return Going(row.session, row.updated_ms, row.steps, deletion.content_bytes, why)

    async def _standing(self) -> Standing:
        totals = await self._store.read_totals()
        return Standing(totals["steps"], totals["bytes_used"])
