"""What is read about budgets. All of it only selects.

The counterpart that writes is `sqlite_budget_record.py`.
"""

from __future__ import annotations

import sqlite3

from agentstate.ground.approvals import Approval
from agentstate.ground.budget import Budget, Caps, Spent
from agentstate.store.sqlite_gate_read import read_approval

Connection = sqlite3.Connection

_READ_BUDGET = """
    select session.paid_steps, session.paid_tokens, session.paid_microusd, session.paid_unknown,
      session.repeats, session.row_began, session.created_ms, budget.set_steps, budget.set_tokens,
      budget.set_microusd, budget.set_repeats, budget.set_action, budget.said_steps,
      budget.said_tokens, budget.said_microusd, budget.said_repeats, budget.said_action,
      budget.until_steps, budget.until_tokens, budget.until_microusd,
      case when budget.until_row = session.row_began then budget.until_repeats end,
      coalesce(budget.changes, 0), budget.set_ms, budget.set_by,
      exists (
        select 1
        from approval indexed by approval_waiting
        where approval.session_id = session.id and is_approved is null and kind = 'budget'
      )
    from session
    left join budget on budget.session_id = session.id
    where session.name = ?
    """


def read_budget(connection: Connection, session: str) -> Budget:
    """See `Store.read_budget`."""
    row = connection.execute(_READ_BUDGET, (session,)).fetchone()
    if row is None:
        return Budget()
    return Budget(
        spent=Spent(*row[:6]),
        created_ms=row[6],
        set=Caps(*row[7:12]),
        said=Caps(*row[12:17]),
        until=Caps(*row[17:21]),
        changes=row[21],
        set_ms=row[22],
        set_by=row[23],
        is_asked=bool(row[24]),
    )


_FIND_QUESTION = """
    select approval.name
    from approval
    join step on step.id = approval.step_id
    where approval.session_id = (select id from session where name = ?)
      and approval.kind = 'budget' and approval.digest = ? and step.rolled_back_ms is null
    """


def find_budget_question(connection: Connection, session: str, digest: bytes) -> Approval | None:
    """See `Store.find_budget_question`."""
    row = connection.execute(_FIND_QUESTION, (session, digest)).fetchone()
    return None if row is None else read_approval(connection, row[0])


_LIST_SESSIONS = """
    select session.name
    from budget
    join session on session.id = budget.session_id
    limit ?
    """


def list_budgets(connection: Connection, limit: int) -> list[str]:
    """Return the sessions that have a budget of their own, at most `limit`."""
    return [name for (name,) in connection.execute(_LIST_SESSIONS, (limit,))]
