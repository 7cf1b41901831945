"""One connection, on a transport that moves nothing and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable
from typing import cast

import h11
import pytest

from agentstate.ground.errors import UpstreamCut, UpstreamProtocol
from agentstate.wire.message import Origin
from agentstate.wire.upstream import (
    HEAD_BYTES_MAX,
    READ_AHEAD_BYTES,
    READ_AHEAD_LOW_BYTES,
    Connection,
)

HERE = Origin("http", "here.test", 80)


class StillTransport(asyncio.Transport):
    """A transport that moves nothing and remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.unsent_bytes = 0
        self.is_reading = True
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def abort(self) -> None:
        self.is_aborted = True


GET = h11.Request(method="GET", target="/", headers=[("Host", "here.test")])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def on_a_connection(work: Callable[[Connection, StillTransport], Awaitable[None]]) -> None:
    async def main() -> None:
        lost: list[Connection] = []
        connection = Connection(HERE, asyncio.get_running_loop(), lost.append)
        transport = StillTransport()
        connection.connection_made(transport)
        connection.start("here.test", GET, b"")
        await work(connection, transport)
        assert lost == []
        connection.connection_lost(None)
        assert lost == [connection]

    asyncio.run(main())


def read_answer(connection: Connection) -> bytes:
    body = b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Data):
            body += bytes(event.data)
        else:
            assert isinstance(event, h11.Response)
    return body


def test_a_connection_carries_one_request_after_the_other() -> None:
    async def work(connection: Connection, transport: StillTransport) -> None:
        for _ in range(3):
            connection.data_received(OK)
            assert read_answer(connection) == b"ok"
            assert connection.recycle()
            connection.start("here.test", GET, b"")
            assert connection.is_silent
        assert transport.written == [b"GET / HTTP/1.1\r\nHost: here.test\r\n\r\n"] * 4

    on_a_connection(work)


def test_an_unfinished_answer_cannot_be_recycled() -> None:
    async def work(connection: Connection, transport: StillTransport) -> None:
        connection.data_received(OK[:-1])
        assert isinstance(connection.next_event(), h11.Response)
        assert not connection.recycle()

    on_a_connection(work)


@pytest.mark.parametrize("tail", ["same read", "next read", "unsent request", "closed"])
def test_a_finished_answer_with_something_left_cannot_be_recycled(tail: str) -> None:
    async def work(connection: Connection, transport: StillTransport) -> None:
        connection.data_received(OK + (b"x" if tail == "same read" else b""))
        assert read_answer(connection) == b"ok"
        if tail == "next read":
            connection.data_received(b"x")
        elif tail == "unsent request":
            transport.unsent_bytes = 1
        elif tail == "closed":
            connection.eof_received()
        assert not connection.recycle()

    on_a_connection(work)


def test_reading_pauses_ahead_of_a_slow_consumer_and_goes_on_when_it_catches_up() -> None:
    async def work(connection: Connection, transport: StillTransport) -> None:
        piece = bytes(READ_AHEAD_LOW_BYTES)
        count = READ_AHEAD_BYTES // len(piece) + 1
        connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        assert isinstance(connection.next_event(), h11.Response)
        assert connection.next_event() is None
        for _ in range(count - 1):
            connection.data_received(piece)
            assert transport.is_reading
        connection.data_received(piece)
        assert not transport.is_reading
        for left in range(count - 1, -1, -1):
            assert isinstance(connection.next_event(), h11.Data)
            assert transport.is_reading == (left <= 1), left

    on_a_connection(work)


def test_bytes_for_an_idle_connection_close_it() -> None:
    async def work(connection: Connection, transport: StillTransport) -> None:
        connection.data_received(OK)
        read_answer(connection)
        assert connection.recycle()
        connection.is_idle = True
        connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        assert transport.is_aborted
        assert connection.is_over

    on_a_connection(work)


def test_a_head_may_be_as_large_as_the_limit_and_no_larger() -> None:
    async def fits(connection: Connection, transport: StillTransport) -> None:
        pad = HEAD_BYTES_MAX - len(OK) - 10
        connection.data_received(OK.replace(b"\r\n\r\n", b"\r\nX: %s\r\n\r\n" % (b"x" * pad)))
        assert isinstance(connection.next_event(), h11.Response)

    async def does_not(connection: Connection, transport: StillTransport) -> None:
        connection.data_received(b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_BYTES_MAX)
        with pytest.raises(UpstreamProtocol):
            connection.next_event()

    on_a_connection(fits)
    on_a_connection(does_not)


def test_what_was_read_before_a_reset_can_still_be_taken() -> None:
    async def main() -> None:
        connection = Connection(HERE, asyncio.get_running_loop(), lambda _: None)
        connection.connection_made(StillTransport())
        connection.start("here.test", GET, b"")
        connection.data_received(OK[:-1])
        connection.connection_lost(ConnectionResetError("reset by peer"))
        assert isinstance(connection.next_event(), h11.Response)
        assert isinstance(connection.next_event(), h11.Data)
        with pytest.raises(UpstreamCut, match="reset by peer") as caught:
            connection.next_event()
        assert isinstance(caught.value.__cause__, ConnectionResetError)

    asyncio.run(main())


def test_a_wait_ends_by_bytes_and_by_its_time_limit() -> None:
    async def work(connection: Connection, transport: StillTransport) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(connection.data_received, b"H")
        assert await connection.changed(loop.time() + 60)
        assert not await connection.changed(loop.time() + 0.001)
        assert not await connection.changed(loop.time() - 1)
        loop.call_soon(connection.data_received, b"T")
        assert await connection.changed(math.inf)

    on_a_connection(work)


def test_a_connection_given_up_while_it_was_made_is_closed_when_it_comes() -> None:
    async def main() -> None:
        connection = Connection(HERE, asyncio.get_running_loop(), lambda _: None)
        connection.abort()
        transport = StillTransport()
        connection.connection_made(transport)
        assert transport.is_aborted
        connection.data_received(OK)
        with pytest.raises(UpstreamCut, match="closed from this side"):
            connection.next_event()

    asyncio.run(main())


def test_a_tunnel_lost_during_the_handshake_is_an_error_of_the_socket() -> None:
    async def main() -> None:
        connection = Connection(HERE, cast(asyncio.AbstractEventLoop, StillLoop()), lambda _: None)
        connection.connection_made(StillTransport())
        with pytest.raises(ConnectionResetError):
            await connection.secure(ssl.create_default_context(), "here.test")

    asyncio.run(main())


class StillLoop:
    """The part of a loop that `Connection` uses: a clock at 0 and a timer that is rung by hand."""

    def __init__(self) -> None:
        self.timers_set: list[float] = []
        self.ring: Callable[[], object] = lambda: None
        self.create_future = asyncio.get_running_loop().create_future

    def time(self) -> float:
        return 0.0

    def call_at(self, when_s: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        self.timers_set.append(when_s)
        self.ring = callback
        return asyncio.get_running_loop().call_later(60, lambda: None)

    async def start_tls(self, *_: object, **__: object) -> None:
        """Return what asyncio does where the connection ended in the middle."""


def test_moving_the_time_limit_later_sets_no_new_timer() -> None:
    async def main() -> None:
        call_soon = asyncio.get_running_loop().call_soon
        loop = StillLoop()
        connection = Connection(HERE, cast(asyncio.AbstractEventLoop, loop), lambda _: None)
        for n in range(100):
            call_soon(connection.wake)
            assert await connection.changed(1000.0 + n)
        assert loop.timers_set == [1000.0]
        call_soon(connection.wake)
        assert await connection.changed(500.0)
        assert loop.timers_set == [1000.0, 500.0]

        # It rings at 500 while this wait may last until 700: it is set again and nothing ends.
        call_soon(lambda: loop.ring())
        call_soon(lambda: loop.ring())
        assert not await connection.changed(700.0)
        assert loop.timers_set == [1000.0, 500.0, 700.0]

        # With nobody waiting it is not set again.
        call_soon(connection.wake)
        assert await connection.changed(600.0)
        loop.ring()
        assert loop.timers_set == [1000.0, 500.0, 700.0, 600.0]
        connection.connection_lost(None)

    asyncio.run(main())
