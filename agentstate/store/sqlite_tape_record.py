"""What the writer thread runs to take in sessions that were recorded elsewhere.

A step is written by the methods that write any step, so the sums and the keys are theirs to keep
right. All of it is one transaction, which may be long: who imports waits, and so do calls that come
meanwhile.
"""

from __future__ import annotations

from dataclasses import replace

from agentstate.ground.control import Place, Rollback
from agentstate.ground.tapes import TapedSession, TapedStep
from agentstate.store.base_tape import session_stands
from agentstate.store.sqlite_record import Recorder
from agentstate.store.sqlite_request import HeavyParts


def import_sessions(
    recorder: Recorder,
    sessions: tuple[TapedSession, ...],
    at_ms: int,
    replaces: bool,
    by: str | None,
) -> tuple[Rollback, ...]:
    """Write sessions; see `TapeStore.import_sessions`."""
    turned: list[Rollback] = []
    for taped in sessions:
        if recorder.control.is_known(taped.session):
            if not replaces:
                raise session_stands(taped.session)
            row = recorder.control.roll_back(taped.session, Place(index=0), at_ms, by)
            if row is not None:
                turned.append(row)
        for step in taped.steps:
            _import_step(recorder, step)
        recorder.control.end(taped.session, at_ms)
    return tuple(turned)


def _import_step(recorder: Recorder, step: TapedStep) -> None:
    claimed = recorder.claim_step(step.claim)
    if isinstance(claimed, HeavyParts):
        claimed = recorder.claim_step(step.claim, claimed.pack())
    assert not isinstance(claimed, HeavyParts), "a claim that is packed is written"
    # It was paid where it was recorded: no cap of a session here counts it.
    recorder.record_answer(replace(step.checkpoint, step_id=claimed.step_id), is_paid=False)
