"""The store, as far as export needs it: sessions from first to last, and which steps go on from
which.

A part of `Store` (`base.py`), whose promises hold here as well. Nothing here is asked during a
call, so all of it may take its time, in a thread; each method reads a bounded part.
"""

from __future__ import annotations

from typing import Protocol

from agentstate.ground.canonical import JSON
from agentstate.ground.lineage import Lineage
from agentstate.ground.records import SessionPage


class ExportStore(Protocol):
    """What is read to write conversations out."""

    async def walk_sessions(self, after: str | None, limit: int) -> SessionPage:
        """List sessions in the order in which they were first seen: unlike `list_sessions` it gives
        each once, whatever becomes active meanwhile.

        Raises:
            BadRequest: as `list_sessions`.
        """
        ...

    async def list_lineage(self, session: str, after: int, limit: int) -> tuple[Lineage, ...]:
        """Return the steps of `session` that have an answer, by index from `after` + 1 on, those
        rolled back included."""
        ...

    async def list_places(self, place: int, limit: int) -> tuple[int, ...]:
        """Return the places of ever fewer messages above a place, the longest first."""
        ...

    async def read_messages(self, places: tuple[int, ...]) -> tuple[JSON, ...]:
        """Return the last message of each place."""
        ...

    async def list_answers(self, step_id: int) -> tuple[int, ...]:
        """Return the answers of a step that were not taken back, rounds left out, in order."""
        ...
