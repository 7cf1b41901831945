"""Where a call goes, and whose key goes with it."""

import pytest

from agentstate.ground.errors import BadRequest
from agentstate.ground.settings import ProviderSettings
from agentstate.steps.target import Target, Targets, upstream_headers
from agentstate.wire.message import Headers

OPENAI = ProviderSettings("openai", ("openai_chat",), "https://api.example/v1", "sk-openai-own")
KEYLESS = ProviderSettings("openai", ("openai_chat",), "https://api.example/v1", None)
OLLAMA = ProviderSettings("ollama", ("openai_chat",), "http://127.0.0.1:11434/v1", None)
GROQ = ProviderSettings("groq", ("openai_chat",), "https://groq.example/openai/v1", "gsk-own")
FAR = ProviderSettings("far", ("openai_chat",), "https://far.example/v1", None)


def bearer(key: str) -> Headers:
    return Headers([(b"Authorization", b"Bearer " + key.encode())])


def choose(
    *rows: ProviderSettings, key: str = "", url: str | None = None, model: str = "m"
) -> Target:
    headers = bearer(key) if key else Headers()
    return Targets(rows).choose("openai", url, model, headers)


def test_the_endpoints_own_provider_gets_the_callers_key() -> None:
    target = choose(OPENAI, key="sk-caller")
    assert (target.provider, target.key) == ("openai", None)
    assert (b"Authorization", b"Bearer sk-caller") in upstream_headers(bearer("sk-caller"), target)


def test_a_caller_without_a_key_gets_the_configured_one() -> None:
    target = choose(OPENAI)
    assert (b"authorization", b"Bearer sk-openai-own") in upstream_headers(Headers(), target)


@pytest.mark.parametrize("key", ["mock-key", "your-api-key"])
def test_a_placeholder_key_means_the_configured_one_else_the_mock(key: str) -> None:
    assert choose(OPENAI, key=key).key == "sk-openai-own"
    assert choose(KEYLESS, key=key).is_mock


def test_another_provider_never_gets_the_callers_key() -> None:
    target = choose(OPENAI, GROQ, key="sk-canary", model="groq/llama")
    assert (target.provider, target.model) == ("groq", "llama")
    sent = upstream_headers(
        Headers([(b"Authorization", b"Bearer sk-canary"), (b"x-api-key", b"sk-canary")]), target
    )
    assert not any(b"canary" in value for _, value in sent)
    assert (b"authorization", b"Bearer gsk-own") in sent


def test_the_provider_in_the_url_gets_the_callers_key() -> None:
    assert choose(OPENAI, GROQ, key="gsk-caller", url="groq").key is None


def test_a_prefix_counts_only_where_that_provider_can_be_reached() -> None:
    assert choose(OPENAI, OLLAMA, key="k", model="ollama/llama3").provider == "ollama"
    far = choose(OPENAI, FAR, key="k", model="far/llama3")
    assert (far.provider, far.model) == ("openai", "far/llama3")
    unknown = choose(OPENAI, key="k", model="moonshotai/kimi-k2:free")
    assert (unknown.provider, unknown.model) == ("openai", "moonshotai/kimi-k2:free")


def test_a_mock_model_goes_to_the_mock_whatever_the_key() -> None:
    target = choose(OPENAI, key="sk-caller", model="mock/429")
    assert (target.is_mock, target.model) == (True, "429")


def test_an_unknown_provider_in_the_url_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadRequest, match="openai"):
        choose(OPENAI, url="nobody")


def test_the_path_goes_below_the_base_url() -> None:
    assert choose(GROQ, OPENAI, url="groq").path("/v1/chat/completions", "a=1") == (
        b"/openai/v1/chat/completions?a=1"
    )


def test_what_is_between_two_peers_or_ours_stays_here() -> None:
    headers = Headers(
        (name, b"x")
        for name in (
            b"Host", b"Cookie", b"X-Agent-Session-Id", b"x-agentstate-token", b"X-Forwarded-For",
            b"Proxy-Authorization", b"Connection", b"TE", b"Expect", b"Accept-Encoding",
            b"Content-Length", b"X-Session-Id", b"User-Agent", b"OpenAI-Organization",
        )
    )  # fmt: skip
    sent = [name for name, _ in upstream_headers(headers, choose(OPENAI, key="k"))]
    assert sent == [
        b"X-Session-Id",
        b"User-Agent",
        b"OpenAI-Organization",
        b"accept-encoding",
        b"x-agentstate-hop",
    ]
