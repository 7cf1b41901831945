"""What can be said of a key without asking anybody. Pure; no part of a key is in what is said."""

from __future__ import annotations

import re

from agentstate.ground.settings import PLACEHOLDER_KEYS

# What examples and templates have where a key belongs.
_PLACEHOLDER = re.compile(
    r"[<>{}$…]|\.\.\.|x{6}|\*{3}|your[-_ ]|your(api)?key|change[-_ ]?me|replace|placeholder|dummy"
    r"|^(empty|none|null|test|secret|key|api[-_]?key|token|sk-?)$",
    re.IGNORECASE,
)
_QUOTES = frozenset("\"'`\u201c\u201d\u2018\u2019")  # the last four come out of documents


def key_fault(key: str) -> str | None:
    """Say why a text can be no key and is not worth sending; None = it can."""
    if key[0] in _QUOTES or key[-1] in _QUOTES:
        return "it stands in quotation marks, which are sent with it"
    if key.lower().startswith("bearer "):
        return 'it begins with "Bearer", which is put before it anyway'
    if any(sign.isspace() for sign in key):
        return "there is a blank or a line break in it"
    if not key.isascii() or not key.isprintable():
        return "there is a character in it that no key has"
    return None


def is_placeholder(key: str) -> bool:
    """Say whether a key looks like what examples have in its place."""
    return key in PLACEHOLDER_KEYS or _PLACEHOLDER.search(key) is not None


def owner_of(key: str) -> str | None:
    """Say whose key it is by how it begins; None = it does not tell."""
    if key.startswith("sk-ant-"):
        return "Anthropic"
    if key.startswith(("sk-proj-", "sk-svcacct-")):
        return "OpenAI"
    if key.startswith("AIza"):
        return "Google"
    return None
