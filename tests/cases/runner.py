"""Plays a case file against the real proxy and checks what it expects.

A case says what a client sends, what the upstream does and what must be seen. `files.py` reads it,
`tables.py` says which parts are settled otherwise or belong to a later piece of work, `playing.py`
plays it (`held.py` what waits at the gate), `checks.py` judges (`gate_checks.py` of the gate).
Played with one scripted upstream behind one proxy; where somebody is told, with a scripted service
(`told.py`).
"""

from __future__ import annotations

from tests.cases.checks import check_all
from tests.cases.files import Case
from tests.cases.playing import Play
from tests.helpers.proxy import Proxy
from tests.helpers.services import Service
from tests.helpers.upstream import Upstream


def play(case: Case, proxy: Proxy, upstream: Upstream, service: Service | None = None) -> None:
    """Play a case on this proxy, whose upstream and webhook these are, and check every expectation
    of it."""
    playing = Play.of(case, proxy, upstream, service)
    playing.run()
    check_all(playing)
