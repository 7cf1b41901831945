"""JSON for a receiver of one's own, signed as Standard Webhooks says. https://www.standardwebhooks.com

The body is `{"type", "timestamp", "data"}`; the headers webhook-id, webhook-timestamp and, where
there is a secret, webhook-signature. The id is the event's and the same on every try, so a receiver
can tell a second delivery; the time is that of the try, so that a signature cannot be kept for
later. Unlike in the other formats texts are exact here: they are for programs. Only what looks like
a key is struck, half surrogates are replaced, and a long text is cut and named in `data.cut`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import re

from agentstate.ground.canonical import JSON, encode
from agentstate.ground.events import Event
from agentstate.webhooks.base import Links, Post, Verdict
from agentstate.webhooks.text import TEXT_CHARS_MAX, asked_wait_s, timestamp, words
from agentstate.wire.message import Headers

SECRET_PREFIX = "whsec_"
DEPTH_MAX = 8  # facts are texts and numbers; a deeper value is not one
ITEMS_MAX = 100  # of one list or object among the facts
NUMBER_MAX = 2**63  # a greater integer goes as text, which readers in every language keep

# What says that the receiver will never take this: no such place, or not from us, or not this body.
FINAL = frozenset((400, 401, 403, 404, 405, 410, 413, 414, 415, 422))

_HALF = re.compile("[\ud800-\udfff]")


class SignedJSON:
    """See the module."""

    name = "json"

    def matches(self, url: str) -> bool:
        """Say yes: it is what is sent where nobody else's form is known to be wanted."""
        return True

    def render(self, event: Event, links: Links, *, secret: str | None, sent_s: int) -> Post:
        """Make the signed request. `secret` is `whsec_` and base64, or any text, used as UTF-8."""
        cut: list[JSON] = []
        facts: dict[str, JSON] = {}
        for key, fact in list((event.facts or {}).items())[:ITEMS_MAX]:
            facts[_text(key)] = _clean(fact, DEPTH_MAX)
            if isinstance(fact, str) and len(fact) > TEXT_CHARS_MAX:
                cut.append(_text(key))
        data: dict[str, JSON] = {
            "event_id": event.event_id,
            "session": _text(event.session),
            "step": event.step_number,
            "step_index": event.index,
            "approval_id": event.approval_id,
            "facts": facts,
            "links": {
                "dashboard": links.dashboard or None,
                "session": links.session or None,
                "approval": links.approval or None,
            },
            "cut": cut,
            "is_sample": event.is_sample,
        }
        body = encode({"type": event.kind, "timestamp": timestamp(event.created_ms), "data": data})
        headers = {
            "content-type": "application/json",
            "webhook-id": event.event_id,
            "webhook-timestamp": str(sent_s),
        }
        if secret:
            headers["webhook-signature"] = sign(secret, event.event_id, sent_s, body)
        return Post(headers, body)

    def render_plain(self, event: Event, links: Links, *, secret: str | None, sent_s: int) -> None:
        """There is no plainer form of it."""
        return None

    def read(self, status: int, headers: Headers, body: bytes) -> Verdict:
        """Read a receiver's answer by its status alone: its body may repeat the URL's secret.

        2xx is taken. `FINAL` and redirects, which are never followed, are final, 410 as the
        specification has it. Whatever else comes again: 408, 409, 423, 425, 429, 5xx and the
        statuses that proxies made up for a receiver that is being deployed.
        """
        if 200 <= status < 300:
            return Verdict("taken")
        why = f"The receiver answered {status}"
        if 300 <= status < 400:
            return Verdict("never", why=f"{why}, a redirect, which is not followed")
        if status in FINAL:
            return Verdict("never", why=why)
        return Verdict("again", asked_wait_s(headers), why)


def sign(secret: str, event_id: str, sent_s: int, body: bytes) -> str:
    """Return the value of webhook-signature: HMAC-SHA256 over id, time and body."""
    signed = b"%s.%d.%s" % (event_id.encode(), sent_s, body)
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode()


def _key(secret: str) -> bytes:
    """Base64 is read without its padding too; what is none is a text that happens to begin so."""
    if secret.startswith(SECRET_PREFIX):
        encoded = secret.removeprefix(SECRET_PREFIX).rstrip("=")
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if key:
            return key
    return secret.encode("utf-8", "surrogateescape")


def _clean(value: JSON, depth: int) -> JSON:
    match value:
        case str():
            return _text(value)
        case None | bool():
            return value
        case int():
            return value if -NUMBER_MAX <= value < NUMBER_MAX else words(value)
        case float():
            return value if math.isfinite(value) else None
        case dict() if depth:
            pairs = list(value.items())[:ITEMS_MAX]
            return {_text(key): _clean(part, depth - 1) for key, part in pairs}
        case list() if depth:
            return [_clean(part, depth - 1) for part in value[:ITEMS_MAX]]
        case _:
            return None


def _text(text: str) -> str:
    return _HALF.sub("\ufffd", words(text))
