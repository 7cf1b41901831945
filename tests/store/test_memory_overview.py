"""The dictionary store keeps what the dashboard asks of a store."""

from __future__ import annotations

import pytest

from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from tests.store.contract import MakeStore
from tests.store.contract_overview import OverviewContract


class TestMemoryOverview(OverviewContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        store: Store = MemoryStore()
        return lambda: store
