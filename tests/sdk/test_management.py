"""How the client side asks a server: what is tried again, what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.sdk import management
from agentstate.sdk.management import Management, ProxyRefused, ServerUnreachable
from tests.helpers.upstream import Received, Reply, Upstream, json_reply


class Server(Upstream):
    """Answers as a test says, the last answer for ever."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__()
        self.replies = list(replies)
        self.asked = 0

    def reply_to(self, request: Received) -> Reply:
        assert request.json() == {"a": "\ud83d"}
        self.asked += 1
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def ask(server: Server) -> Any:
    return Management(server.url).post("/api/x", {"a": "\ud83d"})


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "FIRST_PAUSE_S", 0.0)


def said(status: int, hint: str | None = None) -> Reply:
    error = {"code": "conflict", "message": "It is so.", "hint": hint}
    return json_reply({"error": error}, status=status)


def test_a_server_that_cannot_is_asked_again() -> None:
    with Server(said(503), said(503), json_reply({"ok": 1})) as server:
        assert ask(server) == {"ok": 1}
        assert server.asked == 3


def test_a_server_that_never_can_is_given_up() -> None:
    with Server(said(503)) as server:
        with pytest.raises(ServerUnreachable, match="could not: It is so"):
            ask(server)
        assert server.asked == management.PATIENT_TRIES


def test_no_is_taken_for_an_answer() -> None:
    with Server(said(409, "Do that.")) as server:
        with pytest.raises(ProxyRefused, match=r"It is so\. Do that\.") as raised:
            ask(server)
        assert (raised.value.status, raised.value.code, server.asked) == (409, "conflict", 1)


def test_what_is_no_server_of_ours_is_said_to_be_none() -> None:
    page = Reply(chunks=(b"<html>",))
    with Server(page) as server, pytest.raises(ServerUnreachable, match="no AgentState server"):
        ask(server)
