"""Control over a run in the management API: what is taken, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agentstate.doors.api.bodies import BODY_BYTES_MAX
from agentstate.doors.api.control import ControlEndpoints
from agentstate.doors.api.sessions import SessionEndpoints
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.control import TAGS_SOUGHT_MAX, Rollback
from agentstate.ground.records import Query
from agentstate.ground.settings import BudgetSettings
from agentstate.steps.budget import Budgets
from agentstate.steps.control import Control
from agentstate.store.memory import MemoryStore
from agentstate.wire.endpoint import Router
from tests.doors.test_approvals_api import HOST, IS_JSON, Asked
from tests.store.contract import answered
from tests.store.contract_control import run_of
from tests.store.contract_events import wants


class Room:
    """A store with a session of five steps, and the front door before it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.turned: list[Rollback] = []
        self.resumed: list[str] = []
        control = Control(self.store)
        control.on_turn = self.turned.append
        control.on_resume = self.resumed.append
        budgets = Budgets(self.store, cast(Any, None), BudgetSettings())
        rows = (
            *SessionEndpoints(self.store, budgets).rows(),
            *ControlEndpoints(self.store, control).rows(),
        )
        self.door = FrontDoor(cast(Any, None), Router(rows), Assets(), ())

    async def ask(
        self, method: str, target: str, value: Any = None, **changes: Any
    ) -> tuple[int, Any]:
        """Ask; return status and JSON."""
        body = changes.get("body", b"" if value is None else json.dumps(value).encode())
        headers = (HOST, IS_JSON) if changes.get("is_json", True) else (HOST,)
        asked = Asked(method, target, body, headers)
        response = await self.door.answer(cast(Any, asked))
        assert isinstance(response.body, bytes)
        assert asked.bytes_max in (0, BODY_BYTES_MAX)
        return response.status, json.loads(response.body)

    async def refused(self, method: str, target: str, value: Any, **changes: Any) -> str:
        """Ask for what cannot be; return the message. Nothing must have changed."""
        before = await self.store.read_session("s")
        status, found = await self.ask(method, target, value, **changes)
        assert status == 400
        assert set(found["error"]) == {"code", "message", "hint"}
        assert await self.store.read_session("s") == before
        assert self.turned == []
        return str(found["error"]["message"])


def play(test: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await room.store.open()
        await run_of(room.store, 5)
        await test(room)

    asyncio.run(main())


# --- rolling back ---------------------------------------------------------------------------------


def test_a_reset_says_how_much_it_took_back_and_what_it_costs() -> None:
    async def scenario(room: Room) -> None:
        status, found = await room.ask(
            "POST", "/api/sessions/s/reset", {"step_number": 3, "by": "ann"}
        )
        assert status == 200
        cost = {"steps": 2, "input_tokens": 20, "output_tokens": 8, "cost_microusd": 50,
                "unknown_costs": 0}  # fmt: skip
        assert (found["steps_taken_back"], found["cost_to_rerun"]) == (2, cost)
        row = found["rollback"]
        assert (row["rollback_id"], row["kind"], row["by"]) == (1, "rollback", "ann")
        assert (row["step_number"], row["index"], row["undone_ms"]) == (3, None, None)
        assert (found["session"]["status"], found["session"]["steps"]) == ("RUNNING", 5)
        assert [one.taken for one in room.turned] == [((3, 4),)]

    play(scenario)


def test_an_index_means_that_step_and_later_ones() -> None:
    async def scenario(room: Room) -> None:
        _, found = await room.ask("POST", "/api/sessions/s/reset", {"index": 1})
        assert found["steps_taken_back"] == 4
        assert found["rollback"]["index"] == 1

    play(scenario)


def test_a_dry_run_changes_nothing() -> None:
    async def scenario(room: Room) -> None:
        sent = {"step_number": 1, "dry_run": True}
        status, found = await room.ask("POST", "/api/sessions/s/reset", sent)
        assert (status, found["steps_taken_back"], found["rollback"]) == (200, 4, None)
        assert found["cost_to_rerun"]["cost_microusd"] == 100
        assert room.turned == []
        assert await room.store.list_rollbacks("s", limit=9) == ()

    play(scenario)


def test_a_second_reset_has_nothing_to_take() -> None:
    async def scenario(room: Room) -> None:
        for taken in (2, 0):
            status, found = await room.ask("POST", "/api/sessions/s/reset", {"step_number": 3})
            assert (status, found["steps_taken_back"]) == (200, taken)
        assert found["rollback"] is None
        assert len(room.turned) == 1

    play(scenario)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"step_number": None},
        {"step_number": 1, "index": 1},
        {"step_number": -1},
        {"step_number": 1.0},
        {"step_number": "1"},
        {"step_number": True},
        {"step_number": 2**60},
        {"index": [1]},
        {"stepnumber": 1},
        {"step_number": 1, "dry_run": 1},
        {"step_number": 1, "by": "x" * 201},
        {"step_number": 1, "by": 5},
        [1],
        "x",
    ],
)
def test_an_odd_reset_is_refused(value: Any) -> None:
    async def scenario(room: Room) -> None:
        await room.refused("POST", "/api/sessions/s/reset", value)

    play(scenario)


def test_what_is_not_json_is_refused() -> None:
    async def scenario(room: Room) -> None:
        sent = {"step_number": 1}
        message = await room.refused("POST", "/api/sessions/s/reset", sent, is_json=False)
        assert "application/json" in message
        await room.refused("POST", "/api/sessions/s/reset", None, body=b"{")
        await room.refused("POST", "/api/sessions/s/reset?x=1", sent)
        twice = b'{"step_number":1,"step_number":2}'
        await room.refused("POST", "/api/sessions/s/reset", None, body=twice)

    play(scenario)


@pytest.mark.parametrize(
    ("method", "verb", "value"),
    [
        ("POST", "/reset", {"index": 0}),
        ("POST", "/reset", {"index": 0, "dry_run": True}),
        ("POST", "/restore", {}),
        ("POST", "/pause", {}),
        ("POST", "/resume", {}),
        ("PATCH", "", {"name": "x"}),
    ],
)
def test_a_session_that_is_not_there_is_a_404(method: str, verb: str, value: Any) -> None:
    async def scenario(room: Room) -> None:
        status, found = await room.ask(method, f"/api/sessions/none{verb}", value)
        assert (status, found["error"]["code"]) == (404, "not_found")

    play(scenario)


def test_a_restore_undoes_the_last_or_the_one_that_is_named() -> None:
    async def scenario(room: Room) -> None:
        for number in (4, 2):
            await room.ask("POST", "/api/sessions/s/reset", {"step_number": number})
        status, found = await room.ask("POST", "/api/sessions/s/restore", {"by": "bob"})
        assert (status, found["steps_restored"], found["steps_taken_back"]) == (200, 2, 0)
        row = found["rollback"]
        assert (row["kind"], row["undoes"], row["by"]) == ("restore", 2, "bob")
        status, found = await room.ask("POST", "/api/sessions/s/restore", {"rollback_id": 1})
        assert (status, found["steps_restored"]) == (200, 1)
        status, found = await room.ask("POST", "/api/sessions/s/restore", {"rollback_id": 1})
        assert (status, found["error"]["code"]) == (409, "conflict")
        status, found = await room.ask("POST", "/api/sessions/s/restore", {"rollback_id": 9})
        assert status == 404
        status, found = await room.ask("POST", "/api/sessions/s/restore")
        assert status == 409
        assert len(room.turned) == 4

    play(scenario)


def test_a_session_lists_its_rollbacks_the_newest_first() -> None:
    async def scenario(room: Room) -> None:
        await room.ask("POST", "/api/sessions/s/reset", {"step_number": 3})
        await room.ask("POST", "/api/sessions/s/restore", {})
        _, found = await room.ask("GET", "/api/sessions/s")
        rows = found["rollbacks"]
        assert [row["rollback_id"] for row in rows] == [2, 1]
        assert [row["undone_by"] for row in rows] == [None, 2]
        assert (rows[0]["steps_restored"], rows[1]["steps_taken_back"]) == (2, 2)
        assert rows[1]["undone_ms"] == rows[0]["made_ms"]

    play(scenario)


# --- pausing --------------------------------------------------------------------------------------


def test_a_pause_says_why_and_a_resume_rings() -> None:
    async def scenario(room: Room) -> None:
        sent = {"reason": " too dear ", "by": "ann"}
        status, found = await room.ask("POST", "/api/sessions/s/pause", sent)
        assert (status, found["session"]["status"]) == (200, "PAUSED")
        pause = found["session"]["pause"]
        assert (pause["reason"], pause["by"]) == ("too dear", "ann")
        assert room.resumed == []
        _, found = await room.ask("GET", "/api/sessions?status=PAUSED")
        assert [row["session"] for row in found] == ["s"]
        status, found = await room.ask("POST", "/api/sessions/s/resume", {})
        assert (status, found["session"]["status"]) == (200, "RUNNING")
        assert found["session"]["pause"] is None
        assert room.resumed == ["s"]

    play(scenario)


def test_an_empty_body_is_enough() -> None:
    async def scenario(room: Room) -> None:
        assert (await room.ask("POST", "/api/sessions/s/pause"))[0] == 200
        assert (await room.ask("POST", "/api/sessions/s/resume"))[0] == 200

    play(scenario)


@pytest.mark.parametrize("value", [{"reason": "x" * 1001}, {"reason": 1}, {"why": "x"}])
def test_an_odd_pause_is_refused(value: Any) -> None:
    async def scenario(room: Room) -> None:
        await room.refused("POST", "/api/sessions/s/pause", value)

    play(scenario)


def test_a_resume_takes_nothing() -> None:
    async def scenario(room: Room) -> None:
        message = await room.refused("POST", "/api/sessions/s/resume", {"reason": "x"})
        assert "takes none" in message

    play(scenario)


# --- status, name, tags ---------------------------------------------------------------------------


def test_the_agent_says_that_it_is_done_and_it_is_told_once() -> None:
    async def scenario(room: Room) -> None:
        room.store.subscribe((wants(),))
        for _ in range(2):
            sent = {"status": "COMPLETED", "reason": "all invoices sent"}
            status, found = await room.ask("PATCH", "/api/sessions/s", sent)
            assert (status, found["session"]["status"]) == (200, "COMPLETED")
        (row,) = (await room.store.list_deliveries(Query())).rows
        assert row.event.kind == "session.completed"
        assert row.event.facts == {"status": "COMPLETED", "why": "all invoices sent"}
        await answered(room.store, "more")
        _, found = await room.ask("GET", "/api/sessions/s")
        assert found["session"]["status"] == "RUNNING"

    play(scenario)


def test_name_and_tags_are_changed_by_what_is_sent_alone() -> None:
    async def scenario(room: Room) -> None:
        sent = {"name": "Invoices", "tags": {"team": "ops", "env": "x"}}
        _, found = await room.ask("PATCH", "/api/sessions/s", sent)
        row = found["session"]
        assert (row["name"], row["tags"]) == ("Invoices", {"team": "ops", "env": "x"})
        _, found = await room.ask("PATCH", "/api/sessions/s", {"tags": {"env": None, "a": ""}})
        assert found["session"]["tags"] == {"team": "ops", "a": ""}
        assert found["session"]["name"] == "Invoices"
        _, found = await room.ask("PATCH", "/api/sessions/s", {"name": None})
        assert found["session"]["name"] is None

    play(scenario)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"reason": "only"},
        {"status": "DONE"},
        {"status": "PAUSED"},
        {"status": 1},
        {"name": 1},
        {"name": "x" * 201},
        {"name": "a\nb"},
        {"tags": ["a"]},
        {"tags": {"a": 1}},
        {"tags": {"a,b": "x"}},
        {"tags": {"": "x"}},
        {"tags": {"a": "x" * 257}},
        {"colour": "red"},
    ],
)
def test_an_odd_change_is_refused(value: Any) -> None:
    async def scenario(room: Room) -> None:
        await room.refused("PATCH", "/api/sessions/s", value)

    play(scenario)


def test_too_many_tags_are_a_conflict() -> None:
    async def scenario(room: Room) -> None:
        sent = {"tags": {f"t{n}": "x" for n in range(65)}}
        status, found = await room.ask("PATCH", "/api/sessions/s", sent)
        assert (status, found["error"]["code"]) == (409, "conflict")

    play(scenario)


def test_lists_filter_by_tag_parent_and_name() -> None:
    async def scenario(room: Room) -> None:
        await room.ask("PATCH", "/api/sessions/s", {"name": "Big", "tags": {"a": "1", "b": "2"}})

        async def found(query: str) -> list[str]:
            _, rows = await room.ask("GET", f"/api/sessions?{query}")
            return [row["session"] for row in rows]

        assert await found("tag=a") == await found("tag=a%3D1,b=2") == ["s"]
        assert await found("tag=a%3D2") == await found("tag=c") == []
        assert await found("search=big") == ["s"]
        assert await found("parent=s") == []
        for odd in ("tag=,", "tag=" + ",".join("abcdefghijk"[: TAGS_SOUGHT_MAX + 1])):
            status, _ = await room.ask("GET", f"/api/sessions?{odd}")
            assert status == 400

    play(scenario)


def test_session_ids_of_any_kind_are_reached() -> None:
    async def scenario(room: Room) -> None:
        await answered(room.store, session="a/b c")
        status, found = await room.ask("POST", "/api/sessions/a%2Fb%20c/pause", {})
        assert (status, found["session"]["session"]) == (200, "a/b c")

    play(scenario)
