"""What is not in the index is certainly not on record; what is there may be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentstate.ground.records import Identity
from agentstate.store import sqlite_keys
from agentstate.store.sqlite_keys import KeyIndex
from agentstate.store.sqlite_schema import migrate

IDENTITY = Identity(b"r" * 32, b"e" * 32, b"p" * 32, b"m" * 32)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


def test_a_new_session_has_nothing_until_it_is_told(connection: sqlite3.Connection) -> None:
    index = KeyIndex()
    assert not index.may_have(connection, "s", "exact", b"e" * 32)
    index.add_step("s", IDENTITY)
    assert index.may_have(connection, "s", "exact", b"e" * 32)
    assert not index.may_have(connection, "s", "pinned", b"e" * 32)
    assert not index.may_have(connection, "other", "exact", b"e" * 32)


def test_a_session_is_not_loaded_while_its_keys_are_on_their_way(
    connection: sqlite3.Connection,
) -> None:
    index = KeyIndex()
    with index.writing("s"):
        index.add_step("s", IDENTITY)  # not kept, so not told
        assert index.may_have(connection, "s", "exact", b"e" * 32)
        assert index.may_have(connection, "s", "exact", b"x" * 32)
    assert not index.may_have(connection, "s", "exact", b"x" * 32)


def test_a_session_with_too_many_steps_asks_the_file(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_keys, "SESSION_KEYS_MAX", 4)
    index = KeyIndex()
    index.may_have(connection, "s", "raw", b"")
    index.add_step("s", IDENTITY)
    assert not index.may_have(connection, "s", "exact", b"x" * 32)
    index.add_step("s", Identity(b"1" * 32, b"2" * 32, b"3" * 32, b"4" * 32))
    # Forgotten, then loaded anew: the file of this test has no steps.
    assert not index.may_have(connection, "s", "exact", b"e" * 32)


def test_what_is_kept_is_bounded(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_keys, "KEYS_MAX", 8)
    index = KeyIndex()
    for name in ("a", "b", "c"):
        index.may_have(connection, name, "raw", b"")
        index.add_step(name, IDENTITY)
    assert list(index._sessions) == ["b", "c"]
    assert index._count == 8
