"""The SQLite store keeps the contract, does what the dictionary store does, and more."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from agentstate.ground.chat import Usage
from agentstate.ground.errors import NotFound, StoreBusy, StoreError
from agentstate.ground.records import Claimed, Query, Served
from agentstate.store import (
    sqlite,
    sqlite_gate,
    sqlite_pack,
    sqlite_read,
    sqlite_readers,
    sqlite_record,
    sqlite_request,
)
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_record import Recorder
from tests.store.contract import (
    START_MS,
    MakeStore,
    StoreContract,
    answer_of,
    answered,
    attempt_of,
    checkpoint_of,
    claim_of,
    identity_of,
    message,
    note_of,
    request_of,
    step_at,
    tail_of,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


def run(path: Path, scenario: Callable[[SqliteStore], Awaitable[None]]) -> None:
    """Open a store, play a scenario on it, close it."""

    async def whole() -> None:
        store = SqliteStore(path)
        await store.open()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(whole())


# --- the same as the dictionary store -------------------------------------------------------------

texts = st.sampled_from(["a", "b", "c"])
sessions = st.sampled_from(["s", "t"])
runs = st.sampled_from([None, "r1", "r2"])
usages = st.none() | st.builds(Usage, st.integers(0, 50), st.integers(0, 50), st.integers(0, 5))
costs = st.none() | st.integers(0, 99)
times_ms = st.integers(START_MS, START_MS + 20)


class Comparison(RuleBasedStateMachine):
    """Does the same to both stores; whatever can be asked, they answer the same."""

    steps = Bundle("steps")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._loop = asyncio.new_event_loop()
        self._path = Path(self._folder.name) / "record.db"
        self._memory: Store = MemoryStore()
        self._sqlite: Store = SqliteStore(self._path)
        self._both(lambda store: store.open())

    def teardown(self) -> None:
        self._both(lambda store: store.close())
        self._loop.close()
        self._folder.cleanup()

    def _both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        outcomes = [self._outcome(call(store)) for store in (self._memory, self._sqlite)]
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    def _outcome(self, call: Awaitable[Any]) -> Any:
        async def whole() -> Any:
            return await call

        try:
            return self._loop.run_until_complete(whole())
        except NotFound:
            return NotFound

    @rule(
        target=steps,
        text=texts,
        session=sessions,
        run_id=runs,
        number=st.none() | st.integers(0, 9),
        created_ms=times_ms,
        length=st.integers(0, 4),
    )
    def claim(
        self,
        text: str,
        session: str,
        run_id: str | None,
        number: int | None,
        created_ms: int,
        length: int,
    ) -> tuple[str, int]:
        request = request_of(*(message(f"{text}{place}") for place in range(length)))
        claim = claim_of(
            text,
            session=session,
            run_id=run_id,
            step_number=number,
            created_ms=created_ms,
            request=request,
        )
        claimed = self._both(lambda store: store.claim_step(claim))
        assert isinstance(claimed, Claimed)
        return session, claimed.step_id

    @rule(step=steps, text=texts, session=sessions, run_id=runs)
    def claim_again(
        self, step: tuple[str, int], text: str, session: str, run_id: str | None
    ) -> None:
        claim = claim_of(text, session=session, run_id=run_id, step_id=step[1])
        self._both(lambda store: store.claim_step(claim))

    @rule(step=steps, usage=usages, cost=costs, at_ms=times_ms, content=st.binary(max_size=300))
    def answer(
        self,
        step: tuple[str, int],
        usage: Usage | None,
        cost: int | None,
        at_ms: int,
        content: bytes,
    ) -> None:
        checkpoint = checkpoint_of(
            step[1],
            usage=usage,
            cost_microusd=cost,
            answered_ms=at_ms,
            answer=answer_of(content, form="events", is_sealed=False),
        )
        self._both(lambda store: store.record_answer(checkpoint))

    @rule(
        step=steps,
        usage=usages,
        cost=costs,
        seals=st.booleans(),
        content=st.binary(max_size=300),
    )
    def tail(
        self,
        step: tuple[str, int],
        usage: Usage | None,
        cost: int | None,
        seals: bool,
        content: bytes,
    ) -> None:
        tail = tail_of(step[1], content, usage=usage, cost_microusd=cost, seals=seals)
        self._both(lambda store: store.append_tail(tail))

    @rule(step=steps, code=st.sampled_from([None, "upstream_cut"]), at_ms=times_ms)
    def fail(self, step: tuple[str, int], code: str | None, at_ms: int) -> None:
        attempts = (attempt_of(error_code=code),) if code else ()
        self._both(lambda store: store.record_failure(step[1], attempts, failed_ms=at_ms))

    @rule(step=steps, at_ms=times_ms)
    def replay(self, step: tuple[str, int], at_ms: int) -> None:
        for store in (self._memory, self._sqlite):

            async def note(store: Store = store) -> None:
                store.note_replay(note_of(step[1], session=step[0], replayed_ms=at_ms))

            self._loop.run_until_complete(note())

    @rule(step=steps, session=sessions, run_id=st.sampled_from(["r1", "r2"]))
    def consume(self, step: tuple[str, int], session: str, run_id: str) -> None:
        served = Served(step[1], None, START_MS, False)
        self._both(lambda store: store.record_served(served, session, run_id))

    @rule(step=consumes(steps))
    def fail_for_good(self, step: tuple[str, int]) -> None:
        self._both(lambda store: store.record_failure(step[1], (), failed_ms=START_MS))

    @rule()
    def die_and_come_back(self) -> None:
        self._both(lambda store: store.close())
        self._sqlite = SqliteStore(self._path)
        self._both(lambda store: store.open())

    @invariant()
    def answers_are_the_same(self) -> None:
        self._both(lambda store: store.list_sessions(Query()))
        for session in ("s", "t"):
            self._compare_session(session)
        totals = [self._outcome(store.read_totals()) for store in (self._memory, self._sqlite)]
        assert totals[0] == totals[1] | {"bytes_on_disk": 0, "bytes_used": 0}

    def _compare_session(self, session: str) -> None:
        steps = tuple(range(1, 40))
        self._both(lambda store: store.list_served(session, "r1", steps))
        self._both(lambda store: store.list_served(session, "r2", steps))
        for text in ("a", "b", "c"):
            self._compare_candidates(session, text)
        for row in self._both(lambda store: store.list_steps(Query(session=session))).rows:
            self._compare_step(row.step_id)

    def _compare_candidates(self, session: str, text: str) -> None:
        keys = identity_of(text)
        self._both(lambda store: store.find_candidates(session, "raw", keys.raw))
        self._both(lambda store: store.find_candidates(session, "exact", keys.exact))
        self._both(lambda store: store.find_candidates(session, "pinned", keys.pinned))
        self._both(lambda store: store.find_candidates(session, "masked", keys.masked))

    def _compare_step(self, step_id: int) -> None:
        self._both(lambda store: store.read_answer(step_id))
        self._both(lambda store: store.read_request(step_id))
        self._both(lambda store: store.list_attempts(step_id))


TestComparison = pytest.mark.slow(Comparison.TestCase)
TestComparison.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


# --- where things run -----------------------------------------------------------------------------


def watch_threads(
    monkeypatch: pytest.MonkeyPatch, name: str, size_of: Callable[..., int], *modules: Any
) -> set[tuple[str, int]]:
    """Return a set that gets the kind of thread and the size of each call of a packing function."""
    calls: set[tuple[str, int]] = set()
    really = getattr(sqlite_pack, name)

    def watched(*values: Any) -> Any:
        calls.add((threading.current_thread().name.partition("_")[0], size_of(*values)))
        return really(*values)

    for module in modules:
        monkeypatch.setattr(module, name, watched)
    return calls


def test_a_small_answer_is_read_on_the_loop_and_a_large_one_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = watch_threads(monkeypatch, "unpack", lambda size, content: size, sqlite_read)

    async def scenario(store: SqliteStore) -> None:
        for text, content in (("small", b"{}" * 400), ("large", b"{}" * 40_000)):
            claimed = await store.claim_step(claim_of(text))
            answer = answer_of(content, headers=())
            await store.record_answer(checkpoint_of(claimed.step_id, answer=answer))
            assert await store.read_answer(claimed.step_id) == answer

    run(path, scenario)

    assert {one for one in calls if one[1]} == {("MainThread", 803), ("store-read", 80_003)}


def test_the_writer_packs_little_and_leaves_much_to_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = (sqlite_gate, sqlite_record, sqlite_request)
    calls = watch_threads(monkeypatch, "pack", len, *modules)

    async def scenario(store: SqliteStore) -> None:
        for text in ("x" * 1000, "y" * 70_000):
            claimed = await store.claim_step(claim_of(text, prompt=""))
            answer = answer_of(text.encode())
            await store.record_answer(checkpoint_of(claimed.step_id, answer=answer))
            assert await store.read_answer(claimed.step_id) == answer

    run(path, scenario)

    assert {kind for kind, size in calls if size > 1000} == {"store-writer", "store-read"}
    assert max(size for kind, size in calls if kind == "store-writer") < 2000
    assert len([size for kind, size in calls if kind == "store-read" and size > 70_000]) == 2


# --- replays, written behind ----------------------------------------------------------------------


def count_batches(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of steps of each batch of notes that is written."""
    batches: list[int] = []
    really = Recorder.note_replays

    def note_replays(recorder: Recorder, sums: Any) -> None:
        really(recorder, sums)
        batches.append(len(sums))

    monkeypatch.setattr(Recorder, "note_replays", note_replays)
    return batches


def test_notes_are_written_together_after_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "NOTES_DELAY_S", 0.01)

    async def scenario(store: SqliteStore) -> None:
        batches = count_batches(store, monkeypatch)
        claimed = [await answered(store, text) for text in "abc"]
        for one in claimed * 5:
            store.note_replay(note_of(one.step_id))
        assert batches == []
        assert store._notes._timer is not None

        await asyncio.sleep(0.01)  # the timer's own time
        while not batches:
            await store.check()

        assert batches == [3]
        assert (await store.read_totals())["replays"] == 15

    run(path, scenario)


def test_many_notes_are_written_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "NOTES_MAX", 10)

    async def scenario(store: SqliteStore) -> None:
        batches = count_batches(store, monkeypatch)
        for step_id in range(25):
            store.note_replay(note_of(step_id))
        await store._notes.write()
        assert batches == [10, 15]

    run(path, scenario)


def test_closing_writes_the_notes(path: Path) -> None:
    async def note(store: SqliteStore) -> None:
        await answered(store)
        store.note_replay(note_of(1))

    async def look(store: SqliteStore) -> None:
        assert (await step_at(store, 1)).replays == 1

    run(path, note)
    run(path, look)


def test_notes_wait_for_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(recorder: Recorder, sums: object) -> None:
        raise StoreError("the disk is full")

    async def scenario(store: SqliteStore) -> None:
        await answered(store)
        with monkeypatch.context() as full:
            full.setattr(Recorder, "note_replays", fail)
            store.note_replay(note_of(1, replayed_ms=START_MS + 1))
            assert (await step_at(store, 1)).replays == 0  # readable, but behind
            store.note_replay(note_of(1, replayed_ms=START_MS + 2))
            (candidate,) = await store.find_candidates("s", "exact", identity_of("hi").exact)
            assert candidate.replayed_ms == START_MS + 2

        row = await step_at(store, 1)
        assert (row.replays, row.replayed_ms) == (2, START_MS + 2)
        assert store._notes.lost_count == 0

    run(path, scenario)


def test_notes_are_bounded_while_the_disk_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "NOTES_KEPT_MAX", 3)
    monkeypatch.setattr(sqlite, "NOTES_MAX", 2)

    def fail(recorder: Recorder, sums: object) -> None:
        raise StoreError("the disk is full")

    async def scenario(store: SqliteStore) -> None:
        for text in "abcd":
            await answered(store, text)
        with monkeypatch.context() as full:
            full.setattr(Recorder, "note_replays", fail)
            for step_id in (1, 2, 3, 4, 4, 1):
                store.note_replay(note_of(step_id))
                await store._notes.write()
        assert store._notes.lost_count == 2
        assert (await store.read_totals())["replays"] == 4

    run(path, scenario)


def test_a_mistake_of_ours_in_the_notes_is_logged_and_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(recorder: Recorder, sums: object) -> None:
        raise AssertionError("a mistake")

    async def scenario(store: SqliteStore) -> None:
        await answered(store)
        with monkeypatch.context() as broken:
            broken.setattr(Recorder, "note_replays", fail)
            store.note_replay(note_of(1))
            await store._notes.write()
        assert store._notes.lost_count == 1
        store.note_replay(note_of(1))
        assert (await step_at(store, 1)).replays == 1

    run(path, scenario)

    assert "a mistake" in caplog.text


# --- life -----------------------------------------------------------------------------------------


def test_two_names_of_a_file_are_one_record(path: Path) -> None:
    alias = path.with_name("alias.db")
    alias.symlink_to(path)

    async def scenario(store: SqliteStore) -> None:
        with pytest.raises(StoreBusy):
            await SqliteStore(alias).open()

    run(path, scenario)


def test_a_store_that_cannot_open_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "nowhere" / "record.db")
        with pytest.raises(StoreError):
            await store.open()
        with pytest.raises(StoreError, match="closed"):
            await store.read_session("s")
        await store.close()

    asyncio.run(scenario())


def test_a_store_whose_reader_cannot_open_lets_go(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise StoreError("too many open files")

    async def scenario() -> None:
        store = SqliteStore(path)
        with monkeypatch.context() as broken:
            broken.setattr(sqlite_readers, "open_reader", fail)
            with pytest.raises(StoreError, match="too many"):
                await store.open()
        await store.open()
        await store.close()

    asyncio.run(scenario())


def test_closing_waits_for_those_who_read(path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(path)
        await store.open()
        await answered(store)
        reading = [asyncio.ensure_future(store.read_request(1)) for _ in range(20)]
        await asyncio.sleep(0)
        await store.close()
        assert len(set(map(str, await asyncio.gather(*reading)))) == 1
        assert store._readers._idle == []

    asyncio.run(scenario())


def test_a_closed_record_is_one_file(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await answered(store)

    run(path, scenario)

    names = sorted(one.name for one in path.parent.iterdir())
    assert names == ["record.db", "record.db.lock"]


def test_a_damaged_answer_is_reported(path: Path) -> None:
    def damage(recorder: Recorder) -> None:
        recorder._execute("update answer set content = x'00', size = 500", ())

    async def scenario(store: SqliteStore) -> None:
        await answered(store)
        await store._writer.write(damage)
        with pytest.raises(StoreError, match="damaged"):
            await store.read_answer(1)

    run(path, scenario)


def test_the_check_notices_a_lost_file(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await store.check()
        moved = replace_name(path)
        with pytest.raises(StoreError, match="is gone"):
            await store.check()
        moved.rename(path)

    run(path, scenario)


def replace_name(path: Path) -> Path:
    return path.rename(path.with_name("moved"))


def test_the_size_on_disk_counts_the_log(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        before = (await store.read_totals())["bytes_on_disk"]
        await answered(store)
        assert (await store.read_totals())["bytes_on_disk"] > before

    run(path, scenario)


def test_reads_are_shared_among_few_connections(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        claimed = await answered(store)
        query = replace(Query(), session="s")
        pages = await asyncio.gather(*(store.list_steps(query) for _ in range(50)))
        assert {page.rows[0].step_id for page in pages} == {claimed.step_id}
        assert 1 <= len(store._readers._idle) <= sqlite_readers.THREADS

    run(path, scenario)
