"""What a case is played on: a proxy with the case's settings, and upstreams with its script.

Each upstream a case names is a server of its own. `primary` is the provider of the endpoint, or,
where the case has a route, a provider that speaks another form and is asked for by its prefix;
`fallback` is a provider that stands in. Providers that a case does not name have closed ports: no
call leaves the machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases import held, told
from tests.cases.files import Case, to_bytes
from tests.helpers.proxy import Proxy
from tests.helpers.services import Service
from tests.helpers.upstream import End, Gate, Reply, Upstream

ROUTED = "routed"  # the provider of a case that has a route
FALLBACK = "fallback"
STAND_IN = "stand-in"  # a model no price table knows: its window may be of any size
OWN_KEYS = {ROUTED: "sk-own-of-routed", FALLBACK: "sk-own-of-fallback"}

_NOBODY_THERE = "http://127.0.0.1:9"  # the discard port: nothing listens
_COMMIT_AFTER_S = 10.0  # what the proxy does unless told otherwise; a case's `SCALE` shortens it


@dataclass(frozen=True, slots=True)
class Form:
    """How a provider of a form is configured."""

    dialect: str
    base_path: str  # as the vendor's SDK writes it
    key_header: str


FORMS = {
    "openai-chat": Form("openai_chat", "/v1", "authorization"),
    "anthropic": Form("anthropic_messages", "", "x-api-key"),
    "gemini": Form("gemini", "/v1beta/openai", "x-goog-api-key"),
    "ollama": Form("ollama_chat", "/v1", "authorization"),
}
# A case's words for it → (the end of the client's path, the form of the upstream).
_ROUTES = {
    "openai-chat client -> anthropic upstream": ("/chat/completions", "anthropic"),
    "openai-chat client -> gemini native upstream": ("/chat/completions", "gemini"),
    "openai-chat client -> ollama /api/chat": ("/chat/completions", "ollama"),
    "anthropic client -> openai-chat upstream": ("/messages", "openai-chat"),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A proxy that runs, and the servers behind it."""

    proxy: Proxy
    upstream: Upstream
    fallback: Upstream | None = None  # None = the case has none
    service: Service | None = None  # the webhook's; None = it has none


def set_up(case: Case, folder: Path, life: ExitStack) -> Stage:
    """Start all a case needs; `life` ends it."""
    upstream = life.enter_context(Upstream())
    fallback = life.enter_context(Upstream()) if "fallback" in case.setup else None
    service = service_of(case)
    if service is not None:
        life.enter_context(service)
    text = configuration_of(case, upstream, fallback, service)
    config = folder / f"{case.name}.toml"
    config.write_text(text, encoding="utf-8")
    proxy = life.enter_context(
        Proxy(
            upstream_url=_NOBODY_THERE if "route" in case.setup else upstream.url,
            db=folder / f"{case.name}.db",
            env=env_of(case),
            flags=("--config", str(config)) if text else (),
        )
    )
    return Stage(proxy, upstream, fallback, service)


# --- scripts --------------------------------------------------------------------------------------

_ENDS: dict[str, End] = {
    "ok": "ok",
    "hang": "stall",
    "rst": "reset",
    "eof_no_terminator": "eof_no_terminator",
}
_SWALLOWS = "accepts the next request bytes, sends nothing, closes"
_ENTRY_KEYS = {
    "to", "api", "status", "headers", "framing", "chunks", "body", "body_raw", "delays_ms", "end",
    "write_size", "content_length", "close_idle_after_ms", "then_socket",
}  # fmt: skip


def reply_of(entry: Mapping[str, Any], scale: float, gate: Gate | None = None) -> Reply:
    """Build the upstream's reply that an entry describes."""
    assert not (unknown := set(entry) - _ENTRY_KEYS), (
        f"an upstream entry has unknown keys {unknown}"
    )
    if "chunks" in entry:
        chunks = tuple(to_bytes(chunk) for chunk in entry["chunks"])
    elif "body_raw" in entry:
        chunks = (to_bytes(entry["body_raw"]),)
    else:
        chunks = (json.dumps(entry["body"]).encode(),)
    idle_ms = entry.get("close_idle_after_ms")
    then_socket = entry.get("then_socket")
    assert then_socket in (None, _SWALLOWS)
    return Reply(
        status=entry["status"],
        headers=tuple((n.encode(), to_bytes(v)) for n, v in entry["headers"].items()),
        chunks=chunks,
        framing=entry.get("framing", "length"),
        delays_s=tuple(ms / 1000 * scale for ms in entry.get("delays_ms", ())),
        write_size=entry.get("write_size"),
        content_length=entry.get("content_length"),
        end=_ENDS[entry["end"]],
        gate=gate,
        close_idle_after_s=None if idle_ms is None else idle_ms / 1000 * scale,
        swallow_next=then_socket is not None,
    )


def service_of(case: Case) -> Service | None:
    """Make the service that a case tells; None = it tells none."""
    entries = [entry for entry in case.upstream if told.kind_of(entry) is not None]
    kinds = {kind for entry in entries if (kind := told.kind_of(entry)) is not None}
    assert [entry["to"] for entry in entries] == case.setup.get("webhooks", [])
    if not kinds:
        return None
    [kind] = kinds
    return Service(kind, [reply_of(entry, case.scale) for entry in entries])


# --- settings -------------------------------------------------------------------------------------

# How a case's `setup` is said to the proxy. A value that is neither here nor below is an error.
_SETUP = {
    "first_token_timeout_s": "AGENTSTATE_FORWARD_FIRST_BYTE_TIMEOUT_S",
    "idle_timeout_s": "AGENTSTATE_FORWARD_GAP_TIMEOUT_S",
    "heartbeat_s": "AGENTSTATE_GATE_HEARTBEAT_S",
    "retries": "AGENTSTATE_FORWARD_RETRIES",
}
_ELSEWHERE = ("disk", "approve_after_ms", "webhooks", "fallback", "route")  # played, or in the file


def env_of(case: Case) -> dict[str, str]:
    """Return the proxy's environment for a case."""
    env: dict[str, str] = {}
    if "fallback" in case.setup:
        env["AGENTSTATE_FORWARD_RETRIES"] = "0"  # such a case counts one call of each, or says more
    if "health" in case.expect:
        env["AGENTSTATE_FORWARD_COOLDOWN_AFTER"] = "1"  # what could count against a target would
    for key, value in case.setup.items():
        if key in _ELSEWHERE:
            continue
        if key == "sensitive_tools":
            if value:
                env["AGENTSTATE_GATE_TOOLS"] = json.dumps(value)
                env["AGENTSTATE_GATE_HEARTBEAT_S"] = str(held.HEARTBEAT_S * case.scale)
            continue
        if key == "webhook":
            assert value == "connection refused", f"no webhook plays {value}"
            env["WEBHOOK_URL"] = f"{_NOBODY_THERE}/hooks/nobody"
            continue
        if key == "heartbeat_s":
            env["AGENTSTATE_FORWARD_COMMIT_AFTER_S"] = str(_COMMIT_AFTER_S * case.scale)
        scaled = value * case.scale if key.endswith("_s") else value
        env[_SETUP[key]] = str(scaled)
    return env


def configuration_of(
    case: Case, upstream: Upstream, fallback: Upstream | None, service: Service | None
) -> str:
    """Return the file that tells a proxy of the servers of a case."""
    text = "" if service is None else told.configuration_of(service)
    if (route := case.setup.get("route")) is not None:
        path_end, api = _ROUTES[route]
        assert case.client["path"].endswith(path_end), f"{route} from {case.client['path']}"
        assert {entry["api"] for entry in case.entries_to("primary")} == {api}
        text += _provider(ROUTED, api, upstream)
    if fallback is not None:
        assert case.setup["fallback"] == [FALLBACK], f"nothing plays {case.setup['fallback']}"
        apis = {entry["api"] for entry in case.entries_to(FALLBACK)}
        text += f'[forward]\nfallback = ["{FALLBACK}/{STAND_IN}"]\n'
        text += _provider(FALLBACK, apis.pop() if apis else "openai-chat", fallback)
        assert not apis, "one stand-in speaks one form"
    return text


def _provider(name: str, api: str, upstream: Upstream) -> str:
    form = FORMS[api]
    return (
        f'[[provider]]\nname = "{name}"\ndialect = ["{form.dialect}"]\n'
        f'base_url = "{upstream.url}{form.base_path}"\napi_key = "{OWN_KEYS[name]}"\n'
    )
