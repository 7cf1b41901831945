"""What a benchmark found, as tables: for people as text, for programs as JSON. Pure.

A part of the bench returns one `Table`; this module knows nothing of what is measured. A figure
stands in a table twice: in a cell, rounded and with its unit, and as a number in `figures`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

WIDTH = 118  # of what is said around the tables


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table."""

    what: str
    cells: tuple[str, ...]  # one for each column
    figures: Mapping[str, float]  # the same as numbers; a name ends in its unit
    goal: str = ""  # of DESIGN section 17; '' = none
    is_met: bool | None = None  # None = there is no goal


@dataclass(frozen=True, slots=True)
class Table:
    """What one part of the bench found."""

    name: str  # of the part
    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """What one kind of load found at one server."""

    p50_ms: float
    p99_ms: float
    rate: float  # answers a second
    count: int = 0  # of answers
    inside_p50_ms: float = 0.0  # of what the server itself says it took; 0 = it says nothing
    inside_p99_ms: float = 0.0
    rounds_p50_ms: tuple[float, ...] = field(default=())  # of each round, for the spread

    @property
    def shown(self) -> str:
        """Its latencies, as a cell."""
        return pair(self.p50_ms, self.p99_ms)


def middle_of(figures: Sequence[Figure]) -> Figure:
    """Return the medians over the rounds."""
    return Figure(
        median(figure.p50_ms for figure in figures),
        median(figure.p99_ms for figure in figures),
        median(figure.rate for figure in figures),
        sum(figure.count for figure in figures),
        median(figure.inside_p50_ms for figure in figures),
        median(figure.inside_p99_ms for figure in figures),
        tuple(figure.p50_ms for figure in figures),
    )


def percentile(ordered: Sequence[float], per_cent: int) -> float:
    """Return a percentile of numbers that are in order; 0 = there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) * per_cent // 100, len(ordered) - 1)]


def pair(p50: float, p99: float) -> str:
    """Return a median and a 99th percentile as a cell."""
    return f"{p50:.2f} / {p99:.2f}"


def render(about: Mapping[str, str], tables: Sequence[Table]) -> str:
    """Return everything as text."""
    told = [
        textwrap.fill(
            f"{name:<13} {value}",
            WIDTH,
            subsequent_indent=" " * 14,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, value in about.items()
    ]
    return "\n".join([*told, *(f"\n{render_table(table)}" for table in tables)])


def render_table(table: Table) -> str:
    """Return one table as text."""
    has_goals = any(line.goal for line in table.lines)
    more = ("goal", "") if has_goals else ()
    rows = [(table.title, *table.columns, *more)]
    for line in table.lines:
        judged = (line.goal, _verdict(line.is_met)) if has_goals else ()
        rows.append((line.what, *line.cells, *judged))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    shown = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    notes = [
        textwrap.fill(note, WIDTH, initial_indent="  ", subsequent_indent="  ")
        for note in table.notes
    ]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:], *notes])


def as_json(about: Mapping[str, str], tables: Sequence[Table]) -> dict[str, Any]:
    """Return everything as a JSON object."""
    return {"about": dict(about), "tables": [asdict(table) for table in tables]}


def _verdict(is_met: bool | None) -> str:
    return {True: "met", False: "MISSED", None: ""}[is_met]
