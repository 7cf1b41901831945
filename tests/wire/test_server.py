"""The server over real loopback sockets: framing, limits, back-pressure, leaving and stopping."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import h11
import pytest

from agentstate.ground.errors import BadRequest, ConnectFailed, SettingError, TooLarge
from agentstate.ground.settings import ServerSettings
from agentstate.wire import server as server_module
from agentstate.wire.framing import Framing, Outgoing, render_head
from agentstate.wire.message import Abort, Pair, Request, Response
from agentstate.wire.server import BODY_BUFFER_BYTES, Handler, Server, render_error
from tests.wire.test_strict import REFUSED_BODIES, REFUSED_HEADS, TAKEN_BODIES, one_by_one

LIMIT_S = 20.0  # of a whole test; none comes near it unless it fails
SOON_S = 0.05  # a time limit that a test waits for
READ_BYTES = 64 * 1024

Ending = Literal["whole", "cut", "reset"]
T = TypeVar("T")


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test to its end, and fail if that takes too long."""
    asyncio.run(asyncio.wait_for(test, LIMIT_S))


@asynccontextmanager
async def serving(
    handler: Handler, *, tls: ssl.SSLContext | None = None, **settings: Any
) -> AsyncIterator[Server]:
    server = Server(handler, ServerSettings(port=0, **settings), tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


@dataclass
class Answer:
    """A response as h11 reads it."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    interims: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    ending: Ending = "cut"

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def error(self) -> dict[str, str]:
        assert self.headers[b"content-type"] == b"application/json"
        error: dict[str, str] = json.loads(self.body)["error"]
        return error


class Client:
    """One client socket. Sends the bytes it is given; reads with h11."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._rest = b""

    @classmethod
    async def connect(
        cls, server: Server, *, receive_bytes: int | None = None, tls: ssl.SSLContext | None = None
    ) -> Self:
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes is not None:  # before connect: it bounds the window that is offered
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(sock, server.address)
        except OSError:
            sock.close()
            raise
        name = "localhost" if tls else None
        return cls(*await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, data: bytes, method: str = "GET") -> Answer:
        await self.send(data)
        return await self.receive(method)

    async def receive(
        self, method: str = "GET", until: Callable[[Answer], bool] = lambda answer: False
    ) -> Answer:
        """Read one response; leave off once `until` is true."""
        parser, answer = h11.Connection(h11.CLIENT), Answer()
        parser.send(h11.Request(method=method, target="/", headers=[("host", "h")]))
        parser.send(h11.EndOfMessage())
        if self._rest:
            parser.receive_data(self._rest)
        while not until(answer):
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError:
                return answer
            if event is h11.NEED_DATA:
                try:
                    parser.receive_data(await self.reader.read(READ_BYTES))
                except ConnectionError:
                    answer.ending = "reset"
                    return answer
            elif isinstance(event, h11.InformationalResponse):
                answer.interims.append(event.status_code)
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = dict(event.headers)
            elif isinstance(event, h11.Data):
                answer.pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                answer.ending = "whole"
                break
            else:
                return answer
        self._rest = parser.trailing_data[0]
        return answer

    async def remainder(self) -> bytes:
        """Read until the server closes."""
        try:
            return self._rest + await self.reader.read()
        except ConnectionError:
            return self._rest

    def reset(self) -> None:
        """Leave with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def get(path: str = "/", *lines: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: h", *lines, "", "")).encode()


def post(body: bytes, *lines: str) -> bytes:
    length = f"Content-Length: {len(body)}"
    return "\r\n".join(("POST / HTTP/1.1", "Host: h", length, *lines, "", "")).encode() + body


CHUNKED_POST = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


async def echo(request: Request) -> Response:
    return Response(200, [(b"x-target", request.target)], await request.body(1 << 30))


async def hello(request: Request) -> Response:
    return Response(200, [], b"hello")


def streaming(*items: bytes, headers: tuple[Pair, ...] = ()) -> Handler:
    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            for item in items:
                yield item

        return Response(200, list(headers), body())

    return handler


async def until(condition: Callable[[], bool]) -> None:
    """Give other tasks turns until the condition holds; `run` bounds the wait."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.001)


# --- requests and responses -------------------------------------------------------------------


def test_request_says_what_was_sent() -> None:
    seen: list[Request] = []

    async def handler(request: Request) -> Response:
        seen.append(request)
        return Response(200, [], b"")

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.ask(get("/a%2Fb?c=d&e", "X-Name: Value", "x-name: other"))
        (request,) = seen
        assert request.method == "GET"
        assert request.target == b"/a%2Fb?c=d&e"
        assert (request.path, request.query) == ("/a%2Fb", "c=d&e")
        assert request.headers.pairs[1:] == ((b"X-Name", b"Value"), (b"x-name", b"other"))
        assert request.peer == "127.0.0.1"
        assert request.started_s > 0

    run(test())


def test_absolute_target_is_reduced_and_names_the_host() -> None:
    async def handler(request: Request) -> Response:
        return Response(200, [], request.target + b" " + b",".join(request.headers.all(b"host")))

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            answer = await client.ask(b"GET http://a:1/b?c HTTP/1.1\r\nHost: evil\r\n\r\n")
        assert answer.body == b"/b?c a:1"

    run(test())


def test_connection_serves_one_request_after_another() -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            for body in (b"", b"one", b"x" * 300_000, b"two"):
                answer = await client.ask(post(body))
                assert answer.body == body
                assert b"connection" not in answer.headers
            assert server.connections_count() == 1

    run(test())


def test_response_has_length_and_date_and_keeps_its_headers() -> None:
    headers = [(b"X-A", b"1"), (b"x-a", b"2"), (b"Content-Length", b"99"), (b"Keep-Alive", b"x")]

    async def handler(request: Request) -> Response:
        return Response(201, [*headers, (b"Transfer-Encoding", b"chunked")], b"hello")

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(get("/", "Connection: close"))
            raw = await client.remainder()
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        dates = [line[6:].decode() for line in lines if line.startswith(b"date: ")]
        assert lines[:4] == [b"HTTP/1.1 201 Created", b"X-A: 1", b"x-a: 2", b"content-length: 5"]
        assert parsedate_to_datetime(dates[0]).year >= 2024
        assert lines[5:] == [b"connection: close"]
        assert body == b"hello"

    run(test())


def test_date_of_the_handler_is_kept() -> None:
    head = render(Response(200, [(b"Date", b"then")], b"")).head
    assert head.lower().count(b"date: ") == 1


def test_pipelined_requests_are_answered_in_order() -> None:
    first_may_end = asyncio.Event()
    began: list[str] = []

    async def handler(request: Request) -> Response:
        began.append(request.path)
        if request.path == "/0":
            await first_may_end.wait()
        return Response(200, [], request.path.encode() + await request.body(100))

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            chunked = CHUNKED_POST.replace(b" / ", b" /2 ") + b"1\r\nc\r\n0\r\n\r\n"
            await client.send(get("/0") + post(b"b").replace(b" / ", b" /1 ") + chunked)
            await client.send(get("/3"))
            await until(lambda: began == ["/0"])
            first_may_end.set()
            answers = [(await client.receive()).body for _ in range(4)]
        assert answers == [b"/0", b"/1b", b"/2c", b"/3"]

    run(test())


def test_many_pipelined_requests_do_not_keep_other_clients_waiting() -> None:
    served: list[str] = []

    async def handler(request: Request) -> Response:
        served.append(request.path)
        return Response(200, [], b"")

    async def test() -> None:
        async with (
            serving(handler) as server,
            await Client.connect(server) as many,
            await Client.connect(server) as one,
        ):
            await many.ask(get("/ready"))
            await one.ask(get("/ready"))
            many.writer.write(get("/many") * 500)
            one.writer.write(get("/one"))
            await one.receive()
            assert len(served) < 500
            for _ in range(500):
                assert (await many.receive()).status == 200

    run(test())


@pytest.mark.parametrize("body", [b"", b"x", b"x" * 5000])
def test_bytes_that_come_one_by_one_make_the_same_request(body: bytes) -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            data = post(body)
            for byte in one_by_one(data[:200]):
                client.writer.write(byte)
                await asyncio.sleep(0)
            answer = await client.ask(data[200:] + get("/next"))
            assert answer.body == body
            assert (await client.receive()).headers[b"x-target"] == b"/next"

    run(test())


@pytest.mark.parametrize(("raw", "body"), TAKEN_BODIES.values(), ids=TAKEN_BODIES)
def test_chunked_request_is_read_and_what_follows_is_the_next(raw: bytes, body: bytes) -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            assert (await client.ask(CHUNKED_POST + raw + get("/next"))).body == body
            assert (await client.receive()).headers[b"x-target"] == b"/next"

    run(test())


def test_empty_lines_before_a_request_are_ignored() -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            assert (await client.ask(b"\r\n\r\n" + get("/a"))).status == 200
            assert (await client.ask(b"\r\n" + get("/b"))).headers[b"x-target"] == b"/b"

    run(test())


def test_stream_is_chunked_and_each_item_leaves_at_once() -> None:
    got_first = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"first"
            await got_first.wait()
            yield b""
            yield b"second"

        return Response(200, [(b"content-type", b"text/event-stream")], body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(get())
            raw = await client.reader.readuntil(b"5\r\nfirst\r\n")
            assert b"\r\ntransfer-encoding: chunked\r\n" in raw
            assert b"content-length" not in raw
            got_first.set()
            rest = await client.reader.readuntil(b"0\r\n\r\n")
            assert rest == b"6\r\nsecond\r\n0\r\n\r\n"
            assert (await client.ask(get())).body == b"firstsecond"

    run(test())


def test_stream_with_a_length_keeps_it() -> None:
    async def test() -> None:
        handler = streaming(b"ab", b"c", headers=((b"Content-Length", b"3"),))
        async with serving(handler) as server, await Client.connect(server) as client:
            for _ in range(2):
                answer = await client.ask(get())
                assert (answer.headers[b"content-length"], answer.body) == (b"3", b"abc")
                assert b"transfer-encoding" not in answer.headers

    run(test())


@pytest.mark.parametrize("length", [b"2", b"4"])
def test_stream_that_breaks_its_length_is_cut(
    length: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        handler = streaming(b"abc", headers=((b"Content-Length", length),))
        async with serving(handler) as server, await Client.connect(server) as client:
            answer = await client.ask(get())
            assert answer.ending == "cut"
            assert len(answer.body) < 4

    run(test())
    assert "Content-Length" in caplog.text


def test_http10_gets_no_chunks_and_a_closed_connection() -> None:
    async def test() -> None:
        for handler in (streaming(b"ab", b"c"), echo):
            async with serving(handler) as server, await Client.connect(server) as client:
                request = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
                await client.send(request)
                head, _, body = (await client.remainder()).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                assert b"\r\nconnection: close" in head
                assert b"transfer-encoding" not in head
                assert body == (b"" if handler is echo else b"abc")

    run(test())


@pytest.mark.parametrize("length", [None, b"7"])
def test_head_has_the_headers_of_get_and_no_body(length: bytes | None) -> None:
    closed: list[bool] = []

    class Body:
        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            raise AssertionError("nobody may ask for the body of a HEAD")

        async def aclose(self) -> None:
            closed.append(True)

    async def handler(request: Request) -> Response:
        if request.path == "/bytes":
            return Response(200, [], b"hello")
        return Response(200, [(b"content-length", length)] if length else [], Body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            head = b"HEAD /%b HTTP/1.1\r\nHost: h\r\n\r\n"
            answer = await client.ask(head % b"bytes", "HEAD")
            assert (answer.headers[b"content-length"], answer.body) == (b"5", b"")
            answer = await client.ask(head % b"stream", "HEAD")
            assert answer.headers.get(b"content-length") == length
            assert (await client.ask(get("/bytes"))).body == b"hello"

    run(test())
    assert closed == [True]


@pytest.mark.parametrize("status", [204, 304])
def test_status_without_body_sends_none(status: int) -> None:
    async def handler(request: Request) -> Response:
        return Response(status, [], b"not sent") if request.path == "/" else await hello(request)

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            answer = await client.ask(get())
            assert (answer.status, answer.body) == (status, b"")
            assert (b"content-length" in answer.headers) is (status == 304)
            assert (await client.ask(get("/next"))).body == b"hello"

    run(test())


def test_connection_closes_when_client_or_handler_says_so() -> None:
    async def handler(request: Request) -> Response:
        headers = [(b"Connection", b"Close")] if request.path == "/close" else []
        return Response(200, headers, b"")

    async def test() -> None:
        async with serving(handler) as server:
            for request in (get("/close"), get("/", "Connection: close")):
                async with await Client.connect(server) as client:
                    answer = await client.ask(request)
                    assert answer.headers[b"connection"] == b"close"
                    assert await client.remainder() == b""

    run(test())


def test_response_of_any_size_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000

    async def handler(request: Request) -> Response:
        return Response(200, [], body)

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            for _ in range(2):
                assert (await client.ask(get())).body == body

    run(test())


# --- interim responses ------------------------------------------------------------------------


def test_continue_is_sent_when_the_handler_reads_and_not_before() -> None:
    async def handler(request: Request) -> Response:
        await asyncio.sleep(0.01)
        request.send_interim(103)  # anything sent before would come before
        return await echo(request)

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(post(b"body", "Expect: 100-continue").removesuffix(b"body"))
            answer = await client.receive(until=lambda answer: len(answer.interims) == 2)
            assert answer.interims == [103, 100]
            answer = await client.ask(b"body")
            assert (answer.interims, answer.body) == ([], b"body")

    run(test())


def test_refusal_without_reading_sends_no_continue_and_closes() -> None:
    async def handler(request: Request) -> Response:
        raise TooLarge("too large")

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            head = post(b"body", "Expect: 100-continue").removesuffix(b"body")
            answer = await client.ask(head)
            assert (answer.status, answer.interims) == (413, [])
            assert answer.headers[b"connection"] == b"close"
            assert await client.remainder() == b""

    run(test())


def test_client_that_does_not_wait_gets_no_continue() -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            answer = await client.ask(post(b"body", "Expect: 100-continue"))
            assert (answer.interims, answer.body) == ([], b"body")

    run(test())


def test_interim_responses_go_out_at_once_and_none_after_the_head() -> None:
    may_answer = asyncio.Event()

    async def handler(request: Request) -> Response:
        request.send_interim(102)
        await may_answer.wait()
        request.send_interim(103)

        async def body() -> AsyncIterator[bytes]:
            request.send_interim(102)
            yield b"hello"

        return Response(200, [], body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(get())
            raw = await client.reader.readuntil(b"\r\n\r\n")
            assert raw == b"HTTP/1.1 102 Processing\r\n\r\n"
            may_answer.set()
            answer = await client.receive()
            assert (answer.interims, answer.body) == ([103], b"hello")
            answer = await client.ask(get("/").replace(b"1.1", b"1.0"))
            assert answer.interims == []

    run(test())


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("in_bytes", [False, True], ids=["whole", "byte by byte"])
def test_every_refused_head_gets_its_status_and_a_closed_connection(in_bytes: bool) -> None:
    async def test() -> None:
        async with serving(echo) as server:
            for name, raw, status in REFUSED_HEADS:
                async with await Client.connect(server) as client:
                    for piece in one_by_one(raw) if in_bytes and len(raw) < 300 else [raw]:
                        client.writer.write(piece)
                        await asyncio.sleep(0)
                    answer = await client.receive()
                    assert answer.status == status, name
                    assert answer.headers[b"connection"] == b"close", name
                    assert answer.error["message"], name
                    assert await client.remainder() == b"", name

    run(test())


def test_refused_head_says_how_to_mend_it() -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            answer = await client.ask(b"GET / HTTP/1.1\r\n\r\n")
            assert answer.error["code"] == "invalid_request"
            assert "Host" in answer.error["message"]
            assert answer.headers[b"x-should-retry"] == b"false"

    run(test())


def test_refused_request_does_not_take_back_the_answers_before_it() -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            assert (await client.ask(get("/a") + b"nonsense\r\n\r\n")).status == 200
            assert (await client.receive()).status == 400
            assert await client.remainder() == b""

    run(test())


@pytest.mark.parametrize("raw", REFUSED_BODIES.values(), ids=REFUSED_BODIES)
def test_refused_chunked_body_is_an_error_for_its_reader(raw: bytes) -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            answer = await client.ask(CHUNKED_POST + raw + get("/smuggled"))
            assert answer.status in (400, 431)
            assert answer.headers[b"connection"] == b"close"
            assert await client.remainder() == b""

    run(test())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 2000, 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 2000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * 400, 431),
        (b"GET /" + b"a" * 2000, 414),
    ],
)
def test_head_over_its_limit_is_refused(head: bytes, status: int) -> None:
    async def test() -> None:
        async with serving(echo, header_max_kb=1) as server, await Client.connect(server) as client:
            assert (await client.ask(head)).status == status
            assert await client.remainder() == b""

    run(test())


def test_head_of_exactly_its_limit_is_taken() -> None:
    async def test() -> None:
        async with serving(echo, header_max_kb=1) as server, await Client.connect(server) as client:
            head = get("/", "A: ")
            head = head.replace(b"A: ", b"A: " + b"a" * (1024 - len(head)))
            assert (await client.ask(head)).status == 200
            assert (await client.ask(head.replace(b"A: ", b"A: a"))).status == 431

    run(test())


@pytest.mark.parametrize("chunked", [False, True])
def test_body_over_its_limit_is_refused_and_the_client_can_read_that(chunked: bool) -> None:
    body = b"x" * 5_000_000

    async def handler(request: Request) -> Response:
        await request.body(1000)
        raise AssertionError("the body is larger")

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            framed = CHUNKED_POST + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            # It sends everything before it reads anything, as many clients do.
            answer = await client.ask(framed if chunked else post(body))
            assert answer.status == 413
            assert answer.error["code"] == "too_large"
            assert answer.ending == "whole"

    run(test())


def test_announced_body_over_its_limit_is_refused_before_it_comes() -> None:
    async def test() -> None:
        async def handler(request: Request) -> Response:
            return Response(200, [], await request.body(1000))

        async with serving(handler) as server, await Client.connect(server) as client:
            answer = await client.ask(post(b"").replace(b"Length: 0", b"Length: 1001"))
            assert answer.status == 413

    run(test())


def test_body_is_read_once_and_cached() -> None:
    async def handler(request: Request) -> Response:
        first, second = await request.body(100), await request.body(100)
        streamed = [piece async for piece in request.stream()]
        with pytest.raises(TooLarge):
            await request.body(2)
        return Response(
            200, [], b"%d%d%d" % (first == b"abc", first is second, streamed == [first])
        )

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            assert (await client.ask(post(b"abc"))).body == b"111"

    run(test())


def test_small_body_that_nobody_read_does_not_end_the_connection() -> None:
    async def test() -> None:
        async with serving(hello) as server, await Client.connect(server) as client:
            for _ in range(3):
                assert (await client.ask(post(b"unread"))).body == b"hello"

    run(test())


def test_connections_over_the_limit_get_503() -> None:
    async def test() -> None:
        async with (
            serving(hello, connections_max=2) as server,
            await Client.connect(server) as first,
            await Client.connect(server) as second,
        ):
            assert (await first.ask(get())).status == 200
            assert (await second.ask(get())).status == 200
            async with await Client.connect(server) as third:
                answer = await third.ask(get())
                assert (answer.status, answer.error["code"]) == (503, "overloaded")
                assert answer.headers[b"connection"] == b"close"
            first.writer.close()
            await until(lambda: server.connections_count() == 1)
            async with await Client.connect(server) as fourth:
                assert (await fourth.ask(get())).status == 200

    run(test())


def test_far_too_many_connections_are_just_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REFUSALS_MAX", 0)

    async def test() -> None:
        async with (
            serving(hello, connections_max=1) as server,
            await Client.connect(server) as first,
        ):
            assert (await first.ask(get())).status == 200
            async with await Client.connect(server) as second:
                assert await second.remainder() == b""

    run(test())


# --- time limits ------------------------------------------------------------------------------


def test_idle_connection_is_closed_without_a_word() -> None:
    async def test() -> None:
        async with (
            serving(hello, idle_timeout_s=SOON_S) as server,
            await Client.connect(server) as client,
        ):
            assert (await client.ask(get())).status == 200
            assert await client.remainder() == b""

    run(test())


def test_empty_lines_buy_an_idle_connection_no_time() -> None:
    async def test() -> None:
        async with (
            serving(hello, idle_timeout_s=SOON_S) as server,
            await Client.connect(server) as client,
        ):
            await client.ask(get() + b"\r\n")
            rest = asyncio.ensure_future(client.remainder())
            while not rest.done():
                client.writer.write(b"\r\n")
                await asyncio.sleep(SOON_S / 10)
            assert await rest == b""

    run(test())


def test_connection_that_never_says_anything_is_closed() -> None:
    async def test() -> None:
        async with (
            serving(hello, head_timeout_s=SOON_S) as server,
            await Client.connect(server) as client,
        ):
            assert await client.remainder() == b""

    run(test())


@pytest.mark.parametrize("served_before", [False, True])
def test_head_that_trickles_in_is_refused_in_time(served_before: bool) -> None:
    async def test() -> None:
        async with (
            serving(hello, head_timeout_s=SOON_S) as server,
            await Client.connect(server) as client,
        ):
            if served_before:
                await client.ask(get())
            started_s = asyncio.get_running_loop().time()
            client.writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nA: ")
            answer = asyncio.ensure_future(client.receive())
            while not answer.done():
                client.writer.write(b"a")
                await asyncio.sleep(SOON_S / 10)
            assert (await answer).status == 408
            assert asyncio.get_running_loop().time() - started_s >= SOON_S * 0.9

    run(test())


@pytest.mark.parametrize("reads", ["body", "stream"])
def test_body_that_stops_coming_is_a_timeout_for_its_reader(reads: str) -> None:
    async def handler(request: Request) -> Response:
        if reads == "stream":
            return Response(200, [], b"".join([piece async for piece in request.stream()]))
        return await echo(request)

    async def test() -> None:
        async with (
            serving(handler, body_gap_timeout_s=SOON_S) as server,
            await Client.connect(server) as client,
        ):
            answer = await client.ask(post(b"12345")[:-1])
            assert (answer.status, answer.error["code"]) == (408, "request_timeout")
            assert await client.remainder() == b""

    run(test())


def test_body_that_trickles_within_the_gap_is_taken() -> None:
    async def test() -> None:
        async with (
            serving(echo, body_gap_timeout_s=SOON_S * 9) as server,
            await Client.connect(server) as client,
        ):
            body = b"0123456789"
            await client.send(post(body).removesuffix(body))
            for byte in one_by_one(body):  # longer in all than the gap may be
                client.writer.write(byte)
                await asyncio.sleep(SOON_S)
            assert (await client.receive()).body == body

    run(test())


def test_slow_handler_is_under_no_limit_of_the_client() -> None:
    async def handler(request: Request) -> Response:
        await asyncio.sleep(SOON_S * 3)
        return Response(200, [], b"late")

    async def test() -> None:
        limits: dict[str, Any] = dict.fromkeys(
            ("idle_timeout_s", "head_timeout_s", "body_gap_timeout_s"), SOON_S
        )
        async with serving(handler, **limits) as server, await Client.connect(server) as client:
            assert (await client.ask(get())).body == b"late"

    run(test())


# --- back-pressure ----------------------------------------------------------------------------


def endless(sent: list[int], closed: asyncio.Event) -> Handler:
    """Stream items without end; count their bytes in `sent[0]`."""
    item = b"x" * 10_000

    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            try:
                while True:
                    sent[0] += len(item)
                    yield item
            finally:
                closed.set()

        return Response(200, [], body())

    return handler


def test_client_that_does_not_read_stops_the_producer_and_is_cut() -> None:
    sent, closed = [0], asyncio.Event()

    async def test() -> None:
        async with (
            serving(endless(sent, closed), write_timeout_s=SOON_S * 4) as server,
            await Client.connect(server, receive_bytes=4096) as client,
        ):
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            client.writer.write(get())
            await closed.wait()
            # The kernel's send buffer (at most tcp_wmem, 4 MiB) and ours, not the endless stream.
            assert sent[0] < 8_000_000
            await until(lambda: server.connections_count() == 0)

    run(test())


def test_large_response_to_a_client_that_does_not_read_is_cut() -> None:
    async def handler(request: Request) -> Response:
        return Response(200, [], b"x" * 20_000_000)

    async def test() -> None:
        for request in (get(), get("/", "Connection: close")):
            async with (
                serving(handler, write_timeout_s=SOON_S) as server,
                await Client.connect(server, receive_bytes=4096) as client,
            ):
                client.reader._transport.pause_reading()  # type: ignore[attr-defined]
                client.writer.write(request)
                await until(lambda: server.connections_count() == 1)
                await until(lambda: server.connections_count() == 0)

    run(test())


def test_slow_reader_is_not_cut_and_gets_everything() -> None:
    body = b"x" * 3_000_000

    async def handler(request: Request) -> Response:
        return Response(200, [(b"connection", b"close")], body)

    async def test() -> None:
        async with (
            serving(handler, write_timeout_s=SOON_S * 8) as server,
            await Client.connect(server, receive_bytes=4096) as client,
        ):
            client.writer.write(get())
            got = bytearray()
            while data := await client.reader.read(100_000):
                got += data
                await asyncio.sleep(SOON_S / 2)  # in all longer than the limit
            assert got.endswith(body)

    run(test())


def test_producer_goes_on_when_the_client_reads_again() -> None:
    item, count = b"y" * 50_000, 200
    produced = 0

    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            nonlocal produced
            for _ in range(count):
                produced += 1
                yield item

        return Response(200, [], body())

    async def test() -> None:
        async with (
            serving(handler) as server,
            await Client.connect(server, receive_bytes=4096) as client,
        ):
            client.writer.write(get())
            answer = await client.receive()
            assert answer.body == item * count
            assert answer.ending == "whole"

    run(test())
    assert produced == count


@pytest.mark.parametrize("chunked", [False, True])
def test_body_that_nobody_reads_stops_the_sender_until_somebody_does(chunked: bool) -> None:
    body = hashlib.shake_256(b"body").digest(20_000_000)
    may_read = asyncio.Event()
    requests: list[Any] = []

    async def handler(request: Request) -> Response:
        requests.append(request)
        await may_read.wait()
        digest = hashlib.sha256()
        async for piece in request.stream():
            digest.update(piece)
            assert requests[0]._held_bytes < 3 * BODY_BUFFER_BYTES
        return Response(200, [], digest.digest())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            framed = CHUNKED_POST + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            client.writer.write(framed if chunked else post(body))
            await until(lambda: bool(requests) and requests[0]._connection._is_reading_paused)
            assert requests[0]._held_bytes < 3 * BODY_BUFFER_BYTES
            assert client.writer.transport.get_write_buffer_size() > 0
            may_read.set()
            assert (await client.receive()).body == hashlib.sha256(body).digest()
            assert (await client.ask(get())).status == 200

    run(test())


def test_body_that_nobody_read_at_first_can_still_be_read_whole() -> None:
    body = b"z" * 2_000_000
    requests: list[Any] = []

    async def handler(request: Request) -> Response:
        requests.append(request)
        await until(lambda: requests[0]._connection._is_reading_paused)
        return Response(200, [], await request.body(len(body)))

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            assert (await client.ask(post(body))).body == body

    run(test())


def test_pipelined_input_is_bounded_while_an_answer_is_in_progress() -> None:
    may_answer = asyncio.Event()
    connections: list[Any] = []

    async def handler(request: Request) -> Response:
        connections.append(request._connection)  # type: ignore[attr-defined]
        await may_answer.wait()
        return Response(200, [], b"")

    async def test() -> None:
        async with (
            serving(handler, header_max_kb=1) as server,
            await Client.connect(server) as client,
        ):
            client.writer.write(get() * 50_000)
            await until(lambda: bool(connections) and connections[0]._is_reading_paused)
            assert len(connections[0]._buffer) < 600_000
            may_answer.set()
            for _ in range(1000):
                assert (await client.receive()).status == 200

    run(test())


# --- leaving ----------------------------------------------------------------------------------


def leave(client: Client, how: str) -> None:
    match how:
        case "close":
            client.writer.close()
        case "reset":
            client.reset()
        case "half":
            client.writer.write_eof()


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("request_bytes", [get(), post(b"12345")[:-1]], ids=["whole", "partial"])
def test_gone_is_known_while_a_handler_works(how: str, request_bytes: bytes) -> None:
    is_working, noticed = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def handler(request: Request) -> Response:
        request.on_gone(lambda: calls.append("early"))
        waiter = asyncio.ensure_future(request.gone())
        await asyncio.sleep(0)
        waiter.cancel()  # one that gives up must not matter to the others
        is_working.set()
        await request.gone()
        request.on_gone(lambda: calls.append("late"))
        await request.gone()
        noticed.set()
        return Response(200, [], b"")

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(request_bytes)
            await is_working.wait()
            leave(client, how)
            await noticed.wait()
            await until(lambda: server.connections_count() == 0)

    run(test())
    assert calls == ["early", "late"]


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("reads", ["body", "stream"])
def test_reader_of_a_body_learns_that_the_client_left(
    how: str, reads: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_reading, raised = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        is_reading.set()
        try:
            if reads == "stream":
                return Response(200, [], b"".join([piece async for piece in request.stream()]))
            return await echo(request)
        except ConnectionError:
            raised.set()
            raise

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(post(b"12345")[:-1])
            await is_reading.wait()
            leave(client, how)
            await raised.wait()
            await until(lambda: server.connections_count() == 0)

    run(test())
    assert not caplog.records  # a client that leaves is no error of ours


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("items", [0, 3])
def test_stream_to_a_client_that_left_is_closed_while_it_waits(
    how: str, items: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "HALF_CLOSED_PAUSE_S", SOON_S)
    is_waiting, closed = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            try:
                for _ in range(items):
                    yield b"item"
                is_waiting.set()
                await asyncio.Event().wait()
                yield b"never"
            finally:
                await asyncio.sleep(0)  # cleaning up may wait
                closed.set()

        return Response(200, [], body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(get())
            await is_waiting.wait()
            leave(client, how)
            await closed.wait()
            await until(lambda: server.connections_count() == 0)
            assert await server.stop(LIMIT_S) == 0

    run(test())
    assert not caplog.records


@pytest.mark.parametrize("then", ["goes on", "fails"])
def test_stream_that_does_not_let_itself_be_cancelled_ends_with_its_next_item(
    then: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_waiting, closed = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            try:
                is_waiting.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if then == "fails":
                        raise RuntimeError("cancelled") from None
                yield b"for nobody"
                raise AssertionError("asked for more")
            finally:
                closed.set()

        return Response(200, [], body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(get())
            await is_waiting.wait()
            client.reset()
            await closed.wait()
            assert await server.stop(LIMIT_S) == 0

    run(test())
    assert not caplog.records


@pytest.mark.parametrize("how", ["close", "reset"])
def test_stream_that_never_waits_is_closed_when_the_client_leaves(how: str) -> None:
    sent, closed = [0], asyncio.Event()

    async def test() -> None:
        async with (
            serving(endless(sent, closed)) as server,
            await Client.connect(server) as client,
        ):
            await client.send(get())
            await client.receive(until=lambda answer: len(answer.pieces) > 3)
            leave(client, how)
            await closed.wait()
            await until(lambda: server.connections_count() == 0)

    run(test())


def test_handler_is_not_cancelled_when_its_client_leaves() -> None:
    is_working, may_end, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    closed: list[bool] = []

    class Body:
        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            raise AssertionError("nobody is there to read")

        async def aclose(self) -> None:
            closed.append(True)

    async def handler(request: Request) -> Response:
        is_working.set()
        await may_end.wait()
        has_ended.set()
        return Response(200, [], Body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(get())
            await is_working.wait()
            client.reset()
            await until(lambda: server.connections_count() == 0)
            may_end.set()
            await has_ended.wait()
            assert await server.stop(LIMIT_S) == 0

    run(test())
    assert closed == [True]


def test_half_closing_client_gets_all_its_answers() -> None:
    async def handler(request: Request) -> Response:
        await asyncio.sleep(0.01)
        if request.path == "/stream":
            return await streaming(b"a" * 100_000, b"b" * 100_000)(request)
        return await echo(request)

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            client.writer.write(get("/a") + get("/stream") + post(b"body"))
            client.writer.write_eof()
            assert (await client.receive()).status == 200
            answer = await client.receive()
            assert (len(answer.body), answer.ending) == (200_000, "whole")
            answer = await client.receive()
            assert (answer.body, answer.ending) == (b"body", "whole")
            assert await client.remainder() == b""

    run(test())


def test_stream_to_a_half_closed_client_goes_on_while_items_come() -> None:
    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            await request.gone()
            for _ in range(20):
                await asyncio.sleep(0.005)
                yield b"item"

        return Response(200, [], body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            client.writer.write(get())
            client.writer.write_eof()
            answer = await client.receive()
            assert (answer.body, answer.ending) == (b"item" * 20, "whole")

    run(test())


@pytest.mark.parametrize("begun", [post(b"hello")[:-1], CHUNKED_POST + b"5\r\nhello\r\n"])
def test_end_inside_a_body_is_refused_for_who_still_reads(
    begun: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            await client.send(begun)
            client.writer.write_eof()
            answer = await client.receive()
            assert (answer.status, answer.error["code"]) == (400, "invalid_request")
            assert await client.remainder() == b""

    run(test())
    assert caplog.records == []


def test_end_inside_a_head_is_refused() -> None:
    async def test() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            client.writer.write(get()[:-2])
            client.writer.write_eof()
            assert (await client.receive()).status == 400
            assert await client.remainder() == b""

    run(test())


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_idle_client_that_leaves_is_let_go(how: str) -> None:
    async def test() -> None:
        async with serving(hello) as server, await Client.connect(server) as client:
            await client.ask(get())
            leave(client, how)
            await until(lambda: server.connections_count() == 0)

    run(test())


def test_refused_client_that_goes_on_sending_is_let_go_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "LINGER_S", SOON_S)

    async def test() -> None:
        async with serving(hello) as server, await Client.connect(server) as client:
            answer = await client.ask(b"nonsense\r\n\r\n")
            assert answer.status == 400
            await until(lambda: server.connections_count() == 0)

    run(test())


def test_refused_client_may_not_send_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LINGER_BYTES_MAX", 1_000_000)

    async def test() -> None:
        async with serving(hello) as server, await Client.connect(server) as client:
            client.writer.write(b"nonsense\r\n\r\n")
            with pytest.raises(ConnectionError):
                await client.send(b"x" * 50_000_000)

    run(test())


# --- failures ---------------------------------------------------------------------------------


def test_error_of_ours_is_answered_in_its_shape() -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/400":
            raise BadRequest("what was wrong", hint="what to do")
        raise ConnectFailed("no upstream")

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            answer = await client.ask(get("/400"))
            assert answer.status == 400
            assert answer.error == {
                "code": "invalid_request",
                "message": "what was wrong",
                "hint": "what to do",
            }
            assert answer.headers[b"x-should-retry"] == b"false"
            answer = await client.ask(get("/502"))  # on the same connection
            assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
            assert b"x-should-retry" not in answer.headers

    run(test())


@pytest.mark.parametrize("kind", [RuntimeError, ConnectionResetError, ValueError])
def test_bug_in_a_handler_is_logged_whole_and_shown_as_internal(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: Request) -> Response:
        raise kind("secret detail")

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            for _ in range(2):
                answer = await client.ask(get("/path?key=sk-secret"))
                assert (answer.status, answer.error["code"]) == (500, "internal")
                assert b"secret" not in answer.body

    run(test())
    assert "secret detail" in caplog.text
    assert "/path" in caplog.text
    assert "sk-secret" not in caplog.text
    assert {record.name for record in caplog.records} == {"agentstate.server"}


@pytest.mark.parametrize("error", [Abort(), RuntimeError("broke"), BadRequest("broke")])
@pytest.mark.parametrize("items", [0, 2])
def test_stream_that_fails_is_cut_without_its_last_chunk(
    error: Exception, items: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            for _ in range(items):
                yield b"item"
            raise error

        return Response(200, [], body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            answer = await client.ask(get())
            assert (answer.status, answer.body, answer.ending) == (200, b"item" * items, "cut")

    run(test())
    assert bool(caplog.records) is not isinstance(error, Abort)


def test_stream_that_fails_resets_a_client_that_knows_no_chunks() -> None:
    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"item"
            await may_fail.wait()
            raise Abort

        return Response(200, [], body())

    may_fail = asyncio.Event()

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(b"GET / HTTP/1.0\r\n\r\n")
            await client.reader.readuntil(b"item")
            may_fail.set()
            with pytest.raises(ConnectionResetError):
                await client.reader.read()

    run(test())


@pytest.mark.parametrize(
    "bad",
    [
        Response(200, [(b"x", b"a\r\nset-cookie: b")]),
        Response(200, [(b"x", b"a\nb")]),
        Response(200, [(b"x", b"a\rb")]),
        Response(200, [(b"x\r\ny", b"a")]),
        Response(200, [(b"x", b"a\0b")]),
        Response(102, []),
        Response(0, []),
        Response(1000, []),
    ],
    ids=lambda response: f"{response.status} {response.headers}",
)
def test_response_that_would_break_the_wire_is_not_sent(
    bad: Response, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: Request) -> Response:
        return bad

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            for _ in range(2):
                answer = await client.ask(get())
                assert (answer.status, answer.error["code"]) == (500, "internal")
                assert b"set-cookie" not in answer.headers

    run(test())
    assert "cannot be sent" in caplog.text


def test_error_while_a_body_is_closed_is_logged_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"too long"
            finally:
                raise RuntimeError("in the finally")

        return Response(200, [(b"content-length", b"1")], body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            assert (await client.ask(get())).ending == "cut"

    run(test())
    assert "in the finally" in caplog.text


# --- starting and stopping --------------------------------------------------------------------


def test_taken_port_is_named_with_what_to_do() -> None:
    async def test() -> None:
        async with serving(hello) as server:
            host, port = server.address
            second = Server(hello, ServerSettings(host=host, port=port))
            with pytest.raises(SettingError) as caught:
                await second.start()
        assert f"{host}:{port}" in caught.value.message
        assert "--port" in (caught.value.hint or "")
        assert isinstance(caught.value.__cause__, OSError)

    run(test())


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_address_of_another_machine_is_named(host: str) -> None:
    async def test() -> None:
        with pytest.raises(SettingError) as caught:
            await Server(hello, ServerSettings(host=host, port=0)).start()
        assert host in caught.value.message
        assert "--host" in (caught.value.hint or "")

    run(test())


def test_port_zero_is_a_free_one() -> None:
    async def test() -> None:
        async with serving(hello) as one, serving(hello) as other:
            assert one.address[0] == "127.0.0.1"
            assert 0 < one.address[1] != other.address[1] > 0

    run(test())


def test_stop_closes_idle_connections_at_once_and_refuses_new_ones() -> None:
    async def test() -> None:
        async with serving(hello) as server:
            idle, silent, half = [await Client.connect(server) for _ in range(3)]
            await idle.ask(get())
            await half.send(get()[:-2])
            await until(lambda: server.connections_count() == 3)
            assert await server.stop(LIMIT_S) == 0
            for client in (idle, silent, half):
                assert await client.remainder() == b""
                client.writer.close()
            with pytest.raises(ConnectionError):
                await Client.connect(server)
            assert server.connections_count() == 0

    run(test())


@pytest.mark.parametrize("streams", [False, True])
def test_stop_lets_answers_in_progress_end(streams: bool) -> None:
    is_working, may_end = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"be"
            is_working.set()
            await may_end.wait()
            yield b"gun"

        if streams:
            return Response(200, [], body())
        is_working.set()
        await may_end.wait()
        return Response(200, [], b"begun")

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(get() + get("/pipelined"))
            await is_working.wait()
            stopping = asyncio.ensure_future(server.stop(LIMIT_S))
            await asyncio.sleep(0)
            may_end.set()
            answer = await client.receive()
            assert (answer.body, answer.ending) == (b"begun", "whole")
            assert (b"connection" in answer.headers) is not streams
            assert await client.remainder() == b""
            client.writer.close()
            assert await stopping == 0

    run(test())


@pytest.mark.parametrize("streams", [False, True])
def test_stop_cuts_what_does_not_end_in_time_and_says_how_many(streams: bool) -> None:
    is_working, was_cancelled = asyncio.Event(), asyncio.Event()

    async def forever() -> AsyncIterator[bytes]:
        try:
            yield b"begun"
            is_working.set()
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    async def handler(request: Request) -> Response:
        if request.path == "/":
            return await hello(request)
        if streams:
            return Response(200, [], forever())
        async for _ in (body := forever()):
            pass
        return Response(200, [], body)

    async def test() -> None:
        async with (
            serving(handler) as server,
            await Client.connect(server) as busy,
            await Client.connect(server) as idle,
        ):
            await idle.ask(get())
            await busy.send(get("/forever"))
            await is_working.wait()
            assert await server.stop(SOON_S) == 1
            assert was_cancelled.is_set()
            assert (await busy.receive()).ending in ("cut", "reset")
            assert server.connections_count() == 0

    run(test())


@pytest.mark.parametrize("turns", range(6))
def test_a_client_that_comes_while_it_stops_is_not_left_waiting(turns: int) -> None:
    async def test() -> None:
        async with serving(hello) as server:
            sock = socket.create_connection(server.address)  # the kernel takes it
            for _ in range(turns):  # it is accepted in one of them, and handed over in the next
                await asyncio.sleep(0)
            assert await server.stop(LIMIT_S) == 0
            sock.setblocking(False)
            with sock:
                try:
                    assert await asyncio.get_running_loop().sock_recv(sock, 1) == b""
                except ConnectionResetError:
                    pass  # it was not accepted any more

    run(test())


def test_stop_before_start_and_twice_does_nothing() -> None:
    async def test() -> None:
        assert await Server(hello, ServerSettings()).stop(0) == 0
        async with serving(hello) as server:
            assert await server.stop(0) == 0
            assert await server.stop(0) == 0

    run(test())


def test_task_that_somebody_else_cancels_takes_its_connection_along() -> None:
    is_waiting, closed = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            try:
                is_waiting.set()
                await asyncio.Event().wait()
                yield b""
            finally:
                closed.set()

        return Response(200, [], body())

    async def test() -> None:
        async with serving(handler) as server, await Client.connect(server) as client:
            await client.send(get())
            await is_waiting.wait()
            for task in asyncio.all_tasks():
                if task.get_name().startswith("connection"):
                    task.cancel()
            await closed.wait()
            assert (await client.receive()).ending == "cut"
            await until(lambda: server.connections_count() == 0)

    run(test())


# --- moments that a socket hardly brings about ------------------------------------------------


class FakeTransport(asyncio.Transport):
    """Keeps what is written; `unread` is what it claims to hold for the client."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.unread = 0
        self.ending = ""  # "" = open

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return bool(self.ending)

    def close(self) -> None:
        self.ending = self.ending or "closed"

    def abort(self) -> None:
        self.ending = "aborted"


@asynccontextmanager
async def faked(
    handler: Handler, **settings: Any
) -> AsyncIterator[tuple[Server, asyncio.Protocol, FakeTransport]]:
    server = Server(handler, ServerSettings(**settings))
    connection = server_module._Connection(server)
    transport = FakeTransport()
    connection.connection_made(transport)
    try:
        yield server, connection, transport
    finally:
        connection.connection_lost(None)
        await server.stop(0)


def test_last_bytes_that_the_client_does_not_read_are_given_up() -> None:
    async def test() -> None:
        async with faked(hello, write_timeout_s=SOON_S) as (_, connection, transport):
            transport.unread = 100
            connection.data_received(get("/", "Connection: close"))
            await until(lambda: transport.ending == "closed")
            assert transport.written.endswith(b"hello")
            connection.resume_writing()  # some of it was read, not all
            connection.data_received(b"too late")
            connection.eof_received()
            await until(lambda: transport.ending == "aborted")

    run(test())


def test_client_that_reads_a_little_each_time_is_waited_for() -> None:
    async def test() -> None:
        async with faked(hello, write_timeout_s=SOON_S) as (_, connection, transport):
            transport.unread = 100
            connection.pause_writing()
            started_s = asyncio.get_running_loop().time()
            for _ in range(3):
                before = connection._write_due_s  # type: ignore[attr-defined]
                transport.unread -= 1
                await until(lambda: connection._write_due_s != before)  # type: ignore[attr-defined] # noqa: B023
            assert not transport.ending
            await until(lambda: transport.ending == "aborted")
            assert asyncio.get_running_loop().time() - started_s > SOON_S * 3

    run(test())


def test_lingering_waits_while_the_answer_is_still_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "LINGER_S", SOON_S)

    async def test() -> None:
        async with faked(hello) as (_, connection, transport):
            transport.unread = 100
            connection.data_received(b"nonsense\r\n\r\n")
            due_s = connection._read_due_s  # type: ignore[attr-defined]
            await until(lambda: connection._read_due_s > due_s)  # type: ignore[attr-defined]
            assert not transport.ending
            transport.unread = 0
            await until(lambda: transport.ending == "aborted")

    run(test())


def test_interim_is_not_sent_to_a_client_that_does_not_read() -> None:
    requests: list[Request] = []

    async def handler(request: Request) -> Response:
        requests.append(request)
        await request.gone()
        request.send_interim(102)
        return await hello(request)

    async def test() -> None:
        async with faked(handler) as (_, connection, transport):
            connection.data_received(get())
            await until(lambda: bool(requests))
            connection.pause_writing()
            requests[0].send_interim(102)
            assert not transport.written
            connection.resume_writing()
            requests[0].send_interim(102)
            assert transport.written == b"HTTP/1.1 102 Processing\r\n\r\n"
        assert len(transport.written) == 27

    run(test())


def test_what_follows_a_broken_chunk_is_noise() -> None:
    may_read = asyncio.Event()

    async def handler(request: Request) -> Response:
        await may_read.wait()
        return await echo(request)

    async def test() -> None:
        async with faked(handler) as (_, connection, transport):
            connection.data_received(CHUNKED_POST + b"x")
            connection.data_received(b"\r\n")
            connection.data_received(b"0\r\n\r\n" + get("/smuggled"))
            may_read.set()
            await until(lambda: bool(transport.written))
            assert transport.written.startswith(b"HTTP/1.1 400 ")
            assert transport.written.count(b"HTTP/1.1") == 1

    run(test())


def test_connection_that_is_accepted_while_stopping_is_closed() -> None:
    async def test() -> None:
        server = Server(hello, ServerSettings())
        await server.stop(0)
        connection, transport = server_module._Connection(server), FakeTransport()
        connection.connection_made(transport)
        assert transport.ending == "closed"
        connection.connection_lost(None)
        assert server.connections_count() == 0

    run(test())


def test_port_that_this_user_may_not_bind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*args: Any, **options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    async def test() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_server", refuse)
        with pytest.raises(SettingError) as caught:
            await Server(hello, ServerSettings(port=80)).start()
        assert "127.0.0.1:80" in caught.value.message
        assert "1023" in (caught.value.hint or "")

    run(test())


# --- TLS --------------------------------------------------------------------------------------

# Made for this test, known to everybody, trusted by nobody.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgDrrDvQuVIBx7J0bM
TzhszAEjyW/BIlmKc8WVP70XSyehRANCAARICkVU/5GfGnrvvMyTGKAZIYgXuAoY
4OE7H5Y77OZax5p4tUHm3MP1M+dNDry5StHyY290g0xRY8y4IbgZGK1N
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUfXpzQn8T0s4mzuji/r3dyIhpYD0wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEzMDEwMTIzN1oYDzIxMjYxMTA2
MTAxMjM3WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARICkVU/5GfGnrvvMyTGKAZIYgXuAoY4OE7H5Y77OZax5p4tUHm3MP1
M+dNDry5StHyY290g0xRY8y4IbgZGK1No28wbTAdBgNVHQ4EFgQU5yaKZfBkIcFt
00zqN3OLyTCDhWYwHwYDVR0jBBgwFoAU5yaKZfBkIcFt00zqN3OLyTCDhWYwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIhAMcYnnNddBT6pCZOhAdrzRPN/yvvPcRSpvvyb1dP4akrAiB7
48Kp4ea2nGOAsLySsblIYfKJUe7OO8M0VmYsd8OHAA==
-----END CERTIFICATE-----
"""


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and of a client that believes it."""
    file = tmp_path / "server.pem"
    file.write_text(CERTIFICATE)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(file)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.check_hostname = False
    ours.verify_mode = ssl.CERT_NONE
    return theirs, ours


def test_tls_serves_alike(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def test() -> None:
        async with (
            serving(echo, tls=tls[0]) as server,
            await Client.connect(server, tls=tls[1]) as client,
        ):
            body = b"x" * 1_000_000
            assert (await client.ask(post(body))).body == body
            assert (await client.ask(get())).status == 200
            answer = await client.ask(b"nonsense\r\n\r\n")
            assert (answer.status, answer.ending) == (400, "whole")

    run(test())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_tls_client_that_leaves_is_noticed(
    how: str, tls: tuple[ssl.SSLContext, ssl.SSLContext], caplog: pytest.LogCaptureFixture
) -> None:
    is_working, noticed = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        is_working.set()
        await request.gone()
        noticed.set()
        return Response(200, [], b"")

    async def test() -> None:
        async with (
            serving(handler, tls=tls[0]) as server,
            await Client.connect(server, tls=tls[1]) as client,
        ):
            await client.send(get())
            await is_working.wait()
            leave(client, how)
            await noticed.wait()
            await until(lambda: server.connections_count() == 0)

    run(test())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_plain_client_of_a_tls_server_is_let_go(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async def test() -> None:
        async with serving(echo, tls=tls[0]) as server, await Client.connect(server) as client:
            await client.send(get())
            assert b"HTTP" not in await client.remainder()
            assert server.connections_count() == 0

    run(test())


# --- pure parts -------------------------------------------------------------------------------


def render(
    response: Response, *, is_head: bool = False, is_http10: bool = False, closes: bool = False
) -> Outgoing:
    return render_head(
        response, is_head=is_head, is_http10=is_http10, closes=closes, date_line=b"date: now\r\n"
    )


async def nothing() -> AsyncIterator[bytes]:
    yield b""


FRAMINGS: list[tuple[Callable[[], Outgoing], Framing, bytes]] = [
    (lambda: render(Response(200, [], b"ab")), Framing.LENGTH, b"content-length: 2"),
    (lambda: render(Response(200, [], b"")), Framing.LENGTH, b"content-length: 0"),
    (lambda: render(Response(200, [], nothing())), Framing.CHUNKED, b"transfer-encoding: chunked"),
    (lambda: render(Response(200, [], nothing()), is_http10=True), Framing.UNTIL_CLOSE, b""),
    (
        lambda: render(Response(200, [(b"Content-Length", b"7")], nothing())),
        Framing.LENGTH,
        b"content-length: 7",
    ),
    (
        lambda: render(Response(200, [(b"Content-Length", b"x")], nothing())),
        Framing.CHUNKED,
        b"transfer-encoding: chunked",
    ),
    (lambda: render(Response(204, [(b"Content-Length", b"7")], b"")), Framing.NONE, b""),
    (
        lambda: render(Response(304, [(b"Content-Length", b"7")], b"")),
        Framing.NONE,
        b"content-length: 7",
    ),
    (lambda: render(Response(200, [], b""), is_head=True), Framing.NONE, b""),
    (
        lambda: render(Response(200, [], b"ab"), is_head=True),
        Framing.NONE,
        b"content-length: 2",
    ),
]


@pytest.mark.parametrize(("make", "framing", "line"), FRAMINGS)
def test_framing_by_table(make: Callable[[], Outgoing], framing: Framing, line: bytes) -> None:
    outgoing = make()
    lines = outgoing.head.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
    framed = [line for line in lines if line.startswith((b"content-length", b"transfer-encoding"))]
    assert outgoing.framing is framing
    assert framed == ([line] if line else [])
    assert outgoing.closes is (b"connection: close" in lines)
    assert outgoing.closes is (framing is Framing.UNTIL_CLOSE)


def test_unknown_status_has_no_reason() -> None:
    assert render(Response(529, [])).head.startswith(b"HTTP/1.1 529 \r\n")


def test_error_without_hint_has_none() -> None:
    response = render_error(BadRequest("wrong"))
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {"error": {"code": "invalid_request", "message": "wrong"}}


def test_handler_type_is_what_a_door_is() -> None:
    handler: Callable[[Request], Awaitable[Response]] = hello
    assert isinstance(Server(handler, ServerSettings()), Server)
