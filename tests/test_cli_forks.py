"""`agentstate sessions fork` and `delete`: with a running server, and with the file alone."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from agentstate.__main__ import main
from agentstate.store.sqlite import SqliteStore
from tests.helpers.desk import Desk
from tests.store.contract_control import active_of, run_of
from tests.test_cli_steer import FILE, _elsewhere, desk, session, steer

__all__ = ["_elsewhere", "desk"]  # fixtures

Capture = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def test_a_fork_says_how_to_go_on(desk: Desk, capsys: Capture) -> None:
    assert steer(desk, "fork", "s", "3") == 0
    assert capsys.readouterr().out == (
        "s-fork-1: forked from s, 3 steps shared\n"
        "to go on there, run the agent with the session id s-fork-1\n"
    )
    assert steer(desk, "fork", "s", "1", "--index", "--as", "mine", "--json") == 0
    found = json.loads(capsys.readouterr().out)["session"]
    assert (found["session"], found["forked_from"]["by"]) == ("mine", "ada")
    assert desk.run(active_of(desk.store, "mine")) == [0]
    assert steer(desk, "fork", "s", "--by", "bob", "--inherit-decisions") == 0
    assert "5 steps shared" in capsys.readouterr().out
    assert steer(desk, "fork", "s", "--as", "mine") == 1
    assert "already" in capsys.readouterr().err
    assert steer(desk, "fork", "s", "--index") != 0
    assert "--index" in capsys.readouterr().err


def test_a_deletion_without_a_terminal_needs_a_yes(desk: Desk, capsys: Capture) -> None:
    assert steer(desk, "delete", "s") != 0
    assert "--yes" in capsys.readouterr().err
    assert steer(desk, "delete", "s", "--dry-run") == 0
    assert "s: 5 steps would go" in capsys.readouterr().out
    assert session(desk).steps == 5
    assert steer(desk, "delete", "s", "--yes") == 0
    assert capsys.readouterr().out == "s: deleted, 5 steps\n"
    assert desk.run(desk.store.read_session("s")) is None
    assert steer(desk, "delete", "s", "--yes") == 1


@pytest.mark.parametrize(("typed", "is_deleted"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_on_a_terminal_it_asks(
    desk: Desk,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    is_deleted: bool,
) -> None:
    steer(desk, "fork", "s", "--as", "mine")
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert steer(desk, "delete", "s") == (0 if is_deleted else 1)
    told = capsys.readouterr()
    assert "5 steps would go" in told.err
    assert "forks that stay: mine" in told.err
    assert "cannot be undone" in told.err
    assert told.out == ("s: deleted, 5 steps\n" if is_deleted else "")
    assert (desk.run(desk.store.read_session("s")) is None) == is_deleted


def test_without_a_server_the_file_is_forked_and_deleted(capsys: Capture) -> None:
    async def fill() -> None:
        store = SqliteStore(FILE)
        await store.open()
        await run_of(store, 4)
        await store.close()

    async def look() -> None:
        store = SqliteStore(FILE)
        await store.open()
        assert await store.read_session("s") is None
        assert await active_of(store, "s-fork-1") == [0, 1]
        await store.close()

    asyncio.run(fill())
    assert main(["sessions", "fork", "s", "2"]) == 0
    assert main(["sessions", "delete", "s", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "s: deleted, 4 steps"
    asyncio.run(look())
    assert Path(FILE).is_file()
