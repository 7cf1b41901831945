"""Edits and reruns in the dictionary store; `memory.py` builds on it."""

from __future__ import annotations

from dataclasses import replace

from agentstate.ground.control import Place, Ranges, Rollback, Swap, numbers_of
from agentstate.ground.errors import Conflict
from agentstate.ground.lineage import PLACES_MAX
from agentstate.ground.records import Attempt, Checkpoint
from agentstate.ground.revisions import AnswerRow, Link, Placed, Revised, Revision
from agentstate.store.base import readable
from agentstate.store.memory_control import MemoryControl
from agentstate.store.memory_export import MemoryExport
from agentstate.store.memory_rows import KeptAnswer, KeptStep, maybe_readable, readable_attempt
from agentstate.store.revisions import not_standing


class MemoryRevisions(MemoryControl, MemoryExport):
    """The methods of `Store` about revisions."""

    async def revise(
        self, checkpoint: Checkpoint, revision: Revision, *, taken: Ranges, seen: int, at_ms: int
    ) -> Rollback | None:
        """See `Store.revise`."""
        self._check_open()
        step = self._step(checkpoint.step_id)
        session, standing = step.session, step.standing()
        is_rolled_back = step.rolled_back_ms is not None
        if is_rolled_back or step.state == "in_flight" or standing is None:
            raise not_standing(step.index, step.state, is_rolled_back=is_rolled_back)
        if standing.answer_id != revision.replaces_id:
            raise Conflict(
                f"Step {step.index} answers with {standing.answer_id} by now, not with "
                f"{revision.replaces_id}. Look at it again; nothing was changed."
            )
        if session.next_index != seen:
            return None
        answer = self._add_answer(step, checkpoint, is_paid=revision.kind == "rerun")
        step.answers.append(answer)
        by, reason = maybe_readable(revision.by), maybe_readable(revision.reason)
        step.revisions[answer.answer_id] = replace(revision, by=by, reason=reason)
        return self._turn(
            session,
            {one.index for one in session.active()} - set(numbers_of(taken)),
            at_ms,
            by,
            place=Place(index=step.index),
            verb=revision.kind,
            swaps=(Swap(step.index, standing.answer_id, answer.answer_id),),
        )

    async def record_attempts(self, step_id: int, attempts: tuple[Attempt, ...]) -> None:
        """See `Store.record_attempts`."""
        self._check_open()
        self._step(step_id).attempts += map(readable_attempt, attempts)

    async def answers_of(self, step_id: int) -> tuple[AnswerRow, ...]:
        """See `Store.answers_of`."""
        self._check_open()
        step = self._steps.get(step_id)
        return () if step is None else tuple(_answer_row(step, one) for one in step.answers)

    async def read_revision(self, answer_id: int) -> Revision | None:
        """See `Store.read_revision`."""
        self._check_open()
        steps = self._steps.values()
        return next(
            (step.revisions[answer_id] for step in steps if answer_id in step.revisions), None
        )

    async def list_revised(self, session: str) -> tuple[Revised, ...]:
        """See `Store.list_revised`."""
        self._check_open()
        found = self._sessions.get(session)
        if found is None:
            return ()
        turns = [kept.row.made_ms for kept in found.rollbacks if kept.row.swaps]
        return tuple(
            _revised(step, max(turns, default=0)) for step in found.active() if step.revisions
        )

    async def find_answered(self, session: str, response_id: str) -> Link | None:
        """See `Store.find_answered`."""
        self._check_open()
        found, wanted = self._sessions.get(session), readable(response_id)
        steps = found.steps if found else []
        for step in sorted(steps, key=lambda one: (one.rolled_back_ms is None, one.index))[::-1]:
            chosen = step.shown()
            answers = [one for one in step.answers if not one.is_taken_back]
            for answer in sorted(answers, key=lambda one: (one is chosen, one.answer_id))[::-1]:
                if maybe_readable(answer.checkpoint.response_id) == wanted:
                    assert chosen is not None, "it has answers"
                    is_replaced = chosen is not answer
                    answered_ms = answer.checkpoint.answered_ms
                    return Link(step.step_id, chosen.answer_id, is_replaced, answered_ms)
        return None

    async def list_placed(self, session: str, after: int, limit: int) -> tuple[Placed, ...]:
        """See `Store.list_placed`."""
        self._check_open()
        found = self._sessions.get(session)
        steps = [step for step in found.steps if step.index > after] if found else []
        return tuple(map(self._placed, steps[:limit]))

    def _placed(self, step: KeptStep) -> Placed:
        place = self._place(step)
        request = step.claim.request
        answers = (*step.answers, *step.rounds.values())
        ordered = sorted(answers, key=lambda one: one.answer_id)
        ids = [maybe_readable(one.checkpoint.response_id) for one in ordered]
        return Placed(
            step_id=step.step_id,
            index=step.index,
            dialect=step.claim.dialect,
            is_active=step.rolled_back_ms is None,
            response_ids=tuple(dict.fromkeys(one for one in ids if one is not None)),
            envelope_id=self._envelope_id(request),
            envelope=request.envelope,
            place=place,
            above=self._above(place, PLACES_MAX),
        )


def _answer_row(step: KeptStep, answer: KeptAnswer) -> AnswerRow:
    checkpoint = answer.checkpoint
    revision = step.revisions.get(answer.answer_id)
    return AnswerRow(
        answer_id=answer.answer_id,
        answered_ms=checkpoint.answered_ms,
        stands=answer is step.standing(),
        is_taken_back=answer.is_taken_back,
        revision=None if revision is None else replace(revision, request=None),
        has_request=revision is not None and revision.request is not None,
        provider=readable(checkpoint.provider),
        model=readable(checkpoint.model),
        finish_reason=maybe_readable(checkpoint.finish_reason),
        text=readable(checkpoint.text),
        usage=answer.usage,
        usage_estimated=answer.usage_estimated,
        cost_microusd=answer.cost_microusd,
    )


def _revised(step: KeptStep, changed_ms: int) -> Revised:
    standing = step.shown()
    assert standing is not None, "a step that was revised has an answer"
    seen = {*step.revisions, *(one.replaces_id for one in step.revisions.values())}
    own = step.revisions.get(standing.answer_id)
    return Revised(
        step_id=step.step_id,
        answer_id=standing.answer_id,
        is_edited=own is not None and own.kind == "edit",
        others=tuple(sorted(seen - {standing.answer_id})),
        changed_ms=changed_ms,
    )
