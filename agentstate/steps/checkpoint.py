"""From what arrived to what is written: pure functions that make the records of a call.

The invariant they serve: what is written is what the agent sees, byte for byte, with nothing lost
between the frames that were seen and the content on record.
"""

from __future__ import annotations

import struct

from agentstate.dialects.base import Ask
from agentstate.ground.canonical import canonical, digest, parse
from agentstate.ground.chat import Answer, Usage
from agentstate.ground.errors import BadRequest
from agentstate.ground.events import Event
from agentstate.ground.prices import Prices
from agentstate.ground.records import Attempt, Checkpoint, RecordedAnswer
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
) -> Checkpoint:
    """Gather all that is known of an answer at the moment it is committed.

    `model`: what the target was asked for, for an answer that names none. A stream's usage mostly
    comes after its completing frame, so nothing is estimated before the record is sealed.
    """
    usage, is_estimate = answer.usage, False
    if usage is None and recorded.is_sealed:
        usage, is_estimate = count_usage(answer, input_chars)
    model = answer.model or model or ask.model
    return Checkpoint(
        step_id=step_id,
        answered_ms=now_ms,
        attempts=attempts,
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
