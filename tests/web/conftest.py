"""What each test of the dashboard gets: a browser, a desk with a record of its own, a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.helpers.browser import open_browser, open_page
from tests.helpers.desk import Desk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


@pytest.fixture
def page(browser: Browser, desk: Desk) -> Iterator[Page]:
    with open_page(browser, desk.url) as page:
        yield page
