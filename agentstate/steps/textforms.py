"""What a tool call looks like where a text spells it: its words, its tags, and how a name is read.

Pure functions on a text and a place in it; `textcalls.py` walks the text and calls them. Three
kinds of things announce a call. A *word* before a colon: `Action:`, `"tool_name":`. A *tag*:
`<function=send_email>`. A *mark* before an object: a code fence, a list, `[TOOL_CALLS]`. What
follows is read as a value: a name, the brace of an object, or neither.

The forms are those that the parsers of agent frameworks take (read 2026-11: CrewAI 1.15, LangChain
classic 1.0, LlamaIndex 0.14, smolagents 1.26, Qwen-Agent, Cline), and a little more: case, white
space, numbers, bold, quotes and escapes do not matter, and a word counts in the middle of a line
too, since those parsers search for it there.

A text comes in pieces. A function that would need more of it to be sure returns None, unless
`is_last` says that there is no more. Each looks at a bounded stretch, but for white space and
decoration, which may be of any length, as in the parsers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache

NAME_CHARS_MAX = 128  # the longest tool name a vendor takes; a longer text is none
QUOTED_UNITS_MAX = 512  # characters, or escapes of them, of a quoted text that may be a name
ATTRIBUTES_CHARS_MAX = 256  # of a tag


class Word(Enum):
    """What a word before a colon announces."""

    CALL = "call"  # the name of a tool, wherever it stands
    QUOTED_CALL = "quoted call"  # the same, but only as a key: in prose it means other things
    NAME = "name"  # as a key beside an input, the name of a tool; else the name of anything
    INPUT = "input"  # what the tool is given


@dataclass(slots=True)
class WordFound:
    """A word, by its place in the stretch before the colon."""

    word: Word
    start: int
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class Names:
    """What may be the name of a tool, in every way it may be read; () = there is none."""

    readings: tuple[str, ...]  # the likeliest first
    name_end: int  # where the name ends in the text, as the first reading has it
    end: int  # where the last of all readings ends


@dataclass(frozen=True, slots=True)
class Brace:
    """That an object follows."""

    at: int  # of its `{`
    is_call: bool  # the object is announced as a call, so a `name` in it is a tool's


def _spelled(*words: str, blanks: tuple[str, ...] = ("", " ", "_", "-")) -> list[str]:
    """Return words of several parts in each way to write them as one."""
    return [blank.join(word.split()) for word in words for blank in blanks]


_WORDS: dict[str, Word] = {
    **dict.fromkeys(_spelled("action", "action name", "tool", "tool name"), Word.CALL),
    **dict.fromkeys(
        _spelled(
            "function", "function name", "function call", "command", "command name",
            "tool call", "tool calls", "tool use", "tool uses", "recipient name",
        ),
        Word.QUOTED_CALL,
    ),
    "name": Word.NAME,
    **dict.fromkeys(
        (
            "input", "args", "arguments", "parameters", "params", "kwargs",
            *_spelled(
                *(
                    f"{of} {what}"
                    for of in ("action", "tool", "function", "command")
                    for what in ("input", "args", "arguments", "parameters")
                ),
                blanks=("", "_"),
            ),
        ),
        Word.INPUT,
    ),
}  # fmt: skip
_BEGINNINGS = frozenset(word[:length] for word in _WORDS for length in range(1, len(word) + 1))
_WORD_CHARS_MAX = max(map(len, _WORDS))
_ENDING_CHARS = 3  # so few tell nearly all other words
_ENDINGS = frozenset(word[-_ENDING_CHARS:] for word in _WORDS)
_ESCAPED_CHARS_MAX = 6 * _WORD_CHARS_MAX  # each letter as \u0061

# Between a word and its colon: blanks and digits as the parsers allow, bold and quotes around it,
# the escape of a quote in a text within JSON, and Qwen-Agent's star.
_BLANKS = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_QUOTES = "\"'`\u2018\u2019\u201c\u201d"
_GAP = _BLANKS + "0123456789*_~()[]#\\\u00ab\u00bb\u273f" + _QUOTES
_QUOTES_AFTER_WORD = _QUOTES + "\\\u273f"


def _escaped(char: str) -> str:
    codes = "|".join(sorted({f"{ord(char):02x}", f"{ord(char.upper()):02x}"}))
    return rf"(?:{re.escape(char)}|\\(?:u00|x)(?:{codes}))"


@cache  # made when it is first needed: it takes as long as a tenth of the start of the server
def _escaped_word() -> re.Pattern[str]:
    """What finds a word of which some letters are escapes, as a JSON reader takes them."""
    words = "|".join("".join(map(_escaped, word)) for word in _WORDS)
    return re.compile(rf"({words})[{re.escape(_GAP)}]*+\Z", re.IGNORECASE)


# An escape of an ASCII letter, or what may become one.
_ESCAPE_BEGUN = re.compile(r"\\(?:u00[4-7]|x[4-7]|(?:u0{0,2}|x)?\Z)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([^\r\n]))")


def find_word(stretch: str) -> WordFound | None:
    """Return the word that a colon right after `stretch` makes announce something."""
    end = _word_end(stretch)
    tail = stretch[max(0, end - _WORD_CHARS_MAX) : end].lower()
    if tail[-_ENDING_CHARS:] in _ENDINGS and (length := _longest(tail, _WORDS)):
        word = _WORDS[tail[-length:]]
        if word is Word.CALL or _is_boundary(stretch, end - length):
            is_quoted = stretch[end : end + 1] in _QUOTES_AFTER_WORD
            return WordFound(word, end - length, is_quoted and end < len(stretch))
    if "\\" in stretch:
        offset = max(0, end - _ESCAPED_CHARS_MAX)
        window = stretch[offset : end + 4]  # the last digits of an escape are of no word
        if match := _escaped_word().search(window):
            word = _WORDS[unescape(match[1]).lower()]
            if word is Word.CALL or _is_boundary(window, match.start()):
                return WordFound(word, offset + match.start(), is_quoted=True)
    return None


def begun_at(text: str) -> int:
    """Return where, at the end of `text`, a word begins that more text could turn into one with a
    colon; its length = nowhere."""
    size = len(text)
    begun = size - _longest(text[-_WORD_CHARS_MAX:].lower(), _BEGINNINGS)
    last = text[-1:]
    if last not in _GAP and not last.isdecimal() and "\\" not in text:
        return begun  # as nearly always
    end = _word_end(text)
    if end < size:
        tail = text[max(0, end - _WORD_CHARS_MAX) : end].lower()
        if length := _longest(tail, _WORDS):
            begun = min(begun, end - length)
    if last == "\\":
        begun = min(begun, size - 1)
    offset = max(0, end - _ESCAPED_CHARS_MAX)
    window = text[offset : end + 4]
    if "\\" in window and _ESCAPE_BEGUN.search(window):
        return min(begun, offset)
    return begun


def _longest(tail: str, words: frozenset[str] | dict[str, Word]) -> int:
    """Return the length of the longest of `words` that `tail`, in lower case, ends in.

    Lower case may be longer than what it is of, but never within a word of ASCII.
    """
    for skipped in range(len(tail)):
        if tail[skipped:] in words:
            return len(tail) - skipped
    return 0


def _word_end(stretch: str) -> int:
    end = len(stretch.rstrip(_GAP))
    # Digits of other scripts count as digits too.
    while end and (stretch[end - 1].isdecimal() or stretch[end - 1] in _GAP):
        end -= 1
    return end


def _is_boundary(text: str, at: int) -> bool:
    return at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_")


# --- values -----------------------------------------------------------------------------------

# What may stand before a name: anything that is part of none (an escape may be), the number of a
# list, and comments, which lenient readers of JSON pass over.
_BEFORE_NAME = re.compile(
    r"(?:[^\w{\\/]++|/(?![/*])|\\(?![ux])|\d++[.)]\s|//[^\r\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z))*+"
)
_BEFORE_NAME_IN_TAG = re.compile(r"[^\w{<]*+")
_LANGUAGE = re.compile(r"\w{0,16}+[\s\[]*+")  # after a fence
_EMPTY = re.compile(r"\s*+(?:\"\"|''|\[\s*+\])\s*+")
_QUOTED_NAME = re.compile(rf"(?:[^\\\r\n{_QUOTES}]|\\[^\r\n]?){{0,{QUOTED_UNITS_MAX}}}+")
_NAME_WITHIN = re.compile(
    rf"(?:[^\\\r\n{_QUOTES}]|\\(?![{_QUOTES}])[^\r\n]?){{0,{QUOTED_UNITS_MAX}}}+"
)
_LINE = re.compile(rf"[^\r\n]{{0,{NAME_CHARS_MAX}}}+")
_LINE_IN_TAG = re.compile(rf"[^\r\n<]{{0,{NAME_CHARS_MAX}}}+")
_FIRST = re.compile(rf"(?:\\_|[^\s()\[\]{{}}<>,;|=*\\{_QUOTES}])+")
_TAIL = re.compile(r"[(\[{<|=]")  # what follows is no part of a name
_GLUED = re.compile(r"action\s*\d*\s*input", re.IGNORECASE)  # parsers end a name here, too
_BRACED = re.compile(r"\{++\s*+([^\s{}:,\"']{1,128}+)\s*+\}")
_BRACED_BEGUN = re.compile(r"\{++\s*+(?:[^\s{}:,\"']{1,128}+\s*+)?+\Z")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_EDGES = _BLANKS + _QUOTES + "*~()[]{}#\\.,:;!?"  # around a name
# What stands where no tool is called, and the kind in DeepSeek's form.
_NO_TOOL = re.compile(
    r"final[\s_]*answer\b|(?:null|none|true|false|n/a|function)(?:\W|\Z)", re.IGNORECASE
)
_NO_NAME = re.compile(r"[\W\d_]*\Z")


def read_value(text: str, at: int, *, is_last: bool, in_tag: bool = False) -> Names | Brace | None:
    """Read what a word, a tag or a mark that ends at `at` announces."""
    size = len(text)
    if empty := _EMPTY.match(text, at):
        if empty.end() == size and not is_last:
            return None
        if text[empty.end() : empty.end() + 1] in (",", "}", "]", ""):
            return _none(empty.end())
    start = _end(_BEFORE_NAME_IN_TAG if in_tag else _BEFORE_NAME, text, at)
    if start - 3 >= at and text.startswith("```", start - 3):
        end = _end(_LANGUAGE, text, start)
        if end == size and not is_last:
            return None
        if text.startswith("{", end):
            return Brace(end, is_call=True)
    if start == size:
        return _none(size) if is_last else None
    if text[start] == "{":
        return _read_brace(text, start, is_last=is_last)
    if start > at and text[start - 1] in _QUOTES:
        # Where the quote itself is escaped, a text within JSON, so is the one that ends the name.
        is_within = text[start - 2] == "\\"
        end = _end(_NAME_WITHIN if is_within else _QUOTED_NAME, text, start)
        if end == size and not is_last:
            return None
        return Names(_readings_quoted(unescape(text[start:end])), end, end)
    end = _end(_LINE_IN_TAG if in_tag else _LINE, text, start)
    if end == size and not is_last:
        return None
    line = _GLUED.split(text[start:end], maxsplit=1)[0]
    first = _FIRST.match(line)
    return Names(_readings_of_line(line), start + (first.end() if first else 0), end)


def _read_brace(text: str, at: int, *, is_last: bool) -> Names | Brace | None:
    """Read `{send_email}`, which CrewAI takes for the name in it; else it is an object."""
    if match := _BRACED.match(text, at):
        return Names(_readings_quoted(match[1]), match.end(1), match.end())
    if not is_last and _BRACED_BEGUN.match(text, at):
        return None
    return Brace(at, is_call=True)


def _none(end: int) -> Names:
    return Names((), end, end)


def unescape(text: str) -> str:
    """Replace the escapes of JSON, and those of a byte, by what they stand for."""
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(match: re.Match[str]) -> str:
    if code := match[1] or match[2]:
        return chr(int(code, 16))
    return " " if match[3] in "bfnrt" else match[3]


def _readings_of_line(line: str) -> tuple[str, ...]:
    """Return the first word, as LlamaIndex reads a name; and all of a line, as most others do."""
    match = _FIRST.match(line)
    first = match[0].replace("\\_", "_") if match else ""
    # A line that goes on for longer than any name is none as a whole.
    return _readings(first, "" if len(line) == NAME_CHARS_MAX else line)


def _readings_quoted(text: str) -> tuple[str, ...]:
    match = _FIRST.match(text)
    return _readings(text, match[0] if match else "")


def _readings(*names: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        if _NO_TOOL.match(name):
            return ()
        bare = _TAIL.split(name, maxsplit=1)[0].strip(_EDGES)
        found[bare] = None
        found[_HUMP.sub("_", bare)] = None  # SendEmail, as CrewAI reads it
    return tuple(name for name in found if len(name) <= NAME_CHARS_MAX and not _NO_NAME.match(name))


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    assert match is not None, "every pattern here matches nothing, too"
    return match.end()


# --- tags and marks ---------------------------------------------------------------------------

_TAG = re.compile(r"<([|\uff5c]?)([\w.:\u2581-]{0,128}+)")
_TAG_END = re.compile(r"\s*+/?+")
_ATTRIBUTES = re.compile(rf"[^<>\r\n]{{0,{ATTRIBUTES_CHARS_MAX}}}+")
_ATTRIBUTE = re.compile(r"(?:\A|\b(?:name|tool|function)\b)\s*+=\s*+[\"']?([^\"'\s>|\uff5c]+)")
# Tags that announce a call: Hermes, Qwen, GLM, Granite, LangChain's XML, Claude's, DeepSeek, Kimi.
_CALL_TAGS = frozenset(
    (
        "action", "function", "function_call", "function_name", "invoke", "python_tag", "tool",
        "tool_call", "tool_call_begin", "tool_calls", "tool_calls_begin", "tool_name", "tool_sep",
        "tool_use",
    )
)  # fmt: skip
# Tags of such forms that are no tool where a tag is one by its own name.
_PLAIN_TAGS = frozenset(
    (
        "action_input", "arg_key", "arg_value", "final_answer", "function_calls",
        "function_response", "function_result", "function_results", "tool_input", "tool_output",
        "tool_response", "tool_responses", "tool_result", "tool_results",
    )
)  # fmt: skip
_FENCE = re.compile(r"`*+")
_LIST = re.compile(r"\[[\s\[]*+")
_MARKS = ("[TOOL_CALLS]", "[TOOL_REQUEST]")  # Mistral, LM Studio


def read_tag(text: str, at: int, *, is_last: bool) -> Names | Brace | None:
    """Read the tag that begins with the `<` at `at`, and what it announces.

    A tag that is named like no markup, with an underscore and no attributes, is a tool by its own
    name: `<execute_command>`, as Cline and Roo Code have them.
    """
    match = _TAG.match(text, at)
    assert match is not None, "`at` is where a `<` stands"
    size, end = len(text), match.end()
    if end == size and not is_last:
        return None
    name = match[2].casefold().replace("\u2581", "_").removeprefix("antml:")
    if name not in _CALL_TAGS:
        if "_" not in name or match[1] or name in _PLAIN_TAGS:
            return _none(end)
        end = _end(_TAG_END, text, end)
        if end == size and not is_last:
            return None
        return Names((match[2],) if text.startswith(">", end) else (), end + 1, end + 1)
    start, end = end, _end(_ATTRIBUTES, text, end)
    if end == size and not is_last:
        return None
    if not text.startswith(">", end):
        return _none(end)
    if attribute := _ATTRIBUTE.search(text[start:end]):
        return Names(_readings_quoted(unescape(attribute[1])), end + 1, end + 1)
    return read_value(text, end + 1, is_last=is_last, in_tag=True)


def read_fence(text: str, at: int, *, is_last: bool) -> Names | Brace | None:
    """Read the run of backticks at `at`: whether it opens a block that begins with an object."""
    size, end = len(text), _end(_FENCE, text, at)
    is_fence, run_end = end - at >= 3, end
    if is_fence:
        end = _end(_LANGUAGE, text, end)
    if end == size and not is_last:
        return None
    if is_fence and text.startswith("{", end):
        return Brace(end, is_call=False)
    return _none(run_end)


def read_list(text: str, at: int, *, is_last: bool) -> Names | Brace | None:
    """Read the `[` at `at`: whether it begins a list of objects, or a mark of calls."""
    size = len(text)
    for mark in _MARKS:
        if text.startswith(mark, at):
            value = read_value(text, at + len(mark), is_last=is_last)
            return (
                value if isinstance(value, Brace) or not value or value.readings else _none(at + 1)
            )
        if not is_last and size - at < len(mark) and mark.startswith(text[at:]):
            return None
    end = _end(_LIST, text, at)
    if end == size and not is_last:
        return None
    if text.startswith("{", end):
        return Brace(end, is_call=False)
    return _none(max(at + 1, text.rfind("[", at, end)))  # the last one may begin a mark
