"""What the writer thread runs for budgets: what was paid, caps of a session, what was let go on.

As in `sqlite_record.py` a method runs inside a transaction of its caller's, may raise at any point
and may be run again. The counterpart that reads is `sqlite_budget_read.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agentstate.ground.approvals import Approval
from agentstate.ground.budget import CAPS, BudgetChange, CapName, Caps, cap_of, read_more
from agentstate.ground.errors import NotFound, shorten
from agentstate.ground.events import Event, Subscription
from agentstate.store.base_budget import CHANGED, OVER
from agentstate.store.events import why_of
from agentstate.store.sqlite_columns import maybe_readable
from agentstate.store.sqlite_events_record import EventRecorder

_COLUMNS: dict[CapName, str] = {
    "steps": "steps",
    "tokens": "tokens",
    "cost_usd": "microusd",
    "repeats": "repeats",
}
_SPENT: dict[CapName, str] = {
    "steps": "paid_steps",
    "tokens": "paid_tokens",
    "cost_usd": "paid_microusd",
    "repeats": "repeats",
}


class BudgetRecorder:
    """The writing methods about budgets, bound to the writing connection."""

    def __init__(self, connection: sqlite3.Connection, events: EventRecorder) -> None:
        self._execute = connection.cursor().execute
        self._events = events

    # --- what was paid ----------------------------------------------------------------------

    _ADD_UP = """
        update session
        set
          input_tokens = input_tokens + ?,
          output_tokens = output_tokens + ?,
          cost_microusd = cost_microusd + ?,
          unknown_costs = unknown_costs + ?,
          paid_steps = paid_steps + ?,
          paid_tokens = paid_tokens + ?,
          paid_microusd = paid_microusd + ?,
          paid_unknown = paid_unknown + ?,
          updated_ms = max(updated_ms, ?)
        where id = (select session_id from step where id = ?)
        """

    def add_up(
        self,
        step_id: int,
        sums: Sequence[int],
        at_ms: int = 0,
        *,
        paid_steps: int = 0,
        is_paid: bool = True,
    ) -> None:
        """Change the sums of a step's session: tokens in and out, cost, unknown costs; and what it
        has paid, by as much and by that many answers, unless it `is_paid` elsewhere.

        Raises `NotFound` if there is no such step; then what was written before is rolled back.
        """
        tokens_in, tokens_out, cost, unknown = sums
        paid = (paid_steps, tokens_in + tokens_out, cost, unknown) if is_paid else (0, 0, 0, 0)
        if self._execute(self._ADD_UP, (*sums, *paid, at_ms, step_id)).rowcount == 0:
            raise NotFound(f"There is no step with the id {step_id}.")

    # Right-hand sides see the row as it was. `is`, not `=`: null is nothing like null.
    _NOTE_CALLS = """
        update session
        set
          repeats = case
            when :calls is null then 0
            when calls is :calls then repeats + 1
            else 1
          end,
          row_began = case when calls is :calls then row_began else paid_steps end,
          calls = :calls
        where id = (select session_id from step where id = :step_id)
          and (calls is not null or :calls is not null)
        """

    def note_calls(self, step_id: int, calls: bytes | None) -> None:
        """Write what an answer called, before the answer is counted; `calls` names all of it."""
        self._execute(self._NOTE_CALLS, {"step_id": step_id, "calls": calls})

    _FORGET_CALLS = """
        update session
        set repeats = max(repeats - 1, 0)
        where id = (select session_id from step where id = ?)
        """

    def forget_calls(self, step_id: int) -> None:
        """Write that the last answer of a step was taken back."""
        self._execute(self._FORGET_CALLS, (step_id,))

    # --- caps of a session --------------------------------------------------------------------

    _ADD = "insert into budget (session_id) values (?) on conflict do nothing"

    _SAY = """
        update budget
        set said_steps = ?, said_tokens = ?, said_microusd = ?, said_repeats = ?, said_action = ?
        where session_id = ?
        """

    def say(self, session_id: int, caps: Caps) -> None:
        """Write what an agent says of its budget: all of it, in place of what it said before."""
        self._execute(self._ADD, (session_id,))
        self._execute(self._SAY, (*(caps.of(cap) for cap in CAPS), caps.action, session_id))

    _FIND = "select id from session where name = ?"

    _CLEAR = """
        update budget
        set
          set_steps = null, set_tokens = null, set_microusd = null, set_repeats = null,
          set_action = null, until_steps = null, until_tokens = null, until_microusd = null,
          until_repeats = null
        where session_id = ?
        """

    _SET_CAP = "update budget set set_{cap} = ?, until_{cap} = null where session_id = ?"

    _SET_ACTION = "update budget set set_action = ? where session_id = ?"

    _NOTE_CHANGE = """
        update budget
        set set_ms = ?, set_by = ?, changes = changes + 1
        where session_id = ?
        """

    _CLOSE = """
        update approval
        set is_approved = 1, decided_ms = ?, decided_by = ?, reason = ?
        where session_id = ? and kind = 'budget' and is_approved is null
        """

    _TOUCH = "update session set updated_ms = max(updated_ms, ?) where id = ?"

    def change(self, session: str, change: BudgetChange, at_ms: int, by: str | None) -> None:
        """Write what a person sets; see `Store.set_budget`."""
        row = self._execute(self._FIND, (session,)).fetchone()
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        (session_id,) = row
        self._execute(self._ADD, (session_id,))
        if change.clears:
            self._execute(self._CLEAR, (session_id,))
        for cap, amount in change.caps.items():
            statement = self._SET_CAP.format(cap=_COLUMNS[cap])
            self._execute(statement, (amount, session_id))
        if change.action is not None:
            self._execute(self._SET_ACTION, (change.action, session_id))
        self._execute(self._NOTE_CHANGE, (at_ms, maybe_readable(by), session_id))
        self._execute(self._CLOSE, (at_ms, maybe_readable(by), CHANGED, session_id))
        self._execute(self._TOUCH, (at_ms, session_id))

    # --- questions about it -------------------------------------------------------------------

    def close(self, session: str, at_ms: int) -> None:
        """Close what waits; see `Store.close_budget_questions`."""
        for (session_id,) in self._execute(self._FIND, (session,)).fetchall():
            self._execute(self._CLOSE, (at_ms, None, OVER, session_id))

    def note_asked(self, session_id: int) -> None:
        """Write that a session is asked about, so that it is known to have a budget."""
        self._execute(self._ADD, (session_id,))

    _GO_ON = """
        update budget
        set
          until_{cap} = max(
            coalesce(until_{cap}, 0),
            ? + (select {spent} from session where id = budget.session_id)
          ),
          changes = changes + 1
        where session_id = (select id from session where name = ?)
        """

    _NOTE_ROW = """
        update budget
        set until_row = (select row_began from session where id = budget.session_id)
        where session_id = (select id from session where name = ?)
        """

    def go_on(self, approval: Approval) -> None:
        """Write for how much more a session may go on, by a question that was just approved."""
        assert approval.decision is not None, "it is decided"
        cap = cap_of(approval.question.tool)
        more = read_more(cap, approval.decision.arguments or approval.question.arguments)
        statement = self._GO_ON.format(cap=_COLUMNS[cap], spent=_SPENT[cap])
        self._execute(statement, (more, approval.session))
        if cap == "repeats":
            self._execute(self._NOTE_ROW, (approval.session,))

    _FAIL = """
        update session
        set
          status = 'FAILED', status_reason = ?, status_by = null, status_ms = ?,
          updated_ms = max(updated_ms, ?)
        where name = ? and status != 'FAILED'
        """

    def reached(
        self, event: Event, failed: Event | None, subscriptions: Sequence[Subscription]
    ) -> bool:
        """Write that a cap is reached; see `Store.record_budget_reached`."""
        if not self._events.write(event, subscriptions):
            return False
        if failed is not None:
            at_ms = failed.created_ms
            if self._execute(self._FAIL, (why_of(failed), at_ms, at_ms, event.session)).rowcount:
                self._events.write(failed, subscriptions)
        return True
