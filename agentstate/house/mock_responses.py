"""The mock's Responses form: `POST /v1/responses`, whole or as a stream.

What is said comes from `mock_model.py`; here it is read and rendered as OpenAI does, and held
against OpenAI's published schemas by the tests. Nothing is kept between calls: what a
`previous_response_id` stands for is not known here, and a response cannot be fetched later.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentstate.dialects.openai_responses_forms import make_events
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Choice, ToolCall
from agentstate.ground.errors import BadRequest, shorten
from agentstate.house.mock_model import Prompt, Tool, count_tokens, count_usage, think
from agentstate.house.mock_reply import (
    PIECE_CHARS,
    Reply,
    make_created,
    maybe_whole,
    read_content,
    read_fault,
    read_text,
)

TOOLS_MAX = 128  # as in chat; OpenAI names no bound here
THOUGHT = "This is AgentState's mock model; it does not think."

_MOCK: JSON = {"const": "This is AgentState's mock model; no real model was asked."}
_ANY_OBJECT: JSON = {
    "type": "object", "properties": {"mock": _MOCK, "answer": {"type": "string"}}
}  # fmt: skip
_CONTEXTS = ("previous_response_id", "conversation", "prompt")  # stand in for an input


def reply(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/responses."""
    model = read_text(asked, "model")
    prompt = _read_prompt(asked, key)
    (choice,) = think(prompt, 1)
    response = _render(asked, model, prompt, choice)
    streams = asked.get("stream") is True
    pieces = make_events(response, PIECE_CHARS) if streams else [encode(response)]
    return Reply(200, tuple(pieces), key, streams, read_fault(model))


def _read_prompt(asked: dict[str, JSON], key: bytes) -> Prompt:
    text, heard, called = "", None, set[str]()
    for item in _read_input(asked):
        match item.get("type"):
            case "function_call_output" | "custom_tool_call_output":
                heard = read_content({"content": item.get("output")})
            case "function_call" | "custom_tool_call":
                called.add(str(item.get("name")))
            case "message" | None if item.get("role") == "user":
                text, heard, called = read_content(item), None, set()
    return Prompt(
        seed=key,
        text=text,
        heard=heard,
        called=frozenset(called),
        tools=tuple(Tool(name, tool.get("parameters")) for name, tool in _list_tools(asked)),
        tool_choice=_read_tool_choice(asked.get("tool_choice")),
        calls_max=1 if asked.get("parallel_tool_calls") is False else TOOLS_MAX,
        schema=_read_schema(asked.get("text")),
        tokens_max=maybe_whole(asked, "max_output_tokens"),
        input_tokens=count_tokens(
            [asked.get("instructions"), asked.get("input"), asked.get("tools")]
        ),
    )


def _read_input(asked: dict[str, JSON]) -> list[dict[str, JSON]]:
    """Read the input: a text, items, or nothing where something else says what is asked."""
    given = asked.get("input")
    if isinstance(given, str) and given:
        return [{"role": "user", "content": given}]
    if not given and any(asked.get(name) is not None for name in _CONTEXTS):
        return []
    if not isinstance(given, list) or not given:
        raise BadRequest(
            f"input must be text or a list of one item or more; it is {shorten(given)}.",
            param="input",
        )
    items = [item for item in given if isinstance(item, dict)]
    if len(items) < len(given):
        raise BadRequest("Each item of input must be an object.", param="input")
    return items


def _list_tools(asked: dict[str, JSON]) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Yield the tools that the client runs; what OpenAI would run itself, the mock does not."""
    tools = asked.get("tools")
    for tool in (tools if isinstance(tools, list) else [])[:TOOLS_MAX]:
        if (
            isinstance(tool, dict)
            and tool.get("type") in ("function", "custom")
            and isinstance(name := tool.get("name"), str)
        ):
            yield name, tool


def _read_tool_choice(choice: JSON) -> str:
    if isinstance(choice, dict):
        return f"={name}" if isinstance(name := choice.get("name"), str) else "auto"
    return choice if isinstance(choice, str) else "auto"


def _read_schema(text: JSON) -> JSON:
    """Return the schema the answer must fit; None = prose."""
    form = text.get("format") if isinstance(text, dict) else None
    if not isinstance(form, dict):
        return None
    if form.get("type") == "json_object":
        return _ANY_OBJECT
    return form.get("schema", {}) if form.get("type") == "json_schema" else None


def _render(asked: dict[str, JSON], model: str, prompt: Prompt, choice: Choice) -> dict[str, JSON]:
    usage = count_usage(prompt, (choice,))
    is_cut = choice.finish_reason == "length"
    created_s = make_created(prompt.seed)
    whole: dict[str, JSON] = {
        "id": f"resp_mock_{prompt.seed.hex()[:24]}",
        "object": "response",
        "created_at": created_s,
        "status": "incomplete" if is_cut else "completed",
        "completed_at": None if is_cut else created_s,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "model": model,
        "output": [*_list_items(asked, prompt.seed, choice)],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }
    return whole | _repeat(asked)


def _repeat(asked: dict[str, JSON]) -> dict[str, JSON]:
    """Return what a response repeats of its request, with OpenAI's defaults."""
    tools = asked.get("tools")
    given: dict[str, JSON] = {
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": True,
        "temperature": 1,
        "tool_choice": "auto",
        "top_p": 1,
        "truncation": "disabled",
    }
    given |= {name: asked[name] for name in given if asked.get(name) is not None}
    given["tools"] = [_repeat_tool(tool) for tool in tools] if isinstance(tools, list) else []
    return given


def _repeat_tool(tool: JSON) -> JSON:
    if isinstance(tool, dict) and tool.get("type") == "function":
        return {"strict": True, "parameters": None, **tool}
    return tool


def _list_items(asked: dict[str, JSON], seed: bytes, choice: Choice) -> Iterator[dict[str, JSON]]:
    mark = seed.hex()[:24]
    state = "incomplete" if choice.finish_reason == "length" else "completed"
    reasoning = asked.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("summary") is not None:
        summary: JSON = [{"type": "summary_text", "text": THOUGHT}]
        yield {"id": f"rs_mock_{mark}", "type": "reasoning", "summary": summary}
    if choice.text or not choice.tool_calls:
        text: JSON = {"type": "output_text", "text": choice.text, "annotations": [], "logprobs": []}
        yield {
            "id": f"msg_mock_{mark}",
            "type": "message",
            "role": "assistant",
            "status": state,
            "content": [text],
        }
    customs = {name for name, tool in _list_tools(asked) if tool["type"] == "custom"}
    for call in choice.tool_calls:
        yield _render_call(call, state, is_custom=call.name in customs)


def _render_call(call: ToolCall, state: str, *, is_custom: bool) -> dict[str, JSON]:
    mark = (call.call_id or "").removeprefix("call_")
    if is_custom:
        return {
            "id": f"ctc_mock_{mark}",
            "type": "custom_tool_call",
            "call_id": call.call_id,
            "name": call.name,
            "input": call.arguments,
        }
    return {
        "id": f"fc_mock_{mark}",
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
        "status": state,
    }
