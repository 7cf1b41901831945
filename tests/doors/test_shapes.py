"""Shapes become schemas: each kind of annotation that a shape may have."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import pytest

from agentstate.doors.api.shapes import Anything, schema_of


class LeafShown(TypedDict):
    """A shape in another one."""

    name: str


class BaseShown(TypedDict):
    """A shape that another one adds to."""

    count: int | None


class WholeShown(BaseShown):
    """A shape with all that there is."""

    leaf: LeafShown
    maybe: LeafShown | None
    leaves: list[LeafShown]
    tags: dict[str, str]
    word: Literal["a", "b"]
    maybe_word: Literal["a", "b"] | None
    any: Anything
    some: NotRequired[Anything | None]
    share: float
    is_so: bool
    itself: NotRequired[WholeShown]


def test_a_shape_is_an_object_whose_keys_are_as_they_are_annotated() -> None:
    schemas: dict[str, Any] = {}
    assert schema_of(WholeShown, schemas) == {"$ref": "#/components/schemas/Whole"}
    leaf = {"$ref": "#/components/schemas/Leaf"}
    assert schemas["Leaf"] == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    assert schemas["Whole"]["properties"] == {
        "count": {"type": ["integer", "null"]},
        "leaf": leaf,
        "maybe": {"anyOf": [leaf, {"type": "null"}]},
        "leaves": {"type": "array", "items": leaf},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "word": {"type": "string", "enum": ["a", "b"]},
        "maybe_word": {"type": ["string", "null"], "enum": ["a", "b", None]},
        "any": {},
        "some": {},
        "share": {"type": "number"},
        "is_so": {"type": "boolean"},
        "itself": {"$ref": "#/components/schemas/Whole"},
    }
    assert set(schemas["Whole"]["properties"]) - set(schemas["Whole"]["required"]) == {
        "some",
        "itself",
    }


def test_what_has_no_schema_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="no schema is known"):
        schema_of(bytes, {})
