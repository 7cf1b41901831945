"""The other form of a recorded Messages answer: events from a body, a body from events.

A step recorded from a stream can answer a call that wants none, and the reverse. Both ways nothing
is lost that a client could use: signatures of thinking, citations, blocks and fields nobody here
knows are carried, numbers keep their text. Events are named, since Anthropic's SDKs skip those
without a name. Both are meant for complete answers; what is no answer gives none.
Source: as for `anthropic_messages_reading.py`; how pieces add up is the SDK's `accumulate_event`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from agentstate.dialects import anthropic_errors
from agentstate.dialects.anthropic_messages_reading import IMPLIED_TYPES, event_type, is_tool_call
from agentstate.dialects.lenient import (
    Unreadable,
    as_integer,
    as_list,
    as_object,
    as_text,
    join_text,
    read_exact,
)
from agentstate.ground.canonical import JSON, encode
from agentstate.wire import sse
from agentstate.wire.sse import Frame


def _event(kind: str, **fields: JSON) -> bytes:
    return sse.encode(encode({"type": kind, **fields}), kind.encode("ascii"))


DONE_FRAME = _event("message_stop")

# Where tool arguments that are no JSON object go, in a form that has only objects. The key is the
# one of platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming.
NO_JSON_KEY = "INVALID_JSON"

# What a message has at its end only. `message_start` has null there, `message_delta` the value.
_ENDING_KEYS = ("stop_reason", "stop_sequence", "stop_details", "container")
# What of the usage `message_delta` repeats, where it is known.
_FINAL_COUNTS = (
    "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
    "output_tokens_details", "server_tool_use", "iterations",
)  # fmt: skip
# Texts that come in pieces, by the type of the piece: its key there, and the block's own.
_TEXT_DELTAS = {"text_delta": "text", "thinking_delta": "thinking"}


def events_from_body(body: bytes) -> list[bytes]:
    """Make the stream form: per block its start, its pieces and its stop; then the stop reason."""
    try:
        value = as_object(read_exact(body))
    except Unreadable:
        value = {}
    if anthropic_errors.is_error(value) or value.get("type") != "message":
        return [DONE_FRAME]
    usage = as_object(value.get("usage"))
    output = usage.get("output_tokens")
    opened: dict[str, JSON] = {
        **value,
        "content": [],
        # Clients write into the usage of the start, so it must be there.
        "usage": {"input_tokens": 0, **usage, "output_tokens": 0},
        **{key: None for key in _ENDING_KEYS if key in value},
    }
    counts: dict[str, JSON] = {"output_tokens": 0 if output is None else output}
    counts |= {key: usage[key] for key in _FINAL_COUNTS if usage.get(key) is not None}
    delta = {key: value[key] for key in _ENDING_KEYS if key in value}
    blocks = [block for block in as_list(value.get("content")) if isinstance(block, dict)]
    return [
        _event("message_start", message=opened),
        *(event for index, block in enumerate(blocks) for event in _block_events(index, block)),
        _event("message_delta", delta=delta, usage=counts),
        DONE_FRAME,
    ]


def body_from_events(frames: Iterable[Frame]) -> bytes:
    """Make the non-streaming form: blocks put together, the last of each count."""
    merge = _Merge()
    for frame in frames:
        if frame.data is None:
            continue
        try:
            event = read_exact(frame.data)
        except Unreadable:
            continue  # a stream with such a frame is no complete answer
        if isinstance(event, dict) and not anthropic_errors.is_error(event):
            merge.take(event_type(event, frame), event)
    return encode(cast(JSON, merge.body()))


def _block_events(index: int, block: dict[str, JSON]) -> Iterator[bytes]:
    opened, deltas = _split_block(block)
    yield _event("content_block_start", index=index, content_block=opened)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _split_block(block: dict[str, JSON]) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    """Return the block as it starts, and the pieces that come after. What is in neither of the
    known pieces stays in the start: there clients take a block as it is."""
    opened, deltas = dict(block), list[dict[str, JSON]]()
    if is_tool_call(block):
        if isinstance(block.get("input"), dict) and block["input"]:
            opened["input"] = {}
            text = encode(block["input"]).decode("ascii")
            deltas.append({"type": "input_json_delta", "partial_json": text})
        return opened, deltas
    for kind, key in _TEXT_DELTAS.items():
        if block.get("type") == key and as_text(block.get(key)):
            opened[key] = ""
            deltas.append({"type": kind, key: block[key]})
    if block.get("type") == "thinking" and as_text(block.get("signature")):
        opened["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    if block.get("type") == "text" and isinstance(citations := block.get("citations"), list):
        opened["citations"] = []
        deltas += [{"type": "citations_delta", "citation": each} for each in citations]
    return opened, deltas


# What a block is read by is as it started, or of the piece made for it: no piece of a kind that
# readers pass over changes what the other form says.
_OF_NO_PIECE = frozenset(("type", "id", "name", "input", "text"))
_OF_ITS_OWN = {"text_delta": _OF_NO_PIECE - {"text"}}


class _BlockMerge:
    """One block, as it started, and its pieces."""

    __slots__ = ("_arguments", "_fields", "_texts")

    def __init__(self, fields: dict[str, JSON]) -> None:
        self._fields = dict(fields)
        self._texts: dict[str, list[str]] = {}  # by key of the block
        self._arguments: list[str] = []

    def take(self, delta: dict[str, JSON]) -> None:
        kind = str(delta.get("type"))
        for key in delta:  # of one that comes twice the last counts, as for who reads the stream
            value = delta[key]
            if key in _OF_ITS_OWN.get(kind, _OF_NO_PIECE):
                continue
            if kind == "input_json_delta" and key == "partial_json":
                self._arguments.append(value if isinstance(value, str) else "")
            elif kind == "citations_delta" and key == "citation":
                self._extend("citations", [value])
            elif f"{key}_delta" == kind and kind != "signature_delta" and isinstance(value, str):
                # A piece of text, as the types that are known have it: text_delta has `text`.
                self._texts.setdefault(key, []).append(value)
            elif isinstance(value, list):
                self._extend(key, value)
            elif value is not None or key not in self._fields:
                self._fields[key] = value

    def _extend(self, key: str, values: list[JSON]) -> None:
        known = self._fields.get(key)
        if isinstance(known, list):
            known.extend(values)
        else:
            self._fields[key] = values

    def block(self) -> dict[str, JSON]:
        whole = dict(self._fields)
        for key, pieces in self._texts.items():
            whole[key] = join_text([as_text(whole.get(key)) or "", *pieces])
        if text := join_text(self._arguments):
            whole["input"] = _read_arguments(text)
        return whole


class _Merge:
    """The events of one stream, to be merged into a body."""

    __slots__ = ("_at", "_blocks", "_message", "_usage")

    def __init__(self) -> None:
        self._message: dict[str, JSON] = {}
        self._blocks: list[_BlockMerge] = []
        self._at: dict[int, _BlockMerge] = {}
        self._usage: dict[str, JSON] = {}

    def take(self, kind: str, event: dict[str, JSON]) -> None:
        match kind:
            case "message_start" if not self._message:
                self._take_start(as_object(event.get("message")))
            case "content_block_start":
                self._open(as_integer(event.get("index")), as_object(event.get("content_block")))
            case "content_block_delta":
                delta = as_object(event.get("delta"))
                self._find(as_integer(event.get("index")), delta).take(delta)
            case "message_delta":
                _overlay(self._message, as_object(event.get("delta")))
                _overlay(self._usage, as_object(event.get("usage")))
                beside = {
                    key: value
                    for key, value in event.items()
                    if key not in ("type", "delta", "usage")
                }
                _overlay(self._message, beside)  # context_management, and what is new

    def body(self) -> dict[str, JSON]:
        whole = {**self._message, "content": [block.block() for block in self._blocks]}
        if self._usage:
            whole["usage"] = self._usage
        return cast(dict[str, JSON], whole)

    def _take_start(self, message: dict[str, JSON]) -> None:
        # A gateway may leave them out, which no reader of a stream minds.
        told = {"type": "message", "role": message.get("role", "assistant")}
        self._message = {**message, **told}
        self._usage = {**as_object(message.get("usage"))}
        for index, block in enumerate(as_list(message.get("content"))):
            if isinstance(block, dict):
                self._open(index, block)

    def _open(self, index: int | None, fields: dict[str, JSON]) -> None:
        block = _BlockMerge(fields)
        self._blocks.append(block)
        self._at[len(self._blocks) - 1 if index is None else index] = block
        if fields.get("type") == "fallback":
            # As the SDK does: the message is of the model that went on.
            model = as_object(fields.get("to")).get("model")
            _overlay(self._message, {"model": model})

    def _find(self, index: int | None, delta: dict[str, JSON]) -> _BlockMerge:
        block = self._at.get(max(self._at, default=0) if index is None else index)
        if block is None:
            self._open(index, {"type": IMPLIED_TYPES.get(str(delta.get("type")), "")})
            block = self._blocks[-1]
        return block


def _overlay(under: dict[str, JSON], fields: dict[str, JSON]) -> None:
    """Put later values over earlier ones. Null says nothing of a field that has a value."""
    for key, value in fields.items():
        if value is not None or key not in under:
            under[key] = value


def _read_arguments(text: str) -> JSON:
    """Return the object that arguments are; or one that holds them, where a model was cut off."""
    try:
        value = read_exact(text)
    except Unreadable:
        value = None
    return value if isinstance(value, dict) else {NO_JSON_KEY: text}
