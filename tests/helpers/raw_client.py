"""An HTTP client on a bare socket that keeps what other clients hide.

It records every interim response, when each piece of the body came, how the body was framed and how
the connection ended. It sends exactly the bytes it is given, malformed ones too, and can leave at
any point. Blocking; a test that wants several at once uses threads.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

Pair = tuple[bytes, bytes]
Address = tuple[str, int]
Ending = Literal["complete", "cut", "reset", "timeout", "left"]
# complete  the body ended as HTTP says it should     timeout  nothing came for the time limit
# cut       the peer closed before that               left     we stopped reading on purpose
# reset     the peer reset the connection

READ_BYTES = 64 * 1024
TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of the body, framing removed, and when they came."""

    at_s: float
    data: bytes


@dataclass(slots=True)
class Reception:
    """A response as far as it came."""

    sent_s: float
    status: int | None = None  # None = no final head came
    headers: tuple[Pair, ...] = ()
    interims: list[tuple[int, float]] = field(default_factory=list)  # 1xx status, when
    head_s: float | None = None
    pieces: list[Piece] = field(default_factory=list)
    ending: Ending = "cut"
    ended_s: float = 0.0
    wire: bytearray = field(default_factory=bytearray)  # all bytes as they came

    @property
    def body(self) -> bytes:
        """The body so far, framing removed."""
        return b"".join(piece.data for piece in self.pieces)

    def header(self, name: str) -> str | None:
        """Return the first value of a header, ignoring case, or None."""
        wanted = name.lower().encode()
        return next((v.decode("latin-1") for k, v in self.headers if k.lower() == wanted), None)

    def header_count(self, name: str) -> int:
        """Return how many fields of that name there are."""
        wanted = name.lower().encode()
        return sum(key.lower() == wanted for key, _ in self.headers)

    def json(self) -> Any:
        """Return the body read as JSON."""
        return json.loads(self.body)


Stop = Callable[[Reception], bool]


class Connection:
    """One connection to a server; may carry several requests after one another."""

    def __init__(
        self, address: Address, *, timeout_s: float = TIMEOUT_S, receive_bytes: int | None = None
    ) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_bytes is not None:  # before connect: it bounds the window that is offered
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.settimeout(timeout_s)
        self._socket.connect(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send these bytes as they are."""
        self._socket.sendall(data)

    def close(self) -> None:
        """Close in the ordinary way."""
        self._socket.close()

    def end_sending(self) -> None:
        """Close the sending half; what comes can still be read."""
        self._socket.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """Close in the ordinary way, from any thread: one that is reading is woken by it."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Close with a TCP reset."""
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()

    def is_closed_by_peer(self, within_s: float) -> bool:
        """Return whether the peer closes within the time without sending anything more."""
        self._socket.settimeout(within_s)
        try:
            return self._socket.recv(READ_BYTES) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def wait_for_interim(self, within_s: float, reception: Reception) -> None:
        """Read until a 1xx head has come, or anything final, or the time is over."""
        deadline = time.perf_counter() + within_s
        while not reception.interims and reception.status is None:
            left = deadline - time.perf_counter()
            if left <= 0 or not self._fill(reception, left):
                return
            self._read_heads(reception)

    def receive(
        self, reception: Reception | None = None, *, until: Stop | None = None
    ) -> Reception:
        """Read one response. `until` is asked after every piece; true means leave off reading."""
        got = reception or Reception(sent_s=time.perf_counter())
        try:
            while got.status is None:
                self._read_heads(got)
                if got.status is None and not self._fill(got):
                    got.ending = "cut"
                    return got
            got.ending = self._read_body(got, until)
        except TimeoutError:
            got.ending = "timeout"
        except ConnectionError:
            got.ending = "reset"
        finally:
            got.ended_s = time.perf_counter()
        return got

    def _fill(self, got: Reception, timeout_s: float | None = None) -> bool:
        before = self._socket.gettimeout()
        try:
            if timeout_s is not None:
                self._socket.settimeout(timeout_s)
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            if timeout_s is None:
                raise
            return False
        finally:
            self._socket.settimeout(before)
        got.wire += data
        self._buffer += data
        return data != b""

    def _read_heads(self, got: Reception) -> None:
        while got.status is None and (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            lines = bytes(self._buffer[:end]).split(b"\r\n")
            del self._buffer[: end + 4]
            status = int(lines[0].split(b" ")[1])
            if status < 200:
                got.interims.append((status, time.perf_counter()))
                continue
            got.head_s = time.perf_counter()
            got.headers = tuple(_split_header(line) for line in lines[1:])
            got.status = status

    def _read_body(self, got: Reception, until: Stop | None) -> Ending:
        if got.status in (204, 304):
            return "complete"
        if "chunked" in (got.header("transfer-encoding") or ""):
            return self._read_chunked(got, until)
        announced = got.header("content-length")
        left = None if announced is None else int(announced)
        while left != 0:
            if self._buffer:
                taken = bytes(self._buffer if left is None else self._buffer[:left])
                del self._buffer[: len(taken)]
                left = None if left is None else left - len(taken)
                if _add(got, taken, until):
                    return "left"
            elif not self._fill(got):
                return "complete" if left is None else "cut"
        return "complete"

    def _read_chunked(self, got: Reception, until: Stop | None) -> Ending:
        while True:
            while (end := self._buffer.find(b"\r\n")) < 0:
                if not self._fill(got):
                    return "cut"
            size = int(bytes(self._buffer[:end]).split(b";")[0], 16)
            while len(self._buffer) < end + 2 + size + 2:
                if not self._fill(got):
                    return "cut"
            data = bytes(self._buffer[end + 2 : end + 2 + size])
            del self._buffer[: end + 2 + size + 2]
            if size == 0:
                return "complete"
            if _add(got, data, until):
                return "left"


def _add(got: Reception, data: bytes, until: Stop | None) -> bool:
    got.pieces.append(Piece(time.perf_counter(), data))
    return until is not None and until(got)


def _split_header(line: bytes) -> Pair:
    name, _, value = line.partition(b":")
    return name, value.strip()


def render_request(
    method: str, target: str, address: Address, headers: Sequence[Pair], body: bytes = b""
) -> bytes:
    """Return the bytes of a request; Host and Content-Length are added where they are not given."""
    given = {name.lower() for name, _ in headers}
    pairs = list(headers)
    if b"host" not in given:
        pairs.insert(0, (b"host", f"{address[0]}:{address[1]}".encode()))
    if b"content-length" not in given and b"transfer-encoding" not in given:
        pairs.append((b"content-length", b"%d" % len(body)))
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1")]
    lines += [name + b": " + value for name, value in pairs]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def ask(
    address: Address,
    method: str,
    target: str,
    headers: Sequence[Pair] = (),
    body: bytes = b"",
    *,
    until: Stop | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Reception:
    """Send one request on a connection of its own and read the response."""
    with Connection(address, timeout_s=timeout_s) as connection:
        started = Reception(sent_s=time.perf_counter())
        connection.send(render_request(method, target, address, headers, body))
        return connection.receive(started, until=until)
