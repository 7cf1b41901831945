"""Edited arguments fit their tool, by the same judgement as `jsonschema`, or are told why not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentstate.ground.canonical import JSON, parse
from agentstate.ground.errors import BadRequest
from agentstate.steps.schema import CHECKS_MAX, check_arguments, unchecked_keywords

TRANSFER: JSON = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "minLength": 3, "pattern": "@"},
        "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 5000},
        "cents": {"type": "integer"},
        "currency": {"enum": ["eur", "usd"]},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "odd key": {"const": 1},
        "when": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "via": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/bank"}]},
    },
    "required": ["to"],
    "additionalProperties": False,
    "$defs": {"bank": {"type": "object", "properties": {"iban": {"type": "string"}}}},
}


def fault(arguments: object, schema: JSON = TRANSFER) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    with pytest.raises(BadRequest) as caught:
        check_arguments(text, schema)
    return caught.value.message.removeprefix("The arguments do not fit the tool: at ")


@pytest.mark.parametrize(
    "arguments",
    [
        '{"to": "a@b"}',
        '{"to": "a@b", "amount": 5000.0, "cents": 12345678901234567890, "note": null}',
        '{"to": "a@b", "cents": 1.0, "currency": "eur", "tags": ["x", "y"], "odd key": 1.0}',
        '{"to": "a@b", "when": 7, "via": {"iban": "DE"}}',
    ],
)
def test_what_fits_is_let_through(arguments: str) -> None:
    check_arguments(arguments, TRANSFER)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, 'arguments expected the key "to", found none.'),
        ({"to": 5}, "arguments.to expected a string, found the number 5."),
        ({"to": "a"}, "arguments.to expected at least 3 characters, found 1."),
        ({"to": "nobody"}, "arguments.to expected a text that matches @, found a string."),
        (
            {"to": "a@b", "amount": 0},
            "arguments.amount expected a number over 0, found the number 0.",
        ),
        (
            {"to": "a@b", "amount": 5000.5},
            "arguments.amount expected a number up to 5000, found the number 5000.5.",
        ),
        ({"to": "a@b", "cents": True}, "arguments.cents expected an integer, found a boolean."),
        ({"to": "a@b", "cents": 1.5}, "arguments.cents expected an integer, found the number 1.5."),
        (
            {"to": "a@b", "currency": "gbp"},
            'arguments.currency expected one of "eur", "usd", found another value.',
        ),
        ({"to": "a@b", "note": []}, "arguments.note expected a string or null, found a list."),
        (
            {"to": "a@b", "tags": ["x", 1]},
            "arguments.tags[1] expected a string, found the number 1.",
        ),
        ({"to": "a@b", "tags": ["x"] * 3}, "arguments.tags expected at most 2 items, found 3."),
        ({"to": "a@b", "odd key": True}, 'arguments["odd key"] expected 1, found another value.'),
        (
            {"to": "a@b", "when": None},
            "arguments.when expected a string or an integer, found null or nothing.",
        ),
        (
            {"to": "a@b", "via": {"iban": 1}},
            "arguments.via.iban expected a string, found the number 1.",
        ),
        (
            {"to": "a@b", "ammount": 1},
            'arguments expected one of the keys "to", "amount", "cents", "currency", "note", …, '
            'found "ammount".',
        ),
    ],
)
def test_what_does_not_fit_names_place_expectation_and_find(
    arguments: object, message: str
) -> None:
    assert fault(arguments) == message


def test_the_place_is_the_error_s_param() -> None:
    with pytest.raises(BadRequest) as caught:
        check_arguments('{"to": "a@b", "tags": [1]}', TRANSFER)

    assert caught.value.param == "arguments.tags[0]"


def test_a_text_of_the_arguments_is_never_shown() -> None:
    secret = "sk-very-secret"
    schema: JSON = {"properties": {"a": {"enum": ["x"]}, "b": {"maxLength": 1}, "c": False}}

    assert all(secret not in fault({key: secret}, schema) for key in "abc")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("[1]", "The arguments are a list; a JSON object is expected."),
        ("{", "The arguments are not JSON; a JSON object is expected."),
        ('{"to": "a@b", "to": "c@d"}', "The arguments name the key 'to' twice in one object; "
         "a JSON object is expected."),
        ('{"to": NaN}', "The arguments are not JSON; a JSON object is expected."),
        ('{"a":' * 100_000, "The arguments are nested too deeply to be read; a JSON object is "
         "expected."),
    ],
)  # fmt: skip
def test_arguments_must_be_an_object_that_reads_in_one_way(arguments: str, message: str) -> None:
    assert fault(arguments) == message


def test_types_in_capitals_and_nullable_are_read_as_vendors_mean_them() -> None:
    schema: JSON = {
        "type": "OBJECT",
        "properties": {"a": {"type": "STRING", "nullable": True}, "b": {"type": "NUMBER"}},
    }

    check_arguments('{"a": null, "b": 1.5}', schema)
    assert fault({"b": None}, schema).startswith("arguments.b expected a number")


# -- bounds


def test_a_schema_that_refers_to_itself_ends_where_the_value_does() -> None:
    tree: JSON = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "leaf": {"type": "integer"}},
    }

    check_arguments('{"next": {"next": {"leaf": 1}}}', tree)
    assert fault({"next": {"next": {"leaf": ""}}}, tree).startswith("arguments.next.next.leaf")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}, "$ref": "#/$defs/a"},
        {"oneOf": [{"oneOf": [{"oneOf": [{"oneOf": [True] * 40}] * 40}] * 40}] * 40},
    ],
)
def test_a_schema_without_end_is_given_up_on(schema: JSON) -> None:
    assert "nested too deeply, or has too many forms" in fault({}, schema)


def test_a_value_of_many_items_is_still_checked() -> None:
    schema: JSON = {"properties": {"ids": {"items": {"type": "integer"}}}}

    check_arguments(json.dumps({"ids": [1] * (CHECKS_MAX // 2)}), schema)


def test_a_pattern_that_could_take_for_ever_is_not_tried() -> None:
    schema: JSON = {"properties": {"a": {"pattern": "^(x+)+$"}}}

    check_arguments(json.dumps({"a": "x" * 60 + "!"}), schema)
    assert unchecked_keywords(schema) == ("pattern",)


def test_a_text_that_is_too_long_for_its_pattern_is_refused() -> None:
    schema: JSON = {"properties": {"a": {"pattern": "x"}}}

    assert "short enough to be tried" in fault({"a": "x" * 100_000}, schema)


# -- what is not checked


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        (TRANSFER, ()),
        (None, ()),
        (True, ()),
        ({"title": "t", "description": "d", "default": 1, "$schema": "s"}, ()),
        (
            {"properties": {"a": {"format": "email"}, "b": {"items": {"uniqueItems": True}}}},
            ("format", "uniqueItems"),
        ),
        ({"$defs": {"a": {"not": {}}}, "anyOf": [{"if": True}]}, ("if", "not")),
        ({"$ref": "other.json"}, ("$ref",)),
        ({"$ref": "#/$defs/none"}, ("$ref",)),
        ({"$ref": "#anchor"}, ("$ref",)),
        ({"type": "date"}, ("type",)),
        ({"type": []}, ("type",)),
        ({"minimum": 1, "exclusiveMinimum": True}, ("exclusiveMinimum",)),
        ({"minItems": "1"}, ("minItems",)),
        ({"required": True}, ("required",)),
        ({"properties": [], "additionalProperties": False}, ("additionalProperties", "properties")),
        ({"pattern": "("}, ("pattern",)),
        ({"anyOf": []}, ("anyOf",)),
        ({"items": [{}], "prefixItems": [{}]}, ("items", "prefixItems")),
        (
            {"patternProperties": {"^x": {}}, "additionalProperties": False},
            ("additionalProperties", "patternProperties"),
        ),
    ],
)
def test_what_is_not_checked_is_named_and_passes(schema: JSON, names: tuple[str, ...]) -> None:
    assert unchecked_keywords(schema) == names
    if names and schema is not TRANSFER:
        check_arguments('{"x1": 5}', schema)


# -- the judgement of others

scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 1.0, 1.5, -2.5, 12345678901234567890])
    | st.sampled_from(["", "a", "ab", "\U0001f600b", "1"])
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)
small = st.integers(0, 3)
keywords: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(
        ["string", "integer", "number", "boolean", "object", "array", "null"]
    ).flatmap(lambda name: st.sampled_from([name, [name, "null"]])),
    "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
    "enum": st.lists(values, min_size=1, max_size=3),
    "const": values,
    "minimum": st.sampled_from([-1, 0.5, 2]),
    "maximum": st.sampled_from([-1, 0.5, 2]),
    "exclusiveMinimum": st.sampled_from([-1, 1.5, 2]),
    "exclusiveMaximum": st.sampled_from([-1, 1.5, 2]),
    "minLength": small,
    "maxLength": small,
    "minItems": small,
    "maxItems": small,
    "pattern": st.sampled_from(["a", "^b", "^$", "[0-9]"]),
    "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y~1z", "#/$defs/%78"]),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int, *, refers: bool = True) -> Any:
    """Draw a schema of at most three keywords; `refers`: it may hold references."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.booleans())
    inner = schemas(depth - 1) if depth else st.booleans()
    some = st.lists(inner, min_size=1, max_size=3)
    parts = {
        "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        "additionalProperties": inner,
        "items": inner,
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
    }
    kinds = {**keywords, **parts} if depth else keywords
    names = sorted(kinds.keys() - (set() if refers else {"$ref"}))
    chosen = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    return {name: draw(kinds[name]) for name in chosen}


# What is referred to refers to nothing itself: the judge of others has no bound.
@settings(
    derandomize=True, deadline=None, database=None
)  # to draw a schema takes longer than to check one
@given(
    schema=schemas(2).filter(lambda schema: isinstance(schema, dict)),
    one=schemas(0, refers=False),
    two=schemas(0, refers=False),
    arguments=st.dictionaries(st.sampled_from("abc"), values, max_size=3),
)
def test_the_judgement_is_that_of_jsonschema(
    schema: dict[str, Any], one: Any, two: Any, arguments: dict[str, Any]
) -> None:
    whole = {**schema, "$defs": {"x": one, "y/z": two}}
    expected = Draft202012Validator(whole).is_valid(arguments)
    read = parse(json.dumps(whole).encode())  # as a request's schema is read: numbers as sent

    try:
        check_arguments(json.dumps(arguments), read)
    except BadRequest:
        assert not expected
    else:
        assert expected
    assert unchecked_keywords(read) == ()
