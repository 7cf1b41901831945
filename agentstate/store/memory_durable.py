"""Durable tool calls in the dictionary store; `memory.py` builds on it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from agentstate.ground.approvals import Approval
from agentstate.ground.durable import Begin, Begun, DurableCall, DurablePage, Report, Settlement
from agentstate.ground.records import Query
from agentstate.store.base import readable
from agentstate.store.durables import (
    Known,
    Taken,
    choose,
    forgotten,
    meet,
    new_call,
    new_name,
    no_call,
    readable_begin,
    readable_report,
    readable_settlement,
    reported,
    settled,
    takes,
    unknown_event,
)
from agentstate.store.memory_gate import MemoryGate
from agentstate.store.memory_rows import KeptSession, cut_page, maybe_readable


@dataclass(slots=True)
class KeptDurable:
    """A durable call, and who has taken it."""

    durable_id: int
    row: DurableCall
    taken: dict[str, Taken] = field(default_factory=dict)  # by owner; '' = one without a name


class MemoryDurable(MemoryGate):
    """The methods of `Store` about durable calls."""

    def __init__(self) -> None:
        super().__init__()
        self._durables: list[KeptDurable] = []

    async def begin_durable(self, begin: Begin) -> Begun:
        """See `Store.begin_durable`."""
        self._check_open()
        begin = readable_begin(begin)
        session = self._session_begun(begin)
        equal = [
            kept
            for kept in self._durables
            if (kept.row.session, kept.row.digest) == (begin.session, begin.digest)
        ]
        known = [
            Known(kept.durable_id, kept.row.state, kept.row.call_id, kept.taken.get(_owner(begin)))
            for kept in equal
            if kept.row.forgotten_ms is None
        ]
        durable_id = choose(known, begin)
        kept = (
            self._add_durable(session, begin, len(equal))
            if durable_id is None
            else next(kept for kept in equal if kept.durable_id == durable_id)
        )
        approval = None
        if kept.row.state == "asked":
            approval = self._approval_of(session, kept, begin)
            kept.row = replace(kept.row, approval_id=approval.approval_id)
        begun = meet(kept.row, begin, approval)
        assert begun.call is not None, "it was just met"
        if begun.call != kept.row:
            kept.row = begun.call
            session.touch(begin.at_ms)
            if begun.state == "unknown":
                self._tell(unknown_event(kept.row, begin.at_ms))
        if takes(begun):
            kept.taken.setdefault(_owner(begin), Taken(begin.begin_id, begin.call_id))
        return begun

    async def report_durable(
        self, session: str, call: str, report: Report, *, at_ms: int
    ) -> DurableCall:
        """See `Store.report_durable`."""
        self._check_open()
        kept = self._find_durable(session, call)
        after = reported(kept.row, readable_report(report), at_ms)
        if after != kept.row:
            if report.gives_back:
                kept.taken.pop(kept.row.owner or "", None)
            kept.row = after
            if after.state == "unknown":
                self._tell(unknown_event(after, at_ms))
            self._session(session).touch(at_ms)
        return after

    async def settle_durable(
        self, session: str, call: str, settlement: Settlement, *, at_ms: int
    ) -> DurableCall:
        """See `Store.settle_durable`."""
        self._check_open()
        kept = self._find_durable(session, call)
        kept.row = settled(kept.row, readable_settlement(settlement), at_ms)
        self._session(session).touch(at_ms)
        return kept.row

    async def forget_durable(
        self,
        session: str,
        call: str,
        *,
        at_ms: int,
        by: str | None = None,
        reason: str | None = None,
    ) -> DurableCall:
        """See `Store.forget_durable`."""
        self._check_open()
        kept = self._find_durable(session, call)
        said = {"by": maybe_readable(by), "reason": maybe_readable(reason)}
        kept.row = forgotten(kept.row, at_ms=at_ms, **said)
        return kept.row

    async def read_durable(self, call: str) -> DurableCall | None:
        """See `Store.read_durable`."""
        self._check_open()
        name = readable(call)
        return next((kept.row for kept in self._durables if kept.row.call == name), None)

    async def list_durables(self, query: Query) -> DurablePage:
        """See `Store.list_durables`."""
        self._check_open()
        rows = [
            ((kept.durable_id,), replace(kept.row, value=None))
            for kept in self._durables
            if query.session in (None, kept.row.session) and query.state in (None, kept.row.state)
        ]
        page, cursor = cut_page(rows, query, cursor_size=1)
        return DurablePage(page, cursor)

    async def list_let_out(self, session: str, tool: str) -> tuple[Approval, ...]:
        """See `Store.list_let_out`."""
        self._check_open()
        standing = {kept.row.approval_id for kept in self._durables}
        found = [
            (kept.asked_ms, kept.number, shown)
            for kept in (self._sessions[session].approvals if session in self._sessions else ())
            if (shown := self._shown(kept)).question.tool == readable(tool)
            and shown.question.kind in ("tool_call", "text")
            and not shown.question.generation
            and shown.decision is not None
            and shown.decision.is_approved
            and shown.rolled_back_ms is None
            and shown.approval_id not in standing
            and shown.answer_id is not None
            and self._answers[self._root_of(shown.answer_id)].releases
        ]
        return tuple(shown for _, _, shown in sorted(found, key=lambda row: row[:2]))

    def _root_of(self, answer_id: int) -> int:
        step = self._step(self._answers[answer_id].checkpoint.step_id)
        roots = {answer.answer_id: root for (root, _), answer in step.rounds.items()}
        return roots.get(answer_id, answer_id)

    def _session_begun(self, begin: Begin) -> KeptSession:
        if begin.session not in self._sessions:
            self._sessions[begin.session] = self._new_session(begin.session, begin.at_ms)
        return self._sessions[begin.session]

    def _copy_durables(self, session: str, fork: str, until_ms: int | None) -> None:
        """Give a fork the calls that were done until then; None = all."""
        counts: Counter[bytes] = Counter()
        for kept in list(self._durables):
            row = kept.row
            is_done = row.session == session and row.state == "done" and row.forgotten_ms is None
            if is_done and (until_ms is None or row.created_ms <= until_ms):
                copy = replace(
                    row, call=new_name(), session=fork, occurrence=counts[row.digest],
                    owner=None, begin_id=None, lease_ms=None, approval_id=None,
                )  # fmt: skip
                counts[row.digest] += 1
                self._durables.append(KeptDurable(self._new_id("durable"), copy))

    def _add_durable(self, session: KeptSession, begin: Begin, occurrence: int) -> KeptDurable:
        row = new_call(begin, occurrence)
        if begin.question is not None:
            standing = {kept.row.approval_id for kept in self._durables}
            free = [name for name in begin.covered_by if name not in standing]
            if free:
                row = replace(row, state="ready", approval_id=free[0])
        kept = KeptDurable(self._new_id("durable"), row)
        self._durables.append(kept)
        session.touch(begin.at_ms)
        return kept

    def _approval_of(self, session: KeptSession, kept: KeptDurable, begin: Begin) -> Approval:
        if begin.question is None:  # the policy asks no more: what was asked stands
            assert kept.row.approval_id is not None, "it was asked about when it was made"
            return self._shown(self._approvals[kept.row.approval_id])
        return self._open_for_durable(session, kept.row.call, begin.question, begin.at_ms)

    def _find_durable(self, session: str, call: str) -> KeptDurable:
        for kept in self._durables:
            if (kept.row.session, kept.row.call) == (session, readable(call)):
                return kept
        raise no_call(session, call)


def _owner(begin: Begin) -> str:
    return begin.owner or ""
