"""The settings in a real browser: found, filtered, without secrets. And the colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import expect
from tests.helpers.desk import Desk

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def test_settings_are_listed_and_found(desk: Desk, page: Page) -> None:
    page.goto("#/settings")
    rows = page.locator(".setting-list > div")
    expect(rows.filter(has_text="time a person has to decide")).to_contain_text("3600")
    page.keyboard.press("/")
    page.keyboard.type("gate.timeout")
    expect(rows.locator("visible=true")).to_have_count(1)
    expect(rows.locator("visible=true")).to_contain_text("time a person has to decide")
    page.keyboard.press("Escape")
    page.get_by_label("Only what was set").check()
    expect(rows.locator("visible=true")).to_have_count(0)


def test_colours_are_chosen_and_kept(desk: Desk, page: Page) -> None:
    page.goto("#/settings")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    page.keyboard.press("t")  # light
    assert background() == light
    page.keyboard.press("t")  # dark
    dark = background()
    assert dark != light
    page.reload()
    page.locator("h1").wait_for()
    assert background() == dark
    page.get_by_role("button", name="Colours: dark").click()  # as the system
    assert background() == light
