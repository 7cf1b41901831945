"""A call that names no session and needs more than passing on: a fallback, or another dialect.

Nothing is recorded and nobody is asked; targets are tried as for any call. A stream goes to its
client from the first content on, so until then another target can take over unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from agentstate.dialects.base import Ask, Dialect, Mark, NumbersEvents
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import AnswerTooLong, UpstreamError, UpstreamRefused
from agentstate.ground.records import RecordedAnswer
from agentstate.steps import aside, forward
from agentstate.steps.call import Entry
from agentstate.steps.leaving import unless_gone
from agentstate.steps.leg import Failed, Outgoing
from agentstate.steps.reply import (
    answer_response,
    error_response,
    marks,
    refusal_response,
    stream_headers,
    tell_tried,
    with_tried,
)
from agentstate.steps.routing import Chain
from agentstate.steps.stream import AFTER_DONE_S
from agentstate.steps.translation import Frames
from agentstate.steps.tries import AllFailed, Reception, Road, Tries
from agentstate.wire.message import Abort, Pair, Request, Response
from agentstate.wire.sse import Frame


class Unrecorded:
    """One such call. `answer` once."""

    def __init__(
        self, road: Road, answer_bytes_max: int, request: Request, entry: Entry, ask: Ask,
        raw: bytes, chain: Chain,
    ) -> None:  # fmt: skip
        self._answer_bytes_max = answer_bytes_max
        self._request = request
        self._dialect = entry.dialect
        self._ask = ask
        self._tries = Tries(road, chain.targets, request.headers, chain.skipped)
        self._out = Outgoing(entry.dialect, ask, request.headers, entry.path, entry.query, raw)
        self._overhead_s = 0.0

    async def answer(self) -> Response:
        """Ask until there is an answer, or nothing is left to try.

        Raises:
            BadRequest: the first target cannot be asked this.
            ConnectionError: the client left before that.
        """
        self._overhead_s = monotonic_s() - self._request.started_s
        work = self._tries.run(self._out, self._receive)
        outcome = await unless_gone(self._request, work)
        if isinstance(outcome, AllFailed):
            return self._failed(outcome)
        return outcome.value

    async def _receive(self, reception: Reception) -> Response | Failed:
        leg, exchange = reception.leg, reception.exchange
        if forward.is_stream(exchange):
            if self._ask.streams:
                return await self._begin(reception)
            whole = await exchange.read(self._answer_bytes_max)
            read = leg.read_events(exchange, whole)
            return read if isinstance(read, Failed) else self._whole(read[0], reception)
        raw = await exchange.read(self._answer_bytes_max)
        body, _, failed = await aside.run(lambda: leg.read(exchange, raw), len(raw))
        if failed is not None:
            return failed
        recorded = RecordedAnswer(exchange.status, leg.headers(exchange), "body", body)
        return self._whole(recorded, reception)

    async def _begin(self, reception: Reception) -> Response | Failed:
        live = _Live(reception, self._dialect, self._ask.choices, self._answer_bytes_max)
        failed = await live.begin()
        if failed is not None:
            return failed
        reception.is_kept = True
        headers = (*reception.leg.headers(reception.exchange), *self._marks(reception))
        return Response(reception.exchange.status, stream_headers(headers), live)

    def _whole(self, recorded: RecordedAnswer, reception: Reception) -> Response:
        return answer_response(
            self._dialect,
            recorded,
            self._marks(reception),
            wants_stream=self._ask.streams,
            wants_usage=self._ask.wants_usage,
        )

    def _failed(self, outcome: AllFailed) -> Response:
        own = marks(
            session="",
            provider=outcome.target.provider,
            model=outcome.target.model,
            attempts=self._tries.count,
            fallback_index=outcome.index,
            tried=outcome.tried,
            overhead_s=self._overhead_s,
        )
        first = outcome.first
        if first.refusal is not None:
            return refusal_response(with_tried(first.refusal, outcome.tried), own)
        tell_tried(first.error, outcome.tried)
        return error_response(self._dialect, first.error, own)

    def _marks(self, reception: Reception) -> list[Pair]:
        target = reception.leg.target
        return marks(
            session="",
            provider=target.provider,
            model=target.model,
            attempts=self._tries.count,
            fallback_index=self._tries.index,
            dropped=reception.leg.dropped,
            overhead_s=self._overhead_s,
        )


class _Live:
    """A stream on its way from an upstream to the one client that asked."""

    def __init__(
        self, reception: Reception, dialect: Dialect, choices: int, bytes_max: int
    ) -> None:
        self._reception = reception
        self._dialect = dialect
        self._assembler = dialect.assembler(choices)
        self._frames: Frames = reception.leg.frames()
        self._chunks = reception.exchange.chunks()
        self._bytes_left = bytes_max  # its reader keeps what it says
        self._ends_s: float | None = None  # when no more is waited for; None = it is not whole yet
        self._ready: list[bytes] = []  # to be handed on
        self._has_content = False
        self._is_over = False
        self._failed: Failed | None = None  # how it ended, if not with an answer

    async def begin(self) -> Failed | None:
        """Read up to the first content, or to an end without any; return what went wrong.

        With nothing left to try, up to the first event: then an error can still be an HTTP error.
        """
        while not (self._has_content or self._is_over):
            await self._read()
            if self._failed is not None:
                return self._failed
            if self._ready and not self._reception.has_more:
                break
        return None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return what comes next.

        Raises:
            Abort: it was cut; the client was told so.
        """
        while not self._ready:
            if self._is_over:
                await self.aclose()
                raise StopAsyncIteration if self._failed is None else Abort
            await self._read()
        return self._ready.pop(0)

    async def aclose(self) -> None:
        """Leave the upstream."""
        await self._reception.exchange.close()

    async def _read(self) -> None:
        """Take in one read of the upstream; what goes wrong ends the stream."""
        try:
            chunk = await self._next_chunk()
            self._check_size(chunk or b"")
            frames = self._frames.finish() if chunk is None else self._frames.feed(chunk)
            is_done = self._take(frames)
            if self._failed is None and (chunk is None or is_done):
                self._is_over = True
                self._check()
        except UpstreamError as error:
            self._end(self._reception.leg.failed(error), self._error_event(error))

    async def _next_chunk(self) -> bytes | None:
        """Return the next bytes; None = there are none, or the answer is whole and none come."""
        if self._frames.is_ending and self._ends_s is None:
            self._ends_s = monotonic_s() + AFTER_DONE_S
        left_s = None if self._ends_s is None else max(self._ends_s - monotonic_s(), 0.0)
        try:
            async with asyncio.timeout(left_s):
                return await anext(self._chunks, None)
        except TimeoutError:
            return None
        except UpstreamError:
            if self._frames.is_ending and self._frames.is_whole:
                return None
            raise

    def _check_size(self, chunk: bytes) -> None:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise AnswerTooLong(
                "The stream is longer than stream.answer_bytes_max, which holds for every answer "
                "that is read here. Raise the setting."
            )

    def _take(self, frames: list[Frame]) -> bool:
        """Take in frames; return whether the dialect's own end was among them."""
        leg = self._reception.leg
        piece, is_done = b"", False
        for frame in frames:
            mark = self._assembler.feed(frame)
            if mark is Mark.ERROR:
                inside = leg.refusal_inside(self._reception.exchange, frame.data or b"")
                fault = self._assembler.snapshot().fault or "an event that cannot be read"
                said = UpstreamRefused(f"{leg.target.provider} sent an error event: {fault}")
                # What is no JSON would break its client's reader before that saw any error.
                is_readable = self._dialect.mend_error_body(502, frame.data or b"") is None
                last = frame.raw if is_readable else self._error_event(said)
                self._end(inside or leg.failed(said), piece + last)
                return False
            piece += frame.raw
            is_done = is_done or mark is Mark.DONE
            self._has_content |= mark in (Mark.CONTENT, Mark.TOOL, Mark.COMPLETING)
        if piece:
            self._ready.append(piece)
        return is_done

    def _check(self) -> None:
        """See that what has ended is an answer.

        Raises:
            NotAnAnswer: it is none.
        """
        answer = self._assembler.finish(clean_end=True)
        reception = self._reception
        fault = forward.judge(answer, reception.exchange, reception.leg.target.provider)
        if fault is not None:
            raise fault

    def _end(self, failed: Failed, last: bytes) -> None:
        self._failed, self._is_over = failed, True
        self._ready.append(last)

    def _error_event(self, error: UpstreamError) -> bytes:
        """Return the event that tells a client of an error of ours."""
        if isinstance(self._assembler, NumbersEvents):
            return self._assembler.error_event(error)
        return self._dialect.error_event(error)
