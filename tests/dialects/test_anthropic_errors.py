"""Errors in Anthropic's form: ours to the letter, theirs as they come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects import anthropic_errors
from agentstate.dialects.base import ErrorFacts
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    Conflict,
    Forbidden,
    NotAnAnswer,
    NotFound,
    RequestTimeout,
    StoreError,
    TooLarge,
    UpstreamRefused,
    UpstreamTimeout,
)
from agentstate.wire.sse import SSEDecoder
from tests.helpers.anthropic_types import check

OURS: list[tuple[AgentStateError, str, str]] = [
    (BadRequest("m", param="model"), "invalid_request_error", "invalid_request"),
    (Forbidden("m"), "permission_error", "forbidden"),
    (NotFound("m"), "not_found_error", "not_found"),
    (RequestTimeout("m"), "timeout_error", "request_timeout"),
    (Conflict("m"), "invalid_request_error", "conflict"),
    (TooLarge("m"), "invalid_request_error", "too_large"),
    (UpstreamTimeout("m", limit="gap"), "timeout_error", "upstream_timeout"),
    (NotAnAnswer("m"), "api_error", "incomplete_answer"),
    (StoreError("m"), "api_error", "store_unavailable"),
    (UpstreamRefused("m", upstream_status=401), "authentication_error", "upstream_refused"),
    (UpstreamRefused("m", upstream_status=402), "billing_error", "upstream_refused"),
    (UpstreamRefused("m", upstream_status=429), "rate_limit_error", "upstream_refused"),
    (UpstreamRefused("m", upstream_status=529), "overloaded_error", "upstream_refused"),
    (UpstreamRefused("m", upstream_status=302), "api_error", "upstream_refused"),
]


def read(value: Any) -> ErrorFacts | None:
    return anthropic_errors.read_error(json.dumps(value).encode())


@pytest.mark.parametrize(("error", "kind", "code"), OURS)
def test_our_errors_have_the_published_shape(error: AgentStateError, kind: str, code: str) -> None:
    body = anthropic_errors.error_body(error)

    check("ErrorResponse", body)
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": kind, "message": "m", "details": {"error_code": code}},
    }


def test_a_hint_is_told() -> None:
    body = json.loads(anthropic_errors.error_body(BadRequest("It is odd.", hint="Make it even.")))

    assert body["error"]["message"] == "It is odd. Make it even."


def test_an_error_event_is_one_named_frame_and_no_end() -> None:
    error = BadRequest("a\nb \ud83d")

    raw = anthropic_errors.error_event(error)

    (frame,) = SSEDecoder().feed(raw)
    assert (frame.data, frame.event) == (anthropic_errors.error_body(error), b"error")
    assert b"message_stop" not in raw


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
         ErrorFacts("m", "overloaded_error", None, 529)),
        ({"type": "error", "error": {"type": "api_error", "message": "m"}, "request_id": "r"},
         ErrorFacts("m", "api_error", None, 500)),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "m"}},
         ErrorFacts("m", "rate_limit_error", None, 429)),
        ({"type": "error", "error": {"type": "x_error", "message": "m"}},
         ErrorFacts("m", "x_error")),
        ({"type": "error", "error": {"type": "not_found_error", "message": "m",
                                     "details": {"error_code": "file_expired"}}},
         ErrorFacts("m", "not_found_error", "file_expired", 404)),
        ({"type": "error", "error": {"type": "invalid_request_error",
                                     "message": "prompt is too long: 9 tokens > 8 maximum"}},
         ErrorFacts("prompt is too long: 9 tokens > 8 maximum", "invalid_request_error",
                    "context_length_exceeded", 400)),
        ({"type": "error", "error": {"type": "invalid_request_error",
                                     "message": "Your credit balance is too low to access the"}},
         ErrorFacts("Your credit balance is too low to access the", "invalid_request_error",
                    "insufficient_quota", 400)),
        ({"type": "error", "error": {"type": "billing_error", "message": "m"}},
         ErrorFacts("m", "billing_error", "insufficient_quota", 402)),
        # In OpenAI's form, from what stands in front.
        ({"error": {"message": "m", "type": "server_error", "code": "odd"}},
         ErrorFacts("m", "server_error", "odd", 500)),
        ({"error": "m"}, ErrorFacts("m")),
        ({"detail": "m"}, ErrorFacts("m")),
        ({"type": "error"}, ErrorFacts("", "error")),
        # No errors, though they have a type.
        ({"type": "message", "content": [], "stop_reason": None}, None),
        ({"type": "message_stop"}, None),
        ({}, None),
        ([], None),
        ("m", None),
    ],
)  # fmt: skip
def test_their_errors_are_read(value: Any, facts: ErrorFacts | None) -> None:
    assert read(value) == facts


def test_what_is_no_json_is_no_error() -> None:
    assert anthropic_errors.read_error(b"<html>") is None


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (502, b"<html>Bad gateway</html>", "api_error"),
        (529, b"", "overloaded_error"),
        (404, b"[]", "not_found_error"),
        (418, b"teapot", "invalid_request_error"),
    ],
)
def test_a_mended_body_has_the_published_shape(status: int, body: bytes, kind: str) -> None:
    mended = anthropic_errors.mend_error_body(status, body)

    assert mended is not None
    check("ErrorResponse", mended)
    assert json.loads(mended)["error"]["type"] == kind
    assert str(status) in json.loads(mended)["error"]["message"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (408, "timeout_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_error_of_another_vendor_is_written_in_anthropics_words(status: int, kind: str) -> None:
    facts = ErrorFacts("maximum context length", "server_error", "context_length_exceeded", 400)

    raw = anthropic_errors.write_error(facts, status)

    assert json.loads(raw) == {
        "type": "error",
        "error": {
            "type": kind,
            "message": "maximum context length",
            "details": {"error_code": "context_length_exceeded"},
        },
    }
    if status != 413:  # the package's types lack it
        check("ErrorResponse", raw)
    read = anthropic_errors.read_error(raw)
    assert read is not None
    assert (read.message, read.code) == (facts.message, facts.code)


def test_an_error_that_says_nothing_says_its_status() -> None:
    error = json.loads(anthropic_errors.write_error(ErrorFacts(""), 502))["error"]

    assert error == {"type": "api_error", "message": "The upstream answered HTTP 502."}
