from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.visible import visible
from agentstate.webhooks.text import (
    CUT,
    TEXT_CHARS_MAX,
    asked_wait_s,
    code_block,
    code_line,
    fit,
    in_code,
    instant,
    is_linkable,
    one_line,
    quoted,
    seconds_of,
    timestamp,
    units,
    words,
)
from agentstate.wire.message import Headers
from tests.webhooks import hostile
from tests.webhooks.limits import units as counted


@pytest.mark.parametrize("shown", ["plain {}", "tab\tnew\nline", "é中😀", "a\u00a0b", ""])
def test_what_can_be_seen_stays(shown: str) -> None:
    assert visible(shown) == shown


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("\u2066", "⟨U+2066⟩"),
        ("\u200b", "⟨U+200B⟩"),
        ("\x1b[1m", "⟨U+001B⟩[1m"),
        ("\r\n", "⟨U+000D⟩\n"),
        ("\ud83d", "⟨U+D83D⟩"),
        ("\u3164", "⟨U+3164⟩"),
        ("\ufe0f", "⟨U+FE0F⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),
    ],
)
def test_what_hides_is_spelled_out(hidden: str, shown: str) -> None:
    assert visible(hidden) == shown


@given(hostile.texts, st.integers(1, 400), st.sampled_from((str, one_line, in_code)))
def test_what_is_fitted_fits_and_a_cut_is_marked(
    text: str, most: int, escape: Callable[[str], str]
) -> None:
    fitted = fit(text, most, escape)

    whole = "".join(map(escape, visible(text)))
    assert counted(fitted) <= most
    assert fitted == whole or "…" in fitted
    assert (fitted == whole) == (counted(whole) <= most)


def test_an_escape_is_never_cut_in_two() -> None:
    for most in range(1, 40):
        fitted = fit("&" * 20, most, lambda char: {"&": "&amp;"}.get(char, char))
        assert fitted.replace("&amp;", "").removesuffix(CUT).removesuffix("…") == ""


def test_a_code_block_is_closed_by_nothing_in_it() -> None:
    block = code_block("a ``` b ````` c `` d", 100)

    assert "```" not in block
    assert block.replace("\u200b", "") == "a ``` b ````` c `` d"


@pytest.mark.parametrize(
    ("blank", "said"), [("", "(empty)"), (" \n\t", "(only white space)"), ("\u00a0", "(only")]
)
def test_a_blank_code_block_says_so(blank: str, said: str) -> None:
    assert code_block(blank, 100).startswith(said)


@pytest.mark.parametrize("blanks", [50, TEXT_CHARS_MAX])
def test_what_comes_after_many_blanks_is_not_taken_for_nothing(blanks: int) -> None:
    block = code_block(words(" " * blanks + "rm -rf /"), 40)

    assert block.strip() == "…"


def test_a_code_line_has_two_backticks_and_no_line_end() -> None:
    assert code_line("`a`\nb", 20) == "`\u02cba\u02cb⏎b`"
    assert code_line(" ", 20) == "`(empty)`"
    assert counted(code_line("😀" * 50, 20)) <= 20


def test_units_count_as_utf_16_does() -> None:
    assert [units(text) for text in ("", "a", "é", "😀", "a😀")] == [0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        (None, ""),
        (True, "yes"),
        (7, "7"),
        (0.5, "0.5"),
        ({"a": ["b"]}, '{"a": ["b"]}'),
        ("key sk-abcdefghijkl", "key sk-…"),
    ],
)
def test_a_fact_becomes_words(fact: object, said: str) -> None:
    assert words(fact) == said  # type: ignore[arg-type]


def test_a_number_with_more_digits_than_python_writes_is_said_to_be_one() -> None:
    assert words(10**5000) == "(a number too long to be shown)"


def test_a_fact_that_is_nested_beyond_reading_is_said_to_be() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    assert words(deep) == "(a value that cannot be shown)"  # type: ignore[arg-type]


def test_times_are_read_and_what_is_none_is_not() -> None:
    assert timestamp(1_780_000_000_123) == "2026-05-28T20:26:40.123Z"
    assert timestamp(-1) == "1970-01-01T00:00:00.000Z"
    assert instant(253_402_300_799_999) is not None
    for none in (253_402_300_800_000, -1, True, 1.5, "1", None, 10**400):
        assert instant(none) is None


@pytest.mark.parametrize(
    "url",
    ["https://a.example/x#/y", "http://127.0.0.1:8000/", "http://[::1]:8000/", "http://10.0.0.1"],
)
def test_links_that_services_take(url: str) -> None:
    assert is_linkable(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://localhost:8000/",
        "http://proxy/",
        "ftp://a.example/",
        "https://a.example/ b",
        "https://a.example/>|x",
        "https://a.example:99999/",
        "https://[a.example/",
        "https://a.example/" + "x" * 2_000,
        "https://é.example/",
        "javascript:alert(1)",
    ],
)
def test_links_that_services_do_not_take(url: str) -> None:
    assert not is_linkable(url)


@pytest.mark.parametrize(
    ("pairs", "asked"),
    [
        ([], None),
        ([(b"Retry-After", b"3")], 3.0),
        ([(b"retry-after", b"0.65")], 0.65),
        ([(b"retry-after", b"999999999")], 86_400.0),
        ([(b"retry-after", b"-1")], None),
        ([(b"retry-after", b"nan")], None),
        ([(b"retry-after", b"inf")], None),
        ([(b"retry-after", b"soon")], None),
        ([(b"retry-after", b"\xff\xfe")], None),
        ([(b"retry-after", b"Fri, 31 Dec 9999 23:59:59 GMT")], None),
        (
            [
                (b"retry-after", b"Mon, 30 Nov 2026 14:01:00 GMT"),
                (b"date", b"Mon, 30 Nov 2026 14:00:00 GMT"),
            ],
            60.0,
        ),
        (
            [
                (b"retry-after", b"Mon, 30 Nov 2026 13:00:00 GMT"),
                (b"date", b"Mon, 30 Nov 2026 14:00:00 GMT"),
            ],
            0.0,
        ),
    ],
)
def test_a_wait_is_asked_for_in_seconds_or_as_a_date(
    pairs: list[tuple[bytes, bytes]], asked: float | None
) -> None:
    assert asked_wait_s(Headers(pairs)) == asked


def test_seconds_in_a_header_are_a_number_or_nothing() -> None:
    for none in (None, "", "1e3", "1_0", "x", "-1"):
        assert seconds_of(none) is None
    assert seconds_of("2.5") == 2.5


def test_a_quoted_answer_has_no_path_and_one_line() -> None:
    assert quoted("Cannot POST /hooks/s3cret here\nat all") == "Cannot POST … here⏎at all"
