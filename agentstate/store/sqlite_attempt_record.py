"""What the writer thread runs for attempts: they are added to their step, in order.

As in `sqlite_record.py`, which calls this, it runs inside a transaction of its caller's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from agentstate.ground.records import Attempt
from agentstate.store.base import readable
from agentstate.store.sqlite_columns import maybe_readable


class AttemptRecorder:
    """Adds attempts, by the writing connection's `execute`."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute

    _ADD_ATTEMPT = """
        insert into attempt (
          step_id, position, provider, model, started_ms, ended_ms, status, error_code, error,
          first_byte_ms, dropped, excerpt
        )
        values (
          ?, (select coalesce(max(position) + 1, 0) from attempt where step_id = ?),
          ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
        )
        """

    def add(self, step_id: int, attempts: Iterable[Attempt]) -> None:
        """Write attempts after those that are there."""
        for attempt in attempts:
            dropped = [readable(name) for name in attempt.dropped]
            columns = (
                step_id,
                step_id,
                readable(attempt.provider),
                readable(attempt.model),
                attempt.started_ms,
                attempt.ended_ms,
                attempt.status,
                attempt.error_code,
                maybe_readable(attempt.error),
                attempt.first_byte_ms,
                json.dumps(dropped) if dropped else None,
                attempt.excerpt,
            )
            self._execute(self._ADD_ATTEMPT, columns)
