"""The door agents use: everything under /v1, with a session or a provider in the URL or not.

Three ways through. A call to a path some dialect speaks that names a session goes into the
pipeline. The same call without a session goes upstream as it is and is neither recorded nor
counted. All other methods and paths pass through, streamed both ways, nothing buffered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from agentstate.dialects import DIALECTS, dialect_for_path
from agentstate.dialects.base import Ask, Dialect
from agentstate.ground import canonical
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    ClientError,
    NotFound,
    UpstreamError,
    shorten,
)
from agentstate.ground.settings import Settings
from agentstate.steps import forward
from agentstate.steps.forward import Transports
from agentstate.steps.identify import check_session
from agentstate.steps.pipeline import Entry, Pipeline
from agentstate.steps.reply import error_response, passed_headers
from agentstate.steps.target import HOP_HEADER, Target, Targets, upstream_headers
from agentstate.wire.message import (
    Abort,
    Exchange,
    OutCall,
    Request,
    Response,
    decode_segment,
)

MIB = 1024 * 1024


class LoopFound(ClientError):
    """The call has been through this proxy already: a base URL points back at it."""

    code = "proxy_loop"
    status = 508


@dataclass(frozen=True, slots=True)
class Address:
    """What a path under the proxy says."""

    path: str  # from /v1 on, escapes untouched
    session: str | None = None
    provider: str | None = None


def read_address(path: str) -> Address | None:
    """Read `[/s/{session}][/p/{provider}]/v1/...`; None if the path is no proxy path.

    Raises:
        BadRequest: the session in the URL cannot be one.
    """
    session = provider = None
    rest = path
    if rest.startswith("/s/"):
        name, _, rest = rest[3:].partition("/")
        session = check_session(_decode(name), "The session in the URL")
        rest = "/" + rest
    if rest.startswith("/p/"):
        name, _, rest = rest[3:].partition("/")
        provider = _decode(name)
        rest = "/" + rest
    if rest != "/v1" and not rest.startswith("/v1/"):
        return None
    return Address(rest, session, provider)


class ProxyDoor:
    """Answers what comes in under /v1."""

    def __init__(
        self, pipeline: Pipeline, transports: Transports, targets: Targets, settings: Settings
    ) -> None:
        self._pipeline = pipeline
        self._transports = transports
        self._targets = targets
        self._settings = settings

    async def answer(self, request: Request, address: Address) -> Response:
        """Answer one call; errors of ours come back in the caller's dialect."""
        is_call = request.method == "POST"
        dialect = dialect_for_path(address.path.removeprefix("/v1")) if is_call else None
        try:
            if request.headers.get(HOP_HEADER) is not None:
                raise LoopFound(
                    "This call has been through this proxy before: a provider's base URL points "
                    "back at it. Check OPENAI_BASE_URL and the [[provider]] rows."
                )
            if dialect is None:
                return await self._pass(request, address)
            entry = Entry(dialect, address.path, request.query, address.session, address.provider)
            caller = self._pipeline.read_caller(request, entry)
            if caller is not None:
                return await self._pipeline.answer(request, entry, caller)
            if self._settings.server.require_session:
                raise BadRequest(
                    "This proxy records every call and expects the header x-agent-session-id; "
                    "found none. Name a session, or turn server.require_session off.",
                    param="x-agent-session-id",
                )
            return await self._forward(request, address, dialect)
        except AgentStateError as error:
            return error_response(dialect or DIALECTS[0], error)

    def refuse(self, address: Address, error: AgentStateError) -> Response:
        """Answer with an error in the dialect of the path."""
        dialect = dialect_for_path(address.path.removeprefix("/v1"))
        return error_response(dialect or DIALECTS[0], error)

    async def _forward(self, request: Request, address: Address, dialect: Dialect) -> Response:
        """Send a call without a session upstream. Its body is read only to find the target."""
        raw = await request.body(self._settings.server.body_max_mb * MIB)
        ask = _maybe_ask(dialect, raw)
        target = self._targets.choose(
            dialect.provider, address.provider, ask.model if ask else "", request.headers
        )
        call = forward.out_call(target, request.headers, address.path, request.query, raw, ask)
        return await self._exchange(request, target, call)

    async def _pass(self, request: Request, address: Address) -> Response:
        """Pass any other request through, both bodies streamed."""
        target = self._targets.choose("openai", address.provider, "", request.headers)
        has_body = (
            request.headers.get(b"transfer-encoding") is not None
            or (request.headers.get(b"content-length") or b"0") != b"0"
        )
        call = OutCall(
            method=request.method,
            origin=target.origin,
            target=target.path(address.path, request.query),
            # Not decoded here, so that lengths, ranges and ETags mean what the upstream meant.
            headers=upstream_headers(request.headers, target, b"identity"),
            body=request.stream() if has_body else b"",
        )
        return await self._exchange(request, target, call)

    async def _exchange(self, request: Request, target: Target, call: OutCall) -> Response:
        limits = forward.time_limits(self._settings.forward)
        started_s = monotonic_s()
        try:
            exchange = await self._transports.of(target).send(call, limits)
        except UpstreamError as error:
            raise forward.name_provider(error, target.provider) from error
        overhead_s = started_s - request.started_s
        headers = list(passed_headers(exchange.headers))
        headers.append((b"x-agentstate-cache-hit", b"false"))
        headers.append((b"x-agentstate-provider", target.provider.encode()))
        headers.append((b"x-agentstate-overhead-ms", b"%.3f" % (overhead_s * 1000)))
        if (length := exchange.headers.get(b"content-length")) is not None:
            headers.append((b"content-length", length))
        return Response(exchange.status, headers, _Passing(exchange))


class _Passing:
    """An upstream's body on its way to the client; closing it closes the exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._chunks = exchange.chunks()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            await self._exchange.close()
            raise
        except UpstreamError as error:
            # The head is out: the only honest end is a cut connection.
            await self._exchange.close()
            raise Abort from error

    async def aclose(self) -> None:
        """Stop the upstream: nobody reads any more."""
        await self._exchange.close()


def _maybe_ask(dialect: Dialect, raw: bytes) -> Ask | None:
    # Without a session nothing is ours to judge: what cannot be read goes upstream as it is.
    try:
        return dialect.read_ask(canonical.parse(raw))
    except ClientError:
        return None


def _decode(segment: str) -> str:
    try:
        return decode_segment(segment)
    except UnicodeDecodeError as error:
        raise BadRequest(f"The path segment {shorten(segment)!r} is not UTF-8.") from error


def not_found(path: str) -> NotFound:
    """Return the error for a path that is neither proxy, API nor page."""
    return NotFound(
        f"There is nothing at {shorten(path)}. Agents use /v1/..., people /dashboard, tools /api."
    )
