"""What the writer thread does for the dashboard: it says which sessions it wrote of.

They are found by triggers of its connection alone, so that no writing method can forget to say it;
the file knows nothing of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

_TRIGGERS = (
    """
    create temp trigger session_told after update on session
    begin
      select tell_session(new.name);
    end
    """,
    """
    create temp trigger tag_told after insert on tag
    begin
      select tell_session((select name from session where id = new.session_id));
    end
    """,
    """
    create temp trigger tag_gone_told after delete on tag
    begin
      select tell_session((select name from session where id = old.session_id));
    end
    """,
)


def tell_changes(connection: sqlite3.Connection, tell: Callable[[str], None]) -> None:
    """Have `tell` called, in this thread, with each session that is written of from now on."""
    connection.create_function("tell_session", 1, tell)
    for trigger in _TRIGGERS:
        connection.execute(trigger)
