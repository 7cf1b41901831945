"""However much is on record, export holds one conversation and a few numbers for each step."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from pathlib import Path

import pytest

from agentstate.house.export_base import Example, Wanted
from agentstate.house.export_examples import examples
from agentstate.house.export_threads import trace
from agentstate.store.base import Store
from tests.helpers.recording import record, run_on
from tests.house.export_calls import Body, asking, called, chat, result, tool_of, user

AT_ONCE = 50  # runs that are recorded at the same time, so that they share commits
MIB = 1024 * 1024


async def record_runs(store: Store, runs: int, steps: int, *, session: str | None = None) -> None:
    """Record runs of an agent that calls a tool at each step, each in its session."""
    may_run = asyncio.Semaphore(AT_ONCE)

    async def run(number: int) -> None:
        async with may_run:
            history: list[Body] = [user(f"task {number}")]
            for step in range(steps):
                call_id = f"call_{number}_{step}"
                calls = called((call_id, "get", f'{{"q": "{step}"}}'))
                body = asking(*history, tools=[tool_of("get")])
                await record(store, body, chat(calls), session=session or f"s{number}")
                history += [calls, result(call_id, f"result {step} of {number} " * 6)]

    await asyncio.gather(*map(run, range(runs)))


async def watch(store: Store, line_count: int) -> tuple[int, int]:
    """Export all; return the memory that Python had at most in the first quarter, and after it."""
    seen, peaks = 0, list[int]()
    tracemalloc.start()
    try:
        async for example in examples(store, Wanted()):
            seen += 1
            assert isinstance(example, Example)
            assert example.messages[-1]["role"] == "assistant"
            if seen in (line_count // 4, line_count):
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.reset_peak()
    finally:
        tracemalloc.stop()
    assert seen == line_count
    return peaks[0], peaks[1]


@pytest.mark.slow
def test_more_sessions_take_no_more_memory(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        await record_runs(store, 200, 3)
        first, rest = await watch(store, 200)
        # A line is remembered with some thirty bytes.
        assert rest < first + 200 * 1024

    run_on(tmp_path / "record.db", scenario)


@pytest.mark.slow
def test_a_long_session_takes_some_bytes_a_step(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        await record_runs(store, 1000, 1, session="s")
        tracemalloc.start()
        threads = await trace(store, "s", Wanted())
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(list(threads.leaves())) == 1000
        assert kept < 1000 * 60 + 200 * 1024

    run_on(tmp_path / "record.db", scenario)


@pytest.mark.long
def test_a_hundred_thousand_steps_take_the_memory_of_a_few(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        await record_runs(store, 1000, 100)
        seen, first = 0, 0
        async for _ in examples(store, Wanted()):
            seen += 1
            first = resident_bytes() if seen == 20 else first
        assert seen == 1000
        assert resident_bytes() < first + 16 * MIB

    run_on(tmp_path / "record.db", scenario)


def resident_bytes() -> int:
    """Return what this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
