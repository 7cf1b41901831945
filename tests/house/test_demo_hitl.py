"""The hitl demo: what a person decides is what the agent gets, and the demo would notice if not."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.house import demo_hitl
from agentstate.house.demo_hitl import Told, hitl, judge
from agentstate.house.demo_hitl_agent import MAIL

APPROVED = {
    "status": "APPROVED", "then": None, "arguments": json.dumps(MAIL), "edited_arguments": None,
    "decided_ms": 100,
}  # fmt: skip
EDITED = {**APPROVED, "edited_arguments": '{"to":"bob"}'}
STOPPED = {**APPROVED, "status": "REJECTED", "then": "stop"}
TOLD = {**STOPPED, "then": "continue"}
SENT = {"sent": MAIL, "at_ms": 100}
REFUSED = {"refused": "human_rejection", "message": "no"}
SAID = {"said": "well"}


@pytest.mark.parametrize(
    ("lines", "approval", "attempts"),
    [
        ([SENT, SAID], APPROVED, 1),
        ([{**SENT, "sent": {"to": "bob"}}, SAID], EDITED, 1),
        ([REFUSED], STOPPED, 1),
        ([SAID], TOLD, 2),
    ],
)
def test_what_is_as_promised_has_no_fault(
    lines: list[dict[str, Any]], approval: dict[str, Any], attempts: int
) -> None:
    assert judge(Told(lines), approval, {"attempts": [{}] * attempts}) == []


@pytest.mark.parametrize(
    ("lines", "approval", "attempts", "said"),
    [
        ([SAID], APPROVED, 1, "never got it"),
        ([SENT, SAID], EDITED, 1, "something else than was approved"),
        ([{**SENT, "at_ms": 99}, SAID], APPROVED, 1, "before it was approved"),
        ([SENT, SAID], APPROVED, 2, "asked again"),
        ([SENT, REFUSED], STOPPED, 1, "and the agent got it"),
        ([], STOPPED, 1, "not told"),
        ([SENT, SAID], TOLD, 2, "and the agent got it"),
        ([], TOLD, 2, "what to do instead"),
        ([SAID], TOLD, 3, "asked again"),
        ([SENT, SAID, {"odd": "Traceback\x1b[2J"}], APPROVED, 1, "failed: Traceback\\x1b[2J"),
    ],
)
def test_what_is_not_as_promised_is_a_fault(
    lines: list[dict[str, Any]], approval: dict[str, Any], attempts: int, said: str
) -> None:
    [fault] = judge(Told(lines), approval, {"attempts": [{}] * attempts})

    assert said in fault


def deciding(action: dict[str, Any] | None) -> demo_hitl.Decide:
    """Return a person who decides at once through the API; None = who goes away."""

    def decide(url: str, is_over: Callable[[], bool]) -> None:
        assert not is_over()
        if action is None:
            return
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
        connection.request("GET", "/api/approvals/pending")
        [approval] = json.loads(connection.getresponse().read())
        target = f"/api/approvals/{approval['id']}/action"
        headers = {"content-type": "application/json"}
        connection.request("POST", target, json.dumps(action), headers)
        assert connection.getresponse().status == 200
        connection.close()

    return decide


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "says"),
    [
        ({"action": "APPROVED"}, 'it sent an e-mail: {"to": "ada@example.org"'),
        (
            {"action": "APPROVED", "arguments": {**MAIL, "to": "bob@example.org"}},
            'it sent an e-mail: {"to": "bob@example.org"',
        ),
        ({"action": "REJECTED", "then": "stop"}, "it was refused: human_rejection."),
        ({"action": "REJECTED", "then": "continue", "reason": "later"}, "the model's last word:"),
        (None, "Nobody decided, so the agent never got its call."),
    ],
)
def test_the_demo_keeps_its_word(
    action: dict[str, Any] | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hitl(deciding(action)) == 0

    printed = capsys.readouterr().out
    assert says in printed
    assert "FAILED" not in printed
    assert ("sent an e-mail" in printed) == (action is not None and action["action"] == "APPROVED")


def test_the_verb_has_the_person_at_the_terminal_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def decide(*arguments: object) -> int:
        asked.append(arguments)
        return 0

    def demo(person: demo_hitl.Decide) -> int:
        person("http://x", lambda: True)
        return 3

    monkeypatch.setattr(cli, "_watch", decide)
    monkeypatch.setattr(demo_hitl, "hitl", demo)

    assert main(["demo", "hitl"]) == 3
    assert asked[0][0] == "http://x"
