"""The names a tool call can be dispatched by, however the model spelled it. Pure.

A model writes `functions.send_email`, ` Send_Email`, `mcp__mail__send_email`, and clients take it:
they strip, ignore case, cut at a separator, replace what their own names cannot hold. So a name is
looked at in several readings, and a rule that guards matches if it matches any of them.

Two folds. The *exact* one only ignores case; a rule that allows sees nothing else. The *loose* one
also takes away what cannot be seen or only decorates: full-width and other compatibility forms,
accents, zero-width characters, quotes and brackets around the name; a hyphen or blank is `_`. Both
map character by character (the loose one but for runs of hyphens and blanks, which become one), so
what begins a name begins its fold: `readings_so_far` leans on that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

NAME_CHARS_MAX = 256  # no vendor takes longer ones for a tool; a longer one is not searched in

# Where a name is cut: what follows the last one is the tool's own name.
_SEPARATOR = re.compile(r"__|[./:]")
_GAP = re.compile(r"[\s-]+")
# Marks, and characters that are not there: control, format, surrogate, unassigned. White space,
# some of which is control, is taken out before.
_UNSEEN = frozenset(("Mn", "Mc", "Me", "Cc", "Cf", "Cs", "Cn"))
_FILLERS = frozenset("\u115f\u1160")  # letters by category that show nothing
_CALL = "_call"  # Responses: the item `shell_call` is of the tool `shell`


def exact(name: str) -> str:
    """Fold a name as DESIGN says: without case."""
    return name.casefold()


def loose(name: str) -> str:
    """Fold a name to what a lenient client may take it for; outer blanks become `_` as well."""
    return _joined(_seen(name))


def exact_readings(name: str) -> frozenset[str]:
    """Return a whole name, and its last segment, in the exact fold."""
    folded = exact(name.strip())
    return frozenset((folded, *_last_segments(folded)))


def loose_readings(name: str) -> frozenset[str]:
    """Return everything a whole name may be taken for, in the loose fold."""
    folded = _joined(_bare(_seen(name)))
    found = {folded, *_ends(folded)}
    # A client that joins the pieces of a stream may see a name twice which another sees once.
    for text in tuple(found):
        if (unit := _unit(text)) is not None:
            found |= {unit, *_ends(unit)}
    return frozenset(found)


def exact_beginnings(name: str) -> frozenset[str]:
    """Return what must begin a name of the exact fold if this one is to grow to match it."""
    folded = exact(name.lstrip())
    return frozenset((folded, *_last_segments(folded)))


def loose_beginnings(name: str) -> frozenset[str]:
    """Return the same for the loose fold."""
    folded = _joined(_bare(_seen(name), is_whole=False))
    return frozenset((folded, *_last_segments(folded)))


def shorter_units(name: str) -> Iterator[str]:
    """Yield each text that the name so far repeats, the last time perhaps only in part: a name that
    is growing to be doubled."""
    folded = _joined(_bare(_seen(name), is_whole=False))
    if len(folded) <= NAME_CHARS_MAX:
        for text in {folded, *_last_segments(folded)}:
            for length in range(1, len(text)):
                if text[length:] == text[:-length]:
                    yield text[:length]


def is_blank(name: str) -> bool:
    """Say whether nothing of a name can be seen."""
    return not _seen(name).strip()


def call_readings(name: str) -> tuple[str, ...]:
    """Return a name, and the same with and without the `_call` of an item's type."""
    return name, name.removesuffix(_CALL), name + _CALL


def call_stems(name: str) -> Iterator[str]:
    """Yield a name without each beginning of `_call` that it ends in."""
    for length in range(1, min(len(_CALL), len(name))):
        if name.endswith(_CALL[:length]):
            yield name[:-length]


def _seen(name: str) -> str:
    """Return what shows of a name, without case; every blank is a plain one."""
    if name.isascii():
        folded = name.lower()
        if folded.isprintable():
            return folded
    else:
        # Folding case can bring forth compatibility forms, and the reverse.
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    return "".join(map(_seen_char, folded))


def _seen_char(char: str) -> str:
    if char.isspace():
        return " "
    category = unicodedata.category(char)
    if category == "Pd":
        return "-"
    return "" if category in _UNSEEN or char in _FILLERS else char


def _bare(seen: str, *, is_whole: bool = True) -> str:
    """Take away what stands around a name: blanks, quotes, brackets, and separators behind it."""
    start, end = 0, len(seen)
    while start < end and not _is_word(seen[start]):
        start += 1
    while is_whole and end > start and not _is_word(seen[end - 1]):
        end -= 1
    return seen[start:end] if start < end or not is_whole else seen.strip()


def _joined(seen: str) -> str:
    return _GAP.sub("_", seen)


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _last_segments(name: str) -> Iterator[str]:
    """Yield what follows the last separator: twice where `___` can be cut in two places."""
    ends = [name.rfind(mark) + 1 for mark in "./:"]
    if (at := name.rfind("__")) >= 0:
        ends.append(at + 2)
    if end := max(ends):
        yield name[end:]
        if name[end - 3 : end] == "___":
            yield name[end - 1 :]


def _ends(name: str) -> Iterator[str]:
    """Yield the last segments; one that is empty or a number (`functions.send_email:0`) does not
    count as the last."""
    yield from _last_segments(name)
    segments = _SEPARATOR.split(name)
    while len(segments) > 1 and (not segments[-1] or segments[-1].isdigit()):
        segments.pop()
        yield segments[-1]


def _unit(text: str) -> str | None:
    """Return the shortest text that a name is a repetition of, None if it is none."""
    if not text or len(text) > NAME_CHARS_MAX:
        return None
    at = (text + text).find(text, 1)
    return text[:at] if at < len(text) else None
