"""No path leads round the gate: the background, fetches, odd spellings, on real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.people import approve, decide, list_pending, reject, wait_for_pending
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Connection, Pair, Reception, ask, render_request
from tests.helpers.upstream import Gate, Received, Reply, Upstream, json_reply, sse_reply

pytestmark = pytest.mark.slow

TOOL = "delete_rows"
ENV = {
    "AGENTSTATE_GATE_TOOLS": TOOL,
    "AGENTSTATE_GATE_HEARTBEAT_S": "0.2",
    "AGENTSTATE_GATE_TIMEOUT_S": "15",  # what nobody decides on must not keep a test
}
HEADERS: list[Pair] = [
    (b"x-agent-session-id", b"s"),
    (b"authorization", b"Bearer sk-agent"),
    (b"content-type", b"application/json"),
]
NO_SESSION = HEADERS[1:]
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_0",
    "name": TOOL,
    "arguments": '{"table":"users"}',
    "status": "completed",
}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "fine", "annotations": []}],
}


def response(*items: dict[str, Any], status: str = "completed", name: str = "resp_1") -> Any:
    head = {"id": name, "object": "response", "created_at": 1, "model": "m"}
    return {**head, "status": status, "output": list(items)}


ANSWER = response(CALL)


class Model(Upstream):
    """Answers every request as `answers` says: a guarded call, unless told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: Callable[[Received], Reply] = lambda request: json_reply(ANSWER)

    def reply_to(self, request: Received) -> Reply:
        return self.answers(request)


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as upstream:
        yield upstream


@pytest.fixture
def proxy(model: Model, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(upstream_url=model.url, db=tmp_path / "paths.db", env=ENV) as proxy:
        yield proxy


@pytest.fixture
def strict(model: Model, tmp_path: Path) -> Iterator[Proxy]:
    env = {**ENV, "AGENTSTATE_GATE_STRICT": "true"}
    with Proxy(upstream_url=model.url, db=tmp_path / "strict.db", env=env) as proxy:
        yield proxy


def asked(proxy: Proxy, path: str, body: Any = None, *more: Pair, method: str = "") -> Reception:
    """Ask once in the session: GET, or POST where there is a body."""
    raw = b"" if body is None else json.dumps(body).encode()
    how = method or ("POST" if raw else "GET")
    return ask(proxy.address, how, path, [*HEADERS, *more], raw)


# --- in the background ----------------------------------------------------------------------------

BACKGROUND = {"model": "m", "input": "hi", "background": True}


@pytest.mark.parametrize(
    ("more", "header"),
    [
        ({"stream": True}, None),
        ({}, (b"x-agent-require-approval", b"true")),
        ({"tools": [{"type": "mcp", "server_label": TOOL, "server_url": "http://x"}]}, None),
    ],
    ids=["streamed", "approval is wanted", "the provider runs the tool"],
)
def test_a_background_request_that_cannot_be_held_is_refused(
    proxy: Proxy, model: Model, more: dict[str, Any], header: Pair | None
) -> None:
    got = asked(proxy, "/v1/responses", {**BACKGROUND, **more}, *([header] if header else []))

    assert got.status == 400
    assert got.json()["error"]["param"] == "background"
    assert "`background`" in got.json()["error"]["message"]
    assert model.received == []
    # Without a session nothing is held: such calls are not ours to judge.
    if header is None:
        raw = json.dumps({**BACKGROUND, **more}).encode()
        assert ask(proxy.address, "POST", "/v1/responses", NO_SESSION, raw).json() == ANSWER


def test_a_background_request_is_sent_on_as_it_is(proxy: Proxy, model: Model) -> None:
    queued = response(status="queued")
    model.answers = lambda request: json_reply(queued)

    got = asked(proxy, "/v1/responses", BACKGROUND)

    assert got.json() == queued
    assert [request.json() for request in model.received] == [BACKGROUND]
    assert proxy.steps("s") == []


def test_an_upstream_that_answers_a_background_request_at_once_is_held(
    proxy: Proxy, model: Model
) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(asked, proxy, "/v1/responses", BACKGROUND)
        approve(proxy)
        assert first.result(30).json() == ANSWER
    # It is on record now, so whoever fetches it meets the same decision.
    assert asked(proxy, "/v1/responses/resp_1").json() == ANSWER
    assert len(proxy.steps("s")) == 1


def test_strict_takes_no_background_request(strict: Proxy, model: Model) -> None:
    got = asked(strict, "/v1/responses", BACKGROUND)

    assert got.status == 403
    assert got.json()["error"]["code"] == "ungated_path"
    assert model.received == []


# --- fetched by its id ----------------------------------------------------------------------------


def test_fetches_at_the_same_moment_are_one_question(proxy: Proxy) -> None:
    with ThreadPoolExecutor(8) as pool:
        fetches = [pool.submit(asked, proxy, "/v1/responses/resp_1") for _ in range(8)]
        (row,) = wait_for_pending(proxy)
        assert not [each for each in fetches if each.done()]
        assert decide(proxy, row["approval_id"])[0] == 200
        assert [each.result(30).json() for each in fetches] == [ANSWER] * 8
    assert len(proxy.steps("s")) == 1
    assert list_pending(proxy) == []


@pytest.mark.parametrize("status", [201, 203, 206])
def test_every_success_is_held(proxy: Proxy, model: Model, status: int) -> None:
    model.answers = lambda request: json_reply(ANSWER, status=status)
    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(asked, proxy, "/v1/responses/resp_1", None, (b"range", b"bytes=9-"))
        reject(proxy, then="stop")
        assert fetch.result(30).status == 403
    assert model.received[0].header("range") is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses/resp_1/"),
        ("GET", "/v1/responses/resp%5F1"),
        ("GET", "/v1/responses/resp_1?include=x"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/responses/resp_1/cancel/"),
    ],
)
def test_however_it_is_fetched_it_is_held(
    proxy: Proxy, model: Model, method: str, path: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(asked, proxy, path, None, method=method)
        approve(proxy)
        assert fetch.result(30).json() == ANSWER
    assert [(each.method, each.target) for each in model.received] == [(method, path)]
    # The same response by its plain path: it is decided.
    assert asked(proxy, "/v1/responses/resp_1").json() == ANSWER


@pytest.mark.parametrize("tools", ["", "other_tool"])
def test_what_was_refused_stays_refused_under_another_policy(
    model: Model, tmp_path: Path, tools: str
) -> None:
    db = tmp_path / "later.db"
    with Proxy(upstream_url=model.url, db=db, env=ENV) as before, ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(asked, before, "/v1/responses/resp_1")
        reject(before, then="stop")
        assert fetch.result(30).status == 403
    env = {**ENV, "AGENTSTATE_GATE_TOOLS": tools}
    with Proxy(upstream_url=model.url, db=db, env=env) as after:
        assert asked(after, "/v1/responses/resp_1").status == 403


def test_what_cannot_be_read_is_not_let_out(proxy: Proxy, model: Model) -> None:
    kinds = ((b"content-type", b"application/json"), (b"content-encoding", b"x-own"))
    coded = Reply(headers=kinds, chunks=(json.dumps(ANSWER).encode(),))
    page = Reply(headers=((b"content-type", b"text/html"),), chunks=(b"<html>delete_rows",))
    for reply in (coded, page):
        model.answers = lambda request, reply=reply: reply  # type: ignore[misc]
        got = asked(proxy, "/v1/responses/resp_1")
        assert got.status == 502
        assert TOOL.encode() not in got.body


def test_a_refusal_that_goes_on_waits_for_the_request_it_answers(
    proxy: Proxy, model: Model
) -> None:
    fine = response(SAID, name="resp_2")
    model.answers = lambda request: json_reply(
        fine if request.method == "POST" and len(model.received) > 1 else ANSWER
    )
    request = {"model": "m", "input": "hi"}
    with ThreadPoolExecutor(1) as pool:
        with Connection(proxy.address) as connection:
            raw = json.dumps(request).encode()
            sent = render_request("POST", "/v1/responses", proxy.address, HEADERS, raw)
            connection.send(sent)
            wait_for_pending(proxy)
        fetch = pool.submit(asked, proxy, "/v1/responses/resp_1")
        reject(proxy, then="continue")
        got = fetch.result(30)
    assert got.status == 409
    assert "POST" in got.json()["error"]["message"]
    assert [each.method for each in model.received] == ["POST", "GET"]
    # Asked again it goes on, and then whoever fetches it gets the same.
    assert asked(proxy, "/v1/responses", request).json() == fine
    assert asked(proxy, "/v1/responses/resp_1").json() == fine
    assert [each.method for each in model.received] == ["POST", "GET", "POST", "GET"]


def events() -> list[bytes]:
    """Return a response that calls the guarded tool as events."""
    started = {**CALL, "arguments": "", "status": "in_progress"}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": response(status="in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": started},
        {"type": "response.output_item.done", "output_index": 0, "item": CALL},
        {"type": "response.completed", "response": ANSWER},
    ]
    return [
        f"event: {each['type']}\ndata: {json.dumps({**each, 'sequence_number': n})}\n\n".encode()
        for n, each in enumerate(told)
    ]


@pytest.mark.parametrize("is_approved", [True, False])
def test_a_stream_that_is_fetched_gets_heartbeats_until_it_may_go_out(
    proxy: Proxy, model: Model, is_approved: bool
) -> None:
    gate = Gate()
    model.answers = lambda request: replace(sse_reply(events(), gate=gate), head_first=True)

    def fetch() -> Reception:
        with Connection(proxy.address) as connection:
            path = "/v1/responses/resp_1?stream=true"
            connection.send(render_request("GET", path, proxy.address, HEADERS))
            got = connection.receive(until=lambda got: len(got.pieces) == 2)
            gate.open(len(events()))  # it was told to wait before its upstream had an answer
            return connection.receive(got)

    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(fetch)
        if is_approved:
            approve(proxy)
        else:
            reject(proxy, then="stop")
        got = fetched.result(30)
    assert got.status == 200
    told = b"".join(each.data for each in got.pieces if not each.data.startswith(b":"))
    assert len(got.pieces) > 2
    if is_approved:
        assert told == b"".join(events())
        assert got.ending == "complete"
    else:
        assert b"human_rejection" in told
        assert b"table" not in told
        assert got.ending == "cut"


# --- spelled otherwise, and strict ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("POST", "/v1//chat/completions", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/", "/v1/chat/completions"),
        ("POST", "/v1/chat%2Fcompletions", "/v1/chat/completions"),
        ("POST", "/v1/Messages", "/v1/messages"),
        ("GET", "/v1//responses/resp_1", "/v1/responses/resp_1"),
        ("GET", "/v1/models/../responses/resp_1", "/v1/responses/resp_1"),
    ],
)
def test_a_path_that_only_looks_like_another_is_refused_in_a_session(
    proxy: Proxy, model: Model, method: str, path: str, right: str
) -> None:
    got = asked(proxy, path, {"model": "m", "messages": []}, method=method)

    assert got.status == 404
    assert right in got.json()["error"]["message"]
    assert model.received == []
    assert ask(proxy.address, method, path, NO_SESSION, b"{}").json() == ANSWER


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/threads/t/runs"),
        ("GET", "/v1/conversations/c/items"),
        ("GET", "/v1/files/f/content"),
        ("POST", "/v1//chat/completions"),
    ],
)
def test_strict_lets_nothing_by_that_may_call_a_tool(
    strict: Proxy, model: Model, method: str, path: str
) -> None:
    got = asked(strict, path, {}, method=method)

    assert got.status == 403
    assert got.json()["error"]["code"] == "ungated_path"
    assert model.received == []


def test_strict_holds_and_lets_by_what_it_did(strict: Proxy) -> None:
    with ThreadPoolExecutor(1) as pool:
        fetch = pool.submit(asked, strict, "/v1/responses/resp_1")
        approve(strict)
        assert fetch.result(30).json() == ANSWER
    assert asked(strict, "/v1/files").json() == ANSWER


def test_a_prompt_that_is_kept_upstream_may_name_a_guarded_tool(proxy: Proxy, model: Model) -> None:
    text = f"Action: {TOOL}\nAction Input: users"
    part = {"type": "output_text", "text": text, "annotations": []}
    spelled = response({**SAID, "content": [part]})
    model.answers = lambda request: json_reply(spelled)
    with ThreadPoolExecutor(1) as pool:
        body = {"model": "m", "input": "go", "prompt": {"id": "pmpt_1"}}
        asking = pool.submit(asked, proxy, "/v1/responses", body)
        approve(proxy)
        assert asking.result(30).json() == spelled
