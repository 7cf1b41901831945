"""What a failed attempt means: may the target be tried again, may the next one, and how soon. Pure.

An upstream says it in many ways: a status, `x-should-retry`, a code in the body, three forms of
`Retry-After`, or by not answering. All of them are read here into a `Failure`, and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Literal

from agentstate.dialects.base import ErrorFacts
from agentstate.ground.errors import (
    AnswerTooLong,
    ConnectFailed,
    NotAnAnswer,
    UpstreamCut,
    UpstreamError,
    UpstreamProtocol,
    UpstreamTimeout,
)
from agentstate.wire.message import Headers

Kind = Literal[
    "connect",  # nothing was sent
    "timeout",  # nothing, or nothing more, came in time
    "cut",  # what came stopped in the middle, or was no answer
    "rate_limit",
    "quota",  # nothing is left to spend at this target
    "context",  # the request does not fit into the model's window
    "allowance",  # nor into what the target gives in a minute: waiting does not help
    "filter",  # a content filter refused
    "server",  # 5xx, 408, 409
    "request",  # any other 4xx: the request itself is at fault
]

# What may pass if the same target is asked again.
_MAY_PASS: frozenset[Kind] = frozenset(("connect", "timeout", "cut", "rate_limit", "server"))
# What says that the target is not well. A request that does not fit says nothing of the kind.
_UNWELL: frozenset[Kind] = frozenset(
    ("connect", "timeout", "cut", "rate_limit", "quota", "server")
)  # fmt: skip

# Exact words, since half of all messages mention quotas or lengths. Sources:
# platform.openai.com/docs/guides/error-codes, learn.microsoft.com (content_filter of Azure),
# api.deepseek.com and openrouter.ai, which say it with a status of its own (402).
_QUOTA = frozenset(
    ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded")
)  # fmt: skip
_CONTEXT = frozenset(
    ("context_length_exceeded", "context_window_exceeded", "string_above_max_length")
)  # fmt: skip
_FILTER = frozenset(
    ("content_filter", "content_policy_violation", "responsibleaipolicyviolation",
     "moderation_blocked")
)  # fmt: skip
_PAYMENT_REQUIRED = 402

# How the vendors that send no code say that a request is too long.
_TOO_LONG = re.compile(
    r"maximum (context|prompt) length|context window|available context size|prompt is too long|"
    r"exceeds? the (model'?s )?(maximum )?(context|token)|input token count .* exceeds",
    re.IGNORECASE,
)
# OpenAI says it with 429, Groq with 413, both with the code of a limit that waiting would help.
_OVER_ALLOWANCE = re.compile(
    r"request too large .*\btokens per (min|day)", re.IGNORECASE | re.DOTALL
)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one attempt came to nothing."""

    kind: Kind
    retry_after_s: float | None = None  # how long the upstream asks to wait; None = it did not say
    should_retry: bool | None = None  # what `x-should-retry` says; None = nothing

    @property
    def may_pass(self) -> bool:
        """Whether the same target may answer if it is asked again."""
        return self.kind in _MAY_PASS if self.should_retry is None else self.should_retry

    @property
    def is_final(self) -> bool:
        """Whether no other target would do better: the request is wrong."""
        return self.kind == "request" and not self.should_retry

    @property
    def is_of_target(self) -> bool:
        """Whether it counts against the target."""
        return self.kind in _UNWELL


def failure_of_error(error: UpstreamError) -> Failure:
    """Read a failure out of an error of the transport, or of what was no answer."""
    match error:
        case ConnectFailed():
            return Failure("connect")
        case UpstreamTimeout():
            return Failure("timeout")
        case AnswerTooLong():
            return Failure("request")  # of the same request it would be as long, and paid again
        case UpstreamCut() | UpstreamProtocol() | NotAnAnswer():
            return Failure("cut")
        case _:
            return failure_of_status(error.upstream_status or 502, None, Headers(), 0)


def failure_of_status(
    status: int, facts: ErrorFacts | None, headers: Headers, now_ms: int
) -> Failure:
    """Read a failure out of an error response, or out of an error inside a success.

    `facts`: what the body says of itself, None = nothing that can be read.
    """
    said = headers.text(b"x-should-retry")
    should_retry = {"true": True, "false": False}.get((said or "").strip().lower())
    retry_after_s = read_retry_after(headers, now_ms)
    if retry_after_s is None and facts is not None:
        retry_after_s = facts.retry_after_s
    return Failure(_kind_of(status, facts), retry_after_s, should_retry)


def read_retry_after(headers: Headers, now_ms: int) -> float | None:
    """Return how many seconds an upstream asks to wait; None = it does not say.

    `retry-after-ms` goes before `Retry-After`, whose value is seconds, decimals included, or a
    date. A date that has passed is 0.
    """
    in_ms = headers.text(b"retry-after-ms")
    if in_ms is not None and _NUMBER.fullmatch(in_ms.strip()):
        return float(in_ms) / 1000
    text = (headers.text(b"retry-after") or "").strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
        # A date that names no zone is UTC, as all dates of HTTP are.
        at_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(at_s - now_ms / 1000, 0.0)


def is_own_retry(headers: Headers) -> bool:
    """Say whether a request says that it is the client's own retry of an earlier one."""
    count = headers.text(b"x-stainless-retry-count") or ""
    return count.isascii() and count.isdecimal() and count.strip("0") != ""


def _kind_of(status: int, facts: ErrorFacts | None) -> Kind:
    words = {word.lower() for word in (facts.code, facts.kind) if word} if facts else set()
    if words & _QUOTA or status == _PAYMENT_REQUIRED:
        return "quota"
    if words & _CONTEXT or (
        facts is not None and status in (400, 413) and _TOO_LONG.search(facts.message)
    ):
        return "context"
    if facts is not None and status in (413, 429) and _OVER_ALLOWANCE.search(facts.message):
        return "allowance"
    if words & _FILTER:
        return "filter"
    if status == 429:
        return "rate_limit"
    if status in (408, 409) or status >= 500:
        return "server"
    return "request"
