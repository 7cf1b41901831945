"""Which paths the gate stands on, and what becomes of the others. Pure.

A model's calls reach an agent on the paths of the dialects, and where a response is fetched by its
id (`steps/fetched.py`). README names the other paths that may return calls ("Not held").

The invariants: in a session no path goes by that an upstream could take for one the gate stands on,
however it is spelled. Where `gate.strict` is on, only what is known to return no calls goes by.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from agentstate.dialects import dialect_for_path
from agentstate.ground.errors import NotFound, UngatedPath, shorten
from agentstate.steps.fetched import fetched_id

# What strict lets by besides the gate's own paths: lists, counts, embeddings, and what makes media
# or verdicts. Of files not the content, which may be the answers of a batch.
_CALLS_NOTHING = re.compile(
    "|".join(
        (
            r"GET /v1(?:alpha|beta)?/models(?:/.+)?",
            r"POST /v1/messages/count_tokens",
            r"POST /v1/responses/input_tokens",
            r"POST /v1(?:alpha|beta)?/models/[^/:]+"
            r":(?:countTokens|embedContent|batchEmbedContents)",
            r"(?:GET|POST) (?:/upload)?/v1(?:beta)?/files",
            r"(?:GET|DELETE) /v1(?:beta)?/files/[^/:]+",
            r"POST /v1/audio/(?:speech|transcriptions|translations)",
            r"POST /v1/images/(?:generations|edits|variations)",
            r"POST /v1/moderations",
        )
    )
)


def below(path: str) -> str:
    """Return the path as dialects know it: below /v1, or whole where it has another version."""
    return path.removeprefix("/v1") if path == "/v1" or path.startswith("/v1/") else path


def is_gated(method: str, path: str, query: str) -> bool:
    """Say whether the gate sees what comes back from a path (that begins with its version)."""
    if fetched_id(method, path) is not None:
        return True
    return method == "POST" and dialect_for_path(below(path), query) is not None


def check_strict(method: str, path: str, query: str) -> None:
    """Refuse what may return a model's calls past the gate.

    Raises:
        UngatedPath: it is not known to return none.
    """
    if is_gated(method, path, query):
        return
    # As it is written and as an upstream may read it: neither may be more than it seems.
    if all(_CALLS_NOTHING.fullmatch(f"{method} {each}") for each in (path, plain_path(path))):
        return
    raise UngatedPath(
        f"gate.strict is on, and tool calls on {method} {shorten(path)} could not be held for "
        "approval. Use chat completions, Responses or Messages, or turn gate.strict off."
    )


def maybe_way_round(method: str, path: str, query: str) -> NotFound | None:
    """Return what a session must be told of a path that may lead round the record and the gate;
    None if it does not."""
    if is_gated(method, path, query):
        return None
    plain = plain_path(path)
    if _has_steps(path):
        return NotFound(f"{shorten(path)} holds `.` or `..`; ask for {shorten(plain)} instead.")
    for right in (plain, plain.lower()):
        if right != path and is_gated(method, right, "alt=sse"):
            return NotFound(
                f"Calls of a session are recorded and gated on {shorten(right)}; found "
                f"{shorten(path)}. Ask there: a base URL has no slash at its end."
            )
    return None


def plain_path(path: str) -> str:
    """Return a path as an upstream may read it: no escapes, parameters, empty segments or steps."""
    segments: list[str] = []
    for segment in _segments(path):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    return "/" + "/".join(segments)


def _has_steps(path: str) -> bool:
    return any(segment in (".", "..") for segment in _segments(path))


def _segments(path: str) -> list[str]:
    text = unquote(path).replace("\\", "/")
    return [segment.partition(";")[0] for segment in text.split("/")]
