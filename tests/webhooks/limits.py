"""What Slack and Discord refuse, from their documentation and not from our code.

For tests of the formats and for scripted servers: each check raises AssertionError that names the
limit. Lengths are UTF-16 units, the stricter of the ways to count. `*_is_inert` say besides that no
text but ours is where the service reads markup; a service would not refuse that.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

# Our own words: letters, digits and this much between them. No markup begins with any of it.
OUR_WORDS = re.compile(r"[A-Za-z0-9 \[\]:?·.,\n]*\Z")
CODE = re.compile(r"`[^`\n]+`")
FENCED = re.compile(r"\*{1,2}[A-Za-z ,]+\*{1,2}\n```\n(?P<body>(?:(?!```).)+?)\n```\n?", re.DOTALL)
SLACK_LINK = re.compile(r"<https?://[^<>|`\s]+\|[A-Za-z ]+>")
DISCORD_LINK = re.compile(r"[A-Za-z]+: <https?://[^<>\s]+>")
SLACK_DATE = re.compile(r"<!date\^\d+\^\{date_short_pretty\} \{time\}\|[-0-9: UTC]+>")


def check_slack(body: bytes) -> None:
    """Refuse what Slack's incoming webhooks refuse. Source: docs.slack.dev/reference/block-kit."""
    message = _object(body)
    text, blocks = message.get("text"), message.get("blocks", [])
    assert text or blocks, "no_text: a message needs `text` or `blocks`"
    if text is not None:
        _length("text", text, 1, 4_000)  # 40,000 are cut; 4,000 are advised
    assert isinstance(blocks, list), "invalid_blocks: `blocks` is a list"
    assert len(blocks) <= 50, f"invalid_blocks: {len(blocks)} blocks, at most 50"
    for block in blocks:
        _SLACK_BLOCKS[block["type"]](block)
    ids = [element.get("action_id") for block in blocks for element in block.get("elements", [])]
    ids = [action_id for action_id in ids if action_id is not None]
    assert len(ids) == len(set(ids)), "invalid_blocks: an action_id comes twice"
    total = sum(units(each["text"]) for each in slack_texts(message))
    assert total <= 12_000, f"msg_blocks_too_long: {total} in all texts"


def check_discord(body: bytes) -> None:
    """Refuse what Discord's webhooks refuse. Source: docs.discord.com/developers, "Execute Webhook"
    and "Embed Limits"."""
    message = _object(body)
    content, embeds = message.get("content"), message.get("embeds", [])
    assert content or embeds, "50006: a message needs content or embeds"
    if content is not None:
        _length("content", content.strip(), 1, 2_000)
    assert len(embeds) <= 10, f"embeds: {len(embeds)}, at most 10"
    total = sum(_check_embed(embed) for embed in embeds)
    assert total <= 6_000, f"embeds: {total} characters together, at most 6000"
    for kind in message.get("allowed_mentions", {}).get("parse", []):
        assert kind in ("roles", "users", "everyone"), f"allowed_mentions.parse: {kind}"


def check_slack_is_inert(body: bytes) -> None:
    """Say that nobody else's text is where Slack reads markup, and nothing is looked for links."""
    message = _object(body)
    assert message["parse"] == "none", "links in `text` are not looked for"
    assert message["link_names"] is False, "nor are names"
    assert message["unfurl_links"] is False, "nor are links followed"
    outside = CODE.sub("", SLACK_LINK.sub("", message["text"], count=1))
    assert OUR_WORDS.match(outside), f"text: markup of somebody else's: {outside!r}"
    _escaped(SLACK_LINK.sub("", message["text"], count=1))
    for each in slack_texts(message):
        if each["type"] == "plain_text":
            assert each["emoji"] is False
            continue
        assert each["verbatim"] is True
        fenced = FENCED.fullmatch(each["text"])
        if fenced is None:
            outside = SLACK_DATE.sub("", each["text"])
            assert OUR_WORDS.match(outside), f"mrkdwn: markup of somebody else's: {outside!r}"
            continue
        assert fenced["body"].strip(), "a code block without content is none"
        _escaped(fenced["body"])


def check_discord_is_inert(body: bytes) -> None:
    """Say that nobody else's text is where Discord reads markdown, and nobody is mentioned."""
    message = _object(body)
    assert message["allowed_mentions"] == {"parse": []}
    if "content" in message:
        said, _, link = message["content"].partition("\n")
        assert OUR_WORDS.match(CODE.sub("", said)), f"content: {said!r}"
        assert not link or _is_url(link), f"content: {link!r}"
        assert message["flags"] == 4, "links of the content are not followed"
    for embed in message.get("embeds", []):
        assert OUR_WORDS.match(CODE.sub("", embed["title"])), f"title: {embed['title']!r}"
        rest = embed.get("description", "")
        while rest:
            fenced = FENCED.match(rest)
            assert fenced is not None, f"description: no code block: {rest[:80]!r}"
            assert fenced["body"].strip(), "a code block without content is none"
            rest = rest[fenced.end() :]
        for field in embed["fields"]:
            value = field["value"]
            is_time = re.fullmatch(r"<t:\d+:f> \(<t:\d+:R>\)", value)
            is_links = all(DISCORD_LINK.fullmatch(line) for line in value.split("\n"))
            assert is_time or is_links or CODE.fullmatch(value), f"field: {value!r}"


def slack_texts(message: Any) -> list[Any]:
    """Return every text object of a message."""
    found: list[Any] = []
    for block in message.get("blocks", []):
        found += [block["text"]] if "text" in block else []
        for element in block.get("elements", []):
            found.append(element["text"] if element["type"] == "button" else element)
    return found


def units(text: str) -> int:
    """Return the length in UTF-16 units; half surrogates are no text."""
    return len(text.encode("utf-16-le")) // 2


def _object(body: bytes) -> Any:
    message = json.loads(body.decode("utf-8"))
    assert isinstance(message, dict), "invalid_payload: a message is an object"
    return message


def _length(name: str, text: Any, least: int, most: int) -> int:
    assert isinstance(text, str), f"{name}: no text"
    length = units(text)
    assert least <= length <= most, f"{name}: {length} characters, must be {least} to {most}"
    return length


def _slack_text(name: str, value: Any, most: int, *types: str) -> None:
    assert value["type"] in types, f"invalid_blocks: {name} is {value['type']}"
    _length(f"invalid_blocks: {name}", value["text"], 1, most)
    extra = {"plain_text": "emoji", "mrkdwn": "verbatim"}[value["type"]]
    assert set(value) <= {"type", "text", extra}, f"invalid_blocks: {name} has {set(value)}"


def _slack_header(block: Any) -> None:
    assert set(block) == {"type", "text"}, "invalid_blocks: header"
    _slack_text("header", block["text"], 150, "plain_text")


def _slack_section(block: Any) -> None:
    assert set(block) == {"type", "text"}, "invalid_blocks: section"
    _slack_text("section.text", block["text"], 3_000, "plain_text", "mrkdwn")


def _slack_context(block: Any) -> None:
    assert set(block) == {"type", "elements"}, "invalid_blocks: context"
    assert 1 <= len(block["elements"]) <= 10, "invalid_blocks: context has 1 to 10 elements"
    for element in block["elements"]:
        _slack_text("context", element, 3_000, "plain_text", "mrkdwn")


def _slack_actions(block: Any) -> None:
    assert set(block) == {"type", "elements"}, "invalid_blocks: actions"
    assert 1 <= len(block["elements"]) <= 25, "invalid_blocks: actions has 1 to 25 elements"
    for button in block["elements"]:
        assert button["type"] == "button", "invalid_blocks: only buttons are checked here"
        _slack_text("button.text", button["text"], 75, "plain_text")
        _length("invalid_blocks: button.url", button["url"], 1, 3_000)
        assert _is_url(button["url"]), "invalid_blocks: button.url"
        _length("invalid_blocks: action_id", button["action_id"], 1, 255)
        assert button.get("style", "primary") in ("primary", "danger"), "invalid_blocks: style"


_SLACK_BLOCKS = {
    "header": _slack_header,
    "section": _slack_section,
    "context": _slack_context,
    "actions": _slack_actions,
}


def _check_embed(embed: Any) -> int:
    """Return what counts towards the 6000 of all embeds. White space around texts is taken off."""
    total = _length("embed.title", embed["title"].strip(), 1, 256)
    if "description" in embed:
        total += _length("embed.description", embed["description"].strip(), 1, 4_096)
    if "url" in embed:
        _length("embed.url", embed["url"], 1, 2_048)
        host = urlsplit(embed["url"]).hostname or ""
        assert _is_url(embed["url"]), "embed.url: not well formed"
        assert "." in host or ":" in host, "embed.url: not well formed, a host without a dot"
    if "timestamp" in embed:
        datetime.fromisoformat(embed["timestamp"])
    assert 0 <= embed.get("color", 0) <= 0xFFFFFF, "embed.color"
    total += _length("embed.footer", embed["footer"]["text"].strip(), 1, 2_048)
    assert len(embed["fields"]) <= 25, f"embed.fields: {len(embed['fields'])}, at most 25"
    for field in embed["fields"]:
        total += _length("field.name", field["name"].strip(), 1, 256)
        total += _length("field.value", field["value"].strip(), 1, 1_024)
    return total


def _escaped(text: str) -> None:
    left = re.sub("&(amp|lt|gt);", "", text)
    assert not set("&<>") & set(left), f"not escaped: {left[:80]!r}"


def _is_url(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", url)
