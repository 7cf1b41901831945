"""Making connections: which address, whose certificates, and tunnels through proxies."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import certifi
import pytest

from agentstate.ground.errors import ConnectFailed, SettingError
from agentstate.wire import dial
from agentstate.wire.client import Proxies, tls_context
from agentstate.wire.message import Origin
from agentstate.wire.pool import Proxy
from tests.wire.far import (
    LIMITS,
    OK,
    Peer,
    ask,
    call_to,
    calling,
    far_end,
    refuse_to_be_called,
    replying,
    run,
    through,
    until,
    wait,
)

HERE = Origin("http", "here.test", 80)
Connect = Callable[[socket.socket, tuple[str, int]], Awaitable[None]]


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Let every name stand for these ports of loopback, and let the next be tried soon."""

    async def resolve(host: str, port: int) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(dial, "_resolve", resolve)
    monkeypatch.setattr(dial, "HAPPY_EYEBALLS_S", 0.001)


def held_connects(hold: Callable[[int], Awaitable[object]]) -> list[socket.socket]:
    """Let each connect wait for `hold` of its port first; return the sockets as they are made."""
    loop = asyncio.get_running_loop()
    connect: Connect = loop.sock_connect
    sockets: list[socket.socket] = []

    async def sock_connect(sock: socket.socket, address: tuple[str, int]) -> None:
        sockets.append(sock)
        await hold(address[1])
        await connect(sock, address)

    loop.sock_connect = sock_connect  # type: ignore[method-assign,assignment]
    return sockets


def refused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_after_an_address_that_refuses_the_next_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling() as client:
            resolve_to(monkeypatch, refused_port(), far.origin.port)
            assert await ask(client, call_to(HERE)) == b"ok"

    run(main)


def test_beside_an_address_that_is_silent_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async def hold(port: int) -> None:
            if port == 1:
                await asyncio.Event().wait()

        sockets = held_connects(hold)
        async with far_end(replying(OK)) as far, calling() as client:
            resolve_to(monkeypatch, 1, far.origin.port)
            assert await ask(client, call_to(HERE)) == b"ok"
            assert len(sockets) == 2
            await until(lambda: sockets[0].fileno() == -1)

    run(main)


def test_where_every_address_refuses_no_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        resolve_to(monkeypatch, refused_port(), refused_port())
        async with calling() as client:
            with pytest.raises(
                ConnectFailed, match=r"No connection to here\.test: .*refused|failed"
            ):
                await ask(client, call_to(HERE))

    run(main)


def test_of_two_addresses_that_answer_together_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        sockets = held_connects(lambda _: gate.wait())
        async with far_end(replying_once_or_never) as far, calling() as client:
            resolve_to(monkeypatch, far.origin.port, far.origin.port)
            asking = asyncio.ensure_future(ask(client, call_to(HERE)))
            await until(lambda: len(sockets) == 2)
            gate.set()
            assert await asking == b"ok"
            await until(lambda: sum(sock.fileno() == -1 for sock in sockets) == 1)

    run(main)


async def replying_once_or_never(peer: Peer) -> None:
    if await peer.reader.read(1):
        await peer.request()
        peer.send(OK)


@pytest.mark.parametrize("turns", range(8))
def test_cancelled_at_any_turn_no_socket_stays_open(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    async def main() -> None:
        sockets = held_connects(lambda _: asyncio.sleep(0))
        async with far_end(wait) as far, calling() as client:
            resolve_to(monkeypatch, far.origin.port, far.origin.port)
            asking = asyncio.ensure_future(ask(client, call_to(HERE)))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await until(asking.done)
            await until(lambda: all(sock.fileno() == -1 for sock in sockets))

    run(main)


def test_addresses_are_tried_family_by_family_in_turns() -> None:
    def found(family: int, *names: str) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(family, socket.SOCK_STREAM, 6, "", (name, 1)) for name in names]

    six, four = found(socket.AF_INET6, "a", "b", "c"), found(socket.AF_INET, "1")
    assert [each[4][0] for each in dial._in_turns([*six, *four])] == ["a", "1", "b", "c"]
    assert [each[4][0] for each in dial._in_turns([*four, *six])] == ["1", "a", "b", "c"]


def test_a_host_that_no_request_can_name_is_no_error_of_warming() -> None:
    async def main() -> None:
        async with far_end(wait) as far, calling(through(far)) as client:
            client.warm(Origin("https", "a b.test", 443), LIMITS)
            await until(lambda: not client._tasks)

    run(main)


@dataclass(frozen=True)
class Authority:
    """A certificate authority of our own, and servers it vouches for."""

    file: str  # its certificate, as SSL_CERT_FILE would name it
    server: ssl.SSLContext  # for 127.0.0.1, localhost and api.test


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    trustme = pytest.importorskip("trustme")
    ca = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1", "localhost", "api.test").configure_cert(context)
    return Authority(str(path), context)


def test_a_call_over_tls_with_an_authority_of_one_s_own(authority: Authority) -> None:
    async def main() -> None:
        async with (
            far_end(replying(OK, OK), tls=authority.server) as far,
            calling(tls=tls_context(authority.file, None)) as client,
        ):
            client.warm(far.origin, LIMITS)
            for _ in range(2):
                assert await ask(client, call_to(far)) == b"ok"
            assert len(far.peers) == 1

    run(main)


def test_a_large_answer_over_tls_is_held_back_and_whole(authority: Authority) -> None:
    async def main() -> None:
        body = bytes(range(256)) * (8 * 1024 * 4)
        raw = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        async with (
            far_end(replying(raw), tls=authority.server) as far,
            calling(tls=tls_context(authority.file, None)) as client,
        ):
            exchange = await client.send(call_to(far, body=body), LIMITS)
            await until(lambda: exchange._connection._is_reading_paused)
            assert await exchange.read(len(body)) == body
            await exchange.close()
            assert client._pool.idle_count(far.origin) == 1

    run(main)


def test_the_server_learns_the_host_and_the_only_protocol(authority: Authority) -> None:
    async def main() -> None:
        names: list[str | None] = []
        protocols: list[str | None] = []

        async def script(peer: Peer) -> None:
            await peer.request()
            protocols.append(peer.writer.get_extra_info("ssl_object").selected_alpn_protocol())
            peer.send(OK)

        context = authority.server
        context.set_alpn_protocols(["h2", "http/1.1"])
        context.sni_callback = lambda _, name, __: names.append(name)
        try:
            async with (
                far_end(script, tls=context) as far,
                calling(tls=tls_context(authority.file, None)) as client,
            ):
                origin = Origin("https", "localhost", far.origin.port)
                assert await ask(client, call_to(origin)) == b"ok"
        finally:
            context.sni_callback = None
        assert (names, protocols) == (["localhost"], ["http/1.1"])

    run(main)


def test_an_authority_nobody_vouched_for_is_not_accepted(authority: Authority) -> None:
    async def main() -> None:
        async with far_end(refuse_to_be_called, tls=authority.server) as far, calling() as client:
            for _ in range(2):  # the default context is made at the first call, then kept
                with pytest.raises(ConnectFailed, match=r"certificate.*SSL_CERT_FILE"):
                    await ask(client, call_to(far))

    run(main)


def test_a_certificate_for_another_host_is_not_accepted(authority: Authority) -> None:
    async def main() -> None:
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme = pytest.importorskip("trustme")
        ca = trustme.CA()
        ca.issue_cert("other.test").configure_cert(other)
        trusting = tls_context(authority.file, None)
        ca.configure_trust(trusting)
        async with far_end(refuse_to_be_called, tls=other) as far, calling(tls=trusting) as client:
            with pytest.raises(ConnectFailed, match="certificate"):
                await ask(client, call_to(far))

    run(main)


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 This port speaks plain HTTP\r\n\r\n"])
def test_a_server_without_tls_is_a_failed_connection(words: bytes) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.reader.readexactly(1)
            peer.send(words)
            peer.close()

        async with far_end(script) as far, calling() as client:
            origin = Origin("https", "127.0.0.1", far.origin.port)
            with pytest.raises(ConnectFailed, match=r"No connection to 127\.0\.0\.1"):
                await ask(client, call_to(origin))

    run(main)


def test_a_call_through_a_tunnel(authority: Authority) -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def script(peer: Peer) -> None:
            seen.append(await peer.head())
            peer.send(b"HTTP/1.1 200 Connection established\r\nX-Proxy: 1\r\n\r\n")
            await peer.use_tls(authority.server)
            for _ in range(2):
                seen.append(await peer.request())
                peer.send(OK)

        async with (
            far_end(script) as far,
            calling(through(far, b"Basic dTpw"), tls_context(authority.file, None)) as client,
        ):
            origin = Origin("https", "api.test", 443)
            client.warm(origin, LIMITS)
            for _ in range(2):
                assert await ask(client, call_to(origin, "GET", b"")) == b"ok"
            assert len(far.peers) == 1
        asked = b"GET /v1/x?key=sk-secret HTTP/1.1\r\nHost: api.test\r\n\r\n"
        assert seen == [
            b"CONNECT api.test:443 HTTP/1.1\r\n"
            b"Host: api.test:443\r\nProxy-Authorization: Basic dTpw\r\n\r\n",
            asked,
            asked,
        ]

    run(main)


def test_a_tunnel_to_a_host_with_the_wrong_certificate_is_a_failed_connection(
    authority: Authority,
) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.head()
            peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
            with pytest.raises(OSError):  # noqa: PT011
                await peer.use_tls(authority.server)

        async with (
            far_end(script) as far,
            calling(through(far), tls_context(authority.file, None)) as client,
        ):
            with pytest.raises(
                ConnectFailed, match=r"certificate of other\.test through the proxy"
            ):
                await ask(client, call_to(Origin("https", "other.test", 443)))

    run(main)


def test_a_tunnel_that_closes_before_tls_is_a_failed_connection(authority: Authority) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.head()
            peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
            await peer.reader.readexactly(1)
            peer.close()

        async with (
            far_end(script) as far,
            calling(through(far), tls_context(authority.file, None)) as client,
        ):
            with pytest.raises(ConnectFailed, match=r"api\.test"):
                await ask(client, call_to(Origin("https", "api.test", 443)))

    run(main)


def test_a_proxy_may_itself_be_reached_over_tls(authority: Authority) -> None:
    async def main() -> None:
        async def plain(peer: Peer) -> None:
            assert (await peer.request()).startswith(b"GET http://api.test/v1/x")
            peer.send(OK)

        async with (
            far_end(plain, tls=authority.server) as far,
            calling(through(far), tls_context(authority.file, None)) as client,
        ):
            origin = Origin("http", "api.test", 80)
            assert await ask(client, call_to(origin, "GET", b"")) == b"ok"

    run(main)


def test_tls_within_the_tls_of_a_proxy(authority: Authority) -> None:
    async def main() -> None:
        async def target(peer: Peer) -> None:
            assert b"Host: api.test\r\n" in await peer.request()
            peer.send(OK)

        async def relay(peer: Peer) -> None:
            """What a real proxy does: move bytes between the tunnel and the target."""
            await peer.head()
            reader, writer = await asyncio.open_connection("127.0.0.1", there.origin.port)
            peer.send(b"HTTP/1.1 200 OK\r\n\r\n")

            async def move(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(65536):
                    sink.write(data)

            back = asyncio.ensure_future(move(reader, peer.writer))
            await move(peer.reader, writer)
            writer.close()
            await back

        async with (
            far_end(target, tls=authority.server) as there,
            far_end(relay, tls=authority.server) as far,
            calling(Proxies(https=Proxy(far.origin)), tls_context(authority.file, None)) as client,
        ):
            assert await ask(client, call_to(Origin("https", "api.test", 443))) == b"ok"

    run(main)


def test_the_default_context_trusts_public_authorities_and_checks_names() -> None:
    for given in (None, ""):
        context = tls_context(given, given)
        assert context.cert_store_stats()["x509_ca"] > 50
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED


def test_without_readable_roots_no_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certifi, "where", lambda: "/nowhere/ca.pem")

    async def main() -> None:
        async with far_end(refuse_to_be_called) as far, calling() as client:
            origin = Origin("https", "127.0.0.1", far.origin.port)
            with pytest.raises(ConnectFailed, match="certifi"):
                await ask(client, call_to(origin))

    run(main)


def test_a_directory_of_authorities_can_be_given(tmp_path: Path) -> None:
    context = tls_context(None, str(tmp_path))
    assert context.cert_store_stats()["x509_ca"] == 0  # read when needed, and not certifi's
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("content", [None, "this is no certificate"])
def test_a_file_that_holds_no_certificates_is_a_setting_error(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingError, match=r"ca\.pem.*SSL_CERT_FILE"):
        tls_context(str(path), None)
