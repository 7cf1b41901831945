"""Response heads as bytes, and how the client will know where the body ends. Pure.

Framing and the life of the connection are decided here alone, whatever headers a response carries.
h11's writer would cost as much again as its parser, which is most of what a request costs.
"""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus
from typing import NamedTuple

from agentstate.wire.message import Response


class Framing(Enum):
    """How a client knows where a response ends."""

    NONE = "none"  # there is no body, whatever the headers say
    LENGTH = "length"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"  # HTTP/1.0 knows no chunks


class Outgoing(NamedTuple):
    """A response head as bytes and what was decided with it. (A dataclass is slower to make.)"""

    head: bytes
    framing: Framing
    length: int  # of the body; 0 unless framed by length
    closes: bool  # the head says that the connection closes


# Framing and the life of the connection are ours alone, whatever an upstream said about its own.
_OURS = frozenset((b"connection", b"content-length", b"keep-alive", b"transfer-encoding"))

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def render_head(
    response: Response, *, is_head: bool, is_http10: bool, closes: bool, date_line: bytes
) -> Outgoing:
    """Render a response's head and decide its framing (RFC 9112 section 6.3).

    A Content-Length that comes with an iterator is kept, and is a promise.

    Raises:
        ValueError: the status is none, or a header would break the head open.
    """
    if not 200 <= response.status <= 999:
        raise ValueError(f"a final response cannot have status {response.status}")
    lines = [status_line(response.status)]
    announced: int | None = None
    is_dated = False
    for name, value in response.headers:
        lower = name.lower()
        if lower in _OURS:
            if lower == b"content-length" and value.isdigit():
                announced = int(value)
            elif lower == b"connection" and b"close" in value.lower():
                closes = True
            continue
        if lower == b"date":
            is_dated = True
        lines.append(b"%b: %b\r\n" % (name, value))
    framing, length = _choose_framing(response, announced, is_head=is_head, is_http10=is_http10)
    if length is not None:
        lines.append(b"content-length: %d\r\n" % length)
    elif framing is Framing.CHUNKED:
        lines.append(b"transfer-encoding: chunked\r\n")
    if not is_dated:
        lines.append(date_line)
    if closes or framing is Framing.UNTIL_CLOSE:
        closes = True
        lines.append(b"connection: close\r\n")
    lines.append(b"\r\n")
    head = b"".join(lines)
    # Response splitting: a line break in a value would begin a header, or a response, of its own.
    if not head.count(b"\n") == head.count(b"\r") == len(lines) or b"\0" in head:
        raise ValueError("a response header holds a line break or NUL")
    return Outgoing(head, framing, length or 0, closes)


def _choose_framing(
    response: Response, announced: int | None, *, is_head: bool, is_http10: bool
) -> tuple[Framing, int | None]:
    """Return how the body is framed, and the Content-Length to send; None = none."""
    body = response.body
    if response.status == 204:
        return Framing.NONE, None
    if is_head or response.status == 304:  # the length is that of what a GET would bring
        return Framing.NONE, len(body) if isinstance(body, bytes) and body else announced
    if isinstance(body, bytes):
        return Framing.LENGTH, len(body)
    if announced is not None:
        return Framing.LENGTH, announced
    return (Framing.UNTIL_CLOSE if is_http10 else Framing.CHUNKED), None


def status_line(status: int) -> bytes:
    """Return the first line of a response, line end included."""
    line = _STATUS_LINES.get(status)
    return line if line is not None else b"HTTP/1.1 %d \r\n" % status
