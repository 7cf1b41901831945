"""What a backup never takes away, and what `check` takes for damage."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from agentstate.ground.errors import StoreBusy, StoreError
from agentstate.store import sqlite_backup
from agentstate.store.lock import FileLock
from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_backup import back_up, check_file
from agentstate.store.sqlite_file import open_writer
from agentstate.store.sqlite_record import Recorder
from tests.helpers.runs import record_run
from tests.store.test_sqlite_forks import Author


def tell_nobody(done: int, total: int) -> None:
    """Nobody is to be told."""


def copy(source: Path, target: Path, *, replaces: bool = True) -> None:
    back_up(source, target, tell_nobody, replaces=replaces)


def within(path: Path, scenario: Callable[[SqliteStore], Awaitable[None]]) -> None:
    """Play a scenario with a store that is open."""

    async def whole() -> None:
        store = SqliteStore(path)
        await store.open()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(whole())


def sessions_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("select name from session order by id")]


def beside(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.glob(f"{target.name}*"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "record.db"

    async def write(store: SqliteStore) -> None:
        # Without repetition, so that it is packed.
        asks = "".join(random.Random(1).choices("abcdefgh ", k=3000))
        await record_run(store, session="s", asks=asks)

    within(path, write)
    return path


def test_a_copy_neither_starts_again_nor_takes_in_what_is_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = tmp_path / "record.db", tmp_path / "copy.db"
    monkeypatch.setattr(sqlite_backup, "PAGES_AT_ONCE", 1)
    totals: set[int] = set()
    written: list[str] = []

    async def scenario(store: SqliteStore) -> None:
        await record_run(store, session="before")
        loop = asyncio.get_running_loop()

        def write_more(done: int, total: int) -> None:
            if len(written) < 20:
                written.append(f"during-{len(written)}")
                writing = record_run(store, session=written[-1])
                asyncio.run_coroutine_threadsafe(writing, loop).result(60)
                totals.add(total)

        await asyncio.to_thread(back_up, path, target, write_more)

    within(path, scenario)

    assert sessions_in(target) == ["before"]
    assert sessions_in(path) == ["before", *written]
    assert len(totals) == 1


# -- what is not replaced


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", ".lock", "-journal"])
def test_the_record_is_no_target(source: Path, ending: str) -> None:
    before = source.read_bytes()

    with pytest.raises(StoreError, match="is the record itself"):
        copy(source, source.with_name(source.name + ending))

    assert source.read_bytes() == before


@pytest.mark.parametrize("make", [os.link, os.symlink])
def test_another_name_of_the_record_is_no_target(
    source: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    make(source, tmp_path / "other.db")

    with pytest.raises(StoreError, match="is the record itself"):
        copy(source, tmp_path / "other.db")


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_a_database_that_was_not_closed_is_not_replaced(
    source: Path, tmp_path: Path, ending: str
) -> None:
    (tmp_path / f"copy.db{ending}").write_bytes(b"")

    with pytest.raises(StoreError, match="is open, or was not closed"):
        copy(source, tmp_path / "copy.db")


def test_the_record_of_a_running_server_is_not_replaced(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"

    async def scenario(store: SqliteStore) -> None:
        with pytest.raises(StoreError, match="is open, or was not closed"):
            copy(source, target)
        await record_run(store, session="theirs")

    within(target, scenario)

    assert sessions_in(target) == ["theirs"]


def test_a_record_that_a_server_is_just_opening_is_not_replaced(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    copy(source, target)
    lock = FileLock(target)
    lock.take()
    try:
        with pytest.raises(StoreBusy, match="held by another server"):
            copy(source, target)
    finally:
        lock.release()


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_is_made_meanwhile_stays(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    target = tmp_path / "copy.db"
    if not has_links:
        monkeypatch.setattr(os, "link", refuse)

    def make_it(done: int, total: int) -> None:
        target.write_bytes(b"theirs")

    with pytest.raises(StoreError, match="made meanwhile"):
        back_up(source, target, make_it)

    assert target.read_bytes() == b"theirs"
    assert beside(target) == ["copy.db"]


def test_where_files_have_one_name_only_it_is_renamed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refuse)

    copy(source, tmp_path / "copy.db", replaces=False)

    assert sessions_in(tmp_path / "copy.db") == ["s"]
    assert beside(tmp_path / "copy.db") == ["copy.db"]


def refuse(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


# -- what is damage


def test_answers_that_do_not_unpack_are_not_copied_over_a_good_backup(
    source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    copy(source, target)
    kept = target.read_bytes()
    with closing(sqlite3.connect(source)) as connection:
        connection.execute(
            "update blob set content = zeroblob(length(content)) where length(content) < size"
        )
        connection.commit()
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]

    with pytest.raises(StoreError, match=r"record\.db: it is damaged, and so would be the copy"):
        copy(source, target)

    assert target.read_bytes() == kept
    assert beside(target) == ["copy.db"]


def test_what_a_removal_has_not_come_to_yet_is_no_damage(source: Path, tmp_path: Path) -> None:
    connection = open_writer(source)
    with closing(connection):
        connection.execute("begin")
        Recorder(connection).removals.begin("s")
        connection.execute("commit")
        assert connection.execute("pragma foreign_key_check").fetchall() != []

        assert check_file(source, tell_nobody) == []
        copy(source, tmp_path / "copy.db")

        connection.execute("delete from leftover")
        assert "session_id of step refers to a row of session that is not there: 2." in check_file(
            source, tell_nobody
        )


@pytest.mark.parametrize("seed", range(3))
def test_forks_and_deletions_at_work_are_no_damage(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "record.db"

    async def scenario(store: SqliteStore) -> None:
        author = Author(seed)
        for _ in range(60):
            await author.act(store)
            assert check_file(path, tell_nobody) == []

    within(path, scenario)
