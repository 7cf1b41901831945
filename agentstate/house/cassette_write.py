"""The lines of a cassette, written. Pure; the counterpart is `cassette_read.py`.

Keys stand in one order, and what says nothing is left out, so that lines can be compared.
"""

from __future__ import annotations

import struct
from collections import Counter

from agentstate.dialects import dialect_by_name
from agentstate.ground.canonical import JSON, encode_readable
from agentstate.ground.records import Identity, RecordedAnswer
from agentstate.house.cassette import FORMAT, VERSION, Take, Taped
from agentstate.house.cassette_content import write_content
from agentstate.house.cassette_requests import Folder

_PACE = struct.Struct("<II")


def write_head() -> bytes:
    """Return the first line."""
    return _line({"format": FORMAT, "version": VERSION})


def write_session(taped: Taped) -> bytes:
    """Return the line that a session begins with."""
    about = taped.about
    said: dict[str, JSON] = {"session": taped.session}
    if about.name is not None:
        said["name"] = about.name
    if about.parent is not None:
        said["parent"] = about.parent
    if about.tags:
        said["tags"] = dict(about.tags)
    return _line(said)


def write_end(sessions: int, steps: int, secrets: Counter[str], left_out: Counter[str]) -> bytes:
    """Return the last line. `left_out`: steps by why they are not in it."""
    said: dict[str, JSON] = {"sessions": sessions, "steps": steps}
    for name, counts in (("secrets", secrets), ("left_out", left_out)):
        if counts:
            said[name] = {key: counts[key] for key in sorted(counts)}
    return _line({"end": said})


class StepWriter:
    """Writes the steps of one session, in order."""

    def __init__(self) -> None:
        self._folder = Folder()
        self._highest = -1

    def write(self, take: Take) -> bytes:
        """Return the line of a step."""
        dialect = dialect_by_name(take.dialect)
        said: dict[str, JSON] = {}
        # The number that it gets by itself is not worth saying.
        if take.step_number != self._highest + 1:
            said["step"] = take.step_number
        self._highest = max(self._highest, take.step_number)
        said |= {"dialect": take.dialect, "path": take.path, "model": take.model}
        if take.streams:
            said["stream"] = True
        if take.is_mock:
            said["mock"] = True
        said["keys"] = _keys(take.identity)
        said |= self._folder.fold(take.dialect, dialect.list_key if dialect else "", take.request)
        said["answer"] = _answer(take)
        return _line(said)


def _keys(identity: Identity) -> JSON:
    """Return the fingerprints; one that is equal to the one before it is left out."""
    keys: dict[str, JSON] = {"raw": identity.raw.hex(), "exact": identity.exact.hex()}
    if identity.pinned != identity.exact:
        keys["pinned"] = identity.pinned.hex()
    if identity.masked != identity.pinned:
        keys["masked"] = identity.masked.hex()
    return keys


def _answer(take: Take) -> JSON:
    answer = take.answer
    said: dict[str, JSON] = {"provider": take.provider}
    if take.answered_by != take.model:
        said["model"] = take.answered_by
    if take.cost_microusd is not None:
        said["cost_microusd"] = take.cost_microusd
    if answer.status != 200:
        said["status"] = answer.status
    kind = content_type(answer)
    if kind is not None:
        said["type"] = kind
    if take.timing is not None:
        said["latency_ms"] = take.timing.latency_ms
        if take.timing.first_content_ms is not None:
            said["first_content_ms"] = take.timing.first_content_ms
        if answer.pace:
            said["pace"] = [list(pair) for pair in _PACE.iter_unpack(answer.pace)]
    return said | write_content(answer.content, answer.form)


def content_type(answer: RecordedAnswer) -> str | None:
    """Return the type of an answer's content; None = it says none."""
    kinds = [value for name, value in answer.headers if name.lower() == b"content-type"]
    return kinds[0].decode("latin-1") if kinds else None


def _line(value: dict[str, JSON]) -> bytes:
    return encode_readable(value) + b"\n"
