"""The SQLite store keeps the contract of durable tools, and does what the dictionary store does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from agentstate.ground.approvals import Approval
from agentstate.ground.durable import Begun, DurableCall, DurablePage, Report, Settlement
from agentstate.ground.errors import AlreadyDecided, Conflict
from agentstate.ground.events import Delivery
from agentstate.ground.records import Query
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import START_MS, MakeStore
from tests.store.contract_durable import DurableContract, begin_of, durable_question
from tests.store.test_sqlite import sessions, texts
from tests.store.test_sqlite_events import EventsComparison


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


class TestSqliteDurable(DurableContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


# --- the same as the dictionary store -------------------------------------------------------------

owners = st.sampled_from([None, "a", "b"])
ids = st.sampled_from([None, "1", "2"])
times_ms = st.integers(START_MS, START_MS + 100)
places = st.integers(0, 12)


class DurableComparison(EventsComparison):
    """Begins, reports and settles as well. Calls are named by the order in which they were seen."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, int]] = {0: {}, 1: {}}
        super().__init__()

    def _plain(self, which: int, found: Any) -> Any:
        calls = self._calls[which]
        match found:
            case DurableCall():
                number = calls.setdefault(found.call, len(calls))
                approval_id = found.approval_id
                if approval_id is not None:
                    names = self._names[which]
                    approval_id = str(names.setdefault(approval_id, len(names)))
                return replace(found, call=str(number), approval_id=approval_id)
            case Begun():
                approval = None if found.approval is None else self._plain(which, found.approval)
                return replace(found, call=self._plain(which, found.call), approval=approval)
            case DurablePage():
                rows = tuple(self._plain(which, row) for row in found.rows)
                return replace(found, rows=rows)
            case Approval(durable=str(call)):
                number = calls.setdefault(call, len(calls))
                return super()._plain(which, replace(found, durable=str(number)))
            case Delivery() if found.event.facts and "call" in found.event.facts:
                call = found.event.facts["call"]
                number = calls.setdefault(str(call), len(calls))
                facts = found.event.facts | {"call": str(number), "why": ""}
                event = replace(found.event, facts=facts)
                return super()._plain(which, replace(found, event=event))
        return super()._plain(which, found)

    def _outcome(self, call: Any) -> Any:
        try:
            return super()._outcome(call)
        except Conflict as error:
            if isinstance(error, AlreadyDecided):
                raise
            return Conflict

    def _both_calls(self, call: Callable[[Store, str], Awaitable[Any]], place: int) -> None:
        """Do something to a call of both stores: the one that was seen as the n-th."""
        outcomes: list[Any] = []
        for which, store in enumerate((self._memory, self._sqlite)):
            calls = [*self._calls[which], "dur_none"]
            found = self._outcome(call(store, calls[place % len(calls)]))
            outcomes.append(self._plain(which, found))
        assert outcomes[0] == outcomes[1]

    @rule(
        session=sessions,
        text=texts,
        owner=owners,
        begin_id=ids,
        call_id=ids,
        key=st.sampled_from([None, None, "k"]),
        lease_ms=st.sampled_from([None, START_MS + 50]),
        at_ms=times_ms,
        on_unknown=st.sampled_from(["ask", "run", "skip"]),
        is_guarded=st.booleans(),
    )
    def begin(self, session: str, text: str, is_guarded: bool, **said: Any) -> None:
        question = durable_question() if is_guarded else None
        begin = begin_of(text, session=session, question=question, **said)
        self._both(lambda store: store.begin_durable(begin))

    @rule(
        place=places,
        session=sessions,
        owner=owners,
        value=st.sampled_from(["1", "2"]),
        outcome=st.sampled_from(["result", "error", "unknown"]),
        is_final=st.booleans(),
        at_ms=times_ms,
    )
    def report(self, place: int, session: str, at_ms: int, **said: Any) -> None:
        report = Report(**said)
        self._both_calls(
            lambda store, call: store.report_durable(session, call, report, at_ms=at_ms), place
        )

    @rule(place=places, session=sessions, at_ms=times_ms,
          outcome=st.sampled_from(["happened", "not_happened", "skip"]))  # fmt: skip
    def settle(self, place: int, session: str, outcome: Any, at_ms: int) -> None:
        word = Settlement(outcome, by="ann")
        self._both_calls(
            lambda store, call: store.settle_durable(session, call, word, at_ms=at_ms), place
        )

    @rule(place=places, session=sessions, at_ms=times_ms)
    def forget(self, place: int, session: str, at_ms: int) -> None:
        self._both_calls(
            lambda store, call: store.forget_durable(session, call, at_ms=at_ms), place
        )

    @invariant()
    def durables_are_the_same(self) -> None:
        for query in (Query(), Query(session="s", newest_first=False), Query(state="unknown")):
            self._both_listed(query)
        for session in ("s", "t"):
            self._both_let_out(session)

    def _both_listed(self, query: Query) -> None:
        self._both(lambda store: store.list_durables(query))

    def _both_let_out(self, session: str) -> None:
        def let_out(store: Store) -> Awaitable[Any]:
            return _count(store.list_let_out(session, "send_email"))

        self._both(let_out)


async def _count(found: Awaitable[tuple[Approval, ...]]) -> int:
    return len(await found)


TestDurableComparison = pytest.mark.slow(DurableComparison.TestCase)
TestDurableComparison.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
