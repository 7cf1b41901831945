"""Request heads and chunked bodies, read so that no two careful readers disagree. Pure.

h11 forgives much that another parser between us and the client may read in another way, which is
how requests are smuggled (RFC 9112 section 11.2). So each head is checked as bytes, then parsed by
h11; a chunked body is checked by `ChunkGuard` before h11 decodes it. Used by `server.py`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import h11

from agentstate.ground.errors import (
    BadRequest,
    TooLarge,
    shorten,
)
from agentstate.wire.message import Pair

KIB = 1024
HEADERS_MAX = 256  # Apache allows 100, Node 2,000; each costs h11 about 4 us
CHUNK_LINE_BYTES_MAX = 256  # a size and its extensions
CHUNK_EXTENSION_BYTES_MAX = 4 * KIB  # of one body; nobody is known to use any
TRAILER_BYTES_MAX = 8 * KIB  # thrown away anyway


class Head(NamedTuple):
    """A request head that two careful readers cannot read in two ways."""

    method: str
    target: bytes  # in origin form, or `*`
    pairs: tuple[Pair, ...]  # as received; Host is the target's where the target named one
    length: int | None  # of the body; None = chunked
    is_http10: bool
    keeps_alive: bool
    wants_continue: bool
    parser: h11.Connection  # has read the head; decodes the body if it is chunked


# RFC 9110 sections 5.6.2 and 5.5; besides the tab no control character, as in Node and Go.
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_FIELD = _TOKEN + rb":[\t -~\x80-\xff]*\r\n"
_REQUEST_LINE = rb"(" + _TOKEN + rb") ([!-\"$-~]+) HTTP/([0-9])\.([0-9])\r\n"
_REQUEST_LINE_ONLY = re.compile(_REQUEST_LINE)
_HEAD = re.compile(_REQUEST_LINE + rb"(?:" + _FIELD + rb")*\r\n")
_DECISIVE = re.compile(
    rb"\r\n(connection|content-length|expect|host|transfer-encoding):([^\r]*)", re.IGNORECASE
)
_FAULTY_BYTE = re.compile(rb"[^\t\r\n -~\x80-\xff]|(?<!\r)\n|\r(?!\n|\Z)")
_LENGTH = re.compile(rb"[0-9]{1,18}")  # below 2**63, whoever reads it
# RFC 3986 section 3.2.2, with a port and without user information. Never empty (RFC 9110 section
# 4.2.1), and no comma: a recipient that joins two Host lines makes one of them.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[-0-9A-Za-z._~%!$&'()*+;=]+)(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE)


def read_head(raw: bytes) -> Head:
    """Read a request head, blank line included. Stricter than h11 and RFC 9112 require.

    Refused besides what h11 refuses: line ends other than CRLF, folded lines, control characters,
    a repeated or doubtful Content-Length, Content-Length beside Transfer-Encoding, any coding but
    `chunked`, an odd Host, a target an origin server has no meaning for, TRACE.

    Source: RFC 9112 sections 2.2, 3, 5, 6; RFC 9110 sections 7.2, 7.8, 9.3.8 and 10.1.1.

    Raises:
        ClientError: with the status to answer: 400, 417, 431, 501 or 505.
    """
    match = _HEAD.fullmatch(raw)
    if match is None:
        raise _explain(raw)
    method, target, major, minor = match.groups()
    if major != b"1":
        raise _refusal(505, "This server speaks HTTP/1.1 and HTTP/1.0 only.")
    if raw.count(b"\n") - 2 > HEADERS_MAX:
        raise _refusal(431, f"The request has more than {HEADERS_MAX} header lines.")
    fields: dict[bytes, list[bytes]] = {}
    for name, value in _DECISIVE.findall(raw):
        fields.setdefault(name.lower(), []).append(value.strip(b" \t"))
    is_http10 = minor == b"0"
    host = _read_host(fields.get(b"host", []), is_http10)
    length = _read_length(fields, is_http10)
    target, authority = _reduce_target(method, target)

    parser = h11.Connection(h11.SERVER)
    parser.receive_data(raw)
    try:
        event = parser.next_event()
    except h11.RemoteProtocolError as error:
        raise _refusal(error.error_status_hint, "The request head is malformed.") from error
    assert type(event) is h11.Request
    pairs = event.headers.raw_items()
    if is_http10:  # "a server MUST ignore an Upgrade header field" of it: RFC 9110 section 7.8
        pairs = [pair for pair in pairs if pair[0].lower() != b"upgrade"]
    if authority is not None and authority != host:  # RFC 9112 section 3.2.2
        pairs = [pair for pair in pairs if pair[0].lower() != b"host"]
        pairs.insert(0, (b"Host", authority))
    tokens = b",".join(fields.get(b"connection", [])).lower().split(b",")
    return Head(
        method=method.decode("ascii"),
        target=target,
        pairs=tuple(pairs),
        length=length,
        is_http10=is_http10,
        keeps_alive=not is_http10 and b"close" not in [token.strip(b" \t") for token in tokens],
        wants_continue=not is_http10 and _read_expect(fields.get(b"expect", [])),
        parser=parser,
    )


def check_partial_head(data: bytes | bytearray, checked: int) -> None:
    """Refuse as early as possible what cannot become a head; `checked` bytes passed before.

    Without it a client that ends its lines in LF would wait for the time limit.

    Raises:
        ClientError: with status 400.
    """
    # One byte back: a CR that ended the part before must now be followed by LF.
    if _FAULTY_BYTE.search(data, max(0, checked - 1)) is not None:
        raise _explain(bytes(data))
    line_end = data.find(b"\r\n") + 2
    if line_end > max(checked, 1) and _REQUEST_LINE_ONLY.match(data) is None:
        raise _explain(bytes(data))


def _read_host(hosts: list[bytes], is_http10: bool) -> bytes | None:
    if len(hosts) > 1:
        raise BadRequest("The request has more than one Host header.", param="host")
    if not hosts:
        if not is_http10:
            raise BadRequest("The request has no Host header.", param="host")
        return None
    if _HOST.fullmatch(hosts[0]) is None:
        raise BadRequest(f"The Host header is no host name: {_shown(hosts[0])}", param="host")
    return hosts[0]


def _read_length(fields: dict[bytes, list[bytes]], is_http10: bool) -> int | None:
    """Return the body's length; None = chunked."""
    lengths = fields.get(b"content-length", [])
    codings = fields.get(b"transfer-encoding", [])
    if codings:
        if lengths:
            raise BadRequest(
                "The request has both Content-Length and Transfer-Encoding: where its body ends "
                "would be a matter of opinion.",
                param="transfer-encoding",
            )
        if is_http10:
            raise BadRequest("HTTP/1.0 has no Transfer-Encoding.", param="transfer-encoding")
        _check_coding(codings)
        return None
    if not lengths:
        return 0
    if len(lengths) > 1:
        raise BadRequest("The request has Content-Length twice.", param="content-length")
    if _LENGTH.fullmatch(lengths[0]) is None:
        raise BadRequest(
            f"Content-Length must be 1 to 18 digits, not {_shown(lengths[0])}",
            param="content-length",
        )
    return int(lengths[0])


def _check_coding(lines: list[bytes]) -> None:
    if len(lines) == 1 and lines[0].lower() == b"chunked":
        return
    codings = [coding.strip(b" \t").lower() for line in lines for coding in line.split(b",")]
    is_framed = b"chunked" not in codings[:-1]  # once at most, and last
    if len(lines) > 1 or not is_framed or b"" in codings:
        raise BadRequest(
            f"Transfer-Encoding must be chunked, not {_shown(b', '.join(lines))}",
            param="transfer-encoding",
        )
    raise _refusal(501, f"No transfer coding but chunked is known here: {_shown(lines[0])}")


def _read_expect(lines: list[bytes]) -> bool:
    if lines and (len(lines) > 1 or lines[0].lower() != b"100-continue"):
        raise _refusal(417, f"The only expectation met here is 100-continue: {_shown(lines[0])}")
    return bool(lines)


def _reduce_target(method: bytes, target: bytes) -> tuple[bytes, bytes | None]:
    """Return the target in origin form, and the authority it named; None = it named none."""
    if method == b"CONNECT":
        raise BadRequest("CONNECT is for forward proxies; ask for a path.")
    if method == b"TRACE":  # what it echoes are headers, and they hold keys
        raise _refusal(501, "TRACE is not implemented here; ask for what you want to know.")
    if target.startswith(b"/"):
        return target, None
    if target == b"*" and method == b"OPTIONS":
        return target, None
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise BadRequest(f"The request target must be a path: {_shown(target.partition(b'?')[0])}")
    authority, rest = match.groups()
    if _HOST.fullmatch(authority) is None:
        raise BadRequest(f"The request target names no host: {_shown(authority)}")
    return (rest if rest.startswith(b"/") else b"/" + rest), authority


def _explain(raw: bytes) -> BadRequest:
    """Say what is wrong with a head, whole or not, that does not have the form of one."""
    faulty = _FAULTY_BYTE.search(raw)
    if faulty is not None and faulty.group() in (b"\n", b"\r"):
        return BadRequest("Lines of a request head end in CR LF; a bare CR or LF was found.")
    if faulty is not None:
        return BadRequest(
            f"A control character (byte {faulty.group()[0]}) is in the request head.",
            hint="If this was a TLS client: the server speaks plain HTTP here.",
        )
    line, _, rest = raw.partition(b"\r\n")
    if _REQUEST_LINE_ONLY.fullmatch(line + b"\r\n") is None:
        return BadRequest(
            "The first line must be METHOD SP TARGET SP HTTP/1.1, the target without spaces, "
            f"fragment or non-ASCII characters, not {_shown(line.partition(b'?')[0])}"
        )
    for number, line in enumerate(rest.split(b"\r\n"), 1):
        if line and re.fullmatch(_FIELD, line + b"\r\n") is None:
            if line[:1] in b" \t":
                return BadRequest(f"Header line {number} begins with white space.")
            name = line.partition(b":")[0]  # never the value: it may be a key
            return BadRequest(f"Header line {number} is not `Name: value`: {_shown(name)}")
    raise AssertionError("a head without a fault was refused")


def oversized(head: bytes | bytearray, bytes_max: int) -> TooLarge:
    """Return the refusal of a head over the limit: 414 if its first line does not fit."""
    status, part = (431, "head") if b"\r\n" in head[:bytes_max] else (414, "target")
    error = TooLarge(
        f"The request {part} is over the limit of {bytes_max} bytes.",
        hint="Send less, or raise the limit: server.header_max_kb.",
    )
    error.status = status
    return error


def _refusal(status: int, message: str) -> BadRequest:
    error = BadRequest(message)
    error.status = status
    return error


def _shown(value: bytes) -> str:
    return shorten(value.decode("latin-1"))


_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(;[\t ]*" + _TOKEN + rb"[\t -~\x80-\xff]*)?\r\n")
_TRAILER_LINE = re.compile(_FIELD)


class ChunkGuard:
    """Checks the framing of one chunked body before h11 decodes it, and finds its end. Pure.

    h11 lets pass a size with white space after it, extensions of any length and content, and
    trailers that end in a bare LF. The line ends after a chunk's data are left to h11.

    Source: RFC 9112 section 7.1.
    """

    def __init__(self) -> None:
        self._line = b""  # a size or trailer line in progress
        self._skip_bytes = 0  # of the present chunk's data and its line end
        self._is_in_trailer = False
        self._is_done = False
        self._extension_bytes = 0
        self._trailer_bytes = 0

    def admit(self, data: bytes) -> int:
        """Return how many bytes of `data` belong to the body.

        Raises:
            BadRequest: the framing is wrong; with status 431 if the trailer is too long.
        """
        at = 0
        while at < len(data) and not self._is_done:
            if self._skip_bytes:
                step = min(self._skip_bytes, len(data) - at)
                self._skip_bytes -= step
                at += step
                continue
            end = data.find(b"\n", at) + 1
            piece = data[at : end or len(data)]
            at += len(piece)
            self._line += piece
            if self._is_in_trailer:
                self._take_trailer(is_whole=end > 0)
            else:
                self._take_size(is_whole=end > 0)
        return at

    def _take_size(self, *, is_whole: bool) -> None:
        if len(self._line) > CHUNK_LINE_BYTES_MAX:
            raise BadRequest(f"A chunk's size line has over {CHUNK_LINE_BYTES_MAX} bytes.")
        if not is_whole:
            return
        match = _CHUNK_SIZE.fullmatch(self._line)
        if match is None:
            raise BadRequest(
                "A chunk must begin with its size, 1 to 16 hexadecimal digits, and CR LF; found "
                f"{_shown(self._line)}"
            )
        digits, extension = match.groups(default=b"")
        self._extension_bytes += len(extension)
        if self._extension_bytes > CHUNK_EXTENSION_BYTES_MAX:
            raise BadRequest(f"Over {CHUNK_EXTENSION_BYTES_MAX} bytes of chunk extensions.")
        size = int(digits, 16)
        self._skip_bytes = size + 2 if size else 0
        self._is_in_trailer = size == 0
        self._line = b""

    def _take_trailer(self, *, is_whole: bool) -> None:
        if self._trailer_bytes + len(self._line) > TRAILER_BYTES_MAX:
            raise _refusal(431, f"The body's trailer is over {TRAILER_BYTES_MAX} bytes.")
        if not is_whole:
            return
        self._is_done = self._line == b"\r\n"
        if not self._is_done and _TRAILER_LINE.fullmatch(self._line) is None:
            raise BadRequest("A trailer line of the body is not `Name: value` and CR LF.")
        self._trailer_bytes += len(self._line)
        self._line = b""
