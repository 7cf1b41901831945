"""`agentstate tools`: what is listed, and a person's word on it, with a server and without."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.ground.durable import DurableCall
from agentstate.store.sqlite import SqliteStore
from tests.helpers.desk import Desk
from tests.store.contract_durable import LATER_MS, begun, lost, result_of

NOBODY = "http://127.0.0.1:9"


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
        yield desk


def tools(desk: Desk, *arguments: str) -> int:
    return main(["tools", *arguments, "--url", desk.url])


def read(desk: Desk, call: str) -> DurableCall:
    row = desk.run(desk.store.read_durable(call))
    assert isinstance(row, DurableCall)
    return row


def test_calls_are_listed_and_unknown_ones_say_what_to_do(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tools(desk, "list") == 0
    assert capsys.readouterr().out == "No durable tool call is on record.\n"
    assert tools(desk, "list", "--state", "unknown") == 0
    assert capsys.readouterr().out == "None is unknown.\n"
    done = desk.run(begun(desk.store, "1", arguments='{"a": "\\u202e\x1b"}'))
    desk.run(desk.store.report_durable("s", done.call, result_of(), at_ms=LATER_MS))
    unknown = desk.run(lost(desk.store, "2", session="t"))

    assert tools(desk, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == [unknown.call, "unknown"]
    assert lines[2].split()[:2] == [done.call, "done"]
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "  agentstate tools settle CALL --happened | --not-happened | --skip"
    assert tools(desk, "list", "--session", "s", "--json") == 0
    assert [row["call"] for row in json.loads(capsys.readouterr().out)] == [done.call]


def test_what_was_begun_and_not_reported_is_pointed_at_and_settled(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    call = desk.run(begun(desk.store)).call

    assert tools(desk, "list", "--state", "unknown") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "None is unknown."
    assert lines[2].startswith("1 is running: begun and not reported so far.")
    assert lines[3] == "  agentstate tools list --state running"
    for flags in (("--state", "running"), ()):
        assert tools(desk, "list", *flags) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].split()[:2] == [call, "running"]
        assert lines[-2].startswith("Running: begun and not reported so far.")
        assert lines[-1] == "  agentstate tools settle CALL --happened | --not-happened | --skip"

    assert tools(desk, "settle", call, "--not-happened") == 0
    desk.run(desk.store.report_durable("s", call, result_of(), at_ms=LATER_MS))
    capsys.readouterr()
    assert tools(desk, "list") == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert (row[1], row[-1]) == ("done", "result"), "its owner lived, and it did happen"


@pytest.mark.parametrize(
    ("flags", "state", "said"),
    [
        (("--happened", "--result", '{"id": 7}'), "done", "happened: it is not run again"),
        (("--not-happened",), "ready", "did not happen: the next begin runs it"),
        (("--skip", "--reason", "late"), "done", "is skipped: its agent is told so"),
    ],
)
def test_a_call_is_settled(
    desk: Desk,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    state: str,
    said: str,
) -> None:
    call = desk.run(lost(desk.store)).call

    assert tools(desk, "settle", call, *flags) == 0

    assert capsys.readouterr().out == f"send_email of session s {said}\n"
    row = read(desk, call)
    assert (row.state, row.settled_by) == (state, "ada")
    assert tools(desk, "settle", call, "--skip") == 1
    assert "the first word stands" in capsys.readouterr().err


def test_a_result_must_be_json(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    call = desk.run(lost(desk.store)).call
    assert tools(desk, "settle", call, "--happened", "--result", "sent") != 0
    assert "--result must be JSON" in capsys.readouterr().err
    assert read(desk, call).state == "unknown"


def test_a_call_is_shown_whole_and_forgotten(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    call = desk.run(begun(desk.store)).call
    desk.run(desk.store.report_durable("s", call, result_of(), at_ms=LATER_MS))

    assert tools(desk, "forget", call, "--by", "bo") == 0
    assert "the next equal call is a new one" in capsys.readouterr().out
    assert tools(desk, "show", call) == 0

    shown = capsys.readouterr().out
    assert '    result     {"id":7}' in shown
    assert '    arguments  {"to":"a@example.org"}' in shown
    assert "    forgotten  " in shown
    assert tools(desk, "show", "dur_none") == 1


def test_without_a_server_the_file_is_opened(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> str:
        store = SqliteStore(Path("agentstate.db"))
        await store.open()
        call = (await lost(store)).call
        await store.close()
        return call

    call = asyncio.run(scenario())

    assert main(["tools", "settle", call, "--happened"]) == 0
    capsys.readouterr()
    assert main(["tools", "list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["call"], row["settled_as"], row["settled_by"]) == (call, "happened", "ada")
