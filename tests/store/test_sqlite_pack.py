"""Packing, quoting and naming are round trips on anything."""

from __future__ import annotations

import hashlib
import json
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.canonical import JSON, canonical
from agentstate.ground.records import RecordedAnswer, RequestRecord
from agentstate.store.sqlite_dictionary import packing_dictionary
from agentstate.store.sqlite_pack import (
    NAME_BYTES,
    PACK_BYTES_MIN,
    answer_raw,
    find_quote,
    name_envelope,
    name_prefixes,
    pack,
    pack_after,
    parse_answer,
    read_quote,
    unpack,
    unpack_after,
    weigh,
)
from tests.store.contract import part

NOISE = random.Random(1).randbytes(300_000)
DICTIONARY_SHA256 = "93d36adf81563b1c34d1eabbf8ad7b03851b7109bbaa1d4a0d82b12a2ce0f8ad"
SIZES = [0, 1, PACK_BYTES_MIN - 1, PACK_BYTES_MIN, 100, 5_000, 70_000, 300_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("source", [NOISE, b"agent " * 50_000, json.dumps(list(range(60_000)))])
def test_what_is_packed_comes_back(size: int, source: bytes | str) -> None:
    raw = (source.encode() if isinstance(source, str) else source)[:size]

    assert unpack(*pack(raw)) == raw
    assert unpack_after(*pack_after(raw, raw[:50_000]), raw[:50_000]) == raw
    assert unpack_after(*pack_after(raw, b""), b"") == raw


@given(st.binary(max_size=2_000), st.binary(max_size=300))
def test_any_bytes_come_back(raw: bytes, answer: bytes) -> None:
    assert unpack(*pack(raw)) == raw
    assert unpack_after(*pack_after(raw, answer), answer) == raw


def test_packing_is_never_longer_than_plain() -> None:
    for size in SIZES:
        assert len(pack(NOISE[:size])[1]) == size


def test_a_short_answer_is_halved() -> None:
    body = {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes, it is."}}],
        "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29},
    }
    headers = ((b"content-type", b"application/json"), (b"x-ratelimit-limit-requests", b"10000"))
    raw = answer_raw(RecordedAnswer(200, headers, "body", json.dumps(body).encode()))

    assert len(pack(raw)[1]) < len(raw) / 2


def test_what_repeats_an_answer_takes_next_to_nothing() -> None:
    answer = answer_raw(RecordedAnswer(200, (), "body", canonical({"content": NOISE.hex()[:2000]})))
    echo = canonical({"role": "assistant", "content": NOISE.hex()[:2000]})

    assert len(pack_after(echo, answer)[1]) < 80


def test_a_damaged_content_is_noticed() -> None:
    size, content = pack(b"the quick brown fox " * 10)
    for place, byte in enumerate(content):
        damaged = content[:place] + bytes([byte ^ 0x55]) + content[place + 1 :]
        with pytest.raises(zlib.error):
            unpack(size, damaged)


def test_a_content_that_is_cut_off_is_noticed() -> None:
    size, content = pack(b"the quick brown fox " * 10)
    for length in range(len(content)):
        with pytest.raises(zlib.error):
            unpack(size, content[:length])


def test_another_size_than_was_stored_is_noticed() -> None:
    size, content = pack(b"the quick brown fox " * 10)
    for wrong in (size - 1, size + 1):
        with pytest.raises(zlib.error):
            unpack(wrong, content)


def test_the_dictionary_is_part_of_the_file_format() -> None:
    """If this fails, records written before can no longer be read: add a second dictionary."""
    assert hashlib.sha256(packing_dictionary()).hexdigest() == DICTIONARY_SHA256


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40))),
    st.binary(max_size=200),
)
def test_headers_and_content_come_back(headers: list[tuple[bytes, bytes]], content: bytes) -> None:
    answer = RecordedAnswer(200, tuple(headers), "body", content)

    assert parse_answer(answer_raw(answer)) == (tuple(headers), content)


@given(st.text(min_size=16), st.booleans(), st.text())
def test_text_in_json_is_quoted(text: str, is_ascii: bool, before: str) -> None:
    raw = json.dumps({"a": before, "b": text + "!"}, ensure_ascii=is_ascii).encode()

    quote = find_quote(raw, text)

    assert quote is not None
    assert read_quote(raw, quote) == text


@pytest.mark.parametrize("text", ["", "short", "not in there at all"])
def test_text_that_is_short_or_elsewhere_is_not_quoted(text: str) -> None:
    assert find_quote(b'{"text":"short"}', text) is None


def test_a_lone_surrogate_is_quoted_where_it_is_escaped() -> None:
    text = "half a pair \ud83d and more"
    raw = json.dumps({"text": text}).encode()

    quote = find_quote(raw, text)

    assert quote is not None
    assert read_quote(raw, quote) == text
    assert find_quote(text.encode("utf-8", "surrogatepass"), text) is None


@pytest.mark.parametrize(
    "value", ["x" * 1000, ["xx"] * 500, {"k" * 500: "x" * 500}, [[["x" * 500]], "y" * 500]]
)
def test_weight_is_about_the_length(value: JSON) -> None:
    assert 900 <= weigh(value, 10_000) <= 1100


def test_weighing_stops_when_it_is_enough() -> None:
    assert 5_000 <= weigh(["x" * 100] * 10_000, 5_000) <= 5_100


def test_a_prefix_is_named_by_all_of_it() -> None:
    a, b, c = part("a"), part("b"), part("c")

    names = name_prefixes([a, b, c])

    assert names[:2] == name_prefixes([a, b])
    assert len(set(names) | set(name_prefixes([b, a, c])) | set(name_prefixes([c]))) == 7
    assert {len(name) for name in names} == {NAME_BYTES}
    assert name_prefixes([]) == []


def test_an_envelope_is_named_by_all_but_the_chain() -> None:
    def name(list_key: str = "messages", envelope: bytes = b"{}", *shared: str) -> bytes:
        parts = tuple((key, part(key)) for key in shared)
        return name_envelope(RequestRecord({}, parts, list_key, (part("x"),)), envelope)

    names = [
        name(),
        name("input"),
        name("messages", b"[]"),
        name("messages", b"{}", "tools"),
        name("messages", b"{}", "tools", "system"),
        name("messages", b"{}", "system", "tools"),
    ]

    assert len(set(names)) == len(names)
    assert name_envelope(RequestRecord({}, (), "messages", ()), b"{}") == name()
