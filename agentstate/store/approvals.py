"""What the backends share about approvals: their names, their text, what a decision brings about.

Pure, but for the names, which must not be guessed.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from agentstate.ground.approvals import Approval, Decision, Question
from agentstate.ground.errors import AlreadyDecided, NotFound, shorten
from agentstate.store.base import readable

# 80 bits: a name alone lets nobody decide, but it stands in links and messages.
NAME_BYTES = 10


def new_approval_id() -> str:
    """Make a name no approval has."""
    return "apr_" + secrets.token_hex(NAME_BYTES)


def readable_question(question: Question) -> Question:
    """Return a question whose text can be shown; its arguments stay exactly as sent."""
    return replace(
        question,
        tool=readable(question.tool),
        call_id=None if question.call_id is None else readable(question.call_id),
        rule=readable(question.rule),
        why=readable(question.why),
    )


def readable_decision(decision: Decision) -> Decision:
    """Return a decision whose text can be shown; edited arguments stay exactly as given."""
    return replace(
        decision,
        by=None if decision.by is None else readable(decision.by),
        reason=None if decision.reason is None else readable(decision.reason),
    )


def fails_session(decision: Decision) -> bool:
    """Say whether the session has failed by this: a call was refused, and its model is not told."""
    return not decision.is_approved and decision.then != "continue"


def why_failed(approval: Approval) -> str:
    """Say why a session has failed by a decision."""
    decision = approval.decision
    reason = "" if decision is None or not decision.reason else f": {shorten(decision.reason, 300)}"
    return f"{shorten(approval.question.tool)} was rejected{reason}"


def tells_model(decision: Decision) -> bool:
    """Say whether the model is told of this, now and in later requests."""
    return not decision.is_approved and decision.then == "continue"


def no_approval(approval_id: str) -> NotFound:
    """Make the error for a name that no approval has."""
    return NotFound(f"There is no approval {shorten(approval_id)!r}.")


def already_decided(approval: Approval) -> AlreadyDecided:
    """Make the error for a second decision; `approval` has the first."""
    assert approval.decision is not None, "it is decided"
    what = "approved" if approval.decision.is_approved else "rejected"
    by = "" if approval.decision.by is None else f" by {shorten(approval.decision.by)}"
    return AlreadyDecided(
        f"Approval {approval.approval_id} was {what}{by} before; the first decision stands.",
        approval=approval,
    )
