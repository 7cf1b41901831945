"""Globs match as in a shell, and know what can still become a match."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.errors import SettingError
from agentstate.ground.globs import GLOB_CHARS_MAX, Glob, check_glob

ENDS = ["".join(end) for length in range(1, 5) for end in product("abc", repeat=length)]

pieces = st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[a-c]", "[]a]"])
globs = st.lists(pieces, min_size=1, max_size=4).map("".join)
names = st.text("abc", max_size=6)


@given(glob=globs, name=names)
def test_a_glob_matches_what_fnmatch_matches(glob: str, name: str) -> None:
    assert Glob(glob).matches(name) == fnmatchcase(name, glob)


# A glob of at most four places that can go on at all has done so after four more characters.
@given(glob=globs, name=names)
def test_a_beginning_is_what_some_end_makes_a_match(glob: str, name: str) -> None:
    expected = any(fnmatchcase(name + end, glob) for end in ENDS)

    assert Glob(glob).could_go_on(name) == expected


@pytest.mark.parametrize(
    ("glob", "name", "matches", "goes_on"),
    [
        ("send_email", "send_email", True, False),
        ("send_email", "send_", False, True),
        ("send_email", "", False, True),
        ("send_email", "send_emails", False, False),
        ("stripe_*", "stripe_charge", True, True),
        ("stripe_*", "strip", False, True),
        ("stripe_*", "strike", False, False),
        ("*_email", "send_emai", False, True),
        ("*", "", True, True),
        ("?", "a", True, False),
    ],
)
def test_names_of_tools(glob: str, name: str, matches: bool, goes_on: bool) -> None:
    compiled = Glob(glob)

    assert (compiled.matches(name), compiled.could_go_on(name)) == (matches, goes_on)


def test_no_glob_takes_longer_than_its_name() -> None:
    glob = Glob("a*" * 100 + "b")

    assert not glob.matches("a" * 5000)
    assert glob.could_go_on("a" * 5000)


def test_text_and_classes_are_folded_and_wildcards_stay() -> None:
    glob = Glob("My-[A-C-]*", lambda text: text.lower().replace("-", "_"))

    assert glob.runs == ("my_",)
    assert glob.matches("my_b_tool")
    assert glob.matches("my__tool")
    assert not glob.matches("my_d")
    assert not glob.is_literal
    assert Glob("A", str.lower).is_literal


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("", "1 to 256 characters"),
        ("  ", "1 to 256 characters"),
        ("a" * (GLOB_CHARS_MAX + 1), "1 to 256 characters"),
        (" a", "outer blank"),
        ('"a"', "a quote"),
        ("a,b", "a comma"),
        ("a\\*", "a backslash"),
        ("a\u200bb", "cannot be seen"),
        ("a\nb", "cannot be seen"),
        ("[ab", "be closed"),
        ("[]", "be closed"),
        ("[!]", "be closed"),
        ("[b-a]", "go up"),
        ("[ä]", "ASCII"),
    ],
)
def test_an_odd_glob_is_refused(glob: str, expected: str) -> None:
    with pytest.raises(SettingError, match="is no glob of tool names") as caught:
        check_glob(glob)

    assert expected in caught.value.message
    with pytest.raises(SettingError):
        Glob(glob)


@pytest.mark.parametrize(
    "glob", ["*", "a b", "mcp__x__*", "a.b/c:d", "[]a]", "[!]a]", "löschen", "ab]"]
)
def test_other_globs_are_taken(glob: str) -> None:
    check_glob(glob)
