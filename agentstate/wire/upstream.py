"""One connection to an upstream: its socket, its HTTP state, its waits.

`dial.py` makes connections, `pool.py` keeps the idle ones, `client.py` runs calls over them. A
`Connection` collects bytes as they arrive and wakes the one task that waits; that task feeds h11
and takes its events. So there is no task per connection, no queue, and a limit on what is read
ahead.

Invariant: only a connection whose request and answer were both complete, which both sides agreed to
keep and on which not one byte is left over, can be recycled.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import h11

from agentstate.ground.errors import UpstreamCut, UpstreamProtocol, shorten
from agentstate.wire.message import Origin

HEAD_BYTES_MAX = 64 * 1024  # of a response, where it is not all there at once; curl allows 300
READ_AHEAD_BYTES = 256 * 1024  # beyond what the consumer took; the most asyncio reads at once
READ_AHEAD_LOW_BYTES = 64 * 1024  # reading goes on from here
JOIN_BYTES_MAX = 64 * 1024  # a body up to this goes out in one write with its head
# A model may think for longer than a NAT or firewall remembers a silent connection. Probing every
# minute keeps it known, and tells of a dead peer after five without reply (as the SDKs of OpenAI
# and Anthropic have it). Where a system lacks an option, its own value holds.
KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5))


class Connection(asyncio.Protocol):
    """One socket, its HTTP state, and one alarm for its waits. Called from two sides.

    asyncio calls the first five methods when something happened; they only note it and wake the
    waiter. The task that owns the exchange calls the rest. At most one task waits in `changed`
    (the reader) and one in `room` (the upload).
    """

    def __init__(
        self,
        key: Origin,
        loop: asyncio.AbstractEventLoop,
        on_lost: Callable[[Connection], None],
    ) -> None:
        self.key = key  # of the pool: connections with equal keys can replace each other
        self.transport: asyncio.Transport | None = None  # None = not connected yet
        self._loop = loop
        self._on_lost = on_lost
        self._http = h11.Connection(h11.CLIENT, HEAD_BYTES_MAX)
        # Reading
        self.is_over = False  # no more bytes will come, or none are wanted
        self.is_lost = False  # asyncio has let go of the socket
        self._fault: Exception | None = None  # of the socket; None = the peer ended it in order
        self._reason: Exception | None = None  # why we ended it; None = we did not
        self._received: deque[bytes] = deque()  # not yet given to h11
        self._received_bytes = 0
        self._is_starved = True  # h11 has said that it needs more than it was given
        self._is_reading_paused = False
        self._waiter: asyncio.Future[bool] | None = None
        # Writing
        self.is_writing_paused = False  # asyncio holds more than it wants to
        self._room_waiter: asyncio.Future[None] | None = None
        # The alarm: moving the time limit later, as every read does, costs one assignment.
        self._until_s = math.inf  # of the current wait
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = math.inf  # when it rings; never later than `_until_s` while one waits
        # This request
        self.host = key.host  # for messages
        self.is_idle = False  # in the pool
        self.is_used = False  # a request was begun on it
        self._made_s = math.inf  # when it was made, by the loop's clock
        self.is_silent = True  # no byte has come since the request was begun
        self.is_uploading = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._made_s = asyncio.get_running_loop().time()
        if self.is_over:  # aborted while the connection was made
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is None:
            return
        with suppress(OSError):  # macOS: the peer has gone already, as the next read will tell
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEP_ALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def age_s(self) -> float:
        """Return how long ago the connection was made."""
        return asyncio.get_running_loop().time() - self._made_s

    def data_received(self, data: bytes) -> None:
        if self.is_idle:
            self.abort()  # nobody asked: a late error, or the rest of an answer
            return
        if self.is_over:
            return
        self.is_silent = False
        self._received.append(data)
        self._received_bytes += len(data)
        if self._received_bytes > READ_AHEAD_BYTES and not self._is_reading_paused:
            assert self.transport is not None
            self._is_reading_paused = True
            self.transport.pause_reading()
        self.wake()

    def eof_received(self) -> None:
        self._end(None)  # returning None lets asyncio close the socket

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)
        self.is_lost = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._on_lost(self)

    def pause_writing(self) -> None:
        self.is_writing_paused = True
        self.wake()  # another limit holds now

    def resume_writing(self) -> None:
        self.is_writing_paused = False
        self.wake()

    def start(self, host: str, head: h11.Request, body: bytes | None) -> None:
        """Begin a request to `host` (for messages); `body` None = it follows by `write`."""
        self.host = host
        self.is_used = True
        self.is_silent = True
        self.is_uploading = body is None
        raw = self._http.send(head)
        if body is None:
            self._write(raw)
            return
        if len(body) <= JOIN_BYTES_MAX:
            self._write(raw + self._http.send(h11.Data(data=body)) if body else raw)
        else:
            self._write(raw)
            self._write(self._http.send(h11.Data(data=body)))
        self._http.send(h11.EndOfMessage())  # no bytes: the length was announced

    def write(self, event: h11.Data | h11.EndOfMessage) -> None:
        """Send a piece of the body, or its end."""
        self._write(self._http.send(event))

    def next_event(self) -> h11.Event | None:
        """Return the next part of the answer; None = wait for `changed` first.

        Raises:
            UpstreamCut: the connection ended before the answer did.
            UpstreamProtocol: what came is not HTTP.
            Exception: the reason given to `abort`.
        """
        if self._reason is not None:
            raise self._reason  # whatever h11 still holds
        if self._is_starved and not self._received and not self.is_over:
            return None  # h11 would look through its buffer again to say the same
        is_end_fed = False
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                if is_end_fed:
                    raise UpstreamCut(
                        f"{self.host} closed the connection before the answer was complete."
                    ) from error
                # After a colon h11 quotes what it read, which may be an answer: so that is cut
                # off, and the cause does not go along.
                what = str(error).partition(":")[0]
                raise UpstreamProtocol(f"{self.host} did not speak HTTP: {what}.") from None
            if not isinstance(event, type):
                self._is_starved = False
                return event
            assert event is h11.NEED_DATA, "read past the end of an answer"
            self._is_starved = True
            if self._received:
                self._feed()
            elif not self.is_over:
                return None
            elif self._fault is not None:
                raise UpstreamCut(
                    f"The connection to {self.host} broke before the answer was complete "
                    f"({shorten(str(self._fault)) or type(self._fault).__name__})."
                ) from self._fault
            else:
                self._http.receive_data(b"")
                is_end_fed = True

    async def changed(self, until_s: float) -> bool:
        """Wait for bytes, room to write, or the end; False = `until_s` (the loop's time) passed."""
        assert self._waiter is None, "one reader"
        if until_s <= self._loop.time():
            return False
        self._until_s = until_s
        if until_s < self._alarm_s:
            self._set_alarm()
        self._waiter = self._loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    async def room(self) -> None:
        """Wait until asyncio takes more to write, or the connection has ended."""
        while self.is_writing_paused and not self.is_over:
            self._room_waiter = self._loop.create_future()
            try:
                await self._room_waiter
            finally:
                self._room_waiter = None

    def wake(self) -> None:
        """Let whoever waits look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)
        if self._room_waiter is not None and not self._room_waiter.done():
            self._room_waiter.set_result(None)

    def unsent_bytes(self) -> int:
        """Return how many bytes the peer's side has not taken yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def recycle(self) -> bool:
        """Make ready for another request; False = this connection cannot carry one."""
        http = self._http
        is_done = http.our_state is h11.DONE and http.their_state is h11.DONE
        if self.is_over or not is_done or self.unsent_bytes() or self.has_leftover():
            return False
        http.start_next_cycle()
        return True

    def has_leftover(self) -> bool:
        """Say whether bytes came that no answer has used."""
        return bool(self._received or self._http.trailing_data[0])

    async def secure(self, tls: ssl.SSLContext, server_hostname: str) -> None:
        """Begin TLS inside the tunnel that a proxy has opened; HTTP begins anew within.

        Raises:
            OSError: the handshake failed, ssl.SSLError being one.
        """
        assert self.transport is not None
        transport = await self._loop.start_tls(
            self.transport, self, tls, server_hostname=server_hostname
        )
        if transport is None or self.is_over:
            raise ConnectionResetError("closed during the TLS handshake")
        self.transport = transport
        self._http = h11.Connection(h11.CLIENT, HEAD_BYTES_MAX)

    def abort(self, reason: Exception | None = None) -> None:
        """Close the socket now. Who reads on gets the first `reason` given; None = UpstreamCut."""
        self._received.clear()
        self._received_bytes = 0
        if self._reason is None:
            self._reason = reason or UpstreamCut(
                f"The connection to {self.host} was closed from this side."
            )
        self._end(None)
        if self.transport is not None:
            self.transport.abort()

    def _write(self, raw: bytes) -> None:
        assert self.transport is not None
        self.transport.write(raw)

    def _feed(self) -> None:
        data = self._received.popleft()
        self._received_bytes -= len(data)
        if self._is_reading_paused and self._received_bytes <= READ_AHEAD_LOW_BYTES:
            assert self.transport is not None
            self._is_reading_paused = False
            self.transport.resume_reading()
        self._http.receive_data(data)

    def _end(self, fault: Exception | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._fault = fault
            self.wake()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = self._until_s
        self._alarm = self._loop.call_at(self._until_s, self._ring)

    def _ring(self) -> None:
        rang_s, self._alarm_s, self._alarm = self._alarm_s, math.inf, None
        if self._waiter is None or self._waiter.done():
            return  # the next wait sets it
        if self._until_s <= rang_s:
            self._waiter.set_result(False)
        elif self._until_s < math.inf:
            self._set_alarm()
