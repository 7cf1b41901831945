"""What a webhook format must be able to say. One file per service; pure functions on values.

A format makes the request for an event and reads the service's answer. It knows nothing of sockets,
stores or retries: those are `house/outbox.py`. Texts of an event are models' and agents' words, so
whatever the service would read as markup, a mention or a link is made inert, and everything is cut
to the service's documented limits, with a mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from agentstate.ground.events import Event
from agentstate.wire.message import Headers


@dataclass(frozen=True, slots=True)
class Links:
    """Where a person can look and decide; '' = no address of the dashboard is known."""

    dashboard: str = ""  # the dashboard's root, ending in a slash
    session: str = ""
    approval: str = ""


@dataclass(frozen=True, slots=True)
class Post:
    """The request for one event."""

    headers: Mapping[str, str]  # besides content-length and host
    body: bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a service's answer means."""

    outcome: Literal["taken", "again", "never"]
    after_s: float | None = None  # of again: what the service asks to wait; None = it does not say
    why: str = ""  # one line for people, from the service's own words; '' = taken


class Format(Protocol):
    """One service."""

    name: str  # as in settings: "slack", "discord", "json"

    def matches(self, url: str) -> bool:
        """Say whether a URL is one of this service's."""
        ...

    def render(self, event: Event, links: Links, *, secret: str | None, sent_s: int) -> Post:
        """Make the request. `secret` signs it where the format does that; `sent_s` is now."""
        ...

    def render_plain(
        self, event: Event, links: Links, *, secret: str | None, sent_s: int
    ) -> Post | None:
        """Make the least request that still tells it: one line of text and the link. It is what a
        service gets that refuses the whole one (400, say Slack's invalid_blocks); None = this
        format has no other form."""
        ...

    def read(self, status: int, headers: Headers, body: bytes) -> Verdict:
        """Read the answer: 2xx is taken, 404 and 410 never, 429 and 5xx again; whatever else the
        service documents."""
        ...
