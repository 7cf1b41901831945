"""What the server refuses, and that it still takes what is right: RFC 9112 by table.

Heads and chunked bodies as pure functions; `test_server.py` sends the same tables over sockets.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.ground.errors import BadRequest, ClientError
from agentstate.wire.strict import (
    CHUNK_EXTENSION_BYTES_MAX,
    CHUNK_LINE_BYTES_MAX,
    HEADERS_MAX,
    TRAILER_BYTES_MAX,
    ChunkGuard,
    Head,
    check_partial_head,
    read_head,
)


def get(*lines: bytes, line: bytes = b"GET /x HTTP/1.1") -> bytes:
    """Return a head of these lines, without a Host of its own."""
    return b"\r\n".join((line, *lines)) + b"\r\n\r\n"


HOST = b"Host: h"

# name, head, status
REFUSED_HEADS = [
    # RFC 9112 section 2.2: message parsing
    ("bare LF after the request line", b"GET / HTTP/1.1\nHost: h\r\n\r\n", 400),
    ("bare LF after a header", b"GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n", 400),
    ("bare LF everywhere", b"GET / HTTP/1.1\nHost: h\n\n", 400),
    ("bare CR as line end", b"GET / HTTP/1.1\r\nHost: h\rA: b\r\n\r\n", 400),
    ("bare CR in the request line", b"GET /\r HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("bare CR in a value", get(HOST, b"A: b\rc"), 400),
    ("LF CR", b"GET / HTTP/1.1\n\rHost: h\n\r\n\r", 400),
    ("white space before the first header", get(b" A: b", HOST), 400),
    ("white space line only", get(HOST, b" "), 400),
    ("leading space in the request line", b" GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    # section 3: request line
    ("HTTP/0.9", b"GET /\r\n\r\n", 400),
    ("no target", b"GET HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("two spaces", b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("two spaces before the version", b"GET /  HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("tab for space", b"GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("space after the version", b"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400),
    ("space in the target", b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("empty method", b" / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("method no token", b"GE(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("NUL in the method", b"G\0ET / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("version in lower case", b"GET / http/1.1\r\nHost: h\r\n\r\n", 400),
    ("version without minor", b"GET / HTTP/1\r\nHost: h\r\n\r\n", 400),
    ("version with two digits", b"GET / HTTP/1.10\r\nHost: h\r\n\r\n", 400),
    ("version negative", b"GET / HTTP/-1.1\r\nHost: h\r\n\r\n", 400),
    ("version of another protocol", b"GET / HTCPCP/1.1\r\nHost: h\r\n\r\n", 400),
    ("version 0.9", b"GET / HTTP/0.9\r\nHost: h\r\n\r\n", 505),
    ("version 2.0", b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
    ("version 9.9", b"GET / HTTP/9.9\r\nHost: h\r\n\r\n", 505),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\n", 505),
    # section 3.2: request target
    ("target without slash", get(HOST, line=b"GET x HTTP/1.1"), 400),
    ("fragment", get(HOST, line=b"GET /x#y HTTP/1.1"), 400),
    ("control character in the target", get(HOST, line=b"GET /\x01 HTTP/1.1"), 400),
    ("NUL in the target", get(HOST, line=b"GET /\0 HTTP/1.1"), 400),
    ("DEL in the target", get(HOST, line=b"GET /\x7f HTTP/1.1"), 400),
    ("non-ASCII target", get(HOST, line="GET /ü HTTP/1.1".encode()), 400),
    ("asterisk without OPTIONS", get(HOST, line=b"GET * HTTP/1.1"), 400),
    ("authority form", get(HOST, line=b"GET h:80 HTTP/1.1"), 400),
    ("CONNECT", get(HOST, line=b"CONNECT h:443 HTTP/1.1"), 400),
    ("CONNECT with a path", get(HOST, line=b"CONNECT / HTTP/1.1"), 400),
    ("TRACE", get(HOST, line=b"TRACE /x HTTP/1.1"), 501),
    ("absolute form of another scheme", get(HOST, line=b"GET ftp://h/x HTTP/1.1"), 400),
    ("absolute form without host", get(HOST, line=b"GET http:///x HTTP/1.1"), 400),
    ("absolute form with a port only", get(HOST, line=b"GET http://:80/x HTTP/1.1"), 400),
    ("absolute form with user", get(HOST, line=b"GET http://u:p@h/x HTTP/1.1"), 400),
    ("absolute form with fragment", get(HOST, line=b"GET http://h/x#y HTTP/1.1"), 400),
    ("absolute form without Host header", get(line=b"GET http://h/x HTTP/1.1"), 400),
    # RFC 9110 section 7.2: Host
    ("no Host", get(b"A: b"), 400),
    ("no header at all", get(), 400),
    ("no Host in 1.2", get(line=b"GET / HTTP/1.2"), 400),
    ("two equal Hosts", get(HOST, HOST), 400),
    ("two Hosts in other case", get(HOST, b"hOSt: h2"), 400),
    ("two Hosts in 1.0", get(HOST, b"host: i", line=b"GET / HTTP/1.0"), 400),
    ("Host empty", get(b"Host:"), 400),
    ("Host blank", get(b"Host: \t "), 400),
    ("Host a port only", get(b"Host: :80"), 400),
    ("Host a list", get(b"Host: a,b"), 400),
    ("Host with a space", get(b"Host: a b"), 400),
    ("Host with a path", get(b"Host: a/b"), 400),
    ("Host with a user", get(b"Host: u@a"), 400),
    ("Host with a scheme", get(b"Host: http://a"), 400),
    ("Host with a bad port", get(b"Host: a:b"), 400),
    ("Host with two ports", get(b"Host: a:1:2"), 400),
    ("Host with an open bracket", get(b"Host: [::1"), 400),
    ("Host not ASCII", get("Host: ü".encode()), 400),
    # section 5: fields
    ("space before the colon", get(HOST, b"A : b"), 400),
    ("tab before the colon", get(HOST, b"A\t: b"), 400),
    ("space before the colon of Content-Length", get(HOST, b"Content-Length : 5"), 400),
    ("no colon", get(HOST, b"A b"), 400),
    ("empty name", get(HOST, b": b"), 400),
    ("name no token", get(HOST, b"A(b): c"), 400),
    ("name with NUL", get(HOST, b"A\0: c"), 400),
    ("name not ASCII", get(HOST, "Ä: c".encode()), 400),
    ("NUL in a value", get(HOST, b"A: b\0c"), 400),
    ("control character in a value", get(HOST, b"A: b\x01c"), 400),
    ("vertical tab in a value", get(HOST, b"A: b\x0bc"), 400),
    ("form feed in a value", get(HOST, b"A: \x0c"), 400),
    ("escape in a value", get(HOST, b"A: \x1b[0m"), 400),
    ("DEL in a value", get(HOST, b"A: b\x7f"), 400),
    ("folded with a space", get(HOST, b"A: b", b" c"), 400),
    ("folded with a tab", get(HOST, b"A: b", b"\tc"), 400),
    ("folded Transfer-Encoding", get(HOST, b"Transfer-Encoding:", b" chunked"), 400),
    ("too many headers", get(HOST, *[b"A: b"] * HEADERS_MAX), 431),
    # section 6: Content-Length and Transfer-Encoding
    ("length with plus", get(HOST, b"Content-Length: +5"), 400),
    ("length negative", get(HOST, b"Content-Length: -5"), 400),
    ("length hexadecimal", get(HOST, b"Content-Length: 0x5"), 400),
    ("length octal", get(HOST, b"Content-Length: 0o5"), 400),
    ("length with underscore", get(HOST, b"Content-Length: 1_0"), 400),
    ("length a fraction", get(HOST, b"Content-Length: 5.0"), 400),
    ("length exponential", get(HOST, b"Content-Length: 1e1"), 400),
    ("length with inner space", get(HOST, b"Content-Length: 5 0"), 400),
    ("length empty", get(HOST, b"Content-Length:"), 400),
    ("length blank", get(HOST, b"Content-Length:  "), 400),
    ("length a word", get(HOST, b"Content-Length: five"), 400),
    ("length in other digits", get(HOST, "Content-Length: \u0665".encode()), 400),
    ("length as equal list", get(HOST, b"Content-Length: 5,5"), 400),
    ("length as unequal list", get(HOST, b"Content-Length: 5, 6"), 400),
    ("length twice, equal", get(HOST, b"Content-Length: 5", b"Content-Length: 5"), 400),
    ("length twice, unequal", get(HOST, b"Content-Length: 5", b"content-length: 6"), 400),
    ("length overlong", get(HOST, b"Content-Length: " + b"9" * 19), 400),
    ("length and coding", get(HOST, b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400),
    ("coding and length", get(HOST, b"Transfer-Encoding: chunked", b"Content-Length: 5"), 400),
    ("length and odd coding", get(HOST, b"Content-Length: 5", b"Transfer-Encoding: x"), 400),
    ("coding unknown", get(HOST, b"Transfer-Encoding: gzip"), 501),
    ("coding identity", get(HOST, b"Transfer-Encoding: identity"), 501),
    ("coding like chunked", get(HOST, b"Transfer-Encoding: xchunked"), 501),
    ("coding quoted", get(HOST, b'Transfer-Encoding: "chunked"'), 501),
    ("coding with parameter", get(HOST, b"Transfer-Encoding: chunked;q=1"), 501),
    ("coding chunked in layers", get(HOST, b"Transfer-Encoding: gzip, chunked"), 501),
    ("coding chunked not last", get(HOST, b"Transfer-Encoding: chunked, gzip"), 400),
    ("coding chunked twice", get(HOST, b"Transfer-Encoding: chunked, chunked"), 400),
    ("coding list with hole", get(HOST, b"Transfer-Encoding: , chunked"), 400),
    ("coding empty", get(HOST, b"Transfer-Encoding:"), 400),
    ("coding in two lines", get(HOST, *[b"Transfer-Encoding: chunked"] * 2), 400),
    (
        "coding in 1.0",
        get(HOST, b"Transfer-Encoding: chunked", line=b"POST / HTTP/1.0"),
        400,
    ),
    # RFC 9110 section 10.1.1
    ("unknown expectation", get(HOST, b"Expect: 200-ok"), 417),
    ("two expectations", get(HOST, b"Expect: 100-continue", b"Expect: x"), 417),
    # not HTTP
    ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ("binary", bytes(range(1, 33)) + b"\r\n\r\n", 400),
    ("a letter", b"x\r\n\r\n", 400),
    ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", 400),
]


@dataclass(frozen=True)
class Taken:
    """What a right head must be read as."""

    raw: bytes
    target: bytes = b"/x"
    length: int | None = 0
    keeps_alive: bool = True
    wants_continue: bool = False
    host: bytes | None = b"h"


TAKEN_HEADS = {
    "plain": Taken(get(HOST)),
    "1.0 without Host": Taken(get(line=b"GET /x HTTP/1.0"), keeps_alive=False, host=None),
    "1.0 keep-alive is not kept": Taken(
        get(HOST, b"Connection: keep-alive", line=b"GET /x HTTP/1.0"), keeps_alive=False
    ),
    "1.2 is read as 1.1": Taken(get(HOST, line=b"GET /x HTTP/1.2")),
    "close": Taken(get(HOST, b"Connection: Close"), keeps_alive=False),
    "close in a list": Taken(get(HOST, b"Connection: x , close"), keeps_alive=False),
    "close in a second line": Taken(
        get(HOST, b"Connection: x", b"Connection: close"), keeps_alive=False
    ),
    "close only as a part": Taken(get(HOST, b"Connection: closed")),
    "own method": Taken(get(HOST, line=b"PURGE /x HTTP/1.1")),
    "query": Taken(get(HOST, line=b"GET /x?a=b&c=%20? HTTP/1.1"), target=b"/x?a=b&c=%20?"),
    "escapes are left": Taken(get(HOST, line=b"GET /a%2Fb HTTP/1.1"), target=b"/a%2Fb"),
    "two slashes": Taken(get(HOST, line=b"GET //x HTTP/1.1"), target=b"//x"),
    "braces": Taken(get(HOST, line=b"GET /{a|b} HTTP/1.1"), target=b"/{a|b}"),
    "OPTIONS *": Taken(get(HOST, line=b"OPTIONS * HTTP/1.1"), target=b"*"),
    "absolute form": Taken(get(HOST, line=b"GET http://i:8/x HTTP/1.1"), host=b"i:8"),
    "absolute form https": Taken(get(HOST, line=b"GET HTTPS://i/x HTTP/1.1"), host=b"i"),
    "absolute form without path": Taken(
        get(HOST, line=b"GET http://h HTTP/1.1"), target=b"/", host=b"h"
    ),
    "absolute form with query only": Taken(
        get(HOST, line=b"GET http://h?a HTTP/1.1"), target=b"/?a", host=b"h"
    ),
    "absolute form in 1.0": Taken(
        get(line=b"GET http://i/x HTTP/1.0"), keeps_alive=False, host=b"i"
    ),
    "Host with port": Taken(get(b"Host: localhost:8080"), host=b"localhost:8080"),
    "Host IPv6": Taken(get(b"Host: [::1]:8080"), host=b"[::1]:8080"),
    "Host in white space": Taken(get(b"hOST: \t h \t"), host=b"h"),
    "length": Taken(get(HOST, b"Content-Length: 5"), length=5),
    "length with zeros": Taken(get(HOST, b"Content-Length: 007"), length=7),
    "length in white space": Taken(get(HOST, b"content-LENGTH:\t 5 \t"), length=5),
    "length zero": Taken(get(HOST, b"Content-Length: 0"), length=0),
    "a name that only begins so": Taken(get(HOST, b"Content-Length-X: x", b"Host-X: y")),
    "a value that looks like it": Taken(get(HOST, b"A: Content-Length: 5")),
    "chunked": Taken(get(HOST, b"Transfer-Encoding: chunked"), length=None),
    "chunked in capitals": Taken(get(HOST, b"TRANSFER-ENCODING: Chunked "), length=None),
    "expectation": Taken(
        get(HOST, b"Content-Length: 5", b"Expect: 100-Continue"), length=5, wants_continue=True
    ),
    "expectation in 1.0 is ignored": Taken(
        get(HOST, b"Expect: x", line=b"GET /x HTTP/1.0"), keeps_alive=False
    ),
    "UTF-8 value": Taken(get(HOST, "A: 会议".encode())),
    "empty value": Taken(get(HOST, b"A:", b"B: ")),
    "tab in a value": Taken(get(HOST, b"A: b\tc")),
    "upgrade in 1.0 is ignored": Taken(
        get(HOST, b"Upgrade: websocket", line=b"GET /x HTTP/1.0"), keeps_alive=False
    ),
    "upgrade is a header like any": Taken(get(HOST, b"Connection: upgrade", b"Upgrade: websocket")),
    "most headers": Taken(get(HOST, *[b"A: b"] * (HEADERS_MAX - 1))),
}


@pytest.mark.parametrize(
    ("raw", "status"), [row[1:] for row in REFUSED_HEADS], ids=[row[0] for row in REFUSED_HEADS]
)
def test_head_is_refused(raw: bytes, status: int) -> None:
    with pytest.raises(ClientError) as caught:
        read_head(raw)
    assert caught.value.status == status
    assert caught.value.message


@pytest.mark.parametrize("expected", TAKEN_HEADS.values(), ids=TAKEN_HEADS)
def test_head_is_taken(expected: Taken) -> None:
    head = read_head(expected.raw)
    hosts = [value for name, value in head.pairs if name.lower() == b"host"]
    assert head.target == expected.target
    assert head.length == expected.length
    assert head.keeps_alive is expected.keeps_alive
    assert head.wants_continue is expected.wants_continue
    assert hosts == ([] if expected.host is None else [expected.host])


def test_header_names_and_values_come_out_as_they_were() -> None:
    head = read_head(get(b"hOSt: h", b"X-One:  a  b ", b"x-one: c", b"Empty:"))
    assert head.pairs == ((b"hOSt", b"h"), (b"X-One", b"a  b"), (b"x-one", b"c"), (b"Empty", b""))


@pytest.mark.parametrize("expected", TAKEN_HEADS.values(), ids=TAKEN_HEADS)
def test_no_cut_of_a_right_head_is_refused(expected: Taken) -> None:
    for cut in range(1, len(expected.raw) - 1):
        check_partial_head(expected.raw[:cut], 0)
        check_partial_head(expected.raw[: cut + 1], cut)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\n",
        b"GET / HTTP/1.1\rH",
        b"GET /\r\n",
        b"\x16",
        b"GET / HTTP/1.1\r\nA: \x01",
        b"\n",
    ],
)
def test_what_cannot_become_a_head_is_refused_at_once(head: bytes) -> None:
    check_partial_head(head[:-1], 0)
    with pytest.raises(ClientError):
        check_partial_head(head, len(head) - 1)
    with pytest.raises(ClientError):
        check_partial_head(head, 0)


def test_messages_name_header_and_reason_but_never_a_value() -> None:
    with pytest.raises(BadRequest) as caught:
        read_head(get(HOST, b"Authorization : Bearer sk-secret"))
    assert "Authorization" in caught.value.message
    assert "sk-secret" not in caught.value.message
    with pytest.raises(BadRequest) as caught:
        read_head(get(HOST, line=b"GET /x?key=sk-secret#y HTTP/1.1"))
    assert "sk-secret" not in caught.value.message


def test_what_h11_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(parser: h11.Connection) -> None:
        raise h11.RemoteProtocolError("a rule of a later version", 431)

    monkeypatch.setattr(h11.Connection, "next_event", refuse)
    with pytest.raises(ClientError) as caught:
        read_head(get(HOST))
    assert caught.value.status == 431


LINES = st.lists(
    st.sampled_from(
        [
            *(b"Host: h", b"Content-Length: 3", b"Transfer-Encoding: chunked", b"A: b", b" c"),
            *(b"Expect: 100-continue", b"Connection: close", b"", b"\n", b"x", b"A\0: b", b"\xff"),
        ]
    )
    | st.binary(max_size=12),
    max_size=5,
)


@given(st.sampled_from([b"GET / HTTP/1.1", b"POST * HTTP/1.0", b"x"]) | st.binary(), LINES)
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_read_or_refused_and_what_is_read_h11_reads_alike(
    line: bytes, lines: list[bytes]
) -> None:
    raw = get(*lines, line=line)
    raw = raw[: raw.index(b"\r\n\r\n") + 4]
    try:
        head = read_head(raw)
    except ClientError:
        return
    theirs = h11.Connection(h11.SERVER)
    theirs.receive_data(raw)
    event = theirs.next_event()
    assert isinstance(event, h11.Request)
    assert (head.method.encode(), head.target) == (event.method, event.target)
    assert list(head.pairs) == event.headers.raw_items()


@given(st.binary())
@settings(max_examples=200, deadline=None)
def test_any_partial_bytes_pass_or_are_refused_and_nothing_else(data: bytes) -> None:
    with suppress(ClientError):
        check_partial_head(data, 0)


# Chunked bodies. Each ends a message whose tail must not be touched.
TAIL = b"GET / HTTP/1.1\r\n"

TAKEN_BODIES = {
    "empty": (b"0\r\n\r\n", b""),
    "one chunk": (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "several": (b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", b"abc"),
    "capital digits": (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    "small digits": (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    "leading zeros": (b"0005\r\nhello\r\n000\r\n\r\n", b"hello"),
    "sixteen digits": (b"0" * 15 + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "line ends as data": (b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n"),
    "an end as data": (b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", b"0\r\n\r\n"),
    "extension": (b'5;a=b;c="d e"\r\nhello\r\n0;z\r\n\r\n', b"hello"),
    "extension after a blank": (b"5; a\r\nhello\r\n0\r\n\r\n", b"hello"),
    "trailer": (b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nB:\r\n\r\n", b"hello"),
    "trailer that lies is thrown away": (b"0\r\nContent-Length: 9\r\nHost: x\r\n\r\n", b""),
}

REFUSED_BODIES = {
    "plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "minus": b"-5\r\nhello\r\n0\r\n\r\n",
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "underscore": b"1_0\r\nhello",
    "no digit": b"\r\nhello\r\n0\r\n\r\n",
    "no hexadecimal": b"g\r\n",
    "space before": b" 5\r\nhello\r\n0\r\n\r\n",
    "space after": b"5 \r\nhello\r\n0\r\n\r\n",
    "tab after": b"5\t\r\nhello\r\n0\r\n\r\n",
    "overlong": b"0" * 16 + b"5\r\nhello\r\n0\r\n\r\n",
    "far too large": b"f" * 17 + b"\r\n",
    "bare LF after the size": b"5\nhello\r\n0\r\n\r\n",
    "bare CR in the size line": b"5\r5\r\n",
    "bare semicolon": b"5;\r\nhello\r\n0\r\n\r\n",
    "control character in an extension": b"5;a\x01\r\nhello\r\n0\r\n\r\n",
    "CR in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "LF in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "extension too long": b"5;" + b"a" * CHUNK_LINE_BYTES_MAX + b"\r\nhello\r\n",
    "extensions too many": b"".join(
        b"1;" + b"a" * 200 + b"\r\nx\r\n" for _ in range(CHUNK_EXTENSION_BYTES_MAX // 200 + 1)
    ),
    "data too long": b"4\r\nhello\r\n0\r\n\r\n",
    "data too short": b"6\r\nhello\r\n0\r\n\r\n",
    "no line end after the data": b"5\r\nhello0\r\n\r\n",
    "bare LF after the data": b"5\r\nhello\n0\r\n\r\n",
    "other bytes for the line end after the data": b"5\r\nhelloXX0\r\n\r\n",
    "bare LF after the last chunk": b"0\n\r\n",
    "bare LF as the end": b"0\r\n\n",
    "folded trailer": b"0\r\nA: b\r\n c\r\n\r\n",
    "trailer no field": b"0\r\nfoo\r\n\r\n",
    "trailer with NUL": b"0\r\nA: \0\r\n\r\n",
    "trailer too long": b"0\r\nA: " + b"a" * TRAILER_BYTES_MAX + b"\r\n\r\n",
    "trailers too many": b"0\r\n" + b"A: b\r\n" * (TRAILER_BYTES_MAX // 6 + 1) + b"\r\n",
}

CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


def decode(pieces: list[bytes]) -> tuple[bytes, bytes]:
    """Return (body, bytes after it) of a body in pieces, as the server decodes it."""
    head: Head = read_head(CHUNKED)
    guard, body, rest = ChunkGuard(), bytearray(), bytearray()
    is_done = False
    for piece in pieces:
        admitted = guard.admit(piece)
        head.parser.receive_data(piece[:admitted])
        rest += piece[admitted:]
        while not is_done and (event := head.parser.next_event()) is not h11.NEED_DATA:
            is_done = isinstance(event, h11.EndOfMessage)
            body += event.data if isinstance(event, h11.Data) else b""
    assert is_done, "h11 and the guard disagree about the end"
    return bytes(body), bytes(rest)


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize(("raw", "body"), TAKEN_BODIES.values(), ids=TAKEN_BODIES)
def test_chunked_body_is_taken_however_it_is_cut(raw: bytes, body: bytes) -> None:
    data = raw + TAIL
    assert decode([data]) == (body, TAIL)
    assert decode(one_by_one(data)) == (body, TAIL)
    for cut in range(1, len(data)):
        assert decode([data[:cut], data[cut:]]) == (body, TAIL)


@pytest.mark.parametrize("raw", REFUSED_BODIES.values(), ids=REFUSED_BODIES)
def test_chunked_body_is_refused_however_it_is_cut(raw: bytes) -> None:
    for pieces in ([raw], one_by_one(raw)):
        with pytest.raises((BadRequest, h11.RemoteProtocolError)):
            decode(pieces)


@given(st.lists(st.binary(min_size=1, max_size=40)), st.data())
@settings(max_examples=200, deadline=None)
def test_any_chunks_come_out_as_they_went_in(chunks: list[bytes], draw: st.DataObject) -> None:
    raw = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(raw)))))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True) if a < b]
    assert decode([*pieces, TAIL]) == (b"".join(chunks), TAIL)


@given(st.lists(st.sampled_from([b"5", b"0", b"\r\n", b"\n", b";a", b"hello", b" "]), min_size=1))
@settings(max_examples=400, deadline=None)
def test_what_the_guard_lets_pass_ends_for_h11_where_it_ends_for_the_guard(
    parts: list[bytes],
) -> None:
    raw = b"".join(parts)
    guard, parser = ChunkGuard(), read_head(CHUNKED).parser
    events: list[object] = []
    try:
        parser.receive_data(raw[: guard.admit(raw)])
        is_done = guard.admit(b"0") == 0
        while not events or not isinstance(events[-1], h11.EndOfMessage):
            events.append(parser.next_event())
            if events[-1] is h11.NEED_DATA:
                break
    except (BadRequest, h11.RemoteProtocolError):
        return  # h11's part: the line end after a chunk's data
    assert is_done is (events[-1] is not h11.NEED_DATA)
