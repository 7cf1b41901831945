"""The store, as far as budgets need it: what a session has paid, and what caps it has of its own.

A part of `Store` (`base.py`), whose promises hold here as well.

What is paid is counted in the transaction that records it: each answer and each round, less what is
taken back. Replays and joins record none. Answers that a session shares with another one are not
its own, and count for the one in which they were recorded.

Two questions of the gate are about budgets (`open_approvals` with a question of kind "budget"): one
is found again by its digest within its session, whichever step asks, unless that step was rolled
back. An approval of it lets the session go on for as much as its arguments, or the edited ones,
say; that is written with the decision.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.approvals import Approval
from agentstate.ground.budget import Budget, BudgetChange
from agentstate.ground.events import Event

# Why a question is closed that nobody decided.
CHANGED = "the budget was changed"
OVER = "the cap is no longer reached"


class BudgetStore(Protocol):
    """What is on record of budgets."""

    def may_have_budget(self, session: str) -> bool:
        """Say whether a session may have caps of its own; False is certain. Never waits and never
        fails."""
        ...

    async def read_budget(self, session: str) -> Budget:
        """Return what is on record of a session's budget; of one never seen, that of a new one."""
        ...

    async def set_budget(
        self, session: str, change: BudgetChange, *, at_ms: int, by: str | None = None
    ) -> None:
        """Write what a person sets for a session. Fsynced.

        What people let go on before no longer counts for the caps that are named. Questions that
        wait are closed as approved, without more: who waits looks at the caps anew.

        Raises:
            NotFound: there is no such session.
        """
        ...

    async def close_budget_questions(self, session: str, *, at_ms: int) -> None:
        """Close the questions that wait as approved, without more: no cap is reached any more."""
        ...

    async def find_budget_question(self, session: str, digest: bytes) -> Approval | None:
        """Return the question about a budget with this digest, of an active step; None = none."""
        ...

    async def record_budget_reached(self, event: Event, failed: Event | None = None) -> bool:
        """Write that a session has come to a cap; False = an event with this id was there, and
        nothing was written. With `failed` the session is FAILED until its next call, and `failed`
        is told if it was not before."""
        ...
