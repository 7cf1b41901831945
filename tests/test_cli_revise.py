"""`agentstate sessions edit | rerun`: with a running server, and with the file alone."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.ground.canonical import encode
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from tests.dialects.test_texts import ANSWERS
from tests.helpers.desk import Desk
from tests.store.contract import answer_of, checkpoint_of, claim_of

NOBODY = "http://127.0.0.1:9"


async def record(store: Store) -> None:
    claimed = await store.claim_step(claim_of("a"))
    answer = answer_of(encode(ANSWERS["openai_chat"]))
    await store.record_answer(checkpoint_of(claimed.step_id, answer=answer, text="old"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings, server, keys or name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "DEFAULT_URL", NOBODY)
    monkeypatch.setenv("LOGNAME", "ada")
    for name in list(os.environ):
        if name.startswith("AGENTSTATE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        desk.run(record(desk.store))
        yield desk


def test_an_edit_says_what_stands_and_how_to_undo_it(
    desk: Desk, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["sessions", "edit", "s", "0", "--text", "new", "--url", desk.url]) == 0
    assert capsys.readouterr().out == (
        "s: step 0 edited, answer 2 stands; no later step goes on from it\n"
        "it says: new\n"
        "to undo it: agentstate sessions restore s 1\n"
    )
    (tmp_path / "words.txt").write_text("from a file")
    asked = ["sessions", "edit", "s", "0", "--file", "words.txt", "--answer", "2", "--json"]
    assert main([*asked, "--url", desk.url]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "from a file"
    assert main([*asked, "--url", desk.url]) == 1
    assert "answers with 3 by now, not with 2" in capsys.readouterr().err
    assert main(["sessions", "edit", "s", "0", "--arguments", '{"a": 1}', "--url", desk.url]) == 0
    (tmp_path / "answer.json").write_text("{")
    for name in ("answer.json", "no.json"):
        assert main(["sessions", "edit", "s", "0", "--body", name, "--url", desk.url]) != 0
    capsys.readouterr()

    assert main(["sessions", "show", "s", "--url", desk.url]) == 0
    shown = capsys.readouterr().out
    assert "recorded: old" in shown
    assert "stands     edited by ada: from a file" in shown
    assert main(["sessions", "restore", "s", "1", "--url", desk.url]) == 0
    assert "answer 1 of step 0 stands again" in capsys.readouterr().out


def test_a_rerun_says_what_it_cost(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "rerun", "s", "0", "--model", "mock/m", "--url", desk.url]) == 0
    assert "asked again ($0.000000), answer 2 stands" in capsys.readouterr().out


def test_where_no_server_runs_the_file_is_edited_and_nobody_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fill() -> None:
        store = SqliteStore("agentstate.db")
        await store.open()
        await record(store)
        await store.close()

    asyncio.run(fill())
    assert main(["sessions", "edit", "s", "0", "--text", "new"]) == 0
    assert "answer 2 stands" in capsys.readouterr().out
    assert main(["sessions", "rerun", "s", "0"]) == 1
    assert "needs a running server" in capsys.readouterr().err
