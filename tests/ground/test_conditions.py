"""Conditions: read strictly, compared exactly, and in doubt when there is doubt."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.canonical import parse
from agentstate.ground.conditions import CONDITION_CHARS_MAX, Condition, as_decimal
from agentstate.ground.errors import SettingError
from agentstate.ground.patterns import SEARCHED_CHARS_MAX


def holds(condition: str, arguments: str, *, proves: bool = False) -> bool | None:
    return Condition(condition).holds(parse(arguments.encode()), proves=proves)


# -- what is there


@pytest.mark.parametrize(
    ("condition", "arguments", "truth"),
    [
        ("args.a > 5000", '{"a": 5001}', True),
        ("args.a > 5000", '{"a": 5000}', False),
        ("args.a > 5000", '{"a": 5000.0000000000000000001}', True),
        ("args.a >= 5000", '{"a": 5000.0}', True),
        ("args.a < 5000", '{"a": -1e400}', True),
        ("args.a <= 0.3", '{"a": 0.30000000000000001}', False),
        ("args.a == 5000", '{"a": 5000.0}', True),
        ("args.a == 5e3", '{"a": 5000}', True),
        ("args.a == 12345678901234567890", '{"a": 12345678901234567891}', False),
        ("args.a != -0", '{"a": 0.0}', False),
        ("args.a == 'x'", '{"a": "x"}', True),
        ("args.a == 'x'", '{"a": "X"}', False),
        ('args.a == "\\u00e9"', '{"a": "é"}', True),
        ("args.a < 'b'", '{"a": "abc"}', True),
        ("args.a == true", '{"a": true}', True),
        ("args.a != true", '{"a": false}', True),
        ("args.a in ['eur', 'usd']", '{"a": "usd"}', True),
        ("args.a in ['eur', 'usd']", '{"a": "gbp"}', False),
        ("args.a in [1, 'x', null]", '{"a": 1.0}', True),
        ("args.a in [true]", '{"a": true}', True),
        ("args.a contains 'ps'", '{"a": "https"}', True),
        ("args.a contains 'x'", '{"a": "https"}', False),
        ("args.a contains 'x'", '{"a": ["y", "x"]}', True),
        ("args.a contains 2", '{"a": [1, 2.0]}', True),
        ("args.a contains 3", '{"a": [1, 2.0]}', False),
        ("args.a contains 'k'", '{"a": {"k": 1}}', True),
        ("args.a contains 'v'", '{"a": {"k": "v"}}', False),
        ("args.a matches '^rm\\s'", '{"a": "rm -rf /"}', True),
        ("args.a matches '(?i)RM'", '{"a": "sh -c rm"}', True),
        ("args.a matches 'rm'", '{"a": "ls"}', False),
        ("args.a matches 'rm -rf'", '{"a": ["bash", "-c", "rm -rf /"]}', True),
        ("args.a matches 'rm -rf'", '{"a": ["rm", "-rf", "/"]}', True),
        ("args.a matches 'rm -rf'", '{"a": ["ls"]}', False),
        ("args.a[1].b['c d'][\"é\"] == 1", '{"a": [0, {"b": {"c d": {"é": 1}}}]}', True),
        ("args['to address'] == 'x'", '{"to address": "x"}', True),
        ("args.to-address == 'x'", '{"to-address": "x"}', True),
        ("args contains 'cc'", '{"cc": null}', True),
        ("args.a > 1 and args.b == 'x'", '{"a": 2, "b": "x"}', True),
        ("args.a > 1 and args.b == 'x'", '{"a": 2, "b": "y"}', False),
        (" args.a<=1  and\targs.b=='and' ", '{"a": 1, "b": "and"}', True),
    ],
)  # fmt: skip
def test_values_are_compared_exactly(condition: str, arguments: str, truth: bool) -> None:
    assert holds(condition, arguments) is truth
    assert holds(condition, arguments, proves=True) is truth


# -- what cannot be compared


@pytest.mark.parametrize(
    ("condition", "arguments"),
    [
        ("args.a > 5000", '{"a": "9000"}'),
        ("args.a > 5000", '{"a": "lots"}'),
        ("args.a > 5000", '{"a": true}'),
        ("args.a > 5000", '{"a": [9000]}'),
        ("args.a > 5000", '{"a": {"value": 9000}}'),
        ("args.a > 5000", '{"a": 1e9999999999999999999}'),
        ("args.a > '5'", '{"a": 9}'),
        ("args.a == 5", '{"a": "5"}'),
        ("args.a != 5", '{"a": "6"}'),
        ("args.a == true", '{"a": "true"}'),
        ("args.a == true", '{"a": 1}'),
        ("args.a == 1", '{"a": true}'),
        ("args.a == 'x'", '{"a": ["x"]}'),
        ("args.a in ['x', 'y']", '{"a": 5}'),
        ("args.a in [1, 'x']", '{"a": "y"}'),
        ("args.a contains 'x'", '{"a": 5}'),
        ("args.a contains 5", '{"a": "5"}'),
        ("args.a contains 'x'", '{"a": ["y", {"z": "x"}]}'),
        ("args.a matches 'x'", '{"a": 5}'),
        ("args.a matches 'x'", '{"a": {"b": "x"}}'),
        ("args.a matches 'x'", '{"a": ["y", 5]}'),
        ("args.a > 1 and args.b == 'x'", '{"a": "2", "b": "x"}'),
    ],
)
def test_values_of_other_types_leave_a_doubt(condition: str, arguments: str) -> None:
    assert holds(condition, arguments) is None
    assert holds(condition, arguments, proves=True) is None


def test_a_text_too_long_for_a_pattern_leaves_a_doubt() -> None:
    long = "x" * (SEARCHED_CHARS_MAX + 1)

    assert holds("args.a matches 'x'", json.dumps({"a": long})) is None
    assert holds("args.a matches 'x'", json.dumps({"a": ["x"] * SEARCHED_CHARS_MAX})) is None


def test_a_no_beside_a_doubt_is_a_no_and_a_yes_is_none() -> None:
    assert holds("args.a > 1 and args.b == 'x'", '{"a": "2", "b": "y"}') is False
    assert holds("args.b == 'y' and args.a > 1", '{"a": "2", "b": "y"}') is None
    assert holds("args.a contains 'x'", '{"a": [5, "x"]}') is True


# -- what is not there

NOTHING = [
    # condition, without it, with null in its place, and the same for a rule that allows
    ("args.a == 5", False, False, None, False),
    ("args.a != 5", True, True, None, None),
    ("args.a < 5", False, False, None, False),
    ("args.a >= 'x'", False, False, None, False),
    ("args.a in ['x']", False, False, None, False),
    ("args.a contains 'x'", False, False, None, False),
    ("args.a matches 'x'", False, False, None, False),
    ("args.a == null", True, True, None, True),
    ("args.a != null", False, False, None, False),
    ("args.a in [null]", True, True, None, True),
]


@pytest.mark.parametrize(("condition", "missing", "null", "proves_missing", "proves_null"), NOTHING)
def test_what_is_missing_is_over_no_limit_and_proves_nothing(
    condition: str,
    missing: bool,
    null: bool,
    proves_missing: bool | None,
    proves_null: bool | None,
) -> None:
    assert holds(condition, "{}") is missing
    assert holds(condition, '{"a": null}') is null
    assert holds(condition, "{}", proves=True) is proves_missing
    assert holds(condition, '{"a": null}', proves=True) is proves_null


@pytest.mark.parametrize(
    "arguments", ['{"a": 1}', '{"a": {"c": 1}}', '{"a": [1]}', '{"a": {"0": 1}}', "[1]"]
)
def test_a_path_that_leads_nowhere_is_missing(arguments: str) -> None:
    assert holds("args.a.b == 1", arguments) is False
    assert holds("args.a[2] == 1", arguments) is False
    assert holds("args.a.b != 1", arguments) is True


def test_where_not_all_can_be_read_nothing_is_known_to_be_missing() -> None:
    condition = Condition("args.amount > 5000")

    assert condition.holds({"input": "x"}, is_whole=False) is None
    assert condition.holds({"amount": 1}, is_whole=False) is False


# -- what is read


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "at character 1: expected args, as in args.amount > 5000; found the end."),
        ("amount > 5", "at character 1: expected args"),
        ("argsy.a > 5", "at character 1: expected args"),
        ("args.amount", "at character 12: expected one of == != <= >= < > in contains matches"),
        ("args.amount = 5", "at character 13: expected one of =="),
        ("args.a >", "expected a number, true, false, null or a text in quotes; found the end."),
        ("args.a == eur", "at character 11: expected a number, true, false, null or a text in"),
        ("args.a == None", "expected a number, true, false, null"),
        ("args.a == NaN", "expected a number, true, false, null"),
        ("args.a == -Infinity", "expected a number, true, false, null"),
        ("args.a == 0x10", "at character 12: expected a blank after the value"),
        ("args.a == 1e9999999999999999999", "an exponent of less than nineteen digits"),
        ("args.a == [1]", "expected a number, true, false, null"),
        ("args.a == {}", "expected a number, true, false, null"),
        ('args.a matches "\\s"', "expected a text as JSON has it (a backslash twice), or '...'"),
        ("args.a > true", "at character 10: expected a number or a text after >"),
        ("args.a < null", "expected a number or a text after <"),
        ("args.a in 'x'", 'expected a list, as in ["eur", "usd"]'),
        ("args.a in []", "expected a number, true, false, null"),
        ("args.a in [1, [2]]", "expected a number, true, false, null"),
        ("args.a in [1 2]", 'expected "," or "]"'),
        ("args.a matches 5", "at character 16: expected a regular expression in quotes"),
        ("args.a matches '('", "is no regular expression: missing )"),
        ("args.a matches '(a+)+'", "repeats what is itself repeated"),
        ("args.a > 1 or args.b > 1", 'expected "and" or the end; for "or" write a second rule'),
        ("args.a > 1 and", "expected args"),
        ("args[x] == 1", "a place in a list, as in [0], or a key in quotes"),
        ("args['x' == 1", "expected ]"),
        ("args[-1] == 1", "a place in a list"),
        ("args.9 == 1", "expected one of =="),
        ("args . a == 1", "expected one of =="),
        ("args.a == 1and args.b == 1", "expected a blank after the value"),
        ("args.a == 'x", "expected a number, true, false, null or a text in quotes"),
        ("args.a == " + "1" * CONDITION_CHARS_MAX, "at most 2000 characters"),
        ("args.a == " + "1" * 1000 + "x", "expected a blank after the value"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(condition: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        Condition(condition)

    assert message in caught.value.message


@given(text=st.text("args.[]'\"0 =<>andtru,", max_size=30))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with suppress(SettingError):
        assert Condition("args" + text).holds({"a": 1}) in (True, False, None)


json_numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(left=json_numbers, right=json_numbers)
def test_numbers_are_in_the_order_of_numbers(left: float, right: float) -> None:
    arguments = json.dumps({"a": left})

    for operator, expected in (("<", left < right), ("==", left == right), (">", left > right)):
        assert holds(f"args.a {operator} {json.dumps(right)}", arguments) is expected


def test_only_numbers_are_numbers() -> None:
    assert [as_decimal(value) for value in (True, "1", None, [1])] == [None] * 4
    assert as_decimal(10**4000) == 10**4000
