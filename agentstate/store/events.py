"""What the backends share about events: how one is made of its cause, and who wants it.

Pure, but for the ids. Texts are mended so that whatever sends an event can encode them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from agentstate.ground.approvals import Approval
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.events import Event, EventKind, Subscription, new_event_id
from agentstate.store.base import readable

# Events are history as well, and some come with every fallback: about 50 MB of them are kept.
EVENTS_KEPT_MAX = 100_000
# More than any service shows; the approval itself keeps all of it.
ARGUMENTS_CHARS_MAX = 16 * 1024
ERROR_CHARS_MAX = 500  # of a try: a line for a list


def required_event(approval: Approval) -> Event:
    """Make the event that a person is asked."""
    return _event("approval.required", approval, approval.asked_ms, _facts_of(approval))


def decided_event(approval: Approval) -> Event:
    """Make the event that somebody, or a rule, has decided."""
    return _decision_event("approval.decided", approval)


def failed_event(approval: Approval) -> Event:
    """Make the event that a session has failed by a decision."""
    return _decision_event("session.failed", approval, status="FAILED")


def hooks_of(event: Event, subscriptions: Iterable[Subscription]) -> tuple[str, ...]:
    """Return the webhooks that want an event, each once."""
    return tuple(dict.fromkeys(one.hook for one in subscriptions if _wants(one, event)))


def readable_event(event: Event) -> Event:
    """Return an event whose texts can be encoded."""
    approval_id = event.approval_id
    return replace(
        event,
        event_id=readable(event.event_id),
        session=readable(event.session),
        approval_id=None if approval_id is None else readable(approval_id),
        facts=None
        if event.facts is None
        else {readable(name): _readable_fact(fact) for name, fact in event.facts.items()},
    )


def readable_error(error: str | None) -> str | None:
    """Return what went wrong with a try as it is kept: mended, and cut with a mark."""
    return None if error is None else shorten(readable(error), ERROR_CHARS_MAX)


def why_of(event: Event) -> str | None:
    """Return why something happened, as a line; None = the event does not say."""
    why = (event.facts or {}).get("why")
    return readable_error(why) if isinstance(why, str) else None


def no_delivery(delivery_id: int) -> NotFound:
    """Make the error for an id that no delivery has."""
    return NotFound(f"There is no delivery with the id {delivery_id}.")


def _wants(subscription: Subscription, event: Event) -> bool:
    if event.kind not in subscription.kinds:
        return False
    globs: Sequence[str] = subscription.sessions or ("*",)
    return any(fnmatchcase(event.session, glob) for glob in globs)


def _decision_event(kind: EventKind, approval: Approval, **more: JSON) -> Event:
    decision, decided_ms = approval.decision, approval.decided_ms
    assert decision is not None, "it is decided"
    assert decided_ms is not None, "and it is known when"
    facts = _facts_of(approval, decision.arguments) | {
        "by": decision.by,
        "reason": decision.reason,
        "then": decision.then,
        "status": "APPROVED" if decision.is_approved else "REJECTED",
        "is_approved": decision.is_approved,
        "arguments_are_edited": decision.arguments is not None,
    }
    return _event(kind, approval, decided_ms, facts | more)


def _event(kind: EventKind, approval: Approval, created_ms: int, facts: dict[str, JSON]) -> Event:
    return Event(
        event_id=new_event_id(),
        kind=kind,
        session=approval.session,
        created_ms=created_ms,
        step_number=approval.step_number,
        index=approval.index,
        approval_id=approval.approval_id,
        facts=facts,
    )


def _facts_of(approval: Approval, edited: str | None = None) -> dict[str, JSON]:
    question = approval.question
    arguments = question.arguments if edited is None else edited
    return {
        "tool": question.tool,
        "arguments": arguments[:ARGUMENTS_CHARS_MAX],
        "arguments_cut": max(len(arguments) - ARGUMENTS_CHARS_MAX, 0),  # characters left out
        "kind": question.kind,
        "rule": question.rule,
        "why": question.why,
        "model": approval.model,
        "dialect": approval.dialect,
        "call_id": question.call_id,
        "deadline_ms": question.deadline_ms,
    }


def _readable_fact(fact: JSON) -> JSON:
    if isinstance(fact, str):
        return readable(fact)
    if isinstance(fact, list):
        return [_readable_fact(one) for one in fact]
    if isinstance(fact, dict):
        return {readable(name): _readable_fact(one) for name, one in fact.items()}
    return fact
