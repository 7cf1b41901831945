"""What no dialect speaks passes through: both ways, as it came, and never held back.

That nothing is held back is proved without timing: one side sends its next piece only after the
other has received the one before. A proxy that buffers stops there for good.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Connection, Pair, ask, render_request
from tests.helpers.upstream import Gate, Reply, Upstream, json_reply, sse_reply

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
BODY_MAX_MB = 1
TIMEOUT_S = 10.0
FILE = b"/v1/files/file-1/content"
SESSION: tuple[Pair, ...] = ((b"x-agent-session-id", b"passing"),)


@dataclass(frozen=True, slots=True)
class Rig:
    """A proxy that reads small bodies only, before a scripted upstream."""

    proxy: Proxy
    upstream: Upstream


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Start both, once: nothing that passes through leaves a trace."""
    folder: Path = tmp_path_factory.mktemp("passing")
    limit = {"AGENTSTATE_SERVER_BODY_MAX_MB": str(BODY_MAX_MB)}
    with (
        Upstream() as upstream,
        Proxy(upstream_url=upstream.url, db=folder / "record.db", env=limit) as proxy,
    ):
        yield Rig(proxy, upstream)


@pytest.fixture
def rig(started: Rig) -> Rig:
    """The pair with an empty script."""
    started.upstream.load(())
    return started


class Hands:
    """An upstream that the test itself plays, byte by byte. Use with `with`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def accept(self) -> socket.socket:
        """Wait for the proxy's connection."""
        peer, _ = self._listener.accept()
        peer.settimeout(TIMEOUT_S)
        return peer


def read_until(peer: socket.socket, end: bytes, got: bytes = b"") -> bytes:
    """Read until what came ends so; fails at the time limit."""
    while not got.endswith(end):
        more = peer.recv(65536)
        assert more, f"the proxy closed after {got[-200:]!r}"
        got += more
    return got


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[tuple[Proxy, Hands]]:
    """A proxy before an upstream that the test plays."""
    with Hands() as hands, Proxy(upstream_url=hands.url, db=tmp_path / "record.db") as proxy:
        yield proxy, hands


def multipart(content: bytes) -> tuple[bytes, bytes]:
    """Return (content type, body) of an upload."""
    mark = b"----boundary-7"
    body = (
        b"--" + mark + b'\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nassistants\r\n'
        b"--" + mark + b'\r\nContent-Disposition: form-data; name="file"; filename="a b.bin"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--" + mark + b"--\r\n"
    )
    return b"multipart/form-data; boundary=" + mark, body


# --- up -------------------------------------------------------------------------------------------


def test_an_upload_larger_than_any_recorded_call_arrives_as_it_was(rig: Rig) -> None:
    kind, body = multipart(bytes(range(256)) * (BODY_MAX_MB * 4096 * 4))
    rig.upstream.load([json_reply({"id": "file-1", "object": "file"})])

    got = ask(rig.proxy.address, "POST", "/v1/files", (*SESSION, (b"Content-Type", kind)), body)

    (sent,) = rig.upstream.received
    assert len(body) > BODY_MAX_MB * 4 * MIB
    assert sent.body == body
    assert sent.header("content-type") == kind.decode()
    assert sent.header("content-length") == str(len(body))
    assert sent.header("transfer-encoding") is None
    assert sent.header("x-agent-session-id") is None
    assert (got.status, got.json()["id"]) == (200, "file-1")
    assert rig.proxy.maybe_session("passing") is None


def test_an_upload_goes_on_piece_by_piece(by_hand: tuple[Proxy, Hands]) -> None:
    proxy, hands = by_hand
    head = (b"transfer-encoding", b"chunked"), (b"content-type", b"application/octet-stream")
    with Connection(proxy.address) as client:
        client.send(render_request("POST", "/v1/uploads/up-1/parts", proxy.address, head))
        client.send(b"5\r\nfirst\r\n")
        with hands.accept() as peer:
            got = read_until(peer, b"first\r\n")
            assert b"transfer-encoding: chunked\r\n" in got.lower()
            client.send(b"6\r\nsecond\r\n")
            read_until(peer, b"second\r\n")
            client.send(b"0\r\n\r\n")
            read_until(peer, b"0\r\n\r\n")
            peer.sendall(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok")
            answer = client.receive()
    assert (answer.status, answer.body, answer.ending) == (201, b"ok", "complete")


def test_an_upload_that_is_refused_early_is_told_so(by_hand: tuple[Proxy, Hands]) -> None:
    proxy, hands = by_hand
    announced = (b"content-length", b"%d" % (64 * MIB))
    with Connection(proxy.address) as client:
        client.send(render_request("POST", "/v1/files", proxy.address, (announced,)) + b"x" * 1000)
        with hands.accept() as peer:
            read_until(peer, b"x" * 1000)
            peer.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 9\r\n\r\ntoo large")
            answer = client.receive()
            assert (answer.status, answer.body, answer.ending) == (413, b"too large", "complete")
            assert peer.recv(1) == b"", "the proxy keeps a connection with half a request on it"


def test_an_answer_may_begin_before_the_upload_has_ended(by_hand: tuple[Proxy, Hands]) -> None:
    proxy, hands = by_hand
    head = ((b"transfer-encoding", b"chunked"),)
    with Connection(proxy.address) as client:
        client.send(render_request("POST", "/v1/audio/talk", proxy.address, head))
        client.send(b"4\r\nping\r\n")
        with hands.accept() as peer:
            read_until(peer, b"ping\r\n")
            peer.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npong\r\n")
            first = client.receive(until=lambda got: got.body == b"pong")
            client.send(b"4\r\nover\r\n0\r\n\r\n")
            read_until(peer, b"over\r\n0\r\n\r\n")
            peer.sendall(b"0\r\n\r\n")
    assert (first.status, first.body) == (200, b"pong")


def test_a_client_that_leaves_in_mid_upload_cuts_the_upstream(by_hand: tuple[Proxy, Hands]) -> None:
    proxy, hands = by_hand
    announced = (b"content-length", b"1000")
    client = Connection(proxy.address)
    client.send(render_request("POST", "/v1/files", proxy.address, (announced,)) + b"part")
    with hands.accept() as peer:
        read_until(peer, b"part")
        client.close()
        assert is_closed(peer), "half an upload must not look whole"


def is_closed(peer: socket.socket) -> bool:
    """Wait for the proxy to close or reset its connection."""
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


# --- down -----------------------------------------------------------------------------------------


def test_a_download_keeps_its_length_its_range_and_its_bytes(rig: Rig) -> None:
    content = bytes(range(256)) * 4096
    part = Reply(
        status=206,
        headers=(
            (b"content-type", b"application/octet-stream"),
            (b"Content-Range", b"bytes 0-%d/9999999" % (len(content) - 1)),
            (b"ETag", b'"abc"'),
            (b"Accept-Ranges", b"bytes"),
            (b"x-request-id", b"req_1"),
            (b"set-cookie", b"_cfuvid=1"),
        ),
        chunks=(content,),
    )
    rig.upstream.load([part])

    wanted = ((b"Range", b"bytes=0-"), (b"If-Range", b'"abc"'), (b"Accept-Encoding", b"gzip, br"))
    got = ask(rig.proxy.address, "GET", FILE.decode(), wanted)

    (sent,) = rig.upstream.received
    assert (sent.header("range"), sent.header("if-range")) == ("bytes=0-", '"abc"')
    assert sent.header("accept-encoding") == "identity"
    assert (got.status, got.body) == (206, content)
    assert got.header("content-length") == str(len(content))
    assert got.header("content-range") == f"bytes 0-{len(content) - 1}/9999999"
    assert (got.header("etag"), got.header("x-request-id")) == ('"abc"', "req_1")
    assert got.header("set-cookie") is None
    assert got.header("x-agentstate-provider") == "openai"


def test_a_head_has_the_length_and_no_body(rig: Rig) -> None:
    file = Reply(headers=((b"content-length", b"5000"), (b"etag", b'"abc"')))
    rig.upstream.load([file, json_reply({"ok": True})])
    connection = http.client.HTTPConnection(*rig.proxy.address, timeout=TIMEOUT_S)

    connection.request("HEAD", FILE.decode())
    head = connection.getresponse()
    assert (head.status, head.read()) == (200, b"")
    assert (head.headers["content-length"], head.headers["etag"]) == ("5000", '"abc"')
    connection.request("GET", "/v1/files")  # on the same connection: nothing of a body is in it
    assert connection.getresponse().read() == b'{"ok": true}'
    connection.close()

    assert [each.method for each in rig.upstream.received] == ["HEAD", "GET"]


def test_events_arrive_as_they_are_sent(rig: Rig) -> None:
    gate = Gate()
    frames = [b"event: thread.run.created\ndata: {}\n\n", b": ping\n\n", b"data: [DONE]\n\n"]
    rig.upstream.load([sse_reply(frames, gate=gate)])
    seen = 0

    def open_next(got: object) -> bool:
        nonlocal seen
        seen += 1
        gate.open()
        return False

    gate.open()
    got = ask(
        rig.proxy.address, "POST", "/v1/threads/t/runs", SESSION, b'{"stream":true}',
        until=open_next,
    )  # fmt: skip

    assert (got.ending, seen) == ("complete", len(frames))
    assert [piece.data for piece in got.pieces] == frames


@pytest.mark.parametrize("framing", ["chunked", "length"])
@pytest.mark.parametrize("end", ["eof_no_terminator", "reset"])
def test_a_body_that_is_cut_upstream_is_cut_here(rig: Rig, framing: str, end: str) -> None:
    cut = Reply(
        chunks=(b"half of it",),
        framing="chunked" if framing == "chunked" else "length",
        content_length=1000,
        end="reset" if end == "reset" else "eof_no_terminator",
    )
    rig.upstream.load([cut])

    got = ask(rig.proxy.address, "GET", FILE.decode())

    if got.status == 502:
        assert end == "reset"  # it may overtake the head; then it is told as an error
    else:
        assert (got.status, got.ending) in ((200, "cut"), (200, "reset"))
        assert b"half of it".startswith(got.body)


def test_an_upstream_that_cannot_be_reached_is_told_in_the_dialect(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        Proxy(
            upstream_url=f"http://127.0.0.1:{taken.getsockname()[1]}", db=tmp_path / "record.db"
        ) as proxy,
    ):
        taken.close()
        got = ask(proxy.address, "GET", "/v1/files")
    assert got.status == 502
    assert got.json()["error"]["code"] == "upstream_unreachable"


# --- either way -----------------------------------------------------------------------------------


def test_a_client_that_leaves_closes_the_upstream(rig: Rig) -> None:
    gate = Gate()
    rig.upstream.load([Reply(chunks=(b"first", b"second"), framing="chunked", gate=gate)])
    gate.open()

    got = ask(rig.proxy.address, "GET", FILE.decode(), until=lambda got: got.body == b"first")

    assert got.ending == "left"
    rig.upstream.wait_for(lambda received: received[0].outcome == "left")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/files", b""),
        ("POST", "/v1/chat/completions", b'{"model":"m","messages":[{"role":"user"}]}'),
    ],
)
def test_a_client_that_leaves_before_the_answer_closes_the_upstream(
    rig: Rig, method: str, path: str, body: bytes
) -> None:
    rig.upstream.load([Reply(chunks=(b"never",), gate=Gate())])
    client = Connection(rig.proxy.address)
    client.send(render_request(method, path, rig.proxy.address, (), body))
    rig.upstream.wait_for_requests(1)

    client.close()

    rig.upstream.wait_for(lambda received: received[0].outcome == "left")


@pytest.mark.parametrize(
    "target",
    [
        "/v1/files/a%2Fb%20c/content?x=%2F&y=a+b&&z",
        "/v1/models/accounts/fireworks/models/llama-v3p1",
        "/v1/models/moonshotai/kimi-k2:free",
        "/v1/files?",
        "/v1/vector_stores/vs%31/search?after=%E2%82%AC",
        "/v1",
    ],
)
def test_path_and_query_are_not_touched(rig: Rig, target: str) -> None:
    rig.upstream.load([json_reply({})])

    got = ask(rig.proxy.address, "GET", target)

    assert got.status == 200
    assert [each.target for each in rig.upstream.received] == [target.removesuffix("?")]


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "POST", "OPTIONS"])
def test_every_method_passes_with_and_without_a_body(rig: Rig, method: str) -> None:
    rig.upstream.load([json_reply({"n": 1}), Reply(status=204)])

    with_body = ask(rig.proxy.address, method, "/v1/assistants/a", (), b'{"x": 1}')
    without = ask(rig.proxy.address, method, "/v1/assistants/a")

    first, second = rig.upstream.received
    assert (first.method, first.body, second.body) == (method, b'{"x": 1}', b"")
    assert (with_body.json(), without.status, without.body) == ({"n": 1}, 204, b"")


def test_a_refusal_of_the_upstream_passes_as_it_is(rig: Rig) -> None:
    refusal = {"error": {"message": "No such file", "type": "x", "param": "id", "code": None}}
    rig.upstream.load([json_reply(refusal, status=404)])

    got = ask(rig.proxy.address, "GET", "/v1/files/none")

    assert (got.status, got.json()) == (404, refusal)


def test_large_bodies_pass_both_ways_at_once(rig: Rig) -> None:
    content = bytes(range(256)) * (4 * 4096)
    rig.upstream.load([Reply(chunks=(content,) * 4, framing="chunked") for _ in range(4)])
    results: list[bool] = []

    def talk() -> None:
        got = ask(rig.proxy.address, "POST", "/v1/audio/speech", (), content)
        results.append(got.body == content * 4)

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S * 3)

    assert results == [True] * 4
    assert all(each.body == content for each in rig.upstream.received)


@pytest.mark.parametrize("path", ["/v1/realtime?model=gpt-realtime", "/v1/responses", "/s/a/v1/x"])
def test_a_websocket_is_refused_and_says_so(rig: Rig, path: str) -> None:
    upgrade = (
        (b"connection", b"Upgrade"), (b"upgrade", b"websocket"), (b"sec-websocket-version", b"13"),
        (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    )  # fmt: skip

    got = ask(rig.proxy.address, "GET", path, upgrade)

    error = got.json()["error"]
    assert (got.status, error["code"]) == (501, "websocket_unsupported")
    assert "WebSocket" in error["message"]
    assert rig.upstream.received == []
