"""Strict JSON in, one canonical form out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.ground.canonical import DIGEST_BYTES, JSON, Number, canonical, digest, encode, parse
from agentstate.ground.errors import BadRequest

steady = settings(derandomize=True, deadline=None, database=None, max_examples=60)
texts = st.text(st.characters(), max_size=8).filter(lambda text: text != "\x00")
values: st.SearchStrategy[JSON] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)
numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20}|[eE][+-]?[0-9]{1,3})", fullmatch=True
)


@given(values)
@steady
def test_what_is_rendered_is_read_back(value: JSON) -> None:
    assert parse(canonical(value)) == value
    assert parse(encode(value)) == value
    assert json.loads(encode(value)) == value


@given(values)
@steady
def test_the_canonical_form_is_stable(value: JSON) -> None:
    once = canonical(value)

    assert canonical(parse(once)) == once


@given(st.dictionaries(texts, values, min_size=2, max_size=5))
@steady
def test_the_order_of_keys_does_not_matter(value: dict[str, JSON]) -> None:
    backwards = dict(reversed(value.items()))

    assert canonical(value) == canonical(backwards)
    assert json.loads(encode(backwards)) == value


@given(numbers)
@steady
def test_a_number_keeps_its_text(text: str) -> None:
    raw = b'{"a":[' + text.encode() + b"]}"

    assert parse(raw) == {"a": [Number(text)]}
    assert encode(parse(raw)) == raw
    assert parse(encode(parse(raw))) == parse(raw)


@pytest.mark.parametrize("raw", [b"0", b"-1", b"2512292042121000001", b"9" * 4000])
def test_an_integer_of_any_size_is_kept(raw: bytes) -> None:
    assert encode(parse(raw)) == canonical(parse(raw)) == raw


def test_values_that_python_takes_for_equal_have_different_forms() -> None:
    forms = {canonical(parse(raw)) for raw in (b"1", b"1.0", b"1.00", b"1e0", b"true", b'"1"')}

    assert len(forms) == 6


def test_white_space_and_escapes_do_not_matter() -> None:
    spaced = b' {\n"b" : [ 1 , 2 ] ,\t"a":"\\u00e9\\/" } '
    plain = '{"a":"é/","b":[1,2]}'.encode()

    assert canonical(parse(spaced)) == canonical(parse(plain)) == rb'{"a":"\u00e9/","b":[1,2]}'


def test_the_encoded_form_keeps_the_order_and_is_compact() -> None:
    assert encode(parse(b'{ "b": 1.50, "a": {"d": [], "c": null} }')) == (
        b'{"b":1.50,"a":{"d":[],"c":null}}'
    )


def test_a_half_surrogate_survives() -> None:
    value = parse(rb'"cut \ud83d"')

    assert value == "cut \ud83d"
    assert encode(value) == canonical(value) == rb'"cut \ud83d"'


def test_a_text_that_looks_like_a_wrapped_number_stays_a_text() -> None:
    value: JSON = {"a": '{"\x00":"1.5"}', "b": '{"\\u0000":"1.5"}', "c": "\x00"}

    assert json.loads(encode(value)) == value
    assert parse(encode(value)) == value


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "line 1, column 1"),
        (b"{", "must be JSON"),
        (b'{"a":1,}', "must be JSON"),
        (b"[1]\n[2]", "line 2, column 1"),
        (b"'a'", "must be JSON"),
        (b'"a\nb"', "must be JSON"),
        (b'"\xff"', "must be UTF-8; byte 1"),
        ("\ufeff{}".encode(), "must be JSON"),
        (b"NaN", "holds NaN"),
        (b"[-Infinity]", "holds -Infinity"),
        (b'{"a":1,"b":2,"a":1}', "the key 'a' twice"),
        (b'[{"b":{"a":1,"\\u0061":1}}]', "the key 'a' twice"),
        (b'{"\\u0000":"1.5"}', "one NUL character"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b"1" * 5000, "too long"),
    ],
)
def test_what_two_readers_could_disagree_about_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(raw)

    assert says in caught.value.message


def test_a_duplicate_key_is_named_and_shortened() -> None:
    key = "k" * 500
    with pytest.raises(BadRequest) as caught:
        parse(json.dumps({key: 1})[:-1].encode() + b"," + json.dumps({key: 2})[1:].encode())

    assert caught.value.param is not None
    assert len(caught.value.param) <= 80


@pytest.mark.parametrize("write", [canonical, encode])
def test_what_is_nested_too_deeply_to_be_written_is_refused(write: Callable[[JSON], bytes]) -> None:
    """What could be read can be too deep here: the interpreter counts the calls above as well."""
    deep: JSON = None
    for _ in range(200_000):
        deep = [deep]

    with pytest.raises(BadRequest, match="nested too deeply"):
        write(deep)


def test_what_is_no_json_is_our_own_bug() -> None:
    with pytest.raises(TypeError):
        canonical(object())  # type: ignore[arg-type]


def test_a_number_is_a_value() -> None:
    assert Number("1.0") == Number("1.0")
    assert Number("1.0") != Number("1.00")
    assert Number("1.0") != 1.0
    assert len({Number("1.0"), Number("1.0")}) == 1
    assert (float(Number("2.50")), repr(Number("2.50"))) == (2.5, "2.50")


def test_a_digest_tells_its_parts_apart() -> None:
    lists = [(), (b"",), (b"", b""), (b"ab",), (b"a", b"b"), (b"1:a",), (b"b", b"a")]

    assert len({digest(*parts) for parts in lists}) == len(lists)
    assert digest(b"ab", b"c") == hashlib.sha256(b"2:ab1:c").digest()
    assert len(digest()) == DIGEST_BYTES
