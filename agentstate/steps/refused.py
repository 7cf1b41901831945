"""Writing that a call was refused by what stands on record.

The replays before it took back that its session had FAILED, as any call does. Who decided, and why
and when, is said again as it was said first.
"""

from __future__ import annotations

from agentstate.ground.approvals import Approval
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import AgentStateError, GateError
from agentstate.steps.noting import noted
from agentstate.store.approvals import fails_session, why_failed
from agentstate.store.base import Store


async def refused(store: Store, session: str, error: GateError) -> AgentStateError:
    """Return what a call that the gate let not through ends with; if a rejection that stops is the
    cause its session is FAILED, whatever of it was replayed since."""
    try:
        approval = await _maybe_approval(store, error)
        if approval is not None and approval.decision is not None:
            by, at_ms = approval.decision.by, approval.decided_ms or now_ms()
            writing = store.note_refused(session, why_failed(approval), by, at_ms=at_ms)
            await noted(session, writing, must=False)
    except AgentStateError as failure:
        return failure
    return error


async def _maybe_approval(store: Store, error: GateError) -> Approval | None:
    """Return the approval that was refused for good; None = nobody decided in time, or so."""
    if error.approval_id is None:
        return None
    approval = await store.read_approval(error.approval_id)
    if approval is None or approval.decision is None or not fails_session(approval.decision):
        return None
    return approval
