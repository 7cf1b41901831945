"""Both ends of a call for the client's tests: a loopback server that plays byte-exact scripts,
and the few words to call it with.

One script per connection, in order; the last one repeats. A script is an async function of a
`Peer`. What fails in a script fails the test, and leaving the `async with` waits until the client
has let go of every connection, so each test also is one that no socket leaks: leave the client's
own block first.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from agentstate.ground.settings import ForwardSettings
from agentstate.wire.client import HTTPClient, Proxies
from agentstate.wire.message import Origin, OutCall, Pair, TimeLimits
from agentstate.wire.pool import Proxy

LIMITS = TimeLimits(connect_s=20, first_byte_s=20, gap_s=20, total_s=60)
SHORT_S = 0.03  # a limit that a test lets pass
BODY_MAX = 64 * 1024 * 1024
BIG = 8 * 1024 * 1024  # more than the sockets' buffers take
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EVENTS = [b"data: %d\n\n" % n for n in range(6)]
CHUNKED = b"Transfer-Encoding: chunked"
GZIP = b"Content-Encoding: gzip"
# From a connection in the backlog to its script asyncio takes four turns of the loop, and a server
# closed between them leaks it; there is nothing to wait for that says so.
ACCEPT_TURNS = 10
LEAK_S = 5.0  # the client must have closed by then; only a test that fails waits so long


class Peer:
    """One connection as its server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> bytes:
        """Read up to the blank line."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> bytes:
        """Read one request, head and body, as it came; its framing must be right."""
        head = await self.head()
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
        }
        if fields.get(b"transfer-encoding") == b"chunked":
            return head + await self.reader.readuntil(b"0\r\n\r\n")
        return head + await self.reader.readexactly(int(fields.get(b"content-length", b"0")))

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def send_slowly(self, raw: bytes) -> None:
        """Send byte by byte, each in a write of its own that the client reads apart."""
        for i in range(len(raw)):
            self.writer.write(raw[i : i + 1])
            await self.writer.drain()
            await asyncio.sleep(0)

    def close(self) -> None:
        """End the connection in order."""
        self.writer.close()

    def reset(self) -> None:
        """End it with a reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has closed its side, dropping what it still sends."""
        try:
            while await self.reader.read(65536):
                pass
        except OSError:
            pass  # a reset is one way to close

    async def use_tls(self, context: ssl.SSLContext) -> None:
        """Begin TLS as the server, for what comes after a CONNECT."""
        await self.writer.start_tls(context)


Script = Callable[[Peer], Awaitable[None]]


class Far:
    """A running server."""

    def __init__(self, scripts: tuple[Script, ...]) -> None:
        self._scripts = scripts
        self.origin = Origin("http", "127.0.0.1", 0)
        self.peers: list[Peer] = []
        self.ended = 0  # connections the client has let go of
        self.faults: list[BaseException] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        peer = Peer(reader, writer)
        script = self._scripts[min(len(self.peers), len(self._scripts) - 1)]
        self.peers.append(peer)
        try:
            await script(peer)
            await peer.gone()
            self.ended += 1
        except (Exception, asyncio.CancelledError) as error:
            self.faults.append(error)
        finally:
            writer.transport.abort()
            self.tasks.discard(task)


@asynccontextmanager
async def far_end(*scripts: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Far]:
    """Run a server that plays `scripts`; on leaving, all its connections must have ended."""
    far = Far(scripts)
    server = await asyncio.start_server(far.play, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    far.origin = Origin("http" if tls is None else "https", "127.0.0.1", port)
    try:
        yield far
    finally:
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        server.close()
        if far.tasks:
            _, left = await asyncio.wait(set(far.tasks), timeout=LEAK_S)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=LEAK_S)
    for fault in far.faults:
        raise fault
    assert far.ended == len(far.peers), "the client left a connection open"


def replying(*answers: bytes) -> Script:
    """Answer each request with the next of `answers`, then wait."""

    async def script(peer: Peer) -> None:
        for answer in answers:
            await peer.request()
            peer.send(answer)

    return script


def then_close(*answers: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await replying(*answers)(peer)
        peer.close()

    return script


async def refuse_to_be_called(peer: Peer) -> None:
    raise AssertionError("no connection was expected")


def until_left(script: Script) -> Script:
    """Play `script` for a client that may go at any moment: its limit is short."""

    async def play(peer: Peer) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await script(peer)

    return play


async def wait(peer: Peer) -> None:
    """Say and read nothing until the client goes."""


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something is so that is bound to become so."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0)


@asynccontextmanager
async def calling(
    proxies: Proxies | None = None, tls: ssl.SSLContext | None = None, **forward: Any
) -> AsyncIterator[HTTPClient]:
    client = HTTPClient(ForwardSettings(**forward), proxies=proxies or Proxies(), tls=tls)
    try:
        yield client
    finally:
        await client.close()


def call_to(
    far: Far | Origin,
    method: str = "POST",
    body: bytes | AsyncIterator[bytes] = b"{}",
    headers: tuple[Pair, ...] = (),
) -> OutCall:
    origin = far if isinstance(far, Origin) else far.origin
    return OutCall(method, origin, b"/v1/x?key=sk-secret", headers, body)


async def ask(client: HTTPClient, call: OutCall, limits: TimeLimits = LIMITS) -> bytes:
    """Return the body of the answer, all of it read and the connection given back."""
    exchange = await client.send(call, limits)
    try:
        return await exchange.read(BODY_MAX)
    finally:
        await exchange.close()


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def answer(body: bytes, *headers: bytes, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join((status, *headers, b"", b"")) + body


def sized(body: bytes, *headers: bytes) -> bytes:
    return answer(body, b"Content-Length: %d" % len(body), *headers)


def through(far: Far, user: bytes | None = None) -> Proxies:
    proxy = Proxy(far.origin, user)
    return Proxies(http=proxy, https=proxy)
