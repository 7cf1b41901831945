"""Cassettes in the management API: what is answered, what is taken, what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agentstate.doors.api.cassettes import CassetteEndpoints
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.control import Rollback
from agentstate.ground.errors import StoreError
from agentstate.steps.control import Control
from agentstate.store.memory import MemoryStore
from agentstate.wire.endpoint import Router
from agentstate.wire.message import Abort, Pair
from tests.doors.test_approvals_api import HOST, IS_JSON, Asked
from tests.ground.test_redaction import DIGITS
from tests.house.tapes import chat, lines_of, user

IS_LINES: Pair = (b"content-type", b"application/x-ndjson")


class Room:
    """A store with a session of two steps, and the front door before it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.turned: list[Rollback] = []
        control = Control(self.store)
        control.on_turn = self.turned.append
        rows = CassetteEndpoints(self.store, control, lambda: ("the-configured-key",)).rows()
        self.door = FrontDoor(cast(Any, None), Router(rows), Assets(), ())

    async def ask(
        self, method: str, target: str, body: bytes = b"", kind: Pair = IS_LINES
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        """Ask; return status, headers and body."""
        headers = (HOST, kind) if body else (HOST,)
        response = await self.door.answer(cast(Any, Asked(method, target, body, headers)))
        content = response.body
        if not isinstance(content, bytes):
            content = b"".join([chunk async for chunk in content])
        return response.status, dict(response.headers), content

    async def refused(self, method: str, target: str, body: bytes = b"", **more: Any) -> Any:
        """Ask for what cannot be; return the error with its status."""
        status, _, content = await self.ask(method, target, body, **more)
        error = json.loads(content)["error"]
        assert set(error) == {"code", "message", "hint"}
        return {**error, "status": status}

    async def tape(self, query: str = "") -> bytes:
        """Return the cassette."""
        status, _, content = await self.ask("GET", f"/api/sessions/s/cassette{query}")
        assert status == 200
        return content


def play(test: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await room.store.open()
        await chat(room.store, user("a the-configured-key"))
        await chat(room.store, user("b"))
        await test(room)

    asyncio.run(main())


def test_a_session_is_answered_as_a_file_of_lines() -> None:
    async def scenario(room: Room) -> None:
        status, headers, content = await room.ask("GET", "/api/sessions/s/cassette")

        assert status == 200
        assert headers[b"content-type"] == b"application/x-ndjson"
        assert headers[b"content-disposition"] == b'attachment; filename="s.jsonl"'
        assert lines_of(content)[-1]["end"] == {
            "sessions": 1, "steps": 2, "secrets": {"configured_key": 1}
        }  # fmt: skip
        assert b"the-configured-key" not in content

    play(scenario)


def test_what_cannot_be_told_apart_is_refused_before_the_first_byte() -> None:
    async def scenario(room: Room) -> None:
        await chat(room.store, user("c"), answer=f"sk-{DIGITS}")
        await chat(room.store, user(f"sk-{DIGITS}"))

        error = await room.refused("GET", "/api/sessions/s/cassette")

        assert (error["status"], error["code"]) == (409, "secrets_in_answers")
        assert "secrets=keep" in error["hint"]
        assert f"sk-{DIGITS}".encode() in await room.tape("?secrets=keep")

    play(scenario)


def test_a_session_that_is_not_there_is_not_found() -> None:
    async def scenario(room: Room) -> None:
        assert (await room.refused("GET", "/api/sessions/x/cassette"))["status"] == 404

    play(scenario)


def test_a_record_that_fails_cuts_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(room: Room) -> None:
        async def failing(step_id: int) -> None:
            raise StoreError("the disk")

        monkeypatch.setattr(room.store, "read_step", failing)
        with pytest.raises(Abort):
            await room.ask("GET", "/api/sessions/s/cassette")

    play(scenario)


def test_a_cassette_is_taken_under_its_own_or_another_name() -> None:
    async def scenario(room: Room) -> None:
        raw = await room.tape()
        status, _, content = await room.ask("POST", "/api/cassettes?as=t%2F1", raw)

        found = json.loads(content)
        assert status == 200
        assert [row["session"] for row in found["sessions"]] == ["t/1"]
        assert (found["steps_imported"], found["steps_taken_back"]) == (2, 0)
        own = raw.replace(b'"session":"s"', b'"session":"u"')
        assert (await room.ask("POST", "/api/cassettes", own, IS_JSON))[0] == 200
        assert await room.store.read_session("u") is not None

    play(scenario)


def test_a_session_that_stands_is_replaced_only_if_it_is_said() -> None:
    async def scenario(room: Room) -> None:
        raw = await room.tape()
        error = await room.refused("POST", "/api/cassettes", raw)
        assert (error["status"], error["code"]) == (409, "conflict")
        assert "another name" in error["hint"]
        assert room.turned == []

        _, _, content = await room.ask("POST", "/api/cassettes?replace=1&by=ann", raw)

        assert json.loads(content)["steps_taken_back"] == 2
        assert [(row.session, row.by) for row in room.turned] == [("s", "ann")]

    play(scenario)


@pytest.mark.parametrize(
    ("target", "kind", "said"),
    [
        ("/api/cassettes", (b"content-type", b"text/plain"), "application/x-ndjson; found 'text"),
        ("/api/cassettes?as=", IS_LINES, "as is empty"),
        ("/api/cassettes?replace=yes", IS_LINES, "replace must be one of 0, 1"),
        ("/api/cassettes?with=x", IS_LINES, "The query names 'with'"),
        (f"/api/cassettes?by={'x' * 201}", IS_LINES, "at most 200"),
        ("/api/cassettes", IS_LINES, "Line 1 of the cassette"),
    ],
)
def test_what_is_odd_is_refused(target: str, kind: Pair, said: str) -> None:
    async def scenario(room: Room) -> None:
        error = await room.refused("POST", target, b"{}", kind=kind)
        assert error["status"] == 400
        assert said in error["message"]

    play(scenario)
