"""Checks edited arguments against the JSON schema that the request gave for the tool. Pure.

Not a validator of schemas, and not all of JSON Schema: what tools are described with is checked,
and `unchecked_keywords` names the rest, so that a person is told what was not looked at. Read as
draft 2020-12, with what vendors write besides: `nullable`, and types in capitals (Gemini). A
keyword whose value is not as the draft says is passed over and named: it is not the fault of who
edits.

Schemas come from requests, so the work is bounded: in depth, and in how much is looked at in all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from agentstate.dialects.lenient import name_type
from agentstate.ground.canonical import JSON, Number, encode
from agentstate.ground.conditions import as_decimal
from agentstate.ground.errors import BadRequest, SettingError, shorten
from agentstate.ground.patterns import compile_bounded, search
from agentstate.steps.arguments import read_arguments

DEPTH_MAX = 64  # of schemas in schemas, with the references that are followed; tools have under ten
CHECKS_MAX = 100_000  # of one value against one schema: some tenths of a second
SHOWN_MAX = 5  # of what would have been right
SHOWN_CHARS_MAX = 40  # of each of them

_Path = tuple[str | int, ...]


def check_arguments(arguments: str, schema: JSON) -> None:
    """Check the text of a call's arguments against its tool's schema.

    Raises:
        BadRequest: they are no object that can be read for sure, or they do not fit: `param` is the
            place, the message says what was expected there and what was found.
    """
    check_value(read_arguments(arguments), schema, "The arguments do not fit the tool")


def check_value(value: JSON, schema: JSON, problem: str, name: str = "arguments") -> None:
    """Check a value against a schema; `name` is what the value is called.

    Raises:
        BadRequest: it does not fit: `problem` and the place, as of `check_arguments`.
    """
    try:
        fault = _Checker(schema).check(value, schema, (), 0)
    except RecursionError as error:
        raise BadRequest(f"{problem}: nested too deeply to be checked.") from error
    if fault is not None:
        place = _render_path(name, fault.path)
        raise BadRequest(
            f"{problem}: at {place} expected {fault.expected}, found {fault.found}.", param=place
        )


def unchecked_keywords(schema: JSON) -> tuple[str, ...]:
    """Return the keywords of a schema that say more than `check_arguments` looks at, sorted."""
    found: set[str] = set()
    waiting = [schema]
    for _ in range(CHECKS_MAX):
        if not waiting:
            break
        part = waiting.pop()
        if isinstance(part, dict):
            checked = set(_usable(part, schema))
            found |= part.keys() - checked - _NOTES
            waiting += _parts(part)
    return tuple(sorted(shorten(keyword) for keyword in found))


@dataclass(frozen=True, slots=True)
class _Fault:
    """The first thing that does not fit."""

    path: _Path
    expected: str
    found: str


class _Checker:
    """Checks values against one schema and what it refers to."""

    def __init__(self, root: JSON) -> None:
        self._root = root
        self._left = CHECKS_MAX
        self._keywords: dict[int, tuple[str, ...]] = {}  # by the id of a part of the root

    def check(self, value: JSON, schema: JSON, path: _Path, depth: int) -> _Fault | None:
        """Return what does not fit, None if all does."""
        self._left -= 1
        if depth > DEPTH_MAX or self._left < 0:
            raise BadRequest(
                "The tool's schema is nested too deeply, or has too many forms, for arguments to "
                "be checked against it. Approve the call as it is, or reject it."
            )
        if schema is False:
            return _Fault(path, "nothing", name_type(value))
        if not isinstance(schema, dict) or (value is None and schema.get("nullable") is True):
            return None
        keywords = self._keywords.get(id(schema))
        if keywords is None:
            keywords = self._keywords[id(schema)] = tuple(_usable(schema, self._root))
        for keyword in keywords:
            fault = _CHECKS[keyword].check(self, value, schema, path, depth + 1)
            if fault is not None:
                return fault
        return None

    def check_reference(
        self, value: JSON, schema: dict[str, JSON], path: _Path, depth: int
    ) -> _Fault | None:
        target = _resolve(self._root, schema["$ref"])
        return self.check(value, target, path, depth)

    def check_properties(
        self, value: JSON, schema: dict[str, JSON], path: _Path, depth: int
    ) -> _Fault | None:
        if not isinstance(value, dict):
            return None
        parts = _as_dict(schema["properties"])
        keys = [key for key in value if key in parts]
        return _first(self.check(value[key], parts[key], (*path, key), depth) for key in keys)

    def check_additional(
        self, value: JSON, schema: dict[str, JSON], path: _Path, depth: int
    ) -> _Fault | None:
        if not isinstance(value, dict):
            return None
        wanted, named = schema["additionalProperties"], _as_dict(schema.get("properties"))
        others = [key for key in value if key not in named]
        if others and wanted is False:
            expected = f"one of the keys {_show_all(named)}" if named else "no keys"
            return _Fault(path, expected, _show(others[0]))
        return _first(self.check(value[key], wanted, (*path, key), depth) for key in others)

    def check_items(
        self, value: JSON, schema: dict[str, JSON], path: _Path, depth: int
    ) -> _Fault | None:
        if not isinstance(value, list):
            return None
        wanted = schema["items"]
        return _first(self.check(item, wanted, (*path, at), depth) for at, item in enumerate(value))

    def check_all(
        self, value: JSON, schema: dict[str, JSON], path: _Path, depth: int
    ) -> _Fault | None:
        return _first(self.check(value, each, path, depth) for each in _as_list(schema["allOf"]))

    def check_any(
        self, value: JSON, schema: dict[str, JSON], path: _Path, depth: int
    ) -> _Fault | None:
        faults: list[_Fault] = []
        for each in _as_list(schema["anyOf"]):
            fault = self.check(value, each, path, depth)
            if fault is None:
                return None
            faults.append(fault)
        return _nearest(faults, value, path)

    def check_one(
        self, value: JSON, schema: dict[str, JSON], path: _Path, depth: int
    ) -> _Fault | None:
        forms = _as_list(schema["oneOf"])
        faults = [self.check(value, each, path, depth) for each in forms]
        wrong = [fault for fault in faults if fault is not None]
        fits = len(forms) - len(wrong)
        if fits == 0:
            return _nearest(wrong, value, path)
        if fits > 1:
            return _Fault(path, f"what fits one of {len(forms)} forms", f"what fits {fits}")
        return None


# -- keywords that look at the value alone


def _check_type(value: JSON, wanted: JSON) -> str | None:
    names = [str(name).lower() for name in (wanted if isinstance(wanted, list) else [wanted])]
    if any(_TYPES[name].fits(value) for name in names):
        return None
    return " or ".join(_TYPES[name].noun for name in names)


def _check_enum(value: JSON, wanted: JSON) -> str | None:
    options = _as_list(wanted)
    return None if any(_same(value, each) for each in options) else f"one of {_show_all(options)}"


def _check_const(value: JSON, wanted: JSON) -> str | None:
    return None if _same(value, wanted) else _show(wanted)


def _check_required(value: JSON, wanted: JSON) -> str | None:
    if not isinstance(value, dict):
        return None
    missing = [key for key in _as_list(wanted) if key not in value]
    return f"the key {_show(missing[0])}" if missing else None


def _check_pattern(value: JSON, wanted: JSON) -> str | None:
    if not isinstance(value, str):
        return None
    found = search(compile_bounded(str(wanted)), value)
    if found is None:
        return "a text that is short enough to be tried against its pattern"
    return None if found else f"a text that matches {shorten(str(wanted))}"


def _limit(
    words: str, holds: Callable[[Decimal, Decimal], bool]
) -> Callable[[JSON, JSON], str | None]:
    def check(value: JSON, wanted: JSON) -> str | None:
        number, limit = as_decimal(value), as_decimal(wanted)
        if number is None or limit is None or holds(number, limit):
            return None
        return f"a number {words} {shorten(str(limit), SHOWN_CHARS_MAX)}"

    return check


def _size(
    kind: type[str] | type[list[JSON]], words: str, holds: Callable[[int, int], bool]
) -> Callable[[JSON, JSON], str | None]:
    noun = "characters" if kind is str else "items"

    def check(value: JSON, wanted: JSON) -> str | None:
        if not isinstance(value, kind) or not isinstance(wanted, int):
            return None
        return None if holds(len(value), wanted) else f"{words} {wanted} {noun}"

    return check


def _same(mine: JSON, theirs: JSON) -> bool:
    """Say whether two values are equal as JSON Schema has it: 1 is 1.0 and is not true."""
    match mine, theirs:
        case dict(), dict():
            return mine.keys() == theirs.keys() and all(
                _same(value, theirs[key]) for key, value in mine.items()
            )
        case list(), list():
            return len(mine) == len(theirs) and all(map(_same, mine, theirs))
        case (None | bool() | str() | dict() | list(), _):
            return type(mine) is type(theirs) and mine == theirs
        case _:
            number = as_decimal(mine)
            return number is not None and number == as_decimal(theirs)


# -- which keyword is looked at how


@dataclass(frozen=True, slots=True)
class _Type:
    """A type of JSON Schema."""

    noun: str
    fits: Callable[[JSON], bool]


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float | Number) and not isinstance(value, bool)


def _is_integer(value: JSON) -> bool:
    number = as_decimal(value)
    return number is not None and number == number.to_integral_value()


_TYPES = {
    "string": _Type("a string", lambda value: isinstance(value, str)),
    "integer": _Type("an integer", _is_integer),
    "number": _Type("a number", _is_number),
    "boolean": _Type("a boolean", lambda value: isinstance(value, bool)),
    "object": _Type("an object", lambda value: isinstance(value, dict)),
    "array": _Type("a list", lambda value: isinstance(value, list)),
    "null": _Type("null", lambda value: value is None),
}


@dataclass(frozen=True, slots=True)
class _Keyword:
    """A keyword that is checked."""

    # Whether it is as the draft says; given its value, the schema it stands in and the root.
    is_usable: Callable[[JSON, dict[str, JSON], JSON], bool]
    check: Callable[[_Checker, JSON, dict[str, JSON], _Path, int], _Fault | None]


def _of_value(
    keyword: str, check: Callable[[JSON, JSON], str | None], is_usable: Callable[[JSON], bool]
) -> _Keyword:
    """Make a keyword that looks at the value alone: `check` says what it expected instead."""

    def look(
        checker: _Checker, value: JSON, schema: dict[str, JSON], path: _Path, depth: int
    ) -> _Fault | None:
        expected = check(value, schema[keyword])
        return None if expected is None else _Fault(path, expected, _found(value, keyword))

    return _Keyword(lambda wanted, schema, root: is_usable(wanted), look)


def _is_type(wanted: JSON) -> bool:
    names = wanted if isinstance(wanted, list) else [wanted]
    return bool(names) and all(isinstance(name, str) and name.lower() in _TYPES for name in names)


def _is_pattern(wanted: JSON) -> bool:
    try:
        compile_bounded(wanted if isinstance(wanted, str) else "(")
    except SettingError:
        return False
    return True


def _is_size(wanted: JSON) -> bool:
    return isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0


def _is_limit(wanted: JSON) -> bool:
    return as_decimal(wanted) is not None


def _is_schema(wanted: JSON) -> bool:
    return isinstance(wanted, dict | bool)


def _are_schemas(wanted: JSON, schema: dict[str, JSON], root: JSON) -> bool:
    return isinstance(wanted, list) and bool(wanted) and all(map(_is_schema, wanted))


# In this order, so that what is said first is what is wrong most plainly.
_CHECKS: dict[str, _Keyword] = {
    "$ref": _Keyword(
        lambda wanted, schema, root: _is_schema(_resolve(root, wanted)), _Checker.check_reference
    ),
    "type": _of_value("type", _check_type, _is_type),
    "enum": _of_value("enum", _check_enum, lambda wanted: isinstance(wanted, list)),
    "const": _of_value("const", _check_const, lambda wanted: True),
    "required": _of_value(
        "required",
        _check_required,
        lambda wanted: isinstance(wanted, list) and all(isinstance(key, str) for key in wanted),
    ),
    "properties": _Keyword(
        lambda wanted, schema, root: (
            isinstance(wanted, dict) and all(map(_is_schema, wanted.values()))
        ),
        _Checker.check_properties,
    ),
    "additionalProperties": _Keyword(
        # Which keys are additional cannot be said without the patterns.
        lambda wanted, schema, root: (
            _is_schema(wanted)
            and "patternProperties" not in schema
            and isinstance(schema.get("properties", {}), dict)
        ),
        _Checker.check_additional,
    ),
    "items": _Keyword(
        lambda wanted, schema, root: _is_schema(wanted) and "prefixItems" not in schema,
        _Checker.check_items,
    ),
    "minimum": _of_value("minimum", _limit("from", operator.ge), _is_limit),
    "maximum": _of_value("maximum", _limit("up to", operator.le), _is_limit),
    "exclusiveMinimum": _of_value("exclusiveMinimum", _limit("over", operator.gt), _is_limit),
    "exclusiveMaximum": _of_value("exclusiveMaximum", _limit("under", operator.lt), _is_limit),
    "minLength": _of_value("minLength", _size(str, "at least", operator.ge), _is_size),
    "maxLength": _of_value("maxLength", _size(str, "at most", operator.le), _is_size),
    "minItems": _of_value("minItems", _size(list, "at least", operator.ge), _is_size),
    "maxItems": _of_value("maxItems", _size(list, "at most", operator.le), _is_size),
    "pattern": _of_value("pattern", _check_pattern, _is_pattern),
    "allOf": _Keyword(_are_schemas, _Checker.check_all),
    "anyOf": _Keyword(_are_schemas, _Checker.check_any),
    "oneOf": _Keyword(_are_schemas, _Checker.check_one),
}

# Keywords that ask nothing of a value by themselves.
_NOTES = frozenset((
    "$anchor", "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated",
    "description", "example", "examples", "nullable", "propertyOrdering", "readOnly", "title",
    "writeOnly",
))  # fmt: skip


def _usable(schema: dict[str, JSON], root: JSON) -> Iterator[str]:
    """Yield the keywords of a schema that can be checked, in their order."""
    for keyword, known in _CHECKS.items():
        if keyword in schema and known.is_usable(schema[keyword], schema, root):
            yield keyword


def _parts(schema: dict[str, JSON]) -> Iterator[JSON]:
    """Yield the schemas that stand in the keywords of one which are checked."""
    for keyword in ("properties", "$defs", "definitions"):
        yield from _as_dict(schema.get(keyword)).values()
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from _as_list(schema.get(keyword))
    for keyword in ("items", "additionalProperties"):
        yield schema.get(keyword)


def _resolve(root: JSON, reference: JSON) -> JSON:
    """Return what a local reference points to; None if it is not local, or to nothing."""
    if not isinstance(reference, str) or not f"{reference}/".startswith("#/"):
        return None
    found = root
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        match found:
            case dict():
                found = found.get(key)
            case list() if key.isascii() and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            case _:
                return None
    return found


# -- words


def _nearest(faults: list[_Fault], value: JSON, path: _Path) -> _Fault:
    """Return the fault of the form that was meant: the one that fits the deepest; if all fail at
    once, all that would have been right."""
    deepest = max(faults, key=lambda fault: len(fault.path))
    if len(deepest.path) > len(path):
        return deepest
    expected = list(dict.fromkeys(fault.expected for fault in faults))
    if len(expected) == 1:
        return deepest
    return _Fault(path, " or ".join(expected[:SHOWN_MAX]), name_type(value))


def _found(value: JSON, keyword: str) -> str:
    """Say what was found; never a text itself, which may be secret."""
    match keyword, value:
        case (("minLength" | "maxLength" | "minItems" | "maxItems"), (str() | list())):
            return str(len(value))
        case "required", _:
            return "none"
        case "enum" | "const", _:
            return "another value"
        case _:
            return name_type(value)


def _show(value: JSON) -> str:
    try:
        return shorten(encode(value).decode("ascii"), SHOWN_CHARS_MAX)
    except BadRequest:
        return "a value that is nested deeply"


def _show_all(values: Any) -> str:
    shown = [_show(value) for value in list(values)[:SHOWN_MAX]]
    return ", ".join(shown) + (", …" if len(values) > SHOWN_MAX else "")


def _render_path(place: str, path: _Path) -> str:
    for part in path:
        if isinstance(part, str):
            place += f".{part}" if part.isidentifier() else f"[{_show(part)}]"
        else:
            place += f"[{part}]"
    return place


def _first(faults: Iterator[_Fault | None]) -> _Fault | None:
    return next((fault for fault in faults if fault is not None), None)


def _as_dict(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _as_list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []
