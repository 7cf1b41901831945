"""Plays what is told to a webhook, and checks what a case expects of that.

The service is a scripted one that enforces its limits. The request is held, the webhook told, and
at once a person decides: whatever the webhook has still to wait for, the client does not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from tests.cases.held import Asking
from tests.helpers.people import decide, wait_for_pending
from tests.helpers.proxy import POLL_S, WAIT_TIMEOUT_S, Proxy
from tests.helpers.raw_client import Reception
from tests.helpers.services import Kind, Service
from tests.helpers.upstream import Received
from tests.webhooks.limits import units

CLIENT_WAITS_S = 1.5  # for an answer that is on record and approved, on a busy machine


@dataclass(slots=True)
class Told:
    """A held request, and what the webhook was sent of it."""

    got: Reception
    decided_s: float
    calls: Sequence[Received]
    delivery: dict[str, Any]  # as the API shows it in the end


def kind_of(entry: Mapping[str, Any]) -> Kind | None:
    """Return which service an entry of a script belongs to; None = the model."""
    match entry["to"]:
        case "primary" | "fallback":
            return None
        case "slack":
            return "slack"
        case "discord":
            return "discord"
        case other:
            raise AssertionError(f"nothing plays {other}")


def configuration_of(service: Service) -> str:
    """Return the file that tells a proxy of this webhook."""
    return f'[[webhook]]\nformat = "{service.kind}"\nurl = "{service.hook_url}"\n'


def play_told(proxy: Proxy, service: Service, session: str, rendered: bytes, *, count: int) -> Told:
    """Send a request that is held, approve it once the webhook has been told, and let the webhook
    have all its `count` messages."""
    with Asking(proxy.address, rendered) as asking:
        [question] = wait_for_pending(proxy, session=session)
        service.wait_for_requests(1)
        status, found = decide(proxy, question["approval_id"])
        decided_s = time.perf_counter()
        assert status == 200, found
        got = asking.ended()
    calls = service.wait_for_requests(count, WAIT_TIMEOUT_S)
    return Told(got, decided_s, calls, _settled(proxy, session))


def _settled(proxy: Proxy, session: str) -> dict[str, Any]:
    until = time.monotonic() + WAIT_TIMEOUT_S
    while True:
        status, body = proxy.get(f"/api/webhooks/deliveries?session={quote(session, safe='')}")
        assert status == 200, body
        [row] = json.loads(body)
        if row["state"] != "due":
            settled: dict[str, Any] = row
            return settled
        assert time.monotonic() < until, row
        time.sleep(POLL_S)


# --- what is expected of it -----------------------------------------------------------------------


def check_told(told: Told, service: Service, wanted: Mapping[str, Any]) -> None:
    """Check what a case expects of its one service."""
    [(kind, expected)] = wanted.items()
    assert kind == service.kind
    assert service.faults == [], "the service refused it"
    assert told.delivery["state"] == "sent", told.delivery
    for key, value in expected.items():
        _CHECKS[key](told, value)


def check_error_is_shown(told: Told) -> None:
    """A message that was refused says so where people look, though its plain form was taken."""
    assert "invalid_blocks" in told.delivery["error"], told.delivery


def check_client_did_not_wait(told: Told) -> None:
    """The client had its answer while the webhook was still waiting."""
    assert (told.got.status, told.got.ending) == (200, "complete")
    assert told.got.ended_s - told.decided_s < CLIENT_WAITS_S
    assert told.got.ended_s < told.calls[-1].at_s


def _calls(told: Told, wanted: int) -> None:
    assert len(told.calls) == wanted


def _second(told: Told, wanted: str) -> None:
    assert wanted == "plain minimal text with link"
    whole, plain = (call.json() for call in told.calls)
    assert "blocks" in whole
    assert "blocks" not in plain
    assert "delete_rows" in plain["text"]
    assert f"#/approvals/{told.delivery['approval_id']}" in plain["text"]


def _gap(number: int) -> Callable[[Told, str], None]:
    def check(told: Told, wanted: str) -> None:
        gaps = _gaps(told)
        if wanted == "back-off, growing":
            assert gaps[number] > gaps[number - 1]
            return
        assert wanted.startswith(">= ")
        assert gaps[number] >= float(wanted.removeprefix(">= ")), gaps

    return check


def _gaps(told: Told) -> list[float]:
    times = [call.at_s for call in told.calls]
    return [later - earlier for earlier, later in pairwise(times)]


def _length(find: Callable[[Any], Sequence[str]]) -> Callable[[Told, str], None]:
    """Make a check of the length of texts, in UTF-16 units."""

    def check(told: Told, wanted: str) -> None:
        least, most = _bounds(wanted)
        for call in told.calls:
            for text in find(call.json()):
                assert least <= units(text) <= most, text

    return check


def _bounds(wanted: str) -> tuple[int, int]:
    if wanted.startswith("<= "):
        return 0, int(wanted.removeprefix("<= "))
    least, _, most = wanted.partition("..")
    return int(least), int(most)


def _field_count(told: Told, wanted: str) -> None:
    _, most = _bounds(wanted)
    assert all(len(embed["fields"]) <= most for call in told.calls for embed in _embeds(call))


def _embed_total(told: Told, wanted: str) -> None:
    _, most = _bounds(wanted)
    for call in told.calls:
        assert sum(units(text) for embed in _embeds(call) for text in _texts(embed)) <= most


def _mentions(told: Told, wanted: object) -> None:
    assert all(call.json()["allowed_mentions"] == wanted for call in told.calls)


def _embeds(call: Received) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call.json()["embeds"]
    assert found
    return found


def _texts(embed: Mapping[str, Any]) -> list[str]:
    fields = [field[part] for field in embed["fields"] for part in ("name", "value")]
    return [embed["title"], embed.get("description", ""), embed["footer"]["text"], *fields]


def _of_embeds(part: str) -> Callable[[Any], Sequence[str]]:
    return lambda message: [embed[part] for embed in message["embeds"] if part in embed]


def _of_fields(part: str) -> Callable[[Any], Sequence[str]]:
    return lambda message: [field[part] for embed in message["embeds"] for field in embed["fields"]]


_CHECKS: dict[str, Callable[[Told, Any], None]] = {
    "calls": _calls,
    "second": _second,
    "gap_s": _gap(0),
    "gap_1_s": _gap(0),
    "gap_2": _gap(1),
    "content": _length(lambda message: [message.get("content", "")]),
    "embed.title": _length(_of_embeds("title")),
    "embed.description": _length(_of_embeds("description")),
    "field.name": _length(_of_fields("name")),
    "field.value": _length(_of_fields("value")),
    "fields": _field_count,
    "sum of all embed text": _embed_total,
    "allowed_mentions": _mentions,
}
