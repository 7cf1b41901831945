"""Errors in Google's form: code, status and reason say the same."""

from __future__ import annotations

import json

import pytest

from agentstate.dialects.base import ErrorFacts
from agentstate.dialects.gemini_errors import (
    error_body,
    mend_error_body,
    read_error,
    write_error,
)
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    NotFound,
    StoreError,
    TooLarge,
    UpstreamRefused,
    UpstreamTimeout,
)


@pytest.mark.parametrize(
    ("error", "code", "status", "reason"),
    [
        (BadRequest("x"), 400, "INVALID_ARGUMENT", "invalid_request"),
        (NotFound("x"), 404, "NOT_FOUND", "not_found"),
        (TooLarge("x"), 413, "INVALID_ARGUMENT", "too_large"),
        (StoreError("x"), 503, "UNAVAILABLE", "store_unavailable"),
        (UpstreamTimeout("x", limit="gap"), 504, "DEADLINE_EXCEEDED", "upstream_timeout"),
        (UpstreamRefused("x", upstream_status=429), 429, "RESOURCE_EXHAUSTED", "upstream_refused"),
        (AgentStateError("x"), 500, "INTERNAL", "internal"),
    ],
)
def test_ours_say_their_status_in_googles_words(
    error: AgentStateError, code: int, status: str, reason: str
) -> None:
    told = json.loads(error_body(error))["error"]

    assert (told["code"], told["status"], told["message"]) == (code, status, "x")
    assert told["details"][0]["reason"] == reason
    facts = read_error(error_body(error))
    assert facts is not None
    assert (facts.status, facts.kind, facts.code) == (code, status, reason)


def test_theirs_are_read_in_a_list_too() -> None:
    error = {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}
    for value in (error, [error]):
        facts = read_error(json.dumps(value).encode())
        assert facts is not None
        assert (facts.message, facts.status) == ("Quota", 429)


@pytest.mark.parametrize(
    ("delay", "pause_s"),
    [("38s", 38.0), ("0.5s", 0.5), ("0s", 0.0), ("38", None), ("-1s", None), ("soon", None),
     (38, None), (None, None)],
)  # fmt: skip
def test_the_pause_of_a_retry_info_is_read(delay: object, pause_s: float | None) -> None:
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    error = {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": details}

    facts = read_error(json.dumps({"error": error}).encode())

    assert facts is not None
    assert (facts.retry_after_s, facts.code) == (pause_s, None)


def test_a_page_becomes_an_error_of_google_s_form() -> None:
    mended = mend_error_body(502, b"<html>bad gateway</html>")
    assert mended is not None
    told = json.loads(mended)["error"]
    assert (told["code"], told["status"]) == (502, "UNAVAILABLE")
    assert "502" in told["message"]


@pytest.mark.parametrize(
    ("status", "word"),
    [(400, "INVALID_ARGUMENT"), (401, "UNAUTHENTICATED"), (429, "RESOURCE_EXHAUSTED"),
     (500, "INTERNAL"), (529, "UNAVAILABLE")],
)  # fmt: skip
def test_an_upstreams_error_in_another_form_says_its_status_in_googles_words(
    status: int, word: str
) -> None:
    facts = ErrorFacts("Too much.", "rate_limit_error", "insufficient_quota", status)
    told = json.loads(write_error(facts, status))["error"]
    assert (told["code"], told["status"], told["message"]) == (status, word, "Too much.")
    assert told["details"][0]["reason"] == "insufficient_quota"


def test_an_error_that_says_nothing_names_its_status_and_has_no_details() -> None:
    told = json.loads(write_error(ErrorFacts(""), 503))["error"]
    assert "503" in told["message"]
    assert "details" not in told
