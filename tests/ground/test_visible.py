"""Nothing that is shown to a person is hidden."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.visible import DUPLICATES_MAX, duplicate_keys, visible

DECEPTIVE = (
    '{"table":"tmp\u202eslbat lla\u202c","note":"`<https://evil.example|Approve>`","table":"users"}'
)


def test_arguments_that_read_backwards_are_shown_as_they_are() -> None:
    assert visible(DECEPTIVE) == (
        '{"table":"tmp⟨U+202E⟩slbat lla⟨U+202C⟩",'
        '"note":"`<https://evil.example|Approve>`","table":"users"}'
    )
    assert duplicate_keys(DECEPTIVE) == ("table",)


@pytest.mark.parametrize(
    "char",
    [
        "\u202a", "\u202e", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c",  # direction
        "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad",  # no width
        "\u034f", "\u115f", "\u3164", "\uffa0", "\u2800", "\u180e", "\u17b4",  # nothing to see
        "\ufe0f", "\U000e0100", "\U000e0041", "\U000e0001",  # selectors and tags carry texts
        "\x00", "\x07", "\x08", "\x1b", "\x7f", "\x85", "\x9b", "\r", "\v", "\f",  # control
        "\u2028", "\u2029",  # lines of their own
        "\ud800",  # half of a character
        "\ue000", "\U0010ffff",  # of no meaning that all share
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_spelled(char: str) -> None:
    assert visible(f"a{char}b") == f"a⟨U+{ord(char):04X}⟩b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain\n\ttext ~",
        "Übung, naïve, 漢字, עברית, 🎉",
        "\uff53end_email",
        "sc\u0430re",
        "a\u00a0b\u3000c",
        "e\u0301",
    ],
)
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text


@given(st.text(st.characters()))
def test_what_is_shown_can_be_seen_and_says_all(text: str) -> None:
    shown = visible(text)

    assert all(char in "\n\t" or unicodedata.category(char)[0] not in "CZ" or
               unicodedata.category(char) == "Zs" for char in shown)  # fmt: skip
    assert visible(shown) == shown
    assert shown == "".join(map(visible, text))


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ('{"a":1}', ()),
        ('{"a":1,"a":1,"a":2}', ("a",)),
        ('{"a":1,"\\u0061":2}', ("a",)),
        ('{"a":1,"A":2}', ()),
        ('{"a":{"b":[{"c":1,"c":2},{"c":1}],"b":1},"a":{"x":1,"x":2}}',
         ("a", "a.b", "a.b[0].c", "a.x")),
        ('[[{"k":NaN,"k":1e999}]]', ("[0][0].k",)),
        ('{"":1,"":2}', ("",)),
        ('{"n":' + "9" * 5000 + ',"n":1}', ("n",)),
        ('{"raw":"line\nbreak","raw":1}', ("raw",)),
        ("", ()),
        ("null", ()),
        ('"a"', ()),
        ("{'a':1,'a':2}", ()),
        ('{"a":1,"a":2', ()),
        ("[" * 100_000, ()),
    ],
)  # fmt: skip
def test_keys_that_come_twice_are_named_by_their_path(
    arguments: str, paths: tuple[str, ...]
) -> None:
    assert duplicate_keys(arguments) == paths


def test_no_more_paths_are_named_than_anybody_reads() -> None:
    arguments = "{" + ",".join(f'"{key}":1,"{key}":2' for key in range(DUPLICATES_MAX + 5)) + "}"

    assert duplicate_keys(arguments) == tuple(map(str, range(DUPLICATES_MAX)))


def test_a_deep_value_costs_no_more_than_its_length() -> None:
    depth, width = 300, 20_000
    arguments = '{"key":' * depth + "[" + "1," * width + '{"x":1,"x":2}]' + "}" * depth

    [path] = duplicate_keys(arguments)

    assert path == ".".join(["key"] * depth) + f"[{width}].x"
