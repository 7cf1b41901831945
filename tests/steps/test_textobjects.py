"""Objects in a text are followed, whatever else stands in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.steps import textobjects
from agentstate.steps.textobjects import OBJECT_CHARS_MAX, Objects, SpelledCall


def walked(text: str, *, is_last: bool = True) -> Objects:
    objects = Objects()
    objects.walk(text, 0, len(text), is_last=is_last)
    return objects


def call(place: int = 0) -> SpelledCall:
    return SpelledCall(place, place, "a", place, True, False, None)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ('{"a": ', 1),
        ("{'a': {", 2),
        ("{a: [{b-c: {", 3),
        ("{\u201ca\u201d: ", 1),
        ('x { \n "a": "}', 1),
        ('{"a": "\\"}', 1),
        ('{"a": "{"', 1),
        ('{"a": \'{}}', 1),
        ("{'a': 'it\\'s}', 'b", 1),
        ("{a: don't} ", 0),
        ('{"a": {}} {"b"', 1),
        ('{"a": 1}', 0),
        ("{}", 0),
        ("{x}", 0),
        ("{ return a: 1 }", 0),
        ("{1, 2}", 0),
        ("}}{{", 0),
        ("", 0),
    ],
)
def test_what_is_open_is_known(text: str, depth: int) -> None:
    assert len(walked(text).open) == depth


@pytest.mark.parametrize("text", ["{", "{ \n", "{ab", "{ab "])
def test_at_a_brace_that_may_open_an_object_the_walk_waits(text: str) -> None:
    objects = walked("ok " + text, is_last=False)

    assert (objects.at, objects.keeps_from(len(text) + 3)) == (3, 3)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.text(max_size=5) | st.integers(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=8,
    ),
    st.text(st.sampled_from('x"{} \n')),
    st.data(),
)
def test_json_opens_and_closes_however_it_is_cut(
    value: object, before: str, data: st.DataObject
) -> None:
    text = json.dumps({"a": value})
    objects = Objects()
    at = 0

    for to in sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5))):
        # What comes before a piece is there from one character on.
        base = max(0, min(at, objects.at) - 1)
        objects.walk(text[base:to], base, to, is_last=False)
        assert objects.start_at(to) == (0 if objects.open else to)
        at = to
    base = max(0, objects.at - 1)
    objects.walk(text[base:], base, len(text), is_last=True)

    assert (objects.open, objects.at) == ([], len(text))


def test_an_object_begins_with_what_announces_it_if_it_is_the_outermost() -> None:
    objects = Objects()
    text = '<x>\n```\n{"a": {"b": 1}, "c": {'
    objects.announce(8, 4, is_call=False)
    objects.announce(8, 0, is_call=True)
    objects.announce(29, 24, is_call=True)
    assert objects.keeps_from(8) == 0

    objects.walk(text, 0, len(text), is_last=False)

    assert [(each.start, each.brace, each.is_call) for each in objects.open] == [
        (0, 8, True),
        (29, 29, True),
    ]
    assert objects.start_at(len(text)) == objects.keeps_from(len(text)) == 0


def test_what_announces_no_object_keeps_nothing_for_long() -> None:
    objects = Objects()
    objects.announce(4, 0, is_call=True)

    objects.walk("x:  { y", 0, 7, is_last=False)
    assert (objects.is_idle, objects.keeps_from(7)) == (False, 0)
    objects.walk("x:  { y z", 0, 9, is_last=False)

    assert objects.keeps_from(9) == 9
    assert objects.is_idle


def test_a_call_that_waits_is_one_once_its_object_has_an_input() -> None:
    objects = walked('{"a": {"name": "x", ')
    first, second = call(9), call(10)
    objects.wait(first)
    objects.wait(second)
    assert objects.unconfirmed_count == 2

    objects.give_input(30)
    objects.give_input(40)

    assert objects.confirmed == [first, second]
    assert objects.unconfirmed_count == 0
    assert [each.input_at for each in objects.open] == [None, 30]
    assert [each.is_call for each in objects.open] == [False, True]


@pytest.mark.parametrize("end", ["}", ""])
def test_a_call_that_waits_in_vain_is_none(end: str) -> None:
    objects = walked('{"name": "x"')
    objects.wait(call())

    objects.walk('{"name": "x"' + end, 0, 12 + len(end), is_last=True)
    objects.end(12 + len(end))

    assert (objects.confirmed, objects.unconfirmed_count) == ([], 0)


@pytest.mark.parametrize("end", ["}", ""])
def test_a_call_that_had_to_wait_for_too_long_is_one(end: str) -> None:
    text = '{"name": ' + " " * OBJECT_CHARS_MAX + end
    objects = walked('{"name": ')
    waiting = call()
    objects.wait(waiting)

    objects.walk(text, 0, len(text), is_last=True)
    objects.end(len(text))

    assert objects.confirmed == [waiting]


def test_an_object_keeps_text_for_so_long_and_then_the_ones_in_it_do() -> None:
    text = '{"a": ' + " " * OBJECT_CHARS_MAX + '{"b": '
    objects = walked(text)
    inner = objects.open[1].brace

    assert [objects.start_at(place) for place in (OBJECT_CHARS_MAX, len(text), len(text) * 3)] == [
        0,
        inner,
        len(text) * 3,
    ]
    objects.walk(text + '}} {"c": ', 0, len(text) + 9, is_last=True)
    assert objects.start_at(len(text) + 9) == len(text) + 3


def test_objects_deeper_than_any_reader_goes_count_as_the_one_around_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(textobjects, "DEPTH_MAX", 2)
    text = '{"a":' * 5

    objects = walked(text)
    assert [each.brace for each in objects.open] == [0, 5]
    objects.walk(text + "}}}", 0, len(text) + 3, is_last=True)
    assert [each.brace for each in objects.open] == [0, 5]
    objects.walk(text + "}}}}", 0, len(text) + 4, is_last=True)
    assert [each.brace for each in objects.open] == [0]
