"""One session in a real browser: how it stands, and what a person does to it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from agentstate.ground.control import Change, Place
from tests.helpers.browser import button, expect, open_page
from tests.helpers.desk import Desk
from tests.store.contract_control import active_of, run_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

NARROW = {"width": 360, "height": 800}


@pytest.fixture
def run(desk: Desk) -> Desk:
    """A desk with a session of five steps."""
    desk.run(run_of(desk.store, 5))
    return desk


def rows(page: Page) -> Locator:
    return page.locator(".step-row")


def roll_back(page: Page) -> Locator:
    """Return the verb of the open step."""
    return page.locator(".step-verbs").get_by_role("button", name="Roll back here")


def status(page: Page) -> Locator:
    return page.locator(".head .badge")


def test_a_session_is_paused_and_resumed(run: Desk, page: Page) -> None:
    page.goto("#/sessions/s")
    expect(status(page)).to_have_text("Running")

    button(page, "Pause").click()
    expect(status(page)).to_have_text("Paused")
    expect(page.locator(".steer-bars .waiting")).to_contain_text("Its next call is held")
    assert run.run(run.store.read_pause("s")) is not None

    button(page, "Resume").click()
    expect(status(page)).to_have_text("Running")
    expect(page.locator(".steer-bars .waiting")).to_be_hidden()
    assert run.run(run.store.read_pause("s")) is None


def test_who_paused_it_and_why_is_shown(run: Desk, page: Page) -> None:
    run.run(run.store.pause("s", at_ms=1, reason="too \u202edear", by="ada"))
    page.goto("#/sessions/s")
    bar = page.locator(".steer-bars .waiting")
    expect(bar).to_contain_text("by ada: too ⟨U+202E⟩dear")


def test_a_rollback_says_what_it_costs_and_is_undone(run: Desk, page: Page) -> None:
    page.goto("#/sessions/s?index=3")
    page.get_by_role("button", name="Roll back here, to step 3").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Roll back to step 3?")
    expect(dialog).to_contain_text("This step and 1 after it will no longer replay.")
    expect(dialog).to_contain_text("$0.000050: 20 tokens in, 8 out")
    assert run.run(active_of(run.store)) == [0, 1, 2, 3, 4]

    button(page, "Roll back").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".rolled")).to_contain_text("2 steps from index 3 on rolled back")
    expect(page.locator(".step-link.is-inactive")).to_have_count(2)
    expect(roll_back(page)).to_be_hidden()
    assert run.run(active_of(run.store)) == [0, 1, 2]

    button(page, "Undo").click()
    expect(page.locator(".rolled")).to_be_hidden()
    expect(page.locator(".step-link.is-inactive")).to_have_count(0)
    expect(roll_back(page)).to_be_visible()
    assert run.run(active_of(run.store)) == [0, 1, 2, 3, 4]


def test_who_thinks_better_of_it_changes_nothing(run: Desk, page: Page) -> None:
    page.goto("#/sessions/s?index=0")
    page.get_by_role("button", name="Roll back here, to step 0").click()
    expect(button(page, "Roll back")).to_be_enabled()
    button(page, "Cancel").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Roll back here, to step 0").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert run.run(active_of(run.store)) == [0, 1, 2, 3, 4]


def test_what_somebody_else_undid_is_said(run: Desk, page: Page) -> None:
    run.run(run.store.roll_back("s", Place(index=2), at_ms=1))
    page.goto("#/sessions/s")
    expect(page.locator(".rolled")).to_be_visible()
    page.route("**/restore", lambda route: _undone_before(run, route))
    button(page, "Undo").click()
    expect(page.locator(".steer-bars > .fault")).to_contain_text("was undone by number 2")


def _undone_before(run: Desk, route: object) -> None:
    asyncio.run_coroutine_threadsafe(run.store.restore("s", None, at_ms=2), run._loop).result(10)
    route.continue_()  # type: ignore[attr-defined]


def test_a_session_is_completed(run: Desk, page: Page) -> None:
    page.goto("#/sessions/s")
    button(page, "Complete").click()
    expect(status(page)).to_have_text("Completed")
    expect(button(page, "Complete")).to_be_hidden()


def test_name_parent_and_tags_are_shown_here_and_in_the_list(run: Desk, page: Page) -> None:
    change = Change(name="Invoices", tags=(("team", "ops"), ("urgent", "")))
    run.run(run.store.change_session("s", change, at_ms=1))
    for address in ("#/sessions/s", "#/sessions"):
        page.goto(address)
        expect(page.locator(".about strong")).to_have_text("Invoices")
        expect(page.locator(".tag")).to_have_text(["team=ops", "urgent"])
    run.run(run.store.change_session("s", Change(name="", tags=(("team", None),)), at_ms=1))
    expect(page.locator(".tag")).to_have_text(["urgent"])


def test_on_a_phone_everything_is_there_and_nothing_overflows(run: Desk, browser: Browser) -> None:
    run.run(run.store.roll_back("s", Place(index=4), at_ms=1))
    run.run(run.store.pause("s", at_ms=1))
    change = Change(name="A long name " * 10, tags=tuple((f"tag-{n}", "x" * 40) for n in range(9)))
    run.run(run.store.change_session("s", change, at_ms=1))
    settings = {"viewport": NARROW, "has_touch": True, "is_mobile": True}
    with open_page(browser, run.url, **settings) as page:
        page.goto("#/sessions/s")
        expect(page.locator(".rolled")).to_be_visible()
        width = page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= NARROW["width"]
        rows(page).nth(1).get_by_role("link").click()
        page.get_by_role("button", name="Roll back here, to step 1").click()
        expect(page.get_by_role("dialog")).to_contain_text(re.compile("costs about"))
        box = page.get_by_role("dialog").bounding_box()
        assert box is not None
        assert box["width"] <= NARROW["width"]
