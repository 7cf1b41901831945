"""The one thread that writes: takes what is waiting, writes it as one group, tells the callers.

    write() → queue → [begin · method · method · … · commit] → one wake-up of the event loop

A group is what came while the group before was being written, so a busy server pays one fsync for
many answers and an idle one pays no waiting. A method is a function of a `Recorder`; it happens
whole or not at all. The invariant: a caller is told "done" only after its group's commit returned,
and that commit was synced if the group holds an answer.

Methods of a group run together first. Only when one of them fails is the group rolled back and run
again with each in a savepoint of its own, so that the failing one takes nobody with it: failures
are rare, and a savepoint makes SQLite copy every page before its first change.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from agentstate.ground.errors import StoreError
from agentstate.store.lock import FileLock
from agentstate.store.sqlite_file import BUSY_S, FileIdentity, open_writer, store_error
from agentstate.store.sqlite_overview_record import tell_changes
from agentstate.store.sqlite_record import Recorder

# One group stays within a few tens of milliseconds, so that nobody waits long for its neighbours.
GROUP_MAX = 256
# More than calls can be open (server.connections_max), each waiting for one write: only a bug or a
# stuck disk fills it, and then callers wait.
WAITING_MAX = 8192

# After this long without a write the log is folded into the file, so that a quiet record takes its
# real size and starts fast. An agent's model thinks about as long between two calls.
PAUSE_S = 2.0
ANALYSIS_ROWS_MAX = 400  # what SQLite's manual proposes, so that closing never scans a table

T = TypeVar("T")
Method = Callable[[Recorder], Any]


@dataclass(slots=True, eq=False)
class _Write:
    """One method on its way. The thread sets `result` or `error`, the event loop the future."""

    method: Method | None  # None = the last one: close the file
    is_durable: bool
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class GroupWriter:
    """The event loop's side: hands methods to the thread and wakes their callers.

    All of it belongs to one event loop.
    """

    def __init__(self, path: Path, *, syncs_answers: bool) -> None:
        self._path = path
        self._syncs_answers = syncs_answers
        self._queue: queue.SimpleQueue[_Write]
        self._waiting_count = 0  # writes handed over and not yet answered
        self._blocked: deque[asyncio.Future[None]] = deque()  # callers that wait for room
        self._loop: asyncio.AbstractEventLoop
        self._is_open = False
        # Told which sessions a group wrote of, once their callers are.
        self.on_change: Callable[[frozenset[str]], None] = _tell_nobody

    async def open(self) -> int:
        """Take the lock, open the file, start the thread; return how many steps were interrupted.

        Raises:
            StoreBusy: another server holds the file.
            StoreError: it cannot be opened or is not ours.
        """
        assert not self._is_open, "opened twice"
        self._loop = asyncio.get_running_loop()
        # A new one: after an opening that was cancelled the old one may hold its end.
        self._queue = queue.SimpleQueue()
        self._waiting_count = 0
        first = self._hand_over(Recorder.mark_interrupted, is_durable=False)
        _WriterThread(self._path, self._queue, self._wake).start()
        try:
            interrupted_count = cast(int, await first)
        except asyncio.CancelledError:
            self._hand_over(None, is_durable=False)  # the thread shall not live without an owner
            raise
        self._is_open = True
        return interrupted_count

    async def write(self, method: Callable[[Recorder], T], *, is_durable: bool = False) -> T:
        """Run `method` in the thread, in a transaction; return its result once that is committed.

        `is_durable`: the commit is synced to the disk first, unless the setting says otherwise.

        Raises:
            StoreError: the disk failed, or the record is closed.
            Exception: whatever the method raised; then nothing of it was written.
        """
        while self._waiting_count >= WAITING_MAX:
            room = self._loop.create_future()
            self._blocked.append(room)
            await room
        return cast(T, await self.start(method, is_durable=is_durable))

    def start(self, method: Method, *, is_durable: bool = False) -> asyncio.Future[Any]:
        """As `write`, without waiting for anything; the future gets the result or the error.

        Raises:
            StoreError: the record is closed.
        """
        if not self._is_open:
            raise StoreError(f"The record {self._path} is closed.")
        return self._hand_over(method, is_durable=is_durable)

    async def close(self, patience_s: float) -> None:
        """Write what is waiting, fold the log into the file, end the thread, release the lock.

        Idempotent.

        Raises:
            StoreError: that failed or took longer than `patience_s`. What was acknowledged is safe.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            async with asyncio.timeout(patience_s):
                await self._hand_over(None, is_durable=False)
        except TimeoutError as error:
            raise StoreError(
                f"The record {self._path} did not close within {patience_s:g} s; the disk may "
                "hang. What was acknowledged is safe."
            ) from error

    def _hand_over(self, method: Method | None, *, is_durable: bool) -> asyncio.Future[Any]:
        self._waiting_count += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(_Write(method, is_durable and self._syncs_answers, future))
        return future

    def _wake(self, group: list[_Write], changed: frozenset[str]) -> None:
        """Have the event loop settle a group; called by the thread."""
        # On a loop that was closed in the meantime nobody is waiting.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, group, changed)

    def _settle(self, group: list[_Write], changed: frozenset[str]) -> None:
        """Give each caller what became of its method, and let blocked callers in."""
        self._waiting_count -= len(group)
        for write in group:
            if write.future.done():  # its caller was cancelled
                continue
            if write.error is not None:
                write.future.set_exception(write.error)
            else:
                write.future.set_result(write.result)
        for _ in range(min(len(self._blocked), WAITING_MAX - self._waiting_count)):
            room = self._blocked.popleft()
            if not room.done():
                room.set_result(None)
        if changed:
            self.on_change(changed)


class _WriterThread(threading.Thread):
    """The thread's side: the lock on the file, the connection that writes, group after group.

    Opens the file before its first group; ends, and releases the lock, after the write that has no
    method. If the file cannot be opened, the first write gets the error and the thread ends.
    """

    def __init__(
        self,
        path: Path,
        waiting: queue.SimpleQueue[_Write],
        tell: Callable[[list[_Write], frozenset[str]], None],
    ) -> None:
        # A daemon: a process that ends without `close` must not hang, and loses nothing committed.
        super().__init__(name="store-writer", daemon=True)
        self._path = path
        self._waiting = waiting
        self._tell = tell
        self._lock = FileLock(path)
        self._last: _Write | None = None  # set once it was taken from the queue
        self._is_synchronous_full = True  # as `open_writer` leaves it
        self._changed: set[str] = set()  # sessions that the group wrote of
        self._has_log = True  # something may have been written since the log was folded
        self._connection: sqlite3.Connection
        self._recorder: Recorder
        self._file: FileIdentity

    def run(self) -> None:
        """Write until told to close."""
        group = self._next_group()
        try:
            self._open()
        except Exception as error:  # the top of this thread: nobody above could tell the caller
            self._fail(group, error)
            self._tell(group, frozenset())
            return
        while group:
            self._commit(group)
            self._tell(group, frozenset(self._changed))
            self._changed.clear()
            group = self._next_group()
        assert self._last is not None, "an empty group without the last write"
        try:
            self._close()
        except Exception as error:
            self._fail([self._last], error)
        self._tell([self._last], frozenset())

    def _open(self) -> None:
        self._lock.take()
        try:
            self._connection = open_writer(self._path)
            tell_changes(self._connection, self._changed.add)
            self._recorder = Recorder(self._connection)
            self._file = FileIdentity(self._path)
        except BaseException:
            self._lock.release()
            raise

    def _next_group(self) -> list[_Write]:
        """Wait for a write and take what else is there; empty = the last one was taken."""
        group: list[_Write] = []
        if self._last is not None:
            return group
        write = self._wait()
        while write.method is not None:
            group.append(write)
            if len(group) == GROUP_MAX:
                return group
            try:
                write = self._waiting.get_nowait()
            except queue.Empty:
                return group
        self._last = write
        return group

    def _wait(self) -> _Write:
        """Wait for a write; use a pause to fold the log into the file."""
        if self._has_log:
            with suppress(queue.Empty):
                return self._waiting.get(timeout=PAUSE_S)
            self._fold_log()
        return self._waiting.get()

    def _fold_log(self) -> None:
        self._has_log = False
        # Readers are not waited for. What else keeps the log from being folded will fail the next
        # write as well, and there somebody is told.
        with suppress(sqlite3.Error):
            self._connection.execute("pragma busy_timeout = 0")
            try:
                self._connection.execute("pragma wal_checkpoint(truncate)")
            finally:
                self._connection.execute(f"pragma busy_timeout = {int(BUSY_S * 1000)}")

    def _commit(self, group: list[_Write]) -> None:
        """Write a group; afterwards each of its writes has a result or an error."""
        self._has_log = True
        try:
            self._file.check()
            self._set_synchronous(is_full=any(write.is_durable for write in group))
            if not self._run_together(group):
                self._run_apart(group)
        except Exception as error:  # begin, commit or the file itself failed: nothing is written
            self._roll_back()
            self._fail(group, error)

    def _set_synchronous(self, *, is_full: bool) -> None:
        """Choose whether the next commit waits for the disk."""
        if is_full != self._is_synchronous_full:
            self._connection.execute(f"pragma synchronous = {'full' if is_full else 'normal'}")
            self._is_synchronous_full = is_full

    def _run_together(self, group: list[_Write]) -> bool:
        """Write a group in one go; False = one of several failed and nothing is written."""
        self._connection.execute("begin immediate")
        try:
            for write in group:
                assert write.method is not None, "the last write is in no group"
                write.result = write.method(self._recorder)
        except Exception as error:
            self._roll_back()
            if len(group) > 1:
                return False
            self._fail(group, error)
            return True
        self._connection.execute("commit")
        return True

    def _run_apart(self, group: list[_Write]) -> None:
        """Write a group so that one that fails takes nobody with it."""
        self._connection.execute("begin immediate")
        for position, write in enumerate(group):
            assert write.method is not None, "the last write is in no group"
            self._connection.execute("savepoint one")
            try:
                write.result = write.method(self._recorder)
            except Exception as error:
                self._fail([write], error)
                if not self._connection.in_transaction:
                    # A disk error makes SQLite roll back all of it: the ones before are lost too.
                    self._fail(group[:position], error)
                    self._connection.execute("begin immediate")
                    continue
                self._connection.execute("rollback to one")
            self._connection.execute("release one")
        self._connection.execute("commit")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            # Where it fails the connection cannot begin either, and that is told to the callers.
            with suppress(sqlite3.Error):
                self._connection.execute("rollback")

    def _fail(self, group: list[_Write], error: Exception) -> None:
        """Give each write that has no error yet this one, each its own copy where it can be."""
        for write in group:
            if write.error is None:
                write.error = store_error(error, self._path)
                if write.error is not error:
                    write.error.__cause__ = error

    def _close(self) -> None:
        try:
            self._connection.execute(f"pragma analysis_limit = {ANALYSIS_ROWS_MAX}")
            self._connection.execute("pragma optimize")
            self._connection.execute("pragma wal_checkpoint(truncate)")
        finally:
            self._connection.close()
            self._lock.release()


def _tell_nobody(changed: frozenset[str]) -> None:
    """Nobody is to be told."""
