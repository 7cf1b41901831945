"""The SQLite store keeps the webhooks' contract, and does what the dictionary store does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from agentstate.ground.events import Delivery, DeliveryPage, DeliveryState, Subscription
from agentstate.ground.records import Query
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from tests.store.contract import START_MS, MakeStore
from tests.store.contract_events import EventsContract, event_of, wants
from tests.store.test_sqlite import times_ms
from tests.store.test_sqlite_gate import GateComparison


class TestSqliteEvents(EventsContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: SqliteStore(tmp_path / "record.db")


# --- the same as the dictionary store -------------------------------------------------------------

subscriptions = st.lists(
    st.sampled_from(
        [
            wants("a"),
            wants("b", "approval.required", "session.failed", "fallback.used"),
            wants("c", sessions=("t",)),
        ]
    ),
    max_size=3,
    unique=True,
)
hooks = st.frozensets(st.sampled_from(["a", "b"]), max_size=2)
states: st.SearchStrategy[DeliveryState] = st.sampled_from(["due", "sent", "dead"])


class EventsComparison(GateComparison):
    """Tells of what happens as well. Events are named by the order in which they were seen."""

    def __init__(self) -> None:
        super().__init__()
        self._told: tuple[Subscription, ...] = ()
        self._written = 0
        self._subscribe((wants("a"),))

    def _plain(self, which: int, found: Any) -> Any:
        names = self._names[which]
        match found:
            case Delivery():
                event, approval_id = found.event, found.event.approval_id
                number = names.setdefault(event.event_id, len(names))
                if approval_id is not None:
                    approval_id = str(names.setdefault(approval_id, len(names)))
                plain = replace(event, event_id=str(number), approval_id=approval_id)
                return replace(found, event=plain)
            case DeliveryPage():
                return replace(found, rows=self._plain(which, found.rows))
        return super()._plain(which, found)

    def _subscribe(self, told: tuple[Subscription, ...]) -> None:
        self._told = told
        for store in (self._memory, self._sqlite):
            store.subscribe(told)

    @rule(told=subscriptions)
    def subscribe(self, told: list[Subscription]) -> None:
        self._subscribe(tuple(told))

    @rule()
    def die_and_come_back(self) -> None:
        super().die_and_come_back()
        self._subscribe(self._told)

    @rule(session=st.sampled_from(["s", "t"]), at_ms=times_ms, is_new=st.booleans())
    def write_an_event(self, session: str, at_ms: int, is_new: bool) -> None:
        self._written += is_new
        event = event_of(self._written, session=session, created_ms=at_ms)
        self._both(lambda store: store.record_event(event))

    @rule(at_ms=times_ms, lease_ms=st.integers(1, 10), limit=st.integers(1, 4), but_not=hooks)
    def take(self, at_ms: int, lease_ms: int, limit: int, but_not: frozenset[str]) -> None:
        self._both(
            lambda store: store.claim_deliveries(
                at_ms=at_ms, lease_ms=lease_ms, limit=limit, but_not=but_not
            )
        )

    @rule(place=st.integers(1, 12), state=states, at_ms=times_ms, next_ms=st.none() | times_ms)
    def settle(self, place: int, state: DeliveryState, at_ms: int, next_ms: int | None) -> None:
        self._both(
            lambda store: store.settle_delivery(
                place, state=state, at_ms=at_ms, next_ms=next_ms, status=500, error="no"
            )
        )

    @rule(place=st.integers(1, 12), at_ms=times_ms)
    def again(self, place: int, at_ms: int) -> None:
        self._both(lambda store: store.redeliver(place, at_ms=at_ms))

    @rule(
        kind=st.sampled_from(["session.stalled", "session.completed"]),
        since_ms=times_ms,
        at_ms=times_ms,
    )
    def sweep(self, kind: Any, since_ms: int, at_ms: int) -> None:
        for found in self._both(lambda store: store.find_idle(idle_since_ms=since_ms, limit=2)):
            self._written += 1
            event = event_of(
                self._written,
                kind=kind,
                session=found.session,
                index=found.index,
                created_ms=at_ms,
            )
            self._note(event)

    def _note(self, event: Any) -> None:
        self._both(lambda store: store.note_idle(event))

    @invariant()
    def events_are_the_same(self) -> None:
        for query in (Query(limit=3), Query(session="s", newest_first=False), Query(state="dead")):
            self._compare_deliveries(query)
        self._both(lambda store: store.count_deliveries())
        self._both(lambda store: store.next_due_ms())
        self._both(lambda store: store.next_due_ms(but_not=frozenset(("a",))))
        self._both(lambda store: store.find_idle(idle_since_ms=START_MS + 2000, limit=5))

    def _compare_deliveries(self, query: Query) -> None:
        async def whole(store: Store) -> DeliveryPage:
            return await store.list_deliveries(query)

        self._both(whole)


TestEventsComparison = pytest.mark.slow(EventsComparison.TestCase)
TestEventsComparison.settings = settings(max_examples=8, stateful_step_count=30, deadline=None)
