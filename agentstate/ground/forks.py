"""Runs that begin as another one stood, and runs that are deleted. Values only, all frozen.

The counterparts are `store/base_forks.py`, which keeps them, and `steps/control.py`, which tells
who waits. Time is integer milliseconds UTC (`_ms`), money integer micro-dollars (`_microusd`).
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.ground.control import Place, Weight


@dataclass(frozen=True, slots=True)
class ForkAsk:
    """What somebody wants of a fork."""

    before: Place | None = None  # the first steps it does not share; None = it shares all
    session: str | None = None  # the new session's id; None = a free one is made
    title: str | None = None  # what people call it; None = as the other, '' = it gets no name
    by: str | None = None
    # What was decided counts in the fork as well. False: nobody's approval does, so the first
    # release there of a guarded call is asked about.
    inherits_decisions: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a forked session comes from."""

    session: str  # by its name: it may be gone
    made_ms: int
    by: str | None  # None = nobody said
    before: Place | None  # as in `ForkAsk`
    shared_steps: int  # those it began with; what they cost was paid in the other session


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is deleted with a session, or would be."""

    session: str
    weight: Weight  # its steps, and what was paid in it
    content_bytes: int  # on the disk, of its answers alone: requests may be other sessions' too
    forks: tuple[str, ...]  # sessions that were forked from it; they stay as they are
