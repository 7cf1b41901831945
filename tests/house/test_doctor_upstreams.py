"""How providers answer, and all the ways in which they do not: real sockets, told apart."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import sys
import threading
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from agentstate.ground.clock import now_ms
from agentstate.ground.settings import Network, ProviderSettings
from agentstate.house.doctor_seen import AnswerSeen
from agentstate.house.doctor_upstreams import ask_providers, list_call
from tests.helpers.upstream import Pair, Reply, Upstream
from tests.wire.far import Far, Peer, far_end

KEY = "sk-test-0123456789abcdef"
JSON: Pair = (b"content-type", b"application/json; charset=utf-8")
LIST = Reply(200, (JSON,), (b'{"data": []}',))
STRAIGHT = Network()
SHORT_S = 0.4  # a limit that a test lets pass


def provider(url: str, key: str | None = None, name: str = "mine") -> ProviderSettings:
    return ProviderSettings(name, ("openai_chat",), url, key)


async def ask_one(
    row: ProviderSettings, network: Network = STRAIGHT, limit_s: float = 5.0
) -> AnswerSeen:
    return (await ask_providers([row], network, limit_s=limit_s))[row.name]


def ask(row: ProviderSettings, network: Network = STRAIGHT, limit_s: float = 5.0) -> AnswerSeen:
    return asyncio.run(ask_one(row, network, limit_s))


def url_of(far: Far, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{far.origin.port}/v1"


# -- what is asked


@pytest.mark.parametrize(
    ("dialects", "base", "target", "pair"),
    [
        ((), "https://a/v1", b"/v1/models", (b"authorization", b"Bearer " + KEY.encode())),
        (("openai_chat", "gemini"), "https://a/v1beta/openai", b"/v1beta/openai/models",
         (b"authorization", b"Bearer " + KEY.encode())),
        (("anthropic_messages",), "https://a", b"/v1/models", (b"x-api-key", KEY.encode())),
        (("anthropic_messages",), "https://a/v1", b"/v1/models", (b"x-api-key", KEY.encode())),
        (("gemini",), "https://a/v1beta", b"/v1beta/models", (b"x-goog-api-key", KEY.encode())),
        (("gemini",), "https://a", b"/v1beta/models", (b"x-goog-api-key", KEY.encode())),
        (("ollama_chat",), "http://a:11434/v1", b"/api/tags",
         (b"authorization", b"Bearer " + KEY.encode())),
    ],
)  # fmt: skip
def test_each_form_is_asked_in_its_own_way(
    dialects: tuple[str, ...], base: str, target: bytes, pair: Pair
) -> None:
    call = list_call(ProviderSettings("a", dialects, base, KEY))
    bare = list_call(ProviderSettings("a", dialects, base))

    assert (call.method, call.target) == ("GET", target)
    assert set(call.headers) - set(bare.headers) == {pair}
    is_anthropic = dialects == ("anthropic_messages",)
    assert ((b"anthropic-version", b"2023-06-01") in call.headers) is is_anthropic


def test_a_good_key_is_sent_and_then_none_to_see_whether_it_matters() -> None:
    with Upstream([LIST, Reply(401, (JSON,), (b"{}",))]) as upstream:
        answer = ask(provider(upstream.url + "/v1", KEY))

    first, second = upstream.received
    assert (answer.status, answer.media_type) == (200, "application/json")
    assert (answer.failure, answer.is_open) == (None, False)
    assert first.header("authorization") == f"Bearer {KEY}"
    assert second.header("authorization") is None


def test_a_list_that_all_may_read_says_nothing_of_a_key() -> None:
    with Upstream([LIST, LIST]) as upstream:
        assert ask(provider(upstream.url + "/v1", KEY)).is_open


def test_without_a_key_it_is_asked_once() -> None:
    with Upstream([Reply(401, (JSON,), (b"{}",))]) as upstream:
        answer = ask(provider(upstream.url + "/v1"))

    assert (answer.status, answer.is_open) == (401, False)
    assert len(upstream.received) == 1


def test_what_can_be_no_key_stays_here() -> None:
    with Upstream([Reply(401)]) as upstream:
        answer = ask(provider(upstream.url + "/v1", KEY + "\n"))

    assert answer.status == 401
    assert upstream.received[0].header("authorization") is None


def test_a_second_call_that_fails_does_not_lose_the_first() -> None:
    with Upstream([LIST, Reply(200, chunks=(b"x",), end="stall", delays_s=(60.0,))]) as upstream:
        answer = ask(provider(upstream.url + "/v1", KEY), limit_s=SHORT_S)

    assert (answer.failure, answer.status, answer.is_open) == (None, 200, False)


@pytest.mark.parametrize(
    ("status", "body", "blames"),
    [
        (400, b'{"error": {"message": "API key not valid. Please pass a valid API key."}}', True),
        (400, b'{"error": "bad request"}', False),
        (404, b"no api key here", False),
    ],
)
def test_a_400_that_blames_the_key_is_known(status: int, body: bytes, blames: bool) -> None:
    packed = Reply(status, ((b"content-encoding", b"gzip"),), (gzip.compress(body),))
    for reply in (Reply(status, (JSON,), (body,)), packed):
        with Upstream([reply]) as upstream:
            answer = ask(provider(upstream.url, KEY))
        assert (answer.status, answer.blames_key) == (status, blames)


def test_a_server_of_ours_is_known_by_how_it_refuses_a_loop() -> None:
    body = json.dumps({"error": {"code": "proxy_loop"}}).encode()
    with Upstream([Reply(508, (JSON,), (body,))]) as upstream:
        assert ask(provider(upstream.url)).is_loop
    assert upstream.received[0].header("x-agentstate-hop") == "1"


def test_an_error_that_is_cut_is_an_error_all_the_same() -> None:
    cut = Reply(400, chunks=(b"API ke",), content_length=100, end="reset")
    stalled = Reply(400, chunks=(b"API ke",), content_length=100, end="stall")
    with Upstream([cut, stalled]) as upstream:
        for _ in range(2):
            assert ask(provider(upstream.url, KEY), limit_s=SHORT_S).status == 400


# -- clocks


def date(offset_s: int) -> Pair:
    return (b"date", formatdate(now_ms() / 1000 + offset_s, usegmt=True).encode())


@pytest.mark.parametrize("offset_s", [0, 7200, -300])
def test_the_skew_is_ours_minus_theirs(offset_s: int) -> None:
    with Upstream([Reply(401, (date(offset_s),))]) as upstream:
        answer = ask(provider(upstream.url))

    assert answer.skew_ms is not None
    assert abs(answer.skew_ms + offset_s * 1000) < 3000
    assert answer.doubt_ms >= 500


@pytest.mark.parametrize("headers", [(), ((b"date", b"yesterday"),), (date(0), (b"age", b"900"))])
def test_no_time_or_one_from_a_cache_tells_nothing(headers: tuple[Pair, ...]) -> None:
    with Upstream([Reply(401, headers)]) as upstream:
        assert ask(provider(upstream.url)).skew_ms is None


# -- ways to fail


def test_nothing_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):  # the second may have two addresses
            assert ask(provider(f"http://{host}:{port}/v1")).failure == "refused"


def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    answer = ask(provider("https://api.test/v1"))

    assert (answer.failure, answer.detail) == ("dns", "Name or service not known")


def test_a_resolver_that_is_silent_is_told_from_a_silent_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60))
    try:
        answer = ask(provider("https://api.test/v1"), limit_s=SHORT_S)
    finally:
        over.set()

    assert answer.failure == "dns"
    assert "no name server answered" in answer.detail


def test_a_name_that_is_none() -> None:
    assert ask(provider(f"https://{'a' * 70}.test/v1")).failure == "dns"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse where the queue is full")
def test_a_host_that_takes_no_connection() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        where = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:  # the queue is full then, and what comes next is dropped
            each.setblocking(False)
            each.connect_ex(where)
        answer = ask(provider(f"http://127.0.0.1:{where[1]}/v1"), limit_s=SHORT_S)
        for each in waiting:
            each.close()

    assert answer.failure == "connect_timeout"


def test_a_host_that_does_not_answer() -> None:
    with Upstream([Reply(200, chunks=(b"x",), delays_s=(60.0,))]) as upstream:
        assert ask(provider(upstream.url), limit_s=SHORT_S).failure == "answer_timeout"


@pytest.mark.parametrize(
    ("words", "failure"), [(b"", "closed"), (b"220 mail.example ESMTP\r\n\r\n", "garbled")]
)
def test_a_host_that_says_nothing_or_no_http(words: bytes, failure: str) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(words)
            peer.close()

        async with far_end(script) as far:
            assert (await ask_one(provider(url_of(far)))).failure == failure

    asyncio.run(main())


def certificate(tmp_path: Path, *names: str) -> tuple[str, ssl.SSLContext]:
    """Return the file of an authority, and what a server needs that it vouches for."""
    trustme: Any = pytest.importorskip("trustme")
    authority = trustme.CA()
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return str(path), context


@pytest.mark.parametrize(
    ("name", "is_trusted", "detail"),
    [
        ("127.0.0.1", False, "unable to get local issuer certificate"),
        ("other.test", True, "mismatch"),
    ],
)
def test_a_certificate_that_is_not_accepted(
    tmp_path: Path, name: str, is_trusted: bool, detail: str
) -> None:
    file, context = certificate(tmp_path, name)

    async def main() -> None:
        async def script(peer: Peer) -> None:
            raise AssertionError("no call was expected")

        network = Network(ssl_cert_file=file) if is_trusted else Network()
        async with far_end(script, tls=context) as far:
            answer = await ask_one(provider(url_of(far, "https")), network)
            assert answer.failure == "certificate"
            assert detail in answer.detail

    asyncio.run(main())


def test_tls_with_a_server_that_has_none() -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.reader.readexactly(1)
            peer.send(b"HTTP/1.1 400 This port speaks plain HTTP\r\n\r\n")
            peer.close()

        async with far_end(script) as far:
            answer = await ask_one(provider(url_of(far, "https")))
            assert (answer.failure, answer.detail) == ("tls", "WRONG_VERSION_NUMBER")

    asyncio.run(main())


@pytest.mark.parametrize("status", [407, 403])
def test_a_proxy_that_makes_no_tunnel(status: int) -> None:
    with Upstream([Reply(status)]) as proxy:
        network = Network(https_proxy=f"http://ada:s3cret@127.0.0.1:{proxy.port}")
        answer = ask(provider("https://api.test/v1", KEY), network)

    assert (answer.failure, answer.via) == ("tunnel", f"127.0.0.1:{proxy.port}")
    assert str(status) in answer.detail
    assert "s3cret" not in answer.detail
    assert proxy.received[0].method == "CONNECT"


def test_a_proxy_that_is_not_there() -> None:
    network = Network(https_proxy="http://127.0.0.1:9")
    answer = ask(provider("https://api.test/v1"), network)

    assert (answer.failure, answer.via) == ("refused", "127.0.0.1:9")


def test_all_are_asked_at_once() -> None:
    slow = Reply(200, chunks=(b"x",), delays_s=(60.0,))
    with Upstream([slow, slow, slow]) as upstream:
        rows = [provider(upstream.url, name=name) for name in ("a", "b", "c")]
        answers = asyncio.run(ask_providers(rows, Network(), limit_s=SHORT_S))

        assert len(upstream.received) == 3  # one after another, the first alone would take it all
    assert {answer.failure for answer in answers.values()} == {"answer_timeout"}
