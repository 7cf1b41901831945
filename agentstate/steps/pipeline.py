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
from dataclasses import dataclass

from agentstate.dialects.base import Ask, Dialect
from agentstate.ground import canonical
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import AgentStateError, UpstreamTimeout
from agentstate.ground.records import Candidate, Identity, ReplayNote, RequestRecord
from agentstate.steps.flight import Flight, Follower, Landing
from agentstate.steps.identify import Caller, Scope, identify, raw_key, read_caller, read_scope
from agentstate.steps.recording import Call, Services
from agentstate.steps.replay import choose_exact
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
        if _looks(caller):
            response = await self._replay_raw(request, entry, caller, scope, raw)
            if response is not None:
                return response

        call = await self._read_call(request, entry, caller, scope, raw)
        while True:
            airborne = self._joinable(call)
            leads = airborne is None
            if airborne is None:
                airborne = self._launch(call)
            response = await self._deliver(airborne, call, request, leads=leads)
            if response is not None:
                return response
            found = await self._find(call)
            if found is not None:
                return await self._replay(request, entry, caller, found, call.ask)

    async def _read_call(
        self, request: Request, entry: Entry, caller: Caller, scope: Scope, raw: bytes
    ) -> Call:
        coding = request.headers.text(b"content-encoding")
        body_max = self._settings.server.body_max_mb * MIB

        def read() -> tuple[Ask, Identity, RequestRecord]:
            body = canonical.parse(decode_request_body(raw, coding, body_max))
            ask = entry.dialect.read_ask(body)
            return ask, *identify(entry.dialect, scope, raw, ask, _no_mask)

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
        found = choose_exact(candidates, caller, {}, goes_to_mock=target.is_mock)
        if found is None:
            return None
        return await self._replay(request, entry, caller, found, None)

    async def _find(self, call: Call) -> Candidate | None:
        candidates = await self._store.find_candidates(
            call.caller.session, "exact", call.identity.exact
        )
        return choose_exact(candidates, call.caller, {}, goes_to_mock=call.target.is_mock)

    async def _replay(
        self,
        request: Request,
        entry: Entry,
        caller: Caller,
        found: Candidate,
        ask: Ask | None,
    ) -> Response:
        """Answer from the record. `ask` None: the body equals the recorded one, byte for byte."""
        answer = await self._store.read_answer(found.step_id)
        assert answer is not None, "a complete step has an answer"
        self._store.note_replay(
            ReplayNote(
                session=caller.session,
                step_id=found.step_id,
                replayed_ms=now_ms(),
                mode="exact",
                saved_microusd=found.cost_microusd or 0,
                run_id=caller.run_id,
            )
        )
        own = marks(
            session=caller.session,
            step_number=found.step_number,
            hit="exact",
            provider=found.provider or "",
            model=found.model,
            attempts=0,
            cost_microusd=0,
            overhead_s=monotonic_s() - request.started_s,
        )
        return answer_response(
            entry.dialect,
            answer,
            own,
            wants_stream=found.streams if ask is None else ask.streams,
            wants_usage=ask is not None and ask.wants_usage,
        )

    # --- flights ----------------------------------------------------------------------------

    def _joinable(self, call: Call) -> _Airborne | None:
        """Return this very call if it is in the air, or None."""
        if not _looks(call.caller):
            return None
        for airborne in self._airborne.get(_air_key(call), ()):
            if airborne.call.caller.step_number == call.caller.step_number:
                return airborne
        return None

    def _launch(self, call: Call) -> _Airborne:
        """Register the call as in the air and send it on its way, in one step."""
        flight = Flight(self._settings.stream.spool_bytes_max)
        airborne = _Airborne(call, flight, UpstreamCall(self._services, call, flight))
        self._airborne.setdefault(_air_key(call), []).append(airborne)
        task = self._services.tasks.start(self._fly(airborne), "flight")
        flight.on_desert = _Patience(
            task,
            0.0 if call.caller.cancels_on_disconnect else self._settings.forward.detached_timeout_s,
        )
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
    ) -> Response | None:
        """Answer one client from a flight. None = it was on record: look there."""
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
                    own = self._stream_marks(airborne, call, leads=leads)
                    headers = stream_headers((*flight.head.headers, *own))
                    response = Response(flight.head.status, headers, follower)
                    follower = None  # it leaves when the response ends
                    return response
        finally:
            if follower is not None:
                follower.leave()
        assert flight.landing is not None, "waited for it"
        if flight.landing.is_on_record:
            return None
        return _landed_response(flight.landing, call, leads=leads)

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


@dataclass(frozen=True, slots=True, eq=False)
class _Airborne:
    """A call in the air: what was asked, what has arrived, who is at it."""

    call: Call
    flight: Flight
    upstream: UpstreamCall


def _air_key(call: Call) -> tuple[str, bytes]:
    return call.caller.session, call.identity.exact


def _looks(caller: Caller) -> bool:
    return caller.replay in ("pinned", "exact")


def _landed_response(landing: Landing, call: Call, *, leads: bool) -> Response:
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


def _no_mask(text: str) -> str:
    return text
