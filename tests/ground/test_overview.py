"""Spans, bins and percentiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.overview import (
    DAY_MS,
    HOUR_MS,
    SAVING_SLOT_MS,
    SLOTS_MAX,
    bin_of,
    percentile,
    span_of,
)

NOW_MS = 1_790_000_123_456


@pytest.mark.parametrize(
    ("length_ms", "slot_ms"),
    [
        (HOUR_MS, SAVING_SLOT_MS),
        (DAY_MS, HOUR_MS),
        (7 * DAY_MS, 3 * HOUR_MS),
        (30 * DAY_MS, DAY_MS),
    ],
)
def test_a_span_has_slots_that_people_think_in(length_ms: int, slot_ms: int) -> None:
    span = span_of(NOW_MS - length_ms, NOW_MS)
    assert span.slot_ms == slot_ms
    assert span.since_ms % slot_ms == 0


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 15 * 365 * DAY_MS))
def test_a_span_is_whole_and_never_has_too_many_slots(since_ms: int, length_ms: int) -> None:
    span = span_of(since_ms, since_ms + length_ms)
    assert span.since_ms <= since_ms
    assert since_ms + length_ms < span.until_ms
    assert (span.until_ms - span.since_ms) / span.slot_ms <= SLOTS_MAX
    assert span.slot_ms % SAVING_SLOT_MS == 0


@given(st.integers(-5, 10_000_000))
def test_a_bin_begins_at_or_just_below_its_latency(latency_ms: int) -> None:
    found = bin_of(latency_ms)
    assert found <= max(0, latency_ms)
    assert max(0, latency_ms) - found <= max(0, latency_ms) * 0.05
    assert bin_of(found) == found


def test_percentiles_are_values_that_occurred() -> None:
    bins = [(30, 1), (10, 98), (20, 1)]
    assert percentile(bins, 0.5) == 10
    assert percentile(bins, 0.99) == 20
    assert percentile(bins, 1) == 30
    assert percentile([], 0.5) is None
