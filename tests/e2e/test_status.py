"""The status of a session is true without anyone setting it: for every form, also over restarts."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.people import approve, decide, list_pending, wait_for_pending
from tests.helpers.proxy import POLL_S, WAIT_TIMEOUT_S, Proxy
from tests.helpers.services import Service

pytestmark = pytest.mark.slow

ENV = {
    "AGENTSTATE_SWEEP_STALLED_AFTER_S": "0.5",
    "AGENTSTATE_SWEEP_COMPLETED_AFTER_S": "0.5",
    "AGENTSTATE_GATE_TOOLS": "guarded",
    "AGENTSTATE_GATE_HEARTBEAT_S": "0.2",
    "AGENTSTATE_FORWARD_RETRIES": "0",
}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
FORMS = ("chat", "responses", "messages", "gemini")


def body_of(form: str, text: str, tool: str, streams: bool) -> tuple[str, dict[str, Any]]:
    """Return path and body of a call in one of the forms, with a tool."""
    said = [{"role": "user", "content": text}]
    function = {"name": tool, "description": "a tool", "parameters": SCHEMA}
    match form:
        case "responses":
            path, body = "/v1/responses", {"input": text}
            body["tools"] = [{"type": "function", **function}]  # type: ignore[assignment]
        case "messages":
            path, body = "/v1/messages", {"messages": said, "max_tokens": 100}  # type: ignore[dict-item]
            named = {"name": tool, "description": "a tool", "input_schema": SCHEMA}
            body["tools"] = [named]  # type: ignore[assignment]
        case "gemini":
            verb = "streamGenerateContent?alt=sse" if streams else "generateContent"
            tools = [{"functionDeclarations": [function]}]
            contents = [{"role": "user", "parts": [{"text": text}]}]
            return f"/v1beta/models/mock/m:{verb}", {"contents": contents, "tools": tools}
        case _:
            path, body = "/v1/chat/completions", {"messages": said}  # type: ignore[dict-item]
            body["tools"] = [{"type": "function", "function": function}]  # type: ignore[assignment]
    return path, {"model": "mock/m", "stream": streams, **body}


def call(
    proxy: Proxy, form: str, text: str, *, tool: str = "look", streams: bool = False,
    session: str = "s", headers: dict[str, str] | None = None, waits: bool = True,
) -> tuple[int, bytes]:  # fmt: skip
    """Make a call; without `waits` leave once it is sent, as an agent that is killed."""
    path, body = body_of(form, text, tool, streams)
    connection = http.client.HTTPConnection(*proxy.address, timeout=WAIT_TIMEOUT_S)
    sent = {"x-agent-session-id": session, "content-type": "application/json", **(headers or {})}
    sent |= {"authorization": "Bearer mock-key", "x-api-key": "mock-key"}
    try:
        connection.request("POST", path, json.dumps(body), sent)
        if not waits:
            wait_for_pending(proxy, session=session)
            return 0, b""
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def session_of(proxy: Proxy, session: str = "s") -> dict[str, Any]:
    found = proxy.maybe_session(session)
    assert found is not None
    row: dict[str, Any] = found["session"]
    return row


def wait_for_status(proxy: Proxy, status: str, session: str = "s") -> dict[str, Any]:
    """Wait until a session has a status; return it."""
    until_s = time.monotonic() + WAIT_TIMEOUT_S
    while (row := session_of(proxy, session))["status"] != status:
        assert time.monotonic() < until_s, row
        time.sleep(POLL_S)
    return row


@contextmanager
def running(tmp_path: Path, **env: str) -> Iterator[Proxy]:
    """Run a proxy whose models are the mock's, and who is told of everything."""
    with Service("json") as service:
        (tmp_path / "agentstate.toml").write_text(
            f'[[webhook]]\nurl = "{service.hook_url}"\nevents = ["session.stalled", '
            '"session.completed", "session.failed"]\n',
            encoding="utf-8",
        )
        with Proxy(
            upstream_url="http://127.0.0.1:9", db=tmp_path / "r.db", env=ENV | env,
            flags=("--mock",),
        ) as proxy:  # fmt: skip
            yield proxy


def told(proxy: Proxy, count: int) -> list[dict[str, Any]]:
    """Wait until so many events are to be told, and return them in order. On record, not with who
    is told: what a kill finds on its way goes out again a minute later."""
    until_s = time.monotonic() + WAIT_TIMEOUT_S
    while True:
        status, body = proxy.get("/api/webhooks/deliveries")
        assert status == 200, body
        found: list[dict[str, Any]] = json.loads(body)[::-1]
        if len(found) >= count:
            return found
        assert time.monotonic() < until_s, found
        time.sleep(POLL_S)


def kinds(proxy: Proxy, count: int) -> list[str]:
    return [row["kind"] for row in told(proxy, count)]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_ends_stalls_waits_and_fails_by_itself(
    tmp_path: Path, form: str, streams: bool
) -> None:
    with running(tmp_path) as proxy:
        # A final answer, and nothing comes: it is done.
        status, answer = call(proxy, form, "Say hello.", streams=streams)
        assert status == 200, answer
        assert session_of(proxy)["status"] == "RUNNING"
        proxy.restart()
        row = wait_for_status(proxy, "COMPLETED")
        assert row["status_reason"].startswith("nothing came for")
        assert row["status_ms"] >= row["updated_ms"]

        # Its next call, which asks for a tool whose result never comes: the agent was killed.
        status, answer = call(proxy, form, "Call look now.", streams=streams)
        assert status == 200, answer
        assert b"look" in answer
        assert session_of(proxy)["status"] == "RUNNING"
        proxy.restart()
        assert kinds(proxy, 2) == ["session.completed", "session.stalled"]
        assert session_of(proxy)["status"] == "RUNNING"

        # A guarded tool: it waits for a person, with nobody connected, and fails by a rejection.
        ask = "Call guarded now."
        call(proxy, form, ask, tool="guarded", streams=streams, waits=False)
        assert session_of(proxy)["status"] == "WAITING"
        proxy.restart()
        assert session_of(proxy)["status"] == "WAITING"
        [question] = list_pending(proxy)
        decide(proxy, question["approval_id"], "REJECTED", reason="no", by="ann", then="stop")
        proxy.restart()
        row = session_of(proxy)
        assert (row["status"], row["status_by"]) == ("FAILED", "ann")
        assert row["status_reason"] == "guarded was rejected: no"
        status, _ = call(proxy, form, ask, tool="guarded", streams=streams)
        assert status in (200, 403)  # a stream that has begun ends with the error
        assert session_of(proxy)["status"] == "FAILED"

        # And it goes on.
        status, _ = call(proxy, form, "Say goodbye.", streams=streams)
        assert (status, session_of(proxy)["status_ms"]) == (200, None)
        wait_for_status(proxy, "COMPLETED")
        assert kinds(proxy, 4) == [
            "session.completed",
            "session.stalled",
            "session.failed",
            "session.completed",
        ]


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_a_stated_status_stands_until_a_call_that_replays(tmp_path: Path, status: str) -> None:
    with running(tmp_path, AGENTSTATE_SWEEP_COMPLETED_AFTER_S="1") as proxy:
        assert call(proxy, "chat", "Say hello.")[0] == 200
        connection = http.client.HTTPConnection(*proxy.address, timeout=WAIT_TIMEOUT_S)
        said = json.dumps({"status": status, "reason": "I say so"})
        headers = {"content-type": "application/json"}
        connection.request("PATCH", "/api/sessions/s", said, headers)
        assert connection.getresponse().status == 200
        connection.close()
        time.sleep(1.5)  # longer than a silence may last
        assert session_of(proxy)["status_reason"] == "I say so"
        assert call(proxy, "chat", "Say hello.")[0] == 200
        row = session_of(proxy)
        assert (row["status"], row["status_reason"], row["replays"]) == ("RUNNING", None, 1)
        row = wait_for_status(proxy, "COMPLETED")
        assert row["status_reason"].startswith("nothing came for")


def test_a_run_that_is_made_again_fails_where_it_was_refused(tmp_path: Path) -> None:
    with running(tmp_path) as proxy:
        assert call(proxy, "chat", "Say hello.")[0] == 200
        call(proxy, "chat", "Call guarded now.", tool="guarded", waits=False)
        [question] = list_pending(proxy)
        decide(proxy, question["approval_id"], "REJECTED", reason="no", by="ann", then="stop")
        first = session_of(proxy)
        assert first["status"] == "FAILED"

        assert call(proxy, "chat", "Say hello.")[0] == 200
        assert session_of(proxy)["status"] == "RUNNING"
        assert call(proxy, "chat", "Call guarded now.", tool="guarded")[0] == 403
        again = session_of(proxy)
        for key in ("status", "status_reason", "status_by", "status_ms"):
            assert again[key] == first[key], key
        assert kinds(proxy, 1) == ["session.failed"]


def test_a_run_that_is_made_again_fails_where_its_budget_ended(tmp_path: Path) -> None:
    headers = {"x-agent-budget": "steps=1,action=refuse"}
    with running(tmp_path) as proxy:
        for _ in range(2):
            assert call(proxy, "chat", "Say a.", headers=headers)[0] == 200
            assert session_of(proxy)["status"] == "RUNNING"
            assert call(proxy, "chat", "Say b.", headers=headers)[0] == 429
            row = session_of(proxy)
            assert row["status"] == "FAILED"
            assert "steps" in row["status_reason"]
        assert kinds(proxy, 1) == ["session.failed"]


@pytest.mark.parametrize("form", ["chat", "messages"])
def test_an_approval_that_expires_leaves_a_session_that_stalls(tmp_path: Path, form: str) -> None:
    with running(tmp_path, AGENTSTATE_GATE_TIMEOUT_S="0.5") as proxy:
        status, _ = call(proxy, form, "Call guarded now.", tool="guarded")
        assert status == 408
        assert session_of(proxy)["status"] == "RUNNING"
        proxy.restart()
        assert kinds(proxy, 1) == ["session.stalled"]
        assert session_of(proxy)["status"] == "RUNNING"


def test_a_request_that_was_not_let_upstream_stalls_or_stays_failed(tmp_path: Path) -> None:
    headers = {"x-agent-require-approval": "true", "x-agent-hold-timeout": "0.3"}
    with running(tmp_path) as proxy:
        assert call(proxy, "chat", "Say a.", headers=headers)[0] == 408
        assert kinds(proxy, 1) == ["session.stalled"]

        [question] = list_pending(proxy)
        decide(proxy, question["approval_id"], "REJECTED", by="ann")
        for _ in range(2):
            assert call(proxy, "chat", "Say a.", headers=headers)[0] == 403
            assert session_of(proxy)["status"] == "FAILED"
            proxy.restart()


def test_a_proxy_that_is_killed_in_mid_call_leaves_a_session_that_stalls(tmp_path: Path) -> None:
    with running(tmp_path) as proxy:
        proxy.restart(crash_at="sent")
        with pytest.raises((http.client.HTTPException, OSError)):
            call(proxy, "chat", "Say hello.")
        proxy.wait_for_crash()
        proxy.start()
        assert kinds(proxy, 1) == ["session.stalled"]
        assert call(proxy, "chat", "Say hello.")[0] == 200
        wait_for_status(proxy, "COMPLETED")


def test_a_call_that_no_model_answers_fails_its_session(tmp_path: Path) -> None:
    with running(tmp_path) as proxy:
        connection = http.client.HTTPConnection(*proxy.address, timeout=WAIT_TIMEOUT_S)
        body = {"model": "mock/500", "messages": [{"role": "user", "content": "x"}]}
        sent = {"x-agent-session-id": "s", "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), sent)
        assert connection.getresponse().status >= 500
        connection.close()
        proxy.restart()
        row = session_of(proxy)
        assert row["status"] == "FAILED"
        assert row["status_reason"]
        assert kinds(proxy, 1) == ["session.failed"]


def test_a_question_about_a_budget_is_waited_for(tmp_path: Path) -> None:
    headers = {"x-agent-budget": "steps=1"}
    with running(tmp_path) as proxy:
        assert call(proxy, "chat", "Say a.", headers=headers)[0] == 200
        call(proxy, "chat", "Say b.", headers=headers, waits=False)
        proxy.restart()
        time.sleep(1.0)  # longer than a silence may last
        assert session_of(proxy)["status"] == "WAITING"
        approve(proxy)
        assert call(proxy, "chat", "Say b.", headers=headers)[0] == 200
        wait_for_status(proxy, "COMPLETED")
        assert kinds(proxy, 1) == ["session.completed"]
