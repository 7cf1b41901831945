"""The verbs where no server runs: the same answers, from the file."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.cli_file import open_record
from agentstate.cli_server import Refused, ServerSilent
from agentstate.ground.approvals import Decision
from agentstate.ground.errors import StoreBusy
from agentstate.store.sqlite import SqliteStore
from tests.helpers.approvals import QUESTION, Desk, open_approvals

NOBODY = "http://127.0.0.1:9"
FILE = "agentstate.db"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings, server or file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "DEFAULT_URL", NOBODY)
    monkeypatch.setenv("LOGNAME", "ada")
    for name in list(os.environ):
        if name.startswith("AGENTSTATE_"):
            monkeypatch.delenv(name)


def ask(path: str = FILE) -> str:
    """Leave a file in which one approval is open; return its id."""

    async def write() -> str:
        store = SqliteStore(path)
        await store.open()
        try:
            [name] = await open_approvals(store, replace(QUESTION, arguments='{"id":1.10}'))
        finally:
            await store.close()
        return name

    return asyncio.run(write())


def decision_of(name: str, path: str = FILE) -> Decision | None:
    async def read() -> Decision | None:
        store = SqliteStore(path)
        await store.open()
        try:
            approval = await store.read_approval(name)
        finally:
            await store.close()
        assert approval is not None
        return approval.decision

    return asyncio.run(read())


def test_a_decision_in_the_file_is_there_when_a_server_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = ask()

    assert main(["approvals", "list", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert main(["approvals", "show", name, "--json"]) == 0
    assert '"arguments_json":{"id":1.10}' in capsys.readouterr().out
    assert main(["approvals", "approve", name]) == 0

    assert listed["id"] == name
    assert decision_of(name) == Decision(True, "ada")
    assert main(["approvals", "approve", name]) == 1
    assert "the first decision stands" in capsys.readouterr().err


def test_the_file_is_the_configured_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = ask("other.db")
    (tmp_path / "agentstate.toml").write_text('[store]\npath = "sqlite://other.db"\n')

    assert main(["approvals", "list", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == [name]


def test_recorded_calls_in_the_file_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    ask()

    assert main(["policy", "test", "s"]) == 0
    assert capsys.readouterr().out == "No call of a tool is on record there.\n"


def test_a_file_is_never_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["approvals", "list"]) == 1

    assert "There is no file agentstate.db to read either." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_url_that_is_given_is_not_replaced_by_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ask()

    assert main(["approvals", "list", "--url", NOBODY]) == 1
    assert "No AgentState server answers at" in capsys.readouterr().err


def test_a_file_that_a_server_elsewhere_holds_is_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ask()

    async def hold() -> None:
        store = SqliteStore(FILE)
        await store.open()
        try:
            with pytest.raises(StoreBusy):
                await asyncio.to_thread(main_fails)
        finally:
            await store.close()

    def main_fails() -> None:
        with open_record(NOBODY, falls_back=True):
            raise AssertionError("two hold one file")

    asyncio.run(hold())


def test_a_refusal_is_the_servers_own() -> None:
    ask()

    with open_record(NOBODY, falls_back=True) as record:
        assert record.place == FILE
        with pytest.raises(Refused) as unknown:
            record.get("/api/approvals/none")
        with pytest.raises(Refused) as wrong:
            record.post("/api/approvals/none/action", {"action": "x"})
        with pytest.raises(Refused) as elsewhere:
            record.get("/api/nothing")

    assert (unknown.value.status, wrong.value.status, elsewhere.value.status) == (404, 400, 404)


def test_a_server_goes_before_the_file(tmp_path: Path) -> None:
    ask()

    with Desk() as desk, open_record(desk.url, falls_back=True) as record:
        assert record.place == desk.url
        assert record.get("/api/approvals").value == []


def test_what_is_no_server_of_ours_is_named_so(tmp_path: Path) -> None:
    with pytest.raises(ServerSilent), open_record(NOBODY, falls_back=False):
        raise AssertionError("nobody is there")
