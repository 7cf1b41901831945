"""What is in the air: which calls are on their way, and which of them another call may join.

Synchronous throughout: between "is it in the air?" and "now it is" nothing waits, so two equal
calls never both go upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentstate.steps.flight import Flight
from agentstate.steps.recording import Call
from agentstate.steps.upstream import UpstreamCall


class Air:
    """The calls in the air, by what makes them the same call."""

    def __init__(self) -> None:
        # (session, fingerprint) → calls; several where steps or runs differ.
        self._calls: dict[tuple[str, bytes], list[Airborne]] = {}

    @property
    def count(self) -> int:
        """How many calls are in the air."""
        return sum(len(calls) for calls in self._calls.values())

    def has(self, session: str, exact: bytes) -> bool:
        """Say whether a call with this fingerprint is in the air."""
        return (session, exact) in self._calls

    def add(self, airborne: Airborne) -> None:
        """Take in a call that is being sent on its way."""
        self._calls.setdefault(_key(airborne.call), []).append(airborne)

    def ground(self, airborne: Airborne) -> None:
        """Take a call out of the air: nobody may join it any more."""
        flights = self._calls.get(_key(airborne.call), [])
        if airborne in flights:
            flights.remove(airborne)
            if not flights:
                del self._calls[_key(airborne.call)]

    def joinable(self, call: Call) -> Airborne | None:
        """Return this very call if it is in the air, or None (DESIGN section 5, the same call)."""
        mine = call.caller
        for airborne in self._calls.get(_key(call), ()):
            theirs = airborne.call.caller
            has_equal_id = mine.call_id is not None and mine.call_id == theirs.call_id
            if mine.replay in ("refresh", "off"):
                if has_equal_id:
                    return airborne
            elif mine.run_id is not None:
                # Under a run id another call id is another occurrence.
                if theirs.run_id == mine.run_id and (has_equal_id or mine.call_id is None):
                    return airborne
            elif theirs.step_number == mine.step_number or mine.step_number is None:
                return airborne
        return None

    def elsewhere(self, airborne: Airborne) -> Airborne | None:
        """Return a call that an earlier run left in the air and this run has not joined, or None.

        The earlier run is likely dead; its call is being finished for whoever asks next.
        """
        mine = airborne.call.caller
        if mine.run_id is None or mine.replay in ("refresh", "off"):
            return None
        for other in self._calls.get(_key(airborne.call), ()):
            theirs = other.call.caller.run_id
            if theirs not in (None, mine.run_id) and mine.run_id not in other.runs_joined:
                other.runs_joined.add(mine.run_id)
                return other
        return None


class Airborne:
    """A call in the air: what was asked, what has arrived, who is at it."""

    upstream: UpstreamCall  # set by who launches it

    def __init__(self, call: Call, flight: Flight) -> None:
        self.call = call
        self.flight = flight
        self.patience: Patience | None = None  # None = not launched yet, or over
        self.runs_joined: set[str] = set()  # other runs that were given this call

    def forget(self) -> None:
        """Undo what refers in a circle: bodies are large, and the collector comes rarely."""
        if self.patience is not None:
            self.patience.end()
            self.patience = None
        self.upstream.forget()


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


def _key(call: Call) -> tuple[str, bytes]:
    return call.caller.session, call.identity.exact
