"""What a person does to a step and to a session, in a real browser, with mouse and keyboard."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentstate.ground.control import Change, Place
from agentstate.ground.forks import ForkAsk
from agentstate.ground.records import Query
from tests.helpers.browser import button, expect, open_page
from tests.helpers.desk import Desk
from tests.store.contract_control import run_of, session_of
from tests.web.steps import call, message, put_step

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

ARGUMENTS = '{"to": "Oslo", "id": 12345678901234567890}'
NARROW = {"viewport": {"width": 360, "height": 780}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def run(desk: Desk) -> Desk:
    """A desk with a session of three steps, each of which goes on from the one before."""
    made = call("c1", "find", ARGUMENTS)
    asked = [message("user", "Where?")]
    put_step(desk, asked, "Looking.", calls=(made,))
    told = [
        *asked,
        message("assistant", "Looking.", tool_calls=[made]),
        message("tool", "It is far.", tool_call_id="c1"),
    ]
    put_step(desk, told, "It is far.")
    put_step(desk, [*told, message("assistant", "It is far."), message("user", "Go.")], "Gone.")
    return desk


def open_step(page: Page, index: int) -> None:
    page.goto(f"#/sessions/s?index={index}")
    page.locator(".step[aria-busy=false] h2").wait_for()
    expect(page.locator(".step h2")).to_have_text(f"Step {index}")


def verb(page: Page, name: str) -> Locator:
    return page.locator(".step-verbs").get_by_role("button", name=name)


def choose(page: Page, name: str) -> None:
    """Choose a verb of the session."""
    page.get_by_text("More", exact=True).click()
    page.locator(".menu").get_by_role("button", name=name).click()


def texts_of(desk: Desk) -> list[str]:
    """Return what the steps answer that are not rolled back."""
    page = desk.run(desk.store.list_steps(Query(session="s", newest_first=False, limit=99)))
    return [row.text for row in page.rows if row.rolled_back_ms is None]


# --- another answer -------------------------------------------------------------------------------


def test_a_text_is_edited_and_it_is_undone_in_place(run: Desk, page: Page) -> None:
    open_step(page, 1)
    verb(page, "Edit answer of step 1").click()
    dialog = page.get_by_role("dialog")
    button(page, "Answer that").click()
    expect(dialog).to_contain_text("Nothing is edited yet.")
    page.get_by_label("Text").fill("It is near.")
    page.get_by_label("Reason").fill("measured")
    button(page, "Answer that").click()

    expect(dialog).to_contain_text("Step 1 answers that from now on. 1 later step that goes on")
    lines = dialog.locator(".diff-line")
    expect(lines.filter(has_text="It is far.")).to_have_attribute("data-is", "gone")
    expect(lines.filter(has_text="It is near.")).to_have_attribute("data-is", "new")
    assert texts_of(run) == ["Looking.", "It is near."]
    expect(page.locator(".step-link.is-inactive")).to_have_count(1)
    expect(page.locator(".step-head")).to_contain_text("edited")
    expect(page.locator(".rolled")).to_contain_text("The answer at index 1 was edited")

    button(page, "Undo").last.click()
    expect(dialog).to_contain_text("It is as it was before.")
    button(page, "Close").click()
    expect(page.locator(".rolled")).to_be_hidden()
    assert texts_of(run) == ["Looking.", "It is far.", "Gone."]


def test_arguments_are_checked_and_their_numbers_stay(run: Desk, page: Page) -> None:
    open_step(page, 0)
    page.keyboard.press("e")
    dialog = page.get_by_role("dialog")
    part = page.get_by_label("What to edit")
    expect(part).to_have_value("0")
    part.select_option(label="Arguments of find")
    dialog.get_by_role("button", name="JSON").click()
    dialog.locator("textarea").fill("[1]")
    button(page, "Answer that").click()
    expect(dialog).to_contain_text("must be a JSON object")
    dialog.locator("textarea").fill('{"to": 5}')
    button(page, "Answer that").click()
    expect(dialog).to_contain_text("do not fit the tool: at arguments.to expected")
    dialog.locator("textarea").fill(ARGUMENTS)
    dialog.get_by_role("button", name="Fields").click()
    page.get_by_label("to", exact=True).fill("Bergen")
    button(page, "Answer that").click()
    expect(dialog).to_contain_text("2 later steps that go on from the old answer are taken back")
    step = run.run(run.store.find_step("s", 0))
    assert step is not None
    answer = run.run(run.store.read_answer(step.step_id))
    assert answer is not None
    sent = json.loads(answer.content)["choices"][0]["message"]["tool_calls"][0]["function"]
    assert sent["arguments"].replace(" ", "") == (
        ARGUMENTS.replace("Oslo", "Bergen").replace(" ", "")
    )


def test_a_step_is_asked_again_and_all_its_answers_are_shown(run: Desk, page: Page) -> None:
    open_step(page, 2)
    page.keyboard.press("r")
    dialog = page.get_by_role("dialog")
    expect(page.get_by_role("textbox", name="Model")).to_be_focused()
    page.keyboard.type("mock/hello")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("in 1 try. No later step goes on from the old answer.")
    expect(dialog.locator(".diff-line").filter(has_text="Gone.")).to_have_attribute(
        "data-is", "gone"
    )
    button(page, "Close").click()

    page.get_by_role("tab", name="Answers 2").click()
    table = page.get_by_role("region", name="Answers")
    expect(table).to_contain_text("1. From the model")
    expect(table.locator("tr").last).to_contain_text("2. Asked again stands")
    lines = page.locator(".diff-place .diff-line")
    expect(lines.filter(has_text="Gone.")).to_have_attribute("data-is", "gone")
    page.get_by_label("Compare").select_option("1")
    expect(page.locator(".diff-place")).to_have_text("They say the same.")

    page.locator(".rolled").get_by_role("button", name="Undo").click()
    expect(page.locator(".rolled")).to_be_hidden()
    assert texts_of(run)[-1] == "Gone."


def test_another_request_is_sent_as_it_is_typed(run: Desk, page: Page) -> None:
    open_step(page, 2)
    verb(page, "Rerun step 2").click()
    page.get_by_label("Edit the request").check()
    area = page.get_by_label("Request", exact=True)
    expect(area).to_have_value(re.compile('"messages"'))
    area.fill("{broken")
    button(page, "Ask again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This is not JSON")
    sent = '{"model": "mock/hello", "messages": [{"role": "user", "content": "Hi"}], "seed": 1e2}'
    area.fill(sent)
    with page.expect_request("**/rerun") as asked:
        button(page, "Ask again").click()
    assert sent in (asked.value.post_data or "")
    expect(dialog).to_contain_text("in 1 try.")


def test_what_cannot_be_asked_is_said_and_nothing_changes(run: Desk, page: Page) -> None:
    open_step(page, 2)
    page.keyboard.press("r")
    button(page, "Ask again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("No provider")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert texts_of(run) == ["Looking.", "It is far.", "Gone."]


def test_what_is_rolled_back_is_neither_edited_nor_asked_again(run: Desk, page: Page) -> None:
    run.run(run.store.roll_back("s", Place(index=2), at_ms=1))
    open_step(page, 2)
    expect(verb(page, "Fork here")).to_be_visible()
    for name in ("Edit", "Rerun", "Roll back"):
        expect(verb(page, name)).to_have_count(0)


# --- another session ------------------------------------------------------------------------------


def test_a_fork_says_what_it_shares_and_leads_there(run: Desk, page: Page) -> None:
    open_step(page, 2)
    page.keyboard.press("f")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It shares 2 steps before step 2")
    page.get_by_label("Id of the new session").fill("mine")
    page.get_by_label("Name").fill("My try")
    button(page, "Fork").click()

    expect(page.locator("h1")).to_have_text("mine")
    expect(page.locator(".step-row")).to_have_count(2)
    expect(page.locator(".about").first).to_contain_text(
        "forked from s before index 2, 2 steps shared"
    )
    page.get_by_role("link", name="s", exact=True).click()
    expect(page.locator("h1")).to_have_text("s")
    page.get_by_role("link", name="Forks of it").click()
    expect(page.locator(".row")).to_have_count(1)
    expect(page.locator(".chip")).to_contain_text("forked from s")


def test_a_name_that_is_taken_is_said(run: Desk, page: Page) -> None:
    page.goto("#/sessions/s")
    choose(page, "Fork all of it")
    expect(page.get_by_role("dialog")).to_contain_text("It shares 3 steps,")
    page.get_by_label("Id of the new session").fill("s")
    button(page, "Fork").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()
    button(page, "Cancel").click()


def test_a_deletion_says_first_what_goes(run: Desk, page: Page) -> None:
    run.run(run.store.fork_session("s", ForkAsk(session="mine"), at_ms=1))
    page.goto("#/sessions/s")
    choose(page, "Delete")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 steps would go")
    expect(dialog).to_contain_text("1 fork of it would stay: mine.")
    button(page, "Cancel").click()
    assert run.run(run.store.read_session("s")) is not None

    choose(page, "Delete")
    button(page, "Delete for good").click()
    expect(page.locator("h1")).to_have_text("Sessions")
    expect(page.locator(".row-link")).to_have_text(["mine"])
    assert run.run(run.store.read_session("s")) is None


def test_caps_are_shown_and_set(run: Desk, page: Page) -> None:
    page.goto("#/sessions/s")
    choose(page, "Budget")
    dialog = page.get_by_role("dialog")
    row = dialog.get_by_role("row", name="Steps")
    expect(row).to_contain_text("none3")
    button(page, "Set").click()
    expect(dialog).to_contain_text("Nothing is changed yet.")
    page.get_by_label("Cost in $").fill("much")
    button(page, "Set").click()
    expect(dialog).to_contain_text("Cost in $: a number is needed")
    page.get_by_label("Cost in $").fill("0.5")
    page.get_by_role("textbox", name="Steps").fill("10")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("It is set.")
    expect(row).to_contain_text("1037person")
    page.get_by_role("textbox", name="Steps").fill("-1")
    button(page, "Set").click()
    expect(dialog.get_by_role("alert")).to_contain_text("steps")
    button(page, "Forget what was set here").click()
    expect(row).to_contain_text("none3")


def test_a_cassette_is_taken(run: Desk, page: Page) -> None:
    page.goto("#/sessions/s")
    choose(page, "Cassette")
    with page.expect_download() as started:
        button(page, "Download").click()
    assert started.value.suggested_filename == "s.jsonl"
    lines = Path(started.value.path()).read_text(encoding="utf-8").splitlines()
    assert len(lines) > 4
    assert [json.loads(line) for line in lines]
    expect(page.get_by_role("dialog")).to_contain_text("s.jsonl: ")


def test_who_gave_a_session_its_status_is_shown(run: Desk, page: Page) -> None:
    change = Change(status="FAILED")
    run.run(run.store.change_session("s", change, at_ms=1, reason="no \u202egood", by="Ann"))
    page.goto("#/sessions/s")
    expect(page.locator(".status-why")).to_contain_text("by Ann: no ⟨U+202E⟩good")


def test_what_is_done_is_signed_with_the_name_that_was_given(run: Desk, page: Page) -> None:
    page.goto("#/approvals")
    page.get_by_label("You decide as").fill("Ann")
    page.keyboard.press("Tab")
    page.goto("#/sessions/s")
    button(page, "Complete").click()
    expect(page.locator(".status-why")).to_contain_text("Completed")
    assert run.run(session_of(run.store)).status_by == "Ann"


def test_the_keyboard_alone_reaches_the_menu(run: Desk, page: Page) -> None:
    page.goto("#/sessions/s")
    more = page.locator(".menu > summary")
    more.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator(".menu").get_by_role("button", name="Budget")).to_be_focused()
    page.keyboard.press("Escape")
    expect(more).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Budget")
    page.keyboard.press("j")  # keys of the page rest
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(more).to_be_focused()


def test_on_a_phone_dialogs_fit(desk: Desk, browser: Browser) -> None:
    desk.run(run_of(desk.store, 3))
    with open_page(browser, desk.url, **NARROW) as page:
        page.goto("#/sessions/s")
        for name in ("Budget", "Fork all of it", "Cassette", "Delete"):
            choose(page, name)
            box = page.get_by_role("dialog").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 360
            page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
