"""One place a call can go to, and what it is sent there besides the body. Pure.

No provider ever gets another one's key: where a configured key is used, every header that could
carry the caller's is dropped first, and a provider the caller did not name gets only headers that
say nothing of anybody. Which places those are is decided in `routing.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
# All that a provider gets whom the caller knows nothing of: any other header may name an account.
_FOR_STRANGERS = frozenset(
    (b"accept", b"content-type", b"content-encoding", b"user-agent", b"traceparent")
)  # fmt: skip
# Which of Anthropic's forms a body is in: without it the body cannot be read, whoever it is for.
_OF_FORM = frozenset((b"anthropic-version", b"anthropic-beta"))
# What a vendor's SDK says to its vendor; the organisation that pays is among it.
_OF_VENDORS = (b"openai-", b"anthropic-", b"x-goog-")
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
    key_header: bytes = b"authorization"  # where the key goes, lower case
    takes_callers_key: bool = False  # the caller named this provider, so its key is for it
    is_mock: bool = False
    is_native: bool = False  # Gemini's own form, below another base than its OpenAI form
    # The form it is asked in, a name in `DIALECTS`; '' = the caller's own: nothing is translated.
    dialect: str = ""
    is_stranger: bool = False  # neither the endpoint's own provider nor one the caller named

    @property
    def label(self) -> str:
        """Return "provider/model", for people."""
        return f"{self.provider}/{self.model}"

    def path(self, path: str, query: str) -> bytes:
        """Return the upstream target of our `path` (which begins with /v1)."""
        # Some clients of Anthropic's write its base URL with /v1 all the same; so do people then.
        keeps_v1 = self.keeps_v1 and not self.base_path.endswith("/v1")
        rest = path if keeps_v1 else path.removeprefix("/v1")
        return (self.base_path + rest + ("?" + query if query else "")).encode("latin-1")


def is_native(path: str) -> bool:
    """Tell whether a path is in Gemini's own form, by the path alone."""
    return _NATIVE.match(path) is not None


# Headers that have a key and nothing else.
_KEYS_ALONE = (b"x-api-key", b"api-key", b"x-goog-api-key")
OUR_TOKEN = b"x-agentstate-token"


def caller_key(headers: Headers) -> bytes | None:
    """Return the key the caller sent, or None."""
    if bearer := headers.get(b"authorization"):
        scheme, _, key = bearer.strip().partition(b" ")
        return key.strip() if scheme.lower() == b"bearer" else bearer
    for name in _KEYS_ALONE:
        if value := headers.get(name):
            return value.strip()
    return None


def keys_sent(headers: Headers) -> list[str]:
    """Return all keys and tokens that a caller sent: nothing on record may have them."""
    found = [caller_key(headers), *(headers.get(name) for name in (*_KEYS_ALONE, OUR_TOKEN))]
    return list(dict.fromkeys(key.decode("latin-1").strip() for key in found if key))


def upstream_headers(
    headers: Headers, target: Target, codings: bytes = b"gzip, identity"
) -> tuple[Pair, ...]:
    """Return the headers that go upstream: the caller's, minus what is ours or between us.

    Upstream is offered only codings that can be decoded here (`codings`). A target that is asked in
    another form than the caller's wants the caller's key, where that is for it, in another place.
    """
    moves_key = target.takes_callers_key and bool(target.dialect)
    keeps_key = target.takes_callers_key and not moves_key
    dropped = _STAYS_HERE if keeps_key else _STAYS_HERE | _KEY_HEADERS
    is_messages = not target.dialect and target.key_header == b"x-api-key"
    passes = _FOR_STRANGERS | _OF_FORM if is_messages else _FOR_STRANGERS
    listed = b",".join(headers.all(b"connection"))
    if listed:
        dropped = dropped | frozenset(name.strip().lower() for name in listed.split(b","))
    kept = [
        pair
        for pair in headers
        if (name := pair[0].lower()) not in dropped
        and not name.startswith(_PREFIXES_HERE)
        and (name in passes or not target.is_stranger)
        and not (target.dialect and name.startswith(_OF_VENDORS))
    ]
    kept.append((b"accept-encoding", codings))
    kept.append((HOP_HEADER, b"1"))
    key = caller_key(headers) if moves_key else None
    if target.key is not None:
        key = target.key.encode()
    if key is not None:
        is_bearer = target.key_header == b"authorization"
        kept.append((target.key_header, (b"Bearer " if is_bearer else b"") + key))
    return tuple(kept)
