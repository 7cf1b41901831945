"""JSON schemas as Anthropic takes them."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects.anthropic_schemas import closed_schema, tool_schema

TEXT: dict[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (None, {"type": "object", "properties": {}}),
        ({}, {"type": "object", "properties": {}}),
        (True, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object"}),
        ({"properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        (
            {"type": ["object", "null"], "properties": {"a": TEXT}, "required": ["a"]},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
        (
            {
                "type": "object",
                "properties": {"a": TEXT, "b": TEXT},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ),
        (
            {
                "oneOf": [
                    {"properties": {"a": TEXT, "b": TEXT}, "required": ["a", "b"]},
                    {"properties": {"a": TEXT, "c": TEXT}, "required": ["a"]},
                ]
            },
            {"type": "object", "properties": {"a": TEXT, "b": TEXT, "c": TEXT}, "required": ["a"]},
        ),
        (
            {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"required": ["b"]}]},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a", "b"]},
        ),
    ],
)
def test_a_tools_schema_is_of_an_object(schema: Any, written: Any) -> None:
    assert tool_schema(schema) == written


CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": TEXT},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "object", "properties": {"a": TEXT}, "$schema": "x"}, CLOSED),
        ({**CLOSED, "additionalProperties": True, "required": ["a"]},
         {**CLOSED, "required": ["a"]}),
        ({"type": "object", "additionalProperties": False},
         {"type": "object", "properties": {}, "additionalProperties": False}),
        ({"type": "integer", "minimum": 0, "description": "d"},
         {"type": "integer", "description": 'd\n\n{"minimum":0}'}),
        ({"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}),
        ({"type": "string", "format": "binary"},
         {"type": "string", "description": '{"format":"binary"}'}),
        ({"type": "array", "items": TEXT, "minItems": 1},
         {"type": "array", "items": TEXT, "minItems": 1}),
        ({"type": "array", "items": TEXT, "minItems": 2},
         {"type": "array", "items": TEXT, "description": '{"minItems":2}'}),
        ({"oneOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}]}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1]}),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": TEXT}}}},
         {"$ref": "#/$defs/A", "$defs": {"A": CLOSED}}),
        ({"type": ["object", "null"], "properties": {"a": TEXT}},
         {**CLOSED, "type": ["object", "null"]}),
    ],
)  # fmt: skip
def test_a_schema_is_closed(schema: Any, written: Any) -> None:
    assert closed_schema(schema) == written


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {},
        {"description": "anything"},
        {"type": "object"},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "additionalProperties": TEXT},
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT},
        {"type": "array"},
        {"$ref": "https://example.org/schema"},
        {"type": "array", "items": {"$ref": "#"}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
    ],
)
def test_an_open_or_endless_schema_has_no_closed_form(schema: Any) -> None:
    assert closed_schema(schema) is None


def test_a_schema_nested_deeper_than_can_be_read_has_no_closed_form() -> None:
    schema = TEXT
    for _ in range(5000):
        schema = {"type": "array", "items": schema}

    assert closed_schema(schema) is None
