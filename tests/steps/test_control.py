"""Rolling back and restoring under a running pipeline: what replays, who joins, who is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.control import Change, Place
from agentstate.ground.errors import Conflict
from agentstate.ground.records import Query
from agentstate.ground.settings import GateSettings
from agentstate.steps import steered
from agentstate.store.memory import MemoryStore
from agentstate.wire.message import Abort, Response
from tests.steps.scene import (
    DONE,
    END,
    HEAD,
    TEXT,
    FakeExchange,
    Scene,
    body_of,
    frame,
    header,
    play,
    read,
)
from tests.store.contract_events import wants

GATED = GateSettings(tools=("send_email",), heartbeat_s=0.02)


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def agent(scene: Scene, count: int, **headers: str) -> list[str | None]:
    """Run an agent of numbered steps; return how each was answered."""
    answers = [
        await scene.ask(scene.request(f"turn {n}", step_number=str(n), **headers))
        for n in range(count)
    ]
    return [header(each, "x-agentstate-replay") for each in answers]


async def roll_back(scene: Scene, number: int) -> None:
    assert await scene.control.roll_back("s", Place(step_number=number), by=None) is not None


def calling(tool: str) -> bytes:
    """Make a chat answer that calls a tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice]}).encode()


async def exchange_of(*pieces: Any, kind: bytes = b"application/json") -> FakeExchange:
    exchange = FakeExchange(200, kind)
    exchange.give(*pieces)
    return exchange


def test_what_is_rolled_back_is_paid_again_and_what_is_restored_replays() -> None:
    async def scenario(scene: Scene) -> None:
        await agent(scene, 5)
        await roll_back(scene, 3)
        assert await agent(scene, 5) == ["exact"] * 3 + [None] * 2
        assert len(scene.transport.calls) == 7
        await scene.control.restore("s", None, by=None)
        answers = [
            await scene.ask(scene.request(f"turn {n}", step_number=str(n))) for n in range(5)
        ]
        assert [b"answer %d" % n in await read(each) for n, each in enumerate(answers)] == [
            True
        ] * 5
        assert len(scene.transport.calls) == 7

    play(scenario)


def test_it_holds_under_run_ids_too() -> None:
    async def scenario(scene: Scene) -> None:
        await agent(scene, 4, run_id="r1")
        await roll_back(scene, 2)
        assert await agent(scene, 4, run_id="r2") == ["exact"] * 2 + [None] * 2
        await scene.control.restore("s", None, by=None)
        assert await agent(scene, 4, run_id="r3") == ["exact"] * 4
        assert len(scene.transport.calls) == 6

    play(scenario)


def test_a_call_in_flight_that_is_rolled_back_is_joined_by_nobody() -> None:
    async def scenario(scene: Scene) -> None:
        slow = FakeExchange(200, b"application/json")
        plain = scene.transport.on_call
        scene.transport.on_call = lambda number: _soon(slow)
        first = scene.tasks.start(scene.ask(scene.request()), "a client")
        await settle()
        await roll_back(scene, 0)

        scene.transport.on_call = plain
        second = await scene.ask(scene.request())
        assert header(second, "x-agentstate-cache-hit") == "false"
        assert b"answer 1" in await read(second)
        slow.give(body_of("late"), None)
        assert b"late" in await read(await first)  # its own client gets it

        third = await scene.ask(scene.request())
        assert header(third, "x-agentstate-replay") == "exact"
        assert b"answer 1" in await read(third)
        assert len(scene.transport.calls) == 2

    play(scenario)


def test_a_call_in_flight_that_is_restored_is_joined_again() -> None:
    async def scenario(scene: Scene) -> None:
        slow = FakeExchange(200, b"application/json")
        scene.transport.on_call = lambda number: _soon(slow)
        first = scene.tasks.start(scene.ask(scene.request()), "a client")
        await settle()
        await roll_back(scene, 0)
        await scene.control.restore("s", None, by=None)
        second = scene.tasks.start(scene.ask(scene.request()), "a client")
        await settle()
        slow.give(body_of("once"), None)
        answers = [await first, await second]
        assert {await read(each) for each in answers} == {await read(answers[0])}
        assert header(answers[1], "x-agentstate-replay") == "joined"
        assert len(scene.transport.calls) == 1

    play(scenario)


def test_a_stream_in_flight_that_is_rolled_back_ends_for_its_client_and_does_not_replay() -> None:
    async def scenario(scene: Scene) -> None:
        stream = FakeExchange(200, b"text/event-stream")
        plain = scene.transport.on_call
        scene.transport.on_call = lambda number: _soon(stream)
        stream.give(HEAD, TEXT)
        response = await scene.ask(scene.request(stream=True))
        await roll_back(scene, 0)
        stream.give(END, DONE, None)
        assert (await read(response)).endswith(DONE)
        await settle()
        scene.transport.on_call = plain
        again = await scene.ask(scene.request())
        assert header(again, "x-agentstate-cache-hit") == "false"

    play(scenario)


def test_a_dead_runs_call_that_is_rolled_back_is_not_taken_over() -> None:
    async def scenario(scene: Scene) -> None:
        slow = FakeExchange(200, b"application/json")
        plain = scene.transport.on_call
        scene.transport.on_call = lambda number: _soon(slow)
        request = scene.request(run_id="r1")
        dying = scene.tasks.start(scene.ask(request), "a client")
        await settle()
        request.leave()
        await roll_back(scene, 0)
        scene.transport.on_call = plain
        second = await scene.ask(scene.request(run_id="r2"))
        assert b"answer 1" in await read(second)
        slow.give(body_of("late"), None)
        await asyncio.wait([dying])

    play(scenario)


def test_a_hold_ends_when_its_step_is_rolled_back_and_the_retry_asks_anew() -> None:
    async def scenario(scene: Scene) -> None:
        scene.transport.on_call = lambda number: exchange_of(calling("send_email"), None)
        held = scene.tasks.start(scene.ask(scene.request()), "a client")
        [first] = await _pending(scene, 1)
        await roll_back(scene, 0)

        answer = await held
        assert answer.status == 409
        assert json.loads(await read(answer))["error"]["code"] == "rolled_back"
        assert header(answer, "x-should-retry") is None  # so a client's own retry goes on
        assert await _pending(scene, 0) == []

        again = scene.tasks.start(scene.ask(scene.request()), "a client")
        [second] = await _pending(scene, 1)
        assert second != first
        assert len(scene.transport.calls) == 2
        with pytest.raises(Conflict):
            await scene.gate.decide(first, Decision(True, "ann"))
        await scene.gate.decide(second, Decision(True, "ann"))
        assert (await again).status == 200

    play(scenario, gate=GATED)


def test_a_stream_that_is_held_ends_with_the_error() -> None:
    async def scenario(scene: Scene) -> None:
        call = {"index": 0, "id": "c", "function": {"name": "send_email", "arguments": "{}"}}
        frames = [HEAD, frame({"tool_calls": [call]}), frame({}, "tool_calls"), DONE, None]
        scene.transport.on_call = lambda number: exchange_of(*frames, kind=b"text/event-stream")
        response = await scene.ask(scene.request(stream=True))
        reading = scene.tasks.start(_read_cut(response), "a client")
        await _pending(scene, 1)
        await roll_back(scene, 0)
        body = await reading
        assert b"rolled_back" in body
        assert DONE not in body

    play(scenario, gate=GATED)


def test_a_request_that_waits_before_it_goes_upstream_is_given_up() -> None:
    async def scenario(scene: Scene) -> None:
        held = scene.tasks.start(scene.ask(scene.request(require_approval="true")), "a client")
        await _pending(scene, 1)
        await roll_back(scene, 0)
        assert (await held).status == 409
        assert scene.transport.calls == []
        assert await scene.states() == ["failed"]

    play(scenario, gate=GATED)


def test_a_miss_is_not_explained_by_what_was_rolled_back() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(scene.request("one", step_number="3"))
        await roll_back(scene, 3)
        other = await scene.ask(scene.request("two", step_number="3"))
        assert header(other, "x-agentstate-miss") is None
        await scene.control.restore("s", None, by=None)
        other = await scene.ask(scene.request("three", step_number="3"))
        assert header(other, "x-agentstate-miss") == "step 3 differs at messages[0].content"

    play(scenario)


def test_a_failed_try_that_is_rolled_back_is_left_as_it_is() -> None:
    async def scenario(scene: Scene) -> None:
        plain = scene.transport.on_call
        scene.transport.on_call = lambda number: exchange_of(b"<html>", None, kind=b"text/html")
        assert (await scene.ask(scene.request())).status == 502
        await roll_back(scene, 0)
        scene.transport.on_call = plain
        assert (await scene.ask(scene.request())).status == 200
        assert await scene.states() == ["failed", "complete"]

    play(scenario)


def test_a_refused_call_that_is_rolled_back_is_the_way_out() -> None:
    async def scenario(scene: Scene) -> None:
        plain = scene.transport.on_call
        scene.transport.on_call = lambda number: exchange_of(calling("send_email"), None)
        held = scene.tasks.start(scene.ask(scene.request()), "a client")
        [approval] = await _pending(scene, 1)
        await scene.gate.decide(approval, Decision(False, "ann", "no", then="stop"))
        assert (await held).status == 403
        assert (await scene.ask(scene.request())).status == 403
        await roll_back(scene, 0)
        scene.transport.on_call = plain
        assert (await scene.ask(scene.request())).status == 200
        session = await scene.store.read_session("s")
        assert session is not None
        assert session.status == "RUNNING"

    play(scenario, gate=GATED)


def test_somebody_says_how_a_session_ended_and_it_is_told_once() -> None:
    async def scenario(scene: Scene) -> None:
        scene.store.subscribe((wants(),))
        rung: list[int] = []
        scene.gate.on_event = lambda: rung.append(1)
        await agent(scene, 1)
        for status in ("COMPLETED", "COMPLETED", "RUNNING", "FAILED"):
            change = Change(status=status)  # type: ignore[arg-type]
            await scene.control.change("s", change, reason="it is late", by="ann")
        rows = (await scene.store.list_deliveries(Query(newest_first=False))).rows
        assert [row.event.kind for row in rows] == ["session.completed", "session.failed"]
        facts = {"status": "FAILED", "why": "it is late", "by": "ann"}
        assert rows[1].event.facts == facts
        assert rung

    play(scenario)


def test_what_an_agent_says_of_its_session_is_on_record() -> None:
    async def scenario(scene: Scene) -> None:
        said = {"session_name": "Invoices", "parent_session": "boss", "tags": "team=ops, env=x"}
        await scene.ask(scene.request("a", **said))
        session = await scene.store.read_session("s")
        assert session is not None
        assert (session.name, session.parent) == ("Invoices", "boss")
        assert session.tags == (("env", "x"), ("team", "ops"))
        sent = dict(scene.transport.calls[0].headers)
        assert not [name for name in sent if name.startswith(b"x-agent-")]

    play(scenario)


async def _pending(scene: Scene, count: int) -> list[str]:
    """Wait until so many approvals wait; return them."""
    while True:
        page = await scene.store.list_approvals(Query(status="PENDING"), at_ms=0)
        if len(page.rows) == count:
            return [row.approval_id for row in page.rows]
        await asyncio.sleep(0)


async def _read_cut(response: Response) -> bytes:
    assert not isinstance(response.body, bytes)
    pieces: list[bytes] = []
    try:
        async for piece in response.body:
            pieces.append(piece)
    except Abort:
        return b"".join(pieces)
    raise AssertionError("it was not cut")


async def _soon(exchange: FakeExchange) -> FakeExchange:
    return exchange


def test_a_server_says_that_a_long_removal_goes_on_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_end(store: MemoryStore) -> None:
        await asyncio.Event().wait()

    async def scenario(scene: Scene) -> None:
        await agent(scene, 2)
        _, is_removed = await scene.control.delete("s", by=None)
        assert not is_removed

    monkeypatch.setattr(MemoryStore, "finish_removals", never_end)
    monkeypatch.setattr(steered, "SERVED_REMOVAL_S", 0.0)
    play(scenario)
