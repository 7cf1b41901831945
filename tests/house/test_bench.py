"""The benchmark as a whole: a short run for real, and a guard against gross regressions.

What is timed here is held as a ratio to the bare h11 server of the same run, at several times the
goal: it fails where something became several times slower, and not on a machine that is busy.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentstate import cli_bench
from agentstate.house.bench import PARTS, read_processor, read_sqlite_version, run
from agentstate.house.bench_table import Line, Table, render

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 600  # it takes well under a minute; a machine may be busy
SLACK = 5  # times the goal


def test_the_sqlite_version_is_read_from_the_databases_header(tmp_path: Path) -> None:
    header = bytearray(100)
    header[96:100] = (3_045_001).to_bytes(4, "big")
    (tmp_path / "x.db").write_bytes(header)
    assert read_sqlite_version(tmp_path / "x.db") == "3.45.1"


def test_the_processor_has_a_name() -> None:
    assert read_processor().strip()


def test_the_command_line_knows_the_parts_without_loading_them() -> None:
    assert tuple(part.name for part in PARTS) == cli_bench.PARTS


def test_a_bench_that_cannot_measure_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agentstate.house.bench_stand.CONFIG", "[nonsense]\n")
    assert run(quick=True) == 1
    assert "The bench failed." in capsys.readouterr().out


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What a quick run found, by name of part and line."""
    command = [sys.executable, "-m", "agentstate", "bench", "--quick", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    value: dict[str, Any] = json.loads(ran.stdout)
    return value


def figures(found: dict[str, Any], part: str) -> dict[str, dict[str, float]]:
    [table] = [table for table in found["tables"] if table["name"] == part]
    return {line["what"].strip(): line["figures"] for line in table["lines"]}


@pytest.mark.slow
def test_a_run_measures_every_part_and_says_where(found: dict[str, Any]) -> None:
    assert [table["name"] for table in found["tables"]] == [part.name for part in PARTS]
    assert all(table["lines"] for table in found["tables"])
    assert re.search(r"SQLite 3\.\d+\.\d+", found["about"]["versions"])
    assert "fsynced" in found["about"]["durability"]
    assert found["about"]["not measured"]


def shape_of(text: str) -> list[list[str]]:
    """Return what stays of each table's lines if the figures are left out: of its head all cells,
    of the others the first."""
    tables: list[list[str]] = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line and set(line) == {"-"}:
            cells = re.split(r" {2,}", lines[at - 1])
            # What follows the table in sentences has no columns.
            body = itertools.takewhile(re.compile(r".*\S {2,}\S").match, lines[at + 1 :])
            firsts = (re.match(r" *(?:\S+ ?)*", line) for line in body)
            tables.append([*cells, *(first[0].strip() for first in firsts if first)])
    return [[re.sub(r"\d[\d.,]*", "0", cell) for cell in table] for table in tables]


@pytest.mark.slow
def test_the_section_of_readme_has_the_shape_of_what_the_command_prints(
    found: dict[str, Any],
) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    [section] = re.findall(r"<!-- bench -->\n```text\n(.*?)```\n", readme, re.DOTALL)
    tables = [Table(**{**each, "lines": [Line(**line) for line in each["lines"]]})
              for each in found["tables"]]  # fmt: skip
    printed = shape_of(render(found["about"], tables))

    assert len(printed) == len(PARTS)
    assert shape_of(section)[: len(printed)] == printed
    assert re.match(r"commit +[0-9a-f]{7,}", section)
    for name in found["about"]:
        assert re.search(rf"^{name} ", section, re.MULTILINE)


@pytest.mark.slow
def test_a_killed_agent_pays_for_nothing_twice_and_gets_no_call_unasked(
    found: dict[str, Any],
) -> None:
    crash = figures(found, "crash")
    tokens, money = crash["tokens paid again, each kill"], crash["money for them (gpt-4o)"]
    assert tokens["ours_tokens"] == money["ours_usd"] == 0
    assert tokens["direct_tokens"] > 10_000
    assert money["direct_usd"] > 0.01
    assert crash["kills in a row survived"] == {"direct_kills": 0, "ours_kills": 10}
    assert crash["guarded calls held for a person"] == {"direct_calls": 0, "ours_calls": 7}
    assert crash["questions asked of that person"]["ours_count"] == 7


@pytest.mark.slow
def test_no_chunk_is_lost(found: dict[str, Any]) -> None:
    [lost] = [each for what, each in figures(found, "streams").items() if "lost" in what]
    assert lost == {"direct_lost": 0, "ours_lost": 0}


@pytest.mark.slow
def test_replays_are_not_grossly_slower_than_a_bare_server_is(found: dict[str, Any]) -> None:
    calls = figures(found, "calls")
    assert calls["replay, 1 client"]["p50_to_bare"] < SLACK * 2.5
    assert calls["replay, 16 clients"]["rate_to_bare"] > 0.40 / SLACK


@pytest.mark.slow
def test_a_large_replay_costs_what_a_bare_server_takes_to_read_it(found: dict[str, Any]) -> None:
    assert figures(found, "sizes")["replay, 1 MB"]["p50_to_bare"] < SLACK


@pytest.mark.slow
def test_a_run_stays_small_on_disk(found: dict[str, Any]) -> None:
    [step] = [each for what, each in figures(found, "footprint").items() if "steps that" in what]
    assert step["sent_bytes"] > 25e6
    assert step["step_disk_bytes"] < 5_000  # it sends 300,000
