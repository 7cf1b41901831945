"""What the writer thread runs for replays: counts on steps and sessions, and savings by time.

As in `sqlite_record.py`, whose part it is, it runs inside a transaction of its caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentstate.ground.overview import SAVING_SLOT_MS
from agentstate.store.sqlite_columns import GOES_ON


@dataclass(slots=True)
class NoteSum:
    """What was noted about replays of one step by calls of one session."""

    replays: int = 0
    replayed_ms: int = 0
    saved_microusd: int = 0

    def add(self, other: NoteSum) -> None:
        """Take in what was noted besides."""
        self.replays += other.replays
        self.replayed_ms = max(self.replayed_ms, other.replayed_ms)
        self.saved_microusd += other.saved_microusd


NoteSums = Mapping[tuple[str, int], NoteSum]  # by (session, step id)


class ReplayRecorder:
    """The writing methods about replays, bound to the writing connection."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute

    _NOTE_STEP = """
        update step
        set
          replays = replays + ?,
          replayed_ms = max(coalesce(replayed_ms, 0), ?),
          saved_microusd = saved_microusd + ?
        where id = ?
        """

    _NOTE_SESSION = f"""
        update session
        set
          replays = replays + ?,
          updated_ms = max(updated_ms, ?),
          saved_microusd = saved_microusd + ?,
          {GOES_ON}
        where name = ? and id = (select session_id from step where id = ?)
        """

    # "where true" parts the select from "on conflict".
    _SAVE = """
        insert into saving (slot_ms, replays, saved_microusd, saved_ms)
        select :slot_ms, :replays, :saved_microusd, :replays * coalesce((
          select answer.latency_ms
          from step
          join answer on answer.id = step.answer_id
          where step.id = :step_id
        ), 0)
        where true
        on conflict (slot_ms) do update
        set
          replays = replays + excluded.replays,
          saved_microusd = saved_microusd + excluded.saved_microusd,
          saved_ms = saved_ms + excluded.saved_ms
        """

    def note(self, sums: NoteSums) -> None:
        """Write what was noted; steps and sessions that are gone are passed over.

        A session that had ended goes on: it was called. So whoever writes that one has ended has
        what was noted before written first (`SqliteStore._write_notes`).
        """
        for (session, step_id), note in sums.items():
            counts = (note.replays, note.replayed_ms, note.saved_microusd)
            self._execute(self._NOTE_STEP, (*counts, step_id))
            self._execute(self._NOTE_SESSION, (*counts, session, step_id))
            saving = {
                "slot_ms": note.replayed_ms // SAVING_SLOT_MS * SAVING_SLOT_MS,
                "replays": note.replays,
                "saved_microusd": note.saved_microusd,
                "step_id": step_id,
            }
            self._execute(self._SAVE, saving)
