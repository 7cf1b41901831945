"""Ask a target once: the call as it goes upstream, the attempt while it lasts, the answer judged.

Knows targets and transports, not sessions or the store, and no dialect but the caller's: what a
target is asked in another one is in `leg.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agentstate.dialects.base import Ask
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import (
    AgentStateError,
    NotAnAnswer,
    UpstreamError,
    shorten,
)
from agentstate.ground.records import Attempt
from agentstate.ground.redaction import redact_bytes, redact_text
from agentstate.ground.secrets import strike, strike_bytes
from agentstate.ground.settings import ForwardSettings
from agentstate.steps.reply import passed_headers
from agentstate.steps.target import Target, caller_key, upstream_headers
from agentstate.wire.message import Exchange, Headers, OutCall, Pair, TimeLimits, Transport

EXCERPT_BYTES_MAX = 2_048  # of an answer that was none; enough to recognise an error page
ERROR_BODY_BYTES_MAX = 16 * 1024 * 1024  # of an error response; some repeat the whole request


class Transports:
    """The client for real upstreams and the mock provider's transport."""

    def __init__(self, client: Transport, mock: Transport) -> None:
        self.client = client
        self._mock = mock

    def of(self, target: Target) -> Transport:
        """Return what sends calls to this target."""
        return self._mock if target.is_mock else self.client

    async def close(self) -> None:
        """Close both."""
        await self.client.close()
        await self._mock.close()


@dataclass(slots=True)
class Try:
    """One attempt while it lasts."""

    target: Target
    keys: tuple[str, ...] = field(repr=False)  # that were sent: struck from what is recorded
    started_ms: int
    started_s: float
    status: int | None = None
    first_byte_ms: int | None = None

    def ended(
        self,
        error: AgentStateError | None = None,
        excerpt: bytes = b"",
        dropped: tuple[str, ...] = (),
    ) -> Attempt:
        """Return the record of this attempt. `dropped`: what could not be said on the way."""
        return Attempt(
            provider=self.target.provider,
            model=self.target.model,
            started_ms=self.started_ms,
            ended_ms=self.started_ms + int((monotonic_s() - self.started_s) * 1000),
            status=self.status,
            error_code=error.code if error else None,
            error=shorten(redact_text(strike(error.message, *self.keys)), 500) if error else None,
            first_byte_ms=self.first_byte_ms,
            dropped=dropped,
            # Struck before it is cut: the beginning of a key is a secret too.
            excerpt=redact_bytes(strike_bytes(excerpt[: 2 * EXCERPT_BYTES_MAX], *self.keys))[
                :EXCERPT_BYTES_MAX
            ],
        )


def time_limits(settings: ForwardSettings) -> TimeLimits:
    """Return the limits of an upstream call."""
    return TimeLimits(
        connect_s=settings.connect_timeout_s,
        first_byte_s=settings.first_byte_timeout_s,
        gap_s=settings.gap_timeout_s,
        total_s=settings.total_timeout_s,
    )


def begin(target: Target, headers: Headers) -> Try:
    """Begin an attempt at `target` now, for a caller with these headers."""
    return Try(target, keys_of(target, headers), now_ms(), monotonic_s())


def keys_of(target: Target, headers: Headers) -> tuple[str, ...]:
    """Return the keys that may be sent to a target for a caller: nothing on record has them."""
    sent = caller_key(headers)
    return tuple(key for key in (target.key, sent.decode("latin-1") if sent else None) if key)


def out_call(
    target: Target,
    headers: Headers,
    path: str,
    query: str,
    raw: bytes,
    ask: Ask | None,
    changed: dict[str, JSON] | None = None,
) -> OutCall:
    """Return the call as it goes upstream.

    `ask` None: the body was not read. `changed`: the body to send in its place; None = as it came.
    """
    body, sent = raw, upstream_headers(headers, target)
    if ask is not None and (model := _model_for(target, ask.model)) != ask.model:
        changed = {**(changed or ask.body), "model": model}
    if changed is not None:
        body = encode(changed)
        sent = tuple(pair for pair in sent if pair[0].lower() != b"content-encoding")
    return OutCall(
        method="POST",
        origin=target.origin,
        target=target.path(path, query),
        headers=sent,
        body=body,
    )


def _model_for(target: Target, asked: str) -> str:
    """Return the name a target is asked for. The mock repeats it, prefix and all."""
    if not target.is_mock:
        return target.model
    return asked if asked.removeprefix("mock/") == target.model else f"mock/{target.model}"


async def send(transport: Transport, call: OutCall, limits: TimeLimits, attempt: Try) -> Exchange:
    """Send and wait for the head; the attempt notes when it came.

    Raises:
        UpstreamError: as the transport says, with the provider's name.
    """
    try:
        exchange = await transport.send(call, limits)
    except UpstreamError as error:
        error.provider = attempt.target.provider
        raise
    attempt.status = exchange.status
    attempt.first_byte_ms = int((monotonic_s() - attempt.started_s) * 1000)
    return exchange


def is_stream(exchange: Exchange) -> bool:
    """Say whether an upstream answers with a stream: of events, or of lines as Ollama does."""
    kind = exchange.headers.get(b"content-type") or b""
    return kind.lower().startswith((b"text/event-stream", b"application/x-ndjson"))


def judge(answer: Answer, exchange: Exchange, provider: str) -> UpstreamError | None:
    """Return what makes a success status no answer, or None if it is one (invariant 4)."""
    if answer.is_complete:
        return None
    fault = answer.fault or "not every choice has a terminal reason"
    coding = exchange.headers.text(b"content-encoding")
    if coding is not None:
        fault = f"it is {shorten(coding)}-encoded, which was not offered and cannot be read here"
    return NotAnAnswer(
        f"{provider} answered {exchange.status} with what is no complete answer: {fault}. It was "
        "not recorded; ask again.",
        provider=provider,
    )


def name_provider(error: UpstreamError, provider: str) -> UpstreamError:
    """Put the provider's name into an error that a body's reader raised."""
    error.provider = error.provider or provider
    return error


def answer_headers(exchange: Exchange, target: Target) -> tuple[Pair, ...]:
    """Return the headers that go to the client and into the record."""
    headers = passed_headers(exchange.headers)
    return (*headers, (b"x-agentstate-mock", b"true")) if target.is_mock else headers


def with_counts(read: Answer, answer: Answer) -> Answer:
    """Return an answer that was translated, with the counts and the model of its upstream's form:
    what is paid is paid by those."""
    return replace(read, usage=answer.usage, model=answer.model)
