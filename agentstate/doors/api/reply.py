"""How the management API answers: JSON, and one error shape for every failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, get_args
from urllib.parse import unquote_plus

from agentstate.doors.api.shapes import as_json
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.control import TAGS_SOUGHT_MAX
from agentstate.ground.errors import AgentStateError, BadRequest, shorten
from agentstate.ground.records import Query, SessionStatus
from agentstate.steps.about import check_tag
from agentstate.wire.endpoint import Field
from agentstate.wire.message import Pair, Request, Response

LIMIT_MAX = 1000
# What `read_page` reads of every listing.
PAGE = (
    Field("limit", f"rows of a page, at most {LIMIT_MAX}", "integer"),
    Field("after", "the x-next-cursor of the page before"),
)
# What `read_tags` reads.
OF_TAGS = Field("tag", "sessions with all of these tags: name=value,name2=value2, or name alone")


class FaultShown(TypedDict):
    """What was wrong, and what helps."""

    code: str
    message: str
    hint: str | None


class ErrorShown(TypedDict):
    """The one error shape."""

    error: FaultShown


def json_response(value: JSON, status: int = 200, headers: tuple[Pair, ...] = ()) -> Response:
    """Answer with a JSON value, numbers as they were sent. Lone surrogates go out escaped, so the
    body is always UTF-8."""
    return Response(
        status,
        [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *headers],
        encode(value),
    )


def error_reply(error: AgentStateError) -> Response:
    """Answer with the one error shape: `{"error":{"code","message","hint"}}`."""
    allow = getattr(error, "allowed", ())
    shown: ErrorShown = {
        "error": {"code": error.code, "message": error.message, "hint": error.hint}
    }
    return json_response(
        as_json(shown),
        error.status,
        ((b"allow", ", ".join(allow).encode("ascii")),) if allow else (),
    )


def read_params(request: Request, known: frozenset[str]) -> dict[str, str]:
    """Read the query string; a name that is not known is refused, since it would do nothing.

    Raises:
        BadRequest: an unknown or repeated name.
    """
    params: dict[str, str] = {}
    for item in request.query.split("&") if request.query else ():
        raw_name, _, raw_value = item.partition("=")
        name, value = _unquote(raw_name), _unquote(raw_value)
        if name not in known:
            raise BadRequest(
                f"The query names {shorten(name)!r}; known are {', '.join(sorted(known))}.",
                param=shorten(name),
            )
        if name in params:
            raise BadRequest(f"The query names {name!r} twice.", param=name)
        params[name] = value
    return params


def check_is_json(request: Request, what: str) -> None:
    """Refuse a request to change something that is not sent as JSON, which no page of another site
    can do unasked; `what` begins the message.

    Raises:
        BadRequest: the content-type is another.
    """
    value = request.headers.text(b"content-type") or ""
    if value.partition(";")[0].strip().lower() != "application/json":
        raise BadRequest(
            f"{what} must be sent as content-type: application/json, which no page of another "
            f"site can do unasked; found {shorten(value)!r}.",
            param="content-type",
        )


def read_page(params: dict[str, str], *, limit: int = 100) -> Query:
    """Return the page a listing was asked for: `limit` (1 to 1000) and `after` (a cursor)."""
    text = params.get("limit")
    if text is not None:
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= LIMIT_MAX):
            raise BadRequest(
                f"limit must be an integer from 1 to {LIMIT_MAX}; found {shorten(text)!r}.",
                param="limit",
            )
        limit = int(text)
    return Query(
        status=read_one_of(params, "status", get_args(SessionStatus)),
        search=params.get("search"),
        after=params.get("after"),
        limit=limit,
    )


def read_one_of(params: dict[str, str], name: str, choices: tuple[str, ...]) -> str | None:
    """Return a parameter that is one of `choices`; None = it was not sent.

    Raises:
        BadRequest: it is none of them.
    """
    value = params.get(name)
    if value is not None and value not in choices:
        raise BadRequest(
            f"{name} must be one of {', '.join(choices)}; found {shorten(value)!r}.", param=name
        )
    return value


def read_tags(params: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """Read `tag=name=value,name2`; without a value the tag may have any.

    Raises:
        BadRequest: one of them can be no tag, or they are too many.
    """
    found: list[tuple[str, str | None]] = []
    for item in params["tag"].split(",") if params.get("tag") else ():
        name, separator, value = item.partition("=")
        name, value = check_tag(name, value, "tag")
        found.append((name, value if separator else None))
    if len(found) > TAGS_SOUGHT_MAX:
        raise BadRequest(
            f"tag names {len(found)} tags; at most {TAGS_SOUGHT_MAX} are looked for.", param="tag"
        )
    return tuple(found)


def next_headers(cursor: str | None) -> tuple[Pair, ...]:
    """Return the header that names the next page; none on the last."""
    return () if cursor is None else ((b"x-next-cursor", cursor.encode("ascii")),)


def _unquote(text: str) -> str:
    return unquote_plus(text, errors="replace")
