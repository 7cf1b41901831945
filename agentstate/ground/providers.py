"""The providers: those built in, changed and joined by the rows of `[[provider]]`.

With no file at all the names people have exported for years work (OPENAI_API_KEY, OLLAMA_HOST,
...). Pure. The one invariant: no provider's address is our own, which would make the proxy call
itself; people export OPENAI_BASE_URL for the agent and start the proxy in that shell.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from agentstate.ground.addresses import url_problem
from agentstate.ground.errors import SettingError, shorten
from agentstate.ground.settings import (
    PLACEHOLDER_KEYS,
    FileRow,
    ProviderSettings,
    ServerSettings,
)

RESERVED = "mock"  # the offline provider needs no row and can have none
# Wire forms, best first; a provider that names none is asked in the first.
DIALECT_NAMES = (
    "openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama_chat"
)  # fmt: skip
OLLAMA_PORT = 11434

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")  # it stands in URLs and before a slash in models


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A provider that needs no configuration but its key."""

    name: str
    dialect: tuple[str, ...]
    base_url: str
    models: tuple[str, ...]
    base_env: tuple[str, ...] = ()  # the first that is set and is not our own address counts
    key_env: tuple[str, ...] = ()


# Base URLs as the vendors' own SDKs write them. Gemini and Ollama by their OpenAI-compatible
# endpoints (ai.google.dev/gemini-api/docs/openai, docs.ollama.com/api/openai-compatibility);
# Gemini's own form is reached below the same host, see `steps/target.py`.
BUILT_IN = (
    BuiltIn(
        "openai",
        ("openai_chat", "openai_responses"),
        "https://api.openai.com/v1",
        ("gpt-*", "chatgpt-*", "o1*", "o3*", "o4*", "text-embedding-*"),
        ("OPENAI_API_BASE", "OPENAI_BASE_URL"),
        ("OPENAI_API_KEY",),
    ),
    BuiltIn(
        "anthropic",
        ("anthropic_messages",),
        "https://api.anthropic.com",
        ("claude-*",),
        ("ANTHROPIC_BASE_URL",),
        ("ANTHROPIC_API_KEY",),
    ),
    BuiltIn(
        "gemini",
        ("openai_chat", "gemini"),
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("gemini-*",),
        (),
        ("GEMINI_API_KEY",),
    ),
    BuiltIn("ollama", ("openai_chat",), f"http://127.0.0.1:{OLLAMA_PORT}/v1", (), ("OLLAMA_HOST",)),
)


@dataclass(slots=True)
class Built:
    """Providers in order: built-in ones, then the file's own."""

    providers: tuple[ProviderSettings, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def build_providers(
    rows: Sequence[FileRow], environ: Mapping[str, str], server: ServerSettings
) -> Built:
    """Put environment over rows over what is built in.

    A base URL of the environment that is our own address is passed over with a warning.

    Raises:
        SettingError: a row without name or address, a name twice, or an address that is none or,
            in the file, our own.
    """
    named = _by_name(rows)
    built = Built()
    for known in BUILT_IN:
        fields = _defaults(known)
        if row := named.pop(known.name, None):
            _apply_row(built, fields, row, server)
        _apply_environment(built, fields, known, environ, server)
        built.providers += (ProviderSettings(**fields),)
    for name, row in named.items():
        fields = {"name": name}
        _apply_row(built, fields, row, server)
        if "base_url" not in fields:
            raise SettingError(f"{row.place}: provider {name!r} needs a base_url.")
        built.providers += (ProviderSettings(**fields),)
    return built


def has_own_models(row: ProviderSettings) -> bool:
    """Whether all that is known of a provider's models is what `models` says.

    Not where a built-in one was given another address: who knows what a gateway answers.
    """
    vendors = {known.name: known.base_url for known in BUILT_IN}
    return vendors.get(row.name, row.base_url) == row.base_url and bool(row.models)


def is_own_address(url: str, server: ServerSettings) -> bool:
    """Whether `url` is where this server listens, by any of its names. Looks nothing up."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = (parts.hostname or "").lower()
    if port != server.port:
        return False
    if host in {server.host.lower(), *(name.lower() for name in server.hosts)}:
        return True
    return _is_this_machine(host) and _is_this_machine(server.host.lower())


def _by_name(rows: Sequence[FileRow]) -> dict[str, FileRow]:
    named: dict[str, FileRow] = {}
    for row in rows:
        name = row.values.get("name")
        if not isinstance(name, str):
            raise SettingError(f"{row.place}: a [[provider]] needs a name.")
        place = row.places["name"]
        if not _NAME.fullmatch(name) or name == RESERVED:
            raise SettingError(
                f"{place}: provider.name: expected lower-case letters, digits, dots and dashes, "
                f'and not "{RESERVED}", found {shorten(name)!r}.'
            )
        if name in named:
            raise SettingError(
                f"{place}: the provider {name!r} stands at {named[name].place} already."
            )
        named[name] = row
    return named


def _defaults(known: BuiltIn) -> dict[str, Any]:
    return {
        "name": known.name,
        "dialect": known.dialect,
        "base_url": known.base_url,
        "models": known.models,
    }


def _apply_row(built: Built, fields: dict[str, Any], row: FileRow, server: ServerSettings) -> None:
    for key, value in row.values.items():
        place = row.places[key]
        if key == "base_url":
            value = _base_url(str(value), f"{place}: provider.base_url")
            if is_own_address(value, server):
                raise SettingError(
                    f"{place}: provider.base_url: {shorten(value)} is where this server itself "
                    "listens; it would call itself. Name the provider's address."
                )
        if key == "dialect":
            _check_dialects(value, place)
        fields[key] = value
        built.sources[f"provider.{row.values['name']}.{key}"] = place


def _apply_environment(
    built: Built,
    fields: dict[str, Any],
    known: BuiltIn,
    environ: Mapping[str, str],
    server: ServerSettings,
) -> None:
    for env in known.base_env:
        text = environ.get(env, "").strip()
        if not text:
            continue
        url = _ollama_url(text, env) if env == "OLLAMA_HOST" else _base_url(text, env)
        if is_own_address(url, server):
            built.warnings += (
                f"{env}={shorten(text)} is this server's own address and is ignored: "
                f"{known.name} is reached at {fields['base_url']}.",
            )
            continue
        fields["base_url"] = url
        built.sources[f"provider.{known.name}.base_url"] = env
        break
    for env in known.key_env:
        key = environ.get(env, "").strip()
        if key and key not in PLACEHOLDER_KEYS:
            fields["api_key"] = key
            built.sources[f"provider.{known.name}.api_key"] = env
            break


def _check_dialects(names: Any, place: str) -> None:
    for name in names:
        if name not in DIALECT_NAMES:
            raise SettingError(
                f"{place}: provider.dialect: expected some of {', '.join(DIALECT_NAMES)}, found "
                f"{shorten(name)!r}."
            )


def _base_url(text: str, where: str) -> str:
    """Check an upstream's address and drop a slash at its end."""
    problem = url_problem(text)
    if problem:
        # The URL itself is not repeated: it may carry a key.
        raise SettingError(f"{where}: expected a URL as in https://host/v1; {problem}.")
    return text.rstrip("/")


def _ollama_url(text: str, where: str) -> str:
    """Read OLLAMA_HOST as Ollama does: scheme, port and even the host may be missing.

    Source: envconfig.Host of ollama. A wildcard is where a server listens; a client goes to
    loopback.
    """
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = "http", text
    hostport, _, path = rest.rstrip("/").partition("/")
    if hostport.count(":") > 1 and not hostport.startswith("["):
        hostport = f"[{hostport}]"  # a bare IPv6 address
    elif hostport.startswith(":"):
        hostport = "127.0.0.1" + hostport
    url = f"{scheme}://{hostport}" + (f"/{path}" if path else "")
    if problem := url_problem(url):
        raise SettingError(f"{where}: expected a host, host:port or URL; {problem}.")
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_wildcard(host):
        host = "::1" if ":" in host else "127.0.0.1"
    scheme_port = 443 if scheme == "https" else 80
    port = parts.port or (scheme_port if mark else OLLAMA_PORT)
    base = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{parts.path}"
    return base if base.endswith("/v1") else base + "/v1"


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost") or _is_wildcard(host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")
