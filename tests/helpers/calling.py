"""Runs with tool calls in all dialects, put on record without a proxy: what was asked, what the
model answered, and how the agent goes on from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Call = tuple[str | None, str, Json]  # (id, name, arguments)


@dataclass(frozen=True)
class Form:
    """How a dialect says it."""

    dialect: str
    body: Callable[[list[Any]], Json]  # a request with this list
    asks: Callable[[str], Any]  # a message of the user
    answer: Callable[[Sequence[Call]], Json]  # an answer that calls
    said: Callable[[Sequence[Call]], list[Any]]  # the same as it stands in the next request
    results: Callable[[Sequence[tuple[str | None, str, str]]], list[Any]]  # (id, name, text)
    ends: Json  # an answer that calls nothing


def _chat_calls(calls: Sequence[Call]) -> list[Json]:
    return [
        {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
        for i, n, a in calls
    ]


def _chat_answer(message: Json, finish: str) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}


CHAT = Form(
    "openai_chat",
    lambda messages: {"model": "m", "messages": messages},
    lambda text: {"role": "user", "content": text},
    lambda calls: _chat_answer({"content": None, "tool_calls": _chat_calls(calls)}, "tool_calls"),
    lambda calls: [{"role": "assistant", "content": None, "tool_calls": _chat_calls(calls)}],
    lambda told: [{"role": "tool", "tool_call_id": i, "content": text} for i, _, text in told],
    _chat_answer({"content": "done"}, "stop"),
)


def _legacy_call(calls: Sequence[Call]) -> Json:
    ((_, name, arguments),) = calls
    return {"content": None, "function_call": {"name": name, "arguments": json.dumps(arguments)}}


LEGACY = Form(
    "openai_chat",
    lambda messages: {"model": "m", "messages": messages},
    lambda text: {"role": "user", "content": text},
    lambda calls: _chat_answer(_legacy_call(calls), "function_call"),
    lambda calls: [{"role": "assistant", **_legacy_call(calls)}],
    lambda told: [{"role": "function", "name": n, "content": text} for _, n, text in told],
    _chat_answer({"content": "done"}, "stop"),
)


def _response(output: list[Json]) -> Json:
    return {
        "id": "resp",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": output,
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    }


def _response_calls(calls: Sequence[Call]) -> list[Json]:
    return [
        {
            "type": "function_call",
            "id": f"fc_{i}",
            "call_id": i,
            "name": n,
            "arguments": json.dumps(a),
            "status": "completed",
        }
        for i, n, a in calls
    ]


RESPONSES = Form(
    "openai_responses",
    lambda items: {"model": "m", "input": items},
    lambda text: {"role": "user", "content": text},
    lambda calls: _response(_response_calls(calls)),
    _response_calls,
    lambda told: [
        {"type": "function_call_output", "call_id": i, "output": text} for i, _, text in told
    ],
    _response(
        [
            {
                "type": "message",
                "id": "msg",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}],
            }
        ]
    ),
)


def _message(content: list[Json], reason: str) -> Json:
    return {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": reason,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _tool_uses(calls: Sequence[Call]) -> list[Json]:
    return [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in calls]


MESSAGES = Form(
    "anthropic_messages",
    lambda messages: {"model": "m", "max_tokens": 9, "messages": messages},
    lambda text: {"role": "user", "content": text},
    lambda calls: _message(_tool_uses(calls), "tool_use"),
    lambda calls: [{"role": "assistant", "content": _tool_uses(calls)}],
    lambda told: [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": i, "content": text} for i, _, text in told
            ],
        }
    ],
    _message([{"type": "text", "text": "done"}], "end_turn"),
)


def _function_calls(calls: Sequence[Call]) -> list[Json]:
    return [
        {"functionCall": {"name": n, "args": a} | ({} if i is None else {"id": i})}
        for i, n, a in calls
    ]


def _candidate(parts: list[Json]) -> Json:
    content = {"role": "model", "parts": parts}
    candidate = {"index": 0, "content": content, "finishReason": "STOP"}
    return {"candidates": [candidate], "modelVersion": "gemini-3"}


GEMINI = Form(
    "gemini",
    lambda contents: {"contents": contents},
    lambda text: {"role": "user", "parts": [{"text": text}]},
    lambda calls: _candidate(_function_calls(calls)),
    lambda calls: [{"role": "model", "parts": _function_calls(calls)}],
    lambda told: [
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {"name": n, "response": {"result": text}}
                    | ({} if i is None else {"id": i})
                }
                for i, n, text in told
            ],
        }
    ],
    _candidate([{"text": "done"}]),
)

FORMS = (CHAT, RESPONSES, MESSAGES, GEMINI)
