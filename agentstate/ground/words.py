"""Numbers as people write them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 step", "1,200 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
