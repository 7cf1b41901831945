"""Content codings: whole, byte by byte, every cut, with a tail, and as a bomb."""

from __future__ import annotations

import gzip
import itertools
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.ground.errors import BadRequest, TooLarge, UnsupportedCoding
from agentstate.wire.coding import (
    PIECE_BYTES_MAX,
    REQUEST_MEMBERS_MAX,
    WINDOW_BYTES,
    CorruptData,
    Inflater,
    TruncatedData,
    decode_request_body,
)

TEXT = b"data: the quick brown fox\n\n" * 40


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflater.compress(data) + deflater.flush()


FORMS = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "x-gzip": ("x-gzip", gzip.compress(TEXT)),
    "gzip of two members": ("gzip", gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:])),
    "gzip with an empty member": ("gzip", gzip.compress(b"") + gzip.compress(TEXT)),
    "gzip padded with zero bytes": ("gzip", gzip.compress(TEXT) + bytes(64)),
    "gzip of two padded members": (
        "gzip",
        gzip.compress(TEXT[:99]) + bytes(3) + gzip.compress(TEXT[99:]),
    ),
    "deflate in zlib's wrapper": ("deflate", zlib.compress(TEXT)),
    "deflate without wrapper": ("deflate", raw_deflate(TEXT)),
}
every_form = pytest.mark.parametrize(("coding", "raw"), FORMS.values(), ids=FORMS.keys())


def inflate(coding: str, pieces: list[bytes]) -> bytes:
    inflater = Inflater(coding)
    decoded = b"".join(itertools.chain.from_iterable(inflater.feed(piece) for piece in pieces))
    inflater.finish()
    return decoded


@every_form
def test_a_body_decodes_whole(coding: str, raw: bytes) -> None:
    assert inflate(coding, [raw]) == TEXT


@every_form
def test_a_body_decodes_byte_by_byte(coding: str, raw: bytes) -> None:
    assert inflate(coding, [raw[i : i + 1] for i in range(len(raw))]) == TEXT


@every_form
def test_a_body_decodes_cut_in_two_anywhere(coding: str, raw: bytes) -> None:
    for cut in range(len(raw) + 1):
        assert inflate(coding, [raw[:cut], raw[cut:]]) == TEXT, cut


@pytest.mark.parametrize("form", ["gzip", "deflate in zlib's wrapper", "deflate without wrapper"])
def test_a_body_that_stops_anywhere_is_no_clean_end(form: str) -> None:
    coding, raw = FORMS[form]
    for cut in range(1, len(raw)):
        with pytest.raises(TruncatedData):
            inflate(coding, [raw[:cut]])


def test_a_second_gzip_member_that_stops_is_no_clean_end() -> None:
    first, second = gzip.compress(TEXT), gzip.compress(TEXT)
    for cut in range(1, len(second)):
        with pytest.raises(TruncatedData):
            inflate("gzip", [first + second[:cut]])


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_no_bytes_at_all_are_an_empty_body(coding: str) -> None:
    assert inflate(coding, []) == b""


@pytest.mark.parametrize(
    ("coding", "raw"),
    [
        ("gzip", TEXT),
        ("gzip", gzip.compress(TEXT)[:-8] + bytes(4) + gzip.compress(TEXT)[-4:]),  # checksum
        ("gzip", gzip.compress(TEXT) + b"tail"),
        ("gzip", gzip.compress(TEXT) + bytes(2) + b"tail"),
        ("deflate", zlib.compress(TEXT)[:-4] + bytes(4)),  # checksum
        ("deflate", zlib.compress(TEXT) + b"tail"),
        ("deflate", b"\xff" * 40),
    ],
    ids=[
        "not gzip",
        "gzip checksum",
        "gzip tail",
        "gzip tail after padding",
        "zlib checksum",
        "zlib tail",
        "not deflate",
    ],
)
def test_damage_is_told(coding: str, raw: bytes) -> None:
    with pytest.raises(CorruptData):
        inflate(coding, [raw])


def test_what_was_flushed_comes_out_at_once() -> None:
    deflater = zlib.compressobj(wbits=31)
    inflater = Inflater("gzip")
    for n in range(5):
        event = b"data: %d\n\n" % n
        raw = deflater.compress(event) + deflater.flush(zlib.Z_SYNC_FLUSH)
        assert b"".join(inflater.feed(raw)) == event


def test_pieces_of_a_bomb_are_bounded_and_none_is_empty() -> None:
    size = 20 * PIECE_BYTES_MAX + 17
    inflater = Inflater("gzip")
    total = 0
    for piece in inflater.feed(gzip.compress(bytes(size))):
        assert 0 < len(piece) <= PIECE_BYTES_MAX
        total += len(piece)
    inflater.finish()
    assert total == size


@pytest.mark.parametrize("size", [PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1])
def test_output_of_just_one_piece_is_complete(size: int) -> None:
    assert inflate("gzip", [gzip.compress(bytes(size))]) == bytes(size)


def test_a_full_piece_holds_nothing_back() -> None:
    raw = zlib.compress(bytes(8 * PIECE_BYTES_MAX))
    for cut in range(250, 900):  # from about one piece of output to about three
        expected = len(zlib.decompressobj().decompress(raw[:cut]))
        assert sum(map(len, Inflater("deflate").feed(raw[:cut]))) == expected, cut


@settings(max_examples=50, deadline=None)
@given(
    data=st.binary(max_size=3 * WINDOW_BYTES),
    level=st.integers(0, 9),
    coding=st.sampled_from(["gzip", "deflate"]),
    cuts=st.lists(st.integers(0, 3 * WINDOW_BYTES), max_size=6),
)
def test_any_data_cut_anyhow_comes_back(
    data: bytes, level: int, coding: str, cuts: list[int]
) -> None:
    raw = gzip.compress(data, level) if coding == "gzip" else zlib.compress(data, level)
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    assert inflate(coding, [raw[a:b] for a, b in itertools.pairwise(edges)]) == data


@pytest.mark.parametrize("coding", [None, "", "identity", " Identity ", "identity, identity"])
def test_a_request_body_without_coding_is_returned_as_it_is(coding: str | None) -> None:
    assert decode_request_body(TEXT, coding, len(TEXT)) is TEXT


@every_form
def test_a_request_body_is_decoded(coding: str, raw: bytes) -> None:
    assert decode_request_body(raw, coding.upper(), len(TEXT)) == TEXT


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "deflate, gzip", "compress"])
def test_a_request_coding_that_cannot_be_read_is_a_415(coding: str) -> None:
    with pytest.raises(UnsupportedCoding) as caught:
        decode_request_body(TEXT, coding, 1 << 20)
    assert caught.value.status == 415
    assert coding in caught.value.message


def test_a_request_body_over_the_limit_is_refused_before_and_after_decoding() -> None:
    limit = len(TEXT) - 1
    for raw, coding in [(TEXT, None), (gzip.compress(TEXT), "gzip")]:
        with pytest.raises(TooLarge):
            decode_request_body(raw, coding, limit)


def test_a_request_bomb_is_refused_without_being_unpacked() -> None:
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    inflater = Inflater("gzip")
    assert len(bomb) < 100_000
    with pytest.raises(TooLarge):
        decode_request_body(bomb, "gzip", 1024 * 1024)
    # The first piece alone is over a limit of its size, so nothing beyond it is made.
    assert len(next(iter(inflater.feed(bomb)))) == PIECE_BYTES_MAX


def test_a_request_of_nothing_but_empty_members_is_refused() -> None:
    with pytest.raises(BadRequest, match="members"):
        decode_request_body(gzip.compress(b"") * (REQUEST_MEMBERS_MAX + 1), "gzip", 1 << 20)


def test_a_damaged_or_cut_request_body_is_a_400() -> None:
    for raw in (TEXT, gzip.compress(TEXT)[:-1]):
        with pytest.raises(BadRequest):
            decode_request_body(raw, "gzip", 1 << 20)
