"""The table keeps what it is given, as a dictionary does, in a third of the room."""

from __future__ import annotations

import sys
from array import array

from hypothesis import given
from hypothesis import strategies as st

from agentstate.house.export_table import Table

keys = st.integers(0, 2**64 - 1) | st.integers(0, 40) | st.integers(2**64 - 3, 2**64 - 2)


@given(st.lists(st.tuples(keys, st.integers(0, 2**31 - 1)), max_size=300), keys)
def test_it_does_what_a_dictionary_does(pairs: list[tuple[int, int]], other: int) -> None:
    table, known = Table(), dict[int, int]()
    for key, value in pairs:
        if {key, 2**64 - 1} <= {0, 2**64 - 1} and 0 in known | {key: 0}:
            continue  # 0 is kept as the last key there is
        table.put(key, value)
        known[key] = value
    assert len(table) == len(known)
    assert {key: table.get(key) for key in known} == known
    if other not in known and other not in (0, 2**64 - 1):
        assert table.get(other) is None


def test_many_neighbours_cost_little_room() -> None:
    table = Table()
    for key in range(1, 50_001):
        table.put(key, key)
    assert all(table.get(key) == key for key in range(1, 50_001, 997))
    columns: list[array[int]] = [table._keys, table._values]
    assert sum(map(sys.getsizeof, columns)) < 50_000 * 36
