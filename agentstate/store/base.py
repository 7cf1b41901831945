"""The store: what steps and doors may ask of the record.

Each method is one transaction: it happens whole or not at all, and one that fails never rolls back
a neighbour that shared its commit. Nothing outside this folder knows SQL. `tests/store/contract.py`
is the proof that any backend must pass.

Durability: `record_answer` returns after the answer is on the disk (fsync). `claim_step`,
`append_tail`, `record_failure` and `consume` survive a kill of the process; a power cut may take
back the last of them, never an answer. `note_replay` is written behind, but reads see it at once.

Every method may raise `StoreError` when the disk fails; then nothing of it was written.
"""

from __future__ import annotations

from typing import Literal, Protocol

from agentstate.ground.canonical import JSON
from agentstate.ground.records import (
    Attempt,
    Candidate,
    Checkpoint,
    Claim,
    Claimed,
    Query,
    RecordedAnswer,
    ReplayNote,
    SessionPage,
    SessionRow,
    StepPage,
    StepRow,
    Tail,
)

Key = Literal["raw", "exact", "pinned", "masked"]


class Store(Protocol):
    """One record of sessions and their steps."""

    # --- life -------------------------------------------------------------------------------

    async def open(self) -> int:
        """Open or create the record, migrate it forward, mark claims of a dead process.

        Returns how many steps were marked `interrupted`.

        Raises:
            StoreBusy: another server holds the file.
            StoreError: it cannot be opened, is not a database, or is from a newer version.
        """
        ...

    async def close(self) -> None:
        """Write what was noted, fold the log into the file, let go of it. Idempotent."""
        ...

    async def check(self) -> None:
        """Prove with a real write that the record takes writes; raises `StoreError` if not."""
        ...

    # --- the life of a call -----------------------------------------------------------------

    async def find_candidates(self, session: str, key: Key, value: bytes) -> tuple[Candidate, ...]:
        """Return the active steps of `session` whose `key` equals `value`, by index.

        Steps of any state are returned; the caller decides. Reads its own and all earlier writes.
        """
        ...

    async def read_answer(self, step_id: int) -> RecordedAnswer | None:
        """Return the answer that replays for this step, its tail included, or None."""
        ...

    async def claim_step(self, claim: Claim) -> Claimed:
        """Write that a call is in flight; make its session on first sight.

        The request's parts and prefix nodes are stored if they are new. With `claim.step_id` that
        row is set back to in_flight and keeps index and number; attempts on record stay.
        """
        ...

    async def record_answer(self, checkpoint: Checkpoint) -> None:
        """Commit and fsync an answer; the step is complete. An earlier answer stays as history."""
        ...

    async def append_tail(self, tail: Tail) -> None:
        """Append what came after the completing frame to the step's answer."""
        ...

    async def record_failure(
        self, step_id: int, attempts: tuple[Attempt, ...], *, failed_ms: int
    ) -> None:
        """Set the step to failed, with its attempts. Also takes back an answer that turned out not
        to have ended cleanly: what was recorded stays visible and does not replay."""
        ...

    def note_replay(self, note: ReplayNote) -> None:
        """Count a replay: on the step, and the saving on the session. Written behind."""
        ...

    async def consume(self, session: str, run_id: str, step_id: int, at_ms: int) -> None:
        """Write that this run has been served this step, so that it is not served to it again."""
        ...

    async def list_consumed(self, session: str, run_id: str) -> frozenset[int]:
        """Return the ids of the steps this run has been served or has itself recorded."""
        ...

    # --- reading ----------------------------------------------------------------------------

    async def list_sessions(self, query: Query) -> SessionPage:
        """List sessions by last activity."""
        ...

    async def read_session(self, session: str) -> SessionRow | None:
        """Return one session, or None if it was never seen."""
        ...

    async def list_steps(self, query: Query) -> StepPage:
        """List steps of `query.session` by index, rolled-back ones included."""
        ...

    async def read_step(self, step_id: int) -> StepRow | None:
        """Return one step, or None."""
        ...

    async def read_request(self, step_id: int) -> JSON:
        """Return the request body of a step, rebuilt from its parts; None if there is no step."""
        ...

    async def list_attempts(self, step_id: int) -> tuple[Attempt, ...]:
        """Return all attempts of a step, in order."""
        ...

    async def read_totals(self) -> dict[str, int]:
        """Return counts over the whole record: sessions, steps, replays, cost_microusd,
        saved_microusd, bytes_on_disk."""
        ...
