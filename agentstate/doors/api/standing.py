"""How a session stands with its budget, as the API shows it."""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.budget import Limit, shown
from agentstate.ground.canonical import JSON
from agentstate.steps.budget import Standing


class Standings(Protocol):
    """What knows budgets: `steps.budget.Budgets`."""

    async def standing(self, session: str) -> Standing:
        """Return how a session stands with its caps."""
        ...


def budget_json(standing: Standing) -> JSON:
    """Render how a session stands with its caps; money in dollars, as it is set."""
    budget = standing.budget
    spent = budget.spent
    is_blind = bool(spent.unknown_costs) and any(one.cap == "cost_usd" for one in standing.limits)
    return {
        "caps": {limit.cap: _limit_json(limit) for limit in standing.limits},
        "action": standing.action,
        "used": {
            "steps": spent.steps,
            "tokens": spent.tokens,
            "cost_usd": shown("cost_usd", spent.cost_microusd),
            "unknown_costs": spent.unknown_costs,
            "repeats": spent.repeats,
        },
        "note": f"the cost of {spent.unknown_costs} answers is not known and counts for no cap"
        if is_blind
        else None,
        "set_ms": budget.set_ms,
        "set_by": budget.set_by,
    }


def _limit_json(limit: Limit) -> JSON:
    return {
        "cap": shown(limit.cap, limit.amount),
        "limit": shown(limit.cap, limit.limit),
        "used": shown(limit.cap, limit.used),
        "left": shown(limit.cap, limit.left),
        "reached": limit.is_reached,
        "from": limit.source,
    }
