"""The page hears what changes: at once, after a lost connection, and by asking where it cannot."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import expect, open_page
from tests.helpers.desk import Desk
from tests.helpers.proxy import Proxy
from tests.store.contract_control import run_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser


def rows(page: Page) -> list[str]:
    return page.locator(".row-link").all_inner_texts()


def count_requests(page: Page, part: str) -> list[str]:
    seen: list[str] = []
    page.on("request", lambda request: part in request.url and seen.append(request.url))
    return seen


def test_a_session_shows_up_without_asking_in_between(desk: Desk, page: Page) -> None:
    desk.run(run_of(desk.store, 1, session="first"))
    asked = count_requests(page, "/api/sessions?")
    page.goto("#/sessions")
    expect(page.locator(".row-link")).to_have_text(["first"])
    while len(asked) < 2:  # at first, and once more when news began to come
        page.wait_for_timeout(50)
    asked.clear()
    page.wait_for_timeout(3000)  # longer than it would take to ask again
    assert asked == []

    desk.run(run_of(desk.store, 1, session="second"))

    expect(page.locator(".row-link")).to_have_text(["second", "first"])
    assert 1 <= len(asked) <= 3


def test_a_page_of_one_session_does_not_care_for_others(desk: Desk, page: Page) -> None:
    desk.run(run_of(desk.store, 1))
    page.goto("#/sessions/s")
    expect(page.locator(".step h2")).to_have_text("Step 0")
    page.wait_for_timeout(1000)
    asked = count_requests(page, "/api/sessions/s/")
    desk.run(run_of(desk.store, 3, session="other"))
    page.wait_for_timeout(1500)
    # Failed steps are looked for at a pace of their own, so perhaps since news began to come.
    assert [url for url in asked if "state=failed" not in url] == []
    desk.run(run_of(desk.store, 1, first=1))
    expect(page.locator(".step h2")).to_have_text("Step 1")


def test_where_no_news_come_the_page_asks(desk: Desk, browser: Browser) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=503, body="no")

    with open_page(browser, desk.url) as page:
        page.route("**/api/events**", refuse)
        desk.run(run_of(desk.store, 1, session="first"))
        page.goto("#/sessions")
        expect(page.locator(".row-link")).to_have_text(["first"])
        desk.run(run_of(desk.store, 1, session="second"))
        expect(page.locator(".row-link")).to_have_text(["second", "first"])


@pytest.mark.slow
def test_after_a_restart_the_page_catches_up_by_itself(tmp_path: Path, browser: Browser) -> None:
    db = tmp_path / "record.db"
    with Proxy(upstream_url="http://127.0.0.1:9", db=db, flags=["--mock"]) as proxy:
        ask(proxy, "before")
        with open_page(browser, proxy.url) as page:
            page.goto("#/sessions")
            expect(page.locator(".row-link")).to_have_text(["before"])
            proxy.kill()
            expect(page.locator("#live")).to_have_text("Not connected")
            proxy.start()
            ask(proxy, "after")
            expect(page.locator(".row-link")).to_have_text(["after", "before"])
            expect(page.locator("#live")).to_have_text("Live")
            ask(proxy, "later")
            expect(page.locator(".row-link")).to_have_text(["later", "after", "before"])


@pytest.mark.slow
def test_open_pages_do_not_hold_up_the_end_of_the_process(tmp_path: Path, browser: Browser) -> None:
    db = tmp_path / "record.db"
    with Proxy(upstream_url="http://127.0.0.1:9", db=db, flags=["--mock"]) as proxy:
        ask(proxy, "run")
        with open_page(browser, proxy.url) as page:
            page.goto("#/sessions")
            expect(page.locator(".row-link")).to_have_count(1)
            began_s = time.perf_counter()
            proxy.stop()  # by SIGTERM; it must exit with 0
            assert time.perf_counter() - began_s < 10


def ask(proxy: Proxy, session: str) -> None:
    """Make one call as an agent would."""
    connection = http.client.HTTPConnection(*proxy.address, timeout=10)
    body = {"model": "mock/hello", "messages": [{"role": "user", "content": "Hello"}]}
    headers = {
        "content-type": "application/json",
        "authorization": "Bearer mock-key",
        "x-agent-session-id": session,
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    assert connection.getresponse().status == 200
    connection.close()
