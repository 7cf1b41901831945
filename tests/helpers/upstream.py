"""Upstreams for tests: one that plays a script, one that answers like a model and counts.

Both are a raw-socket HTTP/1.1 server on a thread with its own event loop, so that plain test code
can use them with `with`. They share no code with `agentstate.wire`: what reads the proxy's requests
must not have the proxy's bugs. A `Reply` says exactly which bytes go out, cut where, and how the
socket ends; lies about lengths are allowed. Every request is kept as a `Received`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

Pair = tuple[bytes, bytes]
End = Literal["ok", "eof_no_terminator", "reset", "stall"]
Outcome = Literal["answering", "answered", "cut", "left"]
# answering  not done yet            cut   the script ended it otherwise than HTTP wants
# answered   every byte was written  left  the peer closed before that

BLOCKED_AFTER_S = 0.3  # a write buffer that stays full this long: the peer has stopped reading
HEAD_BYTES_MAX = 1024 * 1024
START_TIMEOUT_S = 10.0


class Gate:
    """Lets a reply's chunks out one permit at a time; opened from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._permits = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def open(self, permits: int = 1) -> None:
        """Let that many more chunks pass."""
        with self._lock:
            for _ in range(permits):
                if self._waiting:
                    loop, waiter = self._waiting.pop(0)
                    loop.call_soon_threadsafe(_resolve, waiter)
                else:
                    self._permits += 1

    async def wait(self) -> None:
        """Take one permit, or wait for it."""
        with self._lock:
            if self._permits:
                self._permits -= 1
                return
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, waiter))
        await waiter


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request is answered with, byte by byte."""

    status: int = 200
    headers: tuple[Pair, ...] = ()
    chunks: tuple[bytes, ...] = ()  # a body is a single chunk
    framing: Literal["chunked", "length", "close"] = "length"
    delays_s: tuple[float, ...] = ()  # wait before chunk i; before the head counts to chunk 0
    write_size: int | None = None  # re-split the body into writes of this many bytes
    content_length: int | None = None  # announce this instead of the truth
    end: End = "ok"
    gate: Gate | None = None  # each chunk takes one permit
    head_first: bool = False  # send the head before waiting for chunk 0
    close_idle_after_s: float | None = None  # give up the kept-alive connection after this
    swallow_next: bool = False  # ... but not visibly: take the next request's bytes, then close


@dataclass(slots=True)
class Received:
    """One request as it came, and how its answer went."""

    number: int  # from 0, in order of arrival
    connection: int  # which connection, from 0
    method: str
    target: str
    headers: tuple[Pair, ...]
    body: bytes
    at_s: float
    outcome: Outcome = "answering"
    ended_s: float | None = None
    writes: list[float] = field(default_factory=list)  # when chunk i was handed to the socket
    was_blocked: bool = False  # the peer stopped reading for a while

    def header(self, name: str) -> str | None:
        """Return the first value of a header, ignoring case, or None."""
        wanted = name.lower().encode()
        return next((v.decode("latin-1") for k, v in self.headers if k.lower() == wanted), None)

    def json(self) -> Any:
        """Return the body read as JSON."""
        return json.loads(self.body)


Handler = Callable[[Received], Reply]


class _PeerLeft(Exception):
    """The proxy closed its connection."""


class Upstream:
    """Plays a script: the n-th request gets the n-th reply. Use with `with`; `url` is its base.

    A request past the end of the script is answered 599 and kept in `unscripted`.
    """

    def __init__(self, script: Sequence[Reply] = ()) -> None:
        self._lock = threading.Condition()
        self._script = list(script)
        self._next = 0
        self._received: list[Received] = []
        self._connections = 0
        self._peers: set[_Peer] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="upstream", daemon=True)
        self._started = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallowed = 0  # requests taken by a socket that had given up
        self.unscripted: list[Received] = []
        self.port = 0

    # --- life -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_TIMEOUT_S), "the upstream did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)

    @property
    def url(self) -> str:
        """The origin, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def load(self, script: Sequence[Reply]) -> None:
        """Forget all that was received and play this script from its beginning."""
        with self._lock:
            self._script = list(script)
            self._next = 0
            self._received = []
            self.unscripted = []
            self.swallowed = 0

    def extend(self, script: Sequence[Reply]) -> None:
        """Append replies to the script that is being played."""
        with self._lock:
            self._script.extend(script)

    # --- what happened ----------------------------------------------------------------------

    @property
    def received(self) -> list[Received]:
        """All requests so far, in order of arrival."""
        with self._lock:
            return list(self._received)

    def wait_for(self, happened: Callable[[list[Received]], bool], timeout_s: float = 10.0) -> None:
        """Block until `happened(received)`; fail with what was received at the time limit."""
        with self._lock:
            if not self._lock.wait_for(lambda: happened(self._received), timeout_s):
                seen = [(r.method, r.target, r.outcome) for r in self._received]
                raise AssertionError(f"the upstream waited {timeout_s} s in vain; it saw {seen}")

    def wait_for_requests(self, count: int, timeout_s: float = 10.0) -> list[Received]:
        """Block until `count` requests have arrived whole; return all."""
        self.wait_for(lambda received: len(received) >= count, timeout_s)
        return self.received

    def drop_connections(self) -> None:
        """Close every connection now, busy or idle."""
        self._loop.call_soon_threadsafe(self._drop)

    # --- the server -------------------------------------------------------------------------

    def reply_to(self, request: Received) -> Reply:
        """Choose the reply; called on the server's thread."""
        with self._lock:
            if self._next < len(self._script):
                self._next += 1
                return self._script[self._next - 1]
            self.unscripted.append(request)
        return json_reply({"error": {"message": "the script has no further reply"}}, status=599)

    def on_end(self, request: Received) -> None:
        """Called on the server's thread when an answer has ended, however it ended."""

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._started.set()
        self._loop.run_forever()
        for task in list(self._tasks):
            task.cancel()
        self._drop()
        self._server.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(
            lambda: _Peer(self._accept), "127.0.0.1", 0, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self, peer: _Peer) -> None:
        self._peers.add(peer)
        task = self._loop.create_task(self._serve(peer, self._connections))
        self._connections += 1
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _drop(self) -> None:
        for peer in list(self._peers):
            peer.transport.abort()

    async def _serve(self, peer: _Peer, connection: int) -> None:
        try:
            while True:
                head, body = await peer.read_request()
                request = self._keep(connection, head, body)
                reply = self.reply_to(request)
                may_stay = await self._answer(peer, request, reply)
                if not may_stay:
                    break
                if reply.close_idle_after_s is not None:
                    if reply.swallow_next:
                        await peer.read_request()
                        with self._lock:
                            self.swallowed += 1
                        break
                    if not await peer.has_data_within(reply.close_idle_after_s):
                        break
        except _PeerLeft:
            pass  # it may leave at any time; what it missed is in `Received.outcome`
        finally:
            self._peers.discard(peer)
            peer.transport.close()

    def _keep(self, connection: int, head: bytes, body: bytes) -> Received:
        lines = head.split(b"\r\n")
        method, target, _ = lines[0].decode("latin-1").split(" ", 2)
        pairs = tuple(_split_header(line) for line in lines[1:])
        with self._lock:
            request = Received(
                number=len(self._received),
                connection=connection,
                method=method,
                target=target,
                headers=pairs,
                body=body,
                at_s=time.perf_counter(),
            )
            self._received.append(request)
            self._lock.notify_all()
        return request

    async def _answer(self, peer: _Peer, request: Received, reply: Reply) -> bool:
        outcome: Outcome = "left"
        try:
            await self._write(peer, request, reply)
            outcome = "answered" if reply.end == "ok" else "cut"
        finally:
            with self._lock:
                request.outcome = outcome
                request.ended_s = time.perf_counter()
                self._lock.notify_all()
            self.on_end(request)
        return reply.end == "ok" and reply.framing != "close"

    def _note_blocked(self, request: Received) -> None:
        with self._lock:
            request.was_blocked = True
            self._lock.notify_all()

    async def _write(self, peer: _Peer, request: Received, reply: Reply) -> None:
        peer.on_blocked = lambda: self._note_blocked(request)
        head = _render_head(reply)
        if reply.head_first:
            await peer.send(head)
            head = b""
        for position, chunk in enumerate(reply.chunks):
            if position < len(reply.delays_s):
                await peer.wait(asyncio.sleep(reply.delays_s[position]))
            if reply.gate is not None:
                await peer.wait(reply.gate.wait())
            request.writes.append(time.perf_counter())
            for piece in _split(chunk, reply.write_size):
                framed = b"%x\r\n%s\r\n" % (len(piece), piece)
                await peer.send(head + (framed if reply.framing == "chunked" else piece))
                head = b""
        match reply.end:
            case "ok":
                await peer.send(head + (b"0\r\n\r\n" if reply.framing == "chunked" else b""))
            case "eof_no_terminator":
                await peer.send(head)
            case "reset":
                await peer.send(head)
                peer.reset()
            case "stall":
                await peer.send(head)
                await peer.gone.wait()
                raise _PeerLeft


class _Peer(asyncio.Protocol):
    """One connection of the proxy to us."""

    transport: asyncio.Transport

    def __init__(self, accept: Callable[[_Peer], None]) -> None:
        self._accept = accept
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.gone = asyncio.Event()
        self.on_blocked: Callable[[], None] = lambda: None  # the peer does not read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(0)  # `send` returns when the kernel has it all
        self._accept(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._news.set()

    def eof_received(self) -> bool:
        self.gone.set()
        self._news.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self._news.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def wait(self, what: Any) -> None:
        """Wait for `what`, unless the peer leaves first."""
        work = asyncio.ensure_future(what)
        leaving = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise _PeerLeft
        finally:
            work.cancel()
            leaving.cancel()

    async def send(self, data: bytes) -> None:
        if self.gone.is_set():
            raise _PeerLeft
        if not data:
            return
        self.transport.write(data)
        while not self._writable.is_set():
            try:
                await asyncio.wait_for(self._writable.wait(), BLOCKED_AFTER_S)
            except TimeoutError:
                self.on_blocked()
        if self.gone.is_set():
            raise _PeerLeft

    def reset(self) -> None:
        """Close with a TCP reset instead of an orderly end."""
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    async def has_data_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not self._buffer:
                    await self._more()
        except TimeoutError:
            return False
        return True

    async def read_request(self) -> tuple[bytes, bytes]:
        """Read one request; return (head without its blank line, decoded body)."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            assert len(self._buffer) < HEAD_BYTES_MAX, "the proxy sent an endless request head"
            await self._more()
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        fields = dict(_split_header(line) for line in head.lower().split(b"\r\n")[1:])
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            return head, await self._read_chunked()
        return head, await self._take(int(fields.get(b"content-length", b"0")))

    async def _more(self) -> None:
        """Wait for more than the caller found too little; may wake without."""
        await self._news.wait()
        self._news.clear()
        if self.gone.is_set():
            raise _PeerLeft

    async def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._more()
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _read_chunked(self) -> bytes:
        body = bytearray()
        while True:
            while (end := self._buffer.find(b"\r\n")) < 0:
                await self._more()
            size = int(bytes(self._buffer[:end]).split(b";")[0], 16)
            del self._buffer[: end + 2]
            body += await self._take(size)
            await self._take(2)
            if size == 0:
                return bytes(body)


def _split_header(line: bytes) -> Pair:
    name, _, value = line.partition(b":")
    return name, value.strip()


def _split(chunk: bytes, size: int | None) -> list[bytes]:
    if not chunk:
        return []
    if size is None:
        return [chunk]
    return [chunk[start : start + size] for start in range(0, len(chunk), size)]


def _render_head(reply: Reply) -> bytes:
    given = {name.lower() for name, _ in reply.headers}
    framing: list[Pair] = []
    if reply.framing == "chunked" and b"transfer-encoding" not in given:
        framing = [(b"transfer-encoding", b"chunked")]
    elif reply.framing == "length" and b"content-length" not in given and reply.status != 204:
        truth = sum(len(chunk) for chunk in reply.chunks)
        announced = truth if reply.content_length is None else reply.content_length
        framing = [(b"content-length", b"%d" % announced)]
    elif reply.framing == "close":
        framing = [(b"connection", b"close")]
    lines = [b"HTTP/1.1 %d Scripted" % reply.status]
    lines += [name + b": " + value for name, value in (*reply.headers, *framing)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def json_reply(value: object, *, status: int = 200, delay_s: float = 0.0) -> Reply:
    """Return a reply whose body is `value` as JSON."""
    return Reply(
        status=status,
        headers=((b"content-type", b"application/json"),),
        chunks=(json.dumps(value).encode(),),
        delays_s=(delay_s,) if delay_s else (),
    )


def sse_reply(
    frames: Sequence[bytes],
    *,
    delays_s: Sequence[float] = (),
    gate: Gate | None = None,
    end: End = "ok",
) -> Reply:
    """Return a reply that streams `frames`, one HTTP chunk each."""
    return Reply(
        headers=((b"content-type", b"text/event-stream"),),
        chunks=tuple(frames),
        framing="chunked",
        delays_s=tuple(delays_s),
        gate=gate,
        end=end,
    )


# --- an upstream that answers like a model --------------------------------------------------------

# Of the body: these do not change what a model would answer.
_PRESENTATION = frozenset(("stream", "stream_options", "user", "metadata"))
_CREATED = 1_700_000_000


class CountingUpstream(Upstream):
    """Answers any chat completion from the request alone, and counts what was paid.

    The answer names the digest of the request, so two requests never get the same one and the same
    request always does. With tools in the request and no tool result at its end, the first tool is
    called. `log_path` gets a JSON line when a request arrives and one when its answer has ended.
    """

    def __init__(
        self,
        *,
        delay_s: float = 0.0,
        chunk_delay_s: float = 0.0,
        words: int = 6,
        log_path: Path | None = None,
    ) -> None:
        super().__init__()
        self.delay_s = delay_s
        self.chunk_delay_s = chunk_delay_s
        self.words = words
        self._log_path = log_path
        self.counts: Counter[str] = Counter()  # requests by digest of what was asked

    def reply_to(self, request: Received) -> Reply:
        if request.target.endswith("/models"):
            return json_reply({"object": "list", "data": [{"id": "counted", "object": "model"}]})
        if request.method != "POST":
            return json_reply({"error": {"message": "only POST is answered here"}}, status=405)
        ask = request.json()
        name = digest_of(ask)
        with self._lock:
            self.counts[name] += 1
        self._write_log("received", request, name)
        return model_reply(
            ask, delay_s=self.delay_s, chunk_delay_s=self.chunk_delay_s, words=self.words
        )

    def on_end(self, request: Received) -> None:
        if request.method == "POST":
            self._write_log(request.outcome, request, digest_of(request.json()))

    def _write_log(self, what: str, request: Received, name: str) -> None:
        if self._log_path is None:
            return
        line = {"what": what, "number": request.number, "digest": name, "at_s": request.at_s}
        with self._lock, self._log_path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


def digest_of(ask: dict[str, Any]) -> str:
    """Name what a chat request asks, whatever its form."""
    kept = {key: value for key, value in ask.items() if key not in _PRESENTATION}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def model_reply(
    ask: dict[str, Any], *, delay_s: float = 0.0, chunk_delay_s: float = 0.0, words: int = 6
) -> Reply:
    """Answer a chat request as a deterministic model would, in the form it asks for."""
    name = digest_of(ask)
    message = _message(ask, name, words)
    finish = "tool_calls" if "tool_calls" in message else "stop"
    prompt_tokens = len(json.dumps(ask.get("messages", []))) // 4 + 1
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": words,
        "total_tokens": prompt_tokens + words,
    }
    common = {"id": f"chatcmpl-{name}", "created": _CREATED, "model": ask.get("model", "")}
    if not ask.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
        return json_reply(whole, delay_s=delay_s)
    deltas = _deltas(message)
    chunks = [_chunk(common, [{"index": 0, "delta": d, "finish_reason": None}]) for d in deltas]
    chunks.append(_chunk(common, [{"index": 0, "delta": {}, "finish_reason": finish}]))
    if (ask.get("stream_options") or {}).get("include_usage"):
        chunks.append(_chunk(common, [], usage))
    chunks.append(b"data: [DONE]\n\n")
    return sse_reply(chunks, delays_s=(delay_s, *([chunk_delay_s] * (len(chunks) - 1))))


def _message(ask: dict[str, Any], name: str, words: int) -> dict[str, Any]:
    messages = ask.get("messages") or [{}]
    tools = ask.get("tools") or []
    if tools and messages[-1].get("role") != "tool":
        function = {
            "name": tools[0]["function"]["name"],
            "arguments": json.dumps({"key": name, "big": 2512292042121000001}),
        }
        call = {"id": f"call_{name}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": " ".join(f"{name}-{n}" for n in range(words))}


def _deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if message.get("content"):
        pieces = message["content"].split(" ")
        deltas += [{"content": p if n == 0 else f" {p}"} for n, p in enumerate(pieces)]
    for index, call in enumerate(message.get("tool_calls", [])):
        text = call["function"]["arguments"]
        opened = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [opened]})
        half = len(text) // 2
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in (text[:half], text[half:])
        ]
    return deltas


def _chunk(
    common: dict[str, Any], choices: list[dict[str, Any]], usage: dict[str, int] | None = None
) -> bytes:
    chunk = {**common, "object": "chat.completion.chunk", "choices": choices}
    if usage is not None:
        chunk["usage"] = usage
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
