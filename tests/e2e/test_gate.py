"""Held calls with real clients: longer than their time-outs, over restarts, through nginx.

A tool call that a person must approve is held for longer than the client's own limit. Clients that
can be told to wait (streams, and the Python SDKs) get their answer without a retry; all others time
out and find the same approval when they ask again: one row, one upstream call.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.nginx import Nginx
from tests.helpers.node import module_path, need_node
from tests.helpers.people import approve, decide, list_pending, reject, wait_for_pending
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Connection, ask, render_request
from tests.helpers.upstream import Received, Reply, Upstream, json_reply, sse_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

AGENTS = Path(__file__).parent / "agents"
TOOL = "delete_rows"
ENV = {"AGENTSTATE_GATE_TOOLS": TOOL}
CLIENT_TIMEOUT_S = 5.0
HOLD_S = 12.0
HOLD_LONG_S = 30.0
ARGUMENTS = '{"table":"users"}'


class ToolCaller(Upstream):
    """A model that answers every request with one call of the guarded tool, in its dialect.

    It calls every call `call_0`, as some models do. `calls` is how many calls one answer makes.
    """

    response_status = "completed"  # of the one response that can be fetched

    def reply_to(self, request: Received) -> Reply:
        if request.method == "GET":
            return json_reply(_response(self.response_status))
        body = request.json()
        if request.target.endswith("/messages"):
            return _messages(body)
        if "tool" in [message["role"] for message in body["messages"]]:
            return json_reply(_chat({"role": "assistant", "content": "done"}, "stop"))
        call = {
            "id": "call_0",
            "type": "function",
            "function": {"name": TOOL, "arguments": ARGUMENTS},
        }
        if body.get("stream"):
            deltas: list[tuple[dict[str, Any], str | None]] = [
                ({"role": "assistant", "content": ""}, None),
                ({"content": "Deleting. "}, None),
                ({"tool_calls": [{"index": 0, **call}]}, None),
                ({}, "tool_calls"),
            ]
            frames = [_frame(_chunk(delta, reason)) for delta, reason in deltas]
            return sse_reply([*frames, b"data: [DONE]\n\n"])
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return json_reply(_chat(message, "tool_calls"))


def _frame(value: object, event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _chat(message: dict[str, Any], reason: str) -> dict[str, Any]:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], "usage": usage}


def _chunk(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice]}


def _response(status: str) -> dict[str, Any]:
    call = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_0",
        "name": TOOL,
        "arguments": ARGUMENTS,
        "status": "completed",
    }
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    return {**head, "status": status, "background": True, "output": [call]}


def _messages(body: dict[str, Any]) -> Reply:
    usage = {"input_tokens": 5, "output_tokens": 2}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    block = {"type": "tool_use", "id": "toolu_0", "name": TOOL, "input": json.loads(ARGUMENTS)}
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    if not body.get("stream"):
        return json_reply({**head, "content": [block], **end, "usage": usage})
    start = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    piece = {"type": "input_json_delta", "partial_json": ARGUMENTS}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": piece},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return sse_reply([_frame(event, event["type"]) for event in events])


@pytest.fixture
def model() -> Iterator[ToolCaller]:
    with ToolCaller() as upstream:
        yield upstream


@pytest.fixture
def proxy(model: ToolCaller, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(upstream_url=model.url, db=tmp_path / "gate.db", env=ENV) as proxy:
        yield proxy


MESSAGES: list[Any] = [{"role": "user", "content": "go"}]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "parameters": {"type": "object", "properties": {"table": {"type": "string"}}},
        },
    }
]


# --- clients --------------------------------------------------------------------------------------


def openai_retrying(url: str, session: str) -> str:
    """Ask with the OpenAI client where it cannot be told to wait: it asks again."""
    return openai_plain(url, session, retries=10)


def openai_plain(url: str, session: str, retries: int = 0) -> str:
    """Ask with the OpenAI client and return the arguments of the call."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(
        base_url=f"{url}/v1",
        api_key="sk-agent",
        timeout=CLIENT_TIMEOUT_S,
        max_retries=retries,
        default_headers={"x-agent-session-id": session},
    )
    answer = client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS)
    return str(answer.choices[0].message.tool_calls[0].function.arguments)


def openai_stream(url: str, session: str) -> str:
    """The same, streaming."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(
        base_url=f"{url}/v1",
        api_key="sk-agent",
        timeout=CLIENT_TIMEOUT_S,
        max_retries=0,
        default_headers={"x-agent-session-id": session},
    )
    stream = client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS, stream=True)
    pieces = [
        call.function.arguments
        for chunk in stream
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
    ]
    return "".join(pieces)


def anthropic_plain(url: str, session: str) -> str:
    """Ask with Anthropic's client."""
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(
        base_url=url,
        api_key="sk-agent",
        timeout=CLIENT_TIMEOUT_S,
        max_retries=0,
        default_headers={"x-agent-session-id": session},
    )
    message = client.messages.create(model="m", max_tokens=100, messages=MESSAGES)
    return json.dumps(message.content[0].input, separators=(",", ":"))


def anthropic_stream(url: str, session: str) -> str:
    """The same, streaming."""
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(
        base_url=url,
        api_key="sk-agent",
        timeout=CLIENT_TIMEOUT_S,
        max_retries=0,
        default_headers={"x-agent-session-id": session},
    )
    with client.messages.stream(model="m", max_tokens=100, messages=MESSAGES) as stream:
        message = stream.get_final_message()
    return json.dumps(message.content[0].input, separators=(",", ":"))


def run_node(mode: str) -> Callable[[str, str], str]:
    """Return a client that is the official one for Node, `stream` or `plain`."""

    def run(url: str, session: str) -> str:
        env = {**os.environ, "OPENAI_MODULE": str(module_path("openai"))}
        timeout_ms = str(int(CLIENT_TIMEOUT_S * 1000))
        command = [need_node(), str(AGENTS / "held.mjs"), f"{url}/v1", session, mode, timeout_ms]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


CLIENTS: dict[str, Callable[[str, str], str]] = {
    "openai": openai_plain,
    "openai-stream": openai_stream,
    "anthropic": anthropic_plain,
    "anthropic-stream": anthropic_stream,
    "node-stream": run_node("stream"),
}


def test_clients_that_can_be_told_wait_longer_than_their_time_out_without_a_retry(
    proxy: Proxy, model: ToolCaller, pytestconfig: pytest.Config
) -> None:
    if importlib.util.find_spec("openai") is None or importlib.util.find_spec("anthropic") is None:
        pytest.skip("needs the openai and anthropic packages")
    need_node()
    hold_s = HOLD_LONG_S if pytestconfig.getoption("--long") else HOLD_S
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        asked = {
            name: pool.submit(client, proxy.url, f"s-{name}") for name, client in CLIENTS.items()
        }
        rows = wait_for_pending(proxy, len(CLIENTS), timeout_s=60)
        held_since = time.monotonic()
        time.sleep(hold_s)  # the wait is what is tested
        assert not [name for name, future in asked.items() if future.done()]
        for row in rows:
            assert decide(proxy, row["approval_id"])[0] == 200
        answers = {name: future.result(60) for name, future in asked.items()}
    assert time.monotonic() - held_since >= hold_s
    assert answers == dict.fromkeys(CLIENTS, ARGUMENTS)
    assert len(model.received) == len(CLIENTS)
    assert not list_pending(proxy)


@pytest.mark.parametrize("name", ["node-plain", "requests"])
def test_a_client_that_times_out_finds_the_same_approval_on_its_retry(
    proxy: Proxy, model: ToolCaller, name: str
) -> None:
    client = run_node("plain") if name == "node-plain" else requests_plain
    if name == "node-plain":
        need_node()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client, proxy.url, name)
        (row,) = wait_for_pending(proxy, timeout_s=30)
        time.sleep(CLIENT_TIMEOUT_S * 1.2)  # it gives up at least once
        (again,) = list_pending(proxy)
        assert again["approval_id"] == row["approval_id"]
        assert decide(proxy, row["approval_id"])[0] == 200
        assert asked.result(60) == ARGUMENTS
    assert len(model.received) == 1
    status, body = proxy.get("/api/approvals")
    assert status == 200
    assert len(json.loads(body)) == 1


def requests_plain(url: str, session: str) -> str:
    """Ask as a script with `requests` would: a short time-out, and again."""
    requests = pytest.importorskip("requests")
    while True:
        try:
            answer = requests.post(
                f"{url}/v1/chat/completions",
                json={"model": "m", "messages": MESSAGES, "tools": TOOLS},
                headers={"x-agent-session-id": session, "authorization": "Bearer sk-agent"},
                timeout=1.0,
            )
        except requests.exceptions.Timeout:
            continue
        assert answer.status_code == 200
        call = answer.json()["choices"][0]["message"]["tool_calls"][0]
        return str(call["function"]["arguments"])


@pytest.mark.parametrize("name", ["openai-retrying", "openai-stream", "anthropic-stream"])
def test_behind_nginx_nothing_breaks(
    proxy: Proxy, model: ToolCaller, tmp_path: Path, name: str
) -> None:
    with Nginx(tmp_path, proxy.port) as nginx, ThreadPoolExecutor(1) as pool:
        client = CLIENTS.get(name, openai_retrying)
        asked = pool.submit(client, nginx.url, name)
        wait_for_pending(proxy, timeout_s=30)
        time.sleep(CLIENT_TIMEOUT_S * 1.4)  # longer than the client waits for a silent peer
        approve(proxy)
        assert asked.result(60) == ARGUMENTS
    assert len(model.received) == 1


# --- restarts, sub-agents, rollback ---------------------------------------------------------------


def headers_of(session: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"x-agent-session-id", session.encode()),
        (b"authorization", b"Bearer sk-agent"),
        (b"content-type", b"application/json"),
    ]


def body_of(text: str = "go", **more: Any) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages, "tools": TOOLS, **more}).encode()


def post(proxy: Proxy, session: str, body: bytes) -> tuple[int, bytes]:
    """Ask once, with no retry."""
    got = ask(proxy.address, "POST", "/v1/chat/completions", headers_of(session), body)
    assert got.status is not None
    return got.status, got.body


@pytest.mark.parametrize("is_streamed", [False, True])
def test_killed_while_held_started_again_approved_delivered_without_a_second_call(
    proxy: Proxy, model: ToolCaller, is_streamed: bool
) -> None:
    body = body_of(stream=is_streamed)
    with Connection(proxy.address) as connection:
        sent = render_request("POST", "/v1/chat/completions", proxy.address, headers_of("s"), body)
        connection.send(sent)
        (row,) = wait_for_pending(proxy)
        proxy.kill()
    proxy.start()
    (found,) = list_pending(proxy)
    assert found["approval_id"] == row["approval_id"]
    assert decide(proxy, row["approval_id"])[0] == 200
    status, answer = post(proxy, "s", body)
    assert status == 200
    assert TOOL.encode() in answer
    assert len(model.received) == 1


def test_thirty_sub_agents_of_one_session_never_share_a_decision(
    proxy: Proxy, model: ToolCaller
) -> None:
    with ThreadPoolExecutor(30) as pool:
        asked = [pool.submit(post, proxy, "s", body_of(f"lane {lane}")) for lane in range(30)]
        rows = wait_for_pending(proxy, 30, timeout_s=30)
        assert {row["call_id"] for row in rows} == {"call_0"}
        by_step = {row["index"]: row["approval_id"] for row in rows}
        assert len(by_step) == 30
        steps = {step["index"]: step["prompt"] for step in proxy.steps("s")}
        lucky = {index for index, prompt in steps.items() if int(prompt.split()[1]) % 3 == 0}
        for index, approval_id in by_step.items():
            action = "APPROVED" if index in lucky else "REJECTED"
            assert decide(proxy, approval_id, action)[0] == 200
        statuses = [future.result(30)[0] for future in asked]
    assert statuses == [200 if lane % 3 == 0 else 403 for lane in range(30)]
    assert len(model.received) == 30


def test_two_answers_with_the_same_call_are_two_questions(proxy: Proxy, model: ToolCaller) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, proxy, "s", body_of())
        approve(proxy)
        assert first.result(30)[0] == 200
        again = [*headers_of("s"), (b"x-agent-replay", b"refresh")]
        second = pool.submit(ask, proxy.address, "POST", "/v1/chat/completions", again, body_of())
        reject(proxy, reason="no")
        got = second.result(30)
    assert got.status == 403
    assert len(model.received) == 2


def test_a_response_made_in_the_background_is_held_when_it_is_fetched(
    proxy: Proxy, model: ToolCaller
) -> None:
    def fetch(*more: tuple[bytes, bytes]) -> tuple[int | None, bytes]:
        headers = [*headers_of("s"), *more]
        got = ask(proxy.address, "GET", "/v1/responses/resp_1", headers)
        return got.status, got.body

    model.response_status = "in_progress"
    status, body = fetch()
    assert status == 200
    assert json.loads(body)["output"] == []
    model.response_status = "completed"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(fetch)
        (row,) = wait_for_pending(proxy)
        assert decide(proxy, row["approval_id"], "REJECTED", then="continue")[0] == 400
        edited = {"table": "tmp"}
        assert decide(proxy, row["approval_id"], arguments=edited)[0] == 200
        status, body = asked.result(30)
    assert status == 200
    assert json.loads(json.loads(body)["output"][0]["arguments"]) == edited
    assert fetch() == (200, body)
    # Without a session nothing is held: such calls are not ours to judge.
    plain = ask(proxy.address, "GET", "/v1/responses/resp_1", [(b"authorization", b"Bearer k")])
    assert json.loads(plain.body) == _response("completed")


@pytest.mark.parametrize("path", ["/v1/threads/t/runs", "/v1/assistants", "/v1/batches"])
def test_strict_refuses_paths_where_calls_cannot_be_held(
    model: ToolCaller, tmp_path: Path, path: str
) -> None:
    env = {**ENV, "AGENTSTATE_GATE_STRICT": "true"}
    with Proxy(upstream_url=model.url, db=tmp_path / "strict.db", env=env) as proxy:
        got = ask(proxy.address, "POST", path, headers_of("s"), b"{}")
        assert got.status == 403
        assert json.loads(got.body)["error"]["code"] == "ungated_path"
        upgrade = [*headers_of("s"), (b"connection", b"upgrade"), (b"upgrade", b"websocket")]
        assert ask(proxy.address, "GET", "/v1/responses", upgrade).status == 403
    assert not model.received


# --- figures --------------------------------------------------------------------------------------


def test_a_thousand_held_calls_fit_one_small_process(model: ToolCaller, tmp_path: Path) -> None:
    env = {**ENV, "AGENTSTATE_GATE_HEARTBEAT_S": "600"}
    with Proxy(upstream_url=model.url, db=tmp_path / "many.db", env=env) as proxy:
        connections: list[Connection] = []
        try:
            for number in range(1000):
                connection = Connection(proxy.address)
                connections.append(connection)
                body = body_of(f"call {number}", stream=number % 2 == 0)
                path = "/v1/chat/completions"
                connection.send(render_request("POST", path, proxy.address, headers_of("s"), body))
                if (number + 1) % 100 == 0:  # not more at once than a slow machine takes
                    wait_for_held(proxy, number + 1)
            assert proxy.memory_kib() < 150 * 1024, f"{proxy.memory_kib()} KiB"
        finally:
            for connection in connections:
                connection.close()


def wait_for_held(proxy: Proxy, count: int) -> None:
    """Wait until so many calls are held."""
    until = time.monotonic() + 60
    while True:
        status, body = proxy.get("/api/approvals?status=PENDING&limit=1000")
        assert status == 200
        held = len(json.loads(body))
        if held == count:
            return
        assert time.monotonic() < until, f"{held} of {count} are held"
        time.sleep(0.1)
