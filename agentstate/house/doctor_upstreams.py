"""The doctor's probe of providers: asks each for its models, with the key that is configured.

A list of models is what every provider gives for nothing, to those alone whose key is good. Each
call is bounded as a whole, and all run at once. How a call failed is told apart by the errors
below ours; nothing here says how bad that is.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import UpstreamCut, UpstreamError, UpstreamProtocol, UpstreamTimeout
from agentstate.ground.settings import ForwardSettings, Network, ProviderSettings
from agentstate.house.doctor_here import proxies_of
from agentstate.house.doctor_keys import key_fault
from agentstate.house.doctor_seen import AnswerSeen, Failure
from agentstate.steps.target import HOP_HEADER
from agentstate.wire.client import HTTPClient, Proxies, tls_context
from agentstate.wire.head import authority
from agentstate.wire.message import Exchange, Headers, Origin, OutCall, Pair, TimeLimits

LIMIT_S = 5.0  # of all that is asked of one provider
MARGIN_S = 0.1  # by which a connection's own limit comes first, to be told from a slow answer
EXCERPT_BYTES_MAX = 64 * 1024  # of an error; a list is not read

_ASKED_WITH: tuple[Pair, ...] = ((b"accept", b"application/json"),
                                 (b"accept-encoding", b"gzip, identity"))  # fmt: skip
_ANTHROPIC_VERSION = b"2023-06-01"  # the only one there has been; a call without is refused
# What Google says with a 400, and Anthropic's and OpenAI's words in case they do.
_BLAMES_KEY = re.compile(rb"api[ _-]?key", re.IGNORECASE)
_HALF_SECOND_MS = 500  # Date counts whole seconds: on the average the truth is half of one later


async def ask_providers(
    rows: Sequence[ProviderSettings], network: Network, *, limit_s: float = LIMIT_S
) -> Mapping[str, AnswerSeen]:
    """Ask all of them at once; return what each said, by name.

    Raises:
        SettingError: certificates or proxies cannot be used: look at those first.
    """
    proxies = proxies_of(network)
    context = tls_context(network.ssl_cert_file, network.ssl_cert_dir)
    client = HTTPClient(ForwardSettings(), proxies=proxies, tls=context)
    try:
        asked = (_ask(row, client, proxies, limit_s) for row in rows)
        answers = await asyncio.gather(*asked)
    finally:
        await client.close()
    return {row.name: answer for row, answer in zip(rows, answers, strict=True)}


async def _ask(
    row: ProviderSettings, client: HTTPClient, proxies: Proxies, limit_s: float
) -> AnswerSeen:
    """Ask one provider, within the limit."""
    origin = Origin.of(row.base_url)
    proxy = proxies.find(origin)
    peer = origin if proxy is None else proxy.origin
    via = None if proxy is None else authority(peer)
    until_s = asyncio.get_running_loop().time() + limit_s
    # What cannot be a key is not sent: the call would fail by it, and look like a fault of theirs.
    is_sent = row.api_key is not None and key_fault(row.api_key) is None
    try:
        async with asyncio.timeout_at(until_s):
            await _resolve(peer, limit_s - MARGIN_S)
            answer = await _list_models(row if is_sent else _keyless(row), client, until_s)
    except TimeoutError:
        return AnswerSeen("answer_timeout", via=via)
    except UpstreamError as error:
        return AnswerSeen(_failure_of(error), _detail_of(error), via)
    except (OSError, UnicodeError) as error:  # of the resolver; a name can be none at all
        return AnswerSeen("dns", getattr(error, "strerror", None) or str(error), via)
    is_open = is_sent and answer.status < 300 and await _is_open(row, client, until_s)
    return replace(answer, via=via, is_open=is_open)


async def _is_open(row: ProviderSettings, client: HTTPClient, until_s: float) -> bool:
    """Say whether it gives its list without a key too, so that the list proves nothing of one."""
    try:
        async with asyncio.timeout_at(until_s):
            return (await _list_models(_keyless(row), client, until_s)).status < 300
    except (TimeoutError, UpstreamError):
        return False


def _keyless(row: ProviderSettings) -> ProviderSettings:
    return replace(row, api_key=None)


async def _resolve(peer: Origin, limit_s: float) -> None:
    """Look a host up, so that a silent resolver is not taken for a silent host.

    Raises:
        OSError: there is no such name, or no answer in time.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Exception | None] = loop.create_future()

    def settle(fault: Exception | None) -> None:
        if not found.done():
            found.set_result(fault)

    def look_up() -> None:
        fault: Exception | None = None
        try:
            socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            fault = error
        try:
            loop.call_soon_threadsafe(settle, fault)
        except RuntimeError:
            pass  # the loop was closed meanwhile: nobody waits

    # Not in the loop's own threads: a resolver can take half a minute to give up, and the end of
    # the program waits for those.
    threading.Thread(target=look_up, daemon=True).start()
    try:
        async with asyncio.timeout(limit_s):
            fault = await found
    except TimeoutError as error:
        told = f"no name server answered within {limit_s:.0f} s"
        raise socket.gaierror(socket.EAI_AGAIN, told) from error
    if fault is not None:
        raise fault


async def _list_models(row: ProviderSettings, client: HTTPClient, until_s: float) -> AnswerSeen:
    """Ask for the models and read as much of the answer as is needed to judge it."""
    call = list_call(row)
    left_s = max(until_s - asyncio.get_running_loop().time(), 2 * MARGIN_S)
    limits = TimeLimits(left_s - MARGIN_S, left_s, left_s, 0)
    before_ms, before_s = now_ms(), monotonic_s()
    exchange = await client.send(call, limits)
    took_ms = round((monotonic_s() - before_s) * 1000)
    try:
        excerpt = b"" if exchange.status < 300 else await _excerpt(exchange, until_s)
    finally:
        await exchange.close()
    media_type = (exchange.headers.text(b"content-type") or "").partition(";")[0].strip().lower()
    return AnswerSeen(
        status=exchange.status,
        media_type=media_type,
        blames_key=exchange.status == 400 and _BLAMES_KEY.search(excerpt) is not None,
        is_loop=exchange.status == 508 and b"proxy_loop" in excerpt,
        took_ms=took_ms,
        skew_ms=_skew_ms(exchange.headers, before_ms + took_ms // 2),
        doubt_ms=took_ms // 2 + _HALF_SECOND_MS,
    )


def list_call(row: ProviderSettings) -> OutCall:
    """Return the call that asks a provider for its models, in the form it speaks best. Pure."""
    form = row.dialect[0] if row.dialect else "openai_chat"
    origin, path = Origin.of(row.base_url), urlsplit(row.base_url).path.rstrip("/")
    headers: list[Pair] = [*_ASKED_WITH, (HOP_HEADER, b"1")]
    match form:
        case "anthropic_messages":
            headers.append((b"anthropic-version", _ANTHROPIC_VERSION))
            target, header, scheme = path.removesuffix("/v1") + "/v1/models", b"x-api-key", b""
        case "gemini":
            root = re.sub(r"/v\d+(alpha|beta)?\d*$", "", path.removesuffix("/openai"))
            target, header, scheme = root + "/v1beta/models", b"x-goog-api-key", b""
        case "ollama_chat":
            target = path.removesuffix("/v1") + "/api/tags"
            header, scheme = b"authorization", b"Bearer "
        case _:
            target, header, scheme = path + "/models", b"authorization", b"Bearer "
    if row.api_key is not None:
        headers.append((header, scheme + row.api_key.encode()))
    return OutCall("GET", origin, target.encode("ascii"), tuple(headers))


async def _excerpt(exchange: Exchange, until_s: float) -> bytes:
    """Read the beginning of an error; one that is cut or stalls is an error all the same."""
    raw = b""
    try:
        async with asyncio.timeout_at(until_s - MARGIN_S):
            async for chunk in exchange.chunks():
                raw += chunk
                if len(raw) >= EXCERPT_BYTES_MAX:
                    break
    except (UpstreamError, TimeoutError):
        pass  # the status has been said, which is what counts
    return raw


def _skew_ms(headers: Headers, our_ms: int) -> int | None:
    """Return our clock minus theirs in the middle of the call; None = it is not told."""
    date = headers.text(b"date")
    if date is None or headers.get(b"age") is not None:  # from a cache: as old as it is
        return None
    try:
        theirs_ms = round(parsedate_to_datetime(date).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return our_ms - theirs_ms - _HALF_SECOND_MS


def _failure_of(error: UpstreamError) -> Failure:
    if isinstance(error, UpstreamTimeout):
        return "connect_timeout" if error.limit == "connect" else "answer_timeout"
    for cause in _causes(error):
        # Only the floor of the wire knows ssl, so its errors are known by what they are called.
        kinds = {kind.__name__ for kind in type(cause).__mro__}
        if "SSLCertVerificationError" in kinds:
            return "certificate"
        if "SSLError" in kinds:
            return "tls"
        if isinstance(cause, socket.gaierror | UnicodeError):
            return "dns"
        if isinstance(cause, ConnectionRefusedError):
            return "refused"
        if isinstance(cause, OSError) and cause.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return "unreachable"
        if isinstance(cause, OSError) and cause.errno == errno.ETIMEDOUT:
            return "connect_timeout"
    return _failure_of_speech(error)


def _failure_of_speech(error: UpstreamError) -> Failure:
    """Say what went wrong after a connection was made."""
    if error.message.startswith(("The proxy ", "No tunnel to ")):
        return "tunnel"
    kinds = [type(each) for each in _causes(error)]
    if any(issubclass(kind, UpstreamProtocol) for kind in kinds):
        return "garbled"
    if any(issubclass(kind, UpstreamCut | ConnectionError) for kind in kinds):
        return "closed"
    return "other"


def _detail_of(error: UpstreamError) -> str:
    """Return the shortest true words: those of the system, else ours."""
    for cause in _causes(error):
        if told := getattr(cause, "verify_message", None) or getattr(cause, "reason", None):
            return str(told)
    return error.message


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
