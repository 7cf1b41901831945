"""Webhooks: who is told what, what became of each message, and trying it again.

A webhook's URL is a key to the channel behind it, so only its host is ever shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict, get_args

from agentstate.doors.api.reply import (
    PAGE,
    check_is_json,
    json_response,
    next_headers,
    read_one_of,
    read_page,
    read_params,
)
from agentstate.doors.api.shapes import as_json
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest, Conflict, NotFound, shorten
from agentstate.ground.events import EVENT_KINDS, Delivery, DeliveryState, EventKind
from agentstate.house.outbox import Outbox
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

TEST_BYTES_MAX = 4096
DEFAULT_KIND: EventKind = "approval.required"
ID_DIGITS_MAX = 18  # SQLite's integers have no more


class WebhookShown(TypedDict):
    """A webhook, and how many deliveries it has of each state."""

    name: str
    format: str
    host: str
    events: list[str]
    sessions: list[str]
    rests_until_ms: int | None
    due: int
    sent: int
    dead: int


class SampleShown(TypedDict):
    """What a service said to a sample."""

    name: str
    kind: EventKind
    is_taken: bool
    status: int | None
    why: str


class WebhookEndpoints:
    """Answers under /api/webhooks."""

    def __init__(self, store: Store, outbox: Outbox) -> None:
        self._store = store
        self._outbox = outbox

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/webhooks",
                self.list,
                "List the webhooks and how they fare.",
                answers="array",
                shape=WebhookShown,
            ),
            Endpoint(
                "GET",
                "/api/webhooks/deliveries",
                self.deliveries,
                "List what was sent or is to be, the newest first.",
                query=(
                    *PAGE,
                    Field("state", "deliveries in this state", choices=get_args(DeliveryState)),
                    Field("session", "deliveries of this session's events"),
                ),
                answers="array",
                shape=DeliveryShown,
            ),
            Endpoint(
                "POST",
                "/api/webhooks/deliveries/{id}/redeliver",
                self.redeliver,
                "Send one again, whatever became of it.",
                body=(),
                shape=DeliveryShown,
                errors=(409,),
            ),
            Endpoint(
                "POST",
                "/api/webhooks/{name}/test",
                self.test,
                "Send a sample now and say what the service answers.",
                body=(Field("kind", f"(default: {DEFAULT_KIND})", choices=EVENT_KINDS),),
                shape=SampleShown,
            ),
        )

    async def list(self, request: Request, params: Params) -> Response:
        """Answer with an array in the order of the configuration."""
        read_params(request, frozenset())
        counts = await self._store.count_deliveries()
        rows: list[JSON] = []
        for hook in self._outbox.hooks.values():
            found = counts.get(hook.name, {})
            row: WebhookShown = {
                "name": hook.name,
                "format": hook.format.name,
                "host": hook.host,
                "events": list(hook.events),
                "sessions": list(hook.sessions),
                "rests_until_ms": self._outbox.rests_until_ms(hook.name),
                "due": found.get("due", 0),
                "sent": found.get("sent", 0),
                "dead": found.get("dead", 0),
            }
            rows.append(as_json(row))
        return json_response(rows)

    async def deliveries(self, request: Request, params: Params) -> Response:
        """Answer with an array; `state` (due, sent, dead) and `session` filter."""
        asked = read_params(request, frozenset(("limit", "after", "state", "session")))
        state = read_one_of(asked, "state", get_args(DeliveryState))
        query = replace(read_page(asked), state=state, session=asked.get("session"))
        page = await self._store.list_deliveries(query)
        at_ms = now_ms()
        return json_response(
            [delivery_json(row, at_ms) for row in page.rows],
            headers=next_headers(page.next_cursor),
        )

    async def redeliver(self, request: Request, params: Params) -> Response:
        """Make a delivery due at once; answer with it. 409 if its webhook is not configured."""
        read_params(request, frozenset())
        check_is_json(request, "A redelivery")
        text = params["id"]
        is_id = text.isascii() and text.isdigit() and len(text) <= ID_DIGITS_MAX
        delivery = await self._store.read_delivery(int(text)) if is_id else None
        if delivery is None:
            raise NotFound(f"There is no delivery {shorten(text)!r}.")
        if delivery.hook not in self._outbox.hooks:
            raise Conflict(
                f"The configuration has no webhook {shorten(delivery.hook)!r} any more, so there "
                "is nowhere to send it. Put the row back, or leave it dead."
            )
        at_ms = now_ms()
        delivery = await self._store.redeliver(delivery.delivery_id, at_ms=at_ms)
        self._outbox.ring()
        return json_response(delivery_json(delivery, at_ms))

    async def test(self, request: Request, params: Params) -> Response:
        """Take `{"kind"?}`; answer with what the service said, taken or not."""
        read_params(request, frozenset())
        check_is_json(request, "A test")
        kind = _read_kind(await request.body(TEST_BYTES_MAX))
        told = await self._outbox.test(params["name"], kind)
        shown: SampleShown = {
            "name": params["name"],
            "kind": kind,
            "is_taken": told.is_taken,
            "status": told.status,
            "why": told.verdict.why,
        }
        return json_response(as_json(shown))


class DeliveryShown(TypedDict):
    """A delivery as it is at some time."""

    delivery_id: int
    webhook: str
    state: DeliveryState
    tries: int
    next_ms: int | None
    is_being_sent: bool
    status: int | None
    error: str | None
    settled_ms: int | None
    event_id: str
    kind: EventKind
    session: str
    created_ms: int
    step_number: int | None
    index: int | None
    approval_id: str | None


def delivery_json(delivery: Delivery, at_ms: int) -> dict[str, JSON]:
    """Render a delivery as it is at that time. What its event says is in the session it names."""
    event = delivery.event
    shown: DeliveryShown = {
        "delivery_id": delivery.delivery_id,
        "webhook": delivery.hook,
        "state": delivery.state,
        "tries": delivery.tries,
        "next_ms": delivery.next_ms,
        "is_being_sent": delivery.leased_ms is not None and delivery.leased_ms > at_ms,
        "status": delivery.status,
        "error": delivery.error,
        "settled_ms": delivery.settled_ms,
        "event_id": event.event_id,
        "kind": event.kind,
        "session": event.session,
        "created_ms": event.created_ms,
        "step_number": event.step_number,
        "index": event.index,
        "approval_id": event.approval_id,
    }
    return as_json(shown)


def _read_kind(raw: bytes) -> EventKind:
    body = parse(raw) if raw.strip() else {}
    if not isinstance(body, dict) or set(body) - {"kind"}:
        raise BadRequest(f'The body must be an object such as {{"kind": "{DEFAULT_KIND}"}}.')
    kind = body.get("kind") or DEFAULT_KIND
    if kind not in EVENT_KINDS:
        raise BadRequest(
            f"kind must be one of {', '.join(EVENT_KINDS)}; found {shorten(kind)}.", param="kind"
        )
    return kind
