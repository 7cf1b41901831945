"""One target of one call: how what comes back is read, answers and errors alike."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.ground.errors import ConnectFailed, UpstreamCut
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.leg import Failed, Leg, Outgoing
from agentstate.steps.target import Target
from agentstate.steps.translation import PlainFrames, RefusedInside, TranslatedFrames
from agentstate.wire.message import Headers, Pair
from tests.dialects.samples import SAMPLES, chat_body, chat_chunk, chat_message
from tests.dialects.samples_anthropic import body as messages_body
from tests.dialects.samples_anthropic import event, start
from tests.steps.legs import MESSAGES, PLAIN, exchange, outgoing, said_by, sample
from tests.steps.pairs import both, bound, calls_of, read, stream_of
from tests.steps.scene import FakeExchange


def refusal(leg: Leg, given: FakeExchange) -> Failed:
    return asyncio.run(leg.read_refusal(given))


# -- reading a whole answer


def test_an_answer_in_the_callers_form_is_untouched() -> None:
    raw = SAMPLES["openai_chat"].bodies["text"]

    body, answer, failed = Leg(PLAIN, outgoing()).read(exchange(), raw)

    assert body is raw
    assert failed is None
    assert answer.text == "Hi there \U0001f600"


@both
def test_an_answer_in_another_form_is_one_of_the_callers(caller: str, spoken: str) -> None:
    dialect, _ = bound(caller, streams=False)
    theirs = bound(spoken, streams=False)[0].read_answer(SAMPLES[spoken].bodies["tool calls"])
    leg = Leg(replace(MESSAGES, dialect=spoken), sample(caller))

    body, answer, failed = leg.read(exchange(), SAMPLES[spoken].bodies["tool calls"])

    assert failed is None
    ours = dialect.read_answer(body)
    assert calls_of(ours) == calls_of(theirs)
    # What is paid is paid by what the upstream counted, under the name it gave.
    assert (answer.usage, answer.model) == (theirs.usage, theirs.model)
    assert (answer.choices, answer.text) == (ours.choices, ours.text)


@pytest.mark.parametrize("target", [PLAIN, MESSAGES])
@pytest.mark.parametrize("raw", [b"", b"<html>", b"{}", b'{"choices": []}'])
def test_what_is_no_answer_is_a_failure(target: Target, raw: bytes) -> None:
    body, _, failed = Leg(target, outgoing()).read(exchange(), raw)

    assert failed is not None
    assert body == b""
    assert (failed.failure.kind, failed.excerpt, failed.refusal) == ("cut", raw, None)
    assert failed.error.provider == target.provider
    assert failed.error.code == "incomplete_answer"


def test_a_coding_that_cannot_be_read_is_told() -> None:
    packed = exchange(200, b"", b"application/json", (b"content-encoding", b"br"))

    _, _, failed = Leg(PLAIN, outgoing()).read(packed, b"\x0b\x01")

    assert failed is not None
    assert "br-encoded" in failed.error.message


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"code": "insufficient_quota", "message": "Pay."}, 429, "quota"),
        ({"code": "context_length_exceeded", "message": "Long."}, 400, "context"),
        ({"code": 503, "message": "Busy."}, 503, "server"),
        ({"message": "Odd."}, 502, "server"),
    ],
)
@pytest.mark.parametrize("caller", ["openai_chat", "anthropic_messages"])
def test_an_error_inside_a_success_is_the_http_error_it_is(
    caller: str, error: dict[str, Any], status: int, kind: str
) -> None:
    raw = json.dumps({"error": error}).encode()
    form = "" if caller == "openai_chat" else "openai_chat"
    leg = Leg(replace(MESSAGES, dialect=form), sample(caller))

    _, _, failed = leg.read(exchange(200, raw, b"application/json", (b"x-kept", b"1")), raw)

    assert failed is not None
    assert (failed.failure.kind, failed.error.upstream_status) == (kind, status)
    assert "answered 200 with an error inside: " + error["message"] in failed.error.message
    assert failed.refusal is not None
    assert (failed.refusal.status, failed.refusal.form) == (status, "body")
    assert failed.refusal.headers == ((b"content-type", b"application/json"), (b"x-kept", b"1"))
    facts = said_by(caller, failed.refusal)
    assert facts == error["message"]


@pytest.mark.parametrize(
    ("delay", "said", "told"),
    [
        ("0.847655010s", (), [b"1"]),
        ("22s", (), [b"22"]),
        ("22s", ((b"Retry-After", b"30"),), [b"30"]),
        ("22s", ((b"retry-after-ms", b"300"),), []),
        ("soon", (), []),
    ],
)
def test_a_pause_that_is_asked_for_in_the_body_is_told_in_a_header(
    delay: str, said: tuple[Pair, ...], told: list[bytes]
) -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    error = {"code": 429, "message": "Slow.", "status": "RESOURCE_EXHAUSTED", "details": [detail]}
    given = exchange(429, json.dumps({"error": error}).encode(), b"application/json", *said)

    failed = refusal(Leg(replace(PLAIN, dialect="gemini"), sample("openai_chat")), given)

    assert failed.refusal is not None
    assert Headers(failed.refusal.headers).all(b"retry-after") == told


def test_what_is_left_out_of_an_answer_is_named_too() -> None:
    two = chat_body(
        {"message": chat_message(content="a"), "finish_reason": "stop"},
        {"message": chat_message(content="b"), "finish_reason": "stop"},
    )
    leg = Leg(replace(PLAIN, dialect="openai_chat"), sample("anthropic_messages"))

    _, _, failed = leg.read(exchange(), two)

    assert failed is None
    assert leg.dropped


# -- reading a stream whole


def test_a_stream_in_the_callers_form_is_untouched() -> None:
    raw = b"".join(stream_of("openai_chat", "text"))

    found = Leg(PLAIN, outgoing()).read_events(exchange(200, b"", b"text/event-stream"), raw)

    assert not isinstance(found, Failed)
    recorded, answer = found
    assert (recorded.form, recorded.content) == ("events", raw)
    assert answer.text == "Hi there \U0001f600"


def test_a_stream_in_another_form_is_one_of_the_callers() -> None:
    raw = b"".join(stream_of("anthropic_messages", "tool calls"))
    given = exchange(200, b"", b"text/event-stream", (b"request-id", b"r"))

    found = Leg(MESSAGES, sample("openai_chat", streams=True)).read_events(given, raw)

    assert not isinstance(found, Failed)
    recorded, answer = found
    assert recorded.headers == ((b"content-type", b"text/event-stream; charset=utf-8"),)
    ours = read(bound("openai_chat", streams=True)[0], recorded.content)
    assert [call.name for _, call in ours.tool_calls] == ["get_weather", "now"]
    assert answer.tool_calls == ours.tool_calls


@pytest.mark.parametrize("target", [PLAIN, MESSAGES])
def test_a_stream_without_an_end_is_a_failure(target: Target) -> None:
    raw = chat_chunk({"content": "Hi"}) if target is PLAIN else start()

    found = Leg(target, outgoing()).read_events(exchange(200, b"", b"text/event-stream"), raw)

    assert isinstance(found, Failed)
    assert (found.failure.kind, found.excerpt) == ("cut", raw)


def test_an_error_in_a_translated_stream_means_what_it_says() -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}
    raw = start() + event("error", error=error)

    found = Leg(MESSAGES, outgoing()).read_events(exchange(200, b"", b"text/event-stream"), raw)

    assert isinstance(found, Failed)
    assert (found.failure.kind, found.error.upstream_status) == ("context", 400)
    assert found.refusal is not None
    assert said_by("openai_chat", found.refusal) == "prompt is too long: 9 > 8"


# -- error responses


def test_an_error_in_the_callers_form_passes_as_it_is() -> None:
    raw = b'{ "error": {"message": "Slow down.", "code": "rate_limit_exceeded", "x": 1.50} }'
    given = exchange(
        429, raw, b"application/json; charset=utf-8", (b"Retry-After", b"7"),
        (b"x-ratelimit-limit-requests", b"10"), (b"X-Request-Id", b"r"), (b"Set-Cookie", b"c"),
    )  # fmt: skip

    failed = refusal(Leg(PLAIN, outgoing()), given)

    assert failed.refusal == RecordedAnswer(
        429,
        tuple(pair for pair in given.headers if pair[0] != b"Set-Cookie"),
        "body",
        raw,
    )
    assert (failed.failure.kind, failed.failure.retry_after_s) == ("rate_limit", 7.0)
    assert failed.error.message == "up answered 429: Slow down."
    assert (failed.error.upstream_status, failed.error.provider) == (429, "up")
    assert failed.excerpt == raw


def test_an_error_page_becomes_an_error_of_the_callers_form() -> None:
    page = b"<html>Bad gateway</html>"

    failed = refusal(Leg(PLAIN, outgoing()), exchange(502, page, b"text/html"))

    assert failed.refusal is not None
    assert failed.refusal.headers == ((b"content-type", b"application/json"),)
    assert "502" in said_by("openai_chat", failed.refusal)
    assert (failed.failure.kind, failed.excerpt) == ("server", page)


@both
def test_an_error_in_another_form_is_written_in_the_callers(caller: str, spoken: str) -> None:
    given = exchange(
        529, SAMPLES[spoken].error_body, b"application/json", (b"retry-after", b"7"),
        (b"x-should-retry", b"true"), (b"x-request-id", b"r"), (b"Request-Id", b"r"),
        (b"anthropic-ratelimit-requests-limit", b"1"), (b"OpenAI-Version", b"v"),
        (b"x-ratelimit-limit-requests", b"1"), (b"content-encoding", b"identity"),
    )  # fmt: skip

    failed = refusal(Leg(replace(MESSAGES, dialect=spoken), sample(caller)), given)

    assert failed.refusal is not None
    assert failed.refusal.status == 529
    assert failed.refusal.headers == (
        (b"content-type", b"application/json"), (b"retry-after", b"7"),
        (b"x-should-retry", b"true"),
    )  # fmt: skip
    assert said_by(caller, failed.refusal) == "Overloaded"
    assert failed.error.message == "claude answered 529: Overloaded"
    assert (failed.failure.kind, failed.failure.retry_after_s) == ("server", 7.0)


@both
def test_an_error_page_of_another_form_is_readable_all_the_same(caller: str, spoken: str) -> None:
    leg = Leg(replace(MESSAGES, dialect=spoken), sample(caller))

    failed = refusal(leg, exchange(503, b"", b"text/html"))

    assert failed.refusal is not None
    assert "503" in said_by(caller, failed.refusal)
    assert failed.failure.kind == "server"


def test_long_words_of_an_upstream_are_cut_in_ours() -> None:
    raw = json.dumps({"error": {"message": "x" * 5_000}}).encode()

    failed = refusal(Leg(PLAIN, outgoing()), exchange(400, raw))

    assert len(failed.error.message) < 400
    assert failed.refusal is not None
    assert failed.refusal.content == raw


def test_where_there_are_no_words_the_code_is_told() -> None:
    failed = refusal(Leg(PLAIN, outgoing()), exchange(400, b'{"error": {"code": "odd_one"}}'))

    assert failed.error.message == "up answered 400: odd_one"


def test_an_error_that_says_nothing_is_told_by_its_status() -> None:
    failed = refusal(Leg(PLAIN, outgoing()), exchange(418, b"{}"))

    assert failed.error.message.startswith("up answered 418")
    assert failed.refusal is not None
    assert failed.refusal.content == b"{}"


# -- errors inside


@pytest.mark.parametrize("data", [b"", b"[DONE]", b"<html>", SAMPLES["openai_chat"].bodies["text"]])
def test_what_is_no_error_is_none_inside(data: bytes) -> None:
    assert Leg(PLAIN, outgoing()).refusal_inside(exchange(), data) is None


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None},
        {"type": "response.failed", "response": {
            "status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Slow down."},
        }},
    ],
)  # fmt: skip
def test_an_error_that_is_an_event_is_written_as_a_body(event: dict[str, Any]) -> None:
    leg = Leg(PLAIN, sample("openai_responses"))

    failed = leg.refusal_inside(exchange(), json.dumps(event).encode())

    assert failed is not None
    assert (failed.failure.kind, failed.error.upstream_status) == ("rate_limit", 429)
    assert failed.refusal is not None
    assert json.loads(failed.refusal.content)["error"]["message"] == "Slow down."


# -- filters


FILTERED = chat_body({"message": chat_message(content=""), "finish_reason": "content_filter"})


def test_an_answer_that_a_filter_emptied_can_be_told_from_others() -> None:
    leg = Leg(PLAIN, outgoing())
    _, answer, _ = leg.read(exchange(), FILTERED)

    failed = leg.filtered(answer)

    assert failed is not None
    assert (failed.failure.kind, failed.error.provider) == ("filter", "up")


def test_a_filtered_answer_of_another_form_is_one_too() -> None:
    raw = messages_body(reason="refusal")
    leg = Leg(MESSAGES, outgoing())
    _, answer, failed = leg.read(exchange(), raw)

    assert failed is None
    assert leg.filtered(answer) is not None


@pytest.mark.parametrize(
    "message",
    [
        chat_message(content="Here is"),
        chat_message(tool_calls=[{"id": "c", "type": "function",
                                  "function": {"name": "f", "arguments": "{}"}}]),
    ],
)  # fmt: skip
def test_what_a_filter_left_something_of_is_an_answer(message: dict[str, Any]) -> None:
    leg = Leg(PLAIN, outgoing())
    raw = chat_body({"message": message, "finish_reason": "content_filter"})
    _, answer, _ = leg.read(exchange(), raw)

    assert leg.filtered(answer) is None


def test_an_empty_answer_that_no_filter_emptied_is_an_answer() -> None:
    leg = Leg(PLAIN, outgoing())
    _, answer, _ = leg.read(exchange(), SAMPLES["openai_chat"].bodies["empty text"])

    assert leg.filtered(answer) is None


def test_a_form_that_is_not_translated_has_no_such_answers() -> None:
    dialect = dialect_by_name("openai_embeddings")
    assert dialect is not None
    body = SAMPLES["openai_embeddings"].ask
    out = Outgoing(dialect, dialect.read_ask(body), Headers(), "/v1/embeddings", "", b"{}")
    leg = Leg(PLAIN, out)
    _, answer, failed = leg.read(exchange(), SAMPLES["openai_embeddings"].bodies["two vectors"])

    assert failed is None
    assert leg.filtered(answer) is None


# -- errors of the transport


def test_an_error_of_the_transport_names_the_provider() -> None:
    failed = Leg(PLAIN, outgoing()).failed(ConnectFailed("no way"), b"seen")

    assert (failed.error.provider, failed.failure.kind) == ("up", "connect")
    assert (failed.refusal, failed.excerpt, failed.is_out) == (None, b"seen", False)


def test_a_name_that_is_there_stays() -> None:
    failed = Leg(PLAIN, outgoing()).failed(UpstreamCut("cut", provider="other"))

    assert failed.error.provider == "other"


def test_an_error_inside_a_translated_stream_can_be_passed_on() -> None:
    leg = Leg(MESSAGES, outgoing())
    with pytest.raises(RefusedInside) as caught:
        leg.frames().feed(event("error", error={"type": "overloaded_error", "message": "Busy."}))

    failed = leg.failed(caught.value)

    assert failed.refusal is not None
    assert (failed.refusal.status, failed.failure.kind) == (529, "server")
    assert said_by("openai_chat", failed.refusal) == "Busy."


# -- frames and headers


def test_only_another_form_is_translated() -> None:
    assert isinstance(Leg(PLAIN, outgoing()).frames(), PlainFrames)
    assert isinstance(Leg(MESSAGES, outgoing()).frames(), TranslatedFrames)


THEIRS: tuple[Pair, ...] = (
    (b"Content-Type", b"application/x-ndjson"), (b"OpenAI-Processing-Ms", b"5"),
    (b"anthropic-organization-id", b"o"), (b"X-RateLimit-Limit-Requests", b"1"),
    (b"X-Request-Id", b"r"), (b"Request-Id", b"r"), (b"Date", b"d"), (b"Set-Cookie", b"c"),
    (b"X-Agentstate-Session", b"forged"),
)  # fmt: skip


def test_an_untranslated_answer_has_its_upstreams_headers() -> None:
    given = exchange()
    given.headers = Headers(THEIRS)

    assert Leg(PLAIN, outgoing()).headers(given) == THEIRS[:7]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (b"application/json; charset=utf-8", b"application/json"),
        (b"text/event-stream", b"text/event-stream; charset=utf-8"),
        (b"application/x-ndjson", b"text/event-stream; charset=utf-8"),
    ],
)
def test_a_translated_answer_has_none_that_speak_of_another_form(
    kind: bytes, expected: bytes
) -> None:
    given = exchange()
    given.headers = Headers([(b"Content-Type", kind), *THEIRS[1:]])

    assert Leg(MESSAGES, outgoing()).headers(given) == (
        (b"content-type", expected), (b"Date", b"d"),
    )  # fmt: skip


def test_the_mock_is_named_in_a_header() -> None:
    mock = replace(PLAIN, is_mock=True)

    assert (b"x-agentstate-mock", b"true") in Leg(mock, outgoing()).headers(exchange())
