"""Edits where an upstream keeps the conversation, where a call is guarded, and while calls fly."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_control import WAIT_S, ask, beside, wait_until
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Gate, Received, Reply, Upstream, json_reply

pytestmark = pytest.mark.slow


class Model(Upstream):
    """Answers responses and messages of either vendor, each by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.paid = 0
        self.gate: Gate | None = None

    def reply_to(self, request: Received) -> Reply:
        self.paid += 1
        if "input" in request.json():
            part = {"type": "output_text", "text": f"R{self.paid}", "annotations": []}
            item = {"type": "message", "id": f"msg_{self.paid}", "role": "assistant"}
            whole = json_reply(
                {
                    "id": f"resp_{self.paid}",
                    "object": "response",
                    "created_at": 1,
                    "model": "m",
                    "status": "completed",
                    "output": [{**item, "status": "completed", "content": [part]}],
                    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
                }
            )
            return replace(whole, gate=self.gate)
        arguments = '{"to": "ada@example.org"}'
        call = {"name": "send_email", "arguments": arguments}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        }
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        reply = json_reply({"id": "c-1", "object": "chat.completion", "created": 1, "model": "m",
                            "choices": [choice]})  # fmt: skip
        return reply


@pytest.fixture
def upstream() -> Iterator[Model]:
    with Model() as model:
        yield model


@pytest.fixture
def proxy(upstream: Model, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy:
        yield proxy


def send(proxy: Proxy, path: str, body: dict[str, Any]) -> Any:
    connection = http.client.HTTPConnection(proxy.host, proxy.port, timeout=WAIT_S)
    headers = {"content-type": "application/json", "x-agent-session-id": "s"}
    headers["authorization"] = "Bearer sk-test"
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        found = json.loads(response.read())
        return found if response.status == 200 else (response.status, found["error"]["code"])
    finally:
        connection.close()


def respond(proxy: Proxy, text: str, before: str | None = None) -> Any:
    body: dict[str, Any] = {"model": "m", "input": text}
    if before is not None:
        body["previous_response_id"] = before
    return send(proxy, "/v1/responses", body)


def sent_texts(upstream: Model) -> list[Any]:
    """Return what the last request said, item by item."""
    body = upstream.received[-1].json()
    assert "previous_response_id" not in body
    texts: list[Any] = []
    for item in body["input"]:
        content = item["content"]
        texts.append(content if isinstance(content, str) else content[0]["text"])
    return texts


def test_what_goes_on_from_an_edited_response_is_written_out(proxy: Proxy, upstream: Model) -> None:
    first = respond(proxy, "a")
    second = respond(proxy, "b", first["id"])
    assert upstream.received[-1].json()["previous_response_id"] == first["id"]
    found = ask(proxy, "POST", "/api/sessions/s/steps/0/edit", {"text": "edited"})
    assert found["steps_taken_back"] == 1
    proxy.restart()

    again = respond(proxy, "a")
    assert (again["id"], again["output"][0]["content"][0]["text"]) == (first["id"], "edited")
    third = respond(proxy, "b", first["id"])
    assert sent_texts(upstream) == ["a", "edited", "b"]
    assert upstream.paid == 3
    # Made since, so its vendor has all of it.
    respond(proxy, "c", third["id"])
    assert upstream.received[-1].json()["previous_response_id"] == third["id"]
    # An agent that is alive goes on from an answer that was taken back.
    respond(proxy, "d", second["id"])
    assert sent_texts(upstream) == ["a", "edited", "b", "R2", "d"]

    ask(proxy, "POST", "/api/sessions/s/restore", {})
    assert respond(proxy, "b", first["id"]) == second
    # And one that goes on from what came after the edit, once that is undone.
    respond(proxy, "e", third["id"])
    assert sent_texts(upstream) == ["a", "R1", "b", "R3", "e"]


def test_an_answer_whose_conversation_is_elsewhere_is_not_edited(proxy: Proxy) -> None:
    respond(proxy, "b", "resp_of_nobody")
    send(proxy, "/v1/responses", {"model": "m", "input": "c", "conversation": "conv_1"})
    for index in (0, 1):
        for verb, value in (("edit", {"text": "x"}), ("rerun", {})):
            with pytest.raises(AssertionError, match="not all on record"):
                ask(proxy, "POST", f"/api/sessions/s/steps/{index}/{verb}", value)


def test_a_guarded_call_of_an_edited_answer_is_asked_about_anew(
    proxy: Proxy, upstream: Model
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Write to Ada."}]}

    def pending() -> list[Any]:
        found: list[Any] = ask(proxy, "GET", "/api/approvals?status=PENDING")
        return found

    with beside(lambda: send(proxy, "/v1/chat/completions", body)) as told:
        wait_until(lambda: bool(pending()))
        [asked] = pending()
        ask(proxy, "POST", "/api/sessions/s/steps/0/edit", {"arguments": {"to": "bob@example.org"}})
    assert told == [(409, "rolled_back")]
    assert pending() == []
    with pytest.raises(AssertionError, match="another answer"):
        ask(proxy, "POST", f"/api/approvals/{asked['id']}/action", {"action": "APPROVED"})
    proxy.restart()

    with beside(lambda: send(proxy, "/v1/chat/completions", body)) as told:
        wait_until(lambda: bool(pending()))
        [anew] = pending()
        assert anew["id"] != asked["id"]
        assert json.loads(anew["arguments"]) == {"to": "bob@example.org"}
        ask(proxy, "POST", f"/api/approvals/{anew['id']}/action", {"action": "APPROVED"})
    [answer] = told
    call = answer["choices"][0]["message"]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"to": "bob@example.org"}
    assert upstream.paid == 1


def test_a_step_that_is_being_asked_again_is_not_edited(proxy: Proxy, upstream: Model) -> None:
    respond(proxy, "a")
    gate = upstream.gate = Gate()
    with beside(lambda: ask(proxy, "POST", "/api/sessions/s/steps/0/rerun", {})) as made:
        upstream.wait_for_requests(2)
        for verb, value in (("edit", {"text": "x"}), ("rerun", {})):
            with pytest.raises(AssertionError, match="at the moment"):
                ask(proxy, "POST", f"/api/sessions/s/steps/0/{verb}", value)
        gate.open(9)
    assert made[0]["text"] == "R2"
    assert respond(proxy, "a")["id"] == "resp_2"
    assert upstream.paid == 2
