"""What one call tries next: the same target again after a pause, the next one, or nothing. Pure.

    attempt → Failure → Plan.after → Next | None

The counterparts: `failures.py` says what a failure means, `cooldown.py` which targets rest, and
`upstream.py` carries it out. Invariant: at most `retries + 1` attempts at one target, each target
once in a row, and no pause that was asked for longer than the setting (and the chance added to it).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from agentstate.ground.settings import ForwardSettings
from agentstate.steps.cooldown import Cooldowns
from agentstate.steps.failures import Failure
from agentstate.steps.target import Target

# Full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter", 2015): a pause anywhere
# from nothing to a limit that doubles, so that callers who failed together come back apart.
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 8.0
# A pause that was asked for is kept, and a little of chance added to it.
SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Next:
    """The next attempt."""

    target: Target
    index: int  # of the target in the chain, from 0
    pause_s: float = 0.0  # to wait before it
    passed_by: tuple[Target, ...] = ()  # that come before it in the chain, and rest


class Plan:
    """The attempts of one call."""

    def __init__(
        self,
        targets: Sequence[Target],
        settings: ForwardSettings,
        cooldowns: Cooldowns,
        *,
        key_of: Callable[[Target], Hashable],
        window_of: Callable[[Target], int | None],
        is_own_retry: bool,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`key_of` says under which name a target rests, `window_of` how many tokens its window
        holds (None = not known), `chance` gives a number from 0 to 1.

        `is_own_retry`: the client repeats the call by itself, so each target is tried once.
        """
        self._targets = targets
        self._settings = settings
        self._cooldowns = cooldowns
        self._key_of = key_of
        self._window_of = window_of
        self._tries_max = 1 if is_own_retry else settings.retries + 1
        self._began_s = 0.0
        self._chance = chance
        self._index = 0
        self._tries = 0  # at the present target
        self._left = [True] * len(targets)  # not tried yet, and not ruled out
        self._window = 0  # of a target into which the request did not fit

    def first(self, now_s: float) -> Next:
        """Return the first attempt: at the first target that does not rest, else at the first.

        The call's time begins with it: a call may have waited for a person before.
        """
        self._began_s = now_s
        found, passed_by = self._find_next(now_s)
        return self._go(0 if found is None else found, passed_by)

    def after(self, failure: Failure, now_s: float) -> Next | None:
        """Take in why the last attempt failed; return the next one, None = there is none."""
        target = self._targets[self._index]
        if failure.kind == "context":
            self._window = max(self._window, self._window_of(target) or 0)
        pause_s = self._pause(failure)
        is_late = now_s + pause_s - self._began_s > self._settings.retry_total_s
        is_too_long = (failure.retry_after_s or 0.0) > self._settings.retry_after_max_s
        if failure.may_pass and self._tries < self._tries_max and not (is_late or is_too_long):
            self._tries += 1
            return Next(target, self._index, pause_s)
        # Once for a call, however often it was tried: what several calls met is no chance.
        self._note(target, failure, now_s)
        # What is wrong with the request itself is wrong everywhere; but a fallback may refuse it
        # for a reason of its own.
        if self._index == 0 and failure.is_final:
            return None
        if self._index == 0 and failure.kind == "filter" and not self._settings.fallback_on_filter:
            return None
        found, passed_by = self._find_next(now_s)
        return None if found is None else self._go(found, passed_by)

    def give_up(self, failure: Failure, now_s: float) -> None:
        """Take in why the last attempt failed, after which nothing can be tried."""
        self._note(self._targets[self._index], failure, now_s)

    def succeeded(self) -> None:
        """Take in that the last attempt was answered."""
        self._cooldowns.note_success(self._key_of(self._targets[self._index]))

    def abandoned(self) -> None:
        """Take in that the last attempt was given up for reasons of our own."""
        self._cooldowns.note_unknown(self._key_of(self._targets[self._index]))

    @property
    def has_more(self) -> bool:
        """Whether anything could still be tried if the present attempt failed."""
        return self._tries < self._tries_max or self.has_others

    @property
    def has_others(self) -> bool:
        """Whether another target could still be tried if the present attempt failed."""
        return any(self._left)

    def _note(self, target: Target, failure: Failure, now_s: float) -> None:
        key = self._key_of(target)
        if not failure.is_of_target:
            self._cooldowns.note_unknown(key)
            return
        asked_s = failure.retry_after_s or 0.0
        is_long = asked_s > self._settings.retry_after_max_s
        self._cooldowns.note_failure(key, now_s, asked_s if is_long else 0.0)

    def _pause(self, failure: Failure) -> float:
        if failure.retry_after_s is not None:
            return failure.retry_after_s * (1 + SPREAD * self._chance())
        limit_s: float = min(PAUSE_FIRST_S * float(2 ** (self._tries - 1)), PAUSE_MAX_S)
        return limit_s * self._chance()

    def _go(self, index: int, passed_by: Sequence[Target]) -> Next:
        self._index, self._tries = index, 1
        self._left[index] = False
        return Next(self._targets[index], index, passed_by=tuple(passed_by))

    def _find_next(self, now_s: float) -> tuple[int | None, list[Target]]:
        """Return the next target that may be asked, if all that are left rest the first of them;
        and those that were passed by because they rest.

        Only a larger window helps a request that did not fit.
        """
        open_ones = [index for index, is_left in enumerate(self._left) if is_left]
        if self._window:
            open_ones = [
                index
                for index in open_ones
                if (window := self._window_of(self._targets[index])) is None
                or window > self._window
            ]
        passed_by: list[Target] = []
        for index in open_ones:
            if self._cooldowns.may_ask(self._key_of(self._targets[index]), now_s):
                return index, passed_by
            passed_by.append(self._targets[index])
        return (open_ones[0] if open_ones else None), []
