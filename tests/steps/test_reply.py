"""What the client gets: our own headers, and what an error says of the targets that were tried."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects import dialect_by_name
from agentstate.ground.errors import BadRequest, UpstreamRefused, UpstreamTimeout
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.reply import (
    LIST_CHARS_MAX,
    answer_response,
    error_response,
    error_status,
    marks,
    passed_headers,
    replayed_headers,
    stream_headers,
    tell_tried,
    with_tried,
)
from agentstate.wire.message import Pair
from tests.dialects.samples import SAMPLES

ONE = ("a/m: 503 server",)
TWO = ("a/m: 503 server", "b/m: 429 rate_limit")
WORDS = " [AgentState tried: a/m: 503 server; b/m: 429 rate_limit]"
DIALECTS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")


def told(**known: Any) -> dict[bytes, bytes]:
    """Return our own headers of a response, without those that are always there."""
    found = dict(marks(session="s", **known))
    assert found.pop(b"x-agentstate-cache-hit") == b"false"
    assert found.pop(b"x-agentstate-session") == b"s"
    return found


def refusal(content: bytes, *headers: Pair) -> RecordedAnswer:
    return RecordedAnswer(
        503, headers or ((b"content-type", b"application/json"),), "body", content
    )


# -- our own headers


def test_what_is_not_known_is_absent() -> None:
    assert told() == {}


def test_where_nothing_is_recorded_no_session_is_named() -> None:
    assert [name for name, _ in marks(session="")] == [b"x-agentstate-cache-hit"]


def test_who_answered_and_after_how_many_attempts() -> None:
    assert told(provider="anthropic", model="claude-x", attempts=3, fallback_index=1) == {
        b"x-agentstate-provider": b"anthropic",
        b"x-agentstate-model": b"claude-x",
        b"x-agentstate-attempts": b"3",
        b"x-agentstate-fallback-index": b"1",
    }


def test_the_first_choice_has_the_index_0() -> None:
    assert told(attempts=1)[b"x-agentstate-fallback-index"] == b"0"


def test_where_nobody_was_asked_there_is_no_place_in_a_chain() -> None:
    assert told(attempts=0) == {b"x-agentstate-attempts": b"0"}


def test_what_could_not_be_said_is_listed() -> None:
    assert told(dropped=("top_k", "messages[3].content[1]")) == {
        b"x-agentstate-dropped": b"top_k, messages[3].content[1]"
    }
    assert told(dropped=()) == {}


def test_what_was_tried_is_listed_where_it_was_more_than_one() -> None:
    assert told(tried=TWO) == {b"x-agentstate-tried": b"a/m: 503 server, b/m: 429 rate_limit"}
    assert told(tried=ONE) == told(tried=()) == {}


def test_a_list_in_a_header_is_cut() -> None:
    value = told(dropped=[f"field_{number}" for number in range(500)])[b"x-agentstate-dropped"]

    assert value.startswith(b"field_0, field_1, ")
    assert value.endswith(b"...")
    assert len(value) == LIST_CHARS_MAX


@given(st.lists(st.text(max_size=30), min_size=1, max_size=40))
def test_whatever_a_list_holds_is_one_line_of_plain_signs(texts: list[str]) -> None:
    for value in told(dropped=texts, tried=[*texts, "x"], model=texts[0] or "m").values():
        assert all(32 <= sign < 127 for sign in value)
        assert len(value) <= LIST_CHARS_MAX * 12


def test_a_replay_says_how_it_was_found() -> None:
    found = dict(marks(session="s", step_number=7, hit="exact", miss="a \u2192 b", cost_microusd=12,
                       overhead_s=0.0015, is_unsaved=True, approval_id="apr_1"))  # fmt: skip

    assert found == {
        b"x-agentstate-cache-hit": b"true",
        b"x-agentstate-session": b"s",
        b"x-agentstate-replay": b"exact",
        b"x-agentstate-step": b"7",
        b"x-agentstate-cost-usd": b"0.000012",
        b"x-agentstate-overhead-ms": b"1.500",
        b"x-agentstate-miss": b"a%20%E2%86%92%20b",
        b"x-agentstate-approval-id": b"apr_1",
        b"x-agentstate-unsaved": b"true",
    }


# -- what was tried, in an upstream's error


@pytest.mark.parametrize("name", DIALECTS)
def test_an_error_of_any_form_says_what_was_tried(name: str) -> None:
    dialect = dialect_by_name(name)
    assert dialect is not None
    before = SAMPLES[name].error_body

    after = with_tried(refusal(before), TWO)

    facts = dialect.read_error(after.content)
    assert facts is not None
    assert facts.message == "Overloaded" + WORDS
    expected = json.loads(before)
    expected["error"]["message"] += WORDS
    assert json.loads(after.content) == expected
    assert (after.status, after.form) == (503, "body")


def test_all_else_in_the_error_stays_to_the_letter() -> None:
    before = b'{"error":{"message":"No.","x":1.50,"big":12345678901234567890},"y":[1e2]}'

    after = with_tried(refusal(before), TWO)

    assert after.content == before.replace(b"No.", b"No." + WORDS.encode())


@pytest.mark.parametrize("tried", [(), ONE])
def test_with_one_target_an_error_stays_as_it_came(tried: Sequence[str]) -> None:
    given_one = refusal(SAMPLES["openai_chat"].error_body)

    assert with_tried(given_one, tried) is given_one


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"{", b"[]", b"null", b'"error"', b"{}", b'{"error": "No."}',
     b'{"error": {"code": 1}}', b'{"error": {"message": ["No."]}}', b'{"error": null}',
     b'[{"error": {"message": "x"}}]', b"\x1f\x8b\x08"],
)  # fmt: skip
def test_what_is_no_error_object_stays_as_it_came(content: bytes) -> None:
    given_one = refusal(content)

    assert with_tried(given_one, TWO) is given_one


def test_a_body_that_was_written_anew_is_not_encoded_any_more() -> None:
    headers: tuple[Pair, ...] = (
        (b"content-type", b"application/json"), (b"Content-Encoding", b"identity"),
        (b"retry-after", b"7"),
    )  # fmt: skip

    after = with_tried(refusal(SAMPLES["openai_chat"].error_body, *headers), TWO)

    assert after.headers == (headers[0], headers[2])


def test_an_error_of_ours_says_what_was_tried() -> None:
    error = UpstreamTimeout("Too slow.", limit="first_byte")
    tell_tried(error, TWO)
    assert error.message == "Too slow." + WORDS


@pytest.mark.parametrize("tried", [(), ONE])
def test_an_error_of_ours_with_one_target_stays_as_it_is(tried: Sequence[str]) -> None:
    error = UpstreamTimeout("Too slow.", limit="first_byte")
    tell_tried(error, tried)
    assert error.message == "Too slow."


@pytest.mark.parametrize("name", DIALECTS)
def test_what_was_tried_is_in_the_body_of_an_error_of_ours(name: str) -> None:
    dialect = dialect_by_name(name)
    assert dialect is not None
    error = UpstreamTimeout("Too slow.", limit="first_byte")
    tell_tried(error, TWO)

    response = error_response(dialect, error)

    assert response.status == 504
    assert isinstance(response.body, bytes)
    facts = dialect.read_error(response.body)
    assert facts is not None
    assert facts.message == "Too slow." + WORDS


# -- statuses and headers of errors


def test_an_upstreams_status_is_passed_on() -> None:
    assert error_status(UpstreamRefused("x", upstream_status=429)) == 429
    assert error_status(UpstreamRefused("x", upstream_status=400)) == 400
    assert error_status(UpstreamRefused("x", upstream_status=200)) == 502
    assert error_status(UpstreamRefused("x")) == 502
    assert error_status(BadRequest("x")) == 400


def test_a_client_is_told_where_asking_again_is_no_use() -> None:
    dialect = dialect_by_name("openai_chat")
    assert dialect is not None
    no_use: Pair = (b"x-should-retry", b"false")

    assert no_use in error_response(dialect, BadRequest("x")).headers
    assert no_use not in error_response(dialect, UpstreamRefused("x")).headers


# -- a recorded answer in the form that is asked for


@pytest.mark.parametrize("form", ["body", "events"])
@pytest.mark.parametrize("wants_stream", [False, True])
def test_an_answer_comes_in_the_form_that_was_asked_for(form: str, wants_stream: bool) -> None:
    dialect = dialect_by_name("openai_chat")
    assert dialect is not None
    samples = SAMPLES["openai_chat"]
    is_events = form == "events"
    content = b"".join(samples.streams["text"]) if is_events else samples.bodies["text"]
    kind = b"text/event-stream" if is_events else b"application/json"
    headers: tuple[Pair, ...] = ((b"content-type", kind), (b"x-kept", b"1"))
    recorded = RecordedAnswer(200, headers, "events" if is_events else "body", content)

    response = answer_response(
        dialect, recorded, [(b"x-own", b"1")], wants_stream=wants_stream, wants_usage=False
    )

    assert isinstance(response.body, bytes)
    assert (response.body == content) is (is_events == wants_stream)
    assert response.body.startswith(b"data: ") is wants_stream
    found = dict(response.headers)
    assert (found[b"x-kept"], found[b"x-own"]) == (b"1", b"1")
    assert found[b"content-type"].startswith(
        b"text/event-stream" if wants_stream else b"application/json"
    )
    assert (b"x-accel-buffering" in found) is wants_stream


def test_a_stream_whose_end_is_not_on_record_is_ended() -> None:
    dialect = dialect_by_name("openai_chat")
    assert dialect is not None
    recorded = RecordedAnswer(200, (), "events", b"data: {}\n\n", is_sealed=False)

    response = answer_response(dialect, recorded, [], wants_stream=True, wants_usage=False)

    assert response.body == b"data: {}\n\ndata: [DONE]\n\n"


# -- headers that are passed on


def test_headers_between_two_peers_or_that_are_ours_do_not_pass() -> None:
    headers = [
        (name, b"x")
        for name in (
            b"X-Request-Id", b"Connection", b"Transfer-Encoding", b"Content-Length", b"Set-Cookie",
            b"Access-Control-Allow-Origin", b"X-AgentState-Session", b"Retry-After",
            b"openai-version",
        )
    ]  # fmt: skip

    assert [name for name, _ in passed_headers(headers)] == [
        b"X-Request-Id", b"Retry-After", b"openai-version",
    ]  # fmt: skip


def test_what_was_true_of_then_is_not_replayed() -> None:
    headers = [
        (name, b"x")
        for name in (b"X-Request-Id", b"Date", b"Retry-After", b"x-ratelimit-limit-requests",
                     b"anthropic-ratelimit-requests-limit", b"openai-version")
    ]  # fmt: skip

    assert [name for name, _ in replayed_headers(headers)] == [b"X-Request-Id", b"openai-version"]


def test_nobody_may_hold_a_stream_back() -> None:
    headers = [(b"Cache-Control", b"max-age=1"), (b"X-Accel-Buffering", b"yes"), (b"a", b"b")]

    assert stream_headers(headers) == [
        (b"a", b"b"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"),
    ]  # fmt: skip
