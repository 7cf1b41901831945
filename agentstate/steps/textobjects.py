"""Follows the braces and strings of a text that may hold objects, in JSON, Python or nearly so.

The second walker of `textcalls.py`, which explains the two. It is lenient: an object opens at a
brace that a key follows, and from then on only braces and quotes count, whatever stands between
them. Where quotes are broken it may lose an object, or think that one goes on; a call is found
without its help, only where the call begins, and whether a `name` has an input, is told here.

The invariant: an object keeps text for no longer than `OBJECT_CHARS_MAX`, and what is told of a
place depends on the text before it alone. Places are those of the whole text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

OBJECT_CHARS_MAX = 256 * 1024  # how long an object may keep text; larger answers are documents
DEPTH_MAX = 1000  # objects deeper than any JSON reader goes count as the one around them

# By its quote: the rest of a string, whose closing quote is the group; '' = it does not end here.
STRING_REST = {
    quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+({quote}?)", re.DOTALL) for quote in "\"'"
}
_BRACES = re.compile("[{}\"']")
_OPENS = re.compile("\\s*+(?:[\"'\u201c\u2018]|[\\w$.-]{1,64}+\\s*+:)")
_MAY_OPEN = re.compile(r"\s*+(?:[\w$.-]{1,64}+\s*+)?+\Z")


@dataclass(slots=True, eq=False)
class SpelledCall:
    """A call, as far as it is known before its arguments are read."""

    at: int  # of the word or tag that announces it
    start: int  # of the object it is in, or of what announces that; else `at`
    name: str
    name_end: int
    is_held: bool  # the gate cares about it
    is_tag: bool
    inside: SpelledObject | None  # None = no object is open where it stands


@dataclass(slots=True, eq=False)
class SpelledObject:
    """An object that is open, or was."""

    start: int  # where a call in it begins: its brace, or what announces the outermost one
    brace: int
    is_call: bool  # announced as a call, or has an input
    end: int | None = None  # None = open
    input_at: int | None = None  # where the value of its first input begins; None = it has none
    # Calls only if it turns out to have an input.
    unconfirmed: list[SpelledCall] = field(default_factory=list)


class Objects:
    """The objects that are open where the walk has got to."""

    def __init__(self) -> None:
        self.open: list[SpelledObject] = []  # outermost first
        self.at = 0
        self.confirmed: list[SpelledCall] = []  # calls for certain; whoever takes them clears it
        self.unconfirmed_count = 0
        # By the place of a brace: where what announces it begins, and whether that is a call.
        self._announced: dict[int, tuple[int, bool]] = {}
        self._keeping = 0  # the first in `open` that still keeps text
        self._deeper = 0  # open beyond DEPTH_MAX
        self._quote = ""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open, nor announced."""
        return not (self.open or self._announced)

    def start_at(self, place: int) -> int:
        """Return where a call begins of which the word or tag is at `place`."""
        while self._keeping < len(self.open):
            start = self.open[self._keeping].start
            if place - start <= OBJECT_CHARS_MAX:
                return start
            self._keeping += 1
        return place

    def keeps_from(self, place: int) -> int:
        """Return the first character that what is open, or announced, at `place` must keep."""
        first = self.start_at(place)
        if not self.open:
            first = min(first, self.at)  # it waits at a brace for what follows
        if self._announced:
            self._announced = {at: how for at, how in self._announced.items() if at >= self.at}
            first = min([first, *(start for start, _ in self._announced.values())])
        return first

    def announce(self, brace: int, start: int, is_call: bool) -> None:
        """Take note of what stands before an object."""
        known = self._announced.get(brace, (start, False))
        self._announced[brace] = (min(start, known[0]), is_call or known[1])

    def give_input(self, place: int) -> None:
        """Take note that the innermost object has an input, of which the value is at `place`."""
        inside = self.open[-1]
        inside.is_call = True
        if inside.input_at is None:
            inside.input_at = place
        self._settle(inside, is_confirmed=True)

    def wait(self, found: SpelledCall) -> None:
        """Keep what is a call only if its object, the innermost one, turns out to have an input."""
        self.open[-1].unconfirmed.append(found)
        self.unconfirmed_count += 1

    def walk(self, text: str, base: int, to: int, *, is_last: bool) -> None:
        """Go on to the place `to`. `text` begins at `base`, no later than one character before
        where the walk has got to."""
        at, to = self.at - base, to - base
        while at < to:
            if self._quote:
                match = STRING_REST[self._quote].match(text, at, to)
                assert match is not None, "it matches nothing, too"
                at = match.end()
                if match[1]:
                    self._quote = ""
                elif at < to:
                    break  # at a backslash: what it escapes is still to come
                continue
            if not self.open:
                at = text.find("{", at, to)
                if at < 0:
                    at = to
                elif _OPENS.match(text, at + 1):
                    self._enter(base + at)
                    at += 1
                elif not is_last and _MAY_OPEN.match(text, at + 1):
                    break
                else:
                    at += 1
                continue
            mark = _BRACES.search(text, at, to)
            if mark is None:
                at = to
                break
            at = mark.end()
            match mark[0]:
                case "{":
                    self._enter(base + at - 1)
                case "}":
                    self._leave(base + at)
                case '"':
                    self._quote = '"'
                case _ if is_quote(text, at - 1):
                    self._quote = "'"
        self.at = base + at

    def end(self, place: int) -> None:
        """Take note that the text ended."""
        for inside in self.open:
            self._settle(inside, is_confirmed=place - inside.brace > OBJECT_CHARS_MAX)

    def _enter(self, place: int) -> None:
        start, is_call = self._announced.pop(place, (place, False))
        if len(self.open) == DEPTH_MAX:
            self._deeper += 1
            return
        if self.open:
            start = place
        self.open.append(SpelledObject(start, place, is_call))

    def _leave(self, place: int) -> None:
        if self._deeper:
            self._deeper -= 1
            return
        inside = self.open.pop()
        inside.end = place
        self._keeping = min(self._keeping, len(self.open))
        # Too long to have been kept: nobody could have waited to see whether it has an input.
        self._settle(inside, is_confirmed=place - inside.brace > OBJECT_CHARS_MAX)

    def _settle(self, inside: SpelledObject, *, is_confirmed: bool) -> None:
        if inside.unconfirmed:
            self.unconfirmed_count -= len(inside.unconfirmed)
            if is_confirmed:
                self.confirmed += inside.unconfirmed
            inside.unconfirmed = []


def is_quote(text: str, at: int) -> bool:
    """Say whether the `'` at `at` begins a text, and is no apostrophe."""
    return text[at - 1] in ":,[{(" or text[at - 1].isspace()
