"""Budgets over the API: how they stand, and what a person sets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agentstate.doors.api.approvals import ApprovalEndpoints
from agentstate.doors.api.budget import BudgetEndpoints
from agentstate.doors.api.sessions import SessionEndpoints
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.settings import BudgetSettings, GateSettings
from agentstate.steps.budget import Budgets
from agentstate.steps.gate import Gate
from agentstate.steps.policy import Policy
from agentstate.store.memory import MemoryStore
from agentstate.wire.endpoint import Router
from tests.doors.test_control_api import HOST, IS_JSON, Asked
from tests.store.contract import checkpoint_of, claim_of
from tests.store.contract_budget import budget_question
from tests.store.contract_control import run_of

PATH = "/api/sessions/s/budget"


class Room:
    """A store with a session of five steps, and the front door before it."""

    def __init__(self, settings: BudgetSettings) -> None:
        self.store = MemoryStore()
        gate = Gate(self.store, GateSettings(), Policy(GateSettings()))
        budgets = Budgets(self.store, gate, settings)
        rows = (
            *SessionEndpoints(self.store, budgets).rows(),
            *BudgetEndpoints(self.store, budgets).rows(),
            *ApprovalEndpoints(self.store, gate).rows(),
        )
        self.door = FrontDoor(cast(Any, None), Router(rows), Assets(), ())

    async def ask(self, method: str, target: str, value: Any = None) -> tuple[int, Any]:
        """Ask; return status and JSON."""
        body = b"" if value is None else json.dumps(value).encode()
        asked = Asked(method, target, body, (HOST, IS_JSON))
        response = await self.door.answer(cast(Any, asked))
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body)


def play(test: Callable[[Room], Awaitable[None]], **caps: Any) -> None:
    async def main() -> None:
        room = Room(BudgetSettings(**caps))
        await room.store.open()
        await run_of(room.store, 5)
        await test(room)

    asyncio.run(main())


def test_a_session_shows_its_caps_and_where_they_are_from() -> None:
    async def scenario(room: Room) -> None:
        _, shown = await room.ask("GET", "/api/sessions/s")
        status, found = await room.ask("GET", PATH)
        assert status == 200
        assert found == {"session": "s", "status": "RUNNING", "budget": shown["budget"]}
        budget = shown["budget"]
        assert budget["caps"] == {
            "steps": {
                "cap": 5, "limit": 5, "used": 5, "left": 0, "reached": True,
                "from": "configuration",
            },
            "cost_usd": {
                "cap": 1.5, "limit": 1.5, "used": 0.000125, "left": 1.499875, "reached": False,
                "from": "configuration",
            },
        }  # fmt: skip
        assert (budget["action"], budget["note"]) == ("hold", None)
        assert budget["used"] == {
            "steps": 5, "tokens": 70, "cost_usd": 0.000125, "unknown_costs": 0, "repeats": 0,
        }  # fmt: skip

    play(scenario, steps=5, cost_usd=1.5)


def test_without_caps_what_was_paid_is_shown_all_the_same() -> None:
    async def scenario(room: Room) -> None:
        _, found = await room.ask("GET", PATH)
        assert found["budget"]["caps"] == {}
        assert found["budget"]["used"]["tokens"] == 70

    play(scenario)


def test_a_person_sets_caps_and_takes_them_away() -> None:
    async def scenario(room: Room) -> None:
        sent = {"steps": 9, "cost_usd": 0.5, "action": "refuse", "by": "ann"}
        status, found = await room.ask("POST", PATH, sent)
        assert status == 200
        budget = found["budget"]
        assert {name: row["from"] for name, row in budget["caps"].items()} == {
            "steps": "person",
            "cost_usd": "person",
        }
        assert (budget["action"], budget["set_by"]) == ("refuse", "ann")
        _, found = await room.ask("POST", PATH, {"steps": None})
        assert found["budget"]["caps"]["steps"]["from"] == "configuration"
        _, found = await room.ask("POST", PATH, {"clear": True})
        assert list(found["budget"]["caps"]) == ["steps"]
        assert found["budget"]["action"] == "hold"

    play(scenario, steps=5)


def test_a_question_about_a_budget_is_edited_by_its_own_schema() -> None:
    async def scenario(room: Room) -> None:
        questions = (budget_question("cost_usd", "1.5"),)
        [row] = await room.store.open_approvals(1, None, questions, at_ms=0)
        status, found = await room.ask("GET", f"/api/approvals/{row.approval_id}")
        assert status == 200
        assert (found["kind"], found["can_edit"]) == ("budget", True)
        assert found["schema"]["properties"]["more"]["type"] == "number"
        path = f"/api/approvals/{row.approval_id}/action"
        status, found = await room.ask("POST", path, {"action": "APPROVED", "arguments": {}})
        assert (status, found["error"]["code"]) == (400, "invalid_request")
        sent = {"action": "APPROVED", "arguments": {"more": 0.5}}
        status, found = await room.ask("POST", path, sent)
        assert (status, found["status"]) == (200, "APPROVED")
        _, found = await room.ask("GET", PATH)
        assert found["budget"]["caps"]["cost_usd"]["limit"] == 0.500125

    play(scenario, cost_usd=0.000001)


def test_a_cap_on_cost_says_how_much_it_does_not_see() -> None:
    async def scenario(room: Room) -> None:
        claimed = await room.store.claim_step(claim_of("x"))
        await room.store.record_answer(checkpoint_of(claimed.step_id, cost_microusd=None))
        _, found = await room.ask("GET", PATH)
        assert found["budget"]["note"] == (
            "the cost of 1 answers is not known and counts for no cap"
        )

    play(scenario, cost_usd=1.0)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "names nothing to set"),
        ({"steps": -1}, "an integer from 0"),
        ({"step": 1}, "Did you mean"),
        ({"steps": 1, "by": 7}, '"by" must be text'),
        ([1], "must be an object"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changed(value: Any, said: str) -> None:
    async def scenario(room: Room) -> None:
        before = await room.store.read_budget("s")
        status, found = await room.ask("POST", PATH, value)
        assert status == 400
        assert set(found["error"]) == {"code", "message", "hint"}
        assert said in found["error"]["message"]
        assert await room.store.read_budget("s") == before

    play(scenario)


@pytest.mark.parametrize(("method", "value"), [("GET", None), ("POST", {"steps": 1})])
def test_a_session_that_is_not_there_is_404(method: str, value: Any) -> None:
    async def scenario(room: Room) -> None:
        status, found = await room.ask(method, "/api/sessions/no/budget", value)
        assert (status, found["error"]["code"]) == (404, "not_found")

    play(scenario)
