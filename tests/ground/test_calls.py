"""How requests grow out of one another, and which call a question is about."""

from __future__ import annotations

from agentstate.ground.calls import grow

#  1 ─ 2 ─ 4     a place and the one above it; steps are asked at 1, 2, 4, 3 and again at 2
#    └ 3
NODES = {2: (1, "b"), 4: (2, "c"), 3: (1, "x"), 1: (None, "a")}
ASKED = [(0, 0, 1), (1, 5, 2), (2, 6, 4), (3, 7, 3), (4, 8, 2)]


def test_places_know_what_is_above_and_below() -> None:
    growth = grow(ASKED, NODES, is_all=True)
    assert growth.below == {0: [1], 1: [2, 3], 2: [4]}
    assert growth.above == {1: None, 2: 1, 3: 1, 4: 2}
    assert growth.asked == {1: [0], 2: [1, 4], 3: [3], 4: [2]}
    assert (growth.numbers[3], growth.alike, growth.is_all) == (7, {}, True)


def test_a_step_that_is_named_twice_counts_once() -> None:
    assert grow([*ASKED, ASKED[1]], NODES, is_all=True).asked[2] == [1, 4]


def test_the_first_step_below_a_place_after_another() -> None:
    growth = grow(ASKED, NODES, is_all=True)
    found = [growth.first_after(place, index) for place, index in ((1, -1), (1, 0), (2, 1), (4, 2))]
    assert found == [0, 1, 4, None]


def test_places_that_end_alike_know_one_another() -> None:
    nodes = NODES | {5: (3, ("c", 3)), 6: (4, ("c", 3))}
    assert grow(ASKED, nodes, is_all=False).alike == {5: [6], 6: [5]}
