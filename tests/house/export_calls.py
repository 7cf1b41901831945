"""Requests and answers of the dialects, as tests of export write them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agentstate.house.export_base import Example, Untaken, Wanted
from agentstate.house.export_examples import examples
from agentstate.house.export_forms import render
from agentstate.store.base import Store

Body = dict[str, Any]
Call = tuple[str, str, str]  # id, name, arguments


def user(text: str) -> Body:
    """Make a user's message, good for chat, Responses and Messages."""
    return {"role": "user", "content": text}


def tool_of(name: str) -> Body:
    """Make a chat tool."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def called(*calls: Call, text: str | None = None) -> Body:
    """Make the chat message of an assistant that calls tools."""
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ],
    }


def result(call_id: str, text: str) -> Body:
    """Make the chat message of a tool."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def said(text: str) -> Body:
    """Make the chat message of an assistant."""
    return {"role": "assistant", "content": text}


def chat(message: Body | str, finish: str | None = None, **changes: Any) -> Body:
    """Make a chat answer."""
    message = said(message) if isinstance(message, str) else message
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o-2024"}
    return {**body, "choices": [choice], "usage": usage, **changes}


def asking(*messages: Body, **changes: Any) -> Body:
    """Make a chat request."""
    return {"model": "gpt-4o", "messages": list(messages), **changes}


def response(response_id: str, *items: Body) -> Body:
    """Make a Responses answer."""
    return {
        "id": response_id, "object": "response", "created_at": 1, "status": "completed",
        "model": "gpt-4o", "output": list(items),
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    }  # fmt: skip


def output(text: str) -> Body:
    """Make the item of a Responses answer that is a text."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message", "id": f"msg_{text}", "role": "assistant", "status": "completed",
        "content": content,
    }  # fmt: skip


def function_call(call_id: str, name: str, arguments: str) -> Body:
    """Make the item of a Responses answer that is a call."""
    fields = {"call_id": call_id, "name": name, "arguments": arguments}
    return {"type": "function_call", "id": f"fc_{call_id}", "status": "completed", **fields}


def function_output(call_id: str, text: str) -> Body:
    """Make the item of a Responses request that is a result."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def claude(*blocks: Body, stop: str = "end_turn") -> Body:
    """Make a Messages answer."""
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test",
        "content": list(blocks), "stop_reason": stop, "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip


def block(text: str) -> Body:
    """Make a text block."""
    return {"type": "text", "text": text}


def gemini(*parts: Body, finish: str = "STOP") -> Body:
    """Make a Gemini answer."""
    content = {"role": "model", "parts": list(parts)}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    candidate = {"content": content, "finishReason": finish, "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3"}


async def export(
    store: Store, wanted: Wanted | None = None, left_out: Counter[str] | None = None
) -> list[Example]:
    """Return all examples."""
    found = examples(store, wanted or Wanted(), left_out)
    return [each async for each in found if not isinstance(each, Untaken)]


async def lines_of(store: Store, wanted: Wanted | None = None) -> list[dict[str, Any]]:
    """Return the objects of all lines."""
    wanted = wanted or Wanted()
    return [render(each, wanted.format) for each in await export(store, wanted)]


async def texts_of(store: Store, wanted: Wanted | None = None) -> list[list[Any]]:
    """Return what is said in each example, message by message."""
    return [[each["content"] for each in one.messages] for one in await export(store, wanted)]
