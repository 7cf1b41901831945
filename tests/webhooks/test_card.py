from __future__ import annotations

import pytest

from agentstate.ground.events import EVENT_KINDS
from agentstate.webhooks.base import Links
from agentstate.webhooks.card import card
from tests.webhooks.hostile import LINKS, event


@pytest.mark.parametrize(
    ("kind", "said", "title"),
    [
        ("approval.required", {"tool": "run_shell"}, "Approve run_shell?"),
        ("approval.required", {}, "Approve a tool call?"),
        ("approval.required", {"tool": "m-1", "kind": "request"}, "Approve a request to m-1?"),
        ("approval.required", {"tool": "pay", "kind": "unknown"}, "Did it happen: pay?"),
        (
            "approval.required",
            {"tool": "budget.steps", "kind": "budget"},
            "Let it go on past budget.steps?",
        ),
        ("approval.decided", {"tool": "run_shell", "status": "APPROVED"}, "Approved: run_shell"),
        ("approval.decided", {"tool": "run_shell", "status": "rejected"}, "Rejected: run_shell"),
        ("approval.decided", {"tool": "run_shell", "status": 7}, "Decided: run_shell"),
        ("session.failed", {}, "Session failed: nightly"),
        ("session.stalled", {}, "Session stalled: nightly"),
        ("session.completed", {}, "Session completed: nightly"),
        ("fallback.used", {"from_model": "a", "to_model": "b"}, "Fallback used: a → b"),
        ("budget.reached", {"cap": "$5"}, "Budget reached: nightly"),
        ("something.new", {}, "something.new: nightly"),
    ],
)
def test_the_title_says_what_happened_to_what(kind: str, said: dict[str, str], title: str) -> None:
    shown = card(event(kind, **said), LINKS)

    assert shown.lead + shown.name + shown.tail == title


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_kind_says_session_and_step_first(kind: str) -> None:
    assert card(event(kind), LINKS).facts[:2] == (("Session", "nightly"), ("Step", "4"))


def test_a_question_shows_what_is_asked_and_why() -> None:
    shown = card(
        event(
            tool="pay", arguments="", rule="gate.rule 2", why="odd", model="m", deadline_ms=1_000
        ),
        LINKS,
    )

    assert shown.texts == (("Arguments", ""),)
    assert shown.facts[2:] == (("Rule", "gate.rule 2"), ("Why", "odd"), ("Model", "m"))
    assert shown.deadline_ms == 1_000


def test_a_request_shows_its_prompt_and_no_arguments() -> None:
    said = {"tool": "m-1", "kind": "request", "arguments": "", "prompt": "do it"}

    assert card(event(**said), LINKS).texts == (("Prompt", "do it"),)


def test_a_decision_shows_edited_arguments_as_such() -> None:
    shown = card(event("approval.decided", arguments="{}", arguments_are_edited=True), LINKS)

    assert shown.texts == (("Arguments, edited", "{}"),)


def test_buttons_go_to_the_approval_and_the_session() -> None:
    asked, failed = card(event(), LINKS), card(event("session.failed"), LINKS)

    assert asked.buttons == (("Decide", LINKS.approval), ("Session", LINKS.session))
    assert failed.buttons == (("Session", LINKS.session),)
    assert asked.plain_link == ""


def test_a_link_that_services_do_not_take_gives_way_to_the_dashboard() -> None:
    links = Links(dashboard="https://p.example/", session="https://p.example/" + "x" * 3_000)

    assert card(event("session.failed"), links).buttons == (("Dashboard", links.dashboard),)


def test_an_address_that_is_no_link_is_there_to_be_read() -> None:
    shown = card(event(), Links("http://localhost/", "http://localhost/s", "http://localhost/a"))

    assert shown.buttons == ()
    assert shown.plain_link == "http://localhost/a"
    assert card(event(), Links()).plain_link == ""


def test_a_key_in_a_text_is_struck() -> None:
    shown = card(event(arguments='{"key": "sk-abcdefghijklmnop"}'), LINKS)

    assert shown.texts == (("Arguments", '{"key": "sk-…"}'),)


def test_a_deadline_that_is_no_time_is_left_out() -> None:
    for none in (-1, "soon", True, None, 10**30):
        assert card(event(deadline_ms=none), LINKS).deadline_ms is None
