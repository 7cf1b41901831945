from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from agentstate.ground.events import EVENT_KINDS, Event
from agentstate.webhooks.base import Format, Links
from agentstate.webhooks.discord import Discord
from agentstate.wire.message import Headers
from tests.webhooks import hostile
from tests.webhooks.hostile import LINKS, event
from tests.webhooks.limits import check_discord, check_discord_is_inert

DISCORD: Format = Discord()


def render(of: Event, links: Links = LINKS) -> Any:
    post = DISCORD.render(of, links, secret="s", sent_s=0)
    check_discord(post.body)
    check_discord_is_inert(post.body)
    (embed,) = json.loads(post.body)["embeds"]
    return embed


@settings(max_examples=80)
@given(hostile.events, hostile.links)
def test_whatever_a_model_writes_discord_takes_it_and_reads_no_markdown(
    of: Event, links: Links
) -> None:
    render(of, links)
    plain = DISCORD.render_plain(of, links, secret=None, sent_s=0)

    assert plain is not None
    check_discord(plain.body)
    check_discord_is_inert(plain.body)


@pytest.mark.parametrize("text", hostile.HOSTILE)
@pytest.mark.parametrize("times", [1, 1_500])
def test_each_hostile_text_everywhere_at_once(text: str, times: int) -> None:
    for kind in EVENT_KINDS:
        render(event(kind, text * times, **dict.fromkeys(hostile.FACTS, text * times)))


def test_the_fullest_card_leaves_the_arguments_most_of_the_room() -> None:
    links = Links("https://p.example/", *("https://p.example/" + "x" * 430 for _ in "ab"))
    said = dict.fromkeys(hostile.FACTS, "😀" * 9_000) | {"deadline_ms": 1}

    description = render(event(session="😀" * 512, **said), links)["description"]

    assert description.index("**Prompt**") > 500


def test_a_question_reads_as_what_is_to_be_decided() -> None:
    embed = render(
        event(
            tool="run_shell",
            arguments="echo ```@everyone",
            rule="gate.rule 1",
            deadline_ms=1_780_000_600_000,
        )
    )

    assert embed["title"] == "Approve `run_shell`?"
    assert embed["url"] == LINKS.approval
    assert embed["timestamp"] == "2026-05-28T20:26:40.000Z"
    assert embed["description"] == ("**Arguments**\n```\necho `\u200b`\u200b`@everyone\n```")
    assert [(field["name"], field["value"]) for field in embed["fields"]] == [
        ("Session", "`nightly`"),
        ("Step", "`4`"),
        ("Rule", "`gate.rule 1`"),
        ("Decide before", "<t:1780000600:f> (<t:1780000600:R>)"),
        ("Open", f"Decide: <{LINKS.approval}>\nSession: <{LINKS.session}>"),
    ]


def test_an_address_that_discord_would_refuse_is_text() -> None:
    embed = render(event(), Links(dashboard="http://localhost:8000/"))

    assert "url" not in embed
    assert embed["fields"][-1] == {"name": "Dashboard", "value": "`http://localhost:8000/`"}


def test_the_plain_form_is_one_line_and_the_link() -> None:
    for links, link in (
        (LINKS, f"\n{LINKS.approval}"),
        (Links("http://localhost/"), " · `http://localhost/`"),
    ):
        post = DISCORD.render_plain(event(tool="pay", arguments="{}"), links, secret="", sent_s=0)

        assert post is not None
        assert json.loads(post.body)["content"] == (
            f"Approve `pay`? Arguments: `{{}}` · Session `nightly` · Step `4`{link}"
        )


def test_colours_tell_a_question_a_failure_and_a_success_apart() -> None:
    colours = {
        render(of)["color"] for of in (event(), event("session.failed"), event("session.completed"))
    }

    assert len(colours) == 3


@pytest.mark.parametrize(
    ("status", "body", "outcome", "why"),
    [
        (204, b"", "taken", ""),
        (200, b"{}", "taken", ""),
        (404, b'{"message": "Unknown Webhook", "code": 10015}', "never",
         "Discord: Unknown Webhook [10015] (404)"),
        (401, b'{"message": "Invalid Webhook Token", "code": 50027}', "never",
         "Discord: Invalid Webhook Token [50027] (401)"),
        (403, b"<html>", "never", "Discord answered 403"),
        (400, b'{"message": "Invalid Form Body", "code": 50035, "errors": {}}', "never",
         "Discord: Invalid Form Body [50035] (400)"),
        (400, b'{"embeds": ["0"]}', "never", "Discord answered 400"),
        (404, b'{"message": "no /api/webhooks/1/s3cret", "code": 0}', "never",
         "Discord: no \xe2\x80\xa6 (404)".encode("latin-1").decode()),
        (502, b"", "again", "Discord answered 502"),
        (308, b"", "never", "Discord answered 308"),
        (400, b"[" * 100_000, "never", "Discord answered 400"),
    ],
)  # fmt: skip
def test_answers_are_read_as_discord_documents_them(
    status: int, body: bytes, outcome: str, why: str
) -> None:
    verdict = DISCORD.read(status, Headers(), body)

    assert (verdict.outcome, verdict.why) == (outcome, why)


@pytest.mark.parametrize(
    ("pairs", "body", "after_s"),
    [
        ([], {"retry_after": 0.65, "global": False}, 0.65),
        ([("Retry-After", "1")], {"retry_after": 0.65}, 0.65),
        ([("Retry-After", "65"), ("X-RateLimit-Reset-After", "64.57")], {"retry_after": 64.57},
         64.57),
        ([("X-RateLimit-Reset-After", "2.5")], None, 2.5),
        ([("Retry-After", "1200")], None, 1200.0),  # the proxies' own
        ([("Retry-After", "6457")], {"retry_after": 6457}, 6.457),  # version 6 of the API
        ([("X-RateLimit-Reset-After", "0.4")], {"retry_after": 100}, 0.4),
        ([], {"retry_after": 3}, 3.0),
        ([], {"retry_after": 300.5}, 300.5),
        ([], {"retry_after": 1e9}, 86_400.0),
        ([], {"retry_after": "soon"}, None),
        ([], {"retry_after": True}, None),
        ([], {"retry_after": -1}, None),
        ([], {"retry_after": float("nan")}, None),
        ([("X-RateLimit-Reset-After", "x")], [], None),
    ],
)  # fmt: skip
def test_a_429_says_how_long_in_any_of_its_forms(
    pairs: list[tuple[str, str]], body: object, after_s: float | None
) -> None:
    headers = Headers((name.encode(), value.encode()) for name, value in pairs)
    raw = b"error code: 1015" if body is None else json.dumps(body).encode()

    verdict = DISCORD.read(429, headers, raw)

    assert (verdict.outcome, verdict.after_s) == ("again", after_s)
