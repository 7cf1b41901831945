"""Where work on a value runs: here, or in a thread if it would keep the event loop too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

# Reading a stream of this size and writing it again takes some milliseconds.
HERE_BYTES_MAX = 64 * 1024

T = TypeVar("T")


async def run(work: Callable[[], T], size: int) -> T:
    """Do `work` on `size` bytes."""
    return work() if size <= HERE_BYTES_MAX else await asyncio.to_thread(work)
