"""Tool calls that models made, as they stand on record. Values only, all frozen.

A call is named by its answer and its `Place` in it, never by the provider's call id, which some
models repeat or leave out. What came of a call stands in a later request of the agent, so it is
found by how requests grow (`Growth`): each goes on from one before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentstate.ground.approvals import Approval
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import Weight
from agentstate.ground.durable import is_leased
from agentstate.ground.records import StepState

CallState = Literal["active", "rolled_back", "replaced", "taken_back"]
# active       its answer replays      replaced    another answer of the step took its place
# rolled_back  its step was            taken_back  it turned out to be no whole answer

TEXT_KIND = "text"  # of a call that a text spells; others have `ToolCall.kind`
_LOOKED_MAX = 256  # places looked at below one, to find who asked there first


@dataclass(frozen=True, slots=True)
class Calling:
    """An answer that calls tools, of a step or of a round after a refusal."""

    session: str
    step_id: int
    index: int
    step_number: int
    dialect: str
    model: str
    answer_id: int
    answered_ms: int
    response_id: str | None  # the provider's; None = it sent none
    root_id: int  # the first answer of the step's rounds; its own id if this is that one
    number: int  # of the round: 0 = the first answer
    state: CallState
    place: int  # of all messages of the request; 0 = it has no list of messages
    calls: tuple[tuple[int, ToolCall], ...]  # (choice index, call), those of the wire form
    approvals: tuple[Approval, ...]  # of the answer, as `Store.approvals_of`

    def all_calls(self) -> tuple[tuple[int, ToolCall], ...]:
        """Return its calls, then those that its text spells and the gate asked about."""
        spelled = (
            (
                one.question.choice,
                ToolCall(
                    one.question.position,
                    None,
                    one.question.tool,
                    one.question.arguments,
                    TEXT_KIND,
                ),
            )
            for one in self.approvals
            if one.question.kind == "text" and not one.question.generation
        )
        return (*self.calls, *spelled)

    def approval_of(self, choice: int, call: ToolCall) -> Approval | None:
        """Return the last question about a call; None = nobody was asked."""
        kind = "text" if call.kind == TEXT_KIND else "tool_call"
        place = (kind, choice, call.position)
        found = [
            one
            for one in self.approvals
            if (one.question.kind, one.question.choice, one.question.position) == place
        ]
        return max(found, key=lambda one: one.question.generation, default=None)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a session, as far as it tells what it goes on from."""

    index: int
    step_number: int
    place: int  # 0 = it has no list of messages
    envelope: JSON  # the rest of its body


@dataclass(frozen=True, slots=True)
class Growth:
    """How the requests of a session grow out of one another; places as in `lineage.py`."""

    asked: Mapping[int, Sequence[int]]  # place → indexes of the steps asked just there, in order
    below: Mapping[int, Sequence[int]]  # place → the places of one message more; 0 = the first ones
    above: Mapping[int, int | None]  # place → the one of a message less; None = it is a first one
    # Place → the others that end with the same message, after as many: an agent that was given an
    # answer again though its tools had told otherwise went on from it there.
    alike: Mapping[int, Sequence[int]]
    numbers: Mapping[int, int]  # index → step number
    is_all: bool  # there are no later steps

    def first_after(self, place: int, index: int) -> int | None:
        """Return a step after `index` whose request begins with a place; None = there is none.

        Where several do, it is the first of those whose requests are not longer ones of another.
        """
        first: int | None = None
        waiting = [place]
        for _ in range(_LOOKED_MAX):
            if not waiting:
                break
            one = waiting.pop()
            here = self.asked.get(one, ())
            at = bisect_right(here, index)
            if at < len(here):
                first = here[at] if first is None else min(first, here[at])
            else:
                waiting += self.below.get(one, ())
        return first


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a session stands: its active steps, and what a re-run does not pay again."""

    steps: int  # active ones
    answered: int  # of these, with an answer that replays
    prefix: int  # answered ones from the first on, up to the first one without an answer
    last_index: int | None  # of the last answered one; None = there is none
    open: tuple[tuple[int, int, StepState], ...]  # (index, number, state) without an answer
    saves: Weight  # of the answered ones, rounds included


@dataclass(frozen=True, slots=True)
class UnknownCall:
    """A durable tool call that was begun and of which nobody told whether it happened."""

    call_id: str
    tool: str
    begun_ms: int
    is_running: bool = False  # its process may live and tell yet
    lease_ms: int | None = None  # until when that process said it lives; None = not said

    def is_leased(self, at_ms: int) -> bool:
        """Say whether its process lives, as that said, so that nobody can settle it yet."""
        return self.is_running and is_leased(self.lease_ms, at_ms)


def grow(
    asked: Iterable[tuple[int, int, int]],
    nodes: Mapping[int, tuple[int | None, Hashable]],
    *,
    is_all: bool,
) -> Growth:
    """Put together how requests grow.

    `asked` is (index, step number, place) of steps; `nodes` says of places which one is above, None
    = it is a first message, and what names its last message together with how many there are.
    """
    numbers: dict[int, int] = {}
    at: dict[int, list[int]] = {}
    for index, number, place in asked:
        if place and index not in numbers:
            at.setdefault(place, []).append(index)
        numbers[index] = number
    below: dict[int, list[int]] = {}
    same: dict[Hashable, list[int]] = {}
    for place, (parent, last) in nodes.items():
        below.setdefault(parent or 0, []).append(place)
        same.setdefault(last, []).append(place)
    for some in (*at.values(), *below.values()):
        some.sort()
    return Growth(
        asked=at,
        below=below,
        above={place: parent for place, (parent, _) in nodes.items()},
        alike={
            place: [other for other in places if other != place]
            for places in same.values()
            if len(places) > 1
            for place in places
        },
        numbers=numbers,
        is_all=is_all,
    )
