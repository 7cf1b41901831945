"""The webhooks: what is configured, what was sent, and sending it again, in a real browser.

The outbox of the desk does not run, so what is due stays due; a sample goes to a scripted service.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from agentstate.ground.settings import WebhookSettings
from tests.helpers.browser import button, expect
from tests.helpers.desk import Desk
from tests.helpers.services import TOKEN, Service
from tests.helpers.upstream import Reply

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

OPS = WebhookSettings(name="ops", url="http://127.0.0.1:9/", format="slack", sessions=("b*",))
HOSTILE = '<img src=x onerror="alert(1)">\u202e'
SHOWN = '<img src=x onerror="alert(1)">⟨U+202E⟩'


def rows(page: Page) -> Locator:
    """Return the deliveries that are shown."""
    return page.locator(".deliveries tbody tr")


def test_with_no_webhook_the_page_says_how_one_is_configured(desk: Desk, page: Page) -> None:
    page.goto("#/sessions")
    page.get_by_role("link", name="Webhooks").click()

    expect(page).to_have_title("Webhooks · AgentState")
    expect(page.get_by_role("heading", name="No webhook is configured")).to_be_visible()
    expect(page.locator(".first")).to_contain_text("export WEBHOOK_URL=https://")
    expect(page.locator(".first")).to_contain_text("[[webhook]]")
    expect(page.locator(".deliveries")).to_be_hidden()

    desk.subscribe(OPS)

    expect(page.locator(".hook")).to_have_count(1)
    expect(page.locator(".first")).to_be_hidden()
    expect(page.locator(".deliveries")).to_contain_text("There was nothing to tell yet.")


def test_webhooks_and_deliveries_are_listed_the_newest_first(desk: Desk, page: Page) -> None:
    desk.subscribe(OPS)
    desk.happen()
    desk.settle("sent", status=200)
    desk.happen("session.stalled")
    desk.settle("due", error="the connection was refused")
    (held,) = desk.hold()

    page.goto("#/webhooks")

    expect(page.locator(".lead").first).to_have_text("1 webhook · 2 due · 1 sent · 0 dead")
    hook = page.locator(".hook")
    expect(hook.get_by_role("heading")).to_have_text("ops")
    expect(hook).to_contain_text("slack · 127.0.0.1")
    expect(hook).to_contain_text("Is told of approval.required, session.failed")
    expect(hook).to_contain_text("in sessions b*")
    expect(hook.locator(".hook-fares")).to_have_text("2 due · 1 sent · 0 dead")
    kinds = ["approval.required", "session.stalled", "session.failed"]
    expect(page.locator(".delivery-kind")).to_have_text(kinds)
    expect(page.locator("tbody .badge")).to_have_text(["Due", "Due", "Sent"])
    newest, stalled, failed = (rows(page).nth(at) for at in range(3))
    link = newest.get_by_role("link", name="Approval")
    expect(link).to_have_attribute("href", f"#/approvals/{held}")
    expect(newest.get_by_role("link", name="billing")).to_have_attribute(
        "href", "#/sessions/billing"
    )
    expect(newest.locator(".middle")).to_have_text(["ops", "0", "now"])
    expect(stalled).to_contain_text("No answer: the connection was refused")
    expect(stalled.locator(".middle").nth(1)).to_have_text("1")
    expect(stalled.locator(".middle").nth(2)).to_have_text(re.compile(r"in (1 h|59 min)"))
    expect(failed).to_contain_text("It answered 200")
    expect(failed.get_by_role("link", name="Approval")).to_be_visible()  # the sample has one


def test_a_filter_shows_one_state_and_stands_in_the_address(desk: Desk, page: Page) -> None:
    desk.subscribe(OPS)
    for kind in ("session.failed", "session.stalled"):
        desk.happen(kind)
        desk.settle("dead" if kind == "session.failed" else "sent", status=404)
    page.goto("#/webhooks")
    expect(rows(page)).to_have_count(2)

    page.get_by_role("link", name="Dead").click()

    expect(page.locator(".delivery-kind")).to_have_text(["session.failed"])
    assert page.url.endswith("#/webhooks?state=dead")
    expect(page.get_by_role("link", name="Dead")).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="Due").click()
    expect(page.locator(".deliveries")).to_contain_text("None.")
    page.go_back()
    expect(page.locator(".delivery-kind")).to_have_text(["session.failed"])


def test_more_are_shown_when_they_are_asked_for(desk: Desk, page: Page) -> None:
    desk.subscribe(OPS)
    for _ in range(60):
        desk.happen()
    page.goto("#/webhooks")
    expect(rows(page)).to_have_count(50)

    button(page, "Show more").click()

    expect(rows(page)).to_have_count(60)
    expect(button(page, "Show more")).to_be_hidden()


def test_a_dead_one_is_sent_again_and_the_focus_stays_in_the_list(desk: Desk, page: Page) -> None:
    desk.subscribe(OPS)
    for _ in range(2):
        desk.happen()
        desk.settle("dead", status=404, error="no_service")
    page.goto("#/webhooks?state=dead")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("It answered 404: no_service")

    again = rows(page).first.get_by_role("button")
    expect(again).to_have_accessible_name("Send again: session.failed of billing to ops")
    again.focus()
    page.keyboard.press("Enter")

    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_be_focused()
    expect(page.get_by_text("session.failed is due again to ops.")).to_be_visible()
    expect(page.locator(".hook-fares")).to_have_text("1 due · 0 sent · 1 dead")
    assert [one.state for one in desk.deliveries()] == ["dead", "due"]


def test_the_button_keeps_the_focus_where_its_row_stays(desk: Desk, page: Page) -> None:
    desk.subscribe(OPS)
    desk.happen()
    desk.settle("dead", status=404)
    page.goto("#/webhooks")
    again = rows(page).first.get_by_role("button")

    again.click()
    expect(page.locator("tbody .badge")).to_have_text("Due")
    expect(again).to_be_focused()
    desk.happen("session.stalled")

    expect(rows(page)).to_have_count(2)
    expect(rows(page).nth(1).get_by_role("button")).to_be_focused()


def test_what_has_nowhere_to_go_is_not_sent_again(desk: Desk, page: Page) -> None:
    desk.subscribe(OPS)
    desk.happen()
    desk.settle("dead")
    desk.subscribe()
    page.goto("#/webhooks")
    expect(page.locator(".first")).to_be_visible()

    rows(page).first.get_by_role("button").click()

    expect(page.locator(".fault")).to_contain_text("The configuration has no webhook 'ops'")
    assert [one.state for one in desk.deliveries()] == ["dead"]


def test_a_sample_shows_what_the_service_said(desk: Desk, page: Page) -> None:
    refusal = Reply(404, headers=((b"content-type", b"text/plain"),), chunks=(b"no_service",))
    with Service("slack", [Reply(chunks=(b"ok",)), refusal]) as service:
        desk.subscribe(service.settings("ops"))
        page.goto("#/webhooks")

        button(page, "Send a sample to ops").click()
        expect(page.locator(".hook-said")).to_have_text("Taken. It answered 200")
        button(page, "Send a sample to ops").click()
        expect(page.locator(".hook-said")).to_contain_text("Not taken. It answered 404: ")

        assert service.faults == []
        assert TOKEN not in page.content()


def test_hostile_text_is_shown_and_does_nothing(desk: Desk, page: Page) -> None:
    desk.subscribe(WebhookSettings(name="ops", url="http://127.0.0.1:9/", format="json"))
    desk.happen(session=HOSTILE)
    desk.settle("dead", status=500, error=HOSTILE)

    page.goto("#/webhooks")

    expect(rows(page).first.get_by_role("link").first).to_have_text(SHOWN)
    expect(page.locator(".delivery-answer")).to_have_text(f"It answered 500: {SHOWN}")
    expect(page.locator("main img")).to_have_count(0)
    rows(page).first.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile("#/sessions/%3Cimg"))
