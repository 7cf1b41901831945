"""No page has a fault that axe-core can find: names, roles, contrast, focus; wide, narrow, dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.clock import now_ms
from agentstate.ground.control import Change, Place
from agentstate.ground.events import DeliveryState
from agentstate.ground.forks import ForkAsk
from agentstate.ground.settings import WebhookSettings
from tests.helpers.browser import open_page
from tests.helpers.desk import Desk
from tests.helpers.node import module_path, need_node
from tests.helpers.runs import call as chat_call
from tests.helpers.runs import record, record_run, say
from tests.store.contract_control import run_of
from tests.store.contract_durable import lost
from tests.web.steps import call, message, put_step, put_story

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
    # Colours half way through a transition are none it should judge. In a fold that was closed it
    # stands still, and does not end.
    page.evaluate(
        "() => Promise.all(document.getAnimations()"
        ".filter((each) => each.effect.target.checkVisibility({contentVisibilityAuto: true}))"
        ".map((each) => each.finished))"
    )
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
    page.get_by_text("held", exact=True).first.wait_for()


def show_export(desk: Desk, page: Page) -> None:
    desk.run(record_run(desk.store))
    desk.run(record(desk.store, [say("x")], chat_call("c")))
    page.goto("#/export?split=0.1&include=failed")
    page.locator(".findings .facts").wait_for()
    for fold in page.locator(".export-result summary").all():
        fold.click()
    page.locator(".found-lines li").wait_for()
    for fold in page.locator(".exported .unfold > summary").all():
        fold.click()


def show_refused_export(desk: Desk, page: Page) -> None:
    page.goto("#/export?cost_max_usd=cheap")
    page.get_by_text("must be an amount").wait_for()


def show_steered(desk: Desk, page: Page) -> None:
    desk.run(run_of(desk.store, 4))
    desk.run(desk.store.roll_back("s", Place(index=3), at_ms=now_ms(), by="Ann"))
    desk.run(desk.store.pause("s", at_ms=now_ms(), reason="a look", by="Ann"))
    change = Change(name="Invoices", tags=(("team", "ops"), ("urgent", "")))
    desk.run(desk.store.change_session("s", change, at_ms=now_ms()))
    page.goto("#/sessions/s")
    page.locator(".rolled").wait_for()
    page.locator(".step-row").nth(1).hover()


def show_rollback(desk: Desk, page: Page) -> None:
    show_steered(desk, page)
    page.locator(".step-row").nth(1).get_by_role("link").click()
    page.get_by_role("button", name="Roll back here, to step 1").click()
    page.get_by_text("costs about").wait_for()


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


def show_step(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=1")
    page.get_by_text("It is 1183.").last.wait_for()
    for fold in page.locator("summary:visible").all():
        fold.click()


def show_attempts(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=1")
    page.get_by_role("tab", name="Attempts 2").click()
    page.locator(".attempts").wait_for()


def show_compare(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=1")
    page.get_by_role("tab", name="Compare").click()
    page.locator(".diff").wait_for()


def show_raw(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=1")
    page.get_by_role("tab", name="Raw").click()
    page.locator(".code.raw").first.wait_for()


def show_failed(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=2")
    page.locator(".note[data-is=bad]").wait_for()


def show_waterfall(desk: Desk, page: Page) -> None:
    put_story(desk)
    for name in ("fork", "a-fork-with-a-name-that-is-longer-than-any-phone-is-wide"):
        ask = ForkAsk(Place(index=1), session=name)
        desk.run(desk.store.fork_session("s", ask, at_ms=now_ms()))
    page.goto("#/sessions/s")
    page.get_by_text("Waterfall", exact=True).click()
    page.locator(".waterfall .branch").nth(1).wait_for()


def show_fork_waterfall(desk: Desk, page: Page) -> None:
    put_story(desk)
    desk.run(desk.store.fork_session("s", ForkAsk(Place(index=1), session="fork"), at_ms=now_ms()))
    page.goto("#/sessions/fork")
    page.get_by_text("Waterfall", exact=True).click()
    page.locator(".waterfall .branch").wait_for()


def show_no_session(desk: Desk, page: Page) -> None:
    page.goto("#/sessions")
    page.get_by_role("heading", name="No session yet").wait_for()


def show_filtered(desk: Desk, page: Page) -> None:
    desk.run(run_of(desk.store, 1))
    change = Change(name="Invoices", tags=(("team", "ops"),))
    desk.run(desk.store.change_session("s", change, at_ms=now_ms()))
    page.goto("#/sessions?tag=team%3Dops&search=s&status=RUNNING")
    page.locator(".chip").wait_for()
    page.locator(".row").wait_for()


def show_overview(desk: Desk, page: Page) -> None:
    calls = (call("c", "find", "{}"),)
    at_ms = now_ms()
    asked = [message("user", "x")]
    put_step(desk, asked, "y", calls=calls, created_ms=at_ms, answered_ms=at_ms)
    page.goto("#/overview")
    page.locator(".chart").nth(3).wait_for()
    for fold in page.locator(".chart summary").all():
        fold.click()
    page.locator(".chart-table").nth(3).wait_for()


def show_settings(desk: Desk, page: Page) -> None:
    page.goto("#/settings")
    page.locator(".setting-list").first.wait_for()


def show_dialog(desk: Desk, page: Page, name: str, wait: str) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=1")
    page.locator(".step[aria-busy=false] h2").wait_for()
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name=name, exact=True).click()
    page.get_by_role("dialog").get_by_text(wait).first.wait_for()


def show_budget(desk: Desk, page: Page) -> None:
    show_dialog(desk, page, "Budget", "At a cap")
    page.get_by_role("textbox", name="Steps").fill("2")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("It is set.").wait_for()


def show_fork(desk: Desk, page: Page) -> None:
    show_dialog(desk, page, "Fork all of it", "It shares")


def show_cassette(desk: Desk, page: Page) -> None:
    show_dialog(desk, page, "Cassette", "A file of what replays")


def show_delete(desk: Desk, page: Page) -> None:
    show_dialog(desk, page, "Delete", "would go")


def show_edit(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=0")
    page.get_by_role("button", name="Edit answer of step 0").click()
    page.get_by_label("What to edit").select_option("1")
    page.get_by_role("dialog").get_by_role("button", name="JSON").click()
    page.get_by_role("dialog").locator("textarea").fill('{"to": 5}')
    page.get_by_role("button", name="Answer that").click()
    page.get_by_text("do not fit the tool").wait_for()


def show_answers(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=1")
    page.get_by_role("button", name="Edit answer of step 1").click()
    page.get_by_role("textbox", name="Text").fill("It is 9.")
    page.get_by_role("button", name="Answer that").click()
    page.get_by_role("dialog").locator(".diff").wait_for()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("tab", name="Answers 2").click()
    page.locator(".tab-panel .diff").wait_for()


def show_rerun(desk: Desk, page: Page) -> None:
    put_story(desk)
    page.goto("#/sessions/s?index=1")
    page.get_by_role("button", name="Rerun step 1").click()
    page.get_by_label("Edit the request").check()
    page.get_by_role("textbox", name="Request").wait_for()
    page.get_by_role("textbox", name="Model").fill("mock/hello")
    page.get_by_role("button", name="Ask again").click()
    page.get_by_role("dialog").locator(".diff").wait_for()


def show_unknown(desk: Desk, page: Page) -> None:
    desk.run(lost(desk.store, "a"))
    desk.run(lost(desk.store, "b", tool="charge"))
    desk.hold()
    page.goto("#/approvals")
    page.locator(".unknown-card .tree").nth(1).wait_for()
    page.locator(".detail[aria-busy=false] h2").wait_for(state="attached")


PAGES = (
    show_list, show_one, show_edited, show_as_text, show_request, show_approved, show_rejected,
    show_nothing, show_keys, show_sessions, show_session, show_export,
    show_refused_export, show_steered,
    show_rollback, show_no_webhook, show_webhooks, show_step, show_attempts, show_compare, show_raw,
    show_failed, show_waterfall, show_fork_waterfall, show_no_session, show_filtered, show_overview,
    show_settings,
    show_budget, show_fork, show_cassette, show_delete, show_edit, show_answers, show_rerun,
    show_unknown,
)  # fmt: skip


@pytest.mark.parametrize("show", PAGES, ids=lambda show: show.__name__)
def test_axe_finds_nothing(desk: Desk, look: Page, show: Callable[[Desk, Page], None]) -> None:
    show(desk, look)

    assert find_faults(look) == []


def test_a_fault_would_be_found(desk: Desk, look: Page) -> None:
    show_nothing(desk, look)
    look.evaluate("() => document.querySelector('main').append(document.createElement('input'))")

    assert [fault.partition(":")[0] for fault in find_faults(look)] == ["label"]
