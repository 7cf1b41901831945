"""The client's side of a hold: it must not time out while a person thinks.

A stream gets heartbeats at event boundaries, frames that every client passes over. A client that
waits for one body gets `102 Processing`, if it is one of those known to take it and nothing stands
between it and us (DESIGN section 6); all others get silence, and find the same approval when they
ask again.

`Delivery` is the body of a streamed response: first the pieces of the flight, then what the gate
lets out, or the error it ends in. The invariant: what is written adds up to what was let out, byte
for byte, with heartbeats between events.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable

from agentstate.dialects.base import Dialect, calls_tools
from agentstate.ground.addresses import is_loopback
from agentstate.ground.errors import AgentStateError, Conflict, UpstreamRefused
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.settings import GateSettings
from agentstate.steps.flight import Flight, Follower, Landing
from agentstate.steps.reading import error_event_after
from agentstate.steps.rounds import LetOut, Passed
from agentstate.wire import sse
from agentstate.wire.message import Abort, Headers, Request

COMMENT = sse.comment(b"held")
HEARTBEAT_S_MIN = 0.2  # however short a client's own limit is
READ_TIMEOUT = b"x-stainless-read-timeout"  # the SDKs of OpenAI and Anthropic for Python say it
# Clients that were tried and take interim responses without taking one for the answer. Known to
# break: requests and urllib for Python, Go's client. Node's fetch takes them; its timer goes on.
TAKES_INTERIM = re.compile(
    r"(Async)?(OpenAI|Anthropic)/Python |python-httpx2?/|Python/[\d.]+ aiohttp/|curl/"
)
# Headers that begin so are set by what stands between a client and us.
_RELAYED = (b"via", b"forwarded", b"x-forwarded-", b"x-real-ip")

OnDelivered = Callable[[LetOut | None], None]


def heartbeat_s(headers: Headers, settings: GateSettings) -> float:
    """Return how long a client may hear nothing: the setting, or a third of its own limit."""
    announced = headers.text(READ_TIMEOUT) or ""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", announced, re.ASCII) and float(announced):
        return max(min(settings.heartbeat_s, float(announced) / 3), HEARTBEAT_S_MIN)
    return settings.heartbeat_s


def heartbeat_of(dialect: Dialect) -> bytes:
    """Return a frame that clients of a dialect pass over."""
    return dialect.heartbeat if calls_tools(dialect) else COMMENT


def takes_interim(request: Request, settings: GateSettings) -> bool:
    """Say whether a client may be sent `102` while it waits."""
    if settings.interim != "known":
        return settings.interim == "always"
    agent = request.headers.text(b"user-agent") or ""
    return (
        TAKES_INTERIM.match(agent) is not None
        and is_loopback(request.peer)
        and not any(name.lower().startswith(_RELAYED) for name, _ in request.headers)
    )


async def wait_with_interim(
    request: Request, work: asyncio.Task[Passed], every_s: float, *, sends_interim: bool
) -> LetOut:
    """Wait for what the gate lets out, telling the client now and then that it goes on."""
    request.on_gone(lambda: stop(work))
    while not work.done():
        await asyncio.wait({work}, timeout=every_s)
        if not work.done() and sends_interim:
            request.send_interim(102)
    return taken(work)


class Delivery:
    """One streamed answer on its way to one client. Closed when the client leaves."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        flight: Flight | None,
        follower: Follower | None,
        every_s: float,
        begin: Callable[[Landing], asyncio.Task[Passed]] | None = None,
        render: Callable[[RecordedAnswer], bytes],
        on_delivered: OnDelivered,
        work: asyncio.Task[Passed] | None = None,
    ) -> None:
        """Deliver from a flight (`begin` starts to pass the gate), or what `work` lets out alone.

        `render` gives the whole stream of an answer; `on_delivered` is called once all was written.
        """
        self._dialect = dialect
        self._flight = flight
        self._follower = follower
        self._every_s = every_s
        self._begin = begin
        self._render = render
        self._on_delivered = on_delivered
        self._work = work
        self._rest: list[bytes] | None = None  # None = not known yet
        self._let_out: LetOut | None = None
        self._is_cut = False  # it ends without an answer
        if follower is not None:
            follower.heartbeat, follower.heartbeat_s = heartbeat_of(dialect), every_s

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return what comes next.

        Raises:
            Abort: it ended without an answer; the client was told, where that was still to be done.
        """
        if self._follower is not None:
            try:
                return await self._follower.__anext__()
            except StopAsyncIteration:
                self._follower = None
                self._land()
        if self._work is not None:
            await asyncio.wait({self._work}, timeout=self._every_s)
            if not self._work.done():
                return heartbeat_of(self._dialect)
            self._take_result(self._work)
            self._work = None
        assert self._rest is not None
        if self._rest:
            return self._rest.pop(0)
        if self._is_cut:
            raise Abort
        self._on_delivered(self._let_out)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Leave: nobody reads any more."""
        if self._follower is not None:
            self._follower.leave()
        if self._work is not None:
            stop(self._work)

    def _land(self) -> None:
        """Take in how the flight has ended."""
        assert self._flight is not None
        landing = self._flight.landing
        assert landing is not None, "a follower ends when its flight has landed"
        if landing.answer is None:
            self._is_cut = True
            # Whoever has seen an upstream's head has been told by the reader of the stream.
            is_told = self._flight.head is not None
            error = landing_error(self._dialect, landing)
            self._rest = [] if is_told else [error_event_after(self._dialect, error, b"")]
        elif landing.hold is not None:
            assert self._begin is not None
            self._work = self._begin(landing)
        elif self._flight.head is None:
            self._rest = [self._render(landing.answer)]
        else:
            self._rest = []

    def _take_result(self, work: asyncio.Task[Passed]) -> None:
        shown = b""
        if self._flight is not None and (landing := self._flight.landing) is not None:
            assert landing.answer is not None
            shown = landing.answer.content[: landing.shown_bytes]
        try:
            let_out = taken(work)
        except AgentStateError as error:
            self._is_cut, self._rest = True, [error_event_after(self._dialect, error, shown)]
            return
        content = self._render(let_out.answer)
        if not content.startswith(shown):
            # Rare: an upstream that tells of a call in another way than it did before. What the
            # client has seen cannot be taken back, so it asks again and gets it whole.
            changed = Conflict("The answer was changed in what had gone out already. Ask again.")
            self._is_cut, self._rest = True, [error_event_after(self._dialect, changed, shown)]
            return
        self._let_out, self._rest = let_out, [content[len(shown) :]]


def landing_error(dialect: Dialect, landing: Landing) -> AgentStateError:
    """Return the error of a flight that ended without an answer."""
    if landing.error is not None:
        return landing.error
    assert landing.refusal is not None, "a landing has an outcome"
    status = landing.refusal.status
    facts = dialect.read_error(landing.refusal.content)
    words = f": {facts.message}" if facts is not None and facts.message else "."
    return UpstreamRefused(
        f"{landing.provider} answered {status}{words}",
        upstream_status=status,
        provider=landing.provider,
    )


def taken(work: asyncio.Task[Passed]) -> LetOut:
    """Return what a task that has ended lets out, or raise what it was refused with.

    Raises:
        ConnectionError: the client left, so nobody waits for it.
    """
    if work.cancelled():
        raise ConnectionResetError("the client left while its call was held")
    passed = work.result()
    if isinstance(passed, AgentStateError):
        raise passed
    return passed


def stop(work: asyncio.Task[Passed]) -> None:
    """Stop waiting for a decision: nobody would get what it lets out."""
    if not work.done():
        work.cancel()
