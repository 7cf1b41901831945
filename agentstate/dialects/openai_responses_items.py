"""Which output item a streamed piece belongs to, and what all pieces of an item add up to.

By the book every event names its item by place (`output_index`) and id, `output_item.added` opens
an item, `output_item.done` and the last event repeat it whole. Real upstreams give each event an id
of its own (GitHub Copilot), number texts and calls apart so that places collide, send deltas and no
items, or `output: []` at the end. The rules for that are in `_find` and `_find_item`; the
counterpart is `openai_responses_reading.py`, which feeds the events.
Invariant: what any event showed of a tool call is in exactly one item, at a position that no later
event changes.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from agentstate.dialects.base import Mark
from agentstate.dialects.lenient import as_integer, as_list, as_object, as_text, join_text
from agentstate.dialects.tool_deltas import write_arguments
from agentstate.ground.canonical import JSON

# Calls that carry a name; every other one is named by its type.
NAMED_CALLS = frozenset(("function_call", "custom_tool_call", "mcp_call", "mcp_approval_request"))
# What the provider runs by itself, before anybody here sees it. Of any other call, also of a kind
# that nobody knows yet, the client can be kept from running it: see `runs_upstream`.
RUNS_UPSTREAM = frozenset(
    (
        "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
        "mcp_call", "mcp_list_tools",
    )
)  # fmt: skip
_CONTAINERS = ("container_reference", "container_auto")  # of a shell that the provider runs

# Where the input of a call stands in its item, by type; of a type that has no row, in any of these.
INPUTS: dict[str, tuple[str, ...]] = {
    "function_call": ("arguments",),
    "custom_tool_call": ("input",),
    "mcp_call": ("arguments",),
    "mcp_approval_request": ("arguments",),
    "tool_search_call": ("arguments",),
    "local_shell_call": ("action",),
    "shell_call": ("action",),
    "computer_call": ("action", "actions"),
    "apply_patch_call": ("operation",),
    "web_search_call": ("action",),
    "file_search_call": ("queries",),
    "code_interpreter_call": ("code",),
}
_ANY_INPUT = ("arguments", "input", "action", "operation", "actions", "queries", "code")


@dataclass(frozen=True, slots=True)
class TextShape:
    """Where a text that comes in pieces stands in its item."""

    kind: str  # of the item
    field: str  # of the item: the text itself, or the list of parts the text is in
    text: str  # the event's, and the part's, name for the text
    part: str = ""  # type of the part; '' = the field is the text
    place: str = ""  # the event's name for the part's place in the list


# By the name of its events, without `.delta` and `.done`.
TEXTS = {
    "response.output_text": TextShape("message", "content", "text", "output_text", "content_index"),
    "response.refusal": TextShape("message", "content", "refusal", "refusal", "content_index"),
    "response.reasoning_text": TextShape(
        "reasoning", "content", "text", "reasoning_text", "content_index"
    ),
    "response.reasoning_summary_text": TextShape(
        "reasoning", "summary", "text", "summary_text", "summary_index"
    ),
    "response.function_call_arguments": TextShape("function_call", "arguments", "arguments"),
    "response.mcp_call_arguments": TextShape("mcp_call", "arguments", "arguments"),
    "response.custom_tool_call_input": TextShape("custom_tool_call", "input", "input"),
    "response.code_interpreter_call_code": TextShape("code_interpreter_call", "code", "code"),
}
# Events that show a part of an item: (field of the item, the event's name for the part's place).
_PARTS = {
    "response.content_part": ("content", "content_index"),
    "response.reasoning_summary_part": ("summary", "summary_index"),
}

# The kind of call in the name of an event; what a call gave back is none.
_KIND_SPOKEN_OF = re.compile(r"response\.(\w+?_call)(?!_output)[_.]")
# What an event may have and still show nothing of its item but that it is there.
SHOWS_NOTHING = frozenset(("type", "sequence_number", "output_index", "item_id"))


def is_call(kind: str) -> bool:
    """Say whether items of this type are tool calls, whoever runs the tool."""
    return kind.endswith("_call") or kind == "mcp_approval_request"


def runs_upstream(item: dict[str, JSON]) -> bool:
    """Say whether the provider runs this call by itself. A shell can be the client's or one in a
    container of the provider's, a search for tools either's as well."""
    match item.get("type"):
        case "shell_call":
            return as_object(item.get("environment")).get("type") in _CONTAINERS
        case "tool_search_call":
            return item.get("execution") == "server"
        case kind:
            return kind in RUNS_UPSTREAM


def input_fields(item: dict[str, JSON]) -> tuple[str, ...]:
    """Return the fields that hold the input of a call; a client may look into each of them."""
    own = INPUTS.get(as_text(item.get("type")) or "", ())
    for keys in (own, _ANY_INPUT):
        if found := tuple(key for key in keys if item.get(key) is not None):
            return found
    return ()


def read_input(item: dict[str, JSON]) -> str:
    """Return the text of a call's arguments, or its action as JSON; an object wherever it can be
    one, so that a rule can look into it."""
    fields = input_fields(item)
    if len(fields) == 1:
        match item[fields[0]]:
            case str(text) if fields[0] in ("arguments", "input"):
                return text
            case dict(one):
                return write_arguments(one)
    return write_arguments({key: item[key] for key in fields}) if fields else ""


class Item:
    """One output item, as far as it has arrived."""

    __slots__ = ("_parts", "_pieces", "_told", "call_id", "fields", "is_announced", "is_done",
                 "item_id", "kind", "place", "position")  # fmt: skip

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.fields: dict[str, JSON] = {"type": kind}  # as last seen whole
        self.item_id: str | None = None
        self.call_id: str | None = None
        self.place: int | None = None  # as last told; None = no event named one
        self.position = 0  # of a tool call: its index among all
        self.is_announced = False  # an `added` was seen
        self.is_done = False  # it was seen whole
        self._parts: dict[tuple[str, int], dict[str, JSON]] = {}  # by (field, place)
        self._pieces: dict[tuple[str, int | None], list[str]] = {}  # None = the field is the text
        self._told: dict[int, list[str]] = {}  # by place: what `untold` has returned

    @property
    def name(self) -> str:
        """The name of the tool, so far; the type's own for a built-in one."""
        if self.kind in NAMED_CALLS:
            return as_text(self.fields.get("name")) or ""
        return self.kind

    def take_whole(self, fields: dict[str, JSON], *, is_done: bool) -> None:
        """Take in the item as an event shows it. What it had when it was done is not lost."""
        kept = self.fields if self.is_done else {}
        lost = {key: value for key, value in kept.items() if value and _is_blank(fields.get(key))}
        self.fields = {**fields, **lost}
        self.item_id = as_text(fields.get("id")) or self.item_id
        self.call_id = as_text(fields.get("call_id")) or self.call_id
        self.is_done = self.is_done or is_done

    def take_part(self, field: str, place: int, part: dict[str, JSON]) -> None:
        """Take in a part as an event shows it."""
        self._parts[field, place] = part

    def take_text(self, shape: TextShape, place: int, text: str, *, is_whole: bool) -> None:
        """Take in a piece of a text, or all of it."""
        key = (shape.field, place if shape.part else None)
        if shape.part and (shape.field, place) not in self._parts:
            part: dict[str, JSON] = {"type": shape.part, shape.text: ""}
            if shape.part == "output_text":
                part["annotations"] = []
            self._parts[shape.field, place] = part
        if is_whole and text:
            self._pieces[key] = [text]
        else:
            self._pieces.setdefault(key, []).append(text)

    def untold(self, place: int, text: str, *, is_whole: bool) -> str:
        """Return what of a text of a message was not told before. One that is shown whole and is
        another than its pieces were is told again: nothing of it may stay unseen."""
        told = self._told.setdefault(place, [])
        if not is_whole or not text:
            told.append(text)
            return text
        before = join_text(told)
        self._told[place] = [text]
        return text.removeprefix(before) if text.startswith(before) else text

    def whole(self) -> dict[str, JSON]:
        """Return the item; what its last whole form lacks is filled in from the pieces."""
        fields = dict(self.fields)
        for (field, place), pieces in self._pieces.items():
            if place is None and not fields.get(field):
                fields[field] = join_text(pieces)
        for field in ("summary", "content"):
            built = self._build_parts(field)
            if built and (not fields.get(field) or (_has_text(built) and _is_mute(fields[field]))):
                fields[field] = built
        return fields

    def _build_parts(self, field: str) -> list[JSON]:
        built: list[JSON] = []
        for key, part in sorted(self._parts.items(), key=lambda pair: pair[0]):
            if key[0] == field:
                text_key = _text_key(part)
                pieces = self._pieces.get(key, [])
                filled = part if part.get(text_key) else {**part, text_key: join_text(pieces)}
                built.append(filled if pieces else part)
        return built


class Output:
    """The output items of one response, in the order they appeared."""

    __slots__ = ("_at", "_by_call", "_by_id", "_open", "calls", "items", "listed", "spoken_of",
                 "texts")  # fmt: skip

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.calls: list[Item] = []  # those that are tool calls; the index is the position
        self.texts: list[str] = []  # of messages, piece by piece as they came; the reader clears it
        self.spoken_of: Item | None = None  # the item that the last event showed; None = none
        self.listed: list[Item] = []  # those of the last list of items that came, in its order
        self._at: dict[tuple[int, str], Item] = {}  # by place and type: the last one there
        self._by_id: dict[tuple[str, str], Item] = {}  # by type and id
        self._by_call: dict[tuple[str, str], Item] = {}  # by type and call id
        self._open: dict[str, Item] = {}  # by type: the one an event spoke of last

    def take(self, name: str, event: dict[str, JSON]) -> Mark:
        """Take in an event of this name and say what it holds."""
        self.spoken_of = None
        stem, _, verb = name.rpartition(".")
        if stem == "response.output_item":
            return self._take_item(event, is_done=verb == "done")
        if stem in _PARTS:
            return self._take_part(*_PARTS[stem], event)
        if (shape := TEXTS.get(stem)) is not None and verb in ("delta", "done"):
            return self._take_text(shape, event, is_whole=verb == "done")
        if "_call" in stem:  # the progress of a built-in one, or a form nobody knows yet
            self._take_unknown(name, event)
            return Mark.TOOL
        return Mark.CONTENT if event.get("delta") else Mark.PREFACE

    def find_spoken_of(self, name: str, event: dict[str, JSON]) -> Item | None:
        """Return the item that an event of no known form speaks of; None = it cannot be told."""
        place, item_id = as_integer(event.get("output_index")), as_text(event.get("item_id"))
        call_id, stem = as_text(event.get("call_id")) or "", name.removeprefix("response.")
        kinds = sorted({item.kind for item in self.items if item.kind}, key=len, reverse=True)
        # 1. By its name, as in `response.shell_call_command.delta`: the longest kind that fits.
        for kind in kinds:
            if stem.startswith(kind) and (found := self._find(place, item_id, kind)) is not None:
                return found
        # 2. By its ids, then by its place, where only one item has that.
        named = [self._by_id.get((kind, item_id or "")) for kind in kinds]
        called = [self._by_call.get((kind, call_id)) for kind in kinds]
        placed = [self._at.get((-1 if place is None else place, kind)) for kind in kinds]
        for candidates in (named, called, placed):
            known = [item for item in candidates if item is not None]
            if len(known) == 1:
                return known[0]
        return None

    def take_begun(self, output: list[JSON]) -> Mark:
        """Take in the list of items that an event before the end brings. By the book it is empty;
        but a client takes what it has for items that are there."""
        marks: set[Mark] = set()
        listed: list[Item] = []
        for place, fields in enumerate(output):
            if isinstance(fields, dict):
                event: dict[str, JSON] = {"output_index": place, "item": fields}
                self.spoken_of = None
                marks.add(self._take_item(event, is_done=False))
                listed.append(self.spoken_of or Item(""))
        self.listed, self.spoken_of = listed, None
        return next((mark for mark in (Mark.TOOL, Mark.CONTENT) if mark in marks), Mark.PREFACE)

    def take_final(self, output: list[JSON]) -> None:
        """Take in the list of items that the last event brings; it may be empty or lack some."""
        self.spoken_of = None
        whole = [fields for fields in output if isinstance(fields, dict)]
        seen = self._match(whole)
        for at, fields in enumerate(whole):
            if at not in seen:
                seen[at] = self._start(as_text(fields.get("type")) or "")
            seen[at].take_whole(fields, is_done=True)
            self._tell(seen[at], fields)
        ordered = [seen[at] for at in range(len(whole))]
        self.listed = ordered
        found = set(map(id, ordered))
        ordered += [item for item in self.items if id(item) not in found]
        # A position names a call for good: the last event's order counts only if it agrees.
        if [item for item in ordered if is_call(item.kind)] == self.calls:
            self.items = ordered

    # --- events -----------------------------------------------------------------------------

    def _take_item(self, event: dict[str, JSON], *, is_done: bool) -> Mark:
        fields = as_object(event.get("item"))
        kind = as_text(fields.get("type"))
        if kind is None:
            return Mark.PREFACE
        place = as_integer(event.get("output_index"))
        item = self._find_item(place, kind, fields, is_new=not is_done) or self._start(kind)
        item.take_whole(fields, is_done=is_done)
        item.is_announced = item.is_announced or not is_done
        self._index(item, place)
        self._tell(item, fields)
        self.spoken_of = item
        if is_call(kind):
            return Mark.TOOL
        is_mute = _is_mute(fields.get("content")) and _is_mute(fields.get("summary"))
        return Mark.PREFACE if is_mute and kind in ("message", "reasoning") else Mark.CONTENT

    def _take_part(self, field: str, place_key: str, event: dict[str, JSON]) -> Mark:
        part = as_object(event.get("part"))
        has_text = bool(part.get(_text_key(part)))
        kinds = ("reasoning", "message") if field == "summary" else ("message", "reasoning")
        place, item_id = as_integer(event.get("output_index")), as_text(event.get("item_id"))
        found = (self._find(place, item_id, kind) for kind in kinds)
        item = next((each for each in found if each is not None), None)
        if item is None and has_text:
            item = self._start(kinds[0], item_id)
            self._index(item, place)
        self.spoken_of = item
        if item is not None and part:
            index = as_integer(event.get(place_key)) or 0
            item.take_part(field, index, part)
            if field == "content" and has_text:
                self._tell_text(item, index, part.get("text"))
        return Mark.CONTENT if has_text else Mark.PREFACE

    def _take_text(self, shape: TextShape, event: dict[str, JSON], *, is_whole: bool) -> Mark:
        text = event.get(shape.text if is_whole else "delta")
        if not isinstance(text, str):
            return Mark.TOOL if is_call(shape.kind) else Mark.PREFACE
        place, item_id = as_integer(event.get("output_index")), as_text(event.get("item_id"))
        item = self._find(place, item_id, shape.kind)
        if item is None:
            item = self._start(shape.kind, item_id)
            self._index(item, place)
        if is_whole and as_text(event.get("name")) and not item.name:
            item.fields["name"] = event["name"]
        index = as_integer(event.get(shape.place)) or 0
        item.take_text(shape, index, text, is_whole=is_whole)
        self._open[shape.kind] = item
        self.spoken_of = item
        if shape.part == "output_text":
            self._tell_text(item, index, text, is_whole=is_whole)
        if is_call(shape.kind):
            return Mark.TOOL
        return Mark.CONTENT if text else Mark.PREFACE

    def _tell(self, item: Item, fields: dict[str, JSON]) -> None:
        """Tell the texts of a message as an event shows it."""
        content = fields.get("content")
        parts: list[JSON] = [{"text": content}] if isinstance(content, str) else as_list(content)
        for index, part in enumerate(parts if item.kind == "message" else ()):
            self._tell_text(item, index, as_object(part).get("text"))

    def _tell_text(self, item: Item, index: int, text: JSON, *, is_whole: bool = True) -> None:
        if isinstance(text, str) and item.kind == "message":
            untold = item.untold(index, text, is_whole=is_whole)
            if untold:
                self.texts.append(untold)

    def _take_unknown(self, name: str, event: dict[str, JSON]) -> None:
        """Open the call that an event of no known form shows something of, if none did before."""
        kind = _KIND_SPOKEN_OF.match(name)
        if kind is None or event.keys() <= SHOWS_NOTHING:
            return
        if self.find_spoken_of(name, event) is None:
            item = self._start(kind[1], as_text(event.get("item_id")))
            self._index(item, as_integer(event.get("output_index")))

    # --- which item -------------------------------------------------------------------------

    def _find(self, place: int | None, item_id: str | None, kind: str) -> Item | None:
        """Return the item of this type that an event speaks of; None = it was not seen before."""
        at = self._open.get(kind) if place is None else self._at.get((place, kind))
        # 1. Place and id agree: also where all items have one id, or all one place.
        if at is not None and item_id is not None and at.item_id == item_id:
            return at
        # 2. A known id names its item, whatever the place says.
        if item_id is not None and (known := self._by_id.get((kind, item_id))) is not None:
            return known
        # 3. An unknown id, or none: the place. Some give every event an id of its own.
        return at

    def _find_item(
        self, place: int | None, kind: str, fields: dict[str, JSON], *, is_new: bool
    ) -> Item | None:
        """Return the item that an `added` (`is_new`) or `done` shows; None = another one."""
        item_id, call_id = as_text(fields.get("id")), as_text(fields.get("call_id"))
        called = None if call_id is None else self._by_call.get((kind, call_id))
        found = self._find(place, item_id, kind) or called
        if found is None:
            return None
        # 4. Two call ids are two calls.
        if call_id is not None and found.call_id not in (None, call_id):
            return called
        # 5. What was opened, or done, is so again only by a repeat at the same place; else another
        #    item took its id or its place.
        if found.is_announced if is_new else found.is_done:
            has_its_id = found.item_id == item_id if item_id is not None else found is called
            is_repeat = has_its_id and (place is None or self._at.get((place, kind)) is found)
            return found if is_repeat else None
        return found

    def _match(self, whole: list[dict[str, JSON]]) -> dict[int, Item]:
        """Find the last event's items among those seen before: item by index in `whole`."""
        left = {id(item): item for item in self.items}
        found: dict[int, Item] = {}
        for at, fields in enumerate(whole):
            kind, call_id = as_text(fields.get("type")) or "", as_text(fields.get("call_id"))
            named = self._by_id.get((kind, as_text(fields.get("id")) or ""))
            if named is not None and None not in (call_id, named.call_id):
                named = None  # the call id decides, see rule 4
            item = self._by_call.get((kind, call_id or "")) or named
            if item is not None and left.pop(id(item), None) is not None:
                found[at] = item
        # The rest in their order: an id that no event had says nothing, see rule 3.
        rest: dict[tuple[str, bool], deque[Item]] = {}
        for item in left.values():
            rest.setdefault((item.kind, item.call_id is None), deque()).append(item)
        for at, fields in enumerate(whole):
            kind = as_text(fields.get("type")) or ""
            queue = rest.get((kind, True)) or (
                rest.get((kind, False)) if as_text(fields.get("call_id")) is None else None
            )
            if at not in found and queue:
                found[at] = queue.popleft()
        return found

    def _start(self, kind: str, item_id: str | None = None) -> Item:
        item = Item(kind)
        if item_id is not None:
            item.item_id = item_id
            item.fields["id"] = item_id
        if kind == "message":
            item.fields["role"] = "assistant"
        self.items.append(item)
        if is_call(kind):
            item.position = len(self.calls)
            self.calls.append(item)
        return item

    def _index(self, item: Item, place: int | None) -> None:
        """Make an item findable. Ids of deltas are not kept: some send a new one with each."""
        if place is not None:
            self._at[place, item.kind] = item
            item.place = place
        if item.item_id is not None:
            self._by_id[item.kind, item.item_id] = item
        if item.call_id is not None:
            self._by_call[item.kind, item.call_id] = item
        self._open[item.kind] = item


def _text_key(part: dict[str, JSON]) -> str:
    return "refusal" if part.get("type") == "refusal" else "text"


def _is_blank(value: JSON) -> bool:
    return value is None or value in ("", [], {})


def _has_text(parts: JSON) -> bool:
    return any(as_object(part).get(_text_key(as_object(part))) for part in as_list(parts))


def _is_mute(parts: JSON) -> bool:
    """Say whether a list of parts is empty, or all of them are texts and say nothing."""
    texts = ("output_text", "refusal", "reasoning_text", "summary_text", "text")
    return not _has_text(parts) and all(
        as_object(part).get("type") in texts for part in as_list(parts)
    )
