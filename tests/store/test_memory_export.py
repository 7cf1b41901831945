"""The dictionary store keeps export's contract."""

from __future__ import annotations

import pytest

from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from tests.store.contract import MakeStore
from tests.store.contract_export import ExportContract


class TestMemoryExport(ExportContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        store: Store = MemoryStore()
        return lambda: store
