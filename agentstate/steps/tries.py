"""Carries out the plan of one call: attempt after attempt, until one is answered or none is left.

    Plan.first → send → receive → answered | Failed → Plan.after → pause → send → …

Shared by `upstream.py`, whose calls stream, and `rounds.py`, which asks again for a whole answer.
What is done with a response is theirs (`Receive`); targets, pauses and the list of attempts are
here. Nothing here knows sessions or the store.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import AgentStateError, BadRequest, UpstreamError
from agentstate.ground.meters import Meters
from agentstate.ground.prices import Prices
from agentstate.ground.records import Attempt
from agentstate.ground.settings import ForwardSettings
from agentstate.steps import forward
from agentstate.steps.cooldown import Cooldowns
from agentstate.steps.failures import Failure, is_own_retry
from agentstate.steps.forward import Transports, Try
from agentstate.steps.leg import Failed, Leg, Outgoing
from agentstate.steps.plan import Next, Plan
from agentstate.steps.target import Target, caller_key
from agentstate.wire.message import Exchange, Headers

T = TypeVar("T")

RESTS = "target_rests"  # in place of an error's code, where nothing was tried
_RESTS = "It failed again and again and rests for a while; it was passed by."


@dataclass(slots=True)
class Reception:
    """One response that has begun, for who reads it."""

    leg: Leg
    exchange: Exchange
    has_more: bool  # if it fails there is something left to try, as long as nobody has seen it
    has_others: bool  # the same, of another target than this one
    is_kept: bool = False  # who reads it closes it


Receive = Callable[[Reception], Awaitable[T | Failed]]


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """An attempt was answered."""

    value: T


@dataclass(frozen=True, slots=True)
class AllFailed:
    """Every attempt came to nothing."""

    # Of the target that was asked for: what others said to stand in for it helps nobody.
    first: Failed
    target: Target  # that said so
    index: int  # its place in the chain, from 0
    tried: tuple[str, ...]  # every target, with how it ended, for people
    is_out: bool = False  # a client has seen a part of the last answer


@dataclass(frozen=True, slots=True)
class Road:
    """What all calls share on their way upstream."""

    transports: Transports
    settings: ForwardSettings
    prices: Prices
    cooldowns: Cooldowns
    meters: Meters


class Tries:
    """The attempts of one call. `run` once."""

    def __init__(
        self,
        road: Road,
        targets: Sequence[Target],
        headers: Headers,
        skipped: tuple[str, ...] = (),
    ) -> None:
        """`skipped`: fallbacks that cannot be asked, each with the reason, for people."""
        self._road = road
        self._skipped = skipped
        self._headers = headers
        self._plan = Plan(
            targets,
            road.settings,
            road.cooldowns,
            key_of=self._key_of,
            window_of=lambda target: road.prices.context_tokens(target.provider, target.model),
            is_own_retry=is_own_retry(headers),
        )
        # Chosen when the first attempt begins: a target that has rested is asked by one call only,
        # and this one may never come to it.
        self._next = Next(targets[0], 0)
        self._attempts: list[Attempt] = []  # that have ended
        self._failures: list[tuple[int, Target, Failed]] = []  # (place in the chain, ...)
        self._current: Try | None = None
        self._leg: Leg | None = None  # of the present attempt, once it could be said
        self._dropped: tuple[str, ...] = ()  # of the last attempt, once its leg is let go of
        self._begun_count = 0
        self._began_s: float | None = None

    @property
    def target(self) -> Target:
        """The target that is asked, or is asked first."""
        return self._next.target

    @property
    def index(self) -> int:
        """The place of that target in the chain, from 0."""
        return self._next.index

    @property
    def count(self) -> int:
        """How many attempts were begun."""
        return self._begun_count

    @property
    def dropped(self) -> tuple[str, ...]:
        """What could not be said to the target that is asked now, or by it."""
        return self._leg.dropped if self._leg else self._dropped

    @property
    def began_s(self) -> float:
        """When the first attempt began; now, if none has."""
        return monotonic_s() if self._began_s is None else self._began_s

    @property
    def failures(self) -> tuple[tuple[Target, Failed], ...]:
        """The attempts that came to nothing, in order."""
        return tuple((target, failed) for _, target, failed in self._failures)

    def warm(self) -> None:
        """Begin a connection to the first target, while other things are done."""
        transport = self._road.transports.of(self.target)
        transport.warm(self.target.origin, forward.time_limits(self._road.settings))

    def ended(
        self, error: AgentStateError | None = None, excerpt: bytes = b""
    ) -> tuple[Attempt, ...]:
        """Return all attempts for the record; the present one, if there is one, ended like this."""
        if self._current is None:
            return tuple(self._attempts)
        return (*self._attempts, self._current.ended(error, excerpt, self.dropped))

    def forget(self) -> None:
        """Let go of what is large in the present attempt, which is over: its request."""
        self._dropped, self._leg = self.dropped, None

    async def run(self, out: Outgoing, receive: Receive[T]) -> Answered[T] | AllFailed:
        """Ask until there is an answer, or nothing is left to try.

        Raises:
            BadRequest: the first target cannot be asked this.
            AgentStateError: whatever `receive` raises that is not the upstream's doing.
        """
        self._began_s = monotonic_s()
        self._next = self._plan.first(self._began_s)
        self._note_passed(self._next)
        try:
            while True:
                outcome = await self._attempt(out, receive)
                if not isinstance(outcome, Failed):
                    assert self._current is not None, "it was begun"
                    self._road.meters.note_attempt(out.dialect.name, self._current.ended())
                    self._plan.succeeded()
                    return Answered(outcome)
                self._note(outcome, out.dialect.name)
                if outcome.is_out:
                    self._plan.give_up(outcome.failure, monotonic_s())
                    return self._all_failed(outcome)
                following = self._plan.after(outcome.failure, monotonic_s())
                if following is None:
                    return self._all_failed(outcome)
                self._note_passed(following)
                if following.pause_s:
                    await asyncio.sleep(following.pause_s)
                self._next = following
        except BaseException:
            self._plan.abandoned()
            raise

    async def _attempt(self, out: Outgoing, receive: Receive[T]) -> T | Failed:
        target = self._next.target
        if out.write_out is not None and out.is_unknown_to(target):
            out = replace(out, written_out=await out.write_out())
        attempt = self._current = forward.begin(target, self._headers)
        self._begun_count += 1
        leg = Leg(target, out)
        exchange: Exchange | None = None
        reception: Reception | None = None
        try:
            try:
                call = leg.call(is_fallback=self._next.index > 0)
            except BadRequest as error:
                if self._next.index == 0:
                    raise
                return _unsayable(target, error)
            self._leg = leg
            limits = forward.time_limits(self._road.settings)
            exchange = await forward.send(self._road.transports.of(target), call, limits, attempt)
            if not 200 <= exchange.status < 300:
                return await leg.read_refusal(exchange)
            reception = Reception(leg, exchange, self._plan.has_more, self._plan.has_others)
            return await receive(reception)
        except UpstreamError as error:
            return leg.failed(error)
        finally:
            if exchange is not None and not (reception and reception.is_kept):
                await exchange.close()

    def _note_passed(self, following: Next) -> None:
        """Put on the list which targets were passed by: why another one answers is asked later."""
        at_ms = now_ms()
        for target in following.passed_by:
            self._attempts.append(
                Attempt(target.provider, target.model, at_ms, at_ms, error_code=RESTS, error=_RESTS)
            )

    def _note(self, failed: Failed, dialect: str) -> None:
        """Put a failed attempt on the list."""
        assert self._current is not None, "it was begun"
        dropped = self._leg.dropped_of_request if self._leg else ()  # its answer was not used
        self._attempts.append(self._current.ended(failed.error, failed.excerpt, dropped))
        self._road.meters.note_attempt(dialect, self._attempts[-1])
        self._failures.append((self._next.index, self._next.target, failed))
        self._current = self._leg = None

    def _all_failed(self, last: Failed) -> AllFailed:
        ends: dict[int, tuple[Target, Failed]] = {
            index: (target, failed) for index, target, failed in self._failures
        }
        tried = tuple(f"{target.label}: {_end_of(failed)}" for target, failed in ends.values())
        index = self._next.index if last.is_out else min(ends)
        target, first = ends[index]
        # Where no other target would have done better, it does not matter which could not be asked.
        skipped = () if first.failure.is_final or last.is_out else self._skipped
        return AllFailed(first, target, index, (*tried, *skipped), last.is_out)

    def _key_of(self, target: Target) -> Hashable:
        """Return under which name a target rests: limits are set for each key."""
        key = (target.key or "").encode()
        if target.takes_callers_key:
            key = caller_key(self._headers) or b""
        return target.provider, target.model, hashlib.blake2b(key, digest_size=16).digest()


def _unsayable(target: Target, error: BadRequest) -> Failed:
    """Return that a fallback cannot be asked this at all."""
    said = UpstreamError(
        f"The request cannot be translated for {target.provider}: {error.message}",
        provider=target.provider,
    )
    return Failed(said, Failure("request"))


def _end_of(failed: Failed) -> str:
    """Return in few words how an attempt ended."""
    status, code = failed.error.upstream_status, failed.error.code
    return f"{status} {failed.failure.kind}" if status is not None else code
