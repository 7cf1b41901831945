"""The other form of a recorded response: events from a body, a body from events.

A step recorded from a stream can answer a call that wants none, and the reverse. The events are the
whole legal sequence, since clients run a state machine over it: an item is added, its parts and
texts come and are done, the item is done, the response is completed. The last event has the body as
it was recorded, so nothing is lost either way.
Source: OpenAI's OpenAPI document of August 2026, schemas Response and ResponseStreamEvent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentstate.dialects.lenient import as_list, as_object, as_text, read_exact
from agentstate.dialects.openai_responses_items import TEXTS
from agentstate.dialects.openai_responses_reading import (
    ResponsesAssembler,
    read_answer,
    read_ending,
)
from agentstate.ground.canonical import JSON, encode
from agentstate.wire import sse
from agentstate.wire.sse import Frame

Event = tuple[str, dict[str, JSON]]  # name, fields besides it and the number

# Of a response, what is known only at its end.
_AT_THE_END = frozenset(("usage", "completed_at", "output_text"))
# Of an item, what is known only when it is done: with what stands there until then, or not there.
_UNTIL_DONE: dict[str, JSON] = {
    "status": "in_progress",
    "arguments": "",
    "input": "",
    "code": "",
    "content": [],
    "summary": [],
    "outputs": None,
    "result": None,
}
_WHEN_DONE = frozenset(("results", "output", "error", "encrypted_content"))
# What comes between `added` and `done` of these is text; other items that no row names come whole.
_MADE_OF_TEXT = frozenset(("message", "reasoning", "function_call", "custom_tool_call"))
# The states a built-in tool's item goes through, each an event of its own: before its texts, after.
_STATES = {
    "web_search_call": (("in_progress", "searching"), ("completed",)),
    "file_search_call": (("in_progress", "searching"), ("completed",)),
    "image_generation_call": (("in_progress", "generating"), ("completed",)),
    "code_interpreter_call": (("in_progress",), ("interpreting", "completed")),
    "mcp_call": (("in_progress",), ("completed",)),
    "mcp_list_tools": (("in_progress",), ("completed",)),
}
_CAN_FAIL = frozenset(("mcp_call", "mcp_list_tools"))
# The events of a part's text, by the part's type, and of the text that is the item's own.
_PART_STEMS = {shape.part: (stem, shape) for stem, shape in TEXTS.items() if shape.part}
_TEXT_STEMS = {shape.kind: (stem, shape) for stem, shape in TEXTS.items() if not shape.part}


def events_from_body(body: bytes) -> list[bytes]:
    """Make the stream form of a complete response; what is no answer gives no events."""
    return make_events(as_object(read_exact(body))) if read_answer(body).is_complete else []


def body_from_events(frames: Iterable[Frame]) -> bytes:
    """Make the non-streaming form: the last event's response, or one put together from the rest."""
    assembler = ResponsesAssembler()
    for frame in frames:
        assembler.feed(frame)
    return encode(assembler.response())


def make_events(response: dict[str, JSON], piece_chars: int | None = None) -> list[bytes]:
    """Make all events of a response that has ended, its texts in pieces of `piece_chars`; None =
    each in one piece."""
    return [
        sse.encode(encode({"type": name, **fields, "sequence_number": number}), name.encode())
        for number, (name, fields) in enumerate(_list_events(response, piece_chars))
    ]


def _list_events(response: dict[str, JSON], piece_chars: int | None) -> Iterator[Event]:
    begun = {key: value for key, value in response.items() if key not in _AT_THE_END}
    begun |= {key: None for key in ("error", "incomplete_details") if key in begun}
    begun |= {"status": "in_progress"} if "status" in begun else {}
    begun["output"] = []
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for place, item in enumerate(as_list(response.get("output"))):
        if isinstance(item, dict):
            yield from list_item_events(place, item, piece_chars)
    reason, _ = read_ending(response)
    end = "completed" if reason == "completed" else "incomplete"
    yield f"response.{end}", {"response": response}


def list_item_events(place: int, item: dict[str, JSON], piece_chars: int | None) -> Iterator[Event]:
    """Yield the events of one item of a response, from `added` to `done`."""
    kind = as_text(item.get("type")) or ""
    # An id is free to be absent where the call id says enough; the events between need one.
    item_id = as_text(item.get("id")) or as_text(item.get("call_id")) or f"item_{place}"
    at: dict[str, JSON] = {"output_index": place, "item_id": item_id}
    before, after = _STATES.get(kind, ((), ()))
    if kind in _CAN_FAIL and item.get("error"):
        after = ("failed",)
    yield "response.output_item.added", {"output_index": place, "item": _open(kind, item)}
    for state in before:
        yield f"response.{kind}.{state}", at
    if kind == "message":
        yield from _list_part_events(at, item, "content", piece_chars)
    elif kind == "reasoning":
        yield from _list_part_events(at, item, "summary", piece_chars)
        yield from _list_part_events(at, item, "content", piece_chars)
    elif kind in _TEXT_STEMS:
        stem, shape = _TEXT_STEMS[kind]
        if isinstance(text := item.get(shape.field), str):
            for piece in _cut(text, piece_chars):
                yield f"{stem}.delta", {**at, "delta": piece}
            named = {"name": item.get("name")} if kind == "function_call" else {}
            yield f"{stem}.done", {**at, **named, shape.text: text}
    for state in after:
        yield f"response.{kind}.{state}", at
    yield "response.output_item.done", {"output_index": place, "item": item}


def _list_part_events(
    at: dict[str, JSON], item: dict[str, JSON], field: str, piece_chars: int | None
) -> Iterator[Event]:
    is_summary = field == "summary"
    stem_of_part = "response.reasoning_summary_part" if is_summary else "response.content_part"
    for index, part in enumerate(as_list(item.get(field))):
        fields = as_object(part)
        here = {**at, "summary_index" if is_summary else "content_index": index}
        known = _PART_STEMS.get(as_text(fields.get("type")) or "")
        if known is None:
            yield f"{stem_of_part}.added", {**here, "part": part}
            yield f"{stem_of_part}.done", {**here, "part": part}
            continue
        stem, shape = known
        text = as_text(fields.get(shape.text)) or ""
        bare = {key: value for key, value in fields.items() if key != "logprobs"}
        bare |= {"annotations": []} if "annotations" in fields else {}
        yield f"{stem_of_part}.added", {**here, "part": {**bare, shape.text: ""}}
        logprobs = as_list(fields.get("logprobs"))
        beside: dict[str, JSON] = {"logprobs": []} if shape.part == "output_text" else {}
        pieces = _cut(text, piece_chars)
        for piece in pieces:
            # Which tokens make up which piece is not told: with the text in one piece, all do.
            own = {"logprobs": logprobs} if beside and len(pieces) == 1 else beside
            yield f"{stem}.delta", {**here, "delta": piece, **own}
        for number, annotation in enumerate(as_list(fields.get("annotations"))):
            noted: dict[str, JSON] = {"annotation_index": number, "annotation": annotation}
            yield "response.output_text.annotation.added", {**here, **noted}
        beside |= {"logprobs": logprobs} if beside else {}
        yield f"{stem}.done", {**here, shape.text: text, **beside}
        yield f"{stem_of_part}.done", {**here, "part": part}


def _open(kind: str, item: dict[str, JSON]) -> dict[str, JSON]:
    """Return an item as it is added: what is still to come is left out."""
    if kind not in _MADE_OF_TEXT and kind not in _STATES:
        return item  # a form whose parts have no events that we know: it comes whole
    return {
        key: _UNTIL_DONE.get(key, value) for key, value in item.items() if key not in _WHEN_DONE
    }


def _cut(text: str, piece_chars: int | None) -> list[str]:
    if piece_chars is None:
        return [text]
    return [text[at : at + piece_chars] for at in range(0, len(text), piece_chars)] or [""]
