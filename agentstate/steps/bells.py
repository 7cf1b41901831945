"""Bells: how those who wait are woken. A ring is a hint: who is woken reads the record again.

Nothing is polled, and nothing of a wait is on record: whoever asks again after a restart waits
again. `gate.py` and `pauses.py` wait by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Bells:
    """Who waits for what. A name is whatever both sides know the thing by."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, set[asyncio.Event]] = {}

    @contextmanager
    def listening(self, *names: Hashable) -> Iterator[asyncio.Event]:
        """Give a bell that any of the names rings. Clear it *before* reading the record: what is
        written after that rings again."""
        bell = asyncio.Event()
        for name in names:
            self._waiting.setdefault(name, set()).add(bell)
        try:
            yield bell
        finally:
            for name in names:
                self._waiting[name].discard(bell)
                if not self._waiting[name]:
                    del self._waiting[name]

    def ring(self, name: Hashable) -> None:
        """Wake who waits for this."""
        for bell in self._waiting.get(name, ()):
            bell.set()

    def ring_all(self) -> None:
        """Wake everybody."""
        for bells in self._waiting.values():
            for bell in bells:
                bell.set()
