"""Regular expressions that are put to text of others' making: bounded as far as `re` can be.

Python's engine goes back and tries again, and nothing can stop it while it does; on the event loop
that is the whole proxy. So the text has a length it may have, and a pattern that repeats a repeat,
as in `(a+)+`, is refused: it takes exponential time on text that nearly matches. What is left can
still be slow (`.*a.*b` takes the cube of the length), which the length bounds to seconds. Pure.
"""

from __future__ import annotations

import re

from agentstate.ground.errors import SettingError, shorten

# Longer than nearly any command line or address; at the cube of it a pattern is slow, not stuck.
SEARCHED_CHARS_MAX = 4096

_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_UNBOUNDED = re.compile(r"(?:[*+]|\{\d*,\})(\+?)")  # the group: a possessive one never goes back


def compile_bounded(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression.

    Raises:
        SettingError: it is none, or it repeats a repeat; the message has no place.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise SettingError(
            f"{shorten(pattern)!r} is no regular expression: {error or 'nested too deeply'}."
        ) from error
    if repeats_a_repeat(pattern):
        raise SettingError(
            f"{shorten(pattern)!r} repeats what is itself repeated, as in (a+)+, which can take "
            "for ever on text that nearly matches. Make the outer one possessive: (a+)++ or (a+)*+."
        )
    return compiled


def search(pattern: re.Pattern[str], text: str) -> bool | None:
    """Say whether the pattern matches anywhere in a text; None if the text is too long to try."""
    if len(text) > SEARCHED_CHARS_MAX:
        return None
    return pattern.search(text) is not None


def repeats_a_repeat(pattern: str) -> bool:
    """Say whether a group with an unbounded repeat in it is itself repeated without bound.

    Reads a pattern that compiles. Possessive repeats and atomic groups never go back, so they do
    not count. Alternatives that overlap, as in `(a|a)*`, are not found out.
    """
    groups = [False]  # open groups, each with whether it holds an unbounded repeat
    atomic: list[bool] = []  # the same groups without the outermost
    at, holds = 0, False  # `holds`: what has just been closed has a repeat in it
    while at < len(pattern):
        char = pattern[at]
        if (quantifier := _UNBOUNDED.match(pattern, at)) is not None:
            is_possessive = bool(quantifier[1])
            if holds and not is_possessive:
                return True
            groups[-1] = groups[-1] or not is_possessive
            at, holds = quantifier.end(), False
            continue
        holds = False
        if char == "(":
            groups.append(False)
            atomic.append(pattern.startswith("(?>", at))
            if pattern.startswith("(?", at):
                at += 1  # the mark is no quantifier
        elif char == ")" and atomic:
            holds = groups.pop() and not atomic.pop()
            groups[-1] = groups[-1] or holds
        at += _length_at(pattern, at)
    return False


def _length_at(pattern: str, at: int) -> int:
    """Return how many characters belong together: an escape, a class, or one."""
    if pattern[at] == "\\":
        return 2
    found = _CLASS.match(pattern, at) if pattern[at] == "[" else None
    return 1 if found is None else len(found[0])
