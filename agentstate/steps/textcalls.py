"""Tool calls that a text spells, for agents of frameworks that do without native ones. Pure.

What counts as a call (`textforms.py` says how each is read):

1. `Action: send_email`, then or not `Action Input: ...`; also `Tool:`. Anywhere in a line, since
   the parsers of the frameworks search for it there: "the action: send_email was taken" counts.
2. A key and a name in an object, JSON or Python: `"action": "send_email"`; also `tool`,
   `tool_name`, `function`, `function_name`, `command`, `recipient_name`. It counts without a brace
   around it, too.
3. `"name": "send_email"` in an object that also has `arguments`, `parameters`, `args`, `input` or
   the like, or that is announced as a call: `"function": {`, `"command": {`, `<tool_call>`, ...
4. `<function=send_email>`, `<invoke name="send_email">`, `<tool>send_email</tool>`,
   `<execute_command>` (tags with an underscore), and the marks of chat templates.

Not read: code that calls a tool (`send_email(...)` in a Python block), since it can spell a name in
ways that only running it shows; and names that are only similar, of which CrewAI runs the nearest.

Theory of operation. Two walkers go over the text side by side. One stops at the characters that a
form has and reads what is announced there. It knows nothing of nesting, so that broken JSON cannot
hide a call from it. The other follows braces and strings, leniently, and knows which object is
open: a call in an object begins where the outermost object begins, with what announces that.

The invariant: where a call begins, and whether it is one, is the same however the text was cut, and
`TextScreen.safe` never gets past it. A whole JSON answer is therefore kept until it closes, since
an `"action"` may come last; but no object keeps text for longer than `OBJECT_CHARS_MAX`. Beyond
that a call begins at its own word, so its name is still kept, and a `name` counts without company.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from agentstate.steps.textforms import (
    Brace,
    Names,
    Word,
    begun_at,
    find_word,
    read_fence,
    read_list,
    read_tag,
    read_value,
)
from agentstate.steps.textobjects import (
    STRING_REST,
    Objects,
    SpelledCall,
    SpelledObject,
    is_quote,
)

UNREAD_CHARS_MAX = 1024  # how much of an object is read at once
# Arguments of calls within arguments of calls repeat the same text; beyond this, they are ''.
ARGUMENTS_CHARS_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call that a text spells."""

    position: int  # its order in the text, among all calls
    name: str
    arguments: str  # the exact text of its input; '' = none, or not read
    start: int  # where what belongs to it begins in the text, and ends
    end: int


def find_calls(
    text: str, could_hold: Callable[[str], bool] = lambda name: True
) -> tuple[TextCall, ...]:
    """Return all calls that a text spells, in order.

    A name can be read in several ways ("Send Email to Bob" is `Send` to some parsers): `could_hold`
    picks the one that the gate cares about, so give the same one as to `TextScreen`. Only calls for
    which it says yes get their arguments.
    """
    walker = _Walker(could_hold, keeps_all=True)
    walker.walk(text, is_last=True)
    return _with_arguments(text, walker)


class TextScreen:
    """Says of a text that comes in pieces how much of it may go out."""

    def __init__(self, could_hold: Callable[[str], bool]) -> None:
        self.safe = 0  # nothing before it belongs, or can come to belong, to a call to be held
        self._walker = _Walker(could_hold, keeps_all=False)
        self._unread: list[str] = []
        self._unread_chars = 0
        self._patience = 0
        self._closings = 0  # braces to come before anything that is kept can go out
        self._chars = 0  # of the text so far

    def feed(self, piece: str) -> None:
        """Take in the next piece of the text."""
        if self._walker.is_decided:
            return
        self._chars += len(piece)
        if self._patience or self._closings:
            self._unread.append(piece)
            self._unread_chars += len(piece)
            if self._can_wait(piece):
                return
            piece = self._take_unread()
        self._read(piece, is_last=False)

    def finish(self) -> None:
        """Take note that the text has ended."""
        if self._walker.is_decided:
            return
        self._read(self._take_unread(), is_last=True)
        if not self._walker.is_decided:
            self.safe = self._chars

    def _can_wait(self, piece: str) -> bool:
        """Say whether reading what is unread would let nothing go, or cost too much.

        What may become a form is read again when it has grown by an eighth: so reading it costs no
        more than some times its length, and short ones are read at every piece.
        """
        if self._closings:
            self._closings -= min(self._closings, piece.count("}"))
            if self._closings and self._unread_chars < UNREAD_CHARS_MAX:
                return True
        return self._unread_chars <= self._patience

    def _take_unread(self) -> str:
        unread = "".join(self._unread)
        self._unread.clear()
        self._unread_chars = 0
        return unread

    def _read(self, piece: str, *, is_last: bool) -> None:
        walker = self._walker
        walker.walk(piece, is_last=is_last)
        self.safe = max(self.safe, walker.limit)
        self._patience = len(walker.text) // 8
        self._closings = len(walker.open)


# --- walking ----------------------------------------------------------------------------------

# What the walker stops at; and with what the other one begins.
_POINT = re.compile("[:\uff1a<\\[`]")
_SPECIAL = re.compile("[:\uff1a<\\[`{]")


class _Walker:
    """The first walker: reads what announces a call, wherever it stands. `Objects` is the other."""

    def __init__(self, could_hold: Callable[[str], bool], *, keeps_all: bool) -> None:
        """`keeps_all`: calls that are not held are of interest, too."""
        self.found: list[SpelledCall] = []
        self.inputs: list[int] = []  # where the values of inputs outside of objects begin
        self.limit = 0  # what may go out so far
        self.is_decided = False  # a call is held, and nothing that follows can change where
        self._could_hold = could_hold
        self._keeps_all = keeps_all
        self._objects = Objects()
        self.open = self._objects.open
        self._first_held: int | None = None
        self._named = (0, 0)  # the last name, from its word on: it goes out whole
        # What is still needed of the text, from one character before it, since some forms depend
        # on that one; and places in it.
        self.text = ""
        self._base = 0  # of `text` in the whole text
        self._at = 0  # where to go on
        self._after_colon = 0

    def walk(self, piece: str, *, is_last: bool) -> None:
        """Go on with the next piece of the text."""
        text = self.text = self.text + piece if self.text else piece
        if self._objects.is_idle and not is_last and not _SPECIAL.search(text):
            self._pass_over(begun_at(text))
            return
        pending = len(text)
        while point := _POINT.search(text, self._at):
            at = point.start()
            begun = self._after_colon
            going_on = self._read_point(text, at, is_last)
            if going_on is None:
                pending = at
                if point[0] in ":\uff1a" and (word := find_word(text[begun:at])):
                    pending = begun + word.start
                self._at = at
                break
            self._at = going_on
        else:
            self._at = len(text)
        if is_last:
            self._objects.walk(text, self._base, self._base + len(text), is_last=True)
            self._objects.end(self._base + len(text))
        else:
            pending = min(pending, max(begun_at(text), self._after_colon))
            self._objects.walk(text, self._base, self._base + pending, is_last=False)
        self._take_confirmed()
        self._set_limit(self._base + pending)
        self._forget(min(pending, self._objects.at - self._base) - 1)

    def _pass_over(self, pending: int) -> None:
        """Go on over a text that has nothing to stop at: most texts, so this is short."""
        self._objects.at = self._base + pending
        self._let_go(self._objects.at)
        self._at = len(self.text)
        self._forget(pending - 1)

    def _set_limit(self, pending: int) -> None:
        if self._objects.unconfirmed_count:
            return  # where a call begins that may turn out to be one
        if self._first_held is None:
            self._let_go(self._objects.keeps_from(pending))
        else:
            self.limit = self._first_held
            self.is_decided = True

    def _let_go(self, limit: int) -> None:
        """Set the limit; the beginning of a name could be one that is held."""
        start, end = self._named
        self.limit = start if start < limit < end else limit

    def _forget(self, chars: int) -> None:
        if chars > 0:
            self.text = self.text[chars:]
            self._base += chars
            self._at -= chars
            self._after_colon = max(0, self._after_colon - chars)

    def _read_point(self, text: str, at: int, is_last: bool) -> int | None:
        """Read what stands at a point; return where to go on, None = more text is needed."""
        match text[at]:
            case "<":
                value = read_tag(text, at, is_last=is_last)
            case "[":
                value = read_list(text, at, is_last=is_last)
            case "`":
                value = read_fence(text, at, is_last=is_last)
            case _:
                return self._read_colon(text, at, is_last)
        if value is None:
            return None
        if isinstance(value, Brace):
            self._objects.announce(self._base + value.at, self._base + at, value.is_call)
            return value.at
        if value.readings:
            self._reach(text, at)
            self._add(self._base + at, value, is_tag=True)
            return at + 1
        return at + 1 if text[at] == "<" else value.end

    def _read_colon(self, text: str, at: int, is_last: bool) -> int | None:
        going_on = at + 1
        found = find_word(text[self._after_colon : at])
        if found is None:
            self._after_colon = going_on
            return going_on
        start = self._after_colon + found.start
        self._reach(text, going_on)
        is_inside = bool(self._objects.open)
        if found.word is Word.INPUT:
            if is_inside:
                self._objects.give_input(self._base + going_on)
            elif self._keeps_all:
                self.inputs.append(self._base + going_on)
        elif found.word is Word.CALL or found.is_quoted or is_inside:
            value = read_value(text, going_on, is_last=is_last)
            if value is None:
                return None
            is_name = found.word is Word.NAME
            if isinstance(value, Brace):
                self._objects.announce(self._base + value.at, self._base + start, not is_name)
            elif value.readings:
                self._add(self._base + start, value, is_name=is_name)
        self._after_colon = going_on
        return going_on

    def _reach(self, text: str, at: int) -> None:
        """Let the second walker catch up, so that it knows what is open here."""
        self._objects.walk(text, self._base, self._base + at, is_last=False)

    def _add(
        self, place: int, names: Names, *, is_name: bool = False, is_tag: bool = False
    ) -> None:
        # A call within the name of another begins with that, since half a name may be one.
        named_from = self._named[0] if place < self._named[1] else place
        self._named = (named_from, max(self._named[1], self._base + names.end))
        held = next(filter(self._could_hold, names.readings), None)
        if held is None and not self._keeps_all:
            return
        inside = self._objects.open[-1] if self._objects.open else None
        found = SpelledCall(
            at=place,
            start=min(named_from, self._objects.start_at(place)),
            name=names.readings[0] if held is None else held,
            name_end=self._base + names.name_end,
            is_held=held is not None,
            is_tag=is_tag,
            inside=inside,
        )
        if is_name and inside is not None and not inside.is_call:
            self._objects.wait(found)
        else:
            self._objects.confirmed.append(found)

    def _take_confirmed(self) -> None:
        for found in self._objects.confirmed:
            if self._keeps_all:
                self.found.append(found)
            if found.is_held and (self._first_held is None or found.start < self._first_held):
                self._first_held = found.start
        self._objects.confirmed.clear()


# --- arguments --------------------------------------------------------------------------------

_NESTING = re.compile("[][{}\"']")
_BARE = re.compile(r"[^,}\]\r\n]*+")
_BLANK = re.compile(r"\s*+")
_FENCED = re.compile(r"[\s*]*+(?:```\w{0,16}+\s*+)?")
# What the model, or its framework, writes after an input.
_NEXT_LINE = re.compile(
    r"[\r\n][ \t*_#>-]{0,16}+(?:observation|thought|final answer|question|action|tool)\b"
    r"[^\r\n:]{0,16}+:",
    re.IGNORECASE,
)
_IN_LINE = {"(": ")", "[": "]"}
# Between the name in a tag and its input.
_BEFORE_INPUT = re.compile(
    r"(?:\s|:\d|</[\w.]++>|<(?:tool_input|parameters|arguments|args|input|params)>"
    r"|<[|\uff5c][^<>]{0,64}+>|\[ARGS\]|```\w{0,16}+)*+"
)
_TAG_CLOSES = re.compile(r"</(?:function|invoke|tool_call|tool_use|tool_input)>|<[|\uff5c]tool")


def _with_arguments(text: str, walker: _Walker) -> tuple[TextCall, ...]:
    found = sorted(walker.found, key=lambda each: each.at)
    # Where an input ends at the latest: an object in it, which may look like a call, belongs to it.
    outside = [each.at for each in found if each.inside is None] + [len(text)]
    calls: list[TextCall] = []
    chars_left = ARGUMENTS_CHARS_MAX
    for position, each in enumerate(found):
        following = outside[bisect_left(outside, each.name_end)]
        start = end = each.name_end
        if each.is_held and chars_left > 0:
            if each.inside is not None:
                start, end = _input_in_object(text, each.inside)
            elif each.is_tag:
                start, end = _input_of_tag(text, each, following)
            else:
                start, end = _input_of_line(text, each, following, walker.inputs)
            chars_left -= end - start
        arguments = text[start:end].strip()
        if each.inside is not None:
            end = len(text) if each.inside.end is None else each.inside.end
        calls.append(TextCall(position, each.name, arguments, each.start, max(end, each.at)))
    return tuple(calls)


def _input_in_object(text: str, inside: SpelledObject) -> tuple[int, int]:
    """Find the value of the input. `{"action": "a", "to": 1}` has none and is its own."""
    end = len(text) if inside.end is None else inside.end
    if inside.input_at is None:
        return inside.brace, end
    start = _after(_BLANK, text, inside.input_at, end)
    return start, _value_end(text, start, end)


def _input_of_tag(text: str, found: SpelledCall, following: int) -> tuple[int, int]:
    start = _after(_BEFORE_INPUT, text, found.name_end, following)
    if text.startswith("{", start, following):
        return start, _value_end(text, start, following)
    closes = re.compile(rf"</{re.escape(found.name)}>").search(text, start, following)
    closes = closes or _TAG_CLOSES.search(text, start, following)
    return start, following if closes is None else closes.start()


def _input_of_line(
    text: str, found: SpelledCall, following: int, inputs: list[int]
) -> tuple[int, int]:
    """Find what follows `Action Input:`, else what is in brackets after the name."""
    at = bisect_left(inputs, found.name_end)
    if at < len(inputs) and inputs[at] <= following:
        start = _after(_FENCED, text, inputs[at], following)
        next_line = _NEXT_LINE.search(text, start, following)
        end = following if next_line is None else next_line.start()
        return start, start + len(text[start:end].rstrip("` \t\r\n*"))
    start = found.name_end + 1
    if closing := _IN_LINE.get(text[start - 1 : start]):
        line_end = text.find("\n", start, following)
        end = text.rfind(closing, start, following if line_end < 0 else line_end)
        if end >= 0:
            return start, end
    return found.name_end, found.name_end


def _value_end(text: str, start: int, stop: int) -> int:
    """Return where the value ends that begins at `start`; `stop` if it does not."""
    if (quote := text[start : start + 1]) in STRING_REST:
        return _after(STRING_REST[quote], text, start + 1, stop)
    if quote not in ("{", "["):
        return _after(_BARE, text, start, stop)
    depth = 0
    at = start
    while mark := _NESTING.search(text, at, stop):
        at = mark.end()
        if mark[0] in "[{":
            depth += 1
        elif mark[0] in "]}":
            depth -= 1
            if not depth:
                return at
        elif mark[0] == '"' or is_quote(text, at - 1):
            at = _after(STRING_REST[mark[0]], text, at, stop)
    return stop


def _after(pattern: re.Pattern[str], text: str, start: int, stop: int) -> int:
    match = pattern.match(text, start, stop)
    assert match is not None, "every pattern here matches nothing, too"
    return match.end()
