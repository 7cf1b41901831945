"""What people do to a run, and who has to know: calls in the air, calls that wait, webhooks.

The store writes it; then whoever keeps something of the session in memory is told. Where no server
runs there is nobody to tell, and the same verbs work on the file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.control import Change, Place, Rollback, SettableStatus, Weight
from agentstate.ground.errors import NotFound, StoreError, shorten
from agentstate.ground.events import Event, EventKind, new_event_id
from agentstate.ground.forks import Deletion, ForkAsk
from agentstate.ground.retention import Quiet
from agentstate.ground.tapes import TapedSession
from agentstate.store.base import Store

log = logging.getLogger("agentstate.control")

# How long a deletion waits for its removal, which itself takes what it takes. Where nobody goes on
# with it afterwards: less than a client waits for an answer.
REMOVAL_S = 20.0
SERVED_REMOVAL_S = 0.1  # in a server: that of a short session is over by then

_KINDS: dict[SettableStatus, EventKind] = {
    "COMPLETED": "session.completed",
    "FAILED": "session.failed",
}


class Control:
    """The verbs. One per server."""

    def __init__(self, store: Store, *, removal_s: float = REMOVAL_S) -> None:
        """Speak for a store; `removal_s`: what `delete` waits at most for the removal."""
        self._store = store
        self._removal_s = removal_s
        # Who is told, once it is written; a server sets them.
        self.on_turn: Callable[[Rollback], None] = _tell_nobody
        self.on_resume: Callable[[str], None] = _tell_nobody
        self.on_event: Callable[[], None] = _tell_nobody
        self.on_delete: Callable[[str], None] = _tell_nobody
        # Steps whose calls are not over yet.
        self.in_the_air: Callable[[], frozenset[int]] = frozenset

    async def roll_back(self, session: str, place: Place, *, by: str | None) -> Rollback | None:
        """Take back the steps from `place` on; None = there are none.

        Raises:
            NotFound: there is no such session.
            StoreError: it could not be written; nothing was taken back.
        """
        row = await self._store.roll_back(session, place, at_ms=now_ms(), by=by)
        if row is not None:
            self.on_turn(row)
        return row

    async def weigh(self, session: str, place: Place) -> Weight:
        """Return what `roll_back` would take back."""
        return await self._store.weigh_rollback(session, place)

    async def restore(self, session: str, rollback_id: int | None, *, by: str | None) -> Rollback:
        """Go back to before a rollback or a restore; None = the last rollback in force.

        Raises:
            NotFound, Conflict: as `Store.restore`.
            StoreError: it could not be written; nothing was changed.
        """
        row = await self._store.restore(session, rollback_id, at_ms=now_ms(), by=by)
        self.on_turn(row)
        return row

    async def fork(self, session: str, ask: ForkAsk) -> str:
        """Make a session that begins as this one stood; return its id. Nothing changes for this
        one, and what is in the air is not shared.

        Raises:
            NotFound, Conflict: as `Store.fork_session`.
            StoreError: it could not be written; there is no fork.
        """
        return await self._store.fork_session(
            session, ask, at_ms=now_ms(), but_not=self.in_the_air()
        )

    async def weigh_deletion(self, session: str) -> Deletion:
        """Return what `delete` would delete. Raises `NotFound`."""
        found = await self._store.weigh_deletion(session)
        if found is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        return found

    async def delete(self, session: str, *, by: str | None) -> tuple[Deletion, bool]:
        """Have a session be gone, for good; return what went, and whether all of it is off the
        disk. If not it is being removed still.

        Who waits in it for a person is told. What its calls in the air still bring goes to their
        own clients, and on no record.

        Raises:
            NotFound: there is no such session.
            StoreError: it could not be written; nothing was deleted.
        """
        deletion = await self._store.delete_session(session)
        self.on_delete(session)
        log.info(
            "session %r was deleted%s: %d steps",
            shorten(session),
            "" if by is None else f" by {shorten(by)!r}",
            deletion.weight.steps,
        )
        try:
            async with asyncio.timeout(self._removal_s):
                await self._store.finish_removals()
        except (TimeoutError, StoreError):
            return deletion, False
        return deletion, True

    async def retire(self, quiet: Quiet, *, quiet_since_ms: int, at_ms: int) -> bool:
        """Have a session be gone if it may go; return whether it went. See
        `Store.retire_session`.

        Raises:
            StoreError: it could not be written; nothing was deleted.
        """
        is_gone = await self._store.retire_session(
            quiet, quiet_since_ms=quiet_since_ms, at_ms=at_ms
        )
        if is_gone:
            self.on_delete(quiet.session)
        return is_gone

    async def pause(self, session: str, *, reason: str | None, by: str | None) -> None:
        """Hold the calls of a session from now on. Raises `NotFound`, `StoreError`."""
        await self._store.pause(session, at_ms=now_ms(), reason=reason, by=by)

    async def resume(self, session: str) -> None:
        """Let them go on. Raises `NotFound`, `StoreError`."""
        await self._store.resume(session, at_ms=now_ms())
        self.on_resume(session)

    async def change(
        self, session: str, change: Change, *, reason: str | None, by: str | None
    ) -> None:
        """Change what a session is called, or say how it ended; people are told of that once.

        Raises:
            NotFound, Conflict: as `Store.change_session`.
            StoreError: it could not be written; nothing was changed.
        """
        at_ms = now_ms()
        kind = None if change.status is None else _KINDS.get(change.status)
        event = None
        if kind is not None:
            facts: dict[str, JSON] = {"status": change.status, "why": reason or "somebody said so"}
            event = Event(new_event_id(), kind, session, at_ms, facts=facts)
            if by is not None:
                event = replace(event, facts=facts | {"by": by})
        await self._store.change_session(
            session, change, at_ms=at_ms, reason=reason, by=by, event=event
        )
        if event is not None:
            self.on_event()

    async def import_sessions(
        self, sessions: tuple[TapedSession, ...], *, at_ms: int, replaces: bool, by: str | None
    ) -> tuple[Rollback, ...]:
        """Write sessions that were recorded elsewhere; return what was rolled back for them.

        Raises:
            Conflict: as `Store.import_sessions`.
            StoreError: it could not be written; nothing was changed.
        """
        turned = await self._store.import_sessions(sessions, at_ms=at_ms, replaces=replaces, by=by)
        for row in turned:
            self.on_turn(row)
        return turned


def _tell_nobody(*_: object) -> None:
    """Nobody is to be told."""
