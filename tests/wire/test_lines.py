"""Newline-delimited JSON: whole, cut anywhere, with and without an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.errors import UpstreamProtocol
from agentstate.wire.lines import LinesDecoder
from agentstate.wire.sse import Frame

PIECES = (b'{"a":1}', b'{"t":"x\\ny"}', b"\n", b"\r\n", b"\n\n", b"\r", b" ", b"\t", b"\xff",
          "\u2028".encode(), "\x85".encode(), b"data: x")  # fmt: skip
streams = st.lists(st.sampled_from(PIECES), max_size=16).map(b"".join)


def decode(*pieces: bytes) -> list[Frame]:
    decoder = LinesDecoder()
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]
    rest = decoder.finish()
    return [*frames, rest] if rest is not None else frames


def test_a_line_is_a_frame_with_the_bytes_it_came_as() -> None:
    assert decode(b'{"a":1}\n {"b":2}\r\n') == [
        Frame(b'{"a":1}\n', b'{"a":1}'),
        Frame(b' {"b":2}\r\n', b'{"b":2}'),
    ]


def test_a_line_comes_out_with_the_byte_that_ends_it() -> None:
    decoder = LinesDecoder()

    assert decoder.feed(b'{"a":') == []
    assert decoder.feed(b"1}") == []
    assert decoder.feed(b'\n{"b"') == [Frame(b'{"a":1}\n', b'{"a":1}')]
    assert decoder.feed(b"") == []
    assert decoder.finish() == Frame(b'{"b"', b'{"b"')


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t\n"])
def test_a_blank_line_is_bytes_that_say_nothing(blank: bytes) -> None:
    assert decode(b"1\n" + blank + b"2\n") == [
        Frame(b"1\n", b"1"), Frame(blank, None), Frame(b"2\n", b"2"),
    ]  # fmt: skip


def test_no_other_sign_ends_a_line() -> None:
    line = '{"text":"a\u2028b\u2029c\x85d\x0be\x0cf\rg"}'.encode()

    assert decode(line + b"\n") == [Frame(line + b"\n", line)]


def test_the_last_line_needs_no_end() -> None:
    assert decode(b"1\n2") == [Frame(b"1\n", b"1"), Frame(b"2", b"2")]


@pytest.mark.parametrize("rest", [b"", b"  ", b"\r"])
def test_what_is_left_of_blanks_is_no_line(rest: bytes) -> None:
    assert decode(b"1\n" + rest) == [Frame(b"1\n", b"1")]


def test_the_rest_comes_out_once() -> None:
    decoder = LinesDecoder()
    decoder.feed(b"1")

    assert decoder.finish() == Frame(b"1", b"1")
    assert decoder.finish() is None


@given(streams)
def test_every_cut_gives_the_same_frames(stream: bytes) -> None:
    whole = decode(stream)

    assert decode(*(bytes((byte,)) for byte in stream)) == whole
    for at in range(len(stream) + 1):
        assert decode(stream[:at], stream[at:]) == whole


@given(streams)
def test_no_byte_is_lost_but_blanks_at_the_end(stream: bytes) -> None:
    given_back = b"".join(frame.raw for frame in decode(stream))

    assert stream.startswith(given_back)
    assert not stream[len(given_back) :].strip()
    assert all(frame.data is None or frame.data == frame.raw.strip() for frame in decode(stream))


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    decoder = LinesDecoder(line_bytes_max=4)
    assert decoder.feed(b"1234") == []
    assert decoder.feed(b"\n12") == [Frame(b"1234\n", b"1234")]

    with pytest.raises(UpstreamProtocol, match="over 4 bytes"):
        decoder.feed(b"345")


def test_short_lines_may_be_longer_together() -> None:
    frames = LinesDecoder(line_bytes_max=4).feed(b"123\n456\n789\n")

    assert [frame.data for frame in frames] == [b"123", b"456", b"789"]
