"""The outbox against scripted services over real sockets: nothing lost, nothing leaked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from agentstate.ground.errors import NotFound, StoreError
from agentstate.ground.events import Delivery, Event, EventKind
from agentstate.ground.records import Query
from agentstate.ground.settings import ForwardSettings
from agentstate.house.hooks import LIMITS, build_hooks
from agentstate.house.outbox import HOUR_MS, TRY_S, Outbox, Pace
from agentstate.house.samples import sample_of
from agentstate.store.memory import MemoryStore
from agentstate.wire.client import HTTPClient
from tests.helpers.services import TOKEN, Service
from tests.helpers.upstream import Gate, Reply, json_reply

T = TypeVar("T")

NOW_MS = 1_700_000_000_000
LIMIT_S = 10.0
LONG = Pace(gap_ms=())  # every wait is the clock's, which the tests set
RETRY_3: tuple[tuple[bytes, bytes], ...] = ((b"retry-after", b"3"),)


class Counting(MemoryStore):
    """A store that knows how often somebody looked for what is due."""

    looks = 0

    async def next_due_ms(self, **asked: Any) -> int | None:
        """Count."""
        self.looks += 1
        return await super().next_due_ms(**asked)


class Room:
    """An outbox over a store in memory, and a clock that stands still."""

    def __init__(self, store: Counting, outbox: Outbox) -> None:
        self.store = store
        self.outbox = outbox
        self.now_ms = NOW_MS

    async def happen(self, *events: Event) -> None:
        """Write events and ring."""
        for event in events:
            await self.store.record_event(event)
        self.outbox.ring()

    async def pass_ms(self, ms: int) -> None:
        """Let time pass, as far as the outbox knows."""
        self.now_ms += ms
        self.outbox.ring()

    async def looked(self) -> None:
        """Wait until the outbox has looked for what is due, from now on, and has had its turn."""
        before = self.store.looks
        self.outbox.ring()
        async with asyncio.timeout(LIMIT_S):
            while self.store.looks < before + 3:  # the first may have begun before
                await asyncio.sleep(0.002)
                self.outbox.ring()

    async def until(self, happened: Callable[[list[Delivery]], bool]) -> list[Delivery]:
        """Wait for the deliveries, the oldest first, to be so."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                page = await self.store.list_deliveries(Query(limit=1000))
                rows = list(reversed(page.rows))
                if happened(rows):
                    return rows
                await asyncio.sleep(0.002)

    async def tried(self, tries: int) -> Delivery:
        """Wait for the one delivery to have been tried so often, and return it settled."""
        [row] = await self.until(
            lambda rows: [(r.tries, r.leased_ms) for r in rows] == [(tries, None)]
        )
        return row


@asynccontextmanager
async def room(
    *services: Service, pace: Pace = LONG, chance: float = 0.5, **more: Any
) -> AsyncIterator[Room]:
    """Run an outbox that sends to these services."""
    store = Counting()
    await store.open()
    hooks = build_hooks(service.settings(**more) for service in services)
    client = HTTPClient(ForwardSettings())
    made: Room

    def clock_ms() -> int:
        return made.now_ms

    outbox = Outbox(
        store, hooks, client, keys=("configured-key",), pace=pace, clock_ms=clock_ms,
        chance=lambda: chance,
    )  # fmt: skip
    made = Room(store, outbox)
    store.subscribe(tuple(hook.subscription for hook in hooks))
    outbox.start("https://agents.example")
    try:
        yield made
    finally:
        await outbox.stop(0.1)
        await client.close()
        await store.close()


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def go() -> T:
        return await work()

    return asyncio.run(go())


def event(kind: EventKind = "approval.required", session: str = "s", at_ms: int = NOW_MS) -> Event:
    return replace(sample_of(kind, at_ms), session=session, is_sample=False)


def is_sent(rows: list[Delivery]) -> bool:
    return bool(rows) and all(row.state == "sent" for row in rows)


# -- the good way


@pytest.mark.parametrize("kind", ["slack", "discord", "json"])
def test_an_event_is_sent_once(kind: Any) -> None:
    async def go(service: Service) -> None:
        async with room(service) as box:
            told = event()
            await box.happen(told)
            [row] = await box.until(is_sent)

            assert (row.tries, row.settled_ms, row.error) == (1, NOW_MS, None)
            assert row.status in (200, 202, 204)
            assert row.event == told
            await box.happen(told)  # the same event again is none
            await box.happen(event("session.failed"))
            await box.until(lambda rows: len(rows) == 2 and is_sent(rows))

    with Service(kind) as service:
        run(lambda: go(service))
        assert service.faults == []
        assert len(service.received) == 2


def test_each_webhook_is_told_what_it_asked_for() -> None:
    async def go(mine: Service, other: Service) -> None:
        async with room(mine, other, sessions=("prod-*",), events=("session.failed",)) as box:
            await box.happen(
                event("session.failed", "prod-1"),
                event("session.failed", "test-1"),
                event("approval.required", "prod-1"),
            )
            await box.until(lambda rows: len(rows) == 2 and is_sent(rows))

    with Service("json") as mine, Service("slack") as other:
        run(lambda: go(mine, other))
        assert [len(service.received) for service in (mine, other)] == [1, 1]


# -- again


def test_it_is_tried_again_with_growing_waits_and_full_jitter() -> None:
    waits: list[int] = []

    async def go(service: Service) -> None:
        async with room(service, chance=0.5) as box:
            await box.happen(event())
            for tries in range(1, 15):
                row = await box.tried(tries)
                assert (row.state, row.status) == ("due", 500)
                assert row.next_ms is not None
                waits.append(row.next_ms - box.now_ms)
                await box.pass_ms(waits[-1])
            [row] = await box.until(is_sent)
            assert row.tries == 15

    with Service("json", [Reply(500)] * 14) as service:
        run(lambda: go(service))
        ids = {each.header("webhook-id") for each in service.received}
    assert waits[:4] == [1001, 2001, 4001, 8001], "half of 2 s, 4 s, ..."
    assert waits[-1] == HOUR_MS // 2 + 1
    assert len(ids) == 1, "every try carries the same id"


def test_what_is_not_due_yet_is_not_sent() -> None:
    async def go(service: Service) -> None:
        async with room(service, chance=1.0) as box:
            await box.happen(event())
            await box.tried(1)
            await box.pass_ms(2000)
            await box.looked()
            assert (await box.tried(1)).state == "due"
            await box.pass_ms(1)
            await box.until(is_sent)

    with Service("json", [Reply(503)]) as service:
        run(lambda: go(service))


@pytest.mark.parametrize(
    ("kind", "reply", "wait_ms"),
    [
        ("slack", Reply(429, RETRY_3), 3001),
        ("discord", json_reply({"retry_after": 0.652}, status=429), 652),
        ("json", Reply(503, RETRY_3), 3001),
        ("slack", Reply(429, ((b"retry-after", b"99999999"),)), HOUR_MS),
    ],
)
def test_a_service_that_limits_is_left_alone_as_long_as_it_says(
    kind: Any, reply: Reply, wait_ms: int
) -> None:
    async def go(service: Service) -> None:
        async with room(service) as box:
            await box.happen(event())
            row = await box.tried(1)
            assert row.next_ms is not None
            wait = row.next_ms - NOW_MS
            assert wait_ms <= wait <= min(wait_ms + 1500, HOUR_MS), wait
            assert box.outbox.rests_until_ms(kind) == row.next_ms
            await box.happen(event("session.failed"))  # waits as well
            await box.pass_ms(wait - 1)
            await box.looked()
            assert [row.tries for row in await box.until(bool)] == [1, 0]
            await box.pass_ms(1)
            await box.until(lambda rows: len(rows) == 2 and is_sent(rows))
            assert box.outbox.rests_until_ms(kind) is None

    with Service(kind, [reply]) as service:
        run(lambda: go(service))
        assert len(service.received) == 3


def test_a_limit_that_does_not_say_how_long_gets_the_whole_backoff() -> None:
    async def go(service: Service) -> None:
        async with room(service, chance=0.0) as box:
            await box.happen(event())
            waits = []
            for tries in (1, 2):
                row = await box.tried(tries)
                assert row.next_ms is not None
                waits.append(row.next_ms - box.now_ms)
                await box.pass_ms(waits[-1])
            await box.until(is_sent)
            assert waits == [2000, 4000]

    blocked = json_reply({"message": "You are being blocked", "code": 0}, status=429)
    with Service("discord", [blocked, blocked]) as service:
        run(lambda: go(service))


def test_a_slow_service_keeps_nobody_else_waiting_and_gets_one_message_at_a_time() -> None:
    gate = Gate()

    async def go(slow: Service, fast: Service) -> None:
        async with room(slow, fast) as box:
            await box.happen(*(event(session=f"s{n}") for n in range(4)))
            await box.until(lambda rows: sum(row.state == "sent" for row in rows) == 4)
            assert len(slow.received) == 1
            gate.open(4)
            await box.until(lambda rows: len(rows) == 8 and is_sent(rows))

    with Service("json", [Reply(200, (), (b"ok",), gate=gate)] * 4) as slow, Service("slack") as f:
        run(lambda: go(slow, f))
        ended = [each.ended_s for each in slow.received]
        begun = [each.at_s for each in slow.received]
        assert all(b >= (e or 0) for b, e in zip(begun[1:], ended, strict=False))


def test_messages_to_slack_keep_its_pace() -> None:
    async def go(service: Service) -> None:
        async with room(service, pace=Pace()) as box:
            await box.happen(event(session="a"), event(session="b"))
            await box.until(lambda rows: rows[0].state == "sent")
            await box.looked()
            assert [row.tries for row in await box.until(bool)] == [1, 0]
            assert box.outbox.rests_until_ms("slack") == NOW_MS + 1000
            await box.pass_ms(1000)
            await box.until(is_sent)

    with Service("slack") as service:
        run(lambda: go(service))


# -- never


@pytest.mark.parametrize("status", [404, 410])
def test_a_webhook_that_is_gone_is_dead_and_can_be_sent_to_again(status: int) -> None:
    async def go(service: Service) -> None:
        async with room(service) as box:
            await box.happen(event())
            row = await box.tried(1)
            assert (row.state, row.status, row.next_ms) == ("dead", status, None)
            assert row.error
            await box.store.redeliver(row.delivery_id, at_ms=box.now_ms)
            box.outbox.ring()
            [again] = await box.until(is_sent)
            assert again.event.event_id == row.event.event_id

    with Service("slack", [Reply(status)]) as service:
        run(lambda: go(service))
        assert len(service.received) == 2


def test_a_card_that_is_refused_and_told_plainly_shows_what_was_wrong_with_it() -> None:
    async def go(service: Service) -> None:
        async with room(service) as box:
            await box.happen(event())
            [row] = await box.until(is_sent)
            assert (row.tries, row.status) == (1, 200)
            assert "invalid_blocks" in (row.error or "")

    with Service("slack", [Reply(400, (), (b"invalid_blocks",))]) as service:
        run(lambda: go(service))
        assert len(service.received) == 2


def test_after_a_day_in_vain_it_is_dead() -> None:
    async def go(service: Service) -> None:
        async with room(service, chance=1.0, pace=replace(LONG, cap_ms=1000)) as box:
            await box.happen(event())
            await box.tried(1)
            await box.pass_ms(25 * HOUR_MS)  # the proxy was off: old, and hardly tried
            for tries in range(2, LONG.tries_min):
                assert (await box.tried(tries)).state == "due"
                await box.pass_ms(1001)
            row = await box.tried(LONG.tries_min)
            assert (row.state, row.next_ms) == ("dead", None)

    with Service("json", [Reply(500)] * LONG.tries_min) as service:
        run(lambda: go(service))


def test_what_is_due_to_a_webhook_that_is_not_configured_waits_a_day_for_it() -> None:
    async def go(service: Service) -> None:
        async with room(service) as box:
            hook = box.outbox.hooks.pop(service.kind)
            await box.happen(event())
            row = await box.tried(1)
            assert (row.state, row.status) == ("due", None)
            assert "no webhook of this name" in (row.error or "")
            box.outbox.hooks[hook.name] = hook
            await box.pass_ms(HOUR_MS)
            await box.until(is_sent)
            del box.outbox.hooks[hook.name]
            await box.happen(event("session.failed"))
            await box.pass_ms(24 * HOUR_MS)
            rows = await box.until(lambda rows: len(rows) == 2 and rows[1].state == "dead")
            assert rows[1].settled_ms == box.now_ms

    with Service("json") as service:
        run(lambda: go(service))


# -- faults of ours, and the end


class Unrendered:
    """A format with a fault."""

    name = "json"

    def matches(self, url: str) -> bool:
        """Know every URL."""
        return True

    def render(self, *args: object, **more: object) -> Any:
        """Fail."""
        raise ZeroDivisionError("a fault of ours")

    render_plain = render
    read = render


def test_an_event_that_we_cannot_render_is_logged_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go(service: Service) -> None:
        async with room(service) as box:
            broken = replace(box.outbox.hooks["json"], format=Unrendered())
            box.outbox.hooks["json"] = broken
            await box.happen(event())
            row = await box.tried(1)
            assert (row.state, row.status) == ("due", None)
            assert "a fault of ours" in (row.error or "")

    with Service("json") as service:
        run(lambda: go(service))
    assert "ZeroDivisionError" in caplog.text
    assert TOKEN not in caplog.text


def test_a_record_that_cannot_be_read_for_a_while_stops_nothing() -> None:
    class Failing(Counting):
        faults = 2

        async def claim_deliveries(self, **asked: Any) -> tuple[Delivery, ...]:
            """Fail twice."""
            self.faults -= 1
            if self.faults >= 0:
                raise StoreError("the disk is full")
            return await super().claim_deliveries(**asked)

    async def go(service: Service) -> None:
        store = Failing()
        await store.open()
        [hook] = build_hooks([service.settings()])
        store.subscribe((hook.subscription,))
        client = HTTPClient(ForwardSettings())
        pace = replace(LONG, look_every_s=0.01)
        outbox = Outbox(store, [hook], client, pace=pace, clock_ms=lambda: NOW_MS)
        outbox.start("")
        box = Room(store, outbox)
        await store.record_event(event())  # nobody rings
        await box.until(is_sent)
        await outbox.stop()
        await client.close()

    with Service("json") as service:
        run(lambda: go(service))


def test_stopping_lets_the_try_in_flight_end_and_begins_no_other() -> None:
    gate = Gate()

    async def go(service: Service) -> None:
        async with room(service) as box:
            await box.happen(event(session="a"), event(session="b"))
            await asyncio.to_thread(service.wait_for_requests, 1)
            stopping = asyncio.ensure_future(box.outbox.stop(LIMIT_S))
            gate.open()
            await stopping
            rows = await box.until(lambda rows: rows[0].state == "sent")
            assert (rows[1].state, rows[1].tries) == ("due", 0)

    with Service("json", [Reply(200, (), (b"ok",), gate=gate)]) as service:
        run(lambda: go(service))


def test_what_is_cut_off_is_sent_again_under_the_same_id_once_its_lease_ends() -> None:
    async def go(service: Service) -> None:
        async with room(service) as box:
            await box.happen(event())
            await asyncio.to_thread(service.wait_for_requests, 1)
            await box.outbox.stop(0.01)
            [row] = await box.until(lambda rows: len(rows) == 1)
            assert (row.state, row.leased_ms) == ("due", NOW_MS + LONG.lease_ms)
            hooks = list(box.outbox.hooks.values())
            client = HTTPClient(ForwardSettings())
            after = Outbox(box.store, hooks, client, pace=LONG, clock_ms=lambda: box.now_ms)
            after.start("")
            box.now_ms += LONG.lease_ms
            after.ring()
            await box.until(is_sent)
            await after.stop()
            await client.close()

    with Service("json", [Reply(200, (), (b"ok",), gate=Gate())]) as service:
        run(lambda: go(service))
        first, second = service.received
        assert first.header("webhook-id") == second.header("webhook-id")


def test_no_try_outlasts_its_lease() -> None:
    assert Pace().lease_ms > TRY_S * 1000
    assert 2 * LIMITS.total_s <= TRY_S


def test_a_url_is_in_no_line_of_the_log_and_in_no_row(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def go(service: Service) -> None:
        async with room(service) as box:
            await box.happen(event())
            await box.tried(1)
            await box.pass_ms(HOUR_MS)
            row = await box.tried(2)
            assert TOKEN not in repr(row)

    echo = Reply(500, (), (service_path(),))
    with Service("slack", [echo, Reply(404, (), (service_path(),))]) as service:
        run(lambda: go(service))
    assert "is tried again" in caplog.text
    assert "is given up" in caplog.text
    assert TOKEN not in caplog.text


def service_path() -> bytes:
    return f"no hook at /services/T00000000/B00000000/{TOKEN}".encode()


# -- a test of a webhook


def test_a_sample_is_sent_past_the_record() -> None:
    async def go(service: Service) -> None:
        async with room(service) as box:
            told = await box.outbox.test("slack", "session.failed")
            assert (told.is_taken, told.status) == (True, 200)
            assert await box.until(lambda rows: True) == []
            with pytest.raises(NotFound, match="no webhook 'other'"):
                await box.outbox.test("other", "session.failed")

    with Service("slack") as service:
        run(lambda: go(service))
        assert len(service.received) == 1
