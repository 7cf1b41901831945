"""The SQLite store keeps the contract of cassettes; an import survives a kill, whole or not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentstate.ground.records import Checkpoint
from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_record import Recorder
from tests.store.contract import MakeStore, identity_of
from tests.store.contract_tape import TapeContract, imported, taped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


class TestSqliteTape(TapeContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


def test_a_failure_in_the_middle_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Recorder.record_answer
    count = 0

    def failing(self: Recorder, checkpoint: Checkpoint, **given: Any) -> int:
        nonlocal count
        count += 1
        if count % 3 == 0:
            raise ValueError("the third one")
        return whole(self, checkpoint, **given)

    monkeypatch.setattr(Recorder, "record_answer", failing)

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        with pytest.raises(ValueError, match="third"):
            await imported(store, taped("a", "b", "c"))
        assert await store.read_session("s") is None
        await store.close()

    asyncio.run(main())


def test_what_was_imported_is_there_after_a_restart(path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        await imported(store, taped("a", "b"))
        await store.close()
        again = SqliteStore(path)
        assert await again.open() == 0
        [found] = await again.find_candidates("s", "exact", identity_of("b").exact)
        assert found.state == "complete"
        await again.close()

    asyncio.run(main())
