"""How the file is opened, and what its errors say."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from agentstate.ground.errors import StoreError
from agentstate.store import sqlite_file
from agentstate.store.sqlite_file import (
    PAGE_BYTES,
    FileIdentity,
    open_reader,
    open_writer,
    store_error,
)
from agentstate.store.sqlite_migrations import MIGRATIONS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a record %41?#.db"


def setting_of(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"pragma {name}").fetchone()[0]


def test_a_writer_is_set_up(path: Path) -> None:
    with closing(open_writer(path)) as connection:
        assert setting_of(connection, "journal_mode") == "wal"
        assert setting_of(connection, "synchronous") == 2  # full
        assert setting_of(connection, "page_size") == PAGE_BYTES
        assert setting_of(connection, "auto_vacuum") == 2  # incremental
        assert setting_of(connection, "busy_timeout") == sqlite_file.BUSY_S * 1000


def test_the_file_is_its_owners_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        with closing(open_writer(path)):
            for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                assert stat.S_IMODE(name.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_reader_cannot_write(path: Path) -> None:
    with closing(open_writer(path)), closing(open_reader(path)) as reader:
        assert reader.execute("select count(*) from session").fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError):
            reader.execute("delete from session")


def test_an_older_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 30, 1))

    with pytest.raises(StoreError, match=r"3\.31\.0 or later"):
        open_writer(path)

    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"SQLite format 3",
        b"a text file, longer than a header\n" * 50,
        b"SQLite format 3\0" + b"but not what follows it\n" * 50,
    ],
)
def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(StoreError, match="not a database") as caught:
        open_writer(path)

    assert str(path) in caught.value.message
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("create table theirs (x)")
    before = path.read_bytes()

    with pytest.raises(StoreError, match="something else"):
        open_writer(path)

    assert path.read_bytes() == before


def test_a_newer_file_is_refused_and_named(path: Path) -> None:
    with closing(open_writer(path)) as connection:
        connection.execute(f"pragma user_version = {len(MIGRATIONS) + 1}")

    with pytest.raises(StoreError, match="newer version") as caught:
        open_writer(path)

    assert str(path) in caught.value.message


def test_an_empty_file_is_a_new_record(path: Path) -> None:
    path.touch()

    with closing(open_writer(path)) as connection:
        assert setting_of(connection, "user_version") == len(MIGRATIONS)


@pytest.mark.parametrize("name", ["missing/record.db", "."])
def test_a_place_that_takes_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        open_writer(tmp_path / name)


def test_a_file_that_is_gone_is_noticed(path: Path) -> None:
    with closing(open_writer(path)):
        file = FileIdentity(path)
        file.check()
        path.rename(path.with_name("moved.db"))

        with pytest.raises(StoreError, match="is gone"):
            file.check()

        path.with_name("moved.db").rename(path)
        file.check()


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_that_was_replaced_is_noticed(path: Path, suffix: str) -> None:
    with closing(open_writer(path)):
        file = FileIdentity(path)
        replaced = Path(f"{path}{suffix}")
        replaced.rename(path.with_name("moved"))  # kept, so that its inode is not given out again
        replaced.write_bytes(b"")

        with pytest.raises(StoreError, match="was replaced"):
            file.check()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (sqlite3.SQLITE_FULL, "disk is full"),
        (sqlite3.SQLITE_IOERR, "failed to read or write"),
        (sqlite3.SQLITE_IOERR | 12 << 8, "failed to read or write"),
        (sqlite3.SQLITE_READONLY, "cannot be written"),
        (sqlite3.SQLITE_CORRUPT, "damaged"),
        (sqlite3.SQLITE_BUSY, "locked"),
    ],
)
def test_an_error_of_the_disk_is_explained(path: Path, code: int, message: str) -> None:
    error = sqlite3.OperationalError("text of the library")
    error.sqlite_errorcode, error.sqlite_errorname = code, "SQLITE_NAME"

    meant = store_error(error, path)

    assert isinstance(meant, StoreError)
    assert message in meant.message
    assert str(path) in meant.message
    assert "SQLITE_NAME" in meant.message


def test_a_mistake_of_ours_stays_what_it_is(path: Path) -> None:
    wrong_sql = sqlite3.OperationalError("no such table")
    wrong_sql.sqlite_errorcode, wrong_sql.sqlite_errorname = sqlite3.SQLITE_ERROR, "SQLITE_ERROR"
    for error in (wrong_sql, sqlite3.ProgrammingError("closed"), ValueError("else")):
        assert store_error(error, path) is error
