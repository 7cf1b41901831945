"""Which call a piece belongs to: streams as real upstreams sent them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.tool_deltas import ToolDeltas
from agentstate.ground.chat import ToolCall

OSLO, ROME = '{"city":"Oslo"}', '{"city":"Rome"}'


def piece(
    arguments: Any = None, *, index: int | None = None, id: Any = None, name: Any = None
) -> dict[str, Any]:
    """Return a delta with only what is given."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments))
                if value is not None}  # fmt: skip
    head = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return {**head, "function": function}


def assemble(*deltas: dict[str, Any]) -> list[tuple[str | None, str, str]]:
    calls = ToolDeltas()
    for delta in deltas:
        calls.feed(delta)
    assert [call.position for call in calls.calls] == list(range(len(calls.calls)))
    return [(call.call_id, call.name, call.arguments) for call in calls.calls]


STREAMS: dict[str, tuple[list[dict[str, Any]], list[tuple[str | None, str, str]]]] = {
    "by the book": (
        [
            piece("", index=0, id="c1", name="f"), piece('{"a":', index=0), piece("1}", index=0),
            piece("", index=1, id="c2", name="g"), piece("{}", index=1),
        ],
        [("c1", "f", '{"a":1}'), ("c2", "g", "{}")],
    ),
    "no index": (
        [piece("", id="c1", name="f"), piece('{"city":'), piece('"Oslo"}')],
        [("c1", "f", OSLO)],
    ),
    "no index, two calls": (
        [piece("", id="c1", name="f"), piece(OSLO), piece("", id="c2", name="f"), piece(ROME)],
        [("c1", "f", OSLO), ("c2", "f", ROME)],
    ),
    "no index, id only, name repeated": (
        [piece("{", id="c1", name="f"), piece("}", name="f")],
        [("c1", "f", "{}")],
    ),
    "no index, no id, whole calls": (
        [piece(OSLO, name="f"), piece(ROME, name="f"), piece("{}", name="g")],
        [(None, "f", OSLO), (None, "f", ROME), (None, "g", "{}")],
    ),
    "no index, no id, pieces": (
        [piece("", name="f"), piece('{"city":'), piece('"Oslo"}'), piece("{}", name="g")],
        [(None, "f", OSLO), (None, "g", "{}")],
    ),
    "empty id and name with every piece": (
        [
            piece("", index=0, id="c1", name="f"), piece('{"city":', index=0, id="", name=""),
            piece('"Oslo"}', index=0, name=""),
        ],
        [("c1", "f", OSLO)],
    ),
    "id and name repeated with every piece": (
        [
            piece("", index=0, id="c1", name="f"), piece('{"city":', index=0, id="c1", name="f"),
            piece('"Oslo"}', index=0, id="c1", name="f"),
        ],
        [("c1", "f", OSLO)],
    ),
    "a second call on the first one's index, its arguments on the next": (
        [
            piece(OSLO, index=0, id="c1", name="f"), piece("", index=0, id="c2", name="f"),
            piece('{"city":', index=1), piece('"Rome"}', index=1),
        ],
        [("c1", "f", OSLO), ("c2", "f", ROME)],
    ),
    "all calls on one index": (
        [
            piece(OSLO, index=0, id="c1", name="f"), piece(ROME, index=0, id="c2", name="f"),
            piece("{}", index=0, id="c3", name="g"),
        ],
        [("c1", "f", OSLO), ("c2", "f", ROME), ("c3", "g", "{}")],
    ),
    "no id": (
        [piece('{"city":', index=0, name="f"), piece('"Oslo"}', index=0)],
        [(None, "f", OSLO)],
    ),
    "no ids, two calls": (
        [piece("", index=0, name="f"), piece("", index=1, name="g"), piece(OSLO, index=0)],
        [(None, "f", OSLO), (None, "g", "")],
    ),
    "interleaved": (
        [
            piece("", index=0, id="c1", name="f"), piece("", index=1, id="c2", name="g"),
            piece('{"a":', index=0), piece('{"b":', index=1), piece("2}", index=1),
            piece("1}", index=0),
        ],
        [("c1", "f", '{"a":1}'), ("c2", "g", '{"b":2}')],
    ),
    "a known id at a wrong index": (
        [
            piece("{", index=0, id="c1", name="f"), piece("{", index=1, id="c2", name="g"),
            piece("}", index=1, id="c1"), piece("}", index=0, id="c2"),
        ],
        [("c1", "f", "{}"), ("c2", "g", "{}")],
    ),
    "arguments before the name": (
        [piece('{"city":', index=0, id="c1"), piece('"Oslo"}', index=0, name="f")],
        [("c1", "f", OSLO)],
    ),
    "the id last": (
        [piece("", index=0, name="f"), piece(OSLO, index=0, id="c1")],
        [("c1", "f", OSLO)],
    ),
    "the name in two pieces": (
        [piece("", index=0, id="c1", name="delete_"), piece("{}", index=0, name="rows")],
        [("c1", "delete_rows", "{}")],
    ),
    "one id for all calls": (
        [piece(OSLO, index=0, id="f", name="f"), piece(ROME, index=1, id="f", name="f")],
        [("f", "f", OSLO), ("f", "f", ROME)],
    ),
    "one id for all calls, no arguments": (
        [piece("", index=0, id="f", name="f"), piece("", index=1, id="f", name="f")],
        [("f", "f", ""), ("f", "f", "")],
    ),
    "the id after some of the arguments": (
        [piece("{", index=0, name="f"), piece("}", index=0, id="c1")],
        [("c1", "f", "{}")],
    ),
    "the id with the name again": (
        [piece("", index=0, name="f"), piece("{}", index=0, id="c1", name="f")],
        [("c1", "f", "{}")],
    ),
    "no id, the name last, at the second index": (
        [piece("{}", index=0, id="c1", name="f"), piece("{", index=1), piece("}",
         index=1, name="g")],
        [("c1", "f", "{}"), (None, "g", "{}")],
    ),
    "no id, the name last, after a call that got no arguments": (
        [piece("", index=0, id="c1", name="f"), piece("{", index=1), piece("}",
         index=1, name="g")],
        [("c1", "f", ""), (None, "g", "{}")],
    ),
    "the index only with the arguments": (
        [piece("", id="c1", name="f"), piece("{}", index=0)],
        [("c1", "f", "{}")],
    ),
    "no index, no id, the name last": (
        [piece("{"), piece("}", name="f")],
        [(None, "f", "{}")],
    ),
    "no index, no id, the name again with the arguments": (
        [piece("", name="f"), piece("{}", name="f")],
        [(None, "f", "{}")],
    ),
    "a call without id, then one with": (
        [piece(OSLO, index=0, name="f"), piece("{}", index=0, id="c2", name="g")],
        [(None, "f", OSLO), ("c2", "g", "{}")],
    ),
    "arguments as an object": (
        [piece({"city": "Oslo", "id": 2512292042121000001}, index=0, id="c1", name="f")],
        [("c1", "f", '{"city":"Oslo","id":2512292042121000001}')],
    ),
    "no arguments": ([piece("", index=0, id="c1", name="f")], [("c1", "f", "")]),
    "odd types": (
        [
            {"index": "0", "id": 7, "type": 1, "function": {"name": 2, "arguments": None}},
            {"function": "odd"}, {"function": None, "custom": "odd"}, {},
        ],
        [(None, "", "")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_pieces_find_their_call(name: str) -> None:
    deltas, calls = STREAMS[name]

    assert assemble(*deltas) == calls


@given(
    st.lists(
        st.builds(
            piece,
            st.sampled_from((None, "", "a", "b")),
            index=st.sampled_from((None, 0, 1, 2)),
            id=st.sampled_from((None, "", "c1", "c2")),
            name=st.sampled_from((None, "", "f", "g")),
        ),
        max_size=12,
    )
)
@settings(derandomize=True, deadline=None, database=None, max_examples=100)
def test_no_piece_of_arguments_is_lost(deltas: list[dict[str, Any]]) -> None:
    sent = "".join(delta["function"].get("arguments", "") for delta in deltas)

    kept = "".join(arguments for _, _, arguments in assemble(*deltas))

    assert sorted(kept) == sorted(sent)


@pytest.mark.parametrize("name", STREAMS)
def test_where_a_piece_would_go_is_known_before_it_does(name: str) -> None:
    calls = ToolDeltas()
    for delta in STREAMS[name][0]:
        opened = len(calls.calls)
        found = calls.find(delta)
        assert len(calls.calls) == opened
        call = calls.feed(delta)
        assert found is (call if call.position < opened else None)


def test_a_call_has_the_first_index_that_was_said() -> None:
    calls = ToolDeltas()
    for delta in (piece("", id="c1", name="f"), piece("{", index=3, id="c1"),
                  piece("}", index=4, id="c1")):  # fmt: skip
        calls.feed(delta)

    assert [call.index for call in calls.calls] == [3]


def test_a_custom_tool_is_told_by_its_form_or_its_type() -> None:
    calls = ToolDeltas()
    calls.feed({"index": 0, "id": "c1", "custom": {"name": "f", "input": "a"}})
    calls.feed({"index": 0, "custom": {"input": "b"}})
    calls.feed({"index": 1, "id": "c2", "type": "custom", "custom": {"name": "g"}})

    assert [call.build() for call in calls.calls] == [
        ToolCall(0, "c1", "f", "ab", "custom"), ToolCall(1, "c2", "g", "", "custom"),
    ]  # fmt: skip


def test_a_custom_name_is_seen_beside_an_empty_function() -> None:
    calls = ToolDeltas()
    calls.add({"id": "c1", "function": {}, "custom": {"name": "f", "input": "a"}})

    assert calls.calls[0].build() == ToolCall(0, "c1", "f", "a", "custom")


def test_arguments_nested_too_deeply_are_no_json() -> None:
    deep: Any = {}
    for _ in range(200_000):
        deep = {"a": deep}
    calls = ToolDeltas()
    calls.feed(piece(deep, index=0, name="f"))

    assert calls.calls[0].arguments == "nested too deeply"


def test_an_unknown_type_is_kept() -> None:
    calls = ToolDeltas()
    calls.feed({"index": 0, "id": "c1", "type": "computer"})

    assert calls.calls[0].build() == ToolCall(0, "c1", "", "", "computer")


def test_a_legacy_call_stands_beside_tool_calls() -> None:
    calls = ToolDeltas()
    calls.feed(piece("{}", index=0, id="c1", name="f"))
    calls.feed_legacy({"name": "g", "arguments": "{"})
    calls.feed_legacy({"name": "", "arguments": "}"})
    calls.feed(piece("!", index=0))

    assert [call.build() for call in calls.calls] == [
        ToolCall(0, "c1", "f", "{}!"), ToolCall(1, None, "g", "{}"),
    ]  # fmt: skip


def test_whole_calls_are_each_their_own() -> None:
    calls = ToolDeltas()
    for _ in range(2):
        calls.add({"index": 0, "id": "c1", "type": "function", **piece("{}", name="f")})

    assert [call.build() for call in calls.calls] == [
        ToolCall(0, "c1", "f", "{}"), ToolCall(1, "c1", "f", "{}"),
    ]  # fmt: skip
