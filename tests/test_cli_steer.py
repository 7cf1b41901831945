"""`agentstate sessions` that changes something: with a running server, and with the file alone."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.ground.control import Pause, Rollback
from agentstate.ground.records import SessionRow
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from tests.helpers.desk import Desk
from tests.store.contract_control import active_of, run_of

NOBODY = "http://127.0.0.1:9"
FILE = "agentstate.db"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings, server or name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "DEFAULT_URL", NOBODY)
    monkeypatch.setenv("LOGNAME", "ada")
    for name in list(os.environ):
        if name.startswith("AGENTSTATE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        desk.run(run_of(desk.store, 5))
        yield desk


def steer(desk: Desk, *arguments: str) -> int:
    return main(["sessions", *arguments, "--url", desk.url])


def rollbacks(desk: Desk) -> tuple[Rollback, ...]:
    found: tuple[Rollback, ...] = desk.run(desk.store.list_rollbacks("s", limit=9))
    return found


def session(desk: Desk) -> SessionRow:
    row = desk.run(desk.store.read_session("s"))
    assert isinstance(row, SessionRow)
    return row


def test_a_rollback_says_what_it_took_and_how_to_undo_it(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert steer(desk, "rollback", "s", "3") == 0
    assert capsys.readouterr().out == (
        "s: 2 steps taken back; running them again costs about $0.000050 "
        "(20 tokens in, 8 out)\n"
        "to undo it: agentstate sessions restore s 1\n"
    )
    assert rollbacks(desk)[0].by == "ada"
    assert steer(desk, "rollback", "s", "3") == 0
    assert "no step to take back" in capsys.readouterr().out

    assert steer(desk, "restore", "s", "--by", "bob") == 0
    assert capsys.readouterr().out == (
        "s: number 1 is undone; 2 steps active again\nto undo it: agentstate sessions restore s 2\n"
    )
    assert rollbacks(desk)[0].by == "bob"
    assert desk.run(active_of(desk.store)) == [0, 1, 2, 3, 4]


def test_a_rollback_by_index_and_one_that_only_looks(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert steer(desk, "rollback", "s", "1", "--dry-run") == 0
    assert "4 steps would be taken back" in capsys.readouterr().out
    assert rollbacks(desk) == ()
    assert steer(desk, "rollback", "s", "4", "--index") == 0
    assert rollbacks(desk)[0].taken == ((4, 4),)


def test_a_certain_rollback_is_undone(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("4", "2"):
        assert steer(desk, "rollback", "s", number) == 0
    desk.run(run_of(desk.store, 2, first=2))
    capsys.readouterr()
    assert steer(desk, "restore", "s", "1") == 0
    assert "2 steps recorded since taken back" in capsys.readouterr().out
    assert steer(desk, "restore", "s", "1") == 1
    assert "was undone by number 3" in capsys.readouterr().err


def test_a_session_is_paused_resumed_and_completed(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert steer(desk, "pause", "s", "--reason", "too dear") == 0
    assert "PAUSED, its next call is held" in capsys.readouterr().out
    pause = session(desk).pause
    assert isinstance(pause, Pause)
    assert (pause.reason, pause.by) == ("too dear", "ada")
    assert steer(desk, "resume", "s") == 0
    assert steer(desk, "complete", "s") == 0
    assert capsys.readouterr().out == "s: RUNNING\ns: COMPLETED\n"
    assert session(desk).status == "COMPLETED"


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("rollback", "s", "3"), "steps_taken_back"),
        (("pause", "s"), "session"),
        (("resume", "s"), "session"),
        (("complete", "s"), "session"),
    ],
)
def test_each_prints_json(
    desk: Desk, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], key: str
) -> None:
    assert steer(desk, *arguments, "--json") == 0
    assert key in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("verb", ["pause", "resume", "complete", "restore"])
def test_a_session_that_is_not_there_is_said_so(
    desk: Desk, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert steer(desk, verb, "no/such one") == 1
    assert "no/such one" in capsys.readouterr().err


def test_a_name_that_could_move_a_cursor_is_shown(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\u202eb"
    desk.run(run_of(desk.store, 1, session=name))
    assert steer(desk, "pause", name) == 0
    assert "\u202e" not in capsys.readouterr().out


def test_where_no_server_runs_the_file_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    def on_file(what: Any) -> Any:
        async def whole() -> Any:
            store = SqliteStore(FILE)
            await store.open()
            try:
                return await what(store)
            finally:
                await store.close()

        return asyncio.run(whole())

    async def fill(store: Store) -> None:
        await run_of(store, 4)

    on_file(fill)
    assert main(["sessions", "rollback", "s", "2"]) == 0
    assert on_file(active_of) == [0, 1]
    assert main(["sessions", "restore", "s"]) == 0
    assert on_file(active_of) == [0, 1, 2, 3]
    assert main(["sessions", "pause", "s"]) == 0
    assert main(["sessions", "complete", "s"]) == 0

    async def look(store: Store) -> tuple[str, str]:
        paused = await store.read_session("s")
        await store.resume("s", at_ms=1)
        row = await store.read_session("s")
        assert paused is not None
        assert row is not None
        return paused.status, row.status

    assert on_file(look) == ("PAUSED", "COMPLETED")
    capsys.readouterr()


def test_nobody_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "pause", "s"]) == 1
    assert "No AgentState server answers" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("rollback", "s"), ("rollback", "s", "x"), ("restore",)])
def test_odd_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["sessions", *arguments])
    assert left.value.code == 2
    capsys.readouterr()
