"""What follows from the decisions about an answer. Pure.

1. One rejection that stops: the answer is refused, whatever else was decided.
2. Nothing was rejected or edited: it goes out as it is.
3. Some calls are left: it goes out with the edits, without the refused calls.
4. All its calls were refused: the model is told, and asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentstate.dialects.base import Dialect, Round, calls_tools
from agentstate.ground.approvals import (
    Approval,
    ApprovalKind,
    Changes,
    Decision,
    Place,
    Then,
)
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.errors import BadRequest, GateError, HumanRejection, PolicyRejection, shorten
from agentstate.steps.policy import Verdict

RULE = "rule"  # who decided, where a rule did
REASON_CHARS_MAX = 300  # of a reason, in an error message


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The answer goes out as it is."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The answer goes out with these changes."""

    changes: Changes


@dataclass(frozen=True, slots=True)
class GoOn:
    """The model is told that all its calls were refused."""

    told: Round


Outcome = Unchanged | Changed | GoOn


def refusal_of(approvals: Iterable[Approval]) -> GateError | None:
    """Return the error of an answer that a rejection stops; None = none does."""
    for approval in approvals:
        decision = approval.decision
        if decision is not None and not decision.is_approved and decision.then != "continue":
            return stopped(approval, decision)
    return None


def is_settled(approvals: Iterable[Approval]) -> bool:
    """Say whether it is known what becomes of an answer."""
    approvals = tuple(approvals)
    if all(each.decision is not None for each in approvals):
        return True
    return refusal_of(approvals) is not None


def stopped(approval: Approval, decision: Decision, why: str = "") -> GateError:
    """Return the error a client gets for a call that was refused for good."""
    tool = shorten(approval.question.tool)
    what = "this request" if approval.question.kind == "request" else f"the call of {tool}"
    reason = f": {shorten(decision.reason, REASON_CHARS_MAX)}" if decision.reason else ""
    ways = "Roll the session back, edit the step or fork before it to go on another way."
    if approval.question.kind == "budget":
        what = f"more of {tool}"
        ways = "Raise the budget of the session to go on: agentstate sessions budget ID."
    if decision.by == RULE:
        return PolicyRejection(
            f"A rule refused {what}{reason} ({approval.approval_id}).{why} {ways}",
            approval_id=approval.approval_id,
        )
    by = f" ({shorten(decision.by)})" if decision.by else ""
    return HumanRejection(
        f"A person{by} refused {what}{reason} ({approval.approval_id}).{why} {ways}",
        approval_id=approval.approval_id,
    )


def outcome_of(answer: Answer, body: bytes, approvals: Sequence[Approval]) -> Outcome:
    """Say what follows from decisions that are all made, none of which stops.

    `body` is the answer in the form that is not streamed.
    """
    changes: dict[Place, str | None] = {}
    told: dict[int, str] = {}
    observations: dict[str, None] = {}  # each once, in their order
    has_text = False  # a spelled call that was approved
    for approval in approvals:
        question, decision = approval.question, approval.decision
        assert decision is not None, "all is decided"
        if question.kind == "text":
            if decision.is_approved:
                has_text = True
            else:
                observations[tell(question.tool, decision)] = None
            continue
        place = (question.choice, question.position)
        if not decision.is_approved:
            changes[place] = None
            told[question.position] = tell(question.tool, decision)
        elif decision.arguments is not None:
            changes[place] = decision.arguments
    if observations:
        return GoOn(Round(body, {}, " ".join(observations)))
    own = {(choice, call.position) for choice, call in answer.tool_calls if not call.runs_upstream}
    refused = {place for place, arguments in changes.items() if arguments is None}
    if refused and refused == own and not has_text and len(answer.choices) == 1:
        return GoOn(Round(body, told))
    return Changed(changes) if changes else Unchanged()


def tell(tool: str, decision: Decision) -> str:
    """Return what a model is told of a refused call."""
    who = "A rule" if decision.by == RULE else "A person"
    reason = (decision.reason or "").strip()
    if reason:
        reason = f" Reason: {reason}" if reason[-1] in ".!?" else f" Reason: {reason}."
    return (
        f"{who} refused this call of {tool}; it was not carried out.{reason} Do not ask for the "
        "same call again: go on without it, or say what you need."
    )


def decided_by_rule(
    verdict: Verdict, on_reject: Then, *, is_repeat: bool = False
) -> Decision | None:
    """Return what a rule says of a call by itself; None = a person is asked.

    `is_repeat`: the same call was refused in the rounds before.
    """
    if is_repeat:
        return Decision(False, RULE, "the same call was refused just before", None, "continue")
    if verdict.action == "deny":
        then = verdict.then or on_reject
        return Decision(False, RULE, verdict.reason or f"refused by {verdict.rule}", None, then)
    return None


def can_go_on(
    dialect: Dialect, request: Mapping[str, JSON], body: bytes, kind: ApprovalKind
) -> str | None:
    """Say why a model cannot be told that calls of this answer were refused; None = it can."""
    if not calls_tools(dialect):
        return "this dialect has no tool calls."
    if dialect.list_key and dialect.list_key not in request:  # else it is the prompt
        return "the conversation before it is not on record."
    answer = dialect.read_answer(body)
    if len(answer.choices) > 1:
        return "the answer has several choices, and a conversation goes on from one."
    own = [call.position for _, call in answer.tool_calls if not call.runs_upstream]
    if kind == "text" and own:
        return "the answer spells a call in its text and makes others."
    told = Round(body, {}, "?") if kind == "text" else Round(body, dict.fromkeys(own, "?"))
    try:
        dialect.go_on(request, told)
    except BadRequest as error:
        return error.message
    return None
