"""What becomes of a call that nothing on record answers, where nobody else is to be asked.

With `replay.offline` the record is all there is. A call that it does not answer fails, at once and
for good, and is told what it came near to: the nearest recorded step and the first place where they
differ. Nothing of it is written, since nothing happened.

A run that asks the same more often than it was recorded gets the last answer again: an agent that
polls, or a client that tries again, does not ask for something new. How often that was is counted.

The invariant: nothing leaves. What comes past here all the same finds a transport that sends
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentstate.ground.errors import OfflineMiss, shorten
from agentstate.ground.records import Query
from agentstate.steps.identify import Sought
from agentstate.steps.ladder import Hit, Ladder, Sky
from agentstate.steps.misses import Miss
from agentstate.store.base import Store
from agentstate.wire.message import Exchange, Origin, OutCall, TimeLimits

MISSED_MAX = 1000  # that are remembered, to be told at the end; more are counted
NAMES_MAX = 5  # sessions that an error names

NOTHING_LEAVES = "Offline (replay.offline) nothing is sent anywhere"


@dataclass(frozen=True, slots=True)
class Missed:
    """A call that nothing answered."""

    what: str  # in a few words, as "session 'a': POST /v1/chat/completions (gpt-4o)"
    near: Miss | None  # what it came near to; None = nothing
    why: str  # what is to be said beside that, or in its place


@dataclass(frozen=True, slots=True)
class Unanswered:
    """That nothing answers a call: what it came near to, and the error that says so."""

    near: Miss | None
    error: OfflineMiss


class Offline:
    """Answers for the world. One per server that is offline."""

    def __init__(self, store: Store, ladder: Ladder) -> None:
        self._store = store
        self._ladder = ladder
        self.missed: list[Missed] = []
        self.missed_count = 0
        self.repeated_count = 0  # answers that were given once more than they were recorded

    async def answer(self, sought: Sought, sky: Sky) -> Hit | Unanswered:
        """Return what answers a call that the ladder found nothing for, or why nothing does."""
        again = await self._ladder.climb_again(sought, sky)
        if again is not None:
            self.repeated_count += 1
            return again
        near = await self._ladder.misses.nearest(sought)
        return Unanswered(near, await self._miss(sought, near))

    def refuse(self, what: str, why: str) -> OfflineMiss:
        """Note that something was asked for that could only be sent on; return the error."""
        self._note(Missed(what, None, why))
        return OfflineMiss(f"{NOTHING_LEAVES}, and {what} would be: {why}.")

    async def _miss(self, sought: Sought, near: Miss | None) -> OfflineMiss:
        caller = sought.caller
        name = shorten(caller.session)
        if caller.replay in ("refresh", "off"):
            why = f"x-agent-replay is {caller.replay}, which asks the model anew"
        elif near is not None:
            place = shorten(near.path, 200)
            why = f"the nearest recorded step is {near.step_number}, which differs at {place}"
        elif await self._store.read_session(caller.session) is None:
            why = f"there is no session {name!r} on record{await self._others()}"
        else:
            why = "no recorded step is like it"
        what = f"session {name!r}: {sought.dialect.name}, model {shorten(sought.ask.model)!r}"
        self._note(Missed(what, near, why))
        return OfflineMiss(
            f"{NOTHING_LEAVES}, and no recorded step of session {name!r} answers this call: {why}."
            " Record it anew, or undo what changed."
        )

    async def _others(self) -> str:
        page = await self._store.list_sessions(Query(limit=NAMES_MAX))
        names: Sequence[str] = [repr(shorten(row.session)) for row in page.rows]
        return f"; there is {', '.join(names)}" if names else ""

    def _note(self, missed: Missed) -> None:
        self.missed_count += 1
        if len(self.missed) < MISSED_MAX:
            self.missed.append(missed)


class Nowhere:
    """A transport that sends nothing."""

    async def send(self, call: OutCall, limits: TimeLimits) -> Exchange:
        """Raise `OfflineMiss`."""
        raise OfflineMiss(f"{NOTHING_LEAVES}.")

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """There is no connection to begin."""

    async def close(self) -> None:
        """Nothing is open."""
