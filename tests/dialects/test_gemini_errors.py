"""Errors in Google's form: code, status and reason say the same."""

from __future__ import annotations

import json

import pytest

from agentstate.dialects.gemini_errors import error_body, mend_error_body, read_error
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


def test_a_page_becomes_an_error_of_google_s_form() -> None:
    mended = mend_error_body(502, b"<html>bad gateway</html>")
    assert mended is not None
    told = json.loads(mended)["error"]
    assert (told["code"], told["status"]) == (502, "UNAVAILABLE")
    assert "502" in told["message"]
