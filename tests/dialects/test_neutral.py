"""What all dialects do with turns before they write them."""

from __future__ import annotations

from agentstate.dialects.neutral import Called, Item, Text, Turn, join_calling

CALL = Called("c1", "search", "{}")
OTHER = Called("c2", "search", "{}")


def model(*items: Item) -> Turn:
    return Turn("assistant", items)


def test_turns_without_calls_stay_apart() -> None:
    turns = [model(Text("a")), model(Text("b"))]

    assert join_calling(turns) == turns


def test_a_turn_with_calls_takes_in_all_that_follows_it() -> None:
    turns = [model(Text("a")), model(CALL), model(Text("b")), model(OTHER)]

    assert join_calling(turns) == [model(Text("a")), model(CALL, Text("b"), OTHER)]


def test_of_nothing_comes_nothing() -> None:
    assert join_calling([]) == []
