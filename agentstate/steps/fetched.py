"""Responses that are made in the background or fetched by their id: the gate stands here as well.

Responses can be asked for in the background and fetched later (`GET /v1/responses/{id}`). Nobody
here saw the answer come then, so it is looked at when it is fetched. One that was recorded when it
came meets the decisions that were made about it; another one becomes a step of its own, once for
however many fetch it. What answers the background request itself, or a request to cancel one, is a
response as well and goes the same way: some upstreams answer a background request at once.

While the model still works, guarded calls are left out of what is shown. What cannot be held is
refused before it goes upstream (`Fetched.check_background`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal
from urllib.parse import quote, unquote

from agentstate.dialects.base import Ask, Dialect, calls_tools
from agentstate.ground.canonical import digest
from agentstate.ground.chat import Answer
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    Conflict,
    GateError,
    NotAnAnswer,
    UngatedPath,
    UpstreamError,
    shorten,
)
from agentstate.ground.records import Claim, Identity, RecordedAnswer, RequestRecord
from agentstate.steps import aside, forward
from agentstate.steps.call import Call
from agentstate.steps.checkpoint import make_checkpoint
from agentstate.steps.delivery import Delivery, heartbeat_of, heartbeat_s
from agentstate.steps.findings import Finding
from agentstate.steps.holding import Held, Holding
from agentstate.steps.identify import Caller
from agentstate.steps.once import Once
from agentstate.steps.policy import Policy
from agentstate.steps.reading import as_body, error_event_after, read_recorded
from agentstate.steps.recording import Services
from agentstate.steps.reply import error_response, marks, stream_headers
from agentstate.steps.target import Target
from agentstate.wire.message import Abort, Exchange, Request, Response

# A slash at the end is there for many servers, and not for others.
_PATHS = {
    "GET": re.compile(r"/v1/responses/([^/]+)/*"),
    "POST": re.compile(r"/v1/responses/([^/]+)/cancel/*"),
}
_Examined = Response | AgentStateError | ConnectionError  # the response, or why there is none


def fetched_id(method: str, path: str) -> str | None:
    """Return the id of the response that a request fetches or cancels; None = it does neither."""
    found = _PATHS[method].fullmatch(path) if method in _PATHS else None
    return None if found is None else unquote(found[1])


@dataclass(frozen=True, slots=True)
class Fetch:
    """A request that is answered with a response as it stands at the moment."""

    request: Request
    dialect: Dialect
    caller: Caller
    target: Target
    response_id: str | None  # None = it is just being asked for


class Fetched:
    """Answers what was fetched, once the gate has seen it."""

    def __init__(self, services: Services, holding: Holding) -> None:
        self._services = services
        self._store = services.store
        self._holding = holding
        # By (session, response id): finding its answer on record, or putting it there
        self._recording = Once[tuple[str, str], tuple[int, int]](services.tasks, "record fetched")

    async def is_needed(self, caller: Caller, response_id: str | None) -> bool:
        """Say whether a response may have to be held: a tool is guarded, or something was decided
        about it before. None = it has no id yet."""
        if not self._services.gate.policy.is_empty:
            return True
        return response_id is not None and await self._is_decided(caller, response_id)

    async def _is_decided(self, caller: Caller, response_id: str) -> bool:
        known = await self._store.find_response(caller.session, response_id)
        if known is None or known.answer_id is None:
            return False
        return bool(await self._services.gate.decisions(known.answer_id))

    def check_background(self, call: Call) -> None:
        """Refuse a background request that would pass by the gate.

        Raises:
            UngatedPath: `gate.strict` is on.
            BadRequest: it must be decided on before it goes upstream, or streams what it answers.
        """
        if self._services.gate.settings.strict:
            raise UngatedPath(
                "gate.strict is on, and a request in the background is not held before it goes "
                "upstream. Leave out `background`, or turn gate.strict off."
            )
        gate = self._services.gate
        finding = gate.find_first(call)
        if finding is not None:
            raise BadRequest(
                "A person must approve this request before it goes upstream "
                f"({shorten(finding.verdict.rule)}), and one in the background cannot be held. "
                "Leave out `background`.",
                param="background",
            )
        if call.ask.streams and not call.policy.is_empty:
            raise BadRequest(
                "The stream of a background request cannot be held for approval. Leave out "
                "`background`, or leave out `stream` and fetch the response by its id.",
                param="background",
            )

    async def answer(self, fetch: Fetch, exchange: Exchange) -> Response:
        """Answer with a response as the upstream gives it, or as the gate lets it out.

        The exchange is closed here. Errors that are meant come back rendered.
        """
        if _is_success(exchange.status) and forward.is_stream(exchange):
            return await self._answer_stream(fetch, exchange)
        try:
            return await self._examine(fetch, await self._read(fetch, exchange, "body"))
        except AgentStateError as error:
            return _refusal(fetch, error)

    async def _answer_stream(self, fetch: Fetch, exchange: Exchange) -> Response:
        """Answer with a stream: read whole first, since a call in it could be a guarded one."""
        every_s = heartbeat_s(fetch.request.headers, self._services.gate.settings)
        work = self._services.tasks.start(self._examine_stream(fetch, exchange), "fetched")
        stream = _Stream(fetch.dialect, work, every_s)
        fetch.request.on_gone(stream.leave)
        await asyncio.wait({work}, timeout=every_s)
        if not work.done():
            headers = stream_headers(forward.answer_headers(exchange, fetch.target))
            return Response(exchange.status, headers, stream)
        examined = _taken(work)
        # Nothing was sent yet, so a refusal is a real HTTP error.
        return _refusal(fetch, examined) if isinstance(examined, AgentStateError) else examined

    async def _examine_stream(self, fetch: Fetch, exchange: Exchange) -> _Examined:
        """Read a stream to its end and look at it: for a task, whose failures are of our own."""
        try:
            return await self._examine(fetch, await self._read(fetch, exchange, "events"))
        except (AgentStateError, ConnectionError) as error:
            return error

    async def _read(
        self, fetch: Fetch, exchange: Exchange, form: Literal["events", "body"]
    ) -> RecordedAnswer:
        provider = fetch.target.provider
        try:
            content = await exchange.read(self._services.settings.stream.answer_bytes_max)
        except UpstreamError as error:
            raise forward.name_provider(error, provider) from error
        finally:
            await exchange.close()
        coding = exchange.headers.text(b"content-encoding")
        if _is_success(exchange.status) and coding is not None:
            raise NotAnAnswer(
                f"{provider} answered {exchange.status} in the coding {shorten(coding)}, which was "
                "not offered. Whether it calls a tool cannot be told.",
                provider=provider,
            )
        headers = forward.answer_headers(exchange, fetch.target)
        return RecordedAnswer(exchange.status, headers, form, content)

    async def _examine(self, fetch: Fetch, recorded: RecordedAnswer) -> Response:
        """Return the response to a fetch, held if it has to be."""
        plain = Response(recorded.status, list(recorded.headers), recorded.content)
        if not _is_success(recorded.status) or not recorded.content:
            return plain
        dialect = fetch.dialect
        answer = await aside.run(lambda: read_recorded(dialect, recorded), len(recorded.content))
        if recorded.form == "body" and answer.response_id is None:
            # A client with another reader may find a call in it all the same.
            raise NotAnAnswer(
                f"{fetch.target.provider} answered {recorded.status} with what is no response: "
                f"{answer.fault or 'it has no id'}. Whether it calls a tool cannot be told.",
                provider=fetch.target.provider,
            )
        # Its request is not at hand, so whatever its text spells is looked at.
        policy = self._services.gate.policy
        findings = await self._services.gate.find(dialect, answer, policy, scans_text=True)
        response_id = answer.response_id or fetch.response_id
        if not findings and (
            response_id is None or not await self._is_decided(fetch.caller, response_id)
        ):
            return plain
        if not answer.is_complete or response_id is None:
            return _without(dialect, recorded, findings)
        known = self._services.redactor_of(fetch.request.headers)
        call = replace(_call(fetch, response_id, recorded, policy), redactor=known)
        answer = replace(answer, response_id=response_id)
        return await self._hold(fetch.request, call, recorded, answer, findings)

    async def _hold(
        self,
        request: Request,
        call: Call,
        recorded: RecordedAnswer,
        answer: Answer,
        findings: tuple[Finding, ...],
    ) -> Response:
        step_id, answer_id = await self._find_or_record(call, recorded, answer)
        hold = await self._services.gate.ask(step_id, answer_id, findings, call.caller)

        def render(let_out: RecordedAnswer) -> Response:
            own = marks(session=call.caller.session, approval_id=hold.approval_id)
            body = let_out.content
            if let_out.form != recorded.form:
                # It was asked for in the other form when it was recorded.
                body = (
                    as_body(call.dialect, let_out)
                    if recorded.form == "body"
                    else b"".join(call.dialect.events_from_body(body, True))
                )
            return Response(recorded.status, [*recorded.headers, *own], body)

        return await self._holding.deliver(request, Held(call, hold, recorded, step_id, render))

    async def _find_or_record(
        self, call: Call, recorded: RecordedAnswer, answer: Answer
    ) -> tuple[int, int]:
        """Return step and answer of a response; one that is not on record becomes a step, once for
        all who fetch it at the same moment."""
        assert answer.response_id is not None, "what is held has an id"
        key = (call.caller.session, answer.response_id)
        # A client that leaves must not leave half a step.
        work = partial(self._look_or_record, call, answer.response_id, recorded, answer)
        return await self._recording.run(key, work)

    async def _look_or_record(
        self, call: Call, response_id: str, recorded: RecordedAnswer, answer: Answer
    ) -> tuple[int, int]:
        known = await self._store.find_response(call.caller.session, response_id)
        if known is not None and known.answer_id is not None:
            return known.step_id, known.answer_id
        return await self._record(call, recorded, answer)

    async def _record(
        self, call: Call, recorded: RecordedAnswer, answer: Answer
    ) -> tuple[int, int]:
        """Make a step of a response that was not recorded when it came."""
        claim = Claim(
            session=call.caller.session,
            step_number=call.caller.step_number,
            run_id=call.caller.run_id,
            call_id=call.caller.call_id,
            occurrence=0,
            dialect=call.dialect.name,
            path=call.path,
            model=answer.model or "",
            streams=call.ask.streams,
            identity=call.identity,
            request=call.record,
            created_ms=call.arrived_ms,
            about=call.caller.about,
        )
        claimed = await self._store.claim_step(claim)
        self._services.abouts.note(call.caller.session, call.caller.about)
        attempt = forward.begin(call.target, call.headers)
        checkpoint = make_checkpoint(
            step_id=claimed.step_id,
            now_ms=now_ms(),
            ask=call.ask,
            input_chars=0,
            attempts=(attempt.ended(),),
            answer=answer,
            recorded=recorded,
            provider=call.target.provider,
            prices=self._services.prices,
            latency_ms=int((monotonic_s() - call.started_s) * 1000),
            first_content_ms=None,
            redactor=call.redactor,
        )
        return claimed.step_id, await self._store.record_answer(checkpoint)


class _Stream:
    """A stream on its way to a client that hears heartbeats until it may have the whole."""

    def __init__(self, dialect: Dialect, work: asyncio.Task[_Examined], every_s: float) -> None:
        self._dialect = dialect
        self._work = work
        self._every_s = every_s
        self._rest: AsyncIterator[bytes] | None = None  # None = not known yet

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return what comes next. Raises `Abort`: it ended without an answer."""
        if self._rest is None:
            await asyncio.wait({self._work}, timeout=self._every_s)
            if not self._work.done():
                return heartbeat_of(self._dialect)
            self._rest = self._begin()
        return await anext(self._rest)

    async def aclose(self) -> None:
        """Leave: nobody reads any more."""
        self.leave()
        if isinstance(self._rest, Delivery):
            await self._rest.aclose()

    def leave(self) -> None:
        """Stop reading and waiting: nobody would get what comes."""
        if not self._work.done():
            self._work.cancel()

    def _begin(self) -> AsyncIterator[bytes]:
        examined = _taken(self._work)
        if isinstance(examined, AgentStateError):
            return _pieces(error_event_after(self._dialect, examined, b""), is_cut=True)
        if isinstance(examined.body, bytes):
            return _pieces(examined.body, is_cut=False)
        return examined.body


async def _pieces(piece: bytes, *, is_cut: bool) -> AsyncIterator[bytes]:
    yield piece
    if is_cut:
        raise Abort


def _taken(work: asyncio.Task[_Examined]) -> Response | AgentStateError:
    """Return what a task that has ended comes to. Raises `ConnectionError`: the client left."""
    if work.cancelled():
        raise ConnectionResetError("the client left while a response was fetched")
    examined = work.result()
    if isinstance(examined, ConnectionError):
        raise examined
    return examined


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _refusal(fetch: Fetch, error: AgentStateError) -> Response:
    own = marks(
        session=fetch.caller.session,
        approval_id=error.approval_id if isinstance(error, GateError) else None,
    )
    return error_response(fetch.dialect, error, own)


def _call(fetch: Fetch, response_id: str, recorded: RecordedAnswer, policy: Policy) -> Call:
    """Return the fetch as a call, for what comes after. Nothing can be asked in its place."""
    key = digest(b"fetched", response_id.encode("utf-8", "surrogatepass"))
    streams = recorded.form == "events"
    return Call(
        dialect=fetch.dialect,
        path="/v1/responses/" + quote(response_id, errors="surrogatepass"),
        query="",
        headers=fetch.request.headers,
        started_s=fetch.request.started_s,
        arrived_ms=now_ms(),
        # The conversation is not at hand, so a model cannot be told of a refusal.
        caller=replace(fetch.caller, on_reject="stop"),
        ask=Ask(model="", streams=streams, messages=(), envelope={}, body={}),
        raw=b"",
        identity=Identity(raw=key, exact=key, pinned=key, masked=key),
        record=RequestRecord(envelope={}, shared=(), list_key="", chain=()),
        targets=(fetch.target,),
        skipped=(),
        names_guarded=True,
        policy=policy,
        is_fetch=True,
    )


def _without(dialect: Dialect, recorded: RecordedAnswer, findings: tuple[Finding, ...]) -> Response:
    """Show a response that is not complete without its guarded calls."""
    if recorded.form == "events" or any(each.kind == "text" for each in findings):
        raise Conflict(
            "This response is not complete and calls a tool that a person must approve. Fetch it "
            "without `stream` once it is complete."
        )
    assert calls_tools(dialect), "Responses call tools"
    body = dialect.changed_body(recorded.content, {each.place: None for each in findings})
    return Response(recorded.status, list(recorded.headers), body)
