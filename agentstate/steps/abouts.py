"""What agents said of their sessions last, in memory, so that the same again writes nothing.

A claim takes it to the record by itself. A call that is answered without one (a replay, a join)
comes here, and costs a write only where it says something else than the call before it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from agentstate.ground.control import About
from agentstate.steps.identify import Caller
from agentstate.steps.noting import noted
from agentstate.store.base import Store

KEPT_MAX = 10_000  # sessions; what a further one says again is a write, once
NAME_BYTES = 16  # of what was said: to tell it from anything else


class Abouts:
    """Remembers it. One per server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._said: OrderedDict[str, bytes] = OrderedDict()  # by session, by last use

    async def take_in(self, caller: Caller) -> None:
        """Put on record what a call says of its session, if that is news. The disk is to hinder no
        replay: what cannot be written is said again by the next call.

        Raises:
            Deleted: the session is gone.
        """
        about, session = caller.about, caller.session
        if about is None or self._said.get(session) == _name(about):
            return
        await noted(session, self._write(session, about), must=False)

    def note(self, session: str, about: About | None) -> None:
        """Take in what is on record; None: the call did not say."""
        if about is None:
            return
        self._said[session] = _name(about)
        self._said.move_to_end(session)
        if len(self._said) > KEPT_MAX:
            self._said.popitem(last=False)

    def forget(self, session: str) -> None:
        """Let go of a session that was deleted: one of its name begins anew."""
        self._said.pop(session, None)

    async def _write(self, session: str, about: About) -> None:
        await self._store.record_about(session, about)
        self.note(session, about)


def _name(about: About) -> bytes:
    return hashlib.sha256(repr(about).encode("utf-8", "replace")).digest()[:NAME_BYTES]
