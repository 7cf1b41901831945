"""One webhook, and one try to tell it of one event.

Used by the outbox, which tries until somebody was told, and by tests of a configuration, which try
once. The invariant: a webhook's URL, or a part of it that opens anything, is in nothing that leaves
here, whatever the service answers; neither is a configured key or what looks like one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlsplit

from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import UpstreamError, shorten
from agentstate.ground.events import Event, Subscription
from agentstate.ground.secrets import strike, strike_bytes
from agentstate.ground.settings import WebhookSettings
from agentstate.webhooks import find_format
from agentstate.webhooks.base import Format, Links, Post, Verdict
from agentstate.wire.message import Exchange, Headers, Origin, OutCall, TimeLimits, Transport

# A service that has not answered by then is taken for down. Slack and Discord answer in well under
# a second; the sum stays below the outbox's lease.
LIMITS = TimeLimits(connect_s=10.0, first_byte_s=10.0, gap_s=10.0, total_s=20.0)
ANSWER_BYTES_MAX = 64 * 1024  # of what a service says, which is one line or a small object
WHY_CHARS_MAX = 300
TOKEN_CHARS_MIN = 16  # of a path: Slack's and Discord's tokens are longer, their words shorter

# The message itself was refused, not the sender and not the moment.
REFUSED_MESSAGE = frozenset((400, 413, 422))
# RFC 9110 sections 15.4.2 and 15.4.9: for good. The other redirects may be a moment's.
MOVED_FOR_GOOD = frozenset((301, 308))


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook as it is used."""

    name: str
    url: str = field(repr=False)
    format: Format
    events: tuple[str, ...]
    sessions: tuple[str, ...] = ()
    secret: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> Origin:
        """Where it is."""
        return Origin.of(self.url)

    @property
    def host(self) -> str:
        """What of the address may be shown."""
        return urlsplit(self.url).hostname or ""

    @property
    def target(self) -> str:
        """The path and query: with them anybody can post in its owner's name."""
        parts = urlsplit(self.url)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is struck from every text about it, longest first."""
        target = self.target
        parts = target.replace("?", "/").replace("&", "/").replace("=", "/").split("/")
        tokens = [part for part in parts if len(part) >= TOKEN_CHARS_MIN]
        own = [] if self.secret is None else [self.secret]
        return tuple(sorted((self.url, target, *tokens, *own), key=len, reverse=True))

    @property
    def subscription(self) -> Subscription:
        """What the store is told of it."""
        return Subscription(self.name, frozenset(self.events), self.sessions)


@dataclass(frozen=True, slots=True)
class Told:
    """How a try ended."""

    verdict: Verdict
    status: int | None = None  # None = no answer came

    @property
    def is_taken(self) -> bool:
        """Whether somebody was told."""
        return self.verdict.outcome == "taken"


def build_hooks(rows: Iterable[WebhookSettings]) -> tuple[Hook, ...]:
    """Make the webhooks of a configuration; a format that none names is found from the URL."""
    return tuple(
        Hook(
            name=row.name,
            url=row.url,
            format=find_format(row.url, row.format),
            events=row.events,
            sessions=row.sessions,
            secret=row.secret,
        )
        for row in rows
    )


def links_of(event: Event, root: str) -> Links:
    """Return where in the dashboard an event is shown; `root` is the server's address, '' = none
    is known."""
    if not root:
        return Links()
    dashboard = root.rstrip("/") + "/dashboard/"
    approval = ""
    if event.approval_id is not None:
        approval = f"{dashboard}#/approvals/{_quoted(event.approval_id)}"
    return Links(dashboard, f"{dashboard}#/sessions/{_quoted(event.session)}", approval)


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="replace")


async def tell(
    hook: Hook,
    event: Event,
    transport: Transport,
    root: str,
    *,
    keys: Sequence[str] = (),
    clock_ms: Callable[[], int] = now_ms,
) -> Told:
    """Send an event once; a service that refuses the message gets its plain form at once.

    `keys` are struck from the event's texts. Never raises for what the service or the way to it
    does.
    """
    links = links_of(event, root)

    def render() -> tuple[Post, Post | None]:
        shown, sent_s = _struck(event, keys), clock_ms() // 1000
        return (
            hook.format.render(shown, links, secret=hook.secret, sent_s=sent_s),
            hook.format.render_plain(shown, links, secret=hook.secret, sent_s=sent_s),
        )

    whole, plain = await asyncio.to_thread(render)  # arguments may be long
    told = await _post(hook, whole, transport)
    if plain is None or told.verdict.outcome != "never" or told.status not in REFUSED_MESSAGE:
        return told
    again = await _post(hook, plain, transport)
    refused = f"the whole message was refused ({told.verdict.why or told.status})"
    why = f"{refused}, its plain form was taken"
    if not again.is_taken:
        why = f"{refused}, and its plain form: {again.verdict.why}"
    return replace(again, verdict=replace(again.verdict, why=why))


async def _post(hook: Hook, post: Post, transport: Transport) -> Told:
    call = OutCall(
        method="POST",
        origin=hook.origin,
        target=hook.target.encode("ascii"),
        headers=tuple((name.encode(), value.encode()) for name, value in post.headers.items()),
        body=post.body,
    )
    try:
        exchange = await transport.send(call, LIMITS)
    except UpstreamError as error:
        return Told(Verdict("again", why=_line(error.message, hook)))
    try:
        body = await _read(exchange)
    finally:
        await exchange.close()
    return Told(_judge(hook, exchange.status, exchange.headers, body), exchange.status)


async def _read(exchange: Exchange) -> bytes:
    """Return what the service says, as far as it comes: the status alone says what it did."""
    body = b""
    try:
        async for chunk in exchange.chunks():
            body += chunk
            if len(body) >= ANSWER_BYTES_MAX:
                break
    except UpstreamError:
        return body  # a message that was taken must not be sent again for it
    return body[:ANSWER_BYTES_MAX]


def _judge(hook: Hook, status: int, headers: Headers, body: bytes) -> Verdict:
    if 300 <= status < 400:
        # Where it leads is another's word for where our users' words go: nobody follows.
        return Verdict(
            "never" if status in MOVED_FOR_GOOD else "again",
            why="it redirects, which is not followed; put its new address in the url",
        )
    # Struck before it is read: a format cuts, and the beginning of a token is a secret too.
    verdict = hook.format.read(status, headers, strike_bytes(body, *hook.secrets))
    return replace(verdict, why=_line(verdict.why, hook))


def _line(text: str, hook: Hook) -> str:
    return shorten(strike(" ".join(text.split()), *hook.secrets), WHY_CHARS_MAX)


def _struck(event: Event, keys: Sequence[str]) -> Event:
    """Return the event without keys: what was safe in the record may be read by many here."""
    if event.facts is None:
        return event
    return replace(event, facts={name: _fact(fact, keys) for name, fact in event.facts.items()})


def _fact(fact: JSON, keys: Sequence[str]) -> JSON:
    match fact:
        case str():
            return strike(fact, *keys)
        case list():
            return [_fact(each, keys) for each in fact]
        case dict():
            return {name: _fact(each, keys) for name, each in fact.items()}
        case _:
            return fact
