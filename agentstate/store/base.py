"""The store: what steps and doors may ask of the record.

Each method is one transaction: it happens whole or not at all, and one that fails never rolls back
a neighbour that shared its commit. Nothing outside this folder knows SQL. `tests/store/contract.py`
is the proof that any backend must pass.

Durability: `record_answer` returns after the answer is on the disk (fsync). `claim_step`,
`append_tail`, `record_failure` and `record_served` survive a kill of the process; a power cut may
take back the last of them, never an answer. `note_replay` is written behind, but reads see it at
once.

The sums of a session count every answer that was recorded and not taken back: an answer replaced by
a refresh, or by a person, was paid for and stays in them. A step shows the answer that stands. What
a fork shares was paid in the session it was forked from, and is not in the fork's sums.

Text that is no Unicode (lone surrogates, which JSON can spell) comes back with U+FFFD in their
place; requests and answers come back as they went in. Token counts and costs are kept in 0 to
`COUNT_MAX`.

Every method may raise `StoreError` when the disk fails; then nothing of it was written. Cancelling
a call does not take back what it already handed over: it may still be written.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, Protocol

from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Usage
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.events import Event
from agentstate.ground.records import (
    Attempt,
    Candidate,
    Checkpoint,
    Claim,
    Claimed,
    Emitter,
    Part,
    Query,
    RecordedAnswer,
    ReplayNote,
    RequestRecord,
    Served,
    SessionPage,
    SessionRow,
    StepPage,
    StepRow,
    Tail,
)
from agentstate.store.base_budget import BudgetStore
from agentstate.store.base_calls import CallStore
from agentstate.store.base_control import ControlStore
from agentstate.store.base_durable import DurableStore
from agentstate.store.base_events import EventStore
from agentstate.store.base_export import ExportStore
from agentstate.store.base_forks import ForkStore
from agentstate.store.base_gate import GateStore
from agentstate.store.base_overview import OverviewStore
from agentstate.store.base_retention import RetentionStore
from agentstate.store.base_revisions import RevisionStore
from agentstate.store.base_tape import TapeStore

Key = Literal["raw", "exact", "pinned", "masked", "alias"]

LIST_LIMIT_MAX = 1000  # rows of one page: enough for a screen, little enough to build in one go
# A trillion tokens, or a million dollars, in one call is an upstream's mistake; sums of a million
# calls still fit the 63 bits of SQLite and of most readers.
COUNT_MAX = 10**12


class Store(
    GateStore, EventStore, ControlStore, RevisionStore, ForkStore, DurableStore, BudgetStore,
    TapeStore, ExportStore, CallStore, OverviewStore, RetentionStore, Protocol,
):  # fmt: skip
    """One record of sessions and their steps; what people decide, are told and do to runs is in its
    bases."""

    # --- life -------------------------------------------------------------------------------

    async def open(self) -> int:
        """Open or create the record, migrate it forward, mark claims of a dead process.

        Returns how many steps were marked `interrupted`. A step that has an answer from before (its
        refresh was interrupted) is complete again instead, and not counted.

        Raises:
            StoreBusy: another server holds the file.
            StoreError: it cannot be opened, is not a database, or is from a newer version.
        """
        ...

    async def close(self) -> None:
        """Write what was noted, fold the log into the file, let go of it. Idempotent.

        Waits a bounded time. Any other method but `open` raises `StoreError` from then on.
        """
        ...

    async def check(self) -> None:
        """Prove with a real write that the record takes writes; raises `StoreError` if not.

        Notices a file that was deleted or replaced under the running server.
        """
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
        row is set back to in_flight and keeps index and number; attempts and answers on record
        stay, and all else is as the new claim says. One that was rolled back meanwhile is left
        alone: the claim gets a new row.

        Raises:
            NotFound: `claim.step_id` is no step of `claim.session`.
        """
        ...

    async def record_answer(self, checkpoint: Checkpoint) -> int:
        """Commit and fsync an answer; the step is complete. An earlier answer stays as history.

        Returns the answer's id. With `checkpoint.approval_id` that approval, of the request before
        it went upstream, is bound to the answer: it allows nothing further.

        Raises:
            NotFound: there is no such step.
        """
        ...

    async def append_tail(self, tail: Tail) -> None:
        """Append what came after the completing frame to the step's answer.

        With `tail.usage` the answer's usage and cost become the tail's; without, both stay.

        Raises:
            NotFound: there is no such step, or no answer that replays.
        """
        ...

    async def record_failure(
        self,
        step_id: int,
        attempts: tuple[Attempt, ...],
        *,
        failed_ms: int,
        fails_session: bool = False,
        why: str | None = None,
        event: Event | None = None,
    ) -> None:
        """Set the step to failed, with its attempts. Also takes back an answer that turned out not
        to have ended cleanly: what was recorded stays visible and does not replay.

        Only what came since the last claim is lost: if an earlier answer stands (a refresh failed),
        the step is complete with that one again.

        `fails_session` sets the session to FAILED, until its next call, with `why` beside it;
        `event` says so to whoever wants to know.

        Raises:
            NotFound: there is no such step.
        """
        ...

    def note_replay(self, note: ReplayNote) -> None:
        """Count a replay: on the step, and the saving on the session, which is RUNNING then if it
        was FAILED or COMPLETED. Written behind.

        What is written of a session's status later stands over it. Never waits and never fails.
        While the disk takes no writes the count may lag.
        """
        ...

    async def keep_replays(self) -> None:
        """Write what was noted of replays, so that it survives a kill of the process."""
        ...

    async def record_served(self, served: Served, session: str, run_id: str) -> None:
        """Write that a run got a step, so that no other call of it gets that again.

        A claim under a run id writes this by itself. Again: the later call stands.

        Raises:
            NotFound: there is no such session or step.
        """
        ...

    def note_delivered(self, session: str, run_id: str, step_id: int) -> None:
        """Note that what a run was served reached its client whole. Written behind; `list_served`
        sees it at once. Never waits and never fails."""
        ...

    async def list_served(
        self, session: str, run_id: str, step_ids: tuple[int, ...]
    ) -> tuple[Served, ...]:
        """Return which of these steps this run has got, by step id."""
        ...

    async def record_alias(self, session: str, exact: bytes, step_id: int) -> None:
        """Write that a request with this fingerprint was answered by a step that is not quite its
        own: `find_candidates` by "alias" finds it from now on. Survives a kill of the process.

        Raises:
            NotFound: there is no such session or step.
        """
        ...

    async def find_emitters(
        self, session: str, call_ids: tuple[str, ...]
    ) -> dict[str, tuple[Emitter, ...]]:
        """Return, per call id, the active steps whose standing answer made a tool call of it."""
        ...

    async def count_steps_at(self, session: str, step_number: int) -> int:
        """Return how many active steps stand at this number: with an answer, or in flight."""
        ...

    async def find_alike(
        self, session: str, depth: int, step_number: int | None, limit: int
    ) -> tuple[Candidate, ...]:
        """Return active steps to compare a request with that was not found: those at
        `step_number`, or without one those whose request has `depth` messages; latest first."""
        ...

    # --- reading ----------------------------------------------------------------------------

    async def list_sessions(self, query: Query) -> SessionPage:
        """List sessions by last activity; `search`, `status`, `parent` and `tags` filter.

        A session that becomes active while a caller pages through may be seen twice or not at all.

        Raises:
            BadRequest: `limit` is not in 1 to `LIST_LIMIT_MAX`, or `after` is no cursor.
        """
        ...

    async def read_session(self, session: str) -> SessionRow | None:
        """Return one session, or None if it was never seen."""
        ...

    async def list_steps(self, query: Query) -> StepPage:
        """List steps of `query.session` by index, rolled-back ones included; `state` filters.

        Raises:
            BadRequest: as `list_sessions`, or no session is named.
        """
        ...

    async def read_step(self, step_id: int) -> StepRow | None:
        """Return one step, or None."""
        ...

    async def find_step(self, session: str, index: int) -> StepRow | None:
        """Return the step of `session` at `index`, or None."""
        ...

    async def read_request(self, step_id: int) -> JSON:
        """Return the request body of a step, rebuilt from its parts; None if there is no step."""
        ...

    async def list_attempts(self, step_id: int) -> tuple[Attempt, ...]:
        """Return all attempts of a step, in order."""
        ...

    async def read_totals(self) -> dict[str, int]:
        """Return counts over the whole record: sessions, steps, replays, cost_microusd,
        saved_microusd, bytes_on_disk, bytes_used (without what was freed and is given back)."""
        ...


# --- shared by the backends -----------------------------------------------------------------------


def cleared(request: RequestRecord) -> RequestRecord:
    """Return a request as it is kept: without secrets, under the digests of what was sent."""
    clear = request.redactor.value
    return replace(
        request,
        envelope=clear(request.envelope),
        shared=tuple((key, Part(part.digest, clear(part.value))) for key, part in request.shared),
        chain=tuple(Part(part.digest, clear(part.value)) for part in request.chain),
    )


def check_limit(query: Query) -> int:
    """Return the page size of a listing, or raise `BadRequest`."""
    if not 1 <= query.limit <= LIST_LIMIT_MAX:
        raise BadRequest(
            f"limit must be 1 to {LIST_LIMIT_MAX}; found {query.limit}.", param="limit"
        )
    return query.limit


def check_session(query: Query) -> str:
    """Return the session whose steps are to be listed, or raise `BadRequest`."""
    if query.session is None:
        raise BadRequest("A listing of steps must name a session.", param="session")
    return query.session


def make_cursor(*place: int) -> str:
    """Render the place after a page's last row; opaque to callers."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def read_cursor(after: str | None, size: int) -> tuple[int, ...] | None:
    """Return the `size` numbers a cursor was made of; None = the first page.

    Raises:
        BadRequest: it is not a cursor of this listing.
    """
    if after is None:
        return None
    try:
        place = json.loads(base64.b64decode(after.encode(), b"-_", validate=True))
    except (binascii.Error, UnicodeError, ValueError, RecursionError):
        place = None
    if (
        not isinstance(place, list)
        or len(place) != size
        or not all(type(number) is int and abs(number) < 2**63 for number in place)
    ):
        raise BadRequest(
            f"after must be the next_cursor of a page before; found {shorten(after)!r}.",
            param="after",
        )
    return tuple(place)


def clamp(count: int) -> int:
    """Keep a count in 0 to `COUNT_MAX`."""
    return max(0, min(count, COUNT_MAX))


def clamp_usage(usage: Usage | None) -> Usage | None:
    """Keep each count of a usage in 0 to `COUNT_MAX`."""
    if usage is None:
        return None
    return Usage(
        clamp(usage.input_tokens),
        clamp(usage.output_tokens),
        clamp(usage.cached_tokens),
        clamp(usage.cache_write_tokens),
        clamp(usage.reasoning_tokens),
    )


def rebuild_body(
    envelope: JSON, shared: Iterable[tuple[str, JSON]], list_key: str, chain: list[JSON]
) -> JSON:
    """Put a request body together again; keys the envelope holds a place for keep it."""
    if not isinstance(envelope, dict):
        return envelope
    body = dict(envelope)
    body.update(shared)
    if list_key:
        body[list_key] = chain
    return body


def readable(text: str) -> str:
    """Return `text` with half surrogate pairs joined, and lone ones replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
