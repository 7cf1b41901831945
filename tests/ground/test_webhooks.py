"""The rows of [[webhook]] and WEBHOOK_URL, and that no message holds a URL."""

from __future__ import annotations

import pytest

from agentstate.ground.errors import SettingError
from agentstate.ground.settings import DEFAULT_EVENTS, FileRow, Value, WebhookSettings
from agentstate.ground.webhooks import BuiltWebhooks, build_webhooks

SLACK = "https://hooks.slack.com/services/T0/B0/XXXXXXXXXXXXXXXXXXXXXXXX"
OTHER = "https://chat.example/hooks/0123456789abcdef"


def build(*rows: dict[str, Value], environ: dict[str, str] | None = None) -> BuiltWebhooks:
    made = [
        FileRow(values, dict.fromkeys(values, f"f:{number}"), f"f:{number}")
        for number, values in enumerate(rows, start=1)
    ]
    return build_webhooks(made, environ or {})


def refusal(*rows: dict[str, Value], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingError) as caught:
        build(*rows, environ=environ)
    return caught.value.message


def test_the_url_of_the_environment_is_enough() -> None:
    built = build(environ={"WEBHOOK_URL": f" {SLACK}\n"})

    assert built.webhooks == (WebhookSettings(name="webhook", url=SLACK),)
    assert built.webhooks[0].events == DEFAULT_EVENTS
    assert built.sources == {"webhook.webhook.url": "WEBHOOK_URL"}


def test_rows_without_a_name_are_numbered_and_the_environment_comes_last() -> None:
    built = build(
        {"url": OTHER}, {"name": "ops", "url": SLACK, "events": ("session.failed",)},
        environ={"WEBHOOK_URL": SLACK},
    )  # fmt: skip

    assert [row.name for row in built.webhooks] == ["webhook-1", "ops", "webhook"]
    assert built.webhooks[1].events == ("session.failed",)
    assert built.sources["webhook.webhook-1.url"] == "f:1"


def test_the_environment_is_over_the_row_of_its_name() -> None:
    built = build(
        {"name": "webhook", "url": OTHER, "format": "json"}, environ={"WEBHOOK_URL": SLACK}
    )

    [row] = built.webhooks
    assert (row.url, row.format) == (SLACK, "json")
    assert built.sources["webhook.webhook.url"] == "WEBHOOK_URL"


def test_that_row_needs_no_url_of_its_own() -> None:
    row: dict[str, Value] = {"name": "webhook", "sessions": ("prod-*",)}

    [built] = build(row, environ={"WEBHOOK_URL": SLACK}).webhooks

    assert (built.url, built.sessions) == (SLACK, ("prod-*",))
    assert refusal(row) == "f:1: webhook 'webhook' needs a url."


def test_a_url_and_a_secret_are_not_shown() -> None:
    shown = repr(build({"url": OTHER, "secret": "whsec_c2VjcmV0"}).webhooks)

    assert "0123456789abcdef" not in shown
    assert "whsec" not in shown


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://chat.example/hooks/0123", "must begin with http:// or https://"),
        ("chat.example/hooks/0123", "must begin with http:// or https://"),
        ("https:///hooks/0123", "names no host"),
        ("https://me:0123@chat.example/", "holds a user or password"),
        ("https://chat.example:port/0123", "host and port cannot be read"),
        ("https://chat.example/0123 4", "a character that no URL may"),
        ("https://chat.example/#0123", "holds a query or fragment"),
    ],
)
def test_a_url_that_is_none_is_refused_and_not_repeated(url: str, expected: str) -> None:
    for message in (refusal({"url": url}), refusal(environ={"WEBHOOK_URL": url})):
        assert expected in message
        assert "0123" not in message
    assert refusal({"url": url}).startswith("f:1: webhook.url: ")
    assert refusal(environ={"WEBHOOK_URL": url}).startswith("WEBHOOK_URL: webhook.url: ")


def test_a_query_belongs_to_the_address() -> None:
    url = "https://discord.com/api/webhooks/1/x?thread_id=2"

    assert build({"url": url}).webhooks[0].url == url


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"name": "Ops!"}, "f:1: webhook.name: expected lower-case letters, digits, dots and "),
        ({"events": ("session.faild",)}, "f:1: webhook.events: there is no kind of event "),
        ({"sessions": ("a,b",)}, "f:1: webhook.sessions: 'a,b' is no glob of session names: "),
    ],
)
def test_what_is_not_understood_is_refused(row: dict[str, Value], expected: str) -> None:
    assert refusal({"url": OTHER, **row}).startswith(expected)


def test_a_name_stands_once() -> None:
    assert refusal({"url": OTHER, "name": "a"}, {"url": SLACK, "name": "a"}) == (
        "f:2: the webhook 'a' stands at f:1 already."
    )
    assert "'webhook-2' stands at f:1" in refusal(
        {"name": "webhook-2", "url": OTHER}, {"url": SLACK}
    )
