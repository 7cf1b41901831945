"""Gemini's other form: parts are joined where nothing is lost by it."""

from __future__ import annotations

import json
from typing import Any

from agentstate.dialects.gemini_forms import body_from_events, events_from_body
from agentstate.wire.sse import SSEDecoder
from tests.dialects import samples_gemini as sample


def merged(*events: bytes) -> Any:
    """Merge a stream and read the body."""
    return json.loads(body_from_events(SSEDecoder().feed(b"".join(events))))


def test_texts_of_one_kind_become_one_part() -> None:
    whole = merged(
        sample.event(sample.candidate(sample.text("a", thought=True))),
        sample.event(sample.candidate(sample.text("b", thought=True), sample.text("c"))),
        sample.event(sample.candidate(sample.text("d"))),
        sample.event(sample.candidate(sample.CALL)),
        sample.event(sample.candidate(sample.text("e"), reason="STOP"), usageMetadata=sample.USAGE),
    )

    (only,) = whole["candidates"]
    assert only["content"] == {
        "role": "model",
        "parts": [{"text": "ab", "thought": True}, {"text": "cd"}, sample.CALL, {"text": "e"}],
    }
    assert only["finishReason"] == "STOP"
    assert whole["usageMetadata"] == sample.USAGE
    assert whole["responseId"] == "resp-1"


def test_a_signature_stays_with_its_part() -> None:
    signed = sample.text("b", thoughtSignature="c2ln")
    whole = merged(
        sample.event(sample.candidate(sample.text("a"))),
        sample.event(sample.candidate(signed)),
        sample.event(sample.candidate(sample.text("c"), reason="STOP")),
    )
    parts = whole["candidates"][0]["content"]["parts"]
    assert parts == [sample.text("a"), signed, sample.text("c")]


def test_a_candidate_without_content_has_none_afterwards() -> None:
    (only,) = merged(sample.event({"finishReason": "SAFETY"}))["candidates"]
    assert only == {"finishReason": "SAFETY"}


def test_a_body_is_one_event_on_one_line() -> None:
    (event,) = events_from_body(sample.BODIES["text"])
    assert event.count(b"\n") == 2
    assert json.loads(event[6:]) == json.loads(sample.BODIES["text"])


def test_what_is_no_answer_has_no_events() -> None:
    assert [events_from_body(body) for body in (b"", b"[]", json.dumps(sample.ERROR).encode())] == [
        [], [], []
    ]  # fmt: skip
