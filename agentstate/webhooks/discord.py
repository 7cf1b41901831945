"""Discord's webhooks, as one embed.

https://docs.discord.com/developers/resources/webhook#execute-webhook

A webhook that no application owns can send no buttons, so the title is the link, and the links
stand below as text. What a model wrote is in code, where Discord reads no markdown, no mentions and
no links; `allowed_mentions` keeps whatever looks like a mention from being one all the same.
"""

from __future__ import annotations

import json

from agentstate.ground.canonical import JSON, encode
from agentstate.ground.events import Event
from agentstate.webhooks.base import Links, Post, Verdict
from agentstate.webhooks.card import Card, card
from agentstate.webhooks.text import (
    asked_wait_s,
    bounded_s,
    code_block,
    code_line,
    fit,
    host_and_path,
    instant,
    one_line,
    quoted,
    seconds_of,
    timestamp,
    units,
)
from agentstate.wire.message import Headers

# Source: docs.discord.com/developers/resources/message#embed-object-embed-limits, 2026-11. The API
# counts code points (https://github.com/discord/discord-api-docs/issues/1315); we count no fewer.
TITLE_UNITS_MAX = 256
DESCRIPTION_UNITS_MAX = 4_096
FIELDS_MAX = 25
EMBED_UNITS_MAX = 6_000  # title, description, names and values of fields, footer; not the URLs

# Ours, below theirs: the facts must leave the arguments their room.
FACT_UNITS_MAX = 200
SECOND_TEXT_UNITS_MAX = 600  # of each text after the first
LINK_UNITS_MAX = 450  # a longer link is the title's only
FOOTER_UNITS_MAX = 200
ANSWER_BYTES_MAX = 16_384  # of an answer is read

SUPPRESS_EMBEDS = 4  # flag of a message: no preview of what its links lead to
WAIT_WHOLE_S = 120  # see `_asked_wait_s`

GREEN, RED, AMBER, GREY = 0x2E7D32, 0xC62828, 0xF9A825, 0x607D8B


class Discord:
    """See the module."""

    name = "discord"

    def matches(self, url: str) -> bool:
        """Say whether it is a webhook of Discord, not below its `/slack` and `/github`."""
        host, path = host_and_path(url)
        is_theirs = host.removeprefix("canary.").removeprefix("ptb.") in (
            "discord.com",
            "discordapp.com",
        )
        segments = path.strip("/").split("/")
        if len(segments) > 1 and segments[0] == "api" and segments[1][:1] == "v":
            del segments[1]  # /api/v10/webhooks/...
        is_other = segments[-1] in ("slack", "github")
        return is_theirs and segments[:2] == ["api", "webhooks"] and not is_other

    def render(self, event: Event, links: Links, *, secret: str | None, sent_s: int) -> Post:
        """Make a message of one embed."""
        shown = card(event, links)
        embed: dict[str, JSON] = {
            "title": _title(shown),
            "color": _color(event, shown),
            "timestamp": timestamp(event.created_ms),
            "footer": {"text": fit(f"AgentState · {event.event_id}", FOOTER_UNITS_MAX, one_line)},
        }
        if shown.buttons:
            embed["url"] = shown.buttons[0][1]
        fields = _fields(shown)
        embed["fields"] = [*fields]
        if shown.texts:
            embed["description"] = _description(shown, EMBED_UNITS_MAX - _counted(embed, fields))
        return _post({"embeds": [embed]})

    def render_plain(self, event: Event, links: Links, *, secret: str | None, sent_s: int) -> Post:
        """Make a message of one line and the link."""
        shown = card(event, links)
        said = shown.lead + code_line(shown.name, FACT_UNITS_MAX) + shown.tail
        said += "".join(f" {label}: {code_line(text, 400)}" for label, text in shown.texts[:1])
        said += "".join(f" · {label} {code_line(text, 100)}" for label, text in shown.facts[:2])
        said += f" · {code_line(shown.plain_link, 300)}" if shown.plain_link else ""
        said += "".join(f"\n{url}" for _, url in shown.buttons[:1] if len(url) <= LINK_UNITS_MAX)
        return _post({"content": said, "flags": SUPPRESS_EMBEDS})

    def read(self, status: int, headers: Headers, body: bytes) -> Verdict:
        """Read Discord's answer: `{"code": 10015, "message": "Unknown Webhook"}` where it failed.

        2xx is taken; 429 and 5xx come again, as 408 does. The rest is final: 400 says what is wrong
        with the body, 401, 403 and 404 that there is no such webhook. A redirect is never followed.
        """
        if 200 <= status < 300:
            return Verdict("taken")
        answer = _parse(body)
        why = _why(status, answer)
        if status == 429:
            return Verdict("again", _asked_wait_s(headers, answer), why)
        if status == 408 or status >= 500:
            return Verdict("again", asked_wait_s(headers), why)
        return Verdict("never", why=why)


def _title(shown: Card) -> str:
    room = TITLE_UNITS_MAX - len(shown.lead) - len(shown.tail)
    return shown.lead + code_line(shown.name, room) + shown.tail


def _color(event: Event, shown: Card) -> int:
    if shown.is_question:
        return AMBER
    if shown.is_bad or shown.lead.endswith("Rejected: "):
        return RED
    return GREEN if event.kind in ("session.completed", "approval.decided") else GREY


def _fields(shown: Card) -> list[dict[str, JSON]]:
    found: list[dict[str, JSON]] = [
        {"name": label, "value": code_line(text, FACT_UNITS_MAX), "inline": True}
        for label, text in shown.facts
    ]
    at = instant(shown.deadline_ms)
    if at is not None:
        seconds = int(at.timestamp())  # shown in the reader's own time, and as how long is left
        value = f"<t:{seconds}:f> (<t:{seconds}:R>)"
        found.append({"name": "Decide before", "value": value, "inline": True})
    short = [f"{label}: <{url}>" for label, url in shown.buttons if len(url) <= LINK_UNITS_MAX]
    if short:
        found.append({"name": "Open", "value": "\n".join(short)})
    if shown.plain_link:
        found.append({"name": "Dashboard", "value": code_line(shown.plain_link, FACT_UNITS_MAX)})
    return found[:FIELDS_MAX]


def _counted(embed: dict[str, JSON], fields: list[dict[str, JSON]]) -> int:
    texts = [embed["title"], *(field[key] for field in fields for key in ("name", "value"))]
    return sum(units(str(text)) for text in texts) + FOOTER_UNITS_MAX


def _description(shown: Card, room: int) -> str:
    """The first text gets what the others leave."""
    room = min(room, DESCRIPTION_UNITS_MAX)
    others = "".join(_block(label, text, SECOND_TEXT_UNITS_MAX) for label, text in shown.texts[1:])
    label, text = shown.texts[0]
    return _block(label, text, room - units(others) - 40).lstrip() + others


def _block(label: str, text: str, units_max: int) -> str:
    assert units_max > 0, "the facts leave the texts their room"
    return f"\n**{label}**\n```\n{code_block(text, units_max)}\n```"


def _post(message: dict[str, JSON]) -> Post:
    message["allowed_mentions"] = {"parse": []}
    return Post({"content-type": "application/json"}, encode(message))


def _parse(body: bytes) -> dict[str, JSON]:
    if len(body) > ANSWER_BYTES_MAX:
        return {}
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _why(status: int, answer: dict[str, JSON]) -> str:
    message, code = answer.get("message"), answer.get("code")
    said = quoted(message) if isinstance(message, str) else ""
    if isinstance(code, int) and 0 < code < 1_000_000:
        said += f" [{code}]"
    return f"Discord: {said.strip()} ({status})" if said.strip() else f"Discord answered {status}"


def _asked_wait_s(headers: Headers, answer: dict[str, JSON]) -> float | None:
    """How long a 429 asks to wait: the longest that it says in seconds.

    1. X-RateLimit-Reset-After is always in seconds, and of the webhook's own limit.
    2. `retry_after` of the body is in seconds with a fraction; but in version 6 of the API, which
       addresses without a version still get, in whole milliseconds, and Retry-After with it. So a
       whole number is one of those where it is over two minutes, and nothing new beside 1.
       Source: https://github.com/discord/discord-api-docs/issues/4722.
    3. Retry-After alone, without JSON, is from the proxies before Discord, in seconds.
    """
    known: list[float] = []
    reset = seconds_of(headers.text(b"x-ratelimit-reset-after"))
    if reset is not None:
        known.append(reset)
    said = answer.get("retry_after")
    if isinstance(said, float) and 0 <= said < 1e12:
        known.append(bounded_s(said))
    elif isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 10**12 and not known:
        known.append(bounded_s(said / 1000 if said > WAIT_WHOLE_S else said))
    if not known:
        return asked_wait_s(headers)
    return max(known)
