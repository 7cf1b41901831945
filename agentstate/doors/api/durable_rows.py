"""Durable calls as the API shows them: shapes (`shapes.py`), and the functions that make them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from agentstate.doors.api.shapes import Anything, as_json
from agentstate.ground.canonical import JSON, object_or_text, parse
from agentstate.ground.durable import (
    Begun,
    BegunState,
    DurableCall,
    DurableOutcome,
    DurableState,
    HeldBy,
    SettledAs,
)


class CameOfItShown(TypedDict):
    """What came of a durable call, only where it was read."""

    result: NotRequired[Anything]
    error: NotRequired[Anything]


class DurableCallShown(CameOfItShown):
    """A durable call."""

    call: str
    session: str
    name: str
    state: DurableState
    arguments: Anything
    edited_arguments: Anything
    occurrence: int
    key: str | None
    call_id: str | None
    owner: str | None
    runs: int
    created_ms: int
    begun_ms: int | None
    lease_ms: int | None
    finished_ms: int | None
    approval_id: str | None
    outcome: DurableOutcome | None
    result_bytes: int | None
    reason: str | None
    settled_as: SettledAs | None
    settled_by: str | None
    settled_reason: str | None
    settled_ms: int | None
    forgotten_ms: int | None
    forgotten_by: str | None
    forgotten_reason: str | None


class BegunShown(CameOfItShown):
    """What a begin is told; README says which keys come with which state."""

    call: str | None
    state: BegunState
    held_by: NotRequired[HeldBy]
    occurrence: NotRequired[int]
    runs: NotRequired[int]
    arguments: NotRequired[Anything]
    arguments_are_edited: NotRequired[bool]
    outcome: NotRequired[DurableOutcome | None]
    approval_id: NotRequired[str | None]
    reason: NotRequired[str | None]
    message: NotRequired[str | None]
    begun_ms: NotRequired[int | None]


def call_json(row: DurableCall) -> dict[str, JSON]:
    """Render a call; what came of it only where it was read."""
    shown: DurableCallShown = {
        "call": row.call,
        "session": row.session,
        "name": row.tool,
        "state": row.state,
        "arguments": object_or_text(row.arguments),
        "edited_arguments": None if row.edited is None else object_or_text(row.edited),
        "occurrence": row.occurrence,
        "key": row.key,
        "call_id": row.call_id,
        "owner": row.owner,
        "runs": row.runs,
        "created_ms": row.created_ms,
        "begun_ms": row.begun_ms,
        "lease_ms": row.lease_ms,
        "finished_ms": row.finished_ms,
        "approval_id": row.approval_id,
        "outcome": row.outcome,
        "result_bytes": row.value_bytes,
        **_value_json(row),
        "reason": row.reason,
        "settled_as": row.settled_as,
        "settled_by": row.settled_by,
        "settled_reason": row.settled_why,
        "settled_ms": row.settled_ms,
        "forgotten_ms": row.forgotten_ms,
        "forgotten_by": row.forgotten_by,
        "forgotten_reason": row.forgotten_why,
    }
    return as_json(shown)


def begun_json(begun: Begun, message: str | None) -> dict[str, JSON]:
    """Render what a tool is to do; `message`: what a model is told of a refused call."""
    row = begun.call
    found: BegunShown = {"call": None if row is None else row.call, "state": begun.state}
    if begun.held_by is not None:
        found["held_by"] = begun.held_by
    if row is None:
        return as_json(found)
    found["occurrence"] = row.occurrence
    found["runs"] = row.runs
    match begun.state:
        case "run":
            is_edited = row.edited is not None
            found["arguments"] = object_or_text(
                row.edited if row.edited is not None else row.arguments
            )
            found["arguments_are_edited"] = is_edited
        case "replay":
            found["outcome"] = row.outcome
            found = {**found, **_value_json(row)}
        case "held":
            found["approval_id"] = row.approval_id if begun.held_by == "approval" else None
        case "refused":
            found["approval_id"] = row.approval_id
            found["reason"] = row.reason
            found["message"] = message
        case "unknown":
            found["begun_ms"] = row.begun_ms
    return as_json(found)


def _value_json(row: DurableCall) -> CameOfItShown:
    if row.value is None or row.outcome is None:
        return {}
    value = parse(row.value.encode("utf-8", "surrogatepass"))
    return {"error": value} if row.outcome == "error" else {"result": value}
