"""What is new in a stream in the Responses form, piece by piece, for who translates it.

Fed by the assembler with every event it has taken in, once somebody asked. A delta is a piece as it
is; whatever shows a text whole (its end, its part, its item, the last event) gives what of it was
not told before. Joined, the pieces are what `openai_responses_reading.py` makes of all items.
Invariant: no text is told twice, but for one that turns out to be another than its deltas were.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from agentstate.dialects.lenient import (
    Unreadable,
    as_integer,
    as_list,
    as_object,
    as_text,
    join_text,
    read_exact,
)
from agentstate.dialects.openai_responses_items import (
    TEXTS,
    Item,
    Output,
    is_call,
    read_input,
    runs_upstream,
)
from agentstate.ground.canonical import JSON, canonical
from agentstate.ground.chat import Piece
from agentstate.ground.errors import BadRequest

Kind = Literal["text", "refusal", "reasoning", "call"]
Key = tuple[Kind, str, int]  # of a text of an item: what it is, its field, its place there

# What the neutral form calls a call; a built-in one keeps its type.
KINDS = {"function_call": "function", "custom_tool_call": "custom"}

_BETWEEN_THOUGHTS = "\n\n"  # as the whole answer has it
_CALL: Key = ("call", "", 0)  # the input of a call: it has one
# What the text of an event is, by the type of the part it is in.
_PART_KINDS: dict[str, Kind] = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "reasoning",
}


class Pieces:
    """What of one stream was not given out yet."""

    __slots__ = ("_calls_count", "_heads", "_thought_fields", "_told", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Piece] = []
        self._told: dict[tuple[int, Key], list[str]] = {}  # by item
        self._calls_count = 0  # of the calls that were told of
        self._heads: dict[int, tuple[str | None, str]] = {}  # id and name told, by position
        # Which field of an item its thoughts are told from: some have a text and its summary.
        self._thought_fields: dict[int, str] = {}

    def give(self) -> list[Piece]:
        """Return the pieces that came since this was last asked."""
        pieces, self._waiting = self._waiting, []
        return pieces

    def take(self, name: str, event: dict[str, JSON], output: Output) -> None:
        """Take in an event of this name, after `output` did."""
        for call in output.calls[self._calls_count :]:
            self._tell_of(call)
        self._calls_count = len(output.calls)
        stem, _, verb = name.rpartition(".")
        item, shape = output.spoken_of, TEXTS.get(stem)
        if item is None:
            # Those that speak of no item in particular can have a list of all.
            for each in output.items if "response" in event else ():
                self._take_whole(each)
        elif shape is not None and verb == "delta" and not item.is_done:
            key = _CALL
            if shape.part:
                place = as_integer(event.get(shape.place)) or 0
                key = (_PART_KINDS[shape.part], shape.field, place)
            if text := as_text(event.get("delta")):
                self._tell(item, key, text)
        else:
            self._take_whole(item)

    def _take_whole(self, item: Item) -> None:
        if is_call(item.kind):
            self._tell_of(item)
        for key, text in _list_texts(item):
            told = join_text(self._told.get((id(item), key), []))
            if text.startswith(told):
                self._tell(item, key, text[len(told) :])
            elif not (key[0] == "call" and _is_same_json(told, text)):
                # Nothing of it may stay unseen. Two arguments in a row are no JSON any more: rather
                # a call that fails than one that is not the one on record.
                self._tell(item, key, text)
            self._told[id(item), key] = [text]

    def _tell(self, item: Item, key: Key, text: str) -> None:
        kind, field, _ = key
        if not text or (kind == "call" and runs_upstream(item.fields)):
            return
        if kind == "reasoning":
            if self._thought_fields.setdefault(id(item), field) != field:
                return
            if (id(item), key) not in self._told and self._has_thought():
                self._waiting.append(Piece(0, kind, _BETWEEN_THOUGHTS))
        self._told.setdefault((id(item), key), []).append(text)
        self._waiting.append(_call_piece(item, text) if kind == "call" else Piece(0, kind, text))

    def _tell_of(self, call: Item) -> None:
        """Tell what a call is called, if that is new."""
        piece = _call_piece(call, "")
        head = piece.call_id, piece.name
        if self._heads.get(call.position) != head and not runs_upstream(call.fields):
            self._heads[call.position] = head
            self._waiting.append(piece)

    def _has_thought(self) -> bool:
        return any(key[0] == "reasoning" for _, key in self._told)


def _call_piece(item: Item, text: str) -> Piece:
    return Piece(
        choice=0,
        kind="call",
        text=text,
        position=item.position,
        call_id=item.call_id or item.item_id,
        name=item.name,
        call_kind=KINDS.get(item.kind, item.kind),
    )


def _list_texts(item: Item) -> Iterator[tuple[Key, str]]:
    """Yield the texts of an item as far as it has come."""
    fields = item.whole()
    if item.kind == "message":
        for place, part in enumerate(_list_parts(fields.get("content"))):
            for kind in ("text", "refusal"):
                if text := as_text(part.get(kind)):
                    yield (kind, "content", place), text
    elif item.kind == "reasoning":
        for field in ("summary", "content"):
            for place, part in enumerate(_list_parts(fields.get(field))):
                if text := as_text(part.get("text")):
                    yield ("reasoning", field, place), text
    # The input of a built-in call is an object, which has a text only when it is whole.
    elif is_call(item.kind) and (item.is_done or item.kind in KINDS):
        yield _CALL, read_input(fields)


def _list_parts(parts: JSON) -> list[dict[str, JSON]]:
    return [{"text": parts}] if isinstance(parts, str) else [*map(as_object, as_list(parts))]


def _is_same_json(one: str, other: str) -> bool:
    """Say whether two texts are one value; some write arguments anew when they are done."""
    try:
        return canonical(read_exact(one)) == canonical(read_exact(other))
    except (Unreadable, BadRequest):
        return False
