"""`agentstate sessions calls` and `recovery`: with a running server, and with the file alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.ground.approvals import Decision
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from tests.helpers.calling import CHAT, MESSAGES, Call
from tests.helpers.desk import Desk
from tests.helpers.recording import START_MS, record
from tests.store.contract import claim_of
from tests.store.contract_gate import question_of

NOBODY = "http://127.0.0.1:9"
FILE = "agentstate.db"
SEND: Call = ("call_1", "send", {"n": 12345678901234567890})
READ: Call = ("call_2", "read", {"path": "\u202eevil\x1b[2J"})


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings or server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "DEFAULT_URL", NOBODY)
    for name in list(os.environ):
        if name.startswith("AGENTSTATE_"):
            monkeypatch.delenv(name)


async def fill(store: Store) -> None:
    first = [MESSAGES.asks("go")]
    answer = MESSAGES.answer([SEND, READ])
    step = await record(store, MESSAGES.body(first), answer, dialect=MESSAGES.dialect)
    (one,) = await store.open_approvals(
        step.step_id, step.answer_id, (question_of(tool="send"),), at_ms=START_MS
    )
    await store.decide(one.approval_id, Decision(True, by="ann"), at_ms=START_MS)
    told = MESSAGES.results([("call_1", "send", "no\nsuch person"), ("call_2", "read", "text")])
    told[0]["content"][0]["is_error"] = True
    messages = [*first, *MESSAGES.said([SEND, READ]), *told]
    await record(store, MESSAGES.body(messages), MESSAGES.ends, dialect=MESSAGES.dialect)
    await record(store, CHAT.body([CHAT.asks("x")]), CHAT.answer([READ]), cost_microusd=None)
    await store.claim_step(claim_of("last", step_number=7))


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        desk.run(fill(desk.store))
        yield desk


@pytest.fixture
def file(tmp_path: Path) -> None:
    async def write() -> None:
        store = SqliteStore(tmp_path / FILE)
        await store.open()
        await fill(store)
        await store.close()

    asyncio.run(write())


def test_calls_are_a_table(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "calls", "s", "--url", desk.url]) == 0
    shown = capsys.readouterr().out
    path = '{"path":"\\u202eevil\\u001b[2J"}'
    assert [re.split(" {2,}", line) for line in shown.splitlines()] == [
        ["STEP", "TOOL", "ARGUMENTS", "DECISION", "RESULT"],
        ["0", "send", '{"n":12345678901234567890}', "approved by ann", r"error: no\nsuch person"],
        ["0", "read", path, "-", "text"],
        ["2", "read", path.replace(":", ": "), "-", "-"],
    ]
    assert "\x1b" not in shown


def test_calls_are_filtered(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "calls", "s", "--tool", "re*", "--unanswered", "--url", desk.url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["sessions", "calls", "s", "--tool", "none", "--url", desk.url]) == 0
    assert capsys.readouterr().out == "No such call of s is on record.\n"


def test_json_keeps_every_digit(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "calls", "s", "--json", "--url", desk.url]) == 0
    shown = capsys.readouterr().out
    assert '"arguments_json":{"n":12345678901234567890}' in shown
    assert [row["index"] for row in json.loads(shown)] == [0, 0, 2]


@pytest.mark.parametrize("verb", ["recovery", "recover"])
def test_recovery_says_what_replays_and_what_to_do(
    desk: Desk, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert main(["sessions", verb, "s", "--url", desk.url]) == 0
    shown = capsys.readouterr().out
    head, advice = shown.split("\n\n")
    lines = [line.split(maxsplit=2) for line in head.splitlines()]
    assert lines[0] == ["s:", "RUNNING"]
    facts = {line[2:14].strip(): line[16:] for line in head.splitlines()[1:]}
    assert facts["last answer"].startswith("step 2, ")
    assert facts["last answer"].endswith("m, tool_calls")
    assert facts["replays"] == "3 of 4 steps"
    assert facts["asked again"] == "7 (in flight)"
    assert facts["saved"].startswith("at least $0.000010 (")
    assert facts["no result"] == "read (step 2)"
    assert advice.splitlines()[-1].startswith(
        "Run the agent again with the session id s: 3 steps replay, 1 is asked again."
    )


def test_where_no_server_runs_the_file_is_read(
    file: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sessions", "calls", "s"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["sessions", "recovery", "s"]) == 0
    # Opening it has ended what was in flight.
    assert "7 (interrupted)" in capsys.readouterr().out
    assert main(["sessions", "recovery", "s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["replay"]["answered"] == 3
    assert main(["sessions", "recovery", "nobody"]) == 1
    assert "There is no session 'nobody'" in capsys.readouterr().err
