"""No page has a fault that axe-core can find: names, roles, contrast, focus; wide, narrow, dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.clock import now_ms
from agentstate.ground.events import DeliveryState
from agentstate.ground.settings import WebhookSettings
from tests.helpers.browser import open_page
from tests.helpers.desk import Desk
from tests.helpers.node import module_path, need_node

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

EVERY_KIND = (
    '{"to": "a\u200bb", "body": "one\\ntwo", "amount": 5, "copy": true, "priority": "low", '
    '"files": [1]}'
)
SCHEMA = {"properties": {"priority": {"enum": ["low", "high"], "description": "How soon."}}}
LOOKS = {
    "wide, light": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "light"},
    "phone, dark": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
}


@pytest.fixture(params=list(LOOKS.values()), ids=list(LOOKS))
def look(request: pytest.FixtureRequest, browser: Browser, desk: Desk) -> Iterator[Page]:
    need_node()
    with open_page(browser, desk.url, **request.param) as page:
        page.add_init_script(path=module_path("axe-core") / "axe.min.js")
        yield page


def find_faults(page: Page) -> list[str]:
    """Return what axe-core has against the page as it is, by rule and element."""
    # Colours half way through a transition are none it should judge.
    page.evaluate("() => Promise.all(document.getAnimations().map((each) => each.finished))")
    found: dict[str, Any] = page.evaluate("() => axe.run()")
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def show_list(desk: Desk, page: Page) -> None:
    desk.hold()
    desk.hold(deadline_ms=now_ms() - 1)
    desk.hold(deadline_ms=now_ms() + 30_000)
    page.goto("#/approvals")
    page.locator(".list .item").nth(2).wait_for()
    page.locator(".detail[aria-busy=false] h2").wait_for(state="attached")


def show_one(desk: Desk, page: Page) -> None:
    first, _ = desk.hold(
        ("s\u0435nd_email", EVERY_KIND), ("other", "{}"), schema=SCHEMA, session="s"
    )
    page.goto(f"#/approvals/{first}")
    page.locator(".detail[aria-busy=false] .others").wait_for()
    for fold in page.locator("summary").all():
        fold.click()


def show_edited(desk: Desk, page: Page) -> None:
    show_one(desk, page)
    page.get_by_label("body", exact=True).fill("other")
    page.get_by_label("amount", exact=True).fill("no number")
    page.get_by_role("button", name="Approve with edits").click()
    page.get_by_text("A number is needed").wait_for()


def show_as_text(desk: Desk, page: Page) -> None:
    (held,) = desk.hold(("send_email", '{"a": 1, "a": 2}'))
    page.goto(f"#/approvals/{held}")
    page.locator(".detail[aria-busy=false] .warning").wait_for()


def show_request(desk: Desk, page: Page) -> None:
    held = desk.hold_request({"model": "gpt-5", "messages": []})
    page.goto(f"#/approvals/{held}")
    page.locator(".detail[aria-busy=false] .raw").wait_for()


def show_approved(desk: Desk, page: Page) -> None:
    (held,) = desk.hold(("send_email", EVERY_KIND))
    desk.decide(held, Decision(True, "Ann", arguments='{"to": "x"}'))
    page.goto(f"#/approvals/{held}?status=APPROVED")
    page.locator(".detail[aria-busy=false] .outcome").wait_for()


def show_rejected(desk: Desk, page: Page) -> None:
    (held,) = desk.hold()
    desk.decide(held, Decision(False, "Ann", "No.", then="stop"))
    page.goto(f"#/approvals/{held}?session=billing&status=REJECTED")
    page.locator(".detail[aria-busy=false] .outcome").wait_for()


def show_nothing(desk: Desk, page: Page) -> None:
    page.goto("#/approvals")
    page.get_by_role("heading", name="Nothing waits").wait_for()


def show_keys(desk: Desk, page: Page) -> None:
    show_list(desk, page)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()


def show_sessions(desk: Desk, page: Page) -> None:
    desk.hold()
    page.goto("#/sessions")
    page.locator(".row").wait_for()


def show_session(desk: Desk, page: Page) -> None:
    desk.hold()
    page.goto("#/sessions/billing")
    page.locator(".holds a").wait_for()


def show_no_webhook(desk: Desk, page: Page) -> None:
    page.goto("#/webhooks")
    page.get_by_role("heading", name="No webhook").wait_for()


def show_webhooks(desk: Desk, page: Page) -> None:
    desk.subscribe(WebhookSettings(name="ops", url="http://127.0.0.1:9/", format="json"))
    for state in get_args(DeliveryState):
        desk.happen()
        desk.settle(state, status=500, error="it is down")
    page.goto("#/webhooks")
    page.locator(".deliveries tbody tr").nth(2).wait_for()
    page.get_by_role("button", name="Send a sample").click()
    page.locator(".hook-said[data-is=refused]").wait_for()


PAGES = (
    show_list, show_one, show_edited, show_as_text, show_request, show_approved, show_rejected,
    show_nothing, show_keys, show_sessions, show_session, show_no_webhook, show_webhooks,
)  # fmt: skip


@pytest.mark.parametrize("show", PAGES, ids=lambda show: show.__name__)
def test_axe_finds_nothing(desk: Desk, look: Page, show: Callable[[Desk, Page], None]) -> None:
    show(desk, look)

    assert find_faults(look) == []


def test_a_fault_would_be_found(desk: Desk, look: Page) -> None:
    show_nothing(desk, look)
    look.evaluate("() => document.querySelector('main').append(document.createElement('input'))")

    assert [fault.partition(":")[0] for fault in find_faults(look)] == ["label"]
