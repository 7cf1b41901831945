"""What a person or an agent wants to know after a crash: what replays, what is asked again, what
has to be looked at first.

The record is read, nothing is changed. What it says of a re-run holds for an agent that does again
what it did: steps that stand beside its way (an earlier try that went another way) count as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentstate.ground.approvals import Approval
from agentstate.ground.calls import Standing, UnknownCall
from agentstate.ground.clock import iso_moment
from agentstate.ground.control import Weight
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.records import Query, SessionRow, StepRow
from agentstate.ground.words import counted
from agentstate.steps.outcome import RULE
from agentstate.steps.tool_calls import Made, made_by
from agentstate.store.base import Store

OPEN_MAX = 100  # steps without an answer that are named
HOLDS_MAX = 100  # questions that are named
ANSWERS_MAX = 50  # the last answers with calls that are looked through
NAMED_MAX = 3  # in a sentence

_LAST = (2**62, 2**62)  # after every answer


@dataclass(frozen=True, slots=True)
class Recovery:
    """Where a session stands."""

    session: SessionRow
    standing: Standing
    last: StepRow | None  # the last step with an answer that replays; None = there is none
    waiting: tuple[Approval, ...]  # questions nobody has answered, the first asked first
    refused: tuple[Approval, ...]  # rejections at which a re-run ends again
    # Calls of answers that no request goes on from: what the agent did with them is not known.
    unanswered: tuple[Made, ...]
    unknown: tuple[UnknownCall, ...]  # durable calls that were begun and have no outcome
    at_ms: int  # when it was so

    @property
    def asked_again(self) -> int:
        """How many steps a re-run pays for again."""
        return self.standing.steps - self.standing.answered

    def advice(self) -> tuple[str, ...]:
        """Say in plain words what to do, in this order."""
        return tuple(_advise(self))


async def look(store: Store, session: str, *, at_ms: int) -> Recovery:
    """Find out where a session stands.

    Raises:
        NotFound: there is no such session.
    """
    row = await store.read_session(session)
    if row is None:
        raise NotFound(f"There is no session {shorten(session)!r}.")
    asked = Query(session=session, limit=HOLDS_MAX, newest_first=False, status="PENDING")
    # Side by side: of a long session each takes some tens of milliseconds of a thread.
    standing, waiting, made = await asyncio.gather(
        store.read_standing(session, OPEN_MAX),
        store.list_approvals(asked, at_ms=at_ms),
        _last_calls(store, session, at_ms),
    )
    last = None
    if standing.last_index is not None:
        last = await store.find_step(session, standing.last_index)
    return Recovery(
        session=row,
        standing=standing,
        last=last,
        waiting=waiting.rows,
        refused=tuple(
            one.approval for one in made if one.approval is not None and _ends_run(one.approval)
        ),
        unanswered=tuple(one for one in made if _is_unanswered(one)),
        unknown=await _open_durables(store, session),
        at_ms=at_ms,
    )


async def _open_durables(store: Store, session: str) -> tuple[UnknownCall, ...]:
    """Return the durable calls that were begun and of which nobody told what came."""
    found: list[UnknownCall] = []
    for state in ("running", "unknown"):
        query = Query(session=session, state=state, limit=OPEN_MAX)
        page = await store.list_durables(query)
        found += (
            UnknownCall(
                row.call,
                row.tool,
                row.begun_ms or row.created_ms,
                row.state == "running",
                row.lease_ms,
            )
            for row in page.rows
        )
    return tuple(found)


async def _last_calls(store: Store, session: str, at_ms: int) -> tuple[Made, ...]:
    """Return the calls of the last answers that replay, in order."""
    callings = await store.list_callings(session, _LAST, ANSWERS_MAX, newest_first=True)
    active = [one for one in callings[::-1] if one.state == "active"]
    return await made_by(store, active, at_ms=at_ms)


def _is_unanswered(made: Made) -> bool:
    """Say whether the agent may have run a call of which it never told."""
    has_gone_out = made.decided in ("none", "approved", "edited")
    return has_gone_out and not (made.results or made.is_continued or made.runs_upstream)


def _ends_run(approval: Approval) -> bool:
    decision = approval.decision
    return decision is not None and not decision.is_approved and decision.then != "continue"


# --- in words ---------------------------------------------------------------------------------


def _advise(found: Recovery) -> Iterator[str]:
    name = shorten(found.session.session)
    if (pause := found.session.pause) is not None:
        by = f" by {pause.by}" if pause.by else ""
        why = f" ({shorten(pause.reason)})" if pause.reason else ""
        yield f"It was paused{by}{why}: its calls wait until `agentstate sessions resume {name}`."
    yield from _advise_holds(found)
    yield from _advise_refusals(found.refused, name)
    if found.unanswered:
        several = len(found.unanswered) > 1
        yield (
            f"No result is on record of {_named(found.unanswered)}: {_may(several)} happened. "
            "A re-run is given the same again, so look first whether it may happen twice."
        )
    yield from _advise_unknown(found)
    flying = [number for _, number, state in found.standing.open if state == "in_flight"]
    if flying:
        yield f"{_steps_at(flying)} in flight now: an agent seems to be at work."
    yield _advise_run(found, name)


def _advise_holds(found: Recovery) -> Iterator[str]:
    expired = [one for one in found.waiting if one.status(found.at_ms) == "EXPIRED"]
    open_ = [one for one in found.waiting if one not in expired]
    if open_:
        first = open_[0]
        others = f", and {len(open_) - 1} more (`agentstate approvals list`)"
        yield (
            f"{shorten(first.question.tool)} of step {first.step_number} waits for a decision"
            f"{others if len(open_) > 1 else ''}: `agentstate approvals approve "
            f"{first.approval_id}`, or reject."
        )
    if expired:
        yield (
            f"{counted(len(expired), 'question')} expired before anybody answered; the next call "
            "that meets one asks again."
        )


def _advise_refusals(refused: Sequence[Approval], name: str) -> Iterator[str]:
    for one in refused[:NAMED_MAX]:
        decision = one.decision
        by = None if decision is None else decision.by
        who = "a rule" if by == RULE else shorten(by or "a person")
        yield (
            f"{shorten(one.question.tool)} of step {one.step_number} was refused by {who}, and a "
            f"re-run ends there again. To go on another way: `agentstate sessions rollback {name} "
            f"{one.step_number}`."
        )


def _advise_unknown(found: Recovery) -> Iterator[str]:
    """Say of durable calls what `durables.settled` takes, in the same three cases."""
    settle = "`agentstate tools settle CALL --happened | --not-happened | --skip`"
    leased = [one for one in found.unknown if one.is_leased(found.at_ms)]
    begun = [one for one in found.unknown if one.is_running and one not in leased]
    unknown = [one for one in found.unknown if not one.is_running]
    if unknown:
        yield (
            f"Nobody knows what came of {_listed(unknown)}. Say whether it happened before you run "
            f"it again: {settle}."
        )
    if begun:
        yield (
            f"Begun and not reported so far: {_listed(begun)}. If its agent is dead, say whether "
            f"it happened before you run it again: {settle}."
        )
    for one in leased:
        assert one.lease_ms is not None, "it is leased"
        yield (
            f"{_listed([one])} is being run until {iso_moment(one.lease_ms)} at most, as its agent "
            "said; after that it can be settled."
        )


def _listed(calls: Sequence[UnknownCall]) -> str:
    return ", ".join(f"{shorten(one.tool)} ({one.call_id})" for one in calls)


def _advise_run(found: Recovery, name: str) -> str:
    standing = found.standing
    if not standing.answered:
        return f"No step has an answer yet: run the agent with the session id {name}, all is asked."
    if found.session.status == "COMPLETED":
        return (
            f"It is completed. Run again with the session id {name}, {_replay(standing.answered)}."
        )
    gap = ""
    if standing.prefix < standing.answered:
        gap = f" The first {standing.prefix} stand without a gap."
    again = found.asked_again
    asked = f", {again} {'is' if again == 1 else 'are'} asked again" if again else ""
    saved = f" {_saved(standing.saves)} not paid again."
    run = f"Run the agent again with the session id {name}: {_replay(standing.answered)}{asked}."
    return run + gap + saved


def _replay(count: int) -> str:
    return f"{counted(count, 'step')} {'replays' if count == 1 else 'replay'}"


def _saved(weight: Weight) -> str:
    least = "at least " if weight.unknown_costs else ""
    tokens = weight.input_tokens + weight.output_tokens
    return f"{tokens} tokens ({least}${weight.cost_microusd / 1_000_000:.6f}) are"


def _named(made: Sequence[Made]) -> str:
    """Return some calls by their names."""
    names = [
        f"{shorten(one.call.name)} (step {one.calling.step_number}"
        + (f", {shorten(one.call.call_id)})" if one.call.call_id else ")")
        for one in made[-NAMED_MAX:]
    ]
    more = len(made) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _may(several: bool) -> str:
    return "they may or may not have" if several else "it may or may not have"


def _steps_at(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"Step {numbers[0]} is"
    return f"{len(numbers)} steps are"
