"""The dictionary store keeps the contract of forks and deletion."""

from __future__ import annotations

import pytest

from agentstate.store.memory import MemoryStore
from tests.store.contract import MakeStore
from tests.store.contract_forks import ForkContract


class TestMemoryForks(ForkContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        store = MemoryStore()
        return lambda: store
