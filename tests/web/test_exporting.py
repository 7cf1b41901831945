"""Taking runs as training data from the dashboard, in a real browser: form, check, file."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.browser import button, expect
from tests.helpers.desk import Desk
from tests.helpers.runs import TOOL, call, record, record_run, say
from tests.helpers.training_lines import faults, split_lines

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

ODD = "a/b <img src=x>"


def put(desk: Desk, work: Coroutine[Any, Any, Any]) -> None:
    """Do something to the record."""
    desk.run(work)


def open_control(page: Page) -> None:
    page.locator(".export > summary", has_text="Export").click()


def download(page: Page) -> tuple[str, bytes]:
    """Click and return the file's name and content."""
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").click()
    path = Path(started.value.path())
    return started.value.suggested_filename, path.read_bytes()


def test_a_session_is_taken_in_the_form_that_was_chosen(desk: Desk, page: Page) -> None:
    put(desk, record_run(desk.store, session=ODD))
    page.goto("#/sessions")
    page.get_by_role("link", name=ODD).click()

    open_control(page)
    expect(page.get_by_label("This session as training data for")).to_have_value("openai")
    first = download(page)
    page.get_by_label("This session as training data for").select_option("trl")
    second = download(page)

    for (name, data), form in ((first, "openai"), (second, "trl")):
        assert name == f"a-b-img-src-x-{form}.jsonl"
        [line] = split_lines(data)
        assert faults(line, form) == ()
    assert json.loads(first[1])["messages"][1]["content"] == "weather?"


def test_all_sessions_are_one_file(desk: Desk, page: Page) -> None:
    for name in ("a", "b"):
        put(desk, record_run(desk.store, session=name, asks=name))
    page.goto("#/sessions")

    open_control(page)
    name, data = download(page)

    assert name == "agentstate-openai.jsonl"
    assert len(split_lines(data)) == 2


def test_a_check_says_what_would_be_in_it(desk: Desk, page: Page) -> None:
    put(desk, record_run(desk.store))
    key = "sk-" + "a1B2" * 10
    put(desk, record(desk.store, [say(f"use {key}")], call("call_5")))
    put(desk, record(desk.store, [say("x")], call("call_6", '{"'), tools=[TOOL]))
    page.goto("#/sessions/s")
    open_control(page)

    button(page, "Check").click()

    said = page.locator(".export-said")
    expect(said).to_contain_text("2 lines, about ")
    expect(said).to_contain_text("1 line mended: tool_added 1.")
    expect(said).to_contain_text("1 line could not be saved: arguments_json 1.")
    expect(said).to_contain_text("1 secret taken out.")
    page.get_by_label("This session as training data for").select_option("dpo")
    expect(said).to_be_empty()
    button(page, "Check").click()
    expect(said).to_have_text("Nothing of it is an example of this form.")


def test_a_check_that_fails_says_so(desk: Desk, page: Page) -> None:
    put(desk, record_run(desk.store))
    page.goto("#/sessions/s")
    open_control(page)
    page.route("**/export?*manifest=1", lambda route: route.abort())

    button(page, "Check").click()

    expect(page.locator(".export .fault")).to_contain_text("It could not be checked.")
    expect(button(page, "Check")).to_be_enabled()


def test_with_nothing_on_record_there_is_nothing_to_take(desk: Desk, page: Page) -> None:
    page.goto("#/sessions")

    expect(page.get_by_role("heading", name="No session yet")).to_be_visible()
    expect(page.locator(".export")).to_be_hidden()


def test_the_control_takes_keys_alone(desk: Desk, page: Page) -> None:
    put(desk, record_run(desk.store))
    page.goto("#/sessions/s")
    page.locator(".export > summary", has_text="Export").focus()

    page.keyboard.press("Enter")
    page.keyboard.press("Tab")

    expect(page.get_by_label("This session as training data for")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Download")).to_be_focused()
    page.keyboard.press("Tab")
    expect(button(page, "Check")).to_be_focused()
