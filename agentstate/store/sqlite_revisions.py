"""Edits and reruns in the SQLite store: answers that a person put in place of others.

As in `sqlite.py`, which builds on it, what is said here is where each method runs. SQL is in
`sqlite_revisions_record.py` and `sqlite_revisions_read.py`.
"""

from __future__ import annotations

import asyncio

from agentstate.ground.canonical import encode
from agentstate.ground.control import Ranges, Rollback
from agentstate.ground.records import Attempt, Checkpoint
from agentstate.ground.revisions import AnswerRow, Link, Placed, Revised, Revision
from agentstate.store import sqlite_revisions_read as revisions_read
from agentstate.store.sqlite_control import SqliteControl
from agentstate.store.sqlite_pack import pack
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_sessions import session_of_step


class SqliteRevisions(SqliteControl):
    """The methods of `Store` about revisions. Belongs to the event loop that opened its parts."""

    async def revise(
        self, checkpoint: Checkpoint, revision: Revision, *, taken: Ranges, seen: int, at_ms: int
    ) -> Rollback | None:
        """See `Store.revise`."""
        packed = await self._pack_answer(checkpoint.answer)
        request = None
        if revision.request is not None:
            asked = revision.request
            request = await self._readers.in_thread(lambda: pack(encode(asked)))

        def write(recorder: Recorder) -> Rollback | None:
            return recorder.revisions.revise(
                checkpoint.step_id,
                lambda: recorder.add_answer(checkpoint, packed, is_paid=revision.kind == "rerun"),
                revision,
                taken,
                seen,
                at_ms,
                request,
            )

        session = await self._readers.aside(
            lambda reader: session_of_step(reader, checkpoint.step_id)
        )
        if session is None:
            return await self._writer.write(write, is_durable=True)
        # Its later calls may have to be spliced; that is known before it is written, also if the
        # caller goes away.
        self._keys.hold(session)
        self._keys.add_splice(session)
        writing = self._writer.start(write, is_durable=True)
        writing.add_done_callback(lambda _: self._keys.let_go(session))
        return await asyncio.shield(writing)

    async def record_attempts(self, step_id: int, attempts: tuple[Attempt, ...]) -> None:
        """See `Store.record_attempts`."""
        await self._writer.write(
            lambda recorder: recorder.revisions.record_attempts(step_id, attempts)
        )

    async def answers_of(self, step_id: int) -> tuple[AnswerRow, ...]:
        """See `Store.answers_of`."""
        return await self._readers.aside(lambda reader: revisions_read.answers_of(reader, step_id))

    async def read_revision(self, answer_id: int) -> Revision | None:
        """See `Store.read_revision`."""
        return await self._readers.aside(
            lambda reader: revisions_read.read_revision(reader, answer_id)
        )

    async def list_revised(self, session: str) -> tuple[Revised, ...]:
        """See `Store.list_revised`."""
        if not self._readers.here(lambda reader: self._keys.may_have_splices(reader, session)):
            return ()
        return await self._readers.aside(
            lambda reader: revisions_read.list_revised(reader, session)
        )

    async def find_answered(self, session: str, response_id: str) -> Link | None:
        """See `Store.find_answered`."""
        return await self._readers.aside(
            lambda reader: revisions_read.find_answered(reader, session, response_id)
        )

    async def list_placed(self, session: str, after: int, limit: int) -> tuple[Placed, ...]:
        """See `Store.list_placed`."""
        return await self._readers.aside(
            lambda reader: revisions_read.list_placed(reader, session, after, limit)
        )
