"""The agent of the full demo, beside the model alone: what it asks, does and tells."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentstate.house.demo_full_agent import MAIL, main
from agentstate.house.demo_peers import Model, Said, serving
from agentstate.house.launch import module_command

BASE = {"session": "s", "run": "r", "model": "gpt-4o"}


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("streams", [False, True])
def test_it_asks_uses_its_tools_and_tells_each(
    streams: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Model()
    lanes = [["Use read_clock.", f"Use send_email {json.dumps(MAIL)}"]]
    with serving(model.reply) as url:
        order = {**BASE, "url": url, "lanes": lanes, "streams": streams, "clock": "noon"}
        assert main(order) == 0

    lines = told(capsys)
    assert [line.get("used") for line in lines] == [
        None, "read_clock", None, None, "send_email", None,
    ]  # fmt: skip
    assert (lines[1]["result"], lines[4]["arguments"]) == ("It is noon.", MAIL)
    assert len({line["id"] for line in lines if "id" in line}) == model.count == 4
    assert json.loads(model.asked[1].body)["messages"][-1]["content"] == "It is noon."


def test_lanes_are_asked_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    with serving(model.reply) as url:
        assert main({**BASE, "url": url, "lanes": [["One?"], ["Two?"]]}) == 0

    assert len(told(capsys)) == model.count == 2


def test_a_refusal_is_told_and_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    model.fail("gpt-4o")
    with serving(model.reply) as url:
        assert main({**BASE, "url": url, "lanes": [["One?", "Two?"]]}) == 0

    assert told(capsys) == [{"refused": None, "message": "overloaded"}]
    assert model.count == 1


def test_a_hold_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    def held(path: str, raw: bytes, _: object) -> Said:
        said = Model().reply(path, raw, lambda name: "")
        return Said(said.status, said.kind, (b": held\n\n", b": held\n\n", *said.pieces))

    with serving(held) as url:
        assert main({**BASE, "url": url, "lanes": [["One?"]], "streams": True}) == 0

    assert [next(iter(line)) for line in told(capsys)] == ["held", "answer"]


def test_it_dies_in_the_tool_that_its_order_names(tmp_path: Path) -> None:
    with serving(Model().reply) as url:
        order = {**BASE, "url": url, "lanes": [["Use read_clock."]], "dies": "read_clock"}
        command = module_command("agentstate.house.demo_full_agent", json.dumps(order))
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=tmp_path)

    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.splitlines()) == 1
