"""One call after its request is written: waiting for the head, reading the body, letting go.

`HTTPExchange` is an `Exchange` (message.py says what that promises). `client.py` makes it, once
`read_response_head` has returned. The bytes come from a `Connection` of upstream.py; here they are
decoded, and here the time limits of a call are kept.

Invariant: a body that stops before the end that its framing or its coding gives it never looks
complete.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Literal, assert_never

import h11

from agentstate.ground.errors import (
    AnswerTooLong,
    UpstreamCut,
    UpstreamError,
    UpstreamProtocol,
    UpstreamTimeout,
)
from agentstate.wire.coding import PIECE_BYTES_MAX, CorruptData, Inflater, TruncatedData
from agentstate.wire.head import sort_headers
from agentstate.wire.message import TimeLimits
from agentstate.wire.upstream import Connection

CLEANUP_S = 1.0  # for what needs no peer: tasks that were cancelled, sockets that were aborted

Limit = Literal["connect", "first_byte", "gap", "total"]


class HTTPExchange:
    """An `Exchange`: a response whose head has arrived. One task reads it, any task closes it."""

    def __init__(
        self,
        settle: Callable[[Connection, float], None],
        connection: Connection,
        method: str,
        response: h11.Response,
        watch: Watch,
        upload: asyncio.Task[None] | None,
    ) -> None:
        self.status = response.status_code
        has_body = method != "HEAD" and self.status not in (204, 304)
        self.headers, coding, self._keep_s = sort_headers(response, has_body)
        self._inflater = None if coding is None else Inflater(coding)
        self._settle = settle
        self._connection = connection
        self._watch = watch
        self._upload = upload
        self._decoded_bytes = 0  # since others last had a turn
        self._is_read = False  # to its end
        self._is_closed = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, decoded where it was gzip or deflate."""
        while (pieces := await self._next_pieces()) is not None:
            for piece in pieces:
                yield piece
                if self._has_had_its_turn(piece):
                    await asyncio.sleep(0)

    async def read(self, bytes_max: int) -> bytes:
        """Read the whole body, of at most `bytes_max` decoded bytes."""
        body: list[bytes] = []
        size = 0
        while (pieces := await self._next_pieces()) is not None:
            for piece in pieces:
                size += len(piece)
                if size > bytes_max:
                    self._connection.abort()
                    raise AnswerTooLong(
                        f"{self._watch.host} sent an answer over the limit of {bytes_max} bytes."
                    )
                body.append(piece)
                if self._has_had_its_turn(piece):
                    await asyncio.sleep(0)
        return b"".join(body)

    async def close(self) -> None:
        """Give the connection back if the body was read to its end, else close it. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_read or self._ends_here():
            self._settle(self._connection, self._keep_s)
        else:
            self._connection.abort()
        if self._upload is not None and not self._upload.done():
            self._upload.cancel()
            await asyncio.wait((self._upload,), timeout=CLEANUP_S)

    async def _next_pieces(self) -> Iterable[bytes] | None:
        """Wait for more of the body and return it, decoded; None = it has ended as it should."""
        connection, watch = self._connection, self._watch
        while not self._is_read:
            try:
                event = connection.next_event()
            except UpstreamError as error:
                connection.abort(error)
                raise
            if type(event) is h11.Data:
                received = bytes(event.data)
                return (received,) if self._inflater is None else self._decode(received)
            if event is None:
                limit, until_s = watch.next_limit("gap")
                if not await connection.changed(until_s):
                    expired = watch.expired(limit)
                    connection.abort(expired)
                    raise expired
            else:
                assert type(event) is h11.EndOfMessage, event
                self._is_read = True
        if self._inflater is not None:
            try:
                self._inflater.finish()
            except TruncatedData as error:
                raise UpstreamCut(
                    f"{watch.host} sent a compressed answer that stops before its end."
                ) from error
        return None

    def _decode(self, received: bytes) -> Iterator[bytes]:
        assert self._inflater is not None
        try:
            yield from self._inflater.feed(received)
        except CorruptData as error:
            self._connection.abort()
            raise UpstreamProtocol(
                f"{self._watch.host} sent a compressed answer that is damaged ({error})."
            ) from error

    def _has_had_its_turn(self, piece: bytes) -> bool:
        """Count decoded bytes; True = about a millisecond of work, so others should run now."""
        if self._inflater is None:
            return False
        self._decoded_bytes += len(piece)
        if self._decoded_bytes < PIECE_BYTES_MAX:
            return False
        self._decoded_bytes = 0
        return True

    def _ends_here(self) -> bool:
        """Look whether the end is all that was left: who has seen `[DONE]` may stop reading."""
        if self._connection.is_over:
            return False
        try:
            return type(self._connection.next_event()) is h11.EndOfMessage
        except UpstreamError:
            return False  # damaged after the last byte anyone wanted: it will be closed


class Watch:
    """The time limits of one call, on the loop's clock, and what to say when one has passed."""

    __slots__ = ("_limits", "_loop", "_total_until_s", "host")

    def __init__(self, host: str, limits: TimeLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._total_until_s = self._loop.time() + (limits.total_s or math.inf)
        self.host = host

    def next_limit(self, limit: Limit, since_s: float | None = None) -> tuple[Limit, float]:
        """Return which passes first, `limit` counted from `since_s` (None = now) or the total."""
        match limit:
            case "connect":
                length_s = self._limits.connect_s
            case "first_byte":
                length_s = self._limits.first_byte_s
            case "gap":
                length_s = self._limits.gap_s
            case "total":
                return limit, self._total_until_s
            case _:
                assert_never(limit)
        until_s = (self._loop.time() if since_s is None else since_s) + (length_s or math.inf)
        if self._total_until_s <= until_s:
            return "total", self._total_until_s
        return limit, until_s

    def now_s(self) -> float:
        return self._loop.time()

    def expired(self, limit: Limit) -> UpstreamTimeout:
        limits = self._limits
        match limit:
            case "connect":
                text = f"could not be reached within {limits.connect_s:g} s"
            case "first_byte":
                text = f"did not begin to answer within {limits.first_byte_s:g} s of the request"
            case "gap":
                text = f"was silent for {limits.gap_s:g} s in the middle of the exchange"
            case "total":
                text = f"did not finish the whole exchange within {limits.total_s:g} s"
            case _:
                assert_never(limit)
        return UpstreamTimeout(
            f"{self.host} {text} (forward.{limit}_timeout_s sets that limit).", limit=limit
        )


async def read_response_head(connection: Connection, watch: Watch) -> h11.Response:
    """Wait for the head of the final answer, also while the request is still being sent."""
    sent_s: float | None = None
    while True:
        event = connection.next_event()
        if type(event) is h11.Response:
            return event
        if event is not None:
            assert type(event) is h11.InformationalResponse, event
            continue
        unsent = connection.unsent_bytes()
        if connection.is_writing_paused:
            limit, until_s = watch.next_limit("gap")
        elif connection.is_uploading:  # our own client is at it; its limits are the server's
            limit, until_s = watch.next_limit("total")
        else:
            sent_s = watch.now_s() if sent_s is None else sent_s
            limit, until_s = watch.next_limit("first_byte", sent_s)
        if await connection.changed(until_s):
            continue
        if limit == "gap" and connection.unsent_bytes() < unsent:
            continue  # slow, but it moves
        raise watch.expired(limit)
