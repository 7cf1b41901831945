"""Where calls go: which target is asked, and which after it. Pure.

    /p/provider  >  provider/model  >  a provider whose `models` name it  >  the endpoint's own

Keys: the endpoint's own provider (or the one in /p/) gets the caller's key; one chosen by prefix,
by its models or as a fallback gets its configured key, or is skipped where it has none and needs
one. A target that does not speak the caller's form is asked in one it speaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import urlsplit

from agentstate.dialects import dialect_by_name
from agentstate.dialects.neutral import translates
from agentstate.ground.addresses import is_loopback
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.providers import has_own_models
from agentstate.ground.secrets import provider_of_key
from agentstate.ground.settings import ForwardSettings, ProviderSettings
from agentstate.steps.call import Entry
from agentstate.steps.target import (
    MOCK,
    MOCK_ORIGIN,
    PLACEHOLDER_KEYS,
    Target,
    caller_key,
    is_native,
)
from agentstate.wire.message import Headers, Origin, Request

FALLBACK_HEADER = b"x-agent-fallback-model"
TARGETS_MAX = 8  # of one call; a longer chain is a mistake, and each may be tried several times

_WILD = frozenset("*?[")  # what makes a `models` setting a pattern
_DEFAULT_FORMS = ("openai_chat",)  # what nearly every provider speaks that does not say
# What these give means something beside what the same model gave, and beside nothing else.
_OF_ONE_MODEL = frozenset(("openai_embeddings",))
# One family: a server that has one of them mostly has the others below the same base URL.
_OPENAI = "openai_"


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What of a call decides where it goes."""

    owner: str  # the provider whose endpoint was called
    headers: Headers
    model: str = ""  # '' = not known
    url_provider: str | None = None  # None = the URL names none
    dialect: str = ""  # of the call; '' = it is none of a dialect, and passes as it is
    is_native: bool = False  # in Gemini's own form

    @property
    def own(self) -> str:
        """The provider that gets the caller's key."""
        return self.url_provider or self.owner


def inquiry_of(request: Request, entry: Entry, model: str) -> Inquiry:
    """Return what of a call decides where it goes."""
    return Inquiry(
        owner=entry.dialect.provider,
        headers=request.headers,
        model=model,
        url_provider=entry.url_provider,
        dialect=entry.dialect.name,
        is_native=is_native(entry.path),
    )


@dataclass(frozen=True, slots=True)
class Chain:
    """The targets of one call in the order they are tried; there is always a first."""

    targets: tuple[Target, ...]
    # Fallbacks that cannot be asked, each with the reason, for people.
    skipped: tuple[str, ...] = field(default=())


class Targets:
    """The configured providers, by name."""

    def __init__(
        self,
        providers: Iterable[ProviderSettings],
        *,
        mock_only: bool = False,
        forward: ForwardSettings | None = None,  # None = the defaults
    ) -> None:
        self._providers = {row.name: row for row in providers}
        self._mock_only = mock_only
        self._forward = forward or ForwardSettings()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all providers, the mock included."""
        return (*self._providers, MOCK)

    def choose(self, asked: Inquiry) -> Target:
        """Return the target that a call is for.

        Raises:
            BadRequest: the URL names a provider that is not configured, or none can be asked.
        """
        url_provider, model = asked.url_provider, asked.model
        if url_provider not in (None, MOCK) and url_provider not in self._providers:
            raise BadRequest(
                f"The URL names the provider {shorten(url_provider)!r}; configured are "
                f"{', '.join(self.names)}. Add a [[provider]] row or use one of these.",
                param="provider",
            )
        prefix, slash, rest = model.partition("/")
        if self._mock_only or url_provider == MOCK or (slash and prefix == MOCK):
            return _mock(rest if slash and prefix == MOCK else model, asked)
        # In Gemini's own form the model is a part of the path, so it cannot have a prefix.
        if url_provider is None and slash and not asked.is_native:
            row = self._providers.get(prefix)
            if row is not None and prefix != asked.owner and _is_reachable(row):
                return self._target(row, rest, asked, is_named=True)
        own = self._providers.get(asked.own)
        if own is None:
            raise BadRequest(f"No provider {asked.own!r} is configured for this endpoint.")
        if url_provider is None and has_own_models(own) and (other := self._who_has(asked)):
            return self._target(other, model, asked)
        return self._own(own, model, asked)

    def chain(self, asked: Inquiry) -> Chain:
        """Return all the targets of a call: the one it is for, then its fallbacks.

        Raises:
            BadRequest: as `choose`, or the header names too many models.
        """
        first = self.choose(asked)
        targets, skipped = [first], list[str]()
        for name in self._fallbacks(asked):
            found = self._resolve(name, asked)
            if first.is_mock and isinstance(found, Target) and not found.is_mock:
                found = "what goes to the mock stays there"
            if isinstance(found, str):
                skipped.append(f"{shorten(name)}: {found}")
            elif all((found.provider, found.model) != (at.provider, at.model) for at in targets):
                targets.append(found)
        skipped += [
            f"{each.label}: more than {TARGETS_MAX} targets" for each in targets[TARGETS_MAX:]
        ]
        return Chain(tuple(targets[:TARGETS_MAX]), tuple(skipped))

    def examine(self, name: str, owner: str) -> tuple[str, str | None]:
        """Return (where a fallback's name leads for calls to an owner's endpoint, why it cannot be
        asked): for who looks at a configuration, without a call."""
        dialects = {"anthropic": "anthropic_messages", "gemini": "gemini"}
        asked = Inquiry(owner, Headers(), dialect=dialects.get(owner, "openai_chat"))
        found = self._resolve(name, asked)
        return (name, found) if isinstance(found, str) else (found.label, None)

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
            elif url_provider is None and row.name != endpoint_provider and _is_reachable(row):
                found.extend(f"{row.name}/{name}" for name in names)
        return tuple(dict.fromkeys(found))

    # --- fallbacks --------------------------------------------------------------------------

    def _fallbacks(self, asked: Inquiry) -> Sequence[str]:
        """Return the models to try after the first: the header's, the route's, or the setting's."""
        if not asked.dialect:
            return ()
        named = asked.headers.all(FALLBACK_HEADER)
        if named:
            # An empty one says: none, whatever is configured.
            text = b",".join(named).decode("latin-1")
            models = [name.strip() for name in text.split(",") if name.strip()]
            if len(models) >= TARGETS_MAX:
                raise BadRequest(
                    f"x-agent-fallback-model names {len(models)} models; expected at most "
                    f"{TARGETS_MAX - 1}.",
                    param="x-agent-fallback-model",
                )
            return models
        for route in self._forward.routes:
            if fnmatchcase(asked.model, route.model):
                return route.fallback
        return () if asked.dialect in _OF_ONE_MODEL else self._forward.fallback

    def _resolve(self, name: str, asked: Inquiry) -> Target | str:
        """Return the target of a fallback's name, or why there is none."""
        prefix, slash, rest = name.partition("/")
        if self._mock_only or (slash and prefix == MOCK):
            return _mock(rest if slash and prefix == MOCK else name, asked)
        row = self._providers.get(prefix) if slash else None
        model = name if row is None else rest
        own = self._providers.get(asked.own)
        if row is None:
            rows = [] if own is None else [own]
            rows += [each for each in self._providers.values() if each is not own]
            having = [each for each in rows if _has_model(each, name)]
            usable = (each for each in having if each is own or _is_reachable(each))
            row = next(usable, None) or (having[0] if having else own)
        if row is None:
            return "no provider has it"
        # A gateway in a vendor's place knows models by the names it gives them, prefix and all.
        is_gateway = own is not None and not has_own_models(own)
        if own is not None and (row is own or (is_gateway and not _is_reachable(row))):
            return self._own(own, name if is_gateway else model, asked)
        if not _is_reachable(row):
            return f"no key is configured for {row.name}"
        if _form(row, asked, is_named=False) is None:
            return f"{row.name} cannot be asked in this form"
        return self._target(row, model, asked)

    def _who_has(self, asked: Inquiry) -> ProviderSettings | None:
        """Return the provider whose `models` name a model that the endpoint's own has not."""
        if not asked.model or not asked.dialect or asked.is_native:
            return None
        if _has_model(self._providers[asked.own], asked.model):
            return None
        return next(
            (
                row
                for row in self._providers.values()
                if _has_model(row, asked.model)
                and _is_reachable(row)
                and _form(row, asked, is_named=False) is not None
            ),
            None,
        )

    def _own(self, own: ProviderSettings, model: str, asked: Inquiry) -> Target:
        if caller_key(asked.headers) in PLACEHOLDER_KEYS and own.api_key is None:
            return _mock(model, asked)
        return self._target(own, model, asked, is_named=True)

    def _target(
        self, row: ProviderSettings, model: str, asked: Inquiry, *, is_named: bool = False
    ) -> Target:
        is_own = row.name == asked.own
        sent = caller_key(asked.headers)
        # A fallback of the endpoint's own provider has the same key as what it stands in for.
        uses_configured = not is_own or sent is None or sent in PLACEHOLDER_KEYS
        form = _form(row, asked, is_named=is_named)
        # A client of one vendor that was led to another sends its own vendor's key all the same.
        owner = provider_of_key(sent) if sent is not None else None
        uses_configured = uses_configured or (owner not in (None, row.name) and bool(form))
        if form is None:
            raise BadRequest(
                f"{row.name} speaks {', '.join(row.dialect)}, and this request cannot be "
                "translated. Ask a provider that takes it.",
                param="model",
            )
        has_messages = "anthropic_messages" in row.dialect
        spoken = form or asked.dialect or (has_messages and "anthropic_messages")
        origin, base_path = _place_of(row.base_url)
        target = Target(
            provider=row.name,
            model=model,
            origin=origin,
            base_path=base_path,
            keeps_v1=has_messages,
            key=row.api_key if uses_configured else None,
            key_header=b"x-api-key" if spoken == "anthropic_messages" else b"authorization",
            takes_callers_key=not uses_configured,
            dialect=form,
            is_stranger=not is_own,
        )
        if form == "gemini" or (asked.is_native and not form):
            return _as_native(target)
        if form == "ollama_chat":
            return replace(target, base_path=target.base_path.removesuffix("/v1"))
        return target


@lru_cache(maxsize=64)  # read once for each provider, not for each call
def _place_of(base_url: str) -> tuple[Origin, str]:
    """Return where a base URL leads, and the path it has."""
    return Origin.of(base_url), urlsplit(base_url).path.rstrip("/")


def _form(row: ProviderSettings, asked: Inquiry, *, is_named: bool) -> str | None:
    """Return the form a provider is asked in: '' = the call's own, None = it cannot be asked.

    The endpoint's own provider gets what its SDK sent, whatever it is; one that the caller named
    and that does not say what it speaks gets the call too, if it is of OpenAI's family.
    """
    dialect = asked.dialect
    if not dialect or dialect in row.dialect or (row.name == asked.owner and is_named):
        return ""
    is_family = dialect.startswith(_OPENAI)
    if is_family and is_named and not row.dialect:
        return ""
    forms = row.dialect or _DEFAULT_FORMS
    if dialect in forms:
        return ""
    caller = dialect_by_name(dialect)
    assert caller is not None, "a call's dialect is in the table"
    if not translates(caller):
        speaks = any(form.startswith(_OPENAI) for form in forms)
        return "" if is_family and speaks else None
    for form in forms:
        spoken = dialect_by_name(form)
        if spoken is not None and translates(spoken):
            return form
    return None


def _has_model(row: ProviderSettings, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in row.models)


def _is_reachable(row: ProviderSettings) -> bool:
    # Aggregators name models "vendor/model" themselves. So a provider that was not named counts
    # only where it can be asked: it has a key, or needs none because it runs on this machine.
    return row.api_key is not None or is_loopback(urlsplit(row.base_url).hostname or "")


def _mock(model: str, asked: Inquiry) -> Target:
    form = "openai_chat" if asked.dialect == "gemini" else ""  # the one form it does not speak
    return Target(MOCK, model, MOCK_ORIGIN, "/v1", False, None, is_mock=True, dialect=form)


def _as_native(target: Target) -> Target:
    """Return the target for Gemini's own form.

    A base URL is written as the OpenAI form wants it (.../v1beta/openai); the native one is what is
    left without that and without the version, since native paths begin with theirs.
    """
    root = re.sub(r"/v\d+(alpha|beta)?\d*$", "", target.base_path.removesuffix("/openai"))
    return replace(
        target, base_path=root, keeps_v1=True, is_native=True, key_header=b"x-goog-api-key"
    )
