"""Slack's incoming webhooks, in Block Kit.

https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks

What a model wrote stands in code and in plain text. `&`, `<` and `>` are escaped wherever Slack
reads markup, since mentions and links are written with them; `verbatim` and `parse: none` keep it
from making links of what merely looks like one. Source:
https://docs.slack.dev/messaging/formatting-message-text, 2026-11.
"""

from __future__ import annotations

import re

from agentstate.ground.canonical import JSON, encode
from agentstate.ground.events import Event
from agentstate.webhooks.base import Links, Post, Verdict
from agentstate.webhooks.card import Card, card
from agentstate.webhooks.text import (
    asked_wait_s,
    code_block,
    code_line,
    fit,
    host_and_path,
    in_code,
    instant,
    one_line,
)
from agentstate.wire.message import Headers

# Source: docs.slack.dev/reference/block-kit, blocks and composition objects, 2026-11.
SECTION_UNITS_MAX = 3_000
HEADER_UNITS_MAX = 150
ELEMENTS_MAX = 10  # of one context

# Ours, below theirs. All texts of a message together must stay below some 13,000 (undocumented:
# https://github.com/slackapi/bolt-js/issues/2509), and a phone shows little of a fallback.
TEXT_UNITS_MAX = 2_900
SECOND_TEXT_UNITS_MAX = 1_500  # of each text after the first
FACT_UNITS_MAX = 300
FALLBACK_LINK_UNITS_MAX = 1_500  # a longer one is the button's only

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")  # an error of theirs, e.g. invalid_blocks


class Slack:
    """See the module."""

    name = "slack"

    def matches(self, url: str) -> bool:
        """Say whether it is an address of Slack, or of Discord for what speaks Slack.

        Mattermost and others take Slack's form below `/hooks/` of any host, which no address tells.
        """
        host, path = host_and_path(url)
        if host in ("hooks.slack.com", "hooks.slack-gov.com"):
            return True
        return _is_discord(host) and path.rstrip("/").endswith("/slack")

    def render(self, event: Event, links: Links, *, secret: str | None, sent_s: int) -> Post:
        """Make a message of blocks: what, the texts, the facts, and buttons that are links."""
        shown = card(event, links)
        texts = [
            _section(label, text, SECOND_TEXT_UNITS_MAX if number else TEXT_UNITS_MAX)
            for number, (label, text) in enumerate(shown.texts)
        ]
        blocks: list[JSON] = [_header(shown), *texts, *_contexts(shown)]
        if shown.buttons:
            blocks.append({"type": "actions", "elements": _buttons(shown)})
        return _post({"text": _fallback(shown), "blocks": blocks})

    def render_plain(self, event: Event, links: Links, *, secret: str | None, sent_s: int) -> Post:
        """Make a message of one line and the link."""
        return _post({"text": _fallback(card(event, links))})

    def read(self, status: int, headers: Headers, body: bytes) -> Verdict:
        """Read Slack's answer, which is one word of text.

        2xx is taken; 429 and 5xx come again, as 408 does. The rest is final: 400 invalid_payload,
        invalid_blocks, no_text..., 403 invalid_token, action_prohibited, 404 no_service,
        channel_not_found, no_team, 410 channel_is_archived. A redirect is never followed.
        """
        if 200 <= status < 300:
            return Verdict("taken")
        word = body[:100].decode("ascii", "replace").strip()
        why = f"Slack: {word} ({status})" if _WORD.match(word) else f"Slack answered {status}"
        if status in (408, 429) or status >= 500:
            return Verdict("again", asked_wait_s(headers), why)
        return Verdict("never", why=why)


def _is_discord(host: str) -> bool:
    return any(host == top or host.endswith(f".{top}") for top in ("discord.com", "discordapp.com"))


def _escape(char: str) -> str:
    return _ESCAPES.get(char, char)


def _escape_code(char: str) -> str:
    return _escape(in_code(char))


def _plain(text: str) -> JSON:
    return {"type": "plain_text", "text": text, "emoji": False}


def _markup(text: str) -> JSON:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _header(shown: Card) -> JSON:
    room = HEADER_UNITS_MAX - len(shown.lead) - len(shown.tail)
    return {
        "type": "header",
        "text": _plain(shown.lead + fit(shown.name, room, one_line) + shown.tail),
    }


def _section(label: str, text: str, units_max: int) -> JSON:
    """The closing fence comes after the cut, and both fences have their line to themselves."""
    body = code_block(text, units_max, _escape)
    block = f"*{label}*\n```\n{body}\n```"
    assert len(block) <= SECTION_UNITS_MAX, "our own words leave a text its room"
    return {"type": "section", "text": _markup(block)}


def _contexts(shown: Card) -> list[JSON]:
    elements = [_fact(label, text) for label, text in shown.facts]
    at = instant(shown.deadline_ms)
    if at is not None:
        seconds, utc = int(at.timestamp()), at.strftime("%Y-%m-%d %H:%M UTC")
        # Slack shows the reader's own time for it.
        date = f"<!date^{seconds}^{{date_short_pretty}} {{time}}|{utc}>"
        elements.append(_markup(f"Decide before: {date}"))
    if shown.plain_link:
        elements.append(_fact("Dashboard", shown.plain_link))
    return [
        {"type": "context", "elements": elements[start : start + ELEMENTS_MAX]}
        for start in range(0, len(elements), ELEMENTS_MAX)
    ]


def _fact(label: str, text: str) -> JSON:
    return _plain(f"{label}: {fit(text, FACT_UNITS_MAX, one_line)}")


def _buttons(shown: Card) -> list[JSON]:
    found: list[JSON] = []
    for number, (label, url) in enumerate(shown.buttons):
        button: dict[str, JSON] = {
            "type": "button",
            "action_id": f"open_{number}",
            "text": _plain(label),
            "url": url,
        }
        if number == 0 and shown.is_question:
            button["style"] = "primary"
        found.append(button)
    return found


def _fallback(shown: Card) -> str:
    """One line for notifications and for services that know no blocks. Theirs is in code, which
    pings nobody there either."""
    said = shown.lead + _code(shown.name, 200) + shown.tail
    for label, text in shown.texts[:1]:
        said += f" {label}: {_code(text, 400)}"
    for label, text in shown.facts[:2]:
        said += f" · {label} {_code(text, 100)}"
    for label, url in shown.buttons[:1]:
        escaped = "".join(map(_escape, url))
        if len(escaped) <= FALLBACK_LINK_UNITS_MAX:
            said += f" · <{escaped}|{label}>"
    if shown.plain_link:
        said += f" · {_code(shown.plain_link, 150)}"
    return said


def _code(text: str, units_max: int) -> str:
    return code_line(text, units_max, _escape_code)


def _post(message: dict[str, JSON]) -> Post:
    message |= {"parse": "none", "link_names": False, "unfurl_links": False, "unfurl_media": False}
    return Post({"content-type": "application/json"}, encode(message))
