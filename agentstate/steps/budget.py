"""Budgets: may a session pay for a call? If it has come to a cap, refuse it or ask a person.

Theory of operation. A call is looked at after the record was, so replays and joins pass whatever
was paid, and before its claim. What a session has paid is on record, counted in the transaction
that records it; so a restart forgets nothing, and calls in flight, which nobody has counted yet,
may go over a cap. At a cap a call is refused, or the gate asks: one question for the session,
however many of its calls wait; each that goes on looks at the caps anew. A rejection stands until
somebody changes the budget. Who waits is woken by the decision or the change, and reads the record
(invariant 5).

Where a session has no caps nothing is read. The values are in `ground/budget.py`.
"""

from __future__ import annotations

import logging
import shlex
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import quote

from agentstate.ground.approvals import Question
from agentstate.ground.budget import (
    Budget,
    BudgetAction,
    BudgetChange,
    Caps,
    Limit,
    action_of,
    limits_of,
    name_of,
    offer_of,
    shown,
    why_of,
)
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BudgetReached, StoreError, shorten
from agentstate.ground.events import Event, EventKind
from agentstate.ground.settings import BudgetSettings
from agentstate.steps.findings import Finding
from agentstate.steps.gate import Gate, Hold
from agentstate.steps.identify import Caller
from agentstate.steps.noting import noted
from agentstate.steps.outcome import refusal_of
from agentstate.steps.refused import refused
from agentstate.store.base import Store

log = logging.getLogger("agentstate.budget")

TOLD_MAX = 4_096  # caps of sessions that were told of in this process; each a short text
BLIND_MAX = 4_096  # sessions whose unknown costs were logged in this process


@dataclass(frozen=True, slots=True)
class Reached:
    """A cap that a session has come to."""

    session: str
    limit: Limit
    action: BudgetAction
    name: bytes  # see `name_of`
    why: str
    unknown_costs: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How a session stands with its caps."""

    limits: tuple[Limit, ...]
    action: BudgetAction
    budget: Budget


class Budgets:
    """Lets calls pay, or not. One per server."""

    def __init__(self, store: Store, gate: Gate, settings: BudgetSettings) -> None:
        self._store = store
        self._gate = gate
        self._configured = settings.caps
        self._told: OrderedDict[str, None] = OrderedDict()  # ids of events, by last use
        self._blind: OrderedDict[str, None] = OrderedDict()  # sessions, by last use

    # --- calls ------------------------------------------------------------------------------

    async def check(self, caller: Caller) -> Reached | None:
        """Say whether a call may be paid for: None = it may. What is returned is to be asked about,
        with `ask`, once the call has a row.

        Raises:
            BudgetReached: a cap is reached, and its calls are refused.
            GateError: a person was asked about it and refused.
            StoreError: the record cannot be read or written.
        """
        said = None if caller.about is None else caller.about.budget
        may_have_caps = self._configured.has_any or said is not None
        if not (may_have_caps or self._store.may_have_budget(caller.session)):
            return None
        reached = await self._reached(caller.session, said)
        if reached is None:
            return None
        if reached.action == "refuse":
            await self._tell(reached)
            failed = self._store.note_refused(caller.session, reached.why, None, at_ms=now_ms())
            await noted(caller.session, failed, must=False)
            raise BudgetReached(_refused(reached))
        question = await self._store.find_budget_question(caller.session, reached.name)
        if question is not None and (error := refusal_of((question,))) is not None:
            raise await refused(self._store, caller.session, error)
        return reached

    async def ask(self, caller: Caller, reached: Reached, step_id: int | None) -> None:
        """Have a person decide, and wait until the session may pay for this call; `step_id` is its
        row, None = it could not get one.

        Raises:
            GateError: a person refused, nobody decided in time, or calls are refused by now.
            RolledBack: the step of the question was rolled back: the same call asks anew.
            Stopping: the proxy is being stopped.
            StoreError: the question cannot be written.
        """
        if step_id is None:
            raise StoreError(
                f"{reached.limit.setting} of session {shorten(reached.session)!r} is reached, and "
                "the question whether it goes on could not be put on record. Nothing was sent."
            )
        asked: Reached | None = reached
        while asked is not None:
            await self._tell(asked)
            question = self._question(caller, asked)
            rows = await self._store.open_approvals(step_id, None, (question,), at_ms=now_ms())
            self._gate.on_event()
            hold = Hold(step_id, None, (Finding.of(question),), rows)
            rows = await self._gate.decided(hold, caller)
            if (error := refusal_of(rows)) is not None:
                raise error
            asked = await self.check(caller)

    async def admit(self, caller: Caller, step_id: int) -> None:
        """Wait until a session may pay for one more answer to a step that has a row already: a
        round after a refusal, a step that is run again. Raises as `check` and `ask`."""
        reached = await self.check(caller)
        if reached is not None:
            await self.ask(caller, reached, step_id)

    async def _reached(self, session: str, said: Caps | None) -> Reached | None:
        budget = await self._store.read_budget(session)
        limits = limits_of(budget, self._configured, said)
        unknown = budget.spent.unknown_costs
        if unknown and any(limit.cap == "cost_usd" for limit in limits):
            self._warn_blind(session, unknown)
        for limit in limits:
            if limit.is_reached:
                action = action_of(budget, self._configured, said)
                name = name_of(session, budget, limit)
                return Reached(session, limit, action, name, why_of(limit, unknown), unknown)
        if budget.is_asked:
            # The configuration was changed, or the agent says something else: nobody waits for it.
            await self._store.close_budget_questions(session, at_ms=now_ms())
            self._gate.ring_session(session)
        return None

    def _question(self, caller: Caller, reached: Reached) -> Question:
        return Question(
            kind="budget",
            choice=0,
            position=0,
            digest=reached.name,
            tool=reached.limit.setting,
            call_id=None,
            arguments=offer_of(reached.limit),
            rule=f"{reached.limit.setting} ({_source(reached.limit)})",
            why=reached.why,
            deadline_ms=caller.deadline_ms(self._gate.settings.timeout_s, now_ms()),
        )

    # --- who is told ------------------------------------------------------------------------

    async def _tell(self, reached: Reached) -> None:
        """Write that a cap is reached, once for each time it is."""
        # Made of what it tells, so that it is one event after a restart as well.
        event_id = f"evt_{reached.name.hex()[:24]}"
        if event_id in self._told:
            self._told.move_to_end(event_id)
            return
        event = _event(event_id, "budget.reached", reached)
        failed = None
        if reached.action == "refuse":
            failed = _event(f"evt_{reached.name.hex()[24:48]}", "session.failed", reached)
        await self._store.record_budget_reached(event, failed)
        self._told[event_id] = None
        if len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)
        self._gate.on_event()

    def _warn_blind(self, session: str, unknown: int) -> None:
        """Say once that a cap on cost does not see all there is."""
        if session not in self._blind:
            log.warning(
                "session %r: the cost of %d of its answers is not known, so budget.cost_usd does "
                "not count them; a cap on tokens or steps does",
                shorten(session),
                unknown,
            )
        self._blind[session] = None
        self._blind.move_to_end(session)
        if len(self._blind) > BLIND_MAX:
            self._blind.popitem(last=False)

    # --- people -----------------------------------------------------------------------------

    async def set(self, session: str, change: BudgetChange, *, by: str | None) -> None:
        """Set caps of a session; calls that wait look at them anew.

        Raises:
            NotFound: there is no such session.
            StoreError: it could not be written; nothing was changed.
        """
        await self._store.set_budget(session, change, at_ms=now_ms(), by=by)
        self._gate.ring_session(session)

    async def standing(self, session: str) -> Standing:
        """Return how a session stands with its caps, by what its agent said last."""
        budget = await self._store.read_budget(session)
        limits = limits_of(budget, self._configured, None)
        return Standing(limits, action_of(budget, self._configured, None), budget)


def _event(event_id: str, kind: EventKind, reached: Reached) -> Event:
    limit = reached.limit
    facts: dict[str, JSON] = {
        "cap": limit.cap,
        "limit": shown(limit.cap, limit.limit),
        "used": shown(limit.cap, limit.used),
        "action": reached.action,
        "from": limit.source,
        "why": reached.why,
    }
    if limit.cap == "cost_usd":
        facts["unknown_costs"] = reached.unknown_costs
    if kind == "session.failed":
        facts["status"] = "FAILED"
    return Event(event_id, kind, reached.session, now_ms(), facts=facts)


def _refused(reached: Reached) -> str:
    limit, session = reached.limit, shorten(reached.session)
    option = limit.cap.replace("_", "-")
    return (
        f"{limit.setting} of session {session!r} is reached: {reached.why} ({_source(limit)}). "
        "Nothing was sent; what is on record still replays. To go on, whoever runs this proxy "
        f"raises it: agentstate sessions budget {shlex.quote(session)} --{option} N, or POST "
        f"/api/sessions/{quote(session, safe='')}/budget."
    )


def _source(limit: Limit) -> str:
    match limit.source:
        case "configuration":
            return "set in the configuration"
        case "header":
            return "set by x-agent-budget"
        case "person":
            return "set for this session"
