"""Cassettes in the dictionary store; `memory.py` builds on it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from agentstate.ground.control import Place, Rollback
from agentstate.ground.records import Checkpoint, Claim, Claimed
from agentstate.ground.tapes import TapedSession
from agentstate.store.base_tape import session_stands
from agentstate.store.memory_control import MemoryControl
from agentstate.store.memory_events import is_at_end


class MemoryTape(MemoryControl):
    """The methods of `Store` about cassettes."""

    @abstractmethod
    async def claim_step(self, claim: Claim) -> Claimed:
        """See `Store.claim_step`."""

    @abstractmethod
    def _record_answer(self, checkpoint: Checkpoint, *, is_paid: bool = True) -> int:
        """Write an answer; `is_paid`: a model was asked for it, here."""

    async def import_sessions(
        self, sessions: tuple[TapedSession, ...], *, at_ms: int, replaces: bool, by: str | None
    ) -> tuple[Rollback, ...]:
        """See `TapeStore.import_sessions`."""
        self._check_open()
        for taped in sessions:
            if taped.session in self._sessions and not replaces:
                raise session_stands(taped.session)
        turned: list[Rollback] = []
        for taped in sessions:
            if taped.session in self._sessions:
                row = await self.roll_back(taped.session, Place(index=0), at_ms=at_ms, by=by)
                turned += [row] if row is not None else []
            for step in taped.steps:
                claimed = await self.claim_step(step.claim)
                checkpoint = replace(step.checkpoint, step_id=claimed.step_id)
                self._record_answer(checkpoint, is_paid=False)
            found = self._session(taped.session)
            found.stored_status = "COMPLETED" if is_at_end(found) else "RUNNING"
            found.status_said = None  # nobody said so
            found.touch(at_ms)
            found.idle_ms = found.updated_ms
        return tuple(turned)
