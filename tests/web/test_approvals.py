"""The approvals: the list, the address, the keys, and news while somebody works, in a real browser.

The desk behind the page is real as well, gate and record included: what a test compares is what is
on record, so what an agent would get.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.clock import now_ms
from tests.helpers.browser import button, expect, open_page
from tests.helpers.desk import MAIL, Desk
from tests.web.acts import items, open_approvals, settle

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

pytestmark = pytest.mark.browser

NARROW = {"width": 360, "height": 800}


# -- the list


def test_what_waits_is_listed_the_first_asked_first_and_opened(desk: Desk, page: Page) -> None:
    desk.hold(("send_email", MAIL), session="one", why="the amount is high")
    desk.hold(("delete_database", '{"name": "prod"}'), session="two")

    open_approvals(page)

    expect(page.locator(".row-tool")).to_have_text(["send_email", "delete_database"])
    expect(page.locator(".row-where")).to_have_text(["one · step 0", "two · step 0"])
    expect(items(page).first).to_have_attribute("aria-current", "true")
    expect(page.locator(".detail h2")).to_have_text("send_email")
    detail = page.locator(".detail")
    expect(detail.locator(".source").first).to_contain_text("one · step 0 · gpt-5 · asked ")
    expect(detail).to_contain_text("Held by gate.tools: send_email: the amount is high")
    expect(detail.locator(".left")).to_contain_text(re.compile(r"59 min \d+ s left"))
    expect(detail.locator(".raw")).to_have_text(MAIL)
    detail.get_by_text("What the model was asked").click()
    expect(detail.locator(".said")).to_have_text("Remind Acme of invoice 1183.")


def test_the_bar_the_title_and_the_icon_count_what_waits_on_every_view(
    desk: Desk, page: Page
) -> None:
    page.goto("#/sessions")
    expect(page.locator(".count")).to_be_hidden()
    expect(page).to_have_title("Sessions · AgentState")

    desk.hold()
    desk.hold()
    desk.hold(deadline_ms=now_ms() - 1)  # expired: nobody waits for it

    expect(page.locator(".count")).to_have_text("2")
    expect(page).to_have_title("(2) Sessions · AgentState")
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("%3E2%3C"))
    expect(page.get_by_role("link", name="Approvals , 2 waiting")).to_be_visible()


def test_with_nothing_to_decide_the_page_says_how_the_gate_is_set(desk: Desk, page: Page) -> None:
    open_approvals(page)

    expect(page.get_by_role("heading", name="Nothing waits for a decision")).to_be_visible()
    expect(page.locator(".first")).to_contain_text("[[gate.rule]]")
    expect(page.locator(".first")).to_contain_text(f"curl {desk.url}/v1/chat/completions")
    expect(page.get_by_role("link", name="Rejected")).to_be_visible()

    desk.hold()

    expect(page.locator(".detail h2")).to_have_text("send_email")
    expect(page.locator(".first")).to_be_hidden()


def test_an_expired_one_is_marked_and_can_still_be_decided(desk: Desk, page: Page) -> None:
    (expired,) = desk.hold(deadline_ms=now_ms() - 1)

    open_approvals(page)

    expect(page.locator(".row-when")).to_have_text("Expired")
    expect(page.locator(".left")).to_have_text("Nobody decided in time")
    expect(page.locator(".decision")).to_contain_text("A decision still counts")
    settle(page, "send_email")
    button(page, "Approve").click()
    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(expired).is_approved


def test_the_time_left_goes_down(desk: Desk, page: Page) -> None:
    page.clock.install()
    desk.hold(deadline_ms=now_ms() + 50_000)
    open_approvals(page)
    left = page.locator(".detail .left")
    expect(left).to_have_text(re.compile(r"^\d+ s left$"))
    expect(left).to_have_class(re.compile("is-urgent"))
    # News would bring the server's time, which goes on as it does.
    page.route("**/api/approvals/pending", lambda route: route.abort())
    before_s = seconds_of(left)

    page.clock.run_for(10_000)

    assert seconds_of(left) <= before_s - 9
    assert seconds_of(page.locator(".row-when")) <= before_s - 9

    page.clock.run_for(50_000)

    expect(left).to_have_text("Nobody decided in time")
    expect(page.locator(".row-when")).to_have_text("Expired")


def seconds_of(shown: Locator) -> int:
    """Return the seconds of a text such as "41 s left"."""
    return int((shown.text_content() or "").split()[0])


def test_the_time_left_is_by_the_servers_clock(desk: Desk, page: Page) -> None:
    page.clock.install(time=now_ms() / 1000 + 3600)  # this one's runs an hour ahead
    desk.hold(deadline_ms=now_ms() + 50_000)

    open_approvals(page)

    expect(page.locator(".detail .left")).to_have_text(re.compile(r"^\d\d s left$"))


def test_one_of_several_calls_of_an_answer_names_the_others(desk: Desk, page: Page) -> None:
    desk.hold(("send_email", MAIL), ("delete_database", "{}"))
    open_approvals(page)

    expect(page.locator(".others")).to_have_text("The same answer also waits for: delete_database")
    page.locator(".others a").click()

    expect(page.locator(".detail h2")).to_have_text("delete_database")
    expect(page.locator(".others")).to_have_text("The same answer also waits for: send_email")


def test_an_address_opens_one_approval_and_back_goes_back(desk: Desk, page: Page) -> None:
    (first,) = desk.hold()
    (second,) = desk.hold(("stripe_charge", '{"amount": 5}'))

    open_approvals(page, f"/{second}")
    expect(page.locator(".detail h2")).to_have_text("stripe_charge")
    items(page).first.click()
    expect(page.locator(".detail h2")).to_have_text("send_email")
    assert page.url.endswith(f"#/approvals/{first}")
    page.go_back()

    expect(page.locator(".detail h2")).to_have_text("stripe_charge")


def test_an_approval_that_is_not_there_is_said_to_be_missing(page: Page) -> None:
    open_approvals(page, "/apr_gone")

    expect(page.locator(".detail")).to_contain_text("There is no approval 'apr_gone'.")


def test_what_was_decided_is_behind_a_filter(desk: Desk, page: Page) -> None:
    (yes,) = desk.hold(("send_email", '{"to": "x@y.example"}'))
    (no,) = desk.hold(("delete_database", "{}"))
    desk.hold(("stripe_charge", "{}"))
    desk.decide(yes, Decision(True, "Ann", arguments='{"to": "z@y.example"}'))
    desk.decide(no, Decision(False, "Bob", "Never on a Friday.", then="continue"))

    open_approvals(page)
    expect(page.locator(".row-tool")).to_have_text(["stripe_charge"])
    page.get_by_role("link", name="Approved").click()

    expect(page.locator(".row-tool")).to_have_text(["send_email"])
    outcome = page.locator(".outcome")
    expect(outcome).to_contain_text("Approved with edits by Ann · just now")
    expect(page.get_by_label("to", exact=True)).to_have_value("z@y.example")
    expect(page.get_by_label("to", exact=True)).not_to_be_editable()
    expect(page.locator(".raw")).to_have_text('{"to": "x@y.example"}')
    expect(page.locator(".decision")).to_be_hidden()

    page.get_by_role("link", name="Rejected").click()

    expect(page.locator(".row-tool")).to_have_text(["delete_database"])
    expect(outcome).to_contain_text("Rejected by Bob · just now")
    expect(outcome).to_contain_text("The model was told.")
    expect(outcome).to_contain_text("Never on a Friday.")

    page.get_by_role("link", name="All", exact=True).click()
    expect(page.locator(".row-tool")).to_have_count(3)


def test_a_long_list_of_decided_ones_is_shown_in_pages(desk: Desk, page: Page) -> None:
    for _ in range(60):
        desk.decide(desk.hold()[0], Decision(True, None))

    open_approvals(page, "?status=APPROVED")
    expect(items(page)).to_have_count(50)
    button(page, "Show more").click()

    expect(items(page)).to_have_count(60)
    expect(button(page, "Show more")).to_be_hidden()


def test_a_session_links_to_its_own_approvals(desk: Desk, page: Page) -> None:
    desk.hold(("send_email", MAIL), session="a & b")
    desk.hold(("delete_database", "{}"), session="other")

    page.goto("#/sessions/a%20%26%20b")
    expect(page.locator(".head .badge")).to_have_text("Waiting")
    expect(page.locator(".row-marks")).to_contain_text("held")
    expect(page.locator(".note[data-is=waiting]")).to_have_text("send_email waiting")
    expect(page.locator(".waiting:visible")).to_contain_text("1 call held for a decision.")
    page.get_by_role("link", name="Decide").click()

    expect(page.locator(".row-tool")).to_have_text(["send_email"])
    expect(page.locator(".only")).to_contain_text("Only of a & b")
    page.get_by_role("link", name="Show all").click()
    expect(items(page)).to_have_count(2)


# -- keys


def test_all_of_it_works_from_the_keyboard(desk: Desk, page: Page) -> None:
    tools = ("send_email", "stripe_charge", "delete_database")
    ids = [desk.hold((tool, '{"to": "a"}'))[0] for tool in tools]
    open_approvals(page)
    settle(page, "send_email")

    page.keyboard.press("j")
    expect(page.locator(".detail h2")).to_have_text("stripe_charge")
    page.keyboard.press("j")
    page.keyboard.press("j")  # at the end it stays
    expect(page.locator(".detail h2")).to_have_text("delete_database")
    page.keyboard.press("k")
    settle(page, "stripe_charge")
    page.keyboard.press("a")
    settle(page, "delete_database")
    assert desk.decision(ids[1]) == Decision(True, None)

    page.keyboard.press("e")
    expect(page.get_by_label("to", exact=True)).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type("jar")  # no keys while typing
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    settle(page, "send_email")
    assert desk.decision(ids[2]).arguments == '{"to": "ajar"}'

    page.keyboard.press("r")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("No.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(ids[0]) == Decision(False, None, "No.", None, "stop")


def test_a_key_held_down_decides_once(desk: Desk, page: Page) -> None:
    ids = [desk.hold()[0] for _ in range(2)]
    open_approvals(page)
    settle(page, "send_email")

    page.keyboard.down("a")
    expect(items(page)).to_have_count(1)
    settle(page, "send_email")
    page.keyboard.down("a")  # comes as a repeat
    page.keyboard.up("a")
    page.keyboard.press("e")
    expect(page.get_by_label("to", exact=True)).to_be_focused()

    assert desk.read(ids[1]).decision is None


def test_the_sheet_of_keys_opens_and_closes(desk: Desk, page: Page) -> None:
    (held,) = desk.hold()
    open_approvals(page)
    settle(page, "send_email")

    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    expect(sheet).to_contain_text("Approve, with the edits if there are any")
    page.keyboard.press("a")  # not while the sheet is in front
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    page.get_by_role("button", name="Keys").click()
    button(page, "Close").click()

    expect(sheet).to_be_hidden()
    assert desk.read(held).decision is None


# -- news while somebody works


def test_news_takes_neither_what_is_typed_nor_the_place(desk: Desk, page: Page) -> None:
    fields = ", ".join(f'"field{number}": "value"' for number in range(30))
    desk.hold(("send_email", f"{{{fields}}}"))
    open_approvals(page)
    settle(page, "send_email")
    field = page.get_by_label("field25", exact=True)
    field.click()
    page.keyboard.press("Home")
    page.keyboard.type("abc")
    before = page.evaluate("scrollY")
    assert before > 0

    for _ in range(2):
        desk.hold(("delete_database", "{}"))
    expect(items(page)).to_have_count(3)
    page.keyboard.type("def")

    expect(field).to_have_value("abcdefvalue")
    expect(field).to_be_focused()
    assert page.evaluate("scrollY") == before


def test_what_is_typed_in_one_is_there_when_one_comes_back(desk: Desk, page: Page) -> None:
    desk.hold()
    desk.hold(("delete_database", "{}"))
    open_approvals(page)
    settle(page, "send_email")
    page.get_by_label("to", exact=True).fill("half an addr")
    page.get_by_label("Reason").fill("because")

    items(page).nth(1).click()
    expect(page.locator(".detail h2")).to_have_text("delete_database")
    expect(page.get_by_label("Reason")).to_have_value("")
    items(page).nth(0).click()

    expect(page.get_by_label("to", exact=True)).to_have_value("half an addr")
    expect(page.get_by_label("Reason")).to_have_value("because")


def test_a_decision_that_takes_its_time_leaves_a_person_where_they_went(
    desk: Desk, page: Page
) -> None:
    (held,) = desk.hold(session="slow")
    desk.hold(session="next")
    open_approvals(page, f"/{held}")
    settle(page, "send_email")
    on_its_way: list[Route] = []
    page.route("**/action", lambda route: on_its_way.append(route))
    with page.expect_request("**/action"):
        button(page, "Approve").click()
    page.goto("#/sessions/slow")
    expect(page.get_by_role("heading", name="slow")).to_be_visible()

    with page.expect_response("**/action"):
        on_its_way[0].continue_()

    expect(page.locator(".count")).to_have_text("1")  # it has been heard of
    expect(page).to_have_url(re.compile(r"#/sessions/slow$"))


# -- on a phone


def test_with_little_room_the_list_and_the_open_one_take_turns(
    desk: Desk, browser: Browser
) -> None:
    ids = [desk.hold()[0], desk.hold(("delete_database", "{}"))[0]]
    with open_page(browser, desk.url, viewport=NARROW) as page:
        open_approvals(page)
        expect(items(page)).to_have_count(2)
        expect(page.locator(".detail")).to_be_hidden()
        page.keyboard.press("a")  # nothing is in sight that it could mean

        items(page).first.click()
        settle(page, "send_email")
        expect(page.locator(".list")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert desk.read(ids[0]).decision is None
        button(page, "Approve").click()

        settle(page, "delete_database")
        page.get_by_role("link", name="All approvals").click()
        expect(items(page)).to_have_count(1)
        expect(page.locator(".detail")).to_be_hidden()
        items(page).first.click()
        settle(page, "delete_database")
        button(page, "Approve").click()
        expect(page.get_by_role("heading", name="Nothing waits for a decision")).to_be_visible()
    assert all(desk.decision(each).is_approved for each in ids)
