"""What the gate does to answers in Gemini's own form: calls changed and left out, answers joined.

Answers and streams are changed as they stand, so that signatures of thoughts, numbers and fields
nobody here knows survive. The counterpart is `gemini_reading.py`: a call is the one that its
assembler gives this place, and parts are walked here exactly as they are read there. The invariant:
where a call is changed, nothing of the model's own arguments comes out.
Source: ai.google.dev/api/generate-content and ai.google.dev/api/caching (Tool), and the types of
the `google-genai` package 3.6, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from agentstate.dialects import openai_errors
from agentstate.dialects.base import Ask, Tool
from agentstate.dialects.edits import read_new_arguments
from agentstate.dialects.gemini_reading import CALL_NAMES, GeminiAssembler, function_of
from agentstate.dialects.gemini_schema import schema_of
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
from agentstate.wire.sse import Frame

# Blank lines. No comment: google-genai and Google's Go client take every line that is not data for
# the JSON of an error, and fail. An event of no text would stay in the history that chats keep. Two
# line ends, of the kind that Google's own streams have, since the Go client cuts streams at those.
HEARTBEAT = b"\r\n\r\n"

# Of Google's own tools the ones whose calls the client carries out. All others run upstream as far
# as anybody here knows: asked about once too often is better than run unasked.
_RUN_BY_CLIENT = frozenset(("computer_use",))
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Of a call that comes in pieces: what says so. The new arguments come in one.
_PIECE_KEYS = frozenset(("partialArgs", "partial_args", "willContinue", "will_continue"))


# --- the tools of a request -----------------------------------------------------------------------


def list_tools(ask: Ask) -> tuple[Tool, ...]:
    """Return the tools a request offers: functions, Google's own, and servers by their names."""
    found: dict[tuple[str, bool], Tool] = {}
    for entry in as_list(ask.body.get("tools")):
        for key, value in as_object(entry).items():
            for tool in _read_tools(key, value):
                found.setdefault((tool.name, tool.runs_upstream), tool)
    return tuple(found.values())


def _read_tools(key: str, value: JSON) -> Iterator[Tool]:
    name = _HUMP.sub("_", key).lower()
    if name == "function_declarations":
        for function in map(as_object, as_list(value)):
            if (declared := as_text(function.get("name"))) is not None:
                yield Tool(declared, schema_of(function), runs_upstream=False)
    elif name == "mcp_servers":
        for server in map(as_object, as_list(value)):
            if (label := as_text(server.get("name"))) is not None:
                yield Tool(label, None, runs_upstream=True)
    elif isinstance(value, dict):
        # A rule may name it in either spelling.
        for spelling in dict.fromkeys((name, key)):
            yield Tool(spelling, None, runs_upstream=name not in _RUN_BY_CLIENT)


# --- changed answers ------------------------------------------------------------------------------

_Edits = Mapping[int, dict[str, JSON] | None]  # by position; None = left out


def changed_body(body: bytes, changes: Changes) -> bytes:
    """Return an answer that was not streamed with its calls changed."""
    changing = _Changing(changes)
    chunk = read_object(body)
    changed = changing.changed(chunk)
    return body if changed is chunk else encode(changed)


def changed_events(frames: Sequence[Frame], changes: Changes) -> bytes:
    """Return a stream with its calls changed. An event that has lost all it had is left out."""
    changing = _Changing(changes)
    chunks = [_read_chunk(frame) for frame in frames]
    # How many times each field is still to come: one that says nothing new may go.
    coming: dict[str, int] = {}
    for chunk in chunks:
        for key in chunk or ():
            coming[key] = coming.get(key, 0) + 1
    out: list[bytes] = []
    for frame, chunk in zip(frames, chunks, strict=True):
        if chunk is None:
            out.append(frame.raw)
            continue
        for key in chunk:
            coming[key] -= 1
        changed = changing.changed(chunk)
        if changed is chunk:
            out.append(frame.raw)
        elif not _is_empty(changed) or any(not coming[key] for key in chunk):
            out.append(_written(frame, changed))
    return b"".join(out)


class _Changing:
    """Changes the calls of an answer, whole or as it comes."""

    def __init__(self, changes: Changes) -> None:
        edits: dict[int, dict[int, dict[str, JSON] | None]] = {}
        for (choice, position), arguments in changes.items():
            edit = None if arguments is None else read_new_arguments(arguments)
            edits.setdefault(choice, {})[position] = edit
        self._candidates = {choice: _Candidate(each) for choice, each in edits.items()}

    def changed(self, chunk: dict[str, JSON]) -> dict[str, JSON]:
        """Return a body or a chunk with its calls changed; itself where there is none to change."""
        candidates = chunk.get("candidates")
        if not isinstance(candidates, list):
            return chunk
        changed: list[JSON] = []
        for position, candidate in enumerate(candidates):
            found = self._candidates.get(_index_of(candidate, position))
            changed.append(candidate if found is None else found.changed(candidate))
        is_same = all(ours is theirs for ours, theirs in zip(changed, candidates, strict=True))
        return chunk if is_same else {**chunk, "candidates": changed}


class _Candidate:
    """One candidate some of whose calls are changed."""

    def __init__(self, edits: _Edits) -> None:
        self._edits = edits
        self._calls = 0
        self._given: set[int] = set()  # calls whose new arguments went out

    def changed(self, candidate: JSON) -> JSON:
        fields = as_object(candidate)
        content = as_object(fields.get("content"))
        parts = as_list(content.get("parts"))
        kept: list[JSON] = []
        for part in parts:
            kept += self._changed_part(part)
        if len(kept) == len(parts) and all(map(_is, kept, parts)):
            return candidate
        # Parts must not be missing: clients take an answer without any for an invalid one.
        return {**fields, "content": {**content, "parts": kept or [{"text": ""}]}}

    def _changed_part(self, part: JSON) -> list[JSON]:
        call = function_of(part, *CALL_NAMES)
        if call is None:
            return [part]
        if as_text(call.get("name")) is not None or not self._calls:
            self._calls += 1
        position = self._calls - 1  # a call without a name is a piece of the one before
        if position not in self._edits:
            return [part]
        edit = self._edits[position]
        if edit is None or position in self._given:
            return []
        self._given.add(position)
        kept = {key: value for key, value in call.items() if key not in _PIECE_KEYS}
        new: JSON = {**kept, "args": edit}
        fields = as_object(part)
        return [{key: new if key in CALL_NAMES else value for key, value in fields.items()}]


def _is(one: JSON, other: JSON) -> bool:
    return one is other


def _is_empty(chunk: dict[str, JSON]) -> bool:
    """Say whether nothing is left of a chunk's candidates but a text with nothing in it."""
    empty: JSON = [{"text": ""}]
    return all(
        isinstance(candidate, dict)
        and candidate.keys() <= {"content", "index"}
        and as_object(candidate.get("content")).get("parts") == empty
        for candidate in as_list(chunk.get("candidates"))
    )


# --- joined answers -------------------------------------------------------------------------------


def joined_body(text: str, second: bytes) -> bytes:
    """Return an answer with an earlier text before its own; thoughts stay first. A prompt that was
    blocked has no answer to put it before."""
    chunk = read_object(second)
    candidates = as_list(chunk.get("candidates"))
    if not text or not candidates or not isinstance(candidates[0], dict):
        return second
    content = as_object(candidates[0].get("content"))
    parts = list(as_list(content.get("parts")))
    place = 0
    while place < len(parts) and as_object(parts[place]).get("thought") is True:
        place += 1
    has_text = any(map(text_of, parts))
    between = "\n\n" if has_text else ""
    if place < len(parts) and as_object(parts[place]).keys() == {"text"}:
        parts[place] = {"text": f"{text}{between}{text_of(parts[place])}"}
    else:
        parts.insert(place, {"text": f"{text}{between}"})
    spoken: JSON = {**candidates[0], "content": {"role": "model", **content, "parts": parts}}
    return encode({**chunk, "candidates": [spoken, *candidates[1:]]})


def joined_events(first: Sequence[Frame], second: Sequence[Frame]) -> bytes:
    """Return one stream: the beginning of one, and another whole one as what comes next."""
    assembler = GeminiAssembler()
    for frame in first:
        assembler.feed(frame)
    # Candidates that have a text so far: before their next one, a blank line.
    waiting = {choice.index for choice in assembler.snapshot().choices if choice.text}
    out = [frame.raw for frame in first]
    for frame in second:
        chunk = _read_chunk(frame) if waiting else None
        changed = None if chunk is None else _spaced(chunk, waiting)
        out.append(frame.raw if changed is None else _written(frame, changed))
    return b"".join(out)


def _spaced(chunk: dict[str, JSON], waiting: set[int]) -> dict[str, JSON] | None:
    """Put a blank line before the first text of each candidate that waits for one; None = it has
    none. A candidate that got its line waits no more."""
    changed = list(as_list(chunk.get("candidates")))
    has_changed = False
    for position, candidate in enumerate(changed):
        index = _index_of(candidate, position)
        content = as_object(as_object(candidate).get("content"))
        parts = list(as_list(content.get("parts")))
        place = next((at for at, part in enumerate(parts) if text_of(part)), None)
        if index not in waiting or place is None:
            continue
        waiting.discard(index)
        has_changed = True
        parts[place] = {**as_object(parts[place]), "text": f"\n\n{text_of(parts[place])}"}
        changed[position] = {**as_object(candidate), "content": {**content, "parts": parts}}
    return {**chunk, "candidates": changed} if has_changed else None


# --- reading and writing --------------------------------------------------------------------------


def read_object(body: bytes) -> dict[str, JSON]:
    """Return the object that a body is, empty if it is none."""
    try:
        return as_object(read_exact(body))
    except Unreadable:
        return {}


def text_of(part: JSON) -> str:
    """Return the text of a part, '' if it is none that the model says: a thought, a call."""
    fields = as_object(part)
    if fields.get("thought") is True or function_of(part, *CALL_NAMES) is not None:
        return ""
    return as_text(fields.get("text")) or ""


def _index_of(candidate: JSON, position: int) -> int:
    index = as_integer(as_object(candidate).get("index"))  # left out where it is 0
    return position if index is None else index


def _read_chunk(frame: Frame) -> dict[str, JSON] | None:
    """Return what a frame says to an assembler; None = nothing, or an error."""
    if frame.data is None or frame.event == b"error":
        return None
    try:
        chunk = read_exact(frame.data)
    except Unreadable:
        return None
    return chunk if isinstance(chunk, dict) and not openai_errors.is_error(chunk) else None


def _written(frame: Frame, chunk: dict[str, JSON]) -> bytes:
    """Return a frame with other data, ended as it was: Google's Go client cuts a stream at one kind
    of line ends, and must not meet both."""
    ends = frame.raw[len(frame.raw.rstrip(b"\r\n")) :] or b"\n\n"
    return b"data: " + encode(chunk) + ends
