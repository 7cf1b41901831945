"""Another answer in the place of one on record: a person writes it, or has the model asked again.

    look → write, or ask → find what goes on from the old one → one transaction → tell who waits

The old answer is kept; the steps that go on from it are taken back, parallel lanes are not. All of
it is one row beside the rollbacks (`store/rollbacks.py`), so a restore brings back the old answer
together with those steps. What the agent sends is what it was: its request finds the step, and gets
the answer that stands. The gate asks anew, since an approval is bound to an answer.

An agent that is alive and has the old answer in its history: `splices.py` and `chains.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Chains, Dialect
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.control import Rollback
from agentstate.ground.errors import AgentStateError, BadRequest, Conflict, NotFound, shorten
from agentstate.ground.records import Checkpoint, RecordedAnswer, StepRow
from agentstate.ground.revisions import Revision
from agentstate.steps import aside
from agentstate.steps.chains import is_all_on_record
from agentstate.steps.checkpoint import TEXT_CHARS_MAX
from agentstate.steps.descent import Descent, said_by
from agentstate.steps.edits import Edit, edited
from agentstate.steps.once import Once
from agentstate.steps.reruns import NotAnswered, Rerun, Reruns
from agentstate.store.base import Store
from agentstate.store.revisions import not_standing

# Steps may begin while it is worked out which are taken back; each look after the first takes only
# the new ones.
LOOKS_MAX = 8


@dataclass(frozen=True, slots=True)
class Maker:
    """Who makes a revision."""

    by: str | None  # None = nobody said
    reason: str | None
    seen_id: int | None = None  # the answer it is to replace; None = whichever stands


@dataclass(frozen=True, slots=True)
class Made:
    """A revision, and what became of the session."""

    step: StepRow  # as it is since
    answer_id: int
    attempts: int  # that were made; 0 = nobody was asked
    change: Rollback


class Revisions:
    """The verbs. One per server."""

    def __init__(self, store: Store, reruns: Reruns | None = None) -> None:
        """`reruns` None: no server runs, so nobody can be asked."""
        self._store = store
        self._reruns = reruns
        self._busy: set[int] = set()  # steps that are being revised
        self._asking = None if reruns is None else Once[int, Made](reruns.tasks, "rerun")
        # What a server sets: who is told once it is written, and whether a step is on its way.
        self.on_turn: Callable[[Rollback], None] = _tell_nobody
        self.is_in_air: Callable[[str, int], bool] = _is_never

    async def edit(self, session: str, index: int, edit: Edit, maker: Maker) -> Made:
        """Have a step answer what a person wrote.

        Raises:
            NotFound: there is no such step.
            BadRequest: the answer cannot be edited so.
            Conflict: the step is rolled back, in flight, has no answer, or another one than was
                seen; or its vendor keeps what it goes on from.
            StoreError: it could not be written; nothing was changed.
        """
        step = await self._find(session, index, maker)
        with _Claimed(self._busy, step):
            subject = await self._subject(step)
            await self._check_chain(subject)
            work = partial(edited, subject.dialect, subject.base, subject.request, edit)
            recorded, answer = await aside.run(work, len(subject.base.content))
            assert subject.step.provider is not None, "who answered has a name"
            checkpoint = Checkpoint(
                step_id=step.step_id,
                answered_ms=now_ms(),
                attempts=(),
                answer=recorded,
                provider=subject.step.provider,
                model=answer.model or step.model,
                response_id=answer.response_id,
                finish_reason=answer.finish_reason,
                text=answer.text[:TEXT_CHARS_MAX],
                tool_calls=answer.tool_calls,
                # What the old one took is counted with that: this one cost nothing.
                usage=None,
                usage_estimated=False,
                cost_microusd=0,
                latency_ms=0,
                first_content_ms=None,
            )
            revision = Revision("edit", subject.answer_id, maker.by, maker.reason)
            return await self._revise(subject, checkpoint, revision)

    async def rerun(self, session: str, index: int, rerun: Rerun, maker: Maker) -> Made:
        """Ask the model again for a step, and have the step answer that. It is done also if who
        asked for it leaves: it is paid for.

        Raises:
            NotFound, Conflict, StoreError: as `edit`; or no key is configured, or no server runs.
            BadRequest: what is to be asked is no request.
            UpstreamError: the model did not answer. The tries are on record; all else is as it was.
        """
        if self._reruns is None or self._asking is None:
            raise Conflict(
                "A rerun asks the model, so it needs a running server. Start one with "
                "`agentstate serve`. Nothing was changed."
            )
        step = await self._find(session, index, maker)
        with _Claimed(self._busy, step):
            work = partial(self._rerun, self._reruns, step, rerun, maker)
            return await self._asking.run(step.step_id, work)

    async def _rerun(self, reruns: Reruns, step: StepRow, rerun: Rerun, maker: Maker) -> Made:
        subject = await self._subject(step)
        await self._check_chain(subject)
        try:
            found = await reruns.ask(step, subject.dialect, subject.request, rerun)
        except NotAnswered as failed:
            await self._store.record_attempts(step.step_id, failed.attempts)
            raise failed.error from failed
        is_other = rerun.request is not None or rerun.model is not None
        asked: JSON = None
        if is_other:
            asked = {**(rerun.request or subject.request)}
            if rerun.model is not None:
                asked["model"] = rerun.model
        revision = Revision("rerun", subject.answer_id, maker.by, maker.reason, reruns.kept(asked))
        try:
            return await self._revise(subject, found, revision)
        except AgentStateError:
            # It is paid for all the same, so that it was asked is kept.
            await self._store.record_attempts(step.step_id, found.attempts)
            raise

    # --- the step -----------------------------------------------------------------------------

    async def _find(self, session: str, index: int, maker: Maker) -> StepRow:
        """Return a step whose answer can be replaced."""
        row = await self._store.read_session(session)
        if row is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        step = await self._store.find_step(session, index)
        if step is None:
            raise NotFound(
                f"Session {shorten(session)!r} has {row.steps} steps, by index from 0; found "
                f"{index}."
            )
        is_rolled_back = step.rolled_back_ms is not None
        if is_rolled_back or step.state != "complete" or step.answer_id is None:
            raise not_standing(index, step.state, is_rolled_back=is_rolled_back)
        if self.is_in_air(session, step.step_id):
            raise not_standing(index, "in_flight", is_rolled_back=False)
        if maker.seen_id not in (None, step.answer_id):
            raise Conflict(
                f"Step {index} answers with {step.answer_id} by now, not with {maker.seen_id}. "
                "Look at it again; nothing was changed."
            )
        return step

    async def _subject(self, step: StepRow) -> _Subject:
        """Read what is to be replaced: what the agent got, or would get."""
        assert step.answer_id is not None, "it was looked at"
        dialect = dialect_by_name(step.dialect)
        request = await self._store.read_request(step.step_id)
        base = await self._store.read_borrowed(step.answer_id)
        base = base or await self._store.read_answer_by_id(step.answer_id)
        if dialect is None or base is None or not isinstance(request, dict):
            raise Conflict(
                f"Step {step.index} is not on record as a call whose answer could be another. "
                "Nothing was changed."
            )
        return _Subject(step, step.answer_id, dialect, request, base)

    async def _check_chain(self, subject: _Subject) -> None:
        """Refuse where what goes on from the new answer could not be asked: the vendor has the old
        one in the conversation that it keeps."""
        dialect, request = subject.dialect, subject.request
        if not isinstance(dialect, Chains):
            return
        try:
            goes_on_from = dialect.read_ask(request).goes_on_from
        except BadRequest:
            return  # what was fetched by its id has no request
        if goes_on_from is None:
            return
        is_known = dialect.link(request) is not None and await is_all_on_record(
            self._store, dialect, subject.step.session, request
        )
        if not is_known:
            raise Conflict(
                f"Step {subject.step.index} goes on from {shorten(goes_on_from)}, which its vendor "
                "keeps and which is not all on record here: later calls could not be told of "
                "another answer. Nothing was changed."
            )

    # --- the change ---------------------------------------------------------------------------

    async def _revise(self, subject: _Subject, checkpoint: Checkpoint, revision: Revision) -> Made:
        step = subject.step
        rows = await self._store.answers_of(step.step_id)
        ids = tuple(row.answer_id for row in rows if not row.is_taken_back)
        said = await said_by(self._store, subject.dialect, ids)
        descent = Descent(self._store, step, said, subject.request)
        for _ in range(LOOKS_MAX):
            taken = await descent.run()
            change = await self._store.revise(
                checkpoint, revision, taken=taken, seen=descent.seen, at_ms=checkpoint.answered_ms
            )
            if change is None:
                continue
            self.on_turn(change)
            now = await self._store.read_step(step.step_id)
            assert now is not None, "it was just written"
            return Made(now, change.swaps[0].to_id, len(checkpoint.attempts), change)
        raise Conflict(
            f"New steps of session {shorten(step.session)!r} came faster than they could be looked "
            "at. Pause it first; nothing was changed."
        )


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is to be replaced."""

    step: StepRow
    answer_id: int  # that stands
    dialect: Dialect
    request: dict[str, JSON]
    base: RecordedAnswer


class _Claimed:
    """Keeps others off a step while its answer is being replaced."""

    def __init__(self, busy: set[int], step: StepRow) -> None:
        self._busy = busy
        self._step = step

    def __enter__(self) -> None:
        """Raises `Conflict`: somebody is at it."""
        if self._step.step_id in self._busy:
            raise Conflict(
                f"Step {self._step.index} is being edited or asked again at the moment. Look at it "
                "again in a while; nothing was changed."
            )
        self._busy.add(self._step.step_id)

    def __exit__(self, *_: object) -> None:
        self._busy.discard(self._step.step_id)


def _tell_nobody(_: Rollback) -> None:
    """Nobody is to be told."""


def _is_never(_: str, __: int) -> bool:
    """Nothing is on its way where no server runs."""
    return False
