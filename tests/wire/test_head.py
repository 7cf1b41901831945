"""Heads at this hop: what is made, what is taken off, and that all else passes as it came."""

from __future__ import annotations

import math
import traceback
from collections.abc import AsyncIterator

import h11
import pytest

from agentstate.ground.errors import ConnectFailed, MethodNotAllowed, UpstreamProtocol
from agentstate.wire.head import authority, request_head, sort_headers
from agentstate.wire.message import Origin, OutCall, Pair
from agentstate.wire.pool import Proxy

HERE = Origin("http", "here.test", 80)


async def nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def made(
    method: str = "POST",
    *,
    headers: tuple[Pair, ...] = (),
    body: bytes | AsyncIterator[bytes] = b"",
    target: bytes = b"/v1/x?a=b",
    proxy: Proxy | None = None,
    origin: Origin = HERE,
) -> tuple[bytes, list[Pair]]:
    call = OutCall(method, origin, target, headers, body)
    head = request_head(call, authority(origin), proxy)
    return head.target, head.headers.raw_items()


def test_host_comes_first_the_caller_s_headers_in_order_and_the_length_last() -> None:
    headers = ((b"X-B", b"1"), (b"x-a", b"2"), (b"X-B", b"3"))
    assert made(headers=headers, body=b"hello") == (
        b"/v1/x?a=b",
        [(b"Host", b"here.test"), *headers, (b"Content-Length", b"5")],
    )


@pytest.mark.parametrize(
    ("method", "body", "framing"),
    [
        ("GET", b"", []),
        ("DELETE", b"", []),
        ("GET", b"x", [(b"Content-Length", b"1")]),
        ("POST", b"", [(b"Content-Length", b"0")]),
        ("PUT", b"", [(b"Content-Length", b"0")]),
        ("PATCH", b"", [(b"Content-Length", b"0")]),
        ("POST", nothing(), [(b"Transfer-Encoding", b"chunked")]),
        ("GET", nothing(), [(b"Transfer-Encoding", b"chunked")]),
    ],
)
def test_a_body_has_one_framing(
    method: str, body: bytes | AsyncIterator[bytes], framing: list[Pair]
) -> None:
    assert made(method, body=body)[1] == [(b"Host", b"here.test"), *framing]


def test_a_body_that_is_streamed_tells_its_length_where_it_is_known() -> None:
    call = OutCall("POST", HERE, b"/", (), nothing(), body_bytes=7)
    head = request_head(call, "here.test", None)
    assert head.headers.raw_items() == [(b"Host", b"here.test"), (b"Content-Length", b"7")]


def test_framing_and_hop_by_hop_headers_of_the_caller_are_left_out() -> None:
    headers = (
        (b"HOST", b"evil.test"),
        (b"Content-Length", b"99"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"keep-alive"),
        (b"TE", b"trailers"),
        (b"Upgrade", b"h2c"),
        (b"Expect", b"100-continue"),
        (b"Proxy-Authorization", b"Basic secret"),
        (b"accept-encoding", b"gzip, identity"),
    )
    assert made(headers=headers, body=b"x")[1] == [
        (b"Host", b"here.test"),
        (b"accept-encoding", b"gzip, identity"),
        (b"Content-Length", b"1"),
    ]


def test_bytes_that_are_not_ascii_pass() -> None:
    pair = (b"X-Name", "Zoë".encode() + b" \xff")
    assert pair in made(headers=(pair,))[1]


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        (((b"Authorization", b"Bearer sk-secret\n"),), b"/"),
        (((b"X\r\nY", b"sk-secret"),), b"/"),
        ((), b"/ HTTP/1.1\r\nsk-secret:"),
    ],
)
def test_what_http_cannot_carry_is_told_without_showing_it(
    headers: tuple[Pair, ...], target: bytes
) -> None:
    with pytest.raises(UpstreamProtocol) as caught:
        made(headers=headers, target=target)
    assert "here.test" in caught.value.message
    assert "sk-secret" not in "".join(traceback.format_exception(caught.value, limit=0))


def test_connect_is_not_forwarded() -> None:
    with pytest.raises(MethodNotAllowed):
        made("CONNECT")


def test_through_a_proxy_http_names_the_whole_url_and_https_does_not() -> None:
    proxy = Proxy(Origin("http", "proxy.test", 3128), b"Basic dXNlcjpw")
    origin = Origin("http", "here.test", 8080)
    target, headers = made("GET", proxy=proxy, origin=origin)
    assert target == b"http://here.test:8080/v1/x?a=b"
    assert headers == [
        (b"Host", b"here.test:8080"),
        (b"Proxy-Authorization", b"Basic dXNlcjpw"),
    ]
    target, headers = made("GET", proxy=proxy, origin=Origin("https", "here.test", 443))
    assert target == b"/v1/x?a=b"
    assert headers == [(b"Host", b"here.test")]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (Origin("http", "a.test", 80), "a.test"),
        (Origin("https", "a.test", 443), "a.test"),
        (Origin("https", "a.test", 80), "a.test:80"),
        (Origin("http", "::1", 80), "[::1]"),
        (Origin("http", "::1", 8080), "[::1]:8080"),
        (Origin("https", "bücher.test", 443), "xn--bcher-kva.test"),
    ],
)
def test_the_authority_names_a_port_only_where_it_must(origin: Origin, expected: str) -> None:
    assert authority(origin) == expected


@pytest.mark.parametrize("host", ["", "ü..test"])
def test_a_host_that_is_none_cannot_be_connected_to(host: str) -> None:
    with pytest.raises(ConnectFailed):
        authority(Origin("https", host, 443))


def sort(*pairs: Pair, status: int = 200, has_body: bool = True) -> tuple[list[Pair], str | None]:
    response = h11.Response(status_code=status, headers=list(pairs))
    headers, coding, _ = sort_headers(response, has_body)
    return list(headers), coding


def test_headers_of_an_answer_pass_in_order_and_letter_for_letter() -> None:
    pairs = (
        (b"X-Request-Id", b"r1"),
        (b"content-TYPE", b"text/plain; charset=\xe9"),
        (b"Content-Length", b"5"),
        (b"x-request-id", b"r2"),
    )
    assert sort(*pairs) == (list(pairs), None)


def test_hop_by_hop_headers_and_those_that_connection_names_are_left_out() -> None:
    assert sort(
        (b"Connection", b"keep-alive, X-Hop"),
        (b"connection", b"x-other"),
        (b"Keep-Alive", b"timeout=5"),
        (b"X-Hop", b"1"),
        (b"x-Other", b"2"),
        (b"Proxy-Authenticate", b"Basic"),
        (b"Trailer", b"x"),
        (b"Upgrade", b"h2"),
        (b"X-Kept", b"3"),
    ) == ([(b"X-Kept", b"3")], None)


def test_with_chunked_framing_a_length_does_not_go_on() -> None:
    assert sort((b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"5")) == ([], None)


@pytest.mark.parametrize("coding", [b"gzip", b"GZIP", b"x-gzip", b"deflate"])
def test_a_coding_that_is_undone_is_not_announced(coding: bytes) -> None:
    pairs = ((b"Content-Encoding", coding), (b"Content-Length", b"5"), (b"ETag", b"1"))
    assert sort(*pairs) == ([(b"ETag", b"1")], coding.decode().strip().lower())


@pytest.mark.parametrize("codings", [[b"br"], [b"zstd"], [b"gzip, br"], [b"gzip", b"gzip"], [b""]])
def test_a_coding_that_is_not_undone_stays_with_its_length(codings: list[bytes]) -> None:
    pairs = [*((b"Content-Encoding", coding) for coding in codings), (b"Content-Length", b"5")]
    assert sort(*pairs) == (pairs, None)


def test_without_a_body_nothing_is_undone() -> None:
    pairs = [(b"Content-Encoding", b"gzip"), (b"Content-Length", b"5")]
    assert sort(*pairs, has_body=False) == (pairs, None)


@pytest.mark.parametrize(
    ("value", "keep_s"),
    [
        (b"timeout=5", 4.0),
        (b"max=100, Timeout = 60", 59.0),
        (b"timeout=0", 0.0),
        (b"timeout=soon", math.inf),
        (b"timeout=" + b"9" * 5000, math.inf),
        (b"max=3", math.inf),
    ],
)
def test_the_peer_s_idle_time_is_kept_with_a_second_to_spare(value: bytes, keep_s: float) -> None:
    response = h11.Response(status_code=200, headers=[(b"Keep-Alive", value)])
    assert sort_headers(response, True)[2] == keep_s
