"""The store, as far as tool calls on record and recovery need it.

A part of `Store` (`base.py`), whose promises hold here as well. Nothing here is asked during a
call, and a call in flight keeps nothing for it: all is read from what stands there anyway.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.calls import Calling, Growth, Request, Standing


class CallStore(Protocol):
    """What is read about tool calls, and where a session stands."""

    async def list_callings(
        self,
        session: str,
        start: tuple[int, int],
        limit: int,
        *,
        last: int | None = None,
        newest_first: bool = False,
    ) -> tuple[Calling, ...]:
        """Return answers of `session` that call tools, by (index of the step, id of the answer),
        from `start` on, which is included, to the step `last`, None = to the end; `newest_first`
        goes down from there.

        All answers are meant: of steps rolled back, those that were replaced, and rounds.
        """
        ...

    async def read_growth(
        self, session: str, places: tuple[int, ...], after: int, limit: int
    ) -> Growth:
        """Return how the requests of the first `limit` steps after the index `after` grow below
        places, and maybe beside them; `asked` also has all steps that were asked just at these."""
        ...

    async def list_requests(
        self, session: str, dialect: str, after: int, limit: int
    ) -> tuple[Request, ...]:
        """Return the requests of steps in a dialect, by index from `after` + 1 on."""
        ...

    async def read_standing(self, session: str, open_max: int) -> Standing:
        """Return where a session stands; of steps without an answer the first `open_max`."""
        ...
