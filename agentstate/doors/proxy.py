"""The door agents use: everything under /v1 (and Google's /v1beta), a session or a provider in the
URL or not.

Five ways through. A call to a path some dialect speaks that names a session goes into the
pipeline. The same call without a session goes upstream as it is and is neither recorded nor
counted. A response that a session fetches by its id, or has made in the background, is held like
any other (`steps/fetched.py`). The list of models is put together (`models.py`). All other methods
and paths pass through, streamed both ways, nothing buffered; a WebSocket is refused, and so is what
leads a session round the gate (`gated.py`).

The invariant: what passes through is what it would be without us. A body that was cut never looks
whole, and an upstream is left as soon as its client is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes

from agentstate.dialects import DIALECTS, dialect_for_path
from agentstate.dialects.base import Ask, Dialect
from agentstate.doors import gated, models
from agentstate.ground import canonical
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    ClientError,
    UngatedPath,
    UpstreamError,
    shorten,
)
from agentstate.ground.settings import Settings
from agentstate.steps import forward
from agentstate.steps.call import Entry
from agentstate.steps.fetched import Fetch, fetched_id
from agentstate.steps.forward import Transports
from agentstate.steps.identify import Caller, check_session
from agentstate.steps.leaving import unless_gone
from agentstate.steps.pipeline import Pipeline
from agentstate.steps.reply import error_response, passed_headers
from agentstate.steps.routing import Inquiry, Targets
from agentstate.steps.target import HOP_HEADER, Target, is_native, upstream_headers
from agentstate.wire.message import (
    Abort,
    Exchange,
    Headers,
    OutCall,
    Request,
    Response,
    TimeLimits,
    decode_segment,
)

MIB = 1024 * 1024
# A file somebody uploaded must not run as a page of the dashboard's origin.
_NO_PAGE = ((b"x-content-type-options", b"nosniff"), (b"content-security-policy", b"sandbox"))
# What makes an upstream leave out a part of what it has: a part cannot be looked into.
_PARTS = frozenset((b"range", b"if-range"))


class LoopFound(ClientError):
    """The call has been through this proxy already: a base URL points back at it."""

    code = "proxy_loop"
    status = 508


class WebSocketUnsupported(ClientError):
    """The call asks to switch to a WebSocket."""

    code = "websocket_unsupported"
    status = 501


@dataclass(frozen=True, slots=True)
class Address:
    """What a path under the proxy says."""

    path: str  # from /v1 or another version on, escapes untouched
    session: str | None = None
    provider: str | None = None


def read_address(path: str) -> Address | None:
    """Read `[/s/{session}][/p/{provider}]/v1/...`; None if the path is no proxy path.

    Google's versions (/v1beta, /v1alpha) are proxy paths too, those of its uploads included.

    Raises:
        BadRequest: the session in the URL cannot be one.
    """
    session = provider = None
    rest = path
    # In either order, each once.
    for _ in range(2):
        if session is None and rest.startswith("/s/"):
            name, _, rest = rest[3:].partition("/")
            session = check_session(_decode(name), "The session in the URL")
            rest = "/" + rest
        elif provider is None and rest.startswith("/p/"):
            name, _, rest = rest[3:].partition("/")
            provider = _decode(name)
            rest = "/" + rest
    if rest != "/v1" and not rest.startswith("/v1/") and not is_native(rest):
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
        dialect = dialect_for_path(gated.below(address.path), request.query) if is_call else None
        owner = (
            dialect.provider if dialect else owner_of(gated.below(address.path), request.headers)
        )
        try:
            if self._pipeline.gate.settings.strict:
                _check_strict(request, address)
            _check_head(request)
            if owner == "gemini":
                hide_key(request)
            if dialect is None:
                return await self._answer_other(request, address, owner)
            entry = Entry(dialect, address.path, request.query, address.session, address.provider)
            caller = self._pipeline.read_caller(request, entry)
            if caller is not None:
                response = await self._pipeline.answer(request, entry, caller)
                if response is not None:
                    return response
            elif self._settings.server.require_session:
                raise BadRequest(
                    "This proxy records every call and expects the header x-agent-session-id; "
                    "found none. Name a session, or turn server.require_session off.",
                    param="x-agent-session-id",
                )
            self._check_online(request, address, caller)
            return await self._forward(request, address, dialect, caller)
        except AgentStateError as error:
            return error_response(dialect or dialect_of(owner), error)

    def refuse(self, address: Address | None, error: AgentStateError) -> Response:
        """Answer with an error in the dialect of the path; None = it could not be read."""
        if address is None:
            return error_response(DIALECTS[0], error)
        path = gated.below(address.path)
        return error_response(
            dialect_for_path(path) or dialect_of(owner_of(path, Headers())), error
        )

    async def _forward(
        self, request: Request, address: Address, dialect: Dialect, caller: Caller | None
    ) -> Response:
        """Send a call that is not recorded upstream. Its body is read only to find the target.

        Of a session it is a request in the background, whose answer is looked at all the same.
        """
        raw = await request.body(self._settings.server.body_max_mb * MIB)
        is_large = len(raw) > canonical.OFF_LOOP_BYTES
        ask = (
            await asyncio.to_thread(_maybe_ask, dialect, raw)
            if is_large
            else _maybe_ask(dialect, raw)
        )
        if caller is None and ask is not None and not ask.passes_through:
            entry = Entry(dialect, address.path, request.query, address.session, address.provider)
            answered = await self._pipeline.answer_unrecorded(request, entry, raw, ask)
            if answered is not None:
                return answered
        target = self._targets.choose(
            Inquiry(
                owner=dialect.provider,
                headers=request.headers,
                model=ask.model if ask else "",
                url_provider=address.provider,
                dialect=dialect.name,
                is_native=is_native(address.path),
            )
        )
        if target.dialect:
            why = "its body cannot be read" if ask is None else "it is answered in the background"
            raise BadRequest(
                f"{target.provider} is asked in another form, and this call cannot be translated: "
                f"{why}.",
                param="model",
            )
        query = "" if target.is_stranger else request.query
        call = forward.out_call(target, request.headers, address.path, query, raw, ask)
        if caller is not None and await self._pipeline.fetched.is_needed(caller, None):
            return await self._fetch(Fetch(request, dialect, caller, target, None), call)
        return await self._exchange(request, target, call, self._limits)

    async def _answer_other(self, request: Request, address: Address, owner: str) -> Response:
        """Answer what is no call of a dialect."""
        fault = gated.maybe_way_round(request.method, address.path, request.query)
        if fault is not None and self._read_caller(request, address) is not None:
            raise fault
        target = self._targets.choose(
            Inquiry(
                owner=owner,
                headers=request.headers,
                url_provider=address.provider,
                is_native=owner == "gemini",
            )
        )
        if request.method == "GET" and address.path == "/v1/models" and not target.keeps_v1:
            names = self._targets.list_models(owner, address.provider)
            if self._pipeline.offline is not None:
                return models.configured_list(names, "offline")
            return await self._list_models(request, target, names)
        self._check_online(request, address, None)
        response_id = fetched_id(request.method, address.path)
        if response_id is not None:
            responses = dialect_for_path("/responses")
            assert responses is not None, "Responses is a dialect"
            caller = self._read_caller(request, address)
            fetched = self._pipeline.fetched
            if caller is not None and await fetched.is_needed(caller, response_id):
                fetch = Fetch(request, responses, caller, target, response_id)
                return await self._fetch(fetch, await self._out_fetch(request, address, target))
        return await self._pass(request, address, target)

    def _check_online(self, request: Request, address: Address, caller: Caller | None) -> None:
        """Refuse what could only go upstream if nothing may: raises `OfflineMiss`."""
        offline = self._pipeline.offline
        if offline is None:
            return
        what = f"{request.method} {shorten(address.path)}"
        why = "it is not recorded"
        if caller is not None:
            why = "a request in the background is not recorded"
        elif dialect_for_path(gated.below(address.path), request.query) is not None:
            why = (
                "it names no session. Put it into the base URL, as in /s/SESSION/v1, or into the "
                "header x-agent-session-id"
            )
        raise offline.refuse(what, why)

    def _read_caller(self, request: Request, address: Address) -> Caller | None:
        """Read who makes a request that is no call of a dialect; None = no session is named."""
        entry = Entry(DIALECTS[0], address.path, request.query, address.session, address.provider)
        return self._pipeline.read_caller(request, entry)

    async def _out_fetch(self, request: Request, address: Address, target: Target) -> OutCall:
        return OutCall(
            method=request.method,
            origin=target.origin,
            target=target.path(address.path, request.query),
            headers=upstream_headers(request.headers.without(_PARTS), target),
            body=await request.body(self._settings.server.body_max_mb * MIB),
        )

    async def _fetch(self, fetch: Fetch, call: OutCall) -> Response:
        """Ask for a response of a session's; its tool calls are looked at first."""
        exchange = await self._send(fetch.request, fetch.target, call, self._limits)
        response = await self._pipeline.fetched.answer(fetch, exchange)
        response.headers.extend(_NO_PAGE)
        return response

    async def _list_models(
        self, request: Request, target: Target, names: tuple[str, ...]
    ) -> Response:
        """Answer with the upstream's models and `names`; with these alone where it has no list."""
        call = OutCall(
            method="GET",
            origin=target.origin,
            target=target.path("/v1/models", request.query),
            headers=upstream_headers(request.headers.without(models.CONDITIONS), target),
        )
        limits = replace(self._limits, total_s=models.LIST_TIMEOUT_S)
        try:
            exchange = await self._send(request, target, call, limits)
            try:
                raw = await exchange.read(models.LIST_BYTES_MAX)
            finally:
                await exchange.close()
        except UpstreamError as error:
            return models.configured_list(names, f"{target.provider}: {error.code}")
        missing = f"{target.provider} answered {exchange.status}"
        if not 200 <= exchange.status < 300:
            return models.configured_list(names, missing)
        response = models.merged_list(exchange, raw, names)
        return response or models.configured_list(names, f"{missing} with no list")

    async def _pass(self, request: Request, address: Address, target: Target) -> Response:
        """Pass any other request through, both bodies streamed."""
        length = request.headers.get(b"content-length")
        has_body = request.headers.get(b"transfer-encoding") is not None or (length or b"0") != b"0"
        call = OutCall(
            method=request.method,
            origin=target.origin,
            target=target.path(address.path, request.query),
            # Not decoded here, so that lengths, ranges and ETags mean what the upstream meant.
            headers=upstream_headers(request.headers, target, b"identity"),
            body=request.stream() if has_body else b"",
            body_bytes=int(length) if has_body and length is not None else None,
        )
        # A file may take as long as it takes, as long as it moves.
        limits = replace(self._limits, total_s=0.0)
        return await self._exchange(request, target, call, limits)

    @property
    def _limits(self) -> TimeLimits:
        return forward.time_limits(self._settings.forward)

    async def _exchange(
        self, request: Request, target: Target, call: OutCall, limits: TimeLimits
    ) -> Response:
        """Send a call and return the response as it comes, its body streamed."""
        overhead_s = monotonic_s() - request.started_s
        exchange = await self._send(request, target, call, limits)
        headers = list(passed_headers(exchange.headers))
        if target.is_mock:
            headers.append((b"x-agentstate-mock", b"true"))
        headers.extend(_NO_PAGE)
        headers.append((b"x-agentstate-cache-hit", b"false"))
        headers.append((b"x-agentstate-provider", target.provider.encode()))
        headers.append((b"x-agentstate-overhead-ms", b"%.3f" % (overhead_s * 1000)))
        if (length := exchange.headers.get(b"content-length")) is not None:
            headers.append((b"content-length", length))
        return Response(exchange.status, headers, _Passing(exchange))

    async def _send(
        self, request: Request, target: Target, call: OutCall, limits: TimeLimits
    ) -> Exchange:
        """Send a call for a client, and leave the upstream if it leaves.

        Raises:
            UpstreamError: as the transport says, with the provider's name.
            ConnectionError: the client left before the upstream had answered.
        """
        try:
            return await unless_gone(request, self._transports.of(target).send(call, limits))
        except UpstreamError as error:
            raise forward.name_provider(error, target.provider) from error


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
        except (AgentStateError, ConnectionError) as error:
            # The upstream's end or, of an upload that goes on beside the answer, the client's. The
            # head is out: the only honest end is a cut connection.
            await self._exchange.close()
            raise Abort from error

    async def aclose(self) -> None:
        """Stop the upstream: nobody reads any more."""
        await self._exchange.close()


def owner_of(path: str, headers: Headers) -> str:
    """Return the provider whose path below /v1 this is, where no dialect takes the call itself.

    What lies below a dialect's path is its provider's (`/messages/count_tokens`). The paths that
    several have (`/models`, `/files`) are told apart by the headers that Anthropic requires, and
    those that Google's clients send.
    """
    if is_native(path) or is_native("/v1" + path):
        return "gemini"
    for dialect in DIALECTS:
        if any(path == each or path.startswith(each + "/") for each in dialect.paths):
            return dialect.provider
    if headers.get(b"anthropic-version") is not None:
        return "anthropic"
    if any(headers.get(name) is not None for name in (b"x-goog-api-key", b"x-goog-api-client")):
        return "gemini"
    return DIALECTS[0].provider


def dialect_of(provider: str) -> Dialect:
    """Return the dialect in which a provider's clients read errors."""
    return next((each for each in DIALECTS if each.provider == provider), DIALECTS[0])


def hide_key(request: Request) -> None:
    """Move a key that Google's clients may send in the query to where all others send theirs.

    What handles keys (choice of the target, the record, the log) looks for them in headers; the
    upstream takes it there as well.
    """
    fields = request.query.split("&")
    keys = [each for each in fields if each.startswith("key=")]
    if not keys:
        return
    request.query = "&".join(each for each in fields if not each.startswith("key="))
    if request.headers.get(b"x-goog-api-key") is None:
        key = unquote_to_bytes(keys[0].removeprefix("key="))
        if any(byte < 33 or byte > 126 for byte in key):
            raise BadRequest("The key in the query holds what no key does.", param="key")
        request.headers = Headers((*request.headers, (b"x-goog-api-key", key)))


def _check_head(request: Request) -> None:
    """Refuse what may not or cannot go upstream, by its head alone."""
    if request.headers.get(HOP_HEADER) is not None:
        raise LoopFound(
            "This call has been through this proxy before: a provider's base URL points back at "
            "it. Check OPENAI_BASE_URL and the [[provider]] rows."
        )
    if _wants_websocket(request):
        raise WebSocketUnsupported(
            "This proxy does not speak WebSocket, which this call asks to switch to (realtime, or "
            "Responses over WebSocket). Use the HTTP form of the API, or connect to the provider "
            "directly; such calls are neither recorded nor gated."
        )


def _wants_websocket(request: Request) -> bool:
    upgrades = b",".join(request.headers.all(b"upgrade")).lower().split(b",")
    return any(protocol.strip().partition(b"/")[0] == b"websocket" for protocol in upgrades)


def _check_strict(request: Request, address: Address) -> None:
    """Refuse what may return a model's tool calls past the gate."""
    if _wants_websocket(request):
        raise UngatedPath("gate.strict is on, and tool calls over a WebSocket cannot be held.")
    gated.check_strict(request.method, address.path, request.query)


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
