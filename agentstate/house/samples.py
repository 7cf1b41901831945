"""A sample of every kind of event, for trying out a webhook. Pure, but for the ids.

Every sample says that it is one; its values are what a real event's look like.
"""

from __future__ import annotations

from agentstate.ground.canonical import JSON
from agentstate.ground.events import Event, EventKind, new_event_id

SESSION = "sample-session"
MINUTE_MS = 60_000

_CALL: dict[str, JSON] = {
    "tool": "send_email",
    "arguments": '{"to":"ada@example.com","subject":"Invoice 42","body":"Dear Ada, ..."}',
    "kind": "tool_call",
    "rule": "send_email",
    "why": "gate.tools names it",
    "model": "gpt-4o-mini",
    "dialect": "openai_chat",
    "call_id": "call_sample",
}
_DECIDED: dict[str, JSON] = {
    "status": "REJECTED",
    "by": "ada",
    "reason": "not today",
    "then": "stop",
    "is_approved": False,
    "arguments_are_edited": False,
}
_FACTS: dict[EventKind, dict[str, JSON]] = {
    "approval.required": _CALL,
    "approval.decided": _CALL | _DECIDED,
    "session.failed": _CALL | _DECIDED | {"status": "FAILED"},
    "session.stalled": {"why": "no tool result came for 900 s", "idle_s": 900},
    "session.completed": {"why": "nothing came for 120 s", "idle_s": 120},
    "fallback.used": {
        "from_model": "gpt-4o-mini",
        "from_provider": "openai",
        "to_model": "claude-haiku-4-5",
        "to_provider": "anthropic",
        "attempts": 4,
        "why": "openai answered 503",
    },
    "budget.reached": {
        "cap": "cost_usd",
        "limit": 5.0,
        "used": 5.02,
        "action": "hold",
        "from": "configuration",
        "why": "$5.02 of $5.00 are spent",
        "unknown_costs": 0,
    },
}


def sample_of(kind: EventKind, at_ms: int) -> Event:
    """Return a sample of a kind, as it would be at that time."""
    facts = dict(_FACTS[kind])
    if kind == "approval.required":
        facts["deadline_ms"] = at_ms + 60 * MINUTE_MS
    return Event(
        event_id=new_event_id(),
        kind=kind,
        session=SESSION,
        created_ms=at_ms,
        step_number=87,
        index=87,
        approval_id="apr_sample" if "tool" in facts else None,
        facts=facts,
        is_sample=True,
    )
