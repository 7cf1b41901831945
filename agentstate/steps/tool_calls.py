"""The tool calls of a session, one by one: what was called, what was decided, what came of it.

Read from the record when somebody asks (`tool_results.py` finds what came of a call); a call in
flight keeps nothing for it. The counterpart that shows it is `doors/api/tool_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from agentstate.dialects import dialect_by_name
from agentstate.ground.approvals import Approval
from agentstate.ground.calls import Calling, CallState
from agentstate.ground.chat import ToolCall
from agentstate.ground.errors import BadRequest, SettingError
from agentstate.ground.globs import Glob
from agentstate.steps import aside
from agentstate.steps.names import exact, exact_readings
from agentstate.steps.reading import read_recorded
from agentstate.steps.tool_matches import RUN_BY_AGENT, is_same, name_of
from agentstate.steps.tool_results import ANSWERS_MAX, Came, Results, find_results
from agentstate.store.base import Store, make_cursor, read_cursor

SCANNED_MAX = 1000  # calls looked through for a page that filters; then it is shorter

Decided = Literal["none", "pending", "expired", "approved", "edited", "rejected"]
# none      nobody was asked                       approved  a person, or a rule, let it go
# pending   a person is asked                      edited    the same, with other arguments
# expired   asked, and nobody said anything        rejected  it did not go out


@dataclass(frozen=True, slots=True)
class Made:
    """One call."""

    calling: Calling  # the answer that made it
    choice: int
    call: ToolCall
    runs_upstream: bool  # the provider ran it: no result comes from the agent
    approval: Approval | None  # the last question about it; None = nobody was asked
    decided: Decided
    results: tuple[Came, ...]  # by step; the first one, and those that differ from it
    is_continued: bool  # some request goes on from its answer, with results or without


@dataclass(frozen=True, slots=True)
class Sought:
    """Which calls of a session are wanted; None = any."""

    session: str
    tool: str | None = None  # a glob of names
    index: int | None = None  # of the step
    state: CallState | None = None
    decided: Decided | None = None
    answered: bool | None = None  # a result of it is on record
    after: str | None = None  # opaque cursor of the page before; None = first page
    limit: int = 100


@dataclass(frozen=True, slots=True)
class MadePage:
    """One page of calls, by step, answer and place. `next_cursor` None = the last page. It may be
    shorter than was asked for, or empty, and yet not be the last one."""

    rows: tuple[Made, ...]
    next_cursor: str | None


async def list_made(store: Store, sought: Sought, *, at_ms: int) -> MadePage:
    """Return a page of calls; `at_ms` says which questions have expired.

    Raises:
        BadRequest: `tool` is no glob, or `after` no cursor of this listing.
    """
    wants = _filter(sought, at_ms)
    index, answer_id, skipped = read_cursor(sought.after, 3) or (sought.index or 0, 0, 0)
    rows: list[Made] = []
    scanned = 0
    while True:
        callings = await store.list_callings(
            sought.session, (index, answer_id), sought.limit + 1, last=sought.index
        )
        items = [item for item in _items(callings, index, answer_id, skipped) if wants(item)]
        for item, made in zip(items, await _complete(store, items, at_ms), strict=True):
            if sought.answered not in (None, bool(made.results)):
                continue
            if len(rows) == sought.limit:
                return MadePage(tuple(rows), make_cursor(*item.cursor))
            rows.append(made)
        scanned += sum(len(one.all_calls()) for one in callings)
        if len(callings) <= sought.limit:
            return MadePage(tuple(rows), None)
        index, answer_id, skipped = callings[-1].index, callings[-1].answer_id + 1, 0
        if scanned >= SCANNED_MAX:
            return MadePage(tuple(rows), make_cursor(index, answer_id, skipped))


async def made_by(store: Store, callings: Sequence[Calling], *, at_ms: int) -> tuple[Made, ...]:
    """Return all calls of some answers of one session."""
    return await _complete(store, list(_items(callings, 0, 0, 0)), at_ms)


@dataclass(frozen=True, slots=True)
class _Item:
    """A call before it is known what came of it."""

    calling: Calling
    choice: int
    call: ToolCall
    cursor: tuple[int, int, int]  # (index of the step, id of the answer, number in the answer)


def _items(
    callings: Sequence[Calling], index: int, answer_id: int, skipped: int
) -> Iterator[_Item]:
    """Yield the calls of answers in order; of the one that is named, those from a number on."""
    for calling in callings:
        place = (calling.index, calling.answer_id)
        for number, (choice, call) in enumerate(calling.all_calls()):
            if place != (index, answer_id) or number >= skipped:
                yield _Item(calling, choice, call, (*place, number))


def _filter(sought: Sought, at_ms: int) -> Callable[[_Item], bool]:
    """Return what says of a call whether it may be wanted, without a look at its results."""
    try:
        glob = None if sought.tool is None else Glob(sought.tool, exact)
    except SettingError as error:
        raise BadRequest(f"tool: {error.message}", param="tool") from error

    def wants(item: _Item) -> bool:
        if glob is not None and not any(map(glob.matches, exact_readings(item.call.name))):
            return False
        if sought.state not in (None, item.calling.state):
            return False
        approval = item.calling.approval_of(item.choice, item.call)
        return sought.decided in (None, decided(approval, at_ms))

    return wants


def decided(approval: Approval | None, at_ms: int) -> Decided:
    """Say in a word what was decided about a call."""
    if approval is None:
        return "none"
    match approval.status(at_ms):
        case "PENDING":
            return "pending"
        case "EXPIRED":
            return "expired"
        case "REJECTED":
            return "rejected"
        case "APPROVED":
            is_edited = approval.decision is not None and approval.decision.arguments is not None
            return "edited" if is_edited else "approved"


async def _complete(store: Store, items: Sequence[_Item], at_ms: int) -> tuple[Made, ...]:
    """Find out what came of calls, which are of one session and in order."""
    if not items:
        return ()
    callings = list({item.calling.answer_id: item.calling for item in items}.values())
    session = callings[0].session
    found = await find_results(store, session, await _with_siblings(store, session, callings))
    upstream: set[tuple[int, int, int]] = set()
    for calling in callings:
        upstream |= await _find_upstream(store, calling)
    return tuple(_made(item, found, upstream, at_ms) for item in items)


async def _with_siblings(
    store: Store, session: str, callings: Sequence[Calling]
) -> tuple[Calling, ...]:
    """Return answers with the others of the first step and of the last: a page may cut them off."""
    first, last = callings[0], callings[-1]
    before = await store.list_callings(
        session,
        (first.index, first.answer_id - 1),
        ANSWERS_MAX,
        last=first.index,
        newest_first=True,
    )
    after = await store.list_callings(
        session, (last.index, last.answer_id + 1), ANSWERS_MAX, last=last.index
    )
    return (*before[::-1], *callings, *after)


async def _find_upstream(store: Store, calling: Calling) -> set[tuple[int, int, int]]:
    """Return which calls of an answer the provider ran by itself, as (answer id, choice, position);
    the record does not say it beside the call."""
    if all(call.kind in RUN_BY_AGENT for _, call in calling.calls):
        return set()
    dialect = dialect_by_name(calling.dialect)
    recorded = await store.read_answer_by_id(calling.answer_id)
    if dialect is None or recorded is None:
        return set()
    answer = await aside.run(partial(read_recorded, dialect, recorded), len(recorded.content))
    return {
        (calling.answer_id, choice, call.position)
        for choice, call in answer.tool_calls
        if call.runs_upstream
    }


def _made(item: _Item, found: Results, upstream: set[tuple[int, int, int]], at_ms: int) -> Made:
    calling, choice, call = item.calling, item.choice, item.call
    results: list[Came] = []
    for came in found.by_call.get(name_of(calling, choice, call), ()):
        if not any(is_same(one.content, came.content) for one in results):
            results.append(came)
    approval = calling.approval_of(choice, call)
    return Made(
        calling=calling,
        choice=choice,
        call=call,
        runs_upstream=(calling.answer_id, choice, call.position) in upstream,
        approval=approval,
        decided=decided(approval, at_ms),
        results=tuple(results),
        is_continued=calling.root_id in found.continued,
    )
