"""`GET /v1/models`: the upstream's list, and the names that were configured here. Pure.

Clients ask it to fill a menu or to see whether a server lives; so it always answers with a list.
Where the upstream gives none (no key, no network), what is configured is listed, and a header says
what is missing. The one invariant: an upstream's entry passes with all its fields, known or not.
Source: ListModelsResponse in OpenAI's OpenAPI document, August 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agentstate.dialects.lenient import Unreadable, as_object, read_exact
from agentstate.ground.canonical import JSON, encode
from agentstate.steps.reply import JSON_TYPE, passed_headers
from agentstate.wire.message import Exchange, Pair, Response

LIST_BYTES_MAX = 16 * 1024 * 1024  # the longest known, an aggregator's, is about 1 MB
LIST_TIMEOUT_S = 20.0  # a list is no thinking: who waits for a menu does not wait for minutes
# A list that is put together here is never "not modified", and has no ranges.
CONDITIONS = frozenset(
    (b"if-none-match", b"if-modified-since", b"if-match", b"if-unmodified-since", b"range",
     b"if-range")
)  # fmt: skip

_OWNER = "agentstate"  # of a name that only the configuration knows
# What a changed body makes untrue.
_OF_THE_BODY = frozenset(
    (b"etag", b"last-modified", b"content-md5", b"digest", b"content-digest", b"repr-digest")
)


def merged_list(exchange: Exchange, raw: bytes, names: Sequence[str]) -> Response | None:
    """Return an upstream's list with `names` added, or None if it sent no JSON.

    With nothing to add, or in another form than OpenAI's, it passes byte for byte.
    """
    try:
        value = read_exact(raw)
    except Unreadable:
        return None
    headers = list(passed_headers(exchange.headers))
    body = as_object(value)
    data = body.get("data")
    # Ollama without a model sends null.
    if "data" not in body or not (data is None or isinstance(data, list)):
        return Response(exchange.status, headers, raw)
    theirs = data or []
    listed = {each.get("id") for each in theirs if isinstance(each, dict)}
    ours = [_entry(name) for name in names if name not in listed]
    if not ours and data is not None:
        return Response(exchange.status, headers, raw)
    kept = [pair for pair in headers if pair[0].lower() not in _OF_THE_BODY]
    return Response(exchange.status, kept, encode(cast(JSON, {**body, "data": [*theirs, *ours]})))


def configured_list(names: Sequence[str], missing: str) -> Response:
    """Return the configured names alone; `missing` says in a header why."""
    data: list[JSON] = [_entry(name) for name in names]
    note: Pair = (b"x-agentstate-models-missing", missing.encode("ascii", "replace"))
    return Response(200, [JSON_TYPE, note], encode({"object": "list", "data": data}))


def _entry(name: str) -> JSON:
    # When a model was made is known to its provider only; 0 is no date, and the field is required.
    return {"id": name, "object": "model", "created": 0, "owned_by": _OWNER}
