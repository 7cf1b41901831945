"""From what arrived to what is written: pure functions that make the records of a call.

The invariant they serve: what is written is what the agent sees, byte for byte, with nothing lost
between the frames that were seen and the content on record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from agentstate.dialects.base import Ask
from agentstate.ground.canonical import canonical, digest, encode, parse
from agentstate.ground.chat import Answer, Choice, Usage
from agentstate.ground.errors import BadRequest
from agentstate.ground.events import Event
from agentstate.ground.prices import Prices
from agentstate.ground.records import Attempt, Checkpoint, RecordedAnswer
from agentstate.ground.redaction import NOTHING_KNOWN, Redactor
from agentstate.steps.target import MOCK

# Four characters a token is OpenAI's own rule of thumb for English; an estimate is marked as one.
CHARS_PER_TOKEN = 4
STANDARD_TIERS = (None, "default", "standard", "auto")
ARGUMENTS_READ_BYTES_MAX = 32 * 1024  # larger ones are compared as they came: reading takes 1 ms
TEXT_CHARS_MAX = 500  # of an answer's text kept beside it for lists; the whole is on record

_PACE = struct.Struct("<II")


class Tape:
    """Collects the writes of a stream: their bytes, and how fast they came."""

    __slots__ = ("_content", "_pace", "bytes_taken")

    def __init__(self) -> None:
        self._content: list[bytes] = []
        self._pace: list[bytes] = []
        self.bytes_taken = 0

    def take(self, piece: bytes, since_head_s: float) -> None:
        """Take in one write."""
        if piece:
            self._content.append(piece)
            self._pace.append(_PACE.pack(len(piece), min(int(since_head_s * 1000), 2**32 - 1)))
            self.bytes_taken += len(piece)

    def cut(self) -> tuple[bytes, bytes]:
        """Return (content, pace) since the last cut, and begin anew."""
        content, pace = b"".join(self._content), b"".join(self._pace)
        self._content.clear()
        self._pace.clear()
        return content, pace


def read_pace(pace: bytes) -> list[tuple[int, int]]:
    """Return (bytes, milliseconds since the head) of each write of a recorded stream."""
    return list(_PACE.iter_unpack(pace))


def count_usage(answer: Answer, input_chars: int) -> tuple[Usage, bool]:
    """Return the usage and whether it is our estimate; `input_chars` is the length of the body."""
    if answer.usage is not None:
        return answer.usage, False
    output_chars = sum(
        len(choice.text)
        + len(choice.reasoning or "")
        + len(choice.refusal or "")
        + sum(len(call.name) + len(call.arguments) for call in choice.tool_calls)
        for choice in answer.choices
    )
    return Usage(_tokens(input_chars), _tokens(output_chars)), True


def cost_of(prices: Prices, provider: str, model: str, answer: Answer) -> int | None:
    """Return the cost in micro-dollars; None where usage or price is unknown.

    The table has the standard tier: what was served in another has another price.
    """
    if provider == MOCK:
        return 0
    tier = answer.extra.get("service_tier")
    if answer.usage is None or tier not in STANDARD_TIERS:
        return None
    return prices.cost_microusd(provider, model, answer.usage)


def make_checkpoint(
    *,
    step_id: int,
    now_ms: int,
    ask: Ask,
    input_chars: int,
    attempts: tuple[Attempt, ...],
    answer: Answer,
    recorded: RecordedAnswer,
    provider: str,
    prices: Prices,
    latency_ms: int,
    first_content_ms: int | None,
    approval_id: str | None = None,
    event: Event | None = None,
    model: str | None = None,
    redactor: Redactor = NOTHING_KNOWN,
) -> Checkpoint:
    """Gather all that is known of an answer at the moment it is committed.

    A key that `redactor` knows is taken out of what is written. The agent has got it, and nobody
    gets it again: see `Checkpoint.is_censored`.
    `model`: what the target was asked for, for an answer that names none. A stream's usage mostly
    comes after its completing frame, so nothing is estimated before the record is sealed.
    """
    usage, is_estimate = answer.usage, False
    if usage is None and recorded.is_sealed:
        usage, is_estimate = count_usage(answer, input_chars)
    model = answer.model or model or ask.model
    recorded, answer, is_censored = censored(recorded, answer, redactor)
    return Checkpoint(
        step_id=step_id,
        answered_ms=now_ms,
        attempts=cleared_attempts(attempts, redactor),
        answer=recorded,
        provider=provider,
        model=model,
        response_id=answer.response_id,
        finish_reason=answer.finish_reason,
        text=answer.text[:TEXT_CHARS_MAX],
        tool_calls=answer.tool_calls,
        usage=usage,
        usage_estimated=is_estimate,
        cost_microusd=cost_of(prices, provider, model, answer),
        latency_ms=latency_ms,
        first_content_ms=first_content_ms,
        approval_id=approval_id,
        event=event,
        is_mock=provider == MOCK,
        calls=calls_of(answer),
        is_censored=is_censored,
    )


def cleared_attempts(attempts: Iterable[Attempt], redactor: Redactor) -> tuple[Attempt, ...]:
    """Return attempts without secrets: an upstream's error may repeat what it was asked."""
    return tuple(
        replace(
            each,
            error=None if each.error is None else redactor.text(each.error),
            excerpt=redactor.text(each.excerpt.decode("utf-8", "surrogateescape")).encode(
                "utf-8", "surrogateescape"
            ),
        )
        for each in attempts
    )


def censored(
    recorded: RecordedAnswer, answer: Answer, redactor: Redactor
) -> tuple[RecordedAnswer, Answer, bool]:
    """Return an answer without keys that are known by themselves, and whether it had any.

    Of a stream that has one spread over its events nothing is kept but what it says.
    """
    if not redactor.knows_keys:
        return recorded, answer, False
    content = redactor.without_keys(recorded.content)
    headers = tuple((name, redactor.without_keys(value)) for name, value in recorded.headers)
    choices = tuple(_choice_without(each, redactor) for each in answer.choices)
    clear = replace(answer, choices=choices)
    if content is recorded.content and headers == recorded.headers and clear == answer:
        return recorded, answer, False
    # The pieces are longer or shorter now, so how fast they came says nothing.
    kept = replace(recorded, headers=headers, content=content, pace=b"")
    if content is recorded.content and clear != answer:
        # It stands in no piece as it is: escaped, or cut in two.
        kept = replace(kept, form="body", content=encode({"censored": clear.text}))
    return kept, clear, True


def _choice_without(choice: Choice, redactor: Redactor) -> Choice:
    clear = redactor.text_without_keys
    return replace(
        choice,
        text=clear(choice.text),
        refusal=None if choice.refusal is None else clear(choice.refusal),
        reasoning=None if choice.reasoning is None else clear(choice.reasoning),
        tool_calls=tuple(
            replace(call, arguments=clear(call.arguments)) for call in choice.tool_calls
        ),
    )


def calls_of(answer: Answer) -> bytes | None:
    """Return a digest of what an answer asks its agent to call; None = nothing.

    Each call counts once, in whatever order: a model that goes round in circles may ask for the
    same two things in another order, or twice in one answer.
    """
    calls = {
        digest(call.name.encode("utf-8", "surrogatepass"), _canonical_arguments(call.arguments))
        for _, call in answer.tool_calls
        if not call.runs_upstream
    }
    return digest(*sorted(calls)) if calls else None


def _canonical_arguments(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > ARGUMENTS_READ_BYTES_MAX:
        return raw
    try:
        return canonical(parse(raw))
    except BadRequest:
        return raw


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)
