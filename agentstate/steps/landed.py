"""What a client gets of a call that went upstream: the response, with what is known of the call."""

from __future__ import annotations

from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import GateError
from agentstate.steps.air import Airborne
from agentstate.steps.call import Call
from agentstate.steps.flight import Landing
from agentstate.steps.misses import Miss
from agentstate.steps.reply import answer_response, error_response, marks, refusal_response
from agentstate.wire.message import Pair, Response


def landed_response(landing: Landing, call: Call, miss: Miss | None, *, leads: bool) -> Response:
    """Return the response of a call whose flight has landed with an answer or an error."""
    overhead_s = monotonic_s() - call.started_s - landing.upstream_s
    own = marks(
        session=call.caller.session,
        step_number=landing.step_number,
        hit=None if leads else "joined",
        provider=landing.provider,
        model=landing.model,
        attempts=landing.attempts,
        fallback_index=landing.fallback_index,
        dropped=landing.dropped,
        tried=landing.tried,
        cost_microusd=landing.cost_microusd if leads else 0,
        overhead_s=overhead_s if leads else None,
        is_unsaved=landing.is_unsaved,
        miss=_miss_text(miss),
        approval_id=_approval_id(landing),
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


def stream_marks(airborne: Airborne, call: Call, *, leads: bool) -> list[Pair]:
    """Return our own headers of a stream that begins: what is not known yet is absent."""
    tries = airborne.upstream.tries
    is_known = airborne.flight.head is not None  # from then on it is this target or none
    claimed = airborne.upstream.claimed
    overhead_s = monotonic_s() - call.started_s - airborne.upstream.upstream_s
    return marks(
        session=call.caller.session,
        step_number=claimed.step_number if claimed else None,
        hit=None if leads else "joined",
        provider=tries.target.provider if is_known else "",
        model=tries.target.model if is_known else "",
        attempts=tries.count if is_known else None,
        fallback_index=tries.index,
        dropped=tries.dropped if is_known else (),
        overhead_s=overhead_s if leads else None,
        miss=_miss_text(airborne.upstream.miss),
    )


def _approval_id(landing: Landing) -> str | None:
    if landing.hold is not None:
        return landing.hold.approval_id
    return landing.error.approval_id if isinstance(landing.error, GateError) else None


def _miss_text(miss: Miss | None) -> str | None:
    return None if miss is None else miss.as_header()
