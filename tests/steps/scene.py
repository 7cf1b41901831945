"""A pipeline with a store in memory and an upstream that does what a test says: no sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agentstate.dialects import dialect_for_path
from agentstate.ground.clock import monotonic_s
from agentstate.ground.records import Query
from agentstate.ground.settings import ProviderSettings, Settings
from agentstate.ground.tasks import TaskSet
from agentstate.steps.call import Entry
from agentstate.steps.forward import Transports
from agentstate.steps.pipeline import Pipeline
from agentstate.steps.recording import build_services
from agentstate.steps.routing import Targets
from agentstate.store.memory import MemoryStore
from agentstate.wire.message import Headers, Origin, OutCall, Pair, Response, TimeLimits

LIMIT_S = 10.0


def frame(delta: dict[str, Any], finish: str | None = None, **extra: Any) -> bytes:
    """Make one chunk of a chat stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**body, "choices": [choice], **extra}).encode() + b"\n\n"


HEAD, TEXT, END = frame({"role": "assistant"}), frame({"content": "hi"}), frame({}, "stop")
DONE = b"data: [DONE]\n\n"


def body_of(text: str, **extra: Any) -> bytes:
    """Make a whole chat answer."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": usage, **extra}).encode()


class FakeExchange:
    """An upstream's response whose pieces a test hands in; None ends it."""

    def __init__(self, status: int, kind: bytes) -> None:
        self.status = status
        self.headers = Headers([(b"content-type", kind)])
        self.pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.is_closed = False

    def give(self, *pieces: bytes | Exception | None) -> None:
        """Let pieces arrive, one read each."""
        for piece in pieces:
            self.pieces.put_nowait(piece)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what arrives."""
        while (piece := await self.pieces.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def read(self, bytes_max: int) -> bytes:
        """Read all."""
        return b"".join([piece async for piece in self.chunks()])

    async def close(self) -> None:
        """Note that it was closed."""
        self.is_closed = True


class FakeTransport:
    """Counts calls and answers each as `on_call` says."""

    def __init__(self) -> None:
        self.calls: list[OutCall] = []
        self.on_call: Callable[[int], Awaitable[FakeExchange]] = self._plain

    async def _plain(self, number: int) -> FakeExchange:
        exchange = FakeExchange(200, b"application/json")
        exchange.give(body_of(f"answer {number}"), None)
        return exchange

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """Do nothing: there is no connection."""

    async def send(self, call: OutCall, limits: TimeLimits) -> FakeExchange:
        """Take one call."""
        self.calls.append(call)
        return await self.on_call(len(self.calls) - 1)

    async def close(self) -> None:
        """Do nothing."""


class FakeRequest:
    """One request of a client."""

    def __init__(self, headers: list[Pair], raw: bytes) -> None:
        self.method, self.target, self.path, self.query = "POST", b"", "", ""
        self.headers = Headers(headers)
        self.peer = ""
        self.started_s = monotonic_s()
        self._raw = raw
        self._callbacks: list[Callable[[], None]] = []
        self._is_gone = False

    async def body(self, bytes_max: int) -> bytes:
        """Return the body."""
        return self._raw

    def forget_body(self) -> None:
        """Let go of the body."""
        self._raw = b""

    def stream(self) -> AsyncIterator[bytes]:
        """Not for calls that are recorded."""
        raise NotImplementedError

    async def gone(self) -> None:
        """Not for the pipeline."""
        raise NotImplementedError

    def is_gone(self) -> bool:
        """Say whether `leave` was called."""
        return self._is_gone

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Remember whom to tell; tell at once if it has left."""
        if self._is_gone:
            callback()
        else:
            self._callbacks.append(callback)

    def send_interim(self, status: int) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Close the client's connection."""
        self._is_gone = True
        for callback in self._callbacks:
            callback()


class Scene:
    """Everything a test needs, in the loop it runs in."""

    def __init__(self, **sections: Any) -> None:
        provider = ProviderSettings("openai", ("openai_chat",), "http://up.example/v1", None)
        self.settings = Settings(providers=(provider,), **sections)
        self.store = MemoryStore()
        self.transport = FakeTransport()
        self.tasks = TaskSet()
        self.start()

    def start(self) -> None:
        """Start the steps anew on what is on record, as after a restart of the proxy."""
        services = build_services(
            self.store,
            Transports(self.transport, FakeTransport()),
            self.settings,
            self.tasks,
            lambda name: None,
        )
        self.ladder, self.gate = services.ladder, services.gate
        targets = Targets(self.settings.providers, forward=self.settings.forward)
        self.pipeline = Pipeline(services, targets)
        self.pauses = services.pauses
        self.control = self.pipeline.control()

    def request(self, text: str = "hi", *, stream: bool = False, **headers: str) -> FakeRequest:
        """Make a call; header names are written with underscores, without `x-agent-`."""
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        if stream:
            body["stream"] = True
        pairs: list[Pair] = [(b"x-agent-session-id", b"s"), (b"authorization", b"Bearer sk-x")]
        for name, value in headers.items():
            pairs.append((f"x-agent-{name.replace('_', '-')}".encode(), value.encode()))
        return FakeRequest(pairs, json.dumps(body).encode())

    async def ask(self, request: FakeRequest, path: str = "/v1/chat/completions") -> Response:
        """Take a call through the pipeline."""
        dialect = dialect_for_path(path.removeprefix("/v1") if path.startswith("/v1/") else path)
        assert dialect is not None
        entry = Entry(dialect, path, "")
        caller = self.pipeline.read_caller(request, entry)
        assert caller is not None
        response = await self.pipeline.answer(request, entry, caller)
        assert response is not None
        return response

    async def states(self) -> list[str]:
        """Return the states of the steps of the session."""
        page = await self.store.list_steps(Query(session="s", newest_first=False))
        return [row.state for row in page.rows]


def header(response: Response, name: str) -> str | None:
    """Return a response header."""
    found = [value for key, value in response.headers if key == name.encode()]
    return found[0].decode() if found else None


async def read(response: Response) -> bytes:
    """Read a response's body whole; raises what its iterator raises."""
    if isinstance(response.body, bytes):
        return response.body
    return b"".join([piece async for piece in response.body])


def play(test: Callable[[Scene], Awaitable[None]], **sections: Any) -> None:
    """Run a test in a scene of its own."""

    async def main() -> None:
        scene = Scene(**sections)
        await scene.store.open()
        async with asyncio.timeout(LIMIT_S):
            await test(scene)
        await scene.tasks.close(1.0)

    asyncio.run(main())
