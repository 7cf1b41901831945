"""The life of a call, where it could go wrong: races, leavings, and what is said of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentstate.ground.errors import UpstreamCut
from agentstate.ground.settings import ForwardSettings, StreamSettings
from agentstate.wire.message import Abort
from tests.steps.scene import (
    DONE,
    END,
    HEAD,
    TEXT,
    FakeExchange,
    Scene,
    body_of,
    header,
    play,
    read,
)

ERROR = b'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n'


def streaming(*pieces: bytes | Exception | None) -> FakeExchange:
    exchange = FakeExchange(200, b"text/event-stream")
    exchange.give(*pieces)
    return exchange


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_an_equal_call_is_a_replay_and_a_different_one_is_not() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.ask(scene.request("a"))
        again = await scene.ask(scene.request("a"))
        other = await scene.ask(scene.request("b"))
        assert first.body == again.body != other.body
        assert [header(each, "x-agentstate-cache-hit") for each in (first, again, other)] == [
            "false",
            "true",
            "false",
        ]
        assert len(scene.transport.calls) == 2

    play(scenario)


def test_what_a_replayed_call_says_of_its_session_is_on_record() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(scene.request("a", tags="team=ops"))
        said = {"tags": "new=1", "session_name": "Invoices", "parent_session": "boss"}
        await scene.ask(scene.request("a", **said))
        row = await scene.store.read_session("s")
        assert row is not None
        assert row.replays == 1
        assert (row.name, row.parent) == ("Invoices", "boss")
        assert row.tags == (("new", "1"), ("team", "ops"))

    play(scenario)


def test_equal_calls_at_once_make_one_upstream_call_and_one_saving() -> None:
    async def scenario(scene: Scene) -> None:
        answers = await asyncio.gather(*(scene.ask(scene.request()) for _ in range(20)))
        assert len(scene.transport.calls) == 1
        assert len({await read(each) for each in answers}) == 1
        session = await scene.store.read_session("s")
        assert session is not None
        assert session.replays == 19

    play(scenario)


def test_a_plain_caller_of_a_long_stream_does_not_wait_for_itself() -> None:
    async def scenario(scene: Scene) -> None:
        exchange = streaming()
        scene.transport.on_call = lambda number: _soon(exchange)
        exchange.give(HEAD, *[TEXT] * 100, END, DONE, None)
        answer = await scene.ask(scene.request())
        assert b"hihihi" in await read(answer)

    play(scenario, stream=StreamSettings(spool_bytes_max=1000))


def test_who_leaves_after_the_completing_frame_takes_nothing_back() -> None:
    async def scenario(scene: Scene) -> None:
        exchange = streaming()
        scene.transport.on_call = lambda number: _soon(exchange)
        request = scene.request(stream=True, on_disconnect="cancel")
        exchange.give(HEAD, TEXT, END)
        response = await scene.ask(request)
        assert not isinstance(response.body, bytes)
        assert await anext(response.body) == HEAD
        await settle()
        request.leave()
        await settle()
        await asyncio.sleep(0.01)
        assert await scene.states() == ["complete"]
        again = await scene.ask(scene.request(stream=True))
        assert (await read(again)).endswith(DONE)
        assert len(scene.transport.calls) == 1

    play(scenario)


def test_who_comes_between_the_completing_frame_and_the_end_joins() -> None:
    async def scenario(scene: Scene) -> None:
        exchange = streaming()
        scene.transport.on_call = lambda number: _soon(exchange)
        exchange.give(HEAD, TEXT, END)
        first = await scene.ask(scene.request(stream=True))
        await settle()
        second = await scene.ask(scene.request(stream=True))
        assert header(second, "x-agentstate-replay") == "joined"
        exchange.give(UpstreamCut("cut"))
        for response in (first, second):
            with pytest.raises(Abort):
                await read(response)
        await settle()
        assert await scene.states() == ["failed"]

    play(scenario)


def test_two_equal_calls_of_one_run_never_share_the_row_of_a_failed_try() -> None:
    async def scenario(scene: Scene) -> None:
        async def fail(number: int) -> FakeExchange:
            raise UpstreamCut("cut")

        plain, scene.transport.on_call = scene.transport.on_call, fail
        await scene.ask(scene.request(run_id="r1", call_id="c0"))
        scene.transport.on_call = plain
        answers = await asyncio.gather(
            *(scene.ask(scene.request(run_id="r2", call_id=f"c{n}")) for n in range(2))
        )
        assert {header(each, "x-agentstate-step") for each in answers} == {"0", "1"}
        assert await scene.states() == ["complete", "complete"]

    play(scenario)


def test_a_retry_never_joins_a_call_that_is_being_given_up() -> None:
    async def scenario(scene: Scene) -> None:
        hanging = streaming()
        scene.transport.on_call = lambda number: _soon(hanging)
        request = scene.request(on_disconnect="cancel")
        asking = scene.tasks.start(scene.ask(request), "a client")
        await settle()
        request.leave()
        await asyncio.sleep(0.001)
        scene.transport.on_call = scene.transport._plain
        answer = await scene.ask(scene.request())
        assert answer.status == 200
        await asking

    play(scenario)


@pytest.mark.parametrize("fault", [UpstreamCut("cut"), ERROR], ids=["cut", "error event"])
def test_who_asks_again_as_soon_as_a_stream_broke_off_gets_a_try_of_its_own(
    fault: Exception | bytes,
) -> None:
    """Once it joined the call that it had just seen fail, and got that error again."""

    async def scenario(scene: Scene) -> None:
        async def fail_slowly(*args: Any, **named: Any) -> None:
            await settle()  # so does a disk
            await record(*args, **named)

        record = scene.store.record_failure
        scene.store.record_failure = fail_slowly  # type: ignore[method-assign]
        broken = streaming(HEAD, TEXT, fault)
        scene.transport.on_call = lambda number: _soon(broken)
        first = await scene.ask(scene.request(stream=True))
        assert not isinstance(first.body, bytes)
        async for piece in first.body:
            if b'"error"' in piece:
                break
        scene.transport.on_call = lambda number: _soon(streaming(HEAD, TEXT, END, DONE, None))
        again = await read(await scene.ask(scene.request(stream=True)))
        assert (b"[DONE]" in again, len(scene.transport.calls)) == (True, 2)
        assert await scene.states() == ["complete"]

    play(scenario)


def test_a_fault_of_ours_leaves_no_open_claim() -> None:
    async def scenario(scene: Scene) -> None:
        async def break_down(number: int) -> FakeExchange:
            raise KeyError("a bug")

        plain, scene.transport.on_call = scene.transport.on_call, break_down
        answer = await scene.ask(scene.request())
        assert answer.status == 500
        assert await scene.states() == ["failed"]
        scene.transport.on_call = plain
        assert (await scene.ask(scene.request())).status == 200
        assert await scene.states() == ["complete"]

    play(scenario)


def test_every_joiner_of_a_call_that_fails_gets_the_error_and_no_saving() -> None:
    async def scenario(scene: Scene) -> None:
        async def refuse(number: int) -> FakeExchange:
            exchange = FakeExchange(429, b"application/json")
            exchange.give(b'{"error":{"message":"slow down"}}', None)
            return exchange

        scene.transport.on_call = refuse
        answers = await asyncio.gather(*(scene.ask(scene.request()) for _ in range(10)))
        assert {each.status for each in answers} == {429}
        assert {header(each, "x-agentstate-cache-hit") for each in answers} == {"false"}
        assert len(scene.transport.calls) == 1
        session = await scene.store.read_session("s")
        assert session is not None
        assert session.replays == 0

    play(scenario, forward=ForwardSettings(retries=0))


def test_a_refresh_that_is_retried_with_its_call_id_is_billed_once() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(scene.request())
        first = await scene.ask(scene.request(replay="refresh", call_id="c1"))
        again = await scene.ask(scene.request(replay="refresh", call_id="c1"))
        assert first.body == again.body
        assert len(scene.transport.calls) == 2
        await scene.ask(scene.request(replay="refresh", call_id="c2"))
        assert len(scene.transport.calls) == 3
        assert await scene.states() == ["complete"]

    play(scenario)


def test_an_answer_whose_model_is_no_text_for_a_header_is_still_delivered() -> None:
    async def scenario(scene: Scene) -> None:
        async def odd(number: int) -> FakeExchange:
            exchange = FakeExchange(200, b"application/json")
            exchange.give(body_of("hi", model="m\ud83d" + "x" * 100_000), None)
            return exchange

        scene.transport.on_call = odd
        answer = await scene.ask(scene.request())
        assert answer.status == 200
        model = header(answer, "x-agentstate-model")
        assert model is not None
        assert len(model) < 1000

    play(scenario)


def test_a_miss_says_where_it_differs_and_a_conversation_that_goes_on_is_none() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(scene.request("one", step_number="3"))
        other = await scene.ask(scene.request("two", step_number="3"))
        assert header(other, "x-agentstate-miss") == "step 3 differs at messages[0].content"
        fresh = await scene.ask(scene.request("three", step_number="4"))
        assert header(fresh, "x-agentstate-miss") is None

    play(scenario)


async def _soon(exchange: FakeExchange) -> FakeExchange:
    return exchange
