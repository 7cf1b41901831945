from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from agentstate.ground.events import EVENT_KINDS, Event
from agentstate.webhooks.base import Format, Links
from agentstate.webhooks.slack import Slack
from agentstate.wire.message import Headers
from tests.webhooks import hostile
from tests.webhooks.hostile import LINKS, event
from tests.webhooks.limits import check_slack, check_slack_is_inert, slack_texts

SLACK: Format = Slack()


def render(of: Event, links: Links = LINKS) -> Any:
    post = SLACK.render(of, links, secret="s", sent_s=0)
    check_slack(post.body)
    check_slack_is_inert(post.body)
    return json.loads(post.body)


@settings(max_examples=80)
@given(hostile.events, hostile.links)
def test_whatever_a_model_writes_slack_takes_it_and_reads_no_markup(
    of: Event, links: Links
) -> None:
    render(of, links)
    plain = SLACK.render_plain(of, links, secret=None, sent_s=0)

    assert plain is not None
    check_slack(plain.body)
    check_slack_is_inert(plain.body)


@pytest.mark.parametrize("text", hostile.HOSTILE)
@pytest.mark.parametrize("times", [1, 1_500])
def test_each_hostile_text_everywhere_at_once(text: str, times: int) -> None:
    for kind in EVENT_KINDS:
        render(event(kind, text * times, **dict.fromkeys(hostile.FACTS, text * times)))


def test_a_question_reads_as_what_is_to_be_decided() -> None:
    message = render(
        event(
            tool="run_shell",
            arguments='{"cmd": "ls && rm <x>"}',
            rule="gate.rule 1",
            deadline_ms=1_780_000_600_000,
        )
    )

    header, arguments, context, actions = message["blocks"]
    assert header["text"]["text"] == "Approve run_shell?"
    assert arguments["text"]["text"] == (
        '*Arguments*\n```\n{"cmd": "ls &amp;&amp; rm &lt;x&gt;"}\n```'
    )
    assert [element["text"] for element in context["elements"]] == [
        "Session: nightly",
        "Step: 4",
        "Rule: gate.rule 1",
        "Decide before: <!date^1780000600^{date_short_pretty} {time}|2026-05-28 20:36 UTC>",
    ]
    assert [(button["text"]["text"], button["url"]) for button in actions["elements"]] == [
        ("Decide", LINKS.approval),
        ("Session", LINKS.session),
    ]
    assert message["text"].startswith("Approve `run_shell`? Arguments: `{")
    assert LINKS.approval in message["text"]


def test_the_plain_form_is_one_line_and_the_link() -> None:
    post = SLACK.render_plain(event(tool="pay", arguments="{}"), LINKS, secret=None, sent_s=0)

    assert post is not None
    assert json.loads(post.body)["text"] == (
        "Approve `pay`? Arguments: `{}` · Session `nightly` · Step `4` · "
        f"<{LINKS.approval}|Decide>"
    )
    assert "blocks" not in json.loads(post.body)


def test_a_test_says_that_it_is_one() -> None:
    message = render(Event("evt_1", "session.failed", "nightly", 0, is_sample=True))

    assert message["blocks"][0]["text"]["text"] == "[Test] Session failed: nightly"


def test_a_long_text_is_cut_with_a_mark() -> None:
    message = render(event(tool="t" * 400, arguments="&" * 100_000))

    assert "cut: there is more" in message["blocks"][0]["text"]["text"]
    assert message["blocks"][0]["text"]["text"].endswith("?")
    assert "&amp;… (cut: there is more)\n```" in message["blocks"][1]["text"]["text"]


def test_every_fact_of_a_decision_is_in_one_context() -> None:
    shown = render(event("approval.decided", **dict.fromkeys(hostile.FACTS, "x")))

    _, *facts = [each["text"] for each in slack_texts(shown) if each["text"].endswith(": x")]
    assert facts == [
        f"{label}: x"
        for label in ("Status", "By", "Then", "Rule", "Why", "Provider", "Model", "Call")
    ]


def test_without_links_there_are_no_buttons() -> None:
    assert all(block["type"] != "actions" for block in render(event(), Links())["blocks"])


@pytest.mark.parametrize(
    ("status", "body", "outcome", "after_s", "why"),
    [
        (200, b"ok", "taken", None, ""),
        (429, b"rate_limited", "again", 3.0, "Slack: rate_limited (429)"),
        (500, b"rollup_error", "again", 3.0, "Slack: rollup_error (500)"),
        (503, b"<html>", "again", 3.0, "Slack answered 503"),
        (408, b"", "again", 3.0, "Slack answered 408"),
        (400, b"invalid_payload", "never", None, "Slack: invalid_payload (400)"),
        (400, b"invalid_blocks\n", "never", None, "Slack: invalid_blocks (400)"),
        (403, b"action_prohibited", "never", None, "Slack: action_prohibited (403)"),
        (403, b"invalid_token", "never", None, "Slack: invalid_token (403)"),
        (404, b"no_service", "never", None, "Slack: no_service (404)"),
        (404, b"POST /services/T0/B0/secret", "never", None, "Slack answered 404"),
        (410, b"channel_is_archived", "never", None, "Slack: channel_is_archived (410)"),
        (302, b"", "never", None, "Slack answered 302"),
    ],
)
def test_answers_are_read_as_slack_documents_them(
    status: int, body: bytes, outcome: str, after_s: float | None, why: str
) -> None:
    verdict = SLACK.read(status, Headers([(b"Retry-After", b"3")]), body)

    assert (verdict.outcome, verdict.after_s, verdict.why) == (outcome, after_s, why)
