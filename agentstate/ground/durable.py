"""Durable tool calls: what a tool says before and after it does something. Values only, all frozen.

A tool that must not act twice says so before it acts ("begin") and tells what came of it after
("report"). What stands in between is on record. The counterparts are `store/base_durable.py`, which
keeps it, and `steps/durable.py`, which asks people and waits. Time is integer milliseconds UTC
(`_ms`).

An **owner** is one life of the agent process. A **begin** is one try to begin; all its HTTP retries
have one id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentstate.ground.approvals import Approval, Question

DurableState = Literal["asked", "ready", "running", "unknown", "done", "refused"]
# asked    a person must decide first             unknown  begun, and whoever did never reported
# ready    the next begin runs it                 done     it has an outcome
# running  its owner was told to run it           refused  a person or a rule said no

DurableOutcome = Literal["result", "error", "skipped"]
OnUnknown = Literal["ask", "run", "skip"]
SettledAs = Literal["happened", "not_happened", "skip"]

BegunState = Literal["run", "replay", "held", "refused", "unknown"]
HeldBy = Literal["approval", "running", "pause"]


def is_leased(lease_ms: int | None, at_ms: int) -> bool:
    """Say whether an owner that said it lives until `lease_ms` does so still; None = not said."""
    return lease_ms is not None and lease_ms > at_ms


@dataclass(frozen=True, slots=True)
class Begin:
    """What a tool says before it acts."""

    session: str  # made on first sight
    tool: str
    arguments: str  # JSON of an object, or free text
    digest: bytes  # over tool, canonical arguments and key: what makes two calls equal
    at_ms: int
    key: str | None = None  # the caller's own name for this one call; None = it is counted
    call_id: str | None = None  # of the model's call; None = not said
    owner: str | None = None  # None = not said
    begin_id: str | None = None  # None = not said
    lease_ms: int | None = None  # until when its owner is known to live; None = not said
    on_unknown: OnUnknown = "ask"
    question: Question | None = None  # what must be decided before it runs; None = nothing
    covered_by: tuple[str, ...] = ()  # approvals of the model's own call that may stand for it


@dataclass(frozen=True, slots=True)
class Report:
    """What a tool says after it acted."""

    # unknown: it was interrupted in the act, so its owner does not know either.
    outcome: Literal["result", "error", "unknown"]
    value: str = "null"  # JSON; of an unknown one it says nothing
    owner: str | None = None  # None = not said
    is_final: bool = True  # False: an error after which the call may be run again

    @property
    def gives_back(self) -> bool:
        """Whether its owner has not taken the call after this: an equal begin of it meets it."""
        return not self.is_final or self.outcome == "unknown"


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a person says of a call of which nobody knows whether it happened."""

    outcome: SettledAs
    value: str | None = None  # JSON, what a replay gives; None = null, or that it was skipped
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DurableCall:
    """One call with its row."""

    call: str  # what callers know it by
    session: str
    tool: str
    arguments: str  # as sent
    digest: bytes
    occurrence: int  # n-th equal call of its session, from 0
    state: DurableState
    created_ms: int
    key: str | None = None
    call_id: str | None = None
    owner: str | None = None  # who was told to run it last; None = nobody, or without a name
    begin_id: str | None = None  # with which begin
    begun_ms: int | None = None  # when; None = never
    lease_ms: int | None = None
    runs: int = 0  # how often a begin was told to run it
    approval_id: str | None = None  # that is asked about it, or stands for it
    edited: str | None = None  # arguments a person gave it; None = as sent
    outcome: DurableOutcome | None = None
    value: str | None = None  # JSON of the outcome; None = there is none, or it was not read
    value_bytes: int | None = None  # how long it is
    finished_ms: int | None = None
    reason: str | None = None  # of a refusal
    settled_as: SettledAs | None = None  # None = no person had to
    settled_by: str | None = None
    settled_why: str | None = None
    settled_ms: int | None = None
    forgotten_ms: int | None = None  # from then on no begin finds it; None = it counts
    forgotten_by: str | None = None
    forgotten_why: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """What a begin is told."""

    state: BegunState
    call: DurableCall | None  # None = its session is paused, and nothing was looked up
    held_by: HeldBy | None = None  # of a held one
    approval: Approval | None = None  # that is asked about it and open


@dataclass(frozen=True, slots=True)
class DurablePage:
    """One page of calls, without their values. `next_cursor` None = the last page."""

    rows: tuple[DurableCall, ...]
    next_cursor: str | None = None
