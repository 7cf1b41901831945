"""The doctor's verdicts on providers: base URLs, upstreams, keys, and what they say of our clock.

Pure. One rule of gravity: what a person configured must work; a provider that is only built in is
nobody's choice, and its failing is a fault only where nothing else is configured either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from agentstate.ground.errors import shorten
from agentstate.ground.providers import BUILT_IN
from agentstate.ground.settings import PLACEHOLDER_KEYS, ProviderSettings
from agentstate.house.doctor_keys import is_placeholder, key_fault, owner_of
from agentstate.house.doctor_seen import AnswerSeen, Failure, Finding, Seen, State, is_local
from agentstate.house.doctor_verdicts import BASE_NAMES
from agentstate.steps.routing import Targets

SKEW_FAULT_MS = 60_000
# Paths of endpoints that people paste along with a base URL.
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/models")
REFUSED = frozenset((401, 403))

_PROXIED = "If this machine reaches the internet through a proxy, set HTTPS_PROXY."
_ADVICE: Mapping[Failure, str] = {
    "dns": f"Check the name in base_url, the network and its DNS. {_PROXIED}",
    "refused": "Start what should listen there, or correct base_url.",
    "unreachable": f"Check this machine's network: cable, Wi-Fi, VPN. {_PROXIED}",
    "connect_timeout": f"A firewall may drop it, or the VPN may be off. {_PROXIED}",
    "answer_timeout": "It is overloaded, or a firewall in between swallows answers. Try again.",
    "certificate": "If a company's proxy or a private authority signed it, let SSL_CERT_FILE name "
    "that authority's certificate. If it is said to be expired or not yet valid, check the clock.",
    "tls": "Check that base_url is right with https:// (plain servers want http://), and that no "
    "proxy in between speaks for it.",
    "tunnel": "Check HTTPS_PROXY, its user and password; hosts to reach straight go into NO_PROXY.",
    "closed": "Check that base_url is right with http:// or https://, and try again.",
    "garbled": "Check the port in base_url, and http:// or https://.",
    "other": "Check base_url and this machine's network.",
}
_PROXY_ADVICE = "Check HTTPS_PROXY and HTTP_PROXY; hosts to reach straight go into NO_PROXY."
_PROXY_FAILURES = frozenset(("dns", "refused", "unreachable", "connect_timeout"))


def judge_base_urls(seen: Seen) -> Iterator[Finding]:
    """Judge whether a base URL leads back here, or holds more than a base."""
    is_fine = True
    assert seen.subject.loaded is not None, "the settings did not load"
    for warning in seen.subject.loaded.warnings:
        if warning.startswith(BASE_NAMES):
            is_fine = False
            name = warning.partition("=")[0]
            advice = f"Right if it was exported for the agent. Else unset {name}."
            yield Finding("base urls", "warn", warning, advice)
    for row in seen.settings.providers:
        answer = seen.answers.get(row.name)
        path = urlsplit(row.base_url).path
        if answer is not None and answer.is_loop:
            is_fine = False
            found = f"{row.name}: {row.base_url} is an AgentState server, this one or another"
            advice = f"Name the vendor's address. {_where(seen, row)}"
            yield Finding("base urls", "fault", found, advice)
        elif path.endswith(ENDPOINTS):
            is_fine = False
            found = f"{row.name}: {row.base_url} holds an endpoint's path"
            advice = f"End it before that, as the vendor's SDK writes it. {_where(seen, row)}"
            yield Finding("base urls", "fault", found, advice)
    if is_fine:
        yield Finding("base urls", "ok", "none leads back to this server")


def judge_upstreams(seen: Seen) -> Iterator[Finding]:
    """Judge whether each provider answers, whatever it says of the key."""
    for row in seen.settings.providers:
        answer = seen.answers.get(row.name)
        if answer is None:
            found = "not asked: certificates or proxies come first"
            yield Finding(f"upstream {row.name}", "skip", found)
        elif not answer.is_loop:  # that is told of its base URL
            yield _judge_upstream(seen, row, answer)


def judge_keys(seen: Seen) -> Iterator[Finding]:
    """Judge each key by its form, and by what its provider said to it."""
    for row in seen.settings.providers:
        check = f"key {row.name}"
        if row.api_key is None:
            yield _judge_missing_key(seen, row, check)
        else:
            yield _judge_key(seen, row, row.api_key, check)


def judge_fallbacks(seen: Seen) -> Iterator[Finding]:
    """Say where the configured fallbacks lead, and which of them cannot be asked."""
    settings = seen.settings
    named = [*settings.forward.fallback]
    named += [model for route in settings.forward.routes for model in route.fallback]
    if not named:
        yield Finding("fallback", "ok", "none configured: a target that stays down ends its call")
        return
    targets = Targets(settings.providers, mock_only=settings.mock, forward=settings.forward)
    for name in dict.fromkeys(named):
        place, problem = targets.examine(name, "openai")
        if problem is None:
            yield Finding("fallback", "ok", f"{shorten(name)} is asked as {shorten(place)}")
        else:
            yield Finding(
                "fallback",
                "warn",
                f"{shorten(name)} is passed over: {problem}",
                "Give that provider a key, or name another model in forward.fallback.",
            )


def judge_clock(seen: Seen) -> Iterator[Finding]:
    """Compare our clock with those of the upstreams.

    The one that agrees best counts: two clocks that agree are right, and one upstream may be wrong.
    A server on this machine has our own clock, so it can accuse and not acquit.
    """
    skews = [
        (abs(answer.skew_ms) - answer.doubt_ms, row, answer.skew_ms)
        for row in seen.settings.providers
        if (answer := seen.answers.get(row.name)) is not None and answer.skew_ms is not None
    ]
    far = [each for each in skews if not is_local(each[1])]
    if not skews:
        yield Finding("clock", "skip", "no upstream answered with its time")
        return
    least_ms, row, skew_ms = min(far or skews, key=lambda each: each[0])
    if least_ms >= SKEW_FAULT_MS:
        way = "ahead of" if skew_ms > 0 else "behind"
        found = f"{_span(abs(skew_ms))} {way} that of {row.name}"
        advice = (
            "Set it: `sudo timedatectl set-ntp true` on Linux, Date & Time in macOS' settings; a "
            "virtual machine that slept wants a restart. Certificates and the deadlines of "
            "approvals depend on it."
        )
        yield Finding("clock", "fault", found, advice)
    elif not far:
        yield Finding(
            "clock", "skip", "only servers on this machine answered, and they have the same clock"
        )
    else:
        within = max(abs(skew_ms), 1000) / 1000
        yield Finding("clock", "ok", f"agrees with that of {row.name} within {within:.0f} s")


def _judge_upstream(seen: Seen, row: ProviderSettings, answer: AnswerSeen) -> Finding:
    check = f"upstream {row.name}"
    if answer.failure is not None:
        return _judge_failure(seen, row, answer, answer.failure)
    way = f" through the proxy {answer.via}" if answer.via else ""
    found = f"{row.base_url}{way} answers in {answer.took_ms} ms"
    told = f"{row.base_url}{way} answers {answer.status}"
    is_json = answer.media_type.endswith("json")
    if answer.status == 407:
        return Finding(check, _gravity(seen, row), told, _ADVICE["tunnel"])
    if answer.status in REFUSED and answer.media_type == "text/html":
        told += " with a web page, which providers do not: something in between does"
        return Finding(check, _gravity(seen, row), told, f"Ask who runs the firewall. {_PROXIED}")
    if answer.status in REFUSED or answer.status == 429 or answer.blames_key:
        return Finding(check, "ok", found)  # it is there; the rest is told of the key
    if answer.status >= 500:
        advice = "It has trouble of its own. See its status page and try again."
        return Finding(check, "warn", told, advice)
    if answer.status >= 300:
        advice = f"Calls may work all the same. If not, correct its base URL. {_where(seen, row)}"
        if answer.status == 404:
            advice = (
                "It may have no list of models. If calls fail too, correct its base URL: OpenAI's "
                f"form ends in /v1, Anthropic's does not. {_where(seen, row)}"
            )
        return Finding(check, "warn", f"{told} to its list of models", advice)
    if not is_json:
        kind = shorten(answer.media_type) or "nothing"
        advice = f"A network that wants a login does so, or a wrong base URL. {_where(seen, row)}"
        return Finding(check, "warn", f"{told} with {kind}, which is no list of models", advice)
    return Finding(check, "ok", found)


def _judge_failure(
    seen: Seen, row: ProviderSettings, answer: AnswerSeen, failure: Failure
) -> Finding:
    host = urlsplit(row.base_url).netloc
    place = f"the proxy {answer.via}" if answer.via else host
    told: Mapping[Failure, str] = {
        "dns": f"the name of {place} is not found: {answer.detail}",
        "refused": f"nothing listens at {place}: the connection was refused",
        "unreachable": f"there is no way to {place} from here",
        "connect_timeout": f"{place} cannot be reached: time ran out while connecting",
        "answer_timeout": f"{place} took the call and did not answer in time",
        "certificate": f"the certificate of {host} is not accepted: {answer.detail}",
        "tls": f"no TLS with {host}: {answer.detail}",
        "tunnel": f"no tunnel to {host}: {answer.detail}",
        "closed": f"{host} closed the connection without an answer",
        "garbled": f"what answers at {host} does not speak HTTP",
        "other": f"{host}: {answer.detail}",
    }
    advice = _ADVICE[failure]
    if answer.via and failure in _PROXY_FAILURES:
        advice = _PROXY_ADVICE
    elif failure == "refused" and row.name == "ollama" and is_local(row):
        is_chosen = seen.is_chosen(row)
        only = "" if is_chosen else "Only if you want to use Ollama: "
        start = "start it with `ollama serve`."
        advice = only + (start if only else start.capitalize())
    return Finding(f"upstream {row.name}", _gravity(seen, row), told[failure], advice)


def _gravity(seen: Seen, row: ProviderSettings) -> State:
    if seen.is_chosen(row):
        return "fault"
    is_any_chosen = any(seen.is_chosen(each) for each in seen.settings.providers)
    return "warn" if is_any_chosen or is_local(row) else "fault"


def _judge_missing_key(seen: Seen, row: ProviderSettings, check: str) -> Finding:
    for known in BUILT_IN:
        for name in known.key_env if known.name == row.name else ():
            if seen.subject.environ.get(name, "").strip() in PLACEHOLDER_KEYS:
                found = f"{name} holds a placeholder, which counts as no key"
                advice = f"Put the key there if this server is to have its own; else unset {name}."
                return Finding(check, "warn", found, advice)
    if is_local(row):
        return Finding(check, "ok", "none configured, and as a rule none is needed")
    return Finding(check, "ok", "none configured: the caller's key is used")


def _judge_key(seen: Seen, row: ProviderSettings, key: str, check: str) -> Finding:
    """Judge a key: its form first, then the answer to it, then what it looks like."""
    source = seen.source(row.name, "api_key") or "the settings"
    if fault := key_fault(key):
        found = f"the key in {source} cannot be one: {fault}"
        return Finding(check, "fault", found, f"Put the bare key into {source}.")
    looks = " and looks like a placeholder" if is_placeholder(key) else ""
    answer = seen.answers.get(row.name)
    if answer is not None and answer.failure is None and not answer.is_loop:
        return _judge_answer(answer, row, key, check, source, looks)
    if looks and not is_local(row):
        found = f"the key in {source} was not tried{looks}"
        return Finding(check, "fault", found, f"Put the provider's key into {source}.")
    why = "--offline" if seen.subject.is_offline else "no answer"
    return Finding(check, "skip", f"the key in {source} was not tried: {why}")


def _judge_answer(
    answer: AnswerSeen, row: ProviderSettings, key: str, check: str, source: str, looks: str
) -> Finding:
    renew = f"Make a new one at the provider and put it into {source}."
    if answer.status == 401 or answer.blames_key:
        owner = owner_of(key)
        if owner is not None and owner.lower() != row.name:
            looks = f" and looks like one of {owner}"
        found = f"the key in {source} is refused ({answer.status}){looks}"
        return Finding(check, "fault", found, renew)
    if answer.status == 403 and answer.media_type != "text/html":
        found = f"the key in {source} may not list models (403){looks}"
        advice = f"Check its permissions, project and country at the provider. {renew}"
        return Finding(check, "fault", found, advice)
    if answer.status == 429:
        advice = "Look at its limits and its balance at the provider."
        return Finding(check, "warn", f"the key in {source} is over a limit now (429)", advice)
    if answer.status >= 300:
        found = f"the key in {source} was not tried: the answer was {answer.status}{looks}"
        return Finding(check, "skip", found)
    if answer.is_open:
        found = f"the key in {source} was not tried: {row.name} lists its models without one{looks}"
        return Finding(check, "skip", found)
    return Finding(check, "ok", f"the key in {source} is accepted")


def _where(seen: Seen, row: ProviderSettings) -> str:
    source = seen.source(row.name, "base_url")
    return f"It stands in {source}." if source else "It is the built-in one."


def _span(span_ms: int) -> str:
    seconds = round(span_ms / 1000)
    for size, noun in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {noun}s"
    return f"{seconds} seconds"
