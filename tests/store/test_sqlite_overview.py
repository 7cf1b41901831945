"""The SQLite store keeps what the dashboard asks of a store, and finds a span by halving."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agentstate.ground.overview import Span
from agentstate.store import sqlite_overview_read as overview_read
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import START_MS, MakeStore, checkpoint_of, claim_of
from tests.store.contract_overview import HOUR_MS, OverviewContract


class TestSqliteOverview(OverviewContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: SqliteStore(tmp_path / "record.db")


def test_a_span_begins_at_any_place_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each beginning finds exactly what came since, with no slack to hide an id that is off."""
    monkeypatch.setattr(overview_read, "CLOCK_SLACK_MS", 0)

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "record.db")
        await store.open()
        for number in range(9):
            at_ms = START_MS + number * HOUR_MS
            claimed = await store.claim_step(claim_of(str(number), created_ms=at_ms))
            await store.record_answer(replace(checkpoint_of(claimed.step_id), answered_ms=at_ms))
        for number in range(11):
            since_ms = START_MS + number * HOUR_MS
            found = await store.count_between(Span(since_ms, START_MS + 20 * HOUR_MS, HOUR_MS))
            assert sum(row.answers for row in found.answers) == max(0, 9 - number)
        await store.close()

    asyncio.run(scenario())
