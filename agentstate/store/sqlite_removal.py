"""What the writer thread runs to remove a session: it is gone at once, its rows little by little.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. The counterpart is `sqlite_forks_record.py`.

Theory of operation. To be gone is to have no row in `session`: whatever looks by name, or joins
sessions, finds nothing. What is left is named by a row of `leftover`, and taken away in slices of a
few milliseconds, each a transaction of its own; so a kill leaves a record in which the session is
gone and a row says what is still to be done.

Content of requests is shared by whoever has the same. It goes when nothing refers to it, which
indexes tell: the steps of a session go from the last to the first, each with the end of its chain
of prefixes up to the first one that somebody else has. A part that stays and is packed with an
answer that goes is packed anew.

Invariant: at each commit, whatever a row refers to is there, but for the session of rows that are
being removed.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import NotFound, shorten
from agentstate.store.sqlite_pack import pack, unpack, unpack_after

# Of one transaction: what others wait for it at most, with the step that is begun last.
SLICE_S = 0.008
STEPS_AT_ONCE = 8
ROWS_AT_ONCE = 64
PAGES_AT_ONCE = 16  # given back to the disk, between two looks at the clock

_OF_STEP = (
    "delete from attempt where step_id = ?",
    "delete from served where step_id = ?",
    "delete from alias where step_id = ?",
    "delete from approval where step_id = ? and answer_id is null",
)

_OF_ANSWER = (
    "delete from answer_tail where answer_id = ?",
    "delete from tool_call where answer_id = ?",
    "delete from delivered where answer_id = ?",
    "delete from released where answer_id = ?",
    "delete from round where root_id = ?",
    "delete from round where answer_id = ?",
    "delete from approval where answer_id = ?",
    "delete from revision where answer_id = ?",
    "delete from set_aside where answer_id = ?",
    "delete from censored where answer_id = ?",
    "delete from answer where id = ?",
)


# The id of a session that is being removed, or made, is not free.
NEXT_SESSION_ID = """
    (
      select 1 + max(
        coalesce((select max(id) from session), 0),
        coalesce((select max(id) from leftover where kind in ('session', 'fork')), 0)
      )
    )
    """


class RemovalRecorder:
    """The writing methods about deletion, bound to the writing connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.cursor().execute

    # --- to be gone -------------------------------------------------------------------------

    _BEGIN = """
        insert into leftover (kind, id, name, last_event_id)
        select 'session', id, name, (select coalesce(max(id), 0) from event)
        from session
        where id = ?
        """

    _FIND = "select id from session where name = ?"

    _DROP_SESSION = (
        "delete from tag where session_id = ?",
        "delete from rollback where session_id = ?",
        "delete from budget where session_id = ?",
        "delete from session where id = ?",
    )

    def begin(self, session: str) -> None:
        """Have a session be gone; see `Store.delete_session`."""
        row = self._execute(self._FIND, (session,)).fetchone()
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        for statement in (self._BEGIN, *self._DROP_SESSION):
            self._execute(statement, row)

    def finds(self, statement: str, values: dict[str, Any]) -> bool:
        """Say whether a question of a caller that decides on it has an answer."""
        return self._execute(statement, values).fetchone() is not None

    _DROP_UNUSED_PROMPT = """
        delete from prompt
        where id = :id
          and not exists (select 1 from step where session_id = :session_id and prompt_id = :id)
          and not exists (select 1 from session where id = :session_id and prompt_id = :id)
        """

    def replaced(
        self, session_id: int, prompt_id: int, envelope_id: int, node_id: int | None
    ) -> None:
        """Take in that a step has let go of this content: no deletion would find it."""
        self._execute(self._DROP_UNUSED_PROMPT, {"id": prompt_id, "session_id": session_id})
        self._drop_envelope(envelope_id)
        if node_id is not None:
            self._execute(self._LOOK_AT, (node_id,))

    # --- slices -----------------------------------------------------------------------------

    _FIRST = "select id, name, last_event_id from leftover where kind = 'session' limit 1"

    def remove_some(self) -> bool:
        """Remove what can be in `SLICE_S`; say whether something is left."""
        until_s = monotonic_s() + SLICE_S
        row = self._execute(self._FIRST).fetchone()
        if row is None:
            return False
        session_id, name, last_event_id = row
        while True:  # at least one thing, however little time there is
            is_busy = (
                self._drop_node()
                or self._drop_steps(session_id, until_s)
                or self._drop_durables(session_id)
                or self._drop_prompts()
                or self._drop_events(name, last_event_id)
            )
            if not is_busy:
                self._end(session_id)
            if not is_busy or monotonic_s() >= until_s:
                return True

    _END = (
        "delete from run where session_id = ?",
        "delete from leftover where kind = 'session' and id = ?",
    )

    def _end(self, session_id: int) -> None:
        for statement in self._END:
            self._execute(statement, (session_id,))

    # --- durable calls ----------------------------------------------------------------------

    _FIRST_DURABLES = "select id from durable_call where session_id = ? limit ?"

    _OF_DURABLE = (
        "delete from durable_taken where durable_id = ?",
        "delete from approval where durable_id = ?",
        "delete from durable_call where id = ?",
    )

    def _drop_durables(self, session_id: int) -> bool:
        """Remove some durable calls of a session; False = there are none."""
        rows = self._execute(self._FIRST_DURABLES, (session_id, ROWS_AT_ONCE)).fetchall()
        for row in rows:
            for statement in self._OF_DURABLE:
                self._execute(statement, row)
        return bool(rows)

    # --- steps ------------------------------------------------------------------------------

    _LAST_STEPS = """
        select id, node_id, envelope_id, prompt_id
        from step
        where session_id = ?
        order by step_index desc
        limit ?
        """

    _LOOK_AT = "insert or ignore into leftover (kind, id) values ('node', ?)"

    _DROP_STEP = "delete from step where id = ?"

    # They go last: an id that is free may be taken by another session at once.
    _LEAVE_PROMPT = "insert or ignore into leftover (kind, id) values ('prompt', ?)"

    _ANSWERS_OF = "select id from answer where step_id = ?"

    def _drop_steps(self, session_id: int, until_s: float) -> bool:
        """Remove the last steps of a session; False = there are none."""
        steps = self._execute(self._LAST_STEPS, (session_id, STEPS_AT_ONCE)).fetchall()
        for step_id, node_id, _, prompt_id in steps:
            if node_id is not None:
                self._execute(self._LOOK_AT, (node_id,))
            for statement in _OF_STEP:
                self._execute(statement, (step_id,))
            self._execute(self._DROP_STEP, (step_id,))
            self._execute(self._LEAVE_PROMPT, (prompt_id,))
        for envelope_id in {envelope_id for _, _, envelope_id, _ in steps}:
            self._drop_envelope(envelope_id)
        # First what may be packed with their answers, so that it need not be packed anew.
        while monotonic_s() < until_s and self._drop_node():
            pass
        for step_id, *_ in steps:
            for (answer_id,) in self._execute(self._ANSWERS_OF, (step_id,)).fetchall():
                self._unbind(answer_id)
                for statement in _OF_ANSWER:
                    self._execute(statement, (answer_id,))
        return bool(steps)

    _PACKED_WITH = "select id, size, content from blob where answer_id = ?"

    _READ_ANSWER = "select size, content from answer where id = ?"

    _PACK_ANEW = "update blob set answer_id = null, size = ?, content = ? where id = ?"

    def _unbind(self, answer_id: int) -> None:
        """Pack anew what is packed with an answer and stays."""
        bound = self._execute(self._PACKED_WITH, (answer_id,)).fetchall()
        if not bound:
            return
        answer = unpack(*self._execute(self._READ_ANSWER, (answer_id,)).fetchone())
        for blob_id, size, content in bound:
            packed = pack(unpack_after(size, content, answer))
            self._execute(self._PACK_ANEW, (*packed, blob_id))

    _PROMPTS = "select id from leftover where kind = 'prompt' limit ?"

    _DROP_PROMPT = (
        "delete from prompt where id = ?",
        "delete from leftover where kind = 'prompt' and id = ?",
    )

    def _drop_prompts(self) -> bool:
        """Remove prompts that no step has any more; a prompt belongs to one session."""
        found = self._execute(self._PROMPTS, (ROWS_AT_ONCE,)).fetchall()
        for (prompt_id,) in found:
            for statement in self._DROP_PROMPT:
                self._execute(statement, (prompt_id,))
        return bool(found)

    # --- content ----------------------------------------------------------------------------

    # A prefix is younger than those it begins with, so the youngest is never in anybody's way.
    _NEXT_NODE = """
        select leftover.id, node.parent_id, node.blob_id
        from leftover
        left join node on node.id = leftover.id
        where leftover.kind = 'node'
        order by leftover.id desc
        limit 1
        """

    _LOOKED_AT = "delete from leftover where kind = 'node' and id = ?"

    _DROP_NODE = """
        delete from node
        where id = :id
          and not exists (select 1 from step where node_id = :id)
          and not exists (select 1 from node as longer where longer.parent_id = :id)
        """

    def _drop_node(self) -> bool:
        """Look at one prefix and remove it if nothing refers to it; False = none is left."""
        row = self._execute(self._NEXT_NODE).fetchone()
        if row is None:
            return False
        node_id, parent_id, blob_id = row
        self._execute(self._LOOKED_AT, (node_id,))
        if blob_id is not None and self._execute(self._DROP_NODE, {"id": node_id}).rowcount:
            self._drop_blob(blob_id)
            if parent_id is not None:
                self._execute(self._LOOK_AT, (parent_id,))
        return True

    _DROP_BLOB = """
        delete from blob
        where id = :id
          and not exists (select 1 from node where blob_id = :id)
          and not exists (select 1 from envelope_part where blob_id = :id)
        """

    def _drop_blob(self, blob_id: int) -> None:
        self._execute(self._DROP_BLOB, {"id": blob_id})

    _HAS_STEP = "select 1 from step where envelope_id = ? limit 1"

    _PARTS_OF = "select blob_id from envelope_part where envelope_id = ?"

    _DROP_ENVELOPE = (
        "delete from envelope_part where envelope_id = ?",
        "delete from envelope where id = ?",
    )

    def _drop_envelope(self, envelope_id: int) -> None:
        """Remove an envelope if no step has it."""
        if self._execute(self._HAS_STEP, (envelope_id,)).fetchone() is not None:
            return
        parts = self._execute(self._PARTS_OF, (envelope_id,)).fetchall()
        for statement in self._DROP_ENVELOPE:
            self._execute(statement, (envelope_id,))
        for (blob_id,) in parts:
            self._drop_blob(blob_id)

    # --- events -----------------------------------------------------------------------------

    _EVENTS = "select id from event where session = ? and id <= ? limit ?"

    _DROP_EVENT = ("delete from delivery where event_id = ?", "delete from event where id = ?")

    def _drop_events(self, name: str, last_event_id: int) -> bool:
        found = self._execute(self._EVENTS, (name, last_event_id, ROWS_AT_ONCE)).fetchall()
        for (event_id,) in found:
            for statement in self._DROP_EVENT:
                self._execute(statement, (event_id,))
        return bool(found)

    # --- the disk ---------------------------------------------------------------------------

    _COUNT_FREE = "pragma freelist_count"

    # One page each: it has a row without columns for each page, where Python's driver stops.
    _GIVE_BACK = "pragma incremental_vacuum(1)"

    def give_back(self) -> bool:
        """Give free pages back to the disk for `SLICE_S`; say whether some are left."""
        until_s = monotonic_s() + SLICE_S
        (before,) = self._execute(self._COUNT_FREE).fetchone()
        while True:
            for _ in range(PAGES_AT_ONCE):
                self._execute(self._GIVE_BACK)
            (after,) = self._execute(self._COUNT_FREE).fetchone()
            if after in (0, before):  # all is given, or the file is none that can shrink
                return False
            if monotonic_s() >= until_s:
                return True
            before = after
