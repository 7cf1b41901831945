"""What the gate needs of the Responses form: the tools of a request, and answers that are changed.

A call is an output item, and an item is spoken of by many events. Which event speaks of which item
is worked out over the whole stream by the assembler itself, so that nothing of a refused call is
taken for something else; what is then written differs from what came only in the events that show a
changed item, and in the two counts that close up, `output_index` and `sequence_number`.
The counterparts are `openai_responses_joins.py`, which puts answers one after the other, and
`openai_responses_rounds.py` and `openai_responses_splices.py`, which make requests.
Invariant: the first event that shows a changed call is the first that is changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentstate.dialects.base import Tool
from agentstate.dialects.edits import read_new_arguments
from agentstate.dialects.lenient import (
    Unreadable,
    as_integer,
    as_list,
    as_object,
    as_text,
    name_type,
    read_exact,
)
from agentstate.dialects.openai_responses_items import (
    INPUTS,
    NAMED_CALLS,
    SHOWS_NOTHING,
    TEXTS,
    Item,
    input_fields,
    is_call,
    runs_upstream,
)
from agentstate.dialects.openai_responses_reading import (
    ENDS,
    ResponsesAssembler,
    event_name,
)
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest
from agentstate.wire import sse
from agentstate.wire.sse import Frame

# Built-in tools that the client runs, by type; the provider runs all others, and those of which
# nobody here knows. A shell and a search are the one or the other, see `_read_builtin`.
_RUN_BY_CLIENT = frozenset(
    ("local_shell", "apply_patch", "computer", "computer_use", "computer_use_preview")
)


# --- tools ----------------------------------------------------------------------------------------


def list_tools(body: Mapping[str, JSON]) -> tuple[Tool, ...]:
    """Return the tools that a request offers."""
    return tuple(_read_tools(as_list(body.get("tools"))))


def _read_tools(tools: list[JSON]) -> Iterator[Tool]:
    for fields in map(as_object, tools):
        name, label = as_text(fields.get("name")), as_text(fields.get("server_label"))
        match as_text(fields.get("type")):
            case None:
                continue
            case "function" if name:
                yield Tool(name, fields.get("parameters"), runs_upstream=False)
            case "custom" if name:
                yield Tool(name, None, runs_upstream=False)
            case "namespace":
                yield from _read_tools(as_list(fields.get("tools")))
            case "mcp" if label:
                yield Tool(label, None, runs_upstream=not _asks_first(fields, None))
                for tool in _list_names(fields.get("allowed_tools")):
                    runs = not _asks_first(fields, tool)
                    yield Tool(f"{label}.{tool}", None, runs_upstream=runs)
            case "function" | "custom" | "mcp":
                continue  # it has no name
            case kind:
                yield _read_builtin(kind, fields)


def _read_builtin(kind: str, fields: dict[str, JSON]) -> Tool:
    match kind:
        case "shell":
            where = as_object(fields.get("environment")).get("type")
            return Tool(kind, None, runs_upstream=where not in (None, "local"))
        case "tool_search":
            is_theirs = fields.get("execution") == "client"
            return Tool(kind, fields.get("parameters"), runs_upstream=not is_theirs)
        case _:
            return Tool(kind, None, runs_upstream=kind not in _RUN_BY_CLIENT)


def _asks_first(server: dict[str, JSON], tool: str | None) -> bool:
    """Say whether the model asks before this tool of a server runs; None = before any of them.

    Only what the request says counts: `always` is OpenAI's default, but not of all who copy it.
    """
    setting = server.get("require_approval")
    if not isinstance(setting, dict):
        return setting == "always"
    never, always = as_object(setting.get("never")), as_object(setting.get("always"))
    if never.get("read_only") is not None:
        return False  # which tools that exempts is known to the server alone
    exempt, asking = _list_names(never), _list_names(always)
    if tool is not None:
        return tool not in exempt and (tool in asking or bool(exempt))
    allowed = _list_names(server.get("allowed_tools"))
    return bool(allowed) and all(_asks_first(server, each) for each in allowed)


def _list_names(names: JSON) -> list[str]:
    """Read a list of tool names, or a filter that has one."""
    given = names.get("tool_names") if isinstance(names, dict) else names
    return [name for name in map(as_text, as_list(given)) if name is not None]


# --- arguments ------------------------------------------------------------------------------------


def edit_call(item: dict[str, JSON], arguments: str) -> dict[str, JSON]:
    """Return the fields of a call that hold its input, with new arguments in them.

    Raises:
        BadRequest: they do not fit the form, or whoever runs the call would not heed them.
    """
    kind = as_text(item.get("type")) or ""
    if runs_upstream(item):
        raise _no_edit(f"the provider has run this {kind} already")
    if kind == "mcp_approval_request":
        raise _no_edit("the provider runs the call with the arguments it asked about")
    fields = input_fields(item) or INPUTS.get(kind, ())[:1]
    if not fields:
        raise _no_edit(f"it is not known where a {kind} has them")
    if fields == ("input",) and isinstance(item.get("input", ""), str):
        return {"input": arguments}
    value = read_new_arguments(arguments)
    if len(fields) == 1:
        shown = item.get(fields[0])
        if isinstance(shown, str) or (shown is None and kind in NAMED_CALLS):
            if fields[0] == "arguments":
                return {"arguments": arguments}
        elif shown is None or isinstance(shown, dict):
            return {fields[0]: value}
    # They were shown as an object of these fields.
    if value.keys() != set(fields) or any(
        type(value[key]) is not type(item[key]) for key in fields
    ):
        wanted = " and ".join(f"`{key}` ({name_type(item.get(key))})" for key in fields)
        raise BadRequest(
            f"The new arguments of a {kind} must be a JSON object with {wanted} and nothing else.",
            param="arguments",
        )
    return value


def _no_edit(why: str) -> BadRequest:
    return BadRequest(
        f"The arguments cannot be edited: {why}. Approve or reject it as it is.", param="arguments"
    )


# --- changed --------------------------------------------------------------------------------------


def changed_body(body: bytes, changes: Changes) -> bytes:
    """Return an answer with other arguments, or without some calls; see `base.CallsTools`."""
    if not changes:
        return body
    response = read_body(body)
    output: list[JSON] = []
    position = 0
    for item in as_list(response.get("output")):
        if isinstance(item, dict) and is_call(as_text(item.get("type")) or ""):
            place, position = (0, position), position + 1
            if place in changes:
                new = changes[place]
                if new is not None:
                    output.append({**item, **edit_call(item, new)})
                continue
        output.append(item)
    return encode({**response, "output": output})


def changed_events(frames: Sequence[Frame], changes: Changes) -> bytes:
    """Return a stream, changed likewise; see `base.CallsTools`."""
    told, assembler = follow(frames)
    fates: dict[int, dict[str, JSON] | None] = {}  # by identity of the item; None = dropped
    for position, item in enumerate(assembler.output.calls):
        if (0, position) in changes:
            new = changes[0, position]
            fates[id(item)] = None if new is None else edit_call(item.whole(), new)
    if not fates:
        return b"".join(frame.raw for frame in frames)
    return b"".join(_Changer(told, fates).run())


@dataclass(frozen=True, slots=True)
class Told:
    """One frame, and what it speaks of."""

    frame: Frame
    name: str = ""
    event: dict[str, JSON] | None = None  # None = no event that can be read
    item: Item | None = None  # None = it speaks of no item, or of one that cannot be told
    listed: tuple[Item, ...] = ()  # those that its response lists, in that order

    @property
    def place(self) -> int | None:
        return None if self.event is None else as_integer(self.event.get("output_index"))

    @property
    def is_numbered(self) -> bool:
        event = self.event or {}
        return as_integer(event.get("sequence_number")) is not None

    def render(self, event: dict[str, JSON]) -> bytes:
        """Return the frame with another event in it; with the same one, as it came."""
        if event == self.event:
            return self.frame.raw
        return sse.encode(encode(event), self.frame.event)


def follow(frames: Iterable[Frame]) -> tuple[list[Told], ResponsesAssembler]:
    """Read a whole stream, and what each of its frames speaks of."""
    assembler = ResponsesAssembler()
    output = assembler.output
    told: list[Told] = []
    for frame in frames:
        output.spoken_of, output.listed = None, []
        assembler.feed(frame)
        event = _read_event(frame)
        if event is None:
            told.append(Told(frame))
            continue
        name = event_name(event, frame)
        item = output.spoken_of or output.find_spoken_of(name, event)
        told.append(Told(frame, name, event, item, tuple(output.listed)))
    return told, assembler


def _read_event(frame: Frame) -> dict[str, JSON] | None:
    if frame.data is None:
        return None
    try:
        event = read_exact(frame.data)
    except Unreadable:
        return None
    return event if isinstance(event, dict) else None


class _Changer:
    """Writes a stream again without the dropped calls and with the edited ones."""

    def __init__(self, told: list[Told], fates: dict[int, dict[str, JSON] | None]) -> None:
        self._told = told
        self._fates = fates
        self._begin = next((at for at, each in enumerate(told) if self._shows(each)), len(told))
        self._gone = self._find_places()
        self._dropped = 0  # events that had a number
        self._has_text: set[int] = set()  # edited items of which the new text went out

    def run(self) -> Iterator[bytes]:
        """Yield the frames as they go out."""
        for at, told in enumerate(self._told):
            if at < self._begin or told.event is None:
                yield told.frame.raw
                continue
            event = self._change(told, told.event)
            if event is None:
                self._dropped += told.is_numbered
                continue
            yield told.render(self._close_up(event))

    def _shows(self, told: Told) -> bool:
        return any(id(item) in self._fates for item in (told.item, *told.listed))

    def _is_dropped(self, item: Item | None) -> bool:
        return id(item) in self._fates and self._fates[id(item)] is None

    def _change(self, told: Told, event: dict[str, JSON]) -> dict[str, JSON] | None:
        """Return an event as it goes out; None = it does not."""
        # What cannot be told apart from the events of a changed call does not go out with it.
        if told.item is None and not told.listed and "_call" in told.name:
            return None
        if told.listed:
            return self._change_list(told, event)
        if told.item is None or id(told.item) not in self._fates:
            return event
        fields = self._fates[id(told.item)]
        return None if fields is None else self._edit(told.item, fields, told.name, event)

    def _change_list(self, told: Told, event: dict[str, JSON]) -> dict[str, JSON]:
        response = as_object(event.get("response"))
        listed = iter(told.listed)
        output: list[JSON] = []
        for entry in as_list(response.get("output")):
            item = next(listed) if isinstance(entry, dict) else None
            if self._is_dropped(item):
                continue
            fields = self._fates.get(id(item))
            is_done = told.name in ENDS
            output.append(_edit_item(as_object(entry), fields, is_done) if fields else entry)
        return {**event, "response": {**response, "output": output}}

    def _edit(
        self, item: Item, fields: dict[str, JSON], name: str, event: dict[str, JSON]
    ) -> dict[str, JSON] | None:
        stem, _, verb = name.rpartition(".")
        if stem == "response.output_item":
            shown = as_object(event.get("item"))
            edited = _edit_item(shown, fields, is_done=verb == "done")
            if edited != shown:
                self._has_text.add(id(item))
            return {**event, "item": edited}
        shape = TEXTS.get(stem)
        if shape is not None and isinstance(text := fields.get(shape.field), str):
            if verb == "done":
                return {**event, shape.text: text}
            if verb == "delta":
                is_first = id(item) not in self._has_text
                self._has_text.add(id(item))
                return {**event, "delta": text} if is_first else None
        # Of no known form: the progress of the call may go out, what it shows may not.
        return event if event.keys() <= SHOWS_NOTHING else None

    def _close_up(self, event: dict[str, JSON]) -> dict[str, JSON]:
        """Return an event with the counts that it has once others are gone."""
        number = as_integer(event.get("sequence_number"))
        place = as_integer(event.get("output_index"))
        if number is not None and self._dropped:
            event = {**event, "sequence_number": number - self._dropped}
        if place is not None and (before := bisect_left(self._gone, place)):
            event = {**event, "output_index": place - before}
        return event

    def _find_places(self) -> list[int]:
        """Return the places that nothing is left at, in order.

        Places before which something has gone out already stay as they are: what was told of an
        item holds, and a gap in the count does no harm.
        """
        dropped = {told.place for told in self._told if self._is_dropped(told.item)}
        kept = {told.place for told in self._told if not self._is_dropped(told.item)}
        seen = (told.place for told in self._told[: self._begin])
        last = max((place for place in seen if place is not None), default=-1)
        return sorted(place for place in dropped - kept if place is not None and place > last)


def _edit_item(item: dict[str, JSON], fields: dict[str, JSON], is_done: bool) -> dict[str, JSON]:
    """Return an item with new input. Before it is done it may be empty still: its text then comes
    in pieces."""
    return {**item, **{key: new for key, new in fields.items() if is_done or item.get(key)}}


def read_body(body: bytes) -> dict[str, JSON]:
    """Read an answer for writing it again.

    Raises:
        BadRequest: it cannot be read.
    """
    try:
        response = read_exact(body)
    except Unreadable as error:
        raise BadRequest("The answer cannot be read, so it cannot be changed.") from error
    return as_object(response)
