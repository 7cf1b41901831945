"""Reads what a client of chat or Messages received, independently of the product's own decoders.

Written to the standard and not shared with `agentstate`, so that a fault there cannot hide itself
here. It reads whole bodies only; tests that care about cuts give it every prefix.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event that a client would dispatch."""

    name: str
    data: str
    has_id: bool = False


@dataclass(slots=True)
class ChoiceRead:
    """One choice as a client adds it up. None = that field never came."""

    text: str = ""
    refusal: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class ChatRead:
    """A chat answer as a client sees it."""

    choices: dict[int, ChoiceRead] = field(default_factory=dict)
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done: bool = False  # `[DONE]` was the last event
    chunks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def first(self) -> ChoiceRead:
        """The first choice; an empty one if there is none."""
        return self.choices.get(0, ChoiceRead())


# Lines end at CR LF, LF or CR and nowhere else (HTML Living Standard, 9.2.6).
_LINE_END = re.compile(r"\r\n|\n|\r")


def read_events(body: bytes) -> list[Event]:
    """Return the events a client would dispatch; an unfinished last one is none."""
    lines = _LINE_END.split(body.decode("utf-8", "replace").removeprefix("\ufeff"))
    lines.pop()  # what follows the last line end is an unfinished line
    events: list[Event] = []
    name, data, has_id = "", list[str](), False
    for line in lines:
        if line == "":
            if data:
                events.append(Event(name or "message", "\n".join(data), has_id))
            name, data, has_id = "", [], False
            continue
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "data":
            data.append(value)
        elif key == "event":
            name = value
        elif key == "id":
            has_id = True
    return events


def is_stream(content_type: str | None) -> bool:
    """Return whether a content type announces server-sent events."""
    return (content_type or "").partition(";")[0].strip().lower() == "text/event-stream"


def read_chat(content_type: str | None, body: bytes) -> ChatRead:
    """Read a chat answer in whichever form its content type says."""
    read = ChatRead()
    if not is_stream(content_type):
        _read_body(read, body)
        return read
    for event in read_events(body):
        read.done = event.data == "[DONE]"
        if read.done:
            continue
        chunk = json.loads(event.data)
        read.chunks.append(chunk)
        if chunk.get("error"):
            read.error = chunk["error"]
        read.usage = chunk.get("usage") or read.usage
        for choice in chunk.get("choices") or []:
            into = read.choices.setdefault(choice["index"], ChoiceRead())
            into.finish_reason = _kept(choice.get("finish_reason"), into.finish_reason)
            _read_delta(into, choice.get("delta") or {})
    return read


def read_messages(content_type: str | None, body: bytes) -> ChatRead:
    """Read an answer of Anthropic's Messages as the one choice of a chat answer."""
    read = ChatRead()
    if not is_stream(content_type):
        whole = json.loads(body)
        read.error = whole.get("error")
        if whole.get("type") == "message":
            read.usage = whole["usage"]
            choice = read.choices.setdefault(0, ChoiceRead(finish_reason=whole["stop_reason"]))
            for block in whole["content"]:
                _read_block(choice, block)
        return read
    for event in read_events(body):
        data = json.loads(event.data)
        assert event.name == data["type"], "an event is named for what it is"
        read.done = event.name == "message_stop"
        read.chunks.append(data)
        into = read.choices.setdefault(0, ChoiceRead())
        match event.name:
            case "error":
                read.error = data["error"]
            case "content_block_start":
                _read_block(into, data["content_block"])
            case "content_block_delta":
                _read_block(into, data["delta"])
            case "message_delta":
                into.finish_reason = data["delta"]["stop_reason"]
                read.usage = data["usage"]
    return read


def _read_block(into: ChoiceRead, block: dict[str, Any]) -> None:
    """Add a block, or a piece of one, to what was read before."""
    into.text += block.get("text") or ""
    if "thinking" in block:
        into.reasoning = (into.reasoning or "") + block["thinking"]
    if block["type"] == "tool_use":
        into.tool_calls.append({"id": block["id"], "name": block["name"], "arguments": ""})
    if "partial_json" in block:
        into.tool_calls[-1]["arguments"] += block["partial_json"]


def _read_body(read: ChatRead, body: bytes) -> None:
    try:
        whole = json.loads(body)
    except ValueError:
        return  # HTML or nothing: there is nothing a chat client could read
    if not isinstance(whole, dict):
        return
    read.error = whole.get("error")
    read.usage = whole.get("usage")
    for choice in whole.get("choices") or []:
        message = choice.get("message") or {}
        read.choices[choice["index"]] = ChoiceRead(
            text=message.get("content") or "",
            refusal=message.get("refusal"),
            reasoning=message.get("reasoning_content"),
            finish_reason=choice.get("finish_reason"),
            tool_calls=[
                {"id": call.get("id"), **call.get("function", {})}
                for call in message.get("tool_calls") or []
            ],
        )


def _read_delta(into: ChoiceRead, delta: dict[str, Any]) -> None:
    into.text += delta.get("content") or ""
    if delta.get("refusal") is not None:
        into.refusal = (into.refusal or "") + delta["refusal"]
    if delta.get("reasoning_content") is not None:
        into.reasoning = (into.reasoning or "") + delta["reasoning_content"]
    for part in delta.get("tool_calls") or []:
        call = _call_of(into.tool_calls, part)
        function = part.get("function") or {}
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""


def _call_of(calls: list[dict[str, Any]], part: dict[str, Any]) -> dict[str, Any]:
    """Find the call a delta belongs to: a known id, then a known index, then the open one."""
    call_id, index = part.get("id") or None, part.get("index")
    if call_id is not None:
        found = [call for call in calls if call["id"] == call_id]
    elif index is not None and any(call["index"] == index for call in calls):
        found = [call for call in calls if call["index"] == index]
    else:
        found = calls[-1:]
    if found:
        return found[-1]
    calls.append({"id": call_id, "index": index, "name": "", "arguments": ""})
    return calls[-1]


def _kept(new: str | None, old: str | None) -> str | None:
    return old if new is None else new
