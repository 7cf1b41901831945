"""Which targets rest because they failed again and again. Pure state; time comes in.

A target that failed several times in a row rests for a while; then one call may try it (half-open)
while the others still pass it by, and what becomes of that call decides. Nobody is refused because
all rest: then they are tried anyway, in order (`plan.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

TARGETS_MAX = 1_024  # remembered; the one that failed least lately is forgotten
REST_MAX_S = 3_600.0  # some ask for days; now and then it is looked whether they meant it


@dataclass(slots=True)
class _Health:
    failures: int = 0  # in a row
    rests_until_s: float = 0.0
    # One call is finding out. Not for ever: it may never come to asking.
    probed_until_s: float = 0.0


class Cooldowns:
    """How the targets have done lately. In memory: a restart begins with all of them well."""

    def __init__(self, *, after: int, rest_s: float) -> None:
        self._after = after
        self._rest_s = rest_s
        self._known: OrderedDict[Hashable, _Health] = OrderedDict()

    def may_ask(self, target: Hashable, now_s: float) -> bool:
        """Say whether a target may be asked; of one that has rested, to one caller only."""
        health = self._known.get(target)
        if health is None or health.failures < self._after:
            return True
        if now_s < max(health.rests_until_s, health.probed_until_s):
            return False
        health.probed_until_s = now_s + self._rest_s
        return True

    def note_success(self, target: Hashable) -> None:
        """Note that a target answered: it is well."""
        self._known.pop(target, None)

    def note_failure(self, target: Hashable, now_s: float, rest_s: float = 0.0) -> None:
        """Note that a target failed. `rest_s`: how long it asked to be left alone."""
        health = self._known.pop(target, None) or _Health()
        self._known[target] = health
        if len(self._known) > TARGETS_MAX:
            self._known.popitem(last=False)
        health.failures += 1
        health.probed_until_s = 0.0
        if rest_s > 0 and health.failures < self._after:
            health.failures = self._after  # it said so itself
        if health.failures >= self._after:
            health.rests_until_s = now_s + max(self._rest_s, min(rest_s, REST_MAX_S))

    def note_unknown(self, target: Hashable) -> None:
        """Note that an attempt ended without saying anything of the target: its probe is free."""
        health = self._known.get(target)
        if health is not None:
            health.probed_until_s = 0.0
