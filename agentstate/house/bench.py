"""Measures on this machine, in one run, what the proxy promises: the goals of DESIGN section 17.

A part is a function that measures and returns a table, and a row of `PARTS`. What they stand on is
`bench_stand.py`: the proxy with its real record on the disk, an instant upstream, a bare h11 server
as the yardstick, and one load. Where a goal has two bounds either will do, since machines differ.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agentstate import __version__
from agentstate.ground.errors import AgentStateError
from agentstate.house import (
    bench_calls,
    bench_crash,
    bench_footprint,
    bench_peers,
    bench_streams,
)
from agentstate.house.bench_stand import DURABILITY, Stand
from agentstate.house.bench_table import Table, as_json, render
from agentstate.house.launch import stoppable

NOT_MEASURED = (
    "real models and networks; TLS; more than one machine; a disk whose fsync is slower than this "
    "one's; the dashboard; what a tool of the agent does again after a crash (durable tools are "
    "for that)"
)
_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the bench."""

    name: str
    what: str  # it measures, for a person who waits
    measure: Callable[[Stand], Table]


PARTS = (
    Part("crash", "an agent that is killed again and again", bench_crash.measure),
    Part("calls", "replays and new calls", bench_calls.measure_calls),
    Part("sizes", "small bodies and large ones", bench_calls.measure_sizes),
    Part("streams", "streams", bench_streams.measure),
    Part("footprint", "memory, disk and start", bench_footprint.measure),
)


def run(
    json_output: bool = False,
    quick: bool = False,
    names: Sequence[str] = (),
    beside: Path | None = None,
) -> int:
    """Measure and print; return 0 when everything could be measured, goals met or not.

    names: of the parts to measure; none = all. beside: a file of other proxies; with it they are
    measured, and of the parts only those that are named.
    """
    parts = [part for part in PARTS if part.name in names or not (names or beside)]
    try:
        with stoppable(), ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentstate-")))
            stand = Stand(folder, is_quick=quick)
            stand.open(stack)
            if beside is not None:
                parts.append(_peers_part(bench_peers.read_peers(beside)))
            tables = [_measure(part, stand) for part in parts]
            about = describe(stand)
    except AgentStateError as error:
        print(f"The bench failed. {error.message}")
        return 1
    except KeyboardInterrupt:
        print("Stopped; everything the bench started has ended.")
        return 130
    if json_output:
        print(json.dumps(as_json(about, tables), indent=1))
    else:
        print(render(about, tables))
    return 0


def _peers_part(peers: Sequence[bench_peers.Peer]) -> Part:
    names = ", ".join(peer.name for peer in peers)
    return Part("peers", names, lambda stand: bench_peers.measure(stand, peers))


def _measure(part: Part, stand: Stand) -> Table:
    if sys.stderr.isatty():
        print(f"measuring {part.what} ...", file=sys.stderr, flush=True)
    return part.measure(stand)


def describe(stand: Stand) -> dict[str, str]:
    """Say what was measured, on what, and what was not."""
    fsync = f"{median(stand.fsyncs_ms):.2f} ms (median, in {stand.folder.parent})"
    return {
        "machine": f"{os.cpu_count()} cores, {read_processor()}, {platform.system()} "
        f"{platform.machine()}; {describe_load()}",
        "versions": f"AgentState {__version__}, Python {platform.python_version()}, "
        f"SQLite {read_sqlite_version(stand.db)}",
        "durability": f"{DURABILITY}: every new answer is fsynced before its end is sent",
        "fsync": fsync,
        "method": f"{stand.rounds} rounds of {stand.round_s:g} s, the servers in turn, medians; "
        f"access log off{'; --quick: a look, no measurement' if stand.is_quick else ''}",
        "not measured": NOT_MEASURED,
    }


def describe_load() -> str:
    """Say how busy the machine is with everything, the bench included."""
    if not hasattr(os, "getloadavg"):
        return "its load is not known"
    return f"load average {os.getloadavg()[0]:.1f} at the end, the bench included"


def read_processor() -> str:
    """Return the processor's name, as the system knows it."""
    try:
        found = _MODEL.search(Path("/proc/cpuinfo").read_text("utf-8", "replace"))
    except OSError:
        found = None
    return found[1] if found else platform.processor() or "unnamed processor"


def read_sqlite_version(db: Path) -> str:
    """Return the version of the SQLite library that last wrote a database, from its header.

    Source: sqlite.org/fileformat2.html section 1.3, offset 96.
    """
    with db.open("rb") as file:
        number = int.from_bytes(file.read(100)[96:100], "big")
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
