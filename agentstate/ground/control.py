"""What people do to a run: take steps back, pause it, name it. Values only, all frozen.

The counterparts are `store/base_control.py`, which keeps them, and `steps/control.py`, which tells
who waits. Time is integer milliseconds UTC (`_ms`), money integer micro-dollars (`_microusd`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agentstate.ground.budget import Caps

# Indexes of steps as (first, last), both included, in order and apart.
Ranges = tuple[tuple[int, int], ...]
Tags = tuple[tuple[str, str], ...]  # (name, value), sorted; each name once

TAGS_MAX = 64  # of a session; what is over is left out
TAGS_SOUGHT_MAX = 8  # of a listing: what a session must have
SettableStatus = Literal["RUNNING", "COMPLETED", "FAILED"]


@dataclass(frozen=True, slots=True)
class About:
    """What an agent says of its session with a call."""

    name: str | None = None  # for people; None = it does not say
    parent: str | None = None  # the session that began this one; None = it does not say
    tags: Tags = ()
    budget: Caps | None = None  # None = it does not say


@dataclass(frozen=True, slots=True)
class Place:
    """From where on steps are meant; exactly one of the two is not None."""

    step_number: int | None = None  # all steps with this number or a higher one
    index: int | None = None  # all steps with this index or a higher one


@dataclass(frozen=True, slots=True)
class Weight:
    """What steps have cost, so about what it costs to run them again."""

    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0
    unknown_costs: int = 0  # answered steps whose cost is not known, so the sum is a lower bound


@dataclass(frozen=True, slots=True)
class Swap:
    """That another answer of a step stands than before."""

    index: int  # of the step
    from_id: int  # the answer that stood
    to_id: int  # the one that stands since


@dataclass(frozen=True, slots=True)
class Rollback:
    """One change of what replays in a session: a rollback, an edit or a rerun of a step, or a
    restore that undoes one of these.

    A restore brings the session back to how it was just before what it undoes, so also what came
    in between is undone.
    """

    rollback_id: int  # counts within the session, from 1
    session: str
    made_ms: int
    by: str | None  # None = nobody said
    place: Place | None  # what was asked for; None = it is a restore
    undoes: int | None  # the id of what it undoes; None = it is no restore
    taken: Ranges  # the steps that it made inactive
    returned: Ranges  # the steps that it made active again
    weight: Weight  # of those it made inactive
    undone_ms: int | None = None  # None = it is in force
    undone_by: int | None = None  # the id of the restore that undid it
    verb: Literal["rollback", "edit", "rerun"] = "rollback"  # of a restore it says nothing
    swaps: tuple[Swap, ...] = ()  # by index; of steps of which another answer stands

    @property
    def kind(self) -> Literal["rollback", "edit", "rerun", "restore"]:
        """Say what it is."""
        return self.verb if self.undoes is None else "restore"


@dataclass(frozen=True, slots=True)
class Pause:
    """That the calls of a session are held until somebody resumes it."""

    since_ms: int
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What somebody changes of a session; None leaves it as it is."""

    status: SettableStatus | None = None
    name: str | None = None  # '' takes the name away
    tags: tuple[tuple[str, str | None], ...] = ()  # a value of None takes the tag away


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return numbers that come in rising order, each once, as ranges."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def is_within(number: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Say whether a number lies in one of the ranges."""
    return any(first <= number <= last for first, last in ranges)


def count_of(ranges: Sequence[tuple[int, int]]) -> int:
    """Return how many numbers the ranges hold."""
    return sum(last - first + 1 for first, last in ranges)


def numbers_of(ranges: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Yield the numbers that the ranges hold, in order."""
    return (number for first, last in ranges for number in range(first, last + 1))
