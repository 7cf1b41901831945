"""The gate's part of the SQLite store: approvals, rounds, and what went out instead of an answer.

As in `sqlite.py`, which builds on it, what is said here is where each method runs. What a replay
asks (approvals of an answer, its rounds, what was delivered) is read on the event loop; SQL is in
`sqlite_gate_record.py` and `sqlite_gate_read.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from agentstate.ground.approvals import (
    Approval,
    ApprovalPage,
    Decision,
    Question,
    Refusal,
    Release,
)
from agentstate.ground.records import Checkpoint, Query, RecordedAnswer
from agentstate.store import sqlite_gate_read as gate_read
from agentstate.store import sqlite_read as read
from agentstate.store.approvals import no_approval, tells_model
from agentstate.store.sqlite_events import SqliteEvents
from agentstate.store.sqlite_keys import KeyIndex
from agentstate.store.sqlite_pack import Packed, answer_raw, pack, pack_text
from agentstate.store.sqlite_readers import Readers
from agentstate.store.sqlite_writer import GroupWriter

log = logging.getLogger("agentstate.store")

# Packing this much takes about 1 ms, in which nobody else's answer would be committed.
BYTES_BY_WRITER_MAX = 32 * 1024
REFUSALS_ON_LOOP_MAX = 64  # rows; far more than a session has, unless nobody lets its agent do much


class SqliteGate(SqliteEvents):
    """The methods of `Store` about the gate. Belongs to the event loop that opened its parts."""

    def __init__(self, writer: GroupWriter, readers: Readers, keys: KeyIndex) -> None:
        super().__init__(writer, readers)
        self._keys = keys
        self._releasing: set[int] = set()  # released, and the note of it on its way to the disk

    # --- approvals --------------------------------------------------------------------------

    async def open_approvals(
        self, step_id: int, answer_id: int | None, questions: tuple[Question, ...], *, at_ms: int
    ) -> tuple[Approval, ...]:
        """See `Store.open_approvals`."""
        packed = await self._pack_large([question.arguments for question in questions])
        told = self._subscriptions
        return await self._writer.write(
            lambda recorder: recorder.gate.open_approvals(
                step_id, answer_id, questions, at_ms, packed, told
            ),
            is_durable=True,
        )

    async def decide(self, approval_id: str, decision: Decision, *, at_ms: int) -> Approval:
        """See `Store.decide`."""
        await self._write_notes()
        packed = await self._pack_large([decision.arguments or ""])
        first, told = packed[0] if packed else None, self._subscriptions
        session = None
        if tells_model(decision):
            session = self._readers.here(lambda reader: gate_read.session_of(reader, approval_id))
            if session is None:
                raise no_approval(approval_id)
        deciding = self._writer.start(
            lambda recorder: recorder.gate.decide(approval_id, decision, at_ms, first, told),
            is_durable=True,
        )
        if session is not None:
            self._take_in_refusal(session, deciding)
        # It is written also if the caller goes away; only then are the keys let go of.
        return await asyncio.shield(deciding)

    def _take_in_refusal(self, session: str, deciding: asyncio.Future[Approval]) -> None:
        self._keys.hold(session)
        self._keys.add_splice(session)
        deciding.add_done_callback(lambda _: self._keys.let_go(session))

    async def read_approval(self, approval_id: str) -> Approval | None:
        """See `Store.read_approval`."""
        return await self._readers.here_if_small(
            lambda reader, bytes_max: gate_read.read_approval(reader, approval_id, bytes_max)
        )

    async def approvals_of(self, answer_id: int) -> tuple[Approval, ...]:
        """See `Store.approvals_of`."""
        return await self._readers.here_if_small(
            lambda reader, bytes_max: gate_read.approvals_of(reader, answer_id, bytes_max)
        )

    async def list_approvals(self, query: Query, *, at_ms: int) -> ApprovalPage:
        """See `Store.list_approvals`."""
        return await self._readers.aside(
            lambda reader: gate_read.list_approvals(reader, query, at_ms)
        )

    async def count_pending(self, *, at_ms: int) -> int:
        """See `Store.count_pending`."""
        return await self._readers.aside(lambda reader: gate_read.count_pending(reader, at_ms))

    async def list_refusals(self, session: str) -> tuple[Refusal, ...]:
        """See `Store.list_refusals`."""
        if not self._readers.here(lambda reader: self._keys.may_have_splices(reader, session)):
            return ()
        limit = REFUSALS_ON_LOOP_MAX + 1
        found = self._readers.here(lambda reader: gate_read.list_refusals(reader, session, limit))
        if len(found) == limit:
            found = await self._readers.aside(
                lambda reader: gate_read.list_refusals(reader, session)
            )
        return found

    # --- rounds -----------------------------------------------------------------------------

    async def record_round(self, checkpoint: Checkpoint, root_id: int, number: int) -> int:
        """See `Store.record_round`."""
        packed = await self._pack_answer(checkpoint.answer)
        return await self._writer.write(
            lambda recorder: recorder.record_round(checkpoint, root_id, number, packed),
            is_durable=True,
        )

    async def rounds_of(self, root_id: int) -> tuple[int, ...]:
        """See `Store.rounds_of`."""
        return self._readers.here(lambda reader: gate_read.rounds_of(reader, root_id))

    async def read_answer_by_id(self, answer_id: int) -> RecordedAnswer | None:
        """See `Store.read_answer_by_id`."""
        return await self._readers.here_if_small(
            lambda reader, bytes_max: read.read_answer_by_id(reader, answer_id, bytes_max)
        )

    # --- what went out ----------------------------------------------------------------------

    async def record_delivered(self, answer_id: int, delivered: RecordedAnswer) -> RecordedAnswer:
        """See `Store.record_delivered`."""
        packed = await self._pack_answer(delivered)
        is_first = await self._writer.write(
            lambda recorder: recorder.gate.record_delivered(answer_id, delivered, packed),
            is_durable=True,
        )
        stands = delivered if is_first else await self.read_delivered(answer_id)
        assert stands is not None, "one that could not be added is there"
        return stands

    async def read_delivered(self, answer_id: int) -> RecordedAnswer | None:
        """See `Store.read_delivered`."""
        return await self._readers.here_if_small(
            lambda reader, bytes_max: gate_read.read_delivered(reader, answer_id, bytes_max)
        )

    async def record_release(self, answer_id: int, run_id: str | None, *, at_ms: int) -> int:
        """See `Store.record_release`."""
        return await self._writer.write(
            lambda recorder: recorder.gate.record_release(answer_id, run_id, at_ms)
        )

    def note_released(self, release_id: int) -> None:
        """See `Store.note_released`."""
        if not self._readers.is_open:
            return
        self._releasing.add(release_id)
        sending = self._writer.start(lambda recorder: recorder.gate.note_released(release_id))
        sending.add_done_callback(lambda done: self._released(release_id, done))

    async def list_releases(self, answer_id: int) -> tuple[Release, ...]:
        """See `Store.list_releases`."""
        found = self._readers.here(lambda reader: gate_read.list_releases(reader, answer_id))
        return tuple(
            replace(one, is_written=True) if one.release_id in self._releasing else one
            for one in found
        )

    def _released(self, release_id: int, done: asyncio.Future[None]) -> None:
        self._releasing.discard(release_id)
        if not done.cancelled() and (error := done.exception()) is not None:
            # Without it a later run is told that the calls may not have reached an agent.
            log.warning("a release could not be noted: %s", error)

    # --- shared -----------------------------------------------------------------------------

    async def _pack_answer(self, answer: RecordedAnswer) -> Packed | None:
        """Pack a large answer in a thread; None = the writer does it."""
        if len(answer.content) <= BYTES_BY_WRITER_MAX:
            return None
        return await self._readers.in_thread(lambda: pack(answer_raw(answer)))

    async def _pack_large(self, texts: Sequence[str]) -> list[Packed] | None:
        """Pack texts in a thread if they are large together; None = the writer does it."""
        if sum(map(len, texts)) <= BYTES_BY_WRITER_MAX:
            return None
        return await self._readers.in_thread(lambda: [pack_text(text) for text in texts])
