"""`agentstate export`: files that are whole or not there, from a server or from the file."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.cli_export import Progress, beside
from agentstate.doors.api import export as api
from agentstate.ground.errors import StoreError
from agentstate.store.sqlite import SqliteStore
from tests.helpers.approvals import Desk
from tests.helpers.runs import TOOL, call, record, record_run, say
from tests.helpers.training_lines import faults, split_lines

NOBODY = "http://127.0.0.1:9"
FILE = "agentstate.db"
KEY = "sk-" + "a1B2" * 10

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings, server or file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "DEFAULT_URL", NOBODY)
    for name in list(os.environ):
        if name.startswith("AGENTSTATE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


def run_many(desk: Desk, count: int) -> None:
    for number in range(count):
        desk.run(record_run(desk.store, session=str(number), asks=f"{number}?"))


def files() -> set[str]:
    return {path.name for path in Path().iterdir()}


def test_lines_go_to_stdout_and_what_is_said_of_them_to_stderr(desk: Desk, capfd: Any) -> None:
    run_many(desk, 2)

    assert main(["export", "--url", desk.url]) == 0

    out, err = capfd.readouterr()
    lines = split_lines(out.encode())
    assert len(lines) == 2
    assert all(faults(line, "openai") == () for line in lines)
    assert err.startswith("2 lines: ")
    assert "\r" not in err  # no terminal


def test_a_file_gets_its_name_when_it_is_whole(desk: Desk, capsys: Capture) -> None:
    run_many(desk, 3)

    assert main(["export", "--format", "trl", "--out", "x.jsonl", "--url", desk.url]) == 0

    lines = split_lines(Path("x.jsonl").read_bytes())
    assert len(lines) == 3
    assert all(faults(line, "trl") == () for line in lines)
    assert files() == {"x.jsonl"}
    assert capsys.readouterr().err.startswith("3 lines in x.jsonl: ")


def test_an_export_that_breaks_off_leaves_what_was_there(
    desk: Desk, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = api.lines

    async def cut(*arguments: Any) -> Any:
        async for line in whole(*arguments):
            yield line
            raise StoreError("the disk")

    run_many(desk, 2)
    Path("x.jsonl").write_text("before")
    monkeypatch.setattr(api, "lines", cut)

    assert main(["export", "--out", "x.jsonl", "--url", desk.url]) == 1

    assert files() == {"x.jsonl"}
    assert Path("x.jsonl").read_text() == "before"
    assert "broke off" in capsys.readouterr().err


def test_an_answer_without_its_end_is_no_export(
    desk: Desk, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_many(desk, 2)
    monkeypatch.setattr(api, "_told", lambda value: b"")

    assert main(["export", "--out", "x.jsonl", "--url", desk.url]) == 1

    assert files() == set()
    assert "before its end" in capsys.readouterr().err


def test_a_split_writes_two_files_under_the_names_that_data_sets_have(
    desk: Desk, capsys: Capture
) -> None:
    run_many(desk, 30)
    command = ["export", "--split", "0.3", "--seed", "7", "--manifest", "--url", desk.url]

    assert main([*command, "--out", "data.jsonl"]) == 0

    assert files() == {"data.train.jsonl", "data.validation.jsonl", "data.manifest.json"}
    manifest = json.loads(Path("data.manifest.json").read_text())
    total = 0
    for part, facts in manifest["files"].items():
        data = Path(f"data.{part}.jsonl").read_bytes()
        assert facts["sha256"] == hashlib.sha256(data).hexdigest()
        assert facts["lines"] == len(split_lines(data)) > 0
        total += facts["lines"]
    assert total == 30
    assert manifest["split"] == {"validation": 0.3, "seed": 7}
    said = capsys.readouterr().err
    assert "in data.train.jsonl: " in said
    assert "in data.validation.jsonl: " in said


def test_one_session_and_filters_are_asked_for(desk: Desk, capfd: Any) -> None:
    run_many(desk, 3)

    assert main(["export", "--session", "1", "--url", desk.url]) == 0
    assert json.loads(capfd.readouterr().out)["messages"][1]["content"] == "1?"
    assert main(["export", "--tool", "send_*", "--url", desk.url]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "No line."
    assert "Nothing that was asked for is on record." in err


def test_what_was_mended_left_out_and_taken_out_is_said(desk: Desk, capfd: Any) -> None:
    desk.run(record(desk.store, [say("go " + KEY)], say("fine", "assistant"), session="a"))
    odd = call("call_9", '{"city":')
    desk.run(record(desk.store, [say("b")], odd, session="b", tools=[TOOL]))
    desk.run(record(desk.store, [say("c")], call("call_1"), session="c"))

    assert main(["export", "--url", desk.url]) == 0

    said = capfd.readouterr().err.splitlines()
    assert "1 line could not be saved: arguments_json 1" in said
    assert "1 line mended: tool_added 1" in said
    assert "secrets taken out: openai_key 1" in said


def test_a_report_names_each_finding_and_has_no_data(desk: Desk, capsys: Capture) -> None:
    odd = call("call_9", '{"city":')
    desk.run(record(desk.store, [say("private")], odd, session="b", tools=[TOOL]))
    desk.run(record(desk.store, [say("private")], call("call_1"), session="c"))

    assert main(["export", "--report", "--url", desk.url]) == 0

    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["LINE", "SESSION", "INDEX", "FOUND", "SO", "WHERE"]
    assert rows[1][:5] == ["-", "b", "0", "arguments_json", "left"]
    assert rows[2] == ["1", "c", "0", "tool_added", "mended", "tools"]
    assert "1 line of 2 sessions" in out
    assert "private" not in out
    assert main(["export", "--report", "--json", "--url", desk.url]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["left_out"] == 1


@pytest.mark.parametrize("flags", [["--split", "0.1"], ["--manifest"]])
def test_files_beside_each_other_need_a_name(desk: Desk, capsys: Capture, flags: list[str]) -> None:
    assert main(["export", *flags, "--url", desk.url]) == 2
    assert "--out FILE" in capsys.readouterr().err


def test_what_the_server_refuses_leaves_no_file(desk: Desk, capsys: Capture) -> None:
    command = ["export", "--out", "x.jsonl", "--url", desk.url]

    assert main([*command, "--session", "none"]) == 1
    assert "There is no session 'none'." in capsys.readouterr().err
    assert main([*command, "--since", "yesterday"]) == 1
    assert "since must be a date" in capsys.readouterr().err
    assert main(["export", "--out", "no/such/folder/x.jsonl", "--url", desk.url]) == 2
    assert files() == set()


# -- where no server runs


def leave_file(count: int = 2) -> None:
    async def write() -> None:
        store = SqliteStore(FILE)
        await store.open()
        try:
            for number in range(count):
                await record_run(store, session=str(number), asks=f"{number}?")
        finally:
            await store.close()

    asyncio.run(write())


def test_the_file_is_read_where_no_server_answers(capfd: Any) -> None:
    leave_file()

    assert main(["export", "--out", "x.jsonl"]) == 0
    assert len(split_lines(Path("x.jsonl").read_bytes())) == 2
    assert main(["export", "--report"]) == 0
    assert "2 lines of 2 sessions" in capfd.readouterr().out
    assert main(["export", "--session", "none", "--out", "y.jsonl"]) == 1
    assert "There is no session 'none'." in capfd.readouterr().err
    assert "y.jsonl" not in files()


def test_a_file_that_cannot_be_read_on_is_no_export(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(*arguments: Any) -> Any:
        raise StoreError("the disk")
        yield

    leave_file()
    monkeypatch.setattr(api, "lines", cut)

    assert main(["export", "--out", "x.jsonl"]) == 1
    assert "could not be read to its end" in capsys.readouterr().err
    assert "x.jsonl" not in files()


def test_server_and_file_give_the_same_bytes(desk: Desk) -> None:
    leave_file()
    run_many(desk, 2)

    assert main(["export", "--out", "file.jsonl"]) == 0
    assert main(["export", "--out", "server.jsonl", "--url", desk.url]) == 0

    assert Path("file.jsonl").read_bytes() == Path("server.jsonl").read_bytes() != b""


# -- what is seen of it


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_moves_one_line_of_a_terminal_and_takes_it_away() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    progress.lines = 1234

    progress.show(5, 10)
    progress.show(12, 10)  # what is recorded meanwhile comes on top
    progress.end()

    first, second, blank, end = terminal.getvalue().split("\r")[1:]
    assert first.startswith("[############............]  50%  1,234 lines")
    assert second.startswith("[########################] 100%")
    assert blank.strip() == ""
    assert end == ""


def test_nothing_moves_where_there_is_no_terminal() -> None:
    pipe = io.StringIO()
    progress = Progress(pipe)

    progress.show(5, 10)
    progress.end()

    assert pipe.getvalue() == ""


def test_names_beside_a_file() -> None:
    assert beside(Path("a/data.jsonl"), "train") == Path("a/data.train.jsonl")
    assert beside(Path("data"), "train") == Path("data.train")
    assert beside(Path("data.jsonl"), "manifest", ".json") == Path("data.manifest.json")
