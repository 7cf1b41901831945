"""What the backends share: cursors, limits, and values kept within bounds."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.chat import Usage
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import Query
from agentstate.store.base import (
    COUNT_MAX,
    LIST_LIMIT_MAX,
    check_limit,
    check_session,
    clamp,
    clamp_usage,
    make_cursor,
    read_cursor,
    readable,
    rebuild_body,
)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=4))
def test_a_cursor_comes_back(place: list[int]) -> None:
    assert read_cursor(make_cursor(*place), len(place)) == tuple(place)


def test_no_cursor_is_the_first_page() -> None:
    assert read_cursor(None, 2) is None


@given(st.text())
def test_a_cursor_is_read_or_refused(after: str) -> None:
    with suppress(BadRequest):
        place = read_cursor(after, 1)
        assert place is not None
        assert len(place) == 1


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 1.5, True, "1", None, [1]])
def test_a_cursor_holds_only_numbers_a_database_takes(number: object) -> None:
    with pytest.raises(BadRequest):
        read_cursor(make_cursor(number), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [1, LIST_LIMIT_MAX])
def test_a_limit_in_bounds_is_taken(limit: int) -> None:
    assert check_limit(Query(limit=limit)) == limit


def test_a_listing_of_steps_names_its_session() -> None:
    assert check_session(Query(session="s")) == "s"
    with pytest.raises(BadRequest):
        check_session(Query())


@given(st.integers())
def test_a_count_is_kept_within_bounds(count: int) -> None:
    kept = clamp(count)
    assert 0 <= kept <= COUNT_MAX
    assert kept == count or not 0 <= count <= COUNT_MAX


def test_each_count_of_a_usage_is_kept_within_bounds() -> None:
    assert clamp_usage(None) is None
    assert clamp_usage(Usage(1, 2, 3, 4, 5)) == Usage(1, 2, 3, 4, 5)
    assert clamp_usage(Usage(-1, -1, -1, -1, -1)) == Usage(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain", "plain"),
        ("grüße 😀", "grüße 😀"),
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
    ],
)
def test_text_is_made_readable(text: str, shown: str) -> None:
    assert readable(text) == shown


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_readable_text_can_be_written(text: str) -> None:
    readable(text).encode("utf-8")


def test_a_body_keeps_the_order_of_its_keys() -> None:
    body = rebuild_body({"m": None, "a": 1, "t": None}, [("t", [2])], "m", ["x"])

    assert body == {"m": ["x"], "a": 1, "t": [2]}
    assert isinstance(body, dict)
    assert list(body) == ["m", "a", "t"]
