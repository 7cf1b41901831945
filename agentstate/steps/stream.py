"""Read one upstream stream: release live frames, commit at the completing one.

The counterpart is `flight.py`, which hands the pieces to the clients. The invariant: the completing
frame and all that follows it goes out only once it is on record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NoReturn

from agentstate.dialects.base import Assembler, Mark
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import (
    AgentStateError,
    StoreError,
    UpstreamError,
    UpstreamProtocol,
    UpstreamRefused,
)
from agentstate.ground.records import RecordedAnswer
from agentstate.steps import forward
from agentstate.steps.call import Call
from agentstate.steps.checkpoint import Tape
from agentstate.steps.flight import Flight, Head, Landing
from agentstate.steps.forward import Try
from agentstate.steps.gate import Hold
from agentstate.steps.reading import error_event_after
from agentstate.steps.recording import Recording, Services
from agentstate.wire.message import Exchange
from agentstate.wire.sse import Frame, SSEDecoder

log = logging.getLogger("agentstate.stream")

# After the last event some servers keep the socket open for minutes; a well-behaved one ends within
# one round trip, and then its connection can be used again.
AFTER_DONE_S = 1.0


class StreamReader:
    """Reads one upstream stream: releases live frames, commits at the completing one.

    States: live → committed → sealed. Frames before the completing one go out as they come, unless
    the screen keeps them for the gate; the completing one, and what came in the same read after it,
    go out once they are on the disk; the tail goes out once it was appended. Where the gate has to
    ask about the answer nothing more goes out here: what was kept, the end included, is the
    client's own business then (`delivery.py`). The head goes out with the first frame that is no
    error, so that an error in the first frame is still a real HTTP error.
    """

    def __init__(
        self,
        services: Services,
        call: Call,
        flight: Flight,
        recording: Recording,
        exchange: Exchange,
        attempt: Try,
    ) -> None:
        self._services = services
        self._call = call
        self._flight = flight
        self._recording = recording
        self._exchange = exchange
        self._attempt = attempt
        self._chunks = exchange.chunks()
        self._assembler: Assembler = self._call.dialect.assembler(self._call.ask.choices)
        self._tape = Tape()
        self._content: list[bytes] = []  # all that came
        self._screen = recording.screen()
        self._hold: Hold | None = None  # what must be decided about the answer
        self._shown_bytes = 0  # of the content, what was handed to the flight
        self._headers = forward.answer_headers(exchange, self._call.target)
        self._opened_s = 0.0  # when the head was released
        self._first_content_ms: int | None = None
        self._is_committed = False
        # When the answer has ended with its completing frame, until when more may come; None = it
        # has not. No cut after it takes the answer back.
        self._ends_s: float | None = None
        self.keeps_exchange = False  # it is closed in the background, not by who opened it
        self._is_error_out = False  # the upstream's own error event was passed on
        self._refusal: RecordedAnswer | None = None  # that error, as a response of its own

    async def run(self) -> Landing:
        """Read to the end and return how it ended."""
        decoder = SSEDecoder()
        is_done = False
        try:
            while not is_done and (chunk := await self._read()) is not None:
                is_done = await self._take(decoder.feed(chunk))
                if not is_done:
                    await self._flight.room()
            if not is_done:
                await self._end(decoder.finish())
        except UpstreamError as error:
            return await self._cut(forward.name_provider(error, self._call.target.provider))
        except StoreError as error:
            return self._withhold(error)
        if is_done:
            self._let_end()
        return self._recording.landing(
            answer=RecordedAnswer(
                self._exchange.status, self._headers, "events", b"".join(self._content)
            ),
            read=self._assembler.snapshot(),
            hold=self._hold,
            shown_bytes=self._shown_bytes,
        )

    async def _read(self) -> bytes | None:
        """Return what comes next; None = the body has ended, or the answer had and no more came."""
        if self._ends_s is None:
            return await anext(self._chunks, None)
        # Some add a `[DONE]` to what was the end; others keep the socket open, or drop it.
        try:
            async with asyncio.timeout(max(self._ends_s - monotonic_s(), 0.0)):
                return await anext(self._chunks, None)
        except (TimeoutError, UpstreamError):
            return None

    async def _take(self, frames: list[Frame]) -> bool:
        """Take in the frames of one read; True = the stream's own end was among them."""
        live: list[tuple[bytes, bytes]] = []  # (frame, what may go out now that it has come)
        held: list[tuple[bytes, bytes]] = []  # the same, once they are on the disk
        holds = self._is_committed
        is_done = False
        for frame in frames:
            mark = self._assembler.feed(frame)
            if mark is Mark.ERROR:
                self._take_live(live)
                self._refuse(frame)
            if mark in (Mark.CONTENT, Mark.TOOL) and self._first_content_ms is None:
                self._first_content_ms = self._recording.since_start_ms()
            is_done = mark is Mark.DONE
            holds = holds or is_done or mark is Mark.COMPLETING
            free = self._screen.take(frame.raw, mark, self._assembler)
            (held if holds else live).append((frame.raw, free))
            if is_done:
                break
        if live:
            self._take_live(live)
            self._services.crash("first_frame")
        if held:
            await self._write(held, is_done=is_done)
        return is_done

    async def _end(self, rest: Frame | None) -> None:
        """The body ended as HTTP says it should, without the dialect's own end."""
        frames: list[tuple[bytes, bytes]] = []
        if rest is not None:
            mark = self._assembler.feed(rest)
            frames.append((rest.raw, self._screen.take(rest.raw, mark, self._assembler)))
        await self._write(frames, is_done=True)

    async def _write(self, frames: list[tuple[bytes, bytes]], *, is_done: bool) -> None:
        """Put frames on record, committing the answer if that was not done yet, and release them.

        The gate asks once the end was seen: until then an answer may be taken back, and what comes
        after its completing frame may call a tool as well.
        """
        piece = b"".join(frame for frame, _ in frames)
        answer = self._assembler.finish(True) if is_done else self._assembler.snapshot()
        if is_done or not self._is_committed:
            error = forward.judge(answer, self._exchange, self._call.target.provider)
            if error is not None:
                raise error
        self._check_size(piece)
        self._tape.take(piece, self._since_open_s())
        self._content.append(piece)
        content, pace = self._tape.cut()
        if self._is_committed:
            await self._recording.append(answer, content, pace, seals=is_done)
        else:
            recorded = RecordedAnswer(
                self._exchange.status, self._headers, "events", content, pace, is_sealed=is_done
            )
            await self._recording.commit(recorded, answer, self._attempt, self._first_content_ms)
            self._is_committed = True
            if self._assembler.finish(clean_end=False).is_complete:
                self._ends_s = monotonic_s() + AFTER_DONE_S
        free = b"".join(each for _, each in frames)
        if is_done:
            self._hold = await self._recording.examine(answer)
            if self._hold is None:
                free += self._screen.rest()
        self._flight.keep(self._screen.is_keeping)
        self._services.crash("before_release")
        if free:
            self._publish(free)
        self._services.crash("released")

    def _withhold(self, error: StoreError) -> Landing:
        """The answer calls a guarded tool and the question cannot be written: nobody gets it."""
        if self._flight.head is not None:
            self._publish_own(error)
        return self._recording.landing(error=error)

    def _refuse(self, frame: Frame) -> NoReturn:
        """The upstream sent its error as an event: pass it on as it came, or, if nothing went out
        before it, as the real HTTP error it is.

        Raises:
            UpstreamRefused: always.
        """
        provider = self._call.target.provider
        # An error may come with all that was said before it, calls included.
        may_pass = not (
            self._screen.is_keeping or self._services.gate.policy.is_named_in(frame.raw)
        )
        if self._flight.head is not None and may_pass:
            self._publish(frame.raw)
            self._is_error_out = True
        inside = forward.refusal_inside(
            self._call.dialect, self._exchange, frame.data or b"", provider
        )
        if inside is not None:
            self._refusal, error = inside
            raise error
        fault = self._assembler.snapshot().fault or "an event that cannot be read"
        raise UpstreamRefused(f"{provider} sent an error event: {fault}", provider=provider)

    async def _cut(self, error: UpstreamError) -> Landing:
        """The stream ended without an answer: say so to whoever has seen its beginning."""
        content, _ = self._tape.cut()
        await self._recording.fail(self._attempt, error, content)
        if self._flight.head is None and self._refusal is not None:
            return self._recording.landing(refusal=self._refusal)
        if self._flight.head is not None and not self._is_error_out:
            self._publish_own(error)
        return self._recording.landing(error=error)

    def _publish_own(self, error: AgentStateError) -> None:
        """Hand out an error of ours as the last event."""
        shown = b"".join(self._content)[: self._shown_bytes]  # not what the screen keeps
        self._publish(error_event_after(self._call.dialect, error, shown))

    def _let_end(self) -> None:
        """Give the exchange a moment to end by itself, in the background: then it can be kept."""
        self.keeps_exchange = True
        self._services.tasks.start(_end_exchange(self._exchange, self._chunks), "end of exchange")

    def _take_live(self, frames: list[tuple[bytes, bytes]]) -> None:
        """Keep live frames for the record and hand out what the screen lets go."""
        if not frames:
            return
        piece = b"".join(frame for frame, _ in frames)
        self._check_size(piece)
        self._content.append(piece)
        free = b"".join(each for _, each in frames)
        if free:
            self._publish(piece if free == piece else free)
        self._flight.keep(self._screen.is_keeping)
        self._tape.take(piece, self._since_open_s())

    def _publish(self, piece: bytes) -> None:
        if self._flight.head is None:
            self._opened_s = monotonic_s()
            self._recording.upstream_s = self._opened_s - self._attempt.started_s
            self._flight.open(Head(self._exchange.status, self._headers))
        self._shown_bytes += len(piece)
        self._flight.publish(piece)

    def _since_open_s(self) -> float:
        return monotonic_s() - self._opened_s if self._opened_s else 0.0

    def _check_size(self, piece: bytes) -> None:
        bytes_max = self._services.settings.stream.answer_bytes_max
        if self._tape.bytes_taken + len(piece) > bytes_max:
            raise UpstreamProtocol(
                f"The stream is longer than stream.answer_bytes_max ({bytes_max} bytes) and could "
                "not be recorded. Raise the setting."
            )


async def _end_exchange(exchange: Exchange, chunks: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(AFTER_DONE_S):
            async for _ in chunks:
                pass  # nothing of a dialect comes after its end
    except (TimeoutError, UpstreamError):
        log.debug("an upstream did not end its response after the end of its stream")
    finally:
        await exchange.close()
