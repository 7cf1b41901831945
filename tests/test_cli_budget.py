"""`agentstate sessions budget`: with a running server, and with the file alone."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.ground.budget import Caps
from agentstate.store.sqlite import SqliteStore
from tests.helpers.desk import Desk
from tests.store.contract_control import run_of

NOBODY = "http://127.0.0.1:9"
Out = pytest.CaptureFixture[str]


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


def budget(desk: Desk, *arguments: str) -> int:
    return main(["sessions", "budget", "s", *arguments, "--url", desk.url])


def test_without_caps_it_says_what_was_paid(desk: Desk, capsys: Out) -> None:
    assert budget(desk) == 0
    assert capsys.readouterr().out == (
        "s: RUNNING\n  no caps; paid so far: 5 steps, 70 tokens, $0.000125\n"
    )


def test_caps_are_set_shown_and_taken_away(desk: Desk, capsys: Out) -> None:
    assert budget(desk, "--steps", "7", "--cost-usd", "01.50", "--action", "refuse") == 0
    assert capsys.readouterr().out == (
        "s: RUNNING\n"
        "  paid so far: 5 steps, 70 tokens, $0.000125\n"
        "  steps     7 set for this session; 2 left\n"
        "  cost_usd  $1.50 set for this session; $1.499875 left\n"
        "  at a cap  calls get 429 budget_reached\n"
    )
    found = desk.run(desk.store.read_budget("s"))
    assert found.set == Caps(steps=7, cost_microusd=1_500_000, action="refuse")
    assert found.set_by == "ada"

    assert budget(desk, "--steps", "none", "--tokens", "10", "--by", "bob") == 0
    out = capsys.readouterr().out
    assert "  tokens    10 set for this session; reached\n" in out
    assert "steps     7" not in out
    assert desk.run(desk.store.read_budget("s")).set_by == "bob"

    assert budget(desk, "--clear", "--repeats", "3", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown["budget"]["caps"]) == ["repeats"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--steps", "many"), "--steps must be an integer from 0, or none; found 'many'."),
        (("--cost-usd", "1e3"), "--cost-usd must be dollars from 0"),
        (("--repeats", "0"), "--repeats must be an integer from 1"),
    ],
)
def test_nonsense_is_refused_before_anything_is_sent(
    desk: Desk, capsys: Out, arguments: tuple[str, ...], said: str
) -> None:
    assert budget(desk, *arguments) != 0
    assert said in capsys.readouterr().err
    assert desk.run(desk.store.read_budget("s")).set == Caps()


def test_a_session_that_is_not_there_is_said(desk: Desk, capsys: Out) -> None:
    assert main(["sessions", "budget", "no", "--url", desk.url]) == 1
    assert "There is no session 'no'" in capsys.readouterr().err


def test_without_a_server_the_file_is_changed(tmp_path: Path, capsys: Out) -> None:
    async def make() -> None:
        store = SqliteStore(tmp_path / "agentstate.db")
        await store.open()
        await run_of(store, 2)
        await store.close()

    asyncio.run(make())
    (tmp_path / "agentstate.toml").write_text("[budget]\nsteps = 2\n", encoding="utf-8")
    assert main(["sessions", "budget", "s", "--tokens", "9"]) == 0
    out = capsys.readouterr().out
    assert "  steps     2 set in the configuration; reached\n" in out
    assert "  tokens    9 set for this session; reached\n" in out
    assert "  at a cap  a person is asked\n" in out


def test_a_session_is_shown_with_its_budget_and_why_it_stands_so(desk: Desk, capsys: Out) -> None:
    assert budget(desk, "--steps", "5") == 0
    complete = ["sessions", "complete", "s", "--reason", "all is paid", "--url", desk.url]
    assert main(complete) == 0
    capsys.readouterr()
    assert main(["sessions", "show", "s", "--url", desk.url]) == 0
    out = capsys.readouterr().out
    assert " by ada: all is paid\n" in out
    assert "COMPLETED since " in out
    assert "budget\n  paid so far: 5 steps" in out
