"""Whether a line of training data is one: the rules a trainer goes by, written down on their own.

Nothing of the product is imported, and nothing is forgiven. `faults(raw, form)` returns what is
wrong with a line as it stands in a file, in words; () = a trainer takes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

CONVERSATIONS = ("openai", "trl", "axolotl")
FORMS = (*CONVERSATIONS, "dpo", "kto")
OBJECTS = ("trl", "kto")  # where arguments are objects
HALF = re.compile("[\ud800-\udfff]")

MESSAGE_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "weight"},
    "tool": {"role", "content", "tool_call_id"},
}


def faults(raw: bytes, form: str) -> tuple[str, ...]:
    """Return what is wrong with one line of a file, its line feed included."""
    return tuple(_faults(raw, form))


def split_lines(data: bytes) -> list[bytes]:
    """Cut a file at its line feeds alone, each with its own."""
    assert data == b"" or data.endswith(b"\n"), "the last line has no end"
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


def _faults(raw: bytes, form: str) -> Iterator[str]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        yield "not UTF-8"
        return
    if text.startswith("\ufeff"):
        yield "begins with a mark of its byte order"
    if len(text.splitlines()) != 1 or not text.endswith("\n"):
        yield "some reader sees more or less than one line"
    try:
        line = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        yield f"no JSON: {error}"
        return
    if not isinstance(line, dict):
        yield "no object"
        return
    if form not in ("openai", "dpo"):
        yield from _held_by_datasets(line)
    if form in CONVERSATIONS:
        yield from _conversation(line, form)
    elif form == "dpo":
        yield from _preference(line)
    else:
        yield from _judged(line)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _held_by_datasets(value: Any) -> Iterator[str]:
    """What `datasets` 5.2 refuses a whole file for."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _held_by_datasets(item)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield f"{value} has over 64 bits"
    elif isinstance(value, float) and not -1.8e308 < value < 1.8e308:
        yield "a number is beyond all bounds"
    elif isinstance(value, str) and HALF.search(value):
        yield "half a character"


def _conversation(line: dict[str, Any], form: str) -> Iterator[str]:
    yield from _only(line, {"messages", "tools", "parallel_tool_calls"}, "the line")
    messages = line.get("messages")
    yield from _messages(messages, form, ends_with_answer=True)
    if isinstance(messages, list):
        yield from _tools(line, messages)
        answers = [each for each in messages if each.get("role") == "assistant"]
        if form == "openai" and all(each.get("weight", 1) == 0 for each in answers):
            yield "nothing in it is trained"


def _preference(line: dict[str, Any]) -> Iterator[str]:
    outputs = ("preferred_output", "non_preferred_output")
    yield from _only(line, {"input", *outputs}, "the line")
    asked = line.get("input")
    if not isinstance(asked, dict):
        yield "no input"
        return
    yield from _only(asked, {"messages", "tools", "parallel_tool_calls"}, "the input")
    yield from _messages(asked.get("messages"), "dpo", ends_with_answer=False)
    said = list(asked.get("messages") or ())
    for name in outputs:
        output = line.get(name)
        if not isinstance(output, list) or len(output) != 1:
            yield f"{name} is not one message"
            continue
        yield from _messages(output, "dpo", ends_with_answer=True)
        said += output
    if line.get(outputs[0]) == line.get(outputs[1]):
        yield "nothing is preferred"
    yield from _tools(asked, said)


def _judged(line: dict[str, Any]) -> Iterator[str]:
    yield from _only(line, {"prompt", "completion", "label", "tools"}, "the line")
    if not isinstance(line.get("label"), bool):
        yield "no label"
    yield from _messages(line.get("prompt"), "kto", ends_with_answer=False)
    completion = line.get("completion")
    if not isinstance(completion, list) or len(completion) != 1:
        yield "the completion is not one message"
        return
    yield from _messages(completion, "kto", ends_with_answer=True)
    yield from _tools(line, [*(line.get("prompt") or ()), *completion])


def _messages(messages: Any, form: str, *, ends_with_answer: bool) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "no messages"
        return
    open_calls: dict[str, str] = {}
    for at, message in enumerate(messages):
        where = f"message {at}"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in MESSAGE_KEYS:
            yield f"{where} has the role {role!r}"
            return
        yield from _only(message, MESSAGE_KEYS[role], where)
        yield from _content(message, role, where, form)
        if role == "tool":
            if open_calls.pop(message.get("tool_call_id"), None) is None:
                yield f"{where} is a result nobody waits for"
        elif open_calls:
            yield f"{where} comes before the results of {sorted(open_calls)}"
            open_calls.clear()
        if role == "assistant":
            for call in message.get("tool_calls", ()):
                yield from _call(call, where, form)
                if call["id"] in open_calls:
                    yield f"{where} gives two calls one id"
                open_calls[call["id"]] = where
    if ends_with_answer and messages[-1]["role"] != "assistant":
        yield f"the end is of the {messages[-1]['role']}"
    if not ends_with_answer and open_calls:
        yield "what is asked ends with a call"


def _content(message: dict[str, Any], role: str, where: str, form: str) -> Iterator[str]:
    content = message.get("content")
    if "content" not in message:
        yield f"{where} has no content, not even null"
    elif content is None:
        if role != "assistant" or not message.get("tool_calls"):
            yield f"{where} says nothing"
    elif isinstance(content, list):
        if role != "user":
            yield f"{where} has a list for its content"
        for part in content:
            if part.get("type") not in ("text", "image_url", "input_audio", "file"):
                yield f"{where} has a part of type {part.get('type')!r}"
    elif not isinstance(content, str):
        yield f"{where} has a {type(content).__name__} for its content"
    elif role == "assistant" and not content and not message.get("tool_calls"):
        yield f"{where} is an empty answer"
    if "weight" in message and (form != "openai" or message["weight"] not in (0, 1)):
        yield f"{where} has the weight {message['weight']!r}"
    if "tool_calls" in message and not message["tool_calls"]:
        yield f"{where} has an empty list of calls"


def _call(call: Any, where: str, form: str) -> Iterator[str]:
    if set(call) != {"id", "type", "function"} or call["type"] != "function":
        yield f"{where} has a call with {sorted(call)}"
    if not isinstance(call["id"], str) or not call["id"]:
        yield f"{where} has a call without an id"
    function = call["function"]
    if set(function) != {"name", "arguments"} or not function["name"]:
        yield f"{where} has a function with {sorted(function)}"
    arguments = function["arguments"]
    if form in OBJECTS:
        if not isinstance(arguments, dict):
            yield f"{where} has arguments that are no object"
    elif not isinstance(arguments, str):
        yield f"{where} has arguments that are no text"
    else:
        try:
            json.loads(arguments, parse_constant=_no_constant)
        except ValueError as error:
            yield f"{where} has arguments that are no JSON: {error}"


def _tools(line: dict[str, Any], messages: list[dict[str, Any]]) -> Iterator[str]:
    called = {
        call["function"]["name"] for message in messages for call in message.get("tool_calls", ())
    }
    tools = line.get("tools")
    if tools is None:
        if called:
            yield "tools are called and none are listed"
        if "tools" in line or "parallel_tool_calls" in line:
            yield "what goes with tools is there, and no tools"
        return
    if not isinstance(tools, list) or not tools:
        yield "tools are no list of some"
        return
    names = []
    for tool in tools:
        function = tool.get("function", {})
        names.append(function.get("name"))
        if set(tool) != {"type", "function"} or tool["type"] != "function":
            yield f"a tool has {sorted(tool)}"
        if not set(function) <= {"name", "description", "parameters", "strict"}:
            yield f"a tool's function has {sorted(function)}"
    if len(set(names)) < len(names):
        yield "a tool is listed twice"
    if not called <= set(names):
        yield f"not listed is {sorted(called - set(names))}"
    if line.get("parallel_tool_calls") not in (None, True, False):
        yield "parallel_tool_calls is neither true nor false"


def _only(value: dict[str, Any], known: set[str], where: str) -> Iterator[str]:
    if set(value) - known:
        yield f"{where} has the keys {sorted(set(value) - known)}"
