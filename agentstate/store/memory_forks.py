"""Forks and deletion in the dictionary store; `memory.py` builds on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agentstate.ground.approvals import Earlier
from agentstate.ground.budget import NO_CAPS
from agentstate.ground.control import Place, Weight
from agentstate.ground.errors import NotFound
from agentstate.ground.forks import Deletion, ForkAsk, Origin
from agentstate.ground.records import RecordedAnswer
from agentstate.store.approvals import new_approval_id
from agentstate.store.base import readable
from agentstate.store.forks import NameTaken, check_place, free_name, goes_along, nothing_before
from agentstate.store.memory_control import MemoryControl
from agentstate.store.memory_durable import MemoryDurable
from agentstate.store.memory_rows import (
    KeptAnswer,
    KeptSession,
    KeptStep,
    maybe_readable,
    paid_in,
)


class MemoryForks(MemoryControl, MemoryDurable):
    """The methods of `Store` about forks."""

    # --- forks ------------------------------------------------------------------------------

    async def fork_session(
        self, session: str, ask: ForkAsk, *, at_ms: int, but_not: Collection[int] = ()
    ) -> str:
        """See `Store.fork_session`."""
        self._check_open()
        parent = self._session(session)
        name = ask.session or free_name(session, self._sessions.__contains__)
        if name in self._sessions:
            raise NameTaken(name)
        active = parent.active()
        numbers = [step.step_number for step in active]
        last = (active[-1].index, max(numbers)) if active else None
        check_place(session, ask.before or Place(), last)
        shared = [
            step
            for step in active
            if step.state != "in_flight" and step.step_id not in but_not
            if _is_before(step, ask.before or Place())
        ]
        if not shared:
            raise nothing_before(session, ask.before)
        fork = self._new_session(name, at_ms)
        fork.idle_ms = at_ms
        fork.name_shown = parent.name_shown if ask.title is None else readable(ask.title) or None
        fork.parent, fork.said, fork.tags = parent.parent, parent.said, dict(parent.tags)
        fork.budget.said = parent.budget.said
        fork.budget.is_known = parent.budget.said != NO_CAPS
        by = maybe_readable(ask.by)
        fork.origin = Origin(session, at_ms, by, ask.before, len(shared))
        self._sessions[name] = fork
        steps = self._copy_steps(shared, fork)
        for exact, found in parent.aliases.items():
            mine = {steps[step_id].step_id for step_id in found if step_id in steps}
            if mine:
                fork.aliases[exact] = mine
        self._copy_decisions(parent, fork, steps, inherits=ask.inherits_decisions)
        later = [
            step.claim.created_ms for step in active if not _is_before(step, ask.before or Place())
        ]
        self._copy_durables(session, name, min(later) if later else None)
        return name

    def _copy_steps(self, shared: list[KeptStep], fork: KeptSession) -> dict[int, KeptStep]:
        """Give a fork steps of its own, and answers; return them by the id of what they copy."""
        last_id = self._last_ids["step"]
        steps: dict[int, KeptStep] = {}
        for step in shared:
            copy = KeptStep(
                last_id + step.index + 1, fork, step.index, step.step_number, step.claim
            )
            copy.claim = replace(step.claim, session=fork.name)
            copy.state = step.state
            copy.attempts = list(step.attempts)
            fork.steps.append(copy)
            self._steps[copy.step_id] = steps[step.step_id] = copy
        self._last_ids["step"] = fork.steps[-1].step_id
        answers = [(one.answer_id, one) for step in shared for one in _answers_of(step)]
        copies = {
            answer_id: self._copy_answer(one, steps[one.checkpoint.step_id])
            for answer_id, one in sorted(answers, key=lambda pair: pair[0])
        }
        for step in shared:
            copy = steps[step.step_id]
            copy.answers = [copies[one.answer_id] for one in step.answers]
            copy.chosen = None if step.chosen is None else copies[step.chosen.answer_id]
            copy.revisions = {
                copies[answer_id].answer_id: replace(
                    revision, replaces_id=copies[revision.replaces_id].answer_id
                )
                for answer_id, revision in step.revisions.items()
            }
            copy.replaced_ms = {
                copies[answer_id].answer_id: at_ms for answer_id, at_ms in step.replaced_ms.items()
            }
            copy.rounds = {
                (copies[root_id].answer_id, number): copies[one.answer_id]
                for (root_id, number), one in step.rounds.items()
            }
        return steps

    def _copy_answer(self, answer: KeptAnswer, step: KeptStep) -> KeptAnswer:
        copy = replace(
            answer,
            answer_id=self._new_id("answer"),
            checkpoint=replace(answer.checkpoint, step_id=step.step_id),
            releases=[],
            is_shared=True,
            copied_from=answer.answer_id,
            earlier=dict(answer.earlier),
        )
        self._answers[copy.answer_id] = copy
        return copy

    def _copy_decisions(
        self,
        parent: KeptSession,
        fork: KeptSession,
        steps: dict[int, KeptStep],
        *,
        inherits: bool,
    ) -> None:
        copies = {one.copied_from: one for step in fork.steps for one in _answers_of(step)}
        undecided: set[int] = set()  # answers of which something is to be decided here
        for kept in list(parent.approvals):
            question, decision = kept.question, kept.decision
            if kept.step is None or kept.step.step_id not in steps or question.generation:
                continue
            if question.kind == "budget":
                continue  # a fork has paid nothing yet
            answer = None if kept.answer_id is None else copies[kept.answer_id]
            is_request = question.kind == "request"
            if decision is not None and (inherits or (goes_along(decision) and not is_request)):
                copy = replace(
                    kept,
                    approval_id=new_approval_id(),
                    number=self._new_id("approval"),
                    session=fork,
                    step=steps[kept.step.step_id],
                    answer_id=None if answer is None else answer.answer_id,
                )
                self._approvals[copy.approval_id] = copy
                fork.approvals.append(copy)
            elif answer is not None and not is_request:
                undecided.add(answer.answer_id)
                if decision is not None:
                    assert kept.decided_ms is not None, "a decision has its time"
                    place = (question.choice, question.position, question.kind, question.digest)
                    answer.earlier[place] = Earlier(parent.name, decision, kept.decided_ms)
        for step in fork.steps:
            for root in step.answers:
                seen = {root.answer_id} | {
                    one.answer_id
                    for (root_id, _), one in step.rounds.items()
                    if root_id == root.answer_id
                }
                root.is_borrowed = root.delivered is not None and bool(
                    root.is_borrowed or seen & undecided
                )

    async def read_borrowed(self, answer_id: int) -> RecordedAnswer | None:
        """See `Store.read_borrowed`."""
        self._check_open()
        answer = self._answers.get(answer_id)
        return None if answer is None else answer.delivered

    async def precedents_of(self, answer_id: int) -> tuple[Earlier, ...]:
        """See `Store.precedents_of`."""
        self._check_open()
        answer = self._answers.get(answer_id)
        return () if answer is None else tuple(answer.earlier.values())

    # --- deletion ---------------------------------------------------------------------------

    async def weigh_deletion(self, session: str) -> Deletion | None:
        """See `Store.weigh_deletion`."""
        self._check_open()
        found = self._sessions.get(session)
        if found is None:
            return None
        paid = paid_in(found)
        usages = [answer.usage for answer in paid if answer.usage is not None]
        costs = [answer.cost_microusd for answer in paid if answer.cost_microusd is not None]
        weight = Weight(
            steps=len(found.steps),
            input_tokens=sum(usage.input_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
            cost_microusd=sum(costs),
            unknown_costs=len(paid) - len(costs),
        )
        forks = [
            (one.session_id, one.name)
            for one in self._sessions.values()
            if one.origin is not None and one.origin.session == session
        ]
        return Deletion(session, weight, 0, tuple(name for _, name in sorted(forks)))

    async def delete_session(self, session: str) -> Deletion:
        """See `Store.delete_session`."""
        weighed = await self.weigh_deletion(session)
        if weighed is None:
            raise NotFound(f"There is no session {session!r}.")
        gone = self._sessions.pop(session)
        for step in gone.steps:
            del self._steps[step.step_id]
            for answer in _answers_of(step):
                del self._answers[answer.answer_id]
        for approval in gone.approvals:
            del self._approvals[approval.approval_id]
        self._durables = [kept for kept in self._durables if kept.row.session != session]
        self._drop_events(session)
        return weighed

    async def finish_removals(self) -> None:
        """See `Store.finish_removals`."""
        self._check_open()


def _is_before(step: KeptStep, place: Place) -> bool:
    return (place.index is None or step.index < place.index) and (
        place.step_number is None or step.step_number < place.step_number
    )


def _answers_of(step: KeptStep) -> list[KeptAnswer]:
    """Return all answers of a step, the rounds included, by id."""
    return sorted((*step.answers, *step.rounds.values()), key=lambda one: one.answer_id)
