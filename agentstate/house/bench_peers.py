"""Other proxies beside this one: the same load before the same upstream, round about.

What is measured is new calls, since none of them replays; of the proxies measured this one alone
puts every answer on the disk before it passes it on. A peer is described by a row of a file that
`build.py bench --against` writes once it has installed them; nothing is installed here.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

from agentstate.ground.clock import monotonic_s
from agentstate.house.bench_footprint import MIB, read_resident
from agentstate.house.bench_stand import BenchFailed, Load, Stand, Turn, ask, environment
from agentstate.house.bench_stand import make_request as request_of
from agentstate.house.bench_table import Figure, Line, Table, middle_of
from agentstate.house.launch import Proxy, child

CLIENTS = (1, 16, 64)
START_S = 180.0  # a peer that has not answered by then will not
POLL_S = 0.1
WARM_S = 1.0
OURS = "AgentState"

_SESSION = re.compile(r"^\d+ \(.*\) \S \d+ \d+ (\d+) ", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another proxy, as the file describes it. Texts may hold {port}, {upstream}, {folder}."""

    name: str
    version: str
    command: tuple[str, ...]
    path: str
    headers: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str]  # by name, written to {folder} before it starts


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that is being measured."""

    label: str
    port: int
    pid: int
    start_s: float  # to its first answer
    peer: Peer | None = None  # None = ours


def read_peers(file: Path) -> tuple[Peer, ...]:
    """Read the file's rows.

    Raises:
        BenchFailed: it cannot be read, or is not of that form.
    """
    try:
        rows: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
        return tuple(
            Peer(**{**row, "command": tuple(row["command"]), "headers": tuple(row["headers"])})
            for row in rows
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BenchFailed(
            f"{file} should be a list of peers as `build.py bench --against` writes it: {error}."
        ) from error


def measure(stand: Stand, peers: Sequence[Peer]) -> Table:
    """Start the peers, measure all in turn, and end them."""
    with ExitStack() as stack:
        began_s = monotonic_s()
        server = stand.start_proxy(stack, "peers")
        status, _, body = ask(server, request_of(Load("first", "new", 1), 0))
        if status != 200:
            raise BenchFailed(f"The proxy answered {status}: {body[:300]!r}")
        running = [Running(OURS, server.port, server.pid, monotonic_s() - began_s)]
        for peer in peers:
            running.append(stack.enter_context(_started(stand, peer)))
        memory = [_resident(each.pid) for each in running]
        rounds = {clients: _measure(stand, running, clients) for clients in CLIENTS}
    return compare([each.label for each in running], rounds, memory,
                   [each.start_s for each in running], stand.rounds)  # fmt: skip


def compare(
    labels: Sequence[str],
    rounds: Mapping[int, Sequence[Sequence[Figure]]],  # by clients; for each label its rounds
    memory: Sequence[int | None],
    starts: Sequence[float],
    count: int,
) -> Table:
    """Make the table. Ours is the first of each sequence. Pure."""
    lines: list[Line] = []
    for clients, found in rounds.items():
        noun = "client" if clients == 1 else "clients"
        middles = [middle_of(figures) for figures in found]
        lines.append(
            Line(
                f"{clients} {noun}, ms p50 / p99",
                tuple(middle.shown for middle in middles),
                {f"{label}_p50_ms": mid.p50_ms for label, mid in zip(labels, middles, strict=True)},
            )
        )
        lines.append(
            Line(
                "  answers a second",
                tuple(f"{middle.rate:,.0f}" for middle in middles),
                {f"{label}_rate": mid.rate for label, mid in zip(labels, middles, strict=True)},
            )
        )
        ratios = [_ratios(found[0], theirs) for theirs in found[1:]]
        lines.append(
            Line(
                "  of ours, median (least to most)",
                ("1", *(f"{median(r):.2f} ({min(r):.2f} to {max(r):.2f})" for r in ratios)),
                {
                    f"{label}_to_ours": median(each)
                    for label, each in zip(labels[1:], ratios, strict=True)
                },
            )
        )
    lines.append(
        Line(
            "memory before the load",
            tuple("?" if each is None else f"{each / MIB:.0f} MiB" for each in memory),
            {f"{label}_bytes": each or 0 for label, each in zip(labels, memory, strict=True)},
        )
    )
    lines.append(
        Line(
            "start to the first answer",
            tuple(f"{each:.1f} s" for each in starts),
            {f"{label}_start_s": each for label, each in zip(labels, starts, strict=True)},
        )
    )
    return Table(
        "peers",
        "new calls of 1 KB, an instant upstream",
        tuple(labels),
        tuple(lines),
        (
            f"{count} rounds, one proxy after another in each; the ratio is that of answers a "
            "second in the same round. AgentState alone has written every answer to the disk, and "
            "synced it, before it passed it on; the others keep nothing. Each runs as one process, "
            "as it does by default.",
        ),
    )


def _ratios(ours: Sequence[Figure], theirs: Sequence[Figure]) -> list[float]:
    return [their.rate / our.rate for our, their in zip(ours, theirs, strict=True)]


def _measure(stand: Stand, running: Sequence[Running], clients: int) -> list[list[Figure]]:
    """Return the rounds of each."""
    turns = [_turn(stand, each, Load(f"peers-{clients}", "new", clients)) for each in running]
    for turn in turns:
        stand.run(turn, WARM_S)
    found: list[list[Figure]] = [[] for _ in turns]
    for _ in range(stand.rounds):
        for at, turn in enumerate(turns):
            found[at].append(stand.run(turn, stand.round_s))
    return found


def _turn(stand: Stand, running: Running, load: Load) -> Turn:
    if running.peer is None:
        return Turn(load, running.port, is_ours=True)
    headers = tuple(_filled(stand, each, running.port) for each in running.peer.headers)
    return Turn(load, running.port, path=running.peer.path, headers=headers)


@contextmanager
def _started(stand: Stand, peer: Peer) -> Iterator[Running]:
    """Run a peer until the `with` ends; it has answered once."""
    port = _free_port()
    for name, text in peer.files.items():
        (stand.folder / name).write_text(_filled(stand, text, port), "utf-8")
    command = [_filled(stand, word, port) for word in peer.command]
    began_s = monotonic_s()
    with child(command, stand.folder, environ=environment(**peer.environment)) as process:
        said: list[str] = []
        threading.Thread(target=_listen, args=(process.stdout, said), daemon=True).start()
        server = Proxy("127.0.0.1", port, process.pid)
        load = Load("first", "replay", 1)
        turn = _turn(stand, Running(peer.name, port, process.pid, 0.0, peer), load)
        raw = request_of(load, 0, turn.path, turn.headers)
        problem = "it did not answer"
        while monotonic_s() - began_s < START_S and process.poll() is None:
            try:
                status, _, body = ask(server, raw)
            except BenchFailed as error:
                problem = error.message
            else:
                if status == 200:
                    took_s = monotonic_s() - began_s
                    label = f"{peer.name} {peer.version}"
                    yield Running(label, port, process.pid, took_s, peer)
                    return
                problem = f"it answered {status}: {body[:300]!r}"
            threading.Event().wait(POLL_S)
        words = "".join(said[-20:])
        raise BenchFailed(f"{peer.name} could not be measured: {problem} It said:\n{words}")


def _filled(stand: Stand, text: str, port: int) -> str:
    values = {"port": port, "upstream": stand.upstream_port, "folder": stand.folder}
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _listen(pipe: IO[str] | None, said: list[str]) -> None:
    """Keep what a child says, so that it never waits for a reader."""
    assert pipe is not None
    try:
        said.extend(pipe)
    except ValueError:
        pass  # the pipe was closed under us: the child has ended


def _resident(session: int) -> int | None:
    """Return the memory of a process and of all it started: children of ours lead a session."""
    found = [read_resident(pid) for pid in _pids_of(session)]
    return sum(each for each in found if each is not None) if found else None


def _pids_of(session: int) -> list[int]:
    pids: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            match = _SESSION.match(path.read_text("utf-8", "replace"))
        except OSError:
            continue  # it ended meanwhile
        if match is not None and int(match[1]) == session:
            pids.append(int(path.parent.name))
    return pids
