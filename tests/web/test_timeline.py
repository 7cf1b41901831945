"""A run in a real browser: its steps, the one that is open, and the ways between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentstate.ground.clock import now_ms
from agentstate.ground.records import RecordedAnswer, ReplayNote
from agentstate.store.sqlite import SqliteStore
from tests.helpers.browser import button, expect, open_page
from tests.helpers.desk import Desk
from tests.helpers.proxy import Proxy
from tests.store.contract import checkpoint_of
from tests.store.contract_control import run_of
from tests.web.steps import call, message, put_step, put_story

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

NARROW = {"viewport": {"width": 360, "height": 780}, "has_touch": True, "is_mobile": True}
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script> \u202eevil\u202c"
BIG_CHARS = 5_000_000


def rows(page: Page) -> Locator:
    return page.locator(".step-row")


def open_step(page: Page, index: int, session: str = "s") -> None:
    page.goto(f"#/sessions/{session}?index={index}")
    page.locator(".step[aria-busy=false] h2").wait_for()


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def test_a_list_shows_what_each_step_did(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s")
    expect(rows(page)).to_have_count(3)
    expect(rows(page).nth(0)).to_contain_text("find")
    expect(rows(page).nth(1)).to_contain_text("It is 1183.")
    expect(rows(page).nth(1)).to_contain_text("fallback")
    expect(rows(page).nth(2)).to_contain_text("429: slow ⟨U+202E⟩down")
    expect(rows(page).nth(2)).to_contain_text("failed")
    expect(page.locator(".step h2")).to_have_text("Step 2")  # the last one is open


def test_a_step_shows_only_what_is_new_unfolded(desk: Desk, page: Page) -> None:
    put_story(desk)
    open_step(page, 1)
    earlier = page.locator(".unfold.earlier")
    expect(earlier).to_contain_text("3 earlier messages")
    expect(page.get_by_text("Be careful.")).to_be_hidden()
    expect(page.locator(".turn.is-tool")).to_contain_text("1183")
    expect(page.locator(".turn.is-answer")).to_contain_text("It is 1183.")

    earlier.locator("summary").first.click()

    expect(page.get_by_text("Be careful.")).to_be_visible()
    expect(page.locator("img.picture")).to_be_visible()
    assert page.locator("img.picture").evaluate("(image) => image.decode().then(() => true)")
    expect(page.locator(".tree .literal")).to_contain_text(["12345678901234567890"])  # as sent


def test_a_replay_is_counted_and_leaves_what_one_reads_as_it_is(desk: Desk, page: Page) -> None:
    put_story(desk)
    open_step(page, 1)
    earlier = page.locator(".unfold.earlier")
    earlier.locator("summary").first.click()
    expect(page.get_by_text("Be careful.")).to_be_visible()
    fork = page.locator(".step-verbs").get_by_role("button", name="Fork here")
    fork.focus()
    step = desk.run(desk.store.find_step("s", 1))
    assert step is not None

    note = ReplayNote("s", step.step_id, now_ms(), "exact", 25)
    desk.store.note_replay(note)
    desk.run(desk.store.keep_replays())

    expect(page.locator(".step-facts")).to_contain_text("1, saved $0.000025")
    expect(page.get_by_text("Be careful.")).to_be_visible()
    expect(fork).to_be_focused()


def test_attempts_say_how_each_target_ended(desk: Desk, page: Page) -> None:
    put_story(desk)
    open_step(page, 1)
    tab(page, "Attempts 2")
    table = page.locator(".attempts")
    expect(table).to_contain_text("openai / gpt-4o-mini")
    expect(table).to_contain_text("upstream_error: 503: overloaded")
    expect(table).to_contain_text("openai / rescue")
    expect(page.locator(".note").first).to_contain_text("Asked first: openai/gpt-4o-mini")


def test_two_steps_are_compared_line_by_line(desk: Desk, page: Page) -> None:
    put_story(desk)
    open_step(page, 1)
    tab(page, "Compare")
    lines = page.locator(".diff-line")
    expect(lines.filter(has_text="It is 1183.")).to_have_attribute("data-is", "new")
    page.get_by_label("With the step at index").fill("1")
    button(page, "Compare").click()
    expect(page.get_by_text("They say the same.")).to_be_visible()


def test_an_edited_answer_is_compared_with_the_models(desk: Desk, page: Page) -> None:
    put_story(desk)
    delivered = (
        '{"id":"x","object":"chat.completion","created":1,"model":"gpt-5","choices":[{"index":0,'
        '"message":{"role":"assistant","content":"It is 9."},"finish_reason":"stop"}]}'
    )
    desk.run(desk.store.record_delivered(2, RecordedAnswer(200, (), "body", delivered.encode())))
    open_step(page, 1)
    expect(page.locator(".turn.is-answer").first).to_contain_text("It is 9.")
    tab(page, "Compare")
    lines = page.locator(".diff-line")
    expect(lines.filter(has_text="It is 1183.")).to_have_attribute("data-is", "gone")
    expect(lines.filter(has_text="It is 9.")).to_have_attribute("data-is", "new")


def test_the_raw_step_is_what_is_on_record(desk: Desk, page: Page) -> None:
    put_story(desk)
    open_step(page, 1)
    tab(page, "Raw")
    expect(page.locator(".code.raw").first).to_contain_text('"content": "It is 1183."')
    expect(page.locator(".code.raw").last).to_contain_text('"step_number": 1')


def test_the_keyboard_alone_goes_everywhere(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s")
    title = page.locator(".step h2")
    expect(title).to_have_text("Step 2")
    page.keyboard.press("k")
    expect(title).to_have_text("Step 1")
    page.keyboard.press("g")
    expect(title).to_have_text("Step 0")
    page.keyboard.press("j")
    expect(title).to_have_text("Step 1")
    page.keyboard.press("n")  # the next that failed
    expect(title).to_have_text("Step 2")
    page.keyboard.press("w")
    expect(page.locator(".waterfall .bar-link")).to_have_count(3)
    page.keyboard.press("o")
    expect(page.locator(".step")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Roll back here, to step 2")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Fork here, before step 2")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#tab-conversation")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-attempts")).to_be_focused()
    expect(page.locator("#tab-attempts")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next step that failed")


def test_a_new_step_shows_up_and_who_reads_is_left_alone(desk: Desk, page: Page) -> None:
    desk.run(run_of(desk.store, 3))
    page.goto("#/sessions/s")
    expect(page.locator(".step h2")).to_have_text("Step 2")
    desk.run(run_of(desk.store, 1, first=3))
    expect(page.locator(".step h2")).to_have_text("Step 3")  # it was watched

    page.keyboard.press("k")
    expect(page.locator(".step h2")).to_have_text("Step 2")
    page.locator(".step .turn").first.wait_for()
    mark = "document.querySelector('.turn').dataset.same = 'yes'"
    page.evaluate(mark)
    page.locator("#tab-raw").focus()
    desk.run(run_of(desk.store, 1, first=4))

    expect(rows(page)).to_have_count(5)
    expect(page.locator(".newer")).to_be_visible()
    expect(page.locator(".step h2")).to_have_text("Step 2")
    expect(page.locator(".turn").first).to_have_attribute("data-same", "yes")  # the same node
    expect(page.locator("#tab-raw")).to_be_focused()
    page.locator(".newer").click()
    expect(page.locator(".step h2")).to_have_text("Step 4")


def test_a_step_in_flight_becomes_its_answer(desk: Desk, page: Page) -> None:
    asked = [message("user", "Hello")]
    put_step(desk, asked, None)
    page.goto("#/sessions/s")
    expect(page.get_by_text("No answer yet.")).to_be_visible()
    expect(rows(page)).to_contain_text("in flight")
    desk.run(desk.store.record_answer(checkpoint_of(1)))
    expect(rows(page)).to_contain_text("hello")
    expect(page.get_by_text("No answer yet.")).to_be_hidden()


def test_what_a_model_writes_is_only_ever_text(desk: Desk, page: Page) -> None:
    calls = (call("a", EVIL, '{"a": 1, "a": 2, broken'), call("b", "deep", "[" * 900 + "]" * 900))
    put_step(desk, [message("user", EVIL)], EVIL, calls=calls)
    open_step(page, 0)
    expect(page.locator(".turn.is-answer")).to_contain_text(
        "<script>alert(2)</script> ⟨U+202E⟩evil"
    )
    expect(page.locator(".tool-card").first).to_contain_text('{"a": 1, "a": 2, broken')
    for name in ("Attempts", "Raw", "Compare", "Conversation"):
        tab(page, name)
    assert page.locator("main img, main script").count() == 0


def test_an_answer_of_megabytes_opens_at_once(desk: Desk, page: Page) -> None:
    put_step(desk, [message("user", "Say a lot.")], "long \u202e" * (BIG_CHARS // 6))
    open_step(page, 0)
    answer = page.locator(".turn.is-answer")
    expect(answer).to_contain_text("characters are folded")
    assert len(answer.inner_text()) < 50_000
    answer.get_by_role("button").click()
    assert 200_000 < len(answer.inner_text()) < 3_000_000


def test_on_a_phone_list_and_step_take_turns(desk: Desk, browser: Browser) -> None:
    put_story(desk)
    with open_page(browser, desk.url, **NARROW) as page:
        page.goto("#/sessions/s")
        expect(rows(page)).to_have_count(3)
        expect(page.locator(".step")).to_be_hidden()
        rows(page).nth(1).get_by_role("link").click()
        expect(page.locator(".step h2")).to_have_text("Step 1")
        expect(rows(page).first).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_text("← All steps").click()
        expect(rows(page).first).to_be_visible()


@pytest.fixture
def long(tmp_path: Path) -> Iterator[Proxy]:
    """A proxy over a file with a session of ten thousand steps."""
    path = tmp_path / "record.db"

    async def write() -> None:
        store = SqliteStore(path, durability="normal")
        await store.open()
        for first in range(0, 10_000, 500):
            await asyncio.gather(*(run_of(store, 1, first=first + at) for at in range(500)))
        await store.close()

    # The browser's driver has a loop of its own in this thread.
    with ThreadPoolExecutor() as threads:
        threads.submit(asyncio.run, write()).result()
    with Proxy(upstream_url="http://127.0.0.1:9", db=path, flags=["--mock"]) as proxy:
        yield proxy


@pytest.mark.slow
def test_ten_thousand_steps_scroll(long: Proxy, browser: Browser) -> None:
    with open_page(browser, long.url) as page:
        page.goto("#/sessions/s")
        expect(page.locator(".step h2")).to_have_text("Step 9999")
        assert rows(page).count() < 60
        for share in (0, 0.5, 1, 0.25):
            page.evaluate(
                "(share) => { const it = document.querySelector('.timeline-scroller');"
                "it.scrollTop = share * it.scrollHeight; }",
                share,
            )
            expect(page.locator(".step-row .row-what").nth(10)).to_have_text("hello")
        assert rows(page).count() < 60
        page.keyboard.press("g")
        expect(page.locator(".step h2")).to_have_text("Step 0")
        expect(page.locator(".step-link[aria-current]")).to_be_in_viewport()


def test_figures_of_the_pure_parts(browser: Browser, desk: Desk) -> None:
    with open_page(browser, desk.url) as page:
        page.goto("")

        def run(module: str, code: str) -> Any:
            return page.evaluate(
                f"async () => {{ const it = await import('/dashboard/{module}'); return {code}; }}"
            )

        rows_of = "it.diffLines('a b c d'.split(' '), 'a x c d e'.split(' '))"
        assert run("diff.js", f"{rows_of}.map((row) => row.kind[0] + row.line).join(' ')") == (
            "sa gb nx sc sd ne"
        )
        same = "Array.from({length: 20}, (_, at) => String(at))"
        folded = f"it.foldSame(it.diffLines({same}, [...{same}, 'new']))"
        assert run("diff.js", f"{folded}.map((row) => row.kind).join(' ')") == (
            "fold same same same new"
        )
        assert run("parts/chart.js", "[0, 0.7, 1, 7, 130, 9999].map(it.niceTop)") == [
            1, 0.8, 1, 8, 150, 10_000,
        ]  # fmt: skip
        lanes = "[{from: 0, to: 10}, {from: 5, to: 8}, {from: 8, to: 9}, {from: 10, to: 11}]"
        assert run(
            "parts/waterfall.js",
            f"(() => {{ const bars = {lanes}; const count = it.laneOut(bars);"
            " return [count, ...bars.map((bar) => bar.lane)]; })()",
        ) == [2, 0, 1, 1, 0]
        squeezed = "it.squeeze([{from: 0, to: 100}, {from: 100_000, to: 100_100}], 1000)"
        assert run(
            "parts/waterfall.js",
            f"(() => {{ const place = {squeezed}; return [place.cuts.length, place(0),"
            " place(100_100), place(100_000) < 560]; })()",
        ) == [1, 0, 1000, True]
