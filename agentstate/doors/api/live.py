"""What changes, as it changes: server-sent events for pages that are open.

An event says which sessions something was written of; what, is for the page to read. Its id is a
cursor: a page that comes back with it, as `Last-Event-ID` or `after`, gets what it missed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from agentstate.doors.api.reply import read_params
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import AgentStateError
from agentstate.house.feed import Feed, News
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

RETRY_MS = 1000  # what a browser waits before it connects again


class TooManyPages(AgentStateError):
    """As many pages follow as may."""

    code = "too_many_pages"
    status = 503


class LiveEndpoints:
    """Answers `/api/events`."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint(
                "GET",
                "/api/events",
                self.follow,
                "Say which sessions change, as server-sent events, until the client leaves.",
                query=(Field("after", "the id of the last event that was seen; or Last-Event-ID"),),
                answers="events",
            ),
        )

    async def follow(self, request: Request, params: Params) -> Response:
        """Answer with `changed` events: `{"sessions": [...]}`, null = any may have changed."""
        asked = read_params(request, frozenset(("after",)))
        after = request.headers.text(b"last-event-id") or asked.get("after")
        if self._feed.is_full:
            raise TooManyPages(
                "As many pages are live as this server takes.",
                hint="Close some tabs of the dashboard; until then this one asks now and then.",
            )
        return Response(
            200,
            [
                (b"content-type", b"text/event-stream"),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),
            ],
            self._frames(after),
        )

    async def _frames(self, after: str | None) -> AsyncIterator[bytes]:
        is_first = True
        async for news in self._feed.follow(after):
            yield render_news(news, is_first=is_first)
            is_first = False


def render_news(news: News, *, is_first: bool = False) -> bytes:
    """Render a piece of news as one event; a sign of life is a comment."""
    if news.sessions == () and not is_first:
        return b": here\n\n"
    sessions: list[JSON] | None = None if news.sessions is None else list(news.sessions)
    head = b"retry: %d\n" % RETRY_MS if is_first else b""
    data = encode({"sessions": sessions})
    return b"%bid: %b\nevent: changed\ndata: %b\n\n" % (head, news.cursor.encode(), data)
