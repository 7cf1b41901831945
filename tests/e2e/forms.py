"""Answers, streams and errors of five wire forms, as an upstream sends and a client reads them.

Written to the vendors' documents and not shared with `agentstate`. A stream comes in three parts,
since what a fault means depends on where it strikes: what opens it, the content, and what ends it.
Ollama's form has no client here: nobody asks us in it.
Sources: ai.google.dev/api/generate-content, google.aip.dev/193, docs.ollama.com/api/chat and
/api/errors, December 2026.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from tests.dialects import samples_anthropic as anthropic
from tests.dialects import samples_responses as responses
from tests.helpers.raw_client import Reception
from tests.helpers.reading import ChatRead, is_stream, read_chat, read_events, read_messages
from tests.helpers.upstream import Pair, Reply, json_reply

Texts = tuple[str, ...]  # what is said, in the pieces in which a stream brings it

PIECES: Texts = ("All ", "is ", "well.")
TEXT = "".join(PIECES)
REFUSED = "It did not work, says the model."


@dataclass(frozen=True, slots=True)
class Streamed:
    """A whole stream in three parts."""

    opening: tuple[bytes, ...]  # no content
    content: tuple[bytes, ...]
    ending: tuple[bytes, ...]

    @property
    def frames(self) -> tuple[bytes, ...]:
        """All of it."""
        return (*self.opening, *self.content, *self.ending)


@dataclass(frozen=True, slots=True)
class Heard:
    """What a client made of a response."""

    text: str
    is_whole: bool  # it has the end its form wants
    error: dict[str, Any] | None  # that came in place of an answer or inside it
    error_kind: str | None  # the type the form's error has


@dataclass(frozen=True, slots=True)
class Form:
    """One wire form."""

    name: str  # as the fault tables call it
    dialect: str  # as the settings call it
    own: str  # the provider whose endpoint it is
    path: str  # {model} stands for the model, where it is a part of it
    ask: Callable[[str, str], dict[str, Any]]  # (model, what is asked)
    whole: Callable[[str, Texts], dict[str, Any]]  # (model, what is said)
    streamed: Callable[[str, Texts], Streamed]
    error: Callable[[int, str], dict[str, Any]]  # (status, code)
    error_event: bytes  # the same inside a stream
    last: bytes  # the frame that ends a stream
    opens: bytes  # what stands once in every stream
    ends: bytes  # what stands in no stream that is not whole
    read: Callable[[Reception], Heard]
    stream_path: str | None = None  # where a stream is asked for; None = where the rest is
    stream_type: bytes = b"text/event-stream"
    half: bytes = (
        b'data: {"choices": [{"delt\n\n'  # what is cut inside and looks like the end of it
    )
    # The status that an error means which came after a 200; not every form has a place for it.
    error_status: int = 500

    def answer(self, model: str, *, streams: bool, says: Texts = PIECES) -> Reply:
        """Return the upstream's reply when all goes well."""
        if not streams:
            return json_reply(self.whole(model, says))
        frames = self.streamed(model, says).frames
        return Reply(headers=(self.stream_header,), chunks=frames, framing="chunked")

    @property
    def stream_header(self) -> Pair:
        """What a stream says it is."""
        return (b"content-type", self.stream_type)

    def endpoint(self, model: str, *, streams: bool) -> str:
        """Return the path that is asked."""
        path = self.stream_path if streams and self.stream_path else self.path
        return path.replace("{model}", model)

    def refusal(self, status: int, code: str = "", **headers: str) -> Reply:
        """Return an error response."""
        reply = json_reply(self.error(status, code), status=status)
        told = tuple((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items())
        return Reply(reply.status, (*reply.headers, *told), reply.chunks)


# --- chat -----------------------------------------------------------------------------------------

_CHAT_HEAD = {"id": "chatcmpl-1", "created": 1_767_225_600}
_CHAT_USAGE = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}


def _chat_ask(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def _chat_whole(model: str, says: Texts) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(says)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {**_CHAT_HEAD, "object": "chat.completion", "model": model}
    return {**head, "choices": [choice], "usage": _CHAT_USAGE}


def _chat_streamed(model: str, says: Texts) -> Streamed:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        head = {**_CHAT_HEAD, "object": "chat.completion.chunk", "model": model}
        return _data({**head, "choices": [choice]})

    return Streamed(
        (chunk({"role": "assistant", "content": ""}),),
        tuple(chunk({"content": piece}) for piece in says),
        (chunk({}, "stop"), b"data: [DONE]\n\n"),
    )


def _openai_error(status: int, code: str) -> dict[str, Any]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": REFUSED, "type": kind, "param": None, "code": code or None}}


def _read_chat(got: Reception) -> Heard:
    read = read_chat(got.header("content-type"), got.body)
    is_ended = read.done or not is_stream(got.header("content-type"))
    return _heard(read, is_whole=is_ended and read.first.finish_reason is not None)


# --- messages -------------------------------------------------------------------------------------


def _messages_ask(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": text}]}


def _messages_whole(model: str, says: Texts) -> dict[str, Any]:
    raw = anthropic.body({"type": "text", "text": "".join(says)}, model=model)
    whole: dict[str, Any] = json.loads(raw)
    return whole


def _messages_streamed(model: str, says: Texts) -> Streamed:
    begun, *deltas, stopped = anthropic.text_block(0, *says)
    return Streamed(
        (anthropic.start(model=model), anthropic.PING, begun),
        tuple(deltas),
        (stopped, anthropic.end(), anthropic.STOP),
    )


_MESSAGES_KINDS = {429: "rate_limit_error", 529: "overloaded_error"}


def _messages_error(status: int, code: str) -> dict[str, Any]:
    rest = "api_error" if status >= 500 else "invalid_request_error"
    error: dict[str, Any] = {"type": _MESSAGES_KINDS.get(status, rest), "message": REFUSED}
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error}


def _read_messages(got: Reception) -> Heard:
    read = read_messages(got.header("content-type"), got.body)
    is_ended = read.done or not is_stream(got.header("content-type"))
    return _heard(read, is_whole=is_ended and read.first.finish_reason is not None)


# --- responses ------------------------------------------------------------------------------------


def _responses_ask(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "input": text, "store": False}


def _responses_whole(model: str, says: Texts) -> dict[str, Any]:
    return responses.response(responses.message(responses.part("".join(says))), model=model)


def _responses_streamed(model: str, says: Texts) -> Streamed:
    done = responses.end(responses.message(responses.part("".join(says))), model=model)
    frames = responses.stream(*responses.text_events(0, *says), done, model=model)
    first = next(at for at, frame in enumerate(frames) if b"output_text.delta" in frame)
    last = first + len(says)
    return Streamed(frames[:first], frames[first:last], frames[last:])


def _read_responses(got: Reception) -> Heard:
    if not is_stream(got.header("content-type")):
        whole = json.loads(got.body)
        parts = [p for item in whole.get("output", []) for p in item.get("content", [])]
        text = "".join(part["text"] for part in parts)
        error = whole.get("error")
        is_whole = whole.get("status") == "completed"
        return Heard(text, is_whole, error, error and error["type"])
    events = [json.loads(event.data) for event in read_events(got.body)]
    text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    error = next((e for e in events if e["type"] in ("error", "response.failed")), None)
    is_whole = bool(events) and events[-1]["type"] == "response.completed"
    return Heard(text, is_whole, error, error and error["type"])


# --- gemini ---------------------------------------------------------------------------------------

_GEMINI_USAGE = {"promptTokenCount": 20, "candidatesTokenCount": 7, "totalTokenCount": 27}
_GEMINI_KINDS = {408: "DEADLINE_EXCEEDED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
DELAYED_S = 1


def _gemini_ask(model: str, text: str) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": text}]}]}


def _gemini_chunk(model: str, text: str, **more: Any) -> dict[str, Any]:
    """Return a GenerateContentResponse; an index of 0 is left out, as in all of proto's JSON."""
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, **more}
    usage = _GEMINI_USAGE if more else {"promptTokenCount": 20, "totalTokenCount": 20}
    head = {"modelVersion": model, "responseId": "tTCwacuEBMvnitYP06qsgQY"}
    return {"candidates": [candidate], "usageMetadata": usage, **head}


def _gemini_whole(model: str, says: Texts) -> dict[str, Any]:
    return _gemini_chunk(model, "".join(says), finishReason="STOP")


def _gemini_streamed(model: str, says: Texts) -> Streamed:
    """The end of the body is the end of the stream; what goes before it has the reason."""
    return Streamed(
        (_data(_gemini_chunk(model, "")),),
        tuple(_data(_gemini_chunk(model, piece)) for piece in says),
        (_data(_gemini_chunk(model, "", finishReason="STOP")),),
    )


def _gemini_error(status: int, code: str) -> dict[str, Any]:
    rest = "UNAVAILABLE" if status >= 500 else "INVALID_ARGUMENT"
    error: dict[str, Any] = {
        "code": status, "message": REFUSED, "status": _GEMINI_KINDS.get(status, rest)
    }  # fmt: skip
    if code:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": code, "domain": "googleapis.com"}]
    return {"error": error}


def delayed_refusal() -> Reply:
    """Return how Google says when to come back: in the body, and nowhere else."""
    told = _gemini_error(429, "")
    kind = "type.googleapis.com/google.rpc.RetryInfo"
    told["error"]["details"] = [{"@type": kind, "retryDelay": f"{DELAYED_S}s"}]
    return json_reply(told, status=429)


def _read_gemini(got: Reception) -> Heard:
    if is_stream(got.header("content-type")):
        chunks = [json.loads(event.data) for event in read_events(got.body)]
    else:
        chunks = [json.loads(got.body)]
    candidates = [each for chunk in chunks for each in chunk.get("candidates", [])]
    parts = [part for each in candidates for part in each.get("content", {}).get("parts", [])]
    error = next((chunk["error"] for chunk in chunks if "error" in chunk), None)
    is_whole = error is None and any(each.get("finishReason") == "STOP" for each in candidates)
    text = "".join(part["text"] for part in parts)
    return Heard(text, is_whole, error, error and error["status"])


# --- ollama ---------------------------------------------------------------------------------------

_OLLAMA_COUNTS = {
    "total_duration": 4_883_583_458, "load_duration": 1_334_875, "prompt_eval_count": 20,
    "prompt_eval_duration": 342_546_000, "eval_count": 7, "eval_duration": 4_535_599_000,
}  # fmt: skip
_OLLAMA_DONE = {"done_reason": "stop", "done": True, **_OLLAMA_COUNTS}


def _ollama_object(model: str, text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"model": model, "created_at": "2026-12-01T08:52:19.385406Z", "message": message, **more}


def _ollama_whole(model: str, says: Texts) -> dict[str, Any]:
    return _ollama_object(model, "".join(says), **_OLLAMA_DONE)


def _ollama_streamed(model: str, says: Texts) -> Streamed:
    return Streamed(
        (_line(_ollama_object(model, "", done=False)),),
        tuple(_line(_ollama_object(model, piece, done=False)) for piece in says),
        (_line(_ollama_object(model, "", **_OLLAMA_DONE)),),
    )


def _ollama_error(status: int, code: str) -> dict[str, Any]:
    return {"error": REFUSED}


def _nobody_asks(*_: object) -> NoReturn:
    raise AssertionError("no client speaks Ollama's form with us")


# --- all ------------------------------------------------------------------------------------------


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _heard(read: ChatRead, *, is_whole: bool) -> Heard:
    kind = None if read.error is None else read.error["type"]
    return Heard(read.first.text, is_whole, read.error, kind)


CHAT = Form(
    "chat", "openai_chat", "openai", "/v1/chat/completions",
    _chat_ask, _chat_whole, _chat_streamed, _openai_error,
    _data(_openai_error(500, "")),
    b"data: [DONE]\n\n", b'"role"', b"[DONE]",
    _read_chat,
)  # fmt: skip
MESSAGES = Form(
    "messages", "anthropic_messages", "anthropic", "/v1/messages",
    _messages_ask, _messages_whole, _messages_streamed, _messages_error,
    anthropic.event(**{**_messages_error(500, ""), "kind": "error"}),
    anthropic.STOP, b"event: message_start\n", b"message_stop",
    _read_messages,
)  # fmt: skip
RESPONSES = Form(
    "responses", "openai_responses", "openai", "/v1/responses",
    _responses_ask, _responses_whole, _responses_streamed, _openai_error,
    responses.event("error", 2, code="server_error", message=REFUSED, param=None),
    responses.event(
        "response.completed", 2, response={"id": "resp_1", "status": "completed", "output": []}
    ),
    b"event: response.created\n", b"response.completed",
    _read_responses,
)  # fmt: skip

GEMINI = Form(
    "gemini", "gemini", "gemini", "/v1beta/models/{model}:generateContent",
    _gemini_ask, _gemini_whole, _gemini_streamed, _gemini_error,
    _data(_gemini_error(500, "")),
    _data(_gemini_chunk("gemini", "", finishReason="STOP")),
    b'"finishReason"', b'"finishReason"',
    _read_gemini,
    stream_path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
)  # fmt: skip
OLLAMA = Form(
    "ollama", "ollama_chat", "ollama", "/api/chat",
    _nobody_asks, _ollama_whole, _ollama_streamed, _ollama_error,
    _line(_ollama_error(500, "")),
    _line(_ollama_object("ollama", "", **_OLLAMA_DONE)),
    b'"role"', b'"done": true',
    _nobody_asks,
    stream_type=b"application/x-ndjson",
    half=b'{"model": "ollama", "mess\n',
    error_status=502,  # it is a text and no more
)  # fmt: skip

# (caller's form, form of the target that is tried)
PAIRS: tuple[tuple[Form, Form], ...] = (
    (CHAT, CHAT),
    (MESSAGES, MESSAGES),
    (RESPONSES, RESPONSES),
    (CHAT, MESSAGES),
    (MESSAGES, CHAT),
    (RESPONSES, CHAT),
    (RESPONSES, MESSAGES),
    (CHAT, RESPONSES),
    (MESSAGES, RESPONSES),
)
# Each form has one reader and one writer, which any pair puts together; so it is these that the
# rest of the pairs proves, with fewer faults.
FURTHER: tuple[tuple[Form, Form], ...] = (
    (GEMINI, GEMINI),
    (CHAT, GEMINI),
    (MESSAGES, GEMINI),
    (RESPONSES, GEMINI),
    (CHAT, OLLAMA),
    (MESSAGES, OLLAMA),
    (RESPONSES, OLLAMA),
    (GEMINI, CHAT),
    (GEMINI, MESSAGES),
    (GEMINI, RESPONSES),
    (GEMINI, OLLAMA),
)
