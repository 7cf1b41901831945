"""A record in dictionaries, for tests and for trying things out. It ends with the process.

It passes the same contract as SQLite and shares no logic with it: sums are counted anew at each
reading, so that comparing the two finds a drift in either.
"""

from __future__ import annotations

from dataclasses import replace

from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import NotFound
from agentstate.ground.events import Event
from agentstate.ground.records import (
    Attempt,
    Candidate,
    Checkpoint,
    Claim,
    Claimed,
    Emitter,
    Query,
    RecordedAnswer,
    ReplayNote,
    Served,
    SessionPage,
    SessionRow,
    StepPage,
    StepRow,
    Tail,
)
from agentstate.store.base import (
    Key,
    check_session,
    clamp,
    clamp_usage,
    cleared,
    readable,
    rebuild_body,
)
from agentstate.store.memory_budget import MemoryBudget
from agentstate.store.memory_calls import MemoryCalls
from agentstate.store.memory_overview import MemoryOverview
from agentstate.store.memory_retention import MemoryRetention
from agentstate.store.memory_revisions import MemoryRevisions
from agentstate.store.memory_rows import (
    KeptAnswer,
    KeptSession,
    KeptStep,
    cut_page,
    maybe_readable,
    readable_attempt,
)
from agentstate.store.memory_shown import is_sought, session_row, step_row
from agentstate.store.memory_tape import MemoryTape


class MemoryStore(
    MemoryRetention, MemoryRevisions, MemoryBudget, MemoryTape, MemoryCalls, MemoryOverview
):
    """A `Store` without a file. Closed and opened again it still has its sessions."""

    # --- life -------------------------------------------------------------------------------

    async def open(self) -> int:
        """See `Store.open`."""
        interrupted_count = 0
        for step in self._steps.values():
            if step.state == "in_flight":
                step.state = "complete" if step.standing() else "interrupted"
                interrupted_count += step.state == "interrupted"
        self._is_open = True
        return interrupted_count

    async def close(self) -> None:
        """See `Store.close`."""
        self._is_open = False

    async def check(self) -> None:
        """See `Store.check`."""
        self._check_open()

    # --- the life of a call -----------------------------------------------------------------

    async def find_candidates(self, session: str, key: Key, value: bytes) -> tuple[Candidate, ...]:
        """See `Store.find_candidates`."""
        self._check_open()
        found = self._sessions.get(session)
        if found is None:
            return ()
        if key == "alias":
            aliases = found.aliases.get(value, set())
            return tuple(_candidate(step) for step in found.active() if step.step_id in aliases)
        return tuple(
            _candidate(step)
            for step in found.active()
            if getattr(step.claim.identity, key) == value
        )

    async def read_answer(self, step_id: int) -> RecordedAnswer | None:
        """See `Store.read_answer`."""
        self._check_open()
        step = self._steps.get(step_id)
        answer = step.standing() if step else None
        return answer.recorded if answer else None

    async def claim_step(self, claim: Claim) -> Claimed:
        """See `Store.claim_step`."""
        self._check_open()
        claim = replace(claim, request=cleared(claim.request))
        again = None if claim.step_id is None else self._step(claim.step_id)
        if again is not None and again.session.name != claim.session:
            raise NotFound(f"Step {claim.step_id} is no step of session {claim.session!r}.")
        if again is not None and again.rolled_back_ms is None:
            step = again
            step.claim = claim
            step.state = "in_flight"
            step.is_claim_answered = False
        else:
            step = self._new_step(claim)
        if claim.about is not None:
            self._say(step.session, claim.about)
        step.session.touch(claim.created_ms)
        step.session.go_on()
        if claim.run_id is not None:
            served = Served(step.step_id, claim.call_id, claim.created_ms, is_delivered=False)
            step.session.served.setdefault(claim.run_id, {})[step.step_id] = served
        return Claimed(step.step_id, step.index, step.step_number)

    async def record_answer(self, checkpoint: Checkpoint) -> int:
        """See `Store.record_answer`."""
        return self._record_answer(checkpoint)

    def _record_answer(self, checkpoint: Checkpoint, *, is_paid: bool = True) -> int:
        self._check_open()
        step = self._step(checkpoint.step_id)
        answer = self._add_answer(step, checkpoint, is_paid=is_paid)
        step.answers.append(answer)
        step.before, step.chosen = step.standing(), answer
        step.state = "complete"
        step.is_claim_answered = True
        if checkpoint.is_mock is not None:
            step.claim = replace(step.claim, is_mock=checkpoint.is_mock)
        if checkpoint.approval_id is not None:
            self._bind(checkpoint.approval_id, answer.answer_id)
        if checkpoint.event is not None:
            self._tell(checkpoint.event)
        return answer.answer_id

    async def append_tail(self, tail: Tail) -> None:
        """See `Store.append_tail`."""
        self._check_open()
        answer = self._step(tail.step_id).standing()
        if tail.answer_id is not None:
            answer = self._answer(tail.answer_id)
        if answer is None or answer.is_taken_back:
            raise NotFound(f"Step {tail.step_id} has no answer to append to.")
        answer.recorded = replace(
            answer.recorded,
            content=answer.recorded.content + tail.content,
            pace=answer.recorded.pace + tail.pace,
            is_sealed=answer.recorded.is_sealed or tail.seals,
        )
        if tail.usage is not None:
            answer.usage = clamp_usage(tail.usage)
            answer.usage_estimated = tail.usage_estimated
            cost = tail.cost_microusd
            answer.cost_microusd = None if cost is None else clamp(cost)
        self._changed(self._step(tail.step_id).session.name)

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
        """See `Store.record_failure`."""
        self._check_open()
        step = self._step(step_id)
        step.attempts += map(readable_attempt, attempts)
        if step.is_claim_answered:
            assert step.chosen is not None, "the last claim's answer"
            step.chosen.is_taken_back = True
            step.chosen = step.before or step.chosen
            step.session.budget.repeats = max(step.session.budget.repeats - 1, 0)
            step.is_claim_answered = False
        step.state = "complete" if step.standing() else "failed"
        step.session.touch(failed_ms)
        if fails_session:
            step.session.fail(why, None, failed_ms)
        if event is not None:
            self._tell(event)

    def note_replay(self, note: ReplayNote) -> None:
        """See `Store.note_replay`."""
        self._save(note)
        step = self._steps.get(note.step_id)
        if step is not None:
            step.replays += 1
            step.saved_microusd += clamp(note.saved_microusd)
            step.replayed_ms = max(step.replayed_ms or 0, note.replayed_ms)
        session = self._sessions.get(note.session)
        if session is not None and step is not None and step.session is session:
            session.replays += 1
            session.saved_microusd += clamp(note.saved_microusd)
            session.touch(note.replayed_ms)
            session.go_on()

    async def keep_replays(self) -> None:
        """See `Store.keep_replays`."""
        self._check_open()

    async def record_served(self, served: Served, session: str, run_id: str) -> None:
        """See `Store.record_served`."""
        self._check_open()
        found = self._session_of(session, served.step_id)
        found.served.setdefault(run_id, {})[served.step_id] = replace(served, is_delivered=False)

    def note_delivered(self, session: str, run_id: str, step_id: int) -> None:
        """See `Store.note_delivered`."""
        served = self._sessions[session].served.get(run_id, {}) if session in self._sessions else {}
        if step_id in served:
            served[step_id] = replace(served[step_id], is_delivered=True)

    async def list_served(
        self, session: str, run_id: str, step_ids: tuple[int, ...]
    ) -> tuple[Served, ...]:
        """See `Store.list_served`."""
        self._check_open()
        found = self._sessions.get(session)
        served = {} if found is None else found.served.get(run_id, {})
        return tuple(served[step_id] for step_id in sorted(set(step_ids)) if step_id in served)

    async def record_alias(self, session: str, exact: bytes, step_id: int) -> None:
        """See `Store.record_alias`."""
        self._check_open()
        self._session_of(session, step_id).aliases.setdefault(exact, set()).add(step_id)

    async def find_emitters(
        self, session: str, call_ids: tuple[str, ...]
    ) -> dict[str, tuple[Emitter, ...]]:
        """See `Store.find_emitters`."""
        self._check_open()
        found = self._sessions.get(session)
        steps = [] if found is None else found.active()
        return {
            call_id: tuple(
                Emitter(step.step_id, len(step.claim.request.chain), step.replayed_ms)
                for step in steps
                if step.state == "complete" and (answer := step.standing()) is not None
                if call_id in _call_ids(step, answer)
            )
            for call_id in call_ids
        }

    async def count_steps_at(self, session: str, step_number: int) -> int:
        """See `Store.count_steps_at`."""
        self._check_open()
        found = self._sessions.get(session)
        steps = [] if found is None else found.active()
        return sum(
            step.step_number == step_number
            and (step.standing() is not None or step.state == "in_flight")
            for step in steps
        )

    async def find_alike(
        self, session: str, depth: int, step_number: int | None, limit: int
    ) -> tuple[Candidate, ...]:
        """See `Store.find_alike`."""
        self._check_open()
        found = self._sessions.get(session)
        fit = [
            step
            for step in ([] if found is None else found.active())
            if (
                len(step.claim.request.chain) == depth
                if step_number is None
                else step.step_number == step_number
            )
        ]
        return tuple(_candidate(step) for step in fit[::-1][:limit])

    async def find_response(self, session: str, response_id: str) -> Candidate | None:
        """See `Store.find_response`."""
        self._check_open()
        found = self._sessions.get(session)
        for step in reversed(found.active() if found else ()):
            answer = step.standing()
            wanted = readable(response_id)
            if answer and maybe_readable(answer.checkpoint.response_id) == wanted:
                return _candidate(step)
        return None

    # --- reading ----------------------------------------------------------------------------

    async def list_sessions(self, query: Query) -> SessionPage:
        """See `Store.list_sessions`."""
        self._check_open()
        rows = [
            ((session.updated_ms, session.session_id), session_row(session))
            for session in self._sessions.values()
            if query.status in (None, session.status(now_ms())) and is_sought(session, query)
        ]
        page, cursor = cut_page(rows, query, cursor_size=2)
        return SessionPage(page, cursor)

    async def walk_sessions(self, after: str | None, limit: int) -> SessionPage:
        """See `Store.walk_sessions`."""
        self._check_open()
        rows = [((one.session_id,), session_row(one)) for one in self._sessions.values()]
        query = Query(after=after, limit=limit, newest_first=False)
        return SessionPage(*cut_page(rows, query, cursor_size=1))

    async def read_session(self, session: str) -> SessionRow | None:
        """See `Store.read_session`."""
        self._check_open()
        found = self._sessions.get(session)
        return session_row(found) if found else None

    async def list_steps(self, query: Query) -> StepPage:
        """See `Store.list_steps`."""
        self._check_open()
        session = self._sessions.get(check_session(query))
        rows = [
            ((step.index,), step_row(step))
            for step in (session.steps if session else [])
            if query.state in (None, step.state)
        ]
        page, cursor = cut_page(rows, query, cursor_size=1)
        return StepPage(page, cursor)

    async def read_step(self, step_id: int) -> StepRow | None:
        """See `Store.read_step`."""
        self._check_open()
        step = self._steps.get(step_id)
        return step_row(step) if step else None

    async def find_step(self, session: str, index: int) -> StepRow | None:
        """See `Store.find_step`."""
        self._check_open()
        found = self._sessions.get(session)
        step = found.step_at(index) if found else None
        return None if step is None else step_row(step)

    async def read_request(self, step_id: int) -> JSON:
        """See `Store.read_request`."""
        self._check_open()
        step = self._steps.get(step_id)
        if step is None:
            return None
        request = step.claim.request
        return rebuild_body(
            request.envelope,
            [(key, part.value) for key, part in request.shared],
            request.list_key,
            [part.value for part in request.chain],
        )

    async def list_attempts(self, step_id: int) -> tuple[Attempt, ...]:
        """See `Store.list_attempts`."""
        self._check_open()
        step = self._steps.get(step_id)
        return tuple(step.attempts) if step else ()

    async def read_totals(self) -> dict[str, int]:
        """See `Store.read_totals`."""
        self._check_open()
        rows = [session_row(session) for session in self._sessions.values()]
        return {
            "sessions": len(rows),
            "steps": len(self._steps),
            "replays": sum(row.replays for row in rows),
            "cost_microusd": sum(row.cost_microusd for row in rows),
            "saved_microusd": sum(row.saved_microusd for row in rows),
            "bytes_on_disk": 0,
            "bytes_used": 0,
        }

    def _session_of(self, session: str, step_id: int) -> KeptSession:
        found = self._session(session)
        if self._step(step_id).session is not found:
            raise NotFound(f"Step {step_id} is no step of session {session!r}.")
        return found

    # --- private ----------------------------------------------------------------------------

    def _new_step(self, claim: Claim) -> KeptStep:
        session = self._sessions.get(claim.session)
        if session is None:
            session = self._new_session(claim.session, claim.created_ms)
            self._sessions[claim.session] = session
        number = claim.step_number
        if number is None:
            number = 1 + max((step.step_number for step in session.active()), default=-1)
        step = KeptStep(self._new_id("step"), session, session.next_index, number, claim)
        session.steps.append(step)
        self._steps[step.step_id] = step
        return step


def _call_ids(step: KeptStep, answer: KeptAnswer) -> set[str | None]:
    """Return the ids of the tool calls of an answer and of the rounds after it."""
    seen = [answer, *(one for (root, _), one in step.rounds.items() if root == answer.answer_id)]
    return {call.call_id for one in seen for _, call in one.checkpoint.tool_calls}


def _candidate(step: KeptStep) -> Candidate:
    claim, answer = step.claim, step.standing()
    return Candidate(
        step_id=step.step_id,
        answer_id=answer.answer_id if answer else None,
        index=step.index,
        step_number=step.step_number,
        state=step.state,
        run_id=claim.run_id,
        call_id=claim.call_id,
        occurrence=claim.occurrence,
        model=readable(claim.model),
        streams=claim.streams,
        identity=claim.identity,
        is_mock=claim.is_mock,
        created_ms=claim.created_ms,
        answered_ms=answer.checkpoint.answered_ms if answer else None,
        replayed_ms=step.replayed_ms,
        cost_microusd=answer.cost_microusd if answer else None,
        provider=readable(answer.checkpoint.provider) if answer else None,
        calls_tools=bool(answer and answer.checkpoint.tool_calls),
        answer_model=readable(answer.checkpoint.model) if answer else None,
        is_censored=answer.checkpoint.is_censored if answer else False,
    )
