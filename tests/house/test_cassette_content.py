"""An answer's bytes come back exactly, and stand readably where they can."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.canonical import JSON, encode_readable, parse
from agentstate.ground.errors import BadRequest
from agentstate.house.cassette_content import LAYOUTS, read_content, write_content

VALUE = {"id": "ü", "n": [1, 2.5, 12345678901234567890], "e": {}, "l": []}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abü", max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
LAID_OUT = VALUES.flatmap(
    lambda value: st.sampled_from(list(LAYOUTS)).map(
        lambda name: LAYOUTS[name](value).encode("utf-8", "ignore")
    )
)
ODD = st.sampled_from(
    [
        b"",
        b"{}",
        b"1",
        b'{"a":1,"a":2}',  # a key twice
        b'{"a":1.50,"b":1e5,"c":-0}',
        b'{\n  "a": 1.50\n}\n',
        b'{"a":"\\ud800 \\udc00"}',  # halves of characters
        b'{"a":NaN}',
        b'\xef\xbb\xbf{"a":1}',
        b"\xff\x00\x80",
        b"data: x\n\ndata: y\r\n\r\n\n\n",
        "data: é\n\n\u2028".encode(),
        b"[" * 100_000,
    ]
)
CONTENT = st.binary() | st.text().map(lambda text: text.encode("utf-8", "ignore")) | LAID_OUT | ODD


@given(CONTENT, st.sampled_from(["body", "events"]))
def test_what_is_written_comes_back(content: bytes, form: Literal["body", "events"]) -> None:
    line = encode_readable(write_content(content, form))

    found = parse(line)
    assert isinstance(found, dict)
    assert b"\n" not in line
    assert read_content(found) == (content, form)


@pytest.mark.parametrize(
    ("content", "layout"),
    [
        (json.dumps(VALUE, separators=(",", ":")), None),
        (json.dumps(VALUE, separators=(",", ":"), ensure_ascii=False), "utf8"),
        (json.dumps(VALUE), "spaced"),
        (json.dumps(VALUE, ensure_ascii=False), "spaced utf8"),
        (json.dumps(VALUE, indent=2), "indented"),
        (json.dumps(VALUE, indent=2, ensure_ascii=False) + "\n", "indented utf8 line"),
        (json.dumps(VALUE, separators=(",", ":")) + "\n", "line"),
    ],
)
def test_json_stands_as_json(content: str, layout: str | None) -> None:
    found = write_content(content.encode(), "body")

    assert (
        encode_readable(found["body"])
        == json.dumps(VALUE, separators=(",", ":"), ensure_ascii=False).encode()
    )
    assert found.get("layout") == layout


def test_json_that_nobody_lays_out_so_stands_as_text() -> None:
    assert write_content(b'{"a" : 1}', "body") == {"text": '{"a" : 1}'}


def test_a_stream_stands_as_its_events() -> None:
    content = b"event: a\ndata: 1\n\n: held\n\ndata: 2\r\n\r\ndata: 3"

    found = write_content(content, "events")

    assert found == {
        "events": ["event: a\ndata: 1\n\n", ": held\n\n", "data: 2\r\n\r\n", "data: 3"]
    }


def test_what_is_no_utf8_stands_as_base64() -> None:
    assert write_content(b"\xff", "events") == {"form": "events", "base64": "/w=="}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "one of body, events"),
        ({"body": 1, "text": "x"}, "one of body, events"),
        ({"body": 1, "layout": "pretty"}, "layout must be one of utf8"),
        ({"body": 1, "layout": 2}, "layout must be"),
        ({"events": "x"}, "events cannot be read"),
        ({"events": [1]}, "events cannot be read"),
        ({"text": 1}, "text cannot be read"),
        ({"text": "\ud800"}, "half a character"),
        ({"base64": "ü"}, "base64 cannot be read"),
        ({"base64": "a"}, "base64 cannot be read"),
        ({"base64": "", "form": "x"}, "form must be body or events"),
    ],
)
def test_what_stands_for_nothing_is_refused(found: dict[str, JSON], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        read_content(found)
