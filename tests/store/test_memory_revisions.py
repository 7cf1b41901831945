"""The dictionary store keeps the contract of edits and reruns."""

from __future__ import annotations

import pytest

from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from tests.store.contract import MakeStore
from tests.store.contract_revisions import RevisionsContract, check_any_order


class TestMemoryRevisions(RevisionsContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        store: Store = MemoryStore()
        return lambda: store


def test_any_order_can_be_gone_back_over() -> None:
    check_any_order(MemoryStore)
