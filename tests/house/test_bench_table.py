"""The tables of the benchmark, as text and as JSON."""

from __future__ import annotations

import json

import pytest

from agentstate.house.bench_table import (
    Figure,
    Line,
    Table,
    as_json,
    middle_of,
    percentile,
    render,
    render_table,
)

JUDGED = Table(
    "t",
    "ms",
    ("direct", "AgentState"),
    (
        Line("replay", ("0.10", "0.31"), {"ours_ms": 0.31}, "<= 0.30", False),
        Line("a longer name", ("0.10", "0.25"), {"ours_ms": 0.25}, "<= 0.30", True),
        Line("no goal", ("0.10", "9.00"), {"ours_ms": 9.0}),
    ),
    ("What it means.",),
)


def test_each_line_has_its_figures_its_goal_and_its_verdict_in_columns() -> None:
    assert render_table(JUDGED).splitlines() == [
        "ms             direct  AgentState  goal",
        "-" * 50,
        "replay         0.10    0.31        <= 0.30  MISSED",
        "a longer name  0.10    0.25        <= 0.30  met",
        "no goal        0.10    9.00",
        "  What it means.",
    ]


def test_a_table_without_goals_has_no_column_for_them() -> None:
    plain = Table("t", "ms", ("ours",), (Line("x", ("1",), {}),))
    assert render_table(plain).splitlines()[0] == "ms  ours"


def test_what_is_said_before_the_tables_is_wrapped_beside_its_name() -> None:
    shown = render({"machine": "2 cores", "method": "word " * 40}, [JUDGED])
    first, second, third, *_ = shown.splitlines()
    assert first == "machine       2 cores"
    assert second.startswith("method        word word")
    assert third.startswith(" " * 14 + "word")


def test_as_json_it_has_the_numbers() -> None:
    found = json.loads(json.dumps(as_json({"machine": "2 cores"}, [JUDGED])))
    assert found["about"] == {"machine": "2 cores"}
    [table] = found["tables"]
    assert table["lines"][0]["figures"] == {"ours_ms": 0.31}
    assert [line["is_met"] for line in table["lines"]] == [False, True, None]


@pytest.mark.parametrize(
    ("numbers", "per_cent", "found"),
    [([], 50, 0.0), ([1.0], 99, 1.0), ([1.0, 2.0, 3.0], 50, 2.0), (list(range(100)), 99, 99),
     ([1.0, 2.0], 100, 2.0)],
)  # fmt: skip
def test_percentiles(numbers: list[float], per_cent: int, found: float) -> None:
    assert percentile(numbers, per_cent) == found


def test_the_middle_of_rounds_is_the_median_of_each_figure() -> None:
    rounds = [Figure(1.0, 9.0, 50.0, 10), Figure(2.0, 7.0, 40.0, 20), Figure(3.0, 8.0, 60.0, 30)]
    assert middle_of(rounds) == Figure(2.0, 8.0, 50.0, 60, rounds_p50_ms=(1.0, 2.0, 3.0))
