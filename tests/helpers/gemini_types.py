"""Checks what we make against the types of the `google-genai` package: no field it does not know.

There is no published JSON schema for this API; the package's types are made from the same source.
"""

from __future__ import annotations

import json
from typing import Any

import pytest


def check(name: str, raw: bytes | str) -> Any:
    """Return JSON read as the package's type called `name`; raise `pydantic.ValidationError` if it
    does not fit. Skips the test where the package is not installed."""
    types = pytest.importorskip("google.genai.types")
    return getattr(types, name).model_validate_json(raw)


def check_request(body: dict[str, Any]) -> None:
    """Check each part of a request by its own type; the package has none for the whole."""
    known = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    assert body.keys() <= known
    for content in body["contents"]:
        check("Content", json.dumps(content))
    for tool in body.get("tools", []):
        check("Tool", json.dumps(tool))
    for key, name in (
        ("systemInstruction", "Content"),
        ("toolConfig", "ToolConfig"),
        ("generationConfig", "GenerationConfig"),
    ):
        if key in body:
            check(name, json.dumps(body[key]))
