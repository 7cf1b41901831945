"""Measures what the proxy adds, on this machine, beside the yardstick, in one run.

Processes: this one (starts, asks, prints), the proxy with its real record on the disk, an instant
upstream, the bare h11 server of `wire/bare.py`, and one load. Proxy and bare server take turns, so
that whatever else the machine does meets both; figures are medians over the rounds. The goals are
those of DESIGN section 17; where two are given, either will do, since machines differ.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import AgentStateError
from agentstate.house.bench_load import NONCE
from agentstate.house.launch import (
    ChildFailed,
    Proxy,
    child,
    module_command,
    proxy,
    stoppable,
    wait_for_line,
)

ROUNDS, ROUNDS_QUICK = 5, 3  # odd: the median is a round that was run
ROUND_S, ROUND_QUICK_S = 0.9, 0.3  # of load for one measurement; a whole run stays under a minute
WARM_S = 0.2  # of load before the first round: caches, pools, the adaptive interpreter
COUNT_MAX = 20_000  # requests of one measurement
BODY_BYTES = 1024
LARGE_BYTES = 1024 * 1024
FSYNCS = 9  # in each round
DURABILITY = "full"

_LISTENING = re.compile(r".* listening on http://(.+):(\d+)\s*$")

CONFIG = """\
[store]
durability = "{durability}"

[log]
level = "warning"

[[provider]]
name = "bench"
dialect = ["openai_chat"]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "bench"
"""

ANSWER = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "word " * 60, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 256, "completion_tokens": 60, "total_tokens": 316},
    }
)


@dataclass(frozen=True, slots=True)
class Figure:
    """What one kind of load found at one server: medians over the rounds."""

    p50_ms: float
    p99_ms: float
    rate: float  # answers a second


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    what: str
    goal: str
    is_met: bool
    ours: str
    bare: str
    ratio: float  # ours to bare, of the figure the goal is about


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of load. `name` keys the results; `kind` replay or new."""

    name: str
    kind: str
    clients: int
    body_bytes: int = BODY_BYTES


LOADS = (
    Load("replay_1", "replay", 1),
    Load("replay_16", "replay", 16),
    Load("new_1", "new", 1),
    Load("new_64", "new", 64),
    Load("replay_1mb", "replay", 1, LARGE_BYTES),
)


class BenchFailed(AgentStateError):
    """The measurement means nothing: something answered wrongly or not at all."""

    code = "bench_failed"


def run(json_output: bool = False, quick: bool = False) -> int:
    """Measure and print; return 0 when everything could be measured, goals met or not."""
    try:
        with stoppable(), ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentstate-")))
            bench = Bench(folder, quick=quick)
            figures = bench.measure(stack)
            lines = compare(figures, median(bench.fsyncs_ms))
            about = describe(folder, bench)
    except AgentStateError as error:
        print(f"The bench failed. {error.message}")
        return 1
    except KeyboardInterrupt:
        print("Stopped; everything the bench started has ended.")
        return 130
    if json_output:
        print(json.dumps({"about": about, "lines": [asdict(line) for line in lines]}, indent=1))
    else:
        print(render(about, lines))
    return 0


class Bench:
    """One run: its processes, while `measure` runs, and its settings."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.rounds = ROUNDS_QUICK if quick else ROUNDS
        self.round_s = ROUND_QUICK_S if quick else ROUND_S
        self.fsyncs_ms: list[float] = []
        self._folder = folder
        self._nonce = 0
        self._load: subprocess.Popen[str] | None = None

    def measure(self, stack: ExitStack) -> dict[str, tuple[Figure, Figure]]:
        """Start everything, measure every load; return (ours, bare) by name of load.

        Raises:
            BenchFailed, ChildFailed.
        """
        upstream_port = self._start(stack, "agentstate.house.bench_load", "upstream", ANSWER)
        config = self._folder / "bench.toml"
        config.write_text(CONFIG.format(port=upstream_port, durability=DURABILITY), "utf-8")
        flags = ("--config", str(config), "--db", str(self._folder / "bench.db"))
        server = stack.enter_context(proxy(self._folder, *flags))
        command = module_command("agentstate.house.bench_load", "load")
        self._load = stack.enter_context(child(command, self._folder, takes_input=True))
        response = self._folder / "response.http"
        response.write_bytes(self._record(server))
        bare_port = self._start(stack, "agentstate.wire.bare", str(response))

        rounds: dict[str, list[tuple[Figure, Figure]]] = {load.name: [] for load in LOADS}
        for load in LOADS:
            self._run(load, server.port, WARM_S, expects_ours=True)
            self._run(load, bare_port, WARM_S, expects_ours=False)
        for _ in range(self.rounds):
            self.fsyncs_ms += measure_fsyncs(self._folder)
            for load in LOADS:
                ours = self._run(load, server.port, self.round_s, expects_ours=True)
                bare = self._run(load, bare_port, self.round_s, expects_ours=False)
                rounds[load.name].append((ours, bare))
        return {
            name: (_median([ours for ours, _ in found]), _median([bare for _, bare in found]))
            for name, found in rounds.items()
        }

    def _start(self, stack: ExitStack, module: str, *arguments: str) -> int:
        """Start a server of ours and return its port."""
        process = stack.enter_context(child(module_command(module, *arguments), self._folder))
        return int(wait_for_line(process, _LISTENING)[2])

    def _record(self, server: Proxy) -> bytes:
        """Ask for what the replays will be asked for; return a replay as raw HTTP."""
        for load in LOADS:
            if load.kind != "replay":
                continue
            for _ in range(2):  # the first is recorded, the second replayed
                status, headers, body = _ask(server, make_request(load, 0))
                if status != 200:
                    raise BenchFailed(f"The proxy answered {status}: {body[:500]!r}")
            if headers.get("x-agentstate-cache-hit") != "true":
                raise BenchFailed("The proxy did not replay a call that it had just answered.")
        own = [f"{name}: {value}" for name, value in headers.items() if name.lower() != "date"]
        return "\r\n".join(["HTTP/1.1 200 OK", *own, "", ""]).encode("latin-1") + body

    def _run(self, load: Load, port: int, seconds: float, *, expects_ours: bool) -> Figure:
        hit = "true" if load.kind == "replay" else "false"
        plan = {
            "port": port,
            "requests": [make_request(load, at).decode("latin-1") for at in range(load.clients)],
            "expect": f"x-agentstate-cache-hit: {hit}\r\n" if expects_ours else "",
            "count_max": COUNT_MAX,
            "seconds_max": seconds,
            "first_nonce": self._nonce,
        }
        result = self._tell_load(plan)
        if "error" in result:
            raise BenchFailed(f"{load.name}: {result['error']}")
        self._nonce = result["nonce"]
        latencies = result["latencies_ms"]
        return Figure(
            p50_ms=latencies[len(latencies) // 2],
            p99_ms=latencies[min(len(latencies) * 99 // 100, len(latencies) - 1)],
            rate=len(latencies) / result["seconds"],
        )

    def _tell_load(self, plan: dict[str, Any]) -> dict[str, Any]:
        assert self._load is not None, "it is started before it is told anything"
        assert self._load.stdin is not None, "it takes input"
        assert self._load.stdout is not None, "its output is a pipe"
        told = ""
        try:
            self._load.stdin.write(json.dumps(plan) + "\n")
            self._load.stdin.flush()
            told = self._load.stdout.readline()
            result: dict[str, Any] = json.loads(told)
        except (OSError, ValueError) as error:
            raise ChildFailed(f"The load process failed: {told}") from error
        return result


def make_request(load: Load, client: int) -> bytes:
    """Return the raw request of a load's client; new calls get a nonce, replays are all equal."""
    is_new = load.kind == "new"
    task = NONCE.decode() if is_new else "again"
    session = f"bench-{load.name}-{client}" if is_new else f"bench-{load.name}"
    head = {"model": "bench", "temperature": 0.5}
    frame = json.dumps({**head, "messages": [{"role": "user", "content": f"{task} "}]})
    body = frame.replace(f"{task} ", f"{task} " + "x" * (load.body_bytes - len(frame)))
    return (
        "POST /p/bench/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        "content-type: application/json\r\nauthorization: Bearer bench\r\n"
        f"accept: application/json\r\nx-agent-session-id: {session}\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode("ascii")


def compare(figures: dict[str, tuple[Figure, Figure]], fsync_ms: float) -> list[Line]:
    """Hold the figures against the goals of DESIGN section 17. Pure."""
    one, bare_one = figures["replay_1"]
    many, bare_many = figures["replay_16"]
    new, bare_new = figures["new_1"]
    rush, bare_rush = figures["new_64"]
    large, bare_large = figures["replay_1mb"]
    return [
        Line(
            "replay, 1 KB, 1 client: p50",
            "<= 0.30 ms or <= 2.5 x bare",
            one.p50_ms <= 0.30 or one.p50_ms <= 2.5 * bare_one.p50_ms,
            f"{one.p50_ms:.3f} ms (p99 {one.p99_ms:.3f})",
            f"{bare_one.p50_ms:.3f} ms (p99 {bare_one.p99_ms:.3f})",
            one.p50_ms / bare_one.p50_ms,
        ),
        Line(
            "replay, 1 KB, 16 clients: rate",
            ">= 40 % of bare",
            many.rate >= 0.40 * bare_many.rate,
            f"{many.rate:,.0f}/s",
            f"{bare_many.rate:,.0f}/s",
            many.rate / bare_many.rate,
        ),
        Line(
            "new call, 1 client: p50",
            f"<= 1 ms + one fsync ({fsync_ms:.2f} ms)",
            new.p50_ms <= 1.0 + fsync_ms,
            f"{new.p50_ms:.3f} ms (p99 {new.p99_ms:.3f})",
            f"{bare_new.p50_ms:.3f} ms (p99 {bare_new.p99_ms:.3f})",
            new.p50_ms / bare_new.p50_ms,
        ),
        Line(
            "new call, 64 clients: rate",
            ">= 1,500/s or >= 20 % of bare",
            rush.rate >= 1500 or rush.rate >= 0.20 * bare_rush.rate,
            f"{rush.rate:,.0f}/s",
            f"{bare_rush.rate:,.0f}/s",
            rush.rate / bare_rush.rate,
        ),
        Line(
            "replay, 1 MB, 1 client: p50",
            "<= 6 ms",
            large.p50_ms <= 6.0,
            f"{large.p50_ms:.3f} ms (p99 {large.p99_ms:.3f})",
            f"{bare_large.p50_ms:.3f} ms (p99 {bare_large.p99_ms:.3f})",
            large.p50_ms / bare_large.p50_ms,
        ),
    ]


def measure_fsyncs(folder: Path) -> list[float]:
    """Append pages to a file, each synced; return the time each took, in milliseconds."""
    taken: list[float] = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            began_s = monotonic_s()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            taken.append((monotonic_s() - began_s) * 1000)
    return taken


def describe(folder: Path, bench: Bench) -> dict[str, str]:
    """Say what was measured on and with."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "sqlite": read_sqlite_version(folder / "bench.db"),
        "durability": f"{DURABILITY}: every new answer is fsynced before its end is sent",
        "fsync": f"{median(bench.fsyncs_ms):.2f} ms (median, in {folder.parent})",
        "method": f"{bench.rounds} rounds of {bench.round_s:g} s, proxy and bare h11 in turn, "
        "medians; access log off",
    }


def read_sqlite_version(db: Path) -> str:
    """Return the version of the SQLite library that last wrote a database, from its header.

    Source: sqlite.org/fileformat2.html section 1.3, offset 96.
    """
    with db.open("rb") as file:
        number = int.from_bytes(file.read(100)[96:100], "big")
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def render(about: dict[str, str], lines: list[Line]) -> str:
    """Return the table as text."""
    told = [f"{name:<11} {value}" for name, value in about.items()]
    rows = [("what", "goal", "AgentState", "bare h11", "ratio", "")]
    rows += [
        (ln.what, ln.goal, ln.ours, ln.bare, f"{ln.ratio:.2f}", "met" if ln.is_met else "MISSED")
        for ln in lines
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([*told, "", table[0], "-" * len(table[0]), *table[1:]])


def _median(figures: list[Figure]) -> Figure:
    def middle(read: Callable[[Figure], float]) -> float:
        return median(map(read, figures))

    return Figure(
        middle(lambda figure: figure.p50_ms),
        middle(lambda figure: figure.p99_ms),
        middle(lambda figure: figure.rate),
    )


def _ask(server: Proxy, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a raw request on a connection of its own; return status, headers and body."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    method, path, _ = first.split(" ")
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    try:
        connection.request(method, path, body, dict(line.split(": ", 1) for line in lines))
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise BenchFailed(f"The proxy did not answer: {error}.") from error
    finally:
        connection.close()
