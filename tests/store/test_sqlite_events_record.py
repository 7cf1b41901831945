"""What is written of events: in the transaction of its cause, and nothing that grows for ever."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentstate.ground.errors import NotFound
from agentstate.store import sqlite_events_record
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_schema import migrate
from tests.store.contract import START_MS, checkpoint_of, claim_of
from tests.store.contract_events import event_of, wants
from tests.store.contract_gate import question_of, rejection_of


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


def kinds(connection: sqlite3.Connection) -> list[str]:
    return [kind for (kind,) in connection.execute("select kind from event order by id")]


def test_an_event_is_history_if_nobody_is_subscribed(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    recorder.claim_step(claim_of())
    recorder.record_answer(checkpoint_of(1))
    (approval,) = recorder.gate.open_approvals(1, 1, (question_of(),), START_MS)
    recorder.gate.decide(approval.approval_id, rejection_of(then="stop"), START_MS)

    assert kinds(connection) == ["approval.required", "approval.decided", "session.failed"]
    assert connection.execute("select count(*) from delivery").fetchone() == (0,)


def test_an_event_goes_back_with_its_cause(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    recorder.claim_step(claim_of())
    recorder.record_answer(checkpoint_of(1))
    connection.execute("begin")
    recorder.gate.open_approvals(1, 1, (question_of(),), START_MS, None, (wants(),))
    assert kinds(connection) == ["approval.required"]

    connection.execute("rollback")

    assert kinds(connection) == []
    assert connection.execute("select count(*) from delivery").fetchone() == (0,)


def test_at_most_so_many_events_are_kept(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_events_record, "EVENTS_KEPT_MAX", 5)
    events = Recorder(connection).events
    for number in range(20):
        events.write(event_of(number), (wants(),) if number % 2 else ())
        for delivery in events.claim_deliveries(START_MS, 1000, 10):
            events.settle_delivery(delivery.delivery_id, "sent", START_MS, None, 200, None)

    rows = connection.execute("select id from event order by id").fetchall()
    assert rows == [(16,), (17,), (18,), (19,), (20,)]
    left = connection.execute("select event_id from delivery order by id").fetchall()
    assert left == [(16,), (18,), (20,)]


def test_writing_an_event_looks_at_few_rows(connection: sqlite3.Connection) -> None:
    """However many there are: one statement for each of what it does."""
    events = Recorder(connection).events
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    events.write(event_of(), (wants(),))

    assert [one.split()[0] for one in statements] == ["insert", "insert", "select"]


def test_a_delivery_that_is_not_there_is_not_delivered_again(
    connection: sqlite3.Connection,
) -> None:
    with pytest.raises(NotFound, match="no delivery with the id 7"):
        Recorder(connection).events.redeliver(7, START_MS)


def test_the_file_itself_takes_one_delivery_for_each_webhook(
    connection: sqlite3.Connection,
) -> None:
    Recorder(connection).events.write(event_of(), (wants("a"), wants("b")))
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        connection.execute("insert into delivery (event_id, hook) values (1, 'b')")
