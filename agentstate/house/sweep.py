"""Finds sessions that went quiet: a killed agent sends no error.

A session whose last answer called a tool is owed the result, and one whose last call came to
nothing another try: if nothing comes it has stalled. One whose last answer asked for nothing has
said all it had to say: it is completed, until it goes on.
The record says which have been found before, so each silence is told once, also after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agentstate.ground.clock import now_ms
from agentstate.ground.errors import StoreError
from agentstate.ground.events import Event, IdleSession, new_event_id
from agentstate.ground.settings import SweepSettings
from agentstate.ground.tasks import TaskSet
from agentstate.store.base import Store

log = logging.getLogger("agentstate.sweep")

EVERY_S = 15.0  # what is told after minutes may be so much late
EVERY_MIN_S = 0.05  # for settings of a fraction of a second, as in tests
AT_ONCE_MAX = 1000  # the rest at the next look


class Sweep:
    """The loop that looks for them."""

    def __init__(
        self,
        store: Store,
        settings: SweepSettings,
        ring: Callable[[], None],
        *,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`ring` is called when there is something to tell."""
        self._store = store
        self._stalled_ms = int(settings.stalled_after_s * 1000)
        self._completed_ms = int(settings.completed_after_s * 1000)
        self._ring = ring
        self._now_ms = clock_ms
        self._tasks = TaskSet()
        self._bell = asyncio.Event()

    def start(self) -> None:
        """Begin to look; with both settings 0 there is nothing to look for."""
        if self._limits_ms():
            self._tasks.start(self._run(), "sweep")

    async def stop(self) -> None:
        """Look no more. May be called again."""
        self._bell.set()
        await self._tasks.close(1.0)

    async def look(self) -> int:
        """Look once and write what was found; return how many that was."""
        at_ms = self._now_ms()
        found = 0
        # By the longest silence first: whoever is in that page is told, so the page moves on, while
        # the other may be full of sessions that are owed a result and have time left.
        for limit_ms in self._limits_ms():
            idle = await self._store.find_idle(idle_since_ms=at_ms - limit_ms, limit=AT_ONCE_MAX)
            for session in idle:
                event = self._event_of(session, at_ms)
                if event is not None:
                    await self._store.note_idle(event)
                    found += 1
        if found:
            self._ring()
        return found

    async def _run(self) -> None:
        shortest_s = min(self._limits_ms()) / 1000
        wait_s = max(min(EVERY_S, shortest_s / 4), EVERY_MIN_S)
        while not self._bell.is_set():
            try:
                await self.look()
            except StoreError as error:
                log.warning("idle sessions cannot be looked for: %s", error.message)
            try:
                async with asyncio.timeout(wait_s):
                    await self._bell.wait()
            except TimeoutError:
                continue

    def _limits_ms(self) -> list[int]:
        limits = {self._stalled_ms, self._completed_ms} - {0}
        return sorted(limits, reverse=True)

    def _event_of(self, idle: IdleSession, at_ms: int) -> Event | None:
        """Return what is to be told of a session; None = nothing yet."""
        is_stalled = idle.awaits_tools or idle.is_broken
        limit_ms = self._stalled_ms if is_stalled else self._completed_ms
        idle_ms = at_ms - idle.updated_ms
        if not limit_ms or idle_ms < limit_ms:
            return None
        idle_s = idle_ms // 1000
        what = "no tool result came" if idle.awaits_tools else "nothing came"
        if idle.is_broken:
            what = "its last call came to nothing, and no other one came"
        why = f"{what} for {idle_s} s"
        return Event(
            event_id=new_event_id(),
            kind="session.stalled" if is_stalled else "session.completed",
            session=idle.session,
            created_ms=at_ms,
            step_number=idle.step_number,
            index=idle.index,
            facts={"why": why, "idle_s": idle_s},
        )
