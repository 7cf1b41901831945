"""Work that several wait for and that is done once. A task of its own does it: once it is paid for,
it is finished, whoever leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from agentstate.ground.errors import AgentStateError
from agentstate.ground.tasks import TaskSet

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Once(Generic[K, T]):
    """The work that is being done, by what it is."""

    def __init__(self, tasks: TaskSet, name: str) -> None:
        """`name` is what the tasks are called, for logs."""
        self._tasks = tasks
        self._name = name
        self._doing: dict[K, asyncio.Task[T | AgentStateError]] = {}

    async def run(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` gives: begun now, or what was begun for this key and is not done.

        Raises:
            AgentStateError: what it raises.
        """
        task = self._doing.get(key)
        if task is None:
            task = self._tasks.start(_caught(work), self._name)
            self._doing[key] = task
            task.add_done_callback(lambda _: self._doing.pop(key, None))
        # An error is the value of the task: as its end it would be a fault that nobody expected.
        done = await asyncio.shield(task)
        if isinstance(done, AgentStateError):
            raise done
        return done


async def _caught(work: Callable[[], Coroutine[Any, Any, T]]) -> T | AgentStateError:
    try:
        return await work()
    except AgentStateError as error:
        return error
