"""What the benchmark makes of memory, disk and starts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agentstate.house.bench_footprint import MIB, Footprint, compare, disk_bytes, read_resident

FOUND = Footprint(
    50 * MIB, 60 * MIB, 1000, 200, 150_000_000,
    300_000, 2_300_000, 100, 30_000_000, 500_000, 0.6, "the .pyz"
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (FOUND, [True, True, True, True, True]),
        (replace(FOUND, idle_bytes=50 * MIB + 1), [False, True, True, True, True]),
        (replace(FOUND, after_bytes=60 * MIB + 1), [True, False, True, True, True]),
        (replace(FOUND, peak_bytes=150_000_001), [True, True, False, True, True]),
        (replace(FOUND, run_disk_bytes=500_001), [True, True, True, False, True]),
        (replace(FOUND, start_s=0.61), [True, True, True, True, False]),
    ],
)
def test_goals_are_met_or_missed_at_their_bounds(found: Footprint, met: list[bool]) -> None:
    judged = [line.is_met for line in compare(found).lines if line.goal]
    assert judged == met


def test_a_step_takes_what_its_record_has_grown_by() -> None:
    cells = [line.cells for line in compare(FOUND).lines if "disk" in line.what]
    assert cells == [("300 kB",), ("2,000 bytes",), ("2,000 bytes",)]


def test_where_memory_is_not_told_the_table_says_so() -> None:
    table = compare(replace(FOUND, peak_bytes=None))
    assert table.lines[0].cells == ("not measured: no /proc here",)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_resident_memory_is_read() -> None:
    found = read_resident(os.getpid())
    assert found is not None
    assert found > MIB


def test_of_a_process_that_is_none_nothing_is_read() -> None:
    assert read_resident(2**30) is None


def test_a_database_takes_what_its_log_takes_as_well(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(bytes(10))
    (tmp_path / "a.db-wal").write_bytes(bytes(7))
    (tmp_path / "b.db").write_bytes(bytes(100))
    assert disk_bytes(tmp_path / "a.db") == 17
