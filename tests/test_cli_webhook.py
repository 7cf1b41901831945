"""`agentstate webhook test`: samples go out, the answers are printed, URLs are not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentstate.__main__ import main
from agentstate.ground.events import EVENT_KINDS
from tests.helpers.services import TOKEN, Service
from tests.helpers.upstream import Reply


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has an empty folder and none of the developer's settings."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("AGENTSTATE_", "OPENAI_", "WEBHOOK_")):
            monkeypatch.delenv(name)


def test_the_environments_webhook_is_sent_every_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Service("json") as service:
        monkeypatch.setenv("WEBHOOK_URL", service.hook_url)

        assert main(["webhook", "test"]) == 0

        types = [each.json()["type"] for each in service.received]
    printed = capsys.readouterr()
    assert types == list(EVENT_KINDS)
    assert len(printed.out.splitlines()) == 1 + len(EVENT_KINDS)
    assert "127.0.0.1" in printed.out
    assert TOKEN not in printed.out + printed.err


def test_one_kind_to_one_webhook_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Service("slack", [Reply(404, (), (b"no_service",))]) as one, Service("discord") as two:
        (tmp_path / "agentstate.toml").write_text(
            f'[[webhook]]\nname = "ops"\nformat = "slack"\nurl = "{one.hook_url}"\n'
            f'[[webhook]]\nformat = "discord"\nurl = "{two.hook_url}"\n'
        )
        assert main(["webhook", "test", "ops", "--kind", "session.failed", "--json"]) == 1
        assert (len(one.received), two.received) == (1, [])
        assert main(["webhook", "test", "webhook-2", "--kind", "session.failed"]) == 0
        assert len(two.received) == 1
    printed = capsys.readouterr().out
    [row] = json.loads(printed[: printed.index("]\n") + 1])
    assert "no_service" in row.pop("why")
    assert row == {
        "name": "ops",
        "format": "slack",
        "host": "127.0.0.1",
        "kind": "session.failed",
        "is_taken": False,
        "status": 404,
    }
    assert TOKEN not in printed


def test_a_service_that_limits_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = Reply(429, ((b"retry-after", b"0"),))
    with Service("json", [limited]) as service:
        monkeypatch.setenv("WEBHOOK_URL", service.hook_url)

        assert main(["webhook", "test", "--kind", "approval.required"]) == 0

        assert len(service.received) == 2
    assert "taken" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), "No webhook is configured. Set WEBHOOK_URL to the address"),
        (("opps",), "There is no webhook 'opps'. Did you mean \"ops\"?"),
    ],
)
def test_what_is_not_configured_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], expected: str
) -> None:
    if argv:
        (tmp_path / "agentstate.toml").write_text(
            f'[[webhook]]\nname = "ops"\nurl = "http://127.0.0.1:9/{TOKEN}"\n'
        )
    assert main(["webhook", "test", *argv]) == 2
    assert expected in capsys.readouterr().err
