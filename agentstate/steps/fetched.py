"""A response that is fetched by its id, and may call a guarded tool: the gate stands here as well.

Responses can be asked for in the background and fetched later (`GET /v1/responses/{id}`). Nobody
here saw the answer come then, so it is looked at when it is fetched. One that was recorded when it
came meets the decisions that were made about it; another one becomes a step of its own.

While the model still works, guarded calls are left out of what is shown.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agentstate.dialects.base import Ask, CallsTools, Dialect
from agentstate.ground.canonical import digest
from agentstate.ground.chat import Answer
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import AgentStateError, Conflict
from agentstate.ground.records import Claim, Identity, RecordedAnswer, RequestRecord
from agentstate.steps import forward
from agentstate.steps.call import Call
from agentstate.steps.checkpoint import make_checkpoint
from agentstate.steps.findings import Finding, find_guarded
from agentstate.steps.holding import Held, Holding
from agentstate.steps.identify import Caller
from agentstate.steps.reading import as_body, read_recorded
from agentstate.steps.recording import Services
from agentstate.steps.reply import error_response, marks
from agentstate.steps.target import Target
from agentstate.wire.message import Request, Response

_PATH = re.compile(r"/v1/responses/([^/]+)")


def fetched_id(method: str, path: str) -> str | None:
    """Return the id of the response that a request fetches; None = it fetches none."""
    found = _PATH.fullmatch(path) if method == "GET" else None
    return None if found is None else found[1]


class Fetched:
    """Answers what was fetched, once the gate has seen it."""

    def __init__(self, services: Services, holding: Holding) -> None:
        self._services = services
        self._store = services.store
        self._holding = holding

    async def answer(
        self,
        request: Request,
        dialect: Dialect,
        caller: Caller,
        target: Target,
        response_id: str,
        recorded: RecordedAnswer,
    ) -> Response:
        """Answer with a response as the upstream gave it, or as the gate lets it out."""
        plain = Response(recorded.status, list(recorded.headers), recorded.content)
        if recorded.status != 200:
            return plain
        answer = read_recorded(dialect, recorded)
        # Its request is not at hand, so whatever its text spells is looked at.
        findings = find_guarded(self._services.gate.policy, answer, scans_text=True)
        if not findings:
            return plain
        try:
            if not answer.is_complete:
                return _without(dialect, recorded, findings)
            call = _call(request, dialect, caller, target, recorded)
            return await self._hold(request, call, response_id, recorded, answer, findings)
        except AgentStateError as error:
            return error_response(dialect, error, marks(session=caller.session))

    async def _hold(
        self,
        request: Request,
        call: Call,
        response_id: str,
        recorded: RecordedAnswer,
        answer: Answer,
        findings: tuple[Finding, ...],
    ) -> Response:
        known = await self._store.find_response(call.caller.session, response_id)
        if known is not None and known.answer_id is not None:
            step_id, answer_id = known.step_id, known.answer_id
        else:
            step_id, answer_id = await self._record(call, response_id, recorded, answer)
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

    async def _record(
        self, call: Call, response_id: str, recorded: RecordedAnswer, answer: Answer
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
        )
        claimed = await self._store.claim_step(claim)
        attempt = forward.begin(call.target, call.headers)
        checkpoint = make_checkpoint(
            step_id=claimed.step_id,
            now_ms=now_ms(),
            ask=call.ask,
            input_chars=0,
            attempts=(attempt.ended(),),
            answer=replace(answer, response_id=answer.response_id or response_id),
            recorded=recorded,
            provider=call.target.provider,
            prices=self._services.prices,
            latency_ms=int((monotonic_s() - call.started_s) * 1000),
            first_content_ms=None,
        )
        return claimed.step_id, await self._store.record_answer(checkpoint)


def _call(
    request: Request, dialect: Dialect, caller: Caller, target: Target, recorded: RecordedAnswer
) -> Call:
    """Return the fetch as a call, for what comes after. Nothing can be asked in its place."""
    key = digest(b"fetched", request.path.encode("latin-1"), request.query.encode("latin-1"))
    streams = recorded.form == "events"
    return Call(
        dialect=dialect,
        path=request.path,
        query=request.query,
        headers=request.headers,
        started_s=request.started_s,
        arrived_ms=now_ms(),
        # The conversation is not on record, so a model cannot be told of a refusal.
        caller=replace(caller, on_reject="stop"),
        ask=Ask(model="", streams=streams, messages=(), envelope={}, body={}),
        raw=b"",
        identity=Identity(raw=key, exact=key, pinned=key, masked=key),
        record=RequestRecord(envelope={}, shared=(), list_key="", chain=()),
        target=target,
        names_guarded=True,
    )


def _without(dialect: Dialect, recorded: RecordedAnswer, findings: tuple[Finding, ...]) -> Response:
    """Show a response that is not complete without its guarded calls."""
    if recorded.form == "events" or any(each.kind == "text" for each in findings):
        raise Conflict(
            "This response is still being made and calls a tool that a person must approve. Fetch "
            "it without `stream` once it is complete."
        )
    assert isinstance(dialect, CallsTools), "Responses call tools"
    body = dialect.changed_body(recorded.content, {each.place: None for each in findings})
    return Response(recorded.status, list(recorded.headers), body)
