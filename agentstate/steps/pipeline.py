"""The life of a call, in order. Owns the branching; the leaves are the modules beside it.

    identify → on record? replay → in the air? join → claim → forward → checkpoint → release

Theory of operation. A call that names a session is known by (session, fingerprint, place). Between
"is it in the air?" and "now it is" nothing waits, so two identical calls can never both go
upstream: the first registers a flight, and only *then* looks into the record; whoever comes later
joins it. If the record had the answer after all, the flight lands with that hit and all replay
it. The flight runs as a task of its own, so a client that leaves does not stop it.

Invariants kept here: one call one bill (2); the others in `upstream.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

from agentstate.dialects.base import Ask
from agentstate.ground import canonical
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import (
    AgentStateError,
    Deleted,
    GateError,
    UpstreamTimeout,
)
from agentstate.ground.records import Identity, RecordedAnswer, RequestRecord
from agentstate.steps.air import Air, Airborne, OwnSky, Patience
from agentstate.steps.call import Call, Entry
from agentstate.steps.control import Control
from agentstate.steps.delivery import Delivery, heartbeat_s, takes_interim
from agentstate.steps.drift import Masker
from agentstate.steps.fetched import Fetched
from agentstate.steps.flight import Flight, Follower, Landing
from agentstate.steps.gate import Hold
from agentstate.steps.holding import Held, Holding, content_of
from agentstate.steps.identify import Caller, Scope, identify, raw_key, read_caller, read_scope
from agentstate.steps.ladder import Hit
from agentstate.steps.landed import landed_response, stream_marks
from agentstate.steps.noting import noted
from agentstate.steps.pace import at_recorded_speed
from agentstate.steps.pauses import HeldCall
from agentstate.steps.recording import Services
from agentstate.steps.replayed import Replayed
from agentstate.steps.reply import (
    EVENTS_TYPE,
    answer_response,
    error_response,
    marks,
    stream_headers,
)
from agentstate.steps.revisions import Revisions
from agentstate.steps.rounds import LetOut, Passed
from agentstate.steps.routing import Targets, inquiry_of
from agentstate.steps.steered import control_of, revisions_of
from agentstate.steps.unrecorded import Unrecorded
from agentstate.steps.upstream import UpstreamCall
from agentstate.wire.coding import decode_request_body
from agentstate.wire.message import Request, Response

log = logging.getLogger("agentstate.pipeline")

MIB = 1024 * 1024
# Parsing and hashing this much, and a first search for clocks in it, takes about a millisecond.
READ_ON_LOOP_BYTES_MAX = 32 * 1024


class Pipeline:
    """Takes calls that name a session through their life."""

    def __init__(self, services: Services, targets: Targets) -> None:
        self._services = services
        self._settings = services.settings
        self._store = services.store
        self._targets = targets
        self._masker = Masker(re.compile(each) for each in services.settings.replay.mask)
        self._holding = Holding(services)
        self.gate = services.gate
        self.fetched = Fetched(services, self._holding)
        self.budgets = services.budgets
        self.offline = services.offline  # what answers for the world; None = the world does
        self._air = Air()

    @property
    def in_flight_count(self) -> int:
        """How many calls are in the air."""
        return self._air.count

    def read_caller(self, request: Request, entry: Entry) -> Caller | None:
        """Read who calls; None = no session is named. Raises `BadRequest`."""
        known = self._services.redactor_of(request.headers)
        return read_caller(request.headers, entry.url_session, self._settings.replay, known)

    async def answer(self, request: Request, entry: Entry, caller: Caller) -> Response | None:
        """Answer a call that names a session: from the record, by joining, or from upstream.

        None: it is none that could be recorded (`Ask.passes_through`); the door passes it on.
        Errors that are meant come back rendered in the caller's dialect.
        """
        try:
            go_on = partial(self._answer, request, entry, caller)
            if await self._services.pauses.is_paused(caller.session):
                read_ask = partial(self._read_ask, request, entry)
                held = HeldCall(request, caller.session, entry.dialect, read_ask, go_on)
                bytes_max = self._settings.server.body_max_mb * MIB
                return await self._services.pauses.answer(held, bytes_max)
            return await go_on()
        except AgentStateError as error:
            own = marks(
                session=caller.session,
                overhead_s=monotonic_s() - request.started_s,
                approval_id=error.approval_id if isinstance(error, GateError) else None,
            )
            return error_response(entry.dialect, error, own)

    async def answer_unrecorded(
        self, request: Request, entry: Entry, raw: bytes, ask: Ask
    ) -> Response | None:
        """Answer a call that names no session; None: it can be passed on as it is, since one target
        alone is to be asked, in the caller's own form.

        Raises:
            BadRequest: it cannot be sent anywhere.
        """
        chain = self._targets.chain(inquiry_of(request, entry, ask.model))
        targets = chain.targets
        if len(targets) == 1 and not targets[0].dialect:
            return None
        bytes_max = self._settings.stream.answer_bytes_max
        road = self._services.road
        return await Unrecorded(road, bytes_max, request, entry, ask, raw, chain).answer()

    def control(self) -> Control:
        """Return what people do to runs; this pipeline is told of it."""
        return control_of(self._services, self._air)

    def revisions(self) -> Revisions:
        """Return what people do to answers; this pipeline is told of it."""
        return revisions_of(self._services, self._air, self._targets)

    async def _answer(self, request: Request, entry: Entry, caller: Caller) -> Response | None:
        raw = await request.body(self._settings.server.body_max_mb * MIB)
        scope = read_scope(
            entry.dialect, entry.path, entry.query, entry.url_provider, request.headers
        )
        if caller.replay in ("pinned", "exact"):
            answered = await self._replay_raw(request, entry, caller, scope, raw)
            if isinstance(answered, Held):
                del raw
                return await self._holding.deliver(request, answered)
            if answered is not None:
                return answered

        call = await self._read_call(request, entry, caller, scope, raw)
        if call.ask.passes_through:
            self.fetched.check_background(call)
            return None
        airborne = self._air.joinable(call)
        leads = airborne is None
        if airborne is None:
            airborne = self._launch(call)
        while True:
            delivered = await self._deliver(airborne, call, request, leads=leads)
            match delivered:
                case Response():
                    return delivered
                case Held():
                    break
                case Hit() if caller.replay == "exact" and delivered.rung != "exact":
                    # The call it joined was content with less.
                    airborne, leads = self._launch(call), True
                case Hit():
                    hit = delivered
                    replayed = await self._replay(request, entry, caller, scope, hit, call, raw)
                    if isinstance(replayed, Response):
                        return replayed
                    delivered = replayed
                    break
                case Airborne():
                    airborne, leads = delivered, False
        # While a person thinks, nothing of the request is kept that is on record.
        del raw, call, airborne
        return await self._holding.deliver(request, delivered)

    async def _read_call(
        self, request: Request, entry: Entry, caller: Caller, scope: Scope, raw: bytes
    ) -> Call:
        # When it came, not when it is claimed: its agent may be dead by then, and back.
        arrived_ms = self._services.ladder.moment(caller.session)
        coding = request.headers.text(b"content-encoding")
        mask = self._masker.mask_for(now_ms(), masks_ids=caller.run_id is not None)
        policy = self.gate.policy

        def read() -> tuple[Ask, Identity, RequestRecord, bool]:
            plain = self._decode(request, raw)
            ask = entry.dialect.read_ask(canonical.parse(plain))
            found = identify(entry.dialect, scope, raw, ask, mask)
            return ask, *found, policy.is_named_in(plain)

        is_slow = len(raw) > READ_ON_LOOP_BYTES_MAX or coding is not None
        ask, identity, record, is_named = await asyncio.to_thread(read) if is_slow else read()
        chain = self._targets.chain(inquiry_of(request, entry, ask.model))
        return Call(
            dialect=entry.dialect,
            path=entry.path,
            query=entry.query,
            headers=request.headers,
            started_s=request.started_s,
            arrived_ms=arrived_ms,
            caller=caller,
            ask=ask,
            raw=raw,
            identity=identity,
            record=record,
            targets=chain.targets,
            skipped=chain.skipped,
            names_guarded=is_named,
            redactor=self._services.redactor_of(request.headers),
            policy=policy,
        )

    def _read_ask(self, request: Request, entry: Entry, raw: bytes) -> Ask:
        """Read a body. Raises `BadRequest` and what `decode_request_body` does."""
        return entry.dialect.read_ask(canonical.parse(self._decode(request, raw)))

    def _decode(self, request: Request, raw: bytes) -> bytes:
        coding = request.headers.text(b"content-encoding")
        return decode_request_body(raw, coding, self._settings.server.body_max_mb * MIB)

    # --- replay -----------------------------------------------------------------------------

    async def _replay_raw(
        self, request: Request, entry: Entry, caller: Caller, scope: Scope, raw: bytes
    ) -> Response | Held | None:
        """Answer a body whose exact bytes are on record, without parsing it."""
        key = raw_key(scope, raw)
        candidates = await self._store.find_candidates(caller.session, "raw", key)
        if not candidates:
            return None
        if self._air.has(caller.session, candidates[0].identity.exact):
            return None  # it is in the air: to be joined, or to be told apart from
        # Equal bytes name an equal model, so the target can be chosen without reading them.
        target = self._targets.choose(inquiry_of(request, entry, candidates[0].model))
        hit = await self._services.ladder.climb_raw(
            caller, candidates, goes_to_mock=target.is_mock, is_awaited=not request.is_gone()
        )
        if hit is None:
            return None
        return await self._replay(
            request, entry, caller, scope, hit, None, raw, wants_stream=candidates[0].streams
        )

    async def _replay(
        self,
        request: Request,
        entry: Entry,
        caller: Caller,
        scope: Scope,
        hit: Hit,
        call: Call | None,
        raw: bytes,
        *,
        wants_stream: bool = False,
    ) -> Response | Held:
        """Answer from the record. `call` None: `raw` was not read; `wants_stream` tells."""
        found, ladder = hit.candidate, self._services.ladder
        # By its id: another one may stand by now, at which the gate has not looked.
        answer = await self._store.read_answer_by_id(found.answer_id or 0)
        if answer is None:  # found, and then deleted
            raise Deleted.of(caller.session)
        await self._services.abouts.take_in(caller)
        alias = None if call is None or hit.rung == "exact" else call.identity.exact
        try:
            await self._keep(caller.session, ladder.settle(caller, found.step_id, alias))
        finally:
            if alias is not None:
                ladder.conclude(caller, hit, is_given=not request.is_gone())
        if caller.run_id is None and found.calls_tools:
            # That it was replayed is what forgives the tool a new result, so it has to survive a
            # kill of the process.
            await self._keep(caller.session, self._store.keep_replays())
        hold: Hold | None = None
        if self._holding.is_needed(found):
            call = call or await self._read_call(request, entry, caller, scope, raw)
            hold = await self._holding.examine(call, found, answer, is_own=hit.rung == "exact")
        wants_usage = call is not None and call.ask.wants_usage
        if call is not None:
            wants_stream = call.ask.streams
        elif wants_stream and answer.form == "body":
            # Rare: a stream that was answered whole. What it asked for is in the body alone.
            wants_usage = self._read_ask(request, entry, raw).wants_usage

        replayed = Replayed(entry.dialect, caller.session, hit, hold, wants_stream, wants_usage)
        render = partial(replayed.response, request.started_s, monotonic_s())
        if hold is not None:
            assert call is not None, "it was read to be examined"
            return Held(call.slim(), hold, answer, found.step_id, render)
        response = render(answer)
        self._watch_delivery(request, caller, found.step_id)
        if self._settings.replay.speed == "recorded" and answer.pace:
            response = at_recorded_speed(response, answer)
        return response

    async def _keep(self, session: str, writing: Awaitable[None]) -> None:
        """Write what a replay changes; where the disk is to hinder nothing, go on without.

        Raises:
            Deleted: the session is gone.
        """
        await noted(session, writing, must=self._settings.store.on_failure == "refuse")

    def _watch_delivery(self, request: Request, caller: Caller, step_id: int) -> None:
        """Note that an answer which is ready was delivered, unless the client has left already."""
        if caller.run_id is not None and not request.is_gone():
            self._services.ladder.note_delivered(caller, step_id)

    # --- flights ----------------------------------------------------------------------------

    def _launch(self, call: Call) -> Airborne:
        """Register the call as in the air and send it on its way, in one step."""
        flight = Flight(self._settings.stream.spool_bytes_max)
        airborne = Airborne(call, flight)
        sky = OwnSky(self._air, call, flight)
        airborne.upstream = UpstreamCall(self._services, call, flight, sky)
        self._air.add(airborne)
        task = self._services.tasks.start(self._fly(airborne), "flight")
        airborne.patience = Patience(lambda: self._give_up(airborne, task))
        flight.on_desert = airborne.patience
        return airborne

    def _give_up(self, airborne: Airborne, task: asyncio.Task[None]) -> None:
        """Stop a call that nobody waits for."""
        if not task.done():
            self._air.ground(airborne)
            airborne.upstream.stop(task)

    async def _fly(self, airborne: Airborne) -> None:
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
            self._air.ground(airborne)
            if landing.answer is not None and landing.step_id is not None:
                self._promise_step(airborne, landing.step_id)
            airborne.flight.land(landing)
            airborne.forget()

    def _promise_step(self, airborne: Airborne, step_id: int) -> None:
        """See to it that calls which took another over find its step, and others of their runs do
        not, until it is on record whose it is."""
        for call in airborne.unsettled:
            self._services.ladder.promise(call.caller, step_id, _alias(airborne, call))

    async def _deliver(
        self, airborne: Airborne, call: Call, request: Request, *, leads: bool
    ) -> Response | Held | Hit | Airborne:
        """Answer one client from a flight; or say where the answer is instead: on record, or in
        the air already."""
        flight = airborne.flight
        airborne.is_expected = False
        if airborne.patience is not None and not call.caller.cancels_on_disconnect:
            airborne.patience.extend(self._settings.forward.detached_timeout_s)
        follower: Follower | None = flight.attach(reads=call.ask.streams)
        assert follower is not None
        request.on_gone(follower.leave)
        try:
            is_open = await self._wait_for(flight, call, request)
            if is_open:
                await self._record_joined(airborne, call)
                response = self._stream_response(airborne, call, request, follower, leads=leads)
                follower = None  # it leaves when the response ends
                return response
        finally:
            if follower is not None:
                follower.leave()
        landing = flight.landing
        assert landing is not None, "waited for it"
        if landing.hit is not None:
            return landing.hit
        if isinstance(landing.elsewhere, Airborne):
            return landing.elsewhere
        miss = airborne.upstream.miss
        if landing.answer is None:
            return landed_response(landing, call, miss, leads=True)
        await self._record_joined(airborne, call)
        if not leads and not request.is_gone():
            self._count_joined(airborne, call)
        if landing.hold is not None:
            slim, held_s = call.slim(), monotonic_s()

            def render(answer: RecordedAnswer) -> Response:
                waited_s = landing.upstream_s + monotonic_s() - held_s
                let_out = replace(landing, answer=answer, upstream_s=waited_s)
                return landed_response(let_out, slim, miss, leads=leads)

            return Held(slim, landing.hold, landing.answer, landing.step_id, render)
        if landing.step_id is not None:
            self._watch_delivery(request, call.caller, landing.step_id)
        return landed_response(landing, call, miss, leads=leads)

    async def _wait_for(self, flight: Flight, call: Call, request: Request) -> bool:
        """Wait for the landing, or until a stream can begin: then True."""
        every_s = heartbeat_s(request.headers, self.gate.settings)
        # From then on a stream has a head of our own, so that heartbeats can keep it alive.
        silent_until_s = call.started_s + self._settings.forward.commit_after_s
        while flight.landing is None:
            if call.ask.streams and flight.head is not None:
                return True
            patience_s = max(silent_until_s - monotonic_s(), 0.0) if call.ask.streams else None
            if await flight.changed(every_s if flight.is_keeping else patience_s):
                continue
            if call.ask.streams:
                return True  # with a head of our own, so that there can be heartbeats
            if takes_interim(request, self.gate.settings):
                request.send_interim(102)
        return call.ask.streams and flight.head is not None

    async def _record_joined(self, airborne: Airborne, call: Call) -> None:
        """Write that a call got a step that was begun by another run, or with other words."""
        claimed, alias = airborne.upstream.claimed, _alias(airborne, call)
        if claimed is not None and call is not airborne.call:
            await self._services.abouts.take_in(call.caller)
        is_own = call.caller.run_id == airborne.call.caller.run_id and alias is None
        if claimed is not None and not is_own:
            if call in airborne.unsettled:
                airborne.unsettled.remove(call)
            ladder = self._services.ladder
            await self._keep(
                call.caller.session, ladder.settle(call.caller, claimed.step_id, alias)
            )

    def _count_joined(self, airborne: Airborne, call: Call) -> None:
        """Count a call that joined another and got its answer as a saving."""
        landing = airborne.flight.landing
        if landing is not None and landing.answer is not None and landing.step_id is not None:
            self._services.ladder.note_replay(
                call.caller, landing.step_id, "joined", landing.cost_microusd
            )

    def _stream_response(
        self, airborne: Airborne, call: Call, request: Request, follower: Follower, *, leads: bool
    ) -> Response:
        flight, slim = airborne.flight, call.slim()
        # Where a person is asked before the call goes upstream there is no head to pass on yet.
        head = flight.head
        status, headers = (head.status, head.headers) if head else (200, (EVENTS_TYPE,))

        def begin(landing: Landing) -> asyncio.Task[Passed]:
            assert landing.hold is not None
            assert landing.answer is not None
            request.forget_body()
            held = Held(slim, landing.hold, landing.answer, landing.step_id, render)
            return self._holding.begin(held)

        def render(answer: RecordedAnswer) -> Response:
            return answer_response(
                slim.dialect, answer, [], wants_stream=True, wants_usage=slim.ask.wants_usage
            )

        def delivered(let_out: LetOut | None) -> None:
            if (landing := flight.landing) is not None:
                self._holding.note_let_out(slim, landing.step_id, let_out)
            if not leads:
                self._count_joined(airborne, slim)

        body = Delivery(
            call.dialect,
            flight=flight,
            follower=follower,
            every_s=heartbeat_s(request.headers, self.gate.settings),
            begin=begin,
            render=lambda answer: content_of(render(answer)),
            on_delivered=delivered,
        )
        own = stream_marks(airborne, call, leads=leads)
        return Response(status, stream_headers((*headers, *own)), body)


def _alias(airborne: Airborne, call: Call) -> bytes | None:
    """Return the fingerprint of a call that is not quite the one in the air; None = it is."""
    exact = call.identity.exact
    return None if exact == airborne.call.identity.exact else exact
