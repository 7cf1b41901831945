"""The list of sessions in a real browser: filters, tags, parents, pages, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentstate.ground.control import About
from tests.helpers.browser import expect
from tests.helpers.desk import Desk
from tests.store.contract import claim_of

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser


def put(desk: Desk, session: str, at: int = 0, **about: object) -> None:
    said = About(**about) if about else None  # type: ignore[arg-type]
    claim = claim_of(session, session=session, created_ms=1_790_000_000_000 + at, about=said)
    desk.run(desk.store.claim_step(claim))


def links(page: Page) -> Locator:
    return page.locator(".row-link")


def test_the_list_is_searched_and_what_is_typed_stays(desk: Desk, page: Page) -> None:
    put(desk, "invoice-1", 1)
    put(desk, "report-1", 2, name="Invoices of May")
    put(desk, "other", 3)
    page.goto("#/sessions")
    expect(links(page)).to_have_count(3)
    page.keyboard.press("/")
    page.keyboard.type("inv", delay=40)
    expect(links(page)).to_have_text(["report-1", "invoice-1"])
    page.keyboard.type("oice-")
    put(desk, "invoice-2", 4)
    expect(links(page)).to_have_text(["invoice-2", "invoice-1"])
    expect(page.get_by_label("Find")).to_be_focused()
    expect(page.get_by_label("Find")).to_have_value("invoice-")
    page.reload()  # it is in the address
    expect(links(page)).to_have_text(["invoice-2", "invoice-1"])
    page.get_by_label("Find").fill("nobody")
    expect(page.get_by_text("No session is like that.")).to_be_visible()


def test_status_tags_and_parents_filter(desk: Desk, page: Page) -> None:
    put(desk, "a", 1, tags=(("team", "ops"),))
    put(desk, "b", 2, parent="a")
    put(desk, "c", 3, tags=(("team", "dev"),), parent="b")
    desk.run(desk.store.pause("b", at_ms=1))
    page.goto("#/sessions")
    page.get_by_label("Status").select_option("PAUSED")
    expect(links(page)).to_have_text(["b"])
    page.get_by_label("Status").select_option("")
    page.get_by_role("link", name="team=ops").click()
    expect(links(page)).to_have_text(["a"])
    page.get_by_role("link", name="team=ops: do not filter by it").click()
    expect(links(page)).to_have_count(3)
    page.goto("#/sessions?parent=a")
    expect(links(page)).to_have_text(["b"])
    page.get_by_role("link", name="a", exact=True).click()  # whom it was begun by
    expect(page.locator("h1")).to_have_text("a")


def test_pages_are_gone_through_by_key_and_back(desk: Desk, page: Page) -> None:
    for number in range(120):
        put(desk, f"run-{number:03}", number)
    page.goto("#/sessions")
    expect(links(page)).to_have_count(50)
    expect(links(page).first).to_have_text("run-119")
    page.keyboard.press("]")
    expect(links(page).first).to_have_text("run-069")
    page.keyboard.press("]")
    expect(links(page)).to_have_count(20)
    page.keyboard.press("[")
    expect(links(page).first).to_have_text("run-069")
    page.keyboard.press("[")
    expect(links(page).first).to_have_text("run-119")
    expect(page.get_by_role("link", name="← Newer")).to_be_hidden()


def test_rows_are_walked_and_opened_by_key(desk: Desk, page: Page) -> None:
    put(desk, "a", 1)
    put(desk, "b", 2)
    page.goto("#/sessions")
    expect(links(page)).to_have_count(2)
    page.keyboard.press("j")
    expect(links(page).first).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("a")


def test_a_row_that_moves_up_keeps_the_focus(desk: Desk, page: Page) -> None:
    desk.hold(session="one")
    desk.hold(session="two")
    page.goto("#/sessions")
    links = page.locator(".row-link")
    expect(links).to_have_text(["two", "one"])
    links.nth(1).focus()

    desk.hold(session="one")

    expect(links).to_have_text(["one", "two"])
    expect(links.first).to_be_focused()
