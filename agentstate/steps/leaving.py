"""Work for a client that is left as soon as the client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from agentstate.wire.message import Request

T = TypeVar("T")


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Do `work`, and leave off when the client does.

    Raises:
        ConnectionError: the client left before it was done.
    """
    is_over = False
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as patience:

            def leave() -> None:
                if not is_over:
                    patience.reschedule(loop.time())

            request.on_gone(leave)
            try:
                return await work
            finally:
                is_over = True
    except TimeoutError as error:
        raise ConnectionResetError("the client left before an upstream answered") from error
