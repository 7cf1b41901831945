"""What there is to say of an event, in the order a person needs it, before any service's markup.

The counterparts are `slack.py` and `discord.py`, which lay a card out. Texts in it are struck of
keys and otherwise as they came: whoever lays them out makes them visible, inert and short enough.
Facts that an event lacks are left out, and those that nobody knows here are left to `signed_json`.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.ground.canonical import JSON
from agentstate.ground.events import Event
from agentstate.webhooks.base import Links
from agentstate.webhooks.text import instant, is_linkable, words

Labelled = tuple[str, str]  # our word for it, and what it is

_PLACES = (("provider", "Provider"), ("model", "Model"), ("call_id", "Call"))
_QUESTION = (("rule", "Rule"), ("why", "Why"))
_DECISION = (("status", "Status"), ("by", "By"), ("then", "Then"))
_FAILURE = (("status", "Status"), ("why", "Why"))
_MONEY = (("cap", "Cap"), ("used", "Used"), ("limit", "Limit"), ("action", "Then"), ("why", "Why"))

# By kind of event: what it is called, and the short facts besides session and step.
_KINDS: dict[str, tuple[str, tuple[Labelled, ...]]] = {
    "approval.required": ("Approve ", (*_QUESTION, *_PLACES)),
    "approval.decided": ("Decided: ", (*_DECISION, *_QUESTION, *_PLACES)),
    "session.failed": ("Session failed: ", (*_FAILURE, *_PLACES)),
    "session.stalled": ("Session stalled: ", (*_FAILURE, *_PLACES)),
    "session.completed": ("Session completed: ", (*_FAILURE, *_PLACES)),
    "fallback.used": ("Fallback used: ", (*_FAILURE, *_PLACES)),
    "budget.reached": ("Budget reached: ", (*_MONEY, *_PLACES)),
}
_DECIDED = {"APPROVED": "Approved: ", "REJECTED": "Rejected: ", "EXPIRED": "Expired: "}


@dataclass(frozen=True, slots=True)
class Card:
    """One event, for people."""

    # What happened or is to be decided: our words, theirs and ours again, as "Approve ", the tool
    # and "?"; a title is the three together.
    lead: str
    name: str
    tail: str
    is_question: bool  # somebody waits for an answer
    is_bad: bool
    texts: tuple[Labelled, ...]  # long ones, for blocks of their own
    facts: tuple[Labelled, ...]  # short ones
    deadline_ms: int | None  # None = there is none, or it is no time
    buttons: tuple[Labelled, ...]  # label and URL, all `is_linkable`
    plain_link: str  # a URL to be read that is not linkable; '' = none is needed


def card(event: Event, links: Links) -> Card:
    """Return what there is to say of an event."""
    facts = event.facts or {}
    lead, rows = _KINDS.get(event.kind, (f"{event.kind}: ", _FAILURE))
    is_question = event.kind == "approval.required"
    if is_question and facts.get("kind") == "request":
        lead = "Approve a request to "
    if is_question and facts.get("kind") == "unknown":
        lead = "Did it happen: "
    if is_question and facts.get("kind") == "budget":
        lead = "Let it go on past "
    if event.kind == "approval.decided":
        lead = _DECIDED.get(words(facts.get("status")).upper(), lead)
    buttons = _buttons(event.kind, links)
    deadline_ms = facts.get("deadline_ms") if is_question else None
    return Card(
        lead=f"[Test] {lead}" if event.is_sample else lead,
        name=_name(event, facts),
        tail="?" if is_question else "",
        is_question=is_question,
        is_bad=event.kind in ("session.failed", "session.stalled", "budget.reached"),
        texts=_texts(event, facts),
        facts=(
            ("Session", words(event.session)),
            *([("Step", str(event.step_number))] if event.step_number is not None else []),
            *((label, text) for key, label in rows if (text := words(facts.get(key)))),
        ),
        deadline_ms=_deadline(deadline_ms),
        buttons=buttons,
        plain_link="" if buttons else _readable(event.kind, links),
    )


def _name(event: Event, facts: dict[str, JSON]) -> str:
    if event.kind.startswith("approval."):
        return words(facts.get("tool")) or "a tool call"
    if event.kind == "fallback.used":
        models = (words(facts.get("from_model")), words(facts.get("to_model")))
        return " → ".join(name for name in models if name)
    return words(event.session)


def _texts(event: Event, facts: dict[str, JSON]) -> tuple[Labelled, ...]:
    """Arguments are shown even where they are '', which is something to know of a call."""
    found: list[Labelled] = []
    is_edited = facts.get("arguments_are_edited") is True
    arguments = facts.get("arguments")
    is_call = arguments is not None and facts.get("kind") != "request"
    if is_call and event.kind == "approval.required":
        found.append(("Arguments", words(arguments)))
    if is_call and event.kind == "approval.decided":
        label = "Arguments, edited" if is_edited else "Arguments"
        found.append((label, words(arguments)))
    for key, label in (("prompt", "Prompt"), ("reason", "Reason"), ("error", "Error")):
        if text := words(facts.get(key)):
            found.append((label, text))
    return tuple(found)


def _buttons(kind: str, links: Links) -> tuple[Labelled, ...]:
    wanted = [("Session", links.session)]
    if kind.startswith("approval."):
        wanted.insert(0, ("Decide" if kind == "approval.required" else "Approval", links.approval))
    found = tuple((label, url) for label, url in wanted if is_linkable(url))
    if not found and is_linkable(links.dashboard):
        return (("Dashboard", links.dashboard),)
    return found


def _readable(kind: str, links: Links) -> str:
    approval = links.approval if kind.startswith("approval.") else ""
    return words(approval or links.session or links.dashboard)


def _deadline(at_ms: JSON) -> int | None:
    return at_ms if isinstance(at_ms, int) and instant(at_ms) is not None else None
