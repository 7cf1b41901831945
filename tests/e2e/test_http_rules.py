"""HTTP/1.1 as the rules say it, asked of a running proxy in raw bytes: a table, a row a case.

The first rows are the 33 cases of h1spec (github.com/uNetworking/h1spec), by its names; the others
are what RFC 9110 and 9112 say with MUST and public probes (http-probe.com) send. `wire/strict.py`
has the same rules as pure functions, tested in greater number by `wire/test_strict.py`.

A refused request gets its status, a closed connection and no second answer, and nothing of it
reaches an upstream. A request that is taken is read to its last byte and no further: the next one
on the same connection is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Connection, Reception
from tests.helpers.upstream import Received, Reply, Upstream

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Row:
    """What is sent, and what must come back."""

    name: str
    rule: str  # "h1spec", or RFC and section
    sent: bytes
    status: int = 200
    closes: bool = False  # after the answer
    body: bytes | None = None  # what an upstream must get of it; None = nothing


def lines(*parts: bytes) -> bytes:
    """Return a request head."""
    return b"\r\n".join(parts) + b"\r\n\r\n"


HOST = b"Host: example.com"
GET = b"GET /healthz HTTP/1.1"
POST = b"POST /v1/echo HTTP/1.1"
CHUNKED = b"Transfer-Encoding: chunked"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"
# In a body, or where a careless reader would take the body to end.
SMUGGLED = lines(b"GET /v1/smuggled HTTP/1.1", HOST)


def taken(name: str, rule: str, sent: bytes, *, body: bytes | None = None, **more: int) -> Row:
    """A request that must be taken."""
    return Row(name, rule, sent, more.get("status", 200), bool(more.get("closes", 0)), body)


def refused(name: str, rule: str, sent: bytes, status: int = 400) -> Row:
    """A request that must not be taken."""
    return Row(name, rule, sent, status, closes=True)


# h1spec leaves off in the middle and wants the server to wait. Here the rest follows, and makes it
# one request with one answer: what was sent before was not answered. Its path is ours.
WHOLE = lines(b"GET /healthz HTTP/1.1", b"Host: localhost")
FRAGMENTS = {
    "Fragmented method": b"G",
    "Fragmented URL 1": b"GET ",
    "Fragmented URL 2": b"GET /healthz",
    "Fragmented URL 3": b"GET /healthz ",
    "Fragmented HTTP version": b"GET /healthz HTTP",
    "Fragmented request line": b"GET /healthz HTTP/1.1",
    "Fragmented request line newline 1": b"GET /healthz HTTP/1.1\r",
    "Fragmented request line newline 2": b"GET /healthz HTTP/1.1\r\n",
    "Fragmented field name": b"GET /healthz HTTP/1.1\r\nHos",
    "Fragmented field value 1": b"GET /healthz HTTP/1.1\r\nHost:",
    "Fragmented field value 2": b"GET /healthz HTTP/1.1\r\nHost: ",
    "Fragmented field value 3": b"GET /healthz HTTP/1.1\r\nHost: localhost",
    "Fragmented field value 4": b"GET /healthz HTTP/1.1\r\nHost: localhost\r",
    "Fragmented request": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
    "Fragmented request termination": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r",
}

H1SPEC = [
    refused("Request without HTTP version", "h1spec", b"GET / \r\n\r\n"),
    taken("Request with Expect header", "h1spec", lines(GET, HOST, b"Expect: 100-continue")),
    taken("Valid GET request", "h1spec", lines(GET, HOST)),
    taken("Valid GET request with edge cases", "h1spec",
          lines(GET, b"hoSt:\texample.com", b"empty:")),
    refused("Invalid header characters", "h1spec", lines(GET, HOST, b"X-Invalid[]: test")),
    refused("Missing Host header", "h1spec", lines(GET, b"Content-Length: 5")),
    refused("Multiple Host headers", "h1spec", lines(GET, HOST, b"Host: example.org")),
    refused("Overflowing negative Content-Length header", "h1spec",
            lines(GET, HOST, b"Content-Length: -123456789123456789123456789")),
    refused("Negative Content-Length header", "h1spec",
            lines(GET, HOST, b"Content-Length: -1234")),
    refused("Non-numeric Content-Length header", "h1spec",
            lines(GET, HOST, b"Content-Length: abc")),
    taken("Empty header value", "h1spec", lines(GET, HOST, b"X-Empty-Header: ")),
    refused("Header containing invalid control character", "h1spec",
            lines(GET, HOST, b"X-Bad-Control-Char: test\x07")),
    refused("Invalid HTTP version", "h1spec", lines(b"GET / HTTP/9.9", HOST), 505),
    refused("Invalid prefix of request", "h1spec", b"Extra line" + lines(GET, HOST)),
    refused("Invalid line ending", "h1spec", lines(GET, HOST, b"\rSome-Header: Test")),
    taken("Valid POST request with body", "h1spec",
          lines(POST, HOST, b"Content-Length: 5") + b"hello", body=b"hello"),
    taken("Chunked Transfer-Encoding", "h1spec",
          lines(POST, HOST, CHUNKED) + b"c\r\nHellO world1\r\n0\r\n\r\n", body=b"HellO world1"),
    refused("Conflicting Transfer-Encoding and Content-Length in varying case", "h1spec",
            lines(POST, HOST, b"content-LengtH: 5", b"TransFer-Encoding: chunked")
            + b"c\r\nHellO world1\r\n0\r\n\r\n"),
]  # fmt: skip

MESSAGES = [
    refused("bare CR as line ends", "9112 2.2", b"GET / HTTP/1.1\rHost: h\r\r"),
    refused("bare CR in a value", "9112 2.2", lines(GET, HOST, b"A: b\rc")),
    refused("bare LF in a head", "9112 2.2", b"GET / HTTP/1.1\nHost: h\n\n"),
    refused("white space before the first field", "9112 2.2", lines(GET, b" A: b", HOST)),
    taken("an empty line before the request", "9112 2.2", b"\r\n" + lines(GET, HOST)),
    refused("version without minor", "9112 2.3", lines(b"GET / HTTP/1", HOST)),
    refused("version with leading zeros", "9112 2.3", lines(b"GET / HTTP/01.01", HOST)),
    refused("version with a space", "9112 2.3", lines(b"GET / HTTP/1. 1", HOST)),
    refused("no target", "9112 3", lines(b"GET HTTP/1.1", HOST)),
    refused("NUL in the target", "9112 3", lines(b"GET /\0 HTTP/1.1", HOST)),
    refused("target not ASCII", "9112 3", lines(b"GET /\xc3\xa9 HTTP/1.1", HOST)),
    refused("target in overlong UTF-8", "3629 3", lines(b"GET /\xc0\xaf HTTP/1.1", HOST)),
    refused("a target too long", "9112 3", lines(b"GET /%s HTTP/1.1" % (b"a" * 70_000), HOST), 414),
    taken("a target of 8,000 bytes", "9112 3",
          lines(b"GET /healthz?%s HTTP/1.1" % (b"a" * 8_000), HOST)),
    refused("no Host", "9112 3.2", lines(GET)),
    refused("two different Hosts", "9112 3.2", lines(GET, HOST, b"Host: example.org")),
    refused("two equal Hosts", "9112 3.2", lines(GET, HOST, HOST)),
    refused("Host with a user", "9112 3.2", lines(GET, b"Host: user@example.com")),
    refused("Host with a path", "9112 3.2", lines(GET, b"Host: example.com/x")),
    refused("Host with a list", "9112 3.2", lines(GET, b"Host: example.com,example.org")),
    refused("Host empty", "9112 3.2", lines(GET, b"Host:")),
    taken("absolute form", "9112 3.2.2", lines(b"GET http://example.com/healthz HTTP/1.1", HOST)),
    refused("absolute form without a host", "9112 3.2.2",
            lines(b"GET http:///healthz HTTP/1.1", HOST)),
    refused("absolute form with a user", "9112 3.2.2",
            lines(b"GET http://a@example.com/healthz HTTP/1.1", HOST)),
    refused("authority form", "9112 3.2.3", lines(b"CONNECT example.com:443 HTTP/1.1", HOST)),
    refused("asterisk with GET", "9112 3.2.4", lines(b"GET * HTTP/1.1", HOST)),
    taken("asterisk with OPTIONS", "9112 3.2.4", lines(b"OPTIONS * HTTP/1.1", HOST)),
    refused("a field without name", "9112 5", lines(GET, HOST, b": b")),
    refused("a field without colon", "9112 5", lines(GET, HOST, b"A b")),
    refused("a name not ASCII", "9112 5", lines(GET, HOST, b"\xc3\x84: b")),
    refused("a tab in a name", "9112 5", lines(GET, HOST, b"A\tB: c")),
    refused("a head too long", "9110 5.4", lines(GET, HOST, b"A: " + b"a" * 70_000), 431),
    refused("white space before the colon", "9112 5.1", lines(GET, HOST, b"A : b")),
    refused("white space before the colon of Content-Length", "9112 5.1",
            lines(POST, HOST, b"Content-Length : 5") + b"hello"),
    refused("white space before the colon of Transfer-Encoding", "9112 5.1",
            lines(POST, HOST, b"Transfer-Encoding : chunked") + HELLO),
    refused("a folded field", "9112 5.2", lines(GET, HOST, b"A: b", b" c")),
    refused("a folded Transfer-Encoding", "9112 5.2",
            lines(POST, HOST, b"Transfer-Encoding:", b" chunked") + HELLO),
    refused("NUL in a value", "9110 5.5", lines(GET, HOST, b"A: b\0c")),
    refused("NUL in Transfer-Encoding", "9110 5.5",
            lines(POST, HOST, b"Transfer-Encoding: chunked\0") + HELLO),
]  # fmt: skip

LENGTHS = {
    "a word": b"five", "plus": b"+5", "negative": b"-5", "negative zero": b"-0", "octal": b"0o5",
    "hexadecimal": b"0x5", "underscore": b"1_0", "a space inside": b"5 0", "empty": b"",
    "unequal list": b"5, 6", "overflow": b"99999999999999999999999999", "a fraction": b"5.0",
}  # fmt: skip

CODINGS = {
    "empty": (b"", 400), "not last": (b"chunked, gzip", 400), "twice": (b"chunked, chunked", 400),
    "vertical tab": (b"\x0bchunked", 400), "form feed": (b"\x0cchunked", 400),
    "a hole before": (b", chunked", 400), "identity": (b"identity", 501),
    "unknown": (b"gzip", 501), "x before": (b"xchunked", 501),
}  # fmt: skip

BODIES = [
    taken("length zero", "9112 6.2", lines(POST, HOST, b"Content-Length: 0"), body=b""),
    taken("neither length nor coding", "9112 6.3", lines(POST, HOST), body=b""),
    *(refused(f"Content-Length: {name}", "9110 8.6",
              lines(POST, HOST, b"Content-Length: " + value) + b"hello" + SMUGGLED)
      for name, value in LENGTHS.items()),
    refused("two lengths", "9110 8.6",
            lines(POST, HOST, b"Content-Length: 5", b"Content-Length: 60") + b"hello" + SMUGGLED),
    *(refused(f"Transfer-Encoding: {name}", "9112 6.1",
              lines(POST, HOST, b"Transfer-Encoding: " + value) + HELLO + SMUGGLED, status)
      for name, (value, status) in CODINGS.items()),
    refused("two codings", "9112 6.1",
            lines(POST, HOST, CHUNKED, b"Transfer-Encoding: identity") + HELLO + SMUGGLED),
    refused("a coding in 1.0", "9112 6.1",
            lines(b"POST /v1/echo HTTP/1.0", HOST, CHUNKED) + HELLO + SMUGGLED),
    *(refused(f"length, and coding as {value!r}", "9112 6.1",
              lines(POST, HOST, b"Content-Length: 6", b"Transfer-Encoding: " + value)
              + b"0\r\n\r\nX" + SMUGGLED)
      for value in (b"chunked", b"Chunked", b"chunked ", b", chunked", b"xchunked")),
    refused("coding, then length", "9112 6.1",
            lines(POST, HOST, CHUNKED, b"Content-Length: 30") + b"0\r\n\r\n" + SMUGGLED),
    refused("coding, and a length with plus", "9112 6.1",
            lines(POST, HOST, b"Content-Length: +6", CHUNKED) + b"0\r\n\r\nX" + SMUGGLED),
    refused("coding, and a length of the first line", "9112 6.1",
            lines(POST, HOST, CHUNKED, b"Content-Length: 4")
            + b"%x\r\n%s\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)),
    taken("chunks", "9112 7.1", lines(POST, HOST, CHUNKED) + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
          body=b"hello"),
    taken("no chunk", "9112 7.1", lines(POST, HOST, CHUNKED) + b"0\r\n\r\n", body=b""),
    taken("capital digits", "9112 7.1",
          lines(POST, HOST, CHUNKED) + b"A\r\n0123456789\r\n0\r\n\r\n", body=b"0123456789"),
    taken("an unknown extension", "9112 7.1.1",
          lines(POST, HOST, CHUNKED) + b"5;a=b\r\nhello\r\n0\r\n\r\n", body=b"hello"),
    taken("a trailer", "9112 7.1.2",
          lines(POST, HOST, CHUNKED) + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", body=b"hello"),
    taken("a request as the data of a chunk", "9112 7.1",
          lines(POST, HOST, CHUNKED) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED),
          body=SMUGGLED),
]  # fmt: skip

CHUNKS = {
    "hexadecimal prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "plus before the last": b"5\r\nhello\r\n+0\r\n\r\nX",
    "minus": b"-5\r\nhello\r\n0\r\n\r\n",
    "a space before": b" 5\r\nhello\r\n0\r\n\r\n",
    "a space after": b"5 \r\nhello\r\n0\r\n\r\n",
    "overflow": b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "no line end after the data": b"5\r\nhello0\r\n\r\n",
    "more data than it says": b"5\r\nhello12\r\n0\r\n\r\n",
    "bare semicolon": b"5;\r\nhello\r\n0\r\n\r\n",
    "an extension's name no token": b"5;[\r\nhello\r\n0\r\n\r\n",
    "NUL in an extension": b"5;a\0\r\nhello\r\n0\r\n\r\n",
    "CR in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "LF in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "bare CR as line end": b"5\rhello\r\n0\r\n\r\n",
    "bare LF as line end": b"5\nhello\n0\n\n",
    "bare LF in the trailer": b"5\r\nhello\r\n0\r\nA: b\n\r\n",
}

CONNECTIONS = [
    taken("close is obeyed", "9112 9.6", lines(GET, HOST, b"Connection: close"), closes=1),
    taken("1.0 closes", "9112 9.3", lines(b"GET /healthz HTTP/1.0", HOST), closes=1),
    taken("an upgrade to something unknown is none", "9110 7.8",
          lines(GET, HOST, b"Connection: upgrade", b"Upgrade: other/1")),
    taken("an upgrade without Connection is none", "9110 7.8",
          lines(GET, HOST, b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")),
    taken("an upgrade in 1.0 is ignored", "9110 7.8",
          lines(b"GET /v1/models HTTP/1.0", HOST, b"Connection: upgrade", b"Upgrade: websocket"),
          body=b"", closes=1),
    taken("a WebSocket by POST is none", "6455 4.1",
          lines(POST, HOST, b"Connection: upgrade", b"Upgrade: websocket"), status=501),
    taken("a WebSocket of a strange version is none", "6455 4.4",
          lines(b"GET /v1/realtime HTTP/1.1", HOST, b"Connection: upgrade", b"Upgrade: websocket",
                b"Sec-WebSocket-Version: 99"), status=501),
    refused("TRACE", "9110 9.3.8", lines(b"TRACE /v1/models HTTP/1.1", HOST), 501),
    taken("a method that a page does not have", "9110 15.5.6",
          lines(b"DELETE /dashboard/ HTTP/1.1", HOST), status=405),
    taken("a method that an endpoint does not have", "9110 15.5.6",
          lines(b"DELETE /healthz HTTP/1.1", HOST), status=405),
    taken("a range with POST is ignored", "9110 14.2",
          lines(POST, HOST, b"Content-Length: 5", b"Range: bytes=0-1") + b"hello", body=b"hello"),
]  # fmt: skip

ROWS = [*H1SPEC, *MESSAGES, *BODIES, *CONNECTIONS]


class Echo(Upstream):
    """Answers with the body it got; keeps only requests that came whole."""

    def reply_to(self, request: Received) -> Reply:
        if request.target.endswith("/nothing"):
            return Reply(status=204)
        return Reply(headers=((b"content-type", b"text/plain"),), chunks=(request.body,))


@dataclass(frozen=True, slots=True)
class Rig:
    """A proxy that also answers to example.com, before an upstream that keeps what it gets."""

    proxy: Proxy
    upstream: Echo

    def received(self) -> list[bytes]:
        """Return the bodies that the upstream got."""
        return [request.body for request in self.upstream.received]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Start both, once for all rows: each has a connection of its own."""
    db = tmp_path_factory.mktemp("rules") / "record.db"
    env = {"AGENTSTATE_SERVER_HOSTS": "example.com"}
    with (
        Echo() as upstream,
        Proxy(upstream_url=upstream.url, db=db, env=env) as proxy,
    ):
        yield Rig(proxy, upstream)


def assert_no_more(connection: Connection) -> None:
    """The peer has closed, and has answered nothing more."""
    after = connection.receive()
    assert (after.status, bytes(after.wire)) == (None, b"")
    assert after.ending in ("cut", "reset")


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.rule}: {row.name}" for row in ROWS])
def test_a_request_is_answered_as_the_rule_says(rig: Rig, row: Row) -> None:
    before = len(rig.received())
    with Connection(rig.proxy.address) as connection:
        connection.send(row.sent)
        got = connection.receive()
        assert (got.status, got.ending) == (row.status, "complete"), got.body
        assert got.header("date")
        assert bool(got.header("allow")) is (row.status == 405 or b"OPTIONS" in row.sent[:8])
        if not row.closes:
            connection.send(lines(GET, HOST, b"Connection: close"))
            assert connection.receive().status == 200
        assert_no_more(connection)
    assert rig.received()[before:] == ([] if row.body is None else [row.body])


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_is_waited_for(rig: Rig, name: str) -> None:
    fragment = FRAGMENTS[name]
    with Connection(rig.proxy.address) as connection:
        connection.send(fragment)
        with Connection(rig.proxy.address) as other:  # by its answer the fragment has been read
            other.send(WHOLE)
            assert other.receive().status == 200
        connection.send(WHOLE.removeprefix(fragment))
        assert connection.receive().status == 200
        connection.end_sending()
        assert_no_more(connection)


@pytest.mark.parametrize("name", CHUNKS)
def test_a_wrong_chunk_ends_the_connection_and_is_no_request(rig: Rig, name: str) -> None:
    before = rig.received()
    with Connection(rig.proxy.address) as connection:
        connection.send(lines(POST, HOST, CHUNKED) + CHUNKS[name] + SMUGGLED)
        assert connection.receive().status == 400
        assert_no_more(connection)
    assert rig.received() == before


@pytest.mark.parametrize(
    "begun",
    [
        lines(POST, HOST, b"Content-Length: 10") + b"hello",
        lines(POST, HOST, b"Content-Length: 99999999999") + b"hello",
        lines(POST, HOST, CHUNKED) + b"5\r\nhello\r\n",
        lines(POST, HOST, CHUNKED) + b"a\r\nhello",
    ],
    ids=["short", "huge", "no last chunk", "in a chunk"],
)
@pytest.mark.parametrize("session", [b"", b"x-agent-session-id: s\r\n"], ids=["passed", "recorded"])
def test_a_body_that_ends_too_early_is_no_request(rig: Rig, begun: bytes, session: bytes) -> None:
    if session:
        begun = begun.replace(b"/echo", b"/chat/completions").replace(HOST, session + HOST)
    before = rig.received()
    with Connection(rig.proxy.address) as connection:
        connection.send(begun)
        connection.end_sending()
        got = connection.receive()
        assert got.status in (None, 400, 413), got.body
        assert_no_more(connection)
    assert rig.received() == before


def test_head_has_no_content(rig: Rig) -> None:
    with Connection(rig.proxy.address) as connection:
        connection.send(lines(b"HEAD /healthz HTTP/1.1", HOST))
        connection.send(lines(GET, HOST, b"Connection: close"))
        head = connection.receive(until=lambda got: True)
        assert head.status == 200
        assert head.body.startswith(b"HTTP/1.1 200 OK\r\n"), "the next answer, with no body between"


def test_an_old_client_gets_no_interim_answer(rig: Rig) -> None:
    old = lines(b"POST /v1/echo HTTP/1.0", HOST, b"Expect: 100-continue", b"Content-Length: 5")
    with Connection(rig.proxy.address) as connection:
        connection.send(old + b"hello")
        got = connection.receive()
        assert (got.status, got.interims) == (200, [])
        assert_no_more(connection)


def test_one_who_waits_is_told_to_go_on_once(rig: Rig) -> None:
    with Connection(rig.proxy.address) as connection:
        connection.send(lines(POST, HOST, b"Expect: 100-continue", b"Content-Length: 5"))
        begun = Reception(sent_s=0.0)
        connection.wait_for_interim(20, begun)
        assert [status for status, _ in begun.interims] == [100]
        connection.send(b"hello")
        got = connection.receive(begun)
        assert (got.status, len(got.interims)) == (200, 1)


def test_an_answer_without_content_has_no_length(rig: Rig) -> None:
    with Connection(rig.proxy.address) as connection:
        connection.send(lines(b"GET /v1/nothing HTTP/1.1", HOST))
        got = connection.receive()
        assert got.status == 204
        assert got.header("content-length") is None


def test_requests_in_one_go_are_answered_in_order(rig: Rig) -> None:
    both = lines(POST, HOST, b"Content-Length: 5") + b"hello" + lines(GET, HOST)
    with Connection(rig.proxy.address) as connection:
        connection.send(both)
        assert connection.receive().body == b"hello"
        assert b"version" in connection.receive().body


def test_all_33_cases_of_h1spec_are_here() -> None:
    names = {row.name for row in H1SPEC} | FRAGMENTS.keys()
    assert len(names) == len(H1SPEC) + len(FRAGMENTS) == 33
