"""The overview in a real browser: sums, charts with their tables, spans by link and by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentstate.ground.clock import now_ms
from agentstate.ground.records import ReplayNote
from tests.helpers.browser import expect, open_page
from tests.helpers.desk import Desk
from tests.web.steps import call, message, put_step

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


def put_now(desk: Desk, count: int = 3) -> None:
    """Put steps of this moment on record, one of them replayed twice."""
    at_ms = now_ms()
    calls = (call("c", "<b>find</b>", "{}"),)
    for number in range(count):
        asked = [message("user", str(number))]
        step_id = put_step(desk, asked, "x", calls=calls, created_ms=at_ms, answered_ms=at_ms)
    for _ in range(2):
        desk.store.note_replay(ReplayNote("s", step_id, at_ms, "exact", 25))


def tile(page: Page, title: str) -> str:
    found = page.locator(".tiles > div").filter(has=page.get_by_text(title, exact=True))
    return found.locator(".tile-value").inner_text()


def test_sums_charts_models_and_tools(desk: Desk, page: Page) -> None:
    put_now(desk)
    page.goto("#/overview")
    expect(page.locator(".chart")).to_have_count(4)
    assert tile(page, "Calls answered") == "3"
    assert tile(page, "Spent") == "$0.000075"
    assert tile(page, "Saved by replay") == "$0.000050"
    expect(page.locator(".tops")).to_contain_text("gpt-4o-mini-2024 openai")
    expect(page.locator(".tops")).to_contain_text("<b>find</b>")
    expect(page.locator(".chart").first).to_contain_text("3 answered, 2 replayed, 0 failed")


def test_each_chart_has_its_numbers_in_a_table(desk: Desk, page: Page) -> None:
    put_now(desk)
    page.goto("#/overview?range=1h")
    chart = page.locator(".chart").first
    chart.get_by_text("Table").click()
    last = chart.locator("tbody tr").last
    expect(last.locator("td")).to_have_text(["3", "2", "0"])
    put_now(desk, 1)
    expect(last.locator("td")).to_have_text(["4", "4", "0"])  # live, and it stays open


def test_spans_are_chosen_by_link_and_by_key(desk: Desk, page: Page) -> None:
    put_now(desk)
    page.goto("#/overview")
    current = page.locator(".tabs [aria-current]")
    expect(current).to_have_text("24 hours")
    page.get_by_role("link", name="7 days").click()
    expect(current).to_have_text("7 days")
    page.keyboard.press("1")
    expect(current).to_have_text("Last hour")
    page.keyboard.press("S")
    expect(page.locator("h1")).to_have_text("Sessions")
    page.keyboard.press("O")
    expect(page.locator("h1")).to_have_text("Overview")


def test_a_record_with_nothing_says_how_to_begin(desk: Desk, page: Page) -> None:
    page.goto("#/overview?range=all")
    expect(page.get_by_role("heading", name="No session yet")).to_be_visible()
    expect(page.locator(".code").first).to_contain_text(f"curl {desk.url}/v1/chat/completions")


@pytest.mark.parametrize("width", [360, 768])
def test_with_less_room_nothing_overflows(desk: Desk, browser: Browser, width: int) -> None:
    put_now(desk)
    with open_page(browser, desk.url, viewport={"width": width, "height": 800}) as page:
        for view in ("overview", "sessions", "sessions/s?index=0", "settings", "approvals"):
            page.goto(f"#/{view}")
            page.locator("h1").wait_for()
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
