"""The SQLite store keeps export's contract, reads in threads and never the whole record."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from agentstate.store import sqlite_export_read
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import MakeStore, answered, message, request_of
from tests.store.contract_export import ExportContract


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


class TestSqliteExport(ExportContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


@pytest.mark.parametrize(
    "statement",
    [
        sqlite_export_read._LIST_LINEAGE,
        sqlite_export_read._WALK_SESSIONS,
        sqlite_export_read._LIST_ANSWERS,
        sqlite_export_read._READ_MESSAGE,
        sqlite_export_read._FIND_PARENT,
    ],
)
def test_every_statement_goes_by_an_index(path: Path, statement: str) -> None:
    async def fill() -> None:
        store = SqliteStore(path)
        await store.open()
        for number in range(50):
            await answered(store, str(number), request=request_of(message(str(number))))
        await store.close()

    asyncio.run(fill())
    connection = sqlite3.connect(path)
    values = (1,) * statement.count("?")
    plan = [row[3] for row in connection.execute(f"explain query plan {statement}", values)]
    connection.close()
    scans = [step for step in plan if step.startswith("SCAN") and "CONSTANT" not in step]
    assert scans in ([], ["SCAN approval"]) or all("json" in each for each in scans), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan
