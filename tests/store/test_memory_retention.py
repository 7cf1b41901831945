"""The dictionary store keeps the contract of making room."""

from __future__ import annotations

import pytest

from agentstate.store.memory import MemoryStore
from tests.store.contract import MakeStore
from tests.store.contract_retention import RetentionContract


class TestMemoryRetention(RetentionContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        store = MemoryStore()
        return lambda: store
