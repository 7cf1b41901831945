"""The mock provider: an upstream that answers by itself, in-process, offline and free.

A `Transport` like the h11 client, so that forward, checkpoint and replay do with it exactly what
they do with a real one. Every answer says that it is a mock, in a header and, where there is room
for it, in the text. What it says is `mock_model.py`, how it is written `mock_chat.py` and
`mock_messages.py` (`_ROWS`: a new wire form is one function and one row); here are the rest and the
faults, which a model's name asks for:

    mock/429            429 with Retry-After          mock/cut        stops in the middle
    mock/500            500                           mock/flaky-3    500 three times per request
    mock/timeout        never sends a byte            mock/slow-250ms takes that long; a stream
    mock/anything       an ordinary answer                            is spread over it

The one invariant: the same request gets the same bytes, ids and `created` included, whatever the
time, the process, or the calls before it (`flaky` alone remembers, and only to fail first).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import math
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable

from agentstate.ground.canonical import JSON, OFF_LOOP_BYTES, canonical, digest, encode, parse
from agentstate.ground.errors import (
    BadRequest,
    ClientError,
    MethodNotAllowed,
    NotFound,
    TooLarge,
    UpstreamCut,
    UpstreamProtocol,
    UpstreamTimeout,
    shorten,
)
from agentstate.house import mock_chat, mock_messages, mock_responses
from agentstate.house.mock_model import count_tokens
from agentstate.house.mock_reply import (
    CREATED_S,
    FAILURES,
    Fault,
    Refusal,
    Reply,
    read_fault,
    read_text,
    read_whole,
    render_openai,
)
from agentstate.wire.message import Headers, Origin, OutCall, Pair, TimeLimits, split_target

PROVIDER = "mock"
BODY_BYTES_MAX = 64 * 1024 * 1024  # as the server's own default for a recorded call
INPUTS_MAX = 2048  # OpenAI's bound of inputs in one embeddings call
DIMENSIONS = 256  # of an embedding, where the request names none
DIMENSIONS_MAX = 3072  # of OpenAI's largest embedding model
FLAKY_KEPT_MAX = 1024  # requests whose failures are remembered; the oldest is forgotten
RETRY_AFTER_S = 1  # what mock/429 asks for: visible, and short enough for a demo

Sleep = Callable[[float], Awaitable[None]]


class MockProvider:
    """Answers calls to the mock. `sleep` stands in for time in tests."""

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._failed: OrderedDict[bytes, int] = OrderedDict()

    def warm(self, origin: Origin, limits: TimeLimits) -> None:
        """Do nothing: there is nothing to connect to."""

    async def send(self, call: OutCall, limits: TimeLimits) -> MockExchange:
        """Answer the call.

        Raises:
            UpstreamTimeout: the model's name asks for a longer wait than `limits` allow.
        """
        try:
            body = call.body if isinstance(call.body, bytes) else await _gather(call.body)
            if len(body) < OFF_LOOP_BYTES:
                reply = answer(call.method, call.target, body)
            else:
                reply = await asyncio.to_thread(answer, call.method, call.target, body)
        except ClientError as error:
            reply = _refuse(error, call.target)
        wait = _Wait(limits, self._sleep)
        fault = reply.fault
        if fault.kind == "timeout":
            await wait.pause(math.inf, "first_byte")
        elif fault.kind == "status" or (fault.kind == "flaky" and self._fails(reply.key, fault)):
            reply = _fail(fault.number if fault.kind == "status" else 500, call.target)
        elif fault.kind == "slow" and not reply.streams:
            await wait.pause(fault.number / 1000, "first_byte")
        return MockExchange(reply, wait)

    async def close(self) -> None:
        """Forget what failed before."""
        self._failed.clear()

    def _fails(self, key: bytes, fault: Fault) -> bool:
        """Say whether a flaky model fails this request once more, and count it."""
        failed = self._failed.pop(key, 0)
        self._failed[key] = min(failed + 1, fault.number)
        if len(self._failed) > FLAKY_KEPT_MAX:
            self._failed.popitem(last=False)
        return failed < fault.number


class MockExchange:
    """One answer on its way. Its body can be taken once, as a real one."""

    def __init__(self, reply: Reply, wait: _Wait) -> None:
        self.status = reply.status
        self.headers = Headers(_headers(reply))
        self._reply = reply
        self._wait = wait
        self._left = iter(reply.pieces)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body, one frame at a time for a stream."""
        fault, pieces = self._reply.fault, self._reply.pieces
        is_cut = fault.kind == "cut"
        pause_s = fault.number / 1000 / len(pieces) if fault.kind == "slow" else 0.0
        kept = len(pieces) // 2 if is_cut and self._reply.streams else len(pieces)
        for piece in itertools.islice(self._left, kept):
            if pause_s and self._reply.streams:
                await self._wait.pause(pause_s, "gap")
            yield piece[: len(piece) // 2] if is_cut and not self._reply.streams else piece
        if is_cut:
            raise UpstreamCut(
                "The mock model stopped in the middle of its answer, as mock/cut asks for.",
                provider=PROVIDER,
            )

    async def read(self, bytes_max: int) -> bytes:
        """Read the whole body.

        Raises:
            UpstreamProtocol: it is longer than `bytes_max`.
        """
        body = bytearray()
        async for piece in self.chunks():
            body += piece
            if len(body) > bytes_max:
                raise UpstreamProtocol(
                    f"The mock's answer is longer than the {bytes_max} bytes allowed.",
                    provider=PROVIDER,
                )
        return bytes(body)

    async def close(self) -> None:
        """Drop what was not taken."""
        self._left = iter(())


def answer(method: str, target: bytes, body: bytes) -> Reply:
    """Answer a request. Pure.

    Raises:
        ClientError: the request is wrong in a way that a provider answers with 4xx.
    """
    path, _ = split_target(target)
    if (row := _ROWS.get(path)) is None:
        raise NotFound(
            f"The mock provider has no {shorten(method)} {shorten(path)}; it has "
            f"{', '.join(_ROWS)}. Name a real provider for anything else."
        )
    allowed, make = row
    if method != allowed:
        raise MethodNotAllowed(f"{path} takes {allowed}; this was {shorten(method)}.")
    if allowed == "GET":
        return make({}, digest(path.encode()))
    asked = parse(body)
    if not isinstance(asked, dict):
        raise BadRequest(f"The body must be a JSON object; it is {shorten(asked)}.")
    lasting = {key: value for key, value in asked.items() if key not in _SHOWS_ONLY}
    return make(asked, digest(path.encode(), canonical(lasting)))


def _embeddings(asked: dict[str, JSON], key: bytes) -> Reply:
    """Answer POST /v1/embeddings: vectors of length 1, the same for the same input."""
    model = read_text(asked, "model")
    given = asked.get("input")
    # A list of strings or of token lists is many inputs; a list of integers is one.
    is_many = isinstance(given, list) and not any(isinstance(item, int) for item in given)
    inputs: list[JSON] = given if isinstance(given, list) and is_many else [given]
    if not 1 <= len(inputs) <= INPUTS_MAX or given in (None, ""):
        raise BadRequest(
            f"input must be text, or 1 to {INPUTS_MAX} of them; it is {shorten(given)}.",
            param="input",
        )
    dimensions = read_whole(asked, "dimensions", DIMENSIONS, DIMENSIONS_MAX)
    as_base64 = asked.get("encoding_format") == "base64"
    data: list[JSON] = []
    for index, item in enumerate(inputs):
        vector = _embed(canonical(item), dimensions)
        shown: JSON = list[JSON](vector)
        if as_base64:
            shown = base64.b64encode(struct.pack(f"<{dimensions}f", *vector)).decode("ascii")
        data.append({"object": "embedding", "index": index, "embedding": shown})
    tokens = count_tokens(given)
    whole: JSON = {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return Reply(200, (encode(whole),), key, False, read_fault(model))


def _models(_: dict[str, JSON], key: bytes) -> Reply:
    """Answer GET /v1/models: an ordinary model and one of each fault."""
    names = ("anything", *FAILURES, "timeout", "cut", "flaky-3", "slow-250ms")
    data: list[JSON] = [
        {"id": f"mock/{name}", "object": "model", "created": CREATED_S, "owned_by": "agentstate"}
        for name in names
    ]
    return Reply(200, (encode({"object": "list", "data": data}),), key)


# Path → (method, what answers it).
_ROWS: dict[str, tuple[str, Callable[[dict[str, JSON], bytes], Reply]]] = {
    "/v1/chat/completions": ("POST", mock_chat.chat),
    "/v1/completions": ("POST", mock_chat.completions),
    "/v1/responses": ("POST", mock_responses.reply),
    "/v1/embeddings": ("POST", _embeddings),
    "/v1/messages": ("POST", mock_messages.reply),
    "/v1/messages/count_tokens": ("POST", mock_messages.count),
    "/v1/models": ("GET", _models),
}

# Fields that say how an answer is shown, not what it is: both forms carry the same id.
_SHOWS_ONLY = frozenset(("stream", "stream_options"))

# How paths that begin like this tell errors; all others in OpenAI's form.
_ERROR_FORMS: dict[str, Callable[[Refusal], bytes]] = {"/v1/messages": mock_messages.render_error}


class _Wait:
    """Plays waiting against a call's time limits, as a real connection would meet them."""

    def __init__(self, limits: TimeLimits, sleep: Sleep) -> None:
        self._limits = limits
        self._sleep = sleep
        self._waited_s = 0.0

    async def pause(self, pause_s: float, limit: str) -> None:
        """Wait, or raise `UpstreamTimeout` when `limit` (first_byte or gap) or total is up."""
        limit_s = self._limits.first_byte_s if limit == "first_byte" else self._limits.gap_s
        allowed_s = limit_s or math.inf
        if self._limits.total_s and self._limits.total_s - self._waited_s < allowed_s:
            limit, allowed_s = "total", self._limits.total_s - self._waited_s
        if pause_s > allowed_s:
            await self._sleep(allowed_s)
            raise UpstreamTimeout(
                f"The mock model sent nothing within the {limit} limit ({allowed_s:g} s).",
                limit=limit,
                provider=PROVIDER,
            )
        self._waited_s += pause_s
        await self._sleep(pause_s)


async def _gather(body: AsyncIterator[bytes]) -> bytes:
    gathered = bytearray()
    async for piece in body:
        gathered += piece
        if len(gathered) > BODY_BYTES_MAX:
            raise TooLarge(f"The mock provider reads at most {BODY_BYTES_MAX} bytes.")
    return bytes(gathered)


def _headers(reply: Reply) -> list[Pair]:
    kind = b"text/event-stream; charset=utf-8" if reply.streams else b"application/json"
    headers: list[Pair] = [
        (b"content-type", kind),
        (b"x-agentstate-mock", b"true"),
        (b"x-request-id", b"req_mock_" + reply.key.hex()[:24].encode("ascii")),
    ]
    if not reply.streams:
        headers.append((b"content-length", b"%d" % sum(map(len, reply.pieces))))
    return [*headers, *reply.headers]


def _fail(status: int, target: bytes) -> Reply:
    waits: tuple[Pair, ...] = ((b"retry-after", b"%d" % RETRY_AFTER_S),) if status == 429 else ()
    body = _render_error(FAILURES[status], target)
    return Reply(status, (body,), digest(b"%d" % status), headers=waits)


def _refuse(error: ClientError, target: bytes) -> Reply:
    refusal = Refusal(error.status, error.code, error.message, param=error.param)
    body = _render_error(refusal, target)
    return Reply(error.status, (body,), digest(body))


def _render_error(refusal: Refusal, target: bytes) -> bytes:
    path, _ = split_target(target)
    forms = (form for begin, form in _ERROR_FORMS.items() if path.startswith(begin))
    return next(forms, render_openai)(refusal)


def _embed(seed: bytes, dimensions: int) -> list[float]:
    """Make a vector of length 1 out of a hash: equal inputs agree, others are near orthogonal."""
    raw = hashlib.shake_256(seed).digest(2 * dimensions)
    values = [number / 32768 for number in struct.unpack(f"<{dimensions}h", raw)]
    norm = math.hypot(*values) or 1.0
    return [round(value / norm, 8) for value in values]
