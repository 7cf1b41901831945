"""The store, as far as durable tool calls need it: begins, reports, what people say of them.

A part of `Store` (`base.py`), whose promises hold here as well. What becomes of a call is worked
out in `durables.py`, which all backends share.

A rollback leaves them alone: a mail that was sent is not taken back. Only `forget_durable` makes
the next equal call a new one.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.approvals import Approval
from agentstate.ground.durable import Begin, Begun, DurableCall, DurablePage, Report, Settlement
from agentstate.ground.records import Query


class DurableStore(Protocol):
    """What is on record of tools that must not act twice."""

    async def begin_durable(self, begin: Begin) -> Begun:
        """Say what a tool that is about to act is to do, and write it. Fsynced.

        Which call it is says `durables.choose`, what it is told `durables.meet`. With a question a
        further call is held, unless an approval of `covered_by` stands for no call yet: the first
        such one then stands for it. An approval that has expired undecided is asked again.

        approval.required is told when a question is asked, and when a call becomes unknown.
        """
        ...

    async def report_durable(
        self, session: str, call: str, report: Report, *, at_ms: int
    ) -> DurableCall:
        """Write what came of a call; the same again changes nothing. Fsynced.

        After a report that gives the call back its owner has not taken it. Where it becomes unknown
        by it, people are told as by a begin.

        Raises:
            NotFound: the session has no such call.
            Conflict: as `durables.reported`.
        """
        ...

    async def settle_durable(
        self, session: str, call: str, settlement: Settlement, *, at_ms: int
    ) -> DurableCall:
        """Write what a person says of a call that has no outcome; the first one stands. Fsynced.

        Raises:
            NotFound: the session has no such call.
            Conflict: as `durables.settled`.
        """
        ...

    async def forget_durable(
        self,
        session: str,
        call: str,
        *,
        at_ms: int,
        by: str | None = None,
        reason: str | None = None,
    ) -> DurableCall:
        """Have no begin find a call that has ended. It stays visible. Fsynced.

        Raises:
            NotFound: the session has no such call.
            Conflict: as `durables.forgotten`.
        """
        ...

    async def read_durable(self, call: str) -> DurableCall | None:
        """Return one call whole, or None."""
        ...

    async def list_durables(self, query: Query) -> DurablePage:
        """List calls, newest first; `session` and `state` filter.

        Raises:
            BadRequest: as `list_sessions`.
        """
        ...

    async def list_let_out(self, session: str, tool: str) -> tuple[Approval, ...]:
        """Return the approved calls of this tool that were given to an agent and stand for no
        durable call yet, of active steps, the first asked first."""
        ...
