"""Where a session stands after a crash, and what to do: what `steps/recovery.py` found, as JSON."""

from __future__ import annotations

from agentstate.doors.api.reply import json_response, read_params
from agentstate.doors.api.rows import session_json, weight_json
from agentstate.doors.api.tool_calls import RESULT_CHARS_MAX, calls_json
from agentstate.ground.approvals import Approval
from agentstate.ground.calls import UnknownCall
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.records import StepRow
from agentstate.steps.recovery import Recovery, look
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Params
from agentstate.wire.message import Request, Response


class RecoveryEndpoints:
    """Answers under /api/sessions/{id}/recovery."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/sessions/{id}/recovery",
                self.show,
                "Say what a re-run replays, what it pays again, and what to look at first.",
            ),
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with where the session stands."""
        read_params(request, frozenset())
        return json_response(recovery_json(await look(self._store, params["id"], at_ms=now_ms())))


def recovery_json(found: Recovery) -> dict[str, JSON]:
    """Render where a session stands."""
    standing = found.standing
    pause = session_json(found.session)["pause"]
    return {
        "session": session_json(found.session),
        "status": found.session.status,
        "last_step": None if found.last is None else _last_json(found.last),
        "replay": {
            "steps": standing.steps,
            "answered": standing.answered,
            "prefix": standing.prefix,
            "asked_again": found.asked_again,
            "open": [
                {"index": index, "step_number": number, "state": state}
                for index, number, state in standing.open
            ],
        },
        "saves": weight_json(standing.saves),
        "saves_at_least": standing.saves.unknown_costs > 0,
        "holds": {
            "pause": pause,
            "approvals": [_question_json(one, found.at_ms) for one in found.waiting],
        },
        "refusals": [_question_json(one, found.at_ms) for one in found.refused],
        "unanswered_calls": calls_json(found.unanswered, found.at_ms, chars_max=RESULT_CHARS_MAX),
        "unknown_calls": [_unknown_json(one) for one in found.unknown],
        "advice": list(found.advice()),
    }


def _last_json(row: StepRow) -> JSON:
    return {
        "index": row.index,
        "step_number": row.step_number,
        "answered_ms": row.answered_ms,
        "model": row.model,
        "finish_reason": row.finish_reason,
        "response": row.text,
        "state": row.state,
    }


def _question_json(approval: Approval, at_ms: int) -> JSON:
    decision = approval.decision
    return {
        "approval_id": approval.approval_id,
        "status": approval.status(at_ms),
        "kind": approval.question.kind,
        "tool": approval.question.tool,
        "call_id": approval.question.call_id,
        "index": approval.index,
        "step_number": approval.step_number,
        "asked_ms": approval.asked_ms,
        "deadline_ms": approval.question.deadline_ms,
        "decided_by": None if decision is None else decision.by,
        "reason": None if decision is None else decision.reason,
    }


def _unknown_json(call: UnknownCall) -> JSON:
    return {
        "call_id": call.call_id,
        "tool": call.tool,
        "begun_ms": call.begun_ms,
        "state": "running" if call.is_running else "unknown",
        "lease_ms": call.lease_ms,
    }
