"""Chromium for tests: Debian's, without a window, and a page that tells what went wrong in it.

Without the browser or its driver a test skips; in CI that is a failure, see `tests/conftest.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_MS = 10_000  # of a wait for something on the page; the page itself polls every 2 s
# Root, as in a container, gets no sandbox; everything shown comes from this machine.
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the browser. End it before anything else on this thread uses asyncio: the driver's
    loop counts as running until then."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs the test environment")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"needs one of {', '.join(NAMES)} on the PATH")
    driver.expect.set_options(timeout=TIMEOUT_MS)
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser: Browser, origin: str, **settings: Any) -> Iterator[Page]:
    """Open a page, and fail at its end if a script failed, the content security policy had to
    refuse something, a dialog was opened, or a request left `origin`.

    `settings` are those of a browser context, as viewport and color_scheme. That a request was
    refused, by the network or by the API, is for the test to judge.
    """
    settings = {"viewport": {"width": 1400, "height": 900}, **settings}
    context = browser.new_context(base_url=f"{origin}/dashboard/", **settings)
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    problems: list[str] = []

    def note_console(message: Any) -> None:
        is_refusal = message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not is_refusal:
            problems.append(message.text)

    def note_dialog(dialog: Any) -> None:
        problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def note_request(request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob") and f"{url.scheme}://{url.netloc}" != origin:
            problems.append(f"left the origin: {request.url}")

    page.on("console", note_console)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", note_dialog)
    page.on("request", note_request)
    try:
        yield page
    finally:
        context.close()
    assert problems == []


def expect(found: Any) -> Any:
    """Wait for something of a page or a part of it, as the driver's `expect` does."""
    driver = pytest.importorskip("playwright.sync_api")
    return driver.expect(found)


def button(page: Page, name: str) -> Locator:
    """Return the button of exactly this name."""
    return page.get_by_role("button", name=name, exact=True)
