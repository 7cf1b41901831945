"""One try: what is sent, what an answer means, and what never leaves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from agentstate.ground.errors import ConnectFailed, UpstreamTimeout
from agentstate.ground.events import EVENT_KINDS, Event
from agentstate.ground.settings import ForwardSettings, WebhookSettings
from agentstate.house.hooks import Hook, Told, build_hooks, links_of, tell
from agentstate.house.samples import sample_of
from agentstate.webhooks.base import Links
from agentstate.wire.client import HTTPClient
from agentstate.wire.message import Exchange, Origin, OutCall, TimeLimits
from tests.helpers.services import PATH, TOKEN, Kind, Service
from tests.helpers.upstream import Reply
from tests.webhooks.hostile import events

AT_MS = 1_700_000_000_000
ROOT = "https://agents.example"


def hook_of(service: Service, secret: str | None = None) -> Hook:
    [hook] = build_hooks([service.settings(secret=secret)])
    return hook


def told_of(service: Service, event: Event | None = None, *keys: str) -> Told:
    """Try once over real sockets."""

    async def go() -> Told:
        client = HTTPClient(ForwardSettings())
        try:
            sample = event or sample_of("approval.required", AT_MS)
            return await tell(hook_of(service), sample, client, ROOT, keys=keys)
        finally:
            await client.close()

    return asyncio.run(go())


def text_reply(status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> Reply:
    return Reply(status, headers, (body,))


# -- what is sent


@pytest.mark.parametrize("kind", ["slack", "discord", "json"])
@pytest.mark.parametrize("event", EVENT_KINDS)
def test_a_sample_of_every_kind_is_taken_by_every_service(kind: Kind, event: str) -> None:
    with Service(kind) as service:
        sample = next(sample_of(each, AT_MS) for each in EVENT_KINDS if each == event)
        told = told_of(service, sample)

        assert (told.is_taken, told.verdict.why, service.faults) == (True, "", [])
        [received] = service.received
    assert received.header("content-type") == "application/json"
    assert b"ample" in received.body, "it says that it is a sample"


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(event=events)
@pytest.mark.parametrize("kind", ["slack", "discord"])
def test_whatever_a_model_writes_is_taken(kind: Kind, event: Event) -> None:
    with Service(kind) as service:
        told = told_of(service, event)

        assert (told.is_taken, told.verdict.why, service.faults) == (True, "", [])


def test_keys_are_struck_from_what_is_sent() -> None:
    arguments = json.dumps({"auth": "sk-abcdefghijklmnop", "own": "configured-key", "to": "ada"})
    event = sample_of("approval.required", AT_MS)
    event = replace(event, facts={**(event.facts or {}), "arguments": arguments, "x": [arguments]})

    with Service("json") as service:
        assert told_of(service, event, "configured-key").is_taken
        [received] = service.received

    assert b"ada" in received.body
    assert b"abcdefghijklmnop" not in received.body
    assert b"configured-key" not in received.body


def test_links_lead_to_the_dashboard() -> None:
    event = replace(sample_of("approval.required", AT_MS), session="a/b c", approval_id="apr_1")

    assert links_of(event, "https://agents.example/") == Links(
        dashboard="https://agents.example/dashboard/",
        session="https://agents.example/dashboard/#/sessions/a%2Fb%20c",
        approval="https://agents.example/dashboard/#/approvals/apr_1",
    )
    assert links_of(replace(event, approval_id=None), ROOT).approval == ""
    assert links_of(event, "") == Links()


# -- what an answer means


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "taken"), (204, "taken"), (400, "never"), (403, "never"), (404, "never"),
        (410, "never"), (429, "again"), (500, "again"), (503, "again"),
        (301, "never"), (308, "never"), (302, "again"), (307, "again"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["slack", "discord"])
def test_the_status_decides(kind: Kind, status: int, outcome: str) -> None:
    with Service(kind, [text_reply(status), text_reply(status)]) as service:
        told = told_of(service)

    assert (told.verdict.outcome, told.status) == (outcome, status)
    assert told.is_taken or told.verdict.why


def test_no_redirect_is_followed() -> None:
    with Service("json") as other:
        location = (b"location", other.hook_url.encode())
        with Service("json", [text_reply(307, b"", location)]) as service:
            told = told_of(service)

        assert (told.status, len(service.received), other.received) == (307, 1, [])
        assert TOKEN not in told.verdict.why


@pytest.mark.parametrize("kind", ["slack", "discord"])
def test_a_message_that_is_refused_is_sent_once_more_in_its_plain_form(kind: Kind) -> None:
    with Service(kind, [text_reply(400, b"invalid_blocks")]) as service:
        told = told_of(service)

        assert service.faults == []
        whole, plain = (each.json() for each in service.received)
    assert told.is_taken
    assert "the whole message was refused" in told.verdict.why
    assert {"blocks", "embeds"} & set(whole)
    assert not {"blocks", "embeds"} & set(plain)
    assert f"{ROOT}/dashboard/#/approvals/apr_sample" in json.dumps(plain)


def test_a_plain_form_that_is_refused_is_the_end() -> None:
    with Service("slack", [text_reply(400, b"invalid_blocks"), text_reply(400, b"no_text")]) as one:
        told = told_of(one)

        assert len(one.received) == 2
    assert told.verdict.outcome == "never"
    assert "invalid_blocks" in told.verdict.why
    assert "no_text" in told.verdict.why


def test_an_answer_that_is_cut_after_its_head_counts_by_its_status() -> None:
    cut = Reply(200, (), (b"o",), content_length=100, end="reset")
    with Service("slack", [cut]) as service:
        assert told_of(service).is_taken
        assert len(service.received) == 1


def test_an_answer_without_end_is_read_to_a_bound() -> None:
    with Service("json", [text_reply(200, b"x" * 300_000)]) as service:
        assert told_of(service).is_taken


def test_a_service_that_is_not_there_is_tried_again() -> None:
    with Service("json") as service:
        pass
    told = told_of(service)

    assert (told.verdict.outcome, told.status) == ("again", None)
    assert told.verdict.why


class Failing:
    """A transport on which nothing gets through."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """Do nothing."""

    async def send(self, call: OutCall, limits: TimeLimits) -> Exchange:
        """Fail."""
        raise self._error

    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "error",
    [
        ConnectFailed(f"no way to https://chat.example{PATH}"),
        UpstreamTimeout(f"silence from {PATH}", limit="first_byte"),
    ],
)
def test_what_does_not_get_through_is_tried_again_and_its_reason_holds_no_url(
    error: Exception,
) -> None:
    [hook] = build_hooks([WebhookSettings(name="w", url=f"https://chat.example{PATH}")])
    sample = sample_of("session.failed", AT_MS)

    told = asyncio.run(tell(hook, sample, Failing(error), ROOT))

    assert (told.verdict.outcome, told.status) == ("again", None)
    assert told.verdict.why
    assert TOKEN not in told.verdict.why


@pytest.mark.parametrize("kind", ["slack", "discord", "json"])
def test_a_service_that_repeats_the_url_does_not_get_it_into_a_reason(kind: Kind) -> None:
    echo = json.dumps({"message": f"no such hook: {PATH}", "code": 1}).encode()
    for status in (404, 500):
        for body in (echo, PATH.encode(), TOKEN.encode()):
            with Service(kind, [text_reply(status, body)]) as service:
                assert TOKEN not in repr(told_of(service))


# -- the webhook itself


def test_a_format_is_found_from_the_url_unless_it_is_said() -> None:
    def format_of(url: str, row: WebhookSettings | None = None) -> str:
        [hook] = build_hooks([replace(row or WebhookSettings(name="w"), url=url)])
        return hook.format.name

    assert format_of("https://hooks.slack.com/services/T/B/x") == "slack"
    assert format_of("https://discord.com/api/webhooks/1/x") == "discord"
    assert format_of("https://ours.example/in") == "json"
    said = WebhookSettings(name="w", format="slack")
    assert format_of("https://mattermost.example/hooks/x", said) == "slack"


def test_only_the_host_of_a_webhook_is_shown() -> None:
    url = f"https://chat.example:8443{PATH}?key=0123456789abcdef&x=1"
    [hook] = build_hooks([WebhookSettings(name="w", url=url, secret="whsec_0123456789")])

    assert hook.host == "chat.example"
    assert hook.target == f"{PATH}?key=0123456789abcdef&x=1"
    for secret in (TOKEN, "0123456789"):
        assert secret not in repr(hook)
    assert {url, hook.target, TOKEN, "0123456789abcdef", "whsec_0123456789"} == set(hook.secrets)
