"""What all sessions did in a span of time: sums, a row for each slot of it, models, tools.

The store counts (`store/base_overview.py`); what is made of the counts is here, and pure. None
means not known, never zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from agentstate.doors.api.reply import json_response, read_one_of, read_params
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.overview import (
    DAY_MS,
    HOUR_MS,
    AnswerCount,
    Counts,
    SlotCount,
    Span,
    percentile,
    span_of,
)
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

RANGES_MS = {"1h": HOUR_MS, "24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS, "all": None}
DEFAULT_RANGE = "24h"
MODELS_MAX = 12  # the others are one row
# An answer is given again for this long, and for ten times as long as it took to count: a hundred
# thousand calls take about half a second, and several pages ask for the same.
KEPT_S = 1.0


class OverviewEndpoints:
    """Answers `/api/overview`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counting = asyncio.Lock()
        self._kept: dict[str, tuple[float, dict[str, JSON]]] = {}  # by range: (until when, what)

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        ranges = ", ".join(RANGES_MS)
        return (
            Endpoint(
                "GET",
                "/api/overview",
                self.show,
                "Sum up what was asked, paid and saved over time.",
                query=(Field("range", f"up to now: {ranges}", choices=tuple(RANGES_MS)),),
            ),
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with totals, and rows of slots, models and tools, the most asked first."""
        asked = read_params(request, frozenset(("range",)))
        name = read_one_of(asked, "range", tuple(RANGES_MS)) or DEFAULT_RANGE
        async with self._counting:
            until_s, found = self._kept.get(name, (0.0, {}))
            began_s = monotonic_s()
            if began_s >= until_s:
                found = await self._count(name)
                ended_s = monotonic_s()
                self._kept[name] = ended_s + max(KEPT_S, 10 * (ended_s - began_s)), found
        return json_response({"range": name, **found})

    async def _count(self, name: str) -> dict[str, JSON]:
        until_ms, length_ms = now_ms(), RANGES_MS[name]
        if length_ms is None:
            first_ms = await self._store.find_first()
            since_ms = until_ms - HOUR_MS if first_ms is None else first_ms
        else:
            since_ms = until_ms - length_ms
        span = span_of(since_ms, until_ms)
        counts = await self._store.count_between(span)
        return await asyncio.to_thread(overview_json, span, counts)


def overview_json(span: Span, counts: Counts) -> dict[str, JSON]:
    """Render the counts of a span."""
    return {
        "since_ms": span.since_ms,
        "until_ms": span.until_ms,
        "slot_ms": span.slot_ms,
        "totals": _totals(counts),
        "slots": _slots(span, counts),
        "models": _models(counts.answers),
        "tools": [{"name": tool.name, "calls": tool.calls} for tool in counts.tools],
    }


def _sums(rows: Iterable[AnswerCount]) -> dict[str, JSON]:
    found = tuple(rows)
    bins = [(row.latency_ms, row.answers) for row in found]
    return {
        "calls": sum(row.answers for row in found),
        "input_tokens": sum(row.input_tokens for row in found),
        "output_tokens": sum(row.output_tokens for row in found),
        "cached_tokens": sum(row.cached_tokens for row in found),
        "cost_microusd": sum(row.cost_microusd for row in found),
        "unknown_costs": sum(row.unknown_costs for row in found),
        "latency_p50_ms": percentile(bins, 0.5),
        "latency_p95_ms": percentile(bins, 0.95),
        "latency_p99_ms": percentile(bins, 0.99),
    }


def _totals(counts: Counts) -> dict[str, JSON]:
    first = [(row.slot_ms, row.count) for row in counts.first_ms]
    return {
        **_sums(counts.answers),
        "first_content_p50_ms": percentile(first, 0.5),
        "first_content_p95_ms": percentile(first, 0.95),
        "failed": sum(row.count for row in counts.failed),
        "fallbacks": sum(row.count for row in counts.fallbacks),
        "replays": sum(row.replays for row in counts.savings),
        "saved_microusd": sum(row.saved_microusd for row in counts.savings),
        "saved_ms": sum(row.saved_ms for row in counts.savings),
    }


def _slots(span: Span, counts: Counts) -> list[JSON]:
    answers: dict[int, list[AnswerCount]] = {}
    for row in counts.answers:
        answers.setdefault(row.slot_ms, []).append(row)
    failed, fallbacks = _by_slot(counts.failed), _by_slot(counts.fallbacks)
    savings = {row.slot_ms: row for row in counts.savings}
    found: list[JSON] = []
    for at_ms in range(span.since_ms, span.until_ms, span.slot_ms):
        saving = savings.get(at_ms)
        found.append(
            {
                "at_ms": at_ms,
                **_sums(answers.get(at_ms, ())),
                "failed": failed.get(at_ms, 0),
                "fallbacks": fallbacks.get(at_ms, 0),
                "replays": saving.replays if saving else 0,
                "saved_microusd": saving.saved_microusd if saving else 0,
                "saved_ms": saving.saved_ms if saving else 0,
            }
        )
    return found


def _by_slot(rows: Iterable[SlotCount]) -> dict[int, int]:
    return {row.slot_ms: row.count for row in rows}


def _models(answers: Iterable[AnswerCount]) -> list[JSON]:
    """Render who answered, the most asked first; the rest is summed up under the name None."""
    found: dict[tuple[str, str], list[AnswerCount]] = {}
    for row in answers:
        found.setdefault((row.provider, row.model), []).append(row)
    ranked = sorted(found.items(), key=lambda item: (-sum(row.answers for row in item[1]), item[0]))
    shown: list[JSON] = [
        {"provider": provider, "model": model, **_sums(rows)}
        for (provider, model), rows in ranked[:MODELS_MAX]
    ]
    rest = [row for _, rows in ranked[MODELS_MAX:] for row in rows]
    if rest:
        shown.append({"provider": None, "model": None, **_sums(rest)})
    return shown
