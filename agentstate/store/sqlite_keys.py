"""Which keys a session may have, in memory: a call that is new asks the file nothing.

Most calls are new. Each looks for itself under five keys, and then whether its history is to be
spliced: calls were refused, or an answer is another by now. A reader of SQLite takes and gives back
locks for every look, which costs several times what the look itself does. This process is the only
writer, so it can know. What is kept may be too much (a claim that failed), never too little: "may
be there" asks the file, "is not there" is certain.

Bounded: sessions are forgotten by last use, and of one with too many steps no keys are kept.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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

FIND_SESSION = """
    select session.steps, exists (
      select 1
      from approval
      where approval.session_id = session.id and approval.is_approved = 0
        and approval.follows = 'continue'
      union all
      select 1
      from revision
      where revision.session_id = session.id
    )
    from session
    where session.name = ?
    """

LIST_KEYS = """
    select step.raw, step.exact, step.pinned, step.masked
    from session
    join step on step.session_id = session.id
    where session.name = ?
    """

LIST_ALIASES = """
    select alias.exact
    from session
    join alias on alias.session_id = session.id
    where session.name = ?
    limit ?
    """


@dataclass(slots=True)
class _Session:
    """What is known of one session."""

    keys: set[int] | None  # None = too many: ask the file
    has_splices: bool  # or may have

    def weight(self) -> int:
        """Return what it counts for towards `KEYS_MAX`."""
        return 1 + len(self.keys or ())


class KeyIndex:
    """The keys of sessions used lately. Belongs to one thread."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._count = 0  # sum of their weights
        self._writing: dict[str, int] = {}  # sessions with something on its way to the file

    def hold(self, session: str) -> None:
        """Say that something is about to be written that `add` or `add_splice` are told of.

        A session that is not kept must not be loaded before `let_go`: the file lacks it still.
        """
        self._writing[session] = self._writing.get(session, 0) + 1

    def let_go(self, session: str) -> None:
        """Say that it is written, or never will be."""
        self._writing[session] -= 1
        if not self._writing[session]:
            del self._writing[session]

    @contextmanager
    def writing(self, session: str) -> Iterator[None]:
        """Hold a session, and let it go."""
        self.hold(session)
        try:
            yield
        finally:
            self.let_go(session)

    def may_have(
        self, connection: sqlite3.Connection, session: str, key: Key, value: bytes
    ) -> bool:
        """Say whether a step of `session` may have this key; False is certain."""
        known = self._sessions.get(session)
        if known is not None:
            self._sessions.move_to_end(session)
        else:
            known = self._load(connection, session)
        return known is None or known.keys is None or _entry(key, value) in known.keys

    def may_have_splices(self, connection: sqlite3.Connection, session: str) -> bool:
        """Say whether requests of `session` may have to be spliced: calls were refused and the
        model was told of it, or a person changed an answer."""
        known = self._sessions.get(session) or self._load(connection, session)
        return known is None or known.has_splices

    def forget(self, session: str) -> None:
        """Keep nothing of a session: another one is about to have its name, or none any more."""
        known = self._sessions.pop(session, None)
        if known is not None:
            self._count -= known.weight()

    def add(self, session: str, key: Key, values: Iterable[bytes]) -> None:
        """Take in keys that are about to be written, before anyone can look for them."""
        known = self._sessions.get(session)
        if known is None or known.keys is None:
            return  # the file is asked, or it is loaded from there
        before = len(known.keys)
        known.keys.update(_entry(key, value) for value in values)
        self._count += len(known.keys) - before
        if len(known.keys) > SESSION_KEYS_MAX:
            self._count -= len(known.keys)
            known.keys = None
        self._shrink()

    def add_step(self, session: str, identity: Identity) -> None:
        """Take in the keys of a step that is about to be claimed."""
        self.add(session, "raw", (identity.raw,))
        self.add(session, "exact", (identity.exact,))
        self.add(session, "pinned", (identity.pinned,))
        self.add(session, "masked", (identity.masked,))

    def add_splice(self, session: str) -> None:
        """Take in that something is about to be written for which requests are spliced."""
        if session in self._sessions:
            self._sessions[session].has_splices = True

    def _load(self, connection: sqlite3.Connection, session: str) -> _Session | None:
        """Read what is to be known of a session; None = it cannot be kept now: ask the file."""
        if session in self._writing:
            return None
        known = _read_session(connection, session)
        self._sessions[session] = known
        self._count += known.weight()
        self._shrink()
        return known

    def _shrink(self) -> None:
        while self._count > KEYS_MAX:
            _, forgotten = self._sessions.popitem(last=False)
            self._count -= forgotten.weight()


def _read_session(connection: sqlite3.Connection, session: str) -> _Session:
    row = connection.execute(FIND_SESSION, (session,)).fetchone()
    if row is None:
        return _Session(set(), False)
    steps_count, has_splices = row
    steps_max = SESSION_KEYS_MAX // 4
    aliases = connection.execute(LIST_ALIASES, (session, steps_max + 1)).fetchall()
    if steps_count > steps_max or len(aliases) > steps_max:
        return _Session(None, bool(has_splices))
    keys = {_entry("alias", exact) for (exact,) in aliases}
    for raw, exact, pinned, masked in connection.execute(LIST_KEYS, (session,)):
        keys.update(
            (
                _entry("raw", raw),
                _entry("exact", exact),
                _entry("pinned", pinned),
                _entry("masked", masked),
            )
        )
    return _Session(keys, bool(has_splices))


def _entry(key: Key, value: bytes) -> int:
    return int.from_bytes(_KINDS[key] + value[:PREFIX_BYTES], "big")
