"""Calls of a paused session wait, hear that they do, and go on as if they had just come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from agentstate.ground.control import Pause, Place
from agentstate.ground.errors import StoreError, UpstreamCut
from agentstate.ground.settings import ForwardSettings, GateSettings
from agentstate.steps import pauses
from agentstate.steps.delivery import COMMENT
from agentstate.wire.message import Abort, Response
from tests.steps.scene import (
    DONE,
    END,
    HEAD,
    TEXT,
    FakeExchange,
    FakeRequest,
    Scene,
    body_of,
    header,
    play,
    read,
)

BEAT = COMMENT
SOON = GateSettings(heartbeat_s=0.01)
LATE = GateSettings(heartbeat_s=60.0)
RAPID = GateSettings(heartbeat_s=0.01, interim="always")


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that comes by itself, or after a few heartbeats."""
    for _ in range(5000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come")


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def paused(scene: Scene) -> None:
    """Record one step, and pause the session."""
    await scene.ask(scene.request("first"))
    await scene.control.pause("s", reason=None, by=None)


def test_a_call_of_a_paused_session_waits_and_goes_on() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        asking = scene.tasks.start(scene.ask(scene.request("next")), "a client")
        await settle()
        assert not asking.done()
        assert await scene.states() == ["complete"]  # nothing is on record of it
        assert len(scene.transport.calls) == 1
        await scene.control.resume("s")
        answer = await asking
        assert answer.status == 200
        assert len(scene.transport.calls) == 2

    play(scenario, gate=LATE)


def test_a_replay_is_held_too_and_other_sessions_are_not() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        again = scene.tasks.start(scene.ask(scene.request("first")), "a client")
        await settle()
        assert not again.done()
        other = scene.request("first")
        other.headers = type(other.headers)([(b"x-agent-session-id", b"t")])
        assert (await scene.ask(other)).status == 200
        await scene.control.resume("s")
        assert header(await again, "x-agentstate-replay") == "exact"

    play(scenario, gate=LATE)


def test_what_was_in_flight_finishes() -> None:
    async def scenario(scene: Scene) -> None:
        slow = FakeExchange(200, b"application/json")
        await scene.ask(scene.request("first"))
        scene.transport.on_call = lambda number: _soon(slow)
        flying = scene.tasks.start(scene.ask(scene.request("second")), "a client")
        await settle()
        await scene.control.pause("s", reason=None, by=None)
        slow.give(body_of("landed"), None)
        assert b"landed" in await read(await flying)
        joining = scene.tasks.start(scene.ask(scene.request("second")), "a client")
        await settle()
        assert not joining.done()
        await scene.control.resume("s")
        assert header(await joining, "x-agentstate-replay") == "exact"

    play(scenario, gate=LATE)


def test_a_stream_hears_that_it_is_held_and_then_its_answer() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        exchange = FakeExchange(200, b"text/event-stream")
        exchange.give(HEAD, TEXT, END, DONE, None)
        scene.transport.on_call = lambda number: _soon(exchange)
        response = await scene.ask(scene.request("next", stream=True))
        assert (response.status, header(response, "content-type")) == (
            200,
            "text/event-stream; charset=utf-8",
        )
        assert not isinstance(response.body, bytes)
        assert [await anext(response.body) for _ in range(3)] == [BEAT] * 3
        await scene.control.resume("s")
        rest = (await read(response)).replace(BEAT, b"")
        assert rest == HEAD + TEXT + END + DONE
        assert await scene.states() == ["complete"] * 2

    play(scenario, gate=SOON)


def test_a_stream_replays_as_it_is_recorded_once_it_goes_on() -> None:
    async def scenario(scene: Scene) -> None:
        exchange = FakeExchange(200, b"text/event-stream")
        exchange.give(HEAD, TEXT, END, DONE, None)
        scene.transport.on_call = lambda number: _soon(exchange)
        first = await read(await scene.ask(scene.request(stream=True)))
        await scene.control.pause("s", reason=None, by=None)
        response = await scene.ask(scene.request(stream=True))
        await scene.control.resume("s")
        assert (await read(response)).replace(BEAT, b"") == first
        assert len(scene.transport.calls) == 1

    play(scenario, gate=SOON)


def test_heartbeats_go_on_while_the_upstream_thinks() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        exchange = FakeExchange(200, b"text/event-stream")
        scene.transport.on_call = lambda number: _soon(exchange)
        response = await scene.ask(scene.request("next", stream=True))
        assert not isinstance(response.body, bytes)
        await scene.control.resume("s")
        while len(scene.transport.calls) < 2:
            assert await anext(response.body) == BEAT
        assert await anext(response.body) == BEAT
        exchange.give(HEAD, TEXT, END, DONE, None)
        assert (await read(response)).endswith(DONE)

    play(scenario, gate=SOON)


def test_an_error_after_the_pause_is_an_event_of_a_stream_that_has_begun() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)

        async def refuse(number: int) -> FakeExchange:
            exchange = FakeExchange(401, b"application/json")
            error = {"error": {"message": "wrong key", "code": "invalid_api_key"}}
            exchange.give(json.dumps(error).encode(), None)
            return exchange

        scene.transport.on_call = refuse
        body = await _cut_after_resume(scene)
        assert b"wrong key" in body
        assert b"invalid_api_key" in body
        assert DONE not in body

    play(scenario, gate=SOON)


def test_a_fault_of_the_upstream_is_an_event_too() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)

        async def cut(number: int) -> FakeExchange:
            raise UpstreamCut("the upstream left")

        scene.transport.on_call = cut
        assert b"the upstream left" in await _cut_after_resume(scene)

    play(scenario, gate=SOON, forward=ForwardSettings(retries=0))


def test_a_stream_that_is_resumed_at_once_gets_a_real_error() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)

        async def cut(number: int) -> FakeExchange:
            raise UpstreamCut("the upstream left")

        scene.transport.on_call = cut
        asking = scene.tasks.start(scene.ask(scene.request("next", stream=True)), "a client")
        await settle()
        await scene.control.resume("s")
        assert (await asking).status == 502

    play(scenario, gate=LATE, forward=ForwardSettings(retries=0))


def test_others_hear_processing_where_they_take_it() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        told: list[int] = []
        request = scene.request("next")
        request.send_interim = told.append  # type: ignore[method-assign]
        asking = scene.tasks.start(scene.ask(request), "a client")
        await until(lambda: len(told) >= 2)
        await scene.control.resume("s")
        assert (await asking).status == 200
        assert set(told) == {102}

    play(scenario, gate=RAPID)


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_while_it_is_paused_leaves_nothing(stream: bool) -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        request = scene.request("next", stream=stream)
        asking = scene.tasks.start(_answered(scene, request), "a client")
        await settle()
        request.leave()
        await asyncio.wait([asking])
        assert scene.pauses._bells._waiting == {}
        await scene.control.resume("s")
        await settle()
        assert len(scene.transport.calls) == 1
        assert await scene.states() == ["complete"]

    async def _answered(scene: Scene, request: FakeRequest) -> None:
        with pytest.raises(ConnectionError):
            await scene.ask(request)

    play(scenario, gate=LATE)


def test_who_leaves_in_mid_stream_leaves_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        response = await scene.ask(scene.request("next", stream=True))
        assert not isinstance(response.body, bytes)
        assert await anext(response.body) == BEAT
        await response.body.aclose()  # type: ignore[attr-defined]
        await settle()
        assert scene.pauses._bells._waiting == {}
        await scene.control.resume("s")
        await settle()
        assert len(scene.transport.calls) == 1

    play(scenario, gate=SOON)


def test_who_leaves_just_after_it_is_resumed_is_answered_for_the_record() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        exchange = FakeExchange(200, b"text/event-stream")
        scene.transport.on_call = lambda number: _soon(exchange)
        request = scene.request("next", stream=True)
        response = await scene.ask(request)
        assert not isinstance(response.body, bytes)
        await scene.control.resume("s")
        while len(scene.transport.calls) < 2:
            assert await anext(response.body) == BEAT
        request.leave()
        await response.body.aclose()  # type: ignore[attr-defined]
        exchange.give(HEAD, TEXT, END, DONE, None)
        await until(lambda: scene.pipeline.in_flight_count == 0)
        assert await scene.states() == ["complete"] * 2

    play(scenario, gate=SOON)


def test_a_pause_outlasts_a_restart() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        scene.start()
        asking = scene.tasks.start(scene.ask(scene.request("next")), "a client")
        await settle()
        assert not asking.done()
        await scene.control.resume("s")
        assert (await asking).status == 200

    play(scenario, gate=LATE)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_ends_the_wait_with_an_error_that_may_be_tried_again(stream: bool) -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        asking = scene.tasks.start(scene.ask(scene.request("next", stream=stream)), "a client")
        await settle()
        scene.pauses.park()
        answer = await asking
        assert answer.status == 503
        assert header(answer, "x-should-retry") is None
        assert (await scene.ask(scene.request("next"))).status == 503

    play(scenario, gate=LATE)


def test_a_stop_ends_a_stream_that_has_begun() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        response = await scene.ask(scene.request("next", stream=True))
        scene.pauses.park()
        assert b"stopping" in await _read_cut(response)

    play(scenario, gate=SOON)


def test_what_cannot_be_read_is_refused_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        request = scene.request("next")
        request._raw = b"{"
        assert (await scene.ask(request)).status == 400

    play(scenario, gate=LATE)


def test_a_ring_that_is_lost_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "RECHECK_S", 0.01)

    async def scenario(scene: Scene) -> None:
        await paused(scene)
        asking = scene.tasks.start(scene.ask(scene.request("next")), "a client")
        await settle()
        await scene.store.resume("s", at_ms=1)  # nobody rings
        assert (await asking).status == 200

    play(scenario, gate=LATE)


def test_a_ring_is_a_hint() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        asking = scene.tasks.start(scene.ask(scene.request("next")), "a client")
        await settle()
        scene.pauses.ring("s")
        await settle()
        assert not asking.done()
        await scene.control.resume("s")
        assert (await asking).status == 200

    play(scenario, gate=LATE)


def test_a_record_that_cannot_be_read_is_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        asking = scene.tasks.start(scene.ask(scene.request("next")), "a client")
        await settle()

        async def fail(session: str) -> Pause | None:
            raise StoreError("the disk is gone")

        monkeypatch.setattr(scene.store, "read_pause", fail)
        scene.pauses.ring("s")
        assert (await asking).status == 503

    play(scenario, gate=LATE)


def test_a_pause_is_no_time_of_ours() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        asking = scene.tasks.start(scene.ask(scene.request("first")), "a client")
        await asyncio.sleep(0.3)
        await scene.control.resume("s")
        overhead_ms = header(await asking, "x-agentstate-overhead-ms")
        assert overhead_ms is not None
        assert float(overhead_ms) < 250

    play(scenario, gate=LATE)


def test_a_session_is_rolled_back_while_it_is_paused() -> None:
    async def scenario(scene: Scene) -> None:
        await paused(scene)
        again = scene.tasks.start(scene.ask(scene.request("first")), "a client")
        await settle()
        assert await scene.control.roll_back("s", Place(index=0), by=None) is not None
        await settle()
        assert not again.done()
        await scene.control.resume("s")
        assert header(await again, "x-agentstate-cache-hit") == "false"
        assert len(scene.transport.calls) == 2

    play(scenario, gate=LATE)


async def _cut_after_resume(scene: Scene) -> bytes:
    response = await scene.ask(scene.request("next", stream=True))
    await scene.control.resume("s")
    return await _read_cut(response)


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
