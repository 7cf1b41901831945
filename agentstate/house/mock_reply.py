"""What the mock's wire forms share: replies and their faults, and the reading of requests.

The forms are functions from a parsed request to a `Reply`, one file each. `mock.py` plays the
reply, its fault included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest, shorten
from agentstate.wire.message import Pair

PIECE_CHARS = 24  # of text in one chunk of a stream: several chunks even for one sentence

CREATED_S = 1_767_225_600  # 2026-01-01: `created` lies in the hundred days after it
CREATED_SPAN_S = 8_640_000


@dataclass(frozen=True, slots=True)
class Fault:
    """What a model's name asks to go wrong."""

    kind: str = "none"  # none | status | timeout | cut | flaky | slow
    number: int = 0  # the status, the number of failures, or milliseconds


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, before its fault is played."""

    status: int
    pieces: tuple[bytes, ...]  # frames of a stream, else one body
    key: bytes  # digest of the request
    streams: bool = False
    fault: Fault = Fault()
    headers: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the mock answers with an error; each wire form renders it in its own words."""

    status: int
    code: str
    message: str
    kind: str | None = None  # OpenAI's word for it; None = invalid_request_error
    param: str | None = None  # the field at fault; None = not one field


# By the status that a model's name asks for.
FAILURES = {
    429: Refusal(
        429, "rate_limit_exceeded", "The mock is over its rate limit: mock/429.", "requests"
    ),
    500: Refusal(
        500, "internal_error", "The mock failed: mock/500 and mock/flaky-N ask so.", "server_error"
    ),
}


def read_fault(model: str) -> Fault:
    """Read what a model's name asks to go wrong, with or without its provider's prefix."""
    name = model.removeprefix("mock/")
    if name.isdecimal() and int(name) in FAILURES:
        return Fault("status", int(name))
    if name in ("timeout", "cut"):
        return Fault(name)
    if match := re.fullmatch(r"(flaky)-(\d{1,3})|(slow)-(\d{1,6})ms", name):
        kind, number = match[1] or match[3], match[2] or match[4]
        return Fault(kind, int(number))
    return Fault()


def render_openai(refusal: Refusal) -> bytes:
    """Render an error body in OpenAI's form."""
    kind = refusal.kind or "invalid_request_error"
    fields: JSON = {
        "message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code
    }  # fmt: skip
    return encode({"error": fields})


def read_text(asked: dict[str, JSON], field: str) -> str:
    """Read a text that must be there, or raise `BadRequest`."""
    value = asked.get(field)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{field} must be text; it is {shorten(value)}.", param=field)
    return value


def maybe_whole(asked: dict[str, JSON], field: str) -> int | None:
    """Read a positive whole number; None = it is absent or null. Raises `BadRequest`."""
    value = asked.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(
            f"{field} must be a whole number from 1; it is {shorten(value)}.", param=field
        )
    return value


def read_whole(asked: dict[str, JSON], field: str, default: int, most: int) -> int:
    """Read a positive whole number that may be absent, up to `most`, or raise `BadRequest`."""
    value = maybe_whole(asked, field)
    if value is not None and value > most:
        raise BadRequest(f"{field} may be {most} at most; it is {shorten(value)}.", param=field)
    return default if value is None else value


def read_messages(asked: dict[str, JSON]) -> list[dict[str, JSON]]:
    """Read the conversation: one message or more, each an object. Raises `BadRequest`."""
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest(
            f"messages must be a list of one message or more; it is {shorten(messages)}.",
            param="messages",
        )
    found = [message for message in messages if isinstance(message, dict)]
    if len(found) < len(messages):
        raise BadRequest("Each of messages must be an object.", param="messages")
    return found


def read_content(message: dict[str, JSON]) -> str:
    """Return the text of a message, or of a part that has content of its own."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def make_created(key: bytes) -> int:
    """Return the time stamp of an answer, in seconds: out of the request, not of the clock."""
    return CREATED_S + int.from_bytes(key[:4]) % CREATED_SPAN_S


def cut_pieces(text: str) -> list[str]:
    """Cut a text into the pieces of a stream, at least one."""
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)] or [""]
