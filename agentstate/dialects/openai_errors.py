"""Errors in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`.

One form for chat, responses, completions and embeddings; their dialects build on this file. Ours
are rendered to the letter (Source: ErrorResponse in OpenAI's OpenAPI document, August 2026). Theirs
are read leniently: half of what is called compatible has a shape of its own.
"""

from __future__ import annotations

from agentstate.dialects.base import ErrorFacts
from agentstate.dialects.lenient import Unreadable, as_integer, as_object, as_text, read
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import AgentStateError, BudgetReached, ClientError, shorten
from agentstate.wire import sse

# OpenAI's two words for "you" and "we"; what exactly went wrong is in `code`.
_THEIR_FAULT = "invalid_request_error"
_OUR_FAULT = "server_error"

# What an error means where it names no status of its own, by its type or code.
# Source: platform.openai.com/docs/guides/error-codes, and the errors inside Responses streams.
_STATUSES = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "insufficient_quota": 429,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
}

# The words for an error of another vendor, (type, code) by its status; the rest is "you" or "we".
# Source: the page above, November 2026.
_WORDS: dict[int, tuple[str, str | None]] = {
    401: (_THEIR_FAULT, "invalid_api_key"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", None),
    529: ("service_unavailable_error", None),  # Anthropic's status for an overload
}

_FAULT_CHARS_MAX = 400  # of their words in a fault: some append the whole request

# How servers that send no code say that the request does not fit: OpenAI and vLLM, llama.cpp.
_TOO_LONG = ("maximum context length", "exceeds the context window", "available context size")


def error_body(error: AgentStateError) -> bytes:
    """Render an error of ours as a JSON body."""
    message = error.message if error.hint is None else f"{error.message} {error.hint}"
    kind = _THEIR_FAULT if isinstance(error, ClientError) else _OUR_FAULT
    if isinstance(error, BudgetReached):
        kind = "insufficient_quota"  # its word for a budget that is used up; no client tries again
    return _render(message, kind, error.param, error.code)


def error_event(error: AgentStateError) -> bytes:
    """Render an error of ours as an event. No `[DONE]` may follow: it would pass for an answer."""
    return sse.encode(error_body(error))


def write_error(facts: ErrorFacts, status: int) -> bytes:
    """Write an upstream's error, whatever form it came in, with OpenAI's words for this status.

    A type of its own is kept where it is one of OpenAI's for the same status, a code always.
    """
    kind, code = _WORDS.get(status, (_kind_of(status), None))
    if facts.kind is not None and _STATUSES.get(facts.kind) == status:
        kind = facts.kind
    message = facts.message or f"The upstream answered HTTP {status} and said nothing more."
    return _render(message, kind, None, facts.code or code)


def mend_error_body(status: int, body: bytes) -> bytes | None:
    """Return None if `body` is a JSON object, else an error body that tells what came instead."""
    kind = _kind_of(status)
    what = "text that is no JSON"
    try:
        value = read(body)
    except Unreadable:
        if not body.strip():
            what = "no body"
        elif body.lstrip().startswith(b"<"):
            what = "an HTML or XML page"
    else:
        if isinstance(value, dict):
            return None
        what = "JSON that is no error object"
        facts = facts_of(value)
        if facts is not None and facts.message:
            # Gemini's compatible endpoint wraps its error in a list; the words are worth keeping.
            return _render(facts.message, facts.kind or kind, None, facts.code)
    message = (
        f"The upstream answered HTTP {status} with {what}, where a JSON error was expected. This "
        "mostly comes from a gateway in front of the model; ask again, or check its base URL."
    )
    return _render(message, kind, None, "upstream_refused")


def read_error(body: bytes) -> ErrorFacts | None:
    """Read an upstream's error; None if it is no JSON or says nothing that looks like one."""
    try:
        return facts_of(read(body))
    except Unreadable:
        return None


def is_error(value: dict[str, JSON]) -> bool:
    """Tell whether what should be an answer, or a piece of one, is an error instead."""
    return bool(value.get("error")) or value.get("object") == "error"


def tell_fault(value: JSON) -> str:
    """Return one line that says what error came instead of an answer."""
    facts = facts_of(value)
    if facts is None:
        return "an error that says nothing"
    words = [facts.kind, facts.code, str(facts.status) if facts.status else None]
    label = ", ".join(word for word in words if word)
    words_of_theirs = shorten(facts.message, _FAULT_CHARS_MAX) or "it says nothing more"
    return f"error ({label}): {words_of_theirs}" if label else f"error: {words_of_theirs}"


def facts_of(value: JSON) -> ErrorFacts | None:
    """Return what an error that was read says of itself; None if it is none."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    body = as_object(value)
    error = body.get("error") or body
    if isinstance(error, str):
        return ErrorFacts(error)
    fields = as_object(error)
    message = as_text(fields.get("message")) or as_text(fields.get("detail")) or ""
    # Google's word for the class stands in `status`.
    kind = as_text(fields.get("type")) or as_text(fields.get("status"))
    code = as_text(fields.get("code"))
    if not (message or kind or code or body.get("error")):
        return None
    status = _read_status(fields)
    if code is not None and code.isdecimal():
        code = None  # a status, read above
    if code is None and any(words in message for words in _TOO_LONG):
        code = "context_length_exceeded"
    if status is None:
        status = _STATUSES.get(code or "") or _STATUSES.get(kind or "")
    return ErrorFacts(message, kind, code, status)


def _kind_of(status: int) -> str:
    return _THEIR_FAULT if 400 <= status < 500 else _OUR_FAULT


def _read_status(fields: dict[str, JSON]) -> int | None:
    for key in ("code", "status", "status_code"):
        value = fields.get(key)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        status = as_integer(value)
        if status is not None and 400 <= status < 600:
            return status
    return None


def _render(message: str, kind: str, param: str | None, code: str | None) -> bytes:
    return encode({"error": {"message": message, "type": kind, "param": param, "code": code}})
