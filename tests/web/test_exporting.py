"""Taking runs as training data from the dashboard, in a real browser: filters, preview, findings,
file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.clock import now_ms
from agentstate.ground.control import Change
from tests.helpers.browser import button, expect, open_page
from tests.helpers.desk import Desk
from tests.helpers.runs import TOOL, call, record, record_run, say
from tests.helpers.training_lines import faults, split_lines

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

ODD = "a/b <img src=x>"
HOSTILE = "<img src=x onerror=alert(1)> \u202egnp.exe"


def lines(page: Page) -> Locator:
    return page.locator(".exported")


def said(page: Page) -> Locator:
    """What is said of the preview."""
    return page.locator(".export-result section > [role=status]")


def download(page: Page, name: str = "Download") -> tuple[str, bytes]:
    """Click and return the file's name and content."""
    with page.expect_download() as started:
        page.get_by_role("link", name=name, exact=True).click()
    path = Path(started.value.path())
    return started.value.suggested_filename, path.read_bytes()


def query_of(page: Page) -> dict[str, list[str]]:
    """What the address says."""
    return parse_qs(page.evaluate("location.hash").partition("?")[2])


def record_runs(desk: Desk, count: int) -> None:
    for number in range(count):
        desk.run(record_run(desk.store, session=f"run-{number}", asks=f"{number}?"))


def test_a_session_is_taken_in_the_form_that_was_chosen(desk: Desk, page: Page) -> None:
    desk.run(record_run(desk.store, session=ODD))
    desk.run(record_run(desk.store, session="another", asks="x"))
    page.goto("#/sessions")
    page.get_by_role("link", name=ODD).click()

    page.get_by_role("link", name="Export", exact=True).last.click()
    expect(page.get_by_label("Only this session")).to_have_value(ODD)
    expect(page.get_by_label("Form")).to_have_value("openai")
    first = download(page)
    page.get_by_label("Form").select_option("trl")
    second = download(page)

    for (name, data), form in ((first, "openai"), (second, "trl")):
        assert name == f"a-b-img-src-x-{form}.jsonl"
        [line] = split_lines(data)
        assert faults(line, form) == ()
    assert json.loads(first[1])["messages"][1]["content"] == "weather?"


def test_the_list_hands_on_what_it_shows(desk: Desk, page: Page) -> None:
    record_runs(desk, 3)
    tagged = Change(name="Invoices", tags=(("team", "ops"),))
    desk.run(desk.store.change_session("run-1", tagged, at_ms=now_ms()))
    page.goto("#/sessions?tag=team%3Dops&status=RUNNING")
    page.get_by_label("Find").fill("inv")
    expect(page.locator(".row-link")).to_have_text(["run-1"])

    page.get_by_role("link", name="Export", exact=True).last.click()

    expect(lines(page)).to_have_count(1)
    assert query_of(page) == {"search": ["inv"], "status": ["RUNNING"], "tag": ["team=ops"]}
    expect(page.get_by_label("Tag")).to_have_value("team=ops")
    [line] = split_lines(download(page)[1])
    assert json.loads(line)["messages"][1]["content"] == "1?"
    page.get_by_role("link", name="Without filters").click()
    expect(lines(page)).to_have_count(3)
    expect(page.get_by_label("Tag")).to_have_value("")


def test_every_filter_stands_in_the_address_and_reaches_the_file(desk: Desk, page: Page) -> None:
    desk.run(record_run(desk.store))
    wanted = {
        "format": "axolotl",
        "search": "s",
        "status": "FAILED",
        "tag": "a=b",
        "session": "s",
        "parent": "boss",
        "forked_from": "first",
        "since": "2026-01-01T00:00:00.000Z",
        "until": "2026-02-01T00:00:00.000Z",
        "model": "gpt-*",
        "tool": "send_*",
        "cost_max_usd": "0.25",
        "touched": "1",
        "include": "failed,cut,rolled_back,replaced",
        "dedupe": "0",
        "images": "1",
        "split": "0.1",
        "seed": "7",
    }
    query = page.evaluate("wanted => new URLSearchParams(wanted).toString()", wanted)
    page.goto(f"#/export?{query}")
    expect(page.get_by_role("link", name="Download to train")).to_have_attribute(
        "href", f"/api/sessions/s/export?{_without(query, 'session')}&part=train"
    )

    page.get_by_label("Seed").fill("8")  # what is read back from the controls is what was there

    expect(page.get_by_role("link", name="Download to validate")).to_have_attribute(
        "href",
        f"/api/sessions/s/export?{_without(query, 'session').replace('seed=7', 'seed=8')}"
        "&part=validation",
    )
    assert query_of(page) == {name: [value] for name, value in {**wanted, "seed": "8"}.items()}


def _without(query: str, name: str) -> str:
    return "&".join(pair for pair in query.split("&") if not pair.startswith(f"{name}="))


def test_times_are_those_of_the_reader(desk: Desk, browser: Browser) -> None:
    desk.run(record_run(desk.store))
    with open_page(browser, desk.url, timezone_id="America/New_York") as page:
        page.goto("#/export")
        page.get_by_label("From", exact=True).fill("2026-07-01T09:30")
        expect(said(page)).not_to_have_text("Reading…")
        expect(page.get_by_role("link", name="Download")).to_have_attribute(
            "href", "/api/export/dataset?format=openai&since=2026-07-01T13%3A30%3A00.000Z"
        )
        page.reload()
        expect(page.get_by_label("From", exact=True)).to_have_value("2026-07-01T09:30")


def test_a_preview_shows_ten_lines_as_conversations(desk: Desk, page: Page) -> None:
    record_runs(desk, 11)
    page.goto("#/export")

    expect(lines(page)).to_have_count(10)
    expect(said(page)).to_have_text("The first 10 lines; there are more.")
    expect(lines(page).first).to_contain_text("1 · 0? → It is 5 C. · 5 messages")
    lines(page).first.locator("summary").first.click()

    shown = lines(page).first
    expect(shown.get_by_role("heading")).to_have_text(
        ["System", "User", "Assistant", "Tool", "Assistant"]
    )
    expect(shown.locator(".tool-card").first).to_contain_text("Bern")
    shown.get_by_text("1 tool").click()
    expect(shown.locator(".tree").last).to_contain_text("get_weather")
    shown.get_by_text("The line as it stands").click()
    expect(shown.locator(".raw")).to_contain_text('{"messages":[{"role":"system"')


def test_the_lines_of_every_form_can_be_read(desk: Desk, page: Page) -> None:
    (held,) = desk.hold(("send_email", '{"n": 12345678901234567890}'))
    desk.decide(held, Decision(True, "Ann", arguments='{"n": 12345678901234567891}'))
    for form, headings in (
        ("dpo", ["User", "Preferred", "Assistant", "Not preferred", "Assistant"]),
        ("kto", ["User", "Approved", "Assistant"]),
        ("trl", ["User", "Assistant"]),
    ):
        page.goto(f"#/export?format={form}&include=failed,cut")
        expect(page.get_by_label("Form")).to_have_value(form)
        lines(page).first.locator("summary").first.click()
        expect(lines(page).first.get_by_role("heading")).to_have_text(headings)
        # No digit of a number is lost, though TRL's forms have it as a number.
        expect(lines(page).first.locator(".tool-card").first).to_contain_text("1234567890123456789")


def test_what_a_model_wrote_is_only_text(desk: Desk, page: Page) -> None:
    desk.run(record(desk.store, [say(HOSTILE)], say(HOSTILE, "assistant")))
    page.goto("#/export")
    lines(page).first.locator("summary").first.click()

    expect(lines(page).first).to_contain_text("<img src=x onerror=alert(1)> ⟨U+202E⟩gnp.exe")
    expect(page.locator(".exported img")).to_have_count(0)


def test_findings_are_counted_and_lead_to_their_steps(desk: Desk, page: Page) -> None:
    desk.run(record_run(desk.store))
    key = "sk-" + "a1B2" * 10
    desk.run(record(desk.store, [say(f"use {key}")], call("call_5")))
    desk.run(record(desk.store, [say("x")], call("call_6", '{"'), tools=[TOOL], session="odd"))
    page.goto("#/export")

    facts = page.locator(".findings .facts > div")
    expect(facts).to_contain_text(["Lines2", "Size", "Tokens", "Sessions2", "0", "1: openai key"])
    expect(page.locator(".findings .table tbody tr")).to_have_text(
        ["tool addedmended1", "arguments jsoncosts its line1"]
    )
    page.get_by_text("Where they are").click()
    expect(page.locator(".found-lines li")).to_contain_text(
        ["s · line 2A tool that is called was not offered. tools · mended", "odd · no line"]
    )
    page.locator(".found-lines").get_by_role("link", name="odd").click()
    expect(page.locator(".step h2")).to_have_text("Step 0")


def test_more_than_the_preview_is_checked_on_demand(desk: Desk, page: Page) -> None:
    record_runs(desk, 11)
    page.goto("#/export")
    expect(lines(page)).to_have_count(10)
    expect(page.locator(".findings .facts")).to_have_count(0)

    button(page, "Check all of it").click()

    expect(page.locator(".findings .facts > div").first).to_have_text("Lines11")
    expect(page.get_by_text("The linter found nothing.")).to_be_visible()
    page.get_by_label("Form").select_option("dpo")
    expect(page.get_by_text("Nothing of it is an example of this form.")).to_be_visible()
    expect(said(page)).to_have_text("No line is like that.")
    page.goto("#/export?status=COMPLETED")
    page.get_by_text("What stays out").click()
    expect(page.get_by_role("table", name="What stays out").locator("tbody")).to_have_text(
        "sessions that the filters leave out11"
    )


def test_only_so_many_findings_are_listed(desk: Desk, page: Page) -> None:
    for number in range(60):
        desk.run(record(desk.store, [say(f'{number} "]}}')], call("c"), session=f"s{number}"))
    page.goto("#/export")
    button(page, "Check all of it").click()
    page.get_by_text("Where they are").click()

    expect(page.locator(".found-lines li")).to_have_count(50)
    expect(page.locator(".places")).to_contain_text("The first 50;")


def test_a_split_is_two_files(desk: Desk, page: Page) -> None:
    record_runs(desk, 12)
    page.goto("#/export")
    page.get_by_label("Share to validate").fill("0.5")

    train = download(page, "Download to train")
    rest = download(page, "Download to validate")

    assert train[0] == "agentstate-openai.train.jsonl"
    assert rest[0] == "agentstate-openai.validation.jsonl"
    assert len(split_lines(train[1])) + len(split_lines(rest[1])) == 12
    button(page, "Check all of it").click()
    expect(page.locator(".findings .facts > div").first).to_contain_text(
        f"To train / validate{len(split_lines(train[1]))} / {len(split_lines(rest[1]))}"
    )


def test_what_is_no_filter_is_refused_in_words(desk: Desk, page: Page) -> None:
    desk.run(record_run(desk.store))
    page.goto("#/export")
    expect(lines(page)).to_have_count(1)

    page.get_by_label("Cost at most").fill("cheap")

    expect(page.get_by_role("alert").first).to_contain_text("cost_max_usd must be an amount")
    expect(lines(page)).to_have_count(0)
    page.get_by_label("Cost at most").fill("1")
    expect(lines(page)).to_have_count(1)
    expect(page.locator(".notice")).to_be_hidden()


def test_a_check_that_fails_says_so(desk: Desk, page: Page) -> None:
    record_runs(desk, 11)
    page.goto("#/export")
    expect(lines(page)).to_have_count(10)
    page.route("**/dataset?*manifest=1", lambda route: route.abort())

    button(page, "Check all of it").click()

    expect(page.locator(".export-result .fault")).to_contain_text("It could not be checked.")


def test_a_form_without_a_mouse(desk: Desk, page: Page) -> None:
    record_runs(desk, 3)
    desk.run(record_run(desk.store, session="other", asks="the other?"))
    page.goto("#/sessions")
    page.get_by_role("heading", name="Sessions").wait_for()

    page.keyboard.press("E")
    expect(page.get_by_role("heading", name="Export")).to_be_visible()
    expect(lines(page)).to_have_count(4)
    page.keyboard.press("/")
    page.keyboard.type("other")
    expect(lines(page)).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(lines(page).first.get_by_role("heading")).to_have_count(5)
    page.keyboard.press("c")
    expect(page.locator(".findings .facts > div").first).to_have_text("Lines1")
    with page.expect_download() as started:
        page.keyboard.press("d")
    [line] = split_lines(Path(started.value.path()).read_bytes())
    assert json.loads(line)["messages"][1]["content"] == "the other?"


def test_filters_are_folded_where_there_is_no_room(desk: Desk, browser: Browser) -> None:
    desk.run(record_run(desk.store))
    with open_page(browser, desk.url, viewport={"width": 360, "height": 740}) as page:
        page.goto("#/export?model=gpt-*&tool=get_*")
        expect(lines(page)).to_have_count(1)
        groups = page.locator(".export-group > summary")
        expect(groups).to_have_text(["Sessions ", "Conversations · 2 set", "Also ", "Split "])
        expect(page.get_by_label("Model")).to_be_visible()
        expect(page.get_by_label("Tag")).to_be_hidden()
        page.keyboard.press("/")
        expect(page.get_by_label("Id or name")).to_be_focused()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_with_nothing_on_record_there_is_nothing_to_take(desk: Desk, page: Page) -> None:
    page.goto("#/sessions")

    expect(page.get_by_role("heading", name="No session yet")).to_be_visible()
    expect(page.locator(".export-link")).to_be_hidden()
    page.goto("#/export")
    expect(said(page)).to_have_text("No line is like that.")
