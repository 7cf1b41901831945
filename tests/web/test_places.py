"""A fork that lacks steps in the middle, in a real browser: its list, keys and addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentstate.ground.control import Place
from agentstate.ground.forks import ForkAsk
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore
from tests.helpers.browser import expect, open_page
from tests.helpers.desk import Desk
from tests.helpers.proxy import Proxy
from tests.store.contract_control import run_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


async def fork_with_gaps(store: Store, count: int, back: int) -> None:
    """Put a run on record, take its last steps back, go on from there, and fork all of it."""
    await run_of(store, count)
    await store.roll_back("s", Place(index=count - back), at_ms=1)
    await run_of(store, 3, first=count * 10)
    await store.fork_session("s", ForkAsk(session="mine"), at_ms=2)


def test_the_list_closes_up_over_what_is_not_shared(desk: Desk, page: Page) -> None:
    desk.run(fork_with_gaps(desk.store, 5, 2))  # the indexes 0, 1, 2, 5, 6, 7
    page.goto("#/sessions/mine")
    rows, title = page.locator(".step-row"), page.locator(".step h2")
    expect(rows).to_have_count(6)
    expect(page.locator(".row-number")).to_have_text(["0", "1", "2", "50", "51", "52"])
    expect(title).to_have_text("Step 52")
    expect(rows.last.get_by_role("link")).to_have_attribute("aria-current", "true")

    page.keyboard.press("w")
    expect(page.locator(".waterfall .bar-link")).to_have_count(6)
    for _ in range(3):
        page.keyboard.press("k")
    expect(title).to_have_text("Step 2")
    assert page.url.endswith("?index=2")
    page.keyboard.press("j")
    expect(title).to_have_text("Step 50")
    assert page.url.endswith("?index=5")
    page.get_by_role("tab", name="Compare").click()
    expect(page.get_by_label("With the step at index")).to_have_value("2")
    expect(page.locator(".diff-place")).not_to_contain_text("found")

    page.goto("#/sessions/mine?index=3")  # no step is there: the next one
    expect(title).to_have_text("Step 50")
    page.goto("#/sessions/mine?index=99")
    expect(title).to_have_text("Step 52")


def test_a_step_that_comes_is_the_last_one(desk: Desk, page: Page) -> None:
    desk.run(fork_with_gaps(desk.store, 5, 2))
    page.goto("#/sessions/mine")
    expect(page.locator(".step h2")).to_have_text("Step 52")
    desk.run(run_of(desk.store, 1, first=90, session="mine"))
    expect(page.locator(".step-row")).to_have_count(7)
    expect(page.locator(".step h2")).to_have_text("Step 90")


@pytest.fixture
def long(tmp_path: Path) -> Iterator[Proxy]:
    """A proxy over a file with a fork of about ten thousand steps, and a hole in the middle."""
    path = tmp_path / "record.db"

    async def write() -> None:
        store = SqliteStore(path, durability="normal")
        await store.open()
        for first in range(0, 6000, 500):
            await asyncio.gather(*(run_of(store, 1, first=first + at) for at in range(500)))
        await store.roll_back("s", Place(index=4950), at_ms=1)
        for first in range(6000, 11_000, 500):
            await asyncio.gather(*(run_of(store, 1, first=first + at) for at in range(500)))
        await store.fork_session("s", ForkAsk(session="mine"), at_ms=2)
        await store.close()

    with ThreadPoolExecutor() as threads:  # the browser's driver has a loop in this thread
        threads.submit(asyncio.run, write()).result()
    with Proxy(upstream_url="http://127.0.0.1:9", db=path, flags=["--mock"]) as proxy:
        yield proxy


@pytest.mark.slow
def test_ten_thousand_steps_with_a_hole_scroll(long: Proxy, browser: Browser) -> None:
    with open_page(browser, long.url) as page:
        page.goto("#/sessions/mine")
        expect(page.locator(".step h2")).to_have_text("Step 10999")
        for share in (0, 0.5, 1, 0.25):
            page.evaluate(
                "(share) => { const it = document.querySelector('.timeline-scroller');"
                "it.scrollTop = share * it.scrollHeight; }",
                share,
            )
            expect(page.locator(".step-row .row-what").nth(10)).to_have_text("hello")
        page.goto("#/sessions/mine?index=4949")
        expect(page.locator(".step h2")).to_have_text("Step 4949")
        page.keyboard.press("j")
        expect(page.locator(".step h2")).to_have_text("Step 6000")
        expect(page.locator(".step-link[aria-current]")).to_be_in_viewport()
        expect(page.locator(".step-link[aria-current] .row-number")).to_have_text("6000")
