"""Answers, time limits and uploads: the client against scripted servers on loopback.

A limit that a test lets pass is some ten milliseconds; all others are far away.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import cast

import h11
import pytest

from agentstate.ground.errors import RequestTimeout, UpstreamCut, UpstreamProtocol, UpstreamTimeout
from agentstate.wire.coding import PIECE_BYTES_MAX
from agentstate.wire.exchange import HTTPExchange, Watch, read_response_head
from agentstate.wire.message import Exchange, Origin, TimeLimits
from agentstate.wire.upstream import Connection
from tests.wire.far import (
    BIG,
    BODY_MAX,
    CHUNKED,
    EVENTS,
    GZIP,
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
    replying,
    run,
    sized,
    then_close,
    until,
    until_left,
)


def test_it_is_an_exchange() -> None:
    made: type[Exchange] = HTTPExchange
    assert all(hasattr(made, name) for name in ("chunks", "read", "close"))


# -- what comes back


ANSWERS = {
    "length": sized(b"".join(EVENTS)),
    "chunked": answer(chunked(*EVENTS), CHUNKED),
    "chunked with trailers and extensions": answer(
        b"3;x=1\r\n%s\r\n" % EVENTS[0][:3]
        + chunked(EVENTS[0][3:], *EVENTS[1:])[:-2]
        + b"X-Trailer: 1\r\n\r\n",
        CHUNKED,
    ),
    "chunked beside a length": answer(chunked(*EVENTS), b"Content-Length: 3", CHUNKED),
    "until close": answer(b"".join(EVENTS)),
    "until close, HTTP/1.0": answer(b"".join(EVENTS), status=b"HTTP/1.0 200 OK"),
    "no reason phrase": sized(b"".join(EVENTS)).replace(b" OK", b""),
    "gzip": sized(gzip.compress(b"".join(EVENTS)), GZIP),
    "gzip chunked": answer(chunked(gzip.compress(b"".join(EVENTS))), GZIP, CHUNKED),
    "gzip of two members until close": answer(
        gzip.compress(EVENTS[0]) + gzip.compress(b"".join(EVENTS[1:])), GZIP
    ),
    "deflate": sized(zlib.compress(b"".join(EVENTS)), b"Content-Encoding: deflate"),
    "after 1xx": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + sized(b"".join(EVENTS)),
}
every_answer = pytest.mark.parametrize("raw", ANSWERS.values(), ids=ANSWERS.keys())


@every_answer
@pytest.mark.parametrize("is_slow", [False, True], ids=["whole", "byte by byte"])
def test_an_answer_is_read_however_it_is_cut(raw: bytes, is_slow: bool) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            if is_slow:
                await peer.send_slowly(raw)
            else:
                peer.send(raw)
            peer.close()

        async with far_end(script) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            assert exchange.status == 200
            assert not {name.lower() for name, _ in exchange.headers} & {
                b"transfer-encoding",
                b"content-encoding",
                b"link",
            }
            assert await exchange.read(BODY_MAX) == b"".join(EVENTS)
            await exchange.close()

    run(main)


@pytest.mark.parametrize("kind", ["length", "chunked", "gzip", "gzip chunked", "after 1xx"])
def test_an_answer_that_stops_anywhere_is_cut(kind: str) -> None:
    raw = ANSWERS[kind]

    async def main() -> None:
        cuts = iter(range(1, len(raw)))

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(raw[: next(cuts)])
            peer.close()

        async with far_end(script) as far, calling() as client:
            for cut in range(1, len(raw)):
                with pytest.raises(UpstreamCut) as caught:
                    await ask(client, call_to(far))
                assert "127.0.0.1" in caught.value.message, cut

    run(main)


def test_gzip_until_close_that_stops_anywhere_is_cut() -> None:
    raw = gzip.compress(b"".join(EVENTS))

    async def main() -> None:
        for cut in range(1, len(raw), 7):
            async with (
                far_end(then_close(answer(raw[:cut], GZIP))) as far,
                calling() as client,
            ):
                with pytest.raises(UpstreamCut):
                    await ask(client, call_to(far))

    run(main)


def test_what_came_before_the_cut_is_delivered_first() -> None:
    async def main() -> None:
        raw = answer(chunked(*EVENTS)[:-5], CHUNKED)
        async with far_end(then_close(raw)) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            seen: list[bytes] = []

            async def read() -> None:
                async for piece in exchange.chunks():
                    seen.append(piece)

            for _ in range(2):  # an end that was none stays none
                with pytest.raises(UpstreamCut):
                    await read()
            await exchange.close()
            assert seen == EVENTS

    run(main)


def test_a_reset_is_no_end_even_where_the_end_is_the_close() -> None:
    async def main() -> None:
        got_first = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(answer(EVENTS[0]))
            await got_first.wait()
            peer.reset()

        async with far_end(script) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            chunks = exchange.chunks()
            assert await anext(chunks) == EVENTS[0]
            got_first.set()
            with pytest.raises(UpstreamCut, match="broke"):
                await anext(chunks)
            await exchange.close()

    run(main)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",  # what a TLS server says to plain HTTP
        answer(b"zz\r\nsecret", CHUNKED),
        answer(b"3\r\nabcdef\r\n0\r\n\r\n", CHUNKED),
        answer(b"", b"Content-Length: 1", b"Content-Length: 2"),
        answer(b"", b"Transfer-Encoding: gzip, chunked"),
        answer(b"", b"secret without a colon"),
        answer(b"", b"X: " + b"x" * 70_000)[:-4],
        answer(b"", status=b"HTTP/1.1 101 Switching Protocols"),
        sized(b"this is not gzip", GZIP),
        sized(gzip.compress(b"x" * 99)[:-8] + bytes(8), GZIP),
        sized(gzip.compress(b"x") + b"tail", GZIP),
    ],
)
def test_what_is_not_http_or_cannot_be_decoded_is_a_protocol_error(raw: bytes) -> None:
    async def main() -> None:
        async with far_end(then_close(raw)) as far, calling() as client:
            with pytest.raises(UpstreamProtocol) as caught:
                await ask(client, call_to(far))
            assert "127.0.0.1" in caught.value.message
            assert "secret" not in caught.value.message

    run(main)


def test_a_large_response_head_is_read() -> None:
    async def main() -> None:
        value = b"x" * 60_000
        async with far_end(replying(sized(b"ok", b"X: " + value))) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            assert exchange.headers.get(b"x") == value
            await exchange.close()

    run(main)


@pytest.mark.parametrize(
    ("method", "raw", "length"),
    [
        ("HEAD", answer(b"", b"Content-Length: 500", GZIP), b"500"),
        ("GET", answer(b"", b"X: 1", status=b"HTTP/1.1 204 No Content"), None),
        ("GET", answer(b"", b"Content-Length: 500", status=b"HTTP/1.1 304 Not Modified"), b"500"),
        ("POST", sized(b""), b"0"),
        ("POST", answer(chunked(), CHUNKED), None),
        ("POST", sized(b"", GZIP), None),
    ],
)
def test_an_answer_without_body_leaves_the_connection_ready(
    method: str, raw: bytes, length: bytes | None
) -> None:
    async def main() -> None:
        async with far_end(replying(raw, raw)) as far, calling() as client:
            for _ in range(2):
                exchange = await client.send(call_to(far, method, b""), LIMITS)
                assert exchange.headers.get(b"content-length") == length
                assert await exchange.read(0) == b""
                await exchange.close()
            assert len(far.peers) == 1

    run(main)


def test_a_coding_that_cannot_be_undone_passes_as_it_is() -> None:
    async def main() -> None:
        raw = sized(b"\x8b\x02\x80ok", b"Content-Encoding: br")
        async with far_end(replying(raw)) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            assert exchange.headers.get(b"content-encoding") == b"br"
            assert exchange.headers.get(b"content-length") == b"5"
            assert await exchange.read(BODY_MAX) == b"\x8b\x02\x80ok"
            await exchange.close()

    run(main)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_each_event_arrives_before_the_next_is_sent(is_compressed: bool) -> None:
    async def main() -> None:
        taken = asyncio.Event()
        deflater = zlib.compressobj(wbits=31)

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(answer(b"", CHUNKED, *([GZIP] if is_compressed else [])))
            for event in EVENTS:
                raw = event
                if is_compressed:
                    raw = deflater.compress(event) + deflater.flush(zlib.Z_SYNC_FLUSH)
                peer.send(chunked(raw)[:-5])
                await taken.wait()
                taken.clear()
            peer.send(chunked(deflater.flush()) if is_compressed else chunked())

        async with far_end(script) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            seen: list[bytes] = []
            async for piece in exchange.chunks():
                seen.append(piece)
                taken.set()
            await exchange.close()
            assert seen == EVENTS

    run(main)


def test_chunks_in_are_chunks_out() -> None:
    async def main() -> None:
        raw = answer(chunked(*EVENTS), CHUNKED)
        async with far_end(replying(raw)) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            assert [piece async for piece in exchange.chunks()] == EVENTS
            await exchange.close()

    run(main)


def test_a_consumer_that_lags_stops_the_reading_and_loses_nothing() -> None:
    async def main() -> None:
        body = bytes(range(256)) * (BIG // 256)
        async with far_end(replying(sized(body))) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            await until(lambda: exchange._connection._is_reading_paused)
            assert await exchange.read(BODY_MAX) == body
            await exchange.close()
            assert client._pool.idle_count(far.origin) == 1

    run(main)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_an_answer_over_the_limit_is_given_up(is_compressed: bool) -> None:
    async def main() -> None:
        body = bytes(BIG)
        raw = sized(gzip.compress(body), GZIP) if is_compressed else sized(body)
        async with far_end(replying(raw)) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            with pytest.raises(UpstreamProtocol, match="over the limit of 1000 bytes"):
                await exchange.read(1000)
            await exchange.close()

    run(main)


def test_a_bomb_comes_in_bounded_pieces_between_which_others_run() -> None:
    async def main() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        raw = sized(gzip.compress(bytes(BIG)), GZIP)
        async with far_end(replying(raw)) as far, calling() as client:
            exchange = await client.send(call_to(far), LIMITS)
            other = asyncio.ensure_future(others())
            sizes = [len(piece) async for piece in exchange.chunks()]
            other.cancel()
            await exchange.close()
        assert sum(sizes) == BIG
        assert max(sizes) <= PIECE_BYTES_MAX
        assert turns >= BIG // PIECE_BYTES_MAX // 2

    run(main)


def test_a_large_decoded_answer_is_read_whole() -> None:
    async def main() -> None:
        raw = sized(gzip.compress(bytes(BIG)), GZIP)
        async with far_end(replying(raw)) as far, calling() as client:
            assert await ask(client, call_to(far)) == bytes(BIG)

    run(main)


# -- time limits


async def silence(peer: Peer) -> None:
    await peer.request()


async def no_handshake(peer: Peer) -> None:
    await peer.reader.readexactly(1)


async def stop_in_the_middle(peer: Peer) -> None:
    await peer.request()
    peer.send(answer(chunked(EVENTS[0])[:-5], CHUNKED))


async def trickle(peer: Peer) -> None:
    await peer.request()
    peer.send(answer(b"", CHUNKED))
    while not peer.writer.is_closing():
        peer.send(chunked(EVENTS[0])[:-5])
        await asyncio.sleep(SHORT_S / 30)


async def interim_forever(peer: Peer) -> None:
    await peer.request()
    while not peer.writer.is_closing():
        peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await asyncio.sleep(SHORT_S / 30)


@pytest.mark.parametrize(
    ("limit", "script", "limits"),
    [
        ("connect", no_handshake, TimeLimits(SHORT_S, 20, 20, 60)),
        ("total", no_handshake, TimeLimits(20, 20, 20, SHORT_S)),
        ("first_byte", silence, TimeLimits(20, SHORT_S, 20, 60)),
        ("first_byte", interim_forever, TimeLimits(20, SHORT_S, 20, 60)),
        ("total", silence, TimeLimits(20, 20, 20, SHORT_S)),
        ("gap", stop_in_the_middle, TimeLimits(20, 20, SHORT_S, 60)),
        ("total", stop_in_the_middle, TimeLimits(20, 20, 20, SHORT_S)),
        ("total", trickle, TimeLimits(20, 20, 20, SHORT_S)),
        ("total", silence, TimeLimits(0, 0, 0, SHORT_S)),
    ],
)
def test_each_limit_passes_by_its_own_name(limit: str, script: Script, limits: TimeLimits) -> None:
    async def main() -> None:
        tls = ssl.create_default_context()
        async with far_end(until_left(script)) as far, calling(tls=tls) as client:
            scheme = "https" if script is no_handshake else "http"
            origin = Origin(scheme, far.origin.host, far.origin.port)
            with pytest.raises(UpstreamTimeout) as caught:
                await ask(client, call_to(origin), limits)
        assert caught.value.limit == limit
        assert f"127.0.0.1:{far.origin.port}" in caught.value.message
        assert f"forward.{limit}_timeout_s" in caught.value.message
        assert "secret" not in caught.value.message

    run(main)


@pytest.mark.parametrize("is_iterator", [False, True])
def test_a_peer_that_does_not_read_the_request_is_given_up(is_iterator: bool) -> None:
    async def main() -> None:
        made = 0
        given_up = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            nonlocal made
            for _ in range(64):
                made += 1
                yield bytes(BIG // 8)

        async def script(peer: Peer) -> None:
            await peer.head()
            await given_up.wait()

        async with far_end(until_left(script)) as far, calling() as client:
            call = call_to(far, body=body() if is_iterator else bytes(4 * BIG))
            with pytest.raises(UpstreamTimeout) as caught:
                await ask(client, call, TimeLimits(20, 20, SHORT_S, 60))
            given_up.set()
        assert caught.value.limit == "gap"
        assert made < 64  # the upload has waited for the peer

    run(main)


def test_no_limit_means_none() -> None:
    async def main() -> None:
        async with far_end(replying(OK)) as far, calling() as client:
            assert await ask(client, call_to(far), TimeLimits(0, 0, 0, 0)) == b"ok"

    run(main)


class Staged:
    """A connection of which only the waits matter: each takes one (unsent bytes, has changed)."""

    def __init__(self, stages: Iterator[tuple[int, bool]], **state: bool) -> None:
        self.is_writing_paused = state.get("is_writing_paused", False)
        self.is_uploading = state.get("is_uploading", False)
        self.waits_s: list[float] = []
        self._stages = stages
        self._unsent = 1000
        self._has_ended = False

    def unsent_bytes(self) -> int:
        return self._unsent

    def next_event(self) -> h11.Response | None:
        return h11.Response(status_code=200, headers=[]) if self._has_ended else None

    async def changed(self, until_s: float) -> bool:
        self.waits_s.append(until_s - asyncio.get_running_loop().time())
        stage = next(self._stages, None)
        if stage is None:
            self._has_ended = True
            return True
        self._unsent, has_changed = stage
        return has_changed


def test_a_slow_upload_that_moves_is_not_given_up_and_one_that_stands_is() -> None:
    async def main() -> None:
        watch = Watch("here.test", TimeLimits(20, 30, 40, 60))
        moving = Staged(iter([(900, False), (800, False)]), is_writing_paused=True)
        head = await read_response_head(cast(Connection, moving), watch)
        assert head.status_code == 200
        standing = Staged(iter([(900, False), (900, False)]), is_writing_paused=True)
        with pytest.raises(UpstreamTimeout, match=r"40 s"):
            await read_response_head(cast(Connection, standing), watch)

    run(main)


def test_the_first_byte_is_waited_for_from_the_end_of_the_request() -> None:
    async def main() -> None:
        watch = Watch("here.test", TimeLimits(20, 30, 40, 60))
        sending = Staged(iter([]), is_uploading=True)
        await read_response_head(cast(Connection, sending), watch)
        assert sending.waits_s == [pytest.approx(60, abs=1)]
        sent = Staged(iter([(0, True)]))
        await read_response_head(cast(Connection, sent), watch)
        assert sent.waits_s == [pytest.approx(30, abs=1)] * 2

    run(main)


# -- uploads


def test_an_early_refusal_stops_the_upload_and_is_delivered() -> None:
    async def main() -> None:
        has_ended = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await asyncio.Event().wait()  # our own client has more and sends it later
            finally:
                has_ended.set()

        async def script(peer: Peer) -> None:
            await peer.head()
            peer.send(answer(b"too large", b"Content-Length: 9", status=b"HTTP/1.1 413 Large"))

        async with far_end(script) as far, calling() as client:
            exchange = await client.send(call_to(far, body=body()), LIMITS)
            assert exchange.status == 413
            assert await exchange.read(BODY_MAX) == b"too large"
            await exchange.close()
            assert has_ended.is_set()
            assert client._pool.idle_count(far.origin) == 0

    run(main)


def test_an_early_refusal_of_a_large_body_is_delivered() -> None:
    async def main() -> None:
        refused = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.head()
            peer.send(answer(b"too large", b"Content-Length: 9", status=b"HTTP/1.1 413 Large"))
            await refused.wait()

        async with far_end(script) as far, calling() as client:
            exchange = await client.send(call_to(far, body=bytes(4 * BIG)), LIMITS)
            assert exchange.status == 413
            assert await exchange.read(BODY_MAX) == b"too large"
            await exchange.close()
            assert client._pool.idle_count(far.origin) == 0
            refused.set()

    run(main)


def test_an_early_success_lets_the_upload_go_on() -> None:
    async def main() -> None:
        has_head = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b"one"
            await has_head.wait()
            yield b"two"

        async def script(peer: Peer) -> None:
            await peer.head()
            peer.send(answer(b"", CHUNKED))
            peer.send(chunked(await peer.reader.readuntil(b"0\r\n\r\n")))

        async with far_end(script) as far, calling() as client:
            exchange = await client.send(call_to(far, body=body()), LIMITS)
            has_head.set()
            assert await exchange.read(BODY_MAX) == chunked(b"one", b"two")
            await exchange.close()
            assert client._pool.idle_count(far.origin) == 1

    run(main)


@pytest.mark.parametrize("is_head_first", [False, True])
def test_a_body_that_fails_is_told_as_it_failed(is_head_first: bool) -> None:
    async def main() -> None:
        has_head = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b"one"
            if is_head_first:
                await has_head.wait()
            raise RequestTimeout("the client was too slow")

        async def script(peer: Peer) -> None:
            await peer.head()
            if is_head_first:
                peer.send(answer(b"", CHUNKED))

        async with far_end(script) as far, calling() as client:
            if is_head_first:
                exchange = await client.send(call_to(far, body=body()), LIMITS)
                has_head.set()
                asking = exchange.read(BODY_MAX)
            else:
                asking = ask(client, call_to(far, body=body()))
            with pytest.raises(RequestTimeout, match="too slow"):
                await asking

    run(main)


def test_a_peer_that_answers_and_leaves_ends_the_upload() -> None:
    async def main() -> None:
        has_left, has_ended = asyncio.Event(), asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await has_left.wait()
                yield b"two"
            finally:
                has_ended.set()

        async def script(peer: Peer) -> None:
            await peer.head()
            peer.send(answer(b"", CHUNKED))
            peer.close()

        async with far_end(script) as far, calling() as client:
            exchange = await client.send(call_to(far, body=body()), LIMITS)
            await until(lambda: exchange._connection.is_over)
            has_left.set()
            await has_ended.wait()
            with pytest.raises(UpstreamCut):
                await exchange.read(BODY_MAX)
            await exchange.close()

    run(main)


def test_closing_an_exchange_ends_its_upload() -> None:
    async def main() -> None:
        has_ended = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await asyncio.Event().wait()
            finally:
                has_ended.set()

        async def script(peer: Peer) -> None:
            await peer.head()
            peer.send(answer(b"", CHUNKED))

        async with far_end(script) as far, calling() as client:
            exchange = await client.send(call_to(far, body=body()), LIMITS)
            await exchange.close()
            assert has_ended.is_set()

    run(main)
