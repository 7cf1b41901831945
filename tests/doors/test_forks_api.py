"""Forking and deleting through the management API: what is taken, what comes back, who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agentstate.doors.api.control import ControlEndpoints
from agentstate.doors.api.forks import ForkEndpoints
from agentstate.doors.api.sessions import SessionEndpoints
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.settings import BudgetSettings
from agentstate.steps.budget import Budgets
from agentstate.steps.control import Control
from agentstate.store.memory import MemoryStore
from agentstate.wire.endpoint import Router
from tests.doors import test_control_api
from tests.store.contract_control import active_of, run_of


class Room(test_control_api.Room):
    """As for control, with the endpoints of forks."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []
        control = Control(self.store)
        control.on_delete = self.deleted.append
        control.in_the_air = lambda: self.flying
        self.flying: frozenset[int] = frozenset()
        budgets = Budgets(self.store, cast(Any, None), BudgetSettings())
        rows = (
            *SessionEndpoints(self.store, budgets).rows(),
            *ControlEndpoints(self.store, control).rows(),
            *ForkEndpoints(self.store, control).rows(),
        )
        self.door = FrontDoor(cast(Any, None), Router(rows), Assets(), ())


def play(test: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await room.store.open()
        await run_of(room.store, 5)
        await test(room)
        await room.store.close()

    asyncio.run(main())


def test_a_fork_says_where_it_comes_from_and_what_it_shares() -> None:
    async def scenario(room: Room) -> None:
        value = {"step_number": 3, "session": "mine", "name": "My try", "by": "ada"}
        status, found = await room.ask("POST", "/api/sessions/s/fork", value)
        assert status == 200
        session = found["session"]
        assert (session["session"], session["name"], session["steps"]) == ("mine", "My try", 3)
        made_ms = session["forked_from"].pop("made_ms")
        assert session["created_ms"] == made_ms
        assert session["forked_from"] == {
            "session": "s",
            "by": "ada",
            "step_number": 3,
            "index": None,
            "shared_steps": 3,
        }
        _, listed = await room.ask("GET", "/api/sessions?forked_from=s")
        assert [row["session"] for row in listed] == ["mine"]
        _, shown = await room.ask("GET", "/api/sessions/s")
        assert shown["session"]["forked_from"] is None
        assert await active_of(room.store, "mine") == [0, 1, 2]

    play(scenario)


def test_without_a_place_it_shares_all_but_what_is_in_the_air() -> None:
    async def scenario(room: Room) -> None:
        last = await room.store.find_step("s", 4)
        assert last is not None
        room.flying = frozenset({last.step_id})
        status, found = await room.ask("POST", "/api/sessions/s/fork", body=b"")
        assert (status, found["session"]["session"]) == (200, "s-fork-1")
        assert found["session"]["forked_from"]["shared_steps"] == 4
        _, found = await room.ask("POST", "/api/sessions/s/fork", {"index": 2})
        assert (found["session"]["session"], found["session"]["steps"]) == ("s-fork-2", 2)

    play(scenario)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"step_number": 3, "index": 3}, "not both"),
        ({"step_number": -1}, "integer from 0"),
        ({"session": ""}, "empty"),
        ({"session": ".."}, "no URL can name"),
        ({"session": "a\nb"}, "control characters"),
        ({"session": 7}, "must be text"),
        ({"name": ["x"]}, "must be text"),
        ({"inherit_decisions": 1}, "true or false"),
        ({"by": "x" * 201}, "at most 200"),
        ({"to": 1}, "unknown key"),
    ],
)
def test_what_is_no_fork_is_refused(value: Any, says: str) -> None:
    async def scenario(room: Room) -> None:
        assert says in await room.refused("POST", "/api/sessions/s/fork", value)
        _, listed = await room.ask("GET", "/api/sessions")
        assert len(listed) == 1

    play(scenario)


def test_a_fork_that_cannot_be_says_why() -> None:
    async def scenario(room: Room) -> None:
        for value, status in (
            ({"session": "s"}, 409),
            ({"step_number": 0}, 409),
            ({"index": 0}, 409),
            ({"index": 999}, 409),
            ({"step_number": 999}, 409),
        ):
            found_status, found = await room.ask("POST", "/api/sessions/s/fork", value)
            assert (found_status, found["error"]["code"]) == (status, "conflict")
        status, _ = await room.ask("POST", "/api/sessions/none/fork", {})
        assert status == 404

    play(scenario)


def test_a_dry_run_deletes_nothing_and_a_deletion_does() -> None:
    async def scenario(room: Room) -> None:
        await room.ask("POST", "/api/sessions/s/fork", {"session": "mine"})
        status, would = await room.ask("DELETE", "/api/sessions/s", {"dry_run": True})
        assert status == 200
        assert (would["is_deleted"], would["is_removed"]) == (False, False)
        assert (would["spent"]["steps"], would["spent"]["cost_microusd"]) == (5, 125)
        assert would["forks"] == ["mine"]
        assert room.deleted == []
        assert await room.store.read_session("s") is not None
        status, found = await room.ask("DELETE", "/api/sessions/s", {"by": "ada"})
        assert status == 200
        assert found == would | {"is_deleted": True, "is_removed": True}
        assert room.deleted == ["s"]
        for method, value in (("GET", None), ("DELETE", {}), ("DELETE", {"dry_run": True})):
            status, _ = await room.ask(method, "/api/sessions/s", value)
            assert status == 404
        assert await active_of(room.store, "mine") == [0, 1, 2, 3, 4]

    play(scenario)


def test_a_deletion_does_not_wait_for_a_long_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_end(store: MemoryStore) -> None:
        await asyncio.Event().wait()

    async def scenario(room: Room) -> None:
        control = Control(room.store, removal_s=0.0)
        deletion, is_removed = await control.delete("s", by=None)
        assert (deletion.weight.steps, is_removed) == (5, False)
        assert await room.store.read_session("s") is None

    monkeypatch.setattr(MemoryStore, "finish_removals", never_end)
    play(scenario)


def test_no_page_of_another_site_deletes() -> None:
    async def scenario(room: Room) -> None:
        status, found = await room.ask("DELETE", "/api/sessions/s", is_json=False)
        assert (status, found["error"]["code"]) == (400, "invalid_request")
        assert "application/json" in found["error"]["message"]
        assert await room.store.read_session("s") is not None

    play(scenario)
