"""The HTTP/1.1 server: sockets in, `Request` values to one handler, `Response` values out.

What it is not: it routes nothing and knows no path. Its counterpart is `client.py`; what it hands
out is described in `message.py`. The invariant: whatever a client sends, it gets one answer per
request, in order, or a closed connection; never an answer cut short that looks whole.

How a connection lives. It is one `asyncio.Protocol` and one task. The protocol's callbacks take in
bytes and change state; the task takes one request after another, awaits the handler and writes.

    IDLE ──byte──▶ HEAD ──blank line──▶ BODY ──last byte──▶ FULL ──answered──▶ IDLE
                     │                    └───answered without it───┐
                     └──not HTTP: 4xx/5xx──▶ LINGER ◀───────────────┘
    any ──▶ CLOSED

What arrives in FULL belongs to the next request and waits. LINGER: the answer is written and our
side is shut down, what still comes is thrown away for a while; a socket closed with unread input
resets, and the client would lose the answer (RFC 9112 section 9.6).

Who parses. `strict.py` reads heads and guards chunked bodies, h11 parses both; a body of known
length is only counted. `framing.py` makes the heads of responses.

When is the client gone? A closed socket and one whose sending half is closed look the same: end of
file. As in nginx, uvicorn and aiohttp it counts as gone, so that `gone` resolves. But what the
handler answers is still written, so that a half-closing client (`nc -N`) gets it; a stream goes on
while its items come without a pause of over `HALF_CLOSED_PAUSE_S`, and a truly closed socket ends
it with the second write. A lost connection cancels the wait in the body's iterator and closes it;
the handler itself is never cancelled by a client: it is told by `gone` and decides.

Time limits. A connection has at most one timer, for the nearer of two deadlines (one for what the
client should send, one for what it should read). A deadline that moves away leaves the timer as it
is; only one that moves nearer sets it anew, so a request in time costs no timer at all.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import math
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from email.utils import formatdate
from enum import Enum
from functools import partial

import h11

from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    ClientError,
    RequestTimeout,
    SettingError,
    TooLarge,
)
from agentstate.ground.settings import ServerSettings
from agentstate.ground.tasks import TaskSet
from agentstate.wire.framing import Framing, Outgoing, render_head, status_line
from agentstate.wire.message import Abort, Headers, Request, Response, split_target
from agentstate.wire.strict import ChunkGuard, Head, check_partial_head, oversized, read_head

log = logging.getLogger("agentstate.server")

Handler = Callable[[Request], Awaitable[Response]]

KIB = 1024
BACKLOG = 1024  # a burst of a thousand agents; the kernel cuts it to somaxconn
# asyncio accepts as many in one turn as its backlog says, and tries as often when there are no more
# open files to be had. So it is told less than the kernel.
ACCEPTS_PER_TURN = 8
BODY_BUFFER_BYTES = 256 * KIB  # above it, and with nobody reading, the socket is not read
ONE_WRITE_BYTES = 64 * KIB  # up to here copying head and body together beats a second write
ITEMS_PER_TURN = 32  # items of a stream written before other connections get a turn
LINGER_S = 5.0  # nginx's lingering_timeout
LINGER_BYTES_MAX = 64 * KIB * KIB  # what a client may still send once it has been refused
HALF_CLOSED_PAUSE_S = 0.5
ITERATOR_CLOSE_S = 5.0  # what the `finally` blocks of a body's iterator may take
CUT_S = 1.0  # what tasks get to end in once they are cancelled
REFUSALS_MAX = 256  # connections over the limit that get a 503; further ones just close
TIMER_SLACK_S = 0.001  # the loop may call this much early

NEVER = math.inf


class Server:
    """Listens, and gives every request to one handler. Started and stopped once."""

    def __init__(
        self, handler: Handler, settings: ServerSettings, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self._handler = handler
        self._settings = settings
        self._tls = tls
        self._listener: asyncio.Server | None = None
        self._address = ("", 0)
        self._tasks = TaskSet()
        self._live: set[_Connection] = set()  # socket open or task not ended
        self._served_count = 0  # open sockets that are served
        self._refused_count = 0  # open sockets over the limit, about to close
        self._is_stopping = False
        self._quiet = asyncio.Event()  # set while stopping, once nothing is live
        self._date_s = -1  # the second `_date` was rendered for
        self._date = b""

    async def start(self) -> None:
        """Bind and listen.

        Raises:
            SettingError: the address cannot be bound; says why and what to do.
        """
        assert self._listener is None, "a server starts once"
        host, port = self._settings.host, self._settings.port
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                lambda: _Connection(self),
                host,
                port,
                ssl=self._tls,
                ssl_handshake_timeout=self._settings.head_timeout_s if self._tls else None,
                ssl_shutdown_timeout=LINGER_S if self._tls else None,
                backlog=ACCEPTS_PER_TURN,
            )
            for listening in self._listener.sockets:
                with listening.dup() as same:
                    same.listen(BACKLOG)
        except OSError as error:
            raise _binding_error(host, port, error) from error
        bound = self._listener.sockets[0].getsockname()
        self._address = (bound[0], bound[1])

    @property
    def address(self) -> tuple[str, int]:
        """Return (host, port) as bound: with port 0 in the settings, the one that was free."""
        assert self._listener is not None, "not started"
        return self._address

    def connections_count(self) -> int:
        """Return how many client sockets are open."""
        return self._served_count + self._refused_count

    async def stop(self, drain_s: float) -> int:
        """Stop accepting, let answers in progress end, close everything; return how many were cut.

        Idle connections close at once. Busy ones finish their answer within `drain_s` seconds,
        announcing that they close where the head is not out yet, and are cut after that.
        """
        self._is_stopping = True
        if self._listener is not None:
            await _stop_accepting(self._listener)
        for connection in tuple(self._live):
            connection.retire()
        await self._become_quiet(drain_s)
        cut_count = sum(connection.cut() for connection in tuple(self._live))
        await self._tasks.close(CUT_S)
        await self._become_quiet(CUT_S)
        return cut_count

    async def _become_quiet(self, within_s: float) -> None:
        if self._live:
            try:
                await asyncio.wait_for(self._quiet.wait(), within_s)
            except TimeoutError:
                pass  # the caller cuts those that are left

    # --- what connections use -----------------------------------------------------------------

    def _admit(self, connection: _Connection) -> bool:
        """Count a new socket; return whether it is served or only refused."""
        self._live.add(connection)
        if self._served_count < self._settings.connections_max:
            self._served_count += 1
            return True
        self._refused_count += 1
        return False

    def _socket_closed(self, *, was_served: bool) -> None:
        if was_served:
            self._served_count -= 1
        else:
            self._refused_count -= 1

    def _forget(self, connection: _Connection) -> None:
        """Drop a connection whose socket is closed and whose task has ended."""
        self._live.discard(connection)
        if self._is_stopping and not self._live:
            self._quiet.set()

    def _date_line(self) -> bytes:
        second = now_ms() // 1000
        if second != self._date_s:
            self._date_s = second
            self._date = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return self._date


def render_error(error: AgentStateError) -> Response:
    """Render an error in the shape of the management API; doors have their dialects' shapes."""
    content: dict[str, str] = {"code": error.code, "message": error.message}
    if error.hint is not None:
        content["hint"] = error.hint
    headers = [(b"content-type", b"application/json")]
    if not error.retry_helps:
        headers.append((b"x-should-retry", b"false"))
    return Response(error.status, headers, json.dumps({"error": content}).encode())


# --- one connection ---------------------------------------------------------------------------


class _Phase(Enum):
    """What the bytes that arrive are; see the module's drawing."""

    IDLE = "idle"  # nothing of a request yet
    HEAD = "head"
    BODY = "body"
    FULL = "full"  # the request is complete, its answer is not
    LINGER = "linger"
    CLOSED = "closed"


class _Connection(asyncio.Protocol):
    """One client socket."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._settings = server._settings
        self._head_bytes_max = server._settings.header_max_kb * KIB
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None  # None = nothing is served
        self._is_served = False  # it counts against the limit
        self._peer = ""
        self._is_tls = False

        self._phase = _Phase.IDLE
        self._buffer = bytearray()  # a head in progress, or what comes after the present request
        self._searched = 0  # bytes of it that hold no end of a head
        self._request: ClientRequest | None = None  # the one being answered or about to be
        self._awaiting_request: asyncio.Future[None] | None = None  # the task, between requests
        self._lingered_bytes = 0

        self._is_lost = False  # the socket is closed
        self._has_ended = False  # the client has closed its sending half
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._awaiting_room: asyncio.Future[None] | None = None  # the task, for the client to read
        self._unread_bytes = 0  # in the transport when the write deadline was set
        self._is_pumping = False  # the task is in a body's iterator, or writes its items
        self._was_cancelled = False  # by us, since the client left in mid-stream

        self._read_due_s = NEVER
        self._write_due_s = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = NEVER

    # --- called by the transport --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio sets TCP_NODELAY on every stream socket, so each write leaves at once.
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peername = transport.get_extra_info("peername")
        self._peer = str(peername[0]) if isinstance(peername, tuple) else ""
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._is_served = self._server._admit(self)
        if not self._is_served:
            self._turn_away()
        elif self._server._is_stopping:
            self._close(lingers=False)  # it was accepted just before the listener closed
        else:
            # A connection that says nothing at all gets the time of a head, not that of an idle
            # one that has been of use.
            self._set_read_due(self._settings.head_timeout_s)
            self._task = self._server._tasks.start(self._serve(), f"connection from {self._peer}")

    def data_received(self, data: bytes) -> None:
        match self._phase:
            case _Phase.IDLE | _Phase.HEAD:
                self._buffer += data
                self._take_head()
            case _Phase.BODY:
                self._take_body(data)
            case _Phase.FULL:
                self._buffer += data
                if len(self._buffer) > self._head_bytes_max:
                    self._pause_reading()
            case _Phase.LINGER:
                self._lingered_bytes += len(data)
                if self._lingered_bytes > LINGER_BYTES_MAX:
                    self._transport.abort()
            case _Phase.CLOSED:
                pass  # flushing; whatever it is, it is too late

    def eof_received(self) -> bool:
        self._has_ended = True
        match self._phase:
            case _Phase.IDLE | _Phase.LINGER:
                self._close(lingers=False)
            case _Phase.HEAD:
                self._refuse(BadRequest("The connection ended inside a request head."))
            case _Phase.BODY | _Phase.FULL:
                assert self._request is not None
                self._request._client_left()
                if self._is_pumping:
                    self._set_read_due(HALF_CLOSED_PAUSE_S)
            case _Phase.CLOSED:
                pass
        return not self._is_tls  # True keeps our half open; TLS has no halves

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._has_ended = True
        self._phase = _Phase.CLOSED
        self._server._socket_closed(was_served=self._is_served)
        self._buffer.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None:
            self._request._client_left()
        _wake(self._awaiting_request)
        _wake(self._awaiting_room)
        if self._is_pumping and self._task is not None:
            self._was_cancelled = True
            self._task.cancel()
        if self._task is None or self._task.done():
            self._server._forget(self)

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._watch_writing()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        if self._phase is not _Phase.CLOSED:  # then what is left has to leave in time as well
            self._write_due_s = NEVER
        _wake(self._awaiting_room)

    # --- called by the server -----------------------------------------------------------------

    def retire(self) -> None:
        """Close if no request is here; otherwise the present one is the last."""
        if self._phase in (_Phase.IDLE, _Phase.HEAD):
            self._close(lingers=False)

    def cut(self) -> bool:
        """Close without waiting; the handler is cancelled. Return whether an answer was lost."""
        is_busy = self._request is not None or self._transport.get_write_buffer_size() > 0
        self._phase = _Phase.CLOSED
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()
        return is_busy

    # --- taking in ----------------------------------------------------------------------------

    def _take_head(self) -> None:
        """Look for a whole head in the buffer and make it the present request."""
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):  # RFC 9112 section 2.2: left over after a body
            del buffer[:2]
            self._searched = 0
        if not buffer:
            return  # it stays as idle as it was: empty lines buy no time
        end = buffer.find(b"\r\n\r\n", max(0, self._searched - 3))
        size = len(buffer) if end < 0 else end + 4
        if size > self._head_bytes_max:
            self._refuse(oversized(buffer, self._head_bytes_max))
            return
        if end < 0:
            self._wait_for_head()
            return
        raw = bytes(buffer[:size])
        del buffer[:size]
        self._searched = 0
        try:
            head = read_head(raw)
        except ClientError as error:
            self._refuse(error)
            return
        self._read_due_s = NEVER
        self._request = ClientRequest(self, head, self._peer, monotonic_s())
        if head.length == 0:
            self._phase = _Phase.FULL
        else:
            self._phase = _Phase.BODY
            if buffer:
                data = bytes(buffer)
                buffer.clear()
                self._take_body(data)
        if self._has_ended:
            self._request._client_left()
        _wake(self._awaiting_request)

    def _wait_for_head(self) -> None:
        """Begin or go on waiting for the rest of a head, unless it is wrong already."""
        if self._phase is _Phase.IDLE:
            self._phase = _Phase.HEAD
            self._set_read_due(self._settings.head_timeout_s)
        try:
            check_partial_head(self._buffer, self._searched)
        except ClientError as error:
            self._refuse(error)
        else:
            self._searched = len(self._buffer)

    def _take_body(self, data: bytes) -> None:
        request = self._request
        assert request is not None
        rest = request._feed(data)
        if request._is_complete:
            self._phase = _Phase.FULL
            self._buffer += rest
        elif request._held_bytes > BODY_BUFFER_BYTES and not request._is_collecting:
            self._pause_reading()

    def _want_body(self) -> None:
        if self._phase is _Phase.BODY:  # else what would come is the next request
            self._resume_reading()

    def _pause_reading(self) -> None:
        # While paused, a client that leaves is noticed only when something is written to it.
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()

    # --- the task -----------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Answer one request after another until the connection is over."""
        try:
            while (request := await self._next_request()) is not None:
                await self._answer(request)
        finally:
            if self._phase is not _Phase.LINGER and self._phase is not _Phase.CLOSED:
                self._transport.abort()  # cancelled, or a bug of ours
            if self._is_lost:
                self._server._forget(self)

    async def _next_request(self) -> ClientRequest | None:
        """Wait for a request; None = there will be none."""
        if self._request is not None:
            await asyncio.sleep(0)  # it was pipelined: other connections get their turn first
        elif self._phase in (_Phase.IDLE, _Phase.HEAD):
            self._awaiting_request = self._loop.create_future()
            await self._awaiting_request
            self._awaiting_request = None
        return None if self._is_lost else self._request

    async def _answer(self, request: ClientRequest) -> None:
        """Ask the handler, write what it says, and make the connection ready for what follows."""
        response = await self._ask_handler(request)
        if self._is_lost:
            await _close_body(response.body)
            self._request = None
            return
        try:
            outgoing = self._render(response, request)
        except ValueError:
            log.exception("%s %s: the response cannot be sent", request.method, request.path)
            await _close_body(response.body)
            response = _internal_error()
            outgoing = self._render(response, request)
        request._has_begun = True
        if isinstance(response.body, bytes):
            await self._write_whole(outgoing, response.body)
            is_whole = True
        else:
            is_whole = await self._write_stream(outgoing, response.body, request)
        request._fail(ConnectionAbortedError("the request has been answered"))
        self._request = None
        if self._is_lost:
            return
        takes_no_more = outgoing.closes or self._server._is_stopping
        if is_whole and not takes_no_more:
            self._begin_again()
        elif is_whole or outgoing.framing is not Framing.UNTIL_CLOSE:
            # Closed before its announced end, a response is seen to be cut.
            self._close(lingers=not request._is_complete or bool(self._buffer))
        else:
            self._reset()

    async def _ask_handler(self, request: ClientRequest) -> Response:
        try:
            return await self._server._handler(request)
        except AgentStateError as error:
            return render_error(error)
        except Exception as error:
            if isinstance(error, ConnectionError) and self._has_ended:  # half closed, it reads this
                return render_error(BadRequest("The connection ended inside the request body."))
            log.exception("%s %s failed", request.method, request.path)
            return _internal_error()

    def _render(self, response: Response, request: ClientRequest) -> Outgoing:
        is_last = (
            not request._keeps_alive
            or not request._is_complete  # what is unread cannot be told from the next request
            or self._server._is_stopping
            or (self._has_ended and not self._buffer)
        )
        return render_head(
            response,
            is_head=request.method == "HEAD",
            is_http10=request._is_http10,
            closes=is_last,
            date_line=self._server._date_line(),
        )

    def _begin_again(self) -> None:
        """Turn to the next request, which may be in the buffer already."""
        self._phase = _Phase.IDLE
        self._resume_reading()
        if self._buffer:
            self._take_head()
        if self._phase is _Phase.IDLE:
            self._set_read_due(self._settings.idle_timeout_s)
        if self._has_ended and self._request is None:
            self._close(lingers=False)

    # --- writing ------------------------------------------------------------------------------

    async def _write_whole(self, outgoing: Outgoing, body: bytes) -> None:
        if outgoing.framing is Framing.NONE:
            body = b""
        if len(body) <= ONE_WRITE_BYTES:
            self._transport.write(outgoing.head + body)
        else:
            self._transport.write(outgoing.head)
            self._transport.write(body)
        await self._room()

    async def _write_stream(
        self, outgoing: Outgoing, body: AsyncIterator[bytes], request: ClientRequest
    ) -> bool:
        """Write head and items as they come; return whether the body went out whole."""
        self._transport.write(outgoing.head)
        if outgoing.framing is Framing.NONE:
            await _close_body(body)
            return True
        self._is_pumping = True
        if self._has_ended:
            self._set_read_due(HALF_CLOSED_PAUSE_S)
        try:
            return await self._pump(outgoing, body)
        except Abort:
            return False
        except asyncio.CancelledError:
            if not self._was_cancelled or self._task is None:
                raise  # the server stops
            self._task.uncancel()
            return False
        except Exception:
            if not self._was_cancelled:
                log.exception("%s %s: the response broke off", request.method, request.path)
            return False
        finally:
            self._is_pumping = False
            self._read_due_s = NEVER
            await _close_body(body)

    async def _pump(self, outgoing: Outgoing, body: AsyncIterator[bytes]) -> bool:
        left = outgoing.length
        turn = 0
        async for item in body:
            if self._is_lost:
                return False
            if not item:
                continue  # as a chunk it would be the end
            if outgoing.framing is Framing.CHUNKED:
                self._transport.write(b"%x\r\n%b\r\n" % (len(item), item))
            else:
                left -= len(item)
                if outgoing.framing is Framing.LENGTH and left < 0:
                    raise ValueError(f"the body is longer than its Content-Length by {-left}")
                self._transport.write(item)
            if self._has_ended:
                self._set_read_due(HALF_CLOSED_PAUSE_S)
            turn += 1
            if self._is_writing_paused:
                await self._room()
            elif turn % ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)
        if outgoing.framing is Framing.LENGTH and left > 0:
            raise ValueError(f"the body is shorter than its Content-Length by {left}")
        if outgoing.framing is Framing.CHUNKED:
            self._transport.write(b"0\r\n\r\n")
        await self._room()
        return True

    async def _room(self) -> None:
        """Wait while the client does not read what was written."""
        while self._is_writing_paused and not self._is_lost:
            self._awaiting_room = self._loop.create_future()
            await self._awaiting_room
        self._awaiting_room = None

    def _send_interim(self, status: int) -> None:
        if not (self._is_lost or self._is_writing_paused):
            self._transport.write(status_line(status) + b"\r\n")

    # --- the end ------------------------------------------------------------------------------

    def _refuse(self, error: AgentStateError) -> None:
        """Answer what could not be read as a request, and close."""
        response = render_error(error)
        outgoing = render_head(
            response,
            is_head=False,
            is_http10=False,
            closes=True,
            date_line=self._server._date_line(),
        )
        assert isinstance(response.body, bytes)
        self._transport.write(outgoing.head + response.body)
        self._close(lingers=True)

    def _turn_away(self) -> None:
        """Answer a connection over the limit, at the price of two writes and no task."""
        maximum = self._settings.connections_max
        if self._server._refused_count > REFUSALS_MAX:
            self._phase = _Phase.CLOSED
            self._transport.abort()
        else:
            self._refuse(_Overloaded(f"All {maximum} connections are taken; try again soon."))

    def _close(self, *, lingers: bool) -> None:
        """Write what is left and close; with `lingers`, let the client read it first."""
        self._buffer.clear()
        if lingers and not self._has_ended:
            self._phase = _Phase.LINGER
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._resume_reading()
            self._set_read_due(LINGER_S)
        else:
            self._phase = _Phase.CLOSED
            self._read_due_s = NEVER
            if not self._transport.is_closing():  # a TLS transport is unusable if closed twice
                self._transport.close()
        if self._transport.get_write_buffer_size():
            self._watch_writing()
        _wake(self._awaiting_request)

    def _reset(self) -> None:
        """Close so that the client sees an error: a plain close would end its body like any."""
        self._phase = _Phase.CLOSED
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    # --- time limits --------------------------------------------------------------------------

    def _set_read_due(self, in_s: float) -> None:
        self._read_due_s = monotonic_s() + in_s
        if self._read_due_s < self._timer_due_s:
            self._set_timer(self._read_due_s)

    def _watch_writing(self) -> None:
        """From now on the client must read something every `write_timeout_s`."""
        self._unread_bytes = self._transport.get_write_buffer_size()
        self._write_due_s = monotonic_s() + self._settings.write_timeout_s
        if self._write_due_s < self._timer_due_s:
            self._set_timer(self._write_due_s)

    def _set_timer(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._loop.call_later(due_s - monotonic_s(), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._timer_due_s = NEVER
        now_s = monotonic_s() + TIMER_SLACK_S
        if self._write_due_s <= now_s:
            self._write_due_s = NEVER
            self._writing_is_due()
        if self._read_due_s <= now_s:
            self._read_due_s = NEVER
            self._reading_is_due()
        due_s = min(self._read_due_s, self._write_due_s)
        if due_s < self._timer_due_s and not self._is_lost:
            self._set_timer(due_s)

    def _writing_is_due(self) -> None:
        unread_bytes = self._transport.get_write_buffer_size()
        if unread_bytes >= self._unread_bytes:
            self._transport.abort()
        elif unread_bytes:
            self._watch_writing()

    def _reading_is_due(self) -> None:
        match self._phase:
            case _Phase.IDLE:
                self._close(lingers=False)
            case _Phase.HEAD:
                limit_s = self._settings.head_timeout_s
                self._refuse(RequestTimeout(f"The request head took longer than {limit_s:g} s."))
            case _Phase.BODY | _Phase.FULL if self._has_ended:
                self._transport.abort()
            case _Phase.BODY:
                assert self._request is not None
                limit_s = self._settings.body_gap_timeout_s
                self._request._fail(
                    RequestTimeout(f"Nothing more of the request body came for {limit_s:g} s.")
                )
            case _Phase.LINGER if self._transport.get_write_buffer_size():
                self._set_read_due(LINGER_S)  # the write deadline decides
            case _Phase.LINGER:
                self._transport.abort()
            case _Phase.FULL | _Phase.CLOSED:
                pass  # a deadline that was overtaken


# --- one request ------------------------------------------------------------------------------


class ClientRequest:
    """The `Request` of message.py on a real socket."""

    def __init__(self, connection: _Connection, head: Head, peer: str, started_s: float) -> None:
        self.method = head.method
        self.target = head.target
        self.path, self.query = split_target(head.target)
        self.headers = Headers(head.pairs)
        self.peer = peer
        self.started_s = started_s

        self._connection = connection
        self._keeps_alive = head.keeps_alive
        self._is_http10 = head.is_http10
        self._has_begun = False  # the final response head is out
        self._is_gone = False
        self._callbacks: list[Callable[[], None]] = []  # for when the client is gone

        self._length = head.length
        self._parser = head.parser
        self._guard = ChunkGuard() if head.length is None else None
        self._wants_continue = head.wants_continue
        self._pieces: deque[bytes] = deque()  # received, not yet read by the handler
        self._held_bytes = 0  # in the pieces
        self._received_bytes = 0
        self._is_complete = head.length == 0
        self._error: Exception | None = None  # why there will be no more; None = there may be
        self._awaiting_data: asyncio.Future[None] | None = None  # who reads the body
        self._is_collecting = False  # `body` reads, so held bytes are bounded by its limit
        self._is_streamed = False
        self._whole: bytes | None = None  # None = `body` has not returned

    async def body(self, bytes_max: int) -> bytes:
        """See `Request.body`."""
        if self._whole is None:
            assert not self._is_streamed, "the body was given away as a stream"
            self._check_size(self._length or 0, bytes_max)
            self._is_collecting = True
            try:
                self._connection._want_body()
                while not self._is_complete:
                    await self._more()
                    self._check_size(self._received_bytes, bytes_max)
            finally:
                self._is_collecting = False
            self._whole = b"".join(self._pieces)
            self._pieces.clear()
            self._held_bytes = 0
        self._check_size(len(self._whole), bytes_max)
        return self._whole

    def forget_body(self) -> None:
        """See `Request.forget_body`."""
        if self._whole is not None:
            self._whole = b""

    async def stream(self) -> AsyncIterator[bytes]:
        """See `Request.stream`. After `body`: one item. Only once."""
        if self._whole is not None:
            yield self._whole
            return
        assert not self._is_streamed, "a body streams once"
        self._is_streamed = True
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._held_bytes -= len(piece)
                if self._held_bytes <= BODY_BUFFER_BYTES // 2:
                    self._connection._want_body()
                yield piece
            if self._is_complete:
                return
            await self._more()

    async def gone(self) -> None:
        """See `Request.gone`."""
        if self._is_gone:
            return
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        callback = partial(_wake, left)
        self._callbacks.append(callback)
        try:
            await left
        finally:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def is_gone(self) -> bool:
        """See `Request.is_gone`."""
        return self._is_gone

    def on_gone(self, callback: Callable[[], None]) -> None:
        """See `Request.on_gone`."""
        if self._is_gone:
            callback()
        else:
            self._callbacks.append(callback)

    def send_interim(self, status: int) -> None:
        """See `Request.send_interim`. Also a no-op for HTTP/1.0, which has no interim responses,
        and while the client does not read."""
        assert 100 <= status < 200, status
        assert status != 101, "switching protocols is not for this server"
        if self._has_begun or self._is_http10:
            return
        if status == 100:
            self._wants_continue = False
        self._connection._send_interim(status)

    # --- what the connection uses -------------------------------------------------------------

    def _feed(self, data: bytes) -> bytes:
        """Take in what belongs to the body; return the rest."""
        if self._error is not None:
            return b""  # whatever follows broken framing is noise
        if self._guard is None:
            assert self._length is not None
            ours = data[: self._length - self._received_bytes]
            self._hold(ours)
            self._is_complete = self._received_bytes == self._length
        else:
            try:
                ours = data[: self._guard.admit(data)]
                self._decode(ours)
            except BadRequest as error:
                self._fail(error)
                return b""
        _wake(self._awaiting_data)
        return data[len(ours) :]

    def _decode(self, data: bytes) -> None:
        parser = self._parser
        assert parser is not None
        parser.receive_data(data)
        chunks: list[bytes] = []  # joined below: a thousand chunks of a byte are one piece
        try:
            while (event := parser.next_event()) is not h11.NEED_DATA:
                if type(event) is h11.EndOfMessage:
                    self._is_complete = True
                    break
                assert type(event) is h11.Data
                chunks.append(event.data)
        except h11.RemoteProtocolError as error:
            raise BadRequest("The chunked request body is malformed.") from error
        self._hold(b"".join(chunks))

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held_bytes += len(piece)
            self._received_bytes += len(piece)
            self._wants_continue = False  # RFC 9110 section 10.1.1: it did not wait

    def _fail(self, error: Exception) -> None:
        """Let whoever reads the body know that there will be no more of it."""
        if self._error is None and not self._is_complete:
            self._error = error
            _wake(self._awaiting_data)

    def _client_left(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._fail(ConnectionResetError("the client left before its request body was whole"))
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                asyncio.get_running_loop().call_soon(callback)

    # --- private ------------------------------------------------------------------------------

    async def _more(self) -> None:
        """Wait until more of the body is here, or raise why there will be none."""
        if self._error is not None:
            raise self._error
        assert self._awaiting_data is None, "two readers of one body"
        if self._wants_continue:
            self.send_interim(100)
        connection = self._connection
        connection._set_read_due(connection._settings.body_gap_timeout_s)
        self._awaiting_data = asyncio.get_running_loop().create_future()
        try:
            await self._awaiting_data
        finally:
            self._awaiting_data = None
            if not connection._has_ended:  # then the deadline is the half-closed stream's
                connection._read_due_s = NEVER

    def _check_size(self, size: int, bytes_max: int) -> None:
        if size > bytes_max:
            raise TooLarge(
                f"The request body is over the limit of {bytes_max} bytes.",
                hint="Send less, or raise the limit: server.body_max_mb.",
            )


# --- small things -----------------------------------------------------------------------------


class _Overloaded(AgentStateError):
    """There is no room for another connection."""

    code = "overloaded"
    status = 503
    retry_helps = True


async def _stop_accepting(listener: asyncio.Server) -> None:
    """Close a listener once what it has accepted is served.

    asyncio hands a socket over a turn after it was accepted. If the listener is closed by then it
    drops the socket without closing it, and its client waits.
    """
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # of Windows' loop, which accepts in another way
        for listening in listener.sockets:
            loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)  # that turn
    listener.close()  # not wait_closed: from Python 3.12 on it waits for all clients


def _internal_error() -> Response:
    return render_error(
        AgentStateError("The proxy failed; this is a bug.", hint="Its log has the details.")
    )


def _binding_error(host: str, port: int, error: OSError) -> SettingError:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return SettingError(
            f"Cannot listen on {where}: another program already does.",
            param="server.port",
            hint="Stop it, or choose another port with --port (0 = any free one).",
        )
    if error.errno == errno.EACCES:
        return SettingError(
            f"Cannot listen on {where}: this user may not.",
            param="server.port",
            hint="Choose a port above 1023 with --port.",
        )
    return SettingError(
        f"Cannot listen on {where}: {error.strerror or error}",
        param="server.host",
        hint="Choose an address of this machine with --host, such as 127.0.0.1.",
    )


async def _close_body(body: bytes | AsyncIterator[bytes]) -> None:
    """Close a body's iterator if it can be closed; what its `finally` raises is logged."""
    close = getattr(body, "aclose", None)
    if close is None:
        return
    try:
        async with asyncio.timeout(ITERATOR_CLOSE_S):
            await close()
    except Exception:
        log.exception("a response body could not be closed")


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
