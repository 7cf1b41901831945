"""Server-sent events: whole, byte by byte, at every cut, and against a slow decoder."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentstate.ground.errors import UpstreamProtocol
from agentstate.wire.sse import FRAME_BYTES_MAX, Frame, SSEDecoder, comment, encode

BOM = b"\xef\xbb\xbf"

# Pieces that meet each other in every order: line ends of all kinds, fields, odd bytes.
PIECES = (
    b"data: a", b"data:b", b"data", b"data:", b"event: e", b"event:", b"id: 1", b"id", b"retry: 9",
    b": note", b":", b"odd: x", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", BOM, b" ",
    b"\xff", "\u2028".encode(), "\x85".encode(), b"\x0b\x0c\x1c", b"\x00", b"data: {\"a\":1}\n\n",
)  # fmt: skip
streams = st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join)
steady = settings(derandomize=True, deadline=None, database=None, max_examples=100)

Event = tuple[bytes, bytes, bool]


def decode(*pieces: bytes) -> list[Frame]:
    decoder = SSEDecoder()
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]
    rest = decoder.finish()
    return [*frames, rest] if rest is not None else frames


def events(frames: list[Frame]) -> list[Event]:
    return [(frame.event, frame.data, frame.has_id) for frame in frames if frame.data is not None]


def reference(stream: bytes) -> list[Event]:
    """Interpret a stream as the standard words it, a byte at a time, with no thought of speed."""
    lines, line, index = [], b"", len(BOM) if stream.startswith(BOM) else 0
    while index < len(stream):
        byte = stream[index : index + 1]
        if byte in (b"\n", b"\r"):
            lines.append(line)
            line = b""
            index += 2 if stream[index : index + 2] == b"\r\n" else 1
        else:
            line += byte
            index += 1
    found: list[Event] = []
    buffer, name, has_id, has_data = b"", b"", False, False
    for line in lines:
        if not line:
            if has_data:
                found.append((name, buffer.removesuffix(b"\n"), has_id))
            buffer, name, has_id, has_data = b"", b"", False, False
            continue
        if line.startswith(b":"):
            continue
        field, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            buffer += value + b"\n"
            has_data = True
        if field == b"event":
            name = value
        if field == b"id":
            has_id = True
    return found


@given(streams)
@example(b"data: a\r\n\r\ndata: b\n\r\ndata: c\r\r")
@example(BOM + b"data: a\n\n" + BOM + b"data: b\n\n")
@steady
def test_a_stream_means_what_the_standard_says(stream: bytes) -> None:
    assert events(decode(stream)) == reference(stream)


@given(streams, st.data())
@steady
def test_cuts_change_nothing(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:stop] for start, stop in pairwise(edges)]

    frames = decode(*pieces)

    assert b"".join(frame.raw for frame in frames) == stream
    assert events(frames) == reference(stream)


@given(streams)
@steady
def test_byte_by_byte_changes_nothing(stream: bytes) -> None:
    frames = decode(*(stream[index : index + 1] for index in range(len(stream))))

    assert b"".join(frame.raw for frame in frames) == stream
    assert events(frames) == reference(stream)


@given(st.binary(max_size=200))
@steady
def test_any_bytes_come_out_once(stream: bytes) -> None:
    assert b"".join(frame.raw for frame in decode(stream)) == stream


@given(streams)
@steady
def test_an_event_comes_out_with_its_last_byte(stream: bytes) -> None:
    decoder = SSEDecoder()
    seen: list[Frame] = []
    for index in range(len(stream)):
        seen += decoder.feed(stream[index : index + 1])

        assert events(seen) == reference(stream[: index + 1])


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_each_line_end_ends_an_event(end: bytes) -> None:
    stream = b"event: e" + end + b"data: a" + end + b"data: b" + end + end

    assert decode(stream) == [Frame(stream, b"a\nb", b"e")]


def test_only_three_bytes_end_a_line() -> None:
    text = "a\u2028b\u2029c\x85d\x0b\x0c\x1ce".encode()

    assert events(decode(b"data: " + text + b"\n\n")) == [(b"", text, False)]


def test_a_cr_dispatches_without_waiting_for_its_lf() -> None:
    decoder = SSEDecoder()

    assert decoder.feed(b"data: a\r\n\r") == [Frame(b"data: a\r\n\r", b"a")]
    assert decoder.feed(b"\ndata: b\n\n") == [Frame(b"\n", None), Frame(b"data: b\n\n", b"b")]


def test_a_cut_crlf_inside_an_event_is_one_line_end() -> None:
    decoder = SSEDecoder()

    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\n") == []
    assert decoder.rest_bytes == len(b"data: a\r\n")
    assert decoder.feed(b"data: b\r\n\r\n") == [Frame(b"data: a\r\ndata: b\r\n\r\n", b"a\nb")]


def test_an_empty_feed_keeps_the_cr_in_mind() -> None:
    assert events(decode(b"data: a\r", b"", b"\n", b"\n")) == [(b"", b"a", False)]


def test_a_comment_comes_out_at_once() -> None:
    decoder = SSEDecoder()

    assert decoder.feed(b": OPENROUTER PROCESSING\n") == [Frame(b": OPENROUTER PROCESSING\n", None)]
    assert decoder.feed(b"\n") == [Frame(b"\n", None)]


def test_a_comment_inside_an_event_stays_in_it() -> None:
    stream = b"data: a\n: note\ndata: b\n\n"

    assert decode(stream) == [Frame(stream, b"a\nb")]


def test_an_event_without_data_dispatches_nothing() -> None:
    assert decode(b"event: ping\nid: 1\n\ndata: a\n\n") == [
        Frame(b"event: ping\nid: 1\n\n", None, has_id=True),
        Frame(b"data: a\n\n", b"a"),
    ]


def test_empty_data_is_an_event() -> None:
    assert events(decode(b"data\n\ndata:\n\ndata: \n\n")) == [(b"", b"", False)] * 3


def test_one_leading_space_is_dropped() -> None:
    assert events(decode(b"data:a\n\ndata: a\n\ndata:  a\n\n")) == [
        (b"", b"a", False), (b"", b"a", False), (b"", b" a", False),
    ]  # fmt: skip


def test_an_id_is_noted() -> None:
    assert events(decode(b"id: 7\ndata: a\n\ndata: b\n\n")) == [
        (b"", b"a", True), (b"", b"b", False),
    ]  # fmt: skip


def test_a_byte_order_mark_counts_only_at_the_start() -> None:
    assert decode(BOM + b"data: a\n\n" + BOM + b"data: b\n\n") == [
        Frame(BOM, None),
        Frame(b"data: a\n\n", b"a"),
        Frame(BOM + b"data: b\n\n", None),
    ]


def test_a_later_read_may_begin_with_a_byte_order_mark_that_is_none() -> None:
    assert decode(b"data: a\n\n", BOM + b"data: b\n\n") == [
        Frame(b"data: a\n\n", b"a"),
        Frame(BOM + b"data: b\n\n", None),
    ]


def test_an_unended_event_is_no_event_but_its_bytes_come_out() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\n\nid: 1\ndata: b\ndata") == [Frame(b"data: a\n\n", b"a")]

    assert decoder.rest_bytes == len(b"id: 1\ndata: b\ndata")
    assert decoder.finish() == Frame(b"id: 1\ndata: b\ndata", None, has_id=True)
    assert decoder.rest_bytes == 0
    assert decoder.finish() is None


@pytest.mark.parametrize("stream", [b"data: 12\n\n", b"data: 1\n\r\n", b": 1234567\n"])
def test_an_event_of_exactly_the_limit_passes(stream: bytes) -> None:
    assert b"".join(frame.raw for frame in SSEDecoder(10).feed(stream)) == stream


@pytest.mark.parametrize(
    "stream",
    [
        b"data: 123\n\n",  # a whole event
        b"data: 1\ndata: 2",  # whole lines and a piece
        b"data: 12345",  # a line without end
        b": 12345678\n",  # a comment
        b"data: 1\n\n" + b"x" * 11,  # behind an event that is fine
    ],
)
def test_an_event_over_the_limit_is_refused_at_every_cut(stream: bytes) -> None:
    def feed(*pieces: bytes) -> None:
        decoder = SSEDecoder(10)
        for piece in pieces:
            decoder.feed(piece)

    for cut in range(len(stream)):
        with pytest.raises(UpstreamProtocol, match="longer than the 10 bytes"):
            feed(stream[:cut], stream[cut:])


def test_an_event_may_hold_an_image() -> None:
    image = b"data: " + b"A" * (FRAME_BYTES_MAX - 8) + b"\n\n"

    assert SSEDecoder().feed(image) == [Frame(image, image[6:-2])]
    assert FRAME_BYTES_MAX == 16 * 1024 * 1024


def test_the_limit_is_per_event() -> None:
    assert len(SSEDecoder(10).feed(b"data: 12\n\n" * 100)) == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda size: [b"data: " + b"x" * size + b"\n\n"],  # one long line
        lambda size: [b"x"] * size,  # a line without end, byte by byte
        lambda size: [b"\r"] * size,
        lambda size: [b"\r" * size],  # a stream of one kind of line end only
        lambda size: [b"data: x\n" * (size // 8)],  # one event of many lines
        lambda size: [b"data: x\n"] * (size // 8),
    ],
)
def test_decoding_takes_linear_time(make: Callable[[int], list[bytes]]) -> None:
    def took_s(size: int) -> float:
        pieces = make(size)
        began = time.perf_counter()
        decode(*pieces)
        return time.perf_counter() - began

    small = min(took_s(10_000) for _ in range(3))
    # Sixteen times the bytes: a quadratic scan takes 256 times as long.
    assert min(took_s(160_000) for _ in range(2)) < 80 * small + 0.02


@given(
    st.lists(st.sampled_from((b"a", b" ", b":", b"\n", b"\r", b"\r\n")), max_size=12).map(b"".join),
    st.sampled_from((b"", b"error")),
)
@steady
def test_an_encoded_event_decodes_to_its_data(data: bytes, event: bytes) -> None:
    raw = encode(data, event)

    assert decode(raw) == [Frame(raw, data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"), event)]


def test_encoding_is_plain() -> None:
    assert encode(b"[DONE]") == b"data: [DONE]\n\n"
    assert encode(b"{}", b"error") == b"event: error\ndata: {}\n\n"


def test_a_comment_has_no_blank_line() -> None:
    assert comment(b"held") == b": held\n"
    assert decode(comment(b"held") + encode(b"a")) == [
        Frame(b": held\n", None), Frame(b"data: a\n\n", b"a"),
    ]  # fmt: skip


def test_names_and_comments_of_ours_are_one_line() -> None:
    with pytest.raises(AssertionError):
        encode(b"a", b"x\ndata: b")
    with pytest.raises(AssertionError):
        comment(b"x\rdata: b")
