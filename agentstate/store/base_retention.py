"""The store, as far as making room needs it: which sessions may go, and that one goes.

A part of `Store` (`base.py`), whose promises hold here as well. A session may go if nothing was
heard of it since `quiet_since_ms` and nobody would miss it at once. One stays that

- has a call in flight, or a person is asked about, with time left at `at_ms`;
- a person has paused, or tagged `ground.retention.KEEP_TAG`;
- has a durable tool call that has not ended: the mark that it was begun is what keeps it from
  happening twice.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.retention import Quiet


class RetentionStore(Protocol):
    """What is read and done to make room."""

    async def list_quiet(self, *, quiet_since_ms: int, at_ms: int, limit: int) -> tuple[Quiet, ...]:
        """Return sessions that may go, those longest quiet first."""
        ...

    async def retire_session(self, quiet: Quiet, *, quiet_since_ms: int, at_ms: int) -> bool:
        """Delete a session as `delete_session` does, if it still may go and nothing was heard of it
        since it was listed; return whether it was deleted."""
        ...
