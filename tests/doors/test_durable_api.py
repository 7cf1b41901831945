"""Durable tools in the management API: what is taken, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agentstate.doors.api.approvals import ApprovalEndpoints
from agentstate.doors.api.durable import (
    ARGUMENTS_BYTES_MAX,
    RESULT_BYTES_MAX,
    ROOM_BYTES,
    DurableEndpoints,
)
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.approvals import Decision
from agentstate.ground.settings import Settings
from agentstate.steps.durable import Durables
from agentstate.steps.gate import Gate
from agentstate.steps.policy import Policy
from agentstate.store.memory import MemoryStore
from agentstate.wire.endpoint import Router
from tests.doors.test_approvals_api import HOST, IS_JSON, Asked

CALLS = "/api/sessions/s/tool-calls"
BIG = 2**63 + 1


class Client(Asked):
    """A request whose client stays."""

    def on_gone(self, callback: Callable[[], None]) -> None:
        """It does not leave."""

    def is_gone(self) -> bool:
        return False


class Room:
    """A store, and the front door before it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        settings = Settings()
        self.gate = Gate(self.store, settings.gate, Policy(settings.gate))
        durables = Durables(self.store, self.gate, settings)
        rows = (
            *DurableEndpoints(self.store, durables).rows(),
            *ApprovalEndpoints(self.store, self.gate).rows(),
        )
        self.door = FrontDoor(cast(Any, None), Router(rows), Assets(), ())

    async def ask(self, method: str, target: str, value: Any = None) -> tuple[int, Any]:
        """Ask; return status and JSON."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        asked = Client(method, target, b"" if value is None else body, (HOST, IS_JSON))
        response = await self.door.answer(cast(Any, asked))
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body)

    async def begin(self, **said: Any) -> Any:
        """Begin a call; it must be taken."""
        body = {"name": "charge", "arguments": {"cents": 5}, "owner": "a", **said}
        status, found = await self.ask("POST", CALLS, body)
        assert status == 200, found
        return found

    async def refused(self, path: str, value: Any, status: int = 400) -> str:
        """Post what cannot be taken; return the message."""
        got, found = await self.ask("POST", path, value)
        assert got == status, found
        assert set(found["error"]) == {"code", "message", "hint"}
        return str(found["error"]["message"])


def play(test: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await room.store.open()
        await test(room)

    asyncio.run(main())


def test_a_call_is_begun_reported_and_replayed() -> None:
    async def scenario(room: Room) -> None:
        begun = await room.begin()
        call = begun.pop("call")
        assert begun == {
            "state": "run", "occurrence": 0, "runs": 1, "arguments": {"cents": 5},
            "arguments_are_edited": False,
        }  # fmt: skip
        path = f"{CALLS}/{call}/result"
        for _ in range(2):
            status, row = await room.ask("POST", path, {"result": {"id": BIG}, "owner": "a"})
            assert (status, row["state"], row["outcome"]) == (200, "done", "result")
            assert "result" not in row
        replay = await room.begin(owner="b")
        assert replay["state"] == "replay"
        assert (replay["outcome"], replay["result"]) == ("result", {"id": BIG})
        assert "has an outcome already" in await room.refused(path, {"result": 1}, 409)
        status, shown = await room.ask("GET", f"/api/tool-calls/{call}")
        assert (status, shown["result"], shown["arguments"]) == (200, {"id": BIG}, {"cents": 5})

    play(scenario)


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": None}, "\ud83d", 1.5, True])
def test_a_result_or_an_error_is_any_json(value: Any) -> None:
    async def scenario(room: Room) -> None:
        for name in ("result", "error"):
            call = (await room.begin(key=name))["call"]
            status, _ = await room.ask("POST", f"{CALLS}/{call}/result", {name: value})
            replay = await room.begin(key=name)
            assert (status, replay["outcome"], replay[name]) == (200, name, value)

    play(scenario)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, 'must have "name"'),
        ({"name": ""}, '"name" must be a name without control characters'),
        ({"name": "a\x00b"}, '"name" must be a name without control characters'),
        ({"name": "x" * 257}, '"name" must be text of at most 256 characters'),
        ({"name": "x", "arguments": [1]}, '"arguments" must be an object or text; found an array'),
        ({"name": "x", "wait_s": 61}, '"wait_s" must be a number of seconds from 0 to 60'),
        ({"name": "x", "wait_s": -1}, '"wait_s" must be'),
        ({"name": "x", "wait_s": True}, '"wait_s" must be'),
        ({"name": "x", "unknown": "guess"}, '"unknown" must be one of ask, run, skip'),
        ({"name": "x", "on_reject": 1}, '"on_reject" must be one of stop, continue'),
        ({"name": "x", "owner": 7}, '"owner" must be text'),
        ({"name": "x", "arg": {}}, "unknown key 'arg'"),
        ([], "must be an object; found an array"),
        (b'{"name": "x", "name": "y"}', "twice in one object"),
        (b'{"name": "x", "arguments": {"a": ' + b"[" * 101 + b"]" * 101 + b"}}", "over 100 deep"),
    ],
)
def test_a_begin_that_is_none_says_what_was_expected(value: Any, words: str) -> None:
    async def scenario(room: Room) -> None:
        assert words in await room.refused(CALLS, value)
        assert (await room.ask("GET", "/api/tool-calls"))[1] == []

    play(scenario)


def test_what_is_too_long_is_refused_with_its_bound() -> None:
    async def scenario(room: Room) -> None:
        long = {"name": "x", "arguments": "x" * (ARGUMENTS_BYTES_MAX + 1)}
        assert str(ARGUMENTS_BYTES_MAX) in await room.refused(CALLS, long, 413)
        call = (await room.begin())["call"]
        path = f"{CALLS}/{call}/result"
        long_result = {"result": "x" * RESULT_BYTES_MAX}
        assert str(RESULT_BYTES_MAX) in await room.refused(path, long_result, 413)
        await room.refused(path, {"result": "x" * (RESULT_BYTES_MAX + ROOM_BYTES)}, 413)
        assert (await room.begin())["state"] == "run"

    play(scenario)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, 'either "result" or "error"'),
        ({"result": 1, "error": 2}, 'either "result" or "error"'),
        ({"unknown": False}, 'or "unknown": true'),
        ({"result": 1, "record": False}, 'goes with an "error"'),
        ({"error": 1, "record": "no"}, '"record" must be true or false'),
        ({"outcome": 1}, "unknown key"),
    ],
)
def test_a_report_that_is_none_is_refused(value: Any, words: str) -> None:
    async def scenario(room: Room) -> None:
        call = (await room.begin())["call"]
        assert words in await room.refused(f"{CALLS}/{call}/result", value)

    play(scenario)


def test_an_error_that_is_not_kept_may_be_run_again() -> None:
    async def scenario(room: Room) -> None:
        call = (await room.begin())["call"]
        await room.ask("POST", f"{CALLS}/{call}/result", {"error": "busy", "record": False})
        again = await room.begin(owner="b")
        assert (again["call"], again["state"], again["runs"]) == (call, "run", 2)

    play(scenario)


def test_an_interrupted_call_is_unknown_at_once() -> None:
    async def scenario(room: Room) -> None:
        call = (await room.begin(begin_id="1"))["call"]
        status, row = await room.ask("POST", f"{CALLS}/{call}/result", {"unknown": True})
        assert (status, row["state"]) == (200, "unknown")
        assert (await room.begin(begin_id="2"))["state"] == "unknown"

    play(scenario)


def test_a_call_that_nobody_is_sure_of_is_listed_and_settled() -> None:
    async def scenario(room: Room) -> None:
        await room.begin()
        unknown = await room.begin(owner="b")
        assert (unknown["state"], unknown["begun_ms"] > 0) == ("unknown", True)
        for path in ("/api/tool-calls", "/api/sessions/s/durable-calls"):
            _, rows = await room.ask("GET", f"{path}?state=unknown")
            assert [row["call"] for row in rows] == [unknown["call"]]
        path = f"{CALLS}/{unknown['call']}/settle"
        assert 'must have "outcome"' in await room.refused(path, {"by": "ann"})
        no = {"outcome": "not_happened", "result": 1}
        assert "has no result" in await room.refused(path, no)
        said = {"outcome": "happened", "result": {"id": 7}, "by": "ann", "reason": "I looked"}
        status, row = await room.ask("POST", path, said)
        assert (status, row["state"], row["settled_as"]) == (200, "done", "happened")
        assert (row["settled_by"], row["settled_reason"]) == ("ann", "I looked")
        assert "settled as happened by 'ann' at 20" in await room.refused(path, said, 409)
        assert (await room.begin(owner="b"))["result"] == {"id": 7}

    play(scenario)


def test_what_was_begun_is_settled_and_who_reports_later_is_told_what_was_said() -> None:
    async def scenario(room: Room) -> None:
        call = (await room.begin())["call"]
        said = {"outcome": "skip", "by": "ann"}
        status, row = await room.ask("POST", f"{CALLS}/{call}/settle", said)
        assert (status, row["state"], row["settled_by"]) == (200, "done", "ann")
        told = await room.refused(f"{CALLS}/{call}/result", {"result": 1, "owner": "a"}, 409)
        assert "settled as skip by 'ann' at 20" in told
        leased = (await room.begin(arguments={"cents": 6}, lease_s=60))["call"]
        assert "is being run, until 20" in await room.refused(f"{CALLS}/{leased}/settle", said, 409)

    play(scenario)


def test_a_held_and_a_refused_call_name_their_approval() -> None:
    async def scenario(room: Room) -> None:
        held = await room.begin(name="send_email")
        assert (held["state"], held["held_by"]) == ("held", "approval")
        status, shown = await room.ask("GET", f"/api/approvals/{held['approval_id']}")
        assert (status, shown["kind"], shown["can_edit"]) == (200, "durable", True)
        assert (shown["durable_call"], shown["step_number"]) == (held["call"], None)
        assert (shown["prompt"], shown["request"], shown["schema"]) == ("", None, None)
        decision = Decision(False, "ann", "no", then="continue")
        await room.gate.decide(held["approval_id"], decision)
        refused = await room.begin(name="send_email")
        assert (refused["state"], refused["reason"]) == ("refused", "no")
        assert refused["approval_id"] == held["approval_id"]
        assert refused["message"].startswith("A person refused this call of send_email")

    play(scenario)


def test_what_is_not_there_is_not_found() -> None:
    async def scenario(room: Room) -> None:
        assert (await room.ask("GET", "/api/tool-calls/dur_none"))[0] == 404
        assert (await room.ask("GET", "/api/sessions/none/durable-calls"))[0] == 404
        assert (await room.ask("GET", "/api/tool-calls?state=odd"))[0] == 400
        for verb, value in (("result", {"result": 1}), ("settle", {"outcome": "skip"}),
                            ("forget", {})):  # fmt: skip
            assert "no durable call" in await room.refused(f"{CALLS}/dur_x/{verb}", value, 404)

    play(scenario)


def test_a_forgotten_call_is_a_new_one_next_time() -> None:
    async def scenario(room: Room) -> None:
        call = (await room.begin())["call"]
        path = f"{CALLS}/{call}/forget"
        assert "only what has ended" in await room.refused(path, {}, 409)
        await room.ask("POST", f"{CALLS}/{call}/result", {"result": 1})
        status, row = await room.ask("POST", path, {"by": "ann", "reason": "again"})
        assert (status, row["forgotten_by"], row["forgotten_reason"]) == (200, "ann", "again")
        assert (await room.begin(owner="b"))["call"] != call

    play(scenario)
