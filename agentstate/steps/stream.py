"""Read one upstream stream: release live frames, commit at the completing one.

The counterpart is `flight.py`, which hands the pieces to the clients. The invariant: the completing
frame and all that follows it goes out only once it is on record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NoReturn

from agentstate.dialects.base import Assembler, Mark
from agentstate.ground.chat import Answer
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import (
    AgentStateError,
    AnswerTooLong,
    Deleted,
    StoreError,
    UpstreamError,
    UpstreamRefused,
)
from agentstate.ground.records import RecordedAnswer
from agentstate.steps import forward
from agentstate.steps.call import Call
from agentstate.steps.checkpoint import Tape
from agentstate.steps.flight import Flight, Head, Landing
from agentstate.steps.gate import Hold
from agentstate.steps.leg import Failed
from agentstate.steps.reading import error_event_after
from agentstate.steps.recording import Recording, Services
from agentstate.steps.tries import Reception
from agentstate.wire.message import Exchange
from agentstate.wire.sse import Frame

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
    error, so that an error in the first frame is still a real HTTP error. While something is left
    to try, frames before the first content are withheld: until a client has seen some, a stream
    that fails is given up unseen, and another target asked.
    """

    def __init__(
        self,
        services: Services,
        call: Call,
        flight: Flight,
        recording: Recording,
        reception: Reception,
    ) -> None:
        self._services = services
        self._call = call
        self._flight = flight
        self._recording = recording
        self._reception = reception
        self._leg = reception.leg
        self._exchange = reception.exchange
        self._frames = reception.leg.frames()
        self._chunks = self._exchange.chunks()
        self._assembler: Assembler = self._call.dialect.assembler(self._call.ask.choices)
        self._tape = Tape()
        self._content: list[bytes] = []  # all that came, in the caller's form
        self._read_bytes = 0  # of the upstream's own
        self._screen = recording.screen()
        self._hold: Hold | None = None  # what must be decided about the answer
        self._shown_bytes = 0  # of the content, what was handed to the flight
        self._headers = self._leg.headers(self._exchange)
        self._withholds = reception.has_more  # until there is content
        self._withheld: list[bytes] = []
        self._opened_s = 0.0  # when the head was released
        self._first_content_ms: int | None = None
        self._is_committed = False
        # When the answer has ended with its completing frame, until when more may come; None = it
        # has not. No cut after it takes the answer back.
        self._ends_s: float | None = None
        self._has_last = False  # the upstream's own error event is passed on at the landing
        self._refused: Failed | None = None  # that error, as a response of its own

    async def run(self) -> Landing | Failed:
        """Read to the end and return how it ended."""
        is_done = False
        try:
            while not is_done and (chunk := await self._read()) is not None:
                # What the caller's form has no words for is kept by its reader all the same.
                self._read_bytes += len(chunk)
                self._check_size(self._read_bytes)
                frames = self._frames.feed(chunk)
                if not frames and self._flight.head is not None:
                    self._flight.keep(True)  # nor is there anything for its client to hear
                is_done = await self._take(frames)
                if self._frames.is_ending and self._ends_s is None:
                    self._ends_s = monotonic_s() + AFTER_DONE_S
                if not is_done:
                    await self._flight.room()
            if not is_done:
                await self._end(self._frames.finish())
        except UpstreamError as error:
            return self._cut(error)
        except (Deleted, StoreError) as error:
            return self._withhold(error)
        if is_done:
            self._let_end()
        return self._recording.landing(
            answer=RecordedAnswer(
                self._exchange.status, self._headers, "events", b"".join(self._content)
            ),
            read=self._frames.complete(self._assembler.snapshot()),
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
        except TimeoutError:
            return None
        except UpstreamError:
            if self._frames.is_whole:
                return None
            raise

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
                self._services.meters.note_first_content(
                    self._call.dialect.name,
                    self._leg.target.provider,
                    self._leg.target.model,
                    self._first_content_ms,
                )
                self._withholds = False
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

    async def _end(self, rest: list[Frame]) -> None:
        """The body ended as HTTP says it should; `rest` is what was still to come of it."""
        frames: list[tuple[bytes, bytes]] = []
        for frame in rest:
            mark = self._assembler.feed(frame)
            frames.append((frame.raw, self._screen.take(frame.raw, mark, self._assembler)))
        await self._write(frames, is_done=True)

    async def _write(self, frames: list[tuple[bytes, bytes]], *, is_done: bool) -> None:
        """Put frames on record, committing the answer if that was not done yet, and release them.

        The gate asks once the end was seen: until then an answer may be taken back, and what comes
        after its completing frame may call a tool as well.
        """
        piece = b"".join(frame for frame, _ in frames)
        answer = self._assembler.finish(True) if is_done else self._assembler.snapshot()
        answer = self._frames.complete(answer)
        if is_done or not self._is_committed:
            error = forward.judge(answer, self._exchange, self._leg.target.provider)
            if error is not None:
                raise error
            self._check_filter(answer)
            self._withholds = False
            self._leg.dropped_of_answer = self._frames.dropped
        self._check_size(self._tape.bytes_taken + len(piece))
        self._tape.take(piece, self._since_open_s())
        self._content.append(piece)
        content, pace = self._tape.cut()
        if self._is_committed:
            await self._recording.append(answer, content, pace, seals=is_done)
        else:
            recorded = RecordedAnswer(
                self._exchange.status, self._headers, "events", content, pace, is_sealed=is_done
            )
            await self._recording.commit(recorded, answer, self._first_content_ms)
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

    def _withhold(self, error: Deleted | StoreError) -> Landing:
        """The answer calls a guarded tool and the question cannot be written, or its
        session is gone: nobody gets it."""
        if self._flight.head is not None:
            self._publish_own(error)
        return self._recording.landing(error=error)

    def _refuse(self, frame: Frame) -> NoReturn:
        """The upstream sent its error as an event: pass it on as it came, or, if nothing went out
        before it, as the real HTTP error it is.

        Raises:
            UpstreamRefused: always.
        """
        # An error may come with all that was said before it, calls included.
        may_pass = not (self._screen.is_keeping or self._call.policy.is_named_in(frame.raw))
        # What is no JSON would break its client's reader before that saw any error.
        is_readable = self._call.dialect.mend_error_body(502, frame.data or b"") is None
        if self._flight.head is not None and may_pass and is_readable:
            self._flight.publish_last(frame.raw)
            self._has_last = True
        self._refused = self._leg.refusal_inside(self._exchange, frame.data or b"")
        if self._refused is not None:
            raise self._refused.error
        provider = self._leg.target.provider
        fault = self._assembler.snapshot().fault or "an event that cannot be read"
        raise UpstreamRefused(f"{provider} sent an error event: {fault}", provider=provider)

    def _check_filter(self, answer: Answer) -> None:
        """Give up an answer that a filter emptied, where another target may do better.

        Raises:
            UpstreamRefused: that.
        """
        may_pass_on = self._services.settings.forward.fallback_on_filter
        if may_pass_on and self._flight.head is None and self._reception.has_others:
            self._refused = self._leg.filtered(answer)
            if self._refused is not None:
                raise self._refused.error

    def _cut(self, error: UpstreamError) -> Failed:
        """The stream ended without an answer: say so to whoever has seen its beginning."""
        failed = self._refused if self._refused is not None else self._leg.failed(error)
        is_seen = self._flight.head is not None
        if is_seen and not self._has_last:
            self._publish_own(failed.error)
        excerpt = b"".join(self._content) or failed.excerpt
        return replace(failed, excerpt=excerpt, is_out=is_seen or self._is_committed)

    def _publish_own(self, error: AgentStateError) -> None:
        """Hand out an error of ours as the last event."""
        shown = b"".join(self._content)[: self._shown_bytes]  # not what the screen keeps
        self._flight.publish_last(error_event_after(self._call.dialect, error, shown))

    def _let_end(self) -> None:
        """Give the exchange a moment to end by itself, in the background: then it can be kept."""
        self._reception.is_kept = True
        self._services.tasks.start(_end_exchange(self._exchange, self._chunks), "end of exchange")

    def _take_live(self, frames: list[tuple[bytes, bytes]]) -> None:
        """Keep live frames for the record and hand out what the screen lets go."""
        if not frames:
            return
        piece = b"".join(frame for frame, _ in frames)
        self._check_size(self._tape.bytes_taken + len(piece))
        self._content.append(piece)
        free = b"".join(each for _, each in frames)
        if free and self._withholds:
            self._withheld.append(free)
        elif free:
            self._publish(piece if free == piece else free)
        self._flight.keep(self._screen.is_keeping)
        self._tape.take(piece, self._since_open_s())

    def _publish(self, piece: bytes) -> None:
        if self._flight.head is None:
            self._opened_s = monotonic_s()
            self._recording.upstream_s = self._recording.since_first_s()
            self._flight.open(Head(self._exchange.status, self._headers))
        for each in (*self._withheld, piece):
            self._shown_bytes += len(each)
            self._flight.publish(each)
        self._withheld.clear()

    def _since_open_s(self) -> float:
        return monotonic_s() - self._opened_s if self._opened_s else 0.0

    def _check_size(self, size: int) -> None:
        bytes_max = self._services.settings.stream.answer_bytes_max
        if size > bytes_max:
            raise AnswerTooLong(
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
