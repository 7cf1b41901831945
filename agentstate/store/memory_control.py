"""Control over a run in the dictionary store; `memory.py` builds on it.

It keeps which steps were active before each change, where SQLite works that out.
"""

from __future__ import annotations

from typing import Literal

from agentstate.ground.control import (
    TAGS_MAX,
    About,
    Change,
    Pause,
    Place,
    Rollback,
    Swap,
    Weight,
    ranges_of,
)
from agentstate.ground.errors import Conflict
from agentstate.ground.events import Event
from agentstate.store.base import readable
from agentstate.store.base_control import ROLLBACKS_MAX
from agentstate.store.memory_events import is_at_end
from agentstate.store.memory_gate import MemoryGate
from agentstate.store.memory_rows import (
    KeptRollback,
    KeptSession,
    KeptStep,
    StatusSaid,
    maybe_readable,
)
from agentstate.store.rollbacks import marked, stood_before, to_undo


class MemoryControl(MemoryGate):
    """The methods of `Store` about control."""

    # --- rollbacks --------------------------------------------------------------------------

    async def roll_back(
        self, session: str, place: Place, *, at_ms: int, by: str | None = None
    ) -> Rollback | None:
        """See `Store.roll_back`."""
        self._check_open()
        found = self._session(session)
        active = {step.index for step in found.active()}
        taken = {step.index for step in _steps_from(found, place)}
        if not taken:
            return None
        return self._turn(found, active - taken, at_ms, by, place=place)

    async def weigh_rollback(self, session: str, place: Place) -> Weight:
        """See `Store.weigh_rollback`."""
        self._check_open()
        found = self._sessions.get(session)
        return Weight() if found is None else _weigh(_steps_from(found, place))

    async def restore(
        self, session: str, rollback_id: int | None, *, at_ms: int, by: str | None = None
    ) -> Rollback:
        """See `Store.restore`."""
        self._check_open()
        found = self._session(session)
        undone = to_undo(session, [kept.row for kept in found.rollbacks], rollback_id)
        [before] = [kept.active_before for kept in found.rollbacks if kept.row == undone]
        undoes = undone.rollback_id
        swaps = self._swaps(found, stood_before([kept.row for kept in found.rollbacks], undoes))
        return self._turn(found, set(before), at_ms, by, undoes=undoes, swaps=swaps)

    async def list_rollbacks(self, session: str, *, limit: int) -> tuple[Rollback, ...]:
        """See `Store.list_rollbacks`."""
        self._check_open()
        found = self._sessions.get(session)
        return marked([kept.row for kept in found.rollbacks] if found else [])[::-1][:limit]

    def _turn(
        self,
        session: KeptSession,
        active: set[int],
        at_ms: int,
        by: str | None,
        *,
        place: Place | None = None,
        undoes: int | None = None,
        verb: Literal["rollback", "edit", "rerun"] = "rollback",
        swaps: tuple[Swap, ...] = (),
    ) -> Rollback:
        """Make exactly these steps active, and other answers stand."""
        steps = {step.index: step for step in session.steps}
        before = frozenset(step.index for step in session.active())
        taken, returned = sorted(before - active), sorted(active - before)
        last_id = session.rollbacks[-1].row.rollback_id if session.rollbacks else 0
        row = Rollback(
            rollback_id=last_id + 1,
            session=session.name,
            made_ms=at_ms,
            by=maybe_readable(by),
            place=place,
            undoes=undoes,
            taken=ranges_of(taken),
            returned=ranges_of(returned),
            weight=_weigh([steps[index] for index in taken]),
            verb=verb,
            swaps=swaps,
        )
        for index in taken:
            steps[index].rolled_back_ms = at_ms
        for index in returned:
            steps[index].rolled_back_ms = None
        for swap in swaps:
            step = steps[swap.index]
            step.chosen, step.before = self._answers[swap.to_id], None
            step.is_claim_answered = False
            step.replaced_ms[swap.from_id] = at_ms
            step.replaced_ms.pop(swap.to_id, None)
        session.rollbacks.append(KeptRollback(row, before))
        del session.rollbacks[:-ROLLBACKS_MAX]
        session.touch(at_ms)
        # What only swaps the last answer for another one leaves a run at its end.
        is_over = not (taken or returned) and is_at_end(session)
        if session.stored_status == "FAILED" or not is_over:
            session.go_on()
        return row

    def _swaps(self, session: KeptSession, stood: dict[int, int]) -> tuple[Swap, ...]:
        found: list[Swap] = []
        for index, answer_id in sorted(stood.items()):
            step = session.step_at(index)
            now = None if step is None else step.shown()
            assert now is not None, "a step that was revised has an answer"
            if now.answer_id != answer_id and not self._answers[answer_id].is_taken_back:
                found.append(Swap(index, now.answer_id, answer_id))
        return tuple(found)

    # --- pauses -----------------------------------------------------------------------------

    async def pause(
        self, session: str, *, at_ms: int, reason: str | None = None, by: str | None = None
    ) -> None:
        """See `Store.pause`."""
        self._check_open()
        found = self._session(session)
        since_ms = at_ms if found.pause is None else found.pause.since_ms
        found.pause = Pause(since_ms, maybe_readable(reason), maybe_readable(by))
        found.touch(at_ms)

    async def resume(self, session: str, *, at_ms: int) -> None:
        """See `Store.resume`."""
        self._check_open()
        found = self._session(session)
        if found.pause is not None:
            found.pause = None
            found.touch(at_ms)

    async def read_pause(self, session: str) -> Pause | None:
        """See `Store.read_pause`."""
        self._check_open()
        return self._sessions[session].pause if session in self._sessions else None

    # --- what a session is called -------------------------------------------------------------

    async def change_session(
        self,
        session: str,
        change: Change,
        *,
        at_ms: int,
        reason: str | None = None,
        by: str | None = None,
        event: Event | None = None,
    ) -> None:
        """See `Store.change_session`."""
        self._check_open()
        found = self._session(session)
        tags = dict(found.tags)
        for name, value in change.tags:
            if value is None:
                tags.pop(readable(name), None)
            else:
                tags[readable(name)] = readable(value)
        if change.tags and len(tags) > max(TAGS_MAX, len(found.tags)):
            raise Conflict(f"A session has at most {TAGS_MAX} tags. Take one away first.")
        found.tags = tags
        if change.name is not None:
            found.name_shown = readable(change.name) or None
        self._changed(session)
        if change.status is not None:
            is_news = found.stored_status != change.status
            found.stored_status = change.status
            found.status_said = StatusSaid(maybe_readable(reason), maybe_readable(by), at_ms)
            found.touch(at_ms)
            if event is not None and is_news:
                self._tell(event)

    async def record_about(self, session: str, about: About) -> None:
        """See `Store.record_about`."""
        self._check_open()
        found = self._session(session)
        if found.said != about:
            self._say(found, about)
            self._changed(session)

    def _say(self, session: KeptSession, about: About) -> None:
        if about == session.said:
            return
        session.said = about
        if about.name is not None:
            session.name_shown = readable(about.name) or None
        if about.parent is not None:
            session.parent = readable(about.parent)
        if about.budget is not None:
            session.budget.said = about.budget
            session.budget.is_known = True
        for name, value in about.tags:
            if len(session.tags) < TAGS_MAX or readable(name) in session.tags:
                session.tags[readable(name)] = readable(value)


def _steps_from(session: KeptSession, place: Place) -> list[KeptStep]:
    return [
        step
        for step in session.active()
        if (place.index is None or step.index >= place.index)
        and (place.step_number is None or step.step_number >= place.step_number)
    ]


def _weigh(steps: list[KeptStep]) -> Weight:
    answers = [answer for step in steps if (answer := step.standing()) is not None]
    usages = [answer.usage for answer in answers if answer.usage is not None]
    costs = [answer.cost_microusd for answer in answers if answer.cost_microusd is not None]
    return Weight(
        steps=len(steps),
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        cost_microusd=sum(costs),
        unknown_costs=len(answers) - len(costs),
    )
