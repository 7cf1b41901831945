"""Budgets in the dictionary store; `memory.py` builds on it.

What was paid is counted anew at each reading, where SQLite keeps sums.
"""

from __future__ import annotations

from dataclasses import replace

from agentstate.ground.approvals import Approval, Decision
from agentstate.ground.budget import Budget, BudgetChange, Caps, Spent, cap_of, read_more
from agentstate.ground.events import Event
from agentstate.store.base_budget import CHANGED, OVER
from agentstate.store.events import why_of
from agentstate.store.memory_control import MemoryControl
from agentstate.store.memory_rows import (
    KeptApproval,
    KeptBudget,
    KeptSession,
    maybe_readable,
)


class MemoryBudget(MemoryControl):
    """The methods of `Store` about budgets."""

    def may_have_budget(self, session: str) -> bool:
        """See `Store.may_have_budget`."""
        found = self._sessions.get(session)
        return found is not None and found.budget.is_known

    async def read_budget(self, session: str) -> Budget:
        """See `Store.read_budget`."""
        self._check_open()
        found = self._sessions.get(session)
        if found is None:
            return Budget()
        kept = found.budget
        until = kept.until
        if kept.until_row != kept.row:
            until = until.having("repeats", None)
        return Budget(
            spent=_spent(kept),
            set=kept.set,
            said=kept.said,
            until=until,
            changes=kept.changes,
            created_ms=found.created_ms,
            set_ms=kept.set_ms,
            set_by=kept.set_by,
            is_asked=bool(_waiting(found)),
        )

    async def set_budget(
        self, session: str, change: BudgetChange, *, at_ms: int, by: str | None = None
    ) -> None:
        """See `Store.set_budget`."""
        self._check_open()
        found = self._session(session)
        kept = found.budget
        if change.clears:
            kept.set = kept.until = Caps()
        for cap, amount in change.caps.items():
            kept.set = kept.set.having(cap, amount)
            kept.until = kept.until.having(cap, None)
        if change.action is not None:
            kept.set = replace(kept.set, action=change.action)
        kept.set_ms, kept.set_by = at_ms, maybe_readable(by)
        kept.changes += 1
        kept.is_known = True
        _close(found, Decision(True, kept.set_by, CHANGED), at_ms)
        found.touch(at_ms)

    async def close_budget_questions(self, session: str, *, at_ms: int) -> None:
        """See `Store.close_budget_questions`."""
        self._check_open()
        if session in self._sessions:
            _close(self._sessions[session], Decision(True, None, OVER), at_ms)

    async def find_budget_question(self, session: str, digest: bytes) -> Approval | None:
        """See `Store.find_budget_question`."""
        self._check_open()
        found = self._sessions.get(session)
        for kept in found.approvals if found is not None else ():
            is_it = kept.question.kind == "budget" and kept.question.digest == digest
            if is_it and kept.rolled_back_ms is None:
                return self._shown(kept)
        return None

    async def record_budget_reached(self, event: Event, failed: Event | None = None) -> bool:
        """See `Store.record_budget_reached`."""
        self._check_open()
        if not self._tell(event):
            return False
        found = self._sessions.get(event.session)
        if failed is None or found is None:
            return True
        if found.fail(why_of(failed), None, failed.created_ms):
            found.touch(failed.created_ms)
            self._tell(failed)
        return True

    def _go_on(self, session: KeptSession, approval: Approval) -> None:
        assert approval.decision is not None, "it is decided"
        kept = session.budget
        cap = cap_of(approval.question.tool)
        more = read_more(cap, approval.decision.arguments or approval.question.arguments)
        until = max(kept.until.of(cap) or 0, _spent(kept).of(cap) + more)
        kept.until = kept.until.having(cap, until)
        kept.changes += 1
        if cap == "repeats":
            kept.until_row = kept.row


def _waiting(session: KeptSession) -> list[KeptApproval]:
    return [
        approval
        for approval in session.approvals
        if approval.question.kind == "budget" and approval.decision is None
    ]


def _close(session: KeptSession, decision: Decision, at_ms: int) -> None:
    for approval in _waiting(session):
        approval.decision, approval.decided_ms = decision, at_ms


def _spent(kept: KeptBudget) -> Spent:
    paid = [answer for answer in kept.paid if not answer.is_taken_back]
    usages = [answer.usage for answer in paid if answer.usage is not None]
    costs = [answer.cost_microusd for answer in paid if answer.cost_microusd is not None]
    return Spent(
        steps=len(paid),
        tokens=sum(usage.input_tokens + usage.output_tokens for usage in usages),
        cost_microusd=sum(costs),
        unknown_costs=len(paid) - len(costs),
        repeats=kept.repeats,
        row=kept.row,
    )
