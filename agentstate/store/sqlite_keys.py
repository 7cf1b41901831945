"""Which keys a session may have, in memory: a call that is new asks the file nothing.

Most calls are new, and each looks for itself under five keys. A reader of SQLite takes and gives
back locks for every look, which costs several times what the look itself does. This process is the
only writer, so it can know. What is kept may be too much (a claim that failed), never too little:
"may be there" asks the file, "is not there" is certain.

Bounded: sessions are forgotten by last use, and one with too many steps is not kept at all.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from agentstate.ground.records import Identity
from agentstate.store.base import Key

KEYS_MAX = 65_536  # in all sessions together; about 6 MB
SESSION_KEYS_MAX = 16_384  # of one session: some 4,000 steps
PREFIX_BYTES = 7  # with the kind in front 8 bytes: a small int in Python

_KINDS: dict[Key, bytes] = {
    "raw": b"\x01",
    "exact": b"\x02",
    "pinned": b"\x03",
    "masked": b"\x04",
    "alias": b"\x05",
}

LIST_KEYS = """
    select step.raw, step.exact, step.pinned, step.masked
    from session
    join step on step.session_id = session.id
    where session.name = ?
    limit ?
    """

LIST_ALIASES = """
    select alias.exact
    from session
    join alias on alias.session_id = session.id
    where session.name = ?
    limit ?
    """


class KeyIndex:
    """The keys of sessions used lately. Belongs to one thread."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, set[int]] = OrderedDict()
        self._count = 0
        self._writing: dict[str, int] = {}  # sessions with keys on their way to the file

    @contextmanager
    def writing(self, session: str) -> Iterator[None]:
        """Hold while keys of a session are written that `add` was told of.

        A session that is not kept must not be loaded meanwhile: the file lacks them still.
        """
        self._writing[session] = self._writing.get(session, 0) + 1
        try:
            yield
        finally:
            self._writing[session] -= 1
            if not self._writing[session]:
                del self._writing[session]

    def may_have(
        self, connection: sqlite3.Connection, session: str, key: Key, value: bytes
    ) -> bool:
        """Say whether a step of `session` may have this key; False is certain."""
        known = self._sessions.get(session)
        if known is None:
            known = self._load(connection, session)
            if known is None:
                return True
        else:
            self._sessions.move_to_end(session)
        return _entry(key, value) in known

    def add(self, session: str, key: Key, values: Iterable[bytes]) -> None:
        """Take in keys that are about to be written, before anyone can look for them."""
        known = self._sessions.get(session)
        if known is None:
            return  # not kept: the file is asked, or it is loaded from there
        before = len(known)
        known.update(_entry(key, value) for value in values)
        self._count += len(known) - before
        if len(known) > SESSION_KEYS_MAX:
            self._forget(session)
        self._shrink()

    def add_step(self, session: str, identity: Identity) -> None:
        """Take in the keys of a step that is about to be claimed."""
        self.add(session, "raw", (identity.raw,))
        self.add(session, "exact", (identity.exact,))
        self.add(session, "pinned", (identity.pinned,))
        self.add(session, "masked", (identity.masked,))

    def _load(self, connection: sqlite3.Connection, session: str) -> set[int] | None:
        """Read a session's keys; None = it cannot be kept now: ask the file."""
        if session in self._writing:
            return None
        steps_max = SESSION_KEYS_MAX // 4
        steps = connection.execute(LIST_KEYS, (session, steps_max + 1)).fetchall()
        aliases = connection.execute(LIST_ALIASES, (session, steps_max + 1)).fetchall()
        if len(steps) > steps_max or len(aliases) > steps_max:
            return None
        known = {_entry("alias", row[0]) for row in aliases}
        for raw, exact, pinned, masked in steps:
            known.update(
                (
                    _entry("raw", raw),
                    _entry("exact", exact),
                    _entry("pinned", pinned),
                    _entry("masked", masked),
                )
            )
        self._sessions[session] = known
        self._count += len(known)
        self._shrink()
        return known

    def _shrink(self) -> None:
        while self._count > KEYS_MAX and self._sessions:
            self._forget(next(iter(self._sessions)))

    def _forget(self, session: str) -> None:
        self._count -= len(self._sessions.pop(session))


def _entry(key: Key, value: bytes) -> int:
    return int.from_bytes(_KINDS[key] + value[:PREFIX_BYTES], "big")
