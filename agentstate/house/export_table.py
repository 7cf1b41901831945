"""A table of whole numbers that is small: for what must be remembered of every step or line.

Python's `dict` of integers takes a hundred bytes for each; this takes some thirty. Nothing is
ever taken out.
"""

from __future__ import annotations

from array import array

_FREE = 0
_SPREAD = 0x9E3779B97F4A7C15  # an odd number near 2**64 / golden ratio: neighbours land far apart
_MASK = 2**64 - 1
_SLOTS_MIN = 64


class Table:
    """From keys of 64 bits to numbers from 0 to 2**31 - 1."""

    __slots__ = ("_count", "_keys", "_shift", "_values")

    def __init__(self) -> None:
        self._clear(_SLOTS_MIN)

    def __len__(self) -> int:
        return self._count

    def get(self, key: int) -> int | None:
        """Return the number of a key; None = it has none."""
        slot = self._slot(key)
        return None if self._keys[slot] == _FREE else self._values[slot]

    def put(self, key: int, value: int) -> None:
        """Give a key its number, in place of one it had."""
        slot = self._slot(key)
        if self._keys[slot] == _FREE:
            if 3 * self._count >= 2 * len(self._keys):
                self._grow()
                slot = self._slot(key)
            self._count += 1
            self._keys[slot] = _stored(key)
        self._values[slot] = value

    def _slot(self, key: int) -> int:
        """Return where a key is, or would be."""
        stored, keys = _stored(key), self._keys
        last = len(keys) - 1
        slot = (stored * _SPREAD & _MASK) >> self._shift
        while keys[slot] != _FREE and keys[slot] != stored:
            slot = slot + 1 & last
        return slot

    def _clear(self, slots: int) -> None:
        self._keys = array("Q", bytes(8 * slots))
        self._values = array("i", bytes(4 * slots))
        self._shift = 64 - (slots.bit_length() - 1)
        self._count = 0

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._clear(2 * len(keys))
        for key, value in zip(keys, values, strict=True):
            if key != _FREE:
                slot = self._slot(key)
                self._keys[slot], self._values[slot] = key, value
                self._count += 1


def _stored(key: int) -> int:
    """Return a key as it is kept: 0 is what a free slot has."""
    return key & _MASK or _MASK
