"""Reads go by an index, and see one state of the record."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from types import ModuleType

import pytest

from agentstate.store import (
    sqlite_control_read,
    sqlite_control_record,
    sqlite_events_read,
    sqlite_events_record,
    sqlite_gate_read,
    sqlite_gate_record,
    sqlite_keys,
    sqlite_read,
    sqlite_record,
    sqlite_request,
    sqlite_runs,
    sqlite_sessions,
)
from agentstate.store.base import Key
from agentstate.store.sqlite_pack import ContentTooLarge
from agentstate.store.sqlite_read import read_answer
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_schema import migrate
from tests.store.contract import answer_of, checkpoint_of, claim_of, tail_of

MODULES = (
    sqlite_control_read,
    sqlite_control_record,
    sqlite_events_read,
    sqlite_events_record,
    sqlite_gate_read,
    sqlite_gate_record,
    sqlite_keys,
    sqlite_read,
    sqlite_record,
    sqlite_request,
    sqlite_runs,
    sqlite_sessions,
)


def _is_own(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and value.__module__ == module.__name__


STATEMENTS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": text
    for module in MODULES
    for owner in (module, *(one for one in vars(module).values() if _is_own(one, module)))
    for name, text in vars(owner).items()
    if isinstance(text, str) and text.strip().startswith(("select", "with", "update"))
} | {f"sqlite_read.candidates.{key}": sql for key, sql in sqlite_read._CANDIDATES.items()}

# What has to look at everything, and why that is right.
SCANS = {
    "sqlite_events_read._COUNT_DELIVERIES": "counts along an index",
    "sqlite_events_read._DELIVERY_COLUMNS": "is a beginning",
    "sqlite_events_read._FIND_IDLE": "looks at the claims in flight, by their index",
    "sqlite_events_read._LIST_DELIVERIES": "is a template",
    "sqlite_events_read._NEXT_DUE": "looks at the first of the queue, by its index",
    "sqlite_events_record._NOTE_IDLE": "looks at the claims in flight, by their index",
    "sqlite_gate_read._APPROVAL_COLUMNS": "is a beginning",
    "sqlite_gate_read._COUNT_PENDING": "walks an index of the undecided",
    "sqlite_gate_read._LIST_APPROVALS": "is a template",
    "sqlite_gate_read._NEWEST": "walks an index and stops at the limit",
    "sqlite_gate_read._OLDEST": "walks an index and stops at the limit",
    "sqlite_gate_read._NEWEST_UNDECIDED": "walks an index and stops at the limit",
    "sqlite_gate_read._OLDEST_UNDECIDED": "walks an index and stops at the limit",
    "sqlite_read._ANSWER_COLUMNS": "is a beginning",
    "sqlite_read._FIND_CANDIDATES": "is a template",
    "sqlite_read._STEP_COLUMNS": "is a beginning",
    "sqlite_read._LIST_STEPS": "is a template",
    "sqlite_sessions._LIST_SESSIONS": "is a template",
    "sqlite_sessions._NEWEST_SESSIONS": "walks an index and stops at the limit",
    "sqlite_sessions._OLDEST_SESSIONS": "walks an index and stops at the limit",
    "sqlite_sessions._READ_TOTALS": "sums up sessions, not steps",
    "sqlite_sessions._SESSION_COLUMNS": "is a beginning",
    "sqlite_control_read._LIST_PAUSED": "walks an index of those that are paused",
    "sqlite_record._COUNT_LOST": "walks an index of the claims in flight",
    "sqlite_record._END_LOST": "walks an index of the claims in flight",
}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - SCANS.keys()))
def test_a_statement_looks_things_up(connection: sqlite3.Connection, name: str) -> None:
    plan = _plan(connection, STATEMENTS[name])

    # Not tables: what the statement itself has gathered, and a row without a table.
    harmless = ("SCAN prefix", "SCAN CONSTANT ROW")
    assert [line for line in plan if "SCAN" in line and line not in harmless] == []


@pytest.mark.parametrize("key", sorted(sqlite_read._CANDIDATES.keys() - {"alias"}))
def test_candidates_are_found_by_their_key(connection: sqlite3.Connection, key: Key) -> None:
    """Not by walking the steps of the session, which the planner would choose for the order."""
    plan = _plan(connection, sqlite_read._CANDIDATES[key])

    assert f"SEARCH step USING INDEX step_{key} (session_id=? AND <expr>=?)" in plan


@pytest.mark.parametrize("name", sorted(name for name in SCANS if SCANS[name].startswith("walks")))
def test_a_walk_goes_along_an_index(connection: sqlite3.Connection, name: str) -> None:
    plan = _plan(connection, STATEMENTS[name])

    assert all("USING" in line for line in plan if line.startswith("SCAN"))
    assert [line for line in plan if "TEMP B-TREE" in line] == []


def test_the_list_of_scans_is_current() -> None:
    assert SCANS.keys() <= STATEMENTS.keys()


def test_a_large_answer_is_left_for_another_thread(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    recorder.claim_step(claim_of())
    recorder.record_answer(checkpoint_of(1, answer=answer_of(b"x" * 1000)))

    with pytest.raises(ContentTooLarge):
        read_answer(connection, 1, 1000)

    assert read_answer(connection, 1, 2000) == answer_of(b"x" * 1000)
    assert read_answer(connection, 1) == answer_of(b"x" * 1000)
    assert read_answer(connection, 2, 1) is None


def test_a_tail_that_comes_between_is_read_whole_or_not_at_all(
    connection: sqlite3.Connection,
) -> None:
    """The answer is read before its tails, and both may change in between."""
    recorder = Recorder(connection)
    recorder.claim_step(claim_of())
    begun = answer_of(b"1", form="events", is_sealed=False)
    recorder.record_answer(checkpoint_of(1, answer=begun))
    statements: list[str] = []

    def watch(sql: str) -> None:
        statements.append(sql)
        if "from answer_tail" in sql and len(statements) == 2:
            recorder.append_tail(tail_of(1, b"2", pace=b""))

    connection.set_trace_callback(watch)
    answer = read_answer(connection, 1)

    assert answer is not None
    assert (answer.content, answer.is_sealed) == (b"12", True)


def _plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    sql = sql.replace("{places}", "?, ?")
    named = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
    values = named or [1] * sql.count("?")
    return [row[3] for row in connection.execute(f"explain query plan {sql}", values)]
