"""The SQLite store keeps the contract of control, does what the dictionary store does, and more."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from agentstate.ground.control import About, Change, Pause, Place
from agentstate.ground.errors import Conflict, NotFound
from agentstate.ground.records import Query
from agentstate.store import sqlite_control
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from agentstate.store.sqlite_control_record import ControlRecorder
from tests.store.contract import START_MS, MakeStore, claim_of
from tests.store.contract_control import LATER_MS, ControlContract, active_of, run_of, take_back
from tests.store.contract_events import event_of
from tests.store.test_sqlite import run, sessions, texts, times_ms
from tests.store.test_sqlite_events import EventsComparison


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


class TestSqliteControl(ControlContract):
    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda: SqliteStore(path)


# --- the same as the dictionary store -------------------------------------------------------------

from_where = st.builds(lambda number: Place(step_number=number), st.integers(0, 9)) | st.builds(
    lambda index: Place(index=index), st.integers(0, 6)
)
names = st.sampled_from([None, "", "one", "two"])
tags = st.lists(
    st.tuples(st.sampled_from(["k", "l"]), st.sampled_from(["v", "w"])),
    max_size=2,
    unique_by=lambda tag: tag[0],
).map(tuple)


class ControlComparison(EventsComparison):
    """Takes steps back and brings them back as well, in any order."""

    def _outcome(self, call: Awaitable[Any]) -> Any:
        try:
            return super()._outcome(call)
        except Conflict as error:
            if type(error) is not Conflict:
                raise
            return Conflict

    @rule(session=sessions, place=from_where, at_ms=times_ms)
    def take_back(self, session: str, place: Place, at_ms: int) -> None:
        self._both(lambda store: store.weigh_rollback(session, place))
        self._both(lambda store: store.roll_back(session, place, at_ms=at_ms, by="ann"))

    @rule(session=sessions, number=st.none() | st.integers(1, 6), at_ms=times_ms)
    def bring_back(self, session: str, number: int | None, at_ms: int) -> None:
        self._both(lambda store: store.restore(session, number, at_ms=at_ms))

    @rule(session=sessions, at_ms=times_ms, reason=names)
    def hold(self, session: str, at_ms: int, reason: str | None) -> None:
        self._both(lambda store: store.pause(session, at_ms=at_ms, reason=reason))

    @rule(session=sessions, at_ms=times_ms)
    def let_go(self, session: str, at_ms: int) -> None:
        self._both(lambda store: store.resume(session, at_ms=at_ms))

    @rule(
        session=sessions,
        status=st.sampled_from([None, "RUNNING", "COMPLETED", "FAILED"]),
        name=names,
        given_tags=tags,
        is_gone=st.booleans(),
        at_ms=times_ms,
    )
    def change(
        self, session: str, status: Any, name: str | None, given_tags: Any, is_gone: bool,
        at_ms: int,
    ) -> None:  # fmt: skip
        self._written += 1
        gone = tuple((tag, None) for tag, _ in given_tags)
        change = Change(status, name, gone if is_gone else given_tags)
        event = event_of(self._written, session=session, created_ms=at_ms)
        self._both(lambda store: store.change_session(session, change, at_ms=at_ms, event=event))

    @rule(session=sessions, text=texts, name=names, parent=names, said=tags)
    def claim_and_say(
        self, session: str, text: str, name: str | None, parent: str | None, said: Any
    ) -> None:
        claim = claim_of(text, session=session, about=About(name, parent, said))
        self._both(lambda store: store.claim_step(claim))

    @invariant()
    def control_is_the_same(self) -> None:
        for session in ("s", "t"):
            self._compare_control(session)
        for query in (
            Query(search="on", newest_first=False),
            Query(parent="two"),
            Query(tags=(("k", None), ("l", "v"))),
            Query(status="PAUSED"),
        ):
            self._compare_list(query)

    def _compare_control(self, session: str) -> None:
        self._both(lambda store: store.read_pause(session))
        self._both(lambda store: store.list_rollbacks(session, limit=20))
        self._both(lambda store: store.weigh_rollback(session, Place(index=0)))
        self._both(lambda store: store.find_alike(session, 2, None, 9))
        self._both(lambda store: store.count_steps_at(session, 3))
        self._both(lambda store: store.find_response(session, "chatcmpl-1"))

    def _compare_list(self, query: Query) -> None:
        self._both(lambda store: store.list_sessions(query))


TestControlComparison = pytest.mark.slow(ControlComparison.TestCase)
TestControlComparison.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)


# --- only this backend ----------------------------------------------------------------------------


def test_a_session_that_is_not_paused_asks_the_file_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    really = sqlite_control.control_read.read_pause

    def read_pause(connection: sqlite3.Connection, session: str) -> Pause | None:
        asked.append(session)
        return really(connection, session)

    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 1)
        await run_of(store, 1, session="t")
        await store.pause("t", at_ms=LATER_MS)
        asked.clear()
        assert await store.read_pause("s") is None
        assert asked == []
        assert await store.read_pause("t") is not None
        assert asked == ["t"]
        await store.resume("t", at_ms=LATER_MS)
        asked.clear()
        assert await store.read_pause("t") is None
        assert asked == []

    monkeypatch.setattr(sqlite_control.control_read, "read_pause", read_pause)
    run(path, scenario)


def test_names_that_are_no_session_are_not_kept(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        for number in range(5):
            with pytest.raises(NotFound):
                await store.pause(f"no-{number}", at_ms=LATER_MS)
        assert store._paused == set()
        assert not store._pausing

    run(path, scenario)


def test_with_too_many_paused_sessions_the_file_is_asked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_control, "PAUSED_KEPT_MAX", 2)

    async def scenario(store: SqliteStore) -> None:
        for session in "abcd":
            await run_of(store, 1, session=session)
        for session in "abc":
            await store.pause(session, at_ms=LATER_MS)
        await look(store)
        await store.resume("d", at_ms=LATER_MS)

    async def look(store: SqliteStore) -> None:
        paused = [one for one in "abcd" if await store.read_pause(one) is not None]
        assert paused == ["a", "b", "c"]
        assert store._paused is None

    run(path, scenario)
    run(path, look)


def test_a_pause_that_overtakes_a_resume_stands(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 1)
        await store.pause("s", at_ms=LATER_MS)
        resuming = asyncio.gather(
            store.resume("s", at_ms=LATER_MS), store.pause("s", at_ms=LATER_MS + 1)
        )
        await resuming
        assert await store.read_pause("s") == Pause(LATER_MS + 1)

    run(path, scenario)


def test_a_pause_whose_caller_leaves_is_written_and_known(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 1)
        async with asyncio.TaskGroup() as group:
            pausing = group.create_task(store.pause("s", at_ms=LATER_MS))
            await asyncio.sleep(0)
            pausing.cancel()
        await store.check()  # whatever was handed over before is written
        assert await store.read_pause("s") == Pause(LATER_MS)

    run(path, scenario)


def test_a_rollback_that_fails_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 3)
        with monkeypatch.context() as full:
            full.setattr(ControlRecorder, "_TURN_SESSION", "update nowhere set a = ? where b = ?")
            with pytest.raises(Exception, match="nowhere"):
                await take_back(store, 1)
        assert await active_of(store) == [0, 1, 2]
        assert await store.list_rollbacks("s", limit=9) == ()

    run(path, scenario)


def test_a_process_that_is_killed_keeps_what_was_rolled_back(path: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await run_of(store, 3)
        await take_back(store, 1)
        # What another process would find, were this one killed now.
        with closing(sqlite3.connect(path)) as other:
            rows = other.execute("select rolled_back_ms from step order by id").fetchall()
        assert rows == [(None,), (LATER_MS,), (LATER_MS,)]

    run(path, scenario)


@pytest.mark.slow
def test_a_session_of_ten_thousand_steps_is_turned_in_a_moment(path: Path) -> None:
    """Generous against a busy machine; the goal is 100 ms."""
    count = 10_000

    async def scenario(store: SqliteStore) -> None:
        for first in range(0, count, 500):
            await asyncio.gather(*(_record(store, number) for number in range(first, first + 500)))
        took: dict[str, float] = {}

        async def timed(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
            began = asyncio.get_running_loop().time()
            found = await call()
            took[name] = (asyncio.get_running_loop().time() - began) * 1000
            return found

        at_ms = START_MS
        place = Place(step_number=0)
        await timed("weigh", lambda: store.weigh_rollback("s", place))
        await timed("roll back", lambda: store.roll_back("s", place, at_ms=at_ms))
        await timed("restore", lambda: store.restore("s", None, at_ms=at_ms))
        await timed("pause", lambda: store.pause("s", at_ms=at_ms))
        await timed("list", lambda: store.list_sessions(Query()))
        await timed("page", lambda: store.list_steps(Query(session="s", newest_first=False)))
        await timed("rollbacks", lambda: store.list_rollbacks("s", limit=20))
        print({name: round(ms, 1) for name, ms in took.items()})
        assert len(await active_of(store)) == 1000  # one page: all are active again
        assert max(took.values()) < 1000

    run(path, scenario)


async def _record(store: Store, number: int) -> None:
    await run_of(store, 1, first=number)
