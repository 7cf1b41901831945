"""The SQLite store keeps the contract of budgets, does what the dictionary store does, and more."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from agentstate.ground.approvals import Decision
from agentstate.ground.budget import BudgetAction, BudgetChange, CapName, Caps
from agentstate.ground.control import About
from agentstate.ground.errors import BadRequest, NotFound
from agentstate.store import sqlite_budget
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import MakeStore, answered, checkpoint_of, claim_of
from tests.store.contract_budget import LATER_MS, BudgetContract, budget_question
from tests.store.test_sqlite import run, sessions, texts, times_ms
from tests.store.test_sqlite_control import ControlComparison


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


class TestSqliteBudget(BudgetContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


# --- the same as the dictionary store -------------------------------------------------------------

caps = st.sampled_from(["steps", "tokens", "cost_usd", "repeats"])
amounts = st.none() | st.integers(1, 90)
actions = st.sampled_from([None, "hold", "refuse"])


class BudgetComparison(ControlComparison):
    """Pays, sets caps, asks about them and lets go on as well, in any order."""

    def _outcome(self, call: Awaitable[Any]) -> Any:
        try:
            return super()._outcome(call)
        except BadRequest:  # arguments of another kind of question
            return BadRequest

    @rule(session=sessions, text=texts, calls=st.sampled_from([None, b"a" * 32, b"b" * 32]))
    def pay(self, session: str, text: str, calls: bytes | None) -> None:
        claimed = self._both(lambda store: store.claim_step(claim_of(text, session=session)))
        checkpoint = checkpoint_of(claimed.step_id, calls=calls)
        self._both(lambda store: store.record_answer(checkpoint))

    @rule(session=sessions, cap=caps, amount=amounts, action=actions, clears=st.booleans(),
          at_ms=times_ms)  # fmt: skip
    def set_caps(
        self, session: str, cap: CapName, amount: int | None, action: BudgetAction | None,
        clears: bool, at_ms: int,
    ) -> None:  # fmt: skip
        change = BudgetChange({cap: amount}, action, clears)
        self._both(lambda store: store.set_budget(session, change, at_ms=at_ms, by="ann"))

    @rule(session=sessions, text=texts, cap=caps, amount=amounts)
    def claim_with_caps(self, session: str, text: str, cap: CapName, amount: int | None) -> None:
        about = About(budget=Caps().having(cap, amount))
        claim = claim_of(text, session=session, about=about)
        self._both(lambda store: store.claim_step(claim))

    @rule(
        session=sessions, cap=caps, digest=st.sampled_from([b"1" * 32, b"2" * 32]), at_ms=times_ms,
        decision=st.sampled_from([None, True, False]), edited=st.none() | st.integers(1, 9),
    )  # fmt: skip
    def ask_to_go_on(
        self, session: str, cap: str, digest: bytes, at_ms: int, decision: bool | None,
        edited: int | None,
    ) -> None:  # fmt: skip
        claimed = self._both(
            lambda store: store.claim_step(claim_of("a", session=session, created_ms=at_ms))
        )
        question = budget_question(cap, digest=digest)
        names = []
        for store in (self._memory, self._sqlite):
            asking = store.open_approvals(claimed.step_id, None, (question,), at_ms=at_ms)
            (approval,) = self._outcome(asking)
            names.append((store, approval))
        if decision is None or names[0][1].decision is not None:
            return
        arguments = f'{{"more": {edited}}}' if edited and decision else None
        said = Decision(decision, "ann", None, arguments, None if decision else "stop")
        for store, approval in names:
            self._outcome(store.decide(approval.approval_id, said, at_ms=at_ms))

    @invariant()
    def budgets_are_the_same(self) -> None:
        for session in ("s", "t"):
            self._compare_budget(session)

    def _compare_budget(self, session: str) -> None:
        self._both(lambda store: store.read_budget(session))
        knows = [store.may_have_budget(session) for store in (self._memory, self._sqlite)]
        assert knows[0] <= knows[1]  # what is kept may be too much, never too little


TestBudgetComparison = pytest.mark.slow(BudgetComparison.TestCase)
TestBudgetComparison.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)


# --- only this backend ----------------------------------------------------------------------------


def test_with_too_many_budgets_every_session_may_have_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_budget, "BUDGETS_KEPT_MAX", 2)

    async def scenario(store: SqliteStore) -> None:
        for session in "abcd":
            await answered(store, session=session)
        for session in "ab":
            await store.set_budget(session, BudgetChange({"steps": 1}), at_ms=LATER_MS)
        assert not store.may_have_budget("d")
        await store.set_budget("c", BudgetChange({"steps": 1}), at_ms=LATER_MS)
        assert store.may_have_budget("d")

    async def look(store: SqliteStore) -> None:
        assert store.may_have_budget("d")

    run(path, scenario)
    run(path, look)


def test_what_an_agent_says_is_known_before_it_is_written(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        claim: Any = claim_of(about=About(budget=Caps(steps=1)))
        claiming = store.claim_step(claim)
        assert not store.may_have_budget("s")
        claiming.send(None)  # it waits for the writer
        assert store.may_have_budget("s")
        claiming.close()

    run(path, scenario)


def test_a_session_that_is_not_there_cannot_have_caps(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        with pytest.raises(NotFound):
            await store.set_budget("no", BudgetChange({"steps": 1}), at_ms=LATER_MS)

    run(path, scenario)
