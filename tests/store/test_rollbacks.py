"""Which rollbacks are in force, whatever was undone in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.control import Place, Rollback, Weight
from agentstate.ground.errors import Conflict, NotFound
from agentstate.store.rollbacks import marked, to_undo


def rows_of(*undoes: int | None) -> list[Rollback]:
    """Make a line of rows: None is a rollback, a number what a restore undoes."""
    return [
        Rollback(number, "s", number, None, Place(index=0), each, (), (), Weight())
        for number, each in enumerate(undoes, start=1)
    ]


def undone(*undoes: int | None) -> list[int | None]:
    return [row.undone_by for row in marked(rows_of(*undoes))]


def test_what_undid_each_row_is_marked() -> None:
    assert undone() == []
    assert undone(None, None) == [None, None]
    assert undone(None, None, 2) == [None, 3, None]
    assert undone(None, None, 1) == [3, 3, None]
    assert undone(None, None, 2, 1) == [4, 4, 4, None]
    assert undone(None, 1, 2) == [None, 3, None]  # an undone restore undoes nothing
    assert undone(None, 1, 2, 3) == [2, None, 4, None]
    assert [row.undone_ms for row in marked(rows_of(None, 1))] == [2, None]


def test_the_last_rollback_in_force_is_undone() -> None:
    assert to_undo("s", rows_of(None, None), None).rollback_id == 2
    assert to_undo("s", rows_of(None, None, 2), None).rollback_id == 1
    assert to_undo("s", rows_of(None, 1, 2), None).rollback_id == 1
    for rows in (rows_of(), rows_of(None, 1)):
        with pytest.raises(Conflict):
            to_undo("s", rows, None)


def test_only_what_is_in_force_can_be_named() -> None:
    assert to_undo("s", rows_of(None, 1), 2).rollback_id == 2
    with pytest.raises(Conflict, match="by number 2"):
        to_undo("s", rows_of(None, 1), 1)
    with pytest.raises(NotFound):
        to_undo("s", rows_of(None), 7)


@given(st.lists(st.integers(0, 9), max_size=12))
def test_the_rows_in_force_are_those_a_history_with_undo_would_keep(choices: list[int]) -> None:
    """Against a model that keeps a whole history for each moment, as an editor does."""
    histories: list[list[int]] = [[]]  # the rollbacks in force before each row, and at last
    undoes: list[int | None] = []
    for choice in choices:
        rows = marked(rows_of(*undoes))
        can = [row.rollback_id for row in rows if row.undone_by is None]
        if choice < 5 or not can:
            undoes.append(None)
            histories.append([*histories[-1], len(undoes)])
        else:
            target = can[choice % len(can)]
            undoes.append(target)
            histories.append(histories[target - 1])
    in_force = [
        row.rollback_id
        for row in marked(rows_of(*undoes))
        if row.undone_by is None and row.undoes is None
    ]
    assert in_force == histories[-1]
