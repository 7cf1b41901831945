"""Background tasks that have an owner.

A bare `asyncio.create_task` may be collected in the middle and swallows its error. Here every task
belongs to a `TaskSet`, an error of ours is logged whole under the task's name, and closing waits a
bounded time and then cancels. `CancelledError` is never swallowed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("agentstate.tasks")


class TaskSet:
    """Owns tasks from `start` until they end or `close` ends them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` as a task called `name`; its failure is logged, not lost."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self, patience_s: float) -> int:
        """Wait up to `patience_s` for all tasks, cancel the rest; return how many that was."""
        tasks = set(self._tasks)
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=patience_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=patience_s)
        return len(late)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)
