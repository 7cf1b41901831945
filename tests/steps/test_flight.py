"""A flight goes on without its clients, and no client hinders another."""

import asyncio
from collections.abc import Awaitable

import pytest

from agentstate.ground.errors import UpstreamCut
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.flight import Flight, Follower, Head, Landing

HEAD = Head(200, ((b"content-type", b"text/event-stream"),))
ANSWERED = Landing(answer=RecordedAnswer(200, (), "events", b"abc"))


def run(work: Awaitable[None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(5):
            await work

    asyncio.run(main())


async def collect(follower: Follower) -> list[bytes]:
    return [piece async for piece in follower]


def test_a_late_joiner_gets_what_has_arrived_and_then_lives_along() -> None:
    async def scene() -> None:
        flight = Flight(1000)
        flight.open(HEAD)
        flight.publish(b"a")
        flight.publish(b"b")
        late = asyncio.create_task(collect(flight.attach()))
        await asyncio.sleep(0)
        flight.publish(b"c")
        flight.land(ANSWERED)
        assert await late == [b"a", b"b", b"c"]

    run(scene())


def test_a_flight_without_an_answer_ends_every_follower_after_the_last_piece() -> None:
    async def scene() -> None:
        flight = Flight(1000)
        follower = flight.attach()
        flight.open(HEAD)
        flight.publish(b"half")
        flight.land(Landing(error=UpstreamCut("cut")))
        assert await anext(follower) == b"half"
        with pytest.raises(StopAsyncIteration):
            await anext(follower)
        assert not flight.followers

    run(scene())


def test_what_says_that_no_answer_comes_goes_out_with_the_landing() -> None:
    async def scene() -> None:
        flight = Flight(1000)
        follower = flight.attach()
        flight.open(HEAD)
        flight.publish(b"half")
        flight.publish_last(b"error")
        assert await anext(follower) == b"half"
        assert not await flight.changed(0.0)
        flight.land(Landing(error=UpstreamCut("cut")))
        assert await collect(follower) == [b"error"]

    run(scene())


def test_the_producer_waits_for_the_fastest_follower_only() -> None:
    async def scene() -> None:
        flight = Flight(2)
        fast, stalled = flight.attach(), flight.attach()
        flight.open(HEAD)
        flight.publish(b"aaa")
        room = asyncio.create_task(flight.room())
        await asyncio.sleep(0)
        assert not room.done()
        assert await anext(fast) == b"aaa"
        await asyncio.sleep(0)
        assert not room.done()  # handed out, not yet written
        following = asyncio.create_task(anext(fast))
        await room
        assert stalled.taken == 0
        flight.land(ANSWERED)
        with pytest.raises(StopAsyncIteration):
            await following

    run(scene())


def test_a_deserted_producer_never_waits() -> None:
    async def scene() -> None:
        flight = Flight(1)
        follower = flight.attach()
        flight.open(HEAD)
        flight.publish(b"aaaa")
        room = asyncio.create_task(flight.room())
        await asyncio.sleep(0)
        follower.leave()
        await room

    run(scene())


def test_a_client_that_leaves_before_its_first_piece_is_counted_out() -> None:
    async def scene() -> None:
        deserted: list[bool] = []
        flight = Flight(1000)
        flight.on_desert = deserted.append
        follower = flight.attach()
        await follower.aclose()
        follower.leave()
        flight.attach()
        assert deserted == [False, True, False]

    run(scene())


def test_waiting_for_news_ends_with_each_change() -> None:
    async def scene() -> None:
        flight = Flight(10)
        changes = (
            lambda: flight.open(HEAD),
            lambda: flight.publish(b"a"),
            lambda: flight.keep(True),
            lambda: flight.keep(False),
            lambda: flight.land(ANSWERED),
        )
        for change in changes:
            waiting = asyncio.create_task(flight.changed(60))
            await asyncio.sleep(0)
            assert not waiting.done()
            change()
            assert await waiting

    run(scene())


def test_while_a_flight_keeps_what_came_its_followers_hear_heartbeats() -> None:
    async def scene() -> None:
        flight = Flight(1000)
        follower = flight.attach()
        follower.heartbeat, follower.heartbeat_s = b": held\n", 0.01
        flight.open(HEAD)
        flight.publish(b"a")
        flight.keep(True)
        assert [await anext(follower) for _ in range(3)] == [b"a", b": held\n", b": held\n"]
        flight.publish(b"b")
        flight.land(ANSWERED)
        assert await collect(follower) == [b"b"]
        assert follower.taken == 2  # what was written of the pieces; heartbeats are none

    run(scene())
