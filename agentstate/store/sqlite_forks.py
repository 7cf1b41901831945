"""Forks and deletion in the SQLite store.

As in `sqlite.py`, which builds on it, what is said here is where each method runs. SQL is in
`sqlite_forks_record.py`, `sqlite_removal.py` and `sqlite_forks_read.py`.

A fork of many steps is made, and what a deleted session leaves is removed, by a task of its own,
slice after slice: between two of them the writer takes what else is waiting. Whatever stops the
task, the next opening removes what it had made of a fork, and goes on with a removal.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Collection
from contextlib import suppress

from agentstate.ground.approvals import Earlier
from agentstate.ground.errors import ClientError, Conflict, NotFound, StoreError, shorten
from agentstate.ground.forks import Deletion, ForkAsk
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.tasks import TaskSet
from agentstate.store import sqlite_forks_read as forks_read
from agentstate.store import sqlite_gate_read as gate_read
from agentstate.store.forks import NameTaken
from agentstate.store.sqlite_control import SqliteControl
from agentstate.store.sqlite_forks_record import Copying
from agentstate.store.sqlite_keys import KeyIndex
from agentstate.store.sqlite_readers import Readers
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_writer import GroupWriter

log = logging.getLogger("agentstate.store")

NAME_TRIES_MAX = 10  # for a name nobody else took in between
STOP_S = 1.0  # a slice and its commit, on a slow disk


class SqliteForks(SqliteControl):
    """The methods of `Store` about forks. Belongs to the event loop that opened its parts."""

    def __init__(self, writer: GroupWriter, readers: Readers, keys: KeyIndex) -> None:
        super().__init__(writer, readers, keys)
        self._forkers = TaskSet()
        self._slices = asyncio.Lock()  # of one fork at a time, so that others wait for one
        self._removers = TaskSet()
        self._removing: asyncio.Task[None] | None = None  # None = nothing was deleted yet

    # --- forks ------------------------------------------------------------------------------

    async def fork_session(
        self, session: str, ask: ForkAsk, *, at_ms: int, but_not: Collection[int] = ()
    ) -> str:
        """See `Store.fork_session`."""
        if ask.session is not None:
            return await self._fork(session, ask.session, ask, at_ms, but_not)
        for _ in range(NAME_TRIES_MAX):
            name = self._readers.here(lambda reader: forks_read.name_fork(reader, session))
            try:
                return await self._fork(session, name, ask, at_ms, but_not)
            except NameTaken:
                continue  # somebody else has just forked it
        raise Conflict(f"There was no free name for a fork of {shorten(session)!r}; send one.")

    async def _fork(
        self, session: str, name: str, ask: ForkAsk, at_ms: int, but_not: Collection[int]
    ) -> str:
        self._note_fork(session, name)
        self._keys.hold(name)
        self._keys.forget(name)  # that there is no such session is known no more
        begun = self._writer.start(
            lambda recorder: recorder.forks.begin(session, name, ask, at_ms, but_not),
            is_durable=True,
        )
        making = self._forkers.start(
            self._make(
                begun,
                lambda recorder: recorder.forks.begin(
                    session, name, ask, at_ms, but_not, whole=True
                ),
            ),
            "fork",
        )
        making.add_done_callback(lambda _: self._keys.let_go(name))
        # It is made also if the caller goes away; only then are the keys let go of.
        await asyncio.wait({making})
        if making.cancelled():
            raise StoreError("The record was closed before the fork was known to be made.")
        if (error := making.result()) is not None:
            raise error
        return name

    async def _make(
        self,
        begun: asyncio.Future[Copying | None],
        make_whole: Callable[[Recorder], Copying | None],
    ) -> ClientError | StoreError | None:
        """Bring a fork to its end; return what kept it from being made, since a task that fails is
        logged as a fault of ours."""
        try:
            copying = await begun
            if copying is not None:
                async with self._slices:
                    if not await self._finish(copying):
                        # People are at work on the other one: this time nobody comes in between.
                        await self._writer.write(make_whole, is_durable=True)
        except (ClientError, StoreError) as error:
            return error
        return None

    async def _finish(self, copying: Copying) -> bool:
        """Make the rest of a fork; False = see `ForkRecorder.publish`, and nothing is left."""
        is_made = False
        try:
            while not copying.is_copied():
                copying = await self._copy_some(copying)
            is_made = await self._writer.write(
                lambda recorder: recorder.forks.publish(copying), is_durable=True
            )
        finally:
            if not is_made:
                with suppress(StoreError):  # then the next opening does it
                    await self._writer.write(lambda recorder: recorder.forks.abandon(copying))
                    self._begin_removing()
        return is_made

    async def _copy_some(self, copying: Copying) -> Copying:
        return await self._writer.write(lambda recorder: recorder.forks.copy_some(copying))

    async def _stop_forking(self) -> None:
        """Give forks a moment to be made; the next opening removes what there is of others."""
        await self._forkers.close(STOP_S)

    @abstractmethod
    def _note_fork(self, session: str, name: str) -> None:
        """Take in that a fork is about to be written."""

    async def read_borrowed(self, answer_id: int) -> RecordedAnswer | None:
        """See `Store.read_borrowed`."""
        return await self._readers.here_if_small(
            lambda reader, bytes_max: gate_read.read_borrowed(reader, answer_id, bytes_max)
        )

    async def precedents_of(self, answer_id: int) -> tuple[Earlier, ...]:
        """See `Store.precedents_of`."""
        return self._readers.here(lambda reader: forks_read.precedents_of(reader, answer_id))

    # --- deletion ---------------------------------------------------------------------------

    async def weigh_deletion(self, session: str) -> Deletion | None:
        """See `Store.weigh_deletion`."""
        return await self._readers.aside(lambda reader: forks_read.weigh_deletion(reader, session))

    async def delete_session(self, session: str) -> Deletion:
        """See `Store.delete_session`."""
        weighed = await self.weigh_deletion(session)
        if weighed is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        deleting = self._writer.start(
            lambda recorder: recorder.removals.begin(session), is_durable=True
        )
        deleting.add_done_callback(lambda done: self._deleted(session, done))
        await asyncio.shield(deleting)
        return weighed

    async def finish_removals(self) -> None:
        """See `Store.finish_removals`."""
        while (task := self._removing) is not None:
            await asyncio.wait({task})
            if task.cancelled():
                raise StoreError("The record was closed before all of it was removed.")
            task.result()
            if task is self._removing:
                return

    def _deleted(self, session: str, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._forget_deleted(session)

    def _forget_deleted(self, session: str) -> None:
        """Let go of what is kept of a session that is gone, and begin to remove what it left."""
        self._keys.forget(session)
        if self._paused is not None and session not in self._pausing:
            self._paused.discard(session)
        self._begin_removing()

    def _begin_removing(self) -> None:
        """Have a task at work until nothing is left."""
        before = self._removing
        self._removing = self._removers.start(self._remove(before), "removal")

    async def _remove(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
        while await self._writer.write(lambda recorder: recorder.removals.remove_some()):
            pass
        while await self._writer.write(lambda recorder: recorder.removals.give_back()):
            pass

    def _resume_removals(self) -> None:
        """Take up what an earlier process did not finish."""
        if self._readers.here(forks_read.has_removals):
            self._begin_removing()

    async def _stop_removing(self) -> None:
        """Stop between two slices; the next opening goes on."""
        if self._removing is not None:
            self._removing.cancel()
            await self._removers.close(STOP_S)
