"""What the gate does to answers in the Messages form: calls changed and left out, answers joined.

Answers and streams are changed as they stand, so that signatures of thinking, numbers and fields
nobody here knows survive. The counterpart is `anthropic_messages_reading.py`: a call is the one
that its assembler gives this place, and a stream is walked here exactly as it is read there.
The invariant: where a call is changed, nothing of the model's own arguments comes out.
Source: platform.claude.com/docs/en/agents-and-tools/mcp-connector, .../tool-use/overview, and the
types of the `anthropic` package 2.14, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentstate.dialects import anthropic_errors
from agentstate.dialects.anthropic_messages_forms import events_from_body
from agentstate.dialects.anthropic_messages_reading import (
    IMPLIED_TYPES,
    RUN_UPSTREAM,
    MessagesAssembler,
    event_type,
    is_tool_call,
)
from agentstate.dialects.base import Ask, Tool
from agentstate.dialects.edits import read_new_arguments
from agentstate.dialects.lenient import (
    Unreadable,
    as_integer,
    as_list,
    as_object,
    as_text,
    read_exact,
)
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer
from agentstate.wire import sse
from agentstate.wire.sse import Frame, SSEDecoder

HEARTBEAT = b'event: ping\ndata: {"type": "ping"}\n\n'

# Anthropic's own tools that the client runs. All others run upstream as far as anybody here knows:
# asked about once too often is better than run unasked.
_RUN_BY_CLIENT = frozenset(
    ("custom", "bash", "text_editor", "computer", "memory", "computer_toolset", "browser_toolset")
)
_DATED = re.compile(r"(.+)_\d{8}")  # web_search_20250305
# Besides its own name, the names that calls of a tool go by. Since code_execution_20250825.
_MEMBERS = {"code_execution": ("bash_code_execution", "text_editor_code_execution")}

THOUGHTS = frozenset(("thinking", "redacted_thinking"))
_TEXTS = frozenset(("text", "text_delta"))


# --- the tools of a request -----------------------------------------------------------------------


def list_tools(ask: Ask) -> tuple[Tool, ...]:
    """Return the tools a request offers: its own, those of servers, and those added on the way."""
    found: dict[tuple[str, bool], Tool] = {}
    for tool in (*_declared(ask), *_of_servers(ask)):
        found.setdefault((tool.name, tool.runs_upstream), tool)
    return tuple(found.values())


def _declared(ask: Ask) -> Iterator[Tool]:
    for tool in as_list(ask.body.get("tools")):
        yield from _read_tool(as_object(tool))
    for message in ask.messages:
        if as_object(message).get("role") != "system":
            continue
        for block in as_list(as_object(message).get("content")):
            added = as_object(as_object(block).get("tool"))
            if added.get("type") == "tool_definition":
                yield from _read_tool(as_object(added.get("definition")))
            elif added.get("type") == "mcp_tool_reference":
                yield from _of_server(as_text(added.get("server_name")), [added.get("name")])


def _read_tool(tool: dict[str, JSON]) -> Iterator[Tool]:
    kind = as_text(tool.get("type")) or "custom"
    dated = _DATED.fullmatch(kind)
    family = dated[1] if dated else kind
    name = as_text(tool.get("name"))
    if family == "mcp_toolset":
        yield from _of_toolset(tool)
    elif family in _RUN_BY_CLIENT:
        if name is None and family != "custom":
            name = family  # a toolset has no name of its own
        if name is not None:
            yield Tool(name, tool.get("input_schema"), runs_upstream=False)
    else:
        for each in (family, *_MEMBERS.get(family, ())):
            yield Tool(each, None, runs_upstream=True)


def _of_toolset(tool: dict[str, JSON]) -> Iterator[Tool]:
    """Return the tools of a server that a toolset names; it may offer more."""
    configs = as_object(tool.get("configs"))
    default = as_object(tool.get("default_config")).get("enabled")
    listed = [as_object(each).get("name") for each in as_list(tool.get("tools"))]
    names = [
        name
        for name in dict.fromkeys((*filter(None, map(as_text, listed)), *configs))
        if as_object(configs.get(name)).get("enabled", default) is not False
    ]
    yield from _of_server(as_text(tool.get("mcp_server_name")), names)


def _of_servers(ask: Ask) -> Iterator[Tool]:
    for server in map(as_object, as_list(ask.body.get("mcp_servers"))):
        settings = as_object(server.get("tool_configuration"))
        if settings.get("enabled") is not False:
            allowed = as_list(settings.get("allowed_tools"))
            yield from _of_server(as_text(server.get("name")), allowed)


def _of_server(label: str | None, names: Sequence[JSON]) -> Iterator[Tool]:
    if label is None:
        return
    yield Tool(label, None, runs_upstream=True)
    for name in filter(None, map(as_text, names)):
        yield Tool(f"{label}.{name}", None, runs_upstream=True)


# --- changed answers ------------------------------------------------------------------------------

_Edits = Mapping[int, dict[str, JSON] | None]  # by position; None = left out


def changed_body(body: bytes, changes: Changes) -> bytes:
    """Return an answer that was not streamed with its calls changed."""
    edits = _read_edits(changes)
    message = read_object(body)
    content = message.get("content")
    if not edits or not isinstance(content, list):
        return body
    kept = _changed_blocks(content, edits)
    message["content"] = kept
    if message.get("stop_reason") == "tool_use" and not _has_own_call(kept):
        message["stop_reason"] = "end_turn"
    return encode(message)


def changed_events(frames: Sequence[Frame], changes: Changes) -> bytes:
    """Return a stream with its calls changed."""
    edits = _read_edits(changes)
    if not edits:
        return b"".join(frame.raw for frame in frames)
    own = [call.position for _, call in _read_answer(frames).tool_calls if not call.runs_upstream]
    is_bare = all(position in edits and edits[position] is None for position in own)
    stream = _Changed(edits, is_bare=is_bare)
    return b"".join(stream.take(frame) for frame in frames)


def _read_edits(changes: Changes) -> _Edits:
    """Return the changes of the one choice there is."""
    return {
        position: None if arguments is None else read_new_arguments(arguments)
        for (choice, position), arguments in changes.items()
        if choice == 0
    }


def _changed_blocks(blocks: Sequence[JSON], edits: _Edits) -> list[JSON]:
    """Return the blocks of a whole message, its calls changed."""
    kept: list[JSON] = []
    position = 0
    for block in blocks:
        if not isinstance(block, dict) or not is_tool_call(block):
            kept.append(block)
            continue
        edit = edits.get(position)
        if edit is not None:
            kept.append({**block, "input": edit})
        elif position not in edits:
            kept.append(block)
        position += 1
    return kept


def _has_own_call(blocks: Sequence[JSON]) -> bool:
    return any(
        isinstance(block, dict) and is_tool_call(block) and block.get("type") not in RUN_UPSTREAM
        for block in blocks
    )


@dataclass(slots=True)
class _Block:
    """A block of a stream that is being changed."""

    index: int | None = None  # its new one; None = as it was sent
    edit: dict[str, JSON] | None = None  # its new arguments; None = it has its own
    is_given: bool = False  # the new ones went out
    is_gone: bool = False


class _Changed:
    """A stream on its way out, some of its calls changed."""

    def __init__(self, edits: _Edits, *, is_bare: bool) -> None:
        """`is_bare`: the client has no call left to run."""
        self._edits = edits
        self._is_bare = is_bare
        self._has_begun = False
        self._blocks = 0
        self._kept: list[int] = []  # indexes of the blocks that go out
        self._calls = 0
        self._at: dict[int, _Block] = {}  # the last one that began at each index

    def take(self, frame: Frame) -> bytes:
        """Take in one frame and return what goes out for it."""
        event = _read_event(frame)
        if event is None:
            return frame.raw
        index = as_integer(event.get("index"))
        match event_type(event, frame):
            case "message_start" if not self._has_begun:
                return self._begin(frame, event)
            case "message_delta":
                return self._end(frame, event)
            case "content_block_start":
                return self._open(frame, event, index)
            case "content_block_delta":
                return self._add(frame, event, index)
            case "content_block_stop":
                block = self._at.get(index or 0)
            case _:
                block = None if index is None else self._at.get(index)
        return frame.raw if block is None else _moved(frame, event, block)

    def _begin(self, frame: Frame, event: dict[str, JSON]) -> bytes:
        """Go through the blocks that the start has already; by the book it has none."""
        self._has_begun = True
        message = as_object(event.get("message"))
        content = as_list(message.get("content"))
        kept: list[JSON] = []
        for place, fields in enumerate(content):
            if not isinstance(fields, dict):
                kept.append(fields)
                continue
            block = self._start(place, fields)
            if not block.is_gone:
                kept.append(fields if block.edit is None else {**fields, "input": block.edit})
                block.is_given = True
        if kept == content:
            return frame.raw
        return _written(frame, {**event, "message": {**message, "content": kept}})

    def _end(self, frame: Frame, event: dict[str, JSON]) -> bytes:
        delta = as_object(event.get("delta"))
        if not self._is_bare or delta.get("stop_reason") != "tool_use":
            return frame.raw
        return _written(frame, {**event, "delta": {**delta, "stop_reason": "end_turn"}})

    def _open(self, frame: Frame, event: dict[str, JSON], index: int | None) -> bytes:
        fields = as_object(event.get("content_block"))
        at = self._blocks if index is None else index
        block = self._start(at, fields)
        if block.edit is None:
            return _moved(frame, event, block)
        if fields.get("input"):
            event = {**event, "content_block": {**fields, "input": {}}}
            if block.index is not None:
                event["index"] = block.index
            return _written(frame, event) + _given(block, at)
        return _moved(frame, event, block) + _given(block, at)

    def _add(self, frame: Frame, event: dict[str, JSON], index: int | None) -> bytes:
        delta = as_object(event.get("delta"))
        at = max(self._at, default=0) if index is None else index
        block = self._at.get(at)
        if block is None:
            block = self._start(at, {"type": IMPLIED_TYPES.get(str(delta.get("type")), "")})
        if block.edit is not None and delta.get("type") == "input_json_delta":
            return _given(block, at)
        return _moved(frame, event, block)

    def _start(self, at: int, fields: dict[str, JSON]) -> _Block:
        """Begin a block, and say what becomes of it."""
        block = self._at[at] = _Block()
        if len(self._kept) < self._blocks:
            # One before it is gone. Clients take the index for the place in what they have got.
            place = len(self._kept)
            block.index = place if place not in self._kept else max(self._kept) + 1
        if is_tool_call(fields):
            block.edit = self._edits.get(self._calls)
            block.is_gone = block.edit is None and self._calls in self._edits
            self._calls += 1
        self._blocks += 1
        if not block.is_gone:
            self._kept.append(at if block.index is None else block.index)
        return block


def _moved(frame: Frame, event: dict[str, JSON], block: _Block) -> bytes:
    """Return what goes out for an event of a block whose other events may have moved up."""
    if block.is_gone:
        return b""
    if block.index is None or event.get("index") == block.index:
        return frame.raw
    return _written(frame, {**event, "index": block.index})


def _given(block: _Block, at: int) -> bytes:
    """Return the new arguments, whole and once; later pieces of the old ones say nothing."""
    if block.is_given:
        return b""
    block.is_given = True
    delta: JSON = {"type": "input_json_delta", "partial_json": encode(block.edit).decode("ascii")}
    index = at if block.index is None else block.index
    return _event("content_block_delta", index=index, delta=delta)


# --- joined answers -------------------------------------------------------------------------------


def joined_body(text: str, second: bytes) -> bytes:
    """Return an answer with an earlier text before its own.

    Thinking stays first, since the API takes an answer back only so. The text goes into the block
    of the answer's own: many clients look at the first one alone.
    """
    message = read_object(second)
    content = message.get("content")
    if not text or not isinstance(content, list):
        return second
    place = 0
    while place < len(content) and as_object(content[place]).get("type") in THOUGHTS:
        place += 1
    first = as_object(content[place]) if place < len(content) else {}
    has_text = any(text_of(as_object(block)) for block in content)
    if first.get("type") == "text" and not first.get("citations"):
        own = as_text(first.get("text")) or ""
        between = "\n\n" if has_text else ""
        content[place] = {**first, "text": f"{text}{between}{own}"}
    else:
        content.insert(place, {"type": "text", "text": text + ("\n\n" if has_text else "")})
    return encode(message)


def joined_events(first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
    """Return one stream: the beginning of one, and another whole one as what comes next."""
    opening = _Opening()
    out = [frame.raw for frame in first]
    for frame in first:
        opening.take(frame)
    out += [_event("content_block_stop", index=index) for index in opening.unended]
    going_on = _GoingOn(opening, has_text=bool(_read_answer(first).text))
    out += [going_on.take(frame) for frame in second]
    return b"".join(out)


class _Opening:
    """Where the beginning of a stream stands."""

    def __init__(self) -> None:
        self.has_begun = False
        self.unended: list[int] = []  # blocks without their stop
        self.size = 0  # one more than the last index

    def take(self, frame: Frame) -> None:
        event = _read_event(frame)
        if event is None:
            return
        index = as_integer(event.get("index"))
        match event_type(event, frame):
            case "message_start":
                self.has_begun = True
                content = as_list(as_object(event.get("message")).get("content"))
                self.size = max(self.size, len(content))
            case "content_block_start":
                at = self.size if index is None else index
                self.unended.append(at)
                self.size = max(self.size, at + 1)
            case "content_block_stop" if (index or 0) in self.unended:
                self.unended.remove(index or 0)


class _GoingOn:
    """A stream that goes on where another one stands."""

    def __init__(self, opening: _Opening, *, has_text: bool) -> None:
        self._shift = opening.size
        self._has_begun = opening.has_begun
        self._needs_blank = has_text  # before the next text, a blank line

    def take(self, frame: Frame) -> bytes:
        """Take in one frame and return what goes out for it."""
        event = _read_event(frame)
        if event is None:
            return frame.raw
        if event_type(event, frame) == "message_start":
            if self._has_begun:
                return self._unpack(as_object(event.get("message")))
            self._has_begun = True
        changed = dict(event)
        for key in ("content_block", "delta"):
            if isinstance(fields := event.get(key), dict):
                changed[key] = self._spaced(fields)
        if (index := as_integer(event.get("index"))) is not None:
            changed["index"] = index + self._shift
        return frame.raw if changed == event else _written(frame, changed)

    def _spaced(self, fields: dict[str, JSON]) -> dict[str, JSON]:
        """Put the blank line before the first text, in a block's start or in its pieces."""
        text = as_text(fields.get("text"))
        if not self._needs_blank or text is None or fields.get("type") not in _TEXTS:
            return fields
        self._needs_blank = False
        return {**fields, "text": f"\n\n{text}"}

    def _unpack(self, message: dict[str, JSON]) -> bytes:
        """Return blocks that came with the start, which the opening had, as events of their own."""
        if not as_list(message.get("content")):
            return b""
        events = events_from_body(encode({**message, "type": "message"}))[1:-2]
        return b"".join(self.take(frame) for frame in SSEDecoder().feed(b"".join(events)))


# --- reading and writing --------------------------------------------------------------------------


def read_object(body: bytes) -> dict[str, JSON]:
    """Return the object that a body is, empty if it is none."""
    try:
        return dict(as_object(read_exact(body)))
    except Unreadable:
        return {}


def text_of(block: dict[str, JSON]) -> str:
    """Return the text of a block, '' if it is no text."""
    return (as_text(block.get("text")) or "") if block.get("type") == "text" else ""


def _read_event(frame: Frame) -> dict[str, JSON] | None:
    """Return what a frame says to an assembler; None = nothing, or an error."""
    if frame.data is None or frame.event == b"error":
        return None
    try:
        event = read_exact(frame.data)
    except Unreadable:
        return None
    return event if isinstance(event, dict) and not anthropic_errors.is_error(event) else None


def _read_answer(frames: Sequence[Frame]) -> Answer:
    assembler = MessagesAssembler()
    for frame in frames:
        assembler.feed(frame)
    return assembler.snapshot()


def _written(frame: Frame, event: dict[str, JSON]) -> bytes:
    """Return a frame with other data."""
    return sse.encode(encode(event), frame.event)


def _event(kind: str, **fields: JSON) -> bytes:
    return sse.encode(encode({"type": kind, **fields}), kind.encode("ascii"))
