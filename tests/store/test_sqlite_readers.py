"""Small reads are done on the event loop, all others in a thread; none of them can write."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from agentstate.ground.errors import StoreError
from agentstate.store import sqlite_readers
from agentstate.store.sqlite_file import open_writer
from agentstate.store.sqlite_pack import BYTES_UNLIMITED, ContentTooLarge
from agentstate.store.sqlite_readers import BYTES_ON_LOOP_MAX, Readers


def run(folder: Path, scenario: Callable[[Readers], Awaitable[None]]) -> None:
    """Open readers of a new record, play a scenario on them, close them."""

    async def whole() -> None:
        with closing(open_writer(folder / "record.db")):
            readers = Readers(folder / "record.db")
            readers.open()
            try:
                await scenario(readers)
            finally:
                await readers.close(5)

    asyncio.run(whole())


def thread_name(connection: sqlite3.Connection) -> str:
    return threading.current_thread().name.partition("_")[0]


def test_a_read_is_done_here_or_aside(tmp_path: Path) -> None:
    async def scenario(readers: Readers) -> None:
        assert readers.here(thread_name) == "MainThread"
        assert await readers.aside(thread_name) == "store-read"
        assert await readers.in_thread(lambda: 7) == 7

    run(tmp_path, scenario)


def test_what_turns_out_to_be_large_is_done_aside(tmp_path: Path) -> None:
    tries: list[tuple[str, int]] = []

    def read(size: int) -> Callable[[sqlite3.Connection, int], int]:
        def method(connection: sqlite3.Connection, bytes_max: int) -> int:
            tries.append((thread_name(connection), bytes_max))
            if size > bytes_max:
                raise ContentTooLarge
            return size

        return method

    async def scenario(readers: Readers) -> None:
        assert await readers.here_if_small(read(BYTES_ON_LOOP_MAX)) == BYTES_ON_LOOP_MAX
        assert await readers.here_if_small(read(10**9)) == 10**9

    run(tmp_path, scenario)

    assert tries == [
        ("MainThread", BYTES_ON_LOOP_MAX),
        ("MainThread", BYTES_ON_LOOP_MAX),
        ("store-read", BYTES_UNLIMITED),
    ]


def test_no_reader_can_write(tmp_path: Path) -> None:
    def write(connection: sqlite3.Connection) -> None:
        connection.execute("delete from pulse")

    async def scenario(readers: Readers) -> None:
        with pytest.raises(StoreError, match="cannot be written"):
            readers.here(write)
        with pytest.raises(StoreError, match="cannot be written"):
            await readers.aside(write)

    run(tmp_path, scenario)


def test_closed_readers_refuse(tmp_path: Path) -> None:
    async def scenario() -> None:
        readers = Readers(tmp_path / "record.db")
        assert not readers.is_open
        for _ in range(2):
            with pytest.raises(StoreError, match="closed"):
                readers.here(thread_name)
            with pytest.raises(StoreError, match="closed"):
                await readers.aside(thread_name)
            with pytest.raises(StoreError, match="closed"):
                await readers.in_thread(lambda: 7)
            await readers.close(5)
            with closing(open_writer(tmp_path / "record.db")):
                readers.open()
                assert readers.is_open
                await readers.close(5)

    asyncio.run(scenario())


def test_who_reads_too_long_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        may_end = threading.Event()
        with closing(open_writer(tmp_path / "record.db")):
            readers = Readers(tmp_path / "record.db")
            readers.open()
            reading = asyncio.ensure_future(readers.in_thread(may_end.wait))
            await asyncio.sleep(0)
            await readers.close(0.01)
            assert not reading.done()
            may_end.set()
            assert await reading

    asyncio.run(scenario())


def test_there_are_never_more_connections_than_threads(tmp_path: Path) -> None:
    async def scenario(readers: Readers) -> None:
        await asyncio.gather(*(readers.aside(thread_name) for _ in range(40)))
        assert 1 <= len(readers._idle) <= sqlite_readers.THREADS

    run(tmp_path, scenario)
