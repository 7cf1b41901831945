"""The two servers of the full demo: a model that counts, and a receiver that checks signatures."""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

from agentstate.house import demo_peers
from agentstate.house.demo_peers import Model, PeerFailed, Receiver, serving

BODY: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}
SECRET = "not-a-secret"


def post(url: str, path: str, raw: bytes, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("POST", path, raw, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def ask(url: str, path: str = "/v1/chat/completions", **more: Any) -> tuple[int, Any]:
    return post(url, path, json.dumps(BODY | more).encode())


def test_the_model_counts_and_gives_no_two_answers_the_same_id() -> None:
    model = Model()
    with serving(model.reply) as url:
        first, second = ask(url)[1], ask(url)[1]
        third = ask(url, "/v1/messages", max_tokens=9)[1]

    assert first["id"] != second["id"]
    assert third["type"] == "message"
    assert [row.path for row in model.asked] == [*["/v1/chat/completions"] * 2, "/v1/messages"]
    assert model.count == 3


def test_the_model_fails_for_those_that_are_named() -> None:
    model = Model()
    with serving(model.reply) as url:
        model.fail("gpt-4o")
        failed, other = ask(url)[0], ask(url, model="gpt-4o-mini")[0]
        model.fail()
        mended = ask(url)[0]

    assert (failed, other, mended) == (503, 200, 200)


def test_the_model_thinks_for_as_long_as_it_is_held() -> None:
    model = Model()
    answered: list[int] = []
    with serving(model.reply) as url:
        with model.held(after=1):
            assert ask(url)[0] == 200
            waiting = threading.Thread(target=lambda: answered.append(ask(url)[0]))
            waiting.start()
            model.wait_for(2)
            assert answered == []
        waiting.join(10)

    assert answered == [200]


def test_requests_that_do_not_come_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_peers, "WAIT_S", 0.01)

    with pytest.raises(PeerFailed, match="2 requests should have reached the model; 0 did"):
        Model().wait_for(2)


def signed(raw: bytes, secret: str = SECRET) -> dict[str, str]:
    made = hmac.digest(secret.encode(), b"event-1.1700000000." + raw, "sha256")
    return {
        "webhook-id": "event-1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }


def test_the_receiver_keeps_what_is_signed_and_counts_what_is_forged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_peers, "WAIT_S", 0.01)
    receiver = Receiver(SECRET)
    right = json.dumps({"type": "budget.reached", "data": {"session": "a"}}).encode()
    wrong = right.replace(b'"a"', b'"b"')
    with serving(receiver.reply) as url:
        assert post(url, "/hook", right, signed(right)) == (200, {})
        post(url, "/hook", wrong, signed(wrong, "guessed"))

    assert receiver.wait_for("budget.reached", "a")["data"] == {"session": "a"}
    assert receiver.forged == 1
    with pytest.raises(PeerFailed, match=r"No event budget\.reached of b"):
        receiver.wait_for("budget.reached", "b")
