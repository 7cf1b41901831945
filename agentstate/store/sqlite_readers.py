"""The connections that read: one of the event loop's own, and one for each of a few threads.

A small indexed read (tens of microseconds) is done on the event loop, since handing it over costs
more; what lists, scans or unpacks much is done in a thread. None of these connections can write.
The counterpart is `sqlite_writer.py`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from agentstate.ground.errors import StoreError
from agentstate.store.sqlite_file import open_reader, store_error
from agentstate.store.sqlite_pack import BYTES_UNLIMITED, ContentTooLarge

THREADS = 2  # listings are short; more would only compete with the calls for the processor
# Unpacking this much takes about 0.1 ms, and more is better done by a thread.
BYTES_ON_LOOP_MAX = 64 * 1024

T = TypeVar("T")


class Readers:
    """Where reads run. Belongs to one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None  # the event loop's; None = closed
        self._idle: list[sqlite3.Connection] = []  # the threads'
        self._threads: ThreadPoolExecutor
        self._reading: set[asyncio.Future[Any]] = set()

    @property
    def is_open(self) -> bool:
        """False before `open` and after `close`."""
        return self._connection is not None

    def open(self) -> None:
        """Open the event loop's connection; the threads open theirs when they need them.

        Raises:
            StoreError: it cannot be opened.
        """
        self._connection = open_reader(self._path)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store-read")

    async def close(self, patience_s: float) -> None:
        """Close all of them, once those who read are done; waits for them a bounded time."""
        if self._connection is None:
            return
        self._connection.close()
        self._connection = None
        if self._reading:
            # A reader that goes on would keep the log from being folded away; nothing else.
            await asyncio.wait(self._reading, timeout=patience_s)
        self._threads.shutdown(wait=False)
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def here(self, method: Callable[[sqlite3.Connection], T]) -> T:
        """Read on the event loop.

        Raises:
            StoreError: the file cannot be read, or the record is closed.
        """
        if self._connection is None:
            raise self._closed()
        return self._translating(method, self._connection)

    async def aside(self, method: Callable[[sqlite3.Connection], T]) -> T:
        """Read in a thread; raises as `here`."""
        return await self.in_thread(lambda: self._read(method))

    async def here_if_small(self, method: Callable[[sqlite3.Connection, int], T]) -> T:
        """Read on the event loop, or in a thread if there turns out to be much to unpack.

        `method` gets the bytes it may unpack, and raises `ContentTooLarge` where that is too few.
        """
        try:
            return self.here(lambda connection: method(connection, BYTES_ON_LOOP_MAX))
        except ContentTooLarge:
            return await self.aside(lambda connection: method(connection, BYTES_UNLIMITED))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do what takes long, and needs no connection, in one of the threads."""
        if self._connection is None:
            raise self._closed()
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._reading.add(future)
        future.add_done_callback(self._reading.discard)
        return await future

    def _closed(self) -> StoreError:
        return StoreError(f"The record {self._path} is closed.")

    def _read(self, method: Callable[[sqlite3.Connection], T]) -> T:
        """Run in a thread; there are never more connections than threads."""
        connection = self._idle.pop() if self._idle else open_reader(self._path)
        try:
            return self._translating(method, connection)
        finally:
            self._idle.append(connection)

    def _translating(
        self, method: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection
    ) -> T:
        try:
            return method(connection)
        except zlib.error as error:
            raise StoreError(f"{self._path}: it is damaged. Restore a backup.") from error
        except sqlite3.Error as error:
            meant = store_error(error, self._path)
            if meant is error:
                raise
            raise meant from error
