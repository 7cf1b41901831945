"""Forks, deletions, revisions, budgets and durable calls in one record, in any order.

Each by itself is compared where it is tested; here is what they do to each other.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from agentstate.ground.budget import BudgetChange, Caps
from agentstate.ground.control import About, Place
from agentstate.ground.durable import Report
from agentstate.ground.revisions import Revision
from agentstate.store.base import Store
from tests.store.contract import answer_of, checkpoint_of, claim_of
from tests.store.contract_durable import begin_of
from tests.store.test_sqlite import texts, times_ms
from tests.store.test_sqlite_budget import BudgetComparison
from tests.store.test_sqlite_control import from_where
from tests.store.test_sqlite_durable import DurableComparison, ids, owners, places
from tests.store.test_sqlite_forks import ForksComparison, all_sessions, dangling, forks, rows_left
from tests.store.test_sqlite_revisions import RevisionsComparison

ALL = ("s", "t", "f", "g")


class Together(ForksComparison, RevisionsComparison, BudgetComparison, DurableComparison):
    """Does all of it, in forks as in what they are forked from; at the end nothing is left."""

    @rule(
        session=forks,
        index=st.integers(0, 4),
        count=st.integers(0, 3),
        kind=st.sampled_from(["edit", "rerun"]),
        calls=st.sampled_from([None, b"a" * 32]),
        at_ms=times_ms,
    )
    def revise_there(
        self, session: str, index: int, count: int, kind: Any, calls: bytes | None, at_ms: int
    ) -> None:
        step = self._both(lambda store: store.find_step(session, index))
        row = self._both(lambda store: store.read_session(session))
        if step is None or row is None or step.answer_id is None:
            return
        checkpoint = checkpoint_of(
            step.step_id, answer=answer_of(b"new"), cost_microusd=7, text="new", calls=calls
        )
        revision = Revision(kind, step.answer_id, by="ann")
        taken = ((index + 1, index + count),) if count else ()
        for seen in range(row.steps, row.steps + 6):  # a fork may lack some indexes
            self._both(
                lambda store, seen=seen: store.revise(
                    checkpoint, revision, taken=taken, seen=seen, at_ms=at_ms
                )
            )

    @rule(session=forks, place=from_where, at_ms=times_ms)
    def take_back_there(self, session: str, place: Place, at_ms: int) -> None:
        self._both(lambda store: store.roll_back(session, place, at_ms=at_ms, by="ann"))

    @rule(session=forks, number=st.none() | st.integers(1, 6), at_ms=times_ms)
    def bring_back_there(self, session: str, number: int | None, at_ms: int) -> None:
        self._both(lambda store: store.restore(session, number, at_ms=at_ms))

    @rule(session=forks, text=texts, owner=owners, begin_id=ids, at_ms=times_ms)
    def begin_there(self, session: str, text: str, **said: Any) -> None:
        begin = begin_of(text, session=session, **said)
        self._both(lambda store: store.begin_durable(begin))

    @rule(place=places, session=all_sessions, at_ms=times_ms)
    def report_there(self, place: int, session: str, at_ms: int) -> None:
        report = Report("result", "1", None)
        self._both_calls(
            lambda store, call: store.report_durable(session, call, report, at_ms=at_ms), place
        )

    @rule(session=all_sessions, text=texts, steps=st.integers(0, 3), run_on=st.booleans())
    def say_caps(self, session: str, text: str, steps: int, run_on: bool) -> None:
        about = About(budget=Caps(steps=steps, action="refuse" if run_on else None))
        claim = claim_of(text, session=session, about=about)
        self._both(lambda store: store.claim_step(claim))

    @rule(session=forks, steps=st.none() | st.integers(0, 3), at_ms=times_ms)
    def set_caps_there(self, session: str, steps: int | None, at_ms: int) -> None:
        change = BudgetChange({"steps": steps})
        self._both(lambda store: store.set_budget(session, change, at_ms=at_ms))

    @rule(count=st.integers(0, 2), since_ms=times_ms, at_ms=times_ms)
    def make_room(self, count: int, since_ms: int, at_ms: int) -> None:
        found = self._both(
            lambda store: store.list_quiet(quiet_since_ms=since_ms, at_ms=at_ms, limit=3)
        )
        for quiet in found[:count]:
            assert self._both(
                lambda store, quiet=quiet: store.retire_session(
                    quiet, quiet_since_ms=since_ms, at_ms=at_ms
                )
            )
        self._both(lambda store: store.finish_removals())

    # All of it after each act would take minutes.
    def answers_are_the_same(self) -> None:
        """See `look`; as the next ones."""

    def budgets_are_the_same(self) -> None: ...

    def control_is_the_same(self) -> None: ...

    def durables_are_the_same(self) -> None: ...

    def events_are_the_same(self) -> None: ...

    def revisions_are_the_same(self) -> None: ...

    def the_gate_is_the_same(self) -> None: ...

    @rule()
    def look(self) -> None:
        super().answers_are_the_same()
        super().budgets_are_the_same()
        super().control_is_the_same()
        super().durables_are_the_same()
        super().events_are_the_same()
        super().revisions_are_the_same()
        super().the_gate_is_the_same()
        for session in ALL:
            self._compare_budget(session)
            self._both(lambda store, of=session: store.list_revised(of))
            self._both(lambda store, of=session: self._placed(store, of, -1, 3))
            self._both(lambda store, of=session: self._placed(store, of, 1, 100))
            self._both(lambda store, of=session: store.list_refusals(of))
        for step_id in range(1, 20):
            self._both(lambda store, of=step_id: store.answers_of(of))

    async def _placed(self, store: Store, session: str, after: int, limit: int) -> Any:
        found = await store.list_placed(session, after, limit)
        return [(one.step_id, one.index, one.is_active, one.response_ids) for one in found]

    def teardown(self) -> None:
        self.look()
        self._both(lambda store: store.finish_removals())
        assert dangling(self._path) == []
        for session in ALL:
            self._both(lambda store, of=session: self._deletion(store, of))
        self._both(lambda store: store.finish_removals())
        left = rows_left(self._path).keys()
        super().teardown()
        assert left <= {"event", "delivery"}, left  # of sessions that were never on record


TestTogether = pytest.mark.slow(Together.TestCase)
# What fails is shown as it was found: to make it shorter takes minutes.
TestTogether.settings = settings(
    max_examples=10, stateful_step_count=30, deadline=None, phases=(Phase.generate,)
)
