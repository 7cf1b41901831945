"""Each form has the keys its trainer documents, and only those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.canonical import encode
from agentstate.house.export_base import FORMATS, Change, Example, Format
from agentstate.house.export_forms import path_of, render
from tests.house.export_calls import called, result, said, tool_of, user

EXAMPLE = Example(
    session="s",
    index=3,
    root="00",
    messages=(
        {"role": "system", "content": "be brief"},
        user("a"),
        {**called(("c1", "get", '{"n": 1.50, "big": 12345678901234567890}')), "weight": 0},
        result("c1", "5"),
        said("done"),
    ),
    tools=(tool_of("get"),),
    parallel_tool_calls=False,
    model="m",
    touched=False,
    cost_microusd=None,
    rejected=(said("worse"),),
    label=True,
)


def keys_of(form: Format, example: Example = EXAMPLE) -> tuple[str, ...]:
    return tuple(render(example, form))


def test_openai_has_messages_tools_and_weights() -> None:
    line = render(EXAMPLE, "openai")
    assert tuple(line) == ("messages", "tools", "parallel_tool_calls")
    assert line["messages"] == list(EXAMPLE.messages)
    assert line["parallel_tool_calls"] is False


def test_trl_and_kto_have_arguments_as_objects_with_their_numbers() -> None:
    assert keys_of("trl") == ("messages", "tools")
    written = encode(render(EXAMPLE, "trl")["messages"])
    assert b'"arguments":{"n":1.50,"big":12345678901234567890}' in written
    line = render(EXAMPLE, "kto")
    assert tuple(line) == ("prompt", "completion", "label", "tools")
    assert line["completion"] == [said("done")]
    assert b'"arguments":{"n":1.50' in encode(line["prompt"])


def test_axolotl_has_arguments_as_text() -> None:
    line: Any = render(EXAMPLE, "axolotl")
    assert tuple(line) == ("messages", "tools")
    assert isinstance(line["messages"][2]["tool_calls"][0]["function"]["arguments"], str)


def test_dpo_has_what_came_before_and_two_answers() -> None:
    line: Any = render(EXAMPLE, "dpo")
    assert tuple(line) == ("input", "preferred_output", "non_preferred_output")
    assert tuple(line["input"]) == ("messages", "tools", "parallel_tool_calls")
    assert [each["role"] for each in line["input"]["messages"]] == [
        "system", "user", "assistant", "tool",
    ]  # fmt: skip
    assert line["preferred_output"] == [said("done")]
    assert line["non_preferred_output"] == [said("worse")]


@pytest.mark.parametrize("form", FORMATS)
def test_without_tools_nothing_is_said_of_them(form: Format) -> None:
    line = render(replace(EXAMPLE, tools=(), parallel_tool_calls=None), form)
    assert b'"tools"' not in encode(line)
    assert b"parallel" not in encode(line)


@pytest.mark.parametrize("form", ["trl", "axolotl", "dpo", "kto"])
def test_only_openai_knows_weights(form: Format) -> None:
    assert b"weight" not in encode(render(EXAMPLE, form))


@pytest.mark.parametrize("arguments", ["", "[1]", "{", "null"])
def test_arguments_that_are_no_object_are_left_for_the_linter(arguments: str) -> None:
    odd = replace(EXAMPLE, messages=(user("a"), called(("c", "get", arguments))))
    line: Any = render(odd, "trl")
    assert line["messages"][1] == called(("c", "get", arguments))


@pytest.mark.parametrize("form", FORMATS)
def test_an_example_is_left_as_it_was(form: Format) -> None:
    before = encode(list(EXAMPLE.messages))
    render(EXAMPLE, form)
    assert encode(list(EXAMPLE.messages)) == before


@pytest.mark.parametrize(
    ("form", "before", "last", "rejected"),
    [
        ("openai", "messages[1].content", "messages[4].content", None),
        ("trl", "messages[1].content", "messages[4].content", None),
        ("axolotl", "messages[1].content", "messages[4].content", None),
        (
            "dpo",
            "input.messages[1].content",
            "preferred_output[0].content",
            "non_preferred_output[0].content",
        ),
        ("kto", "prompt[1].content", "completion[0].content", None),
    ],
)
def test_a_change_has_its_place_in_the_line(
    form: Format, before: str, last: str, rejected: str | None
) -> None:
    def place(at: int | None) -> str:
        return path_of(Change("c", at, ".content", ""), EXAMPLE, form)

    assert (place(1), place(4)) == (before, last)
    assert rejected is None or place(5) == rejected
    assert path_of(Change("c", None, "request.input[0]", ""), EXAMPLE, form) == "request.input[0]"
