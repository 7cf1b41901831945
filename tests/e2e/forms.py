"""Answers, streams and errors of three wire forms, as an upstream sends and a client reads them.

Written to the vendors' documents and not shared with `agentstate`. A stream comes in three parts,
since what a fault means depends on where it strikes: what opens it, the content, and what ends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.dialects import samples_anthropic as anthropic
from tests.dialects import samples_responses as responses
from tests.helpers.raw_client import Reception
from tests.helpers.reading import ChatRead, is_stream, read_chat, read_events, read_messages
from tests.helpers.upstream import Reply, json_reply, sse_reply

PIECES = ("All ", "is ", "well.")
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
    path: str
    ask: Callable[[str, str], dict[str, Any]]  # (model, what is asked)
    whole: Callable[[str], dict[str, Any]]  # (model)
    streamed: Callable[[str], Streamed]
    error: Callable[[int, str], dict[str, Any]]  # (status, code)
    error_event: bytes  # the same inside a stream
    last: bytes  # the frame that ends a stream
    opens: bytes  # what stands once in every stream
    ends: bytes  # what stands in no stream that is not whole
    read: Callable[[Reception], Heard]

    def answer(self, model: str, *, streams: bool) -> Reply:
        """Return the upstream's reply when all goes well."""
        return sse_reply(self.streamed(model).frames) if streams else json_reply(self.whole(model))

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


def _chat_whole(model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": TEXT}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {**_CHAT_HEAD, "object": "chat.completion", "model": model}
    return {**head, "choices": [choice], "usage": _CHAT_USAGE}


def _chat_streamed(model: str) -> Streamed:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        head = {**_CHAT_HEAD, "object": "chat.completion.chunk", "model": model}
        return _data({**head, "choices": [choice]})

    return Streamed(
        (chunk({"role": "assistant", "content": ""}),),
        tuple(chunk({"content": piece}) for piece in PIECES),
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


def _messages_whole(model: str) -> dict[str, Any]:
    raw = anthropic.body({"type": "text", "text": TEXT}, model=model)
    whole: dict[str, Any] = json.loads(raw)
    return whole


def _messages_streamed(model: str) -> Streamed:
    begun, *deltas, stopped = anthropic.text_block(0, *PIECES)
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


def _responses_whole(model: str) -> dict[str, Any]:
    return responses.response(responses.message(responses.part(TEXT)), model=model)


def _responses_streamed(model: str) -> Streamed:
    done = responses.end(responses.message(responses.part(TEXT)), model=model)
    frames = responses.stream(*responses.text_events(0, *PIECES), done, model=model)
    first = next(at for at, frame in enumerate(frames) if b"output_text.delta" in frame)
    last = first + len(PIECES)
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


# --- all ------------------------------------------------------------------------------------------


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


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
