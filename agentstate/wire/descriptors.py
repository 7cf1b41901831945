"""Open files, of which a process may have only so many: a socket is one.

Out of them a server can neither accept nor go upstream. So the limit is raised as far as it goes at
the start, no more clients are served than fit, and should they run out all the same, it is said
once in a while: asyncio reports each connection that it could not accept, which fills a disk.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

from agentstate.ground.clock import monotonic_s

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

log = logging.getLogger("agentstate.server")

SPARE_FILES = 64  # the record and its readers, logs, webhooks, what Python itself has open
FILES_PER_CLIENT = 2  # its socket, and one upstream
SAID_EVERY_S = 60.0
_OUT_OF_THEM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def raise_limit() -> int | None:
    """Let this process open as many files as it may; return how many. None = it is not known."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS calls the hard one infinite, and takes less
        return soft
    return None if hard == resource.RLIM_INFINITY else hard


def clients_that_fit(limit: int | None, wanted: int) -> int:
    """Return how many of `wanted` client connections can be open at once with `limit` files."""
    if limit is None:
        return wanted
    return max(1, min(wanted, (limit - SPARE_FILES) // FILES_PER_CLIENT))


def handler_of_failed_accepts(
    clock: Callable[[], float] = monotonic_s,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return an exception handler for an event loop: what asyncio does, but for connections that
    could not be accepted, of which it speaks once a minute."""
    said_s: float | None = None

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said_s
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _OUT_OF_THEM and "socket" in context):
            loop.default_exception_handler(context)
        elif said_s is None or clock() - said_s >= SAID_EVERY_S:
            said_s = clock()
            log.error(
                "new connections wait: %s. What is open goes on; raise the limit of open files "
                "(ulimit -n, LimitNOFILE=), or lower server.connections_max",
                (error.strerror or str(error)).lower(),
            )

    return handle
