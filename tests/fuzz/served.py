"""The server as a target: bytes of a client go in, and what it answers must be in order.

The real connection on a transport of ours, without a socket: so thousands of inputs a second go
through, and every turn of the loop is the same each time. `e2e/test_fuzzed_requests.py` sends to
a running proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import h11

from agentstate.ground.settings import ServerSettings
from agentstate.wire.message import Request, Response
from agentstate.wire.server import Server, _Connection

BODY_BYTES_MAX = 512
TURNS_MAX = 5_000  # of the loop, for one piece of input; a fast machine's hang is the same
_SETTINGS = ServerSettings(port=0, header_max_kb=1)
_QUIET_TURNS = 4


class Wire(asyncio.Transport):
    """The client's end: keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.has_ended = False  # our side was shut down, or closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep it."""
        assert not self.has_ended, "written after the end"
        self.written += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the peer's address, and no socket."""
        return ("127.0.0.1", 1) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        """Return that all is read at once."""
        return 0

    def can_write_eof(self) -> bool:
        """Return that it has halves."""
        return True

    def write_eof(self) -> None:
        """End our side."""
        self.has_ended = True

    def is_closing(self) -> bool:
        """Return whether our side has ended."""
        return self.has_ended

    def close(self) -> None:
        """End both."""
        self.has_ended = True

    def abort(self) -> None:
        """End both."""
        self.has_ended = True

    def pause_reading(self) -> None:
        """Nothing: a client that goes on sending is the harder case."""

    def resume_reading(self) -> None:
        """Nothing."""


def check_served(data: bytes) -> None:
    """One answer a request, in order, never a 500, and at most one refusal, which is the last."""
    size, whole = data[:1], data[1:]
    step = size[0] if size and size[0] else max(1, len(whole))
    pieces = [whole[at : at + step] for at in range(0, len(whole), step)]
    methods, written = _loop().run_until_complete(_play(pieces))
    rest, numbers = bytes(written), []
    while rest:
        method = methods[len(numbers)] if len(numbers) < len(methods) else "GET"
        status, number, rest = _read_answer(method, rest)
        assert status != 500, "a bug of ours"
        numbers.append(number)
    answered = [number for number in numbers if number]
    assert answered == [b"%d" % at for at in range(len(answered))], "each its own answer, in order"
    assert None not in numbers[:-1], "after a refusal there is nothing"
    assert len(methods) - 1 <= len(answered) <= len(methods), "only the last can be without"


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all inputs: to make it costs more than most of them."""
    return asyncio.new_event_loop()


async def _play(pieces: list[bytes]) -> tuple[list[str], bytearray]:
    """Return the methods of the requests that the handler got, and what was written."""
    methods: list[str] = []

    async def handler(request: Request) -> Response:
        number = b"%d" % len(methods)
        methods.append(request.method)
        headers = [(b"x-number", number)]
        if b"stream" in request.target:

            async def items() -> AsyncIterator[bytes]:
                async for item in request.stream():
                    yield item
                yield b"end"

            return Response(200, headers, items())
        return Response(200, headers, await request.body(BODY_BYTES_MAX))

    server, wire = Server(handler, _SETTINGS), Wire()
    connection = _Connection(server)
    connection.connection_made(wire)
    for piece in pieces:
        connection.data_received(piece)
        await _settle(wire, connection)
    connection.eof_received()
    await _settle(wire, connection)
    if not wire.has_ended:  # a stream whose client half closed: it ends with its deadline
        assert connection._phase.value in ("body", "full"), "still open after the client's end"
    connection.connection_lost(None)
    await server._tasks.close(1.0)
    return methods, wire.written


async def _settle(wire: Wire, connection: _Connection) -> None:
    """Let everything happen that can."""
    quiet, before = 0, None
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
        now = (len(wire.written), connection._phase, id(connection._request), wire.has_ended)
        quiet = quiet + 1 if now == before else 0
        before = now
        if quiet >= _QUIET_TURNS:
            return
    raise AssertionError("it does not come to rest")


def _read_answer(method: str, data: bytes) -> tuple[int, bytes | None, bytes]:
    """Return status, number (None = a refusal) and what follows the answer."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    status, number = 0, None
    while True:
        event = client.next_event()
        if isinstance(event, h11.Response):
            status = event.status_code
            number = dict(event.headers).get(b"x-number")
        elif isinstance(event, h11.EndOfMessage):
            return status, number, client.trailing_data[0]
        elif event is h11.NEED_DATA:  # framed by the end of the connection, or cut
            return status, number, b""
