"""The SQLite store keeps the contract of forks, does what the dictionary store does, and more."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from agentstate.ground.canonical import JSON
from agentstate.ground.control import Place
from agentstate.ground.errors import NotFound, StoreError
from agentstate.ground.forks import ForkAsk
from agentstate.ground.records import Query
from agentstate.store import sqlite_forks, sqlite_forks_record, sqlite_forks_rows, sqlite_removal
from agentstate.store.base import Store
from agentstate.store.forks import NameTaken
from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_file import open_writer
from agentstate.store.sqlite_forks_record import Copying, ForkRecorder
from agentstate.store.sqlite_forks_rows import StepCopier
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_removal import RemovalRecorder
from tests.store.contract import (
    START_MS,
    MakeStore,
    answer_of,
    checkpoint_of,
    claim_of,
    message,
    request_of,
    tail_of,
)
from tests.store.contract_control import active_of, run_of
from tests.store.contract_forks import LATER_MS, ForkContract, delete, fork
from tests.store.contract_gate import approval_of, question_of, rejection_of
from tests.store.test_sqlite import Comparison, run, sessions, texts, times_ms
from tests.store.test_sqlite_control import ControlComparison, from_where

# What belongs to no session, or is bounded by itself.
KEPT = {"migration", "pulse", "saving", "sqlite_sequence", "sqlite_stat1", "sqlite_stat4"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


@pytest.fixture
def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have forks take one step at a time, each in a transaction of its own."""
    monkeypatch.setattr(sqlite_forks_record, "SLICE_S", 0.0)
    monkeypatch.setattr(sqlite_forks_record, "DURABLES_AT_ONCE", 1)
    monkeypatch.setattr(sqlite_forks_rows, "STEPS_AT_ONCE", 1)


class TestSqliteForks(ForkContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


class TestSqliteForksStepByStep(ForkContract):
    @pytest.fixture
    def make_store(self, path: Path, step_by_step: None) -> MakeStore:
        return lambda: SqliteStore(path)


# --- the same as the dictionary store -------------------------------------------------------------

forks = st.sampled_from(["f", "g"])
all_sessions = sessions | forks


class ForksComparison(ControlComparison):
    """Forks and deletes as well, in any order, and goes on in the forks."""

    def _outcome(self, call: Awaitable[Any]) -> Any:
        try:
            return super()._outcome(call)
        except NameTaken:
            return NameTaken

    @rule(
        session=all_sessions,
        name=forks,
        before=st.none() | from_where,
        inherits=st.booleans(),
        at_ms=times_ms,
    )
    def fork(
        self, session: str, name: str, before: Place | None, inherits: bool, at_ms: int
    ) -> None:
        ask = ForkAsk(before, name, by="ann", inherits_decisions=inherits)
        self._both(lambda store: store.fork_session(session, ask, at_ms=at_ms))

    @rule(session=all_sessions)
    def delete(self, session: str) -> None:
        self._both(lambda store: self._deletion(store, session))
        self._both(lambda store: store.finish_removals())

    @rule(target=Comparison.steps, session=forks, text=texts, number=st.none() | st.integers(0, 9))
    def go_on(self, session: str, text: str, number: int | None) -> tuple[str, int]:
        claim = claim_of(text, session=session, step_number=number)
        claimed = self._both(lambda store: store.claim_step(claim))
        return session, claimed.step_id

    async def _deletion(self, store: Store, session: str) -> Any:
        found = await store.delete_session(session)
        return found.session, found.weight, found.forks  # only one of them has bytes

    def _compare_control(self, session: str) -> None:
        super()._compare_control(session)
        fork = {"s": "f", "t": "g"}[session]
        super()._compare_control(fork)
        self._compare_session(fork)
        for text in ("a", "b", "c"):
            self._compare_candidates(fork, text)

    def _compare_step(self, step_id: int) -> None:
        super()._compare_step(step_id)
        row = self._both(lambda store: store.read_step(step_id))
        if row.answer_id is not None:
            self._both(lambda store: store.read_borrowed(row.answer_id))


TestForksComparison = pytest.mark.slow(ForksComparison.TestCase)
TestForksComparison.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)


# --- content --------------------------------------------------------------------------------------


def rows_left(path: Path) -> dict[str, int]:
    """Return how many rows each table has, of those that have any."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("select name from sqlite_master where type = 'table'")
        names = {name for (name,) in tables} - KEPT
        counts = {
            name: connection.execute(f"select count(*) from {name}").fetchone()[0] for name in names
        }
    return {name: count for name, count in counts.items() if count}


def dangling(path: Path) -> list[Any]:
    """Return the rows that refer to something which is not there."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("pragma foreign_key_check").fetchall()


UNUSED = {
    "node": "select id from step where node_id = node.id union select id from node as longer "
    "where longer.parent_id = node.id",
    "envelope": "select id from step where envelope_id = envelope.id",
    "blob": "select id from node where blob_id = blob.id union select envelope_id from "
    "envelope_part where blob_id = blob.id",
    "prompt": "select id from step where prompt_id = prompt.id union select id from session where "
    "prompt_id = prompt.id",
}


def unused(path: Path) -> dict[str, int]:
    """Return how much content nothing refers to."""
    with closing(sqlite3.connect(path)) as connection:
        counts = {
            table: connection.execute(
                f"select count(*) from {table} where not exists ({users})"
            ).fetchone()[0]
            for table, users in UNUSED.items()
        }
    return {table: count for table, count in counts.items() if count}


class Author:
    """Plays agents whose conversations begin alike, forks and deletes them, and remembers all that
    was said."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.chats: dict[str, list[JSON]] = {}
        self.said: dict[str, list[tuple[JSON, bytes]]] = {}  # request and answer, by session

    async def act(self, store: Store) -> None:
        """Do one thing."""
        names = list(self.said)
        choice = self.dice.random()
        if not names or choice < 0.2:
            name = f"s{self.dice.randrange(4)}"
            if name not in self.said:
                self.said[name] = []
                self.chats[name] = [message(self.prose(), "system")]
            await self.step(store, name)
        elif choice < 0.75:
            await self.step(store, self.dice.choice(names))
        elif choice < 0.88:
            await self.fork(store, self.dice.choice(names))
        else:
            name = self.dice.choice(names)
            await store.delete_session(name)
            del self.said[name], self.chats[name]
            if self.dice.random() < 0.5:
                await store.finish_removals()

    async def step(self, store: Store, name: str) -> None:
        """Record one step of a session: what the agent says next, and an answer."""
        chat = self.chats[name]
        if self.dice.random() < 0.1:
            del chat[1:]  # it begins a new conversation
        chat.append(message(self.prose()))
        tools: JSON = [{"name": "t", "description": self.prose()}]
        request = request_of(*chat, shared={"tools": tools})
        text = f"{len(chat)} {self.prose()}"
        claimed = await store.claim_step(
            claim_of(str(self.dice.random()), session=name, request=request, prompt=self.prose())
        )
        answer = answer_of(text.encode(), form="events", is_sealed=False)
        await store.record_answer(checkpoint_of(claimed.step_id, answer=answer))
        await store.append_tail(tail_of(claimed.step_id, b"end", usage=None, cost_microusd=None))
        chat.append(message(text, "assistant"))
        body: JSON = {"model": "gpt-4o-mini", "messages": list(chat[:-1]), "tools": tools}
        self.said[name].append((body, text.encode() + b"end"))

    async def fork(self, store: Store, name: str) -> None:
        """Fork a session somewhere."""
        before = self.dice.randint(1, len(self.said[name]))
        place = Place(index=before)
        fork = await store.fork_session(name, ForkAsk(place), at_ms=LATER_MS)
        self.said[fork] = self.said[name][:before]
        self.chats[fork] = [*self.said[fork][-1][0]["messages"]]  # type: ignore[call-overload,index]

    def prose(self) -> str:
        """Return one of few texts, so that much is said more than once."""
        return f"words {self.dice.randrange(3)} " * 20

    async def check(self, store: Store) -> None:
        """Compare all that is on record with what was said."""
        page = await store.list_sessions(Query(limit=1000))
        assert {row.session for row in page.rows} == set(self.said)
        for name, said in self.said.items():
            steps = (await store.list_steps(Query(session=name, newest_first=False))).rows
            assert len(steps) == len(said)
            for step, (body, content) in zip(steps, said, strict=True):
                answer = await store.read_answer(step.step_id)
                assert answer is not None
                assert answer.content == content
                assert await store.read_request(step.step_id) == body


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_what_others_refer_to_stays_and_what_nobody_does_goes(path: Path, seed: int) -> None:
    author = Author(seed)

    async def play(store: SqliteStore) -> None:
        for _ in range(60):
            await author.act(store)
        await author.check(store)
        await store.finish_removals()
        await author.check(store)

    async def end(store: SqliteStore) -> None:
        await author.check(store)
        for name in list(author.said):
            await delete(store, name)
            del author.said[name]
            await author.check(store)

    run(path, play)
    assert dangling(path) == []
    assert unused(path) == {}
    run(path, end)
    assert rows_left(path) == {}


def test_what_a_step_was_asked_before_goes_too(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        first = request_of(message("one"), shared={"tools": [{"name": "one"}]})
        claimed = await store.claim_step(claim_of("0", request=first, prompt="one"))
        other = request_of(message("two"), shared={"tools": [{"name": "two"}]})
        await store.claim_step(claim_of("0", step_id=claimed.step_id, request=other, prompt="two"))
        await delete(store)

    run(path, scenario)
    assert rows_left(path) == {}


def test_a_session_that_was_asked_and_told_much_leaves_nothing(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        about = {"run_id": "r", "call_id": "c"}
        for number in range(3):
            claimed = await store.claim_step(claim_of(str(number), **about))
            answer_id = await store.record_answer(checkpoint_of(claimed.step_id))
            place = (claimed.step_id, answer_id)
            questions = (question_of("a"), question_of("b", position=1))
            found = await store.open_approvals(*place, questions, at_ms=START_MS)
            await store.decide(found[0].approval_id, approval_of(arguments="{}"), at_ms=1)
            await store.decide(found[1].approval_id, rejection_of(), at_ms=1)
            await store.record_round(checkpoint_of(claimed.step_id), answer_id, 1)
            await store.record_delivered(answer_id, answer_of(b"x"))
            await store.record_release(answer_id, "r", at_ms=1)
            await store.record_alias("s", bytes(32), claimed.step_id)
        await store.roll_back("s", Place(index=2), at_ms=LATER_MS)
        name = await fork(store)
        twice = await store.fork_session(name, ForkAsk(), at_ms=LATER_MS)
        for each in ("s", name, twice):
            await delete(store, each)

    run(path, scenario)
    assert rows_left(path) == {}


def test_room_is_given_back_to_the_disk(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        for number in range(60):
            claimed = await store.claim_step(claim_of(str(number)))
            noise = random.Random(number).randbytes(4000)
            await store.record_answer(checkpoint_of(claimed.step_id, answer=answer_of(noise)))
        await delete(store)

    run(path, scenario)
    assert path.stat().st_size < 200_000


# --- slices, and ends in the middle ---------------------------------------------------------------


@pytest.fixture
def in_slices(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Have removals take one step at a time; a file is copied before each slice, as a kill there
    would leave it."""
    monkeypatch.setattr(sqlite_removal, "SLICE_S", 0.0)
    monkeypatch.setattr(sqlite_removal, "STEPS_AT_ONCE", 1)
    return []


@pytest.mark.slow
def test_a_kill_at_any_moment_of_a_removal_is_made_good(
    path: Path, tmp_path: Path, in_slices: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: SqliteStore) -> None:
        for number in range(4):
            chat = [message(f"{place} " * 30) for place in range(number + 1)]
            claimed = await store.claim_step(claim_of(str(number), request=request_of(*chat)))
            await store.record_answer(checkpoint_of(claimed.step_id))
        name = await fork(store, 2)
        assert name == "s-fork-1"
        slices = 0
        original = RemovalRecorder.remove_some

        def remove_some(recorder: RemovalRecorder) -> bool:
            nonlocal slices
            # What is committed so far: the log is part of the record.
            copy = tmp_path / f"killed-{slices}"
            copy.mkdir()
            for ending in ("", "-wal"):
                shutil.copy(f"{path}{ending}", copy / f"record.db{ending}")
            in_slices.append(copy / "record.db")
            slices += 1
            return original(recorder)

        monkeypatch.setattr(RemovalRecorder, "remove_some", remove_some)
        await delete(store)
        monkeypatch.setattr(RemovalRecorder, "remove_some", original)

    async def look(store: SqliteStore) -> None:
        assert await store.read_session("s") is None
        assert await active_of(store, "s-fork-1") == [0, 1]
        for index in range(2):
            step = await store.find_step("s-fork-1", index)
            assert step is not None
            body: Any = await store.read_request(step.step_id)
            assert len(body["messages"]) == index + 1
        await store.finish_removals()
        assert await active_of(store, "s-fork-1") == [0, 1]
        await delete(store, "s-fork-1")

    run(path, scenario)
    assert len(in_slices) > 10
    for copy in in_slices:
        run(copy, look)
        assert rows_left(copy) == {}


def test_a_removal_that_the_end_of_the_process_stops_goes_on_at_the_next_start(
    path: Path, in_slices: list[Path]
) -> None:
    async def begin(store: SqliteStore) -> None:
        await run_of(store, 30)
        await store.delete_session("s")

    async def go_on(store: SqliteStore) -> None:
        await store.finish_removals()

    run(path, begin)
    assert rows_left(path)["leftover"] >= 1
    run(path, go_on)
    assert rows_left(path) == {}


def test_others_write_between_two_slices(path: Path, in_slices: list[Path]) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 30)
        await store.delete_session("s")
        for number in range(5):
            await run_of(store, 1, first=number)
        with closing(sqlite3.connect(path)) as other:
            [(left,)] = other.execute("select count(*) from step").fetchall()
        assert left > 10  # it was not waited for
        await store.finish_removals()
        assert await active_of(store) == [0, 1, 2, 3, 4]

    run(path, scenario)


def test_a_removal_that_fails_is_told_and_taken_up_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(recorder: RemovalRecorder) -> bool:
        raise StoreError("the disk is full")

    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 2)
        with monkeypatch.context() as full:
            full.setattr(RemovalRecorder, "remove_some", fail)
            await store.delete_session("s")
            with pytest.raises(StoreError, match="full"):
                await store.finish_removals()
        await run_of(store, 1, session="t")
        await delete(store, "t")  # takes up what is left

    run(path, scenario)
    assert rows_left(path) == {}


def test_a_fork_that_fails_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 3)
        with monkeypatch.context() as full:
            full.setattr(StepCopier, "_SET_PRECEDENTS", "update nowhere set a = ? where b = ?")
            full.setattr(StepCopier, "_DECISIONS", "select * from nowhere")
            with pytest.raises(Exception, match="nowhere"):
                await fork(store)
        assert (await store.read_totals())["steps"] == 3
        assert await fork(store) == "s-fork-1"
        await delete(store)
        await delete(store, "s-fork-1")

    run(path, scenario)
    assert rows_left(path) == {}


def test_a_fork_whose_caller_leaves_is_written(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 2)
        async with asyncio.TaskGroup() as group:
            forking = group.create_task(fork(store, session="mine"))
            await asyncio.sleep(0)
            forking.cancel()
        await store.check()
        assert await active_of(store, "mine") == [0, 1]

    run(path, scenario)


def test_two_who_fork_at_once_get_a_fork_each(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 2)
        made = await asyncio.gather(*(fork(store) for _ in range(4)))
        assert sorted(made) == [f"s-fork-{number}" for number in (1, 2, 3, 4)]

    run(path, scenario)


# --- forks in slices, and what comes in between ---------------------------------------------------

Between = Callable[[Callable[[SqliteStore, int], Awaitable[object]]], None]


@pytest.fixture
def between(step_by_step: None, monkeypatch: pytest.MonkeyPatch) -> Between:
    """Return a function that takes what is to be done before each further slice of a fork; that is
    told the number of the slice, from 1."""

    def do(act: Callable[[SqliteStore, int], Awaitable[object]]) -> None:
        original = SqliteStore._copy_some
        count = 0

        async def copy_some(store: SqliteStore, copying: Copying) -> Copying:
            nonlocal count
            count += 1
            await act(store, count)
            return await original(store, copying)

        monkeypatch.setattr(SqliteStore, "_copy_some", copy_some)

    return do


def test_others_write_while_a_fork_is_made_and_do_not_see_it(path: Path, between: Between) -> None:
    seen: list[object] = []

    async def act(store: SqliteStore, count: int) -> None:
        await run_of(store, 1, first=count, session="other")
        await run_of(store, 1, first=10 + count)
        seen.append(await store.read_session("s-fork-1"))
        rows = (await store.list_sessions(Query(limit=10))).rows
        assert {row.session for row in rows} == {"s", "other"}

    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 5)
        between(act)
        name = await fork(store)
        assert seen == [None] * len(seen)
        assert len(seen) >= 5
        assert await active_of(store, name) == [0, 1, 2, 3, 4]  # as it stood when it began
        assert len(await active_of(store, "other")) == len(seen)
        for step in (await store.list_steps(Query(session=name))).rows:
            answer = await store.read_answer(step.step_id)
            assert answer is not None
        await delete(store, name)
        await delete(store, "other")
        await delete(store)

    run(path, scenario)
    assert rows_left(path) == {}


def test_what_is_rolled_back_while_a_fork_is_made_is_not_half_in_it(
    path: Path, between: Between
) -> None:
    async def act(store: SqliteStore, count: int) -> None:
        if count == 2:
            await store.roll_back("s", Place(index=1), at_ms=LATER_MS)

    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 5)
        between(act)
        name = await fork(store)
        assert await active_of(store, name) == [0]
        await delete(store)
        await delete(store, name)

    run(path, scenario)
    assert rows_left(path) == {}


def test_a_session_that_is_deleted_while_it_is_forked_has_no_fork(
    path: Path, between: Between
) -> None:
    async def act(store: SqliteStore, count: int) -> None:
        if count == 2:
            await delete(store)

    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 5)
        between(act)
        with pytest.raises(NotFound, match="no session 's'"):
            await fork(store)
        await store.finish_removals()

    run(path, scenario)
    assert rows_left(path) == {}


def test_an_agent_may_take_the_name_of_a_fork_that_is_made(path: Path, between: Between) -> None:
    async def act(store: SqliteStore, count: int) -> None:
        if count == 2:
            await run_of(store, 1, session="mine")

    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 5)
        between(act)
        with pytest.raises(NameTaken):
            await fork(store, session="mine")
        await store.finish_removals()
        assert await active_of(store, "mine") == [0]
        await delete(store, "mine")
        await delete(store)

    run(path, scenario)
    assert rows_left(path) == {}


def test_a_step_that_is_asked_again_while_it_is_forked_is_not_shared(
    path: Path, between: Between
) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 5)
        flying, answered = [await store.find_step("s", index) for index in (3, 4)]
        assert flying is not None
        assert answered is not None

        async def act(store: SqliteStore, count: int) -> None:
            if count == 1:
                for step in (flying, answered):
                    await store.claim_step(claim_of("again", step_id=step.step_id))
                await store.record_answer(checkpoint_of(answered.step_id))

        between(act)
        name = await fork(store)
        row = await store.read_session(name)
        assert row is not None
        assert (row.steps, await active_of(store, name)) == (3, [0, 1, 2])

    run(path, scenario)


def test_two_who_fork_much_at_once_get_a_fork_each(path: Path, step_by_step: None) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 5)
        made = await asyncio.gather(*(fork(store) for _ in range(4)))
        assert sorted(made) == [f"s-fork-{number}" for number in (1, 2, 3, 4)]
        for name in made:
            assert await active_of(store, name) == [0, 1, 2, 3, 4]
        with pytest.raises(NameTaken):
            await asyncio.gather(*(fork(store, session="mine") for _ in range(2)))

    run(path, scenario)
    assert dangling(path) == []


def test_a_kill_at_any_moment_of_a_fork_leaves_none(
    path: Path, tmp_path: Path, between: Between
) -> None:
    copies: list[Path] = []

    async def act(store: SqliteStore, count: int) -> None:
        copy = tmp_path / f"killed-{count}"
        copy.mkdir()
        for ending in ("", "-wal"):
            shutil.copy(f"{path}{ending}", copy / f"record.db{ending}")
        copies.append(copy / "record.db")

    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 4)
        between(act)
        await fork(store)

    async def look(store: SqliteStore) -> None:
        await store.finish_removals()
        assert await store.read_session("s-fork-1") is None
        assert (await store.read_totals())["steps"] == 4
        assert await active_of(store) == [0, 1, 2, 3]
        await delete(store)

    run(path, scenario)
    assert len(copies) >= 4
    for copy in copies:
        assert rows_left(copy)["step"] > 4
        run(copy, look)
        assert rows_left(copy) == {}


def test_a_fork_that_the_end_of_the_process_stops_is_none(
    path: Path, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_forks, "STOP_S", 0.01)
    is_waiting = asyncio.Event()

    async def act(store: SqliteStore, count: int) -> None:
        if count == 2:
            is_waiting.set()
            await asyncio.Event().wait()

    async def begin(store: SqliteStore) -> None:
        await run_of(store, 5)
        between(act)
        forking = asyncio.ensure_future(fork(store))
        await is_waiting.wait()
        await store.close()
        with pytest.raises(StoreError, match="closed before the fork"):
            await forking

    async def look(store: SqliteStore) -> None:
        await store.finish_removals()
        assert (await store.read_totals())["steps"] == 5
        await delete(store)

    run(path, begin)
    run(path, look)
    assert rows_left(path) == {}


# --- what a fork costs ----------------------------------------------------------------------------


def test_a_fork_costs_as_many_statements_as_it_has_batches(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_forks_rows, "STEPS_AT_ONCE", 10)

    def count_statements(before: int) -> int:
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        name = f"f{before}"
        connection.execute("begin")
        recorder.forks.begin("s", name, ForkAsk(Place(index=before)), LATER_MS, whole=True)
        connection.execute("commit")
        connection.set_trace_callback(None)
        return len(statements)

    run(path, lambda store: run_of(store, 40))
    with closing(open_writer(path)) as connection:
        recorder = Recorder(connection)
        one, two, four = (count_statements(steps) for steps in (9, 19, 39))
    assert two - one < 50  # with 10 steps more
    assert four - two == 2 * (two - one)


def test_a_batch_of_a_fork_looks_at_its_own_rows_alone(path: Path) -> None:
    run(path, lambda store: run_of(store, 3))
    with closing(open_writer(path)) as connection:
        executed: dict[str, Any] = {}

        def note(statement: str, values: Any = ()) -> sqlite3.Cursor:
            executed[statement] = values
            return connection.execute(statement, values)

        copier = StepCopier(note)
        recorder = ForkRecorder(connection)
        copying = recorder._reserve("s", "f", ForkAsk(), LATER_MS, ())
        copier.copy(copying.values(), ())
        found = connection.execute("select name from sqlite_master where type = 'table'")
        tables = {name for (name,) in found} - {"sqlite_sequence"}  # of a few rows
        for statement, values in executed.items():
            plan = connection.execute(f"explain query plan {statement}", values)
            for step in (row[3] for row in plan):
                assert "BLOOM" not in step, statement  # made by a look at a whole table
                kind, name, *_ = step.split()
                assert kind != "SCAN" or name not in tables, (step, statement)
