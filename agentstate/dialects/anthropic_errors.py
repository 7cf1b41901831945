"""Errors in Anthropic's form: `{"type": "error", "error": {"type", "message", "details"}}`.

Ours carry their stable code where Anthropic puts its own, in `details.error_code`; the SDKs show
it as `error_code`. Theirs are read leniently: what stands in front of a model often answers in
OpenAI's form, whatever the path.
Source: platform.claude.com/docs/en/api/errors and the types of the `anthropic` package 2.14
(ErrorResponse), November 2026.
"""

from __future__ import annotations

from dataclasses import replace

from agentstate.dialects import openai_errors
from agentstate.dialects.base import ErrorFacts
from agentstate.dialects.lenient import Unreadable, as_object, as_text, read
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import AgentStateError, UpstreamError
from agentstate.wire import sse

# The type of an error of ours by its status. The rest is as the page above has it for the rest: 4xx
# the request, 5xx the server. Its `request_too_large` (413) is left out: the SDK's types lack it.
_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

# The same where an error of theirs is written for a client of this API: as an upstream of it says
# it. A 503 of others is what its 529 is.
_THEIR_KINDS = {413: "request_too_large", 503: "overloaded_error"}

# What an error of theirs means where it came without a status of its own, inside a 200.
_STATUSES = {
    "billing_error": 402,
    "conflict_error": 409,
    "request_too_large": 413,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

# How errors that have no code say what others have one for. The first two are of the context, the
# others come with a 400, where a retry cannot help.
_CODES = {
    "prompt is too long": "context_length_exceeded",
    "exceed context limit": "context_length_exceeded",
    "credit balance is too low": "insufficient_quota",
    "reached your specified API usage limits": "insufficient_quota",
}


def error_body(error: AgentStateError) -> bytes:
    """Render an error of ours as a JSON body."""
    status = error.status
    if isinstance(error, UpstreamError) and (error.upstream_status or 0) >= 400:
        status = error.upstream_status or status
    message = error.message if error.hint is None else f"{error.message} {error.hint}"
    return _render(status, message, error.code)


def error_event(error: AgentStateError) -> bytes:
    """Render an error of ours as an event. No `message_stop` may follow: it would pass for one."""
    return sse.encode(error_body(error), b"error")


def mend_error_body(status: int, body: bytes) -> bytes | None:
    """Return None if `body` is a JSON object, else an error body that tells what came instead."""
    mended = openai_errors.mend_error_body(status, body)
    if mended is None:
        return None
    facts = openai_errors.read_error(mended)
    assert facts is not None, "an error just rendered can be read"
    return _render(status, facts.message, facts.code)


def write_error(facts: ErrorFacts, status: int) -> bytes:
    """Write an upstream's error, of whatever form, as Anthropic would have sent it.

    It is what the status says, to this API; another vendor's word would be unknown here. Of what
    was said all is kept: the message, and a code that says more.
    """
    kind = _THEIR_KINDS.get(status) or _kind_of(status)
    return _write(kind, facts.message or f"The upstream answered HTTP {status}.", facts.code)


def read_error(body: bytes) -> ErrorFacts | None:
    """Read an upstream's error; None if it is no JSON, or a message, or another event."""
    try:
        return _facts(read(body))
    except Unreadable:
        return None


def is_error(value: dict[str, JSON]) -> bool:
    """Tell whether what should be a message, or an event of one, is an error instead."""
    return value.get("type") == "error" or bool(value.get("error"))


def _facts(value: JSON) -> ErrorFacts | None:
    fields = as_object(value)
    if "type" in fields and not is_error(fields):
        return None  # a message that lacks something is no error that says something
    facts = openai_errors.facts_of(value)
    if facts is None:
        return None
    code = as_text(as_object(as_object(fields.get("error")).get("details")).get("error_code"))
    code = code or facts.code
    if facts.kind == "billing_error":
        code = code or "insufficient_quota"
    for words, meaning in _CODES.items():
        if words in facts.message:
            code = code or meaning
    return replace(facts, code=code, status=facts.status or _STATUSES.get(facts.kind or ""))


def _render(status: int, message: str, code: str | None) -> bytes:
    return _write(_kind_of(status), message, code)


def _kind_of(status: int) -> str:
    return _KINDS.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def _write(kind: str, message: str, code: str | None) -> bytes:
    error: dict[str, JSON] = {"type": kind, "message": message}
    if code is not None:
        error["details"] = {"error_code": code}
    return encode({"type": "error", "error": error})
