"""How a session stands with its budget, as the API shows it."""

from __future__ import annotations

from typing import Protocol, TypedDict

from agentstate.doors.api.shapes import as_json
from agentstate.ground.budget import BudgetAction, Limit, Source, shown
from agentstate.ground.canonical import JSON
from agentstate.steps.budget import Standing


class Standings(Protocol):
    """What knows budgets: `steps.budget.Budgets`."""

    async def standing(self, session: str) -> Standing:
        """Return how a session stands with its caps."""
        ...


# `from` is a word of the language.
LimitShown = TypedDict(
    "LimitShown",
    {
        "cap": float,
        "limit": float,
        "used": float,
        "left": float,
        "reached": bool,
        "from": Source,
    },
)


class UsedShown(TypedDict):
    """What a session has paid."""

    steps: int
    tokens: int
    cost_usd: float
    unknown_costs: int
    repeats: int


class BudgetShown(TypedDict):
    """How a session stands with its caps; those that are in force, by name."""

    caps: dict[str, LimitShown]
    action: BudgetAction
    used: UsedShown
    note: str | None
    set_ms: int | None
    set_by: str | None


def budget_json(standing: Standing) -> dict[str, JSON]:
    """Render how a session stands with its caps; money in dollars, as it is set."""
    budget = standing.budget
    spent = budget.spent
    is_blind = bool(spent.unknown_costs) and any(one.cap == "cost_usd" for one in standing.limits)
    shown_budget: BudgetShown = {
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
    return as_json(shown_budget)


def _limit_json(limit: Limit) -> LimitShown:
    return {
        "cap": shown(limit.cap, limit.amount),
        "limit": shown(limit.cap, limit.limit),
        "used": shown(limit.cap, limit.used),
        "left": shown(limit.cap, limit.left),
        "reached": limit.is_reached,
        "from": limit.source,
    }
