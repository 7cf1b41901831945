"""Counters and histograms in memory, and the text that Prometheus reads. Pure.

The text is exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats). What is
measured is in `meters.py`; here is how it is kept. Values of labels are bounded: whoever calls
could else fill the memory with names of models.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentstate.ground.redaction import redact_text

MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
SERIES_MAX = 1_000  # of one metric; further values of labels are counted as `OTHER`
OTHER = "other"
VALUE_CHARS_MAX = 128  # of a label

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured: the name, what it says for people, the names of its labels."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...] = ()


class Counter:
    """Counts up, by label values."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._sums: dict[Labels, float] = {}
        if not metric.labels:
            self._sums[()] = 0.0  # it is there before it is counted first

    def add(self, amount: float = 1.0, *labels: str) -> None:
        """Add to the series of these label values."""
        key = _bounded(labels, self._sums)
        self._sums[key] = self._sums.get(key, 0.0) + amount

    def lines(self) -> Iterator[str]:
        """Yield a line for each series."""
        for labels, value in sorted(self._sums.items()):
            yield _line(self.metric.name, self.metric.labels, labels, value)


@dataclass(slots=True)
class _Buckets:
    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class Histogram:
    """Counts values by how large they are. `bounds`: upper ones, ascending, without +Inf."""

    metric: Metric
    bounds: Sequence[float]
    _series: dict[Labels, _Buckets] = field(default_factory=dict)

    def observe(self, value: float, *labels: str) -> None:
        """Count a value in the series of these label values."""
        key = _bounded(labels, self._series)
        buckets = self._series.get(key)
        if buckets is None:
            buckets = self._series[key] = _Buckets([0] * (len(self.bounds) + 1))
        buckets.counts[bisect_left(self.bounds, value)] += 1
        buckets.total += value

    def lines(self) -> Iterator[str]:
        """Yield the lines of each series: buckets, which add up, then sum and count."""
        name, names = self.metric.name, (*self.metric.labels, "le")
        for labels, buckets in sorted(self._series.items()):
            seen = 0
            for bound, count in zip((*self.bounds, None), buckets.counts, strict=True):
                seen += count
                text = "+Inf" if bound is None else _number(bound)
                yield _line(f"{name}_bucket", names, (*labels, text), seen)
            yield _line(f"{name}_sum", self.metric.labels, labels, buckets.total)
            yield _line(f"{name}_count", self.metric.labels, labels, seen)


@dataclass(frozen=True, slots=True)
class Gauge:
    """What is so at the moment it is asked for: one value for each tuple of label values."""

    metric: Metric
    values: Mapping[Labels, float]

    def lines(self) -> Iterator[str]:
        """Yield a line for each series."""
        for labels, value in sorted(self.values.items()):
            yield _line(self.metric.name, self.metric.labels, labels, value)


def render(rows: Iterable[Counter | Histogram | Gauge]) -> bytes:
    """Return the text of metrics, a head and the lines of each."""
    lines: list[str] = []
    for row in rows:
        metric = row.metric
        lines.append(f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines += row.lines()
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _bounded(labels: Labels, known: Mapping[Labels, object]) -> Labels:
    if labels in known:
        return labels
    # A caller may have put anything into the name of a model, a key as well.
    cut = tuple(redact_text(value)[:VALUE_CHARS_MAX] for value in labels)
    if cut in known or len(known) < SERIES_MAX:
        return cut
    return (OTHER,) * len(labels)


def _line(name: str, names: Sequence[str], values: Sequence[str], value: float) -> str:
    if not names:
        return f"{name} {_number(value)}"
    pairs = ",".join(
        f'{label}="{_escaped(text, quotes=True)}"'
        for label, text in zip(names, values, strict=True)
    )
    return f"{name}{{{pairs}}} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
