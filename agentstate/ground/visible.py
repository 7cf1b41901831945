"""Shows arguments to a person who is to decide on them, so that nothing in them is hidden. Pure.

What a model writes can look like something else: characters that turn the direction of what
follows, that have no width, that begin a line of their own, or a key that comes twice, of which
readers take different ones. `visible` spells out the first, `duplicate_keys` names the second. The
text that is approved stays as it was sent; this is for showing only, and escapes nothing for HTML
or a terminal.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

DUPLICATES_MAX = 100  # paths that are named; one is reason enough to look

# Characters that nothing is seen of, though Unicode counts them as letters, marks or symbols:
# joiners, fillers, selectors of a variant (which can carry a hidden text), the empty Braille cell.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PLAIN = re.compile(r"[\n\t\x20-\x7e]*\Z")


def visible(text: str) -> str:
    """Return `text` with every character that cannot be seen, or moves others, as `⟨U+202E⟩`.

    New lines and tabs stay, and so do characters that only look like others.
    """
    return text if _PLAIN.match(text) else "".join(map(_shown, text))


def duplicate_keys(arguments: str) -> tuple[str, ...]:
    """Return the paths of keys that come twice in one object, as `a.b[0].c`.

    () if there are none, if it is no JSON, or if it is nested too deeply for anybody to read. In
    the order of the text, but for those of an object, which come before those within it.
    """
    try:
        value = _DECODER.decode(arguments)
    except (ValueError, RecursionError):
        return ()
    found: dict[str, None] = {}
    for path in _twice(value):
        found[path] = None
        if len(found) == DUPLICATES_MAX:
            break
    return tuple(found)


def _shown(char: str) -> str:
    if char in "\n\t" or (char.isprintable() and not _BLANK.match(char)):
        return char
    if unicodedata.category(char) == "Zs":  # a blank of another width is seen as a blank
        return char
    return f"⟨U+{ord(char):04X}⟩"


class _Pairs(list[tuple[str, Any]]):
    """An object as it was sent, every key of it."""


# Numbers are not looked at, and Python bounds how long integers may be.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)

# A place in the value: the one around it, and the step from there. Written out only where it is
# named, since written out all paths of a deep value are longer than the value, by far.
_Path = tuple["_Path", str] | None


def _twice(value: Any) -> Iterator[str]:
    waiting: list[tuple[_Path, Any]] = [(None, value)]
    while waiting:
        path, each = waiting.pop()
        inner: list[tuple[_Path, Any]] = []
        if isinstance(each, _Pairs):
            seen: set[str] = set()
            for key, part in each:
                below = (path, f".{key}")
                if key in seen:
                    yield _written(below)
                seen.add(key)
                inner.append((below, part))
        elif isinstance(each, list):
            inner = [((path, f"[{index}]"), part) for index, part in enumerate(each)]
        waiting.extend(reversed(inner))


def _written(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return "".join(reversed(steps)).removeprefix(".")
