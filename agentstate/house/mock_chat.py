"""The mock's OpenAI forms of text: `POST /v1/chat/completions` and `POST /v1/completions`.

What is said comes from `mock_model.py`; here it is read and rendered as OpenAI does, whole or as a
stream, and held against OpenAI's published schemas by the tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from agentstate.ground.canonical import JSON, canonical, encode
from agentstate.ground.chat import Choice, ToolCall, Usage
from agentstate.house.mock_model import Prompt, Tool, count_tokens, count_usage, think
from agentstate.house.mock_reply import (
    Reply,
    cut_pieces,
    make_created,
    maybe_whole,
    read_content,
    read_fault,
    read_messages,
    read_text,
    read_whole,
)

CHOICES_MAX = 128  # OpenAI's bound of n
TOOLS_MAX = 128  # OpenAI's bound of tools


def chat(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/chat/completions."""
    model = read_text(asked, "model")
    prompt = _read_chat_prompt(asked, key)
    choices = think(prompt, read_whole(asked, "n", 1, CHOICES_MAX))
    usage = _usage(count_usage(prompt, choices))
    streams = asked.get("stream") is True
    head: dict[str, JSON] = {
        "id": f"chatcmpl-mock-{key.hex()[:24]}",
        "object": "chat.completion.chunk" if streams else "chat.completion",
        "created": make_created(key),
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


def completions(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/completions."""
    model = read_text(asked, "model")
    given = asked.get("prompt")
    prompt = Prompt(
        seed=key,
        text=given if isinstance(given, str) else canonical(given).decode("ascii"),
        tokens_max=maybe_whole(asked, "max_tokens"),
        input_tokens=count_tokens(given),
    )
    choices = think(prompt, read_whole(asked, "n", 1, CHOICES_MAX))
    usage = _usage(count_usage(prompt, choices))
    head: dict[str, JSON] = {
        "id": f"cmpl-mock-{key.hex()[:24]}",
        "object": "text_completion",
        "created": make_created(key),
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
        pieces = cut_pieces(str(row["text"]))
        for number, piece in enumerate(pieces, 1):
            reason = row["finish_reason"] if number == len(pieces) else None
            chunks.append({**head, "choices": [{**row, "text": piece, "finish_reason": reason}]})
    if _includes_usage(asked):
        chunks.append({**head, "choices": [], "usage": usage})
    return Reply(200, _frames(chunks), key, True, read_fault(model))


def _read_chat_prompt(asked: dict[str, JSON], key: bytes) -> Prompt:
    text, heard, called = "", None, set[str]()
    for message in read_messages(asked):
        match message.get("role"):
            case "user":
                text, heard, called = read_content(message), None, set()
            case "tool" | "function":
                heard = read_content(message)
            case "assistant":
                called.update(_list_called(message))
    tokens_max = maybe_whole(asked, "max_completion_tokens")
    return Prompt(
        seed=key,
        text=text,
        heard=heard,
        called=frozenset(called),
        tools=_read_tools(asked.get("tools")),
        tool_choice=_read_tool_choice(asked.get("tool_choice")),
        calls_max=1 if asked.get("parallel_tool_calls") is False else TOOLS_MAX,
        schema=_read_schema(asked.get("response_format")),
        tokens_max=maybe_whole(asked, "max_tokens") if tokens_max is None else tokens_max,
        input_tokens=count_tokens([asked["messages"], asked.get("tools")]),
    )


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
    for piece in cut_pieces(choice.text) if choice.text else ():
        yield chunk({"content": piece})
    for call in choice.tool_calls:
        opened = _chat_call(replace(call, arguments=""))
        yield chunk({"tool_calls": [{"index": call.position, **opened}]})
        for piece in cut_pieces(call.arguments):
            more: JSON = {"index": call.position, "function": {"arguments": piece}}
            yield chunk({"tool_calls": [more]})
    yield chunk({}, choice.finish_reason)


def _frames(chunks: Iterable[JSON]) -> tuple[bytes, ...]:
    frames = [b"data: " + encode(chunk) + b"\n\n" for chunk in chunks]
    return (*frames, b"data: [DONE]\n\n")


def _includes_usage(asked: dict[str, JSON]) -> bool:
    options = asked.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _usage(usage: Usage) -> JSON:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
