"""Clocks are taken out, dates that mean something are not."""

import re
from datetime import UTC, datetime

import pytest

from agentstate.steps.drift import TEXTS_CHARS_MAX, Masker, mask_clocks

NOW = datetime(2026, 11, 30, 10, 1, 32, tzinfo=UTC)

CLOCKS = [
    "2026-11-30",
    "2026-11-30T10:01:32Z",
    "2026-11-30T10:01:32.123456+00:00",
    "2026-11-30 10:01",
    "2026/11/30 10:01:32",
    "Monday, November 30, 2026",
    "November 30, 2026 at 10:01 AM",
    "Nov 30, 2026, 10:01:32 AM",
    "November 30th",
    "30 November 2026",
    "Mon, 30 Nov 2026 10:01:32 GMT",
    "Mon Nov 30 10:01:32 2026",
    "Mon Nov 30 10:01:32 UTC 2026",
    "11/30/2026",
    "30/11/2026 10:01",
    "30.11.2026",
    "1796032892",
    "1796032892123",
    "2026-11-29",
    "2026-12-01",
]
NOT_CLOCKS = [
    "2019-03-01",
    "March 1, 2019",
    "1 March 2019",
    "2026-11-25",
    "version 3.11.7",
    "order 1234567890123456789",
    "call 2026-11-30-0042",
    "1500000000",
    "13/45/2026",
    "open from 09:00 to 17:00",
    "ratio 10:01",
    "IP 10.11.20.26",
    "may 5",
]


@pytest.mark.parametrize("text", CLOCKS)
def test_a_moment_near_the_call_is_masked_whole(text: str) -> None:
    assert mask_clocks(f"Now: {text}.", NOW) == "Now: \x00clock."


@pytest.mark.parametrize("text", NOT_CLOCKS)
def test_what_is_no_clock_stays(text: str) -> None:
    assert mask_clocks(f"See {text}.", NOW) == f"See {text}."


def test_a_time_alone_counts_only_where_it_is_said_to_be_the_time() -> None:
    assert mask_clocks("Current time: 10:01:32 UTC.", NOW) == "Current time: \x00clock."
    assert mask_clocks("It is 10:01 AM, go.", NOW) == "It is \x00clock, go."
    assert mask_clocks("Delivery time: 09:00.", NOW) == "Delivery time: 09:00."
    assert mask_clocks("Today is Monday.", NOW) == "Today is \x00clock."
    assert mask_clocks("Bins go out on Monday.", NOW) == "Bins go out on Monday."


def test_a_year_is_guessed_across_new_years_eve() -> None:
    eve = datetime(2026, 12, 31, 23, 0, tzinfo=UTC)
    assert mask_clocks("It is January 1.", eve) == "It is \x00clock."


def test_the_same_prompt_an_hour_later_masks_the_same() -> None:
    first = Masker().mask_for(1_796_032_892_000, masks_ids=False)
    later = Masker().mask_for(1_796_036_492_000, masks_ids=False)
    text = "It is 2026-11-30T10:01:32Z. Be brief."
    assert first(text) == later(text.replace("T10", "T11")) != text


def test_ids_and_patterns_count_unless_a_run_id_is_there() -> None:
    text = "req 7f3c1a52-9d1e-4b6f-8a21-0c9e5d7b1f43 build-77"
    pattern = re.compile(r"build-\d+")
    masked = Masker([pattern]).mask_for(0, masks_ids=True)(text)
    assert masked == "req \x00uuid \x00mask"
    assert Masker([pattern]).mask_for(0, masks_ids=False)(text) == text


@pytest.mark.parametrize(
    "text", ["30 \u017feptember 2026", "3 Apr\u0131l 2026", "\u0662\u0660\u0662\u0666-11-30"]
)
def test_letters_that_only_look_alike_are_no_month_and_no_digits(text: str) -> None:
    assert mask_clocks(f"2026: {text}", NOW) == f"2026: {text}"


def test_what_is_remembered_is_bounded() -> None:
    masker = Masker()
    mask = masker.mask_for(0, masks_ids=False)
    for letter in "abc":
        mask(letter * (TEXTS_CHARS_MAX // 2))
    assert masker._chars <= TEXTS_CHARS_MAX
    assert len(masker._texts) == 2
