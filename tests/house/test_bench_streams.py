"""What the benchmark makes of the figures of streams."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentstate.house.bench_streams import Flow, compare, middle_of
from agentstate.house.bench_table import Line

DIRECT = Flow(1.0, 2.0, 0.1, 0.5, 5.0, 0)
OURS = Flow(2.0, 5.0, 0.5, 1.5, 9.0, 0)


def lines(ours: Flow = OURS, beside: Flow = OURS, stalls_at: int = 512) -> dict[str, Line]:
    crowds = {
        count: (DIRECT, replace(OURS, delay_max_ms=150.0 if count >= stalls_at else 9.0))
        for count in (64, 128, 256)
    }
    table = compare(DIRECT, ours, crowds, OURS, beside, 50)
    return dict(zip(("first", "each", "lost", "crowd", "slow"), table.lines, strict=True))


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        (OURS, (True, True, True)),
        (replace(OURS, first_p99_ms=5.01), (False, True, True)),
        (replace(OURS, delay_p99_ms=1.51), (True, False, True)),
        (replace(OURS, lost=1), (True, True, False)),
    ],
)
def test_goals_are_met_or_missed_at_their_bounds(ours: Flow, met: tuple[bool, ...]) -> None:
    found = lines(ours)
    assert tuple(found[name].is_met for name in ("first", "each", "lost")) == met


def test_so_many_streams_went_through_as_the_largest_crowd_without_a_stall() -> None:
    assert lines(stalls_at=256)["crowd"].figures == {"direct_streams": 256, "ours_streams": 128}
    assert lines(stalls_at=64)["crowd"].figures["ours_streams"] == 0


def test_a_stall_beside_a_slow_reader_is_a_goal_missed() -> None:
    assert lines()["slow"].is_met
    assert not lines(beside=replace(OURS, delay_max_ms=100.0))["slow"].is_met


def test_of_losses_the_rounds_have_the_sum() -> None:
    found = middle_of([OURS, replace(OURS, lost=2, delay_p50_ms=9.0), replace(OURS, lost=1)])
    assert (found.lost, found.delay_p50_ms) == (3, OURS.delay_p50_ms)
