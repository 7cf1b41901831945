"""The SQLite store keeps the gate's contract, does what the dictionary store does, and more."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, invariant, multiple, rule

from agentstate.ground.approvals import Approval, ApprovalPage, Decision
from agentstate.ground.chat import ToolCall, Usage
from agentstate.ground.errors import AlreadyDecided, NotFound, StoreError
from agentstate.ground.records import Query, SessionPage
from agentstate.store import sqlite_gate, sqlite_gate_read, sqlite_gate_record
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_gate_record import GateRecorder
from tests.store.contract import START_MS, MakeStore, answer_of, checkpoint_of, claim_of
from tests.store.contract_gate import (
    FAR_MS,
    LONG_AGO_MS,
    GateContract,
    answer_id_of,
    approval_of,
    asked,
    decided,
    question_of,
    rejection_of,
    request_question_of,
)
from tests.store.test_sqlite import Comparison, costs, run, runs, times_ms, usages, watch_threads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


class TestSqliteGate(GateContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


# --- the same as the dictionary store -------------------------------------------------------------

deadlines_ms = st.sampled_from([None, LONG_AGO_MS, START_MS + 5, START_MS + 15, FAR_MS])
questions = st.builds(
    question_of,
    st.sampled_from(["a", "b"]),
    kind=st.sampled_from(["tool_call", "text"]),
    choice=st.integers(0, 1),
    position=st.integers(0, 1),
    generation=st.integers(0, 1),
    deadline_ms=deadlines_ms,
)
decisions = st.sampled_from(
    [
        approval_of(),
        approval_of(arguments="{}"),
        rejection_of(),
        rejection_of(then="stop"),
        rejection_of(then=None),
    ]
)
places = st.integers(0, 30)


class GateComparison(Comparison):
    """Does what the gate does as well. Approvals are named by the order in which they were seen."""

    answers = Bundle("answers")  # (step id, answer id)

    def __init__(self) -> None:
        self._names: dict[int, dict[str, int]] = {0: {}, 1: {}}
        super().__init__()

    def _both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        return self._both_named(lambda store, name: call(store), 0)

    def _both_named(self, call: Callable[[Store, str], Awaitable[Any]], place: int) -> Any:
        """Do something to an approval of both stores: the one that was seen as the n-th."""
        outcomes: list[Any] = []
        for which, store in enumerate((self._memory, self._sqlite)):
            names = [*self._names[which], "apr_none"]
            try:
                outcome = self._outcome(call(store, names[place % len(names)]))
            except AlreadyDecided as error:
                outcome = ("decided", self._plain(which, error.approval))
            outcomes.append(self._plain(which, outcome))
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    def _plain(self, which: int, found: Any) -> Any:
        """Put a number in place of each approval's name; take out of cursors a store's own."""
        names = self._names[which]
        match found:
            case Approval():
                number = names.setdefault(found.approval_id, len(names))
                return replace(found, approval_id=str(number))
            case ApprovalPage():
                return replace(found, rows=self._plain(which, found.rows))
            case SessionPage():
                # One gives the number of a session that was deleted to the next; cursors hold it.
                more = None if found.next_cursor is None else "there are more"
                return replace(found, next_cursor=more)
            case tuple():
                return tuple(self._plain(which, one) for one in found)
        return found

    @rule(
        target=answers,
        step=Comparison.steps,
        usage=usages,
        cost=costs,
        at_ms=times_ms,
        place=st.none() | places,
        calls=st.integers(0, 2),
    )
    def answer_and_bind(
        self,
        step: tuple[str, int],
        usage: Usage | None,
        cost: int | None,
        at_ms: int,
        place: int | None,
        calls: int,
    ) -> tuple[int, int] | MultipleResults[tuple[int, int]]:
        checkpoint = checkpoint_of(
            step[1],
            usage=usage,
            cost_microusd=cost,
            answered_ms=at_ms,
            answer=answer_of(b"data: 1\n\n", form="events", is_sealed=False),
            tool_calls=tuple((0, ToolCall(n, f"call_{n}", "f", "{}")) for n in range(calls)),
        )
        answer_id = self._both_named(
            lambda store, name: store.record_answer(
                checkpoint if place is None else replace(checkpoint, approval_id=name)
            ),
            place or 0,
        )
        return multiple() if answer_id is NotFound else (step[1], answer_id)

    @rule(answer=answers, asks=st.lists(questions, max_size=3), at_ms=times_ms)
    def ask(self, answer: tuple[int, int], asks: list[Any], at_ms: int) -> None:
        self._both(lambda store: store.open_approvals(*answer, tuple(asks), at_ms=at_ms))

    @rule(step=Comparison.steps, deadline_ms=deadlines_ms, at_ms=times_ms)
    def ask_about_a_request(
        self, step: tuple[str, int], deadline_ms: int | None, at_ms: int
    ) -> None:
        asks = (request_question_of(deadline_ms=deadline_ms),)
        self._both(lambda store: store.open_approvals(step[1], None, asks, at_ms=at_ms))

    @rule(place=places, decision=decisions, at_ms=times_ms)
    def decide(self, place: int, decision: Decision, at_ms: int) -> None:
        self._both_named(lambda store, name: store.decide(name, decision, at_ms=at_ms), place)

    @rule(
        target=answers,
        answer=answers,
        number=st.integers(1, 3),
        usage=usages,
        cost=costs,
        at_ms=times_ms,
    )
    def go_on(
        self,
        answer: tuple[int, int],
        number: int,
        usage: Usage | None,
        cost: int | None,
        at_ms: int,
    ) -> tuple[int, int] | MultipleResults[tuple[int, int]]:
        step_id, root_id = answer
        if self._both(lambda store: store.rounds_of(root_id)) == () and number > 1:
            return multiple()  # a round follows the one before
        checkpoint = checkpoint_of(
            step_id,
            answer=answer_of(b"%d" % number),
            usage=usage,
            cost_microusd=cost,
            answered_ms=at_ms,
            tool_calls=((0, ToolCall(0, f"call_{number}", "f", "{}")),),
        )
        round_id = self._both(lambda store: store.record_round(checkpoint, root_id, number))
        return multiple() if round_id is NotFound else (step_id, round_id)

    @rule(answer=answers, content=st.binary(max_size=20))
    def deliver(self, answer: tuple[int, int], content: bytes) -> None:
        self._both(lambda store: store.record_delivered(answer[1], answer_of(content)))

    @rule(answer=answers, run_id=runs, at_ms=times_ms, is_written=st.booleans())
    def release(
        self, answer: tuple[int, int], run_id: str | None, at_ms: int, is_written: bool
    ) -> None:
        async def whole(store: Store) -> int:
            release_id = await store.record_release(answer[1], run_id, at_ms=at_ms)
            if is_written:
                store.note_released(release_id)
            return release_id

        self._both(whole)

    @invariant()
    def the_gate_is_the_same(self) -> None:
        for status in (None, "PENDING", "EXPIRED", "REJECTED"):
            self._compare_list(Query(status=status, limit=3))
        for session in ("s", "t"):
            self._compare_list(Query(session=session, newest_first=False))
            self._compare_told(session)
        self._both(lambda store: store.count_pending(at_ms=START_MS + 10))

    def _compare_list(self, query: Query) -> None:
        self._both(lambda store: store.list_approvals(query, at_ms=START_MS + 10))

    def _compare_told(self, session: str) -> None:
        call_ids = ("call_0", "call_1", "call_2", "call_3")
        self._both(lambda store: store.list_refusals(session))
        self._both(lambda store: store.find_emitters(session, call_ids))

    @rule(answer=answers)
    def look_at_an_answer(self, answer: tuple[int, int]) -> None:
        self._both(lambda store: store.approvals_of(answer[1]))
        self._both(lambda store: store.rounds_of(answer[1]))
        self._both(lambda store: store.read_answer_by_id(answer[1]))
        self._both(lambda store: store.read_delivered(answer[1]))
        self._both(lambda store: store.list_releases(answer[1]))


TestGateComparison = pytest.mark.slow(GateComparison.TestCase)
TestGateComparison.settings = settings(max_examples=8, stateful_step_count=30, deadline=None)


# --- where things run -----------------------------------------------------------------------------


def test_short_arguments_are_read_on_the_loop_and_long_ones_are_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watch_threads(monkeypatch, "unpack_text", lambda size, content: size, sqlite_gate_read)

    async def scenario(store: SqliteStore) -> None:
        for arguments in ("x" * 500, "y" * 70_000):
            approval = await asked(store, arguments, arguments=arguments)
            assert approval.answer_id is not None
            calls.clear()
            assert await store.read_approval(approval.approval_id) == approval
            assert await store.approvals_of(approval.answer_id) == (approval,)
            kind = "MainThread" if len(arguments) == 500 else "store-read"
            assert calls == {(kind, len(arguments))}

    run(path, scenario)


def test_arguments_that_are_long_together_are_not_read_on_the_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watch_threads(monkeypatch, "unpack_text", lambda size, content: size, sqlite_gate_read)

    async def scenario(store: SqliteStore) -> None:
        step_id, answer_id = await answer_id_of(store)
        asks = tuple(question_of(position=n, arguments="x" * 30_000) for n in range(3))
        approvals = await store.open_approvals(step_id, answer_id, asks, at_ms=START_MS)
        calls.clear()
        assert await store.approvals_of(answer_id) == approvals

    run(path, scenario)

    assert calls == {("store-read", 30_000)}


def test_the_writer_packs_short_arguments_and_leaves_long_ones_to_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = (sqlite_gate, sqlite_gate_record)
    calls = watch_threads(monkeypatch, "pack_text", len, *modules)

    async def scenario(store: SqliteStore) -> None:
        for text in ("x" * 500, "y" * 70_000):
            await decided(store, approval_of(arguments=text + "!"), text, arguments=text)

    run(path, scenario)

    assert calls == {
        ("store-writer", 500),
        ("store-writer", 501),
        ("store-read", 70_000),
        ("store-read", 70_001),
    }


def test_a_large_answer_is_packed_by_a_reader_and_read_by_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watch_threads(monkeypatch, "pack", len, sqlite_gate, sqlite_gate_record)
    large = answer_of(b"{}" * 40_000, headers=())

    async def scenario(store: SqliteStore) -> None:
        step_id, root_id = await answer_id_of(store)
        round_id = await store.record_round(checkpoint_of(step_id, answer=large), root_id, 1)
        await store.record_delivered(root_id, large)
        assert await store.read_answer_by_id(round_id) == large
        assert await store.read_delivered(root_id) == large

    run(path, scenario)

    assert {kind for kind, size in calls if size > 70_000} == {"store-read"}


def test_a_session_without_refusals_asks_the_file_nothing(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        statements: list[str] = []
        await asked(store)
        await store.find_candidates("s", "raw", b"")  # as every call does before it goes upstream
        assert store._readers._connection is not None
        store._readers._connection.set_trace_callback(statements.append)
        for _ in range(5):
            assert await store.list_refusals("s") == ()
        assert statements == []

    run(path, scenario)


# --- refusals, and who goes away ------------------------------------------------------------------


def test_a_refusal_is_told_also_if_who_decided_went_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And if somebody looked while it was being written, in a session that is not kept."""
    is_looked, really = threading.Event(), GateRecorder.decide

    def slowly(recorder: GateRecorder, *values: Any) -> Approval:
        assert is_looked.wait(10)
        return really(recorder, *values)

    async def ask(store: SqliteStore) -> None:
        await asked(store)

    async def refuse(store: SqliteStore) -> None:
        monkeypatch.setattr(GateRecorder, "decide", slowly)
        (row,) = (await store.list_approvals(Query(), at_ms=START_MS)).rows
        deciding = asyncio.ensure_future(
            store.decide(row.approval_id, rejection_of(), at_ms=START_MS)
        )
        await asyncio.sleep(0)
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        assert await store.list_refusals("s") == ()  # not yet
        is_looked.set()
        await store.check()  # comes after it
        assert len(await store.list_refusals("s")) == 1

    run(path, ask)
    run(path, refuse)


def test_a_decision_that_fails_lets_go_of_its_session(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(recorder: GateRecorder, *values: Any) -> Approval:
        raise StoreError("the disk is full")

    async def scenario(store: SqliteStore) -> None:
        approval = await asked(store)
        with monkeypatch.context() as full:
            full.setattr(GateRecorder, "decide", fail)
            with pytest.raises(StoreError, match="full"):
                await store.decide(approval.approval_id, rejection_of(), at_ms=START_MS)
        assert store._keys._writing == {}
        assert await store.list_refusals("s") == ()
        await store.decide(approval.approval_id, rejection_of(), at_ms=START_MS)
        assert len(await store.list_refusals("s")) == 1

    run(path, scenario)


# --- releases, written behind ---------------------------------------------------------------------


def test_that_a_release_was_written_is_written(path: Path) -> None:
    async def note(store: SqliteStore) -> None:
        _, answer_id = await answer_id_of(store)
        store.note_released(await store.record_release(answer_id, "r", at_ms=START_MS))
        assert store._releasing == {1}
        await store.check()  # comes after it
        assert store._releasing == set()

    async def look(store: SqliteStore) -> None:
        assert [one.is_written for one in await store.list_releases(1)] == [True]

    run(path, note)
    run(path, look)


def test_a_release_that_cannot_be_noted_is_logged(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(recorder: GateRecorder, release_id: int) -> None:
        raise StoreError("the disk is full")

    async def scenario(store: SqliteStore) -> None:
        _, answer_id = await answer_id_of(store)
        release_id = await store.record_release(answer_id, "r", at_ms=START_MS)
        with monkeypatch.context() as full, caplog.at_level(logging.WARNING):
            full.setattr(GateRecorder, "note_released", fail)
            store.note_released(release_id)
            await store.check()
        assert [one.is_written for one in await store.list_releases(answer_id)] == [False]

    run(path, scenario)

    assert "the disk is full" in caplog.text


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_approval_is_reported(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        approval = await asked(store)
        await store._writer.write(
            lambda recorder: recorder._execute("update approval set size = 500", ())
        )
        for call in (
            store.read_approval(approval.approval_id),
            store.approvals_of(1),
            store.list_approvals(Query(), at_ms=START_MS),
        ):
            with pytest.raises(StoreError, match="damaged"):
                await call

    run(path, scenario)


def test_what_fails_beside_it_does_not_change_a_name(path: Path) -> None:
    """A group with a failing method is run again: names that were made before are not used."""

    async def scenario(store: SqliteStore) -> None:
        step_id, answer_id = await answer_id_of(store)
        outcomes = await asyncio.gather(
            store.open_approvals(step_id, answer_id, (question_of(),), at_ms=START_MS),
            store.claim_step(claim_of(step_id=99)),
            store.decide("apr_none", approval_of(), at_ms=START_MS),
            return_exceptions=True,
        )
        found = outcomes[0]
        assert isinstance(found, tuple)
        assert [await store.read_approval(one.approval_id) for one in found] == list(found)

    run(path, scenario)
