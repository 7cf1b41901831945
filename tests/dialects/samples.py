"""Recorded answers and requests of each dialect, for the contract: one row a dialect.

A new dialect adds its row to `SAMPLES`; `contract.py` does the rest. Streams and bodies are
complete answers as a good upstream would send them; the oddities of single upstreams belong into
the dialect's own tests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agentstate.ground.canonical import JSON


@dataclass(frozen=True, slots=True)
class Samples:
    """What the contract needs to know of one dialect."""

    ask: dict[str, JSON]  # a request with system text, a tool result, and the list that grows
    model: str  # that it asks for
    clock: str  # a part of its system text
    result: str  # the content of its tool result
    uncounted: dict[str, JSON]  # fields that never change an answer
    streams: dict[str, tuple[bytes, ...]]  # frames by the name of what they show
    bodies: dict[str, bytes]
    error_stream: tuple[bytes, ...]  # begins like an answer, then the upstream's error
    error_body: bytes  # of an HTTP error, or inside a 200
    unknown: str  # a field nobody knows, which is in some stream and some body


def _event(data: JSON) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


CHAT_HEAD: dict[str, Any] = {
    "id": "chatcmpl-1",
    "created": 1700000000,
    "model": "gpt-4o-mini-2024-07-18",
    "service_tier": "default",
    "system_fingerprint": "fp_1",
}
CHAT_USAGE: dict[str, Any] = {
    "prompt_tokens": 20,
    "completion_tokens": 7,
    "total_tokens": 27,
    "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
CHAT_DONE = b"data: [DONE]\n\n"
CHAT_LOGPROB: dict[str, Any] = {
    "token": "Hi", "logprob": -0.00012345678901234567, "bytes": [72, 105], "top_logprobs": [],
}  # fmt: skip


def chat_chunk(
    delta: dict[str, Any], finish_reason: str | None = None, index: int = 0, **choice: Any
) -> bytes:
    """Render one chunk with one choice."""
    fields = {"index": index, "delta": delta, "finish_reason": finish_reason, **choice}
    return _event({**CHAT_HEAD, "object": "chat.completion.chunk", "choices": [fields]})


def chat_usage_chunk() -> bytes:
    """Render the chunk that a stream ends with when usage was asked for."""
    head = {**CHAT_HEAD, "object": "chat.completion.chunk"}
    return _event({**head, "choices": [], "usage": CHAT_USAGE})


def chat_body(*choices: dict[str, Any], **fields: Any) -> bytes:
    """Render a body from choices that have at least a message and a finish reason."""
    whole = [{"index": at, "logprobs": None, **choice} for at, choice in enumerate(choices)]
    head = {**CHAT_HEAD, "object": "chat.completion"}
    return json.dumps({**head, "choices": whole, "usage": CHAT_USAGE, **fields}).encode()


def chat_message(**fields: Any) -> dict[str, Any]:
    """Return an assistant message that the strict schema takes."""
    return {"role": "assistant", "content": None, "refusal": None, **fields}


def call_delta(index: int, arguments: str, call_id: str = "", name: str = "") -> dict[str, Any]:
    """Return one piece of a function call, its head if it has an id."""
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    head: dict[str, Any] = {"id": call_id, "type": "function"} if call_id else {}
    return {"index": index, **head, "function": function}


_CHAT_OPENING = chat_chunk({"role": "assistant", "content": "", "refusal": None})

_CHAT_STREAMS: dict[str, tuple[bytes, ...]] = {
    "text": (
        _CHAT_OPENING,
        chat_chunk({"content": "Hi "}),
        chat_chunk({"content": "there \U0001f600"}),
        chat_chunk({}, "stop"),
        CHAT_DONE,
    ),
    "usage": (
        _CHAT_OPENING,
        chat_chunk({"content": "Hi"}),
        chat_chunk({}, "stop"),
        chat_usage_chunk(),
        CHAT_DONE,
    ),
    "no [DONE]": (_CHAT_OPENING, chat_chunk({"content": "Hi"}), chat_chunk({}, "length")),
    "one chunk": (chat_chunk({"role": "assistant", "content": "Hi"}, "stop"), CHAT_DONE),
    "tool calls": (
        chat_chunk({"role": "assistant", "content": None}),
        chat_chunk({"tool_calls": [call_delta(0, "", "call_1", "get_weather")]}),
        chat_chunk({"tool_calls": [call_delta(0, '{"city":')]}),
        chat_chunk({"tool_calls": [call_delta(1, "", "call_2", "send_email")]}),
        chat_chunk({"tool_calls": [call_delta(0, '"Oslo"}'), call_delta(1, "{}")]}),
        chat_chunk({}, "tool_calls"),
        CHAT_DONE,
    ),
    "legacy function call": (
        chat_chunk({"role": "assistant", "content": None}),
        chat_chunk({"function_call": {"name": "get_weather", "arguments": ""}}),
        chat_chunk({"function_call": {"arguments": "{}"}}),
        chat_chunk({}, "function_call"),
        CHAT_DONE,
    ),
    "refusal": (
        chat_chunk({"role": "assistant", "content": None, "refusal": None}),
        chat_chunk({"refusal": "I can't "}),
        chat_chunk({"refusal": "help."}),
        chat_chunk({}, "stop"),
        CHAT_DONE,
    ),
    "logprobs": (
        _CHAT_OPENING,
        chat_chunk({"content": "Hi"}, logprobs={"content": [CHAT_LOGPROB], "refusal": None}),
        chat_chunk({"content": "Hi"}, logprobs={"content": [CHAT_LOGPROB], "refusal": None}),
        chat_chunk({}, "stop"),
        CHAT_DONE,
    ),
    "unknown fields": (
        chat_chunk({"role": "assistant", "content": "Hi", "x_unknown": ["a", 1.50]}),
        chat_chunk({"x_unknown": ["b"]}),
        chat_chunk({}, "stop"),
        CHAT_DONE,
    ),
    "two choices": (
        chat_chunk({"role": "assistant", "content": "Az"}),
        chat_chunk({"role": "assistant", "content": "Bl"}, index=1),
        chat_chunk({"content": "ue."}, index=1),
        chat_chunk({"content": "ure."}),
        chat_chunk({}, "stop", index=1),
        chat_chunk({}, "length"),
        CHAT_DONE,
    ),
}

_CHAT_CALL: dict[str, Any] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Oslo","id":2512292042121000001}'},
}

_CHAT_BODIES: dict[str, bytes] = {
    "text": chat_body(
        {"message": chat_message(content="Hi there \U0001f600"), "finish_reason": "stop"}
    ),
    "empty text": chat_body({"message": chat_message(content=""), "finish_reason": "stop"}),
    "tool calls": chat_body(
        {
            "message": chat_message(
                tool_calls=[
                    _CHAT_CALL,
                    {**_CHAT_CALL, "id": "call_2", "function": {"name": "f", "arguments": ""}},
                ]
            ),
            "finish_reason": "tool_calls",
        }
    ),
    "legacy function call": chat_body(
        {
            "message": chat_message(function_call={"name": "get_weather", "arguments": "{}"}),
            "finish_reason": "function_call",
        }
    ),
    "refusal": chat_body({"message": chat_message(refusal="No."), "finish_reason": "stop"}),
    "logprobs": chat_body(
        {
            "message": chat_message(content="Hi"),
            "finish_reason": "stop",
            "logprobs": {"content": [CHAT_LOGPROB], "refusal": None},
        }
    ),
    "unknown fields": chat_body(
        {
            "message": chat_message(content="Hi", x_unknown={"deep": [1.50, None]}),
            "finish_reason": "stop",
            "x_unknown": 1e2,
        },
        x_unknown=[{"a": 1.0}],
    ),
    "two choices": chat_body(
        {"message": chat_message(content="Azure."), "finish_reason": "length"},
        {"message": chat_message(content="Blue."), "finish_reason": "stop"},
    ),
}

SAMPLES: dict[str, Samples] = {
    "openai_chat": Samples(
        ask={
            "model": "gpt-4o-mini",
            "messages": [
                {"role": "system", "content": "It is 2026-11-30. Be kind."},
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": None, "tool_calls": [_CHAT_CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "5 degrees at 12:01"},
            ],
            "tools": [{"type": "function", "function": {"name": "get_weather"}}],
            "temperature": 0,
        },
        model="gpt-4o-mini",
        clock="2026-11-30",
        result="5 degrees at 12:01",
        uncounted={
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": "u",
            "metadata": {"a": "b"},
            "safety_identifier": "s",
            "prompt_cache_key": "k",
            "service_tier": "flex",
            "store": True,
        },
        streams=_CHAT_STREAMS,
        bodies=_CHAT_BODIES,
        error_stream=(
            _CHAT_OPENING,
            chat_chunk({"content": "Hi"}),
            _event({"error": {"message": "Overloaded", "type": "server_error", "code": None}}),
        ),
        error_body=json.dumps(
            {
                "error": {
                    "message": "Overloaded",
                    "type": "server_error",
                    "param": None,
                    "code": None,
                }
            }
        ).encode(),
        unknown="x_unknown",
    ),
}
