"""Budgets in the SQLite store: what was paid, caps of a session, what was let go on.

As in `sqlite.py`, which builds on it, what is said here is where each method runs. SQL is in
`sqlite_budget_record.py` and `sqlite_budget_read.py`.

Most sessions have no caps of their own. Which may have is known in memory, as with pauses: this
process is the only writer, and what is kept may be too much, never too little.
"""

from __future__ import annotations

from agentstate.ground.approvals import Approval, Question
from agentstate.ground.budget import Budget, BudgetChange
from agentstate.ground.control import About
from agentstate.ground.events import Event
from agentstate.store import sqlite_budget_read as budget_read
from agentstate.store.sqlite_control import SqliteControl
from agentstate.store.sqlite_keys import KeyIndex
from agentstate.store.sqlite_readers import Readers
from agentstate.store.sqlite_sessions import session_of_step
from agentstate.store.sqlite_writer import GroupWriter

BUDGETS_KEPT_MAX = 20_000  # sessions known to have a budget; with more, each call asks the file


class SqliteBudget(SqliteControl):
    """The methods of `Store` about budgets. Belongs to the event loop that opened its parts."""

    def __init__(self, writer: GroupWriter, readers: Readers, keys: KeyIndex) -> None:
        super().__init__(writer, readers, keys)
        self._budgeted: set[str] | None = set()  # that may have one; None = too many to keep

    def _load_budgets(self) -> None:
        """Read which sessions have a budget, once the file is open."""
        names = self._readers.here(
            lambda reader: budget_read.list_budgets(reader, BUDGETS_KEPT_MAX + 1)
        )
        self._budgeted = set(names) if len(names) <= BUDGETS_KEPT_MAX else None

    def may_have_budget(self, session: str) -> bool:
        """See `Store.may_have_budget`."""
        return self._budgeted is None or session in self._budgeted

    async def read_budget(self, session: str) -> Budget:
        """See `Store.read_budget`."""
        return self._readers.here(lambda reader: budget_read.read_budget(reader, session))

    async def set_budget(
        self, session: str, change: BudgetChange, *, at_ms: int, by: str | None = None
    ) -> None:
        """See `Store.set_budget`."""
        self._take_in_budget(session)
        await self._writer.write(
            lambda recorder: recorder.budget.change(session, change, at_ms, by), is_durable=True
        )

    async def open_approvals(
        self, step_id: int, answer_id: int | None, questions: tuple[Question, ...], *, at_ms: int
    ) -> tuple[Approval, ...]:
        """See `Store.open_approvals`."""
        if any(question.kind == "budget" for question in questions):
            session = self._readers.here(lambda reader: session_of_step(reader, step_id))
            if session is not None:
                self._take_in_budget(session)
        return await super().open_approvals(step_id, answer_id, questions, at_ms=at_ms)

    async def close_budget_questions(self, session: str, *, at_ms: int) -> None:
        """See `Store.close_budget_questions`."""
        await self._writer.write(lambda recorder: recorder.budget.close(session, at_ms))

    async def find_budget_question(self, session: str, digest: bytes) -> Approval | None:
        """See `Store.find_budget_question`."""
        return self._readers.here(
            lambda reader: budget_read.find_budget_question(reader, session, digest)
        )

    async def record_budget_reached(self, event: Event, failed: Event | None = None) -> bool:
        """See `Store.record_budget_reached`."""
        await self._write_notes()
        told = self._subscriptions
        return await self._writer.write(
            lambda recorder: recorder.budget.reached(event, failed, told), is_durable=True
        )

    async def record_about(self, session: str, about: About) -> None:
        """See `Store.record_about`."""
        if about.budget is not None:
            self._take_in_budget(session)
        await self._writer.write(lambda recorder: recorder.control.say_of(session, about))

    def _take_in_budget(self, session: str) -> None:
        """Take in that a budget is about to be written, before anybody can look for it."""
        if self._budgeted is not None:
            self._budgeted.add(session)
            if len(self._budgeted) > BUDGETS_KEPT_MAX:
                self._budgeted = None
