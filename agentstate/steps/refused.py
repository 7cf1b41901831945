"""Writing that a call was refused by what stands on record.

The replays before it took back that its session had FAILED, as any call does. Who decided, and why
and when, is said again as it was said first.
"""

from __future__ import annotations

from agentstate.ground.clock import now_ms
from agentstate.ground.errors import AgentStateError, GateError
from agentstate.steps.noting import noted
from agentstate.store.approvals import fails_session, why_failed
from agentstate.store.base import Store


async def refused(store: Store, session: str, error: GateError) -> AgentStateError:
    """Return what a call that the gate let not through ends with; if a rejection that stops is the
    cause its session is FAILED, whatever of it was replayed since."""
    if error.approval_id is None:  # nobody decided in time, or so
        return error
    try:
        approval = await store.read_approval(error.approval_id)
        decision = None if approval is None else approval.decision
        if approval is not None and decision is not None and fails_session(decision):
            at_ms = approval.decided_ms or now_ms()
            writing = store.note_refused(session, why_failed(approval), decision.by, at_ms=at_ms)
            await noted(session, writing, must=False)
    except AgentStateError as failure:
        return failure
    return error
