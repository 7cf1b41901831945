"""What a durable call becomes by a begin, a report or a person's word. Pure, for all backends.

Theory of operation. Which call is it? (`choose`) Calls are equal by session, tool, canonical
arguments and key. Among equal ones:

1. With a key there is one call.
2. The same begin again (equal begin id, same owner) is the same call.
3. Without an owner an equal call is the same call; the model's call id tells two apart.
4. An owner without begin ids gets the call again that it took under this call id, or that it took
   and that has not ended: that is a retry.
5. Else each owner takes each call once: the one with its model's call id, else the first it has not
   taken. So the n-th equal call of a run is the n-th on record.
6. There is none left: a further call.

A call is **taken** when a begin is told to run it, what came of it, or that it was refused. While
it is held, or nobody knows whether it happened, nobody has taken it.

What then? (`meet`) Only its owner is told to run a call that is running: it may not have got the
answer. For any other it is held while the lease lasts, and then nobody knows: its owner may have
died before, in or after the act.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentstate.ground.approvals import Approval
from agentstate.ground.canonical import canonical, encode, parse
from agentstate.ground.clock import iso_moment
from agentstate.ground.durable import (
    Begin,
    Begun,
    DurableCall,
    DurableOutcome,
    DurableState,
    Report,
    Settlement,
    is_leased,
)
from agentstate.ground.errors import Conflict, NotFound, shorten
from agentstate.ground.events import Event, new_event_id
from agentstate.store.base import readable
from agentstate.store.events import ARGUMENTS_CHARS_MAX

NAME_BYTES = 10
UNKNOWN_KIND = "unknown"  # of an event that asks whether a call happened


@dataclass(frozen=True, slots=True)
class Taken:
    """That an owner has taken a call."""

    begin_id: str | None
    call_id: str | None


@dataclass(frozen=True, slots=True)
class Known:
    """An equal call as `choose` sees it."""

    durable_id: int
    state: DurableState
    call_id: str | None
    taken: Taken | None  # by the owner that begins; None = it has not


def choose(rows: Sequence[Known], begin: Begin) -> int | None:
    """Return the id of the call that a begin is about; None = a further one.

    `rows`: the equal calls that are not forgotten, by occurrence.
    """
    if begin.key is not None:
        return rows[0].durable_id if rows else None
    for row in rows:
        if begin.begin_id is not None and row.taken and row.taken.begin_id == begin.begin_id:
            return row.durable_id
    if begin.owner is None:
        fit = [row for row in rows if begin.call_id in (None, row.call_id)]
        return fit[0].durable_id if fit else None
    if begin.begin_id is None:
        for row in rows:
            if row.taken is not None and _is_retry(row, row.taken, begin):
                return row.durable_id
    left = [row for row in rows if row.taken is None]
    named = [row for row in left if begin.call_id is not None and row.call_id == begin.call_id]
    return next((row.durable_id for row in (*named, *left)), None)


def _is_retry(row: Known, taken: Taken, begin: Begin) -> bool:
    if begin.call_id is not None:
        return taken.call_id == begin.call_id
    return row.state not in ("done", "refused")


def meet(call: DurableCall, begin: Begin, approval: Approval | None) -> Begun:
    """Return what a begin is told of a call, with the call as it is from then on.

    `approval`: the one that is asked about it; None = none is.
    """
    match call.state:
        case "done":
            return Begun("replay", call)
        case "refused":
            return Begun("refused", call)
        case "ready":
            return _run(call, begin)
        case "asked":
            assert approval is not None, "it waits for a person"
            return _meet_asked(call, begin, approval)
        case "running":
            return _meet_running(call, begin)
        case "unknown":
            return _meet_unknown(call, begin)


def _meet_asked(call: DurableCall, begin: Begin, approval: Approval) -> Begun:
    decision = approval.decision
    if decision is None:
        return Begun("held", call, "approval", approval)
    if decision.is_approved:
        return _run(replace(call, edited=decision.arguments), begin)
    refused = replace(call, state="refused", reason=decision.reason, finished_ms=begin.at_ms)
    return Begun("refused", refused)


def _meet_running(call: DurableCall, begin: Begin) -> Begun:
    is_same_begin = begin.begin_id is not None and begin.begin_id == call.begin_id
    if begin.owner == call.owner and (
        is_same_begin or (begin.owner is not None and begin.begin_id is None)
    ):
        return Begun("run", replace(call, lease_ms=begin.lease_ms))
    if begin.owner is not None and begin.owner == call.owner:
        return Begun("held", call, "running")  # it lives: it is asking
    if is_leased(call.lease_ms, begin.at_ms):
        return Begun("held", call, "running")
    return _meet_unknown(replace(call, state="unknown"), begin)


def _meet_unknown(call: DurableCall, begin: Begin) -> Begun:
    match begin.on_unknown:
        case "ask":
            return Begun("unknown", call)
        case "run":
            return _run(call, begin)
        case "skip":
            reason = "nobody knows whether it happened, and a setting says to go on without it"
            return Begun("replay", _ended(call, "skipped", _skipped(reason), begin.at_ms))


def _run(call: DurableCall, begin: Begin) -> Begun:
    running = replace(
        call,
        state="running",
        owner=begin.owner,
        begin_id=begin.begin_id,
        begun_ms=begin.at_ms,
        lease_ms=begin.lease_ms,
        runs=call.runs + 1,
    )
    return Begun("run", running)


def takes(begun: Begun) -> bool:
    """Say whether the owner has taken the call by what it was told."""
    return begun.state in ("run", "replay", "refused")


def reported(call: DurableCall, report: Report, at_ms: int) -> DurableCall:
    """Return a call after its tool has reported; the same report again changes nothing.

    A report of whoever ran it is the truth, so it also ends what nobody was sure of, and what a
    person took not to have happened, as long as nobody runs it again. Where a person said that it
    happened, or to go on without it, that stands: it may have been replayed already.

    Raises:
        Conflict: it has another outcome, another owner runs it, or nobody was told to run it.
    """
    _check_counts(call)
    if call.state == "done":
        if report.outcome == "unknown" or _is_same(call, report):
            return call
        raise Conflict(
            f"Call {call.call} has an outcome already: {_ending(call)}. The first one stands, and "
            "this one was not recorded."
        )
    if call.runs == 0 or call.state in ("asked", "refused"):
        raise Conflict(f"Nobody was told to run call {call.call}; begin it first.")
    is_other = None not in (report.owner, call.owner) and report.owner != call.owner
    if is_other:
        raise Conflict(
            f"Call {call.call} is run by another owner since, {shorten(call.owner or '')!r}. This "
            "outcome was not recorded."
        )
    if report.outcome == "unknown":
        return replace(call, state="unknown") if call.state == "running" else call
    if not report.is_final:
        return replace(call, state="ready")
    return _ended(call, report.outcome, report.value, at_ms)


def settled(call: DurableCall, settlement: Settlement, at_ms: int) -> DurableCall:
    """Return a call after a person has said whether it happened: of one that nobody knows the end
    of, or that was begun and has no lease that lasts, since who began it may be dead.

    Raises:
        Conflict: there is nothing to settle; the message says who settled it before, and when.
    """
    _check_counts(call)
    may_be_dead = call.state == "running" and not is_leased(call.lease_ms, at_ms)
    if call.state != "unknown" and not may_be_dead:
        raise Conflict(_why_settled(call))
    call = replace(
        call,
        settled_as=settlement.outcome,
        settled_by=settlement.by,
        settled_why=settlement.reason,
        settled_ms=at_ms,
    )
    match settlement.outcome:
        case "happened":
            return _ended(call, "result", settlement.value or "null", at_ms)
        case "not_happened":
            return replace(call, state="ready")
        case "skip":
            told = settlement.value or _skipped(settlement.reason or "a person said so")
            return _ended(call, "skipped", told, at_ms)


def forgotten(call: DurableCall, *, by: str | None, reason: str | None, at_ms: int) -> DurableCall:
    """Return a call that no begin finds any more.

    Raises:
        Conflict: it is forgotten already, or it has not ended.
    """
    _check_counts(call)
    if call.state not in ("done", "refused"):
        raise Conflict(
            f"Call {call.call} is {call.state}: only what has ended can be forgotten. Settle it if "
            "nobody knows whether it happened."
        )
    return replace(call, forgotten_ms=at_ms, forgotten_by=by, forgotten_why=reason)


def unknown_event(call: DurableCall, at_ms: int) -> Event:
    """Make the event that a person must say whether a call happened.

    It is an approval.required of its own kind: the same people are asked, in the same place.
    """
    arguments = call.arguments if call.edited is None else call.edited
    return Event(
        event_id=new_event_id(),
        kind="approval.required",
        session=call.session,
        created_ms=at_ms,
        facts={
            "kind": UNKNOWN_KIND,
            "tool": call.tool,
            "arguments": arguments[:ARGUMENTS_CHARS_MAX],
            "arguments_cut": max(len(arguments) - ARGUMENTS_CHARS_MAX, 0),
            "why": "It was begun and never reported; nobody knows whether it happened. Settle it: "
            f"agentstate tools settle {call.call}",
            "call": call.call,
            "call_id": call.call_id,
            "deadline_ms": None,
        },
    )


def new_name() -> str:
    """Return what callers will know a call by."""
    return "dur_" + secrets.token_hex(NAME_BYTES)


def new_call(begin: Begin, occurrence: int) -> DurableCall:
    """Make a further call, before anything is decided about it."""
    return DurableCall(
        call=new_name(),
        session=begin.session,
        tool=readable(begin.tool),
        arguments=begin.arguments,
        digest=begin.digest,
        occurrence=occurrence,
        state="ready" if begin.question is None else "asked",
        created_ms=begin.at_ms,
        key=_mended(begin.key),
        call_id=_mended(begin.call_id),
    )


def readable_begin(begin: Begin) -> Begin:
    """Return a begin whose names can be stored and compared with stored ones."""
    return replace(
        begin,
        key=_mended(begin.key),
        call_id=_mended(begin.call_id),
        owner=_mended(begin.owner),
        begin_id=_mended(begin.begin_id),
    )


def readable_report(report: Report) -> Report:
    """The same of a report."""
    return replace(report, owner=_mended(report.owner))


def readable_settlement(settlement: Settlement) -> Settlement:
    """The same of a settlement."""
    by, reason = _mended(settlement.by), _mended(settlement.reason)
    return replace(settlement, by=by, reason=reason)


def no_call(session: str, call: str) -> NotFound:
    """Make the error for a name that no call of a session has."""
    return NotFound(f"Session {shorten(session)!r} has no durable call {shorten(call)!r}.")


def _ended(call: DurableCall, outcome: DurableOutcome, value: str, at_ms: int) -> DurableCall:
    return replace(
        call,
        state="done",
        outcome=outcome,
        value=value,
        value_bytes=len(value.encode("utf-8", "surrogatepass")),
        finished_ms=at_ms,
    )


def _is_same(call: DurableCall, report: Report) -> bool:
    if call.outcome != report.outcome or not report.is_final or call.value is None:
        return False
    return call.value == report.value or _canonical(call.value) == _canonical(report.value)


def _canonical(text: str) -> bytes:
    return canonical(parse(text.encode("utf-8", "surrogatepass")))


def _skipped(reason: str) -> str:
    return encode({"skipped": True, "reason": reason}).decode("ascii")


def _check_counts(call: DurableCall) -> None:
    if call.forgotten_ms is not None:
        by = f" by {shorten(call.forgotten_by)!r}" if call.forgotten_by else ""
        raise Conflict(f"Call {call.call} was forgotten{by} at {iso_moment(call.forgotten_ms)}.")


def _why_settled(call: DurableCall) -> str:
    if _stands_as_settled(call):
        return f"Call {call.call} {_settling(call)}; the first word stands."
    until = "" if call.lease_ms is None else f", until {iso_moment(call.lease_ms)} at most"
    said = {
        "asked": "waits for a person's approval",
        "ready": "is run by the next begin",
        "running": f"is being run{until}, as its owner said",
        "refused": "was refused, so it did not happen",
    }
    what = said.get(call.state) or f"has an outcome: {_ending(call)}"
    return f"Call {call.call} {what}. There is nothing to settle."


def _stands_as_settled(call: DurableCall) -> bool:
    """Say whether a call is as a person said; whoever ran it may have reported since that it did
    happen."""
    if call.settled_as == "not_happened":
        return call.state == "ready"
    return call.settled_as is not None and call.state == "done"


def _ending(call: DurableCall) -> str:
    if _stands_as_settled(call):
        return f"it {_settling(call)}"
    assert call.finished_ms is not None, "it has ended"
    return f"its {call.outcome} was recorded at {iso_moment(call.finished_ms)}"


def _settling(call: DurableCall) -> str:
    assert call.settled_ms is not None, "it was settled"
    by = f" by {shorten(call.settled_by)!r}" if call.settled_by else ""
    return f"was settled as {call.settled_as}{by} at {iso_moment(call.settled_ms)}"


def _mended(text: str | None) -> str | None:
    return None if text is None else readable(text)
