"""One call on its way upstream: what has arrived so far, for all who wait for it.

A flight belongs to the call, not to the client that started it: clients attach and leave, the
flight goes on (DESIGN section 4, detached completion). It has one producer (`upstream.py`) and any
number of followers, each with a cursor of its own, so a late joiner first gets what has arrived and
then lives along. The producer waits while the *fastest* follower is more than the spool behind; a
stalled follower hinders nobody. All state changes are synchronous; only `room`, `changed` and a
follower's `__anext__` wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from agentstate.ground.errors import AgentStateError
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.gate import Hold
from agentstate.steps.ladder import Hit
from agentstate.wire.message import Pair


@dataclass(frozen=True, slots=True)
class Head:
    """The response head of a flight that streams."""

    status: int
    headers: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Landing:
    """How a flight ended.

    Exactly one of `answer`, `refusal`, `error` and `hit` is set: `hit` says that the call turned
    out to be on record, `elsewhere` that it was in the air already, for an agent that died.
    """

    answer: RecordedAnswer | None = None
    refusal: RecordedAnswer | None = None  # the upstream's own error response, passed on as it is
    error: AgentStateError | None = None  # no response came that could be passed on
    hit: Hit | None = None
    elsewhere: object | None = None  # whatever the pipeline put there; None = not
    is_unsaved: bool = False  # the disk failed after the answer came
    step_number: int | None = None  # None = nothing was claimed
    step_id: int | None = None
    provider: str = ""
    model: str = ""
    attempts: int = 0
    fallback_index: int = 0  # 0 = the target that was asked for
    dropped: tuple[str, ...] = ()  # what could not be said to the target
    tried: tuple[str, ...] = ()  # of a call that failed: each target, with how it ended
    cost_microusd: int | None = None
    upstream_s: float = 0.0  # of the call's time, what was spent waiting for upstreams
    hold: Hold | None = None  # what must be decided before the answer goes out; None = nothing
    shown_bytes: int = 0  # of the answer's content, what was handed to the followers


class Flight:
    """The shared state of one call in the air."""

    def __init__(self, spool_bytes_max: int) -> None:
        self.head: Head | None = None  # set once a stream's first event is there
        self.landing: Landing | None = None
        self.followers: set[Follower] = set()  # clients attached now
        # Called with True when the last follower leaves, with False when one comes back.
        self.on_desert: Callable[[bool], None] | None = None
        # Frames are kept, or a person is being asked: clients hear nothing, and must not time out.
        self.is_keeping = False
        self._pieces: list[bytes] = []
        self._last = b""  # goes out with the landing
        self._bytes = 0
        self._spool_bytes_max = spool_bytes_max
        self._waiting: list[asyncio.Future[None]] = []  # followers that wait for news
        self._producer: asyncio.Future[None] | None = None  # the producer, waiting for room

    # --- the producer's side ----------------------------------------------------------------

    def open(self, head: Head) -> None:
        """Set the head: from here on the flight streams."""
        assert self.head is None, "a flight has one head"
        self.head = head
        self._wake()

    def publish(self, piece: bytes) -> None:
        """Hand a piece of the body to all followers; one piece is one write."""
        assert self.head is not None, "a piece before the head"
        assert self.landing is None, "a piece after the landing"
        if piece:
            self._pieces.append(piece)
            self._bytes += len(piece)
            self._wake()

    def publish_last(self, piece: bytes) -> None:
        """Hand out a piece with the landing, not before.

        For what says that no answer comes: whoever hears it may ask again at once, and must not
        join this very call, which is over, and on record as that only when it lands.
        """
        self._last = piece

    def keep(self, is_keeping: bool) -> None:
        """Say whether followers hear nothing though something has come."""
        if is_keeping is not self.is_keeping:
            self.is_keeping = is_keeping
            self._wake()

    def land(self, landing: Landing) -> None:
        """End the flight. The first landing stands."""
        if self.landing is None:
            if self._last:
                self.publish(self._last)
            self.landing = landing
            self.on_desert = None  # it would keep the call alive that it belongs to
            self._wake()

    async def room(self) -> None:
        """Wait while the fastest reader is more than the spool behind; not if nobody reads."""
        while self._lag() > self._spool_bytes_max:
            self._producer = asyncio.get_running_loop().create_future()
            await self._producer

    # --- a follower's side ------------------------------------------------------------------

    def attach(self, *, reads: bool = True) -> Follower:
        """Attach a client; it must `leave`, or be iterated to its end.

        `reads` False: it waits for the landing and takes no pieces, so nobody waits for it.
        """
        follower = Follower(self, reads=reads)
        self.followers.add(follower)
        if len(self.followers) == 1 and self.on_desert is not None:
            self.on_desert(False)
        return follower

    async def changed(self, patience_s: float | None) -> bool:
        """Wait until something changes, no longer than `patience_s`; None = however long it takes.

        Returns False where that time has passed.
        """
        if patience_s is None:
            await self._news()
            return True
        try:
            async with asyncio.timeout(patience_s):
                await self._news()
        except TimeoutError:
            return False
        return True

    # --- shared with Follower ---------------------------------------------------------------

    def _lag(self) -> int:
        taken = [each.taken for each in self.followers if each.reads]
        return self._bytes - max(taken) if taken else 0

    def _leave(self, follower: Follower) -> None:
        if follower in self.followers:
            self.followers.remove(follower)
            self._make_room()
            if not self.followers and self.on_desert is not None:
                self.on_desert(True)

    def _make_room(self) -> None:
        if self._producer is not None:
            _resolve(self._producer)
            self._producer = None

    async def _news(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            raise

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            _resolve(future)


class Follower:
    """One client of a flight: an iterator over its pieces, from the first, then live.

    A class and not a generator: closing a generator that was never begun runs nothing, and a client
    may leave before it read its first piece.
    """

    __slots__ = ("_flight", "_index", "_is_written", "heartbeat", "heartbeat_s", "reads", "taken")

    def __init__(self, flight: Flight, *, reads: bool) -> None:
        self._flight = flight
        self.reads = reads
        self._index = 0
        self._is_written = False  # the piece before was handed out, and not counted yet
        self.heartbeat = b""
        self.heartbeat_s = 10.0
        self.taken = 0  # bytes the client's socket has accepted

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece. Asking for it means that the one before was written.

        While the flight keeps what has come, or nothing has, a heartbeat is a piece of its own.
        """
        flight = self._flight
        pieces = flight._pieces
        if self._is_written:
            self._is_written = False
            self.taken += len(pieces[self._index - 1])
            flight._make_room()
        while self._index >= len(pieces):
            if flight.landing is not None:
                self.leave()
                raise StopAsyncIteration
            # Who reads before there is a head has got one of ours, and nothing else so far.
            is_silent = flight.is_keeping or flight.head is None
            if not await flight.changed(self.heartbeat_s if is_silent else None):
                return self.heartbeat
        self._index += 1
        self._is_written = True
        return pieces[self._index - 1]

    async def aclose(self) -> None:
        """Leave the flight."""
        self.leave()

    def leave(self) -> None:
        """Leave the flight. Idempotent."""
        self._flight._leave(self)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
