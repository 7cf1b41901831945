"""Take one call upstream: look once more, claim, ask, read, checkpoint, release.

Runs in the flight's own task, so nothing here knows whether a client is still there. What the
client gets is only ever handed to the flight after what invariant 1 wants is on the disk: a body
after its commit; a stream's frames live up to the completing one, that one and the rest after their
commit (`stream.py`). Which targets are asked, how often and when is carried out in `tries.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from agentstate.ground import canonical
from agentstate.ground.errors import (
    BadRequest,
    Deleted,
    GateError,
    RolledBack,
    Stopping,
    UpstreamError,
)
from agentstate.ground.records import Claimed, RecordedAnswer
from agentstate.steps import forward
from agentstate.steps.call import Call
from agentstate.steps.flight import Flight, Landing
from agentstate.steps.identify import Sought
from agentstate.steps.ladder import Aloft, Hit, Sky
from agentstate.steps.leg import Failed
from agentstate.steps.misses import Miss
from agentstate.steps.offline import Unanswered
from agentstate.steps.outcome import refusal_of
from agentstate.steps.outgoing import outgoing
from agentstate.steps.recording import Recording, Services
from agentstate.steps.reply import tell_tried, with_tried
from agentstate.steps.stream import StreamReader
from agentstate.steps.tries import AllFailed, Reception, Tries

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
        self.tries = Tries(services.road, call.targets, call.headers, call.skipped)
        self._recording = Recording(services, call, self.tries)
        self._is_claiming = False
        self._is_stopped = False

    @property
    def claimed(self) -> Claimed | None:
        """The row of this call; None until it has one."""
        return self._recording.claimed

    @property
    def upstream_s(self) -> float:
        """Time spent waiting for upstreams until the head was released."""
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
        self._call = slim
        self._recording.forget(slim)
        self.tries.forget()
        self.entered.set()
        if (claimed := self._recording.claimed) is not None:
            self._services.ladder.note_landed(claimed.step_id)

    async def run(self) -> Landing:
        """Go upstream and return how it ended.

        Raises:
            GateError: its session has come to a cap, and is refused or was.
            StoreError: the claim, or a question about the answer, could not be written.
        """
        services, call, sought = self._services, self._call, self._call.sought()
        match await services.ladder.climb(sought, self._sky):
            case Hit() as hit:
                return Landing(hit=hit)
            case Aloft(airborne):
                return Landing(elsewhere=airborne)
        if services.offline is not None:
            match await services.offline.answer(sought, self._sky):
                case Hit() as hit:
                    return Landing(hit=hit)
                case Unanswered(near, error):
                    self.miss = near
                    return Landing(error=error)
        reached = await services.budgets.check(call.caller)
        self.tries.warm()
        try:
            await self._claim(sought)
            if reached is not None:
                self._flight.keep(True)
                await services.budgets.ask(call.caller, reached, self._step_id)
                self._flight.keep(False)
            await self._pass_first_post()
            out = await outgoing(services, call, self._step_id)
            services.crash("sent")
            outcome = await self.tries.run(out, self._receive)
            if isinstance(outcome, AllFailed):
                return await self._give_up(outcome)
            return outcome.value
        except (BadRequest, Deleted, GateError, RolledBack, Stopping) as error:
            await self._recording.fail(error)
            return self._recording.landing(error=error)
        except asyncio.CancelledError as stop:
            # At the end of the process the claim stays open: at the next start it is what it is,
            # interrupted.
            if stop.args != (DESERTED,):
                self._recording.is_noted = True
            elif not self._recording.is_noted:
                await self._recording.fail(
                    UpstreamError("The client left, and the call was not waited for.")
                )
            raise
        finally:
            await self._recording.close()

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
    def _may_pass_on(self) -> bool:
        return self._services.settings.forward.fallback_on_filter

    @property
    def _step_id(self) -> int | None:
        claimed = self._recording.claimed
        return None if claimed is None else claimed.step_id

    async def _pass_first_post(self) -> None:
        """Wait where a person must decide before the request costs anything.

        Raises:
            GateError: it was refused, or nobody decided in time.
            StoreError: the question cannot be written.
        """
        gate, call = self._services.gate, self._call
        if self._step_id is None:
            gate.refuse_unrecorded(call)
            return
        hold = await gate.ask_first(call, self._step_id)
        if hold is None:
            return
        self._flight.keep(True)
        approvals = await gate.decided(hold, call.caller)
        if (error := refusal_of(approvals)) is not None:
            raise error
        self._flight.keep(False)
        self._recording.approval_id = hold.approval_id

    async def _receive(self, reception: Reception) -> Landing | Failed:
        self._recording.upstream_s = self._recording.since_first_s()
        self._services.crash("head")
        if forward.is_stream(reception.exchange):
            return await StreamReader(
                self._services, self._call, self._flight, self._recording, reception
            ).run()
        return await self._receive_body(reception)

    async def _receive_body(self, reception: Reception) -> Landing | Failed:
        recording, leg, exchange = self._recording, reception.leg, reception.exchange
        raw = await exchange.read(self._services.settings.stream.answer_bytes_max)
        recording.upstream_s = recording.since_first_s()
        if len(raw) > canonical.OFF_LOOP_BYTES:
            body, answer, failed = await asyncio.to_thread(leg.read, exchange, raw)
        else:
            body, answer, failed = leg.read(exchange, raw)
        if failed is None and self._may_pass_on and reception.has_others:
            failed = leg.filtered(answer)
        if failed is not None:
            return failed
        recorded = RecordedAnswer(exchange.status, leg.headers(exchange), "body", body)
        await recording.commit(recorded, answer, None)
        hold = await recording.examine(answer)
        return recording.landing(answer=recorded, read=answer, hold=hold)

    async def _give_up(self, outcome: AllFailed) -> Landing:
        """Nothing is left to try: write it, and return what the client gets."""
        self._recording.upstream_s = self._recording.since_first_s()
        await self._recording.fail(outcome.first.error, outcome)
        failed, tried = outcome.first, outcome.tried
        if failed.refusal is not None:
            # An agent has to know that it must shorten, whoever's words it gets.
            is_too_long = failed.failure.kind == "context"
            code = "context_length_exceeded" if is_too_long else None
            refusal = with_tried(failed.refusal, tried, code)
            landing = self._recording.landing(refusal=refusal, tried=tried)
        else:
            tell_tried(failed.error, tried)
            landing = self._recording.landing(error=failed.error, tried=tried)
        target = outcome.target
        return replace(
            landing, provider=target.provider, model=target.model, fallback_index=outcome.index
        )
