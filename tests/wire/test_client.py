"""The client as a transport: what goes out, the pool, the keep-alive race, warming, proxies."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentstate.ground.errors import ConnectFailed, UpstreamCut, UpstreamTimeout
from agentstate.ground.settings import ForwardSettings
from agentstate.wire.client import FRESH_S, HTTPClient
from agentstate.wire.message import Origin, TimeLimits, Transport
from tests.wire.far import (
    BIG,
    BODY_MAX,
    CHUNKED,
    EVENTS,
    LIMITS,
    OK,
    SHORT_S,
    Peer,
    Script,
    answer,
    ask,
    call_to,
    calling,
    chunked,
    far_end,
    refuse_to_be_called,
    replying,
    run,
    sized,
    then_close,
    through,
    until,
    until_left,
    wait,
)


def test_it_is_a_transport() -> None:
    made: Transport = HTTPClient(ForwardSettings())
    assert all(hasattr(made, name) for name in ("warm", "send", "close"))


# -- what goes out


def test_a_call_goes_out_byte_for_byte() -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def script(peer: Peer) -> None:
            seen.append(await peer.request())
            peer.send(OK)

        async with far_end(script) as far, calling() as client:
            headers = ((b"Authorization", b"Bearer k"), (b"x-B", b"1"), (b"x-a", b"\xc3\xa9"))
            assert await ask(client, call_to(far, body=b'{"a":1}', headers=headers)) == b"ok"
        assert seen == [
            b"POST /v1/x?key=sk-secret HTTP/1.1\r\n"
            b"Host: 127.0.0.1:%d\r\n"
            % far.origin.port
            + b"Authorization: Bearer k\r\nx-B: 1\r\nx-a: \xc3\xa9\r\n"
            b'Content-Length: 7\r\n\r\n{"a":1}'
        ]

    run(main)


def test_a_body_of_unknown_length_goes_out_in_chunks() -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def script(peer: Peer) -> None:
            seen.append((await peer.request()).partition(b"\r\n\r\n")[2])
            peer.send(OK)
            seen.append((await peer.request()).partition(b"\r\n\r\n")[2])
            peer.send(OK)

        async with far_end(script) as far, calling() as client:
            body = Pieces([b"one", b"", b"three"])
            assert await ask(client, call_to(far, body=body)) == b"ok"
            assert await ask(client, call_to(far)) == b"ok"  # on the same connection
            assert len(far.peers) == 1
        assert seen == [chunked(b"one", b"three"), b"{}"]

    run(main)


class Pieces:
    """A body that is an iterator and no generator: it has no `aclose`."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        piece = next(self._pieces, None)
        if piece is None:
            raise StopAsyncIteration
        return piece


def test_a_large_body_arrives_whole() -> None:
    async def main() -> None:
        body = bytes(range(256)) * (BIG // 256)
        seen: list[bool] = []

        async def script(peer: Peer) -> None:
            seen.append((await peer.request()).endswith(b"\r\n\r\n" + body))
            peer.send(OK)

        async with far_end(script) as far, calling() as client:
            assert await ask(client, call_to(far, body=body)) == b"ok"
        assert seen == [True]

    run(main)


# -- the pool


def test_calls_one_after_the_other_share_a_connection() -> None:
    async def main() -> None:
        async with far_end(replying(*[OK] * 5)) as far, calling() as client:
            for _ in range(5):
                assert await ask(client, call_to(far)) == b"ok"
            assert len(far.peers) == 1

    run(main)


def test_a_silent_connection_is_probed() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            assert exchange._connection.transport is not None
            sock = exchange._connection.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
            await exchange.close()

    run(main)


def test_calls_at_once_have_a_connection_each_and_leave_them_for_later_ones() -> None:
    async def main() -> None:
        async with far_end(replying(OK, OK, OK)) as far, calling() as client:
            for _ in range(3):
                exchanges = [await client.send(call_to(far), LIMITS) for _ in range(3)]
                for exchange in exchanges:
                    await exchange.read(BODY_MAX)
                    await exchange.close()
            assert len(far.peers) == 3

    run(main)


def test_over_the_maximum_idle_connections_are_closed() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling(pool_max=1) as client:
            exchanges = [await client.send(call_to(far), LIMITS) for _ in range(3)]
            for exchange in exchanges:
                await exchange.read(BODY_MAX)
                await exchange.close()
            await until(lambda: far.ended == 2)
            assert client._pool.idle_count(far.origin) == 1

    run(main)


def test_an_idle_connection_is_closed_after_its_time() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling(pool_idle_s=SHORT_S) as client:
            await ask(client, call_to(far))
            await until(lambda: far.ended == 1)

    run(main)


def test_what_the_peer_says_of_its_idle_time_is_kept() -> None:
    async def main() -> None:
        raw = sized(b"ok", b"Keep-Alive: timeout=1")
        async with far_end(replying(raw)) as far, calling() as client:
            for _ in range(2):
                await ask(client, call_to(far))
            assert len(far.peers) == 2

    run(main)


@pytest.mark.parametrize("last_words", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_an_idle_connection_that_the_peer_ends_is_dropped_at_once(last_words: bytes) -> None:
    async def main() -> None:
        idle = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(OK)
            await idle.wait()
            if last_words:
                peer.send(last_words)
            else:
                peer.close()

        async with far_end(script, replying(OK)) as far, calling() as client:
            await ask(client, call_to(far))
            assert client._pool.idle_count(far.origin) == 1
            idle.set()
            await until(lambda: client._pool.idle_count(far.origin) == 0)
            await until(lambda: far.ended == 1)
            assert await ask(client, call_to(far)) == b"ok"
            assert len(far.peers) == 2

    run(main)


def test_an_idle_connection_that_has_just_ended_is_not_taken() -> None:
    async def main() -> None:
        async with far_end(then_close(OK), replying(OK)) as far, calling() as client:
            await ask(client, call_to(far))
            await until(lambda: any(each.is_over for each in client._open))
            assert client._pool.idle_count(far.origin) == 1  # asyncio has not let go of it yet
            assert await ask(client, call_to(far, body=Pieces([b"used up"]))) == b"ok"
            assert len(far.peers) == 2

    run(main)


@pytest.mark.parametrize(
    "raw",
    [
        sized(b"ok", b"Connection: close"),
        sized(b"ok").replace(b"1.1", b"1.0"),
        sized(b"ok") + b"x",
        sized(b"ok") + sized(b"no"),
    ],
)
def test_a_connection_that_cannot_be_kept_is_closed(raw: bytes) -> None:
    async def main() -> None:
        async with far_end(replying(raw)) as far, calling() as client:
            for n in range(1, 4):
                assert await ask(client, call_to(far)) == b"ok"
                await until(lambda n=n: far.ended == n)  # type: ignore[misc]
            assert len(far.peers) == 3

    run(main)


def test_an_answer_not_read_to_its_end_closes_the_connection() -> None:
    async def main() -> None:
        raw = answer(chunked(*EVENTS), CHUNKED)
        async with far_end(replying(raw)) as far, calling() as client:
            for _ in range(2):
                exchange = await client.send(call_to(far), LIMITS)
                assert await anext(exchange.chunks()) == EVENTS[0]
                await exchange.close()
            assert len(far.peers) == 2

    run(main)


def test_who_stops_at_the_last_event_keeps_the_connection() -> None:
    async def main() -> None:
        raw = answer(chunked(*EVENTS), CHUNKED)
        async with far_end(replying(raw, raw)) as far, calling() as client:
            for _ in range(2):
                exchange = await client.send(call_to(far), LIMITS)
                chunks = exchange.chunks()
                for event in EVENTS:
                    assert await anext(chunks) == event
                await exchange.close()
            assert len(far.peers) == 1

    run(main)


def test_who_stops_before_damage_closes_the_connection() -> None:
    async def main() -> None:
        raw = answer(chunked(EVENTS[0])[:-5] + b"zz\r\n", CHUNKED)
        async with far_end(replying(raw)) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            assert await anext(exchange.chunks()) == EVENTS[0]
            await exchange.close()
            assert client._pool.idle_count(far.origin) == 0

    run(main)


def test_closing_twice_is_closing_once() -> None:
    async def main() -> None:
        async with far_end(replying(OK, OK, OK)) as far, calling() as client:
            first = await client.send(call_to(far), LIMITS)
            await first.read(BODY_MAX)
            await first.close()
            second = await client.send(call_to(far), LIMITS)
            await first.close()  # must not touch what the second one now uses
            assert await second.read(BODY_MAX) == b"ok"
            await second.close()
            assert await ask(client, call_to(far)) == b"ok"
            assert len(far.peers) == 1

    run(main)


def test_reading_after_close_is_no_end() -> None:
    async def main() -> None:
        raw = answer(chunked(*EVENTS), CHUNKED)
        async with far_end(replying(raw)) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            await exchange.close()
            with pytest.raises(UpstreamCut, match="closed from this side"):
                await exchange.read(BODY_MAX)

    run(main)


# -- the keep-alive race


def closing_on_the_second(is_reset: bool, seen: list[bytes], last_words: bytes = b"") -> Script:
    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        peer.send(OK)
        seen.append(await peer.head())
        peer.send(last_words)
        if is_reset:
            peer.reset()
        else:
            peer.close()

    return script


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_stale_connection_is_replaced_and_the_call_sent_again(is_reset: bool) -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def fresh(peer: Peer) -> None:
            seen.append(await peer.request())
            peer.send(sized(b"second"))

        script = closing_on_the_second(is_reset, seen)
        async with far_end(script, fresh) as far, calling() as client:
            assert await ask(client, call_to(far)) == b"ok"
            assert await ask(client, call_to(far)) == b"second"
            assert len(far.peers) == 2
        assert seen[0] == seen[2]
        assert seen[2].startswith(seen[1])

    run(main)


@pytest.mark.parametrize("is_reset", [False, True])
def test_the_replacement_is_not_replaced(is_reset: bool) -> None:
    async def main() -> None:
        async def broken(peer: Peer) -> None:
            await peer.request()
            if is_reset:
                peer.reset()
            else:
                peer.close()

        script = closing_on_the_second(is_reset, [])
        async with far_end(script, broken, refuse_to_be_called) as far, calling() as client:
            await ask(client, call_to(far))
            with pytest.raises(UpstreamCut):
                await ask(client, call_to(far))
            assert len(far.peers) == 2

    run(main)


def test_a_fresh_connection_that_ends_is_not_replaced() -> None:
    async def main() -> None:
        async with far_end(then_close(b""), refuse_to_be_called) as far, calling() as client:
            with pytest.raises(UpstreamCut):
                await ask(client, call_to(far))

    run(main)


def test_after_one_byte_of_an_answer_nothing_is_sent_again() -> None:
    async def main() -> None:
        script = closing_on_the_second(False, [], last_words=b"H")
        async with far_end(script, refuse_to_be_called) as far, calling() as client:
            await ask(client, call_to(far))
            with pytest.raises(UpstreamCut):
                await ask(client, call_to(far))

    run(main)


def test_a_body_that_is_used_up_is_not_sent_again() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"once"

    async def main() -> None:
        script = closing_on_the_second(False, [])
        async with far_end(script, refuse_to_be_called) as far, calling() as client:
            await ask(client, call_to(far))
            with pytest.raises(UpstreamCut):
                await ask(client, call_to(far, body=body()))

    run(main)


# -- warming


def test_a_warmed_connection_is_the_one_that_is_used() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling() as client:
            client.warm(far.origin, LIMITS)
            await until(lambda: client._pool.idle_count(far.origin) == 1)
            client.warm(far.origin, LIMITS)  # one is idle: nothing to do
            assert await ask(client, call_to(far)) == b"ok"
            assert len(far.peers) == 1

    run(main)


def test_a_connection_still_being_made_is_waited_for() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling() as client:
            client.warm(far.origin, LIMITS)
            client.warm(far.origin, LIMITS)
            answers = await asyncio.gather(*(ask(client, call_to(far)) for _ in range(2)))
            assert answers == [b"ok", b"ok"]
            assert len(far.peers) == 2
            assert client._coming == {}

    run(main)


def test_a_warmed_connection_that_went_stale_is_replaced() -> None:
    async def main() -> None:
        async with far_end(then_close(b""), replying(OK)) as far, calling() as client:
            client.warm(far.origin, LIMITS)
            await until(lambda: client._pool.idle_count(far.origin) == 1)
            for connection in client._open:
                connection._made_s -= 2 * FRESH_S  # it waited in the pool
            assert await ask(client, call_to(far)) == b"ok"

    run(main)


def test_a_call_on_a_connection_that_was_just_made_is_sent_once() -> None:
    """Who ends it has read the request: another one may be paid for twice."""

    async def main() -> None:
        async with far_end(then_close(b""), replying(OK)) as far, calling() as client:
            client.warm(far.origin, LIMITS)
            await until(lambda: client._pool.idle_count(far.origin) == 1)
            with pytest.raises(UpstreamCut):
                await ask(client, call_to(far))

    run(main)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_warming_that_fails_is_told_by_the_next_call_only() -> None:
    async def main() -> None:
        origin = Origin("http", "127.0.0.1", free_port())
        async with calling() as client:
            client.warm(origin, LIMITS)
            await until(lambda: not client._tasks)
            for _ in range(2):  # nothing waits, then one that fails is waited for
                with pytest.raises(ConnectFailed, match=f"127.0.0.1:{origin.port}") as caught:
                    await ask(client, call_to(origin))
                assert "secret" not in caught.value.message
                client.warm(origin, LIMITS)

    run(main)


def test_a_call_cancelled_while_its_connection_is_made_leaves_the_connection_idle() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling() as client:
            client.warm(far.origin, LIMITS)
            call = asyncio.ensure_future(ask(client, call_to(far)))
            await until(lambda: not client._coming)
            call.cancel()
            await until(lambda: client._pool.idle_count(far.origin) == 1)
            assert call.cancelled()
            assert await ask(client, call_to(far)) == b"ok"
            assert len(far.peers) == 1

    run(main)


def test_a_call_cancelled_just_when_its_connection_came_leaves_the_connection_idle() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling() as client:
            arrived = client._arrived

            def arrive_and_cancel(*arguments: Any) -> None:
                arrived(*arguments)
                call.cancel()

            client._arrived = arrive_and_cancel  # type: ignore[method-assign]
            client.warm(far.origin, LIMITS)
            call = asyncio.ensure_future(ask(client, call_to(far)))
            await until(call.done)
            assert call.cancelled()
            assert client._pool.idle_count(far.origin) == 1
            assert await ask(client, call_to(far)) == b"ok"
            assert len(far.peers) == 1

    run(main)


def test_as_many_connections_are_warmed_as_are_kept() -> None:
    async def main() -> None:
        async with far_end(wait) as far, calling(pool_max=2) as client:
            for _ in range(5):
                client.warm(far.origin, LIMITS)
            await until(lambda: client._pool.idle_count(far.origin) == 2)
            await until(lambda: not client._tasks)

    run(main)


# -- ends


@pytest.mark.parametrize("stage", ["handshake", "head", "body", "upload"])
def test_cancelling_a_call_at_any_stage_closes_its_socket(stage: str) -> None:
    async def main() -> None:
        reached = asyncio.Event()

        async def script(peer: Peer) -> None:
            if stage == "handshake":
                await peer.reader.readexactly(1)
            else:
                await peer.head()
            if stage == "body":
                peer.send(answer(chunked(EVENTS[0])[:-5], CHUNKED))
            reached.set()

        async def body() -> AsyncIterator[bytes]:
            yield b"one"
            await asyncio.Event().wait()

        async with far_end(script) as far, calling(tls=ssl.create_default_context()) as client:
            scheme = "https" if stage == "handshake" else "http"
            origin = Origin(scheme, far.origin.host, far.origin.port)
            call = call_to(origin, body=body() if stage == "upload" else b"{}")
            asking = asyncio.ensure_future(ask(client, call))
            await reached.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await until(lambda: far.ended == 1)

    run(main)


def test_closing_the_client_ends_what_is_in_flight() -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(answer(chunked(EVENTS[0])[:-5], CHUNKED))

        async with far_end(script) as far:
            client = HTTPClient(ForwardSettings())
            exchange = await client.send(call_to(far), LIMITS)
            reading = asyncio.ensure_future(exchange.read(BODY_MAX))
            await until(lambda: exchange._connection._waiter is not None)
            client.warm(far.origin, LIMITS)
            await client.close()
            with pytest.raises(UpstreamCut):
                await reading
            await exchange.close()
            client.warm(far.origin, LIMITS)
            with pytest.raises(ConnectFailed, match="closed"):
                await client.send(call_to(far), LIMITS)
            await client.close()

    run(main)


def test_closing_the_client_ends_the_connections_being_warmed() -> None:
    async def main() -> None:
        reached = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.reader.readexactly(1)
            reached.set()

        async with far_end(script) as far:
            client = HTTPClient(ForwardSettings(), tls=ssl.create_default_context())
            client.warm(Origin("https", far.origin.host, far.origin.port), LIMITS)
            await reached.wait()
            await client.close()
            await until(lambda: far.ended == 1)
            assert not client._tasks

    run(main)


def test_a_connection_made_after_the_client_was_closed_is_closed() -> None:
    async def main() -> None:
        async with far_end(wait) as far:
            client = HTTPClient(ForwardSettings())
            asking = asyncio.ensure_future(ask(client, call_to(far)))
            await asyncio.sleep(0)  # it has begun to connect
            await client.close()
            with pytest.raises(ConnectFailed, match="closed while"):
                await asking

    run(main)


def test_a_warmed_connection_nobody_wants_after_the_client_was_closed_is_closed() -> None:
    async def main() -> None:
        async with far_end(wait) as far:
            client = HTTPClient(ForwardSettings())
            client.warm(far.origin, LIMITS)
            asking = asyncio.ensure_future(ask(client, call_to(far)))
            await until(lambda: not client._coming)
            asking.cancel()
            await client.close()
            assert asking.cancelled()
            assert not client._open

    run(main)


def test_a_pooled_connection_ended_by_closing_the_client_is_not_replaced() -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(OK)
            await peer.request()
            asked.set()

        async with far_end(script, refuse_to_be_called) as far:
            client = HTTPClient(ForwardSettings())
            await ask(client, call_to(far))
            asking = asyncio.ensure_future(ask(client, call_to(far)))
            await asked.wait()
            await client.close()
            with pytest.raises(UpstreamCut):
                await asking

    run(main)


@pytest.mark.parametrize("origin", [Origin("ftp", "a.test", 21), Origin("http", "a..test", 80)])
def test_an_origin_that_is_none_cannot_be_connected_to(origin: Origin) -> None:
    async def main() -> None:
        async with calling() as client:
            client.warm(origin, LIMITS)
            with pytest.raises(ConnectFailed, match=r"a\.\.?test"):
                await ask(client, call_to(origin))

    run(main)


# -- proxies (with TLS inside: test_client_tls.py)


def test_plain_calls_through_a_proxy_share_its_connection() -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def script(peer: Peer) -> None:
            for _ in range(2):
                seen.append(await peer.request())
                peer.send(OK)

        async with far_end(script) as far, calling(through(far, b"Basic dTpw")) as client:
            client.warm(Origin("http", "a.test", 80), LIMITS)
            for host, port in (("a.test", 80), ("b.test", 8080)):
                assert await ask(client, call_to(Origin("http", host, port), "GET", b"")) == b"ok"
            assert len(far.peers) == 1
        assert seen == [
            b"GET http://a.test/v1/x?key=sk-secret HTTP/1.1\r\n"
            b"Host: a.test\r\nProxy-Authorization: Basic dTpw\r\n\r\n",
            b"GET http://b.test:8080/v1/x?key=sk-secret HTTP/1.1\r\n"
            b"Host: b.test:8080\r\nProxy-Authorization: Basic dTpw\r\n\r\n",
        ]

    run(main)


def test_loopback_is_called_without_the_proxy() -> None:
    async def main() -> None:
        async with (
            far_end(refuse_to_be_called) as proxy,
            far_end(replying(OK)) as far,
            calling(through(proxy)) as client,
        ):
            assert await ask(client, call_to(far)) == b"ok"

    run(main)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (answer(b"", status=b"HTTP/1.1 407 Who"), "user name"),
        (sized(b"no").replace(b"200 OK", b"403 No"), "status 403"),
        (b"not http\r\n\r\n", "did not speak HTTP"),
        (b"", "closed the connection"),
        (answer(b"x", status=b"HTTP/1.1 200 OK"), "before the tunnel was used"),
    ],
)
def test_a_proxy_that_opens_no_tunnel_is_a_failed_connection(reply: bytes, expected: str) -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def script(peer: Peer) -> None:
            seen.append(await peer.head())
            peer.send(reply)
            peer.close()

        async with far_end(script) as far, calling(through(far, b"Basic dTpw")) as client:
            with pytest.raises(ConnectFailed, match=expected) as caught:
                await ask(client, call_to(Origin("https", "api.test", 443)))
            assert "api.test" in caught.value.message or "127.0.0.1" in caught.value.message
            assert "dTpw" not in caught.value.message
        assert seen == [
            b"CONNECT api.test:443 HTTP/1.1\r\n"
            b"Host: api.test:443\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
        ]

    run(main)


def test_a_proxy_that_says_nothing_passes_the_connect_limit() -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.head()

        async with far_end(until_left(script)) as far, calling(through(far)) as client:
            await client._tls_context()  # so that the limit is the proxy's alone
            call = call_to(Origin("https", "api.test", 443))
            with pytest.raises(UpstreamTimeout) as caught:
                await ask(client, call, TimeLimits(SHORT_S, 20, 20, 60))
            assert caught.value.limit == "connect"

    run(main)
