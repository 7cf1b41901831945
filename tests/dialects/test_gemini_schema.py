"""Schemas for Gemini: known keywords only, always finite, and what is lost is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.gemini_schema import ALWAYS_KEPT, FORMATS, KEPT, clean, json_schema
from agentstate.ground.canonical import JSON, parse
from tests.helpers.gemini_types import check

TREE: dict[str, Any] = {
    "$defs": {
        "Tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            },
        }
    },
    "$ref": "#/$defs/Tree",
}


@pytest.mark.parametrize(
    ("schema", "made", "lost"),
    [
        ({"type": "string", "$comment": "c", "x-y": 1}, {"type": "string"}, ()),
        ({"type": "STRING"}, {"type": "string"}, ()),
        ({"const": "x"}, {"type": "string", "enum": ["x"]}, ()),
        ({"type": ["integer", "null"]}, {"type": "integer", "nullable": True}, ()),
        ({"type": ["null"]}, {"type": "null"}, ()),
        (
            {"type": ["string", "number", "null"], "minimum": 1, "minLength": 2},
            {
                "anyOf": [
                    {"type": "string", "minLength": 2, "nullable": True},
                    {"type": "number", "minimum": 1, "nullable": True},
                ]
            },
            (),
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "T"},
            {"type": "string", "title": "T", "nullable": True},
            (),
        ),
        (
            {"oneOf": [{"type": "string", "description": "b"}, {"type": "integer"}],
             "description": "a"},
            {"anyOf": [{"type": "string", "description": "b"},
                       {"type": "integer", "description": "a"}]},
            (),
        ),
        ({"enum": ["a", "", None]}, {"type": "string", "enum": ["a"], "nullable": True}, ("enum",)),
        ({"type": "integer", "enum": [1, 2], "description": "How many."},
         {"type": "integer", "description": "How many. One of: 1, 2."}, ("enum",)),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9},
         {"type": "integer", "minimum": 1, "maximum": 8}, ()),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0},
         ("exclusiveMinimum",)),
        ({"type": "number", "exclusiveMinimum": True, "minimum": 2},
         {"type": "number", "minimum": 2}, ("exclusiveMinimum",)),
        ({"type": "string", "format": "uri"}, {"type": "string"}, ("format",)),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}, ()),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}, ("any type",)),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            ("prefixItems",),
        ),
        (True, {"type": "string"}, ("any type",)),
        ({"type": "object", "additionalProperties": False}, {"type": "object"}, ()),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "object"},
         ("additionalProperties",)),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True},
         {"type": "array", "items": {"type": "string"}}, ("uniqueItems",)),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "gone"]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            (),
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]},
                       {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
            (),
        ),
        ({"$ref": "#/$defs/a~1b", "description": "d", "$defs": {"a/b": {"type": "boolean"}}},
         {"type": "boolean", "description": "d"}, ()),
        ({"$ref": "#/nowhere"}, {"type": "object"}, ("$ref",)),
        ({"$ref": "#"}, {"type": "object"}, ("recursion",)),
    ],
)  # fmt: skip
def test_a_schema_becomes_googles(schema: JSON, made: JSON, lost: tuple[str, ...]) -> None:
    cleaned = clean(schema)
    assert (cleaned.schema, cleaned.lost) == (made, lost)


def test_a_reference_that_goes_round_ends_in_any_object() -> None:
    cleaned = clean(TREE)
    assert cleaned.schema["properties"] == {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"type": "object"}},
    }
    assert cleaned.lost == ("recursion",)


def test_references_that_double_end_in_any_object() -> None:
    definitions: dict[str, JSON] = {
        f"A{n}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/A{n + 1}"} for side in ("left", "right")},
        }
        for n in range(40)
    }
    cleaned = clean({"$defs": definitions, "$ref": "#/$defs/A0"})
    assert "size" in cleaned.lost
    assert len(json.dumps(cleaned.schema)) < 500_000


@pytest.mark.parametrize("keyword", ["items", "allOf", "anyOf"])
def test_schemas_that_are_nested_too_deeply_end_in_any_object(keyword: str) -> None:
    schema: JSON = {"type": "string"}
    for _ in range(300):
        schema = {keyword: schema if keyword == "items" else [schema, True]}
    assert "depth" in clean(schema).lost


def test_arguments_are_an_object_of_all_shapes_they_can_have() -> None:
    schema: JSON = {
        "anyOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]
    }
    cleaned = clean(schema, is_object=True)
    assert cleaned.schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    }
    assert cleaned.lost == ("anyOf",)
    assert clean({"type": "string"}, is_object=True).schema == {"type": "object"}
    assert clean(None, is_object=True).schema == {"type": "object"}


def test_numbers_keep_their_text() -> None:
    schema = parse(b'{"type":"number","minimum":0.10}')
    assert repr(clean(schema).schema["minimum"]) == "0.10"


WORDS = st.sampled_from(
    ["string", "integer", "number", "boolean", "array", "object", "null", "odd"]
)
ODD: list[JSON] = [[], {}, [1], {"a": 1}, 0.5]
LEAVES = (
    st.sampled_from(ODD)
    | st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["a", "", "date-time"])
)


def schemas_of(inner: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    lists = st.lists(inner, max_size=3)
    named = st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    values: dict[str, st.SearchStrategy[Any]] = {
        "type": WORDS | st.lists(WORDS, max_size=3),
        "properties": named,
        "$defs": named,
        "$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "x", 1, []]),
        "items": inner | lists,
        "required": st.lists(st.sampled_from(["a", "b", "z"]), max_size=3),
        "enum": st.lists(LEAVES, max_size=3),
        "nullable": st.booleans(),
    }
    values |= dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), lists)
    values |= dict.fromkeys(
        ("const", "format", "minimum", "exclusiveMinimum", "minItems", "pattern", "description",
         "default", "not", "if", "uniqueItems", "$schema", "additionalProperties", "title"),
        LEAVES,
    )  # fmt: skip
    return st.fixed_dictionaries({}, optional=values) | st.booleans()


SCHEMAS = st.recursive(st.builds(dict), schemas_of, max_leaves=12)


def is_googles(schema: dict[str, Any]) -> bool:
    """Tell whether a schema has only what is known, each where its type allows it."""
    if "anyOf" in schema:
        branches = schema["anyOf"]
        return schema.keys() == {"anyOf"} and len(branches) > 1 and all(map(is_googles, branches))
    kind = schema["type"]
    properties = schema.get("properties", {})
    return (
        schema.keys() <= ALWAYS_KEPT | KEPT[kind]
        and schema.get("format") in (None, *FORMATS.get(kind, ()))
        and all(isinstance(each, str) and each for each in schema.get("enum", ["a"]))
        and set(schema.get("required", ())) <= properties.keys()
        and (kind != "array" or is_googles(schema["items"]))
        and all(map(is_googles, properties.values()))
    )


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, st.booleans())
def test_whatever_comes_in_only_what_google_knows_goes_out(schema: JSON, is_object: bool) -> None:
    before = json.dumps(schema)
    cleaned = clean(schema, is_object=is_object)

    assert is_googles(cleaned.schema), cleaned.schema
    assert json.dumps(schema) == before
    assert clean(schema, is_object=is_object) == cleaned
    if is_object:
        assert cleaned.schema["type"] == "object"
    check("Schema", json.dumps(cleaned.schema))


@settings(max_examples=100, deadline=None)
@given(SCHEMAS)
def test_what_was_cleaned_once_loses_nothing_more(schema: JSON) -> None:
    once = clean(schema)
    again = clean(json_schema(once.schema))
    assert again.lost == ()
    assert again.schema == once.schema
