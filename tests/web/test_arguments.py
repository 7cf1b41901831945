"""The arguments as a form: what is not edited goes out as the model sent it, to the digit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from agentstate.ground.approvals import Decision
from tests.helpers.browser import button, expect
from tests.helpers.desk import Desk
from tests.web.acts import open_approvals, settle

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

NARROW = {"width": 400, "height": 800}
SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "Who gets it."},
        "amount": {"type": "number", "maximum": 100},
        "priority": {"type": "string", "enum": ["low", "high"]},
    },
    "required": ["to"],
}


# -- editing


def test_an_edit_changes_the_value_it_edits_and_not_a_digit_more(desk: Desk, page: Page) -> None:
    sent = '{ "to":"a@b.example", "n": 12345678901234567890, "x": 1.0, "list": [1,  2.50] }'
    (held,) = desk.hold(("send_email", sent))
    open_approvals(page)
    settle(page, "send_email")
    expect(page.get_by_label("n", exact=True)).to_have_value("12345678901234567890")

    page.get_by_label("to", exact=True).fill("c@d.example")
    expect(page.locator(".edits")).to_have_text("Edited: to")
    button(page, "Approve with edits").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).arguments == sent.replace("a@b.example", "c@d.example")


def test_every_kind_of_value_has_its_field(desk: Desk, page: Page) -> None:
    body = "Dear Ms. Chen,\n\nplease pay."
    sent = (
        '{"to": "a", "body": "Dear Ms. Chen,\\n\\nplease pay.", "amount": 5, "copy": true, '
        '"priority": "low", "files": [{"name": "a.pdf"}], "none": null}'
    )
    (held,) = desk.hold(("send_email", sent), schema=SCHEMA)
    open_approvals(page)
    settle(page, "send_email")

    assert page.get_by_label("to", exact=True).evaluate("it => it.tagName") == "INPUT"
    expect(page.get_by_label("to", exact=True)).to_have_accessible_description("Who gets it.")
    area = page.get_by_label("body", exact=True)
    assert area.evaluate("it => it.tagName") == "TEXTAREA"
    expect(area).to_have_value(body)
    expect(page.get_by_label("files", exact=True)).to_have_value(
        '[\n  {\n    "name": "a.pdf"\n  }\n]'
    )
    area.fill(body + "\nThanks.")
    page.get_by_label("amount", exact=True).fill("7.50")
    page.get_by_label("copy", exact=True).uncheck()
    page.get_by_label("priority", exact=True).select_option("high")
    page.get_by_label("files", exact=True).fill("[]")
    expect(page.locator(".edits")).to_have_text("Edited: body, amount, copy, priority, files")
    page.get_by_label("none", exact=True).fill('"now"')
    page.get_by_role("button", name="Undo the edit of files").click()
    button(page, "Approve with edits").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).arguments == (
        '{"to": "a", "body": "Dear Ms. Chen,\\n\\nplease pay.\\nThanks.", "amount": 7.50, '
        '"copy": false, "priority": "high", "files": [{"name": "a.pdf"}], "none": "now"}'
    )


def test_an_edit_undone_by_hand_is_no_edit(desk: Desk, page: Page) -> None:
    (held,) = desk.hold()
    open_approvals(page)
    settle(page, "send_email")

    page.get_by_label("to", exact=True).fill("x")
    expect(button(page, "Approve with edits")).to_be_visible()
    page.get_by_label("to", exact=True).fill("chen@acme.example")
    button(page, "Approve").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).arguments is None


def test_the_arguments_can_be_edited_as_a_whole(desk: Desk, page: Page) -> None:
    (held,) = desk.hold()
    open_approvals(page)
    settle(page, "send_email")
    page.get_by_label("to", exact=True).fill("x@y.example")

    button(page, "JSON").click()
    whole = page.get_by_label("The arguments as JSON")
    expect(whole).to_have_value('{\n  "to": "x@y.example",\n  "subject": "Invoice 1183"\n}')
    whole.fill('{"to": "x@y.example", "cc": ["z"]}')
    button(page, "Fields").click()
    expect(page.get_by_label("cc", exact=True)).to_have_value('[\n  "z"\n]')
    button(page, "Approve with edits").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).arguments == '{"to": "x@y.example", "cc": ["z"]}'


@pytest.mark.parametrize(
    ("field", "typed", "message"),
    [("amount", "5,5", "A number is needed"), ("list", "[1, 2", "This is not JSON")],
)
def test_what_cannot_be_sent_is_said_at_its_field(
    desk: Desk, page: Page, field: str, typed: str, message: str
) -> None:
    (held,) = desk.hold(("send_email", '{"amount": 5, "list": []}'))
    open_approvals(page)
    settle(page, "send_email")
    control = page.get_by_label(field, exact=True)

    control.fill(typed)
    button(page, "Approve with edits").click()

    expect(control).to_be_focused()
    expect(control).to_have_accessible_description(re.compile(message))
    expect(control).to_have_attribute("aria-invalid", "true")
    assert desk.read(held).decision is None


def test_the_servers_objection_is_shown_at_the_form_and_nothing_is_lost(
    desk: Desk, page: Page
) -> None:
    (held,) = desk.hold(("stripe_charge", '{"to": "a", "amount": 5}'), schema=SCHEMA)
    open_approvals(page)
    settle(page, "stripe_charge")

    page.get_by_label("amount", exact=True).fill("6500")
    button(page, "Approve with edits").click()

    expect(page.locator(".arguments > .fault")).to_contain_text("amount")
    expect(page.get_by_label("amount", exact=True)).to_be_focused()
    expect(page.get_by_label("amount", exact=True)).to_have_value("6500")
    assert desk.read(held).decision is None
    page.get_by_label("amount", exact=True).fill("65")
    expect(page.locator(".arguments > .fault")).to_be_hidden()
    button(page, "Approve with edits").click()
    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).arguments == '{"to": "a", "amount": 65}'


# -- what a model may write


def test_what_a_font_hides_is_shown_by_its_number(desk: Desk, page: Page) -> None:
    sent = '{"pa\u200bth": "evil\u202etxt.exe", "same": "a\\u0000b", "ok": "❤️ naïve 日本"}'
    (held,) = desk.hold(("send\u2066_email", sent))
    open_approvals(page)

    expect(page.locator(".detail h2")).to_have_text("send⟨U+2066⟩_email")
    expect(page.locator(".warning")).to_contain_text("The name has hidden characters")
    field = page.get_by_label("pa⟨U+200B⟩th", exact=True)
    expect(field).to_have_value("evil⟨U+202E⟩txt.exe")
    expect(field).to_have_accessible_description(re.compile("delete the number"))
    expect(page.get_by_label("same", exact=True)).to_have_value("a⟨U+0000⟩b")
    expect(page.get_by_label("ok", exact=True)).to_have_value("❤️ naïve 日本")
    assert "\u202e" not in page.locator("main").inner_text()
    settle(page, "send⟨U+2066⟩_email")
    field.fill("good.txt")
    button(page, "Approve with edits").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).arguments == sent.replace("evil\u202etxt.exe", "good.txt")


def test_a_key_that_stands_twice_is_flagged_and_the_text_is_for_editing(
    desk: Desk, page: Page
) -> None:
    (held,) = desk.hold(("send_email", '{"to": "a@good.example", "to": "b@evil.example"}'))
    open_approvals(page)

    expect(page.locator(".warning")).to_contain_text("the same key twice: “to”")
    settle(page, "send_email")
    whole = page.get_by_label("The arguments as JSON")
    expect(whole).to_have_value('{\n  "to": "a@good.example",\n  "to": "b@evil.example"\n}')
    whole.fill('{"to": "a@good.example"}')
    button(page, "Approve with edits").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).arguments == '{"to": "a@good.example"}'


@pytest.mark.parametrize("sent", ["", "not json", '{"a": ', "[1, 2]", '"text"'])
def test_arguments_that_are_no_object_are_shown_as_text(desk: Desk, page: Page, sent: str) -> None:
    (held,) = desk.hold(("send_email", sent))
    open_approvals(page)

    expect(page.locator(".raw")).to_have_text(sent or "(empty)")
    settle(page, "send_email")
    button(page, "Approve").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held) == Decision(True, None)


def test_arguments_of_a_hundred_kilobytes_can_be_read_and_edited(desk: Desk, page: Page) -> None:
    patch = "line <b>\\n" * 10_000
    (held,) = desk.hold(("apply_patch", f'{{"patch": "{patch}", "path": "a.txt"}}'))
    open_approvals(page)
    settle(page, "apply_patch")

    assert len(page.locator(".raw").text_content() or "") > 100_000
    page.get_by_label("path", exact=True).fill("b.txt")
    button(page, "Approve with edits").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).arguments == f'{{"patch": "{patch}", "path": "b.txt"}}'


def test_longer_arguments_say_that_they_are_cut_and_are_for_reading(desk: Desk, page: Page) -> None:
    patch = "x" * 600_000
    (held,) = desk.hold(("apply_patch", f'{{"patch": "{patch}"}}'))
    open_approvals(page)
    settle(page, "apply_patch")

    expect(page.locator(".fields")).to_contain_text("too many to edit here")
    more = page.get_by_role("button", name="400,013 more characters are not shown. Show them")
    more.click()
    assert len(page.locator(".raw").text_content() or "") == 600_013
    button(page, "Approve").click()

    expect(page.locator(".detail")).to_have_count(0)
    assert desk.decision(held).is_approved
