"""Answers that a person put in place of others: edited ones, and those the model gave when it was
asked again. Values only, all frozen.

A *revision* is such an answer. It is an answer of the step like any other, stands until another
one does, and is what replays. Time is integer milliseconds UTC (`_ms`), money integer micro-dollars
(`_microusd`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Usage

RevisionKind = Literal["edit", "rerun"]


@dataclass(frozen=True, slots=True)
class Revision:
    """Who made a revision, of what, and why."""

    kind: RevisionKind
    replaces_id: int  # the answer that stood when it was made
    by: str | None = None  # None = nobody said
    reason: str | None = None
    # What the model was asked in place of the step's own request; None = that, or it was not asked.
    request: JSON = None


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One of the answers that a step has had, as pages show it."""

    answer_id: int
    answered_ms: int
    stands: bool  # it is the one that replays
    is_taken_back: bool  # it turned out to have no clean end, so it can never stand
    revision: Revision | None  # without its request; None = an agent's call brought it
    has_request: bool  # the revision was asked something else
    provider: str
    model: str
    finish_reason: str | None
    text: str  # beginning of the first choice's text
    usage: Usage | None
    usage_estimated: bool
    cost_microusd: int | None


@dataclass(frozen=True, slots=True)
class Revised:
    """An active step of which a person has changed what it answers."""

    step_id: int
    answer_id: int  # that stands
    is_edited: bool  # that one was written by a person: no upstream knows it
    others: tuple[int, ...]  # those that it stands for: agents may have got them
    changed_ms: int  # when a person last changed which answers of the session stand


@dataclass(frozen=True, slots=True)
class Link:
    """The step that gave an answer of a provider's id, rolled back or not."""

    step_id: int
    answer_id: int  # that stands
    is_replaced: bool  # the one of that id does not stand
    answered_ms: int  # of the one of that id


@dataclass(frozen=True, slots=True)
class Placed:
    """A step, answered or not, and where its request stands; see `ground/lineage.py`."""

    step_id: int
    index: int
    dialect: str
    is_active: bool
    response_ids: tuple[str, ...]  # the provider's, of all answers it has had
    envelope_id: int
    envelope: JSON
    place: int  # 0 = it has no list of messages
    above: tuple[int, ...]  # at most `PLACES_MAX`; fewer = these are all
