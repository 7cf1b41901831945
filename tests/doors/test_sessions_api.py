"""One step in the management API: what is on record of it, and what the agent got instead."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Decision
from agentstate.ground.canonical import parse
from agentstate.ground.records import RecordedAnswer
from tests.helpers.approvals import QUESTION, Desk
from tests.store.contract import answer_of, checkpoint_of, claim_of, request_of

EDITED = '{"to":"eve@example.org"}'
DELIVERED = RecordedAnswer(200, (), "body", b'{"edited":true}')


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A server with nothing on record."""
    with Desk() as desk:
        yield desk


def read(desk: Desk, index: int = 0, session: str = "s") -> tuple[int, str]:
    """Ask for a step; return status and text."""
    connection = http.client.HTTPConnection(desk.url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", f"/api/sessions/{session}/steps/{index}")
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def step_of(desk: Desk) -> dict[str, Any]:
    """Read the first step, which must be there."""
    status, text = read(desk)
    assert status == 200, text
    step: dict[str, Any] = json.loads(text)
    return step


def test_a_step_that_was_never_held_went_out_as_it_is(desk: Desk) -> None:
    claimed = desk.run(desk.store.claim_step(claim_of("hi")))
    desk.run(desk.store.record_answer(checkpoint_of(claimed.step_id)))

    step = step_of(desk)

    assert step["answer"]["content"] == answer_of().content.decode()
    assert (step["delivered"], step["approvals"], step["releases"]) == (None, [], [])


def test_a_step_shows_what_was_asked_decided_and_delivered(desk: Desk) -> None:
    (approval_id,) = desk.ask()
    desk.decide(approval_id, Decision(True, "ann", arguments=EDITED))
    desk.run(desk.store.record_delivered(1, DELIVERED))
    release_id = desk.run(desk.store.record_release(1, "run-1", at_ms=5))
    desk.store.note_released(release_id)

    step = step_of(desk)

    assert step["answer"]["content"] == answer_of().content.decode()  # the original is kept
    assert step["delivered"]["content"] == '{"edited":true}'
    (approval,) = step["approvals"]
    assert (approval["approval_id"], approval["status"]) == (approval_id, "APPROVED")
    assert (approval["arguments"], approval["edited_arguments"]) == (QUESTION.arguments, EDITED)
    assert step["releases"] == [{"run_id": "run-1", "released_ms": 5, "is_written": True}]


def test_a_request_that_waits_to_be_sent_shows_its_question(desk: Desk) -> None:
    claimed = desk.run(desk.store.claim_step(claim_of("hi")))
    question = replace(QUESTION, kind="request", call_id=None, arguments="")
    desk.run(desk.store.open_approvals(claimed.step_id, None, (question,), at_ms=5))

    step = step_of(desk)

    assert step["answer"] is None
    assert [approval["kind"] for approval in step["approvals"]] == ["request"]


def test_questions_about_other_steps_are_not_shown(desk: Desk) -> None:
    (approval_id,) = desk.ask()
    desk.ask(session="other")

    assert [each["approval_id"] for each in step_of(desk)["approvals"]] == [approval_id]


def test_numbers_of_a_request_keep_their_digits(desk: Desk) -> None:
    sent = '{"seed":2512292042121000001,"x":[1e400,1.0,1E2]}'
    shared = parse(sent.encode())
    assert isinstance(shared, dict)
    desk.run(desk.store.claim_step(claim_of("hi", request=request_of(shared=shared))))

    status, text = read(desk)

    assert status == 200
    assert sent[1:-1] in text


def test_a_step_that_is_not_there_is_not_found(desk: Desk) -> None:
    desk.ask()

    for index, session in ((1, "s"), (0, "gone")):
        status, text = read(desk, index, session)
        assert status == 404
        assert json.loads(text)["error"]["code"] == "not_found"
