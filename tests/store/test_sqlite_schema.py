"""Migrations go forward, whole or not at all, and only over our own files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentstate.ground.errors import StoreError
from agentstate.store import sqlite_schema
from agentstate.store.sqlite_schema import (
    APPLICATION_ID,
    MIGRATIONS,
    Migration,
    check_owner,
    migrate,
    split_statements,
)

SECOND = Migration(
    "second",
    "a test",
    """
    alter table session add column color text;  -- with a comment
    update session set color = 'red';
    """,
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        yield connection


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])


def test_a_new_file_gets_all_migrations(connection: sqlite3.Connection) -> None:
    migrate(connection)

    rows = connection.execute("select version, name, reason from migration").fetchall()
    noted = [(number, one.name, one.reason) for number, one in enumerate(MIGRATIONS, start=1)]
    assert rows == noted
    assert version_of(connection) == len(MIGRATIONS)
    assert connection.execute("pragma application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("pragma foreign_key_check").fetchall() == []


def test_a_current_file_is_left_alone(connection: sqlite3.Connection) -> None:
    migrate(connection)
    before = connection.total_changes

    migrate(connection)

    assert connection.total_changes == before


def test_an_older_file_keeps_its_rows(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(connection)
    connection.execute("insert into session (name, created_ms, updated_ms) values ('s', 1, 1)")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", (*MIGRATIONS, SECOND))

    migrate(connection)

    assert connection.execute("select name, color from session").fetchall() == [("s", "red")]
    assert version_of(connection) == len(MIGRATIONS) + 1


def test_a_migration_that_fails_leaves_nothing(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(connection)
    broken = Migration("broken", "a test", "create table made (x);\nselect * from nowhere;\n")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", (*MIGRATIONS, broken, SECOND))

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection)

    assert not connection.in_transaction
    assert version_of(connection) == len(MIGRATIONS)
    names = {row[0] for row in connection.execute("select name from sqlite_master")}
    assert "made" not in names


def test_a_newer_file_is_refused(connection: sqlite3.Connection) -> None:
    migrate(connection)
    connection.execute(f"pragma user_version = {len(MIGRATIONS) + 1}")

    with pytest.raises(StoreError, match="newer version"):
        migrate(connection)


@pytest.mark.parametrize(
    "statement",
    ["create table theirs (x)", "pragma user_version = 3", "pragma application_id = 7"],
)
def test_a_database_of_something_else_is_refused(
    connection: sqlite3.Connection, statement: str
) -> None:
    connection.execute(statement)

    with pytest.raises(StoreError, match="something else"):
        check_owner(connection)


def test_statements_are_split_without_comments() -> None:
    script = """
    create table a (
      x text,  -- why
      y text
    );
    -- alone
    insert into a values ('1;2', ';');
    """

    assert list(split_statements(script)) == [
        "create table a ( x text, y text );",
        "insert into a values ('1;2', ';');",
    ]


def test_a_script_ends_with_a_semicolon() -> None:
    with pytest.raises(AssertionError):
        list(split_statements("select 1; select 2"))


def test_every_migration_says_why() -> None:
    assert all(one.name and one.reason for one in MIGRATIONS)
    assert len({one.name for one in MIGRATIONS}) == len(MIGRATIONS)
