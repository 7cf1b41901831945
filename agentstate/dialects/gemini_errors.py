"""Errors in Google's form: `{"error": {"code", "message", "status", "details"}}`.

`code` is the HTTP status, `status` Google's word for the class. Our own stable code stands as the
`reason` of an ErrorInfo, where Google puts its own.
Source: google.aip.dev/193, and ai.google.dev/gemini-api/docs/troubleshooting, November 2026.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agentstate.dialects import openai_errors
from agentstate.dialects.base import ErrorFacts
from agentstate.dialects.lenient import Unreadable, as_list, as_object, as_text, read
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import AgentStateError, UpstreamError
from agentstate.wire import sse

# google.rpc.Code by HTTP status; the rest is "yours" or "ours".
_KINDS = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",  # Anthropic's word for "overloaded"
}
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_DOMAIN = "agentstate"
# Of a RetryInfo: seconds, as protobuf writes a duration in JSON.
_DELAY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")


def error_body(error: AgentStateError) -> bytes:
    """Render an error of ours as a JSON body."""
    status = error.status
    if isinstance(error, UpstreamError) and (error.upstream_status or 0) >= 400:
        status = error.upstream_status or status
    message = error.message if error.hint is None else f"{error.message} {error.hint}"
    return _render(status, message, error.code)


def error_event(error: AgentStateError) -> bytes:
    """Render an error of ours as an event: as Google does, data without a name."""
    return sse.encode(error_body(error))


def write_error(facts: ErrorFacts, status: int) -> bytes:
    """Render an upstream's error that came in another form."""
    message = facts.message or f"The upstream answered HTTP {status} and said nothing of it."
    return _render(status, message, facts.code)


def mend_error_body(status: int, body: bytes) -> bytes | None:
    """Return None if `body` is a JSON object, else an error body that tells what came instead."""
    mended = openai_errors.mend_error_body(status, body)
    if mended is None:
        return None
    facts = openai_errors.read_error(mended)
    assert facts is not None, "an error just rendered can be read"
    return _render(status, facts.message, facts.code)


def read_error(body: bytes) -> ErrorFacts | None:
    """Read an upstream's error; None if it is no JSON or an answer."""
    try:
        value = read(body)
    except Unreadable:
        return None
    facts = openai_errors.facts_of(value)
    if facts is None:
        return None
    details = [
        as_object(detail)
        for detail in as_list(as_object(as_object(value).get("error")).get("details"))
    ]
    reasons = (as_text(detail.get("reason")) for detail in details)
    delays = (_DELAY.fullmatch(as_text(detail.get("retryDelay")) or "") for detail in details)
    return replace(
        facts,
        code=facts.code or next((each for each in reasons if each), None),
        retry_after_s=next((float(each[1]) for each in delays if each), None),
    )


def _render(status: int, message: str, code: str | None) -> bytes:
    fallback = "INVALID_ARGUMENT" if 400 <= status < 500 else "INTERNAL"
    error: dict[str, JSON] = {
        "code": status,
        "message": message,
        "status": _KINDS.get(status, fallback),
    }
    if code is not None:
        error["details"] = [{"@type": _INFO, "reason": code, "domain": _DOMAIN}]
    return encode({"error": error})
