"""Durable calls that nobody knows the end of, beside the approvals, in a real browser."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agentstate.ground.durable import DurableCall
from tests.helpers.browser import button, expect
from tests.helpers.desk import Desk
from tests.store.contract import claim_of
from tests.store.contract_budget import asked
from tests.store.contract_durable import begin_of, durable_question, lost
from tests.web.acts import settle

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

BIG = '{"cents": 12345678901234567890, "to": "\\u202e<img src=x>"}'


def put_lost(desk: Desk, text: str = "", **changes: object) -> DurableCall:
    return desk.run(lost(desk.store, text, **changes))


def read(desk: Desk, call: str) -> DurableCall:
    found = desk.run(desk.store.read_durable(call))
    assert found is not None
    return found


def test_what_happened_is_said_with_its_result(desk: Desk, page: Page) -> None:
    call = put_lost(desk, tool="charge", arguments=BIG)
    page.goto("#/approvals")
    expect(page).to_have_title("(1) Approvals · AgentState")
    card = page.locator(".unknown-card")
    expect(card).to_contain_text("charge")
    expect(card).to_contain_text("12345678901234567890")
    expect(card).to_contain_text("⟨U+202E⟩<img src=x>")
    page.get_by_label("Result, if it happened").fill("{no")
    button(page, "It happened").click()
    expect(card.get_by_role("alert")).to_contain_text("This is not JSON")
    page.get_by_label("Result, if it happened").fill('{"receipt": 12345678901234567890}')
    card.get_by_label("Reason").fill("in the books")
    button(page, "It happened").click()

    expect(page.get_by_text("charge of s is taken as done.")).to_be_visible()
    expect(card).to_have_count(0)
    expect(page).to_have_title("Approvals · AgentState")
    found = read(desk, call.call)
    assert (found.state, found.settled_as, found.settled_why) == (
        "done",
        "happened",
        "in the books",
    )
    assert found.value is not None
    assert "12345678901234567890" in found.value


def test_the_keyboard_alone_settles_them(desk: Desk, page: Page) -> None:
    first, second = put_lost(desk, "a", tool="one"), put_lost(desk, "b", tool="two")
    page.goto("#/approvals")
    cards = page.locator(".unknown-card")
    expect(cards).to_have_count(2)
    card = cards.filter(has_text="one")
    card.get_by_label("Result, if it happened").focus()
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(card.get_by_role("button", name="It did not happen")).to_be_focused()
    page.keyboard.press("Enter")
    expect(cards).to_have_count(1)
    expect(page.locator("#unknown-title")).to_be_focused()
    assert read(desk, first.call).settled_as == "not_happened"
    cards.get_by_role("button", name="Skip it").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("two of s is skipped.")).to_be_focused()
    assert read(desk, second.call).settled_as == "skip"


def test_what_somebody_else_settled_is_said(desk: Desk, page: Page) -> None:
    put_lost(desk)
    page.goto("#/approvals")
    page.route("**/settle", lambda route: route.fulfill(
        status=409, content_type="application/json",
        body='{"error": {"code": "conflict", "message": "Ann settled it.", "hint": ""}}',
    ))  # fmt: skip
    page.get_by_label("Result, if it happened").fill("1")
    button(page, "It did not happen").click()
    fault = page.locator(".unknown-card").get_by_role("alert")
    expect(fault).to_contain_text("What has not happened has no result")
    page.get_by_label("Result, if it happened").fill("")
    button(page, "It did not happen").click()
    expect(fault).to_have_text("Ann settled it. ", use_inner_text=False)


def test_it_shows_up_as_it_comes_and_only_where_things_wait(desk: Desk, page: Page) -> None:
    page.goto("#/approvals")
    expect(page.get_by_role("heading", name="Nothing waits")).to_be_visible()
    put_lost(desk)
    desk.hold()
    expect(page.locator(".unknown-card")).to_be_visible()
    expect(page).to_have_title("(2) Approvals · AgentState")
    page.goto("#/approvals?session=billing")
    expect(page.locator(".unknown-card")).to_be_hidden()
    page.goto("#/approvals?status=APPROVED")
    expect(page.locator(".unknown-card")).to_be_hidden()


def test_what_a_durable_tool_asks_names_no_step(desk: Desk, page: Page) -> None:
    begin = begin_of(question=durable_question(tool="charge", call_id=None))
    desk.run(desk.store.begin_durable(begin))
    page.goto("#/approvals")
    expect(page.locator(".list .item")).to_contain_text("durable tool")
    detail = page.locator(".detail")
    expect(detail).to_contain_text("A durable tool asks to act")
    expect(detail).to_contain_text("As the tool began it")
    expect(detail.locator(".source").first).not_to_contain_text("null")
    expect(detail.locator("dl.about")).not_to_contain_text("Place in the answer")
    expect(detail.locator("dl.about")).not_to_contain_text("null")


def test_a_budget_question_says_what_is_offered(desk: Desk, page: Page) -> None:
    claimed = desk.run(desk.store.claim_step(claim_of("a")))
    desk.run(asked(desk.store, claimed.step_id))
    page.goto("#/approvals")
    detail = page.locator(".detail")
    expect(detail).to_contain_text("has come to a cap, and asks to go on past")
    expect(page.get_by_label("more", exact=True)).to_have_value("5")
    expect(button(page, "Reject and continue")).to_be_hidden()
    settle(page, "budget.steps")
    page.get_by_label("more", exact=True).fill("20")
    button(page, "Approve with edits").click()
    expect(page.locator(".lead").first).to_contain_text("Approved budget.steps")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (360, 640)], ids=["wide, low", "phone"])
def test_they_hide_no_approval_from_who_decides_it(
    desk: Desk, page: Page, width: int, height: int
) -> None:
    put_lost(desk, tool="charge", arguments=BIG)
    (held,) = desk.hold(("send_email", json.dumps({f"line_{n}": "words" for n in range(60)})))
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"#/approvals/{held}")
    settle(page, "send_email")
    title, bar = page.locator("#detail-title"), page.locator(".decision")

    def is_seen() -> bool:
        box, cover = title.bounding_box(), bar.bounding_box()
        assert box is not None
        assert cover is not None
        return box["y"] >= 0 and box["y"] + box["height"] <= cover["y"]

    assert is_seen()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    assert not is_seen()
    page.keyboard.press("a")
    expect(bar.locator(".fault")).to_contain_text("out of sight")
    assert desk.read(held).decision is None
    assert is_seen()
    page.keyboard.press("a")
    expect(page.locator(".outcome")).to_have_count(0)
    expect(page.locator(".list .item")).to_have_count(0)
    assert desk.decision(held).is_approved
