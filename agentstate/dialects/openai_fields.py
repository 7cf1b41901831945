"""Request fields that OpenAI's dialects share: which count, and how the common ones are read.

Chat, completions and embeddings build on it. Checked is only what the proxy itself needs; the rest
is the upstream's to judge.
"""

from __future__ import annotations

from typing import cast

from agentstate.dialects.lenient import as_integer, name_type
from agentstate.ground.canonical import JSON, Number
from agentstate.ground.errors import BadRequest

# Fields that never change an answer, so do not count for the fingerprint (DESIGN section 5).
UNCOUNTED = frozenset(
    ("stream", "stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key",
     "service_tier", "store")
)  # fmt: skip


def read_object(body: JSON, example: str) -> dict[str, JSON]:
    """Return the body if it is an object, or raise `BadRequest` with what to send."""
    if isinstance(body, dict):
        return body
    raise BadRequest(f"The body must be a JSON object; found {name_type(body)}. Send {example}.")


def counted(body: dict[str, JSON], list_key: str = "") -> dict[str, JSON]:
    """Return the fields that count, without the list that grows."""
    return {key: value for key, value in body.items() if key not in UNCOUNTED and key != list_key}


def read_model(body: dict[str, JSON]) -> str:
    """Return the model's name, or raise `BadRequest`."""
    model = body.get("model")
    if isinstance(model, str) and model:
        return model
    raise BadRequest(
        f"`model` must be the name of a model; found {name_type(model)}. Send a string, such as "
        '"gpt-4o-mini".',
        param="model",
    )


def read_stream(body: dict[str, JSON]) -> bool:
    """Return whether a stream is asked for, or raise `BadRequest`."""
    stream = body.get("stream")
    if stream is None or isinstance(stream, bool):
        return bool(stream)
    raise BadRequest(
        f"`stream` must be true or false; found {name_type(stream)}. Leave it out for one JSON "
        "answer.",
        param="stream",
    )


def read_choices(n: JSON | Number) -> int:
    """Return how many choices are asked for. What is no such number the upstream will refuse."""
    if isinstance(n, Number) and float(n).is_integer():
        n = int(float(n))
    count = as_integer(cast(JSON, n))
    return count if count is not None and count > 0 else 1
