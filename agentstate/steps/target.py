"""Which provider, model, address and key a call goes to. Pure.

Keys: the endpoint's own provider (or the one in /p/) gets the caller's key; a provider chosen by a
prefix gets its configured key. No provider ever gets another one's key: where a configured key is
used, every header that could carry the caller's is dropped first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.settings import ProviderSettings
from agentstate.wire.message import HOP_BY_HOP, Headers, Origin, Pair

MOCK = "mock"
MOCK_ORIGIN = Origin("mock", "mock", 0)
# People paste these from examples; they mean "use what is configured, or the mock".
PLACEHOLDER_KEYS = frozenset((b"mock-key", b"your-api-key"))

_KEY_HEADERS = frozenset((b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"))
# What is between the client and us, or ours: never an upstream's business.
_STAYS_HERE = (
    HOP_BY_HOP
    | frozenset(
        (b"host", b"content-length", b"expect", b"accept-encoding", b"cookie", b"origin",
         b"referer", b"forwarded", b"via", b"x-real-ip")
    )
)  # fmt: skip
_PREFIXES_HERE = (b"x-agent-", b"x-agentstate-", b"x-forwarded-")
HOP_HEADER = b"x-agentstate-hop"  # stops a proxy that was pointed at itself


@dataclass(frozen=True, slots=True)
class Target:
    """One place a call can go to."""

    provider: str
    model: str  # as this provider knows it
    origin: Origin
    base_path: str  # of its base URL, without a trailing slash
    keeps_v1: bool  # the vendor's base URL does not end in /v1, so the path keeps it
    key: str | None  # configured key to use; None = the caller's goes along
    is_mock: bool = False

    def path(self, path: str, query: str) -> bytes:
        """Return the upstream target of our `path` (which begins with /v1)."""
        rest = path if self.keeps_v1 else path.removeprefix("/v1")
        return (self.base_path + rest + ("?" + query if query else "")).encode("latin-1")


class Targets:
    """The configured providers, by name."""

    def __init__(self, providers: Iterable[ProviderSettings], *, mock_only: bool = False) -> None:
        self._providers = {row.name: row for row in providers}
        self._mock_only = mock_only

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all providers, the mock included."""
        return (*self._providers, MOCK)

    def choose(
        self, endpoint_provider: str, url_provider: str | None, model: str, headers: Headers
    ) -> Target:
        """Return the target of a call.

        Raises:
            BadRequest: the URL names a provider that is not configured.
        """
        if (
            url_provider is not None
            and url_provider != MOCK
            and url_provider not in self._providers
        ):
            raise BadRequest(
                f"The URL names the provider {shorten(url_provider)!r}; configured are "
                f"{', '.join(self.names)}. Add a [[provider]] row or use one of these.",
                param="provider",
            )
        prefix, slash, rest = model.partition("/")
        if self._mock_only or url_provider == MOCK or (slash and prefix == MOCK):
            return _mock(rest if slash and prefix == MOCK else model)
        name = url_provider or endpoint_provider
        if url_provider is None and slash and self._is_prefix(prefix, endpoint_provider):
            return self._target(prefix, rest, uses_configured=prefix != endpoint_provider)
        row = self._providers.get(name)
        if row is None:
            raise BadRequest(f"No provider {name!r} is configured for this endpoint.")
        sent = caller_key(headers)
        if sent in PLACEHOLDER_KEYS:
            return self._target(name, model, uses_configured=True) if row.api_key else _mock(model)
        return self._target(name, model, uses_configured=sent is None)

    def _is_prefix(self, prefix: str, endpoint_provider: str) -> bool:
        # Aggregators name models "vendor/model" themselves. So a prefix counts only where that
        # provider can be reached: it has a key, or needs none because it runs on this machine.
        row = self._providers.get(prefix)
        if row is None or prefix == endpoint_provider:
            return False
        return row.api_key is not None or _is_local(row.base_url)

    def _target(self, name: str, model: str, *, uses_configured: bool) -> Target:
        row = self._providers[name]
        return Target(
            provider=name,
            model=model,
            origin=Origin.of(row.base_url),
            base_path=urlsplit(row.base_url).path.rstrip("/"),
            keeps_v1="anthropic_messages" in row.dialect,
            key=row.api_key if uses_configured else None,
        )


def caller_key(headers: Headers) -> bytes | None:
    """Return the key the caller sent, or None."""
    if bearer := headers.get(b"authorization"):
        scheme, _, key = bearer.strip().partition(b" ")
        return key.strip() if scheme.lower() == b"bearer" else bearer
    for name in (b"x-api-key", b"api-key", b"x-goog-api-key"):
        if value := headers.get(name):
            return value.strip()
    return None


def upstream_headers(
    headers: Headers, target: Target, codings: bytes = b"gzip, identity"
) -> tuple[Pair, ...]:
    """Return the headers that go upstream: the caller's, minus what is ours or between us.

    Upstream is offered only codings that can be decoded here (`codings`).
    """
    dropped = _STAYS_HERE if target.key is None else _STAYS_HERE | _KEY_HEADERS
    listed = headers.get(b"connection")
    if listed:
        dropped = dropped | frozenset(name.strip().lower() for name in listed.split(b","))
    kept = [
        pair
        for pair in headers
        if (name := pair[0].lower()) not in dropped and not name.startswith(_PREFIXES_HERE)
    ]
    kept.append((b"accept-encoding", codings))
    kept.append((HOP_HEADER, b"1"))
    if target.key is not None:
        if target.keeps_v1:
            kept.append((b"x-api-key", target.key.encode()))
        else:
            kept.append((b"authorization", b"Bearer " + target.key.encode()))
    return tuple(kept)


def _mock(model: str) -> Target:
    return Target(MOCK, model, MOCK_ORIGIN, "/v1", False, None, is_mock=True)


def _is_local(url: str) -> bool:
    return (urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1")
