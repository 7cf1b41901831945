"""Export's part of the dictionary store; `memory.py` builds on it."""

from __future__ import annotations

from agentstate.ground.canonical import JSON, canonical, digest
from agentstate.ground.lineage import PLACES_MAX, Lineage
from agentstate.ground.records import RequestRecord
from agentstate.store.base import readable
from agentstate.store.memory_rows import KeptAnswer, KeptStep, Rows, maybe_readable


class MemoryExport(Rows):
    """The methods of `Store` about export, but for `walk_sessions`."""

    def __init__(self) -> None:
        super().__init__()
        # The place before each and its last message; a place is its index here. The first is none.
        self._places: list[tuple[int, JSON]] = [(0, None)]
        self._place_of: dict[tuple[int, bytes], int] = {}  # (place before, digest of a message)

    async def list_lineage(self, session: str, after: int, limit: int) -> tuple[Lineage, ...]:
        """See `ExportStore.list_lineage`."""
        self._check_open()
        found = self._sessions.get(session)
        shown = [
            (step, answer)
            for step in (found.steps if found else ())
            if step.index > after and (answer := step.shown()) is not None
        ]
        return tuple(self._lineage(step, answer) for step, answer in shown[:limit])

    async def list_places(self, place: int, limit: int) -> tuple[int, ...]:
        """See `ExportStore.list_places`."""
        self._check_open()
        return self._above(place, limit)

    async def read_messages(self, places: tuple[int, ...]) -> tuple[JSON, ...]:
        """See `ExportStore.read_messages`."""
        self._check_open()
        return tuple(self._places[place][1] for place in places)

    async def list_answers(self, step_id: int) -> tuple[int, ...]:
        """See `ExportStore.list_answers`."""
        self._check_open()
        step = self._steps.get(step_id)
        answers = step.answers if step else []
        return tuple(one.answer_id for one in answers if not one.is_taken_back)

    def _lineage(self, step: KeptStep, answer: KeptAnswer) -> Lineage:
        checkpoint, request = answer.checkpoint, step.claim.request
        rounds = [
            one
            for (root_id, _), one in sorted(step.rounds.items(), key=lambda item: item[0])
            if root_id == answer.answer_id
        ]
        asked = [
            approval
            for approval in step.session.approvals
            if approval.answer_id in {answer.answer_id, *(one.answer_id for one in rounds)}
            if not approval.question.generation
        ]
        decided = [approval for approval in asked if approval.decision is not None]
        ids = [maybe_readable(one.checkpoint.response_id) for one in (answer, *rounds)]
        place, revision = self._place(step), step.revisions.get(answer.answer_id)
        return Lineage(
            step_id=step.step_id,
            index=step.index,
            dialect=step.claim.dialect,
            is_mock=step.claim.is_mock,
            is_rolled_back=step.rolled_back_ms is not None,
            answer_id=answer.answer_id,
            is_taken_back=answer.is_taken_back,
            provider=readable(checkpoint.provider),
            finish_reason=maybe_readable(checkpoint.finish_reason),
            cost_microusd=answer.cost_microusd,
            response_ids=tuple(one for one in ids if one is not None),
            is_waiting=len(decided) < len(asked),
            is_decided=bool(decided),
            is_touched=any(not approval.question.is_quiet for approval in decided),
            is_edited=revision is not None and revision.kind == "edit",
            envelope_id=self._envelope_id(request),
            envelope=request.envelope,
            place=place,
            above=self._above(place, PLACES_MAX),
        )

    def _envelope_id(self, request: RequestRecord) -> int:
        shared = canonical([[key, part.digest.hex()] for key, part in request.shared])
        name = digest(request.list_key.encode(), canonical(request.envelope), shared)
        return int.from_bytes(name[:6], "big")

    def _place(self, step: KeptStep) -> int:
        place = 0
        for part in step.claim.request.chain:
            key = (place, part.digest)
            if key not in self._place_of:
                self._place_of[key] = len(self._places)
                self._places.append((place, part.value))
            place = self._place_of[key]
        return place

    def _above(self, place: int, limit: int) -> tuple[int, ...]:
        found: list[int] = []
        while len(found) < limit and (place := self._places[place][0]):
            found.append(place)
        return tuple(found)
