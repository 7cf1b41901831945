"""What the proxy adds to streams, how many it keeps up with, what a slow reader does to others.

Each chunk carries the moment it was sent (`bench_load_streams.py`), so what is measured is how long
every one took to come, beside the same streams without the proxy in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from agentstate.house.bench_load_streams import Story
from agentstate.house.bench_stand import BenchFailed, Load, Stand, make_request
from agentstate.house.bench_table import Line, Table, pair, percentile

STREAMS = 32
INTERVAL_MS = 20
CHUNKS, CHUNKS_QUICK = 50, 15  # of each stream
CROWDS, CROWDS_QUICK = (64, 128, 256, 512), (32, 64)  # how many streams are tried at once
STALL_MS = 100.0  # a chunk that comes so late is a stall: five tokens at a time
OTHERS = 16  # streams beside a slow one
SLOW_CHUNKS, SLOW_PAD = 80, 100_000  # of the one that nobody reads: 8 MB


@dataclass(frozen=True, slots=True)
class Flow:
    """How a number of streams came through, all of them together."""

    first_p50_ms: float
    first_p99_ms: float
    delay_p50_ms: float  # of a chunk, from its sending
    delay_p99_ms: float
    delay_max_ms: float
    lost: int  # chunks that were sent and did not come, or came in another order

    @property
    def is_smooth(self) -> bool:
        """Whether nothing was lost and nothing stalled."""
        return self.lost == 0 and self.delay_max_ms < STALL_MS


def measure(stand: Stand) -> Table:
    """Measure streams side by side, then more and more of them, then beside a slow one."""
    chunks = CHUNKS_QUICK if stand.is_quick else CHUNKS
    pairs = [(_run(stand, STREAMS, chunks, False), _run(stand, STREAMS, chunks, True))
             for _ in range(stand.rounds)]  # fmt: skip
    direct, ours = (middle_of([each[at] for each in pairs]) for at in (0, 1))
    crowds = {}
    for count in CROWDS_QUICK if stand.is_quick else CROWDS:
        crowds[count] = (_run(stand, count, chunks, False), _run(stand, count, chunks, True))
        if not crowds[count][1].is_smooth:
            break
    alone, beside = [], []
    for _ in range(stand.rounds):
        alone.append(_run(stand, OTHERS, chunks, True))
        beside.append(_run(stand, OTHERS, chunks, True, slow=1))
    return compare(direct, ours, crowds, middle_of(alone), middle_of(beside), chunks)


def compare(
    direct: Flow,
    ours: Flow,
    crowds: dict[int, tuple[Flow, Flow]],
    alone: Flow,
    beside: Flow,
    chunks: int,
) -> Table:
    """Make the table. Pure."""
    first = (ours.first_p50_ms - direct.first_p50_ms, ours.first_p99_ms - direct.first_p99_ms)
    delay = (ours.delay_p50_ms - direct.delay_p50_ms, ours.delay_p99_ms - direct.delay_p99_ms)
    lines = (
        _line(
            "time to the first chunk",
            (direct.first_p50_ms, direct.first_p99_ms),
            (ours.first_p50_ms, ours.first_p99_ms),
            first,
            "added p99 <= 3 ms",
            first[1] <= 3.0,
        ),
        _line(
            "each chunk, from its sending",
            (direct.delay_p50_ms, direct.delay_p99_ms),
            (ours.delay_p50_ms, ours.delay_p99_ms),
            delay,
            "added p99 <= 1 ms",
            delay[1] <= 1.0,
        ),
        Line(
            f"chunks lost of {STREAMS * chunks:,}",
            (f"{direct.lost}", f"{ours.lost}", ""),
            {"direct_lost": direct.lost, "ours_lost": ours.lost},
            "0",
            ours.lost == 0,
        ),
        _crowd_line(crowds),
        _line(
            f"chunks of {OTHERS} beside one that stalls *",
            (alone.delay_p50_ms, alone.delay_p99_ms),
            (beside.delay_p50_ms, beside.delay_p99_ms),
            (beside.delay_p50_ms - alone.delay_p50_ms, beside.delay_p99_ms - alone.delay_p99_ms),
            "none stalls",
            beside.is_smooth,
        ),
    )
    return Table(
        "streams",
        f"{STREAMS} streams, a token every {INTERVAL_MS} ms, ms p50 / p99",
        ("direct", "AgentState", "added"),
        lines,
        (
            f"A stall: a chunk that comes {STALL_MS:g} ms or more after it was sent; at once are "
            "tried more and more, until one stalls. The chunk that completes an answer waits for "
            "the disk and is none of these. * Both columns are by way of the proxy: without, and "
            f"with, a stream of {SLOW_CHUNKS * SLOW_PAD // 1_000_000} MB that its client never "
            "reads.",
        ),
    )


def middle_of(flows: list[Flow]) -> Flow:
    """Return the medians over the rounds; of losses the sum."""
    return Flow(
        median(flow.first_p50_ms for flow in flows),
        median(flow.first_p99_ms for flow in flows),
        median(flow.delay_p50_ms for flow in flows),
        median(flow.delay_p99_ms for flow in flows),
        median(flow.delay_max_ms for flow in flows),
        sum(flow.lost for flow in flows),
    )


def _line(
    what: str,
    before: tuple[float, float],
    after: tuple[float, float],
    added: tuple[float, float],
    goal: str,
    is_met: bool,
) -> Line:
    figures = {
        "direct_p50_ms": before[0],
        "direct_p99_ms": before[1],
        "ours_p50_ms": after[0],
        "ours_p99_ms": after[1],
        "added_p50_ms": added[0],
        "added_p99_ms": added[1],
    }
    return Line(what, (pair(*before), pair(*after), pair(*added)), figures, goal, is_met)


def _crowd_line(crowds: dict[int, tuple[Flow, Flow]]) -> Line:
    """Say how many streams went through without a stall, of those that were tried."""
    best = [
        max((count for count, flows in crowds.items() if flows[at].is_smooth), default=0)
        for at in (0, 1)
    ]
    most = max(crowds)
    return Line(
        "streams at once without a stall",
        (f"{best[0]} of {most}", f"{best[1]} of {most}", ""),
        {"direct_streams": best[0], "ours_streams": best[1]},
    )


def _run(stand: Stand, count: int, chunks: int, is_ours: bool, slow: int = 0) -> Flow:
    """Read so many streams side by side, by way of the proxy or without it."""
    port = stand.server.port if is_ours else stand.upstream_port
    story = Story(chunks, INTERVAL_MS / 1000, 0)
    found = read_streams(stand, port, count, story, 10 * story.interval_s, slow)
    return Flow(
        percentile(found["first_ms"], 50),
        percentile(found["first_ms"], 99),
        percentile(found["delays_ms"], 50),
        percentile(found["delays_ms"], 99),
        percentile(found["delays_ms"], 100),
        count * chunks - found["chunks"] + found["disordered"],
    )


def read_streams(
    stand: Stand, port: int, count: int, story: Story, stagger_s: float, slow: int = 0
) -> dict[str, Any]:
    """Have the load read so many streams side by side, begun within `stagger_s`, and leave `slow`
    others unread; return what `measure_streams` does.

    Raises:
        BenchFailed: one did not end as it should.
    """
    stand.streams_run += 1
    name = f"streams-{stand.streams_run}"
    found = stand.tell_load(
        name,
        {
            "kind": "streams",
            "port": port,
            "requests": _requests(name, count, story),
            "stalled": _requests(f"{name}-slow", slow, Story(SLOW_CHUNKS, 0.0, SLOW_PAD)),
            "stagger_s": stagger_s,
        },
    )
    if found["unfinished"] or not found["first_ms"]:
        raise BenchFailed(f"{found['unfinished']} of {count} streams did not end as they should.")
    return found


def _requests(name: str, count: int, story: Story) -> list[str]:
    load = Load(name, "new", count, stream=story.model)
    return [make_request(load, at).decode("latin-1") for at in range(count)]
