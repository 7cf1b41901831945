"""The SQLite store keeps the contract of edits and reruns, as the dictionary store does."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from agentstate.ground.revisions import Revision
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import MakeStore, answer_of, checkpoint_of
from tests.store.contract_revisions import RevisionsContract, check_any_order
from tests.store.test_sqlite import sessions, times_ms
from tests.store.test_sqlite_control import ControlComparison


class TestSqliteRevisions(RevisionsContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        path = tmp_path / "record.db"
        return lambda: SqliteStore(path)


def test_any_order_can_be_gone_back_over() -> None:
    def make() -> Store:
        return SqliteStore(Path(tempfile.mkdtemp()) / "record.db")

    check_any_order(make)


class RevisionsComparison(ControlComparison):
    """Puts other answers in place as well, in any order."""

    @rule(session=sessions, index=st.integers(0, 4), count=st.integers(0, 3), at_ms=times_ms)
    def revise(self, session: str, index: int, count: int, at_ms: int) -> None:
        step = self._both(lambda store: store.find_step(session, index))
        row = self._both(lambda store: store.read_session(session))
        if step is None or row is None or step.answer_id is None:
            return
        checkpoint = checkpoint_of(
            step.step_id, answer=answer_of(b"new"), cost_microusd=0, usage=None, text="new"
        )
        revision = Revision("edit", step.answer_id, by="ann")
        taken = ((index + 1, index + count),) if count else ()
        self._both(
            lambda store: store.revise(
                checkpoint, revision, taken=taken, seen=row.steps, at_ms=at_ms
            )
        )

    @invariant()
    def revisions_are_the_same(self) -> None:
        for session in ("s", "t"):
            self._both(lambda store, of=session: store.list_revised(of))
            self._both(lambda store, of=session: store.find_answered(of, "chatcmpl-1"))
        for step_id in range(1, 5):
            self._both(lambda store, of=step_id: store.answers_of(of))


TestSameAsMemory = RevisionsComparison.TestCase
TestSameAsMemory.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
