"""Requests and responses as values, for both ends of the proxy.

`Request` and `Response` are what a door sees of a client; `OutCall`, `Transport` and `Exchange` are
what a step sees of an upstream. Nothing here touches a socket: `server.py` and `client.py` do, and
the mock provider is a `Transport` of its own. Headers are ordered byte pairs: look-ups ignore case,
output keeps what came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

Pair = tuple[bytes, bytes]

# RFC 9110 section 7.6.1, plus the two that older peers still send.
HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
     b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)  # fmt: skip


class Headers:
    """Ordered (name, value) byte pairs with case-insensitive look-up. Immutable."""

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self.pairs: tuple[Pair, ...] = tuple(pairs)
        self._first: dict[bytes, bytes] | None = None

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of `name` (lower case), or None."""
        if self._first is None:
            first: dict[bytes, bytes] = {}
            for key, value in self.pairs:
                first.setdefault(key.lower(), value)
            self._first = first
        return self._first.get(name)

    def text(self, name: bytes) -> str | None:
        """Return the first value of `name` as text (UTF-8, else Latin-1), stripped, or None."""
        value = self.get(name)
        if value is None:
            return None
        try:
            return value.decode("utf-8").strip()
        except UnicodeDecodeError:
            return value.decode("latin-1").strip()

    def all(self, name: bytes) -> list[bytes]:
        """Return every value of `name` (lower case), in order."""
        return [value for key, value in self.pairs if key.lower() == name]

    def without(self, names: frozenset[bytes]) -> Headers:
        """Return a copy that lacks `names` (lower case)."""
        return Headers(pair for pair in self.pairs if pair[0].lower() not in names)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({len(self.pairs)} pairs)"  # never values: they hold keys


class Request(Protocol):
    """One request of a client, its body not yet read."""

    method: str
    target: bytes  # path and query exactly as received
    path: str  # the target's path, percent-escapes untouched
    query: str  # without the question mark; '' = none
    headers: Headers
    peer: str  # the client's address, '' where the socket has none
    started_s: float  # clock.monotonic_s when the head had been read

    async def body(self, bytes_max: int) -> bytes:
        """Read the whole body. Cached: a second call returns the same bytes.

        Raises:
            TooLarge: more than `bytes_max` (by Content-Length: before a byte is read).
            RequestTimeout: the client stalled.
            ConnectionError: the client went away.
        """
        ...

    def forget_body(self) -> None:
        """Let go of a body that was read whole: nobody asks for it again, and the response may
        take hours."""
        ...

    def stream(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, with back-pressure; for pass-through."""
        ...

    async def gone(self) -> None:
        """Return when the client has closed its connection; else wait."""
        ...

    def is_gone(self) -> bool:
        """Say whether the client has closed its connection."""
        ...

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the client closes its connection; at once if it has.

        Cheaper than a task that awaits `gone`. Dropped when the response has been sent.
        """
        ...

    def send_interim(self, status: int) -> None:
        """Write a 1xx response head now. A no-op once the response has begun or the client left."""
        ...


@dataclass(slots=True)
class Response:
    """What a door answers.

    `body` as bytes gets a Content-Length and goes out with the head in one write. As an iterator it
    is chunked (or closed at the end for HTTP/1.0), each item written and flushed as it comes; the
    server awaits the socket between items and closes the iterator when the client leaves. `Abort`
    raised by the iterator cuts the connection with no terminating chunk.
    """

    status: int
    headers: list[Pair]
    body: bytes | AsyncIterator[bytes] = b""


class Abort(Exception):
    """Raised by a body iterator: the answer cannot be finished honestly, cut the connection."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections go. Hashable: the pool's key."""

    scheme: str  # http | https
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Origin:
        """Read scheme, host and port of a URL; the port defaults by scheme."""
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, parts.hostname or "", port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Separate limits of one upstream call, in seconds. 0 = none."""

    connect_s: float = 10.0
    first_byte_s: float = 600.0  # models think for minutes
    gap_s: float = 300.0  # between two reads of a body
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class OutCall:
    """One request to an upstream. `headers` lack Host and framing; the transport adds them."""

    method: str
    origin: Origin
    target: bytes  # path and query
    headers: tuple[Pair, ...]
    body: bytes | AsyncIterator[bytes] = b""
    body_bytes: int | None = None  # how long an iterator is; None = not known, so chunked


class Exchange(Protocol):
    """An upstream's response whose head has arrived."""

    status: int
    headers: Headers  # as received, minus hop-by-hop; Content-Encoding removed where decoded

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, content-decoded where it was gzip or deflate.

        Raises:
            UpstreamCut: it ended before its announced or chunked end.
            UpstreamTimeout: gap or total limit.
            UpstreamProtocol: framing or compression is corrupt.
        """
        ...

    async def read(self, bytes_max: int) -> bytes:
        """Read the whole body; raises as `chunks`, and `UpstreamProtocol` over `bytes_max`."""
        ...

    async def close(self) -> None:
        """Give the connection back to the pool if the body was read to its end, else close it."""
        ...


class Transport(Protocol):
    """Sends calls to upstreams. The h11 client is one, the mock provider another."""

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """Begin a connection if none is idle, so that `send` finds it ready. Never raises."""
        ...

    async def send(self, call: OutCall, limits: TimeLimits) -> Exchange:
        """Send the call and wait for the final response head (1xx are skipped).

        A pooled connection that turns out closed before any byte came is replaced once.

        Raises:
            ConnectFailed, UpstreamTimeout, UpstreamCut, UpstreamProtocol.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def split_target(target: bytes) -> tuple[str, str]:
    """Return (path, query) of a request target in origin form, escapes untouched."""
    path, _, query = target.decode("latin-1").partition("?")
    return path, query


def decode_segment(segment: str) -> str:
    """Decode the percent-escapes of one path segment as UTF-8."""
    return unquote(segment, errors="strict")
