"""The writer's thread: groups, failures, limits, and its end."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentstate.ground.errors import StoreBusy, StoreError
from agentstate.store import sqlite_file, sqlite_writer
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_writer import GroupWriter
from tests.store.contract import claim_of

PATIENCE_S = 10.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


def run(path: Path, scenario: Callable[[GroupWriter], Awaitable[None]], **settings: Any) -> None:
    """Open a writer, play a scenario on it, close it."""

    async def whole() -> None:
        writer = GroupWriter(path, **({"syncs_answers": True} | settings))
        await writer.open()
        try:
            await scenario(writer)
        finally:
            await writer.close(PATIENCE_S)

    asyncio.run(whole())


def add(name: str) -> Callable[[Recorder], int]:
    """Make a method that adds a session; a name a second time breaks a constraint."""
    sql = "insert into session (name, created_ms, updated_ms) values (?, 0, 0)"
    return lambda recorder: recorder._insert(sql, (name,))


def ask(sql: str) -> Callable[[Recorder], Any]:
    """Make a method that returns one value."""
    return lambda recorder: recorder._execute(sql).fetchone()[0]


def names_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("select name from session order by id")]


def move(name: str, target: str) -> None:
    Path(name).rename(target)


class Plug:
    """A method that keeps the thread busy until the test pulls it, so that a group gathers."""

    def __init__(self) -> None:
        self.is_in = threading.Event()
        self._pulled = threading.Event()

    def __call__(self, recorder: Recorder) -> None:
        self.is_in.set()
        assert self._pulled.wait(PATIENCE_S)

    def pull(self) -> None:
        self._pulled.set()


async def together(writer: GroupWriter, *methods: Callable[[Recorder], Any]) -> list[Any]:
    """Have `methods` written as one group; return results and errors."""
    plug = Plug()
    first = writer.start(plug)
    await asyncio.to_thread(plug.is_in.wait, PATIENCE_S)
    rest = [writer.start(method) for method in methods]
    plug.pull()
    outcomes = await asyncio.gather(first, *rest, return_exceptions=True)
    return outcomes[1:]


# --- groups ---------------------------------------------------------------------------------------


def test_a_method_is_committed_when_its_caller_hears_of_it(path: Path) -> None:
    async def scenario(writer: GroupWriter) -> None:
        assert await writer.write(add("a")) == 1
        assert names_in(path) == ["a"]

    run(path, scenario)


def test_what_waits_is_written_in_one_transaction(path: Path) -> None:
    commits: list[str] = []

    def watch(recorder: Recorder) -> None:
        connection = recorder._execute("select 1").connection
        connection.set_trace_callback(lambda sql: commits.append(sql) if "commit" in sql else None)

    async def scenario(writer: GroupWriter) -> None:
        await writer.write(watch)
        commits.clear()
        await together(writer, *(add(str(place)) for place in range(50)))
        assert len(commits) == 2  # of the plug, and of the rest
        assert len(names_in(path)) == 50

    run(path, scenario)


def test_a_group_has_a_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "GROUP_MAX", 10)
    visible: list[int] = []

    async def scenario(writer: GroupWriter) -> None:
        def count(recorder: Recorder) -> None:
            visible.append(len(names_in(path)))  # another connection sees whole groups only

        await together(writer, *(add(str(place)) for place in range(10)), count)
        assert visible == [10]

    run(path, scenario)


@pytest.mark.parametrize("bad", [0, 1, 5, 9])
def test_one_that_fails_takes_nobody_with_it(path: Path, bad: int) -> None:
    async def scenario(writer: GroupWriter) -> None:
        await writer.write(add("taken"))
        names = [str(place) for place in range(10)]
        names[bad] = "taken"

        outcomes = await together(writer, *map(add, names))

        assert isinstance(outcomes.pop(bad), sqlite3.IntegrityError)
        assert all(isinstance(row_id, int) for row_id in outcomes)
        assert sorted(names_in(path)) == sorted(names)

    run(path, scenario)


def test_what_a_failed_method_did_before_is_undone(path: Path) -> None:
    async def scenario(writer: GroupWriter) -> None:
        def half(recorder: Recorder) -> None:
            add("half")(recorder)
            raise ValueError("in the middle")

        outcomes = await together(writer, add("a"), half, add("b"))
        with pytest.raises(ValueError, match="in the middle"):
            await writer.write(half)

        assert isinstance(outcomes[1], ValueError)
        assert names_in(path) == ["a", "b"]

    run(path, scenario)


def test_all_may_fail(path: Path) -> None:
    async def scenario(writer: GroupWriter) -> None:
        await writer.write(add("taken"))
        outcomes = await together(writer, *[add("taken")] * 3)
        assert [type(one) for one in outcomes] == [sqlite3.IntegrityError] * 3
        assert await writer.write(add("next")) == 2

    run(path, scenario)


# --- durability -----------------------------------------------------------------------------------

SYNCHRONOUS = {1: "normal", 2: "full"}


@pytest.mark.parametrize("syncs_answers", [True, False])
def test_only_a_group_with_an_answer_is_synced(path: Path, syncs_answers: bool) -> None:
    seen: list[str] = []

    def look(recorder: Recorder) -> None:
        seen.append(SYNCHRONOUS[ask("pragma synchronous")(recorder)])

    async def scenario(writer: GroupWriter) -> None:
        for is_durable in (False, True, True, False, True):
            await writer.write(look, is_durable=is_durable)

    run(path, scenario, syncs_answers=syncs_answers)

    full = "full" if syncs_answers else "normal"
    assert seen == ["normal", full, full, "normal", full]


def test_an_answer_makes_its_whole_group_synced(path: Path) -> None:
    async def scenario(writer: GroupWriter) -> None:
        plug = Plug()
        first = writer.start(plug)
        await asyncio.to_thread(plug.is_in.wait, PATIENCE_S)
        claim = writer.start(ask("pragma synchronous"))
        answer = writer.start(ask("pragma synchronous"), is_durable=True)
        plug.pull()
        assert list(await asyncio.gather(first, claim, answer)) == [None, 2, 2]

    run(path, scenario)


# --- limits ---------------------------------------------------------------------------------------


def test_callers_wait_when_too_many_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "WAITING_MAX", 4)

    async def scenario(writer: GroupWriter) -> None:
        plug = Plug()
        first = writer.start(plug)
        await asyncio.to_thread(plug.is_in.wait, PATIENCE_S)
        calls = [asyncio.ensure_future(writer.write(add(str(place)))) for place in range(30)]
        await asyncio.sleep(0)
        assert writer._waiting_count == 4
        calls[10].cancel()  # one of those that wait for room
        plug.pull()

        outcomes = await asyncio.gather(first, *calls, return_exceptions=True)

        assert [type(one) for one in outcomes].count(asyncio.CancelledError) == 1
        assert len(names_in(path)) == 29
        assert writer._waiting_count == 0

    run(path, scenario)


def test_a_caller_may_leave(path: Path) -> None:
    async def scenario(writer: GroupWriter) -> None:
        plug = Plug()
        first = writer.start(plug)
        await asyncio.to_thread(plug.is_in.wait, PATIENCE_S)
        leaving = asyncio.ensure_future(writer.write(add("left behind")))
        await asyncio.sleep(0)
        leaving.cancel()
        plug.pull()
        await first

        assert await writer.write(add("next")) == 2
        assert names_in(path) == ["left behind", "next"]

    run(path, scenario)


# --- the disk -------------------------------------------------------------------------------------


def test_a_full_disk_is_reported_and_survived(path: Path) -> None:
    """`max_page_count` makes SQLite itself say SQLITE_FULL, as it does when a write gets ENOSPC."""

    async def scenario(writer: GroupWriter) -> None:
        await writer.write(add("before"))
        pages = await writer.write(ask("pragma page_count"))
        await writer.write(ask(f"pragma max_page_count = {pages}"))
        big = claim_of(run_id="r" * 100_000)

        outcomes = await together(writer, add("a"), lambda r: r.claim_step(big), add("b"))
        with pytest.raises(StoreError, match="disk is full") as caught:
            await writer.write(lambda recorder: recorder.claim_step(big))

        assert isinstance(caught.value.__cause__, sqlite3.Error)
        # Whether a small write still finds room is SQLite's to say; callers are told what became
        # of theirs.
        told = zip("ab", (outcomes[0], outcomes[2]), strict=True)
        assert names_in(path) == ["before", *(name for name, one in told if isinstance(one, int))]
        assert isinstance(outcomes[1], StoreError)
        await writer.write(ask("pragma max_page_count = 1000000"))
        await writer.write(lambda recorder: recorder.claim_step(big))

    run(path, scenario)


def test_a_disk_error_in_the_middle_fails_those_before_it_too(path: Path) -> None:
    """Some errors make SQLite roll back the whole transaction, not only the statement."""

    async def scenario(writer: GroupWriter) -> None:
        def break_off(recorder: Recorder) -> None:
            recorder._execute("rollback")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR, "SQLITE_IOERR"
            raise error

        outcomes = await together(writer, add("a"), break_off, add("b"))

        assert [type(one) for one in outcomes] == [StoreError, StoreError, int]
        assert outcomes[0] is not outcomes[1]
        assert names_in(path) == ["b"]

    run(path, scenario)


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_nothing_is_acknowledged_once_the_file_is_gone(path: Path, suffix: str) -> None:
    async def scenario(writer: GroupWriter) -> None:
        await writer.write(add("a"))
        move(f"{path}{suffix}", f"{path}-moved")
        with pytest.raises(StoreError, match="is gone"):
            await writer.write(add("b"))
        move(f"{path}-moved", f"{path}{suffix}")
        await writer.write(add("c"))
        assert names_in(path) == ["a", "c"]

    run(path, scenario)


def test_a_program_that_keeps_the_file_locked_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.01)

    async def scenario(writer: GroupWriter) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as shell:
            shell.execute("begin immediate")
            with pytest.raises(StoreError, match="another program"):
                await writer.write(add("a"))
        await writer.write(add("b"))
        assert names_in(path) == ["b"]

    run(path, scenario)


# --- life -----------------------------------------------------------------------------------------


def test_a_second_writer_is_refused(path: Path) -> None:
    async def scenario(writer: GroupWriter) -> None:
        second = GroupWriter(path, syncs_answers=True)
        with pytest.raises(StoreBusy):
            await second.open()
        await writer.write(add("still here"))

    run(path, scenario)


def test_a_writer_that_could_not_open_can_try_again(path: Path) -> None:
    async def scenario() -> None:
        writer = GroupWriter(path, syncs_answers=True)
        with pytest.raises(StoreError):
            await writer.open()
        move(str(path), f"{path}-moved")

        await writer.open()

        await writer.close(PATIENCE_S)

    path.write_bytes(b"not ours")
    asyncio.run(scenario())


def test_closing_writes_what_is_waiting(path: Path) -> None:
    async def scenario() -> None:
        writer = GroupWriter(path, syncs_answers=True)
        await writer.open()
        waiting = [writer.start(add(str(place))) for place in range(600)]
        await writer.close(PATIENCE_S)
        assert await asyncio.gather(*waiting) == list(range(1, 601))

    asyncio.run(scenario())

    assert not Path(f"{path}-wal").exists()
    assert len(names_in(path)) == 600


def test_a_closed_writer_refuses_and_closes_again(path: Path) -> None:
    async def scenario() -> None:
        writer = GroupWriter(path, syncs_answers=True)
        await writer.open()
        await writer.close(PATIENCE_S)
        await writer.close(PATIENCE_S)
        with pytest.raises(StoreError, match="closed"):
            await writer.write(add("a"))

    asyncio.run(scenario())


def test_closing_has_a_limit(path: Path) -> None:
    async def scenario() -> None:
        writer = GroupWriter(path, syncs_answers=True)
        await writer.open()
        plug = Plug()
        first = writer.start(plug)
        with pytest.raises(StoreError, match=r"within 0\.01 s"):
            await writer.close(0.01)
        plug.pull()
        await first

    asyncio.run(scenario())
    _join_writers()


def test_opening_may_be_cancelled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug = Plug()
    really = sqlite_file.open_writer

    def slowly(path: Path) -> sqlite3.Connection:
        plug.is_in.set()
        assert plug._pulled.wait(PATIENCE_S)
        return really(path)

    monkeypatch.setattr(sqlite_writer, "open_writer", slowly)

    async def scenario() -> None:
        writer = GroupWriter(path, syncs_answers=True)
        opening = asyncio.ensure_future(writer.open())
        await asyncio.to_thread(plug.is_in.wait, PATIENCE_S)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        plug.pull()
        await asyncio.to_thread(_join_writers)
        monkeypatch.undo()
        await writer.open()  # the lock was let go of
        await writer.close(PATIENCE_S)

    asyncio.run(scenario())


def test_opening_may_be_cancelled_and_fail(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug = Plug()

    def fail(path: Path) -> sqlite3.Connection:
        plug.is_in.set()
        assert plug._pulled.wait(PATIENCE_S)
        raise StoreError("no disk")

    async def scenario() -> None:
        writer = GroupWriter(path, syncs_answers=True)
        with monkeypatch.context() as broken:
            broken.setattr(sqlite_writer, "open_writer", fail)
            opening = asyncio.ensure_future(writer.open())
            await asyncio.to_thread(plug.is_in.wait, PATIENCE_S)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            plug.pull()
            await asyncio.to_thread(_join_writers)
        async with asyncio.timeout(PATIENCE_S):
            await writer.open()
            assert await writer.write(add("a")) == 1
        await writer.close(PATIENCE_S)

    asyncio.run(scenario())


def test_a_loop_that_ended_does_not_end_the_thread_early(path: Path) -> None:
    """The caller is gone; what was handed over is written all the same."""
    plug = Plug()
    writer = GroupWriter(path, syncs_answers=True)

    async def scenario() -> None:
        await writer.open()
        writer.start(plug)
        writer.start(add("handed over"))

    asyncio.run(scenario())
    plug.pull()
    writer._queue.put(sqlite_writer._Write(None, False, asyncio.new_event_loop().create_future()))
    _join_writers()

    assert names_in(path) == ["handed over"]


class Folds:
    """Counts how often the thread has folded its log in a pause."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folded = threading.Event()
        really = sqlite_writer._WriterThread._fold_log

        def fold(thread: sqlite_writer._WriterThread) -> None:
            really(thread)
            self._folded.set()

        monkeypatch.setattr(sqlite_writer, "PAUSE_S", 0.01)
        monkeypatch.setattr(sqlite_writer._WriterThread, "_fold_log", fold)

    async def next(self) -> None:
        """Wait for one that comes after this."""
        self._folded.clear()
        assert await asyncio.to_thread(self._folded.wait, PATIENCE_S)


def test_a_pause_is_used_to_fold_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folds = Folds(monkeypatch)

    async def scenario(writer: GroupWriter) -> None:
        await writer.write(add("a"))
        await folds.next()
        assert size_of(f"{path}-wal") == 0
        await writer.write(add("b"))
        assert size_of(f"{path}-wal") > 0
        assert names_in(path) == ["a", "b"]
        assert await writer.write(ask("pragma busy_timeout")) == sqlite_file.BUSY_S * 1000

    run(path, scenario)


def test_a_pause_does_not_wait_for_readers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folds = Folds(monkeypatch)

    async def scenario(writer: GroupWriter) -> None:
        await writer.write(add("a"))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select * from session").fetchall()
            for name in "bc":
                await writer.write(add(name))
                await folds.next()
        assert names_in(path) == ["a", "b", "c"]

    run(path, scenario)


def size_of(name: str) -> int:
    return Path(name).stat().st_size


def _join_writers() -> None:
    """Wait for the threads of writers that were left behind."""
    for thread in threading.enumerate():
        if thread.name == "store-writer":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    gc.collect()
