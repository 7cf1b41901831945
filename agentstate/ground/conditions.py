"""What `when` of a `[[gate.rule]]` says of a tool call's arguments. Pure.

    args.amount > 5000 and args.currency in ["eur", "usd"]

    args        .key for a plain key, ["any key"] for every other, [0] for an item of a list
    operators   == != < <= > >= in contains matches
    values      a number, true, false, null, "text" as in JSON, 'text' in which nothing is escaped;
                for `in` a list of these. A bare word is refused: it would hide a missing quote.

Numbers compare exactly, whatever their length: 5000.0 is 5000. Text compares exactly, and in order
of its characters. `contains` looks for a part of a text, an item of a list or a key of an object;
`matches` searches a regular expression in a text, or in the items of a list and in all of them with
blanks between, which is how a command is given.

The answer is yes, no, or None: it cannot be told. It cannot where the types differ: a tool may well
take the text "9000" for a number, so whether it is over 5000 is not ours to say. What follows from
None is for the rule to decide, and the gate fails closed: a rule that allows does not match, a rule
that asks or denies asks. Only null can be compared with everything.

What is missing, or null, is not over any limit and holds nothing: every comparison with it is
"no", but `!=` is "yes". It says nothing for a rule that allows, since what the tool takes in its
place is not known here (`proves`). So a tool that must be asked about unless it is shown to be
harmless goes into `gate.tools`, with a rule that allows beside it.
"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Final, Literal, NoReturn, TypeAlias

from agentstate.ground.canonical import JSON, Number
from agentstate.ground.errors import SettingError, shorten
from agentstate.ground.patterns import compile_bounded, search

CONDITION_CHARS_MAX = 2000

Truth: TypeAlias = bool | None  # None = it cannot be told


class _Missing(Enum):
    """What stands where a path leads nowhere."""

    MISSING = 0


MISSING: Final = _Missing.MISSING
_Found: TypeAlias = JSON | Literal[_Missing.MISSING]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One PATH OP VALUE."""

    path: tuple[str | int, ...]
    is_negated: bool  # `!=`: what is missing is not equal to anything
    test: Callable[[JSON], Truth]
    is_about_null: bool  # it asks whether there is anything


class Condition:
    """One condition, parsed."""

    __slots__ = ("_comparisons", "text")

    def __init__(self, text: str) -> None:
        """Parse `text`.

        Raises:
            SettingError: it is no condition; the message says where and what was expected, and has
                no place.
        """
        self.text = text
        self._comparisons = tuple(_Parser(text).read())

    def holds(self, arguments: JSON, *, proves: bool = False, is_whole: bool = True) -> Truth:
        """Say whether the condition holds for a call's arguments; None = it cannot be told.

        `proves`: yes must rest on what is there, as for a rule that allows. `is_whole` False: there
        is more to the arguments than can be read, so what is missing here may be there.
        """
        truths = [
            _compare(each, arguments, proves=proves, is_whole=is_whole)
            for each in self._comparisons
        ]
        return _all(truths)


def as_decimal(value: object) -> Decimal | None:
    """Return a JSON number exactly; None for what is none, or has an exponent beyond all use."""
    if isinstance(value, Number):
        try:
            return Decimal(value.text)
        except decimal.InvalidOperation:
            return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(value)
    return None


def _compare(comparison: _Comparison, arguments: JSON, *, proves: bool, is_whole: bool) -> Truth:
    found = _look_up(arguments, comparison.path)
    if found is MISSING and (proves or not is_whole):
        return None
    if found is MISSING:
        found = None
    if found is None and proves and comparison.is_negated and not comparison.is_about_null:
        return None  # null is not "prod", but the tool may put "prod" in its place
    return comparison.test(found)


def _look_up(value: JSON, path: tuple[str | int, ...]) -> _Found:
    for key in path:
        match value:
            case dict() if isinstance(key, str) and key in value:
                value = value[key]
            case list() if isinstance(key, int) and key < len(value):
                value = value[key]
            case _:
                return MISSING
    return value


def _all(truths: Iterable[Truth]) -> Truth:
    """Return no if any is no, else None if any is None, else yes."""
    found = set(truths)
    return False if False in found else None if None in found else True


def _any(truths: Iterable[Truth]) -> Truth:
    """Return yes if any is yes, else None if any is None, else no."""
    found = set(truths)
    return True if True in found else None if None in found else False


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


# -- the comparisons: each is given what was found, null where nothing was


def _equal(found: JSON, wanted: JSON) -> Truth:
    if wanted is None or found is None:
        return found is wanted
    if isinstance(wanted, bool) or isinstance(found, bool):
        return found is wanted if isinstance(wanted, bool) and isinstance(found, bool) else None
    if isinstance(wanted, str):
        return found == wanted if isinstance(found, str) else None
    mine, theirs = as_decimal(wanted), as_decimal(found)
    return None if mine is None or theirs is None else mine == theirs


def _order(found: JSON, wanted: JSON) -> int | None:
    """Return -1, 0 or 1 as what was found is below, at or above; None = it cannot be told."""
    if isinstance(wanted, str):
        if not isinstance(found, str):
            return None
        return (found > wanted) - (found < wanted)
    mine, theirs = as_decimal(wanted), as_decimal(found)
    return None if mine is None or theirs is None else (theirs > mine) - (theirs < mine)


def _ordered(found: JSON, wanted: JSON, orders: frozenset[int]) -> Truth:
    if found is None:
        return False
    order = _order(found, wanted)
    return None if order is None else order in orders


def _contains(found: JSON, wanted: JSON) -> Truth:
    match found:
        case None:
            return False
        case list():
            return _any(_equal(item, wanted) for item in found)
        case str() | dict():
            return wanted in found if isinstance(wanted, str) else None
        case _:
            return None


def _matches(found: JSON, pattern: re.Pattern[str]) -> Truth:
    match found:
        case None:
            return False
        case str():
            return search(pattern, found)
        case list():
            items = [item for item in found if isinstance(item, str)]
            joined = search(pattern, " ".join(items))
            if joined is None:
                return None  # all of them together are too long to try
            other = None if len(items) < len(found) else False
            return _any([joined, other, *(search(pattern, item) for item in items)])
        case _:
            return None


_ORDERS = {
    "<": frozenset((-1,)), "<=": frozenset((-1, 0)), ">": frozenset((1,)), ">=": frozenset((0, 1))
}  # fmt: skip
OPERATORS = ("==", "!=", "<=", ">=", "<", ">", "in", "contains", "matches")


def _test(operator: str, wanted: JSON) -> Callable[[JSON], Truth]:
    """Return the comparison with a value that fits the operator."""
    match operator, wanted:
        case "==", _:
            return lambda found: _equal(found, wanted)
        case "!=", _:
            return lambda found: _not(_equal(found, wanted))
        case "in", list():
            return lambda found: _any(_equal(found, each) for each in wanted)
        case "contains", _:
            return lambda found: _contains(found, wanted)
        case "matches", str():
            pattern = compile_bounded(wanted)
            return lambda found: _matches(found, pattern)
        case _:
            orders = _ORDERS[operator]
            return lambda found: _ordered(found, wanted, orders)


# -- the text of a condition


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Keeps numbers exact, and refuses NaN and Infinity, which only Python takes for JSON.
_VALUES = json.JSONDecoder(parse_float=Number, parse_constant=_no_number)


class _Parser:
    """Reads the text of a condition from left to right."""

    _BLANK = re.compile(r"\s*")
    _ROOT = re.compile(r"args\b")
    _KEY = re.compile(r"\.([^\W\d][\w-]*)")
    _INDEX = re.compile(r"\[\s*(\d{1,9})\s*\]")
    _OPERATOR = re.compile(r"[=!<>]=|[<>]|(?:in|contains|matches)\b")
    _PLAIN_TEXT = re.compile(r"'([^']*)'")
    _AND = re.compile(r"and\b")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> list[_Comparison]:
        """Return the comparisons, at least one."""
        if len(self._text) > CONDITION_CHARS_MAX:
            raise SettingError(f"a condition has at most {CONDITION_CHARS_MAX} characters.")
        found = [self._comparison()]
        while self._take(self._AND):
            found.append(self._comparison())
        if self._at < len(self._text):
            self._refuse('"and" or the end; for "or" write a second rule')
        return found

    def _comparison(self) -> _Comparison:
        path = self._path()
        operator = self._take(self._OPERATOR)
        if operator is None:
            self._refuse(f"one of {' '.join(OPERATORS)}")
        start = self._at
        wanted = self._list() if operator[0] == "in" else self._value()
        if operator[0] in _ORDERS and (wanted is None or isinstance(wanted, bool)):
            self._at = start
            self._refuse(f"a number or a text after {operator[0]}")
        if operator[0] == "matches" and not isinstance(wanted, str):
            self._at = start
            self._refuse("a regular expression in quotes")
        is_about_null = wanted is None
        return _Comparison(path, operator[0] == "!=", _test(operator[0], wanted), is_about_null)

    def _path(self) -> tuple[str | int, ...]:
        if self._take(self._ROOT) is None:
            self._refuse("args, as in args.amount > 5000")
        path: list[str | int] = []
        while True:
            if (key := self._take(self._KEY)) is not None:
                path.append(key[1])
            elif (index := self._take(self._INDEX)) is not None:
                path.append(int(index[1]))
            elif self._peek() == "[":
                self._at += 1
                self._skip()
                if self._peek() not in ("'", '"'):
                    self._refuse('a place in a list, as in [0], or a key in quotes, as in ["to"]')
                path.append(str(self._value()))
                if not self._take_mark("]"):
                    self._refuse("]")
            else:
                return tuple(path)

    def _list(self) -> list[JSON]:
        if not self._take_mark("["):
            self._refuse('a list, as in ["eur", "usd"]')
        found = [self._value()]
        while self._take_mark(","):
            found.append(self._value())
        if not self._take_mark("]"):
            self._refuse('"," or "]"')
        return found

    def _value(self) -> JSON:
        if (plain := self._take(self._PLAIN_TEXT)) is not None:
            return plain[1]
        if self._peek() in ("[", "{"):
            self._refuse_value()
        try:
            value: JSON
            value, end = _VALUES.raw_decode(self._text, self._at)
        except ValueError:
            self._refuse_value()
        if isinstance(value, Number) and as_decimal(value) is None:
            self._refuse("a number with an exponent of less than nineteen digits")
        self._at = end
        if re.match(r"[\w.]", self._text[self._at :]):
            self._refuse("a blank after the value")  # 5000.args, 1.2.3, 0x10
        self._skip()
        return value

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what the pattern describes and the blanks after it; None = it is not there."""
        self._skip()
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
            self._skip()
        return found

    def _take_mark(self, mark: str) -> bool:
        is_there = self._text.startswith(mark, self._at)
        if is_there:
            self._at += len(mark)
            self._skip()
        return is_there

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        blank = self._BLANK.match(self._text, self._at)
        assert blank is not None, "no blank is a blank"
        self._at = blank.end()

    def _refuse_value(self) -> NoReturn:
        if self._peek() == '"':
            self._refuse("a text as JSON has it (a backslash twice), or '...' with it as it is")
        self._refuse("a number, true, false, null or a text in quotes")

    def _refuse(self, expected: str) -> NoReturn:
        rest = self._text[self._at :]
        found = f"found {shorten(repr(rest), 40)}" if rest else "found the end"
        raise SettingError(f"at character {self._at + 1}: expected {expected}; {found}.")
