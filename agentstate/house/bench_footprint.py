"""What the proxy takes of a machine: memory, disk, and time to start.

Everything is measured at proxies of its own, on records of their own, so that nothing another part
of the bench did counts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agentstate.ground.clock import monotonic_s
from agentstate.house.bench_load_streams import Story
from agentstate.house.bench_stand import (
    PATH,
    BenchFailed,
    Load,
    Stand,
    Turn,
    ask,
    ask_with_body,
    environment,
    words,
)
from agentstate.house.bench_streams import read_streams
from agentstate.house.bench_table import Line, Table
from agentstate.house.launch import Proxy, child, module_command, wait_for_line

CALLS, CALLS_QUICK = 10_000, 1_000
CALL_CLIENTS = 16
CALLS_MAX_S = 60.0  # a machine that is slower than that has fewer calls measured
RUN_STEPS = 100
STEP_CHARS = 6_000  # that each step adds to the conversation: 100 steps send 30 MB
STARTS = 3
CROWD, CROWD_QUICK = 1_000, 200  # streams that are open at once
CROWD_STORY, CROWD_STAGGER_S = Story(6, 1.0, 0), 2.0  # all are open for the last three seconds
MOCK_PATH = "/v1/chat/completions"
ASKED = ({"role": "user", "content": "Are you there?"},)
MIB = 1024 * 1024

_BANNER = re.compile(r"^AgentState listening on http://(.+):(\d+)\s*$")
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What was found."""

    idle_bytes: int | None  # resident; None = this system does not say
    after_bytes: int | None
    calls: int  # that lie between the two
    crowd: int  # streams that were open at once
    peak_bytes: int | None  # the most that another process had meanwhile
    empty_disk_bytes: int  # of a record that nothing was written to
    call_disk_bytes: int  # of the record with all of the calls
    run_steps: int
    run_sent_bytes: int  # of request bodies
    run_disk_bytes: int  # of the record with the run
    start_s: float  # to the first answer
    program: str  # what was started


def measure(stand: Stand) -> Table:
    """Measure everything."""
    calls = CALLS_QUICK if stand.is_quick else CALLS
    with ExitStack() as stack:
        server = stand.start_proxy(stack, "calls")
        ask(server, b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        idle = read_resident(server.pid)
        load = Load("footprint", "new", CALL_CLIENTS)
        done = stand.run(Turn(load, server.port, is_ours=True), CALLS_MAX_S, calls)
        after = read_resident(server.pid)
    call_disk = disk_bytes(stand.folder / "calls.db")
    crowd = CROWD_QUICK if stand.is_quick else CROWD
    with ExitStack() as stack:
        server = stand.start_proxy(stack, "crowd")
        read_streams(stand, server.port, crowd, CROWD_STORY, CROWD_STAGGER_S)
        peak = read_resident(server.pid, _PEAK)
    with ExitStack() as stack:
        stand.start_proxy(stack, "empty")
    with ExitStack() as stack:
        sent = _run_agent(stand.start_proxy(stack, "run"), RUN_STEPS)
    command, program = _serve_command(stand.folder)
    starts = [_start_s(command, stand.folder) for _ in range(STARTS + 1)]
    found = Footprint(
        idle, after, done.count, crowd, peak,
        disk_bytes(stand.folder / "empty.db"), call_disk, RUN_STEPS, sent,
        disk_bytes(stand.folder / "run.db"), median(starts[1:]), program,
    )  # fmt: skip
    return compare(found)


def compare(found: Footprint) -> Table:
    """Make the table. Pure."""
    per_call = (found.call_disk_bytes - found.empty_disk_bytes) / found.calls
    per_step = (found.run_disk_bytes - found.empty_disk_bytes) / found.run_steps
    lines = [
        *_memory_lines(found),
        Line(
            "disk, an empty record",
            (f"{found.empty_disk_bytes / 1000:,.0f} kB",),
            {"empty_disk_bytes": found.empty_disk_bytes},
        ),
        Line(
            f"disk, each of {found.calls:,} calls of 1 KB",
            (f"{per_call:,.0f} bytes",),
            {"call_disk_bytes": per_call},
        ),
        Line(
            f"disk, each of {found.run_steps} steps that sent {found.run_sent_bytes / 1e6:.0f} MB",
            (f"{per_step:,.0f} bytes",),
            {"step_disk_bytes": per_step, "sent_bytes": found.run_sent_bytes},
        ),
        Line(
            "  the whole record of that run",
            (f"{found.run_disk_bytes / 1000:,.0f} kB",),
            {"run_disk_bytes": found.run_disk_bytes},
            "<= 500 kB",
            found.run_disk_bytes <= 500_000,
        ),
        Line(
            "cold start to the first answer",
            (f"{found.start_s:.2f} s ({found.program})",),
            {"start_s": found.start_s},
            "<= 0.6 s",
            found.start_s <= 0.6,
        ),
    ]
    return Table(
        "footprint",
        "what it takes",
        ("AgentState",),
        tuple(lines),
        (
            "Memory is resident memory of the whole process. Disk is the database and its log once "
            "the proxy has stopped, all indexes and empty pages with it. The first start is not "
            "counted: it unpacks.",
        ),
    )


def _memory_lines(found: Footprint) -> list[Line]:
    if found.idle_bytes is None or found.after_bytes is None or found.peak_bytes is None:
        return [Line("memory", ("not measured: no /proc here",), {})]
    ratio = found.after_bytes / found.idle_bytes
    return [
        Line(
            "memory, idle",
            (f"{found.idle_bytes / MIB:.1f} MiB",),
            {"idle_bytes": found.idle_bytes},
            "<= 50 MiB",
            found.idle_bytes <= 50 * MIB,
        ),
        Line(
            f"memory after {found.calls:,} new calls",
            (f"{found.after_bytes / MIB:.1f} MiB ({ratio:.2f} x idle)",),
            {"after_bytes": found.after_bytes, "after_to_idle": ratio},
            "<= 1.2 x idle",
            ratio <= 1.2,
        ),
        Line(
            f"memory with {found.crowd:,} streams at once, at most",
            (f"{found.peak_bytes / MIB:.1f} MiB",),
            {"peak_bytes": found.peak_bytes},
            "<= 150 MB",
            found.peak_bytes <= 150_000_000,
        ),
    ]


def read_resident(pid: int, which: re.Pattern[str] = _RESIDENT) -> int | None:
    """Return a process's resident memory in bytes; None where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return None
    found = which.search(text)
    return None if found is None else int(found[1]) * 1024


def disk_bytes(db: Path) -> int:
    """Return what a database takes, with its log."""
    return sum(path.stat().st_size for path in db.parent.glob(f"{db.name}*"))


def _run_agent(server: Proxy, steps: int) -> int:
    """Take the steps of a conversation that grows; return how many bytes its requests had."""
    messages: list[dict[str, str]] = []
    sent = 0
    for step in range(steps):
        messages.append({"role": "user", "content": words(STEP_CHARS, seed=step + 2)})
        status, body_bytes, answer = ask_with_body(server, PATH, "run", messages)
        if status != 200:
            raise BenchFailed(f"The proxy answered {status}: {answer[:500]!r}")
        sent += body_bytes
        messages.append({"role": "assistant", "content": f"word {step}"})
    return sent


def _serve_command(folder: Path) -> tuple[list[str], str]:
    """Return the command that starts the proxy as this program was started, and its name."""
    flags = ("--host", "127.0.0.1", "--port", "0", "--mock", "--db", str(folder / "start.db"))
    program = Path(sys.argv[0])
    if program.suffix == ".pyz" and program.exists():
        return [sys.executable, "-u", str(program.resolve()), "serve", *flags], "the .pyz"
    return module_command("agentstate", "serve", *flags), "the package"


def _start_s(command: list[str], folder: Path) -> float:
    """Start the proxy, get one answer; return how long that took."""
    began_s = monotonic_s()
    with child(command, folder, environ=environment()) as process:
        server = _wait(process)
        status, _, answer = ask_with_body(server, MOCK_PATH, "start", ASKED)
        took_s = monotonic_s() - began_s
    if status != 200:
        raise BenchFailed(f"The first answer was {status}: {answer[:500]!r}")
    return took_s


def _wait(process: subprocess.Popen[str]) -> Proxy:
    found = wait_for_line(process, _BANNER)
    return Proxy(found[1], int(found[2]), process.pid)
