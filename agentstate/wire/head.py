"""The head of a request that goes out and of an answer that came, at this hop. Pure.

Framing (Host, Content-Length, Transfer-Encoding) and what belongs to one connection only are made
here and taken off here; everything else passes in order, letter for letter. h11 checks the grammar.

Invariant: two lengths of one body never go on together, in neither direction.
"""

from __future__ import annotations

import math

import h11

from agentstate.ground.errors import ConnectFailed, MethodNotAllowed, UpstreamProtocol, shorten
from agentstate.wire.coding import CODINGS
from agentstate.wire.message import HOP_BY_HOP, Headers, Origin, OutCall, Pair
from agentstate.wire.pool import Proxy

# What a caller may not set: framing is made here, so that no two lengths can disagree. An
# expectation is dropped since the body is sent without waiting for the 100.
_MADE_HERE = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
# What is read of a response head, besides what h11 reads of it.
_READ_HERE = frozenset((b"connection", b"keep-alive", b"content-encoding", b"transfer-encoding"))


def request_head(call: OutCall, host: str, proxy: Proxy | None) -> h11.Request:
    """Make the head: Host, the caller's headers in order, framing.

    Raises:
        UpstreamProtocol: a header that HTTP cannot carry.
        MethodNotAllowed: CONNECT, after which the connection would no longer speak HTTP.
    """
    if call.method == "CONNECT":
        raise MethodNotAllowed("CONNECT cannot be forwarded; set the proxy in the environment.")
    headers = [pair for pair in call.headers if pair[0].lower() not in _MADE_HERE]
    headers.insert(0, (b"Host", host.encode("ascii")))
    target = call.target
    if proxy is not None and call.origin.scheme == "http":
        target = b"http://%s%s" % (host.encode("ascii"), target)
        if proxy.authorization is not None:
            headers.append((b"Proxy-Authorization", proxy.authorization))
    if not isinstance(call.body, bytes):
        # Some servers take no chunked request; so a length that is known is told.
        if call.body_bytes is None:
            headers.append((b"Transfer-Encoding", b"chunked"))
        else:
            headers.append((b"Content-Length", b"%d" % call.body_bytes))
    elif call.body or call.method in ("POST", "PUT", "PATCH"):  # RFC 9110 section 8.6
        headers.append((b"Content-Length", b"%d" % len(call.body)))
    try:
        return h11.Request(method=call.method, target=target, headers=headers)
    except h11.LocalProtocolError:
        raise UpstreamProtocol(
            f"The request to {host} has a method, path or header that HTTP cannot carry. Often it "
            "is a line break at the end of an API key: look at its file or variable."
        ) from None  # h11 quotes the value, and a log shows the cause as well


def sort_headers(response: h11.Response, has_body: bool) -> tuple[Headers, str | None, float]:
    """Return what goes on, the coding to undo (None = none), and how long the peer stays idle.

    Left out is what belongs to this hop (RFC 9110 section 7.6.1) and what is no longer true.
    """
    kept: list[Pair] = []
    ours: dict[bytes, bytes] = {}  # the few that mean something here; equal names joined by comma
    for pair in response.headers.raw_items():
        name = pair[0].lower()
        if name in _READ_HERE:
            ours[name] = ours[name] + b"," + pair[1] if name in ours else pair[1]
        if name not in HOP_BY_HOP:
            kept.append(pair)
    if not ours:
        return Headers(kept), None, math.inf
    untrue = {token.strip().lower() for token in ours.get(b"connection", b"").split(b",")}
    coding = ours.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    is_decoded = has_body and coding in CODINGS
    if is_decoded:
        untrue |= {b"content-encoding", b"content-length"}
    if b"transfer-encoding" in ours:
        untrue.add(b"content-length")  # RFC 9112 section 6.3: it does not count then
    headers = Headers(kept).without(frozenset(untrue))
    return headers, coding if is_decoded else None, _keep_alive_s(ours.get(b"keep-alive", b""))


def _keep_alive_s(value: bytes) -> float:
    """Read `timeout=5` of a Keep-Alive header, less a second for the way there."""
    for token in value.decode("latin-1").split(","):
        name, _, seconds = token.partition("=")
        seconds = seconds.strip()
        if name.strip().lower() == "timeout" and seconds.isdecimal() and len(seconds) < 10:
            return max(0.0, int(seconds) - 1.0)
    return math.inf


def authority(origin: Origin) -> str:
    """Return host and port as the Host header has them: without the scheme's own port."""
    host = host_name(origin)
    is_default = origin.port == (443 if origin.scheme == "https" else 80)
    return host if is_default else f"{host}:{origin.port}"


def host_name(origin: Origin) -> str:
    """Return the host as it stands on the wire.

    Raises:
        ConnectFailed: it is no host name.
    """
    host = origin.host
    if not host:
        raise ConnectFailed(f"{origin} names no host: write http://HOST or https://HOST.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as error:
            raise ConnectFailed(f"{shorten(host)!r} is not a host name.") from error
    return f"[{host}]" if ":" in host else host
