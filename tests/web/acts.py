"""What a person does on the page of the approvals, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.browser import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def open_approvals(page: Page, rest: str = "") -> None:
    """Go there; `rest` goes on the address: /ID, ?status=..."""
    page.goto(f"#/approvals{rest}")


def items(page: Page) -> Locator:
    """Return the rows of the list."""
    return page.locator(".list .item")


def settle(page: Page, tool: str) -> None:
    """Wait until the approval of a call of `tool` is shown and takes decisions."""
    expect(page.locator(".detail h2")).to_have_text(tool)
    expect(page.locator(".detail")).to_have_attribute("aria-busy", "false")
