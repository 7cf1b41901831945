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
from tests.dialects import samples_anthropic as anthropic
from tests.dialects import samples_gemini as gemini
from tests.dialects import samples_responses as responses


@dataclass(frozen=True, slots=True)
class Samples:
    """What the contract needs to know of one dialect."""

    ask: dict[str, JSON]  # a request with system text, a tool result, and the list that grows
    model: str  # that it asks for
    clock: str  # a part of its system text; '' = the dialect has none
    result: str  # the content of its tool result; '' = the dialect has none
    uncounted: dict[str, JSON]  # fields that never change an answer
    streams: dict[str, tuple[bytes, ...]]  # frames by the name of what they show; {} = never
    bodies: dict[str, bytes]
    error_stream: tuple[bytes, ...]  # begins like an answer, then the upstream's error
    error_body: bytes  # of an HTTP error, or inside a 200
    unknown: str  # a field nobody knows, which is in some stream and some body
    # The completing frame is the end of a stream, so that nothing after it can take it back.
    ends_with_completing: bool = False
    path: str = ""  # of a call, where the path says what is asked; '' = it does not
    stream_path: str = ""  # the same for a stream

    @property
    def streamable(self) -> dict[str, bytes]:
        """The bodies that have a stream form."""
        return self.bodies if self.streams else {}


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

COMPLETION_HEAD: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1700000000,
    "model": "gpt-3.5-turbo-instruct",
    "system_fingerprint": "fp_1",
}


def completion_piece(
    text: str, finish_reason: str | None = None, index: int = 0, **choice: Any
) -> dict[str, Any]:
    """Return one choice of a body or a chunk."""
    return {
        "index": index, "text": text, "logprobs": None, "finish_reason": finish_reason, **choice
    }  # fmt: skip


def completion_chunk(*choices: dict[str, Any], **fields: Any) -> bytes:
    """Render one chunk."""
    return _event({**COMPLETION_HEAD, "choices": list(choices), **fields})


def completion_body(*choices: dict[str, Any], **fields: Any) -> bytes:
    """Render a body."""
    whole = {**COMPLETION_HEAD, "choices": list(choices), "usage": CHAT_USAGE, **fields}
    return json.dumps(whole).encode()


def _completion_logprobs(token: str) -> dict[str, Any]:
    return {
        "tokens": [token], "token_logprobs": [-0.50], "top_logprobs": [{token: -0.50}],
        "text_offset": [0],
    }  # fmt: skip


_COMPLETION_STREAMS: dict[str, tuple[bytes, ...]] = {
    "text": (
        completion_chunk(completion_piece("Once ")),
        completion_chunk(completion_piece("upon \U0001f600")),
        completion_chunk(completion_piece("", "stop")),
        CHAT_DONE,
    ),
    "usage": (
        completion_chunk(completion_piece("Once", "length")),
        completion_chunk(usage=CHAT_USAGE),
        CHAT_DONE,
    ),
    "no [DONE]": (
        completion_chunk(completion_piece("Once")),
        completion_chunk(completion_piece("", "length")),
    ),
    "logprobs": (
        completion_chunk(completion_piece("a", logprobs=_completion_logprobs("a"))),
        completion_chunk(completion_piece("b", logprobs=_completion_logprobs("b"))),
        completion_chunk(completion_piece("", "stop")),
        CHAT_DONE,
    ),
    "two choices": (
        completion_chunk(completion_piece("Az")),
        completion_chunk(completion_piece("Bl", index=1)),
        completion_chunk(completion_piece("ure.", "stop"), completion_piece("ue.", None, 1)),
        completion_chunk(completion_piece("", "length", 1)),
        CHAT_DONE,
    ),
    "unknown fields": (
        completion_chunk(completion_piece("Once", x_unknown=[1.50])),
        completion_chunk(completion_piece("", "stop"), x_unknown="y"),
        CHAT_DONE,
    ),
}
_COMPLETION_BODIES: dict[str, bytes] = {
    "text": completion_body(completion_piece("Once upon \U0001f600", "stop")),
    "empty text": completion_body(completion_piece("", "stop")),
    "logprobs": completion_body(
        completion_piece("a", "length", logprobs=_completion_logprobs("a"))
    ),
    "two choices": completion_body(
        completion_piece("Azure.", "stop"), completion_piece("Blue.", "length", 1)
    ),
    "unknown fields": completion_body(
        completion_piece("Once", "stop", x_unknown={"deep": [1.50, None]}), x_unknown=[1e2]
    ),
}


def embeddings_body(*embeddings: Any, **fields: Any) -> bytes:
    """Render an answer with these vectors."""
    data = [
        {"object": "embedding", "index": index, "embedding": embedding}
        for index, embedding in enumerate(embeddings)
    ]
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    whole = {"object": "list", "data": data, "model": "text-embedding-3-small", "usage": usage}
    return json.dumps({**whole, **fields}).encode()


_OVERLOADED: dict[str, Any] = {
    "error": {"message": "Overloaded", "type": "server_error", "param": None, "code": None}
}

SAMPLES: dict[str, Samples] = {
    "gemini": Samples(
        ask=gemini.ASK,
        model=gemini.MODEL,
        clock="2026-11-30",
        result="5 degrees at 12:01",
        uncounted={"labels": {"a": "b"}, "serviceTier": "flex", "store": True},
        streams=gemini.STREAMS,
        bodies=gemini.BODIES,
        error_stream=gemini.ERROR_STREAM,
        error_body=json.dumps(gemini.ERROR).encode(),
        unknown="x_unknown",
        path=gemini.PATH,
        stream_path=gemini.STREAM_PATH,
    ),
    "openai_completions": Samples(
        ask={
            "model": "gpt-3.5-turbo-instruct",
            "prompt": "Once upon a time on 2026-11-30",
            "max_tokens": 16,
            "temperature": 0,
        },
        model="gpt-3.5-turbo-instruct",
        clock="",
        result="",
        uncounted={
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": "u",
            "metadata": {"a": "b"},
        },
        streams=_COMPLETION_STREAMS,
        bodies=_COMPLETION_BODIES,
        error_stream=(completion_chunk(completion_piece("Once")), _event(_OVERLOADED)),
        error_body=json.dumps(_OVERLOADED).encode(),
        unknown="x_unknown",
    ),
    "openai_embeddings": Samples(
        ask={
            "model": "text-embedding-3-small",
            "input": ["one", "two"],
            "dimensions": 3,
            "encoding_format": "float",
        },
        model="text-embedding-3-small",
        clock="",
        result="",
        uncounted={"user": "u"},
        streams={},
        bodies={
            "two vectors": embeddings_body([0.1, -0.25, 1e-7], [0, 1, 2]),
            "base64": embeddings_body("AACAPw=="),
            "unknown fields": embeddings_body([1.50], x_unknown=1),
        },
        error_stream=(_event(_OVERLOADED),),
        error_body=json.dumps(_OVERLOADED).encode(),
        unknown="x_unknown",
    ),
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
    "openai_responses": Samples(
        ask=responses.ASK,
        model=responses.MODEL,
        clock="2026-11-30",
        result="5 degrees at 12:01",
        uncounted={
            "stream": True,
            "stream_options": {"include_obfuscation": False},
            "user": "u",
            "metadata": {"a": "b"},
            "safety_identifier": "s",
            "prompt_cache_key": "k",
            "service_tier": "flex",
        },
        streams=responses.STREAMS,
        bodies=responses.BODIES,
        error_stream=responses.ERROR_STREAM,
        error_body=json.dumps(responses.ERROR).encode(),
        unknown="x_unknown",
        ends_with_completing=True,
    ),
    "anthropic_messages": Samples(
        ask=anthropic.ASK,
        model=anthropic.MODEL,
        clock="2026-11-30",
        result="5 degrees at 12:01",
        uncounted={"stream": True, "metadata": {"user_id": "u"}, "service_tier": "auto"},
        streams=anthropic.STREAMS,
        bodies=anthropic.BODIES,
        error_stream=anthropic.ERROR_STREAM,
        error_body=json.dumps(anthropic.ERROR).encode(),
        unknown="x_unknown",
    ),
}
