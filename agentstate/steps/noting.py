"""Writing what a replay changes of the record, though its answer is there already."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from agentstate.ground.errors import Deleted, NotFound, StoreError

log = logging.getLogger("agentstate.steps")


async def noted(session: str, writing: Awaitable[None], *, must: bool) -> None:
    """Write what a replay changes; where the disk is to hinder nothing (not `must`), go on without.

    Raises:
        Deleted: the session is gone.
        StoreError: it could not be written, and must.
    """
    try:
        await writing
    except NotFound as error:
        raise Deleted.of(session) from error
    except StoreError as error:
        if must:
            raise
        log.error("what a call changes of its session could not be noted: %s", error.message)
