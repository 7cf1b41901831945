"""The checks of the services' limits refuse what they are there to refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.webhooks.discord import Discord
from agentstate.webhooks.slack import Slack
from tests.webhooks.hostile import LINKS, event
from tests.webhooks.limits import (
    check_discord,
    check_discord_is_inert,
    check_slack,
    check_slack_is_inert,
)

ASKED = event(tool="pay", arguments="{}", rule="gate.rule 1", deadline_ms=1_780_000_000_000)


def change(body: bytes, path: tuple[Any, ...], value: Any) -> bytes:
    message = json.loads(body)
    place = message
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(message).encode()


def slack(*path: Any, to: Any) -> bytes:
    return change(Slack().render(ASKED, LINKS, secret=None, sent_s=0).body, path, to)


def discord(*path: Any, to: Any) -> bytes:
    return change(Discord().render(ASKED, LINKS, secret=None, sent_s=0).body, path, to)


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"text": "\\ud83d"}',
        slack("text", to="x" * 4_001),
        slack("blocks", to=[{"type": "section", "text": {"type": "plain_text", "text": "x"}}] * 51),
        slack("blocks", 0, "text", "text", to="x" * 151),
        slack("blocks", 0, "text", "text", to=""),
        slack("blocks", 0, "text", "type", to="mrkdwn"),
        slack("blocks", 1, "text", "text", to="x" * 3_001),
        slack("blocks", 1, "text", "text", to="😀" * 1_501),
        slack("blocks", 1, "text", "emoji", to=False),
        slack("blocks", 2, "elements", to=[]),
        slack("blocks", 2, "elements", to=[{"type": "plain_text", "text": "x"}] * 11),
        slack("blocks", 2, "elements", to=[{"type": "plain_text", "text": "x" * 3_000}] * 5),
        slack("blocks", 3, "elements", 0, "url", to="https://a.example/" + "x" * 3_000),
        slack("blocks", 3, "elements", 0, "url", to="javascript:x"),
        slack("blocks", 3, "elements", 0, "text", "text", to="x" * 76),
        slack("blocks", 3, "elements", 0, "action_id", to="open_1"),
        slack("blocks", 3, "elements", 0, "style", to="loud"),
    ],
)
def test_slack_refuses(body: bytes) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check_slack(body)


@pytest.mark.parametrize(
    "body",
    [
        slack("text", to="<!channel>"),
        slack("text", to="@here"),
        slack("text", to="`<@U1>`"),
        slack("parse", to="full"),
        slack("blocks", 1, "text", "verbatim", to=False),
        slack("blocks", 1, "text", "text", to="*Arguments*\n```\n<!channel>\n```"),
        slack("blocks", 1, "text", "text", to="*Arguments*\n```\na ``` *b* ``` c\n```"),
        slack("blocks", 1, "text", "text", to="*Arguments*\n```\n \n```"),
        slack("blocks", 2, "elements", 0, to={"type": "mrkdwn", "text": "*a*", "verbatim": True}),
    ],
)
def test_slack_markup_of_somebody_else_is_seen(body: bytes) -> None:
    with pytest.raises(AssertionError):
        check_slack_is_inert(body)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"content": "  "}',
        json.dumps({"content": "x" * 2_001}).encode(),
        discord("embeds", 0, "title", to="x" * 257),
        discord("embeds", 0, "title", to="😀" * 129),
        discord("embeds", 0, "description", to="x" * 4_097),
        discord("embeds", 0, "url", to="http://localhost/"),
        discord("embeds", 0, "url", to="x"),
        discord("embeds", 0, "timestamp", to="soon"),
        discord("embeds", 0, "footer", "text", to="x" * 2_049),
        discord("embeds", 0, "fields", 0, "name", to="x" * 257),
        discord("embeds", 0, "fields", 0, "value", to="x" * 1_025),
        discord("embeds", 0, "fields", 0, "value", to=" "),
        discord("embeds", 0, "fields", to=[{"name": "x", "value": "x"}] * 26),
        discord("embeds", 0, "fields", to=[{"name": "x", "value": "x" * 1_000}] * 6),
        discord("allowed_mentions", "parse", to=["all"]),
    ],
)
def test_discord_refuses(body: bytes) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check_discord(body)


@pytest.mark.parametrize(
    "body",
    [
        discord("allowed_mentions", to={"parse": ["everyone"]}),
        discord("embeds", 0, "title", to="**x**"),
        discord("embeds", 0, "description", to="@everyone"),
        discord("embeds", 0, "description", to="**Arguments**\n```\na ``` b ``` c\n```"),
        discord(
            "embeds", 0, "description", to="**Arguments**\n```\n\n```\n**Prompt**\n```\nx\n```"
        ),
        discord("embeds", 0, "fields", 0, "value", to="[Decide](https://evil.example)"),
        discord("embeds", 0, "fields", 0, "value", to="`a`b`"),
    ],
)
def test_discord_markdown_of_somebody_else_is_seen(body: bytes) -> None:
    with pytest.raises(AssertionError):
        check_discord_is_inert(body)


def test_what_is_whole_is_taken() -> None:
    check_slack(slack("text", to="x" * 4_000))
    check_discord(discord("embeds", 0, "title", to="😀" * 128))
