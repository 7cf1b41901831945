"""What the gate reads goes by the index made for it; `test_sqlite_read.py` says that none scans."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentstate.ground.approvals import Refusal
from agentstate.ground.records import Query
from agentstate.store import sqlite_gate_read, sqlite_gate_record, sqlite_keys, sqlite_sessions
from agentstate.store.sqlite_gate_read import (
    approvals_of,
    list_refusals,
    read_approval,
    read_delivered,
)
from agentstate.store.sqlite_pack import ContentTooLarge
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_schema import migrate
from tests.store.contract import START_MS, answer_of, checkpoint_of, claim_of
from tests.store.contract_gate import approval_of, question_of, rejection_of


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (sqlite_gate_read._APPROVALS_OF, "approval_answer"),
        (sqlite_gate_read._LIST_REFUSALS, "approval_refused"),
        (sqlite_gate_read._NEWEST, "approval_asked"),
        (sqlite_gate_read._OLDEST_OF_SESSION, "approval_session"),
        (sqlite_gate_read._NEWEST_UNDECIDED, "approval_undecided"),
        (sqlite_gate_record.GateRecorder._FIND_FOR_ANSWER, "approval_answer"),
        (sqlite_gate_record.GateRecorder._FIND_FOR_REQUEST, "approval_request"),
        (sqlite_keys.FIND_SESSION, "approval_refused"),
        (sqlite_sessions._NEWEST_SESSIONS, "approval_waiting"),
        (sqlite_sessions._READ_SESSION, "approval_waiting"),
    ],
)
def test_approvals_are_found_by_the_index_made_for_it(
    connection: sqlite3.Connection, statement: str, index: str
) -> None:
    named = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    values = named or [1] * statement.count("?")
    plan = [row[3] for row in connection.execute(f"explain query plan {statement}", values)]

    assert [line for line in plan if re.search(rf"approval USING \w*\s?INDEX {index}\b", line)]


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        (Query(), sqlite_gate_read._NEWEST),
        (Query(status="REJECTED"), sqlite_gate_read._NEWEST),
        (Query(status="EXPIRED"), sqlite_gate_read._NEWEST_UNDECIDED),
        (Query(status="PENDING", newest_first=False), sqlite_gate_read._OLDEST_UNDECIDED),
        (Query(session="s", status="PENDING"), sqlite_gate_read._NEWEST_OF_SESSION),
        (Query(session="s", newest_first=False), sqlite_gate_read._OLDEST_OF_SESSION),
    ],
)
def test_a_listing_takes_the_index_with_the_fewest_rows(query: Query, statement: str) -> None:
    assert sqlite_gate_read._listing(query) == statement


def test_a_step_that_is_rolled_back_has_nothing_to_tell(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    for step_id, text in ((1, "a"), (2, "b")):
        recorder.claim_step(claim_of(text))
        recorder.record_answer(checkpoint_of(step_id))
        (approval,) = recorder.gate.open_approvals(step_id, step_id, (question_of(),), START_MS)
        recorder.gate.decide(approval.approval_id, rejection_of(), START_MS)
    connection.execute("update step set rolled_back_ms = 1 where id = 1")

    assert list_refusals(connection, "s") == (Refusal(2, 2, 2, 0),)
    assert list_refusals(connection, "s", 0) == ()


def test_what_is_large_is_left_for_another_thread(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    recorder.claim_step(claim_of())
    recorder.record_answer(checkpoint_of(1))
    (approval,) = recorder.gate.open_approvals(1, 1, (question_of(arguments="x" * 60),), START_MS)
    name = approval.approval_id
    done = recorder.gate.decide(name, approval_of(arguments="y" * 40), START_MS)
    recorder.gate.record_delivered(1, answer_of(b"x" * 100, headers=()))

    for bytes_max in (59, 60, 99):  # the arguments, and those as edited
        with pytest.raises(ContentTooLarge):
            read_approval(connection, name, bytes_max)
        with pytest.raises(ContentTooLarge):
            approvals_of(connection, 1, bytes_max)
        with pytest.raises(ContentTooLarge):
            read_delivered(connection, 1, bytes_max)
    assert read_approval(connection, name, 100) == done
    assert approvals_of(connection, 1, 100) == (done,)
    assert read_delivered(connection, 1, 103) == answer_of(b"x" * 100, headers=())
    assert read_approval(connection, "apr_", 0) is None
