"""The dashboard's part of the dictionary store; `memory.py` builds on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agentstate.ground.overview import (
    SAVING_SLOT_MS,
    TOOLS_SHOWN_MAX,
    TOP_MAX,
    AnswerCount,
    Counts,
    Mark,
    Saving,
    SlotCount,
    Span,
    ToolCount,
    bin_of,
)
from agentstate.ground.records import ReplayNote
from agentstate.store.base import clamp, readable
from agentstate.store.base_overview import Tell
from agentstate.store.memory_rows import KeptAnswer, KeptStep, Rows


class MemoryOverview(Rows):
    """The methods of `Store` for the dashboard."""

    def __init__(self) -> None:
        super().__init__()
        self._savings: list[Saving] = []

    def watch(self, tell: Tell) -> None:
        """See `OverviewStore.watch`."""
        self._tell_change = lambda session: tell(frozenset((session,)))

    async def list_marks(self, session: str, first: int, last: int) -> tuple[Mark, ...]:
        """See `OverviewStore.list_marks`."""
        self._check_open()
        found = self._sessions.get(session)
        return tuple(
            _mark(step) for step in (found.steps if found else ()) if first <= step.index <= last
        )

    async def list_gaps(self, session: str) -> tuple[tuple[int, int], ...]:
        """See `OverviewStore.list_gaps`."""
        self._check_open()
        found = self._sessions.get(session)
        indexes = sorted(step.index for step in (found.steps if found else ()))
        pairs = zip((-1, *indexes), indexes, strict=False)
        return tuple((before + 1, index - 1) for before, index in pairs if index > before + 1)

    async def count_between(self, span: Span) -> Counts:
        """See `OverviewStore.count_between`."""
        self._check_open()

        def is_inside(at_ms: int) -> bool:
            return span.since_ms <= at_ms < span.until_ms

        answers = [
            answer
            for answer in self._answers.values()
            if is_inside(answer.checkpoint.answered_ms) and not answer.is_taken_back
        ]
        steps = [step for step in self._steps.values() if is_inside(step.claim.created_ms)]
        first = Counter(
            bin_of(answer.checkpoint.first_content_ms)
            for answer in answers
            if answer.checkpoint.first_content_ms is not None
        )
        tools = Counter(
            readable(call.name) for answer in answers for _, call in answer.checkpoint.tool_calls
        )
        most = sorted(tools.items(), key=lambda item: (-item[1], item[0]))[:TOP_MAX]
        return Counts(
            answers=_count_answers(answers, span.slot_ms),
            failed=_by_slot((step for step in steps if step.state == "failed"), span.slot_ms),
            fallbacks=_by_slot((step for step in steps if _has_fallen_back(step)), span.slot_ms),
            first_ms=tuple(SlotCount(*item) for item in sorted(first.items())),
            savings=self._sum_savings(span),
            tools=tuple(ToolCount(*item) for item in most),
        )

    async def find_first(self) -> int | None:
        """See `OverviewStore.find_first`."""
        self._check_open()
        return min((session.created_ms for session in self._sessions.values()), default=None)

    def _save(self, note: ReplayNote) -> None:
        """Keep what a replay saved."""
        step = self._steps.get(note.step_id)
        shown = step.shown() if step else None
        slot_ms = note.replayed_ms // SAVING_SLOT_MS * SAVING_SLOT_MS
        saved_ms = shown.checkpoint.latency_ms if shown else 0
        self._savings.append(Saving(slot_ms, 1, clamp(note.saved_microusd), saved_ms))

    def _sum_savings(self, span: Span) -> tuple[Saving, ...]:
        sums: dict[int, list[int]] = {}
        for one in self._savings:
            if span.since_ms <= one.slot_ms < span.until_ms:
                found = sums.setdefault(one.slot_ms // span.slot_ms * span.slot_ms, [0, 0, 0])
                for place, value in enumerate((one.replays, one.saved_microusd, one.saved_ms)):
                    found[place] += value
        return tuple(Saving(slot_ms, *found) for slot_ms, found in sorted(sums.items()))


def _count_answers(answers: list[KeptAnswer], slot_ms: int) -> tuple[AnswerCount, ...]:
    sums: dict[tuple[int, str, str, int], list[int]] = {}
    for answer in answers:
        checkpoint, usage, cost = answer.checkpoint, answer.usage, answer.cost_microusd
        key = (
            checkpoint.answered_ms // slot_ms * slot_ms,
            readable(checkpoint.provider),
            readable(checkpoint.model),
            bin_of(checkpoint.latency_ms),
        )
        found = sums.setdefault(key, [0] * 6)
        tokens = (
            (usage.input_tokens, usage.output_tokens, usage.cached_tokens) if usage else (0,) * 3
        )
        for place, value in enumerate((1, *tokens, cost or 0, cost is None)):
            found[place] += value
    return tuple(AnswerCount(*key, *found) for key, found in sorted(sums.items()))


def _by_slot(steps: Iterator[KeptStep], slot_ms: int) -> tuple[SlotCount, ...]:
    counts = Counter(step.claim.created_ms // slot_ms * slot_ms for step in steps)
    return tuple(SlotCount(*item) for item in sorted(counts.items()))


def _targets(step: KeptStep) -> list[tuple[str, str]]:
    return [(attempt.provider, attempt.model) for attempt in step.attempts]


def _has_fallen_back(step: KeptStep) -> bool:
    return len(set(_targets(step))) > 1


def _mark(step: KeptStep) -> Mark:
    targets, answer = _targets(step), step.shown()
    calls = () if answer is None else answer.checkpoint.tool_calls
    names = [
        readable(call.name) for _, call in sorted(calls, key=lambda one: (one[0], one[1].position))
    ]
    return Mark(
        index=step.index,
        attempts=len(targets),
        asked_of="/".join(targets[0]) if targets and targets[0] != targets[-1] else None,
        tools=tuple(names[:TOOLS_SHOWN_MAX]),
        tool_calls=len(calls),
    )
