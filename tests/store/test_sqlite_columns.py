"""What an answer adds to its session is the same from values and from columns."""

from __future__ import annotations

import pytest

from agentstate.ground.chat import Usage
from agentstate.store.sqlite_columns import column_sums, maybe_readable, sums_of, usage_columns


@pytest.mark.parametrize(
    ("usage", "cost", "sums"),
    [
        (Usage(10, 4, 2, 1, 3), 25, (10, 4, 25, 0)),
        (Usage(10, 4), None, (10, 4, 0, 1)),
        (None, 25, (0, 0, 25, 0)),
        (None, None, (0, 0, 0, 1)),
        (Usage(0, 0), 0, (0, 0, 0, 0)),
    ],
)
def test_sums_come_from_values_or_columns(
    usage: Usage | None, cost: int | None, sums: tuple[int, ...]
) -> None:
    columns = usage_columns(usage)

    assert sums_of(usage, cost) == sums
    assert column_sums(columns[0], columns[1], cost) == sums


def test_a_usage_is_five_columns() -> None:
    assert usage_columns(Usage(1, 2, 3, 4, 5)) == (1, 2, 3, 4, 5)
    assert usage_columns(None) == (None,) * 5


def test_text_that_is_not_there_stays_so() -> None:
    assert maybe_readable(None) is None
    assert maybe_readable("a\ud83d") == "a\ufffd"
