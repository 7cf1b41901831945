"""Which changes of a session are in force, which one a restore undoes, and what was before it.
Pure, for all backends.

Rollbacks, edits, reruns and restores are a line, each a row with a number. A restore goes back to
just before the row it undoes, so that row and all between the two no longer count; it counts itself
until it is undone. So what counts is found by walking back from the last row, leaping over what a
restore undid; and what was before a row by going back over all from the last to that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentstate.ground.control import Rollback, numbers_of
from agentstate.ground.errors import Conflict, NotFound, shorten


def marked(rows: Sequence[Rollback]) -> tuple[Rollback, ...]:
    """Return the rows, which come in order, with what undid each of them."""
    found = list(rows)
    undoer: Rollback | None = None  # the restore whose leap is passing over this row
    for place in range(len(found) - 1, -1, -1):
        row = found[place]
        if undoer is not None:
            assert undoer.undoes is not None, "only a restore leaps"
            if row.rollback_id >= undoer.undoes:
                found[place] = replace(row, undone_ms=undoer.made_ms, undone_by=undoer.rollback_id)
                continue
        undoer = row if row.undoes is not None else None
    return tuple(found)


def to_undo(session: str, rows: Sequence[Rollback], rollback_id: int | None) -> Rollback:
    """Return the row that a restore undoes; `rollback_id` None = the last one in force that is no
    restore.

    Raises:
        NotFound: there is no row of that id.
        Conflict: it is undone already, or (None) none is in force.
    """
    for row in reversed(marked(rows)):
        if rollback_id is None and row.undone_by is None and row.undoes is None:
            return row
        if row.rollback_id == rollback_id:
            if row.undone_by is None:
                return row
            raise Conflict(
                f"Number {rollback_id} of session {shorten(session)!r} was undone by number "
                f"{row.undone_by}. Restore that one to have it back."
            )
    if rollback_id is None:
        raise Conflict(
            f"Nothing of session {shorten(session)!r} is rolled back, edited or asked again."
        )
    raise NotFound(
        f"Session {shorten(session)!r} has no rollback {rollback_id}; the session lists them."
    )


def stood_before(rows: Iterable[Rollback], undone_id: int) -> dict[int, int]:
    """Return, by index, which answers of steps stood before a row, of those that were swapped in it
    or after it. Of other steps the same stands as now."""
    stood: dict[int, int] = {}
    for row in rows:
        for swap in row.swaps if row.rollback_id >= undone_id else ():
            stood.setdefault(swap.index, swap.from_id)
    return stood


def active_before(
    rows: Sequence[tuple[Rollback, int]], undone_id: int, active: Iterable[int]
) -> set[int]:
    """Return the indexes of the steps that were active before a row. `rows` come in order, each
    with how many steps there were then; `active` are those that are now."""
    found, count = set(active), None
    for row, count_then in reversed(rows):
        if row.rollback_id < undone_id:
            break
        found.difference_update(numbers_of(row.returned))
        found.update(numbers_of(row.taken))
        count = count_then
    return found if count is None else {index for index in found if index < count}
