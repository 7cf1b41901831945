"""What the benchmark makes of the figures of calls."""

from __future__ import annotations

import pytest

from agentstate.house.bench_calls import CLIENTS, SIZES, compare_calls, compare_sizes
from agentstate.house.bench_table import Figure, Table

DIRECT = Figure(0.05, 0.1, 20_000)
BARE = Figure(0.1, 0.2, 10_000)


def figures(p50_ms: float, rate: float) -> dict[str, Figure]:
    ours = Figure(p50_ms, p50_ms * 2, rate, inside_p50_ms=p50_ms / 2)
    return {"direct": DIRECT, "bare": BARE, "replay": ours, "new": ours}


def verdicts(table: Table) -> list[bool]:
    return [line.is_met for line in table.lines if line.is_met is not None]


@pytest.mark.parametrize(
    ("p50_ms", "rate", "met"),
    [
        (0.25, 4000, [True, True, True, True]),
        (0.31, 4000, [False, True, True, True]),
        (0.25, 3999, [True, False, True, True]),
        (1.51, 4000, [False, True, False, True]),
        (0.25, 1499, [True, False, True, False]),
    ],
)
def test_goals_are_met_or_missed_at_their_bounds(
    p50_ms: float, rate: float, met: list[bool]
) -> None:
    found = {clients: figures(p50_ms, rate) for clients in CLIENTS}
    table = compare_calls(found, fsync_ms=0.5)
    assert verdicts(table) == met
    assert len(table.lines) == 2 * len(CLIENTS)


@pytest.mark.parametrize(("p50_ms", "met"), [(6.0, [True]), (6.01, [False])])
def test_the_largest_replay_has_a_goal(p50_ms: float, met: list[bool]) -> None:
    table = compare_sizes({what: figures(p50_ms, 100) for what, _ in SIZES})
    assert verdicts(table) == met


def test_what_is_added_is_the_way_by_the_proxy_minus_the_direct_one() -> None:
    [line, _] = compare_sizes({"1k tokens": figures(0.25, 5000)}).lines
    assert line.figures["added_p50_ms"] == pytest.approx(0.2)
    assert line.figures["added_p99_ms"] == pytest.approx(0.4)
    assert line.figures["p50_to_bare"] == pytest.approx(2.5)
    assert line.cells == (
        "0.05 / 0.10", "0.10 / 0.20", "0.25 / 0.50", "0.20 / 0.40", "0.12 / 0.00", "5,000 (50%)",
    )  # fmt: skip
