"""Reading the JSON of others."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from agentstate.dialects import lenient
from agentstate.dialects.lenient import Unreadable, as_count, as_integer, join_text, name_type
from agentstate.ground.canonical import JSON, Number, encode

READERS = (lenient.read, lenient.read_exact)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a":[1,"b",null,true]}', {"a": [1, "b", None, True]}),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'"a\xff"', "a\ufffd"),
        (b'"a\nb\tc"', "a\nb\tc"),
        (rb'"\ud83d"', "\ud83d"),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b" 9007199254740993 ", 9007199254740993),
    ],
)
def test_what_clients_take_is_read(read: Callable[[bytes], JSON], raw: bytes, value: JSON) -> None:
    assert read(raw) == value


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "raw", [b"", b" ", b"{", b"{'a':1}", b"[1,]", b"[" * 200_000, b"1" * 5000, b"<html>", b"[DONE]"]
)
def test_what_cannot_be_read_is_said_so(read: Callable[[bytes], JSON], raw: bytes) -> None:
    with pytest.raises(Unreadable):
        read(raw)


def test_numbers_are_looked_at_as_floats_and_kept_as_sent() -> None:
    raw = b"[1.50,1E2,-0.0,1e400]"

    assert lenient.read(raw) == [1.5, 100.0, -0.0, math.inf]
    exact = lenient.read_exact(raw)
    assert exact == [Number("1.50"), Number("1E2"), Number("-0.0"), Number("1e400")]
    assert encode(exact) == raw


def test_a_key_that_comes_twice_is_written_twice_again() -> None:
    raw = b'{"a":{"b":1,"b":2,"c":3},"a":[{"b":1.50,"b":1.5}]}'

    exact = lenient.read_exact(raw)

    assert isinstance(exact, dict)
    assert exact["a"] == [{"b": Number("1.5")}]
    assert encode(exact) == raw


def test_nan_is_read_and_written_as_null() -> None:
    raw = b"[NaN,Infinity,-Infinity]"

    looked = lenient.read(raw)

    assert isinstance(looked, list)
    assert all(isinstance(value, float) and not math.isfinite(value) for value in looked)
    assert lenient.read_exact(raw) == [None, None, None]


@pytest.mark.parametrize(
    ("value", "integer", "count"),
    [(0, 0, 0), (7, 7, 7), (-1, -1, None), (10**12, 10**12, 10**12), (10**12 + 1, 10**12 + 1, None),
     (True, None, None), (1.0, None, None), ("1", None, None), (None, None, None)],
)  # fmt: skip
def test_counts_are_integers_in_bounds(value: JSON, integer: int | None, count: int | None) -> None:
    assert as_integer(value) == integer
    assert as_count(value) == count


def test_other_shapes_are_empty() -> None:
    shapes: tuple[JSON, ...] = (None, True, 1, 1.5, "x", [1], {"a": 1})

    assert [lenient.as_object(value) for value in shapes] == [{}] * 6 + [{"a": 1}]
    assert [lenient.as_list(value) for value in shapes] == [[]] * 5 + [[1], []]
    assert [lenient.as_text(value) for value in shapes] == [None] * 4 + ["x", None, None]
    assert lenient.as_text("") is None


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([], ""),
        (["a", "b"], "ab"),
        (["é", "日"], "é日"),
        (["\ud83d", "\ude00"], "\U0001f600"),
        (["\ud83d", "a", "\ude00 \U0001f600"], "\ud83da\ude00 \U0001f600"),
        (["\ude00", "\ud83d"], "\ude00\ud83d"),
    ],
)
def test_pieces_are_joined_as_in_utf16(pieces: list[str], text: str) -> None:
    assert join_text(pieces) == text


def test_the_body_of_an_answer_is_an_object_or_says_what_it_is() -> None:
    assert lenient.read_answer_body(b'{"n": 1.50}') == {"n": Number("1.50")}
    assert lenient.read_answer_body(b'{"n": 1.50}', lenient.read) == {"n": 1.5}
    for body, fault in (
        (b"<html>", "the body is no JSON"),
        (b"[1]", "the body is a list, not an object"),
        (b"null", "the body is null or nothing, not an object"),
    ):
        with pytest.raises(Unreadable, match=f"^{fault}$"):
            lenient.read_answer_body(body)


def test_a_type_is_named_and_a_text_is_not_quoted() -> None:
    values: tuple[JSON, ...] = (None, True, "", "secret", [], {}, 7)

    assert [name_type(value) for value in values] == [
        "null or nothing", "a boolean", "an empty string", "a string", "a list", "an object",
        "the number 7",
    ]  # fmt: skip
    assert len(name_type(10**500)) < 100
