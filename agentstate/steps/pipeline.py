"""The life of a call, in order. Owns the branching; the leaves are the modules beside it.

    identify → on record? replay → in the air? join → claim → forward → checkpoint → release

Theory of operation. A call that names a session is known by (session, fingerprint, place). Between
"is it in the air?" and "now it is" nothing waits, so two identical calls can never both go
upstream: the first registers a flight, and only *then* looks into the record; whoever comes later
joins it. If the record had the answer after all, the flight lands `is_on_record` and all look
there. The flight runs as a task of its own, so a client that leaves does not stop it.

Invariants kept here: one call one bill (2); the others in `upstream.py`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from agentstate.dialects.base import Ask, Dialect
from agentstate.ground import canonical
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import AgentStateError, UpstreamTimeout
from agentstate.ground.records import Identity, ReplayNote, RequestRecord
from agentstate.steps.drift import mask_for
from agentstate.steps.flight import Flight, Follower, Landing
from agentstate.steps.identify import Caller, Scope, identify, raw_key, read_caller, read_scope
from agentstate.steps.ladder import Hit, Miss
from agentstate.steps.pace import at_recorded_speed
from agentstate.steps.recording import Call, Services
from agentstate.steps.reply import (
    answer_response,
    error_response,
    marks,
    refusal_response,
    stream_headers,
)
from agentstate.steps.target import Targets
from agentstate.steps.upstream import DESERTED, UpstreamCall
from agentstate.wire.coding import decode_request_body
from agentstate.wire.message import Request, Response

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """How a call came in: what its URL said."""

    dialect: Dialect
    path: str  # below the base, e.g. /v1/chat/completions
    query: str
    url_session: str | None = None  # None = not named in the URL
    url_provider: str | None = None


class Pipeline:
    """Takes calls that name a session through their life."""

    def __init__(self, services: Services, targets: Targets) -> None:
        self._services = services
        self._settings = services.settings
        self._store = services.store
        self._targets = targets
        self._mask_patterns = tuple(re.compile(each) for each in services.settings.replay.mask)
        # (session, fingerprint) → what is in the air; several where steps or runs differ.
        self._airborne: dict[tuple[str, bytes], list[_Airborne]] = {}

    @property
    def in_flight_count(self) -> int:
        """How many calls are in the air."""
        return sum(len(flights) for flights in self._airborne.values())

    def read_caller(self, request: Request, entry: Entry) -> Caller | None:
        """Read who calls; None = no session is named. Raises `BadRequest`."""
        return read_caller(request.headers, entry.url_session, self._settings.replay)

    async def answer(self, request: Request, entry: Entry, caller: Caller) -> Response:
        """Answer a call that names a session: from the record, by joining, or from upstream.

        Errors that are meant come back rendered in the caller's dialect.
        """
        try:
            return await self._answer(request, entry, caller)
        except AgentStateError as error:
            own = marks(session=caller.session, overhead_s=monotonic_s() - request.started_s)
            return error_response(entry.dialect, error, own)

    async def _answer(self, request: Request, entry: Entry, caller: Caller) -> Response:
        raw = await request.body(self._settings.server.body_max_mb * MIB)
        scope = read_scope(entry.dialect, entry.path, entry.url_provider, request.headers)
        if caller.replay in ("pinned", "exact"):
            response = await self._replay_raw(request, entry, caller, scope, raw)
            if response is not None:
                return response

        call = await self._read_call(request, entry, caller, scope, raw)
        airborne = self._joinable(call)
        leads = airborne is None
        if airborne is None:
            airborne = self._launch(call)
        while True:
            delivered = await self._deliver(airborne, call, request, leads=leads)
            match delivered:
                case Response():
                    return delivered
                case Hit():
                    return await self._replay(request, entry, caller, delivered, call)
                case _Airborne():
                    airborne, leads = delivered, False

    async def _read_call(
        self, request: Request, entry: Entry, caller: Caller, scope: Scope, raw: bytes
    ) -> Call:
        coding = request.headers.text(b"content-encoding")
        body_max = self._settings.server.body_max_mb * MIB

        mask = mask_for(now_ms(), masks_ids=caller.run_id is not None, patterns=self._mask_patterns)

        def read() -> tuple[Ask, Identity, RequestRecord]:
            body = canonical.parse(decode_request_body(raw, coding, body_max))
            ask = entry.dialect.read_ask(body)
            return ask, *identify(entry.dialect, scope, raw, ask, mask)

        is_large = len(raw) > canonical.OFF_LOOP_BYTES or coding is not None
        ask, identity, record = await asyncio.to_thread(read) if is_large else read()
        return Call(
            dialect=entry.dialect,
            path=entry.path,
            query=entry.query,
            headers=request.headers,
            started_s=request.started_s,
            caller=caller,
            ask=ask,
            raw=raw,
            identity=identity,
            record=record,
            target=self._targets.choose(
                entry.dialect.provider, entry.url_provider, ask.model, request.headers
            ),
        )

    # --- replay -----------------------------------------------------------------------------

    async def _replay_raw(
        self, request: Request, entry: Entry, caller: Caller, scope: Scope, raw: bytes
    ) -> Response | None:
        """Answer a body whose exact bytes are on record, without parsing it."""
        key = raw_key(scope, raw)
        candidates = await self._store.find_candidates(caller.session, "raw", key)
        if not candidates:
            return None
        # Equal bytes name an equal model, so the target can be chosen without reading them.
        target = self._targets.choose(
            entry.dialect.provider, entry.url_provider, candidates[0].model, request.headers
        )
        hit = await self._services.ladder.climb_raw(caller, candidates, goes_to_mock=target.is_mock)
        if hit is None:
            return None
        return await self._replay(request, entry, caller, hit, None, candidates[0].streams)

    async def _replay(
        self,
        request: Request,
        entry: Entry,
        caller: Caller,
        hit: Hit,
        call: Call | None,
        wants_stream: bool = False,
    ) -> Response:
        """Answer from the record. `call` None: its body was not read; `wants_stream` tells."""
        found = hit.candidate
        answer = await self._store.read_answer(found.step_id)
        assert answer is not None, "a complete step has an answer"
        exact = found.identity.exact if call is None else call.identity.exact
        await self._services.ladder.settle(caller, hit, exact)
        own = marks(
            session=caller.session,
            step_number=found.step_number,
            hit=hit.rung,
            provider=found.provider or "",
            model=found.model,
            attempts=0,
            cost_microusd=0,
            overhead_s=monotonic_s() - request.started_s,
        )
        response = answer_response(
            entry.dialect,
            answer,
            own,
            wants_stream=wants_stream if call is None else call.ask.streams,
            wants_usage=call is not None and call.ask.wants_usage,
        )
        self._watch_delivery(request, caller, found.step_id)
        if self._settings.replay.speed == "recorded" and answer.pace:
            response = at_recorded_speed(response, answer)
        return response

    def _watch_delivery(self, request: Request, caller: Caller, step_id: int) -> None:
        """Note that an answer which is ready was delivered, unless the client has left already."""
        if caller.run_id is not None and not request.is_gone():
            self._services.ladder.note_delivered(caller, step_id)

    # --- flights ----------------------------------------------------------------------------

    def _joinable(self, call: Call) -> _Airborne | None:
        """Return this very call if it is in the air, or None (DESIGN section 5, the same call)."""
        mine = call.caller
        for airborne in self._airborne.get(_air_key(call), ()):
            theirs = airborne.call.caller
            has_equal_id = mine.call_id is not None and mine.call_id == theirs.call_id
            if mine.replay in ("refresh", "off"):
                if has_equal_id:
                    return airborne
            elif mine.run_id is not None:
                # Under a run id another call id is another occurrence.
                if theirs.run_id == mine.run_id and (has_equal_id or mine.call_id is None):
                    return airborne
            elif theirs.step_number == mine.step_number or mine.step_number is None:
                return airborne
        return None

    def _elsewhere(self, airborne: _Airborne) -> _Airborne | None:
        """Return a call that an earlier run left in the air and this run has not joined, or None.

        The earlier run is likely dead; its call is being finished for whoever asks next.
        """
        mine = airborne.call.caller
        if mine.run_id is None or mine.replay in ("refresh", "off"):
            return None
        for other in self._airborne.get(_air_key(airborne.call), ()):
            theirs = other.call.caller.run_id
            if theirs not in (None, mine.run_id) and mine.run_id not in other.runs_joined:
                other.runs_joined.add(mine.run_id)
                return other
        return None

    def _launch(self, call: Call) -> _Airborne:
        """Register the call as in the air and send it on its way, in one step."""
        flight = Flight(self._settings.stream.spool_bytes_max)
        airborne = _Airborne(call, flight)
        airborne.upstream = UpstreamCall(
            self._services, call, flight, lambda: self._elsewhere(airborne)
        )
        self._airborne.setdefault(_air_key(call), []).append(airborne)
        task = self._services.tasks.start(self._fly(airborne), "flight")
        leaves_at_once = call.caller.cancels_on_disconnect
        patience_s = 0.0 if leaves_at_once else self._settings.forward.detached_timeout_s
        flight.on_desert = _Patience(task, patience_s)
        return airborne

    async def _fly(self, airborne: _Airborne) -> None:
        """Take one call upstream and land its flight, whatever happens."""
        landing = Landing(error=AgentStateError("The proxy failed on this call; see its log."))
        try:
            landing = await airborne.upstream.run()
        except AgentStateError as error:
            landing = Landing(error=error)
        except asyncio.CancelledError:
            landing = Landing(
                error=UpstreamTimeout(
                    "The call was stopped: its client had left, or the proxy is shutting down.",
                    limit="detached",
                )
            )
            raise
        finally:
            key = _air_key(airborne.call)
            flights = self._airborne[key]
            flights.remove(airborne)
            if not flights:
                del self._airborne[key]
            airborne.flight.land(landing)

    async def _deliver(
        self, airborne: _Airborne, call: Call, request: Request, *, leads: bool
    ) -> Response | Hit | _Airborne:
        """Answer one client from a flight; or say where the answer is instead: on record, or in
        the air for another run."""
        flight = airborne.flight
        follower: Follower | None = flight.attach()
        assert follower is not None
        request.on_gone(follower.leave)
        try:
            if not call.ask.streams:
                await flight.landed()
            else:
                await flight.started()
                if flight.head is not None:
                    await self._note_joined(airborne, call, leads=leads)
                    response = self._stream_response(airborne, call, follower, leads=leads)
                    follower = None  # it leaves when the response ends
                    return response
        finally:
            if follower is not None:
                follower.leave()
        landing = flight.landing
        assert landing is not None, "waited for it"
        if landing.hit is not None:
            return landing.hit
        if isinstance(landing.elsewhere, _Airborne):
            return landing.elsewhere
        await self._note_joined(airborne, call, leads=leads)
        if landing.answer is not None and landing.step_id is not None:
            self._watch_delivery(request, call.caller, landing.step_id)
        return _landed_response(landing, call, airborne.upstream.miss, leads=leads)

    async def _note_joined(self, airborne: _Airborne, call: Call, *, leads: bool) -> None:
        """Count a joined call as a saving, and for its run as served."""
        claimed = airborne.upstream.claimed
        if leads or claimed is None:
            return
        landing = airborne.flight.landing
        self._store.note_replay(
            ReplayNote(
                session=call.caller.session,
                step_id=claimed.step_id,
                replayed_ms=now_ms(),
                mode="joined",
                saved_microusd=(landing.cost_microusd or 0) if landing else 0,
                run_id=call.caller.run_id,
            )
        )
        if call.caller.run_id != airborne.call.caller.run_id:
            await self._services.ladder.record_served(call.caller, claimed.step_id)

    def _stream_response(
        self, airborne: _Airborne, call: Call, follower: Follower, *, leads: bool
    ) -> Response:
        head = airborne.flight.head
        assert head is not None, "a stream that began has a head"
        claimed = airborne.upstream.claimed
        if claimed is not None and call.caller.run_id is not None:
            step_id = claimed.step_id
            follower.on_delivered = lambda: self._services.ladder.note_delivered(
                call.caller, step_id
            )
        own = self._stream_marks(airborne, call, leads=leads)
        return Response(head.status, stream_headers((*head.headers, *own)), follower)

    def _stream_marks(
        self, airborne: _Airborne, call: Call, *, leads: bool
    ) -> list[tuple[bytes, bytes]]:
        claimed = airborne.upstream.claimed
        overhead_s = monotonic_s() - call.started_s - airborne.upstream.upstream_s
        return marks(
            session=call.caller.session,
            step_number=claimed.step_number if claimed else None,
            hit=None if leads else "joined",
            provider=airborne.call.target.provider,
            model=airborne.call.ask.model,
            overhead_s=overhead_s if leads else None,
            miss=_miss_text(airborne.upstream.miss),
        )


class _Patience:
    """Stops a flight that nobody waits for once its time is up."""

    def __init__(self, task: asyncio.Task[None], patience_s: float) -> None:
        self._task = task
        self._patience_s = patience_s
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, is_deserted: bool) -> None:
        """Begin to wait when the last client leaves; stop when one comes back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_deserted and not self._task.done():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience_s, self._task.cancel, DESERTED)


class _Airborne:
    """A call in the air: what was asked, what has arrived, who is at it."""

    upstream: UpstreamCall  # set by who launches it

    def __init__(self, call: Call, flight: Flight) -> None:
        self.call = call
        self.flight = flight
        self.runs_joined: set[str] = set()  # other runs that were given this call


def _air_key(call: Call) -> tuple[str, bytes]:
    return call.caller.session, call.identity.exact


def _miss_text(miss: Miss | None) -> str | None:
    return None if miss is None else miss.as_header()


def _landed_response(landing: Landing, call: Call, miss: Miss | None, *, leads: bool) -> Response:
    overhead_s = monotonic_s() - call.started_s - landing.upstream_s
    own = marks(
        session=call.caller.session,
        step_number=landing.step_number,
        hit=None if leads else "joined",
        provider=landing.provider,
        model=landing.model,
        attempts=landing.attempts,
        cost_microusd=landing.cost_microusd if leads else 0,
        overhead_s=overhead_s if leads else None,
        is_unsaved=landing.is_unsaved,
        miss=_miss_text(miss),
    )
    if landing.answer is not None:
        return answer_response(
            call.dialect,
            landing.answer,
            own,
            wants_stream=call.ask.streams,
            wants_usage=call.ask.wants_usage,
        )
    if landing.refusal is not None:
        return refusal_response(landing.refusal, own)
    assert landing.error is not None, "a landing has an outcome"
    return error_response(call.dialect, landing.error, own)
