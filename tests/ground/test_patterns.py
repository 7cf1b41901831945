"""Patterns that can take for ever are found out; text has a length."""

from __future__ import annotations

import re

import pytest

from agentstate.ground.errors import SettingError
from agentstate.ground.patterns import (
    SEARCHED_CHARS_MAX,
    compile_bounded,
    repeats_a_repeat,
    search,
)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a*)*b",
        "(?:a+)*",
        "(?P<name>a+)+",
        "(?i)(a+)+",
        r"(\d+,)*\d+$",
        "(a{2,})+",
        "(a+){3,}",
        "((a+)b)*",
        "(x(?:y(z*)))+",
        "(a+?)+?",
        "(?=(a+)+)",
        "([)]+)+",
        r"(\(+)+",
        "(a|b+)*",
        "(?>b)(a+)+",
        "([]+]a+)*",
    ],
)
def test_a_repeated_repeat_is_found(pattern: str) -> None:
    re.compile(pattern)

    assert repeats_a_repeat(pattern)
    with pytest.raises(SettingError, match="repeats what is itself repeated"):
        compile_bounded(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a+b+",
        "(a+)",
        "(a+)b+",
        "(ab)+",
        "(a?)+",
        "(a{1,3})+",
        r"(\d{1,3}\.){3}\d+",
        "(a+)?",
        "(?>a+)+",
        "(a++)+",
        "(a+)++",
        "(a+)*+",
        "[(a+)]+",
        r"\(a+\)+",
        "([+*])+",
        r"([^\]+]x)*",
        "(?i)rm .*-rf",
        "^$",
        "",
    ],
)
def test_what_repeats_once_is_taken(pattern: str) -> None:
    assert not repeats_a_repeat(pattern)
    assert compile_bounded(pattern).pattern == pattern


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a{99999999999}", "(?P<x>a)(?P<x>b)"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(SettingError, match="is no regular expression"):
        compile_bounded(pattern)


def test_a_text_over_the_length_is_not_tried() -> None:
    pattern = compile_bounded("b")

    assert search(pattern, "ab") is True
    assert search(pattern, "a" * SEARCHED_CHARS_MAX) is False
    assert search(pattern, "b" * (SEARCHED_CHARS_MAX + 1)) is None
