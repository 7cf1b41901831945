"""Tool calls and recovery in the management API: what is answered, what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import quote

import pytest

from agentstate.doors.api.recovery import RecoveryEndpoints
from agentstate.doors.api.sessions import SessionEndpoints
from agentstate.doors.api.tool_calls import RESULT_CHARS_MAX, ToolCallEndpoints
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.approvals import Decision
from agentstate.ground.settings import BudgetSettings
from agentstate.steps.budget import Budgets
from agentstate.store.memory import MemoryStore
from agentstate.wire.endpoint import Router
from tests.doors.test_approvals_api import HOST, Asked
from tests.helpers.calling import CHAT, Call
from tests.helpers.recording import START_MS, record
from tests.store.contract import claim_of
from tests.store.contract_gate import question_of

SEND: Call = ("call_1", "send", {"n": 12345678901234567890})
LONG = "x" * (RESULT_CHARS_MAX + 1)


class Room:
    """A store with a run of two steps, and the front door before it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        budgets = Budgets(self.store, cast(Any, None), BudgetSettings())
        rows = (
            *SessionEndpoints(self.store, budgets).rows(),
            *ToolCallEndpoints(self.store).rows(),
            *RecoveryEndpoints(self.store).rows(),
        )
        self.door = FrontDoor(cast(Any, None), Router(rows), Assets(), ())

    async def fill(self, result: str = "sent") -> None:
        first = [CHAT.asks("go")]
        step = await record(self.store, CHAT.body(first), CHAT.answer([SEND]))
        (one,) = await self.store.open_approvals(
            step.step_id, step.answer_id, (question_of(),), at_ms=START_MS
        )
        edit = Decision(True, by="ann", reason="ok", arguments='{"n": 2}')
        await self.store.decide(one.approval_id, edit, at_ms=START_MS)
        told = CHAT.results([("call_1", "send", result)])
        await record(self.store, CHAT.body([*first, *CHAT.said([SEND]), *told]), CHAT.ends)

    async def ask(self, target: str) -> tuple[int, Any, str | None]:
        """Ask; return status, JSON and cursor."""
        asked = Asked("GET", target, b"", (HOST,))
        response = await self.door.answer(cast(Any, asked))
        assert isinstance(response.body, bytes)
        cursors = [value.decode() for name, value in response.headers if name == b"x-next-cursor"]
        return response.status, json.loads(response.body), cursors[0] if cursors else None


def play(test: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await room.store.open()
        await test(room)

    asyncio.run(main())


def test_a_call_says_all_that_is_known_of_it() -> None:
    async def scenario(room: Room) -> None:
        await room.fill()
        status, (row,), cursor = await room.ask("/api/sessions/s/tool-calls")
        assert (status, cursor) == (200, None)
        assert (row["index"], row["step_number"], row["position"], row["round"]) == (0, 0, 0, 0)
        assert (row["call_id"], row["name"], row["kind"]) == ("call_1", "send", "function")
        assert row["arguments"] == '{"n": 12345678901234567890}'
        assert row["arguments_json"] == {"n": 12345678901234567890}
        assert (row["state"], row["decision"], row["answered"]) == ("active", "edited", True)
        approval = row["approval"]
        assert (approval["status"], approval["decided_by"], approval["reason"]) == (
            "APPROVED", "ann", "ok"
        )  # fmt: skip
        assert (approval["edited_arguments"], approval["edited_arguments_json"]) == (
            '{"n": 2}', {"n": 2}
        )  # fmt: skip
        assert row["result"] == {
            "content": "sent", "is_cut": False, "is_error": False, "index": 1, "step_number": 1,
        }  # fmt: skip
        assert (row["results"], row["other_results"]) == (1, [])

    play(scenario)


def test_a_long_result_is_cut_in_a_list_and_whole_in_its_step() -> None:
    async def scenario(room: Room) -> None:
        await room.fill(LONG)
        _, (row,), _ = await room.ask("/api/sessions/s/tool-calls")
        assert (row["result"]["content"], row["result"]["is_cut"]) == (LONG[:-1], True)
        _, step, _ = await room.ask("/api/sessions/s/steps/0")
        (whole,) = step["tool_calls"]
        assert (whole["result"]["content"], whole["result"]["is_cut"]) == (LONG, False)
        _, step, _ = await room.ask("/api/sessions/s/steps/1")
        assert step["tool_calls"] == []

    play(scenario)


def test_pages_and_filters() -> None:
    async def scenario(room: Room) -> None:
        calls: list[Call] = [(f"c{at}", "send" if at % 2 else "read", {}) for at in range(5)]
        await record(room.store, CHAT.body([CHAT.asks("go")]), CHAT.answer(calls))
        status, rows, cursor = await room.ask("/api/sessions/s/tool-calls?limit=3")
        assert (status, len(rows)) == (200, 3)
        assert cursor is not None
        _, rest, last = await room.ask(f"/api/sessions/s/tool-calls?limit=3&after={quote(cursor)}")
        assert ([row["call_id"] for row in rest], last) == (["c3", "c4"], None)
        for query, count in (
            ("tool=s*", 2), ("step=0", 5), ("step=1", 0), ("state=active", 5),
            ("state=replaced", 0), ("decision=none", 5), ("decision=pending", 0),
            ("answered=0", 5), ("answered=1", 0), ("answered=0&tool=READ", 3),
        ):  # fmt: skip
            _, rows, _ = await room.ask(f"/api/sessions/s/tool-calls?{query}")
            assert len(rows) == count, query

    play(scenario)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("step=x", "step must be the index of a step, from 0; found 'x'."),
        ("step=1234567890", "step must be the index"),
        ("state=gone", "state must be one of active"),
        ("decision=maybe", "decision must be one of none"),
        ("answered=yes", "answered must be one of 0, 1; found 'yes'."),
        ("tool=[", "tool: "),
        ("limit=0", "limit must be an integer from 1"),
        ("after=odd", "after must be the next_cursor"),
        ("status=RUNNING", "The query names"),
    ],
)
def test_an_odd_query_is_refused(query: str, said: str) -> None:
    async def scenario(room: Room) -> None:
        await room.fill()
        status, found, _ = await room.ask(f"/api/sessions/s/tool-calls?{query}")
        assert status == 400
        assert said in found["error"]["message"]

    play(scenario)


def test_a_session_nobody_knows_is_not_found() -> None:
    async def scenario(room: Room) -> None:
        for path in ("tool-calls", "recovery"):
            status, found, _ = await room.ask(f"/api/sessions/nobody/{path}")
            assert (status, found["error"]["code"]) == (404, "not_found")

    play(scenario)


def test_recovery_says_where_the_session_stands() -> None:
    async def scenario(room: Room) -> None:
        await room.fill()
        body = CHAT.body([CHAT.asks("more")])
        step = await record(room.store, body, CHAT.answer([SEND, ("call_9", "read", {})]))
        asked = question_of(tool="send", call_id="call_1")
        await room.store.open_approvals(step.step_id, step.answer_id, (asked,), at_ms=START_MS)
        await room.store.claim_step(claim_of("last", step_number=7))
        await room.store.pause("s", at_ms=START_MS, reason="why", by="ann")
        status, found, _ = await room.ask("/api/sessions/s/recovery")
        assert (status, found["status"], found["session"]["session"]) == (200, "PAUSED", "s")
        assert (found["last_step"]["index"], found["last_step"]["finish_reason"]) == (
            2, "tool_calls"
        )  # fmt: skip
        assert found["replay"] == {
            "steps": 4, "answered": 3, "prefix": 3, "asked_again": 1,
            "open": [{"index": 3, "step_number": 7, "state": "in_flight"}],
        }  # fmt: skip
        assert (found["saves"]["steps"], found["saves"]["cost_microusd"]) == (3, 15)
        assert found["saves_at_least"] is False
        assert found["holds"]["pause"] == {"since_ms": START_MS, "reason": "why", "by": "ann"}
        assert [one["tool"] for one in found["holds"]["approvals"]] == ["send"]
        assert [one["name"] for one in found["unanswered_calls"]] == ["read"]
        assert (found["unknown_calls"], found["refusals"]) == ([], [])
        assert found["advice"][-1].startswith("Run the agent again with the session id s: 3 steps")

    play(scenario)
