"""What happened over all sessions in a span of time, counted; and marks of single steps. Pure.

The store counts into slots of time (`Span`); what is made of the counts, and percentiles above all,
is here. Time is integer milliseconds UTC (`_ms`), money integer micro-dollars (`_microusd`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# What replays saved is kept in slots of this length; the slots of a span are multiples of it.
SAVING_SLOT_MS = 5 * MINUTE_MS
SLOTS_MAX = 62  # of a span: what a chart can show side by side, and a month of days
TOOLS_SHOWN_MAX = 4  # names on the mark of a step
TOP_MAX = 20  # tools of an overview

# Widths that people think in; the first that cuts a span into few enough slots is taken.
_WIDTHS_MS = (
    SAVING_SLOT_MS, 15 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, DAY_MS, 7 * DAY_MS,
    28 * DAY_MS, 364 * DAY_MS,
)  # fmt: skip

# Latencies are counted in bins, each this wide from that value on: 5 % apart or less above 20 ms.
BINS_MS = ((100_000, 5000), (10_000, 500), (1000, 50), (100, 5), (0, 1))


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, cut into slots of one width."""

    since_ms: int  # a multiple of the width
    until_ms: int  # the first moment after it
    slot_ms: int


@dataclass(frozen=True, slots=True)
class AnswerCount:
    """Answers of one slot, from one model, in one bin of latency."""

    slot_ms: int  # when the slot begins
    provider: str
    model: str
    latency_ms: int  # where the bin begins
    answers: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_microusd: int
    unknown_costs: int


@dataclass(frozen=True, slots=True)
class SlotCount:
    """How often something happened in one slot."""

    slot_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class Saving:
    """What replays saved in one slot."""

    slot_ms: int
    replays: int
    saved_microusd: int
    saved_ms: int  # what the models took when they were asked


@dataclass(frozen=True, slots=True)
class ToolCount:
    """How often models called a tool."""

    name: str
    calls: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What a store counts of a span."""

    answers: tuple[AnswerCount, ...] = ()  # not those that were taken back
    failed: tuple[SlotCount, ...] = ()  # steps that came to nothing
    fallbacks: tuple[SlotCount, ...] = ()  # steps for which several targets were asked
    first_ms: tuple[SlotCount, ...] = ()  # by bin instead of slot: time to a stream's first content
    savings: tuple[Saving, ...] = ()
    tools: tuple[ToolCount, ...] = ()  # the most called first, at most `TOP_MAX`


@dataclass(frozen=True, slots=True)
class Mark:
    """What a timeline shows of a step besides its row."""

    index: int
    attempts: int
    asked_of: str | None  # "provider/model" of the first attempt, where another answered; None = it
    tools: tuple[str, ...]  # names its answer calls, in order, at most `TOOLS_SHOWN_MAX`
    tool_calls: int


def span_of(since_ms: int, until_ms: int) -> Span:
    """Cut a span into slots; it begins where a slot begins."""
    length_ms = max(until_ms - since_ms, 1)
    fit = (width for width in _WIDTHS_MS if length_ms <= width * (SLOTS_MAX - 2))
    slot_ms = next(fit, _WIDTHS_MS[-1])
    return Span(since_ms // slot_ms * slot_ms, until_ms + 1, slot_ms)


def bin_of(latency_ms: int) -> int:
    """Return where the bin of a latency begins."""
    value = max(0, latency_ms)
    for least, width in BINS_MS:
        if value >= least:
            return least + (value - least) // width * width
    return 0


def percentile(bins: Iterable[tuple[int, int]], share: float) -> int | None:
    """Return the value that this share of all are at or below, from (value, count); None = none."""
    found = sorted(bins)
    wanted = share * sum(count for _, count in found)
    seen = 0
    for value, count in found:
        seen += count
        if seen >= wanted and count:
            return value
    return None
