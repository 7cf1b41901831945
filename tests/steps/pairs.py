"""All pairs of dialects, one translated into the other, with the samples of both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects import DIALECTS, dialect_by_name, dialect_for_path
from agentstate.dialects.base import Dialect, Mark
from agentstate.dialects.neutral import TranslatingDialect, translates
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, ToolCall
from agentstate.steps.target import Target
from agentstate.steps.translation import Frames, Translation, translation_for
from agentstate.wire.message import Origin
from agentstate.wire.sse import SSEDecoder
from tests.dialects.samples import SAMPLES

ORIGIN = Origin("http", "up.example", 80)
CALLERS = tuple(row.name for row in DIALECTS if translates(row) and row.paths)
# Ollama's own form streams lines; it is in none of the samples.
PAIRS = [(caller, spoken) for caller in CALLERS for spoken in CALLERS if caller != spoken]
both = pytest.mark.parametrize(("caller", "spoken"), PAIRS)


def target(spoken: str) -> Target:
    """Make a target that is asked in a form."""
    return Target("up", "theirs", ORIGIN, "/v1", False, "k", dialect=spoken)


def bound(name: str, *, streams: bool) -> tuple[TranslatingDialect, dict[str, JSON]]:
    """Return a caller's dialect and its sample request."""
    samples, found = SAMPLES[name], dialect_by_name(name)
    if samples.path:
        path = samples.stream_path if streams else samples.path
        found = dialect_for_path(path, "alt=sse")
    assert found is not None
    assert translates(found)
    body = dict(samples.ask)
    if streams and not samples.path:
        body["stream"] = True
    return found, body


def translation(caller: str, spoken: str, *, streams: bool = False, **fields: JSON) -> Translation:
    """Begin the translation of a sample request, with further fields."""
    dialect, body = bound(caller, streams=streams)
    ask = dialect.read_ask({**body, **fields})
    found = translation_for(dialect, target(spoken), ask, ask.body)
    assert found is not None
    return found


def bytes_of(frames: Frames, *pieces: bytes, ends: bool = True) -> bytes:
    """Return what comes out of a stream that arrives in these pieces."""
    found = [frame for piece in pieces for frame in frames.feed(piece)]
    if ends:
        found += frames.finish()
    return b"".join(frame.raw for frame in found)


def read(dialect: Dialect, raw: bytes) -> Answer:
    """Read a stream that ended cleanly; it must hold no error."""
    assembler, decoder = dialect.assembler(), SSEDecoder()
    rest = [*decoder.feed(raw), decoder.finish()]
    marks = [assembler.feed(frame) for frame in rest if frame is not None]
    assert Mark.ERROR not in marks
    return assembler.finish(clean_end=True)


def calls_of(answer: Answer) -> list[tuple[str, Any]]:
    """Return the calls as (name, arguments), these as values: their text may differ."""

    def arguments(call: ToolCall) -> Any:
        return json.loads(call.arguments or "{}")

    return [(call.name, arguments(call)) for _, call in answer.tool_calls]


def stream_of(spoken: str, name: str) -> tuple[bytes, ...]:
    """Return the frames of a sample stream."""
    return SAMPLES[spoken].streams[name]
