"""Where a call goes, and whose key goes with it."""

import pytest

from agentstate.ground.errors import BadRequest
from agentstate.ground.settings import ProviderSettings
from agentstate.steps.target import Target, Targets, is_native, upstream_headers
from agentstate.wire.message import Headers

OPENAI = ProviderSettings("openai", ("openai_chat",), "https://api.example/v1", "sk-openai-own")
KEYLESS = ProviderSettings("openai", ("openai_chat",), "https://api.example/v1", None)
OLLAMA = ProviderSettings("ollama", ("openai_chat",), "http://127.0.0.1:11434/v1", None)
GROQ = ProviderSettings("groq", ("openai_chat",), "https://groq.example/openai/v1", "gsk-own")
ANTHROPIC = ProviderSettings(
    "anthropic", ("anthropic_messages",), "https://anthropic.example", "sk-ant-own"
)
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


def test_a_local_provider_without_a_key_gets_none_at_all() -> None:
    target = choose(OPENAI, OLLAMA, key="sk-canary", model="ollama/llama3")
    assert not any(b"canary" in value for _, value in upstream_headers(bearer("sk-canary"), target))


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


@pytest.mark.parametrize("base", ["https://a.example/api", "https://a.example/api/v1"])
def test_anthropics_base_url_may_or_may_not_end_in_v1(base: str) -> None:
    row = ProviderSettings("anthropic", ("anthropic_messages",), base, None)
    target = Targets([row]).choose("anthropic", None, "claude-x", bearer("k"))
    assert target.path("/v1/messages", "beta=true") == b"/api/v1/messages?beta=true"


@pytest.mark.parametrize("header", [b"Authorization", b"x-api-key"])
def test_anthropics_key_goes_in_its_own_header(header: bytes) -> None:
    """Its clients send theirs in either one, and that one stays."""
    value = b"Bearer k" if header == b"Authorization" else b"k"
    theirs = Headers([(header, value)])
    kept = Targets([ANTHROPIC]).choose("anthropic", None, "claude-x", theirs)
    own = Targets([ANTHROPIC]).choose("anthropic", None, "claude-x", Headers())

    assert (header, value) in upstream_headers(theirs, kept)
    assert (b"x-api-key", b"sk-ant-own") in upstream_headers(theirs, own)
    assert (header, value) not in upstream_headers(theirs, own)


def test_a_placeholder_in_anthropics_header_means_the_configured_key_else_the_mock() -> None:
    theirs = Headers([(b"X-Api-Key", b"mock-key")])
    keyless = ProviderSettings("anthropic", ("anthropic_messages",), "https://a.example", None)

    own = Targets([ANTHROPIC]).choose("anthropic", None, "claude-x", theirs)
    assert (b"x-api-key", b"sk-ant-own") in upstream_headers(theirs, own)
    assert Targets([keyless]).choose("anthropic", None, "claude-x", theirs).is_mock


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


GEMINI = ProviderSettings(
    "gemini", ("openai_chat", "gemini"), "https://g.example/v1beta/openai", "AIza-own"
)
NATIVE = "/v1beta/models/m:generateContent"


def native(row: ProviderSettings, headers: Headers, model: str = "m") -> Target:
    return Targets([row, GROQ]).choose("gemini", None, model, headers, is_native=True)


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("https://g.example/v1beta/openai", ""),
        ("https://g.example/v1beta", ""),
        ("https://g.example", ""),
        ("https://g.example/gate/way/v1/openai", "/gate/way"),
    ],
)
def test_geminis_own_form_is_below_the_host_of_its_openai_form(base: str, path: str) -> None:
    row = ProviderSettings("gemini", ("openai_chat", "gemini"), base, None)
    target = native(row, Headers())
    assert target.path(NATIVE, "alt=sse") == f"{path}{NATIVE}?alt=sse".encode()


def test_geminis_own_form_takes_its_key_in_its_own_header() -> None:
    own = native(GEMINI, Headers())
    assert (b"x-goog-api-key", b"AIza-own") in upstream_headers(Headers(), own)
    theirs = Headers([(b"X-Goog-Api-Key", b"AIza-caller")])
    assert (b"X-Goog-Api-Key", b"AIza-caller") in upstream_headers(theirs, native(GEMINI, theirs))
    compatible = Targets([GEMINI]).choose("gemini", None, "m", Headers())
    assert (b"authorization", b"Bearer AIza-own") in upstream_headers(Headers(), compatible)


def test_no_prefix_leads_geminis_own_form_elsewhere_but_to_the_mock() -> None:
    assert native(GEMINI, Headers(), "groq/llama").provider == "gemini"
    assert native(GEMINI, Headers(), "mock/429").is_mock


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (NATIVE, True),
        ("/v1alpha/models", True),
        ("/upload/v1beta/files", True),
        ("/download/v1beta/files/f:download", True),
        ("/v1/models/gemini-2.5-pro:generateContent", True),
        ("/v1/models/gemini-2.5-pro:countTokens", True),
        ("/v1/models/imagen-4:predict", True),
        ("/v1/models/moonshotai/kimi-k2:free", False),
        ("/v1/models/ft:gpt-4o:acme::abc", False),
        ("/v1/models", False),
        ("/v1", False),
        ("/upload/v1/files", True),
        ("/uploads/v1beta", False),
    ],
)
def test_geminis_own_paths_begin_with_a_version_of_googles(path: str, found: bool) -> None:
    assert is_native(path) is found


def test_configured_models_are_listed_as_they_can_be_asked_for() -> None:
    def row(name: str, base: str, key: str | None, *models: str) -> ProviderSettings:
        return ProviderSettings(name, ("openai_chat",), base, key, models)

    rows = (
        row("openai", "https://api.example/v1", None, "gpt-own", "gpt-*", "gpt-own"),
        row("near", "http://127.0.0.1:9/v1", None, "llama3", "qwen-[0-9]", "x?"),
        row("far", "http://far.example/v1", None, "no-key"),
        row("keyed", "http://keyed.example/v1", "k", "big"),
    )
    assert Targets(rows).list_models("openai", None) == ("gpt-own", "near/llama3", "keyed/big")
    assert Targets(rows).list_models("openai", "far") == ("no-key",)
    assert Targets(rows, mock_only=True).list_models("openai", None) == ()
