"""Budgets of sessions: how they stand, and what a person sets.

Setting is a POST with a JSON body, which no page of another site can send unasked. What a budget is
and who may say what of it is in `ground/budget.py`.
"""

from __future__ import annotations

from typing import Protocol, TypedDict, get_args

from agentstate.doors.api.bodies import BY_CHARS_MAX, read_body, read_by
from agentstate.doors.api.reply import json_response, read_params
from agentstate.doors.api.standing import BudgetShown, Standings, budget_json
from agentstate.ground.budget import BudgetAction, BudgetChange, expected
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.records import SessionStatus
from agentstate.steps.caps import read_change
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

_SET = (
    Field("steps", f"answers it may pay for, {expected('steps')}; null = as others say", "integer",
          takes_null=True),
    Field("tokens", f"tokens in and out, {expected('tokens')}", "integer", takes_null=True),
    Field("cost_usd", "dollars, as far as prices are known", "number", takes_null=True),
    Field("repeats", "the same tool calls in a row, an integer from 1", "integer", takes_null=True),
    Field("action", "what happens at a cap", choices=get_args(BudgetAction)),
    Field("clear", "true: first take away what was set before", "boolean"),
    Field("by", f"who does it; at most {BY_CHARS_MAX} characters", takes_null=True),
)  # fmt: skip


class Budgeter(Standings, Protocol):
    """What knows and sets budgets: `steps.budget.Budgets`."""

    async def set(self, session: str, change: BudgetChange, *, by: str | None) -> None:
        """Set caps of a session. Raises `NotFound`, `StoreError`."""
        ...


class BudgetOfSessionShown(TypedDict):
    """A session with its budget."""

    session: str
    status: SessionStatus
    budget: BudgetShown


class BudgetEndpoints:
    """Answers under /api/sessions/{id}/budget."""

    def __init__(self, store: Store, budgets: Budgeter) -> None:
        self._store = store
        self._budgets = budgets

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/sessions/{id}/budget",
                self.show,
                "Show the caps of a session, who set them, and what is used and left.",
                shape=BudgetOfSessionShown,
            ),
            Endpoint(
                "POST",
                "/api/sessions/{id}/budget",
                self.set,
                "Set caps of a session from now on; calls that wait for more go on.",
                body=_SET,
                shape=BudgetOfSessionShown,
            ),
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with the budget."""
        read_params(request, frozenset())
        return await self._answer(params["id"])

    async def set(self, request: Request, params: Params) -> Response:
        """Take the caps that are to be others; answer with the budget as it stands then."""
        sent = await read_body(request, "A budget", _SET)
        await self._budgets.set(params["id"], read_change(sent), by=read_by(sent))
        return await self._answer(params["id"])

    async def _answer(self, session: str) -> Response:
        row = await self._store.read_session(session)
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        budget = budget_json(await self._budgets.standing(session))
        return json_response({"session": row.session, "status": row.status, "budget": budget})
