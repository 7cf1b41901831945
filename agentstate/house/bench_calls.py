"""What the proxy adds to a call: replays and new ones, few clients and many, small and large.

From outside it is the time by way of the proxy minus the time of asking the upstream directly; from
inside it is what the proxy says in `x-agentstate-overhead-ms`. Beside both, the bare h11 server:
what a server of this kind costs before it does anything of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from agentstate.house.bench_stand import Load, Stand, Turn
from agentstate.house.bench_table import Figure, Line, Table, pair

CLIENTS = (1, 16, 64)
SIZES = (
    ("1k tokens", 4 * 1024),
    ("10k tokens", 40 * 1024),
    ("100k tokens", 400 * 1024),
    ("1 MB", 1024 * 1024),
)  # fmt: skip  - four characters are a token
COLUMNS = ("direct", "bare h11", "AgentState", "added", "inside", "a second (of bare)")
KINDS = ("replay", "new")

Found = Mapping[str, Figure]  # by server: direct, bare, replay, new


def measure_calls(stand: Stand) -> Table:
    """Measure calls of 1 KB by the number of clients."""
    found = {clients: _measure(stand, f"c{clients}", clients, 1024) for clients in CLIENTS}
    return compare_calls(found, median(stand.fsyncs_ms))


def measure_sizes(stand: Stand) -> Table:
    """Measure calls of one client by the size of what is asked."""
    return compare_sizes({what: _measure(stand, f"s{size}", 1, size) for what, size in SIZES})


def compare_calls(found: Mapping[int, Found], fsync_ms: float) -> Table:
    """Hold the figures against the goals of DESIGN section 17. Pure."""
    lines: list[Line] = []
    for kind in KINDS:
        for clients, figures in found.items():
            ours, bare = figures[kind], figures["bare"]
            goal, is_met = _judge(kind, clients, ours, bare, fsync_ms)
            noun = "client" if clients == 1 else "clients"
            name = "new call" if kind == "new" else kind
            lines.append(_line(f"{name}, {clients} {noun}", kind, figures, goal, is_met))
    return Table(
        "calls",
        "1 KB, ms p50 / p99",
        COLUMNS,
        tuple(lines),
        (
            "added: by way of the proxy minus direct. inside: what the proxy says of itself in "
            "x-agentstate-overhead-ms, without what the client and the sockets cost, and without "
            "the upstream's time.",
        ),
    )


def compare_sizes(found: Mapping[str, Found]) -> Table:
    """Put the sizes under each other. Pure."""
    lines: list[Line] = []
    for what, figures in found.items():
        for kind in KINDS:
            has_goal = what == "1 MB" and kind == "replay"
            goal = "p50 <= 6 ms" if has_goal else ""
            is_met = figures[kind].p50_ms <= 6.0 if has_goal else None
            name = "new call" if kind == "new" else kind
            lines.append(_line(f"{name}, {what}", kind, figures, goal, is_met))
    return Table("sizes", "one client, ms p50 / p99", COLUMNS, tuple(lines))


def _measure(stand: Stand, name: str, clients: int, size: int) -> dict[str, Figure]:
    replay = Load(f"replay-{name}", "replay", clients, size)
    new = Load(f"new-{name}", "new", clients, size)
    stand.record(replay)
    return stand.take_turns(
        {
            "direct": Turn(new, stand.upstream_port),
            "bare": Turn(new, stand.bare_port),
            "replay": Turn(replay, stand.server.port, is_ours=True),
            "new": Turn(new, stand.server.port, is_ours=True),
        }
    )


def _judge(
    kind: str, clients: int, ours: Figure, bare: Figure, fsync_ms: float
) -> tuple[str, bool | None]:
    """Return the goal of a line, and whether it is met."""
    match kind, clients:
        case "replay", 1:
            is_met = ours.p50_ms <= 0.30 or ours.p50_ms <= 2.5 * bare.p50_ms
            return "p50 <= 0.30 ms or 2.5 x bare", is_met
        case "replay", 16:
            return ">= 40 % of bare", ours.rate >= 0.40 * bare.rate
        case "new", 1:
            goal = f"p50 <= 1 ms + one fsync ({fsync_ms:.2f} ms)"
            return goal, ours.p50_ms <= 1.0 + fsync_ms
        case "new", 64:
            is_met = ours.rate >= 1500 or ours.rate >= 0.20 * bare.rate
            return ">= 1,500/s or 20 % of bare", is_met
    return "", None


def _line(what: str, kind: str, figures: Found, goal: str, is_met: bool | None) -> Line:
    direct, bare, ours = figures["direct"], figures["bare"], figures[kind]
    added = (ours.p50_ms - direct.p50_ms, ours.p99_ms - direct.p99_ms)
    share = ours.rate / bare.rate
    cells = (
        direct.shown,
        bare.shown,
        ours.shown,
        pair(*added),
        pair(ours.inside_p50_ms, ours.inside_p99_ms),
        f"{ours.rate:,.0f} ({share:.0%})",
    )
    numbers = {
        "direct_p50_ms": direct.p50_ms,
        "direct_p99_ms": direct.p99_ms,
        "bare_p50_ms": bare.p50_ms,
        "bare_p99_ms": bare.p99_ms,
        "bare_rate": bare.rate,
        "ours_p50_ms": ours.p50_ms,
        "ours_p99_ms": ours.p99_ms,
        "ours_rate": ours.rate,
        "added_p50_ms": added[0],
        "added_p99_ms": added[1],
        "inside_p50_ms": ours.inside_p50_ms,
        "inside_p99_ms": ours.inside_p99_ms,
        "p50_to_bare": ours.p50_ms / bare.p50_ms,
        "rate_to_bare": share,
    }
    return Line(what, cells, numbers, goal, is_met)
