"""A name is found in every spelling that a client would still dispatch, and in no other."""

from __future__ import annotations

import pytest

from agentstate.steps.names import (
    exact_beginnings,
    exact_readings,
    is_blank,
    loose,
    loose_beginnings,
    loose_readings,
    shorter_units,
)

WIDE = "".join(chr(ord(char) + 0xFEE0) for char in "send_email")  # full-width forms

SPELLINGS = [
    "send_email",
    "Send_Email",
    "  SEND_EMAIL\n",
    "send-email",
    "Send Email",
    "send\u2011email",
    "send\u00a0email",
    WIDE,
    "\U0001d42cend_email",  # a mathematical s
    "\u017fend_email",  # a long s
    "send\u200b_em\u00adail\ufeff",
    "\u202esend_email\u202c",
    "se\x00nd_email",
    "sénd_emaíl",
    "s\u0301end_email",
    "`send_email`",
    '"send_email"',
    "send_email()",
    "*send_email*",
    "send_email.",
    "send_email__",
    "functions.send_email",
    "functions.send_email:0",
    "mcp__mail__send_email",
    "mail/send_email",
    "mail:Send-Email",
    "send_emailsend_email",
    "send_email" * 3,
    "functions.send_emailfunctions.send_email",
    "mcp__mail__send_emailsend_email",
]


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_reads_as_the_name(name: str) -> None:
    assert "send_email" in loose_readings(name)


@pytest.mark.parametrize(
    "name",
    [
        "send_email2",
        "resend_email",
        "send_email.later",
        "send_emails",
        "sendemail",
        "send_email_send_email",
        "send__email",
        "",
    ],
)
def test_other_names_do_not(name: str) -> None:
    assert "send_email" not in loose_readings(name)


@pytest.mark.parametrize(
    ("name", "readings"),
    [
        ("Get_Weather ", {"get_weather"}),
        ("a.B", {"a.b", "b"}),
        ("mcp__a__b_c", {"mcp__a__b_c", "b_c"}),
        ("mcp__a___b", {"mcp__a___b", "b", "_b"}),
        ("a/b:c.d", {"a/b:c.d", "d"}),
        (WIDE, {WIDE}),
        ("get-x", {"get-x"}),
        ("getget", {"getget"}),
    ],
)
def test_the_plain_reading_ignores_case_and_no_more(name: str, readings: set[str]) -> None:
    assert exact_readings(name) == readings


@pytest.mark.parametrize("name", ["", " ", "\t\n", "\u200b", "\u3164", "\x00"])
def test_a_name_of_nothing_that_shows_is_blank(name: str) -> None:
    assert is_blank(name)


@pytest.mark.parametrize("name", ["x", "📧", "()", "_"])
def test_a_name_of_anything_that_shows_is_not(name: str) -> None:
    assert not is_blank(name)
    assert loose_readings(name) != {""}


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Send-Email", "send_email"),
        ("a - b", "a_b"),
        (" a", "_a"),
        ("ÄÖ", "ao"),
        ("straße", "strasse"),
    ],
)
def test_a_rule_s_own_text_is_folded_alike(text: str, folded: str) -> None:
    assert loose(text) == folded


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_fold_of_a_beginning_begins_the_fold(spelling: str) -> None:
    whole = loose_beginnings(spelling)
    start = max(spelling.rfind(mark) + len(mark) for mark in ("__", ".", "/", ":"))
    for length in range(max(start, 0), len(spelling) + 1):
        for beginning in loose_beginnings(spelling[:length]):
            assert any(one.startswith(beginning) for one in whole)


def test_a_beginning_keeps_its_end() -> None:
    assert loose_beginnings(" `Send-") == {"send_"}
    assert loose_beginnings("mcp__Send ") == {"mcp__send_", "send_"}
    assert exact_beginnings(" Send-") == {"send-"}
    assert loose_beginnings("mcp__") == {"mcp__", ""}


def test_a_name_on_its_way_to_be_doubled_has_its_unit() -> None:
    assert set(shorter_units("send_emailse")) == {"send_email"}
    assert set(shorter_units("aaa")) == {"a", "aa"}
    assert set(shorter_units("send_emailx")) == set()


def test_long_names_are_read_and_not_searched_in() -> None:
    assert loose_readings("ab" * 1000) == {"ab" * 1000}
    assert set(shorter_units("ab" * 1000)) == set()
