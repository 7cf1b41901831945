"""Tool calls and recovery of the dictionary store; `memory.py` builds on it."""

from __future__ import annotations

from agentstate.ground.calls import Calling, CallState, Growth, Request, Standing, grow
from agentstate.ground.canonical import canonical
from agentstate.ground.chat import ToolCall
from agentstate.ground.control import Weight
from agentstate.store.base import readable
from agentstate.store.base_calls import CallStore
from agentstate.store.memory_export import MemoryExport
from agentstate.store.memory_gate import MemoryGate
from agentstate.store.memory_rows import KeptAnswer, KeptStep, maybe_readable

LAST = 2**62  # higher than any index or id


class MemoryCalls(MemoryGate, MemoryExport, CallStore):
    """The methods of `Store` about tool calls."""

    async def list_callings(
        self,
        session: str,
        start: tuple[int, int],
        limit: int,
        *,
        last: int | None = None,
        newest_first: bool = False,
    ) -> tuple[Calling, ...]:
        """See `CallStore.list_callings`."""
        self._check_open()
        found = self._sessions.get(session)
        rows = [
            await self._calling(step, root, number, answer)
            for step in (found.steps if found else ())
            for root, number, answer in _answers(step)
        ]
        calling = [row for row in rows if row.all_calls()]
        calling.sort(key=lambda row: (row.index, row.answer_id), reverse=newest_first)
        end = (LAST if last is None else last, LAST)
        low, high = ((last or 0, 0), start) if newest_first else (start, end)
        fit = [row for row in calling if low <= (row.index, row.answer_id) <= high]
        return tuple(fit[:limit])

    async def read_growth(
        self, session: str, places: tuple[int, ...], after: int, limit: int
    ) -> Growth:
        """See `CallStore.read_growth`."""
        self._check_open()
        found = self._sessions.get(session)
        asked = [
            (step.index, step.step_number, self._place(step))
            for step in (found.steps if found else ())
        ]
        later = [row for row in asked if row[0] > after]
        twins = [row for row in asked if row[2] and row[2] in places]
        nodes: dict[int, tuple[int | None, tuple[bytes, int]]] = {}
        for _, _, place in later[:limit]:
            way = self._above(place, len(self._places)) if place else ()
            for number, (each, above) in enumerate(zip((place, *way), (*way, None), strict=True)):
                if place:
                    last = (canonical(self._places[each][1]), len(way) - number)
                    nodes[each] = (above, last)
        return grow([*later[:limit], *twins], nodes, is_all=len(later) < limit)

    async def list_requests(
        self, session: str, dialect: str, after: int, limit: int
    ) -> tuple[Request, ...]:
        """See `CallStore.list_requests`."""
        self._check_open()
        found = self._sessions.get(session)
        rows = [
            Request(step.index, step.step_number, self._place(step), step.claim.request.envelope)
            for step in (found.steps if found else ())
            if step.index > after and step.claim.dialect == dialect
        ]
        return tuple(rows[:limit])

    async def read_standing(self, session: str, open_max: int) -> Standing:
        """See `CallStore.read_standing`."""
        self._check_open()
        found = self._sessions.get(session)
        steps = found.active() if found else []
        answered = [step for step in steps if step.standing() is not None]
        unanswered = [step for step in steps if step.standing() is None]
        paid: list[KeptAnswer] = []
        for step in answered:
            root = step.standing()
            assert root is not None, "it is answered"
            paid.append(root)
            paid += (one for (of, _), one in step.rounds.items() if of == root.answer_id)
        usages = [one.usage for one in paid if one.usage is not None]
        costs = [one.cost_microusd for one in paid if one.cost_microusd is not None]
        return Standing(
            steps=len(steps),
            answered=len(answered),
            prefix=steps.index(unanswered[0]) if unanswered else len(steps),
            last_index=answered[-1].index if answered else None,
            open=tuple((one.index, one.step_number, one.state) for one in unanswered[:open_max]),
            saves=Weight(
                len(answered),
                sum(usage.input_tokens for usage in usages),
                sum(usage.output_tokens for usage in usages),
                sum(costs),
                len(paid) - len(costs),
            ),
        )

    async def _calling(
        self, step: KeptStep, root: KeptAnswer, number: int, answer: KeptAnswer
    ) -> Calling:
        checkpoint = answer.checkpoint
        return Calling(
            session=step.session.name,
            step_id=step.step_id,
            index=step.index,
            step_number=step.step_number,
            dialect=step.claim.dialect,
            model=readable(checkpoint.model),
            answer_id=answer.answer_id,
            answered_ms=checkpoint.answered_ms,
            response_id=maybe_readable(checkpoint.response_id),
            root_id=root.answer_id,
            number=number,
            state=_state(step, root),
            place=self._place(step),
            calls=tuple((choice, _shown(call)) for choice, call in checkpoint.tool_calls),
            approvals=await self.approvals_of(answer.answer_id),
        )


def _answers(step: KeptStep) -> list[tuple[KeptAnswer, int, KeptAnswer]]:
    """Return (root, number, answer) of all answers of a step; number 0 is the root itself."""
    by_id = {answer.answer_id: answer for answer in step.answers}
    rounds = [(by_id[root], number, answer) for (root, number), answer in step.rounds.items()]
    return [*((answer, 0, answer) for answer in step.answers), *rounds]


def _state(step: KeptStep, root: KeptAnswer) -> CallState:
    if step.rolled_back_ms is not None:
        return "rolled_back"
    if root.is_taken_back:
        return "taken_back"
    return "active" if step.standing() is root else "replaced"


def _shown(call: ToolCall) -> ToolCall:
    return ToolCall(
        call.position,
        maybe_readable(call.call_id),
        readable(call.name),
        call.arguments,
        readable(call.kind),
    )
