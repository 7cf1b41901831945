"""The other form of a recorded Gemini answer: events from a body, a body from events.

A stream's events are bodies with less in them, so one event with all of it is a stream. The other
way the parts of each candidate are put together; texts that follow one another become one, unless a
thought's signature marks a part, which has to come back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from agentstate.dialects import openai_errors
from agentstate.dialects.lenient import Unreadable, as_integer, as_list, as_object, read_exact
from agentstate.ground.canonical import JSON, encode
from agentstate.wire import sse
from agentstate.wire.sse import Frame

_FIRST_COUNTS = frozenset(("responseId", "modelVersion", "createTime"))  # of others the last does
_TEXT_KEYS = frozenset(("text", "thought"))


def events_from_body(body: bytes) -> list[bytes]:
    """Make the stream form: one event."""
    try:
        value = read_exact(body)
    except Unreadable:
        return []
    if not isinstance(value, dict) or openai_errors.is_error(value):
        return []
    return [sse.encode(encode(value))]


def body_from_events(frames: Iterable[Frame]) -> bytes:
    """Make the non-streaming form: parts joined by candidate, of all else the last."""
    merge = _Merge()
    for frame in frames:
        if frame.data is None:
            continue
        try:
            chunk = read_exact(frame.data)
        except Unreadable:
            continue  # a stream with such a frame is no complete answer
        if isinstance(chunk, dict) and not openai_errors.is_error(chunk):
            merge.take(chunk)
    return encode(cast(JSON, merge.body()))


class _Merge:
    """The events of one stream, to be merged into a body."""

    __slots__ = ("_candidates", "_head", "_is_listed")

    def __init__(self) -> None:
        self._head: dict[str, JSON] = {}
        self._candidates: dict[int, _Candidate] = {}
        self._is_listed = False  # some event had a list of candidates, if an empty one

    def take(self, chunk: dict[str, JSON]) -> None:
        for key, value in chunk.items():
            if key == "candidates" or value is None:
                continue
            if key not in _FIRST_COUNTS or not self._head.get(key):
                self._head[key] = value
        self._is_listed = self._is_listed or "candidates" in chunk
        for position, candidate in enumerate(as_list(chunk.get("candidates"))):
            if isinstance(candidate, dict):
                index = as_integer(candidate.get("index"))
                at = position if index is None else index
                self._candidates.setdefault(at, _Candidate()).take(candidate)

    def body(self) -> dict[str, JSON]:
        candidates: list[JSON] = [
            candidate.merged() for _, candidate in sorted(self._candidates.items())
        ]
        return {"candidates": candidates, **self._head} if self._is_listed else self._head


class _Candidate:
    """One candidate of a stream, to be merged."""

    __slots__ = ("_content", "_fields", "_parts")

    def __init__(self) -> None:
        self._fields: dict[str, JSON] = {}
        self._content: dict[str, JSON] | None = None  # None = no piece had one
        self._parts: list[JSON] = []

    def take(self, piece: dict[str, JSON]) -> None:
        for key, value in piece.items():
            if key != "content" and value is not None:
                self._fields[key] = value
        content = piece.get("content")
        if not isinstance(content, dict):
            return
        rest = {key: value for key, value in content.items() if key != "parts"}
        self._content = {**(self._content or {}), **rest}
        for part in as_list(content.get("parts")):
            before = as_object(self._parts[-1]) if self._parts else {}
            if (joined := _join_texts(before, as_object(part))) is not None:
                self._parts[-1] = joined
            else:
                self._parts.append(part)

    def merged(self) -> dict[str, JSON]:
        if self._content is None:
            return self._fields
        content = dict(self._content)
        if self._parts:
            content["parts"] = self._parts
        return {"content": content, **self._fields}


def _join_texts(before: dict[str, JSON], after: dict[str, JSON]) -> dict[str, JSON] | None:
    """Return two parts as one, or None where they are not both plain text of one kind."""
    texts = before.get("text"), after.get("text")
    if not (before.keys() | after.keys()) <= _TEXT_KEYS:
        return None
    if before.get("thought") != after.get("thought"):
        return None
    first, second = texts
    if not isinstance(first, str) or not isinstance(second, str):
        return None
    return {**before, "text": first + second}
