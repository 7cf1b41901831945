"""The SQLite store keeps the contract about tool calls, and reads along indexes."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import pytest

from agentstate.store import sqlite_calls_read
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import MakeStore
from tests.store.contract_calls import CallContract, called


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


class TestSqliteCalls(CallContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


@pytest.mark.parametrize(
    "statement",
    [
        sqlite_calls_read._OLDEST_CALLINGS,
        sqlite_calls_read._NEWEST_CALLINGS,
        sqlite_calls_read._LIST_CALLS,
        sqlite_calls_read._READ_CONTENT,
        sqlite_calls_read._LIST_ASKED,
        sqlite_calls_read._LIST_TWINS,
        sqlite_calls_read._STEP_UP,
        sqlite_calls_read._LIST_REQUESTS,
        sqlite_calls_read._SUM_UP,
        sqlite_calls_read._LIST_OPEN,
        sqlite_calls_read._COUNT_BEFORE,
        sqlite_calls_read._SUM_UP_ROUNDS,
    ],
)
def test_every_statement_goes_by_an_index(path: Path, statement: str) -> None:
    async def fill() -> None:
        store = SqliteStore(path)
        await store.open()
        for number in range(50):
            await called(store, str(number))
        await store.close()

    asyncio.run(fill())
    connection = sqlite3.connect(path)
    named = dict.fromkeys(re.findall(r":(\w+)", statement), "[1]")
    values = named or ("1",) * statement.count("?")
    plan = [row[3] for row in connection.execute(f"explain query plan {statement}", values)]
    connection.close()
    scans = [step for step in plan if step.startswith("SCAN") and "VIRTUAL" not in step]
    assert scans == [], plan
    assert not any("TEMP B-TREE" in step for step in plan), plan
