"""The only module that reads time.

Wall time is integer milliseconds UTC and goes into records. `monotonic_s` is for measuring and for
time limits and never goes into a record, since it means nothing after a restart.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Return wall-clock time in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def iso_moment(at_ms: int) -> str:
    """Return a wall-clock time for sentences, to the second: "2026-09-21T12:00:00+00:00"."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat("T", "seconds")


def process_s() -> float:
    """Return the seconds of processor time that this process has taken."""
    return time.process_time()


def monotonic_s() -> float:
    """Return seconds of a clock that never goes backwards; only differences mean anything."""
    return time.perf_counter()
