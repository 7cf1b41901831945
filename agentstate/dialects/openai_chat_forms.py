"""The other form of a recorded chat answer: events from a body, a body from events.

A step recorded from a stream can answer a call that wants none, and the reverse. Both ways nothing
is lost that a client could use: fields nobody here knows are carried, numbers keep their text. Both
are meant for complete answers; what is no answer gives none.
Source: OpenAI's OpenAPI document of August 2026, schemas CreateChatCompletionResponse and
CreateChatCompletionStreamResponse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from agentstate.dialects import openai_errors
from agentstate.dialects.lenient import (
    Unreadable,
    as_integer,
    as_list,
    as_object,
    as_text,
    read_exact,
)
from agentstate.dialects.tool_deltas import ToolDeltas
from agentstate.ground.canonical import JSON, encode
from agentstate.wire import sse
from agentstate.wire.sse import Frame

DONE_FRAME = sse.encode(b"[DONE]")

_MERGE_DEPTH_MAX = 16  # of objects inside a delta; deeper ones are taken whole, the last one wins

# Texts that come in pieces, in a message or in an object in it (audio).
_TEXT_KEYS = frozenset(
    ("content", "refusal", "reasoning_content", "reasoning", "transcript", "data")
)  # fmt: skip
_FORMS = {"function": "arguments", "custom": "input"}  # of a tool call, with the key of its text
_MESSAGE_KEYS = frozenset(
    ("role", "content", "refusal", "reasoning_content", "reasoning", "tool_calls", "function_call")
)
_CHOICE_KEYS = frozenset(("index", "delta", "message", "finish_reason", "logprobs"))
_HEAD_KEYS = ("id", "created", "model", "system_fingerprint", "service_tier")
_BODY_KEYS = frozenset((*_HEAD_KEYS, "object", "choices", "usage", "obfuscation"))


def events_from_body(body: bytes, include_usage: bool) -> list[bytes]:
    """Make the stream form: per choice its role, texts and calls; then the finish reasons."""
    try:
        value = as_object(read_exact(body))
    except Unreadable:
        value = {}
    head: dict[str, JSON] = {"object": "chat.completion.chunk"}
    head |= {key: value[key] for key in _HEAD_KEYS if value.get(key) is not None}
    chunks: list[dict[str, JSON]] = []
    endings: list[dict[str, JSON]] = []
    for position, choice in enumerate(as_list(value.get("choices"))):
        if isinstance(choice, dict):
            *pieces, ending = _split_choice(position, choice)
            chunks += [{**head, "choices": [piece]} for piece in pieces]
            endings.append({**head, "choices": [ending]})
    chunks += endings
    if chunks:
        # What no chunk is known to carry (citations, filter results) goes with the first.
        chunks[0] |= _unknown(value, _BODY_KEYS)
    usage = value.get("usage")
    if include_usage and isinstance(usage, dict):
        chunks.append({**head, "choices": [], "usage": usage})
    return [*(sse.encode(encode(cast(JSON, chunk))) for chunk in chunks), DONE_FRAME]


def body_from_events(frames: Iterable[Frame]) -> bytes:
    """Make the non-streaming form: deltas merged by choice, the last usage."""
    merge = _Merge()
    for frame in frames:
        if frame.data is None:
            continue
        try:
            chunk = read_exact(frame.data)
        except Unreadable:
            continue  # `[DONE]`; a stream with other such frames is no complete answer
        if isinstance(chunk, dict) and not openai_errors.is_error(chunk):
            merge.take(chunk)
    return encode(cast(JSON, merge.body()))


class _ChoiceMerge:
    """The pieces of one choice, to be merged."""

    __slots__ = ("calls", "deltas", "finish_reason", "index", "logprobs", "rest", "tools")

    def __init__(self, index: int) -> None:
        self.index = index
        self.deltas: list[dict[str, JSON]] = []  # without tool calls
        self.tools = ToolDeltas()
        self.calls: dict[int, list[dict[str, JSON]]] = {}  # pieces by position of the call
        self.logprobs: list[dict[str, JSON]] = []
        self.finish_reason: JSON = None
        self.rest: dict[str, JSON] = {}

    def take(self, choice: dict[str, JSON]) -> None:
        texts: dict[str, JSON] = {}
        delta = as_object(choice.get("delta"))
        for key in delta:  # not its items: of a key that came twice the reader sees the last
            value = delta[key]
            if key == "tool_calls":
                for piece in as_list(value):
                    if isinstance(piece, dict):
                        self._keep_call(self.tools.feed(piece).position, piece)
            elif key == "function_call":
                if isinstance(value, dict) and value:
                    self._keep_call(self.tools.feed_legacy(value).position, value)
            else:
                texts[key] = value
        self.deltas.append(texts)
        if isinstance(logprobs := choice.get("logprobs"), dict):
            self.logprobs.append(logprobs)
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.rest |= _unknown(choice, _CHOICE_KEYS)

    def choice(self) -> dict[str, JSON]:
        message: dict[str, JSON] = {"role": "assistant", "content": None, "refusal": None}
        message |= _fold(self.deltas)
        message["role"] = as_text(message["role"]) or "assistant"
        calls: list[JSON] = []
        for call in self.tools.calls:
            merged = _fold(self.calls[call.position])
            if call.is_legacy:
                merged = {**merged, "name": call.name, "arguments": call.arguments}
                if call.position in (0, len(self.tools.calls) - 1):
                    message["function_call"] = merged
                    continue
                # Between others only a list can keep its position, which is what the gate's
                # decisions are bound to.
                merged = {"function": merged}
            merged.pop("index", None)
            form = next((form for form in _FORMS if merged.get(form) is not None), call.kind)
            if form in _FORMS:
                merged[form] = {
                    **as_object(merged.get(form)), "name": call.name, _FORMS[form]: call.arguments
                }  # fmt: skip
            own: dict[str, JSON] = {} if call.call_id is None else {"id": call.call_id}
            calls.append({**merged, **own, "type": call.kind})
            message["tool_calls"] = calls
        # A stream begins with content '' also where the whole answer has null.
        if not message["content"] and (self.tools.calls or message["refusal"]):
            message["content"] = None
        return {
            "index": self.index,
            "message": message,
            "logprobs": _fold_logprobs(self.logprobs),
            "finish_reason": self.finish_reason,
            **self.rest,
        }

    def _keep_call(self, position: int, piece: dict[str, JSON]) -> None:
        self.calls.setdefault(position, []).append(piece)


class _Merge:
    """The chunks of one stream, to be merged into a body."""

    __slots__ = ("choices", "head", "rest", "usage")

    def __init__(self) -> None:
        self.head: dict[str, JSON] = {}
        self.rest: dict[str, JSON] = {}  # what we do not know: the last of each
        self.choices: dict[int, _ChoiceMerge] = {}
        self.usage: dict[str, JSON] = {}

    def take(self, chunk: dict[str, JSON]) -> None:
        for key in _HEAD_KEYS:
            if not self.head.get(key) and chunk.get(key) is not None:
                self.head[key] = chunk[key]
        self.rest |= _unknown(chunk, _BODY_KEYS)
        self.usage = as_object(chunk.get("usage")) or self.usage
        for position, choice in enumerate(as_list(chunk.get("choices"))):
            if isinstance(choice, dict):
                index = as_integer(choice.get("index"))
                index = position if index is None else index
                if index not in self.choices:
                    self.choices[index] = _ChoiceMerge(index)
                self.choices[index].take(choice)

    def body(self) -> dict[str, JSON]:
        body: dict[str, JSON] = {"object": "chat.completion", **self.head, **self.rest}
        body["choices"] = [self.choices[index].choice() for index in sorted(self.choices)]
        if self.usage:
            body["usage"] = self.usage
        return body


def _fold(deltas: list[dict[str, JSON]], depth: int = 0) -> dict[str, JSON]:
    """Merge deltas: texts and lists are joined, objects merged, of all else the last one wins."""
    values: dict[str, list[JSON]] = {}
    for delta in deltas:
        for key, value in delta.items():
            values.setdefault(key, []).append(value)
    return {key: _fold_values(key, of_key, depth) for key, of_key in values.items()}


def _fold_values(key: str, values: list[JSON], depth: int) -> JSON:
    given = [value for value in values if value is not None]
    if not given:
        return None
    texts = [value for value in given if isinstance(value, str)]
    if len(texts) == len(given):
        # Empty strings never overwrite.
        return "".join(texts) if key in _TEXT_KEYS else next(filter(None, reversed(texts)), "")
    if any(isinstance(value, list) for value in given):
        # Mistral sends content as text in one chunk and as a list of parts in another.
        return [part for value in given for part in _parts(value)]
    objects = [value for value in given if isinstance(value, dict)]
    if objects and depth < _MERGE_DEPTH_MAX:
        return _fold(objects, depth + 1)
    return given[-1]


def _parts(value: JSON) -> list[JSON]:
    if isinstance(value, list):
        return value
    return [{"type": "text", "text": value}] if isinstance(value, str) and value else []


def _fold_logprobs(logprobs: list[dict[str, JSON]]) -> JSON:
    if not logprobs:
        return None
    return {"content": None, "refusal": None, **_fold(logprobs)}


def _split_choice(position: int, choice: dict[str, JSON]) -> list[dict[str, JSON]]:
    """Make the chunks' choices of one choice of a body; the last one has the finish reason."""
    index = as_integer(choice.get("index"))
    at: dict[str, JSON] = {"index": position if index is None else index}
    pieces: list[dict[str, JSON]] = [
        {**at, "delta": delta, "finish_reason": None}
        for delta in _split_message(as_object(choice.get("message")))
    ]
    ending: dict[str, JSON] = {
        **at, "delta": {}, "finish_reason": choice.get("finish_reason"),
        **_unknown(choice, _CHOICE_KEYS),
    }  # fmt: skip
    logprobs = choice.get("logprobs")
    if logprobs is not None:
        # With the text they speak of; else, so that they are not lost, with the end.
        bearers = (piece for piece in pieces if _has_text(as_object(piece["delta"])))
        next(bearers, ending)["logprobs"] = logprobs
    return [*pieces, ending]


def _split_message(message: dict[str, JSON]) -> list[dict[str, JSON]]:
    content = message.get("content")
    opening: dict[str, JSON] = {
        "role": as_text(message.get("role")) or "assistant",
        "content": "" if content else content,
    }
    deltas = [opening | _unknown(message, _MESSAGE_KEYS)]
    for key in ("reasoning_content", "reasoning", "content", "refusal"):
        if message.get(key):
            deltas.append({key: message[key]})
    for key in message:  # in its order: it gives the calls their positions
        if key == "tool_calls":
            calls = [call for call in as_list(message[key]) if isinstance(call, dict)]
            deltas += [{key: [{**call, "index": at}]} for at, call in enumerate(calls)]
        elif key == "function_call" and message[key]:
            deltas.append({key: message[key]})
    return deltas


def _unknown(fields: dict[str, JSON], known: frozenset[str]) -> dict[str, JSON]:
    return {key: value for key, value in fields.items() if key not in known and value is not None}


def _has_text(delta: dict[str, JSON]) -> bool:
    return bool(delta.get("content") or delta.get("refusal"))
