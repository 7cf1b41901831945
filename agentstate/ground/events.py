"""What happened that somebody may want to be told of, and its way to who is told.

An event is written in the transaction of its cause, with one delivery for each webhook that wants
it. The counterparts are `store/` (keeps them), `webhooks/` (what each service is sent) and
`house/outbox.py` (sends). Time is integer milliseconds UTC (`_ms`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal

from agentstate.ground.canonical import JSON

EventKind = Literal[
    "approval.required",
    "approval.decided",
    "session.failed",
    "session.stalled",
    "session.completed",
    "fallback.used",
    "budget.reached",
]

EVENT_KINDS: tuple[EventKind, ...] = (
    "approval.required",
    "approval.decided",
    "session.failed",
    "session.stalled",
    "session.completed",
    "fallback.used",
    "budget.reached",
)


ID_BYTES = 12  # 96 bits: receivers know a repeated event by its id


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    event_id: str  # "evt_" and hex; the same on every try of every delivery
    kind: EventKind
    session: str
    created_ms: int
    step_number: int | None = None  # None = of the whole session
    index: int | None = None  # of the step
    approval_id: str | None = None
    # What there is to say, all of it text or numbers: tool, arguments, rule, why, reason, by, then,
    # status, model, deadline_ms, ... Texts are the models' and the agents' own words.
    facts: dict[str, JSON] | None = None
    is_sample: bool = False  # sent by `agentstate webhook test`


DeliveryState = Literal["due", "sent", "dead"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one webhook."""

    delivery_id: int
    hook: str  # the webhook's name in the configuration
    event: Event
    state: DeliveryState
    tries: int  # made so far
    next_ms: int | None  # when it is tried next; None = it is not
    leased_ms: int | None  # until when somebody is sending it; None = nobody is
    status: int | None = None  # of the last try; None = no answer came
    error: str | None = None  # of the last try, one line, without the URL; None = it was taken
    settled_ms: int | None = None  # when it was sent or given up


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """One page of deliveries. `next_cursor` None = the last page."""

    rows: tuple[Delivery, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one webhook wants to be told."""

    hook: str
    kinds: frozenset[str]
    sessions: tuple[str, ...] = ()  # globs of session names; () = all


@dataclass(frozen=True, slots=True)
class IdleSession:
    """A session in which nothing has happened for a while."""

    session: str
    index: int  # of its last step
    step_number: int
    awaits_tools: bool  # its last answer called a tool, so the agent owes the results
    updated_ms: int
    is_broken: bool = False  # its last call came to nothing, so the agent owes another try


def new_event_id() -> str:
    """Make an id no event has."""
    return "evt_" + secrets.token_hex(ID_BYTES)
