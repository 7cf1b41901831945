"""What the client gets: response heads, the other form of an answer, errors in its dialect. Pure.

Upstream's own headers keep their names and order, minus what is between two peers; ours follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentstate.dialects.base import Dialect
from agentstate.dialects.lenient import Unreadable, read_exact
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import AgentStateError, UpstreamError, shorten
from agentstate.ground.records import RecordedAnswer
from agentstate.wire.message import HOP_BY_HOP, Pair, Response
from agentstate.wire.sse import SSEDecoder

JSON_TYPE: Pair = (b"content-type", b"application/json")
EVENTS_TYPE: Pair = (b"content-type", b"text/event-stream; charset=utf-8")

# An upstream's CORS headers would let any page in a browser read what is meant for the agent.
_NOT_PASSED = HOP_BY_HOP | frozenset(
    (b"set-cookie", b"content-length", b"access-control-allow-origin",
     b"access-control-allow-credentials", b"access-control-allow-methods",
     b"access-control-allow-headers", b"access-control-expose-headers",
     b"access-control-max-age")
)  # fmt: skip
_OF_THEN = frozenset(
    (b"date", b"age", b"alt-svc", b"strict-transport-security", b"retry-after", b"nel",
     b"report-to", b"server-timing")
)  # fmt: skip
LIST_CHARS_MAX = 1_000  # of a list in a header: the whole is on the attempt
HEADER_CHARS_MAX = 200  # of a model's name or a path; http.client stops at 64 KiB a line

# A stream must not be held back or squeezed by what stands between us and the client.
_UNBUFFERED: tuple[Pair, ...] = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_UNBUFFERED_NAMES = frozenset(name for name, _ in _UNBUFFERED)


def passed_headers(headers: Iterable[Pair]) -> tuple[Pair, ...]:
    """Return the upstream headers that go on to the client and into the record."""
    return tuple(
        pair
        for pair in headers
        if (name := pair[0].lower()) not in _NOT_PASSED and not name.startswith(b"x-agentstate-")
    )


def replayed_headers(headers: Iterable[Pair]) -> tuple[Pair, ...]:
    """Return the recorded headers that still are true: limits, clocks and offers were of then."""
    return tuple(
        pair
        for pair in headers
        if (name := pair[0].lower()) not in _OF_THEN and b"-ratelimit-" not in name
    )


def stream_headers(headers: Iterable[Pair]) -> list[Pair]:
    """Return the headers of a stream: as passed, and "do not buffer"."""
    kept = [pair for pair in headers if pair[0].lower() not in _UNBUFFERED_NAMES]
    kept.extend(_UNBUFFERED)
    return kept


def marks(
    *,
    session: str,
    step_number: int | None = None,
    hit: str | None = None,
    provider: str = "",
    model: str = "",
    attempts: int | None = None,
    fallback_index: int = 0,
    dropped: Sequence[str] = (),
    tried: Sequence[str] = (),
    cost_microusd: int | None = None,
    overhead_s: float | None = None,
    is_unsaved: bool = False,
    miss: str | None = None,
    approval_id: str | None = None,
) -> list[Pair]:
    """Return our own headers (DESIGN section 3.3). What is not known is absent."""
    found: list[Pair] = [
        (b"x-agentstate-cache-hit", b"true" if hit else b"false"),
    ]
    if session:  # none is named where nothing is recorded
        found.append((b"x-agentstate-session", _header_text(session)))
    if hit:
        found.append((b"x-agentstate-replay", hit.encode()))
    if step_number is not None:
        found.append((b"x-agentstate-step", b"%d" % step_number))
    if provider:
        found.append((b"x-agentstate-provider", _header_text(provider)))
    if model:
        found.append((b"x-agentstate-model", _header_text(shorten(model, HEADER_CHARS_MAX))))
    if attempts is not None:
        found.append((b"x-agentstate-attempts", b"%d" % attempts))
        if attempts:
            found.append((b"x-agentstate-fallback-index", b"%d" % fallback_index))
    if dropped:
        found.append((b"x-agentstate-dropped", _header_list(dropped)))
    if len(tried) > 1:
        found.append((b"x-agentstate-tried", _header_list(tried)))
    if cost_microusd is not None:
        found.append((b"x-agentstate-cost-usd", _usd(cost_microusd)))
    if overhead_s is not None:
        found.append((b"x-agentstate-overhead-ms", b"%.3f" % (overhead_s * 1000)))
    if miss is not None:
        found.append((b"x-agentstate-miss", _header_text(miss)))
    if approval_id is not None:
        found.append((b"x-agentstate-approval-id", _header_text(approval_id)))
    if is_unsaved:
        found.append((b"x-agentstate-unsaved", b"true"))
    return found


def answer_response(
    dialect: Dialect,
    answer: RecordedAnswer,
    own: list[Pair],
    *,
    wants_stream: bool,
    wants_usage: bool,
) -> Response:
    """Render a recorded answer in the form the caller asked for.

    In the form it was recorded in: byte for byte. In the other form: made from the record.
    """
    if not wants_stream and answer.form == "body":
        return Response(answer.status, [*answer.headers, *own], answer.content)
    if wants_stream and answer.form == "events":
        content = answer.content if answer.is_sealed else answer.content + dialect.done_frame()
        return Response(answer.status, stream_headers((*answer.headers, *own)), content)
    others = [pair for pair in answer.headers if pair[0].lower() != b"content-type"]
    if wants_stream:
        events = b"".join(dialect.events_from_body(answer.content, wants_usage))
        return Response(answer.status, stream_headers((EVENTS_TYPE, *others, *own)), events)
    body = dialect.body_from_events(SSEDecoder().feed(answer.content))
    return Response(answer.status, [JSON_TYPE, *others, *own], body)


def with_tried(
    refusal: RecordedAnswer, tried: Sequence[str], code: str | None = None
) -> RecordedAnswer:
    """Return an upstream's error response whose message says what else was tried.

    Where there is one target alone, and where the body is no error object, it stays as it came.
    `code`: what its code is, where it has a place for one and says none.
    """
    if len(tried) < 2:
        return refusal
    try:
        body = read_exact(refusal.content)
    except Unreadable:
        return refusal
    error = body.get("error") if isinstance(body, dict) else None
    if not (isinstance(body, dict) and isinstance(error, dict)):
        return refusal
    message = error.get("message")
    if not isinstance(message, str):
        return refusal
    fields: dict[str, JSON] = {**error, "message": message + _tried_words(tried)}
    if code is not None and fields.get("code", "") is None:
        fields["code"] = code
    told: JSON = {**body, "error": fields}
    others = tuple(pair for pair in refusal.headers if pair[0].lower() != b"content-encoding")
    return RecordedAnswer(refusal.status, others, refusal.form, encode(told))


def tell_tried(error: AgentStateError, tried: Sequence[str]) -> None:
    """Put into an error of ours what was tried."""
    if len(tried) > 1:
        error.message += _tried_words(tried)


def refusal_response(refusal: RecordedAnswer, own: list[Pair]) -> Response:
    """Pass on an upstream's own error response."""
    return Response(refusal.status, [*refusal.headers, *own], refusal.content)


def error_response(dialect: Dialect, error: AgentStateError, own: Iterable[Pair] = ()) -> Response:
    """Render an error of ours in the caller's dialect."""
    headers = [JSON_TYPE, *own]
    if not error.retry_helps:
        headers.append((b"x-should-retry", b"false"))
    return Response(error_status(error), headers, dialect.error_body(error))


def error_status(error: AgentStateError) -> int:
    """Return the HTTP status for an error: the upstream's own where it refused."""
    if isinstance(error, UpstreamError) and (error.upstream_status or 0) >= 400:
        assert error.upstream_status is not None
        return error.upstream_status
    return error.status


def _tried_words(tried: Sequence[str]) -> str:
    return f" [AgentState tried: {'; '.join(tried)}]"


def _header_list(texts: Sequence[str]) -> bytes:
    text = ", ".join(texts)
    # Not `shorten`: its mark is no ASCII, and all of the list would be percent-encoded for it.
    return _header_text(text if len(text) <= LIST_CHARS_MAX else text[: LIST_CHARS_MAX - 3] + "...")


def _usd(microusd: int) -> bytes:
    return b"%d.%06d" % divmod(microusd, 1_000_000)


def _header_text(text: str) -> bytes:
    # Visible ASCII goes as it is; the rest percent-encoded, since a header is no place for it.
    if text.isascii() and text.isprintable():
        return text.encode("ascii")
    return b"".join(
        bytes((byte,)) if 32 < byte < 127 and byte != 37 else b"%%%02X" % byte
        for byte in text.encode("utf-8", "replace")
    )
