"""The SQLite store keeps the contract of making room, and its file becomes shorter."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_file import PAGE_BYTES
from tests.helpers.runs import record_run
from tests.store.contract import MakeStore, answered, claim_of
from tests.store.contract_retention import LATER_MS, RetentionContract, retire


class TestSqliteRetention(RetentionContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: SqliteStore(tmp_path / "record.db")


def test_the_file_becomes_shorter(tmp_path: Path) -> None:
    path = tmp_path / "record.db"

    async def scenario() -> int:
        store = SqliteStore(path)
        await store.open()
        for number in range(40):
            asks = "".join(random.Random(number).choices("abcdefghijklmnop", k=20_000))
            await record_run(store, session=f"s{number}", asks=asks)
        full = (await store.read_totals())["bytes_used"]
        found = await store.list_quiet(quiet_since_ms=LATER_MS, at_ms=LATER_MS, limit=30)
        for one in found:
            assert await retire(store, one)
        await store.finish_removals()
        left = (await store.read_totals())["bytes_used"]
        await store.close()
        assert left < full / 2
        return left

    left = asyncio.run(scenario())

    # Nothing is free in it: what is not held was given back. Closing adds a few figures of its own.
    assert left <= path.stat().st_size < left + 16 * PAGE_BYTES


def test_a_session_that_went_is_a_new_one_when_it_calls_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "record.db")
        await store.open()
        await answered(store, "hi")
        [one] = await store.list_quiet(quiet_since_ms=LATER_MS, at_ms=LATER_MS, limit=9)
        assert await retire(store, one)
        assert await store.find_candidates("s", "exact", claim_of("hi").identity.exact) == ()
        claimed = await store.claim_step(claim_of("hi"))
        assert claimed.index == 0
        await store.close()

    asyncio.run(scenario())
