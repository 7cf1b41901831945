"""Calls to upstreams over HTTP/1.1: `HTTPClient`, a `Transport` over real sockets.

The parts are beside it: pool.py has the idle connections and the rules of proxies, dial.py makes
new ones, upstream.py is one of them, exchange.py is one response, head.py and coding.py are what is
said. The counterpart for our own clients is server.py.

How a call runs. A connection is taken from the pool, or one that `warm` began is waited for, or a
new one is dialled. The request is written and the calling task itself waits for the head of the
answer. Only a body that is an iterator is sent by a task of its own, since an answer may come
before its end.

Invariant: a connection is in the pool, in the hands of one call, or its socket is closed, whatever
was cancelled at whichever await.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

import h11

from agentstate.ground.errors import ConnectFailed, SettingError, UpstreamCut, UpstreamError
from agentstate.ground.settings import ForwardSettings
from agentstate.ground.tasks import TaskSet
from agentstate.wire.dial import dial, tls_context
from agentstate.wire.exchange import CLEANUP_S, HTTPExchange, Watch, read_response_head
from agentstate.wire.head import authority, request_head
from agentstate.wire.message import Origin, OutCall, TimeLimits
from agentstate.wire.pool import Pool, Proxies, Proxy, read_proxies
from agentstate.wire.upstream import Connection

__all__ = ["HTTPClient", "Proxies", "read_proxies", "tls_context"]

NO_PROXIES = Proxies()
# A connection that was made for this very call is not stale: whoever ends it has read the request.
FRESH_S = 1.0


class HTTPClient:
    """A `Transport` over real sockets. Belongs to one event loop, from first use to `close`."""

    def __init__(
        self,
        forward: ForwardSettings,
        *,
        proxies: Proxies = NO_PROXIES,
        tls: ssl.SSLContext | None = None,  # None = the default one, made at the first https call
    ) -> None:
        self._pool_idle_s = forward.pool_idle_s
        self._pool_max = forward.pool_max
        self._pool: Pool[Connection] = Pool(forward.pool_max)
        self._reaper: asyncio.TimerHandle | None = None  # None = nothing is idle
        self._coming: dict[Origin, deque[_Coming]] = {}  # warmed and not yet asked for
        self._open: set[Connection] = set()
        self._emptied: asyncio.Future[None] | None = None  # `close` waits for `_open` to empty
        self._tasks = TaskSet()
        self._proxies = proxies
        self._tls = tls
        self._tls_made: asyncio.Future[ssl.SSLContext] | None = None  # being made in a thread
        self._is_closed = False

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """Begin a connection if none is idle, so that `send` finds it ready. Never raises."""
        proxy = self._proxies.find(origin)
        key = _pool_key(origin, proxy)
        waiting = self._coming.get(key, ())
        if self._is_closed or self._pool.idle_count(key) or len(waiting) >= self._pool_max:
            return
        coming = _Coming(key)
        self._coming.setdefault(key, deque()).append(coming)
        coming.task = self._tasks.start(
            self._warm_up(coming, origin, proxy, limits), f"warm {origin.host}"
        )

    async def send(self, call: OutCall, limits: TimeLimits) -> HTTPExchange:
        """Send the call and wait for the final response head (1xx are skipped).

        A pooled connection that ends before any byte of an answer is replaced once by a fresh one
        and the call sent again, whatever its method: servers close idle connections, and a request
        that crosses with that was not read. Not so for a body that is an iterator: it is used up.
        """
        if self._is_closed:
            raise ConnectFailed("The client is closed; no further calls go out.")
        proxy = self._proxies.find(call.origin)
        key = _pool_key(call.origin, proxy)
        watch = Watch(authority(call.origin), limits)
        head = request_head(call, watch.host, proxy)
        connection = self._take(key)
        if connection is not None:
            may_be_stale = connection.is_used or connection.age_s() > FRESH_S
            try:
                return await self._ask(connection, call, head, watch)
            except UpstreamCut:
                is_stale = may_be_stale and connection.is_silent and not self._is_closed
                if not is_stale or not isinstance(call.body, bytes):
                    raise
        connection = await self._connect(key, call.origin, proxy, watch)
        return await self._ask(connection, call, head, watch)

    async def close(self) -> None:
        """Close all connections; calls in flight end with UpstreamCut."""
        self._is_closed = True
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for waiting in self._coming.values():
            for coming in waiting:
                if coming.task is not None:
                    coming.task.cancel()
        self._coming.clear()
        for connection in tuple(self._open):
            connection.abort()
        if self._open:
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._emptied,), timeout=CLEANUP_S)
        await self._tasks.close(CLEANUP_S)

    # What follows changes state without waiting.

    def _take(self, key: Origin) -> Connection | None:
        while True:
            connection, expired = self._pool.take(key, asyncio.get_running_loop().time())
            for old in expired:
                old.abort()
            if connection is None:
                return None
            connection.is_idle = False
            if not connection.is_over:
                return connection

    def _give(self, connection: Connection, keep_s: float) -> None:
        """Put a connection that can carry another request into the pool, for `keep_s` at most."""
        if self._is_closed or connection.is_over:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        expires_s = loop.time() + min(keep_s, self._pool_idle_s)
        connection.is_idle = True
        evicted = self._pool.give(connection.key, connection, expires_s)
        if evicted is not None:
            evicted.abort()
        if self._reaper is None:
            self._reaper = loop.call_at(expires_s, self._reap)

    def _reap(self) -> None:
        loop = asyncio.get_running_loop()
        self._reaper = None
        for connection in self._pool.expire(loop.time()):
            connection.abort()
        next_s = self._pool.next_expiry_s()
        if next_s is not None:
            self._reaper = loop.call_at(next_s, self._reap)

    def _settle(self, connection: Connection, keep_s: float) -> None:
        """Keep a connection whose answer was read to its end, if it can be kept."""
        if connection.recycle():
            self._give(connection, keep_s)
        else:
            connection.abort()

    def _lost(self, connection: Connection) -> None:
        self._pool.drop(connection.key, connection)
        self._open.discard(connection)
        if not self._open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _arrived(self, coming: _Coming, connection: Connection | None) -> None:
        """Hand a warmed connection (None = it failed) to the call that waits, else to the pool."""
        waiting = self._coming.get(coming.key)
        if waiting is not None and coming in waiting:
            waiting.remove(coming)
            if not waiting:
                del self._coming[coming.key]
        if coming.taker is not None and not coming.taker.done():
            coming.taker.set_result(connection)
        elif connection is not None:
            self._give(connection, self._pool_idle_s)

    # What follows waits.

    async def _ask(
        self, connection: Connection, call: OutCall, head: h11.Request, watch: Watch
    ) -> HTTPExchange:
        """Send the call on this connection and wait for the response head."""
        upload: asyncio.Task[None] | None = None
        try:
            if isinstance(call.body, bytes):
                connection.start(watch.host, head, call.body)
            else:
                connection.start(watch.host, head, None)
                upload = self._tasks.start(_upload(connection, call.body), f"upload {watch.host}")
            response = await read_response_head(connection, watch)
        except BaseException:
            connection.abort()
            if upload is not None:
                upload.cancel()
            raise
        if upload is not None and response.status_code >= 300:
            # Refused before the end: the rest is not wanted. A success may depend on the rest,
            # so there the upload goes on beside the answer (curl draws the same line).
            upload.cancel()
        return HTTPExchange(self._settle, connection, call.method, response, watch, upload)

    async def _connect(
        self, key: Origin, origin: Origin, proxy: Proxy | None, watch: Watch
    ) -> Connection:
        """Wait for a connection that `warm` began, or dial; within the connect limit."""
        limit, until_s = watch.next_limit("connect")
        timer = asyncio.timeout_at(None if until_s == math.inf else until_s)
        try:
            async with timer:
                connection = await self._claim(key)
                if connection is None:
                    connection = await self._dial(key, origin, proxy)
        except TimeoutError as error:
            assert timer.expired(), "only our own limit ends as TimeoutError"
            raise watch.expired(limit) from error
        if self._is_closed:
            connection.abort()
            raise ConnectFailed("The client was closed while the connection was made.")
        return connection

    async def _claim(self, key: Origin) -> Connection | None:
        """Wait for the oldest warmed connection nobody waits for yet; None = none, or it failed."""
        waiting = self._coming.get(key)
        if not waiting:
            return None
        coming = waiting.popleft()
        if not waiting:
            del self._coming[key]
        coming.taker = asyncio.get_running_loop().create_future()
        try:
            return await coming.taker
        except asyncio.CancelledError:
            # Cancelled in the moment between its arrival and our turn: nobody else holds it.
            if not coming.taker.cancelled() and (connection := coming.taker.result()) is not None:
                self._give(connection, self._pool_idle_s)
            raise

    async def _warm_up(
        self, coming: _Coming, origin: Origin, proxy: Proxy | None, limits: TimeLimits
    ) -> None:
        connection: Connection | None = None
        try:
            # A failure is not kept: the send that needs the connection dials and reports its own.
            with suppress(UpstreamError, TimeoutError):
                async with asyncio.timeout(limits.connect_s or None):
                    connection = await self._dial(coming.key, origin, proxy)
        finally:
            self._arrived(coming, connection)

    async def _dial(self, key: Origin, origin: Origin, proxy: Proxy | None) -> Connection:
        connection = Connection(key, asyncio.get_running_loop(), self._lost)
        await dial(connection, origin, proxy, self._tls_context)
        if not connection.is_lost:
            self._open.add(connection)
        return connection

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            if self._tls_made is None:
                loop = asyncio.get_running_loop()
                self._tls_made = loop.run_in_executor(None, tls_context, None, None)
            try:
                # Shielded: others may wait for the same context.
                self._tls = await asyncio.shield(self._tls_made)
            except SettingError as error:
                raise ConnectFailed(error.message) from error
        return self._tls


class _Coming:
    """A connection that `warm` began. Whoever takes it off the list sets `taker` and awaits it."""

    __slots__ = ("key", "taker", "task")

    def __init__(self, key: Origin) -> None:
        self.key = key
        self.taker: asyncio.Future[Connection | None] | None = None
        self.task: asyncio.Task[None] | None = None


async def _upload(connection: Connection, body: AsyncIterator[bytes]) -> None:
    """Send a body of unknown length, at the pace of the peer. The reader learns how it ended."""
    try:
        async for piece in body:
            if connection.is_over:
                return
            connection.write(h11.Data(data=piece))
            await connection.room()
        if not connection.is_over:
            connection.write(h11.EndOfMessage())
    except Exception as error:  # the body is not ours: a client that left, a limit it ran into
        connection.abort(error)
    finally:
        connection.is_uploading = False
        connection.wake()
        if isinstance(body, AsyncGenerator):
            await body.aclose()


def _pool_key(origin: Origin, proxy: Proxy | None) -> Origin:
    """Return what the connection of a call is kept under.

    A plain connection to a proxy serves any http origin; a tunnel ends at the one it was made for.
    """
    return origin if proxy is None or origin.scheme == "https" else proxy.origin
