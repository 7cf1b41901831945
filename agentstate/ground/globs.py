"""Globs of tool names: `*`, `?` and `[...]` as in a shell, compiled to a machine of bits. Pure.

Besides "does it match" a glob is asked of a name that is still arriving: can this become one that
matches? Both are answered by the same machine, which reads each character once, whatever the glob.

The machine: the glob without its stars is a row of places, each of which takes one character. A bit
of `state` says that the name so far can have filled the places below it; a character moves a bit up
if the place takes it, and a star lets a bit stay where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agentstate.ground.errors import SettingError, shorten

GLOB_CHARS_MAX = 256  # four times what OpenAI takes for a tool's name

_CLASS = re.compile(r"\[(!?)(\]?[^\]]*)\]")


class Glob:
    """One glob, over names that went through `fold` as its own text did."""

    __slots__ = ("_literal", "_loops", "_masks", "_others", "_size", "runs", "text")

    def __init__(self, text: str, fold: Callable[[str], str] = str) -> None:
        """Compile `text`.

        Raises:
            SettingError: it is no glob of names; the message has no place.
        """
        check_glob(text)
        self.text = text
        self.runs: tuple[str, ...] = ()  # the text between wildcards, folded
        self._literal: str | None = None  # all of it, where there is no wildcard
        self._loops = 0  # bits that a star lets stay
        self._masks: dict[str, int] = {}  # by character that is named: the places that take it
        self._others = 0  # the places that take any character that is not named
        self._size = 0
        self._compile(text, fold)

    @property
    def is_literal(self) -> bool:
        """Whether it has no wildcard."""
        return self._literal is not None

    def matches(self, name: str) -> bool:
        """Say whether all of a name is what the glob describes."""
        if self._literal is not None:
            return name == self._literal
        return self._run(name) >> self._size & 1 == 1

    def could_go_on(self, name: str) -> bool:
        """Say whether a longer name that begins with this one matches."""
        if self._literal is not None:
            return len(name) < len(self._literal) and self._literal.startswith(name)
        # Every place takes some character, so any bit below the end can reach it; a bit at the end
        # can go on only if it may stay there.
        return self._run(name) & (self._loops | (1 << self._size) - 1) != 0

    def _run(self, name: str) -> int:
        state, loops, masks, others = 1, self._loops, self._masks, self._others
        for char in name:
            state = state & loops | (state & masks.get(char, others)) << 1
            if not state:
                break
        return state

    def _compile(self, text: str, fold: Callable[[str], str]) -> None:
        places: list[tuple[bool, frozenset[str]]] = []  # (is it "none of these", these)
        at = 0
        run = re.compile(r"[^*?\[]+")
        while at < len(text):
            if (plain := run.match(text, at)) is not None:
                folded = fold(plain[0])
                self.runs += (folded,)
                places += [(False, frozenset(char)) for char in folded]
                at = plain.end()
            elif (found := _CLASS.match(text, at)) is not None:
                members = frozenset(fold(char) for char in _members(found[2]))
                places.append((bool(found[1]), members))
                at = found.end()
            else:
                if text[at] == "*":
                    self._loops |= 1 << len(places)
                else:
                    places.append((True, frozenset()))
                at += 1
        self._size = len(places)
        if self.runs and len(self.runs[0]) == len(places) and not self._loops:
            self._literal = self.runs[0]
        named = frozenset[str]().union(*(members for _, members in places))
        for place, (is_none_of, members) in enumerate(places):
            bit = 1 << place
            self._others |= bit if is_none_of else 0
            for char in named:
                takes = (char in members) != is_none_of
                self._masks[char] = self._masks.get(char, 0) | (bit if takes else 0)


def check_glob(text: str, of: str = "tool names") -> None:
    """Refuse what is no glob; `of` says for the message what it is to match.

    Raises:
        SettingError: it says what was expected; it has no place.
    """
    shown = shorten(repr(text))
    if not text.strip() or len(text) > GLOB_CHARS_MAX:
        raise SettingError(
            f"{shown} is no glob of {of}: 1 to {GLOB_CHARS_MAX} characters were expected."
        )
    if text != text.strip() or not text.isprintable() or any(char in "\"'`,\\" for char in text):
        raise SettingError(
            f"{shown} is no glob of {of}: in no name there is a quote, a comma, a backslash, "
            "an outer blank or a character that cannot be seen."
        )
    at = 0
    while (at := text.find("[", at)) >= 0:
        found = _CLASS.match(text, at)
        members = "" if found is None else _members(found[2])
        if found is None or not members or not members.isascii():
            raise SettingError(
                f"{shown} is no glob of {of}: what stands in brackets must be ASCII letters "
                "or ranges that go up, as in [abc], [a-z] or [!0-9], and be closed."
            )
        at = found.end()


def _members(inside: str) -> str:
    """Return the characters that a class names; '' if a range in it goes down."""
    members = ""
    at = 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            first, last = ord(inside[at]), ord(inside[at + 2])
            if first > last:
                return ""
            members += "".join(map(chr, range(first, last + 1)))
            at += 3
        else:
            members += inside[at]
            at += 1
    return members
