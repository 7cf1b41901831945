"""The mock provider: an upstream that answers by itself, in-process, offline and free.

A `Transport` like the h11 client, so that forward, checkpoint and replay do with it exactly what
they do with a real one. Every answer says that it is a mock, in a header and, where there is room
for it, in the text. What it says is `mock_model.py`; here are the wire forms (`_ROWS`: a new one is
one function and one row) and the faults, which a model's name asks for:

    mock/429            429 with Retry-After          mock/cut        stops in the middle
    mock/500            500                           mock/flaky-3    500 three times per request
    mock/timeout        never sends a byte            mock/slow-250ms takes that long; a stream
    mock/anything       an ordinary answer                            is spread over it

The one invariant: the same request gets the same bytes, ids and `created` included, whatever the
time, the process, or the calls before it (`flaky` alone remembers, and only to fail first).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import math
import re
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from agentstate.ground.canonical import JSON, OFF_LOOP_BYTES, canonical, digest, encode, parse
from agentstate.ground.chat import Choice, ToolCall, Usage
from agentstate.ground.errors import (
    BadRequest,
    ClientError,
    MethodNotAllowed,
    NotFound,
    TooLarge,
    UpstreamCut,
    UpstreamProtocol,
    UpstreamTimeout,
    shorten,
)
from agentstate.house.mock_model import Prompt, Tool, count_tokens, count_usage, think
from agentstate.wire.message import Headers, Origin, OutCall, Pair, TimeLimits, split_target

PROVIDER = "mock"
BODY_BYTES_MAX = 64 * 1024 * 1024  # as the server's own default for a recorded call
CHOICES_MAX = 128  # OpenAI's bound of n
TOOLS_MAX = 128  # OpenAI's bound of tools
INPUTS_MAX = 2048  # OpenAI's bound of inputs in one embeddings call
DIMENSIONS = 256  # of an embedding, where the request names none
DIMENSIONS_MAX = 3072  # of OpenAI's largest embedding model
PIECE_CHARS = 24  # of text in one chunk of a stream: several chunks even for one sentence
FLAKY_KEPT_MAX = 1024  # requests whose failures are remembered; the oldest is forgotten
RETRY_AFTER_S = 1  # what mock/429 asks for: visible, and short enough for a demo
CREATED_S = 1_767_225_600  # 2026-01-01: `created` lies in the hundred days after it
CREATED_SPAN_S = 8_640_000

Sleep = Callable[[float], Awaitable[None]]


class MockProvider:
    """Answers calls to the mock. `sleep` stands in for time in tests."""

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._failed: OrderedDict[bytes, int] = OrderedDict()

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """Do nothing: there is nothing to connect to."""

    async def send(self, call: OutCall, limits: TimeLimits) -> MockExchange:
        """Answer the call.

        Raises:
            UpstreamTimeout: the model's name asks for a longer wait than `limits` allow.
        """
        try:
            body = call.body if isinstance(call.body, bytes) else await _gather(call.body)
            if len(body) < OFF_LOOP_BYTES:
                reply = answer(call.method, call.target, body)
            else:
                reply = await asyncio.to_thread(answer, call.method, call.target, body)
        except ClientError as error:
            reply = _refuse(error)
        wait = _Wait(limits, self._sleep)
        fault = reply.fault
        if fault.kind == "timeout":
            await wait.pause(math.inf, "first_byte")
        elif fault.kind == "status" or (fault.kind == "flaky" and self._fails(reply.key, fault)):
            reply = _fail(fault.number if fault.kind == "status" else 500)
        elif fault.kind == "slow" and not reply.streams:
            await wait.pause(fault.number / 1000, "first_byte")
        return MockExchange(reply, wait)

    async def close(self) -> None:
        """Forget what failed before."""
        self._failed.clear()

    def _fails(self, key: bytes, fault: Fault) -> bool:
        """Say whether a flaky model fails this request once more, and count it."""
        failed = self._failed.pop(key, 0)
        self._failed[key] = min(failed + 1, fault.number)
        if len(self._failed) > FLAKY_KEPT_MAX:
            self._failed.popitem(last=False)
        return failed < fault.number


class MockExchange:
    """One answer on its way. Its body can be taken once, as a real one."""

    def __init__(self, reply: Reply, wait: _Wait) -> None:
        self.status = reply.status
        self.headers = Headers(_headers(reply))
        self._reply = reply
        self._wait = wait
        self._left = iter(reply.pieces)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body, one frame at a time for a stream."""
        fault, pieces = self._reply.fault, self._reply.pieces
        is_cut = fault.kind == "cut"
        pause_s = fault.number / 1000 / len(pieces) if fault.kind == "slow" else 0.0
        kept = len(pieces) // 2 if is_cut and self._reply.streams else len(pieces)
        for piece in itertools.islice(self._left, kept):
            if pause_s and self._reply.streams:
                await self._wait.pause(pause_s, "gap")
            yield piece[: len(piece) // 2] if is_cut and not self._reply.streams else piece
        if is_cut:
            raise UpstreamCut(
                "The mock model stopped in the middle of its answer, as mock/cut asks for.",
                provider=PROVIDER,
            )

    async def read(self, bytes_max: int) -> bytes:
        """Read the whole body.

        Raises:
            UpstreamProtocol: it is longer than `bytes_max`.
        """
        body = bytearray()
        async for piece in self.chunks():
            body += piece
            if len(body) > bytes_max:
                raise UpstreamProtocol(
                    f"The mock's answer is longer than the {bytes_max} bytes allowed.",
                    provider=PROVIDER,
                )
        return bytes(body)

    async def close(self) -> None:
        """Drop what was not taken."""
        self._left = iter(())


@dataclass(frozen=True, slots=True)
class Fault:
    """What a model's name asks to go wrong."""

    kind: str = "none"  # none | status | timeout | cut | flaky | slow
    number: int = 0  # the status, the number of failures, or milliseconds


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, before its fault is played."""

    status: int
    pieces: tuple[bytes, ...]  # frames of a stream, else one body
    key: bytes  # digest of the request
    streams: bool = False
    fault: Fault = Fault()
    headers: tuple[Pair, ...] = ()


def answer(method: str, target: bytes, body: bytes) -> Reply:
    """Answer a request. Pure.

    Raises:
        ClientError: the request is wrong in a way that a provider answers with 4xx.
    """
    path, _ = split_target(target)
    if (row := _ROWS.get(path)) is None:
        raise NotFound(
            f"The mock provider has no {shorten(method)} {shorten(path)}; it has "
            f"{', '.join(_ROWS)}. Name a real provider for anything else."
        )
    allowed, make = row
    if method != allowed:
        raise MethodNotAllowed(f"{path} takes {allowed}; this was {shorten(method)}.")
    if allowed == "GET":
        return make({}, digest(path.encode()))
    asked = parse(body)
    if not isinstance(asked, dict):
        raise BadRequest(f"The body must be a JSON object; it is {shorten(asked)}.")
    lasting = {key: value for key, value in asked.items() if key not in _SHOWS_ONLY}
    return make(asked, digest(path.encode(), canonical(lasting)))


def read_fault(model: str) -> Fault:
    """Read what a model's name asks to go wrong, with or without its provider's prefix."""
    name = model.removeprefix("mock/")
    if name in _STATUSES:
        return Fault("status", int(name))
    if name in ("timeout", "cut"):
        return Fault(name)
    if match := re.fullmatch(r"(flaky)-(\d{1,3})|(slow)-(\d{1,6})ms", name):
        kind, number = match[1] or match[3], match[2] or match[4]
        return Fault(kind, int(number))
    return Fault()


def _chat(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/chat/completions."""
    model = _text(asked, "model")
    prompt = _read_chat_prompt(asked, key)
    choices = think(prompt, _whole(asked, "n", 1, CHOICES_MAX))
    usage = _usage(count_usage(prompt, choices))
    streams = asked.get("stream") is True
    head: dict[str, JSON] = {
        "id": f"chatcmpl-mock-{key.hex()[:24]}",
        "object": "chat.completion.chunk" if streams else "chat.completion",
        "created": _created(key),
        "model": model,
        "system_fingerprint": "fp_agentstate_mock",
    }
    if not streams:
        whole = {**head, "choices": [_chat_choice(choice) for choice in choices], "usage": usage}
        return Reply(200, (encode(whole),), key, False, read_fault(model))
    chunks: list[JSON] = [{**head, "choices": [delta]} for delta in _chat_deltas(choices)]
    if _includes_usage(asked):
        chunks.append({**head, "choices": [], "usage": usage})
    return Reply(200, _frames(chunks), key, True, read_fault(model))


def _completions(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/completions."""
    model = _text(asked, "model")
    given = asked.get("prompt")
    prompt = Prompt(
        seed=key,
        text=given if isinstance(given, str) else canonical(given).decode("ascii"),
        tokens_max=_maybe_whole(asked, "max_tokens"),
        input_tokens=count_tokens(given),
    )
    choices = think(prompt, _whole(asked, "n", 1, CHOICES_MAX))
    usage = _usage(count_usage(prompt, choices))
    head: dict[str, JSON] = {
        "id": f"cmpl-mock-{key.hex()[:24]}",
        "object": "text_completion",
        "created": _created(key),
        "model": model,
        "system_fingerprint": "fp_agentstate_mock",
    }
    rows: list[dict[str, JSON]] = [
        {"index": choice.index, "text": choice.text, "logprobs": None,
         "finish_reason": choice.finish_reason}
        for choice in choices
    ]  # fmt: skip
    if asked.get("stream") is not True:
        whole = {**head, "choices": list[JSON](rows), "usage": usage}
        return Reply(200, (encode(whole),), key, False, read_fault(model))
    chunks: list[JSON] = []
    for row in rows:
        pieces = _cut_pieces(str(row["text"]))
        for number, piece in enumerate(pieces, 1):
            reason = row["finish_reason"] if number == len(pieces) else None
            chunks.append({**head, "choices": [{**row, "text": piece, "finish_reason": reason}]})
    if _includes_usage(asked):
        chunks.append({**head, "choices": [], "usage": usage})
    return Reply(200, _frames(chunks), key, True, read_fault(model))


def _embeddings(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/embeddings: vectors of length 1, the same for the same input."""
    model = _text(asked, "model")
    given = asked.get("input")
    # A list of strings or of token lists is many inputs; a list of integers is one.
    is_many = isinstance(given, list) and not any(isinstance(item, int) for item in given)
    inputs: list[JSON] = given if isinstance(given, list) and is_many else [given]
    if not 1 <= len(inputs) <= INPUTS_MAX or given in (None, ""):
        raise BadRequest(
            f"input must be text, or 1 to {INPUTS_MAX} of them; it is {shorten(given)}.",
            param="input",
        )
    dimensions = _whole(asked, "dimensions", DIMENSIONS, DIMENSIONS_MAX)
    as_base64 = asked.get("encoding_format") == "base64"
    data: list[JSON] = []
    for index, item in enumerate(inputs):
        vector = _embed(canonical(item), dimensions)
        shown: JSON = list[JSON](vector)
        if as_base64:
            shown = base64.b64encode(struct.pack(f"<{dimensions}f", *vector)).decode("ascii")
        data.append({"object": "embedding", "index": index, "embedding": shown})
    tokens = count_tokens(given)
    whole: JSON = {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return Reply(200, (encode(whole),), key, False, read_fault(model))


def _models(_: dict[str, JSON], key: bytes) -> Reply:
    """Answer GET /v1/models: an ordinary model and one of each fault."""
    names = ("anything", *_STATUSES, "timeout", "cut", "flaky-3", "slow-250ms")
    data: list[JSON] = [
        {"id": f"mock/{name}", "object": "model", "created": CREATED_S, "owned_by": "agentstate"}
        for name in names
    ]
    return Reply(200, (encode({"object": "list", "data": data}),), key)


# Path → (method, what answers it).
_ROWS: dict[str, tuple[str, Callable[[dict[str, JSON], bytes], Reply]]] = {
    "/v1/chat/completions": ("POST", _chat),
    "/v1/completions": ("POST", _completions),
    "/v1/embeddings": ("POST", _embeddings),
    "/v1/models": ("GET", _models),
}

# Fields that say how an answer is shown, not what it is: both forms carry the same id.
_SHOWS_ONLY = frozenset(("stream", "stream_options"))

# Status → (type, code, message) in OpenAI's error form.
_STATUSES: dict[str, tuple[str, str, str]] = {
    "429": ("requests", "rate_limit_exceeded", "The mock is over its rate limit: mock/429."),
    "500": ("server_error", "internal_error", "The mock failed: mock/500 and mock/flaky-N ask so."),
}


def _read_chat_prompt(asked: dict[str, JSON], key: bytes) -> Prompt:
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest(
            f"messages must be a list of one message or more; it is {shorten(messages)}.",
            param="messages",
        )
    text, heard, called = "", None, set[str]()
    for message in messages:
        if not isinstance(message, dict):
            raise BadRequest("Each of messages must be an object.", param="messages")
        match message.get("role"):
            case "user":
                text, heard, called = _read_content(message), None, set()
            case "tool" | "function":
                heard = _read_content(message)
            case "assistant":
                called.update(_list_called(message))
    tokens_max = _maybe_whole(asked, "max_completion_tokens")
    return Prompt(
        seed=key,
        text=text,
        heard=heard,
        called=frozenset(called),
        tools=_read_tools(asked.get("tools")),
        tool_choice=_read_tool_choice(asked.get("tool_choice")),
        calls_max=1 if asked.get("parallel_tool_calls") is False else TOOLS_MAX,
        schema=_read_schema(asked.get("response_format")),
        tokens_max=_maybe_whole(asked, "max_tokens") if tokens_max is None else tokens_max,
        input_tokens=count_tokens([asked["messages"], asked.get("tools")]),
    )


def _read_content(message: dict[str, JSON]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _list_called(message: dict[str, JSON]) -> Iterator[str]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(name := function.get("name"), str):
            yield name


def _read_tools(tools: JSON) -> tuple[Tool, ...]:
    found: list[Tool] = []
    for tool in (tools if isinstance(tools, list) else [])[:TOOLS_MAX]:
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(name := function.get("name"), str):
            found.append(Tool(name, function.get("parameters")))
    return tuple(found)


def _read_tool_choice(choice: JSON) -> str:
    if isinstance(choice, dict) and isinstance(function := choice.get("function"), dict):
        return f"={function.get('name')}"
    return choice if isinstance(choice, str) else "auto"


def _read_schema(form: JSON) -> JSON:
    """Return the schema the answer must fit; None = prose."""
    if not isinstance(form, dict):
        return None
    if form.get("type") == "json_object":
        mock: JSON = {"const": "This is AgentState's mock model; no real model was asked."}
        return {"type": "object", "properties": {"mock": mock, "answer": {"type": "string"}}}
    given = form.get("json_schema")
    return given.get("schema", {}) if isinstance(given, dict) else None


def _chat_choice(choice: Choice) -> JSON:
    message: dict[str, JSON] = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.tool_calls:
        message["content"] = None
        message["tool_calls"] = [_chat_call(call) for call in choice.tool_calls]
    return {
        "index": choice.index,
        "message": message,
        "logprobs": None,
        "finish_reason": choice.finish_reason,
    }


def _chat_call(call: ToolCall) -> dict[str, JSON]:
    function: JSON = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": call.kind, "function": function}


def _chat_deltas(choices: Iterable[Choice]) -> Iterator[JSON]:
    """Yield the choices of a stream's chunks, all choices side by side as real ones come."""
    lanes = [_chat_lane(choice) for choice in choices]
    for row in itertools.zip_longest(*lanes):
        yield from (delta for delta in row if delta is not None)


def _chat_lane(choice: Choice) -> Iterator[JSON]:
    def chunk(delta: JSON, reason: str | None = None) -> JSON:
        return {
            "index": choice.index,
            "delta": delta,
            "logprobs": None,
            "finish_reason": reason,
        }

    content = None if choice.tool_calls else ""
    yield chunk({"role": "assistant", "content": content, "refusal": None})
    for piece in _cut_pieces(choice.text) if choice.text else ():
        yield chunk({"content": piece})
    for call in choice.tool_calls:
        opened = _chat_call(replace(call, arguments=""))
        yield chunk({"tool_calls": [{"index": call.position, **opened}]})
        for piece in _cut_pieces(call.arguments):
            more: JSON = {"index": call.position, "function": {"arguments": piece}}
            yield chunk({"tool_calls": [more]})
    yield chunk({}, choice.finish_reason)


class _Wait:
    """Plays waiting against a call's time limits, as a real connection would meet them."""

    def __init__(self, limits: TimeLimits, sleep: Sleep) -> None:
        self._limits = limits
        self._sleep = sleep
        self._waited_s = 0.0

    async def pause(self, pause_s: float, limit: str) -> None:
        """Wait, or raise `UpstreamTimeout` when `limit` (first_byte or gap) or total is up."""
        limit_s = self._limits.first_byte_s if limit == "first_byte" else self._limits.gap_s
        allowed_s = limit_s or math.inf
        if self._limits.total_s and self._limits.total_s - self._waited_s < allowed_s:
            limit, allowed_s = "total", self._limits.total_s - self._waited_s
        if pause_s > allowed_s:
            await self._sleep(allowed_s)
            raise UpstreamTimeout(
                f"The mock model sent nothing within the {limit} limit ({allowed_s:g} s).",
                limit=limit,
                provider=PROVIDER,
            )
        self._waited_s += pause_s
        await self._sleep(pause_s)


async def _gather(body: AsyncIterator[bytes]) -> bytes:
    gathered = bytearray()
    async for piece in body:
        gathered += piece
        if len(gathered) > BODY_BYTES_MAX:
            raise TooLarge(f"The mock provider reads at most {BODY_BYTES_MAX} bytes.")
    return bytes(gathered)


def _headers(reply: Reply) -> list[Pair]:
    kind = b"text/event-stream; charset=utf-8" if reply.streams else b"application/json"
    headers: list[Pair] = [
        (b"content-type", kind),
        (b"x-agentstate-mock", b"true"),
        (b"x-request-id", b"req_mock_" + reply.key.hex()[:24].encode("ascii")),
    ]
    if not reply.streams:
        headers.append((b"content-length", b"%d" % sum(map(len, reply.pieces))))
    return [*headers, *reply.headers]


def _fail(status: int) -> Reply:
    kind, code, message = _STATUSES[str(status)]
    body: JSON = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    waits: tuple[Pair, ...] = ((b"retry-after", b"%d" % RETRY_AFTER_S),) if status == 429 else ()
    return Reply(status, (encode(body),), digest(b"%d" % status), headers=waits)


def _refuse(error: ClientError) -> Reply:
    fields: JSON = {
        "message": error.message,
        "type": "invalid_request_error",
        "param": error.param,
        "code": error.code,
    }
    body = encode({"error": fields})
    return Reply(error.status, (body,), digest(body))


def _frames(chunks: Iterable[JSON]) -> tuple[bytes, ...]:
    frames = [b"data: " + encode(chunk) + b"\n\n" for chunk in chunks]
    return (*frames, b"data: [DONE]\n\n")


def _cut_pieces(text: str) -> list[str]:
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)] or [""]


def _includes_usage(asked: dict[str, JSON]) -> bool:
    options = asked.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _usage(usage: Usage) -> JSON:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _created(key: bytes) -> int:
    return CREATED_S + int.from_bytes(key[:4]) % CREATED_SPAN_S


def _embed(seed: bytes, dimensions: int) -> list[float]:
    """Make a vector of length 1 out of a hash: equal inputs agree, others are near orthogonal."""
    raw = hashlib.shake_256(seed).digest(2 * dimensions)
    values = [number / 32768 for number in struct.unpack(f"<{dimensions}h", raw)]
    norm = math.hypot(*values) or 1.0
    return [round(value / norm, 8) for value in values]


def _text(asked: dict[str, JSON], field: str) -> str:
    value = asked.get(field)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{field} must be text; it is {shorten(value)}.", param=field)
    return value


def _maybe_whole(asked: dict[str, JSON], field: str) -> int | None:
    """Read a positive whole number; None = it is absent or null."""
    value = asked.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(
            f"{field} must be a whole number from 1; it is {shorten(value)}.", param=field
        )
    return value


def _whole(asked: dict[str, JSON], field: str, default: int, most: int) -> int:
    value = _maybe_whole(asked, field)
    if value is not None and value > most:
        raise BadRequest(f"{field} may be {most} at most; it is {shorten(value)}.", param=field)
    return default if value is None else value
