"""JSON schemas as Anthropic takes them: a tool's, and one that an answer is held to.

A tool's schema may be nearly any, but it is of an object and has no alternatives at its top. One
that is enforced (structured output, strict tools) is compiled to a grammar: objects are closed,
nothing refers to itself, and of the bounds on values there are hardly any. What a grammar lacks is
told to the model in the description, as Anthropic's own SDKs do. Pure; nothing is changed in place.
Source: platform.claude.com/docs/en/build-with-claude/structured-outputs, November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.ground.canonical import JSON, encode

NO_ARGUMENTS: dict[str, JSON] = {"type": "object", "properties": {}}

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_DEFINITIONS = ("$defs", "definitions")
_AS_IT_IS = ("type", "enum", "const", "default", "title", "required")
_STRING_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)
# Says nothing of the value.
_NOT_TOLD = frozenset(("$schema", "$id", "$comment", "description", "additionalProperties"))


class _Unsayable(Exception):
    """A schema has no closed form."""


def tool_schema(schema: JSON) -> dict[str, JSON]:
    """Return the schema of a tool's arguments as an object's, without alternatives at its top.

    The properties of the alternatives become the object's own; of what they require only that which
    all of them do. So everything that fitted before still fits.
    """
    if not isinstance(schema, dict) or not schema:
        return NO_ARGUMENTS
    whole = {key: value for key, value in schema.items() if key not in _ALTERNATIVES}
    if whole.get("type") != "object":
        whole = {**whole, "type": "object"}
    properties = dict(as_object(schema.get("properties")))
    required = list(as_list(schema.get("required")))
    for key in _ALTERNATIVES:
        branches = [as_object(branch) for branch in as_list(schema.get(key))]
        needs = [as_list(branch.get("required")) for branch in branches]
        for branch in branches:
            properties = {**as_object(branch.get("properties")), **properties}
        for name in [name for need in needs for name in need]:
            is_needed = key == "allOf" or all(name in need for need in needs)
            if is_needed and name not in required:
                required.append(name)
    if properties:
        whole["properties"] = properties
    if required:
        whole["required"] = required
    return whole


def closed_schema(schema: JSON) -> dict[str, JSON] | None:
    """Return a schema in the form that can be enforced; None if it has none: it is open (any
    value, any key), is nested without end, or refers to another document."""
    if not isinstance(schema, dict):
        return None
    try:
        if _is_recursive(schema):
            return None
        return _close(schema)
    except (_Unsayable, RecursionError):
        return None


def _close(schema: JSON) -> dict[str, JSON]:
    if not isinstance(schema, dict):
        raise _Unsayable
    closed: dict[str, JSON] = {key: schema[key] for key in _AS_IT_IS if key in schema}
    if (ref := as_text(schema.get("$ref"))) is not None:
        closed["$ref"] = ref
    told = {
        key: value
        for key, value in schema.items()
        if key not in closed and key not in _NOT_TOLD and not _is_place(key)
    }
    for key in _DEFINITIONS:
        if key in schema:
            closed[key] = {name: _close(each) for name, each in as_object(schema[key]).items()}
    for key in _ALTERNATIVES:
        if key in schema:
            # There is no "exactly one"; where alternatives differ it is the same as "any".
            closed["allOf" if key == "allOf" else "anyOf"] = list(map(_close, as_list(schema[key])))
    _close_inside(schema, closed, told)
    if not closed.keys() & {"type", "enum", "const", "$ref", "anyOf", "allOf"}:
        raise _Unsayable  # any value at all
    description = as_text(schema.get("description"))
    notes = [description] if description is not None else []
    if told:
        notes.append(encode(cast(JSON, told)).decode("ascii"))
    if notes:
        closed["description"] = "\n\n".join(notes)
    return closed


def _close_inside(
    schema: Mapping[str, JSON], closed: dict[str, JSON], told: dict[str, JSON]
) -> None:
    """Close what an object or a list holds; what can be kept of `told` goes back to `closed`."""
    if _has_type(schema, "object"):
        properties = as_object(schema.get("properties"))
        more = schema.get("additionalProperties")
        if isinstance(more, dict) or (more is not False and not properties):
            raise _Unsayable  # a map: closed, it could only be empty
        closed["properties"] = {name: _close(each) for name, each in properties.items()}
        closed["additionalProperties"] = False
    if _has_type(schema, "array"):
        if "items" not in schema:
            raise _Unsayable
        closed["items"] = _close(schema["items"])
    if as_text(told.get("format")) in _STRING_FORMATS:
        closed["format"] = told.pop("format")
    if told.get("minItems") in (0, 1):
        closed["minItems"] = told.pop("minItems")


def _is_place(key: str) -> bool:
    """Say whether a key holds other schemas, which are closed by themselves."""
    return key in _ALTERNATIVES or key in _DEFINITIONS or key in ("properties", "items", "$ref")


def _has_type(schema: Mapping[str, JSON], name: str) -> bool:
    kind = schema.get("type")
    return kind == name or name in as_list(kind)


def _is_recursive(schema: dict[str, JSON]) -> bool:
    """Say whether a definition leads back to itself."""
    definitions = {
        f"#/{key}/{name}": each
        for key in _DEFINITIONS
        for name, each in as_object(schema.get(key)).items()
    }
    leads_to = {place: _list_refs(each) for place, each in definitions.items()}
    if any(ref not in definitions for ref in _list_refs(schema)):
        raise _Unsayable
    for place in definitions:
        reached, ahead = set[str](), list(leads_to[place])
        while ahead:
            ref = ahead.pop()
            if ref == place:
                return True
            if ref not in reached:
                reached.add(ref)
                ahead += leads_to[ref]
    return False


def _list_refs(schema: JSON) -> list[str]:
    if isinstance(schema, list):
        return [ref for each in schema for ref in _list_refs(each)]
    if not isinstance(schema, dict):
        return []
    own = as_text(schema.get("$ref"))
    inner = [ref for each in schema.values() for ref in _list_refs(each)]
    return inner if own is None else [own, *inner]
