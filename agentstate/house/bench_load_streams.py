"""Streams of a measurement, both ends: the upstream that tells them and the clients that read them.

Each chunk says its number and the moment at which it was sent, by the clock that all processes of a
machine share, so that a client knows how long each took to come. Tellers keep to their timetable:
chunk n goes out at n intervals after the first, however late one before it was.
"""

from __future__ import annotations

import asyncio
import json
import re
import selectors
import socket
from dataclasses import dataclass, field
from typing import Any

from agentstate.ground.clock import monotonic_s

SILENCE_S = 20.0  # a peer that says nothing for so long is broken
RECEIVE_BYTES = 1 << 16
END = b"data: [DONE]\n\n"

_STORY = re.compile(rb'"model": ?"stream-(\d+)-(\d+)-(\d+)"')
_STAMP = re.compile(rb"@(\d{6}) (\d+\.\d{6}) ")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Story:
    """A stream that was asked for, by the name of the model."""

    chunks: int
    interval_s: float  # between two chunks; 0 = as fast as they can be written
    pad: int  # characters of each chunk beside its stamp

    @property
    def model(self) -> str:
        """The name that asks for it."""
        return f"stream-{self.chunks}-{round(self.interval_s * 1000)}-{self.pad}"


def read_story(received: bytearray, end: int) -> Story | None:
    """Return what the request before `end` asks for; None = no stream."""
    found = _STORY.search(received, 0, end)
    return None if found is None else Story(int(found[1]), int(found[2]) / 1000, int(found[3]))


class Teller:
    """Writes one stream."""

    def __init__(self, story: Story, transport: asyncio.Transport) -> None:
        self._story = story
        self._transport = transport
        self._began_s = asyncio.get_running_loop().time()
        self._told = 0
        self._timer: asyncio.TimerHandle | None = None
        transport.write(_HEAD)
        self._tell()

    def stop(self) -> None:
        """Say no more: nobody is there."""
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self) -> None:
        story, loop = self._story, asyncio.get_running_loop()
        while self._told < story.chunks:
            self._transport.write(_chunked(_chunk(self._told, story.pad)))
            self._told += 1
            if story.interval_s:
                next_s = self._began_s + self._told * story.interval_s
                self._timer = loop.call_at(next_s, self._tell)
                return
        self._transport.write(_chunked(_event({}, "stop") + END) + b"0\r\n\r\n")


def _chunk(number: int, pad: int) -> bytes:
    stamp = f"@{number:06d} {monotonic_s():.6f} "
    return _event({"content": stamp + "x" * pad}, None)


def _event(delta: dict[str, str], finish_reason: str | None) -> bytes:
    value = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(slots=True)
class Reader:
    """One client and the stream it reads."""

    request: bytes
    asks_s: float  # when, after the beginning of the measurement
    socket: socket.socket | None = None
    asked_s: float = 0.0
    first_ms: float | None = None  # from asking to the first chunk; None = there was none
    numbers: list[int] = field(default_factory=list)  # of the chunks, as they came
    delays_ms: list[float] = field(default_factory=list)  # of each chunk, from its sending
    tail: bytes = b""  # what may be the beginning of a stamp
    is_done: bool = False


def measure_streams(asked: dict[str, Any]) -> dict[str, Any]:
    """Read streams side by side.

    asked: `port`; `requests`, raw, one for each stream; `stagger_s`, over which their beginnings
    are spread; `stalled`, raw requests whose answers nobody reads, sent before all others.

    Returns `first_ms` and `delays_ms`, sorted (a first chunk has no delay: it is in `first_ms`),
    `chunks` (how many came), `disordered` (streams whose chunks were not 0, 1, 2, ...) and
    `unfinished` (streams that did not end as they should).
    """
    port, requests = asked["port"], [raw.encode("latin-1") for raw in asked["requests"]]
    step_s = asked["stagger_s"] / max(len(requests), 1)
    readers = [Reader(raw, at * step_s) for at, raw in enumerate(requests)]
    stalled = [_ask(port, raw.encode("latin-1")) for raw in asked["stalled"]]
    try:
        _read_all(port, readers)
    finally:
        for each in [*stalled, *(reader.socket for reader in readers)]:
            if each is not None:
                each.close()
    return {
        "first_ms": sorted(r.first_ms for r in readers if r.first_ms is not None),
        "delays_ms": sorted(each for r in readers for each in r.delays_ms),
        "chunks": sum(len(r.numbers) for r in readers),
        "disordered": sum(r.numbers != list(range(len(r.numbers))) for r in readers),
        "unfinished": sum(not r.is_done for r in readers),
    }


def _read_all(port: int, readers: list[Reader]) -> None:
    """Ask when it is time, read what comes, until all streams have ended."""
    began_s = heard_s = monotonic_s()
    waiting = list(reversed(readers))  # the next one last
    reading = 0
    with selectors.DefaultSelector() as selector:
        while waiting or reading:
            now_s = monotonic_s()
            while waiting and began_s + waiting[-1].asks_s <= now_s:
                reader = waiting.pop()
                reader.asked_s = monotonic_s()
                reader.socket = _ask(port, reader.request)
                selector.register(reader.socket, selectors.EVENT_READ, reader)
                reading += 1
            until_s = began_s + waiting[-1].asks_s if waiting else now_s + SILENCE_S
            for key, _ in selector.select(max(until_s - monotonic_s(), 0.0)):
                heard_s = monotonic_s()
                if _take(key.data):
                    selector.unregister(key.fileobj)
                    reading -= 1
            if monotonic_s() - heard_s > SILENCE_S:
                return  # what has not ended is counted as unfinished


def _ask(port: int, request: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), SILENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall(request)
    return made


def _take(reader: Reader) -> bool:
    """Take in what came; say whether the stream is over."""
    assert reader.socket is not None, "it has asked"
    piece = reader.socket.recv(RECEIVE_BYTES)
    now_s = monotonic_s()
    data = reader.tail + piece
    at = 0
    for found in _STAMP.finditer(data):
        if not reader.numbers:
            reader.first_ms = (now_s - reader.asked_s) * 1000
        else:
            reader.delays_ms.append((now_s - float(found[2])) * 1000)
        reader.numbers.append(int(found[1]))
        at = found.end()
    reader.tail = data[max(at, len(data) - 64) :]
    if END in data:
        reader.is_done = True
    return reader.is_done or not piece
