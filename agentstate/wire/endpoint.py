"""One method and path of ours, and how a request finds it. Pure.

A table of `Endpoint` rows is the whole routing: patterns have literal segments and `{names}`; a
name takes exactly one segment, percent-decoded, so that an id may hold a slash. The table is
visible where it is made (`doors/api/__init__.py`); nothing registers itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from agentstate.ground.access import Role
from agentstate.ground.errors import BadRequest, MethodNotAllowed, NotFound, shorten
from agentstate.wire.message import Request, Response, decode_segment

Params = dict[str, str]
EndpointHandler = Callable[[Request, Params], Awaitable[Response]]


Need = Role | Literal["anybody"]
FieldKind = Literal["string", "integer", "number", "boolean", "object"]


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of a query, or a key of a body, for the documentation."""

    name: str
    summary: str
    kind: FieldKind = "string"
    choices: tuple[str, ...] = ()  # () = any
    is_needed: bool = False
    takes_null: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row: `GET /api/sessions/{id}`, who answers it, and what the documentation says."""

    method: str
    pattern: str
    handler: EndpointHandler
    summary: str
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] | None = None  # the keys of the JSON object it takes; None = no body
    # "lines": JSON lines, a file; "events": server-sent events.
    answers: Literal["object", "array", "lines", "events"] = "object"
    shape: Any = None  # `TypedDict` of the object, or of a row of the array; None = it is not said
    media_type: str = "application/jsonl"  # of "lines"
    or_object: bool = False  # of "lines": a parameter has it answer with a JSON object instead
    takes: tuple[str, ...] = ()  # media types of a body that is a file; () = it takes none
    errors: tuple[int, ...] = ()  # statuses besides 200, each in the one error shape
    passes_errors: bool = False  # any status of an upstream may come, too
    faults: tuple[tuple[int, Any], ...] = ()  # statuses with a shape of their own
    needs: Need | None = None  # who may ask; None = for GET a reader, for a change an admin
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Split the pattern once."""
        object.__setattr__(self, "segments", tuple(self.pattern.split("/")))

    @property
    def needed(self) -> Need:
        """Who may ask."""
        return self.needs or ("read" if self.method == "GET" else "admin")


class Router:
    """Finds the endpoint of a request in a table."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)

    def find(self, method: str, path: str) -> tuple[Endpoint, Params]:
        """Return the row and its named segments. HEAD finds GET.

        Raises:
            NotFound: no row has this path.
            MethodNotAllowed: one has, with another method; the message lists which.
            BadRequest: a segment's escapes are not UTF-8.
        """
        segments = path.rstrip("/").split("/")
        wanted = "GET" if method == "HEAD" else method
        allowed: list[str] = []
        for endpoint in self.endpoints:
            params = _match(endpoint.segments, segments)
            if params is None:
                continue
            if endpoint.method == wanted:
                return endpoint, params
            allowed.append(endpoint.method)
        if allowed:
            raise MethodNotAllowed(
                f"{shorten(path)} takes {', '.join(sorted(allowed))}; found {method}.",
                allowed=tuple(sorted(allowed)),
            )
        raise NotFound(f"There is no endpoint {method} {shorten(path)}.")


def _match(pattern: tuple[str, ...], segments: list[str]) -> Params | None:
    if len(pattern) != len(segments):
        return None
    params: Params = {}
    for want, have in zip(pattern, segments, strict=True):
        if want.startswith("{"):
            if not have:
                return None
            try:
                params[want[1:-1]] = decode_segment(have)
            except UnicodeDecodeError as error:
                raise BadRequest(f"The path segment {shorten(have)!r} is not UTF-8.") from error
        elif want != have:
            return None
    return params
