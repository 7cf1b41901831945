"""Look a call up: climb exact → pinned → masked, and say what answered it.

The looking is here, the choosing in `replay.py`; what a call came near to is for `misses.py`.
Between choosing a step and noting that it was
taken nothing waits, so two calls that climb side by side never get one step both: what the store
does not have yet is in `_promised`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from agentstate.dialects.base import Dialect
from agentstate.ground.canonical import JSON, canonical
from agentstate.ground.clock import now_ms
from agentstate.ground.meters import Meters
from agentstate.ground.records import Candidate, Emitter, ReplayNote, Served
from agentstate.ground.redaction import Redactor
from agentstate.steps.identify import Caller, Sought
from agentstate.steps.misses import Misses
from agentstate.steps.replay import (
    ToolResult,
    choose_exact,
    choose_last,
    choose_masked,
    choose_pinned,
    choose_repeated,
    differing_results,
    reusable_row,
)
from agentstate.store.base import Key, Store

Rung = Literal["exact", "pinned", "masked"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value", bound=Sized)

COMPARED_MAX = 64  # recorded requests compared on one rung; each is read from the disk
CONVERSATION_MAX = 2**31  # messages; no conversation has as many, so this is after all of them
GIVING_S_MAX = 5.0  # waiting for one write; longer means that the disk is stuck
MOMENTS_REMEMBERED_MAX = 1024  # sessions
MOMENTS_AHEAD_MS_MAX = 250  # less than a new process needs to start


@dataclass(frozen=True, slots=True)
class Hit:
    """A recorded step that answers a call, and on which rung it was found."""

    candidate: Candidate
    rung: Rung


@dataclass(frozen=True, slots=True)
class Aloft:
    """A call on its way upstream whose answer will be this call's as well."""

    airborne: object  # whatever the pipeline knows it by


class Sky(Protocol):
    """What is in the air, as one call sees it."""

    @property
    def is_awaited(self) -> bool:
        """Whether a client still waits for this call."""
        ...

    def find_equal(self) -> object | None:
        """Take over an equal call that another run has in the air; None = there is none."""
        ...

    async def wait_for_kin(self) -> None:
        """Wait until all that `take_over` may take is on record."""
        ...

    def is_deserted(self, step: Candidate) -> bool:
        """Say whether the step is in the air and nobody waits for it any more."""
        ...

    def take_over(self, step: Candidate) -> object:
        """Take over a step that `is_deserted`."""
        ...


class Ladder:
    """Finds recorded steps. One per server: it remembers what it has promised to whom."""

    def __init__(self, store: Store, meters: Meters) -> None:
        self._meters = meters
        self.misses = Misses(store)
        self._store = store
        # What calls were given and the store does not have yet.
        self._promised: dict[tuple[str, str], dict[int, Served]] = {}  # (session, run) → by step
        self._aliases: dict[tuple[str, bytes], set[int]] = {}  # (session, fingerprint) → steps
        self._giving: dict[int, asyncio.Event] = {}  # steps that await their `conclude`
        self._moments: dict[str, int] = {}  # the last one each session was told, by last use
        self._rows_taken: set[int] = set()  # of failed tries, by calls that will claim them
        # Steps in flight: an answer that is committed may still turn out to have no clean end.
        self._in_the_air: set[int] = set()

    async def climb(self, sought: Sought, sky: Sky) -> Hit | Aloft | None:
        """Return what answers the call, by the first rung that has it; it is taken."""
        caller = sought.caller
        exact = await self._find(caller, "exact", sought.identity.exact)
        if caller.replay not in ("pinned", "exact"):
            # A client's retry of a call that was refreshed, or not looked up, and has its answer.
            again = choose_repeated(exact, caller, goes_to_mock=sought.goes_to_mock)
            if again is None:
                return None
            return self._take_own(caller, again, is_awaited=sky.is_awaited)
        served = await self._served(caller, exact)
        found = choose_exact(exact, caller, served, goes_to_mock=sought.goes_to_mock)
        if found is not None:
            return self._take_own(caller, found, is_awaited=sky.is_awaited)
        if (airborne := sky.find_equal()) is not None:
            return Aloft(airborne)
        if caller.replay == "exact":
            return None
        return await self._climb_on(sought, sky)

    async def climb_raw(
        self,
        caller: Caller,
        candidates: Sequence[Candidate],
        *,
        goes_to_mock: bool,
        is_awaited: bool,
    ) -> Hit | None:
        """Return the step whose very bytes a call sent, as `climb` would; None = read them."""
        if caller.run_id is not None:
            # The same meaning may be on record in other bytes and earlier: `climb` sees both.
            candidates = await self._find(caller, "exact", candidates[0].identity.exact)
        served = await self._served(caller, candidates)
        found = choose_exact(candidates, caller, served, goes_to_mock=goes_to_mock)
        if found is None:
            return None
        return self._take_own(caller, found, is_awaited=is_awaited)

    async def climb_again(self, sought: Sought, sky: Sky) -> Hit | None:
        """Return the last step that answered this call, though its run has got it already; it is
        taken. For a call that `climb` found nothing for, where nobody can be asked anew."""
        caller = sought.caller
        if caller.replay not in ("pinned", "exact"):
            return None
        exact = await self._find(caller, "exact", sought.identity.exact)
        alias: tuple[Candidate, ...] = ()
        if caller.replay == "pinned":
            alias = await self._find(caller, "alias", sought.identity.exact)
        found = choose_last((*alias, *exact), caller, goes_to_mock=sought.goes_to_mock)
        if found is None:
            return None
        if found in exact:
            return self._take_own(caller, found, is_awaited=sky.is_awaited)
        return self._take_other(sought, Hit(found, "pinned"))

    async def row_to_reuse(self, sought: Sought) -> int | None:
        """Return the row of an earlier try of this call that gave no answer, or None."""
        caller = sought.caller
        if caller.replay == "off":
            return None
        exact = await self._find(caller, "exact", sought.identity.exact)
        served = await self._served(caller, exact)
        # From here nothing waits: two calls that look side by side never get one row both.
        free = [each for each in exact if each.step_id not in self._rows_taken]
        row = reusable_row(free, caller, served)
        if row is not None:
            self._rows_taken.add(row)
        return row

    def release_row(self, row: int | None) -> None:
        """Give a row back: it was claimed, or the call ended before."""
        if row is not None:
            self._rows_taken.discard(row)

    def note_claimed(self, step_id: int) -> None:
        """Note that a step is in flight: it answers nobody else until it has landed."""
        self._in_the_air.add(step_id)

    def in_the_air(self) -> frozenset[int]:
        """Return the steps that are in flight, also those of which an answer is on record."""
        return frozenset(self._in_the_air)

    def note_landed(self, step_id: int) -> None:
        """Note that a step's flight is over, however it ended."""
        self._in_the_air.discard(step_id)

    async def _find(self, caller: Caller, key: Key, value: bytes) -> tuple[Candidate, ...]:
        """Return the candidates that are not in the air."""
        found = await self._store.find_candidates(caller.session, key, value)
        return tuple(each for each in found if each.step_id not in self._in_the_air)

    def promise(self, caller: Caller, step_id: int, alias: bytes | None) -> None:
        """Note at once that a call gets a step, for `settle` to write.

        `alias`: the call's fingerprint where it is not quite the step's own; None = it is.
        """
        if alias is not None:
            self._aliases.setdefault((caller.session, alias), set()).add(step_id)
        if caller.run_id is not None:
            at_ms = self.moment(caller.session)
            served = Served(step_id, caller.call_id, at_ms, is_delivered=False)
            self._promised.setdefault((caller.session, caller.run_id), {})[step_id] = served

    async def settle(self, caller: Caller, step_id: int, alias: bytes | None) -> None:
        """Write that a call gets a step, before its answer is released. `alias`: see `promise`."""
        self.promise(caller, step_id, alias)
        session, run_id = caller.session, caller.run_id
        if alias is not None:
            try:
                await self._store.record_alias(session, alias, step_id)
            finally:
                _drop(self._aliases, (session, alias), lambda steps: steps.discard(step_id))
        if run_id is not None:
            served = Served(step_id, caller.call_id, self.moment(session), is_delivered=False)
            try:
                await self._store.record_served(served, session, run_id)
            finally:
                _drop(self._promised, (session, run_id), lambda steps: steps.pop(step_id, None))

    def note_delivered(self, caller: Caller, step_id: int) -> None:
        """Note that the caller has its answer whole; nothing without a run id."""
        if caller.run_id is not None:
            self._store.note_delivered(caller.session, caller.run_id, step_id)

    # --- pinned and masked ------------------------------------------------------------------

    async def _climb_on(self, sought: Sought, sky: Sky) -> Hit | Aloft | None:
        caller, identity = sought.caller, sought.identity
        await sky.wait_for_kin()
        both = await self._find_drifted(sought, sky)
        alias = {each.step_id: each for each in await self._find(caller, "alias", identity.exact)}
        promised = self._aliases.get((caller.session, identity.exact), set())
        alias |= {step_id: both[step_id] for step_id in promised & both.keys()}
        in_order = sorted(alias.values(), key=lambda each: each.index)
        served = await self._served(caller, in_order)
        again = choose_exact(in_order, caller, served, goes_to_mock=sought.goes_to_mock)
        if again is not None:
            return self._take_other(sought, Hit(again, "pinned"))

        served = await self._served(caller, tuple(both.values()))
        left = [each for each in both.values() if each.step_id not in served]
        if not left:
            return None
        differing = await self._differing(sought, left)
        emitters = await self._emitters(caller, differing.values())
        session = await self._store.read_session(caller.session)
        at_number = 0
        if caller.run_id is None and caller.step_number is not None:
            at_number = await self._store.count_steps_at(caller.session, caller.step_number)
        # Read once more, and last: from here to the taking nothing waits.
        both = await self._find_concluded(sought, sky)
        served = await self._served(caller, tuple(both.values()))
        deserted = self._in_the_air & both.keys()
        rung: Rung = "pinned"
        found = choose_pinned(
            [each for each in both.values() if each.identity.pinned == identity.pinned],
            caller,
            served,
            differing,
            emitters,
            goes_to_mock=sought.goes_to_mock,
            deserted=deserted,
        )
        if found is None:
            rung = "masked"
            found = choose_masked(
                [each for each in both.values() if each.identity.masked == identity.masked],
                caller,
                served,
                differing,
                emitters,
                highest_step_number=session.last_step_number if session else None,
                steps_at_number=at_number,
                goes_to_mock=sought.goes_to_mock,
                deserted=deserted,
            )
        if found is None:
            return None
        if found.step_id in deserted:
            return Aloft(sky.take_over(found))
        return self._take_other(sought, Hit(found, rung))

    async def _find_concluded(self, sought: Sought, sky: Sky) -> dict[int, Candidate]:
        """Return the candidates for pinned and masked, once it is known who was given them."""
        while True:
            both = await self._find_drifted(sought, sky)
            giving = self._giving.keys() & both.keys()
            if sought.caller.run_id is not None or not giving:
                return both  # a run has promises for that
            try:
                async with asyncio.timeout(GIVING_S_MAX):
                    await self._giving[min(giving)].wait()
            except TimeoutError:
                return {step_id: each for step_id, each in both.items() if step_id not in giving}

    async def _find_drifted(self, sought: Sought, sky: Sky) -> dict[int, Candidate]:
        """Return the candidates for pinned and masked by step, in order of their index: those not
        in the air, and of those in the air the deserted ones."""
        session, identity = sought.caller.session, sought.identity
        pinned = await self._store.find_candidates(session, "pinned", identity.pinned)
        masked = await self._store.find_candidates(session, "masked", identity.masked)
        return {
            each.step_id: each
            for each in sorted((*pinned, *masked), key=lambda each: each.index)
            if each.step_id not in self._in_the_air or sky.is_deserted(each)
        }

    async def _differing(
        self, sought: Sought, candidates: Iterable[Candidate]
    ) -> dict[int, tuple[ToolResult, ...]]:
        """Return, per candidate that can be compared, the results that differ from its own."""
        # What goes on from something upstream comes after all that is on record.
        before = CONVERSATION_MAX if sought.ask.goes_on_from is not None else 0
        mine = tool_results(sought.dialect, sought.ask.messages, sought.redactor, before)
        found: dict[int, tuple[ToolResult, ...]] = {}
        for candidate in list(candidates)[:COMPARED_MAX]:
            if not mine:
                found[candidate.step_id] = ()
                continue
            body = await self._store.read_request(candidate.step_id)
            messages = body.get(sought.dialect.list_key) if isinstance(body, dict) else None
            listed = messages if isinstance(messages, list) else ()
            recorded = tool_results(sought.dialect, listed, sought.redactor, before)
            differing = differing_results(mine, recorded)
            if differing is not None:
                found[candidate.step_id] = differing
        return found

    async def _emitters(
        self, caller: Caller, differing: Iterable[Sequence[ToolResult]]
    ) -> dict[str, tuple[Emitter, ...]]:
        names = {result.call_id for results in differing for result in results}
        if not names:
            return {}
        return await self._store.find_emitters(caller.session, tuple(sorted(names)))

    # --- who has what -----------------------------------------------------------------------

    async def _served(self, caller: Caller, candidates: Sequence[Candidate]) -> dict[int, Served]:
        """Return which of the candidates this run has got, promises included."""
        if caller.run_id is None or not candidates:
            return {}
        steps = tuple(each.step_id for each in candidates)
        rows = await self._store.list_served(caller.session, caller.run_id, steps)
        served = {row.step_id: row for row in rows}
        promised = self._promised.get((caller.session, caller.run_id), {})
        return served | {step: promised[step] for step in steps if step in promised}

    def _take_own(self, caller: Caller, step: Candidate, *, is_awaited: bool) -> Hit:
        """Give a call its very step; the next one to climb sees that. A client that has left is
        given nothing: its agent may be back already, and this would come after what that got."""
        if is_awaited:
            self.note_replay(caller, step.step_id, "exact", step.cost_microusd)
        self.promise(caller, step.step_id, None)
        return Hit(step, "exact")

    def _take_other(self, sought: Sought, hit: Hit) -> Hit:
        """Give a call a step that is not quite its own; `conclude` it."""
        step_id = hit.candidate.step_id
        self._giving.setdefault(step_id, asyncio.Event())
        self.promise(sought.caller, step_id, sought.identity.exact)
        return hit

    def conclude(self, caller: Caller, hit: Hit, *, is_given: bool) -> None:
        """Say what became of a step that was not quite the call's own, once that is settled.

        Only now it counts as given, or not, if the client has left: before, the call's own retry
        would not find it, and would be taken for one that comes after.
        """
        step = hit.candidate
        if is_given:
            self.note_replay(caller, step.step_id, hit.rung, step.cost_microusd)
        if (giving := self._giving.pop(step.step_id, None)) is not None:
            giving.set()

    def note_replay(
        self,
        caller: Caller,
        step_id: int,
        mode: Rung | Literal["joined"],
        saved_microusd: int | None,
    ) -> None:
        """Count that one more call was given a step. `saved_microusd` None: not known."""
        self._meters.note_saved(saved_microusd)
        self._store.note_replay(
            ReplayNote(
                session=caller.session,
                step_id=step_id,
                replayed_ms=self.moment(caller.session),
                mode=mode,
                saved_microusd=saved_microusd or 0,
                run_id=caller.run_id,
            )
        )

    def moment(self, session: str) -> int:
        """Return the time in milliseconds, later than any moment this session was told before.

        What came first decides what may be replayed, and an agent nearby does several things in a
        millisecond. A session that keeps that up is told one moment twice: then a call is asked
        anew that might have been replayed.
        """
        now, last = now_ms(), self._moments.pop(session, 0)
        self._moments[session] = min(max(now, last + 1), now + MOMENTS_AHEAD_MS_MAX)
        if len(self._moments) > MOMENTS_REMEMBERED_MAX:
            del self._moments[next(iter(self._moments))]
        return self._moments[session]


def _drop(table: dict[_Key, _Value], key: _Key, take_out: Callable[[_Value], object]) -> None:
    """Take something out of one value of a table, and the value as well once it is empty."""
    if (value := table.get(key)) is not None:
        take_out(value)
        if not value:
            del table[key]


def tool_results(
    dialect: Dialect, messages: Sequence[JSON], redactor: Redactor, before: int = 0
) -> tuple[ToolResult, ...]:
    """Return every tool result of a conversation, in order, named by what is left of it without
    secrets; `before` messages went ahead of it."""
    return tuple(
        ToolResult(call_id, hashlib.sha256(canonical(redactor.value(content))).digest(), position)
        for position, message in enumerate(messages, before)
        for call_id, content in dialect.tool_results(message)
    )
