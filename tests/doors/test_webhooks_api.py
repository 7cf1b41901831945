"""The webhooks' part of the management API: what is shown of them, and what can be done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from agentstate.doors.api.webhooks import WebhookEndpoints
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.clock import now_ms
from agentstate.ground.events import Event, EventKind
from agentstate.ground.settings import ForwardSettings
from agentstate.house.hooks import build_hooks
from agentstate.house.outbox import Outbox
from agentstate.house.samples import sample_of
from agentstate.store.memory import MemoryStore
from agentstate.wire.client import HTTPClient
from agentstate.wire.endpoint import Router
from agentstate.wire.message import Pair, Response
from tests.doors.test_approvals_api import HOST, IS_JSON, Asked
from tests.helpers.services import TOKEN, Service
from tests.helpers.upstream import Reply

T = TypeVar("T")


class Room:
    """A store, an outbox that does not run, and the front door before them."""

    def __init__(self, *services: Service) -> None:
        hooks = build_hooks(service.settings(sessions=("s*",)) for service in services)
        self.store = MemoryStore()
        self.client = HTTPClient(ForwardSettings())
        self.outbox = Outbox(self.store, hooks, self.client)
        router = Router(WebhookEndpoints(self.store, self.outbox).rows())
        self.door = FrontDoor(cast(Any, None), router, Assets(), ())

    async def happen(self, kind: EventKind = "session.failed", session: str = "s") -> Event:
        """Write an event."""
        event = replace(sample_of(kind, now_ms()), session=session)
        await self.store.record_event(event)
        return event

    async def ask(
        self, method: str, target: str, body: bytes = b"", *headers: Pair
    ) -> tuple[int, Any, Response]:
        """Ask; return status, JSON and all of it."""
        asked = Asked(method, target, body, (HOST, *headers))
        response = await self.door.answer(cast(Any, asked))
        assert isinstance(response.body, bytes)
        assert TOKEN.encode() not in response.body
        return response.status, json.loads(response.body), response

    async def wait_for(self, target: str) -> Any:
        """Ask until there is something."""
        async with asyncio.timeout(10):
            while True:
                if found := await self.get(target):
                    return found
                await asyncio.sleep(0.005)

    async def get(self, target: str) -> Any:
        """Ask for what must be there."""
        status, found, _ = await self.ask("GET", target)
        assert status == 200, found
        return found


@asynccontextmanager
async def room(*services: Service) -> AsyncIterator[Room]:
    made = Room(*services)
    await made.store.open()
    made.store.subscribe(tuple(hook.subscription for hook in made.outbox.hooks.values()))
    try:
        yield made
    finally:
        await made.outbox.stop()
        await made.client.close()
        await made.store.close()


def run(work: Callable[[Room], Awaitable[T]], *services: Service) -> T:
    async def go() -> T:
        async with room(*services) as made:
            return await work(made)

    return asyncio.run(go())


def test_webhooks_are_listed_by_their_hosts_with_how_they_fare() -> None:
    async def go(box: Room) -> None:
        await box.happen()
        second = await box.happen("approval.required")
        [claimed] = await box.store.claim_deliveries(at_ms=now_ms(), lease_ms=1, limit=1)
        await box.store.settle_delivery(claimed.delivery_id, state="sent", at_ms=now_ms())
        assert claimed.event != second
        slack, other = await box.get("/api/webhooks")
        assert slack == {
            "name": "slack",
            "format": "slack",
            "host": "127.0.0.1",
            "events": [
                "approval.required", "session.failed", "session.stalled", "budget.reached",
            ],
            "sessions": ["s*"],
            "rests_until_ms": None,
            "due": 1,
            "sent": 1,
            "dead": 0,
        }  # fmt: skip
        assert (other["name"], other["due"], other["sent"]) == ("json", 2, 0)

    with Service("slack") as slack, Service("json") as other:
        run(go, slack, other)


def test_with_no_webhook_both_lists_are_empty() -> None:
    async def go(box: Room) -> None:
        assert await box.get("/api/webhooks") == []
        assert await box.get("/api/webhooks/deliveries") == []

    run(go)


def test_deliveries_are_listed_newest_first_by_state_session_and_page() -> None:
    async def go(box: Room) -> None:
        events = [await box.happen(session=name) for name in ("s1", "s2", "s3")]
        [claimed] = await box.store.claim_deliveries(at_ms=now_ms(), lease_ms=60_000, limit=1)
        rows = await box.get("/api/webhooks/deliveries")
        assert [row["session"] for row in rows] == ["s3", "s2", "s1"]
        assert rows[2] == {
            "delivery_id": claimed.delivery_id,
            "webhook": "slack",
            "state": "due",
            "tries": 1,
            "next_ms": events[0].created_ms,
            "is_being_sent": True,
            "status": None,
            "error": None,
            "settled_ms": None,
            "event_id": events[0].event_id,
            "kind": "session.failed",
            "session": "s1",
            "created_ms": events[0].created_ms,
            "step_number": 87,
            "index": 87,
            "approval_id": "apr_sample",
        }
        await box.store.settle_delivery(
            claimed.delivery_id, state="dead", at_ms=7, status=410, error="gone"
        )
        [dead] = await box.get("/api/webhooks/deliveries?state=dead")
        assert (dead["session"], dead["status"], dead["error"]) == ("s1", 410, "gone")
        assert (dead["settled_ms"], dead["is_being_sent"]) == (7, False)
        [row] = await box.get("/api/webhooks/deliveries?session=s2")
        assert row["session"] == "s2"
        _, [first], answer = await box.ask("GET", "/api/webhooks/deliveries?limit=1")
        cursor = dict(answer.headers)[b"x-next-cursor"].decode()
        assert first["session"] == "s3"
        rest = await box.get(f"/api/webhooks/deliveries?after={cursor}")
        assert [row["session"] for row in rest] == ["s2", "s1"]

    with Service("slack") as service:
        run(go, service)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=gone", "state must be one of due, sent, dead; found 'gone'."),
        ("limit=0", "limit must be an integer from 1 to 1000"),
        ("hook=a", "The query names 'hook'; known are after, limit, session, state."),
    ],
)
def test_a_question_that_is_not_understood_is_refused(query: str, expected: str) -> None:
    async def go(box: Room) -> None:
        status, found, _ = await box.ask("GET", f"/api/webhooks/deliveries?{query}")
        assert (status, found["error"]["code"]) == (400, "invalid_request")
        assert expected in found["error"]["message"]

    run(go)


def test_a_dead_delivery_is_sent_again_under_the_same_id() -> None:
    async def go(box: Room) -> None:
        event = await box.happen()
        box.outbox.start("")
        [row] = await box.wait_for("/api/webhooks/deliveries?state=dead")
        path = f"/api/webhooks/deliveries/{row['delivery_id']}/redeliver"
        status, found, _ = await box.ask("POST", path, b"{}", IS_JSON)
        assert (status, found["state"], found["event_id"]) == (200, "due", event.event_id)
        await box.wait_for("/api/webhooks/deliveries?state=sent")

    with Service("json", [Reply(410)]) as service:
        run(go, service)
        first, second = service.received
        assert first.header("webhook-id") == second.header("webhook-id")


def test_what_cannot_be_sent_again_is_said() -> None:
    async def go(box: Room) -> None:
        await box.happen()
        [row] = await box.get("/api/webhooks/deliveries")
        path = f"/api/webhooks/deliveries/{row['delivery_id']}/redeliver"
        assert (await box.ask("POST", path))[0] == 400, "no page of another site may ask"
        assert (await box.ask("GET", path))[0] == 405
        for name in ("999", "x", "-1", "9" * 30, "\u0663"):
            there = path.replace(str(row["delivery_id"]), name)
            assert (await box.ask("POST", there, b"{}", IS_JSON))[0] == 404, name
        box.outbox.hooks.clear()
        status, found, _ = await box.ask("POST", path, b"{}", IS_JSON)
        assert (status, found["error"]["code"]) == (409, "conflict")

    with Service("json") as service:
        run(go, service)


def test_a_webhook_is_tried_out() -> None:
    async def go(box: Room) -> None:
        for body, kind in ((b"", "approval.required"), (b'{"kind":"fallback.used"}', None)):
            status, found, _ = await box.ask("POST", "/api/webhooks/slack/test", body, IS_JSON)
            assert (status, found["is_taken"], found["status"]) == (200, True, 200)
            assert found["kind"] == (kind or "fallback.used")
        status, found, _ = await box.ask("POST", "/api/webhooks/slack/test", b"{}", IS_JSON)
        assert (status, found["is_taken"], found["status"]) == (200, False, 404)
        assert found["why"]
        assert await box.get("/api/webhooks/deliveries") == []

    with Service("slack", [Reply(200), Reply(200), Reply(404)]) as service:
        run(go, service)


@pytest.mark.parametrize(
    ("name", "body", "headers", "status"),
    [
        ("slack", b'{"kind":"no.such"}', (IS_JSON,), 400),
        ("slack", b'{"kinds":"session.failed"}', (IS_JSON,), 400),
        ("slack", b"[]", (IS_JSON,), 400),
        ("slack", b"{", (IS_JSON,), 400),
        ("slack", b"{}", (), 400),
        ("other", b"{}", (IS_JSON,), 404),
    ],
)
def test_a_test_that_is_not_understood_sends_nothing(
    name: str, body: bytes, headers: tuple[Pair, ...], status: int
) -> None:
    async def go(box: Room) -> None:
        answered, found, _ = await box.ask("POST", f"/api/webhooks/{name}/test", body, *headers)
        assert answered == status, found

    with Service("slack") as service:
        run(go, service)
        assert service.received == []
