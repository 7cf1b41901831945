"""How the verbs lay out what they print. All of it may be a stranger's text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from agentstate.ground.errors import shorten
from agentstate.ground.logs import printable
from agentstate.ground.visible import visible

TEXT_CHARS_MAX = 48


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their heads, each column as wide as its widest cell."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def cell(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return a text cut to a cell, `inert`."""
    return inert(shorten(text, chars_max))


def inert(text: str) -> str:
    """Return a text as one line in which nothing moves a cursor, hides, or turns others around."""
    return visible(printable(text))


def moment(ms: int) -> str:
    """Render a time."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def wrapped(text: str, width: int) -> Iterator[str]:
    """Cut a line into pieces of at most `width` columns, so that no terminal wraps it: what wraps
    begins in the first column, where only our own words stand."""
    piece, columns = "", 0
    for character in text:
        needs = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if columns + needs > width:
            yield piece
            piece, columns = "", 0
        piece += character
        columns += needs
    yield piece
