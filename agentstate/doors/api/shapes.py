"""The shapes of answers: what is checked against them, and what the OpenAPI document says of them.

A shape is a `TypedDict` beside the function that makes it, named `...Shown`. The function builds it
as a literal, so the type checker refuses a key too many, one too few, and a value of another kind;
`schema_of` makes the schema of the very same class. There is no second list that could drift. What
an endpoint puts together of several shapes is held by a test, which compares real answers.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from agentstate.ground.canonical import JSON

ANY = "any JSON"
if TYPE_CHECKING:
    Anything = JSON  # what strangers sent; it has no shape of ours
else:
    # `JSON` names itself, which `get_type_hints` could follow only where it is imported.
    Anything = Annotated[object, ANY]
SUFFIX = "Shown"
_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}

Schemas = dict[str, JSON]  # by name


def as_json(shown: Mapping[str, object]) -> dict[str, JSON]:
    """Return a shape as the JSON that it is, for the type checker: values are what they were."""
    return cast(dict[str, JSON], shown)


def schema_of(shape: Any, schemas: Schemas) -> dict[str, JSON]:
    """Return the JSON schema of a type; shapes are put into `schemas`, and referred to."""
    origin = get_origin(shape)
    if is_typeddict(shape):
        return _shape(shape, schemas)
    if origin is NotRequired:
        return schema_of(get_args(shape)[0], schemas)
    if origin is Annotated:
        assert ANY in get_args(shape), f"what is {shape}?"
        return {}
    if origin is Literal:
        return {"type": "string", "enum": list[JSON](get_args(shape))}
    if origin in (Union, types.UnionType):
        return _one_of([schema_of(each, schemas) for each in get_args(shape)])
    if origin is list:
        return {"type": "array", "items": schema_of(get_args(shape)[0], schemas)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(get_args(shape)[1], schemas)}
    assert shape in _KINDS, f"no schema is known of {shape}"
    return {"type": _KINDS[shape]}


def _shape(shape: Any, schemas: Schemas) -> dict[str, JSON]:
    name = shape.__name__.removesuffix(SUFFIX)
    if name not in schemas:
        schemas[name] = {}  # its place, in case it is in itself
        hints = get_type_hints(shape, include_extras=True)
        needed: list[JSON] = [
            key for key, hint in hints.items() if get_origin(hint) is not NotRequired
        ]
        schemas[name] = {
            "type": "object",
            "properties": {key: schema_of(hint, schemas) for key, hint in hints.items()},
            "required": needed,
        }
    return {"$ref": f"#/components/schemas/{name}"}


def _one_of(schemas: list[dict[str, JSON]]) -> dict[str, JSON]:
    """Join what a value may be; a type or an enumeration with null stays one schema."""
    if {} in schemas:
        return {}
    if all(set(each) == {"type"} for each in schemas):
        return {"type": [each["type"] for each in schemas]}
    first, *others = schemas
    if others == [{"type": "null"}] and "enum" in first:
        choices = first["enum"]
        assert isinstance(choices, list), "an enumeration is a list"
        return {"type": [first["type"], "null"], "enum": [*choices, None]}
    return {"anyOf": list[JSON](schemas)}
