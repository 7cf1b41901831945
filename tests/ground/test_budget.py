"""Whose cap is in force, how much is used and left, and what is asked at a cap."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.ground.budget import (
    CAPS,
    Budget,
    Caps,
    Limit,
    Spent,
    action_of,
    cap_of,
    dollars,
    limits_of,
    microusd_of,
    name_of,
    offer_of,
    read_amount,
    read_more,
    schema_of_more,
    shown,
    why_of,
)
from agentstate.ground.errors import BadRequest

NONE = Caps()


@pytest.mark.parametrize(
    ("by_person", "configured", "said", "expected"),
    [
        (None, None, None, None),
        (None, 5, None, (5, "configuration")),
        (None, None, 7, (7, "header")),
        (None, 5, 7, (5, "configuration")),  # a header only tightens
        (None, 5, 3, (3, "header")),
        (None, 5, 5, (5, "configuration")),
        (9, 5, 3, (9, "person")),
        (0, 5, 3, (0, "person")),
        (None, 0, None, (0, "configuration")),
    ],
)
@pytest.mark.parametrize("cap", CAPS)
def test_for_each_cap_the_first_who_may_say_it(
    cap: Any, by_person: Any, configured: Any, said: Any, expected: Any
) -> None:
    budget = Budget(set=NONE.having(cap, by_person), said=NONE.having(cap, said))
    limits = limits_of(budget, NONE.having(cap, configured), None)
    assert [(one.cap, one.amount, one.source) for one in limits] == (
        [] if expected is None else [(cap, *expected)]
    )
    limits = limits_of(Budget(set=budget.set), NONE.having(cap, configured), NONE.having(cap, said))
    assert bool(limits) is (expected is not None)


def test_what_a_call_says_itself_is_in_place_of_what_was_said() -> None:
    budget = Budget(said=Caps(steps=3, tokens=9))
    [limit] = limits_of(budget, NONE, Caps(steps=5))
    assert (limit.cap, limit.amount) == ("steps", 5)


@pytest.mark.parametrize(
    ("used", "until", "left", "is_reached"),
    [(0, None, 5, False), (4, None, 1, False), (5, None, 0, True), (9, None, 0, True),
     (9, 12, 3, False), (12, 12, 0, True), (4, 2, 1, False)],
)  # fmt: skip
def test_a_cap_is_reached_when_it_is_used_up(
    used: int, until: int | None, left: int, is_reached: bool
) -> None:
    budget = Budget(spent=Spent(tokens=used), until=Caps(tokens=until))
    [limit] = limits_of(budget, Caps(tokens=5), None)
    assert (limit.left, limit.is_reached) == (left, is_reached)
    assert limit.amount == 5


@pytest.mark.parametrize(
    ("by_person", "configured", "said", "expected"),
    [
        (NONE, NONE, NONE, "hold"),
        (NONE, Caps(steps=1, action="refuse"), NONE, "refuse"),
        (NONE, Caps(steps=1, action="refuse"), Caps(action="hold"), "refuse"),
        (NONE, Caps(steps=1, action="hold"), Caps(action="refuse"), "refuse"),
        (NONE, Caps(action="refuse"), Caps(steps=1, action="hold"), "hold"),
        (NONE, Caps(action="refuse"), Caps(steps=1), "refuse"),
        (Caps(action="hold"), Caps(steps=1, action="refuse"), Caps(action="refuse"), "hold"),
    ],
)
def test_a_header_cannot_make_a_question_of_a_refusal_that_is_set(
    by_person: Caps, configured: Caps, said: Caps, expected: str
) -> None:
    assert action_of(Budget(set=by_person, said=said), configured, None) == expected
    assert action_of(Budget(set=by_person), configured, said) == expected


def test_a_reaching_is_named_the_same_until_something_is_another() -> None:
    spent = Spent(steps=5, repeats=5, row=2)
    budget = Budget(spent=spent, created_ms=1)

    def name(limit: int = 5, cap: Any = "steps", session: str = "s", **changes: Any) -> bytes:
        found = Budget(**{"spent": spent, "created_ms": 1, **changes})
        return name_of(session, found, Limit(cap, 5, "configuration", limit, 5))

    first = name()
    assert first == name_of("s", budget, Limit("steps", 9, "person", 5, 8))
    others = [
        name(6),
        name(cap="tokens"),
        name(session="t"),
        name(changes=1),
        name(created_ms=2),
        name(cap="repeats"),
        name(cap="repeats", spent=Spent(repeats=5, row=3)),
    ]
    assert len({first, *others}) == 8
    assert first == name(spent=Spent(steps=9, row=7))  # a row matters to repeats alone


@pytest.mark.parametrize(
    ("cap", "text", "amount"),
    [
        ("steps", "0", 0),
        ("steps", "50", 50),
        ("steps", "007", 7),
        ("steps", "-1", None),
        ("steps", "1.5", None),
        ("steps", "1e3", None),
        ("steps", "٣", None),
        ("steps", "", None),
        ("tokens", str(10**12), 10**12),
        ("tokens", str(10**12 + 1), None),
        ("repeats", "1", 1),
        ("repeats", "0", None),
        ("cost_usd", "1", 1_000_000),
        ("cost_usd", "1.5", 1_500_000),
        ("cost_usd", "0.000001", 1),
        ("cost_usd", "0.0000001", None),
        ("cost_usd", "1.", None),
        ("cost_usd", ".5", None),
        ("cost_usd", "1e-3", None),
    ],
)
def test_an_amount_is_a_plain_number(cap: Any, text: str, amount: int | None) -> None:
    assert read_amount(cap, text) == amount


@pytest.mark.parametrize(
    ("microusd", "text"),
    [(0, "0.00"), (1, "0.000001"), (1_500_000, "1.50"), (20, "0.00002"), (12_340_000, "12.34")],
)
def test_money_has_as_many_digits_as_it_takes(microusd: int, text: str) -> None:
    assert dollars(microusd) == text
    assert microusd_of(float(text)) == microusd
    assert shown("cost_usd", microusd) == float(text)
    assert shown("tokens", 7) == 7


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("amount", [0, 1, 5, 1_500_000])
def test_what_is_offered_can_be_taken(cap: Any, amount: int) -> None:
    limit = Limit(cap, amount, "configuration", amount, amount)
    least = 10_000 if cap == "cost_usd" else 1
    assert read_more(cap, offer_of(limit)) == max(amount, least)
    assert cap_of(limit.setting) == cap
    kind = "number" if cap == "cost_usd" else "integer"
    schema: Any = schema_of_more(cap)
    assert schema["properties"]["more"]["type"] == kind


@pytest.mark.parametrize(
    "arguments",
    ["", "7", "{}", '{"more": 0}', '{"more": -1}', '{"more": "7"}', '{"more": true}',
     '{"more": 1.5}', '{"more": 1, "less": 1}', '{"more": null}', '{"more": [1]}'],
)  # fmt: skip
def test_what_is_no_amount_is_refused(arguments: str) -> None:
    with pytest.raises(BadRequest, match="how much of steps the session may use") as refused:
        read_more("steps", arguments)
    assert refused.value.param == "arguments"


def test_how_a_cap_stands_is_said_in_words() -> None:
    def why(cap: Any, limit: int, used: int, unknown: int = 0) -> str:
        return why_of(Limit(cap, limit, "header", limit, used), unknown)

    assert why("steps", 5, 6) == "6 of 5 paid steps are used"
    assert why("tokens", 5, 6) == "6 of 5 tokens are used"
    assert why("cost_usd", 1_500_000, 1_500_020) == "$1.50002 of $1.50 are spent"
    assert why("cost_usd", 1, 1, 3).endswith("; the cost of 3 more is not known")
    assert why("repeats", 3, 3).startswith("the model asked for the same 3 times in a row")


def test_a_question_about_no_cap_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        cap_of("budget.hours")
