"""Which store a setting names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentstate.ground.errors import SettingError
from agentstate.ground.settings import StoreSettings
from agentstate.store import STORES, Store, open_store
from agentstate.store.memory import MemoryStore
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import answered, run


def test_every_backend_is_a_store(tmp_path: Path) -> None:
    stores: list[Store] = [SqliteStore(tmp_path / "a.db"), MemoryStore()]  # mypy compares them

    assert len(stores) == len(STORES)


@pytest.mark.parametrize("form", ["{}", "sqlite://{}"])
def test_a_path_names_an_sqlite_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "agent state.db"

    store = open_store(StoreSettings(path=form.format(path)))

    assert isinstance(store, SqliteStore)
    run(lambda: store, answered)
    assert path.read_bytes().startswith(b"SQLite format 3")


def test_nothing_is_touched_before_open(tmp_path: Path) -> None:
    open_store(StoreSettings(path=str(tmp_path / "a.db")))

    assert list(tmp_path.iterdir()) == []


def test_memory_needs_no_path() -> None:
    assert isinstance(open_store(StoreSettings(path="memory://")), MemoryStore)


def test_a_drive_letter_is_no_kind_of_store() -> None:
    assert isinstance(open_store(StoreSettings(path="C:\\records\\agentstate.db")), SqliteStore)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SettingError, match=r"postgres.*sqlite and memory"):
        open_store(StoreSettings(path="postgres://host/name"))


def test_a_driver_is_imported_only_when_its_store_is_opened() -> None:
    source = Path(str(sys.modules["agentstate.store"].__file__)).read_text()

    head = source.partition("def ")[0]

    assert "sqlite" not in head.partition('"""\n')[2]
