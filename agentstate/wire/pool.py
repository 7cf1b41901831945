"""Which connections wait for the next call, and which way a new one goes. Pure.

`client.py` does what follows from the answers given here. `Pool` changes state in synchronous
functions that return what must be closed, so it is right at every await of its user, cancelled or
not. `Proxies` says whether a call goes through a proxy, by the rules of curl.

Invariant: a connection is either in the pool or in one caller's hands, never both.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote, urlsplit

from agentstate.ground.errors import SettingError
from agentstate.wire.message import Origin

C = TypeVar("C", bound=Hashable)


class Pool(Generic[C]):
    """Idle connections per origin, the last one given is the first one taken.

    Last in, first out keeps a few connections busy and lets the others expire. Connections in use
    are not counted and not limited here: a server's own limit on clients bounds them.
    """

    def __init__(self, per_origin_max: int) -> None:
        self._per_origin_max = per_origin_max
        # Connection -> when it expires. A dict keeps the order of insertion: the end is the top.
        self._idle: dict[Origin, dict[C, float]] = {}

    def take(self, origin: Origin, now_s: float) -> tuple[C | None, Sequence[C]]:
        """Take the most recently used connection; return it and expired ones to be closed."""
        idle = self._idle.get(origin)
        if idle is None:
            return None, ()
        found: C | None = None
        expired: list[C] = []
        while idle and found is None:
            connection, expires_s = idle.popitem()
            if now_s < expires_s:
                found = connection
            else:
                expired.append(connection)
        if not idle:
            del self._idle[origin]
        return found, expired

    def give(self, origin: Origin, connection: C, expires_s: float) -> C | None:
        """Put a connection in; return the one that must be closed to keep to the maximum."""
        idle = self._idle.setdefault(origin, {})
        assert connection not in idle, "given twice"
        idle[connection] = expires_s
        if len(idle) <= self._per_origin_max:
            return None
        oldest = next(iter(idle))
        self.drop(origin, oldest)
        return oldest

    def drop(self, origin: Origin, connection: C) -> bool:
        """Forget a connection that has ended; False = it was not idle here."""
        idle = self._idle.get(origin)
        if idle is None or idle.pop(connection, None) is None:
            return False
        if not idle:
            del self._idle[origin]
        return True

    def expire(self, now_s: float) -> list[C]:
        """Take out and return all that have expired; they must be closed."""
        expired = [
            (origin, connection)
            for origin, idle in self._idle.items()
            for connection, expires_s in idle.items()
            if expires_s <= now_s
        ]
        for origin, connection in expired:
            self.drop(origin, connection)
        return [connection for _, connection in expired]

    def next_expiry_s(self) -> float | None:
        """Return when `expire` next has work; None = nothing is idle."""
        return min((s for idle in self._idle.values() for s in idle.values()), default=None)

    def idle_count(self, origin: Origin) -> int:
        """Return how many connections to `origin` are idle."""
        return len(self._idle.get(origin, ()))


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that calls go through."""

    origin: Origin
    # The value of Proxy-Authorization; None = no user in the URL. A secret: not in the repr.
    authorization: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Proxies:
    """Which calls go through which proxy. None = those go straight."""

    http: Proxy | None = None  # for http:// upstreams
    https: Proxy | None = None  # for https:// upstreams, by CONNECT
    # Hosts that are reached straight: `example.com` (and all below it), `.example.com` (the same),
    # `example.com:8443`, addresses, networks such as `10.0.0.0/8`, `*` for all.
    no_proxy: tuple[str, ...] = ()
    proxies_loopback: bool = False  # also send localhost, 127.0.0.0/8 and ::1 through the proxy

    def find(self, origin: Origin) -> Proxy | None:
        """Return the proxy for calls to `origin`; None = go straight."""
        proxy = self.https if origin.scheme == "https" else self.http
        if proxy is None:
            return None
        host = origin.host.lower().rstrip(".")
        if _is_loopback(host) and not self.proxies_loopback:
            return None
        if any(_is_match(entry, host, origin.port) for entry in self.no_proxy):
            return None
        return proxy


def read_proxies(environ: Mapping[str, str]) -> Proxies:
    """Read HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, small letters first, as curl does.

    The first name that is present counts; an empty value means none. HTTP_PROXY in capitals is
    ignored where REQUEST_METHOD is set: under CGI a client can set it with a `Proxy:` header.

    Raises:
        SettingError: a value is no http or https proxy.
    """
    http_names = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environ:
        http_names.remove("HTTP_PROXY")
    https_names = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    _, exempt = _first_present(environ, ["no_proxy", "NO_PROXY"])
    return Proxies(
        http=_maybe_proxy(*_first_present(environ, http_names)),
        https=_maybe_proxy(*_first_present(environ, https_names)),
        no_proxy=tuple(exempt.replace(",", " ").split()),
    )


def _first_present(environ: Mapping[str, str], names: Sequence[str]) -> tuple[str, str]:
    for name in names:
        if name in environ:
            return name, environ[name].strip()
    return "", ""


def _maybe_proxy(name: str, url: str) -> Proxy | None:
    if not url:
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        origin = Origin.of(parts.geturl())
    except ValueError as error:  # a port that is no number
        raise SettingError(f"{name} is not a URL. Write http://HOST:PORT, or unset it.") from error
    if origin.scheme not in ("http", "https") or not origin.host:
        raise SettingError(
            f"{name} names a {origin.scheme!r} proxy; only http:// and https:// proxies are "
            "spoken here. Write http://HOST:PORT, or unset it.",
        )
    if parts.username is None:
        return Proxy(origin)
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return Proxy(origin, b"Basic " + base64.b64encode(user))


def _is_match(entry: str, host: str, port: int) -> bool:
    """Say whether an entry of NO_PROXY covers `host` (lower case) at `port`."""
    pattern, only_port = _split_port(entry.strip().lower())
    if only_port is not None and only_port != port:
        return False
    if pattern == "*":
        return True
    address = _maybe_address(host)
    if address is not None:  # "1.2.3.4" does not lie below a name "3.4"
        network = _maybe_network(pattern)
        return network is not None and address in network
    name = pattern.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _split_port(entry: str) -> tuple[str, int | None]:
    """Split `host:port`, `[v6]:port`, or either without a port."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        port = rest.removeprefix(":")
    elif entry.count(":") == 1:
        host, _, port = entry.partition(":")
    else:
        host, port = entry, ""  # a name, a network, or a bare IPv6 address
    return host, int(port) if port.isdecimal() else None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761 section 6.3
        return True
    address = _maybe_address(host)
    return address is not None and address.is_loopback


def _maybe_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _maybe_network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return None
