"""What was said is compared by its meaning."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.steps.said import calm, only_text, read_turns

CHAT = dialect_by_name("openai_chat")
PLAIN = dialect_by_name("openai_completions")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'),
        ("", "{}"),
        ("not json", "not  json"),
        ('"\\u00e9"', '"é"'),
        ("{'a': 1}", "{'a':1}"),
    ],
)
def test_arguments_are_the_same_however_they_are_written(one: str, other: str) -> None:
    assert calm(one) == calm(other)


def test_other_arguments_are_others() -> None:
    assert len({calm(each) for each in ('{"a": 1}', '{"a": "1"}', '{"a": 1.0}', "a", "[]")}) == 5


def test_messages_are_read_where_the_form_has_them() -> None:
    assert CHAT is not None
    assert PLAIN is not None
    asked: list[Any] = [{"role": "user", "content": "hi"}]
    assert only_text(read_turns(CHAT, asked)) == "hi"
    assert read_turns(PLAIN, asked) == ()


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant", "content": "hi"}],
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}],
    ],
)
def test_what_is_more_than_one_text_is_none(messages: list[Any]) -> None:
    assert CHAT is not None
    assert only_text(read_turns(CHAT, messages)) is None
