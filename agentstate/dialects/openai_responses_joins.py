"""Answers in the Responses form that go on: an earlier round's text, then the next one's answer.

What a client has got of a stream stands; the second one is written as the rest of it. Its items are
items of their own after the first one's, which are closed where they were left open, since clients
run a state machine over the events. The counterpart is `openai_responses_calls.py`, which changes
answers. Invariant: what went out of the first stream is never taken back, its response id included.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from agentstate.dialects.lenient import as_integer, as_list, as_object, as_text
from agentstate.dialects.openai_responses_calls import Told, follow, read_body
from agentstate.dialects.openai_responses_forms import list_item_events
from agentstate.dialects.openai_responses_items import Item, is_call, runs_upstream
from agentstate.dialects.openai_responses_reading import ENDS, PROGRESS, read_answer
from agentstate.ground.canonical import JSON, digest, encode
from agentstate.wire import sse
from agentstate.wire.sse import Frame

# Between the text of an earlier round and the next one's.
BREAK = "\n\n"


# --- joined ---------------------------------------------------------------------------------------


def joined_body(text: str, second: bytes) -> bytes:
    """Return an answer after the text of an earlier round, which is a message of its own: first,
    since a thought must stay with what it was thought for; see `base.CallsTools`."""
    if not text:
        return second
    response = read_body(second)
    if read_answer(second).text:
        text += BREAK
    # An id of a message has to look like one; nobody upstream knows this.
    name = digest(text.encode("utf-8", "surrogatepass"), second).hex()[:32]
    part: JSON = {"type": "output_text", "text": text, "annotations": []}
    message: JSON = {
        "id": f"msg_{name}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    return encode({**response, "output": [message, *as_list(response.get("output"))]})


def joined_events(first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
    """Return a stream that goes on as another one; see `base.CallsTools`.

    The response keeps the id that its first event gave it: clients refuse a stream in which it
    changes (openai-python: "Lifecycle response identity changed"), and some chain from the first
    event, some from the last. `openai_responses_splices.spliced` puts the right one into a later
    request.
    """
    if not first:
        return b"".join(frame.raw for frame in second)
    return b"".join((*(frame.raw for frame in first), *_Joiner(first, second).run()))


class _Joiner:
    """Writes a second stream as the rest of a first one."""

    def __init__(self, first: Sequence[Frame], second: Sequence[Frame]) -> None:
        told, opening = follow(first)
        self._second, later = follow(second)
        self._has_head = any(each.name in PROGRESS for each in told)
        self._is_numbered = any(each.is_numbered for each in told)
        self._number = opening.next_number
        self._response_id = opening.snapshot().response_id
        items = opening.output.items
        self._places = {id(item): _place(item, at) for at, item in enumerate(items)}
        self._shift = max((place + 1 for place in self._places.values()), default=0)
        self._open = [item for item in items if not item.is_done]
        self._done = {_key(each.name, each.event or {}) for each in told}
        self._opening: list[JSON] = [_closed(item) for item in items]
        self._later = later.output.items
        self._renamed = _rename(items, self._later)
        has_text = bool(opening.snapshot().text)
        self._broken = _find_text(self._later) if has_text else None
        self._has_break = False  # a delta with it went out

    def run(self) -> Iterator[bytes]:
        """Yield the frames that follow the first stream."""
        for item in self._open:
            for name, fields in list_item_events(self._places[id(item)], _closed(item), None):
                if name.endswith(".done") and _key(name, fields) not in self._done:
                    yield self._render(name, fields)
        for told in self._second:
            if told.event is None:
                yield told.frame.raw
            elif not (self._has_head and told.name in PROGRESS):
                yield told.render(self._go_on(told, told.event))

    def _render(self, name: str, fields: dict[str, JSON]) -> bytes:
        event: dict[str, JSON] = {"type": name, **fields}
        if self._is_numbered:
            event["sequence_number"] = self._number
            self._number += 1
        return sse.encode(encode(event), name.encode())

    def _go_on(self, told: Told, event: dict[str, JSON]) -> dict[str, JSON]:
        if self._broken is not None and told.item is self._broken[0]:
            event = self._with_break(told.name, event, self._broken[1])
        event = dict(event)
        for key in ("item_id", "item"):
            if key in event:
                event[key] = self._with_id(event[key])
        if told.place is not None:
            event["output_index"] = told.place + self._shift
        if told.is_numbered:
            event["sequence_number"] = self._number
            self._number += 1
        if told.name in ENDS and isinstance(response := event.get("response"), dict):
            event["response"] = self._with_all(response, told.listed)
        return event

    def _with_id(self, value: JSON) -> JSON:
        """Return an id, or an item with it, by the name it has beside those of the first stream."""
        if isinstance(value, dict):
            return {**value, "id": self._with_id(value["id"])} if "id" in value else value
        return self._renamed.get(value, value) if isinstance(value, str) else value

    def _with_all(self, response: dict[str, JSON], listed: tuple[Item, ...]) -> dict[str, JSON]:
        """Return the response of the last event with what came before it."""
        if self._has_head and self._response_id is not None:
            response = {**response, "id": self._response_id}
        if not isinstance(response.get("output"), list):
            return response  # clients take the items as they were done
        output: list[tuple[JSON, Item | None]] = []
        if listed:
            left = iter(listed)
            for entry in as_list(response.get("output")):
                output.append((entry, next(left) if isinstance(entry, dict) else None))
        else:  # a few show their items in the stream alone
            output += [(item.whole(), item) for item in self._later]
        whole = list(self._opening)
        for entry, item in output:
            if self._broken is not None and item is self._broken[0]:
                entry = _break_item(as_object(entry), self._broken[1])
            whole.append(self._with_id(entry) if isinstance(entry, dict) else entry)
        return {**response, "output": whole}

    def _with_break(self, name: str, event: dict[str, JSON], index: int) -> dict[str, JSON]:
        """Return an event of the message whose text the blank line stands before."""
        stem, _, verb = name.rpartition(".")
        broken = event
        if stem == "response.output_item":
            broken = {**event, "item": _break_item(as_object(event.get("item")), index)}
        elif (as_integer(event.get("content_index")) or 0) != index:
            return event
        elif stem == "response.content_part":
            broken = {**event, "part": _break_part(as_object(event.get("part")))}
        elif stem == "response.output_text.annotation":
            return {**event, "annotation": _moved(event.get("annotation"))}
        elif stem == "response.output_text" and (verb == "done" or not self._has_break):
            broken = _break_text(event, "text" if verb == "done" else "delta")
        self._has_break = self._has_break or broken != event
        return broken


def _place(item: Item, at: int) -> int:
    return at if item.place is None else item.place


def _closed(item: Item) -> dict[str, JSON]:
    """Return an item of a stream that went no further."""
    fields = item.whole()
    if not item.is_done and fields.get("status") == "in_progress":
        fields["status"] = "incomplete" if is_call(item.kind) else "completed"
    return fields


def _key(name: str, event: dict[str, JSON]) -> tuple[str, int | None, int | None, int | None]:
    """Return what tells the events of the parts of a response apart."""
    at, part, summary = (
        as_integer(event.get(key)) for key in ("output_index", "content_index", "summary_index")
    )
    return name, at, part, summary


def _rename(first: list[Item], second: list[Item]) -> dict[str, str]:
    """Return new names for ids that are taken: a client would take the items for one. But what a
    client may answer by its id (a server's question for consent) keeps it."""
    taken = {item.item_id for item in first}
    asked = {
        item.item_id for item in second if is_call(item.kind) and not runs_upstream(item.fields)
    }
    renamed: dict[str, str] = {}
    for item in second:
        name = item.item_id
        if name is not None and name in taken - asked and name not in renamed:
            fresh = (f"{name}_{number}" for number in itertools.count(2))
            renamed[name] = next(each for each in fresh if each not in taken)
    return renamed


def _find_text(items: list[Item]) -> tuple[Item, int] | None:
    """Return where the text of an answer begins: the message, and the place of its part."""
    for item in items:
        if item.kind == "message":
            content = item.whole().get("content")
            if isinstance(content, str) and content:
                return item, 0
            for index, part in enumerate(as_list(content)):
                if as_text(as_object(part).get("text")):
                    return item, index
    return None


def _break_item(item: dict[str, JSON], index: int) -> dict[str, JSON]:
    content = item.get("content")
    if isinstance(content, str):
        return _break_text(item, "content")
    parts = as_list(content)
    if index >= len(parts):
        return item
    broken: JSON = _break_part(as_object(parts[index]))
    return {**item, "content": [*parts[:index], broken, *parts[index + 1 :]]}


def _break_part(part: dict[str, JSON]) -> dict[str, JSON]:
    broken = _break_text(part, "text")
    if broken is not part and isinstance(notes := part.get("annotations"), list):
        broken["annotations"] = [_moved(note) for note in notes]
    return broken


def _break_text(fields: dict[str, JSON], key: str) -> dict[str, JSON]:
    text = as_text(fields.get(key))
    return fields if text is None else {**fields, key: BREAK + text}


def _moved(annotation: JSON) -> JSON:
    """Return an annotation of a text that has the blank line before it."""
    fields = as_object(annotation)
    moved = {
        key: at + len(BREAK)
        for key in ("start_index", "end_index")
        if (at := as_integer(fields.get(key))) is not None
    }
    return {**fields, **moved} if moved else annotation
