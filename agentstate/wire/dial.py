"""Making a connection: addresses, TLS, and tunnels through proxies.

`dial` fills a `Connection` of upstream.py; `client.py` sets its time limit and keeps it. Errors of
the resolver, of connecting and of the TLS handshake become ours here.

Invariant: whatever ends a dial early, cancelled at whichever await, no socket stays open.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import Any

import certifi
import h11

from agentstate.ground.errors import (
    ConnectFailed,
    SettingError,
    UpstreamCut,
    UpstreamError,
    UpstreamProtocol,
    shorten,
)
from agentstate.ground.tasks import TaskSet
from agentstate.wire.head import authority, host_name
from agentstate.wire.message import Origin, Pair
from agentstate.wire.pool import Proxy
from agentstate.wire.upstream import Connection

HAPPY_EYEBALLS_S = 0.25  # RFC 8305 section 5: before the next address is tried beside the first

# Of a host that is none, of the resolver and the socket (ssl.SSLError too), of a proxy's answer.
_FAULTS = (UnicodeError, h11.LocalProtocolError, OSError, UpstreamProtocol, UpstreamCut)
_Address = tuple[int, int, int, str, tuple[Any, ...]]  # as getaddrinfo gives them


async def dial(
    connection: Connection,
    origin: Origin,
    proxy: Proxy | None,
    make_tls: Callable[[], Awaitable[ssl.SSLContext]],
) -> None:
    """Connect, with TLS and through a proxy where that is asked. The caller sets the time limit.

    Whatever ends this early, the socket is closed. `make_tls` is asked only where TLS is needed.

    Raises:
        ConnectFailed: no connection; nothing of a call was sent.
    """
    peer = origin if proxy is None else proxy.origin
    if peer.scheme not in ("http", "https"):
        raise ConnectFailed(f"{peer.host} is given with {peer.scheme!r}: use http or https.")
    try:
        tls = await make_tls() if "https" in (origin.scheme, peer.scheme) else None
        is_secure = peer.scheme == "https"
        await asyncio.get_running_loop().create_connection(
            lambda: connection,
            sock=await _connect_socket(peer.host, peer.port),
            ssl=tls if is_secure else None,
            server_hostname=peer.host if is_secure else None,
        )
        if proxy is not None and origin.scheme == "https":
            assert tls is not None
            await _open_tunnel(connection, origin, proxy)
            await connection.secure(tls, origin.host)
    except BaseException as error:
        connection.abort()
        if isinstance(error, _FAULTS):
            raise _connect_failed(error, origin, proxy) from error
        raise


async def _connect_socket(host: str, port: int) -> socket.socket:
    """Connect to the first address that answers, IPv6 and IPv4 in turns (RFC 8305).

    Not asyncio's own: cancelled at the wrong moment that forgets the socket that has just won. Here
    each attempt makes its socket and closes it unless it is connected, and what is connected and
    not returned is closed below, with no await on the way.

    Raises:
        OSError: no address, or none that answers.
    """
    waiting = deque(_in_turns(await _resolve(host, port)))
    if len(waiting) == 1:
        return await _attempt(waiting[0])
    tasks = TaskSet()
    running: set[asyncio.Task[socket.socket | OSError]] = set()
    faults: list[OSError] = []
    winner: socket.socket | None = None
    try:
        while winner is None:
            if waiting:
                running.add(tasks.start(_attempt_or_fault(waiting.popleft()), f"connect {host}"))
            await asyncio.wait(
                running,
                timeout=HAPPY_EYEBALLS_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in [task for task in running if task.done()]:
                result = task.result()
                if isinstance(result, socket.socket):
                    winner = result
                    break
                running.remove(task)
                faults.append(result)
            if winner is None and not running and not waiting:
                raise OSError("; ".join(dict.fromkeys(map(str, faults)))) from faults[0]
    finally:
        for task in running:
            if task.cancel() or isinstance(result := task.result(), OSError):
                continue
            if result is not winner:
                result.close()
    return winner


async def _resolve(host: str, port: int) -> Sequence[_Address]:
    try:  # an address needs no resolver, and so no thread
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _in_turns(found: Sequence[_Address]) -> Sequence[_Address]:
    """Alternate between the families, beginning with the system's first choice."""
    by_family: dict[int, list[_Address]] = {}
    for address in found:
        by_family.setdefault(address[0], []).append(address)
    rows = zip_longest(*by_family.values())
    return [address for row in rows for address in row if address is not None]


async def _attempt(address: _Address) -> socket.socket:
    family, kind, protocol, _, where = address
    with ExitStack() as unless_connected:
        sock = socket.socket(family, kind, protocol)
        unless_connected.callback(sock.close)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
        unless_connected.pop_all()
        return sock


async def _attempt_or_fault(address: _Address) -> socket.socket | OSError:
    try:
        return await _attempt(address)
    except OSError as error:
        return error


def tls_context(cert_file: str | None, cert_dir: str | None) -> ssl.SSLContext:
    """Make the context for https: certifi's roots, or those of SSL_CERT_FILE / SSL_CERT_DIR.

    None and '' both mean not given. Takes about 10 ms, most of it for reading the roots.

    Raises:
        SettingError: the file or directory cannot be read as certificates.
    """
    try:
        if cert_file or cert_dir:
            context = ssl.create_default_context(cafile=cert_file or None, capath=cert_dir or None)
        else:
            context = ssl.create_default_context(cafile=certifi.where())
    except OSError as error:  # ssl.SSLError is one
        raise SettingError(
            f"The certificates in {cert_file or cert_dir or 'the certifi package'} cannot be read: "
            f"{error}. Let SSL_CERT_FILE name a PEM file, or unset it."
        ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _open_tunnel(connection: Connection, origin: Origin, proxy: Proxy) -> None:
    """Ask the proxy for a tunnel (RFC 9110 section 9.3.6). The caller sets the limit."""
    target = f"{host_name(origin)}:{origin.port}".encode("ascii")
    headers: list[Pair] = [(b"Host", target)]
    if proxy.authorization is not None:
        headers.append((b"Proxy-Authorization", proxy.authorization))
    head = h11.Request(method=b"CONNECT", target=target, headers=headers)
    connection.start(authority(proxy.origin), head, b"")
    while not isinstance(event := connection.next_event(), h11.Response):
        if event is None:
            await connection.changed(math.inf)
    if event.status_code == 407:
        raise ConnectFailed(
            f"The proxy {connection.host} asks for a user name (407). Put it into the proxy's "
            "URL: http://USER:PASSWORD@HOST:PORT."
        )
    if not 200 <= event.status_code < 300:
        raise ConnectFailed(
            f"The proxy {connection.host} refused a tunnel to {authority(origin)} with status "
            f"{event.status_code}."
        )
    if connection.has_leftover():
        raise ConnectFailed(f"The proxy {connection.host} sent bytes before the tunnel was used.")


def _connect_failed(error: Exception, origin: Origin, proxy: Proxy | None) -> ConnectFailed:
    """Say what failed and what to do; the text of a socket's error holds no secret."""
    host = authority(origin)
    way = f"{host}" if proxy is None else f"{host} through the proxy {authority(proxy.origin)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectFailed(
            f"The certificate of {way} was not accepted: {error.verify_message}. If it is of a "
            "private authority, let SSL_CERT_FILE name its certificate."
        )
    if isinstance(error, UpstreamError):
        return ConnectFailed(f"No tunnel to {way}: {error.message}")
    return ConnectFailed(f"No connection to {way}: {shorten(str(error)) or type(error).__name__}.")
