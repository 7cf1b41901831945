"""What is not in the index is certainly not on record; what is there may be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentstate.ground.approvals import Then
from agentstate.ground.records import Identity
from agentstate.store import sqlite_keys
from agentstate.store.sqlite_keys import KeyIndex
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_schema import migrate
from tests.store.contract import checkpoint_of, claim_of, identity_of
from tests.store.contract_gate import question_of, rejection_of

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
    assert index.may_have(connection, "s", "exact", b"e" * 32)
    assert index.may_have(connection, "s", "exact", b"x" * 32)
    assert index._count == 1


def test_a_session_with_too_many_steps_is_looked_at_once(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading its thousands of keys at each look took 11 ms of the event loop."""
    monkeypatch.setattr(sqlite_keys, "SESSION_KEYS_MAX", 4)
    recorder = Recorder(connection)
    for text in "abcde":
        recorder.claim_step(claim_of(text))
    index = KeyIndex()
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    for _ in range(3):
        assert index.may_have(connection, "s", "exact", b"x" * 32)
        assert not index.may_have_splices(connection, "s")

    assert len(statements) == 2
    assert not any("step.raw" in one for one in statements)


def test_what_is_kept_is_bounded(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_keys, "KEYS_MAX", 10)
    index = KeyIndex()
    for name in ("a", "b", "c"):
        index.may_have(connection, name, "raw", b"")
        index.add_step(name, IDENTITY)
    assert list(index._sessions) == ["b", "c"]
    assert index._count == 10


def test_sessions_without_a_key_are_bounded_as_well(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_keys, "KEYS_MAX", 10)
    index = KeyIndex()
    for place in range(40):
        index.may_have_splices(connection, str(place))
    assert list(index._sessions) == [str(place) for place in range(30, 40)]


def test_keys_of_a_session_are_loaded_from_the_file(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    recorder.claim_step(claim_of("a"))
    recorder.record_alias("s", b"x" * 32, 1)
    index, keys = KeyIndex(), identity_of("a")

    assert index.may_have(connection, "s", "raw", keys.raw)
    assert index.may_have(connection, "s", "exact", keys.exact)
    assert index.may_have(connection, "s", "pinned", keys.pinned)
    assert index.may_have(connection, "s", "masked", keys.masked)
    assert index.may_have(connection, "s", "alias", b"x" * 32)
    assert not index.may_have(connection, "s", "alias", b"y" * 32)
    assert index._count == 6


# --- refusals -------------------------------------------------------------------------------------


def refuse(connection: sqlite3.Connection, then: Then) -> None:
    """Write a refused call of the session "s"."""
    recorder = Recorder(connection)
    recorder.claim_step(claim_of())
    answer_id = recorder.record_answer(checkpoint_of(1))
    (approval,) = recorder.gate.open_approvals(1, answer_id, (question_of(),), 1)
    recorder.gate.decide(approval.approval_id, rejection_of(then=then), 1)


def test_refusals_are_known_from_the_file(connection: sqlite3.Connection) -> None:
    refuse(connection, "continue")
    index = KeyIndex()
    assert index.may_have_splices(connection, "s")
    assert not index.may_have_splices(connection, "other")


def test_a_rejection_that_ends_the_call_is_nothing_to_tell(connection: sqlite3.Connection) -> None:
    refuse(connection, "stop")
    assert not KeyIndex().may_have_splices(connection, "s")


def test_a_refusal_is_known_before_it_is_written(connection: sqlite3.Connection) -> None:
    index = KeyIndex()
    assert not index.may_have_splices(connection, "s")
    index.add_splice("s")
    assert index.may_have_splices(connection, "s")


def test_a_session_is_not_loaded_while_a_refusal_is_on_its_way(
    connection: sqlite3.Connection,
) -> None:
    index = KeyIndex()
    index.hold("s")
    index.add_splice("s")  # not kept, so not told
    assert index.may_have_splices(connection, "s")
    refuse(connection, "continue")
    index.let_go("s")
    assert index.may_have_splices(connection, "s")
