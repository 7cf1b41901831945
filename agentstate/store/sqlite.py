"""The embedded record: one SQLite file, one writer thread, readers that cannot write.

What this module does is say where each method runs: writes in the writer's thread, small indexed
reads on the event loop, all other reads in a thread of two. What the gate, webhooks, control and
revisions need is beside it (`sqlite_gate.py`, `sqlite_events.py`, `sqlite_control.py`,
`sqlite_revisions.py`); SQL is in `sqlite_record.py` and `sqlite_read.py`. Why it is so: DESIGN.md.

Replays are noted in memory and written behind. Their sums are written before anything that shows
them is read; what the replay ladder reads is completed from memory.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import StoreError
from agentstate.ground.events import Event, IdleSession
from agentstate.ground.records import (
    Attempt,
    Candidate,
    Checkpoint,
    Claim,
    Claimed,
    Emitter,
    Query,
    RecordedAnswer,
    ReplayNote,
    Served,
    SessionPage,
    SessionRow,
    StepPage,
    StepRow,
    Tail,
)
from agentstate.store import sqlite_events_read as events_read
from agentstate.store import sqlite_read as read
from agentstate.store import sqlite_runs as runs
from agentstate.store import sqlite_sessions as sessions
from agentstate.store.base import Key, clamp
from agentstate.store.sqlite_budget import SqliteBudget
from agentstate.store.sqlite_calls import SqliteCalls
from agentstate.store.sqlite_durable import SqliteDurable
from agentstate.store.sqlite_export import SqliteExport
from agentstate.store.sqlite_keys import KeyIndex
from agentstate.store.sqlite_overview import SqliteOverview
from agentstate.store.sqlite_readers import Readers
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_replays_record import NoteSum
from agentstate.store.sqlite_request import HeavyParts, read_request
from agentstate.store.sqlite_retention import SqliteRetention
from agentstate.store.sqlite_revisions import SqliteRevisions
from agentstate.store.sqlite_tape import SqliteTape
from agentstate.store.sqlite_writer import GroupWriter

log = logging.getLogger("agentstate.store")

FREE_BYTES_MIN = 256 * 1024  # what a large step and its commit take
CANDIDATES_ON_LOOP_MAX = 64  # rows; far more than a key has, unless a run repeats itself
NOTES_DELAY_S = 0.2  # how far behind replays are written
NOTES_MAX = 1000  # steps with something noted before it is written at once
NOTES_KEPT_MAX = 100_000  # steps noted while the disk takes no writes; further ones go uncounted
CLOSE_PATIENCE_S = 10.0  # folding a full log takes a tenth of it on a slow disk


class SqliteStore(
    SqliteRetention, SqliteRevisions, SqliteDurable, SqliteBudget, SqliteTape, SqliteExport,
    SqliteCalls, SqliteOverview,
):  # fmt: skip
    """A `Store` in one SQLite file. Belongs to the event loop that opened it."""

    def __init__(self, path: str | Path, *, durability: Literal["full", "normal"] = "full") -> None:
        # Two names of one file must not make two locks.
        self._path = Path(path).resolve()
        writer = GroupWriter(self._path, syncs_answers=durability == "full")
        super().__init__(writer, Readers(self._path), KeyIndex())
        self._notes = _Notes(self._writer)
        self._write_notes = self._notes.write
        # (session, run, step) that are delivered and whose note is on its way to the disk.
        self._delivering: set[tuple[str, str, int]] = set()

    # --- life -------------------------------------------------------------------------------

    async def open(self) -> int:
        """See `Store.open`."""
        interrupted_count = await self._writer.open()
        try:
            self._readers.open()
            self._load_paused()
            self._resume_removals()
            self._load_budgets()
        except StoreError:
            await self._readers.close(CLOSE_PATIENCE_S)
            await self._writer.close(CLOSE_PATIENCE_S)
            raise
        return interrupted_count

    async def close(self) -> None:
        """See `Store.close`."""
        if not self._readers.is_open:
            return
        await self._stop_forking()
        await self._stop_removing()
        await self._notes.write()
        self._notes.stop()
        await self._readers.close(CLOSE_PATIENCE_S)
        await self._writer.close(CLOSE_PATIENCE_S)

    async def check(self) -> None:
        """See `Store.check`."""
        free = shutil.disk_usage(self._path.parent).free
        if free < FREE_BYTES_MIN:
            # The row that proves a write fits into the log long after a step does not.
            raise StoreError(
                f"The disk of {self._path} is full: {free} bytes are free. Make room there."
            )
        await self._writer.write(lambda recorder: recorder.check(now_ms()), is_durable=True)

    # --- the life of a call -----------------------------------------------------------------

    async def find_candidates(self, session: str, key: Key, value: bytes) -> tuple[Candidate, ...]:
        """See `Store.find_candidates`."""
        if not self._readers.here(lambda reader: self._keys.may_have(reader, session, key, value)):
            return ()
        limit, noted = CANDIDATES_ON_LOOP_MAX + 1, self._notes.latest_ms
        found = self._readers.here(
            lambda reader: read.find_candidates(reader, session, key, value, noted, limit)
        )
        if len(found) == limit:
            found = await self._readers.aside(
                lambda reader: read.find_candidates(reader, session, key, value, noted)
            )
        return found

    async def read_answer(self, step_id: int) -> RecordedAnswer | None:
        """See `Store.read_answer`."""
        return await self._readers.here_if_small(
            lambda reader, bytes_max: read.read_answer(reader, step_id, bytes_max)
        )

    async def claim_step(self, claim: Claim) -> Claimed:
        """See `Store.claim_step`."""
        if claim.about is not None and claim.about.budget is not None:
            self._take_in_budget(claim.session)
        with self._keys.writing(claim.session):
            self._keys.add_step(claim.session, claim.identity)
            return await self._claim_step(claim)

    async def _claim_step(self, claim: Claim) -> Claimed:
        outcome = await self._writer.write(lambda recorder: recorder.claim_step(claim))
        if isinstance(outcome, HeavyParts):
            packed = await self._readers.in_thread(outcome.pack)
            outcome = await self._writer.write(lambda recorder: recorder.claim_step(claim, packed))
        assert isinstance(outcome, Claimed), "a claim that is packed is written"
        return outcome

    def _note_fork(self, session: str, name: str) -> None:
        if self.may_have_budget(session):
            self._take_in_budget(name)

    async def record_answer(self, checkpoint: Checkpoint) -> int:
        """See `Store.record_answer`."""
        packed = await self._pack_answer(checkpoint.answer)
        told = self._subscriptions
        return await self._writer.write(
            lambda recorder: recorder.record_answer(checkpoint, packed, told), is_durable=True
        )

    async def append_tail(self, tail: Tail) -> None:
        """See `Store.append_tail`."""
        await self._writer.write(lambda recorder: recorder.append_tail(tail))

    async def record_failure(
        self,
        step_id: int,
        attempts: tuple[Attempt, ...],
        *,
        failed_ms: int,
        fails_session: bool = False,
        why: str | None = None,
        event: Event | None = None,
    ) -> None:
        """See `Store.record_failure`."""
        told = self._subscriptions

        def write(recorder: Recorder) -> None:
            recorder.record_failure(step_id, attempts, failed_ms)
            if fails_session:
                recorder.events.fail_session(step_id, why, failed_ms)
            if event is not None:
                recorder.events.write(event, told)

        if fails_session:
            await self._notes.write()
        await self._writer.write(write)

    def note_replay(self, note: ReplayNote) -> None:
        """See `Store.note_replay`."""
        if not self._readers.is_open:
            self._notes.lost_count += 1
        else:
            self._notes.add(note)

    async def keep_replays(self) -> None:
        """See `Store.keep_replays`."""
        if not self._readers.is_open:
            raise StoreError(f"The record {self._path} is closed.")
        await self._notes.write()

    async def record_served(self, served: Served, session: str, run_id: str) -> None:
        """See `Store.record_served`."""
        self._delivering.discard((session, run_id, served.step_id))
        await self._writer.write(lambda recorder: recorder.record_served(served, session, run_id))

    def note_delivered(self, session: str, run_id: str, step_id: int) -> None:
        """See `Store.note_delivered`."""
        if not self._readers.is_open:
            return
        key = (session, run_id, step_id)
        self._delivering.add(key)
        sending = self._writer.start(
            lambda recorder: recorder.note_delivered(session, run_id, step_id)
        )
        sending.add_done_callback(lambda done: self._delivered(key, done))

    async def list_served(
        self, session: str, run_id: str, step_ids: tuple[int, ...]
    ) -> tuple[Served, ...]:
        """See `Store.list_served`."""
        found = self._readers.here(
            lambda reader: runs.list_served(reader, session, run_id, step_ids)
        )
        return tuple(
            replace(one, is_delivered=True)
            if (session, run_id, one.step_id) in self._delivering
            else one
            for one in found
        )

    async def record_alias(self, session: str, exact: bytes, step_id: int) -> None:
        """See `Store.record_alias`."""
        with self._keys.writing(session):
            self._keys.add(session, "alias", (exact,))
            await self._writer.write(
                lambda recorder: recorder.record_alias(session, exact, step_id)
            )

    async def find_emitters(
        self, session: str, call_ids: tuple[str, ...]
    ) -> dict[str, tuple[Emitter, ...]]:
        """See `Store.find_emitters`."""
        noted = dict(self._notes.latest_ms)
        return await self._readers.aside(
            lambda reader: runs.find_emitters(reader, session, call_ids, noted)
        )

    async def count_steps_at(self, session: str, step_number: int) -> int:
        """See `Store.count_steps_at`."""
        return await self._readers.aside(
            lambda reader: runs.count_steps_at(reader, session, step_number)
        )

    async def find_alike(
        self, session: str, depth: int, step_number: int | None, limit: int
    ) -> tuple[Candidate, ...]:
        """See `Store.find_alike`."""
        noted = dict(self._notes.latest_ms)
        return await self._readers.aside(
            lambda reader: runs.find_alike(reader, session, depth, step_number, noted, limit)
        )

    async def find_response(self, session: str, response_id: str) -> Candidate | None:
        """See `Store.find_response`."""
        noted = dict(self._notes.latest_ms)
        return await self._readers.aside(
            lambda reader: runs.find_response(reader, session, response_id, noted)
        )

    def _delivered(self, key: tuple[str, str, int], done: asyncio.Future[None]) -> None:
        self._delivering.discard(key)
        if not done.cancelled() and (error := done.exception()) is not None:
            # Without it the next equal call is taken for a retry: the same answer once more.
            log.warning("a delivery could not be noted: %s", error)

    # --- reading ----------------------------------------------------------------------------

    async def find_idle(self, *, idle_since_ms: int, limit: int) -> tuple[IdleSession, ...]:
        """See `Store.find_idle`."""
        await self._notes.write()  # a replay is something that happened
        return await self._readers.aside(
            lambda reader: events_read.find_idle(reader, idle_since_ms, limit, now_ms())
        )

    async def list_sessions(self, query: Query) -> SessionPage:
        """See `Store.list_sessions`."""
        await self._notes.write()
        return await self._readers.aside(
            lambda reader: sessions.list_sessions(reader, query, now_ms())
        )

    async def read_session(self, session: str) -> SessionRow | None:
        """See `Store.read_session`."""
        await self._notes.write()
        return self._readers.here(lambda reader: sessions.read_session(reader, session, now_ms()))

    async def list_steps(self, query: Query) -> StepPage:
        """See `Store.list_steps`."""
        await self._notes.write()
        return await self._readers.aside(lambda reader: read.list_steps(reader, query))

    async def read_step(self, step_id: int) -> StepRow | None:
        """See `Store.read_step`."""
        await self._notes.write()
        return self._readers.here(lambda reader: read.read_step(reader, step_id))

    async def find_step(self, session: str, index: int) -> StepRow | None:
        """See `Store.find_step`."""
        await self._notes.write()
        return self._readers.here(lambda reader: read.find_step(reader, session, index))

    async def read_request(self, step_id: int) -> JSON:
        """See `Store.read_request`."""
        return await self._readers.aside(lambda reader: read_request(reader, step_id))

    async def list_attempts(self, step_id: int) -> tuple[Attempt, ...]:
        """See `Store.list_attempts`."""
        return await self._readers.aside(lambda reader: read.list_attempts(reader, step_id))

    async def read_totals(self) -> dict[str, int]:
        """See `Store.read_totals`."""
        await self._notes.write()
        totals = await self._readers.aside(sessions.read_totals)
        used = await self._readers.aside(sessions.bytes_used)
        return totals | {"bytes_on_disk": bytes_on_disk(self._path), "bytes_used": used}


class _Notes:
    """Replays that were noted and are not on the disk yet.

    One batch at most is on its way. A batch that cannot be written is noted again and tried again
    after a while; the disk may be back by then.
    """

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self._noted: dict[tuple[str, int], NoteSum] = {}  # by (session, step id)
        self.latest_ms: dict[int, int] = {}  # by step id; of the noted and those on their way
        self._sending: asyncio.Future[None] | None = None  # None = nothing is on its way
        self._timer: asyncio.TimerHandle | None = None
        self._is_failing = False
        self.lost_count = 0  # replays that went uncounted because they could not be written

    def add(self, note: ReplayNote) -> None:
        """Take in one replay and see to it that it is written before long."""
        key = (note.session, note.step_id)
        if key not in self._noted and len(self._noted) >= NOTES_KEPT_MAX:
            self.lost_count += 1
            return
        counts = NoteSum(1, note.replayed_ms, clamp(note.saved_microusd))
        self._noted.setdefault(key, NoteSum()).add(counts)
        latest_ms = self.latest_ms.get(note.step_id, 0)
        self.latest_ms[note.step_id] = max(latest_ms, note.replayed_ms)
        self._see_to_it()

    async def write(self) -> None:
        """Have on the disk what was noted before; if that takes no writes, go on without."""
        for _ in range(2):  # what is on its way, and what was noted since that left
            sending = self._sending or self._send()
            if sending is None:
                return
            await asyncio.wait([sending])

    def stop(self) -> None:
        """Start nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _see_to_it(self) -> None:
        if self._sending is not None or not self._noted:
            return
        if len(self._noted) >= NOTES_MAX and not self._is_failing:
            self._send()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(NOTES_DELAY_S, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._sending is None:
            self._send()

    def _send(self) -> asyncio.Future[None] | None:
        """Hand what is noted to the writer; None = nothing is."""
        if not self._noted:
            return None
        batch, self._noted = self._noted, {}
        self._sending = self._writer.start(lambda recorder: recorder.note_replays(batch))
        self._sending.add_done_callback(lambda sending: self._written(batch, sending))
        return self._sending

    def _written(
        self, batch: dict[tuple[str, int], NoteSum], sending: asyncio.Future[None]
    ) -> None:
        self._sending = None
        error = None if sending.cancelled() else sending.exception()
        self._is_failing = error is not None
        if isinstance(error, StoreError):
            for key, total in batch.items():
                self._noted.setdefault(key, NoteSum()).add(total)
        elif error is not None:  # a mistake of ours; trying again would not mend it
            self.lost_count += sum(total.replays for total in batch.values())
            log.error("replays could not be counted", exc_info=error)
        else:
            self.latest_ms = {}
            for (_, step_id), total in self._noted.items():
                latest_ms = self.latest_ms.get(step_id, 0)
                self.latest_ms[step_id] = max(latest_ms, total.replayed_ms)
        self._see_to_it()


def bytes_on_disk(path: Path) -> int:
    """Return what a record takes: the file and its log."""
    total = 0
    for name in (path, path.with_name(path.name + "-wal")):
        # The log is not there before the first write.
        with suppress(FileNotFoundError):
            total += name.stat().st_size
    return total
