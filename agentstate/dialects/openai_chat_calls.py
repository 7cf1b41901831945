"""Changes the tool calls of chat answers: other arguments, or without some of the calls.

Theory of operation. Which call each piece of a stream belongs to is decided by `ToolDeltas`, as it
was when the answer was read: `CallWalk` is fed the same chunks and names the call of every piece.
Pieces of refused calls are taken out, an edited call has all of its new arguments where the old
ones began, and calls after a refused one move up to the indexes before theirs.

With pieces gone a reader may take what is left differently, where a piece says too little of whose
it is. So what goes out is read along, by a second `ToolDeltas`, and a piece that would land
elsewhere is written more plainly (`_Outlet`).

The invariant: what comes out reads as the calls that are left, and everything before the first
frame of a changed call comes out byte for byte. Joining two answers is in `openai_chat_joins.py`,
what the model is told about a refusal in `openai_chat_history.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentstate.dialects.edits import read_new_arguments
from agentstate.dialects.lenient import (
    Unreadable,
    as_list,
    as_object,
    as_text,
    read_exact,
)
from agentstate.dialects.openai_chat_reading import choice_index, read_chunk
from agentstate.dialects.tool_deltas import CallBuilder, ToolDeltas, read_name
from agentstate.ground.approvals import Changes, Place
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest
from agentstate.wire import sse
from agentstate.wire.sse import Frame

# Finish reasons that say "see the calls", and what a choice ends with that has none.
_CALLING = ("tool_calls", "function_call")
_PLAIN_END = "stop"

_TEXT_KEYS = {"function": "arguments", "custom": "input"}  # by form of a call
# What every chunk of a stream says: no reason to send one.
_HEAD_KEYS = frozenset(
    ("id", "object", "created", "model", "system_fingerprint", "service_tier", "obfuscation",
     "choices")
)  # fmt: skip

# What becomes of pieces: by entry of the list of choices, then by key and place in the list of
# calls. None = it is taken out.
_Fates = dict[int, dict[tuple[str, int], dict[str, JSON] | None]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a piece of a call stands in a chunk, or a whole call in a body."""

    entry: int  # of the list of choices
    choice: int  # its index, as the reader takes it
    key: str  # "tool_calls" or "function_call"
    item: int  # of the list of calls; 0 in the legacy form
    fields: dict[str, JSON]
    builder: CallBuilder  # of the call whose it is
    number: int  # of the pieces of its call, from 0
    begins_arguments: bool  # no piece of its call before it had any

    @property
    def position(self) -> int:
        """Of its call, within the choice."""
        return self.builder.position

    @property
    def place(self) -> Place:
        """What names its call."""
        return self.choice, self.builder.position


class CallWalk:
    """Names the call of every piece of an answer, as the reader numbers them."""

    def __init__(self) -> None:
        self.tools: dict[int, ToolDeltas] = {}  # by choice index
        self._begun: set[Place] = set()  # calls of which arguments have come
        self._counts: dict[Place, int] = {}  # pieces by call

    def take(self, fields: dict[str, JSON], holder: str) -> list[Piece]:
        """Take in a chunk, where a "delta" holds the pieces, or a body, where a "message" does."""
        pieces: list[Piece] = []
        for entry, choice in enumerate(as_list(fields.get("choices"))):
            if not isinstance(choice, dict):
                continue
            index = choice_index(choice.get("index"), entry)
            tools = self.tools.setdefault(index, ToolDeltas())
            held = as_object(choice.get(holder))
            for key in held:  # not by items: of a key that came twice the reader sees the last
                for item, piece in _pieces_under(key, held[key]):
                    if key == "function_call":
                        call = tools.feed_legacy(piece)
                    else:
                        call = tools.feed(piece) if holder == "delta" else tools.add(piece)
                    place = (index, call.position)
                    begins = call.has_arguments and place not in self._begun
                    if begins:
                        self._begun.add(place)
                    number = self._counts.get(place, 0)
                    self._counts[place] = number + 1
                    pieces.append(Piece(entry, index, key, item, piece, call, number, begins))
        return pieces

    def bears_arguments(self, piece: Piece) -> bool:
        """Return whether a piece, once all are known, is the one that gets new arguments.

        It is where the old ones began. Of a call that had none it is the last one: what comes
        before arguments and what comes after them is not read alike.
        """
        if piece.place in self._begun:
            return piece.begins_arguments
        return piece.number == self._counts[piece.place] - 1

    def check(self, changes: Changes) -> None:
        """Check that all calls that are to be changed were seen and take what they are to get.

        Raises:
            BadRequest: they were not, or do not.
        """
        for (choice, position), arguments in changes.items():
            tools = self.tools.get(choice)
            if tools is None or not 0 <= position < len(tools.calls):
                raise BadRequest(f"Choice {choice} of the answer has no tool call {position}.")
            if arguments is not None and tools.calls[position].kind != "custom":
                read_new_arguments(arguments)

    def emptied(self, changes: Changes) -> set[int]:
        """Return the choices that have no call left after the changes."""
        return {
            choice
            for choice, _ in changes
            if all(
                changes.get((choice, call.position), "") is None
                for call in self.tools[choice].calls
            )
        }


def changed_body(body: bytes, changes: Changes) -> bytes:
    """Change an answer that was not streamed; see `base.CallsTools`."""
    if not changes:
        return body
    value = read_body(body)
    walk = CallWalk()
    pieces = walk.take(value, "message")
    walk.check(changes)
    fates: _Fates = {}
    for piece in pieces:
        if piece.place in changes:
            new = changes[piece.place]
            fates.setdefault(piece.entry, {})[piece.key, piece.item] = (
                None if new is None else _with_arguments(piece.fields, piece.builder, new)
            )
    emptied = walk.emptied(changes)
    choices: list[JSON] = []
    for entry, choice in enumerate(as_list(value.get("choices"))):
        if isinstance(choice, dict):
            choice = _with_fates(choice, "message", fates.get(entry, {}))
            if choice_index(choice.get("index"), entry) in emptied:
                choice = _without_calls(choice)
        choices.append(choice)
    return encode({**value, "choices": choices})


def changed_events(frames: Sequence[Frame], changes: Changes) -> bytes:
    """Change a stream; see `base.CallsTools`."""
    if not changes:
        return b"".join(frame.raw for frame in frames)
    walk = CallWalk()
    chunks = [read_chunk(frame) for frame in frames]
    pieces = [[] if chunk is None else walk.take(chunk, "delta") for chunk in chunks]
    walk.check(changes)
    emptied = walk.emptied(changes)
    outlets = {choice: _Outlet(walk, choice, changes) for choice, _ in changes}
    out: list[bytes] = []
    for frame, chunk, of_chunk in zip(frames, chunks, pieces, strict=True):
        exact = _Exact(frame)
        fates: _Fates = {}
        for piece in of_chunk:
            if piece.choice in outlets:
                new = outlets[piece.choice].take(piece, exact)
                if new is not piece.fields:
                    fates.setdefault(piece.entry, {})[piece.key, piece.item] = new
        # Where a choice ends before its calls, its end is out already.
        ending = {choice for choice in emptied if outlets[choice].is_changing}
        ends = set() if chunk is None else _calling_ends(chunk, ending)
        out.append(_with_chunk(frame, exact.chunk, fates, ends) if fates or ends else frame.raw)
    return b"".join(out)


def read_body(body: bytes) -> dict[str, JSON]:
    """Read an answer for writing it again.

    Raises:
        BadRequest: it cannot be read.
    """
    try:
        return as_object(read_exact(body))
    except Unreadable as error:
        raise BadRequest("The answer is no JSON that can be read and written again.") from error


def render_chunk(frame: Frame, chunk: dict[str, JSON]) -> bytes:
    """Render a frame with another chunk in it; b'' if nothing is left that it would say."""
    says = any(value for key, value in chunk.items() if key not in _HEAD_KEYS)
    for choice in as_list(chunk.get("choices")):
        fields = as_object(choice)
        says = says or any(as_object(fields.get("delta")).values())
        says = says or any(fields[key] for key in fields if key not in ("index", "delta"))
    return sse.encode(encode(chunk), frame.event) if says else b""


class _Exact:
    """The chunk of a frame with its numbers as sent, read once it is needed."""

    __slots__ = ("_chunk", "_frame")

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._chunk: dict[str, JSON] | None = None

    @property
    def chunk(self) -> dict[str, JSON]:
        if self._chunk is None:
            self._chunk = read_body(self._frame.data or b"")
        return self._chunk

    def fields(self, piece: Piece) -> dict[str, JSON]:
        choice = as_object(as_list(self.chunk.get("choices"))[piece.entry])
        held = as_object(choice.get("delta"))[piece.key]
        return as_object(held if isinstance(held, dict) else as_list(held)[piece.item])


class _Outlet:
    """The calls of one choice of a stream as they go out, read along as a client reads them."""

    __slots__ = ("_changes", "_fresh", "_landed", "_moved", "_out", "_walk", "is_changing")

    def __init__(self, walk: CallWalk, choice: int, changes: Changes) -> None:
        self.is_changing = False  # a piece of a changed call has come
        self._walk = walk
        self._changes = changes
        self._out = ToolDeltas()
        self._landed: dict[int, CallBuilder] = {}  # position as it came → the call that went out
        # The calls that stay take the indexes of all of them, in order: those before the first
        # refused one keep theirs, and no gap comes up where none was. Not where two calls share an
        # index: they are told apart by more than that.
        indexed = [call for call in walk.tools[choice].calls if call.index is not None]
        kept = [call for call in indexed if changes.get((choice, call.position), "") is not None]
        is_clear = len({call.index for call in indexed}) == len(indexed)
        self._moved = {
            call.position: other.index
            for call, other in zip(kept, indexed, strict=False)
            if is_clear and call is not other
        }
        self._fresh = max((call.index or 0 for call in indexed), default=0)  # none above is used

    def take(self, piece: Piece, exact: _Exact) -> dict[str, JSON] | None:
        """Return what goes out for a piece: its own fields as they are, others, or None."""
        call, is_changed = piece.builder, piece.place in self._changes
        self.is_changing = self.is_changing or is_changed
        new = self._changes.get(piece.place, "")
        if new is None:
            return None
        fields = before = exact.fields(piece) if self.is_changing else piece.fields
        if is_changed:
            bears = self._walk.bears_arguments(piece)
            fields = _with_arguments(before, call, new if bears else "")
            if fields != before and not _says_more(fields):
                return None
        if self.is_changing and not call.is_legacy:
            fields = self._fitting(call, fields)
        if fields == before:
            fields = piece.fields
        if not call.is_legacy:
            landed = self._out.feed(fields)
            assert self._landed.setdefault(call.position, landed) is landed, "it stays one call"
        return fields

    def _fitting(self, call: CallBuilder, fields: dict[str, JSON]) -> dict[str, JSON]:
        """Return the first way to write a piece in which it is taken for its call's."""
        if call.position in self._moved and fields.get("index") is not None:
            fields = {**fields, "index": self._moved[call.position]}
        target = self._landed.get(call.position)
        if target is None:
            ways = _openings(call, fields, unused=self._fresh + 1 + call.position)
        else:
            ways = _continuations(call, fields, target)
        for way in ways:
            if self._out.find(way) is target:
                return way
        raise BadRequest(
            "The pieces of this stream's tool calls do not say well enough to which call they "
            "belong, so they cannot be changed. Approve all of them as they are, or refuse all."
        )


def _openings(
    call: CallBuilder, fields: dict[str, JSON], *, unused: int
) -> Iterator[dict[str, JSON]]:
    """Yield ways to write the first piece of a call, the one it came in first."""
    yield fields
    form = "custom" if call.kind == "custom" else "function"
    named: JSON = {**as_object(fields.get(form)), "name": call.name}
    plain = {**fields, "index": unused, form: named}
    if call.call_id is None:
        yield plain
    yield {**plain, "id": call.call_id or f"call_{call.position}"}


def _continuations(
    call: CallBuilder, fields: dict[str, JSON], target: CallBuilder
) -> Iterator[dict[str, JSON]]:
    """Yield ways to write a later piece of a call of which `target` went out."""
    if target.name == call.name and read_name(fields) != call.name:
        fields = _without_name(fields)  # a part of the name, which was said whole
    yield fields
    if read_name(fields) == target.name:
        fields = _without_name(fields)
        yield fields
    bare = {key: value for key, value in fields.items() if key not in ("index", "id")}
    if target.index is not None:
        yield {**fields, "index": target.index}
        yield {**bare, "index": target.index}
    if target.call_id is not None:
        yield {**bare, "id": target.call_id}
    yield bare


def _without_name(fields: dict[str, JSON]) -> dict[str, JSON]:
    named = {form: fields[form] for form in _TEXT_KEYS if as_object(fields.get(form)).get("name")}
    return fields | {
        form: {key: value for key, value in as_object(held).items() if key != "name"}
        for form, held in named.items()
    }


def _with_arguments(fields: dict[str, JSON], call: CallBuilder, text: str) -> dict[str, JSON]:
    """Return a piece, or a whole call, with other arguments in the place of its own."""
    if call.is_legacy:
        return _with_text(fields, "arguments", text)
    new = {
        form: _with_text(held, key, text)
        for form, key in _TEXT_KEYS.items()
        if isinstance(held := fields.get(form), dict) and held.get(key) is not None
    }
    if not new and text:
        form = "custom" if call.kind == "custom" else "function"
        new = {form: _with_text(as_object(fields.get(form)), _TEXT_KEYS[form], text)}
    return {**fields, **new}


def _with_text(held: dict[str, JSON], key: str, text: str) -> dict[str, JSON]:
    sent = held.get(key)
    if isinstance(sent, dict) and text:  # Ollama's own form, and of some who copy it
        return {**held, key: read_new_arguments(text)}
    return {**held, key: text} if sent is not None or text else held


def _says_more(fields: dict[str, JSON]) -> bool:
    """Return whether a piece says anything besides where it belongs."""
    forms = [as_object(fields.get(form)) for form in _TEXT_KEYS]
    others = {key: fields[key] for key in fields if key != "index" and key not in _TEXT_KEYS}
    return any(any(each.values()) for each in (*forms, others))


def _pieces_under(key: str, value: JSON) -> Iterator[tuple[int, dict[str, JSON]]]:
    if key == "tool_calls":
        for item, piece in enumerate(as_list(value)):
            if isinstance(piece, dict):
                yield item, piece
    elif key == "function_call" and isinstance(value, dict) and value:
        yield 0, value


def _calling_ends(chunk: dict[str, JSON], ending: set[int]) -> set[int]:
    """Return the entries of choices in `ending` that tell a client to look at its calls."""
    return {
        entry
        for entry, choice in enumerate(as_list(chunk.get("choices")))
        if isinstance(choice, dict)
        and choice_index(choice.get("index"), entry) in ending
        and _ends_calling(choice)
    }


def _ends_calling(choice: dict[str, JSON]) -> bool:
    return as_text(choice.get("finish_reason")) in _CALLING


def _with_chunk(frame: Frame, chunk: dict[str, JSON], fates: _Fates, ends: set[int]) -> bytes:
    choices: list[JSON] = []
    for entry, choice in enumerate(as_list(chunk.get("choices"))):
        if isinstance(choice, dict):
            choice = _with_fates(choice, "delta", fates.get(entry, {}))
            if entry in ends:
                choice = {**choice, "finish_reason": _PLAIN_END}
        choices.append(choice)
    return render_chunk(frame, {**chunk, "choices": choices})


def _with_fates(
    choice: dict[str, JSON], holder: str, fates: Mapping[tuple[str, int], dict[str, JSON] | None]
) -> dict[str, JSON]:
    if not fates:
        return choice
    held = {**as_object(choice.get(holder))}
    if ("function_call", 0) in fates:
        held["function_call"] = fates["function_call", 0]
        if held["function_call"] is None:
            del held["function_call"]
    if any(key == "tool_calls" for key, _ in fates):
        calls = as_list(held["tool_calls"])
        taken_out = {
            item for (key, item), new in fates.items() if key == "tool_calls" and new is None
        }
        left = [
            fates.get(("tool_calls", item), call)
            for item, call in enumerate(calls)
            if item not in taken_out
        ]
        held["tool_calls"] = left
        if not any(isinstance(call, dict) for call in left):
            del held["tool_calls"]
    return {**choice, holder: held}


def _without_calls(choice: dict[str, JSON]) -> dict[str, JSON]:
    """Return a choice of a body that ends like one that called none."""
    message = as_object(choice.get("message"))
    if message.get("content") is None and not message.get("refusal"):
        # Clients expect null beside calls and refusals only.
        message = {**message, "content": ""}
    reason = _PLAIN_END if _ends_calling(choice) else choice.get("finish_reason")
    return {**choice, "message": message, "finish_reason": reason}
