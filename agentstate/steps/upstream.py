"""Take one call upstream: look once more, claim, send, read, checkpoint, release.

Runs in the flight's own task, so nothing here knows whether a client is still there. What the
client gets is only ever handed to the flight after what invariant 1 wants is on the disk: a body
after its commit; a stream's frames live up to the completing one, that one and the rest after their
commit (`stream.py`).
"""

from __future__ import annotations

import asyncio

from agentstate.ground import canonical
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import GateError, Stopping, UpstreamError
from agentstate.ground.records import Claimed, RecordedAnswer
from agentstate.steps import forward
from agentstate.steps.call import Call
from agentstate.steps.flight import Flight, Landing
from agentstate.steps.forward import Try
from agentstate.steps.identify import Sought
from agentstate.steps.ladder import Aloft, Hit, Sky
from agentstate.steps.misses import Miss
from agentstate.steps.outcome import refusal_of
from agentstate.steps.recording import Recording, Services
from agentstate.steps.stream import StreamReader
from agentstate.wire.message import Exchange

DESERTED = "deserted"  # why a flight is cancelled: nobody waits for it any more


class UpstreamCall:
    """One call on its way. `run` once."""

    def __init__(self, services: Services, call: Call, flight: Flight, sky: Sky) -> None:
        self._services = services
        self._call = call
        self._flight = flight
        self._sky = sky
        self.entered = asyncio.Event()  # set once the call has a row, or will never have one
        self.miss: Miss | None = None  # what the call came near to; None = nothing
        self._recording = Recording(services, call)
        self._stream: StreamReader | None = None
        self._is_claiming = False
        self._is_stopped = False

    @property
    def claimed(self) -> Claimed | None:
        """The row of this call; None until it has one."""
        return self._recording.claimed

    @property
    def upstream_s(self) -> float:
        """Time spent waiting for the upstream until the head was released."""
        return self._recording.upstream_s

    def stop(self, task: asyncio.Task[None]) -> None:
        """Stop the call, which runs as `task`: nobody waits for it.

        Not in the middle of its claim: a row that is written and not known would stay open.
        """
        if self._is_claiming:
            self._is_stopped = True
        else:
            task.cancel(DESERTED)

    def forget(self, slim: Call) -> None:
        """Let go of what refers back here, and of what is large in the call, which is over: `slim`
        is what is kept of it."""
        self._stream = None
        self._call = slim
        self._recording.forget(slim)
        self.entered.set()
        if (claimed := self._recording.claimed) is not None:
            self._services.ladder.note_landed(claimed.step_id)

    async def run(self) -> Landing:
        """Go upstream and return how it ended.

        Raises:
            StoreError: the claim could not be written, and the setting is to refuse.
        """
        services, call, sought = self._services, self._call, self._call.sought()
        match await services.ladder.climb(sought, self._sky):
            case Hit() as hit:
                return Landing(hit=hit)
            case Aloft(airborne):
                return Landing(elsewhere=airborne)
        transport = services.transports.of(call.target)
        limits = forward.time_limits(services.settings.forward)
        transport.warm(call.target.origin, limits)
        attempt = forward.begin(call.target, call.headers)
        exchange: Exchange | None = None
        try:
            await self._claim(sought)
            if await self._pass_first_post():
                attempt = forward.begin(call.target, call.headers)
            spliced = await services.splices.applied(call, self._step_id)
            services.crash("sent")
            out = forward.out_call(
                call.target, call.headers, call.path, call.query, call.raw, call.ask, spliced.body
            )
            attempt.dropped = spliced.missed
            exchange = await forward.send(transport, out, limits, attempt)
            self._recording.upstream_s = monotonic_s() - attempt.started_s
            services.crash("head")
            return await self._receive(exchange, attempt)
        except UpstreamError as error:
            if exchange is None:
                self._recording.upstream_s = monotonic_s() - attempt.started_s
            named = forward.name_provider(error, call.target.provider)
            await self._recording.fail(attempt, named)
            return self._recording.landing(error=named)
        except (GateError, Stopping) as error:
            await self._recording.fail(attempt, error)
            return self._recording.landing(error=error)
        except asyncio.CancelledError as stop:
            # At the end of the process the claim stays open: at the next start it is what it is,
            # interrupted.
            if stop.args != (DESERTED,):
                self._recording.is_noted = True
            elif not self._recording.is_noted:
                left = UpstreamError("The client left, and the call was not waited for.")
                await self._recording.fail(attempt, left)
            raise
        finally:
            await self._recording.close(attempt)
            if exchange is not None and not (self._stream and self._stream.keeps_exchange):
                await exchange.close()

    async def _claim(self, sought: Sought) -> None:
        ladder = self._services.ladder
        row = await ladder.row_to_reuse(sought)
        self._is_claiming = True
        try:
            self.miss = await ladder.misses.explain(sought)
            await self._recording.claim(row, self.miss)
        finally:
            self._is_claiming = False
            ladder.release_row(row)
        self.entered.set()
        if self._is_stopped:
            raise asyncio.CancelledError(DESERTED)
        if (claimed := self._recording.claimed) is not None:
            ladder.misses.remember(sought, claimed.step_id, claimed.step_number)

    @property
    def _step_id(self) -> int | None:
        claimed = self._recording.claimed
        return None if claimed is None else claimed.step_id

    async def _pass_first_post(self) -> bool:
        """Wait where a person must decide before the request costs anything; say whether one had
        to.

        Raises:
            GateError: it was refused, or nobody decided in time.
            StoreError: the question cannot be written.
        """
        gate, call = self._services.gate, self._call
        if self._step_id is None:
            gate.refuse_unrecorded(call)
            return False
        hold = await gate.ask_first(call, self._step_id)
        if hold is None:
            return False
        self._flight.keep(True)
        approvals = await gate.decided(hold, call.caller)
        if (error := refusal_of(approvals)) is not None:
            raise error
        self._flight.keep(False)
        self._recording.approval_id = hold.approval_id
        return True

    async def _receive(self, exchange: Exchange, attempt: Try) -> Landing:
        if not 200 <= exchange.status < 300:
            refusal, error, raw = await forward.read_refusal(self._call.dialect, exchange, attempt)
            await self._recording.fail(attempt, error, raw)
            return self._recording.landing(refusal=refusal)
        if forward.is_stream(exchange):
            self._stream = StreamReader(
                self._services, self._call, self._flight, self._recording, exchange, attempt
            )
            return await self._stream.run()
        return await self._receive_body(exchange, attempt)

    async def _receive_body(self, exchange: Exchange, attempt: Try) -> Landing:
        call, recording = self._call, self._recording
        raw = await exchange.read(self._services.settings.stream.answer_bytes_max)
        recording.upstream_s = monotonic_s() - attempt.started_s
        read = call.dialect.read_answer
        is_large = len(raw) > canonical.OFF_LOOP_BYTES
        answer = await asyncio.to_thread(read, raw) if is_large else read(raw)
        if (error := forward.judge(answer, exchange, call.target.provider)) is not None:
            inside = forward.refusal_inside(call.dialect, exchange, raw, call.target.provider)
            if inside is None:
                await recording.fail(attempt, error, raw)
                return recording.landing(error=error)
            await recording.fail(attempt, inside[1], raw)
            return recording.landing(refusal=inside[0])
        headers = forward.answer_headers(exchange, call.target)
        recorded = RecordedAnswer(exchange.status, headers, "body", raw)
        await recording.commit(recorded, answer, attempt, None)
        hold = await recording.examine(answer)
        return recording.landing(answer=recorded, read=answer, hold=hold)
