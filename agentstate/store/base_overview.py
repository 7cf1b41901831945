"""The store, as far as the dashboard needs it: what changed, marks of steps, sums over time.

A part of `Store` (`base.py`), whose promises hold here as well. Nothing here is asked during a
call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agentstate.ground.overview import Counts, Mark, Span

Tell = Callable[[frozenset[str]], None]


class OverviewStore(Protocol):
    """What is read to show how things are."""

    def watch(self, tell: Tell) -> None:
        """Have `tell` called with the sessions that something was written of, once it can be read;
        on the event loop, and for as long as the store lives. A hint: it may name one of which
        nothing was written in the end, never too few. Again: the new one instead of the old."""
        ...

    async def list_marks(self, session: str, first: int, last: int) -> tuple[Mark, ...]:
        """Return the marks of the steps at these indexes, both included."""
        ...

    async def list_gaps(self, session: str) -> tuple[tuple[int, int], ...]:
        """Return the indexes below its last at which a session has no step, as (first, last), both
        included, in order. Only a fork has some: those that were not shared."""
        ...

    async def count_between(self, span: Span) -> Counts:
        """Count what happened in a span.

        Answers count by when they came, failed steps by when they were asked. A clock that was set
        back by over ten minutes may hide what was recorded before.
        """
        ...

    async def find_first(self) -> int | None:
        """Return when the first session began; None = there is none."""
        ...
