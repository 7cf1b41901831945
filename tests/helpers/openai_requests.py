"""Checks chat requests that we write against OpenAI's published schema."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tests.helpers.openai_schema import SCHEMAS


def check_chat_request(body: Any) -> None:
    """Raise `jsonschema.ValidationError` if `body` is no request for a chat completion."""
    _validator().validate(body)


@cache
def _validator() -> Draft202012Validator:
    text = (SCHEMAS / "CreateChatCompletionRequest.json").read_text(encoding="utf-8")
    schema = json.loads(text, object_hook=_mend)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _mend(schema: dict[str, Any]) -> dict[str, Any]:
    """Make numbers of the bounds of a seed: 63 bits in floating point, written as text."""
    bounds = {key: schema[key] for key in ("minimum", "maximum") if key in schema}
    return schema | {key: float(value) for key, value in bounds.items() if isinstance(value, str)}
