"""Errors in OpenAI's form: ours to the letter, theirs as they come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects import openai_errors
from agentstate.dialects.base import ErrorFacts
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    Conflict,
    Forbidden,
    NotAnAnswer,
    StoreError,
    UpstreamTimeout,
)
from agentstate.wire.sse import SSEDecoder
from tests.helpers.openai_schema import check

OURS: list[tuple[AgentStateError, str, str]] = [
    (BadRequest("m", param="model"), "invalid_request_error", "invalid_request"),
    (Forbidden("m"), "invalid_request_error", "forbidden"),
    (Conflict("m"), "invalid_request_error", "conflict"),
    (UpstreamTimeout("m", limit="gap"), "server_error", "upstream_timeout"),
    (NotAnAnswer("m"), "server_error", "incomplete_answer"),
    (StoreError("m"), "server_error", "store_unavailable"),
]


def read(value: Any) -> ErrorFacts | None:
    return openai_errors.read_error(json.dumps(value).encode())


@pytest.mark.parametrize(("error", "kind", "code"), OURS)
def test_our_errors_have_the_published_shape(error: AgentStateError, kind: str, code: str) -> None:
    body = json.loads(openai_errors.error_body(error))

    check("ErrorResponse", body)
    assert body == {
        "error": {"message": "m", "type": kind, "param": error.param, "code": code},
    }


def test_a_hint_is_told() -> None:
    body = json.loads(openai_errors.error_body(BadRequest("It is odd.", hint="Make it even.")))

    assert body["error"]["message"] == "It is odd. Make it even."


def test_an_error_event_is_one_frame_without_done() -> None:
    error = BadRequest("a\nb \ud83d")

    raw = openai_errors.error_event(error)

    (frame,) = SSEDecoder().feed(raw)
    assert (frame.data, frame.event) == (openai_errors.error_body(error), b"")
    assert b"[DONE]" not in raw


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        ({"error": {"message": "m", "type": "requests", "param": None,
                    "code": "rate_limit_exceeded"}},
         ErrorFacts("m", "requests", "rate_limit_exceeded", 429)),
        ({"error": {"message": "m", "type": "insufficient_quota", "code": "insufficient_quota"}},
         ErrorFacts("m", "insufficient_quota", "insufficient_quota", 429)),
        ({"error": {"message": "m", "type": "BadRequestError", "code": 400}},
         ErrorFacts("m", "BadRequestError", None, 400)),
        ({"error": {"message": "m", "code": "429"}}, ErrorFacts("m", None, None, 429)),
        ({"error": {"message": "m", "code": 1301}}, ErrorFacts("m")),
        ({"error": {"message": "m", "code": "1301"}}, ErrorFacts("m")),
        ({"error": {"message": "m", "code": 399}}, ErrorFacts("m")),
        ({"error": {"message": "m", "code": 599}}, ErrorFacts("m", None, None, 599)),
        ({"error": {"message": "m", "code": 600}}, ErrorFacts("m")),
        ({"error": {"message": "m", "type": "server_error", "code": "odd"}},
         ErrorFacts("m", "server_error", "odd", 500)),
        ({"error": {"message": "m", "type": "invalid_request_error", "code": "model_not_found"}},
         ErrorFacts("m", "invalid_request_error", "model_not_found", 404)),
        ({"error": {"message": "m", "type": "server_error", "code": None}},
         ErrorFacts("m", "server_error", None, 500)),
        ({"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}},
         ErrorFacts("m", "RESOURCE_EXHAUSTED", None, 429)),
        ([{"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}}],
         ErrorFacts("m", "UNAVAILABLE", None, 503)),
        ({"error": {"code": 200, "message": "m"}}, ErrorFacts("m")),
        ({"error": "overloaded"}, ErrorFacts("overloaded")),
        ({"error": {}, "message": "m"}, ErrorFacts("m")),
        ({"error": {"metadata": 1}}, ErrorFacts("")),
        ({"object": "error", "message": "m", "type": "NotFoundError", "code": 404},
         ErrorFacts("m", "NotFoundError", None, 404)),
        ({"detail": "m"}, ErrorFacts("m")),
        ({"message": "m", "status_code": 502}, ErrorFacts("m", None, None, 502)),
    ],
)  # fmt: skip
def test_an_upstream_error_is_read(value: Any, facts: ErrorFacts) -> None:
    assert read(value) == facts


@pytest.mark.parametrize(
    ("kind", "status"),
    [("invalid_request_error", 400), ("authentication_error", 401), ("invalid_api_key", 401),
     ("permission_error", 403), ("not_found_error", 404), ("rate_limit_error", 429),
     ("rate_limit_exceeded", 429), ("insufficient_quota", 429), ("server_error", 500),
     ("other", None)],
)  # fmt: skip
def test_a_known_class_means_a_status(kind: str, status: int | None) -> None:
    facts = read({"error": {"message": "m", "type": kind}})

    assert facts == ErrorFacts("m", kind, None, status)


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {}, {"detail": [1]}, {"choices": []}])
def test_what_is_no_error_is_not_read(value: Any) -> None:
    assert read(value) is None


def test_what_is_no_json_is_not_read() -> None:
    assert openai_errors.read_error(b"<html>") is None


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens.",
        "Your input exceeds the context window of this model.",
        "the request exceeds the available context size, try increasing it",
    ],
)
def test_a_request_that_is_too_long_is_known_without_its_code(message: str) -> None:
    facts = read({"error": {"message": message, "type": "BadRequestError", "code": None}})

    assert facts == ErrorFacts(message, "BadRequestError", "context_length_exceeded", 400)


def test_a_code_is_not_overruled_by_words() -> None:
    facts = read({"error": {"message": "maximum context length", "code": "invalid_prompt"}})

    assert facts is not None
    assert facts.code == "invalid_prompt"


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ({"error": {"message": "m"}}, True),
        ({"error": "m", "choices": [1]}, True),
        ({"object": "error"}, True),
        ({"error": None, "choices": []}, False),
        ({"error": {}}, False),
        ({"object": "chat.completion"}, False),
        ({}, False),
    ],
)
def test_an_error_in_place_of_an_answer_is_known(value: Any, is_one: bool) -> None:
    assert openai_errors.is_error(value) is is_one


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c"}}, "error (t, c): m"),
        ({"error": {"message": "m", "code": 502}}, "error (502): m"),
        ({"error": "m"}, "error: m"),
        ({"error": {"a": 1}}, "error: it says nothing more"),
        (None, "an error that says nothing"),
    ],
)
def test_a_fault_is_one_line(value: Any, fault: str) -> None:
    assert openai_errors.tell_fault(value) == fault


def test_a_fault_is_short() -> None:
    assert len(openai_errors.tell_fault({"error": "x" * 10_000})) < 500


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "no body"),
        (b" \n", "no body"),
        (b"<html>502 Bad Gateway</html>", "an HTML or XML page"),
        (b"\n <!DOCTYPE html>", "an HTML or XML page"),
        (b"upstream connect error", "text that is no JSON"),
        (b"{'error': 'x'}", "text that is no JSON"),
        (b"\x1f\x8b\x00", "text that is no JSON"),
        (b'"busy"', "JSON that is no error object"),
        (b"null", "JSON that is no error object"),
    ],
)
@pytest.mark.parametrize(
    ("status", "kind"),
    [(502, "server_error"), (404, "invalid_request_error"), (200, "server_error")],
)
def test_a_body_no_client_can_read_is_replaced(
    body: bytes, what: str, status: int, kind: str
) -> None:
    mended = json.loads(openai_errors.mend_error_body(status, body) or b"")

    check("ErrorResponse", mended)
    assert f"answered HTTP {status} with {what}," in mended["error"]["message"]
    assert mended["error"]["type"] == kind
    assert mended["error"]["code"] == "upstream_refused"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(399, "server_error"), (400, "invalid_request_error"), (499, "invalid_request_error"),
     (500, "server_error")],
)  # fmt: skip
def test_whose_fault_it_was_is_told_by_the_status(status: int, kind: str) -> None:
    for body in (b"", b'[{"error":{"message":"m"}}]'):
        mended = json.loads(openai_errors.mend_error_body(status, body) or b"")
        assert mended["error"]["type"] == kind


def test_an_error_in_a_list_without_words_is_replaced() -> None:
    mended = json.loads(openai_errors.mend_error_body(503, b'[{"error":{"code":503}}]') or b"")

    assert "HTTP 503" in mended["error"]["message"]


def test_an_error_in_a_list_keeps_its_words() -> None:
    wrapped = b'[{"error":{"code":429,"message":"Quota.","status":"RESOURCE_EXHAUSTED"}}]'

    mended = json.loads(openai_errors.mend_error_body(429, wrapped) or b"")

    check("ErrorResponse", mended)
    assert mended["error"] == {
        "message": "Quota.", "type": "RESOURCE_EXHAUSTED", "param": None, "code": None,
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"{}", b'{"error":{"message":"x"}}', b' {"detail":"x"}\n'])
def test_a_json_object_passes(body: bytes) -> None:
    assert openai_errors.mend_error_body(500, body) is None


@pytest.mark.parametrize(
    ("facts", "status", "kind", "code"),
    [
        (ErrorFacts("m", "invalid_request_error", None, 400), 400, "invalid_request_error", None),
        (ErrorFacts("m", None, "context_length_exceeded", 400), 400, "invalid_request_error",
         "context_length_exceeded"),
        (ErrorFacts("m", "UNAUTHENTICATED", None, 401), 401, "invalid_request_error",
         "invalid_api_key"),
        (ErrorFacts("m", "authentication_error", None, 401), 401, "authentication_error",
         "invalid_api_key"),
        (ErrorFacts("m", "PERMISSION_DENIED", None, 403), 403, "invalid_request_error", None),
        (ErrorFacts("m", "not_found_error", None, 404), 404, "not_found_error", None),
        (ErrorFacts("m", "RESOURCE_EXHAUSTED", None, 429), 429, "rate_limit_error",
         "rate_limit_exceeded"),
        (ErrorFacts("m", "insufficient_quota", "insufficient_quota", 429), 429,
         "insufficient_quota", "insufficient_quota"),
        # What a 200 calls the caller's fault and what stands for it now are two things.
        (ErrorFacts("m", "invalid_request_error", None, None), 502, "server_error", None),
        (ErrorFacts("m", "api_error", None, 500), 500, "server_error", None),
        (ErrorFacts("m", "UNAVAILABLE", None, 503), 503, "service_unavailable_error", None),
        (ErrorFacts("m", "overloaded_error", None, 529), 529, "service_unavailable_error", None),
    ],
)  # fmt: skip
def test_an_error_of_another_vendor_gets_our_words(
    facts: ErrorFacts, status: int, kind: str, code: str | None
) -> None:
    body = json.loads(openai_errors.write_error(facts, status))

    check("ErrorResponse", body)
    assert body == {"error": {"message": "m", "type": kind, "param": None, "code": code}}


def test_an_error_that_says_nothing_names_its_status() -> None:
    body = json.loads(openai_errors.write_error(ErrorFacts(""), 418))

    assert body["error"]["message"] == "The upstream answered HTTP 418 and said nothing more."


def test_the_words_of_an_error_survive_as_they_are() -> None:
    body = json.loads(openai_errors.write_error(ErrorFacts("a\u2028\ud83d"), 400))

    assert body["error"]["message"] == "a\u2028\ud83d"
