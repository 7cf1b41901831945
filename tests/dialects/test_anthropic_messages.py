"""Requests in Anthropic's Messages form."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest

DIALECT = AnthropicMessages()
MESSAGES: list[JSON] = [{"role": "user", "content": "hi"}]
RESULT: dict[str, JSON] = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "5C"}


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 8, "messages": MESSAGES, **fields}


def user(*blocks: JSON) -> JSON:
    return {"role": "user", "content": list(blocks)}


def shout(text: str) -> str:
    return text.upper()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}, "hi"]}, "messages[1]"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_field(fields: Any, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        DIALECT.read_ask(ask(**fields))

    assert refused.value.param == param


def test_the_path_the_provider_and_the_headers_are_those_of_anthropic() -> None:
    assert DIALECT.paths == ("/messages",)
    assert DIALECT.provider == "anthropic"
    assert DIALECT.counted_headers == (b"anthropic-beta", b"anthropic-version")


def test_a_stream_brings_its_usage_unasked() -> None:
    assert not DIALECT.read_ask(ask(stream=True)).wants_usage


def test_a_message_thread_names_what_it_goes_on_from() -> None:
    thread = {"type": "continue", "previous_message_id": "msg_1"}

    assert DIALECT.read_ask(ask(thread=thread)).goes_on_from == "msg_1"
    assert DIALECT.read_ask(ask(thread={"type": "create"})).goes_on_from is None
    assert DIALECT.read_ask(ask()).goes_on_from is None


# Tool results


def test_results_are_blanked_beside_other_blocks() -> None:
    failed = {**RESULT, "tool_use_id": "toolu_2", "is_error": True, "cache_control": {"type": "x"}}
    text: JSON = {"type": "text", "text": "Quick!", "content": "no result"}

    assert DIALECT.tool_result_blank(user(RESULT, failed, text, "odd")) == user(
        {"type": "tool_result", "tool_use_id": "toolu_1"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "cache_control": {"type": "x"}},
        text,
        "odd",
    )


def test_every_result_of_a_message_is_told_in_order() -> None:
    blocks: list[JSON] = [{"type": "text", "text": "a"}]
    parts = {**RESULT, "tool_use_id": "toolu_2", "content": blocks}
    nothing: JSON = {"type": "tool_result"}

    assert DIALECT.tool_results(user(parts, RESULT, nothing)) == (
        ("toolu_2", blocks),
        ("toolu_1", "5C"),
        ("", None),
    )


def test_a_result_that_failed_differs_from_one_that_did_not() -> None:
    plain = DIALECT.tool_results(user(RESULT))

    assert DIALECT.tool_results(user({**RESULT, "is_error": False})) == plain
    assert DIALECT.tool_results(user({**RESULT, "is_error": True})) != plain


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "tool_result"},
        {"role": "user", "content": [{"type": "text", "text": "tool_result"}, None, "x"]},
        {"role": "user", "content": None},
        {"role": "user"},
        "tool_result",
        None,
    ],
)
def test_other_messages_have_no_results(message: JSON) -> None:
    assert DIALECT.tool_result_blank(message) is None
    assert DIALECT.tool_results(message) == ()


# System text


def test_system_text_is_masked_as_a_string_and_as_blocks() -> None:
    blocks: list[JSON] = [{"type": "text", "text": "a", "cache_control": {"type": "x"}}, "odd", {}]

    assert DIALECT.mask_envelope({"system": "be kind", "x": 1}, shout) == {
        "system": "BE KIND",
        "x": 1,
    }
    assert DIALECT.mask_envelope({"system": blocks}, shout) == {
        "system": [{"type": "text", "text": "A", "cache_control": {"type": "x"}}, "odd", {}]
    }
    assert DIALECT.mask_envelope({"system": None}, shout) == {"system": None}


def test_an_envelope_without_system_text_is_left_alone() -> None:
    assert DIALECT.mask_envelope({"x": 1}, shout) is None


def test_a_system_message_in_the_middle_is_masked_too() -> None:
    message: JSON = {"role": "system", "content": [{"type": "text", "text": "now"}]}

    assert DIALECT.masked(message, shout) == {
        "role": "system",
        "content": [{"type": "text", "text": "NOW"}],
    }
    assert DIALECT.masked({"role": "user", "content": "now"}, shout) is None
    assert DIALECT.masked("now", shout) is None
