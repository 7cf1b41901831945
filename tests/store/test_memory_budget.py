"""The dictionary store keeps the contract of budgets."""

from __future__ import annotations

import pytest

from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from tests.store.contract import MakeStore
from tests.store.contract_budget import BudgetContract


class TestMemoryBudget(BudgetContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        store: Store = MemoryStore()
        return lambda: store
