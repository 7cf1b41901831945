"""Arguments where a form has only objects for them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects.call_arguments import (
    FREE_TEXT,
    object_of,
    object_of_called,
    unwrap_free_text,
    wrap_free_text,
)
from agentstate.dialects.lenient import split_data_url
from agentstate.dialects.neutral import Called
from agentstate.ground.canonical import Number
from agentstate.ground.errors import BadRequest


@given(st.text())
def test_what_is_wrapped_is_unwrapped(text: str) -> None:
    arguments = wrap_free_text(text)
    assert list(json.loads(arguments)) == FREE_TEXT["required"]
    assert unwrap_free_text(arguments) == text


@pytest.mark.parametrize(
    "arguments", ["", "plain", "{}", '{"input":1}', '{"input":"a","b":1}', "["]
)
def test_what_stands_for_no_text_stays(arguments: str) -> None:
    assert unwrap_free_text(arguments) == arguments


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("data:image/png;base64,AAAA", ("image/png", "AAAA")),
        ("DATA:;base64,AAAA", (None, "AAAA")),
        ("data:text/plain;charset=utf-8;base64,AAAA", ("text/plain", "AAAA")),
        ("data:text/plain,hello", (None, "")),
        ("https://host/a.png", (None, "")),
        ("", (None, "")),
    ],
)
def test_a_data_url_is_split(url: str, parts: tuple[str | None, str]) -> None:
    assert split_data_url(url) == parts


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("", {}),
        (" \n", {}),
        ('{"n":12345678901234567890,"x":1.50}', {"n": 12345678901234567890, "x": Number("1.50")}),
        ("[]", None),
        ('{"a":', None),
    ],
)
def test_arguments_are_an_object_or_none(arguments: str, found: object) -> None:
    assert object_of(arguments) == found
    call = Called("c", "f", arguments)
    if found is not None:
        assert object_of_called(call, 3) == found
    else:
        with pytest.raises(BadRequest) as caught:
            object_of_called(call, 3)
        assert caught.value.param == "messages[3]"


def test_the_arguments_of_free_text_are_an_object_always() -> None:
    assert object_of_called(Called("c", "f", "[", is_custom=True), 0) == {"input": "["}
