"""Which provider, model, address and key a call goes to. Pure.

Keys: the endpoint's own provider (or the one in /p/) gets the caller's key; a provider chosen by a
prefix gets its configured key. No provider ever gets another one's key: where a configured key is
used, every header that could carry the caller's is dropped first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from agentstate.ground.addresses import is_loopback
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.settings import ProviderSettings
from agentstate.wire.message import HOP_BY_HOP, Headers, Origin, Pair

MOCK = "mock"
MOCK_ORIGIN = Origin("mock", "mock", 0)
# People paste these from examples; they mean "use what is configured, or the mock".
PLACEHOLDER_KEYS = frozenset((b"mock-key", b"your-api-key"))

# Google's own versions; and under /v1, which it shares with others, its verbs after a model's name.
# Ids of others end in one lower-case word at most, as in moonshotai/kimi-k2:free.
_NATIVE = re.compile(
    r"/v1(?:alpha|beta)|/(?:up|down)load/v1|/v1/models/[^:]+:(?:[a-z]+[A-Z]\w*|predict)$"
)
_WILD = frozenset("*?[")  # what makes a `models` setting a pattern
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
    key: str | None  # configured key to use; None = none
    takes_callers_key: bool = False  # the caller named this provider, so its key is for it
    is_mock: bool = False
    is_native: bool = False  # Gemini's own form, below another base than its OpenAI form

    def path(self, path: str, query: str) -> bytes:
        """Return the upstream target of our `path` (which begins with /v1)."""
        # Some clients of Anthropic's write its base URL with /v1 all the same; so do people then.
        keeps_v1 = self.keeps_v1 and not self.base_path.endswith("/v1")
        rest = path if keeps_v1 else path.removeprefix("/v1")
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
        self,
        endpoint_provider: str,
        url_provider: str | None,
        model: str,
        headers: Headers,
        *,
        is_native: bool = False,
    ) -> Target:
        """Return the target of a call. `is_native`: it is in Gemini's own form.

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
        # Gemini's own form is not translated, so no prefix leads elsewhere.
        is_prefixed = url_provider is None and slash and not is_native
        if is_prefixed and self._is_prefix(prefix, endpoint_provider):
            return self._target(prefix, rest, uses_configured=True)
        row = self._providers.get(name)
        if row is None:
            raise BadRequest(f"No provider {name!r} is configured for this endpoint.")
        sent = caller_key(headers)
        if sent in PLACEHOLDER_KEYS and row.api_key is None:
            return _mock(model)
        uses_configured = sent is None or sent in PLACEHOLDER_KEYS
        target = self._target(name, model, uses_configured=uses_configured)
        return _as_native(target) if is_native else target

    def list_models(self, endpoint_provider: str, url_provider: str | None) -> tuple[str, ...]:
        """Return the names in `models` settings that can be asked for as they are, in order.

        Patterns name no model. A provider's own endpoint takes its bare names; those of others are
        told with the prefix they need, where it counts.
        """
        own = url_provider or endpoint_provider
        found: list[str] = []
        for row in () if self._mock_only else self._providers.values():
            names = [name for name in row.models if not _WILD.intersection(name)]
            if row.name == own:
                found.extend(names)
            elif url_provider is None and self._is_prefix(row.name, endpoint_provider):
                found.extend(f"{row.name}/{name}" for name in names)
        return tuple(dict.fromkeys(found))

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
            takes_callers_key=not uses_configured,
        )


def is_native(path: str) -> bool:
    """Tell whether a path is in Gemini's own form, by the path alone."""
    return _NATIVE.match(path) is not None


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
    dropped = _STAYS_HERE if target.takes_callers_key else _STAYS_HERE | _KEY_HEADERS
    listed = b",".join(headers.all(b"connection"))
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
        if target.is_native:
            kept.append((b"x-goog-api-key", target.key.encode()))
        elif target.keeps_v1:
            kept.append((b"x-api-key", target.key.encode()))
        else:
            kept.append((b"authorization", b"Bearer " + target.key.encode()))
    return tuple(kept)


def _mock(model: str) -> Target:
    return Target(MOCK, model, MOCK_ORIGIN, "/v1", False, None, is_mock=True)


def _as_native(target: Target) -> Target:
    """Return the target for Gemini's own form.

    A base URL is written as the OpenAI form wants it (.../v1beta/openai); the native one is what is
    left without that and without the version, since native paths begin with theirs.
    """
    root = re.sub(r"/v\d+(alpha|beta)?\d*$", "", target.base_path.removesuffix("/openai"))
    return replace(target, base_path=root, keeps_v1=True, is_native=True)


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")
