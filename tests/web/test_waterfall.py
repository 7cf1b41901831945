"""When calls were in the air, in a real browser: bars, branches, and text that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentstate.ground.control import About, Place
from agentstate.ground.forks import ForkAsk
from tests.helpers.browser import expect, open_page
from tests.helpers.desk import Desk
from tests.store.contract import claim_of
from tests.web.steps import message, put_step

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

START_MS = 1_790_000_000_000


def put_parallel(desk: Desk, count: int = 4) -> None:
    """Steps 0 to 3, each begun while the one before it is in the air."""
    for number in range(count):
        at_ms = START_MS + number * 100
        put_step(desk, [message("user", str(number))], "x", created_ms=at_ms)


def branches(page: Page) -> Locator:
    return page.locator(".waterfall .branch")


def press_w(page: Page) -> None:
    """Open the waterfall once the page hears keys."""
    page.locator("main > .facts").wait_for()
    page.keyboard.press("w")


def number_of(node: Locator, attribute: str) -> float:
    return float(node.get_attribute(attribute) or "nan")


def leaves_at(page: Page, at: int) -> float:
    """Where the line of a branch begins, from the left."""
    line = branches(page).nth(at).locator(".branch-line").get_attribute("d") or ""
    return float(line.removeprefix("M").split()[0])


def test_parallel_calls_stand_below_each_other_and_children_branch_off(
    desk: Desk, page: Page
) -> None:
    put_parallel(desk, 3)
    child = claim_of("c", session="child", created_ms=START_MS + 300, about=About(parent="s"))
    desk.run(desk.store.claim_step(child))
    page.goto("#/sessions/s")
    page.get_by_text("Waterfall", exact=True).click()
    bars = page.locator(".waterfall .bar")
    expect(bars).to_have_count(3)
    tops = {bars.nth(at).get_attribute("y") for at in range(3)}
    assert len(tops) == 3
    expect(
        page.get_by_role("link", name="Begun here: child, 1 step of its own, Running")
    ).to_have_count(1)
    branches(page).locator(".branch-bar").click()
    expect(page.locator("h1")).to_have_text("child")
    press_w(page)
    expect(branches(page).locator("title")).to_have_text("Begun by s")


def test_forks_leave_where_they_share_no_more(desk: Desk, page: Page) -> None:
    put_parallel(desk)
    for name, index in (("early", 1), ("late", 3)):
        ask = ForkAsk(Place(index=index), session=name)
        desk.run(desk.store.fork_session("s", ask, at_ms=START_MS + 9_000))
    desk.run(desk.store.fork_session("s", ForkAsk(session="whole"), at_ms=START_MS + 9_000))
    page.goto("#/sessions/s")
    press_w(page)

    expect(branches(page)).to_have_count(3)
    named = branches(page).locator("title").all_text_contents()
    assert named == [
        "Forked before index 1: early, 0 steps of its own, Running",
        "Forked before index 3: late, 0 steps of its own, Running",
        "Forked after all of it: whole, 0 steps of its own, Running",
    ]
    pills = page.locator(".waterfall .branch-bar")
    tops = [number_of(pills.nth(at), "y") for at in range(3)]
    assert tops == sorted(tops, reverse=True)  # the last to leave is the first: no lines cross
    bars = page.locator(".waterfall .bar")
    ends = [number_of(bars.nth(at), "x") + number_of(bars.nth(at), "width") for at in range(4)]
    assert [leaves_at(page, at) for at in range(3)] == pytest.approx([ends[0], ends[2], ends[3]])


def test_a_fork_shows_what_it_shares_and_leads_back(desk: Desk, page: Page) -> None:
    put_parallel(desk)
    ask = ForkAsk(Place(index=2), session="fork")
    desk.run(desk.store.fork_session("s", ask, at_ms=START_MS + 9_000))
    own = [message("user", "other")]
    put_step(desk, own, "y", session="fork", created_ms=START_MS + 9_500)
    page.goto("#/sessions/fork")
    press_w(page)

    expect(page.locator(".waterfall .bar-link")).to_have_count(3)
    expect(page.locator(".waterfall .is-shared")).to_have_count(2)
    expect(branches(page).locator("title")).to_have_text("Forked from s")
    branches(page).focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("s")
    assert page.url.endswith("index=1")  # the last one they share


def test_a_fork_that_is_made_meanwhile_shows_up(desk: Desk, page: Page) -> None:
    put_parallel(desk)
    page.goto("#/sessions/s")
    press_w(page)
    expect(page.locator(".waterfall .bar-link")).to_have_count(4)
    page.locator(".waterfall .bar-link").nth(1).focus()
    ask = ForkAsk(Place(index=2), session="fork")
    desk.run(desk.store.fork_session("s", ask, at_ms=START_MS + 9_000))
    put_step(desk, [message("user", "other")], "y", session="fork", created_ms=START_MS + 9_500)
    expect(branches(page)).to_have_count(1)
    expect(page.locator(".waterfall .bar-link").nth(1)).to_be_focused()


# In one go: news may draw it anew at any moment.
MEASURE = """() => {
  const picture = document.querySelector(".waterfall-picture");
  const { left, width } = picture.getBoundingClientRect();
  const texts = [...picture.querySelectorAll("text")].map((text) => {
    const box = text.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(text).fontSize);
    return { says: text.textContent, size, left: box.left - left, right: box.right - left };
  });
  return { width, units: Number(picture.getAttribute("width")), texts };
}"""


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_a_waterfall_has_text_of_the_size_of_text(desk: Desk, browser: Browser, width: int) -> None:
    put_parallel(desk)
    long = ForkAsk(Place(index=2), session="a-session-with-a-name-that-is-rather-long " * 3)
    desk.run(desk.store.fork_session("s", long, at_ms=START_MS + 9_000))
    with open_page(browser, desk.url, viewport={"width": width, "height": 740}) as page:
        page.goto("#/sessions/s")
        press_w(page)
        expect(branches(page)).to_have_count(1)
        drawn = page.evaluate(MEASURE)
        assert drawn["width"] == drawn["units"]
        assert len(drawn["texts"]) >= 3
        for text in drawn["texts"]:
            assert text["size"] >= 12
            assert text["left"] >= -1, text
            assert text["right"] <= drawn["width"] + 1, text

        page.set_viewport_size({"width": width + 40, "height": 740})

        page.wait_for_function(f"({MEASURE})().units === {drawn['units'] + 40}")
