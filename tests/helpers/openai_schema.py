"""Checks what we make against OpenAI's published schemas: strictly, and only what we make."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[1] / "schemas" / "openai"


def check(name: str, value: Any) -> None:
    """Raise `jsonschema.ValidationError` if `value` does not satisfy the schema called `name`."""
    _validator(name).validate(value)


@cache
def _validator(name: str) -> Draft202012Validator:
    text = (SCHEMAS / f"{name}.json").read_text(encoding="utf-8")
    schema = json.loads(text, object_hook=_renew)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _renew(schema: dict[str, Any]) -> dict[str, Any]:
    """Say in today's words what one schema says in those of an older draft: it contains itself."""
    if schema.pop("$recursiveAnchor", False):
        assert schema["title"] == "Compound Filter"
    if schema == {"$recursiveRef": "#"}:
        return {"$ref": "#/$defs/CompoundFilter"}
    return schema
