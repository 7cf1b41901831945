"""What the writer thread runs for control over a run: rollbacks, pauses, what a session is called.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. The counterpart that reads is `sqlite_control_read.py`.

Invariant: a step's `rolled_back_ms` changes only here, and each change is a row of `rollback` that
lists it, as is each change of its standing answer that a person makes; so any earlier state can be
worked out by going back over the rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from agentstate.ground.canonical import digest
from agentstate.ground.control import (
    TAGS_MAX,
    About,
    Change,
    Place,
    Rollback,
    Swap,
    ranges_of,
)
from agentstate.ground.errors import Conflict, NotFound, shorten
from agentstate.ground.events import Event, Subscription
from agentstate.store.base import readable
from agentstate.store.base_control import ROLLBACKS_MAX
from agentstate.store.rollbacks import active_before, stood_before, to_undo
from agentstate.store.sqlite_budget_record import BudgetRecorder
from agentstate.store.sqlite_columns import maybe_readable
from agentstate.store.sqlite_control_read import active_from, read_rollbacks, weigh
from agentstate.store.sqlite_events_read import AWAITS_TOOLS
from agentstate.store.sqlite_events_record import EventRecorder

SAID_BYTES = 8  # tells what one agent says of one session apart


class ControlRecorder:
    """The writing methods about control, bound to the writing connection."""

    def __init__(
        self, connection: sqlite3.Connection, events: EventRecorder, budget: BudgetRecorder
    ) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute
        self._events = events
        self._budget = budget

    # --- rollbacks --------------------------------------------------------------------------

    def roll_back(self, session: str, place: Place, at_ms: int, by: str | None) -> Rollback | None:
        """Take steps back; see `Store.roll_back`."""
        session_id, next_index = self.find(session)
        taken = ranges_of(active_from(self._connection, session_id, place))
        if not taken:
            return None
        weight = weigh(self._connection, session_id, taken)
        row = Rollback(0, session, at_ms, maybe_readable(by), place, None, taken, (), weight)
        return self.turn(session_id, next_index, row)

    _ACTIVITY = """
        select step_index, rolled_back_ms is null
        from step
        where session_id = ? and step_index < ?
        """

    def restore(
        self, session: str, rollback_id: int | None, at_ms: int, by: str | None
    ) -> Rollback:
        """Go back to before a rollback or restore; see `Store.restore`."""
        session_id, next_index = self.find(session)
        rows = read_rollbacks(self._connection, session_id, session)
        undone = to_undo(session, [row for row, _ in rows], rollback_id)
        steps = self._execute(self._ACTIVITY, (session_id, next_index)).fetchall()
        now = {index for index, is_active in steps if is_active}
        undoes = undone.rollback_id
        before = active_before(rows, undoes, now)
        taken, returned = ranges_of(sorted(now - before)), ranges_of(sorted(before - now))
        weight = weigh(self._connection, session_id, taken)
        stood = stood_before([row for row, _ in rows], undoes)
        swaps = tuple(self._swaps(session_id, stood))
        name = maybe_readable(by)
        row = Rollback(0, session, at_ms, name, None, undoes, taken, returned, weight, swaps=swaps)
        return self.turn(session_id, next_index, row)

    _READ_STANDING = """
        select step.answer_id, answer.id
        from step
        left join answer on answer.id = :answer_id and answer.step_id = step.id
          and answer.taken_back_ms is null
        where step.session_id = :session_id and step.step_index = :index
        """

    def _swaps(self, session_id: int, stood: Mapping[int, int]) -> Iterator[Swap]:
        """Yield what makes these answers stand again, by index; one that was taken back cannot."""
        for index in sorted(stood):
            values = {"session_id": session_id, "index": index, "answer_id": stood[index]}
            now, before = self._execute(self._READ_STANDING, values).fetchone()
            if before is not None and before != now:
                yield Swap(index, now, before)

    _ADD_ROLLBACK = """
        insert into rollback (
          session_id, number, made_ms, made_by, step_number, step_index, undoes, next_index, taken,
          returned, steps, input_tokens, output_tokens, cost_microusd, unknown_costs, verb, swaps
        )
        values (
          :session_id, :number, :made_ms, :by, :step_number, :index, :undoes, :next_index, :taken,
          :returned, :steps, :input_tokens, :output_tokens, :cost_microusd, :unknown_costs, :verb,
          :swaps
        )
        """

    _LAST_NUMBER = "select coalesce(max(number), 0) from rollback where session_id = ?"

    _DROP_OLDEST = "delete from rollback where session_id = ? and number <= ?"

    _SET_STEPS = """
        update step
        set rolled_back_ms = ?
        where session_id = ? and step_index between ? and ?
        """

    _TURN_SESSION = """
        update session
        set
          last_step_number = (
            select max(step_number)
            from step
            where session_id = session.id and rolled_back_ms is null
          ),
          updated_ms = max(updated_ms, :at_ms),
          status = case when status in ('FAILED', :ended) then 'RUNNING' else status end,
          status_ms = case when status in ('FAILED', :ended) then null else status_ms end
        where id = :session_id
        """

    _IS_AT_END = f"""
        select state = 'complete' and not ({AWAITS_TOOLS})
        from step
        where session_id = ? and rolled_back_ms is null
        order by step_index desc
        limit 1
        """

    def _is_at_end(self, session_id: int) -> bool:
        """Say whether the last active step of a session is answered, and its answer asks for
        nothing."""
        row = self._execute(self._IS_AT_END, (session_id,)).fetchone()
        return row is not None and bool(row[0])

    def turn(self, session_id: int, next_index: int, row: Rollback) -> Rollback:
        """Write a row and what it does; return it with its number."""
        place, weight = row.place or Place(), row.weight
        (last_number,) = self._execute(self._LAST_NUMBER, (session_id,)).fetchone()
        number = last_number + 1
        values = {
            "session_id": session_id,
            "number": number,
            "made_ms": row.made_ms,
            "by": row.by,
            "step_number": place.step_number,
            "index": place.index,
            "undoes": row.undoes,
            "next_index": next_index,
            "taken": json.dumps(row.taken, separators=(",", ":")),
            "returned": json.dumps(row.returned, separators=(",", ":")),
            "steps": weight.steps,
            "input_tokens": weight.input_tokens,
            "output_tokens": weight.output_tokens,
            "cost_microusd": weight.cost_microusd,
            "unknown_costs": weight.unknown_costs,
            "verb": None if row.kind in ("rollback", "restore") else row.verb,
            "swaps": json.dumps(
                [[swap.index, swap.from_id, swap.to_id] for swap in row.swaps],
                separators=(",", ":"),
            ),
        }
        self._execute(self._ADD_ROLLBACK, values)
        self._execute(self._DROP_OLDEST, (session_id, number - ROLLBACKS_MAX))
        for ranges, rolled_back_ms in ((row.taken, row.made_ms), (row.returned, None)):
            for first, last in ranges:
                self._execute(self._SET_STEPS, (rolled_back_ms, session_id, first, last))
        for swap in row.swaps:
            self._swap(session_id, swap, row.made_ms)
        # What only swaps the last answer for another one leaves a run at its end.
        is_over = not (row.taken or row.returned) and self._is_at_end(session_id)
        turned = {"at_ms": row.made_ms, "session_id": session_id}
        self._execute(self._TURN_SESSION, turned | {"ended": None if is_over else "COMPLETED"})
        return replace(row, rollback_id=number)

    # What a call in flight brings later replaces this as it would have replaced the other.
    _SET_STANDING = """
        update step
        set answer_id = ?, is_claim_answered = 0
        where session_id = ? and step_index = ?
        """

    _FORGET_ASIDE = """
        delete from set_aside
        where answer_id in (
          select answer.id
          from step
          join answer on answer.step_id = step.id
          where step.session_id = ? and step.step_index = ?
        )
        """

    _SET_ASIDE = """
        insert into set_aside (answer_id)
        select answer.id
        from step
        join answer on answer.step_id = step.id
        where step.session_id = ? and step.step_index = ? and answer.id > step.answer_id
          and not exists (select * from round where answer_id = answer.id)
        """

    _SET_REPLACED = """
        update approval
        set replaced_ms = :at_ms
        where answer_id in (
          select :answer_id
          union all
          select answer_id from round where root_id = :answer_id
        )
        """

    def _swap(self, session_id: int, swap: Swap, at_ms: int) -> None:
        """Have another answer of a step stand: nobody waits for what was asked about the first."""
        place = (session_id, swap.index)
        self._execute(self._SET_STANDING, (swap.to_id, *place))
        self._execute(self._FORGET_ASIDE, place)
        self._execute(self._SET_ASIDE, place)
        for answer_id, replaced_ms in ((swap.from_id, at_ms), (swap.to_id, None)):
            self._execute(self._SET_REPLACED, {"answer_id": answer_id, "at_ms": replaced_ms})

    # --- pauses -----------------------------------------------------------------------------

    _PAUSE = """
        update session
        set
          paused_ms = coalesce(paused_ms, :at_ms),
          pause_reason = :reason,
          paused_by = :by,
          updated_ms = max(updated_ms, :at_ms)
        where name = :session
        """

    def pause(self, session: str, at_ms: int, reason: str | None, by: str | None) -> None:
        """Write that a session is paused; see `Store.pause`."""
        said = {"reason": maybe_readable(reason), "by": maybe_readable(by)}
        done = self._execute(self._PAUSE, {"session": session, "at_ms": at_ms, **said})
        if done.rowcount == 0:
            raise _no_session(session)

    _RESUME = """
        update session
        set paused_ms = null, pause_reason = null, paused_by = null,
          updated_ms = max(updated_ms, ?)
        where id = ? and paused_ms is not null
        """

    def resume(self, session: str, at_ms: int) -> None:
        """Write that a session goes on; see `Store.resume`."""
        session_id, _ = self.find(session)
        self._execute(self._RESUME, (at_ms, session_id))

    # --- what a session is called -------------------------------------------------------------

    _READ_STATUS = "select status from session where id = ?"

    _SET_STATUS = """
        update session
        set
          status = :status, status_reason = :reason, status_by = :by, status_ms = :at_ms,
          updated_ms = max(updated_ms, :at_ms)
        where id = :id
        """

    _SET_TITLE = "update session set title = ? where id = ?"

    _SET_PARENT = "update session set parent = ? where id = ?"

    def change(
        self,
        session: str,
        change: Change,
        at_ms: int,
        reason: str | None,
        by: str | None,
        event: Event | None,
        subscriptions: Sequence[Subscription],
    ) -> None:
        """Write what somebody changes; see `Store.change_session`."""
        session_id, _ = self.find(session)
        if change.name is not None:
            self._execute(self._SET_TITLE, (readable(change.name) or None, session_id))
        if change.tags and not self._set_tags(session_id, change.tags):
            raise Conflict(f"A session has at most {TAGS_MAX} tags. Take one away first.")
        if change.status is not None:
            (status,) = self._execute(self._READ_STATUS, (session_id,)).fetchone()
            said = {"reason": maybe_readable(reason), "by": maybe_readable(by), "at_ms": at_ms}
            values = said | {"status": change.status, "id": session_id}
            self._execute(self._SET_STATUS, values)
            if event is not None and status != change.status:
                self._events.write(event, subscriptions)

    def say_of(self, session: str, about: About) -> None:
        """Write what an agent says of its session; see `Store.record_about`."""
        session_id, _ = self.find(session)
        self.say(session_id, about)

    _READ_SAID = "select said from session where id = ?"

    _SET_SAID = "update session set said = ? where id = ?"

    def say(self, session_id: int, about: About) -> None:
        """Write what an agent says of its session, unless it is what it said before."""
        tags = [word.encode("utf-8", "replace") for pair in about.tags for word in pair]
        names = [
            b"-" if name is None else b"+" + name.encode("utf-8", "replace")
            for name in (about.name, about.parent)
        ]
        budget = () if about.budget is None else (repr(about.budget).encode(),)
        now_said = digest(*names, *tags, *budget)[:SAID_BYTES]
        (said,) = self._execute(self._READ_SAID, (session_id,)).fetchone()
        if now_said == said:
            return
        self._execute(self._SET_SAID, (now_said, session_id))
        if about.name is not None:
            self._execute(self._SET_TITLE, (readable(about.name) or None, session_id))
        if about.parent is not None:
            self._execute(self._SET_PARENT, (readable(about.parent), session_id))
        self._set_tags(session_id, about.tags)
        if about.budget is not None:
            self._budget.say(session_id, about.budget)

    _SET_TAG = """
        insert into tag (session_id, name, value)
        select :session_id, :name, :value
        where exists (select 1 from tag where session_id = :session_id and name = :name)
          or (select count(*) from tag where session_id = :session_id) < :tags_max
        on conflict do update set value = excluded.value
        """

    _DROP_TAG = "delete from tag where session_id = ? and name = ?"

    def _set_tags(self, session_id: int, tags: Iterable[tuple[str, str | None]]) -> bool:
        """Write tags, those that go first; False = some had no room."""
        has_room = True
        for name, value in sorted(tags, key=lambda tag: tag[1] is not None):
            if value is None:
                self._execute(self._DROP_TAG, (session_id, readable(name)))
                continue
            row = {"name": readable(name), "value": readable(value), "tags_max": TAGS_MAX}
            done = self._execute(self._SET_TAG, {"session_id": session_id, **row})
            has_room = has_room and done.rowcount > 0
        return has_room

    _END = """
        update session
        set
          status = ?, status_reason = null, status_by = null, status_ms = null,
          updated_ms = max(updated_ms, ?), idle_ms = max(updated_ms, ?)
        where id = ?
        """

    def end(self, session: str, at_ms: int) -> None:
        """Write that nothing runs in a session, whether it is at its end or not; tell nobody, also
        not that it fell silent."""
        session_id, _ = self.find(session)
        status = "COMPLETED" if self._is_at_end(session_id) else "RUNNING"
        self._execute(self._END, (status, at_ms, at_ms, session_id))

    # --- shared -----------------------------------------------------------------------------

    def is_known(self, session: str) -> bool:
        """Say whether a session is on record."""
        return self._execute(self._FIND, (session,)).fetchone() is not None

    _FIND = "select id, next_index from session where name = ?"

    def find(self, session: str) -> tuple[int, int]:
        """Return the row of a session and how many steps it has had."""
        row = self._execute(self._FIND, (session,)).fetchone()
        if row is None:
            raise _no_session(session)
        return row[0], row[1]


def _no_session(session: str) -> NotFound:
    return NotFound(f"There is no session {shorten(session)!r}.")
