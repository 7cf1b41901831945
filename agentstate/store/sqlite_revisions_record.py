"""What the writer thread runs for edits and reruns.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. The counterpart that reads is `sqlite_revisions_read.py`. Which answer stands
is changed by `sqlite_control_record.py` alone, which keeps how to go back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from agentstate.ground.canonical import encode
from agentstate.ground.control import Place, Ranges, Rollback, Swap, numbers_of, ranges_of
from agentstate.ground.errors import Conflict, NotFound
from agentstate.ground.records import Attempt
from agentstate.ground.revisions import Revision
from agentstate.store.revisions import not_standing
from agentstate.store.sqlite_attempt_record import AttemptRecorder
from agentstate.store.sqlite_columns import maybe_readable
from agentstate.store.sqlite_control_read import active_from, weigh
from agentstate.store.sqlite_control_record import ControlRecorder
from agentstate.store.sqlite_pack import Packed, pack


class RevisionRecorder:
    """The writing methods about revisions, bound to the writing connection."""

    def __init__(self, connection: sqlite3.Connection, control: ControlRecorder) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute
        self._control = control
        self._attempts = AttemptRecorder(self._execute)

    _READ_STEP = """
        select session.name, session.id, session.next_index, step.step_index, step.state,
          step.rolled_back_ms, answer.id
        from step
        join session on session.id = step.session_id
        left join answer on answer.id = step.answer_id and answer.taken_back_ms is null
        where step.id = ?
        """

    _ADD_REVISION = """
        insert into revision (
          answer_id, session_id, replaces_id, kind, made_by, reason, size, request
        )
        values (?, ?, ?, ?, ?, ?, ?, ?)
        """

    def revise(
        self,
        step_id: int,
        add_answer: Callable[[], int],
        revision: Revision,
        taken: Ranges,
        seen: int,
        at_ms: int,
        packed: Packed | None = None,
    ) -> Rollback | None:
        """Have a new answer stand; see `Store.revise`.

        `add_answer` writes it. `packed`: the request of the revision, if it is large. None = pack
        it here.
        """
        row = self._execute(self._READ_STEP, (step_id,)).fetchone()
        if row is None:
            raise NotFound(f"There is no step with the id {step_id}.")
        session, session_id, next_index, index, state, rolled_back_ms, standing_id = row
        if rolled_back_ms is not None or state == "in_flight" or standing_id is None:
            raise not_standing(index, state, is_rolled_back=rolled_back_ms is not None)
        if standing_id != revision.replaces_id:
            raise Conflict(
                f"Step {index} answers with {standing_id} by now, not with {revision.replaces_id}. "
                "Look at it again; nothing was changed."
            )
        if next_index != seen:
            return None
        active = set(active_from(self._connection, session_id, Place(index=0)))
        gone = ranges_of(number for number in numbers_of(taken) if number in active)
        answer_id = add_answer()
        if packed is None and revision.request is not None:
            packed = pack(encode(revision.request))
        by, reason = maybe_readable(revision.by), maybe_readable(revision.reason)
        made = (answer_id, session_id, revision.replaces_id, revision.kind, by, reason)
        self._execute(self._ADD_REVISION, (*made, *(packed or (None, None))))
        change = Rollback(
            rollback_id=0,
            session=session,
            made_ms=at_ms,
            by=by,
            place=Place(index=index),
            undoes=None,
            taken=gone,
            returned=(),
            weight=weigh(self._connection, session_id, gone),
            verb=revision.kind,
            swaps=(Swap(index, revision.replaces_id, answer_id),),
        )
        return self._control.turn(session_id, next_index, change)

    _STEP_EXISTS = "select exists (select * from step where id = ?)"

    def record_attempts(self, step_id: int, attempts: Sequence[Attempt]) -> None:
        """Write tries that change nothing; see `Store.record_attempts`."""
        (exists,) = self._execute(self._STEP_EXISTS, (step_id,)).fetchone()
        if not exists:
            raise NotFound(f"There is no step with the id {step_id}.")
        self._attempts.add(step_id, attempts)
