"""Numbers as ranges."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.control import Place, Rollback, Weight, count_of, is_within, ranges_of

numbers = st.sets(st.integers(0, 60))


@given(numbers)
def test_ranges_hold_what_they_were_made_of(found: set[int]) -> None:
    ranges = ranges_of(sorted(found))
    assert {number for number in range(-1, 62) if is_within(number, ranges)} == found
    assert count_of(ranges) == len(found)
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(ranges))


def test_ranges_are_as_few_as_can_be() -> None:
    assert ranges_of([]) == ()
    assert ranges_of([0, 1, 2, 5, 7, 8]) == ((0, 2), (5, 5), (7, 8))


def test_a_row_that_undoes_is_a_restore() -> None:
    row = Rollback(1, "s", 1, None, Place(index=0), None, ((0, 0),), (), Weight(1))
    assert row.kind == "rollback"
    assert Rollback(2, "s", 1, None, None, 1, (), ((0, 0),), Weight()).kind == "restore"
