"""Content codings: gzip and deflate, decoded as the bytes arrive. Pure, incremental, bounded.

`client.py` decodes answers with `Inflater`; `decode_request_body` is for bodies that clients send.
Not a codec for anything else: br and zstd are not in the standard library before Python 3.14, so
upstream is never offered them.

Invariant: compressed data that stops early or is damaged never looks like a clean end, and no call
makes more than `PIECE_BYTES_MAX` of output at a time, whatever the input claims to be.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from agentstate.ground.errors import BadRequest, TooLarge, UnsupportedCoding, shorten

CODINGS = frozenset(("gzip", "x-gzip", "deflate"))  # RFC 9110 section 8.4.1

PIECE_BYTES_MAX = 256 * 1024  # one yield; the largest write asyncio does in one go
# zlib hands back what it did not use as a copy, so input goes in by small windows: a bomb of a
# thousand to one, or a run of empty gzip members, would else copy the whole rest again and again.
WINDOW_BYTES = 16 * 1024
# Of a request body. bgzip starts a member every 64 KiB, so this covers 64 MiB of honest data, while
# empty members of 20 bytes each (no output, so no other limit stops them) end here.
REQUEST_MEMBERS_MAX = 1024

_GZIP = 16 + zlib.MAX_WBITS
_ZLIB = zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS


class CorruptData(Exception):
    """The compressed data is damaged."""


class TruncatedData(Exception):
    """The compressed data stops before its end."""


class Inflater:
    """Decodes one body. Feed it pieces cut anywhere, then `finish`; nothing is held back.

    A gzip body may have several members (RFC 1952 section 2.2) and zero bytes after them. A body
    of no bytes at all is an empty body, not a cut one: servers label empty answers so.
    """

    def __init__(self, coding: str) -> None:
        assert coding in CODINGS, coding
        self.members = 0  # begun so far
        self._is_gzip = coding != "deflate"
        self._stream: zlib._Decompress | None = None  # None = between members, or before the first
        self._first = b""  # deflate: the first byte, while the second one is not there yet

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` decodes to, in pieces of at most `PIECE_BYTES_MAX`, none empty.

        Raises:
            CorruptData: after the pieces that could still be decoded.
        """
        for start in range(0, len(data), WINDOW_BYTES):
            window = data[start : start + WINDOW_BYTES]
            while window:
                if self._stream is None:
                    window = self._begin(window)
                    continue
                stream = self._stream
                try:
                    piece = stream.decompress(window, PIECE_BYTES_MAX)
                except zlib.error as error:
                    raise CorruptData(str(error)) from error
                if piece:
                    yield piece
                window = stream.unconsumed_tail
                # A full piece may leave output inside zlib even when it has taken all input.
                while len(piece) == PIECE_BYTES_MAX and not window and not stream.eof:
                    piece = stream.decompress(b"", PIECE_BYTES_MAX)
                    if piece:
                        yield piece
                if stream.eof:
                    window = stream.unused_data
                    self._stream = None

    def finish(self) -> None:
        """Say that no more comes.

        Raises:
            TruncatedData: the data is not at an end of its own.
        """
        if self._stream is not None or self._first:
            raise TruncatedData

    def _begin(self, window: bytes) -> bytes:
        """Open the stream that begins with `window`; return what is left to feed."""
        if self._is_gzip:
            if self.members:
                window = window.lstrip(b"\0")  # padding to a block size, as gzip itself allows
            if window:
                self._open(_GZIP)
            return window
        if self.members:
            raise CorruptData("data after the end of the deflate stream")
        window = self._first + window
        if len(window) < 2:
            self._first = window
            return b""
        self._first = b""
        self._open(_ZLIB if _has_zlib_header(window) else _RAW)
        return window

    def _open(self, window_bits: int) -> None:
        self._stream = zlib.decompressobj(window_bits)
        self.members += 1


def decode_request_body(raw: bytes, coding: str | None, bytes_max: int) -> bytes:
    """Undo the Content-Encoding of a request body. Over about 256 KiB: call it in a thread.

    Raises:
        UnsupportedCoding: another coding than gzip or deflate, or more than one.
        TooLarge: over `bytes_max`, before or after decoding.
        BadRequest: the compressed data is damaged or stops early.
    """
    if len(raw) > bytes_max:
        raise _too_large(bytes_max)
    names = [name for part in (coding or "").split(",") if (name := part.strip().lower())]
    names = [name for name in names if name != "identity"]
    if not names:
        return raw
    if len(names) > 1 or names[0] not in CODINGS:
        raise UnsupportedCoding(
            f"The body has Content-Encoding {shorten(', '.join(names))!r}, which cannot be read "
            "here. Send it as gzip or deflate, once, or without a Content-Encoding.",
            param="content-encoding",
        )
    inflater = Inflater(names[0])
    pieces: list[bytes] = []
    size = 0
    try:
        # By windows, so that the members are counted while a body of nothing but members is read.
        for start in range(0, len(raw), WINDOW_BYTES):
            for piece in inflater.feed(raw[start : start + WINDOW_BYTES]):
                size += len(piece)
                if size > bytes_max:
                    raise _too_large(bytes_max)
                pieces.append(piece)
            if inflater.members > REQUEST_MEMBERS_MAX:
                raise BadRequest(
                    f"The {names[0]} body has more than {REQUEST_MEMBERS_MAX} members. "
                    "Compress it as one."
                )
        inflater.finish()
    except CorruptData as error:
        raise BadRequest(f"The {names[0]} body is damaged: {error}.") from error
    except TruncatedData as error:
        raise BadRequest(f"The {names[0]} body stops before its end.") from error
    return b"".join(pieces)


def _has_zlib_header(data: bytes) -> bool:
    """RFC 1950 section 2.2. "deflate" means zlib, but some senders leave the wrapper out.

    Raw deflate that begins like this would be a stored block with bits set in its padding.
    """
    return data[0] & 0x0F == 8 and data[0] >> 4 <= 7 and (data[0] << 8 | data[1]) % 31 == 0


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(
        f"The body is over the limit of {bytes_max} bytes (unpacked). Send less, or raise "
        "server.body_max_mb."
    )
