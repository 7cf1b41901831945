"""Recorded answers of OpenAI's Responses API; the row in `samples.py` is made of them."""

from __future__ import annotations

import json
from typing import Any

MODEL = "gpt-5-mini"
USAGE: dict[str, Any] = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 27,
}
HEAD: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1767225600,
    "status": "in_progress",
    "error": None,
    "incomplete_details": None,
    "instructions": "It is 2026-11-30. Be kind.",
    "metadata": {},
    "model": "gpt-5-mini-2026-08-07",
    "output": [],
    "parallel_tool_calls": True,
    "service_tier": "default",
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
}
LOGPROB: dict[str, Any] = {
    "token": "Hi", "logprob": -0.00012345678901234567, "bytes": [72, 105], "top_logprobs": [],
}  # fmt: skip


def event(kind: str, number: int | None = 0, **fields: Any) -> bytes:
    """Render one event as the API does; number None = as those who do not number."""
    numbered = {} if number is None else {"sequence_number": number}
    data = json.dumps({"type": kind, **numbered, **fields}, separators=(",", ":")).encode()
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def stream(*events: tuple[str, dict[str, Any]], **head: Any) -> tuple[bytes, ...]:
    """Number and render events; the two that open every stream come first."""
    opened = {"response": {**HEAD, **head}}
    whole = (("response.created", opened), ("response.in_progress", opened), *events)
    return tuple(event(kind, number, **fields) for number, (kind, fields) in enumerate(whole))


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a response that has ended."""
    return {**HEAD, "status": "completed", "output": list(output), "usage": USAGE, **fields}


def end(*output: dict[str, Any], **fields: Any) -> tuple[str, dict[str, Any]]:
    """Return the event that completes a response."""
    return "response.completed", {"response": response(*output, **fields)}


def part(text: str = "", **fields: Any) -> dict[str, Any]:
    """Return a text of a message."""
    return {"type": "output_text", "text": text, "annotations": [], **fields}


def message(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a message that is done."""
    content = list(parts)
    head = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": content, **fields}


def call(number: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a function call that is done."""
    return {
        "id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number}",
        "name": "get_weather", "arguments": '{"city":"Oslo","id":2512292042121000001}',
        "status": "completed", **fields,
    }  # fmt: skip


def reasoning(*summary: str, **fields: Any) -> dict[str, Any]:
    """Return a thought with its summary."""
    texts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": "rs_1", "type": "reasoning", "summary": texts, **fields}


def added(place: int, item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the event that opens an item."""
    return "response.output_item.added", {"output_index": place, "item": item}


def done(place: int, item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the event that shows an item whole."""
    return "response.output_item.done", {"output_index": place, "item": item}


def text_events(
    place: int, *pieces: str, item: dict[str, Any] | None = None, **fields: Any
) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return the events of a message with one text that comes in pieces."""
    whole = "".join(pieces)
    item = item or message(part(whole))
    at = {"output_index": place, "item_id": item["id"], "content_index": 0}
    return (
        added(place, {**item, "status": "in_progress", "content": []}),
        ("response.content_part.added", {**at, "part": part()}),
        *(("response.output_text.delta", {**at, "delta": piece, "logprobs": [], **fields})
          for piece in pieces),
        ("response.output_text.done", {**at, "text": whole, "logprobs": [], **fields}),
        ("response.content_part.done", {**at, "part": item["content"][0]}),
        done(place, item),
    )  # fmt: skip


def call_events(
    place: int, item: dict[str, Any], *pieces: str
) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return the events of a function call whose arguments come in pieces."""
    at = {"output_index": place, "item_id": item["id"]}
    named = {"name": item["name"], "arguments": item["arguments"]}
    return (
        added(place, {**item, "arguments": "", "status": "in_progress"}),
        *(("response.function_call_arguments.delta", {**at, "delta": piece}) for piece in pieces),
        ("response.function_call_arguments.done", {**at, **named}),
        done(place, item),
    )


def cut_short(text: str) -> dict[str, Any]:
    """Return a response that its token limit ended."""
    item = message(part(text), status="incomplete")
    return response(item, status="incomplete", incomplete_details={"reason": "max_output_tokens"})


ASK: dict[str, Any] = {
    "model": MODEL,
    "instructions": "It is 2026-11-30. Be kind.",
    "input": [
        {"role": "user", "content": "Weather?"},
        call(),
        {"type": "function_call_output", "call_id": "call_1", "output": "5 degrees at 12:01"},
    ],
    "tools": [{"type": "function", "name": "get_weather", "parameters": {}, "strict": True}],
    "store": False,
    "previous_response_id": "resp_0",
}

_HI = message(part("Hi there \U0001f600"))
_TWO = (call(1, arguments='{"city":"Oslo"}'), call(2, name="send_email", arguments="{}"))
_THOUGHT = reasoning("Look it up.", "Then say it.", encrypted_content="gAAAA/+==")

STREAMS: dict[str, tuple[bytes, ...]] = {
    "text": stream(*text_events(0, "Hi ", "there \U0001f600"), end(_HI)),
    "[DONE] after it": (*stream(*text_events(0, "Hi"), end(message(part("Hi")))),
                        b"data: [DONE]\n\n"),
    "cut by its limit": stream(
        *text_events(0, "Hi", item=message(part("Hi"), status="incomplete")),
        ("response.incomplete", {"response": cut_short("Hi")}),
    ),
    "tool calls": stream(
        *call_events(0, _TWO[0], '{"city":', '"Oslo"}'), *call_events(1, _TWO[1], "{}"), end(*_TWO)
    ),
    "interleaved tool calls": stream(
        added(0, {**_TWO[0], "arguments": "", "status": "in_progress"}),
        added(1, {**_TWO[1], "arguments": "", "status": "in_progress"}),
        ("response.function_call_arguments.delta",
         {"output_index": 1, "item_id": "fc_2", "delta": "{}"}),
        ("response.function_call_arguments.delta",
         {"output_index": 0, "item_id": "fc_1", "delta": '{"city":"Oslo"}'}),
        done(1, _TWO[1]),
        done(0, _TWO[0]),
        end(*_TWO),
    ),
    "reasoning": stream(
        added(0, {**_THOUGHT, "summary": []}),
        *(
            each
            for index, text in enumerate(("Look it up.", "Then say it."))
            for at in ({"output_index": 0, "item_id": "rs_1", "summary_index": index},)
            for each in (
                ("response.reasoning_summary_part.added",
                 {**at, "part": {"type": "summary_text", "text": ""}}),
                ("response.reasoning_summary_text.delta", {**at, "delta": text}),
                ("response.reasoning_summary_text.done", {**at, "text": text}),
                ("response.reasoning_summary_part.done",
                 {**at, "part": {"type": "summary_text", "text": text}}),
            )
        ),
        done(0, _THOUGHT),
        *text_events(1, "Hi", item=message(part("Hi"))),
        end(_THOUGHT, message(part("Hi"))),
    ),
    "refusal": stream(
        added(0, message(status="in_progress")),
        ("response.content_part.added",
         {"output_index": 0, "item_id": "msg_1", "content_index": 0,
          "part": {"type": "refusal", "refusal": ""}}),
        ("response.refusal.delta",
         {"output_index": 0, "item_id": "msg_1", "content_index": 0, "delta": "I can't "}),
        ("response.refusal.delta",
         {"output_index": 0, "item_id": "msg_1", "content_index": 0, "delta": "help."}),
        done(0, message({"type": "refusal", "refusal": "I can't help."})),
        end(message({"type": "refusal", "refusal": "I can't help."})),
    ),
    # Some end with no items at all, though they streamed them.
    "no output at the end": stream(
        *text_events(0, "Hi ", "there"), *call_events(1, call(), call()["arguments"]), end()
    ),
    # ... and some show no item whole at any time.
    "deltas alone": stream(
        ("response.output_text.delta",
         {"output_index": 0, "item_id": "msg_1", "content_index": 0, "delta": "Hi "}),
        ("response.output_text.delta",
         {"output_index": 0, "item_id": "msg_1", "content_index": 0, "delta": "there"}),
        ("response.function_call_arguments.delta",
         {"output_index": 1, "item_id": "fc_1", "delta": '{"city":'}),
        ("response.function_call_arguments.delta",
         {"output_index": 1, "item_id": "fc_1", "delta": '"Oslo"}'}),
        ("response.function_call_arguments.done",
         {"output_index": 1, "item_id": "fc_1", "name": "get_weather",
          "arguments": '{"city":"Oslo"}'}),
        end(),
    ),
    "nothing but the end": stream(end(_HI, call())),
    "unknown fields": stream(
        *text_events(0, "Hi", item=message(part("Hi", x_unknown=[1.50]))),
        end(message(part("Hi", x_unknown=[1.50])), x_unknown={"a": 1e2}),
    ),
}  # fmt: skip


def body(*output: dict[str, Any], **fields: Any) -> bytes:
    """Render a response as a body."""
    return json.dumps(response(*output, **fields)).encode()


CUSTOM_CALL = {
    "id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "run_sql",
    "input": "delete from t",
}  # fmt: skip
MCP_CALL = {
    "id": "mcp_1", "type": "mcp_call", "server_label": "crm", "name": "find", "arguments": "{}",
    "output": "found", "error": None, "status": "completed",
}  # fmt: skip
MCP_ERROR = {"type": "mcp_protocol_error", "code": -32000, "message": "no such table"}
MCP_TOOLS = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "crm", "tools": []}
MCP_APPROVAL = {
    "id": "mcpr_1", "type": "mcp_approval_request", "server_label": "crm", "name": "drop_table",
    "arguments": '{"table":"t"}',
}  # fmt: skip
WEB_SEARCH = {
    "id": "ws_1", "type": "web_search_call", "status": "completed",
    "action": {"type": "search", "query": "oslo"},
}  # fmt: skip
FILE_SEARCH = {
    "id": "fs_1", "type": "file_search_call", "status": "completed", "queries": ["oslo"],
    "results": None,
}  # fmt: skip
INTERPRETER = {
    "id": "ci_1", "type": "code_interpreter_call", "status": "completed", "container_id": "cntr_1",
    "code": "print(1)", "outputs": [{"type": "logs", "logs": "1"}],
}  # fmt: skip
IMAGE = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "QUJD"}
LOCAL_SHELL = {
    "id": "lsh_1", "type": "local_shell_call", "call_id": "call_1", "status": "completed",
    "action": {"type": "exec", "command": ["rm", "-r", "x"], "env": {}},
}  # fmt: skip
SHELL = {
    "id": "sh_1", "type": "shell_call", "call_id": "call_1", "status": "completed",
    "action": {"commands": ["ls"], "timeout_ms": 1000, "max_output_length": None},
    "environment": None,
}  # fmt: skip
APPLY_PATCH = {
    "id": "apc_1", "type": "apply_patch_call", "call_id": "call_1", "status": "completed",
    "operation": {"type": "delete_file", "path": "a.txt"},
}  # fmt: skip
COMPUTER = {
    "id": "cu_1", "type": "computer_call", "call_id": "call_1", "status": "completed",
    "action": {"type": "click", "button": "left", "x": 1, "y": 2}, "pending_safety_checks": [],
}  # fmt: skip

BODIES: dict[str, bytes] = {
    "text": body(_HI),
    "empty text": body(message(part())),
    "nothing": body(),
    "cut by its limit": json.dumps(cut_short("Hi")).encode(),
    "tool calls": body(call(), call(2, name="f", arguments="", id="fc_2")),
    "an id that is no item's": body({key: call()[key] for key in call() if key != "id"}),
    "reasoning": body(_THOUGHT, message(part("Hi"))),
    "open reasoning": body(
        reasoning(content=[{"type": "reasoning_text", "text": "Hm."}]), message(part("Hi"))
    ),
    "refusal": body(message({"type": "refusal", "refusal": "No."})),
    "logprobs": body(message(part("Hi", logprobs=[LOGPROB]))),
    "a citation": body(
        message(
            part(
                "Hi",
                annotations=[
                    {"type": "url_citation", "url": "https://example.com", "title": "t",
                     "start_index": 0, "end_index": 2}
                ],
            )
        )
    ),
    "a custom tool": body(CUSTOM_CALL),
    "mcp": body(MCP_TOOLS, MCP_CALL, MCP_APPROVAL),
    "an mcp call that failed": body(
        {**MCP_CALL, "output": None, "error": MCP_ERROR, "status": "failed"}
    ),
    "searches": body(WEB_SEARCH, FILE_SEARCH, message(part("Hi"))),
    "built-in tools": body(INTERPRETER, IMAGE, LOCAL_SHELL, SHELL, APPLY_PATCH, COMPUTER),
    "unknown fields": body(
        message(part("Hi", x_unknown={"deep": [1.50, None]}), x_unknown=1e2),
        x_unknown=[{"a": 1.0}],
    ),
}  # fmt: skip

ERROR = {
    "error": {"message": "Overloaded", "type": "server_error", "param": None, "code": None},
}  # fmt: skip
ERROR_STREAM = (
    *stream(*text_events(0, "Hi")),
    event("error", 8, code="server_error", message="Overloaded", param=None),
)
