"""Plays a case file against the real proxy and checks what it expects.

A case says what a client sends, what the upstreams do and what must be seen. `files.py` reads it,
`tables.py` says which parts are settled otherwise or belong to a later piece of work, `staging.py`
starts what it is played on, `playing.py` plays it (`held.py` what waits at the gate, `told.py`
where somebody is told), `checks.py` judges.
"""

from __future__ import annotations

from tests.cases.checks import check_all
from tests.cases.files import Case
from tests.cases.playing import Play
from tests.cases.staging import Stage


def play(case: Case, stage: Stage) -> None:
    """Play a case on what was set up for it, and check every expectation of it."""
    playing = Play.of(case, stage)
    playing.run()
    check_all(playing)
