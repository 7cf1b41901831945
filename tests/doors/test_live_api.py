"""The live endpoint: real sockets, cursors, a page too many, and a server that stops at once."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentstate.house.feed import Feed
from tests.helpers.desk import Desk
from tests.store.contract_control import run_of

STOP_S = 5.0


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


class Follower:
    """A page that follows, as a browser would. Use with `with`."""

    def __init__(self, desk: Desk, after: str | None = None, *, header: str | None = None) -> None:
        self._connection = http.client.HTTPConnection(desk.url.removeprefix("http://"), timeout=10)
        query = "" if after is None else f"?after={after}"
        headers = {} if header is None else {"last-event-id": header}
        self._connection.request("GET", f"/api/events{query}", headers=headers)
        self.response = self._connection.getresponse()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def event(self) -> tuple[str, Any]:
        """Read until an event came; return its id and its data."""
        fields: dict[str, str] = {}
        while True:
            line = self.response.readline().decode().rstrip("\n")
            if not line and "data" in fields:
                assert fields["event"] == "changed"
                return fields["id"], json.loads(fields["data"])
            name, _, value = line.partition(": ")
            fields[name] = value


def test_changes_come_as_they_happen(desk: Desk) -> None:
    with Follower(desk) as page:
        assert page.response.status == 200
        assert page.response.headers["content-type"] == "text/event-stream"
        assert page.response.headers["cache-control"] == "no-store"
        assert page.event()[1] == {"sessions": []}
        desk.run(run_of(desk.store, 1, session="a \u2028"))
        assert page.event()[1] == {"sessions": ["a \u2028"]}


def test_a_page_that_comes_back_gets_what_it_missed(desk: Desk) -> None:
    with Follower(desk) as page:
        cursor, _ = page.event()
    desk.run(run_of(desk.store, 1, session="a"))
    with Follower(desk, cursor) as page:
        assert page.event()[1] == {"sessions": ["a"]}
    with Follower(desk, "older", header=cursor) as page:  # what the browser knows beats the address
        assert page.event()[1] == {"sessions": ["a"]}
    with Follower(desk, "of-another-life") as page:
        assert page.event()[1] == {"sessions": None}


def test_a_page_too_many_is_told_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Feed, "is_full", property(lambda self: True))
    with Follower(desk) as page:
        assert page.response.status == 503
        error = json.loads(page.response.read())["error"]
        assert error["code"] == "too_many_pages"
        assert "Close some tabs" in error["hint"]


def test_open_pages_do_not_hold_up_the_stop() -> None:
    with Desk() as desk:
        pages = [Follower(desk) for _ in range(3)]
        for page in pages:
            page.event()
        began_s = time.perf_counter()
    assert time.perf_counter() - began_s < STOP_S
    for page in pages:
        assert page.response.read() == b""  # ended whole, not cut
        page.__exit__()
