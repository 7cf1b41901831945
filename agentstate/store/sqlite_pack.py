"""How content becomes columns and comes back: packing, quotes, names of prefixes. Pure functions.

A content as long as the `size` beside it is stored plainly, a shorter one is a zlib stream (with
its checksum, so that a damaged page cannot pass for an answer), packed with the dictionary of
`sqlite_dictionary.py`. The parts of a request that came after an answer are packed with that answer
as well: the first of them mostly repeats it. Text that stands in an answer is not stored a second
time but quoted from it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

from agentstate.ground.canonical import JSON, digest, encode
from agentstate.ground.records import Part, RecordedAnswer, RequestRecord
from agentstate.store.sqlite_dictionary import packing_dictionary

# Below this a stream saves less than its time is worth: half of 100 bytes for 15 µs.
PACK_BYTES_MIN = 128
# zlib's default of 6 takes twice the time for 0 to 4 % less. Measured in DESIGN.md.
LEVEL = 3
# A window for the dictionary and a message. zlib's default of 32 KiB finds little more and needs
# twice the memory, which has to be cleared or copied for each message.
WINDOW_BITS, MEMORY_LEVEL = 14, 7
# zlib looks back no farther than this.
DICTIONARY_BYTES_MAX = 32 * 1024
# Digests of parts and prefixes are cut to this where they are stored: 128 bits collide once in 2^64
# tries. They decide what a request looks like when it is shown, never what is replayed.
NAME_BYTES = 16
# A shorter text is stored: a quote takes about six bytes and the time to look for it.
QUOTE_CHARS_MIN = 16

BYTES_UNLIMITED = 2**62  # more than SQLite can hold

Packed = tuple[int, bytes]  # (size, content)
Quote = tuple[int, int]  # (offset, length) of a JSON string's inside within an answer
Headers = tuple[tuple[bytes, bytes], ...]


class ContentTooLarge(Exception):
    """There is more to unpack than the reader was ready to."""


def pack(raw: bytes) -> Packed:
    """Return (size, content) to store: the shorter of plain and zlib."""
    size = len(raw)
    if size < PACK_BYTES_MIN:
        return size, raw
    # Copying a packer that knows the dictionary costs half of teaching it to a new one.
    packer = _taught_packer().copy()
    packed = packer.compress(raw) + packer.flush()
    return (size, packed) if len(packed) < size else (size, raw)


def pack_after(raw: bytes, answer: bytes) -> Packed:
    """As `pack`, for what came after `answer` (an `answer_raw`) and repeats some of it."""
    size = len(raw)
    packer = zlib.compressobj(
        LEVEL, zlib.DEFLATED, zlib.MAX_WBITS, 8, zlib.Z_DEFAULT_STRATEGY, _dictionary_with(answer)
    )
    packed = packer.compress(raw) + packer.flush()
    return (size, packed) if len(packed) < size else (size, raw)


def unpack(size: int, content: bytes) -> bytes:
    """Return what `pack` was given.

    Raises:
        zlib.error: the content is damaged.
    """
    return _unpack(size, content, packing_dictionary())


def unpack_after(size: int, content: bytes, answer: bytes) -> bytes:
    """Return what `pack_after` was given; raises as `unpack`."""
    return _unpack(size, content, _dictionary_with(answer))


def _unpack(size: int, content: bytes, dictionary: bytes) -> bytes:
    if len(content) == size:
        return content
    unpacker = zlib.decompressobj(zdict=dictionary)
    raw = unpacker.decompress(content, size)
    if not unpacker.eof:  # the checksum at the end may not have been reached yet
        raw += unpacker.flush()
    if len(raw) != size or not unpacker.eof:
        raise zlib.error(f"{size} bytes were stored and {len(raw)} came back")
    return raw


@cache
def _taught_packer() -> zlib._Compress:
    """Return a packer that has seen the dictionary; only its copies are used."""
    return zlib.compressobj(
        LEVEL,
        zlib.DEFLATED,
        WINDOW_BITS,
        MEMORY_LEVEL,
        zlib.Z_DEFAULT_STRATEGY,
        packing_dictionary(),
    )


def _dictionary_with(answer: bytes) -> bytes:
    return (packing_dictionary() + answer)[-DICTIONARY_BYTES_MAX:]


def pack_text(text: str) -> Packed:
    """As `pack`, for text that is to come back exactly, halves of surrogate pairs included."""
    return pack(text.encode("utf-8", "surrogatepass"))


def unpack_text(size: int, content: bytes) -> str:
    """Return what `pack_text` was given; raises as `unpack`."""
    return unpack(size, content).decode("utf-8", "surrogatepass")


def answer_raw(answer: RecordedAnswer) -> bytes:
    """Return headers and content as one: half of a short answer is its headers.

    The headers are a line of JSON, since a value may hold any byte, as Latin-1, where any byte is a
    character.
    """
    pairs: JSON = [
        [name.decode("latin-1"), value.decode("latin-1")] for name, value in answer.headers
    ]
    return encode(pairs) + b"\n" + answer.content


def parse_answer(raw: bytes) -> tuple[Headers, bytes]:
    """Return the headers and content of an `answer_raw`."""
    line, _, content = raw.partition(b"\n")
    headers = tuple(
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in json.loads(line)
    )
    return headers, content


def find_quote(raw: bytes, text: str) -> Quote | None:
    """Find `text` as part of a JSON string in an answer; None = not there, or not worth it."""
    if len(text) < QUOTE_CHARS_MIN:
        return None
    # Vendors differ in whether they escape what is not ASCII.
    for is_ascii in (True,) if text.isascii() else (False, True):
        inside = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        # Lone surrogates can only stand escaped in an answer that is UTF-8.
        with suppress(UnicodeEncodeError):
            quoted = inside.encode()
            offset = raw.find(quoted)
            if offset >= 0:
                return offset, len(quoted)
    return None


def read_quote(raw: bytes, quote: Quote) -> str:
    """Return the text `find_quote` found."""
    offset, length = quote
    text: str = json.loads(b'"' + raw[offset : offset + length] + b'"')
    return text


def weigh(value: JSON, enough: int) -> int:
    """Estimate how long `value` is as JSON, cheaply; stops counting at `enough`."""
    total = 0
    open_values = [value]
    while open_values and total < enough:
        one = open_values.pop()
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, dict):
            total += sum(map(len, one))
            open_values += one.values()
        elif isinstance(one, list):
            open_values += one
        else:
            total += 4
    return total


def name_prefixes(chain: Iterable[Part]) -> list[bytes]:
    """Return the name of each prefix of a request, shortest first.

    A prefix is named by its last part and the prefix before it. Both digests have a fixed length,
    so nothing needs to be said about where one ends.
    """
    names: list[bytes] = []
    prefix = b""
    for part in chain:
        prefix = hashlib.sha256(prefix + part.digest).digest()
        names.append(prefix[:NAME_BYTES])
    return names


def name_envelope(request: RequestRecord, envelope: bytes) -> bytes:
    """Name all of a request but its chain; `envelope` is its encoded form."""
    shared = [piece for name, part in request.shared for piece in (name.encode(), part.digest)]
    return digest(request.list_key.encode(), envelope, *shared)[:NAME_BYTES]


def name_part(part: Part) -> bytes:
    """Name a part by what it says."""
    return part.digest[:NAME_BYTES]
