"""Take one call upstream: look once more, claim, send, read, checkpoint, release.

Runs in the flight's own task, so nothing here knows whether a client is still there. What the
client gets is only ever handed to the flight after what invariant 1 wants is on the disk: a body
after its commit; a stream's frames live up to the completing one, that one and the rest after their
commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NoReturn

from agentstate.dialects.base import Ask, Assembler, Dialect, Mark
from agentstate.ground import canonical
from agentstate.ground.chat import Answer
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import (
    AgentStateError,
    StoreError,
    UpstreamError,
    UpstreamProtocol,
    UpstreamRefused,
)
from agentstate.ground.prices import Prices
from agentstate.ground.records import (
    Attempt,
    Candidate,
    Claim,
    Claimed,
    Identity,
    RecordedAnswer,
    RequestRecord,
    Tail,
)
from agentstate.ground.settings import Settings
from agentstate.ground.tasks import TaskSet
from agentstate.steps import forward
from agentstate.steps.checkpoint import Tape, cost_of, count_usage, make_checkpoint
from agentstate.steps.flight import Flight, Head, Landing
from agentstate.steps.forward import Transports, Try
from agentstate.steps.identify import Caller, last_prompt
from agentstate.steps.replay import choose_exact, reusable_row
from agentstate.steps.target import Target
from agentstate.store.base import Store
from agentstate.wire.message import Exchange, Headers
from agentstate.wire.sse import Frame, SSEDecoder

log = logging.getLogger("agentstate.upstream")

# After `[DONE]` some servers keep the socket open for minutes; a well-behaved one ends within one
# round trip, and then its connection can be used again.
AFTER_DONE_S = 1.0


@dataclass(frozen=True, slots=True)
class Services:
    """What a call needs from the house."""

    store: Store
    transports: Transports
    settings: Settings
    prices: Prices
    tasks: TaskSet
    crash: Callable[[str], None]  # called at each named point where a test may kill the process


@dataclass(frozen=True, slots=True)
class Call:
    """A call that names a session, read and identified."""

    dialect: Dialect
    path: str  # below the base, e.g. /v1/chat/completions
    query: str
    headers: Headers
    started_s: float
    caller: Caller
    ask: Ask
    raw: bytes  # the body as received
    identity: Identity
    record: RequestRecord
    target: Target


class UpstreamCall:
    """One call on its way. `run` once."""

    def __init__(self, services: Services, call: Call, flight: Flight) -> None:
        self._services = services
        self._call = call
        self._flight = flight
        self._claimed: Claimed | None = None  # None = not yet, or the store is down
        self.upstream_s = 0.0  # spent waiting for the upstream until the head was released
        self.keeps_exchange = False  # somebody else closes the exchange

    @property
    def claimed(self) -> Claimed | None:
        """The row of this call; None until it has one."""
        return self._claimed

    async def run(self) -> Landing:
        """Go upstream and return how it ended.

        Raises:
            StoreError: the claim could not be written, and the setting is to refuse.
        """
        services, call = self._services, self._call
        candidates = await services.store.find_candidates(
            call.caller.session, "exact", call.identity.exact
        )
        if call.caller.replay in ("pinned", "exact") and choose_exact(
            candidates, call.caller, {}, goes_to_mock=call.target.is_mock
        ):
            return Landing(is_on_record=True)

        transport = services.transports.of(call.target)
        limits = forward.time_limits(services.settings.forward)
        transport.warm(call.target.origin, limits)
        await self._claim(candidates)
        services.crash("claimed")
        attempt = forward.begin(call.target)
        exchange: Exchange | None = None
        try:
            services.crash("sent")
            out = forward.out_call(
                call.target, call.headers, call.path, call.query, call.raw, call.ask
            )
            exchange = await forward.send(transport, out, limits, attempt)
            services.crash("head")
            return await self._receive(exchange, attempt)
        except UpstreamError as error:
            return await self._fail(forward.name_provider(error, call.target.provider), attempt)
        except asyncio.CancelledError:
            await self.record_failure(
                attempt, UpstreamError("The client left and the call was cancelled.")
            )
            raise
        finally:
            if exchange is not None and not self.keeps_exchange:
                await exchange.close()

    # --- claim ------------------------------------------------------------------------------

    async def _claim(self, candidates: tuple[Candidate, ...]) -> None:
        call = self._call
        row = None if call.caller.replay == "off" else reusable_row(candidates, call.caller, {})
        claim = Claim(
            session=call.caller.session,
            step_number=call.caller.step_number,
            run_id=call.caller.run_id,
            call_id=call.caller.call_id,
            occurrence=0,
            dialect=call.dialect.name,
            path=call.path,
            model=call.ask.model,
            streams=call.ask.streams,
            identity=call.identity,
            request=call.record,
            created_ms=now_ms(),
            prompt=last_prompt(call.ask.messages),
            is_mock=call.target.is_mock,
            step_id=row,
        )
        try:
            self._claimed = await self._services.store.claim_step(claim)
        except StoreError as error:
            if self._services.settings.store.on_failure == "refuse":
                raise
            log.error("the call goes on unrecorded: %s", error.message)

    # --- receive ----------------------------------------------------------------------------

    async def _receive(self, exchange: Exchange, attempt: Try) -> Landing:
        if not 200 <= exchange.status < 300:
            refusal, error, raw = await forward.read_refusal(self._call.dialect, exchange, attempt)
            await self.record_failure(attempt, error, raw)
            return self.landing(refusal=refusal)
        content_type = (exchange.headers.get(b"content-type") or b"").lower()
        if content_type.startswith(b"text/event-stream"):
            return await _Stream(self, exchange, attempt).run()
        return await self._receive_body(exchange, attempt)

    async def _receive_body(self, exchange: Exchange, attempt: Try) -> Landing:
        call = self._call
        raw = await exchange.read(self._services.settings.stream.answer_bytes_max)
        self.upstream_s = monotonic_s() - attempt.started_s
        read = call.dialect.read_answer
        answer = await asyncio.to_thread(read, raw) if _is_large(raw) else read(raw)
        if (error := forward.judge(answer, call.target.provider, is_stream=False)) is not None:
            return await self._fail(error, attempt, raw)
        headers = forward.answer_headers(exchange, call.target)
        recorded = RecordedAnswer(exchange.status, headers, "body", raw)
        is_saved = await self.commit(recorded, answer, attempt, None)
        usage, is_estimate = count_usage(answer, call.ask)
        return self.landing(
            answer=recorded,
            model=answer.model or call.ask.model,
            is_unsaved=not is_saved,
            cost_microusd=cost_of(
                self._services.prices,
                call.target.provider,
                answer.model or call.ask.model,
                usage,
                is_estimate=is_estimate,
            ),
        )

    # --- write ------------------------------------------------------------------------------

    async def commit(
        self,
        recorded: RecordedAnswer,
        answer: Answer,
        attempt: Try,
        first_content_ms: int | None,
    ) -> bool:
        """Write the answer and wait for the disk; False if it could not be saved.

        After an answer came it is delivered even if the disk failed: it is paid for. That is the
        one exception to "written before released", and it is loud.
        """
        services, call = self._services, self._call
        services.crash("before_commit")
        if self._claimed is None:
            return False
        checkpoint = make_checkpoint(
            step_id=self._claimed.step_id,
            now_ms=now_ms(),
            ask=call.ask,
            attempts=(attempt.ended(),),
            answer=answer,
            recorded=recorded,
            provider=call.target.provider,
            prices=services.prices,
            latency_ms=self.since_start_ms(),
            first_content_ms=first_content_ms,
        )
        try:
            await services.store.record_answer(checkpoint)
        except StoreError as error:
            log.error(
                "session %r: an answer could not be saved and is delivered once: %s",
                call.caller.session,
                error.message,
            )
            return False
        services.crash("after_commit")
        return True

    async def _fail(self, error: UpstreamError, attempt: Try, excerpt: bytes = b"") -> Landing:
        await self.record_failure(attempt, error, excerpt)
        return self.landing(error=error)

    async def record_failure(
        self, attempt: Try, error: AgentStateError, excerpt: bytes = b""
    ) -> None:
        if self._claimed is None:
            return
        attempts: tuple[Attempt, ...] = (attempt.ended(error, excerpt),)
        try:
            await self._services.store.record_failure(
                self._claimed.step_id, attempts, failed_ms=now_ms()
            )
        except StoreError as failure:
            # Nothing is lost by it: an open claim is marked interrupted at the next start.
            log.error("a failed call could not be noted: %s", failure.message)

    def landing(
        self,
        *,
        answer: RecordedAnswer | None = None,
        refusal: RecordedAnswer | None = None,
        error: AgentStateError | None = None,
        model: str = "",
        cost_microusd: int | None = None,
        is_unsaved: bool = False,
    ) -> Landing:
        return Landing(
            answer=answer,
            refusal=refusal,
            error=error,
            is_unsaved=is_unsaved,
            step_number=self._claimed.step_number if self._claimed else None,
            provider=self._call.target.provider,
            model=model or self._call.ask.model,
            attempts=1,
            cost_microusd=cost_microusd,
            upstream_s=self.upstream_s,
        )

    def since_start_ms(self) -> int:
        return int((monotonic_s() - self._call.started_s) * 1000)


class _Stream:
    """Reads one upstream stream: releases live frames, commits at the completing one.

    States: live → committed → sealed. Frames before the completing one go out as they come; the
    completing one, and what came in the same read after it, go out once they are on the disk; the
    tail goes out once it was appended. The head goes out with the first frame that is no error, so
    that an error in the first frame is still a real HTTP error.
    """

    def __init__(self, owner: UpstreamCall, exchange: Exchange, attempt: Try) -> None:
        self._owner = owner
        self._services = owner._services
        self._call = owner._call
        self._flight = owner._flight
        self._exchange = exchange
        self._attempt = attempt
        self._chunks = exchange.chunks()
        self._assembler: Assembler = self._call.dialect.assembler(self._call.ask.choices)
        self._tape = Tape()
        self._headers = forward.answer_headers(exchange, self._call.target)
        self._opened_s = 0.0  # when the head was released
        self._first_content_ms: int | None = None
        self._is_committed = False
        self._is_saved = False
        self._is_error_out = False  # the upstream's own error event was passed on

    async def run(self) -> Landing:
        """Read to the end and return how it ended."""
        decoder = SSEDecoder()
        is_done = False
        try:
            async for chunk in self._chunks:
                is_done = await self._take(decoder.feed(chunk))
                if is_done:
                    break
                await self._flight.room()
            if not is_done:
                await self._end(decoder.finish())
        except UpstreamError as error:
            return await self._cut(forward.name_provider(error, self._call.target.provider))
        if is_done:
            self._settle()
        return self._owner.landing(
            answer=RecordedAnswer(
                self._exchange.status, self._headers, "events", self._flight.content()
            ),
            model=self._assembler.snapshot().model or "",
            is_unsaved=not self._is_saved,
        )

    async def _take(self, frames: list[Frame]) -> bool:
        """Take in the frames of one read; True = the stream's own end was among them."""
        live: list[bytes] = []  # may go out at once
        held: list[bytes] = []  # waits for the disk
        holds = self._is_committed
        is_done = False
        for frame in frames:
            mark = self._assembler.feed(frame)
            if mark is Mark.ERROR:
                self._refuse(frame, b"".join(live))
            if mark in (Mark.CONTENT, Mark.TOOL) and self._first_content_ms is None:
                self._first_content_ms = self._owner.since_start_ms()
            is_done = mark is Mark.DONE
            holds = holds or is_done or mark is Mark.COMPLETING
            (held if holds else live).append(frame.raw)
            if is_done:
                break
        if live:
            self._release(b"".join(live))
            self._services.crash("first_frame")
        if held:
            await self._write(b"".join(held), is_done=is_done)
        return is_done

    async def _end(self, rest: Frame | None) -> None:
        """The body ended as HTTP says it should, without the dialect's own end."""
        if rest is not None:
            self._assembler.feed(rest)
        await self._write(rest.raw if rest else b"", is_done=True)

    async def _write(self, piece: bytes, *, is_done: bool) -> None:
        """Put `piece` on record, committing the answer if that was not done yet, and release it."""
        answer = self._assembler.finish(True) if is_done else self._assembler.snapshot()
        if is_done or not self._is_committed:
            error = forward.judge(answer, self._call.target.provider, is_stream=True)
            if error is not None:
                raise error
        self._check_size(piece)
        self._tape.take(piece, self._since_open_s())
        content, pace = self._tape.cut()
        if self._is_committed:
            await self._append(answer, content, pace, seals=is_done)
        else:
            recorded = RecordedAnswer(
                self._exchange.status, self._headers, "events", content, pace, is_sealed=is_done
            )
            self._is_saved = await self._owner.commit(
                recorded, answer, self._attempt, self._first_content_ms
            )
            self._is_committed = True
        self._services.crash("before_release")
        self._publish(piece)
        self._services.crash("released")

    async def _append(self, answer: Answer, content: bytes, pace: bytes, *, seals: bool) -> None:
        claimed = self._owner.claimed
        if claimed is None or not self._is_saved:
            return
        usage, is_estimate = answer.usage, False
        if usage is None and seals:
            usage, is_estimate = count_usage(answer, self._call.ask)
        cost = cost_of(
            self._services.prices,
            self._call.target.provider,
            answer.model or self._call.ask.model,
            usage,
            is_estimate=is_estimate,
        )
        tail = Tail(claimed.step_id, content, pace, seals, usage, is_estimate, cost)
        self._services.crash("before_tail")
        try:
            await self._services.store.append_tail(tail)
        except StoreError as error:
            # The answer itself is on record; a replay ends the stream by itself.
            log.error("the tail of an answer could not be saved: %s", error.message)
        self._services.crash("after_tail")

    def _refuse(self, frame: Frame, live: bytes) -> NoReturn:
        """The upstream sent its error as an event: pass it on as it came, or as a real HTTP error.

        Raises:
            UpstreamRefused: always.
        """
        fault = self._assembler.snapshot().fault or "an error inside the stream"
        provider = self._call.target.provider
        error = UpstreamRefused(f"{provider} sent an error event: {fault}", provider=provider)
        if live:
            self._release(live)
        if self._flight.head is not None:
            self._publish(frame.raw)
            self._is_error_out = True
        raise error

    async def _cut(self, error: UpstreamError) -> Landing:
        """The stream ended without an answer: say so to whoever has seen its beginning."""
        content, _ = self._tape.cut()
        await self._owner.record_failure(self._attempt, error, content)
        if self._flight.head is not None and not self._is_error_out:
            self._publish(self._call.dialect.error_event(error))
        return self._owner.landing(error=error)

    def _settle(self) -> None:
        """Give the connection a moment to end by itself, in the background, so it can be kept."""
        self._owner.keeps_exchange = True
        self._services.tasks.start(_end_exchange(self._exchange, self._chunks), "end of exchange")

    def _release(self, piece: bytes) -> None:
        """Hand out a live piece and keep it for the record."""
        self._check_size(piece)
        self._publish(piece)
        self._tape.take(piece, self._since_open_s())

    def _publish(self, piece: bytes) -> None:
        if self._flight.head is None:
            self._opened_s = monotonic_s()
            self._owner.upstream_s = self._opened_s - self._attempt.started_s
            self._flight.open(Head(self._exchange.status, self._headers))
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


def _is_large(raw: bytes) -> bool:
    return len(raw) > canonical.OFF_LOOP_BYTES
