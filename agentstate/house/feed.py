"""What changed, for pages that are open: which sessions were written of, in order, by number.

A page that follows gets each session that changed since the number it has, once, however often it
changed. So nothing is queued for anybody: a page that is slow, or was away, gets the sum of what it
missed. What a change is, the page reads from the API; news are hints, as bells are.

Numbers count within one life of the process. A page that comes with one of another life, or from
before what is kept, is told to read everything anew.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

KEPT_MAX = 10_000  # sessions whose last change is known; for a page that was away longer: all
NAMED_MAX = 200  # sessions named in one piece of news; with more it says that there are many
PACE_S = 0.15  # between two pieces of news to one page: a burst of writes is one
SILENCE_S = 15.0  # then a sign of life, so that either side notices that the other is gone
LIFE_BYTES = 4


@dataclass(frozen=True, slots=True)
class News:
    """What a page is told. `sessions` None: too many to name, or nobody knows which; () = a sign of
    life."""

    cursor: str
    sessions: tuple[str, ...] | None


class Feed:
    """One per server; belongs to its event loop."""

    def __init__(self, pages_max: int = 100) -> None:
        """`pages_max`: how many may follow at once; a browser has a few."""
        self._pages_max = pages_max
        self._life = secrets.token_hex(LIFE_BYTES)
        self._number = 0  # of the last change
        self._forgotten = 0  # the number of the last change that is not kept
        self._changes: OrderedDict[str, int] = OrderedDict()  # session → its last, oldest first
        self._bells: set[asyncio.Event] = set()
        self._is_stopped = False

    @property
    def is_full(self) -> bool:
        """Whether no further page can follow, or none any more."""
        return self._is_stopped or len(self._bells) >= self._pages_max

    def note(self, sessions: Iterable[str]) -> None:
        """Take in which sessions changed."""
        for session in sessions:
            self._number += 1
            self._changes[session] = self._number
            self._changes.move_to_end(session)
        while len(self._changes) > KEPT_MAX:
            _, self._forgotten = self._changes.popitem(last=False)
        for bell in self._bells:
            bell.set()

    def stop(self) -> None:
        """End what all pages follow; they come back to who is there next."""
        self._is_stopped = True
        for bell in self._bells:
            bell.set()

    async def follow(self, after: str | None) -> AsyncIterator[News]:
        """Yield what changed after a cursor, then what changes, until the page leaves. The first
        piece comes at once; None = from now on."""
        bell = asyncio.Event()
        self._bells.add(bell)
        try:
            seen = self._number if after is None else self._read(after)
            found, number = self._news(seen), self._number
            yield found
            while not self._is_stopped:
                bell.clear()
                if self._number == number:
                    try:
                        await asyncio.wait_for(bell.wait(), SILENCE_S)
                    except TimeoutError:
                        yield News(self._cursor, ())
                        continue
                if self._number > number:
                    found, number = self._news(number), self._number
                    yield found
                    await asyncio.sleep(PACE_S)
        finally:
            self._bells.discard(bell)

    @property
    def _cursor(self) -> str:
        return f"{self._life}-{self._number}"

    def _read(self, cursor: str) -> int | None:
        """Return the number of a cursor; None = it is not of this life."""
        life, _, number = cursor.partition("-")
        is_ours = life == self._life and number.isascii() and number.isdigit() and len(number) < 19
        return int(number) if is_ours and int(number) <= self._number else None

    def _news(self, number: int | None) -> News:
        """Say what changed after a number; None = nobody knows."""
        if number is None or number < self._forgotten:
            return News(self._cursor, None)
        found: list[str] = []
        for session in reversed(self._changes):
            if self._changes[session] <= number:
                break
            found.append(session)
            if len(found) > NAMED_MAX:
                return News(self._cursor, None)
        return News(self._cursor, tuple(found))
