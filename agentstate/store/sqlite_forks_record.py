"""What the writer thread runs to fork a session: rows are copied, content is shared.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. Prefixes, parts and envelopes of requests are shared, since they never change.
All else is copied inside SQL (`sqlite_forks_rows.py`), so that nothing that happens to one session
touches the other. The counterpart is `sqlite_removal.py`: what is copied here is removed there.

Theory of operation. A fork is copied in slices of a few milliseconds, each a transaction of its
own, so that others write in between. Until the last one it has no row in `session`, as a session
that is being removed has none any more: nothing finds it. A row of `leftover` keeps its id and its
name; the next opening hands what a kill left to the removal. A step is copied whole, and single
steps may change meanwhile, as they may just before or after a fork. What changes many steps at once
leaves a row in `rollback`; then what was copied is of no moment that ever was, and is thrown away.

Invariant: a fork's sums count the answers with an id over its `shared_answer_id`. Ids only rise, so
those are the ones that were recorded in it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf

from agentstate.ground.clock import monotonic_s
from agentstate.ground.control import Place
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.forks import ForkAsk
from agentstate.store.base import readable
from agentstate.store.forks import NameTaken, check_place, nothing_before
from agentstate.store.sqlite_columns import maybe_readable
from agentstate.store.sqlite_forks_rows import StepCopier
from agentstate.store.sqlite_removal import NEXT_SESSION_ID

# Of one transaction, and the batch that is begun last: mostly one batch. A call waits for two of
# them, since it writes twice; longer ones are hardly cheaper. Measured in DESIGN.md.
SLICE_S = 0.004
DURABLES_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Copying:
    """A fork that is on its way. Each slice takes the one from the slice before."""

    session_id: int
    parent_id: int
    parent: str
    name: str
    ask: ForkAsk
    but_not: Collection[int]
    at_ms: int
    # As the parent stood when the fork began.
    title: str | None
    end_index: int  # of the first step that is not shared
    seen_answer_id: int
    seen_rollback: int
    last_durable_id: int
    durables_until_ms: int | None  # None = all that were begun are shared
    # From where the next slice goes on; None = all of these are copied.
    from_index: int | None = 0
    from_durable_id: int | None = 0
    # What there is of it so far.
    steps: int = 0
    last_index: int = -1
    last_number: int = -1
    last_answer_id: int = 0

    def is_copied(self) -> bool:
        """Say whether only the last word is missing."""
        return self.from_index is None and self.from_durable_id is None

    def values(self) -> dict[str, object]:
        """Return what the statements are given."""
        before = self.ask.before or Place()
        return {
            "session_id": self.session_id,
            "parent_id": self.parent_id,
            "parent": self.parent,
            "name": self.name,
            "at_ms": self.at_ms,
            "title": self.title,
            "by": maybe_readable(self.ask.by),
            "inherits": self.ask.inherits_decisions,
            "index": before.index,
            "step_number": before.step_number,
            "end_index": self.end_index,
            "seen_answer_id": self.seen_answer_id,
            "last_durable_id": self.last_durable_id,
            "durables_until_ms": self.durables_until_ms,
            "from_index": self.from_index,
            "from_durable_id": self.from_durable_id,
            "steps": self.steps,
            "last_index": self.last_index,
            "last_number": self.last_number,
            "last_answer_id": self.last_answer_id,
        }


class ForkRecorder:
    """The writing methods about forks, bound to the writing connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.cursor().execute
        self._steps = StepCopier(self._execute)

    # --- the first slice --------------------------------------------------------------------

    def begin(
        self,
        session: str,
        name: str,
        ask: ForkAsk,
        at_ms: int,
        but_not: Collection[int] = (),
        *,
        whole: bool = False,
    ) -> Copying | None:
        """Begin the session `name` as a fork; see `Store.fork_session`. None = it is made; what
        comes back otherwise is for `copy_some`.

        `whole`: make it at once, however long that takes.
        """
        copying = self._reserve(session, name, ask, at_ms, but_not)
        copying = self.copy_some(copying, whole=whole)
        if not copying.is_copied():
            return copying
        is_made = self.publish(copying)
        assert is_made, "nobody else writes in this transaction"
        return None

    _FIND = "select id, title, next_index from session where name = ?"

    _IS_TAKEN = """
        select 1 from session where name = :name
        union all
        select 1 from leftover where kind = 'fork' and name = :name
        """

    _RESERVE = f"insert into leftover (kind, id, name) values ('fork', {NEXT_SESSION_ID}, ?)"

    _FIND_RESERVED = "select id from leftover where kind = 'fork' and name = ?"

    _SEEN = """
        select
          coalesce((select seq from sqlite_sequence where name = 'answer'), 0),
          (select coalesce(max(number), 0) from rollback where session_id = :parent_id),
          coalesce((select seq from sqlite_sequence where name = 'durable_call'), 0),
          (
            select min(created_ms)
            from step
            where coalesce(:index, :step_number) is not null
              and session_id = :parent_id and rolled_back_ms is null
              and (step_index >= :index or step_number >= :step_number)
          )
        """

    _LAST_PLACE = """
        select max(step_index), max(step_number)
        from step
        where session_id = ? and rolled_back_ms is null
        """

    def _reserve(
        self, session: str, name: str, ask: ForkAsk, at_ms: int, but_not: Collection[int]
    ) -> Copying:
        row = self._execute(self._FIND, (session,)).fetchone()
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        if self._execute(self._IS_TAKEN, {"name": name}).fetchone() is not None:
            raise NameTaken(name)
        parent_id, title, next_index = row
        before = ask.before or Place()
        last_index, last_number = self._execute(self._LAST_PLACE, (parent_id,)).fetchone()
        check_place(session, before, None if last_index is None else (last_index, last_number))
        self._execute(self._RESERVE, (name,))
        (session_id,) = self._execute(self._FIND_RESERVED, (name,)).fetchone()
        self._steps.begin(session_id)
        place = {"parent_id": parent_id, "index": before.index, "step_number": before.step_number}
        answer_id, rollback, durable_id, until_ms = self._execute(self._SEEN, place).fetchone()
        return Copying(
            session_id=session_id,
            parent_id=parent_id,
            parent=session,
            name=name,
            ask=ask,
            but_not=but_not,
            at_ms=at_ms,
            title=title if ask.title is None else readable(ask.title) or None,
            end_index=next_index if before.index is None else min(before.index, next_index),
            seen_answer_id=answer_id,
            seen_rollback=rollback,
            last_durable_id=durable_id,
            durables_until_ms=until_ms,
        )

    # --- slices -----------------------------------------------------------------------------

    def copy_some(self, copying: Copying, *, whole: bool = False) -> Copying:
        """Copy what can be in `SLICE_S`, at least something; or all of it."""
        until_s = inf if whole else monotonic_s() + SLICE_S
        while True:
            if copying.from_index is not None:
                copying = self._copy_steps(copying)
            elif copying.from_durable_id is not None:
                copying = self._copy_durables(copying, copying.from_durable_id)
            if copying.is_copied() or monotonic_s() >= until_s:
                return copying

    def _copy_steps(self, copying: Copying) -> Copying:
        batch = self._steps.copy(copying.values(), copying.but_not)
        copying = replace(copying, from_index=batch.next_index, steps=copying.steps + batch.steps)
        if batch.last_index is None or batch.last_number is None:
            return copying
        return replace(
            copying,
            last_index=batch.last_index,
            last_number=max(copying.last_number, batch.last_number),
            last_answer_id=batch.last_answer_id or copying.last_answer_id,
        )

    _LAST_OF_DURABLES = """
        select max(id)
        from (
          select id
          from durable_call
          where session_id = :parent_id and id > :from_durable_id and id <= :last_durable_id
          order by id
          limit :at_once
        )
        """

    # What was done before the first step that is not shared is not done again. In the same
    # millisecond nobody knows which was first; then it was done.
    _COPY_DURABLES = """
        insert into durable_call (
          name, session_id, digest, occurrence, tool, key, call_id, state, created_ms, begun_ms,
          runs, outcome, finished_ms, settled_as, settled_by, settled_why, settled_ms, size,
          arguments, edited_size, edited, value_size, value
        )
        select 'dur_' || lower(hex(randomblob(10))), :session_id, digest,
          coalesce(
            (
              select max(mine.occurrence) + 1
              from durable_call as mine
              where mine.session_id = :session_id and mine.digest = durable_call.digest
            ),
            0
          ) + row_number() over (partition by digest order by occurrence) - 1,
          tool, key, call_id, state, created_ms, begun_ms, runs, outcome, finished_ms, settled_as,
          settled_by, settled_why, settled_ms, size, arguments, edited_size, edited, value_size,
          value
        from durable_call
        where session_id = :parent_id and id > :from_durable_id and id <= :last_id
          and state = 'done' and forgotten_ms is null
          and (:durables_until_ms is null or created_ms <= :durables_until_ms)
        order by id
        """

    def _copy_durables(self, copying: Copying, from_id: int) -> Copying:
        values = copying.values() | {"at_once": DURABLES_AT_ONCE}
        (last_id,) = self._execute(self._LAST_OF_DURABLES, values).fetchone()
        if last_id is not None:
            self._execute(self._COPY_DURABLES, values | {"last_id": last_id})
        return replace(copying, from_durable_id=last_id)

    # --- the end ----------------------------------------------------------------------------

    _STANDS = """
        select coalesce((select max(number) from rollback where session_id = :parent_id), 0)
        from session
        where id = :parent_id and name = :parent
        """

    _LET_GO = "delete from leftover where kind = 'fork' and id = ?"

    _ADD_SESSION = """
        insert into session (
          id, name, created_ms, updated_ms, steps, next_index, last_step_number, prompt_id, title,
          parent, said, fork_of, fork_step_number, fork_index, forked_by, shared_steps,
          shared_answer_id, idle_ms
        )
        select :session_id, :name, :at_ms, :at_ms, :steps, :last_index + 1, :last_number,
          (select prompt_id from step where session_id = :session_id and step_index = :last_index),
          :title, parent, said, :parent, :step_number, :index, :by, :steps, :last_answer_id, :at_ms
        from session
        where id = :parent_id
        """

    _COPY_TAGS = """
        insert into tag (session_id, name, value)
        select :session_id, name, value
        from tag
        where session_id = :parent_id
        """

    # What its agent said goes along, since it is known to have been said; what a person set, and
    # how far people let the other one go on, does not.
    _COPY_BUDGET = """
        insert into budget (
          session_id, said_steps, said_tokens, said_microusd, said_repeats, said_action
        )
        select :session_id, said_steps, said_tokens, said_microusd, said_repeats, said_action
        from budget
        where session_id = :parent_id
          and coalesce(said_steps, said_tokens, said_microusd, said_repeats, said_action)
            is not null
        """

    def publish(self, copying: Copying) -> bool:
        """Have a copied fork be a session. False = the other one was rolled back, restored, edited
        or deleted since the fork began: `abandon` it, and begin anew."""
        values: Mapping[str, object] = copying.values()
        row = self._execute(self._STANDS, values).fetchone()
        if row is None or row[0] != copying.seen_rollback:
            return False
        # An agent may have begun a session of that name.
        if self._execute(self._FIND, (copying.name,)).fetchone() is not None:
            raise NameTaken(copying.name)
        if not copying.steps:
            raise nothing_before(copying.parent, copying.ask.before)
        for statement in (self._ADD_SESSION, self._COPY_TAGS, self._COPY_BUDGET):
            self._execute(statement, values)
        self._execute(self._LET_GO, (copying.session_id,))
        self._steps.forget(copying.session_id)
        return True

    _LEAVE = "update leftover set kind = 'session', name = null where kind = 'fork' and id = ?"

    def abandon(self, copying: Copying) -> None:
        """Leave what was copied to the removal."""
        self._execute(self._LEAVE, (copying.session_id,))
        self._steps.forget(copying.session_id)

    _LEAVE_ALL = "update leftover set kind = 'session', name = null where kind = 'fork'"

    def abandon_all(self) -> None:
        """Leave what a dead process was copying to the removal."""
        self._execute(self._LEAVE_ALL)
