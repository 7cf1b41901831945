"""What a dialect must be able to say. One file per wire form; all pure functions on values.

A dialect reads requests, reads answers (whole or as a stream), and makes the bytes that are ours:
the other form of a recorded answer, errors, and error events. It knows nothing of sockets, stores
or sessions. The rows are in `dialects/__init__.py`; `tests/dialects/contract.py` proves each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.errors import AgentStateError
from agentstate.wire.sse import Frame


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as far as the proxy must understand it."""

    model: str
    streams: bool  # the caller wants server-sent events
    messages: tuple[JSON, ...]  # the list that grows from call to call, in order
    # The rest of the body that counts for the fingerprint, without the messages and without the
    # fields that never change an answer (stream, user, metadata, ...).
    envelope: dict[str, JSON]
    body: dict[str, JSON]  # the whole body as parsed


class Mark(Enum):
    """What one frame of a stream means for the answer."""

    PREFACE = "preface"  # nothing a person could read: role, created, ping, empty delta, comment
    CONTENT = "content"  # text, refusal, reasoning: live from here on
    TOOL = "tool"  # part of a tool call
    COMPLETING = "completing"  # with this frame every choice has its terminal reason
    TAIL = "tail"  # after the completing one: usage, further empty chunks
    DONE = "done"  # the dialect's end of stream: `[DONE]`, `message_stop` where it is separate
    ERROR = "error"  # the upstream's error as an event


class Assembler(Protocol):
    """Builds an answer from the frames of one stream. One instance per stream."""

    def feed(self, frame: Frame) -> Mark:
        """Take in one frame and say what it is. Never raises on odd content: see `answer.fault`."""
        ...

    def finish(self, clean_end: bool) -> Answer:
        """Return the answer. `clean_end`: the body ended as HTTP says it should.

        `is_complete` is true only by DESIGN section 4; otherwise `fault` says what is missing.
        """
        ...

    def snapshot(self) -> Answer:
        """Return the answer so far, `is_complete` as if the stream ended cleanly here."""
        ...


class Dialect(Protocol):
    """One wire form."""

    name: str  # as in settings and in the record, e.g. "openai_chat"
    paths: tuple[str, ...]  # below /v1, e.g. ("/chat/completions",)
    provider: str  # whose endpoint this is, so gets the caller's key, e.g. "openai"
    counted_headers: tuple[bytes, ...]  # lower-case names that are part of the fingerprint

    def read_ask(self, body: JSON) -> Ask:
        """Check the shape and split it.

        Raises:
            BadRequest: no object, no model, no list of messages; `param` names the field.
        """
        ...

    def assembler(self) -> Assembler:
        """Return a fresh assembler for one stream."""
        ...

    def read_answer(self, body: bytes) -> Answer:
        """Read a non-streaming answer. Never raises: what is wrong is in `fault`."""
        ...

    def events_from_body(self, body: bytes, include_usage: bool) -> list[bytes]:
        """Make the stream form of a recorded body: complete frames, terminal one last."""
        ...

    def body_from_events(self, frames: Iterable[Frame]) -> bytes:
        """Make the non-streaming form of a recorded stream."""
        ...

    def done_frame(self) -> bytes:
        """Return the frame that ends a stream (`data: [DONE]`), b'' if the dialect has none."""
        ...

    def error_body(self, error: AgentStateError) -> bytes:
        """Render an error of ours as the dialect's JSON error body."""
        ...

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as the last frame of a stream that has begun."""
        ...

    def mend_error_body(self, status: int, body: bytes) -> bytes | None:
        """Return None if an upstream's error body already has the dialect's shape, else None too
        where it is JSON of some other shape a client can read; for HTML, text or nothing return an
        error body of the dialect that names the upstream status."""
        ...
