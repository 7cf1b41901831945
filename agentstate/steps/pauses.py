"""Holds the calls of a paused session, before anything is looked up, until somebody resumes it.

Theory of operation. That a session is paused is on record, so it outlasts the proxy; nothing else
of it is: no approval, no deadline, no step. A call that comes meanwhile waits here with its body,
and goes on as if it had just come. Its client is kept from timing out as at the gate: a stream gets
a head of ours and heartbeats, others `102 Processing` where they are known to take it. A client
that times out all the same asks again, and is held again. Calls that were in flight when the
session was paused are not touched.

Invariant: a ring is a hint (invariant 5); who is woken reads the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from agentstate.dialects.base import Ask, Dialect
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import AgentStateError, Deleted, Stopping, UpstreamRefused, shorten
from agentstate.ground.tasks import TaskSet
from agentstate.steps import aside
from agentstate.steps.bells import Bells
from agentstate.steps.delivery import heartbeat_of, heartbeat_s, takes_interim
from agentstate.steps.gate import Gate
from agentstate.steps.reply import EVENTS_TYPE, marks, stream_headers
from agentstate.store.base import Store
from agentstate.wire.message import Abort, Request, Response

RECHECK_S = 15.0  # a ring may be lost with who was to ring; the row is read again all the same

GoOn = Callable[[], Awaitable[Response | None]]
_Ended = AgentStateError | None  # None = the session is not paused any more
_Answered = Response | AgentStateError | ConnectionError  # the response, or why there is none


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call of a paused session."""

    request: Request
    session: str
    dialect: Dialect
    read_ask: Callable[[bytes], Ask]  # reads its body; raises `BadRequest`
    go_on: GoOn  # answers it as if it had just come; raises what it is refused with


class Pauses:
    """Who waits for which session to go on."""

    def __init__(self, store: Store, gate: Gate, tasks: TaskSet) -> None:
        self._store = store
        self._gate = gate  # for how its clients are kept waiting
        self._tasks = tasks
        self._bells = Bells()  # by session
        self._is_parked = False

    async def is_paused(self, session: str) -> bool:
        """Say whether calls of a session are to be held. Raises `StoreError`."""
        return await self._store.read_pause(session) is not None

    def ring(self, session: str) -> None:
        """Have the calls of a session look again: it was resumed."""
        self._bells.ring(session)

    def park(self) -> None:
        """End all waits, now and from now on: the proxy is being stopped."""
        self._is_parked = True
        self._bells.ring_all()

    async def answer(self, call: HeldCall, body_bytes_max: int) -> Response | None:
        """Hold a call until its session is resumed, then answer it; a stream begins meanwhile.

        Raises:
            BadRequest: its body cannot be read, so there is nothing to hold.
            Stopping: the proxy is being stopped.
            Deleted: the session is gone.
            StoreError: the record cannot be read.
            ConnectionError: the client left.
            AgentStateError: what `go_on` raises.
        """
        request = call.request
        streams = await self._streams(call, body_bytes_max)
        every_s = heartbeat_s(request.headers, self._gate.settings)
        sends_interim = not streams and takes_interim(request, self._gate.settings)
        began_s = monotonic_s()
        wait = self._tasks.start(self._wait(call.session), "pause")
        request.on_gone(lambda: _stop(wait))
        await asyncio.wait({wait}, timeout=every_s)
        while not wait.done():
            if streams:
                own = marks(session=call.session)
                body = _Resumed(call, wait, every_s, self._tasks)
                return Response(200, stream_headers((EVENTS_TYPE, *own)), body)
            if sends_interim:
                request.send_interim(102)
            await asyncio.wait({wait}, timeout=every_s)
        _check(wait)
        request.started_s += monotonic_s() - began_s  # a pause is no time of ours
        return await call.go_on()

    async def _streams(self, call: HeldCall, body_bytes_max: int) -> bool:
        """Say whether a call gets a stream, so that heartbeats can be sent. Its body stays with the
        request, until that is told to forget it."""
        raw = await call.request.body(body_bytes_max)
        ask = await aside.run(partial(call.read_ask, raw), len(raw))
        return ask.streams and not ask.passes_through

    async def _wait(self, session: str) -> _Ended:
        with self._bells.listening(session) as bell:
            while not self._is_parked:
                bell.clear()  # before reading: a resume after it rings
                try:
                    if await self._store.read_pause(session) is None:
                        if await self._store.read_session(session) is None:
                            return Deleted.of(session)
                        return None
                except AgentStateError as error:
                    return error
                try:
                    async with asyncio.timeout(RECHECK_S):
                        await bell.wait()
                except TimeoutError:
                    continue
        return Stopping(
            f"The proxy is being stopped, and session {shorten(session)!r} is paused. Ask again "
            "once it is back."
        )


class _Resumed:
    """The stream of a held call: heartbeats while its session is paused, then its answer's."""

    def __init__(
        self, call: HeldCall, wait: asyncio.Task[_Ended], every_s: float, tasks: TaskSet
    ) -> None:
        self._call = call
        self._wait: asyncio.Task[_Ended] | None = wait  # None = it is over
        self._every_s = every_s
        self._tasks = tasks
        self._began_s = monotonic_s()
        self._answering: asyncio.Task[_Answered] | None = None  # None = not yet, or any more
        self._rest: AsyncIterator[bytes] | None = None  # None = not known yet
        self._has_left = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return what comes next. Raises `Abort`: it ended without an answer."""
        if self._wait is not None:
            await asyncio.wait({self._wait}, timeout=self._every_s)
            if not self._wait.done():
                return heartbeat_of(self._call.dialect)
            self._begin(self._wait)
        if self._answering is not None:
            await asyncio.wait({self._answering}, timeout=self._every_s)
            if not self._answering.done():
                return heartbeat_of(self._call.dialect)
            self._rest = _body_of(self._call.dialect, self._answering.result())
            self._answering = None
        assert self._rest is not None, "it is known by now"
        return await anext(self._rest)

    async def aclose(self) -> None:
        """Leave: nobody reads any more."""
        self._has_left = True
        if self._wait is not None:
            _stop(self._wait)
        if self._answering is not None and self._answering.done():
            await _close(self._answering.result())
        if self._rest is not None:
            await _close_body(self._rest)

    def _begin(self, wait: asyncio.Task[_Ended]) -> None:
        self._wait = None
        try:
            _check(wait)
        except AgentStateError as error:
            self._rest = _body_of(self._call.dialect, error)
            return
        self._call.request.started_s += monotonic_s() - self._began_s
        # A task of its own, so that there can be heartbeats; it runs to its end in any case, since
        # what a call takes from the record must not be left half taken.
        self._answering = self._tasks.start(self._answer(), "resumed")

    async def _answer(self) -> _Answered:
        try:
            answered = await self._call.go_on()
        except (AgentStateError, ConnectionError) as error:
            return error
        assert answered is not None, "what is passed through is held without a stream"
        if self._has_left:
            await _close(answered)
        return answered


def _check(wait: asyncio.Task[_Ended]) -> None:
    """Raise what a wait ended with, if it is not that the session goes on."""
    if wait.cancelled():
        raise ConnectionResetError("the client left while its session was paused")
    if (error := wait.result()) is not None:
        raise error


def _stop(wait: asyncio.Task[_Ended]) -> None:
    if not wait.done():
        wait.cancel()


def _body_of(dialect: Dialect, answered: _Answered) -> AsyncIterator[bytes]:
    """Return how a stream that has begun goes on. Raises `ConnectionError`: the client left."""
    if isinstance(answered, ConnectionError):
        raise answered
    if isinstance(answered, AgentStateError):
        return _pieces(dialect.error_event(answered), is_cut=True)
    if not isinstance(answered.body, bytes):
        return answered.body
    if answered.status < 400:
        return _pieces(answered.body, is_cut=False)
    facts = dialect.read_error(answered.body)
    words = facts.message if facts is not None and facts.message else f"status {answered.status}"
    error = UpstreamRefused(words, upstream_status=answered.status)
    if facts is not None and facts.code is not None:
        error.code = facts.code
    return _pieces(dialect.error_event(error), is_cut=True)


async def _pieces(piece: bytes, *, is_cut: bool) -> AsyncIterator[bytes]:
    yield piece
    if is_cut:
        raise Abort


async def _close(answered: _Answered) -> None:
    if isinstance(answered, Response) and not isinstance(answered.body, bytes):
        await _close_body(answered.body)


async def _close_body(body: AsyncIterator[bytes]) -> None:
    close = getattr(body, "aclose", None)
    if close is not None:
        await close()
