"""One call between two dialects: request, answer and errors, for every pair there is.

What the single dialects write is tested with them; here it is that two of them fit together.
Streams are in `test_translation_frames.py`.
"""

from __future__ import annotations

import json

import pytest

from agentstate.dialects.base import ErrorFacts
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest, NotAnAnswer
from agentstate.steps.translation import silent_error, translation_for
from tests.dialects.samples import SAMPLES
from tests.steps.pairs import CALLERS, PAIRS, both, bound, calls_of, target, translation


def test_there_are_pairs() -> None:
    assert {"openai_chat", "openai_responses", "anthropic_messages", "gemini"} <= set(CALLERS)


# -- what needs none


def test_a_target_that_takes_the_callers_form_gets_no_translation() -> None:
    dialect, body = bound("openai_chat", streams=False)
    ask = dialect.read_ask(body)

    assert translation_for(dialect, target(""), ask, body) is None


# -- requests


@both
def test_a_request_is_one_of_the_targets_form_for_its_model(caller: str, spoken: str) -> None:
    written = translation(caller, spoken).request(None)
    dialect, _ = bound(spoken, streams=False)

    ask = dialect.read_ask(written.value)

    assert spoken == "gemini" or ask.model == "theirs"
    assert len(ask.messages) >= 2
    text = json.dumps([ask.messages, ask.envelope], default=str)
    assert "Weather?" in text
    assert "5 degrees at 12:01" in text
    assert "Be kind." in text
    assert "get_weather" in text


@both
def test_a_translation_of_the_same_request_is_the_same(caller: str, spoken: str) -> None:
    """Or the target's prompt cache would never hit."""
    first, second = (translation(caller, spoken).request(None) for _ in range(2))

    assert first == second


@both
def test_what_cannot_be_said_is_named(caller: str, spoken: str) -> None:
    written = translation(caller, spoken, unheard=1).request(None)

    assert "unheard" in written.dropped
    assert "unheard" not in json.dumps(written.value, default=str)


def test_the_body_that_is_asked_may_be_another_than_the_callers() -> None:
    dialect, body = bound("openai_chat", streams=False)
    ask = dialect.read_ask(body)
    turn: JSON = {"role": "user", "content": "And in Rome?"}
    more: dict[str, JSON] = {**body, "messages": [*ask.messages, turn]}

    found = translation_for(dialect, target("anthropic_messages"), ask, more)

    assert found is not None
    assert "And in Rome?" in json.dumps(found.request(None).value, default=str)


def test_what_cannot_be_left_out_is_refused() -> None:
    call: JSON = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    body: dict[str, JSON] = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "x"},
        ],
    }
    dialect, _ = bound("openai_chat", streams=False)
    found = translation_for(dialect, target("anthropic_messages"), dialect.read_ask(body), body)

    assert found is not None
    with pytest.raises(BadRequest):
        found.request(None)


# -- whole answers


@both
@pytest.mark.parametrize("name", ["text", "tool calls"])
def test_a_whole_answer_says_the_same_in_the_callers_form(
    caller: str, spoken: str, name: str
) -> None:
    samples = SAMPLES[spoken]
    body = samples.bodies[name]
    found = translation(caller, spoken).answer(body)
    dialect, _ = bound(caller, streams=False)
    ours, theirs = dialect.read_answer(found.body), found.answer

    assert ours.is_complete
    assert ours.text == theirs.text
    assert calls_of(ours) == calls_of(theirs)
    assert ours.usage is not None
    assert theirs.usage is not None
    assert ours.usage.input_tokens == theirs.usage.input_tokens
    assert ours.usage.output_tokens == theirs.usage.output_tokens
    assert ours.model == "theirs"
    spoken_dialect, _ = bound(spoken, streams=False)
    assert dialect.ending(ours) == spoken_dialect.ending(theirs)


@both
@pytest.mark.parametrize("raw", [b"", b"<html>", b"{}", b"[]", b'{"choices": []}', b"null"])
def test_what_is_no_answer_stays_none(caller: str, spoken: str, raw: bytes) -> None:
    found = translation(caller, spoken).answer(raw)

    assert found.body == b""
    assert not found.answer.is_complete


# -- error bodies


@both
def test_an_error_body_is_written_in_the_callers_form(caller: str, spoken: str) -> None:
    theirs = bound(spoken, streams=False)[0].read_error(SAMPLES[spoken].error_body)
    assert theirs is not None

    body = translation(caller, spoken).error(theirs, 503)

    ours = bound(caller, streams=False)[0].read_error(body)
    assert ours is not None
    assert ours.message == "Overloaded"


@pytest.mark.parametrize("caller", CALLERS)
def test_an_error_that_says_nothing_is_told_by_its_status(caller: str) -> None:
    spoken = next(spoken for first, spoken in PAIRS if first == caller)
    body = translation(caller, spoken).error(None, 418)

    ours = bound(caller, streams=False)[0].read_error(body)
    assert ours is not None
    assert (
        ours.message
        == silent_error("up", 418).message
        == ("up answered 418 with no error that can be read.")
    )


def test_a_code_survives_the_way() -> None:
    facts = ErrorFacts("No money.", "insufficient_quota", "insufficient_quota", 429)
    for caller, spoken in PAIRS:
        body = translation(caller, spoken).error(facts, 429)
        ours = bound(caller, streams=False)[0].read_error(body)
        assert ours is not None
        assert ours.code == "insufficient_quota"


@pytest.mark.parametrize("name", CALLERS)
def test_the_samples_have_what_the_pairs_need(name: str) -> None:
    assert {"text", "tool calls"} <= SAMPLES[name].streams.keys() & SAMPLES[name].bodies.keys()


def test_an_answer_at_which_the_model_failed_is_none_in_a_form_that_cannot_say_so() -> None:
    reason = "MALFORMED_FUNCTION_CALL"
    said = {"candidates": [{"content": {"parts": [{"text": "I"}]}, "finishReason": reason}]}
    raw = json.dumps(said).encode()

    found = translation("openai_chat", "gemini").answer(raw)
    frames = translation("openai_chat", "gemini", streams=True).frames()
    frames.feed(b"data: " + raw + b"\n\n")

    assert (found.body, found.answer.is_complete) == (b"", False)
    assert found.answer.fault == f"candidate 0 ended with {reason}"
    with pytest.raises(NotAnAnswer, match=reason):
        frames.finish()
