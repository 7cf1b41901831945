"""What a failed attempt means: every way in which an upstream says it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from email.utils import format_datetime, formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import ErrorFacts
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import (
    ConnectFailed,
    NotAnAnswer,
    UpstreamCut,
    UpstreamError,
    UpstreamProtocol,
    UpstreamRefused,
    UpstreamTimeout,
)
from agentstate.steps.failures import (
    Failure,
    Kind,
    failure_of_error,
    failure_of_status,
    is_own_retry,
    read_retry_after,
)
from agentstate.wire.message import Headers

NOW_S = 784_111_777  # Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110
NOW_MS = NOW_S * 1000


def headers(**fields: str) -> Headers:
    return Headers(
        (name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()
    )


def asked(text: str) -> float | None:
    return read_retry_after(headers(Retry_After=text), NOW_MS)


def kind(status: int, facts: ErrorFacts | None = None) -> Kind:
    return failure_of_status(status, facts, Headers(), NOW_MS).kind


# -- how long to wait


@pytest.mark.parametrize(
    ("text", "pause_s"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("007", 7.0),
        ("1.5", 1.5),
        ("0.001", 0.001),
        ("86400", 86_400.0),
        ("99999999999", 99_999_999_999.0),
    ],
)
def test_seconds_with_and_without_decimals(text: str, pause_s: float) -> None:
    assert asked(text) == pause_s


def test_a_number_of_any_length_is_a_long_time() -> None:
    pause_s = asked("9" * 5_000)

    assert pause_s is not None
    assert pause_s > 1e300


@pytest.mark.parametrize(
    ("text", "pause_s"),
    [
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sun, 06 Nov 1994 09:49:37 +0100", 0.0),
        ("Sun, 06 Nov 1994 08:49:47 +0000", 10.0),
        ("Sun, 06 Nov 1994 08:49:47 -0000", 10.0),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),  # RFC 850
        ("Sun Nov  6 08:49:47 1994", 10.0),  # asctime
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:49:36 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Mon, 07 Nov 1994 08:49:37 GMT", 86_400.0),
    ],
)
def test_dates_in_all_forms_of_http_that_have_passed_and_have_not(
    text: str, pause_s: float
) -> None:
    assert asked(text) == pause_s


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
@pytest.mark.parametrize("text", ["Sun Nov  6 08:49:47 1994", "Sun, 06 Nov 1994 08:49:47 -0000"])
def test_a_date_without_a_zone_is_utc_wherever_this_runs(text: str) -> None:
    assert asked(text) == 10.0


def test_a_date_is_measured_from_now_to_the_millisecond() -> None:
    later = headers(Retry_After=formatdate(NOW_S + 10, usegmt=True))

    assert read_retry_after(later, NOW_MS + 250) == 9.75


@pytest.mark.parametrize(
    "text",
    ["", " ", "-5", "+5", "1e3", "0x10", ".5", "5.", "1,5", "5s", "soon", "inf", "nan", "\u0663",
     "10 20", "32 Nov 1994", "Sun, 06 Nov 1994 99:99:99 GMT", "1 Jan 99999 00:00:00 GMT"],
)  # fmt: skip
def test_rubbish_asks_for_nothing(text: str) -> None:
    assert asked(text) is None


def test_no_header_asks_for_nothing() -> None:
    assert read_retry_after(Headers(), NOW_MS) is None


@given(st.binary(max_size=60))
def test_whatever_stands_there_is_a_pause_or_nothing(value: bytes) -> None:
    for name in (b"retry-after", b"retry-after-ms"):
        pause_s = read_retry_after(Headers([(name, value)]), NOW_MS)

        assert pause_s is None or pause_s >= 0


@given(st.datetimes())
def test_every_date_is_a_pause(when: datetime) -> None:
    pause_s = asked(format_datetime(when))

    assert pause_s is not None
    assert pause_s >= 0


@pytest.mark.parametrize(("text", "pause_s"), [("1500", 1.5), (" 20 ", 0.02), ("0", 0.0),
                                              ("12.5", 0.0125)])  # fmt: skip
def test_milliseconds_go_before_seconds(text: str, pause_s: float) -> None:
    both = headers(retry_after_ms=text, retry_after="60")

    assert read_retry_after(both, NOW_MS) == pause_s


@pytest.mark.parametrize("text", ["", "-1", "soon", "1s"])
def test_milliseconds_that_are_rubbish_leave_the_seconds(text: str) -> None:
    both = headers(retry_after_ms=text, retry_after="60")

    assert read_retry_after(both, NOW_MS) == 60.0


def test_a_pause_that_only_the_body_asks_for_counts() -> None:
    facts = ErrorFacts("Quota", retry_after_s=38.0)

    assert failure_of_status(429, facts, Headers(), NOW_MS).retry_after_s == 38.0
    said = headers(retry_after="2")
    assert failure_of_status(429, facts, said, NOW_MS).retry_after_s == 2.0


# -- what a status and a body say


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "request"), (401, "request"), (403, "request"), (404, "request"), (422, "request"),
        (402, "quota"), (408, "server"), (409, "server"), (413, "request"), (425, "request"),
        (429, "rate_limit"), (500, "server"), (502, "server"), (503, "server"), (504, "server"),
        (529, "server"), (599, "server"),
    ],
)  # fmt: skip
def test_a_status_alone(status: int, expected: Kind) -> None:
    assert kind(status) == expected
    assert kind(status, ErrorFacts("", None, None, None)) == expected


def read(dialect: str, **error: JSON) -> ErrorFacts:
    found = dialect_by_name(dialect)
    assert found is not None
    facts = found.read_error(encode({"error": error, "type": "error"}))
    assert facts is not None
    return facts


@pytest.mark.parametrize(
    ("status", "dialect", "error", "expected"),
    [
        # A limit that a pause mends, and money that none does: both are a 429 at OpenAI.
        (429, "openai_chat", {"code": "insufficient_quota", "type": "insufficient_quota"}, "quota"),
        (429, "openai_chat", {"type": "insufficient_quota"}, "quota"),
        (429, "openai_chat", {"code": "rate_limit_exceeded", "type": "tokens"}, "rate_limit"),
        (400, "openai_chat", {"code": "billing_hard_limit_reached"}, "quota"),
        (429, "openai_chat", {"message": "You exceeded your current quota: 20 RPM"}, "rate_limit"),
        (400, "anthropic_messages", {"type": "invalid_request_error", "message":
         "Your credit balance is too low to access the Anthropic API."}, "quota"),
        (400, "anthropic_messages", {"type": "invalid_request_error", "message": "You have "
         "reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 "
         "UTC."}, "quota"),
        (429, "openai_chat", {"code": "billing_not_active"}, "quota"),
        (403, "anthropic_messages", {"type": "billing_error", "message": "x"}, "quota"),
        (429, "anthropic_messages", {"type": "rate_limit_error", "message": "x"}, "rate_limit"),
        (429, "gemini", {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x"},
         "rate_limit"),
        # The request does not fit.
        (400, "openai_chat", {"code": "context_length_exceeded"}, "context"),
        (400, "openai_responses", {"code": "context_length_exceeded"}, "context"),
        (400, "openai_chat", {"code": "string_above_max_length"}, "context"),
        (400, "openai_chat", {"message": "This model's maximum context length is 8192 tokens. "
         "However, your messages resulted in 9000 tokens."}, "context"),
        (400, "openai_chat", {"message": "the request exceeds the available context size"},
         "context"),
        (400, "openai_chat", {"message": "Your input exceeds the context window of this model."},
         "context"),
        (400, "openai_chat", {"message": "This model's maximum prompt length is 131072 but the "
         "request contains 136973 tokens."}, "context"),
        (400, "anthropic_messages", {"type": "invalid_request_error", "message":
         "prompt is too long: 210000 tokens > 200000 maximum"}, "context"),
        (400, "anthropic_messages", {"type": "invalid_request_error", "message": "input length "
         "and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}, "context"),
        (400, "gemini", {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token "
         "count (1200000) exceeds the maximum number of tokens allowed (1048576)."}, "context"),
        (400, "openai_chat", {"message": "max_tokens is too large: 5000"}, "request"),
        # Nor into the tokens of a minute, which no pause mends.
        (413, "openai_chat", {"code": "rate_limit_exceeded", "type": "tokens", "message":
         "Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested "
         "12328, please reduce your message size and try again."}, "allowance"),
        (429, "openai_chat", {"code": "rate_limit_exceeded", "type": "tokens", "message":
         "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389."},
         "allowance"),
        (429, "openai_chat", {"code": "rate_limit_exceeded", "type": "tokens", "message":
         "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, "
         "Requested 2000. Please try again in 2s."}, "rate_limit"),
        # A filter.
        (400, "openai_chat", {"code": "content_filter"}, "filter"),
        (400, "openai_chat", {"code": "content_policy_violation"}, "filter"),
        (400, "openai_chat", {"type": "ResponsibleAIPolicyViolation"}, "filter"),
        (400, "openai_chat", {"code": "moderation_blocked"}, "filter"),
        # Neither.
        (400, "openai_chat", {"code": "unknown_parameter", "message": "Unknown: quota"}, "request"),
        (401, "openai_chat", {"code": "invalid_api_key"}, "request"),
        (529, "anthropic_messages", {"type": "overloaded_error", "message": "x"}, "server"),
        (503, "gemini", {"code": 503, "status": "UNAVAILABLE", "message": "x"}, "server"),
    ],
)  # fmt: skip
def test_the_words_of_the_vendors(
    status: int, dialect: str, error: dict[str, JSON], expected: Kind
) -> None:
    assert kind(status, read(dialect, **error)) == expected


def test_words_count_in_any_case() -> None:
    assert kind(400, ErrorFacts("", None, "Context_Length_Exceeded")) == "context"
    assert kind(429, ErrorFacts("", "INSUFFICIENT_QUOTA")) == "quota"


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_message_about_length_counts_only_where_the_request_is_at_fault(status: int) -> None:
    assert kind(status, ErrorFacts("the maximum context length")) != "context"


# -- x-should-retry


@pytest.mark.parametrize(("text", "said"), [("true", True), ("True", True), (" false ", False),
                                            ("maybe", None), ("", None)])  # fmt: skip
def test_the_upstream_may_say_whether_to_ask_again(text: str, said: bool | None) -> None:
    failure = failure_of_status(503, None, headers(x_should_retry=text), NOW_MS)

    assert failure.should_retry is said


def test_what_it_says_goes_before_the_status() -> None:
    may = failure_of_status(400, None, headers(x_should_retry="true"), NOW_MS)
    may_not = failure_of_status(503, None, headers(x_should_retry="false"), NOW_MS)

    assert (may.kind, may.may_pass, may.is_final) == ("request", True, False)
    assert (may_not.kind, may_not.may_pass, may_not.is_final) == ("server", False, False)


def test_a_refusal_tells_how_long_to_wait() -> None:
    failure = failure_of_status(429, None, headers(retry_after="3"), NOW_MS)

    assert failure == Failure("rate_limit", 3.0)


# -- what follows from a kind


@pytest.mark.parametrize(
    ("kind", "may_pass", "is_final", "is_of_target"),
    [
        ("connect", True, False, True),
        ("timeout", True, False, True),
        ("cut", True, False, True),
        ("rate_limit", True, False, True),
        ("server", True, False, True),
        ("quota", False, False, True),
        ("context", False, False, False),
        ("filter", False, False, False),
        ("request", False, True, False),
    ],
)
def test_what_each_kind_means(
    kind: Kind, may_pass: bool, is_final: bool, is_of_target: bool
) -> None:
    failure = Failure(kind)

    assert (failure.may_pass, failure.is_final, failure.is_of_target) == (
        may_pass, is_final, is_of_target,
    )  # fmt: skip


# -- errors of the transport


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectFailed("x"), "connect"),
        (UpstreamTimeout("x", limit="first_byte"), "timeout"),
        (UpstreamCut("x"), "cut"),
        (UpstreamProtocol("x"), "cut"),
        (NotAnAnswer("x"), "cut"),
        (UpstreamRefused("x", upstream_status=429), "rate_limit"),
        (UpstreamRefused("x", upstream_status=400), "request"),
        (UpstreamRefused("x"), "server"),
        (UpstreamError("x"), "server"),
    ],
)
def test_an_error_of_the_transport(error: UpstreamError, expected: Kind) -> None:
    assert failure_of_error(error) == Failure(expected)


# -- the client's own retry


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", False), ("00", False), ("1", True), ("12", True), ("01", True), ("", False),
     ("-1", False), ("1.0", False), ("yes", False), ("\u0661", False), ("9" * 5_000, True)],
)  # fmt: skip
def test_a_client_says_which_try_of_its_own_it_is(text: str, found: bool) -> None:
    assert is_own_retry(headers(x_stainless_retry_count=text)) is found


def test_a_client_that_says_nothing_asks_for_the_first_time() -> None:
    assert not is_own_retry(Headers())
