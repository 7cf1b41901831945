"""Keys are planted wherever an agent or an upstream can put one, and looked for wherever the record
comes out; and what replays, replays as if there were none.

All texts of the database are read as SQLite gives them, packed ones unpacked.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate.store.sqlite_dictionary import packing_dictionary
from tests.helpers.people import decide, wait_for_pending
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Received, Reply, Upstream, json_reply, sse_reply

pytestmark = pytest.mark.slow

# Put together, so that no scanner takes this file for a leak. None of them was ever given out.
CANARY = "cAnArY7Q9x2Lw4Kp8Zr5"
OWN = "own-" + CANARY + "-own-key"  # of no known form: known because it was sent
CONFIGURED = "cfg-" + CANARY + "-configured"
TOKEN = "tok-" + CANARY + "-client-token"
PLANTED = {
    "system": "sk-ant-api03-" + CANARY,
    "user": "sk-proj-" + CANARY,
    "result": "ghp_" + CANARY * 2,
    "tool": "AIza" + CANARY * 2,
    "metadata": "xai-" + CANARY,
    "name": "gsk_" + CANARY,
    "tag": "hf_" + CANARY,
    "url": f"postgres://app:{CANARY}@db.example.org/x",
    "assigned": f"DB_PASSWORD={CANARY}",
    "named": CANARY,  # as the value of api_key in a tool call's arguments
    "pem": f"-----BEGIN PRIVATE KEY-----\nMIIE{CANARY}\n-----END PRIVATE KEY-----",
}
PERSONAL = "123-45-6789"
CONFIG = """
[redact]
patterns = ['\\b\\d{3}-\\d{2}-\\d{4}\\b']

[gate]
tools = ["delete_rows"]
on_reject = "continue"
"""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Call it with {PLANTED['tool']}.",
            "parameters": {"type": "object"},
        },
    }
    for name in ("look_up", "delete_rows")
]


class Model(Upstream):
    """Says what its script says for the last message; never twice alike."""

    def __init__(self) -> None:
        super().__init__()
        self.paid = 0

    def reply_to(self, request: Received) -> Reply:
        self.paid += 1
        if request.json().get("stream"):
            pieces = ("Your key is ", OWN[:9], OWN[9:], ".")
            return sse_reply([*(_frame({"content": each}) for each in pieces), _frame({}, "stop"),
                              b"data: [DONE]\n\n"])  # fmt: skip
        last = request.json()["messages"][-1]["content"]
        message: dict[str, Any] = {"role": "assistant", "content": f"Answer {self.paid}."}
        reason = "stop"
        if "echo the key" in last:
            message["content"] = f"Your key is {request.header('authorization')}, is it not?"
        if last == "delete it" or last.startswith("look "):
            name = "delete_rows" if last == "delete it" else "look_up"
            call = {"name": name, "arguments": '{"table": "users"}'}
            message["tool_calls"] = [
                {"id": f"call_{self.paid}", "type": "function", "function": call}
            ]
            message["content"], reason = None, "tool_calls"
        if "fail" in last:
            said = f"bad key {request.header('authorization')}, and {PLANTED['user']}"
            return json_reply({"error": {"message": said, "type": "x"}}, status=418)
        return json_reply({
            "id": f"chatcmpl-{self.paid}", "object": "chat.completion", "created": 1,
            "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        })  # fmt: skip


def _frame(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    value = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
             "choices": [choice]}  # fmt: skip
    return b"data: " + json.dumps(value).encode() + b"\n\n"


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as upstream:
        yield upstream


@pytest.fixture
def proxy(model: Model, tmp_path: Path) -> Iterator[Proxy]:
    (tmp_path / "agentstate.toml").write_text(CONFIG)
    env = {"AGENTSTATE_FORWARD_RETRIES": "0", "OPENAI_API_KEY": CONFIGURED}
    with Proxy(upstream_url=model.url, db=tmp_path / "record.db", env=env) as started:
        yield started


def post(
    proxy: Proxy, path: str, value: Any, *, session: str = "s", key: str = OWN, **more: str
) -> tuple[int, Any, dict[str, str]]:
    """Post; return status, body and headers."""
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {key}",
        "x-agentstate-token": TOKEN,
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    if path.startswith("/v1"):
        headers["x-agent-session-id"] = session
    connection = http.client.HTTPConnection(*proxy.address, timeout=30)
    try:
        connection.request("POST", path, json.dumps(value), headers)
        response = connection.getresponse()
        raw = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        is_json = found.get("content-type", "").startswith("application/json")
        return response.status, json.loads(raw) if is_json else raw.decode(), found
    finally:
        connection.close()


def chat(proxy: Proxy, *messages: Any, **more: Any) -> tuple[int, Any, dict[str, str]]:
    body: dict[str, Any] = {"model": "m", "messages": list(messages)}
    if "tools" in more:
        body["tools"] = more.pop("tools")
    if "stream" in more:
        body["stream"] = more.pop("stream")
    if "metadata" in more:
        body["metadata"] = more.pop("metadata")
    return post(proxy, "/v1/chat/completions", body, **more)


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def result(text: str, call_id: str = "call_9") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def called(arguments: str, call_id: str = "call_9") -> dict[str, Any]:
    call = {"name": "look_up", "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": call}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


# Everything that an agent may say, with a key in it.
HISTORY = (
    say(f"Use {PLANTED['system']} and {PLANTED['url']}.", "system"),
    say(f"My key is {PLANTED['user']}, {PLANTED['assigned']}; ssn {PERSONAL}."),
    called(json.dumps({"api_key": PLANTED["named"]})),
    result(f"It says {PLANTED['result']} and\n{PLANTED['pem']}"),
    say(f"Is {CONFIGURED} or {OWN} still good?"),
)
ABOUT = {
    "x_agent_session_name": f"with {PLANTED['name']}",
    "x_agent_tags": f"key={PLANTED['tag']}",
}


def record_everything(proxy: Proxy) -> None:
    """Make calls of every kind with keys in them."""
    more: dict[str, Any] = {"tools": TOOLS, "metadata": {"key": PLANTED["metadata"]}, **ABOUT}
    assert chat(proxy, *HISTORY, **more)[0] == 200
    assert chat(proxy, *HISTORY, say("fail, please"), **more)[0] == 418
    assert OWN in chat(proxy, say("echo the key"), **more)[1]["choices"][0]["message"]["content"]
    assert chat(proxy, say("and as a stream"), stream=True)[0] == 200
    # A miss is explained with what was sent.
    drifted = (HISTORY[0], say(f"My key is {PLANTED['user']}, or {PLANTED['tag']}?"))
    assert chat(proxy, *drifted, x_agent_step_number="0", **more)[0] == 200


def texts_of(path: Path) -> Iterator[bytes]:
    """Yield every value of the database, packed ones as they are and unpacked."""
    with sqlite3.connect(path) as connection:
        names = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
        for (name,) in names:
            for row in connection.execute(f'select * from "{name}"'):
                for value in row:
                    if isinstance(value, str):
                        yield value.encode("utf-8", "surrogatepass")
                    elif isinstance(value, bytes):
                        yield value
                        yield unpacked(value)


def unpacked(value: bytes) -> bytes:
    """Return what was packed with the dictionary alone; b'' = it was not."""
    try:
        return zlib.decompressobj(zdict=packing_dictionary()).decompress(value)
    except zlib.error:
        return b""


def test_no_key_is_on_record_or_comes_out_of_it(proxy: Proxy, tmp_path: Path) -> None:
    record_everything(proxy)

    found = list(texts_of(tmp_path / "record.db"))
    assert any(b"Is [secret:configured_key] or [secret:configured_key] still good?" in each
               for each in found), "the texts were unpacked"  # fmt: skip
    assert [each for each in found if CANARY.encode() in each] == []
    assert [each for each in found if PERSONAL.encode() in each] == []
    assert CANARY.encode() not in proxy.stored_bytes(), "of files and log, as they are"

    under = ("", "/steps", "/timeline", "/tool-calls", "/recovery", "/cassette", "/export")
    paths = [f"/api/sessions/s{each}" for each in under]
    paths += ["/api/sessions", "/api/export/dataset", "/api/export/dataset?report=1"]
    paths += ["/api/settings", "/api/overview", "/api/approvals"]
    paths += [f"/api/sessions/s/steps/{index}" for index in range(5)]
    answered = 0
    for path in paths:
        status, body = proxy.get(path)
        answered += status == 200
        assert CANARY.encode() not in body, path
        assert PERSONAL.encode() not in body, path
    assert answered > len(paths) // 2


def test_what_was_taken_out_changes_no_replay(proxy: Proxy, model: Model) -> None:
    more: dict[str, Any] = {"tools": TOOLS, "metadata": {"key": PLANTED["metadata"]}, **ABOUT}
    first = chat(proxy, *HISTORY, **more)
    proxy.restart()

    again = chat(proxy, *HISTORY, **more)
    # Another key in the same place is another request, though the record shows both alike.
    other = json.loads(json.dumps(HISTORY).replace(PLANTED["user"], PLANTED["user"][::-1]))
    new = chat(proxy, *other, **more)

    assert again[1] == first[1]
    assert again[2]["x-agentstate-replay"] == "exact"
    assert "x-agentstate-replay" not in new[2]
    assert model.paid == 2


def test_tool_results_that_differ_are_forgiven_beside_secret_ones(
    proxy: Proxy, model: Model
) -> None:
    """An agent starts over: one tool says something else by now, another repeats its secret."""

    def live(clock: str) -> list[str | None]:
        history: list[Any] = [say("look at it")]
        ways: list[str | None] = []
        for _ in range(3):
            _, body, headers = chat(proxy, *history, tools=TOOLS[:1])
            ways.append(headers.get("x-agentstate-replay"))
            message = body["choices"][0]["message"]
            call_id = message["tool_calls"][0]["id"]
            history += [message, result(f"look at {PLANTED['result']} and {clock}", call_id)]
        return ways

    assert live("one") == [None, None, None]
    proxy.restart()
    assert live("two") == ["exact", "pinned", "pinned"]
    assert model.paid == 3


def test_an_answer_with_the_callers_key_is_given_once_and_kept_without(
    proxy: Proxy, model: Model
) -> None:
    _, first, _ = chat(proxy, say("echo the key"))
    _, second, headers = chat(proxy, say("echo the key"))

    assert OWN in first["choices"][0]["message"]["content"]
    assert OWN in second["choices"][0]["message"]["content"]
    assert "x-agentstate-replay" not in headers
    assert model.paid == 2
    step = json.loads(proxy.get("/api/sessions/s/steps/0")[1])
    assert "Your key is Bearer [secret:configured_key], is it not?" in json.dumps(step)


def test_a_stream_with_the_key_cut_in_two_is_given_once_and_kept_without(
    proxy: Proxy, model: Model
) -> None:
    _, first, _ = chat(proxy, say("go"), stream=True)
    _, second, headers = chat(proxy, say("go"), stream=True)

    assert OWN[:9] in first
    assert OWN[9:] in second
    assert "x-agentstate-replay" not in headers
    assert model.paid == 2
    assert OWN[9:].encode() not in proxy.get("/api/sessions/s/steps/0")[1]


@pytest.mark.parametrize("header", ["x_agent_run_id", "x_agent_call_id"])
def test_an_id_that_is_a_key_is_refused(proxy: Proxy, model: Model, header: str) -> None:
    status, body, _ = chat(proxy, say("go"), **{header: f"run-{OWN}"})
    assert status == 400
    assert header.replace("_", "-") in body["error"]["message"]
    assert OWN not in json.dumps(body)
    status, body, _ = chat(proxy, say("go"), session=OWN)
    assert status == 400
    assert model.paid == 0


def test_a_request_without_its_secrets_is_not_asked_again_unless_they_are_given(
    proxy: Proxy, model: Model
) -> None:
    chat(proxy, say(f"key {PLANTED['user']}"))

    status, refusal, _ = post(proxy, "/api/sessions/s/steps/0/rerun", {})
    assert status == 409
    assert refusal["error"]["code"] == "request_redacted"
    assert model.paid == 1

    whole = {"model": "m", "messages": [say(f"key {PLANTED['user']}")]}
    status, found, _ = post(proxy, "/api/sessions/s/steps/0/rerun", {"request": whole})
    assert status == 200, found
    assert model.received[-1].json()["messages"] == whole["messages"]
    assert PLANTED["user"].encode() not in proxy.stored_bytes()


def test_a_model_that_is_told_of_a_refusal_is_asked_with_what_the_agent_sent(
    proxy: Proxy, model: Model
) -> None:
    """While a person thinks the request is not kept in memory, unless the record lacks of it."""
    history = (say(f"Use {PLANTED['system']}.", "system"), say("delete it"))
    got: list[Any] = []
    agent = threading.Thread(target=lambda: got.append(chat(proxy, *history, tools=TOOLS)))
    agent.start()
    (row,) = wait_for_pending(proxy)
    assert decide(proxy, row["approval_id"], "REJECTED", reason="no")[0] == 200
    agent.join(30)

    assert got[0][0] == 200, got
    assert model.paid == 2
    assert model.received[-1].json()["messages"][:2] == list(history)
    # What comes later has it in its place, too, though the record knows the place without its key.
    status, _, _ = chat(proxy, *history, got[0][1]["choices"][0]["message"], say("and now?"))
    assert status == 200
    sent = model.received[-1].json()["messages"]
    assert sent[:2] == list(history)
    assert any("no" in str(each.get("content")) for each in sent if each["role"] == "tool")
