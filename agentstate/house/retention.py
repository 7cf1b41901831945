"""Deletes what has been kept long enough: by age, by how many steps there are, by size on the disk.

Sessions go whole and the longest unused first. Which may go at all is for the store to say
(`store/base_retention.py`); none that was active in the last hour does. What goes is gone; so a
look without deleting (`plan`) says the same as a run would do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from agentstate.ground.clock import now_ms
from agentstate.ground.errors import AgentStateError
from agentstate.ground.retention import Quiet
from agentstate.ground.settings import StoreSettings
from agentstate.ground.tasks import TaskSet
from agentstate.store.base import Store

log = logging.getLogger("agentstate.retention")

EVERY_S = 600.0  # what is to go after days may be so much late
ACTIVE_MS = 3_600_000  # a run that was active so lately is not over, however full the disk is
AT_ONCE_MAX = 10_000  # sessions that are looked at; the rest at the next look
DAY_MS = 86_400_000
MIB = 1024 * 1024

Why = Literal["age", "steps", "size"]


@dataclass(frozen=True, slots=True)
class Going:
    """A session that is to go."""

    quiet: Quiet
    content_bytes: int  # of its answers alone: requests may be other sessions' too
    why: Why

    @property
    def session(self) -> str:
        """Its name."""
        return self.quiet.session


class Retire(Protocol):
    """What has a session be gone, if it still may go: `steps.control.Control.retire`."""

    async def __call__(self, quiet: Quiet, *, quiet_since_ms: int, at_ms: int) -> bool:
        """Say whether it went."""
        ...


async def nothing_goes(quiet: Quiet, *, quiet_since_ms: int, at_ms: int) -> bool:
    """Delete nothing: for a record without limits."""
    return False


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is, as sessions go."""

    steps: int
    bytes: int

    def without(self, going: Going) -> Standing:
        """Return what there is without a session, at most."""
        return Standing(self.steps - going.quiet.steps, self.bytes - going.content_bytes)


def why_goes(row: Quiet, standing: Standing, limits: StoreSettings, at_ms: int) -> Why | None:
    """Say why a session is to go, if it is the longest unused one; None = it is not."""
    idle_ms = at_ms - row.updated_ms
    if limits.retention_days is not None and idle_ms > limits.retention_days * DAY_MS:
        return "age"
    if limits.steps_max is not None and standing.steps > limits.steps_max:
        return "steps"
    if limits.size_max_mb is not None and standing.bytes > limits.size_max_mb * MIB:
        return "size"
    return None


class Retention:
    """The loop that deletes. One per server."""

    def __init__(
        self,
        store: Store,
        limits: StoreSettings,
        retire: Retire,
        *,
        every_s: float = EVERY_S,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`retire`: has a session be gone, for all that speak of it."""
        self.limits = limits
        self._store = store
        self._retire = retire
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
        at_ms = self._now_ms()
        quiet = await self._store.list_quiet(
            quiet_since_ms=at_ms - ACTIVE_MS, at_ms=at_ms, limit=AT_ONCE_MAX
        )
        standing = await self._standing()
        found: list[Going] = []
        for row in quiet:
            why = why_goes(row, standing, self.limits, at_ms)
            if why is None:
                break
            deletion = await self._store.weigh_deletion(row.session)
            if deletion is not None:  # else somebody has just deleted it
                found.append(Going(row, deletion.content_bytes, why))
                standing = standing.without(found[-1])
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
            at_ms = self._now_ms()
            # What went before may have been enough.
            if why_goes(going.quiet, await self._standing(), self.limits, at_ms) is None:
                break
            # Something may have happened to it: that is seen where it is deleted.
            if await self._retire(going.quiet, quiet_since_ms=at_ms - ACTIVE_MS, at_ms=at_ms):
                gone.append(going)
                await self._store.finish_removals()
        return gone

    async def _run(self) -> None:
        while not self._bell.is_set():
            try:
                gone = await self.run()
            except AgentStateError as error:
                log.warning("what was kept long enough cannot be deleted: %s", error.message)
            else:
                if gone:
                    steps = sum(each.quiet.steps for each in gone)
                    log.info("%d sessions with %d steps were kept long enough", len(gone), steps)
            try:
                async with asyncio.timeout(self._every_s):
                    await self._bell.wait()
            except TimeoutError:
                continue

    async def _standing(self) -> Standing:
        totals = await self._store.read_totals()
        return Standing(totals["steps"], totals["bytes_used"])
