"""Recorded answers of Anthropic's Messages API; the row in `samples.py` is made of them."""

from __future__ import annotations

import json
from typing import Any

MODEL = "claude-opus-4-6"
USAGE: dict[str, Any] = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 5,
    "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 7,
    "service_tier": "standard",
}
CALL: dict[str, Any] = {
    "type": "tool_use",
    "id": "call_1",
    "name": "get_weather",
    "input": {"city": "Oslo", "id": 2512292042121000001},
}
CITATION: dict[str, Any] = {
    "type": "char_location",
    "cited_text": "The grass is green.",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 19,
    "file_id": None,
}
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def event(kind: str, **fields: Any) -> bytes:
    """Render one event as the API does."""
    data = json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def start(**fields: Any) -> bytes:
    """Render the first event of a stream; `fields` go into the message."""
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {**USAGE, "output_tokens": 1},
        **fields,
    }  # fmt: skip
    return event("message_start", message=message)


def block(index: int, opened: dict[str, Any], *deltas: dict[str, Any]) -> tuple[bytes, ...]:
    """Render the events of one block."""
    return (
        event("content_block_start", index=index, content_block=opened),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    )


def text_block(index: int, *pieces: str) -> tuple[bytes, ...]:
    """Render the events of a text."""
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block(index, {"type": "text", "text": ""}, *deltas)


def call_block(index: int, *pieces: str, **fields: Any) -> tuple[bytes, ...]:
    """Render the events of a tool call whose arguments come in pieces."""
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, {**CALL, "input": {}, **fields}, *deltas)


def thinking_block(index: int, *pieces: str, signature: str = "EqRk/+==") -> tuple[bytes, ...]:
    """Render the events of a thought and its signature."""
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signed = {"type": "signature_delta", "signature": signature}
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, signed)


def end(reason: str | None = "end_turn", usage: Any = None, **delta: Any) -> bytes:
    """Render the event with the stop reason."""
    fields = {"stop_reason": reason, "stop_sequence": None, **delta}
    return event("message_delta", delta=fields, usage=usage or {"output_tokens": 7})


def body(*content: dict[str, Any], reason: str | None = "end_turn", **fields: Any) -> bytes:
    """Render an answer that was not streamed."""
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL,
        "content": list(content), "stop_reason": reason, "stop_sequence": None, "usage": USAGE,
        **fields,
    }  # fmt: skip
    return json.dumps(message).encode()


STREAMS: dict[str, tuple[bytes, ...]] = {
    "text": (start(), *text_block(0, "Hi ", "there \U0001f600"), end(), STOP),
    "pings": (start(), PING, *text_block(0, "Hi"), PING, end("max_tokens"), STOP),
    "nothing said": (start(), end(), STOP),
    "final counts": (
        start(),
        *text_block(0, "Hi"),
        end(usage={"input_tokens": 20, "cache_read_input_tokens": None, "output_tokens": 9,
                   "output_tokens_details": {"thinking_tokens": 4}}),
        STOP,
    ),
    "tool calls": (
        start(),
        *text_block(0, "I look."),
        *call_block(1, "", '{"city":', '"Oslo"}'),
        *call_block(2, id="call_2", name="now"),
        end("tool_use"),
        STOP,
    ),
    "calls of others": (
        start(),
        *call_block(0, '{"query":"x"}', type="server_tool_use", name="web_search"),
        *block(1, {"type": "web_search_tool_result", "tool_use_id": "call_1", "content": []}),
        *call_block(2, "{}", type="mcp_tool_use", id="call_2", name="echo", server_name="s"),
        end("pause_turn"),
        STOP,
    ),
    "thinking": (
        start(),
        *thinking_block(0, "hm ", "\u2028 so"),
        *block(1, {"type": "redacted_thinking", "data": "b3BhcXVl"}),
        *thinking_block(2, signature="ZW1wdHk="),
        *text_block(3, "ok"),
        end(),
        STOP,
    ),
    "citations": (
        start(),
        *block(
            0,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "Green."},
            {"type": "citations_delta", "citation": CITATION},
            {"type": "citations_delta", "citation": {**CITATION, "document_index": 1}},
        ),
        end(),
        STOP,
    ),
    "refusal": (
        start(),
        *text_block(0, "Here is"),
        end("refusal", stop_details={"type": "refusal", "category": "bio", "explanation": "No."}),
        STOP,
    ),
    "stop sequence": (
        start(), *text_block(0, "a"), end("stop_sequence", stop_sequence="\n\nHuman:"), STOP,
    ),
    "unknown fields": (
        start(x_unknown=1.50),
        *block(0, {"type": "x_block", "x": ""}, {"type": "x_delta", "x": "a"},
               {"type": "x_delta", "x": "b"}),
        event("x_event", index=0),
        *text_block(1, "Hi"),
        event("message_delta", delta={"stop_reason": "x_reason", "stop_sequence": None},
              usage={"output_tokens": 7}, context_management={"applied_edits": []}),
        STOP,
    ),
}  # fmt: skip

BODIES: dict[str, bytes] = {
    "text": body({"type": "text", "text": "Hi there \U0001f600"}),
    "empty": body(),
    "tool calls": body(
        {"type": "text", "text": "I look."},
        CALL,
        {**CALL, "id": "call_2", "name": "now", "input": {}},
        reason="tool_use",
    ),
    "calls of others": body(
        {**CALL, "type": "server_tool_use", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "call_1", "content": []},
        {**CALL, "type": "mcp_tool_use", "id": "call_2", "input": {"a": 1.50}, "server_name": "s"},
        reason="pause_turn",
    ),
    "thinking": body(
        {"type": "thinking", "thinking": "hm \u2028 so", "signature": "EqRk/+=="},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "thinking", "thinking": "", "signature": "ZW1wdHk="},
        {"type": "text", "text": "ok"},
    ),
    "citations": body(
        {"type": "text", "text": "Green.", "citations": [CITATION, CITATION]},
        {"type": "text", "text": "Blue.", "citations": None},
        {"type": "text", "text": "", "citations": []},
    ),
    "refusal": body(
        reason="refusal",
        stop_details={"type": "refusal", "category": None, "explanation": "No."},
    ),
    "stop sequence": body(
        {"type": "text", "text": "a"}, reason="stop_sequence", stop_sequence="\n\nHuman:"
    ),
    "container": body(
        {"type": "container_upload", "file_id": "file_1"},
        container={"id": "container_1", "expires_at": "2026-11-30T10:00:00Z"},
        context_management={"applied_edits": []},
    ),
    "unknown fields": body(
        {"type": "x_block", "x_unknown": {"deep": [1.50, None]}},
        {"type": "text", "text": "Hi", "x_unknown": 1e2},
        {**CALL, "x_unknown": None},
        x_unknown=[{"a": 1.0}],
        usage={**USAGE, "x_unknown": 1},
    ),
}

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 64,
    "system": [
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "It is 2026-11-30."},
    ],
    "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, CALL]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1",
                 "content": [{"type": "text", "text": "5 degrees at 12:01"}]},
                {"type": "text", "text": "Quick!"},
            ],
        },
    ],
    "tools": [{"name": "get_weather", "input_schema": {"type": "object"}}],
    "temperature": 0,
}  # fmt: skip

ERROR: dict[str, Any] = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "Overloaded"},
    "request_id": None,
}
ERROR_STREAM = (start(), *text_block(0, "Hi"), event("error", error=ERROR["error"]))
