"""A proxy between real clients of one vendor and scripted upstreams of another.

What reaches an upstream is checked by its own vendor's schema, whatever test it is from. Providers:
`openai` and `groq` share one upstream, `anthropic` has the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.dialects import samples_anthropic as anthropic
from tests.dialects.samples import CHAT_DONE, chat_body, chat_chunk, chat_message, chat_usage_chunk
from tests.helpers import anthropic_types
from tests.helpers.openai_requests import check_chat_request
from tests.helpers.openai_schema import SCHEMAS, check
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Pair, Reception, ask
from tests.helpers.reading import read_events
from tests.helpers.upstream import Received, Reply, Upstream, json_reply, sse_reply

SESSION = "x-agent-session-id"
FALLBACK = "x-agent-fallback-model"
CLAUDE = "claude-sonnet-4-6"
GUARDED = "delete_rows"
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": CITY}}
    for name in ("get_weather", GUARDED)
]
MESSAGES_TOOLS: list[Any] = [
    {"name": name, "description": "d", "input_schema": CITY} for name in ("get_weather", GUARDED)
]

SETTINGS = """
[forward]
retries = 0
cooldown_after = 10000
[gate]
tools = ["{guarded}"]
[[provider]]
name = "openai"
base_url = "{openai_base}"
api_key = "sk-of-openai"
[[provider]]
name = "anthropic"
base_url = "{claude}"
api_key = "sk-of-anthropic"
models = ["claude-*"]
[[provider]]
name = "groq"
dialect = ["openai_chat"]
base_url = "{openai}/groq/v1"
api_key = "sk-of-groq"
"""


# --- what upstreams answer ------------------------------------------------------------------------


def tool_use(call_id: str, city: str, name: str = "get_weather") -> dict[str, Any]:
    """Return a call as Claude makes it."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"city": city}}


def claude_says(*blocks: dict[str, Any] | str, reason: str = "end_turn") -> Reply:
    """Return a whole answer of Claude's; a text stands for its block."""
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    return json_reply(json.loads(anthropic.body(*content, reason=reason, model=CLAUDE)))


def claude_streams(*blocks: tuple[bytes, ...], reason: str = "end_turn") -> Reply:
    """Return a stream of Claude's of these blocks."""
    frames = (anthropic.start(model=CLAUDE), anthropic.PING)
    whole = (*frames, *(frame for each in blocks for frame in each))
    return sse_reply((*whole, anthropic.end(reason), anthropic.STOP))


def chat_call(call_id: str, city: str, name: str = "get_weather") -> dict[str, Any]:
    """Return a call as OpenAI's models make it."""
    function = {"name": name, "arguments": json.dumps({"city": city})}
    return {"id": call_id, "type": "function", "function": function}


def gpt_says(text: str | None, *calls: dict[str, Any]) -> Reply:
    """Return a whole answer in the chat form."""
    message = chat_message(content=text, **({"tool_calls": list(calls)} if calls else {}))
    reason = "tool_calls" if calls else "stop"
    return json_reply(json.loads(chat_body({"message": message, "finish_reason": reason})))


def gpt_streams(*deltas: dict[str, Any], reason: str = "stop") -> Reply:
    """Return a stream in the chat form, with its usage."""
    opening = chat_chunk({"role": "assistant", "content": "", "refusal": None})
    chunks = (opening, *map(chat_chunk, deltas), chat_chunk({}, reason), chat_usage_chunk())
    return sse_reply((*chunks, CHAT_DONE))


def unwell(status: int = 503) -> Reply:
    """Return an error that every vendor's form takes for one."""
    error = {"type": "overloaded_error", "message": "Overloaded", "param": None, "code": None}
    return json_reply({"type": "error", "error": error}, status=status)


# --- the rig --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Rig:
    """The proxy, the upstreams behind it, and clients that talk to it."""

    proxy: Proxy
    openai: Upstream
    claude: Upstream
    _clients: list[Any] = field(default_factory=list)

    def openai_client(self, session: str | None, **headers: str) -> Any:
        """Return a client of this session (None = of none) that does not retry by itself."""
        sdk = pytest.importorskip("openai")
        return self._kept(
            sdk.OpenAI(
                base_url=self.proxy.base_url, api_key="sk-theirs", max_retries=0,
                default_headers=_named(session, headers),
            )
        )  # fmt: skip

    def anthropic_client(self, session: str | None, **headers: str) -> Any:
        """Return the same of the other vendor's."""
        sdk = pytest.importorskip("anthropic")
        return self._kept(
            sdk.Anthropic(
                base_url=self.proxy.url, api_key="sk-ant-theirs", max_retries=0,
                default_headers=_named(session, headers),
            )
        )  # fmt: skip

    def post(self, path: str, body: object, session: str | None, **headers: str) -> Reception:
        """Ask with a plain socket."""
        named = {"content-type": "application/json", **_named(session, headers)}
        pairs: list[Pair] = [(key.encode(), value.encode()) for key, value in named.items()]
        pairs.append((b"authorization", b"Bearer sk-theirs"))
        return ask(self.proxy.address, "POST", path, pairs, json.dumps(body).encode())

    def script(self, *, openai: Sequence[Reply] = (), claude: Sequence[Reply] = ()) -> None:
        """Forget all that was received, and play these."""
        self.openai.load(openai)
        self.claude.load(claude)

    def asked(self) -> tuple[int, int]:
        """Return how often each upstream was asked."""
        return len(self.openai.received), len(self.claude.received)

    def step(self, session: str) -> dict[str, Any]:
        """Return the one step of a session, whole."""
        (step,) = self.proxy.settled_steps(session)
        assert step["state"] == "complete", step
        return step

    def close(self) -> None:
        """Close the clients, and check all that went upstream."""
        while self._clients:
            self._clients.pop().close()
        for upstream in (self.openai, self.claude):
            assert upstream.unscripted == []
            for request in upstream.received:
                check_request(request)

    def _kept(self, client: Any) -> Any:
        self._clients.append(client)
        return client


@contextmanager
def started(folder: Path, *, toml: str = "", openai_base: str = "") -> Iterator[Rig]:
    """Start all of it; `toml` is more of the settings, `openai_base` in place of the upstream."""
    with Upstream() as openai, Upstream() as claude:
        settings = SETTINGS.format(
            openai=openai.url, openai_base=openai_base or f"{openai.url}/v1", claude=claude.url,
            guarded=GUARDED,
        )  # fmt: skip
        (folder / "agentstate.toml").write_text(settings + toml, encoding="utf-8")
        env = {"OPENAI_BASE_URL": "", "ANTHROPIC_BASE_URL": ""}  # the file says where they are
        with Proxy(upstream_url=openai.url, db=folder / "record.db", env=env) as proxy:
            yield Rig(proxy, openai, claude)


def _named(session: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    named = {} if session is None else {SESSION: session}
    return named | {key.replace("_", "-"): value for key, value in headers.items()}


# --- what is checked ------------------------------------------------------------------------------


def check_request(request: Received) -> None:
    """Check what an upstream received by its vendor's own schema, and whose key came with it."""
    body = request.json()
    if request.target.endswith("/chat/completions"):
        check_chat_request(body)
        assert _sides(body["messages"])
    elif request.target.endswith("/responses"):
        for item in body["input"] if isinstance(body["input"], list) else ():
            _part_of_responses("InputItem").validate(item)
    else:
        assert request.target == "/v1/messages"
        assert request.header("anthropic-version")
        check_messages_request(body)


def _sides(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether every call is answered right after the message that made it."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        waiting += [call["id"] for call in message.get("tool_calls") or ()]
    return not waiting


def check_messages_request(body: dict[str, Any]) -> None:
    """Check a request in Anthropic's form by the package's types, and by the rules for its sides:
    they alternate, and calls are answered at once, all of them and in front."""
    for tool in body.get("tools", ()):
        anthropic_types.check("ToolParam", json.dumps(tool))
    waiting: list[str] = []
    side = "assistant"
    for message in body["messages"]:
        assert message["role"] != side, "sides alternate, and the user begins"
        side = message["role"]
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks
        for block in blocks:
            anthropic_types.check("ContentBlockParam", json.dumps(block))
        results = [each["tool_use_id"] for each in blocks if each["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        assert all(each["type"] == "tool_result" for each in blocks[: len(results)])
        waiting = [each["id"] for each in blocks if each["type"] == "tool_use"]
    assert not waiting
    assert isinstance(body["max_tokens"], int)


@cache
def _part_of_responses(name: str) -> Draft202012Validator:
    whole = json.loads((SCHEMAS / "Response.json").read_text(encoding="utf-8"))
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": whole["$defs"]})


def check_chat(got: Reception) -> None:
    """Check what a client of OpenAI's gets: an answer or a stream of them."""
    assert got.status == 200, got.body
    if not str(got.header("content-type")).startswith("text/event-stream"):
        check("CreateChatCompletionResponse", got.json())
        return
    *chunks, last = read_events(got.body)
    assert last.data == "[DONE]"
    for chunk in chunks:
        check("CreateChatCompletionStreamResponse", json.loads(chunk.data))


def check_responses(got: Reception) -> None:
    """Check a response, or the events of one."""
    assert got.status == 200, got.body
    if not str(got.header("content-type")).startswith("text/event-stream"):
        check("Response", got.json())
        return
    for event in read_events(got.body):
        check("ResponseStreamEvent", json.loads(event.data))


def check_messages(got: Reception) -> None:
    """Check what a client of Anthropic's gets."""
    assert got.status == 200, got.body
    if str(got.header("content-type")).startswith("text/event-stream"):
        anthropic_types.check_stream("RawMessageStreamEvent", got.body)
    else:
        anthropic_types.check("Message", got.body)


def fields_of(value: Any, path: str = "") -> set[str]:
    """Return the paths of all fields that an object of an SDK says it was sent."""
    if isinstance(value, dict):
        paths = {f"{path}.{key}" for key in value}
        return paths.union(*(fields_of(each, f"{path}.{key}") for key, each in value.items()))
    if isinstance(value, list):
        return set().union(*(fields_of(each, f"{path}[]") for each in value))
    return set()
