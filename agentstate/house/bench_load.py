"""The far ends of a measurement, each a process of its own: the load, and an instant upstream.

Both must be cheaper than what is between them, so neither parses more HTTP than it needs: the load
reads a status line and a length, the upstream a length. They trust their peers, which are ours.
`bench_stand.py` starts them and talks to the load in JSON lines, one measurement each; streams are
`bench_load_streams.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
import selectors
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentstate.ground.clock import monotonic_s
from agentstate.house.bench_load_streams import Teller, measure_streams, read_story
from agentstate.wire.descriptors import raise_limit

PEER_TIMEOUT_S = 20.0  # a peer that says nothing for so long is broken
RECEIVE_BYTES = 1 << 18
NONCE = b"%(nonce)s"  # stands in a request where each one is to differ; as wide as a nonce
NONCE_WIDTH = len(NONCE)

_INSIDE = re.compile(rb"\r\nx-agentstate-overhead-ms: *([\d.]+)\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class LoadFailed(Exception):
    """An answer was not what the measurement is about; it means nothing then."""


@dataclass(slots=True)
class Plan:
    """One measurement."""

    port: int
    requests: list[bytes]  # raw, one for each client; `NONCE` is replaced each time
    expect: bytes  # must stand in the head of every answer; b'' = anything
    count_max: int  # requests in all
    seconds_max: float
    first_nonce: int = 0


@dataclass(slots=True)
class Client:
    """One connection with one request in flight."""

    socket: socket.socket
    request: bytes
    began_s: float = 0.0
    received: bytearray = field(default_factory=bytearray)
    inside_ms: list[float] = field(default_factory=list)  # what the answers say of themselves


def measure(plan: Plan) -> dict[str, Any]:
    """Run a plan; return the latencies in milliseconds, sorted, and how long it took.

    `inside_ms` is the overhead that the answers name, sorted; empty = they name none.

    Raises:
        LoadFailed: an answer is not 200, lacks what is expected, or does not come.
    """
    with selectors.DefaultSelector() as selector:
        clients = [_connect(plan.port, request) for request in plan.requests]
        try:
            for client in clients:
                selector.register(client.socket, selectors.EVENT_READ, client)
            return _run(plan, selector, clients)
        finally:
            for client in clients:
                client.socket.close()


def _run(plan: Plan, selector: selectors.BaseSelector, clients: list[Client]) -> dict[str, Any]:
    latencies: list[float] = []
    nonce = plan.first_nonce
    began_s = monotonic_s()
    for client in clients:
        _send(client, nonce := nonce + 1)
    flying = len(clients)
    while flying:
        ready = selector.select(PEER_TIMEOUT_S)
        if not ready:
            raise LoadFailed(f"No answer came within {PEER_TIMEOUT_S:g} s.")
        for key, _ in ready:
            client = key.data
            assert isinstance(client, Client)
            if not _receive(client, plan.expect):
                continue
            now_s = monotonic_s()
            latencies.append((now_s - client.began_s) * 1000)
            if now_s - began_s < plan.seconds_max and len(latencies) + flying <= plan.count_max:
                _send(client, nonce := nonce + 1)
            else:
                flying -= 1
    return {
        "latencies_ms": sorted(latencies),
        "inside_ms": sorted(each for client in clients for each in client.inside_ms),
        "seconds": monotonic_s() - began_s,
        "nonce": nonce,
    }


def _connect(port: int, request: bytes) -> Client:
    made = socket.create_connection(("127.0.0.1", port), PEER_TIMEOUT_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Client(made, request)


def _send(client: Client, nonce: int) -> None:
    raw = client.request
    if NONCE in raw:
        raw = raw.replace(NONCE, b"%0*d" % (NONCE_WIDTH, nonce))
    client.began_s = monotonic_s()
    client.socket.sendall(raw)


def _receive(client: Client, expect: bytes) -> bool:
    """Take in what came; say whether the answer is whole."""
    piece = client.socket.recv(RECEIVE_BYTES)
    if not piece:
        raise LoadFailed("The connection was closed before an answer was whole.")
    received = client.received
    received += piece
    end = received.find(b"\r\n\r\n") + 4
    if end < 4:
        return False
    head = bytes(received[:end])
    length = _LENGTH.search(head)
    is_framed = length is not None or _CHUNKED.search(head) is not None
    if not head.startswith(b"HTTP/1.1 200") or not is_framed or expect not in head:
        raise LoadFailed(f"An answer was not as expected: {bytes(received[:600])!r}")
    if not (
        received.endswith(_LAST_CHUNK) if length is None else len(received) >= end + int(length[1])
    ):
        return False
    if inside := _INSIDE.search(head):
        client.inside_ms.append(float(inside[1]))
    received.clear()
    return True


def serve_load() -> None:
    """Read plans as JSON lines from standard input, print each one's result as a line."""
    for line in sys.stdin:
        asked = json.loads(line)
        run = _KINDS[asked.pop("kind")]
        try:
            result = run(asked)
        except (LoadFailed, OSError) as error:
            result = {"error": str(error) or type(error).__name__}
        print(json.dumps(result), flush=True)


def _measure_calls(asked: dict[str, Any]) -> dict[str, Any]:
    raw = {
        "requests": [raw.encode("latin-1") for raw in asked["requests"]],
        "expect": asked["expect"].encode("latin-1"),
    }
    return measure(Plan(**asked | raw))


_KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "calls": _measure_calls,
    "streams": measure_streams,
}


class Upstream(asyncio.Protocol):
    """A model that answers at once, always the same; who asks for a stream gets one."""

    def __init__(self, response: bytes) -> None:
        self._response = response
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._teller: Teller | None = None  # of the last stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._teller is not None:
            self._teller.stop()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        while (end := self._received.find(b"\r\n\r\n") + 4) >= 4:
            length = _LENGTH.search(self._received, 0, end)
            whole = end + (int(length[1]) if length else 0)
            if len(self._received) < whole:
                return
            story = read_story(self._received, whole)
            del self._received[:whole]
            if story is None:
                self._transport.write(self._response)
            else:
                self._teller = Teller(story, self._transport)


async def serve_upstream(body: bytes) -> None:
    """Serve on a free loopback port until SIGTERM."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    response = head % len(body) + body
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(response), "127.0.0.1", 0)
    print(f"upstream listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    raise_limit()
    if sys.argv[1] == "load":
        serve_load()
    else:
        asyncio.run(serve_upstream(sys.argv[2].encode()))
