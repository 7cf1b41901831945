"""The mock's Anthropic form: `POST /v1/messages`, its stream, its errors, and the token count.

What is said comes from `mock_model.py`; here it is read and rendered as Anthropic does. Thinking is
shown where the request asks for it, signed, so that an agent's handling of signatures can be tried.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

from agentstate.ground.canonical import JSON, digest, encode, parse
from agentstate.ground.chat import Choice, ToolCall
from agentstate.ground.errors import BadRequest
from agentstate.house.mock_model import Prompt, Tool, count_tokens, count_usage, think
from agentstate.house.mock_reply import (
    Refusal,
    Reply,
    cut_pieces,
    maybe_whole,
    read_content,
    read_fault,
    read_messages,
    read_text,
)
from agentstate.wire import sse

CALLS_MAX = 64  # tool calls in one answer; Anthropic names no bound, and nobody reads more
THOUGHT = "This is AgentState's mock model; it does not think."

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_TOOL_CHOICES = {"any": "required", "none": "none"}

# Source: platform.claude.com/docs/en/api/errors; the statuses the mock can have.
_ERROR_TYPES = {
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
}


def reply(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/messages."""
    model = read_text(asked, "model")
    prompt = _read_prompt(asked, key)
    (choice,) = think(prompt, 1)
    usage = count_usage(prompt, (choice,))
    message: dict[str, JSON] = {
        "id": f"msg_mock_{key.hex()[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(_blocks(asked, choice, key)),
        "stop_reason": _STOP_REASONS[choice.finish_reason or "stop"],
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": usage.output_tokens,
            "service_tier": "standard",
        },
    }
    streams = asked.get("stream") is True
    pieces = tuple(_frames(message, choice)) if streams else (encode(message),)
    names = ((b"request-id", b"req_mock_" + key.hex()[:24].encode("ascii")),)
    return Reply(200, pieces, key, streams, read_fault(model), names)


def count(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/messages/count_tokens."""
    model = read_text(asked, "model")
    read_messages(asked)
    return Reply(
        200, (encode({"input_tokens": _count_input(asked)}),), key, False, read_fault(model)
    )


def render_error(refusal: Refusal) -> bytes:
    """Render an error body in Anthropic's form."""
    kind = _ERROR_TYPES.get(refusal.status, "invalid_request_error")
    error: JSON = {"type": kind, "message": refusal.message}
    return encode({"type": "error", "error": error})


def _read_prompt(asked: dict[str, JSON], key: bytes) -> Prompt:
    text, heard, called = "", None, set[str]()
    for message in read_messages(asked):
        blocks = [block for block in _as_list(message.get("content")) if isinstance(block, dict)]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        match message.get("role"):
            case "user" if results:
                heard = read_content(results[-1])
            case "user":
                text, heard, called = read_content(message), None, set()
            case "assistant":
                calls = [block for block in blocks if block.get("type") == "tool_use"]
                called.update(str(block.get("name")) for block in calls)
    tokens_max = maybe_whole(asked, "max_tokens")
    if tokens_max is None:
        raise BadRequest("max_tokens: Field required", param="max_tokens")
    choice, calls_max = _read_tool_choice(asked.get("tool_choice"))
    return Prompt(
        seed=key,
        text=text,
        heard=heard,
        called=frozenset(called),
        tools=_read_tools(asked.get("tools")),
        tool_choice=choice,
        calls_max=calls_max,
        schema=_read_schema(asked),
        tokens_max=tokens_max,
        input_tokens=_count_input(asked),
    )


def _read_tools(tools: JSON) -> tuple[Tool, ...]:
    """Read the tools that the client runs; what Anthropic would run itself, the mock does not."""
    return tuple(
        Tool(name, tool.get("input_schema"))
        for tool in _as_list(tools)[:CALLS_MAX]
        if isinstance(tool, dict)
        and isinstance(name := tool.get("name"), str)
        and tool.get("type") in (None, "custom")
    )


def _read_tool_choice(choice: JSON) -> tuple[str, int]:
    """Return what `Prompt` calls tool_choice and calls_max."""
    fields = choice if isinstance(choice, dict) else {}
    calls_max = 1 if fields.get("disable_parallel_tool_use") is True else CALLS_MAX
    kind = fields.get("type")
    if kind == "tool":
        return f"={fields.get('name')}", calls_max
    return _TOOL_CHOICES.get(str(kind), "auto"), calls_max


def _read_schema(asked: dict[str, JSON]) -> JSON:
    """Return the schema the answer must fit; None = prose."""
    config = asked.get("output_config")
    form = config.get("format") if isinstance(config, dict) else asked.get("output_format")
    return form.get("schema") if isinstance(form, dict) else None


def _count_input(asked: dict[str, JSON]) -> int:
    return count_tokens([asked.get("system"), asked.get("messages"), asked.get("tools")])


def _blocks(asked: dict[str, JSON], choice: Choice, key: bytes) -> Iterator[dict[str, JSON]]:
    thinking = asked.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive"):
        signature = base64.b64encode(digest(b"thinking", key)).decode("ascii")
        yield {"type": "thinking", "thinking": THOUGHT, "signature": signature}
    if choice.text:
        yield {"type": "text", "text": choice.text}
    for call in choice.tool_calls:
        yield {"type": "tool_use", "id": _call_id(call), "name": call.name, "input": _input(call)}


def _call_id(call: ToolCall) -> str:
    return "toolu_" + (call.call_id or "").removeprefix("call_")


def _input(call: ToolCall) -> JSON:
    """Return the arguments as an object; empty where max_tokens cut them."""
    try:
        made = parse(call.arguments.encode())
    except BadRequest:
        return {}
    return made if isinstance(made, dict) else {}


def _frames(message: dict[str, JSON], choice: Choice) -> Iterator[bytes]:
    usage = message["usage"]
    assert isinstance(usage, dict), "written above"
    opened: JSON = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},  # as the real one counts at that moment
    }
    yield _frame("message_start", message=opened)
    calls = {_call_id(call): call.arguments for call in choice.tool_calls}
    for index, block in enumerate(_as_list(message["content"])):
        assert isinstance(block, dict), "made by _blocks"
        yield from _block_frames(index, block, calls.get(str(block.get("id")), ""))
    delta: JSON = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _frame("message_delta", delta=delta, usage={"output_tokens": usage["output_tokens"]})
    yield _frame("message_stop")


def _block_frames(index: int, block: dict[str, JSON], arguments: str) -> Iterator[bytes]:
    deltas: list[dict[str, JSON]] = []
    match block["type"]:
        case "text":
            opened = {**block, "text": ""}
            deltas += [_delta("text", "text", piece) for piece in cut_pieces(str(block["text"]))]
        case "thinking":
            opened = {**block, "thinking": "", "signature": ""}
            pieces = cut_pieces(str(block["thinking"]))
            deltas += [_delta("thinking", "thinking", piece) for piece in pieces]
            deltas.append(_delta("signature", "signature", str(block["signature"])))
        case _:
            opened = {**block, "input": {}}
            deltas += [_delta("input_json", "partial_json", each) for each in cut_pieces(arguments)]
    yield _frame("content_block_start", index=index, content_block=opened)
    if index == 0:
        yield _frame("ping")
    for delta in deltas:
        yield _frame("content_block_delta", index=index, delta=delta)
    yield _frame("content_block_stop", index=index)


def _delta(kind: str, field: str, piece: str) -> dict[str, JSON]:
    return {"type": f"{kind}_delta", field: piece}


def _frame(kind: str, **fields: JSON) -> bytes:
    return sse.encode(encode({"type": kind, **fields}), kind.encode("ascii"))


def _as_list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []
