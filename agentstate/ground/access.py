"""Who may do what: roles, and the tokens that stand for them. Pure.

Four kinds of token. An *agent* calls models and tells of its own run; a *reader* reads the record;
an *approver* reads and decides what waits for a person; an *admin* does everything. An agent is no
reader: it must not read what other agents were told, and above all must not approve its own calls.

Tokens are compared by their digests, all of them each time, so that neither the time it takes nor
the order of the settings tells anything about them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from agentstate.ground.errors import SettingError

Role = Literal["agent", "read", "approve", "admin"]

# What else each role may do.
_INCLUDES: dict[Role, frozenset[Role]] = {
    "agent": frozenset(("agent",)),
    "read": frozenset(("read",)),
    "approve": frozenset(("read", "approve")),
    "admin": frozenset(("agent", "read", "approve", "admin")),
}
# 128 bits in the shortest spelling (base64url). Tries are limited, but a word can still be guessed.
TOKEN_CHARS_MIN = 22
_COOKIE_KEY = b"agentstate cookie"


def may(role: Role, needed: Role) -> bool:
    """Say whether who has `role` may do what needs `needed`."""
    return needed in _INCLUDES[role]


@dataclass(frozen=True, slots=True)
class _Known:
    role: Role
    digest: bytes
    cookie: bytes  # digest of the cookie that stands for it in a browser


class Tokens:
    """The tokens of a configuration."""

    def __init__(self, tokens: Iterable[tuple[Role, str]]) -> None:
        """Take in (role, token).

        Raises:
            SettingError: one is too short to keep anybody out, or means two things.
        """
        known: dict[bytes, _Known] = {}
        for role, token in tokens:
            if len(token) < TOKEN_CHARS_MIN or not (token.isascii() and token.isprintable()):
                raise SettingError(
                    f"A token of role {role} is no {TOKEN_CHARS_MIN} plain characters long, so it "
                    'could be guessed. `--token auto` makes a good one; so does `python3 -c "import'
                    ' secrets; print(secrets.token_urlsafe(32))"`.'
                )
            digest = _digest(token)
            if digest in known and known[digest].role != role:
                raise SettingError(
                    f"One token is set for both {known[digest].role} and {role}. Each role needs "
                    "its own."
                )
            known[digest] = _Known(role, digest, _digest(cookie_of(token)))
        self._known = tuple(known.values())

    def __bool__(self) -> bool:
        return bool(self._known)

    def has(self, role: Role) -> bool:
        """Say whether there is a token of exactly this role."""
        return any(each.role == role for each in self._known)

    def role_of(self, token: str) -> Role | None:
        """Return what a token stands for; None = it is none of ours."""
        return self._find(_digest(token), is_cookie=False)

    def role_of_cookie(self, value: str) -> Role | None:
        """Return what the value of a cookie stands for; None = it is none of ours."""
        return self._find(_digest(value), is_cookie=True)

    def _find(self, digest: bytes, *, is_cookie: bool) -> Role | None:
        found: Role | None = None
        for each in self._known:
            if hmac.compare_digest(each.cookie if is_cookie else each.digest, digest):
                found = each.role
        return found


def cookie_of(token: str) -> str:
    """Return what a browser keeps in place of a token: it opens the same doors, is worth nothing
    once the token is another, and does not give it away."""
    return hmac.new(token.encode("utf-8", "replace"), _COOKIE_KEY, hashlib.sha256).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
