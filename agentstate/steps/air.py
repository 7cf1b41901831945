"""What is in the air: which calls are on their way, and which of them another call may join.

Synchronous but for one wait: between "is it in the air?" and "now it is" nothing waits, so two
equal calls never both go upstream.

A call in the air may be the answer of other calls as well: an agent that died while it waited
starts over and asks again, with another run id, another clock in its prompt, other tool results.
Such a call is *taken over*. What took it over stands in the books beside what went upstream, so
that a client's retry finds it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agentstate.ground.control import Ranges, is_within
from agentstate.ground.records import Candidate
from agentstate.steps.call import Call
from agentstate.steps.flight import Flight
from agentstate.steps.identify import Caller
from agentstate.steps.upstream import UpstreamCall

_Key = tuple[str, bytes]


class Air:
    """The calls in the air, by what makes them the same call."""

    def __init__(self) -> None:
        # (session, fingerprint) → calls; several where steps or runs differ.
        self._calls: dict[_Key, list[Airborne]] = {}
        self._kin: dict[_Key, list[Airborne]] = {}  # the same by their masked fingerprints
        self.count = 0  # calls in the air

    def has(self, session: str, exact: bytes) -> bool:
        """Say whether a call with this fingerprint is in the air."""
        return (session, exact) in self._calls

    def add(self, airborne: Airborne) -> None:
        """Take in a call that is being sent on its way."""
        self._calls.setdefault(_key(airborne.call), []).append(airborne)
        self._kin.setdefault(_kin_key(airborne.call), []).append(airborne)
        self.count += 1

    def ground(self, airborne: Airborne) -> None:
        """Take a call out of the air: nobody may join it any more. Idempotent."""
        if airborne not in self._kin.get(_kin_key(airborne.call), ()):
            return
        _strike(self._kin, _kin_key(airborne.call), airborne)
        for key in {_key(call) for call in airborne.calls}:
            _strike(self._calls, key, airborne)
        self.count -= 1

    def joinable(self, call: Call) -> Airborne | None:
        """Return this very call if it is in the air, or None."""
        key = _key(call)
        for airborne in self._calls.get(key, ()):
            if airborne.is_rolled_back:
                continue
            if any(
                _key(other) == key and is_same_call(call.caller, other.caller)
                for other in airborne.calls
            ):
                return airborne
        return None

    def elsewhere(self, call: Call) -> Airborne | None:
        """Return an equal call that an earlier run left in the air, and that answers no call of
        this run yet, or None.

        The earlier run is likely dead; its call is being finished for whoever asks next.
        """
        mine = call.caller
        if mine.run_id is None or mine.replay in ("refresh", "off"):
            return None
        for airborne in self._calls.get(_key(call), ()):
            if airborne.is_rolled_back:
                continue
            runs = {other.caller.run_id for other in airborne.calls}
            if airborne.call.caller.run_id is not None and mine.run_id not in runs:
                return airborne
        return None

    def deserted(self, session: str, step: Candidate) -> Airborne | None:
        """Return the call of a step in the air if nobody waits for it any more, or None."""
        for airborne in self._calls.get((session, step.identity.exact), ()):
            claimed = airborne.upstream.claimed
            if claimed is not None and claimed.step_id == step.step_id and airborne.is_deserted:
                return airborne
        return None

    def has_step(self, session: str, step_id: int) -> bool:
        """Say whether a call of this step is in the air."""
        return any(
            airborne.upstream.claimed is not None and airborne.upstream.claimed.step_id == step_id
            for (name, _), flights in self._calls.items()
            for airborne in (flights if name == session else ())
        )

    def turn(self, session: str, taken: Ranges, returned: Ranges) -> None:
        """Take in which steps of a session, by index, were rolled back and brought back.

        What was rolled back goes on for its own clients, and nobody else joins it.
        """
        for (name, _), flights in self._calls.items():
            for airborne in flights if name == session else ():
                claimed = airborne.upstream.claimed
                if claimed is None:
                    continue  # it comes after: its claim is written after this
                if is_within(claimed.index, taken):
                    airborne.is_rolled_back = True
                elif is_within(claimed.index, returned):
                    airborne.is_rolled_back = False

    def drop(self, session: str) -> None:
        """Take in that a session was deleted: what it has in the air goes on for its own clients,
        and nobody else joins it."""
        for (name, _), flights in self._calls.items():
            for airborne in flights if name == session else ():
                if airborne.upstream.claimed is not None:
                    airborne.is_rolled_back = True

    async def wait_for_kin(self, call: Call) -> None:
        """Wait until each call that this one may take over has its row.

        An agent may die before we come to that. Bounded: a claim takes a commit, and a call waits
        only for those that came before it.
        """
        for airborne in tuple(self._kin.get(_kin_key(call), ())):
            if airborne.call is call:
                break
            if airborne.is_deserted:
                await airborne.upstream.entered.wait()

    def take_over(self, airborne: Airborne, call: Call) -> Airborne:
        """Have a call answered by one that is in the air; its client must attach next."""
        flights = self._calls.setdefault(_key(call), [])
        if airborne not in flights:
            flights.append(airborne)
        airborne.calls.append(call)
        airborne.unsettled.append(call)
        airborne.is_expected = True
        return airborne


class Airborne:
    """A call in the air: what was asked, what has arrived, who is at it."""

    upstream: UpstreamCall  # set by who launches it

    def __init__(self, call: Call, flight: Flight) -> None:
        self.calls = [call]  # the one that went upstream, then those that took it over
        self.unsettled: list[Call] = []  # of those that took it over: not on record as such
        self.is_expected = False  # it was taken over, and who did is about to attach
        self.is_rolled_back = False  # its step was: nobody may join it
        self.flight = flight
        self.patience: Patience | None = None  # None = not launched yet, or over

    @property
    def call(self) -> Call:
        """The call that went upstream."""
        return self.calls[0]

    @property
    def is_deserted(self) -> bool:
        """Whether nobody waits for it any more."""
        return not (self.is_expected or self.flight.followers)

    def forget(self) -> None:
        """Undo what refers in a circle: bodies are large, and the collector comes rarely."""
        if self.patience is not None:
            self.patience.end()
            self.patience = None
        self.calls = [call.slim() for call in self.calls]
        self.upstream.forget(self.call)


class Patience:
    """Stops a flight that nobody waits for once its time is up.

    The longest patience of all who attached counts: one client that would rather cancel does not
    stop the call of another.
    """

    def __init__(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        self._patience_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def extend(self, patience_s: float) -> None:
        """Wait at least this long, in seconds."""
        self._patience_s = max(self._patience_s, patience_s)

    def __call__(self, is_deserted: bool) -> None:
        """Begin to wait when the last client leaves; stop when one comes back."""
        self.end()
        if is_deserted:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience_s, self._give_up)

    def end(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(frozen=True, slots=True)
class OwnSky:
    """The air as one call sees it while it climbs the ladder; see `ladder.Sky`."""

    air: Air
    call: Call
    flight: Flight  # of the call

    @property
    def is_awaited(self) -> bool:
        """Whether a client still waits for this call."""
        return bool(self.flight.followers)

    def find_equal(self) -> Airborne | None:
        """Take over an equal call that another run has in the air; None = there is none."""
        found = self.air.elsewhere(self.call)
        return None if found is None else self.air.take_over(found, self.call)

    async def wait_for_kin(self) -> None:
        """Wait until all that `take_over` may take is on record."""
        await self.air.wait_for_kin(self.call)

    def is_deserted(self, step: Candidate) -> bool:
        """Say whether the step is in the air and nobody waits for it any more."""
        return self.air.deserted(self.call.caller.session, step) is not None

    def take_over(self, step: Candidate) -> Airborne:
        """Take over a step that `is_deserted`."""
        found = self.air.deserted(self.call.caller.session, step)
        assert found is not None, "nothing has waited since it was seen deserted"
        return self.air.take_over(found, self.call)


def is_same_call(mine: Caller, theirs: Caller) -> bool:
    """Say whether two calls with one fingerprint are one call made twice (DESIGN section 5).

    1. `refresh` and `off` want an answer of their own: only with an equal call id.
    2. Under a run id another call id is another occurrence, and another run another call.
    3. Else an equal body is the same call, unless it names another step number.
    """
    has_equal_id = mine.call_id is not None and mine.call_id == theirs.call_id
    if mine.replay in ("refresh", "off"):
        return has_equal_id
    if mine.run_id is not None:
        return theirs.run_id == mine.run_id and (has_equal_id or mine.call_id is None)
    return mine.step_number is None or theirs.step_number == mine.step_number


def _key(call: Call) -> _Key:
    return call.caller.session, call.identity.exact


def _kin_key(call: Call) -> _Key:
    return call.caller.session, call.identity.masked


def _strike(table: dict[_Key, list[Airborne]], key: _Key, airborne: Airborne) -> None:
    table[key].remove(airborne)
    if not table[key]:
        del table[key]
