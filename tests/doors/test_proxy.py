"""The proxy's door: what a path says, whose it is, and in whose form it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentstate.dialects import DIALECTS
from agentstate.dialects.base import Dialect
from agentstate.doors.proxy import (
    Address,
    ProxyDoor,
    dialect_of,
    hide_key,
    owner_of,
    read_address,
)
from agentstate.ground.errors import BadRequest, Forbidden
from agentstate.ground.settings import ProviderSettings, Settings
from agentstate.steps.forward import Transports
from agentstate.steps.routing import Targets
from agentstate.wire.message import (
    Exchange,
    Headers,
    Origin,
    OutCall,
    Pair,
    Response,
    TimeLimits,
)

NONE: tuple[Pair, ...] = ()
PROVIDERS = (
    ProviderSettings("openai", ("openai_chat",), "http://openai.test/v1"),
    ProviderSettings("anthropic", ("anthropic_messages",), "http://anthropic.test"),
)


class Asked:
    """A request with no body, of a client that leaves when told."""

    def __init__(self, method: str, path: str, *headers: Pair) -> None:
        self.method = method
        self.target = path.encode()
        self.path, _, self.query = path.partition("?")
        self.headers = Headers(headers)
        self.peer = ""
        self.started_s = 0.0
        self._callbacks: list[Callable[[], None]] = []

    async def body(self, bytes_max: int) -> bytes:
        return b""

    def stream(self) -> AsyncIterator[bytes]:
        raise AssertionError("it has no body")

    async def gone(self) -> None:
        raise AssertionError("nobody waits for it so")

    def is_gone(self) -> bool:
        return False

    def on_gone(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def send_interim(self, status: int) -> None:
        raise AssertionError("nothing to say")

    def leave(self) -> None:
        for callback in self._callbacks:
            callback()


class Silent:
    """A transport to an upstream that never answers."""

    def __init__(self) -> None:
        self.calls: list[OutCall] = []
        self.was_left = False
        self.asked = asyncio.Event()

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """Nothing to connect to."""

    async def send(self, call: OutCall, limits: TimeLimits) -> Exchange:
        self.calls.append(call)
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_left = True
        raise AssertionError("it never answers")

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("query", "sent", "kept", "key"),
    [
        ("key=AIza%2D1", None, "", b"AIza-1"),
        ("alt=sse&key=k&x=1", None, "alt=sse&x=1", b"k"),
        ("key=k&key=other", b"own", "", b"own"),
        ("alt=sse&monkey=1", None, "alt=sse&monkey=1", None),
        ("", b"own", "", b"own"),
    ],
)
def test_a_key_in_the_query_becomes_a_header(
    query: str, sent: bytes | None, kept: str, key: bytes | None
) -> None:
    headers = () if sent is None else ((b"X-Goog-Api-Key", sent),)
    asked = Asked("POST", f"/v1beta/models/m:generateContent?{query}", *headers)

    hide_key(asked)

    assert asked.query == kept
    assert asked.headers.all(b"x-goog-api-key") == ([] if key is None else [key])


def test_a_key_that_no_header_can_carry_is_refused() -> None:
    with pytest.raises(BadRequest):
        hide_key(Asked("POST", "/v1beta/models/m:generateContent?key=a%0D%0Ab"))


def door_to(transport: Silent) -> ProxyDoor:
    """Return a door whose calls go to the transport; no call of it names a session."""
    gate = SimpleNamespace(settings=Settings().gate)
    no_pipeline = cast(Any, SimpleNamespace(offline=None, gate=gate))
    return ProxyDoor(no_pipeline, Transports(transport, transport), Targets(PROVIDERS), Settings())


async def answer(asked: Asked) -> Response:
    """Answer a request whose path is one of the proxy's."""
    address = read_address(asked.path)
    assert address is not None
    return await door_to(Silent()).answer(asked, address)


def whole_path(dialect: Dialect) -> str:
    """Return a path of a dialect as clients ask for it; Gemini's have their own version."""
    path = dialect.paths[0]
    return path if path.startswith("/v1") else "/v1" + path


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/v1", Address("/v1")),
        ("/v1/files/a%2Fb", Address("/v1/files/a%2Fb")),
        ("/s/my%20run/v1/models", Address("/v1/models", "my run")),
        ("/p/groq/v1/models", Address("/v1/models", None, "groq")),
        ("/s/a/p/groq/v1/models", Address("/v1/models", "a", "groq")),
        ("/p/groq/s/a/v1/models", Address("/v1/models", "a", "groq")),
        ("/v1beta/models/m:generateContent", Address("/v1beta/models/m:generateContent")),
        ("/s/a/v1alpha/files", Address("/v1alpha/files", "a")),
        ("/upload/v1beta/files", Address("/upload/v1beta/files")),
        ("/v10/models", None),
        ("/s/a/v2", None),
        ("/", None),
    ],
)
def test_a_path_names_session_and_provider(path: str, address: Address | None) -> None:
    assert read_address(path) == address


def test_a_session_that_is_none_is_refused() -> None:
    with pytest.raises(BadRequest):
        read_address("/s//v1/models")


VERSION = (b"Anthropic-Version", b"2023-06-01")


@pytest.mark.parametrize(
    ("path", "headers", "owner"),
    [
        ("/models", NONE, "openai"),
        ("/files/file-1/content", NONE, "openai"),
        ("/chat/completions/chatcmpl-1", NONE, "openai"),
        ("/messages/count_tokens", NONE, "anthropic"),
        ("/messages/batches/b/results", NONE, "anthropic"),
        ("/messages_of_others", NONE, "openai"),
        ("/v1beta/models", NONE, "gemini"),
        ("/upload/v1beta/files", NONE, "gemini"),
        ("/models/gemini-2.5-pro:countTokens", NONE, "gemini"),
        ("/models/moonshotai/kimi-k2:free", NONE, "openai"),
        ("/models", ((b"x-goog-api-key", b"k"),), "gemini"),
        ("/files/f", ((b"x-goog-api-client", b"google-genai-sdk"),), "gemini"),
        ("/models", (VERSION,), "anthropic"),
        ("/files", (VERSION,), "anthropic"),
        ("/chat/completions/chatcmpl-1", (VERSION,), "openai"),
    ],
)
def test_a_path_that_no_dialect_takes_has_an_owner(
    path: str, headers: tuple[Pair, ...], owner: str
) -> None:
    assert owner_of(path, Headers(headers)) == owner
    assert dialect_of(owner).provider == owner


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: str(dialect.name))
@pytest.mark.parametrize("value", [b"websocket", b"WebSocket", b"h2c, websocket/13"])
def test_a_websocket_is_refused_in_the_dialect_of_its_path(dialect: Any, value: bytes) -> None:
    upgrade = ((b"Connection", b"Upgrade"), (b"Upgrade", value))

    response = asyncio.run(answer(Asked("GET", whole_path(dialect), *upgrade)))

    assert response.status == 501
    assert (b"x-should-retry", b"false") in response.headers
    assert isinstance(response.body, bytes)
    facts = dialect.read_error(response.body)
    assert "WebSocket" in facts.message
    assert b"websocket_unsupported" in response.body


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: str(dialect.name))
def test_a_refusal_is_told_in_the_dialect_of_its_path(dialect: Any) -> None:
    address = read_address(whole_path(dialect))
    assert address is not None

    response = door_to(Silent()).refuse(address, Forbidden("Not from here."))

    assert response.status == 403
    assert response.body == dialect.error_body(Forbidden("Not from here."))


def test_a_call_that_was_here_before_is_stopped() -> None:
    response = asyncio.run(answer(Asked("GET", "/v1/files", (b"x-agentstate-hop", b"1"))))
    assert response.status == 508


@pytest.mark.parametrize("path", ["/v1/files", "/v1/models"])
def test_a_client_that_leaves_takes_its_call_along(path: str) -> None:
    async def play() -> Silent:
        transport = Silent()
        asked = Asked("GET", path)
        door = door_to(transport)
        answering = asyncio.ensure_future(door.answer(asked, Address(path)))
        await transport.asked.wait()
        asked.leave()
        with pytest.raises(ConnectionResetError):
            await answering
        asked.leave()  # once more: the call is over, so nothing happens
        return transport

    transport = asyncio.run(play())

    assert transport.was_left
    assert len(transport.calls) == 1


def test_what_lies_below_messages_goes_to_anthropic_with_its_path_whole() -> None:
    async def play() -> OutCall:
        transport = Silent()
        asked = Asked("GET", "/v1/messages/batches?limit=1")
        answering = asyncio.ensure_future(
            door_to(transport).answer(asked, Address("/v1/messages/batches"))
        )
        await transport.asked.wait()
        asked.leave()
        with pytest.raises(ConnectionResetError):
            await answering
        return transport.calls[0]

    call = asyncio.run(play())

    assert call.origin.host == "anthropic.test"
    assert call.target == b"/v1/messages/batches?limit=1"
