"""What is read of events goes by the index made for it; `test_sqlite_read.py`: none scans."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentstate.ground.records import Query
from agentstate.store import sqlite_events_read
from agentstate.store.sqlite_events_read import but_not_hooks, find_idle
from agentstate.store.sqlite_events_record import EventRecorder
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_schema import migrate
from tests.store.contract import checkpoint_of, claim_of
from tests.store.contract_gate import FAR_MS


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (sqlite_events_read._NEWEST_OF_SESSION, "event_session"),
        (sqlite_events_read._NEWEST_IN_STATE, "delivery_state"),
        (sqlite_events_read._COUNT_DELIVERIES, "delivery_state"),
        (sqlite_events_read._NEXT_DUE, "delivery_due"),
        (sqlite_events_read._NEXT_DUE, "delivery_leased"),
        (sqlite_events_read._FIND_IDLE, "session_updated"),
        (sqlite_events_read._FIND_IDLE, "step_in_flight"),
        (sqlite_events_read._FIND_IDLE, "approval_waiting"),
        (EventRecorder._FIND_DUE, "delivery_due"),
        (EventRecorder._IS_DONE, "delivery_event"),
    ],
)
def test_events_are_found_by_the_index_made_for_it(
    connection: sqlite3.Connection, statement: str, index: str
) -> None:
    statement = statement.replace("{places}", "?")
    values = dict.fromkeys(re.findall(r":(\w+)", statement), 1) or [1] * statement.count("?")
    plan = [row[3] for row in connection.execute(f"explain query plan {statement}", values)]

    assert [line for line in plan if re.search(rf"USING \w*\s?INDEX {index}\b", line)]


@pytest.mark.parametrize("statement", [EventRecorder._FIND_DUE, sqlite_events_read._FIND_IDLE])
def test_what_is_taken_in_order_is_not_sorted(
    connection: sqlite3.Connection, statement: str
) -> None:
    statement = statement.replace("{places}", "?")
    values = dict.fromkeys(re.findall(r":(\w+)", statement), 1) or [1] * statement.count("?")
    plan = [row[3] for row in connection.execute(f"explain query plan {statement}", values)]

    assert [line for line in plan if "TEMP B-TREE" in line] == []


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        (Query(), sqlite_events_read._NEWEST),
        (Query(newest_first=False), sqlite_events_read._OLDEST),
        (Query(state="dead"), sqlite_events_read._NEWEST_IN_STATE),
        (Query(state="due", newest_first=False), sqlite_events_read._OLDEST_IN_STATE),
        (Query(session="s", state="dead"), sqlite_events_read._NEWEST_OF_SESSION),
        (Query(session="s", newest_first=False), sqlite_events_read._OLDEST_OF_SESSION),
    ],
)
def test_a_listing_takes_the_index_with_the_fewest_rows(query: Query, statement: str) -> None:
    assert sqlite_events_read._listing(query) == statement


def test_webhooks_are_named_by_parameters() -> None:
    statement, hooks = but_not_hooks("not in ({places})", frozenset(("b'; --", "a")))
    assert (statement, hooks) == ("not in (?, ?)", ("a", "b'; --"))
    assert but_not_hooks("not in ({places})", ()) == ("not in ()", ())


def test_a_step_that_is_rolled_back_is_not_the_last_one(connection: sqlite3.Connection) -> None:
    recorder = Recorder(connection)
    for step_id, text in ((1, "a"), (2, "b")):
        recorder.claim_step(claim_of(text))
        recorder.record_answer(checkpoint_of(step_id))
    connection.execute("update step set rolled_back_ms = 1 where id = 2")

    (found,) = find_idle(connection, FAR_MS, 1, 1)

    assert (found.index, found.step_number) == (0, 0)
