"""Where a call goes, and with whose key. What follows after the first target is in
`test_routing_chain.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentstate.ground.errors import BadRequest
from agentstate.ground.settings import ProviderSettings
from agentstate.steps.routing import Inquiry, Targets
from agentstate.steps.target import Target, upstream_headers
from agentstate.wire.message import Headers

OPENAI = ProviderSettings("openai", ("openai_chat",), "https://api.example/v1", "sk-openai-own")
KEYLESS = replace(OPENAI, api_key=None)
OLLAMA = ProviderSettings("ollama", ("openai_chat",), "http://127.0.0.1:11434/v1", None)
GROQ = ProviderSettings("groq", (), "https://groq.example/openai/v1", "gsk-own")
ANTHROPIC = ProviderSettings(
    "anthropic", ("anthropic_messages",), "https://anthropic.example", "sk-ant-own", ("claude-*",)
)
GEMINI = ProviderSettings(
    "gemini", ("openai_chat", "gemini"), "https://g.example/v1beta/openai", "AIza-own",
    ("gemini-*",),
)  # fmt: skip
FAR = ProviderSettings("far", ("openai_chat",), "https://far.example/v1", None)
NATIVE = "/v1beta/models/m:generateContent"

# At the vendor's own address, where its models are known.
VENDOR = replace(KEYLESS, base_url="https://api.openai.com/v1", models=("gpt-*", "o3*"))
GATEWAY = replace(VENDOR, base_url="https://gateway.example/v1")


def bearer(key: str) -> Headers:
    return Headers([(b"Authorization", b"Bearer " + key.encode())])


def choose(
    *rows: ProviderSettings,
    key: str = "",
    url: str | None = None,
    model: str = "m",
    dialect: str = "openai_chat",
    owner: str = "openai",
) -> Target:
    headers = bearer(key) if key else Headers()
    return Targets(rows).choose(Inquiry(owner, headers, model, url, dialect))


def native(row: ProviderSettings, headers: Headers, model: str = "m") -> Target:
    asked = Inquiry("gemini", headers, model, dialect="gemini", is_native=True)
    return Targets([row, GROQ]).choose(asked)


# -- whose key


def test_the_endpoints_own_provider_gets_the_callers_key() -> None:
    target = choose(OPENAI, key="sk-caller")
    assert (target.provider, target.key, target.is_stranger) == ("openai", None, False)
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
    target = choose(OPENAI, GROQ, key="gsk-caller", url="groq")
    assert (target.provider, target.key, target.takes_callers_key) == ("groq", None, True)


@pytest.mark.parametrize("header", [b"Authorization", b"x-api-key"])
def test_anthropics_key_goes_in_its_own_header(header: bytes) -> None:
    """Its clients send theirs in either one, and that one stays."""
    value = b"Bearer k" if header == b"Authorization" else b"k"
    theirs = Headers([(header, value)])
    kept = Targets([ANTHROPIC]).choose(Inquiry("anthropic", theirs, "claude-x"))
    own = Targets([ANTHROPIC]).choose(Inquiry("anthropic", Headers(), "claude-x"))

    assert (header, value) in upstream_headers(theirs, kept)
    assert (b"x-api-key", b"sk-ant-own") in upstream_headers(theirs, own)
    assert (header, value) not in upstream_headers(theirs, own)


def test_a_placeholder_in_anthropics_header_means_the_configured_key_else_the_mock() -> None:
    theirs = Headers([(b"X-Api-Key", b"mock-key")])
    keyless = replace(ANTHROPIC, api_key=None)

    own = Targets([ANTHROPIC]).choose(Inquiry("anthropic", theirs, "claude-x"))
    assert (b"x-api-key", b"sk-ant-own") in upstream_headers(theirs, own)
    assert Targets([keyless]).choose(Inquiry("anthropic", theirs, "claude-x")).is_mock


@pytest.mark.parametrize(
    ("dialects", "asked", "form", "header"),
    [
        (("anthropic_messages",), "openai_chat", "anthropic_messages", b"x-api-key"),
        (("openai_chat", "anthropic_messages"), "openai_chat", "", b"authorization"),
        (("openai_chat", "anthropic_messages"), "anthropic_messages", "", b"x-api-key"),
        (("openai_chat",), "anthropic_messages", "openai_chat", b"authorization"),
        (("gemini",), "openai_chat", "gemini", b"x-goog-api-key"),
    ],
)
def test_a_configured_key_goes_where_the_form_that_is_spoken_has_it(
    dialects: tuple[str, ...], asked: str, form: str, header: bytes
) -> None:
    row = replace(GROQ, dialect=dialects)

    target = choose(OPENAI, ANTHROPIC, row, model="groq/m", dialect=asked)

    assert (target.provider, target.dialect, target.key_header) == ("groq", form, header)


# -- precedence


def test_the_url_goes_before_a_prefix() -> None:
    target = choose(OPENAI, GROQ, ANTHROPIC, url="groq", model="anthropic/claude-x")
    assert (target.provider, target.model) == ("groq", "anthropic/claude-x")


def test_a_prefix_goes_before_a_pattern() -> None:
    target = choose(VENDOR, GROQ, ANTHROPIC, model="groq/claude-x")
    assert (target.provider, target.model) == ("groq", "claude-x")


def test_a_pattern_goes_before_the_endpoints_own_provider() -> None:
    target = choose(VENDOR, ANTHROPIC, key="sk-canary", model="claude-x")
    assert (target.provider, target.model, target.key) == ("anthropic", "claude-x", "sk-ant-own")
    assert (target.takes_callers_key, target.is_stranger) == (False, True)
    assert target.dialect == "anthropic_messages"


def test_a_prefix_counts_only_where_that_provider_can_be_reached() -> None:
    assert choose(OPENAI, OLLAMA, key="k", model="ollama/llama3").provider == "ollama"
    far = choose(OPENAI, FAR, key="k", model="far/llama3")
    assert (far.provider, far.model) == ("openai", "far/llama3")
    unknown = choose(OPENAI, key="k", model="moonshotai/kimi-k2:free")
    assert (unknown.provider, unknown.model) == ("openai", "moonshotai/kimi-k2:free")


def test_the_own_providers_name_is_a_part_of_the_models() -> None:
    """An aggregator calls OpenAI's models so; whoever is OpenAI itself is not asked like that."""
    assert choose(OPENAI, model="openai/gpt-4o").model == "openai/gpt-4o"


def test_an_unknown_provider_in_the_url_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadRequest, match="openai") as caught:
        choose(OPENAI, url="nobody")
    assert caught.value.param == "provider"


def test_an_endpoint_whose_provider_is_not_configured_is_refused() -> None:
    with pytest.raises(BadRequest, match="anthropic"):
        choose(OPENAI, owner="anthropic", dialect="anthropic_messages")


# -- patterns


def test_the_own_provider_keeps_the_models_it_has() -> None:
    both = replace(GROQ, models=("gpt-*",))
    assert choose(VENDOR, both, model="gpt-4o").provider == "openai"


def test_a_model_that_nobody_has_stays_with_the_own_provider() -> None:
    assert choose(VENDOR, ANTHROPIC, model="llama").provider == "openai"
    assert choose(VENDOR, ANTHROPIC, model="").provider == "openai"


def test_the_first_provider_that_has_a_model_and_can_be_reached_is_asked() -> None:
    far, near = replace(FAR, models=("llama-*",)), replace(OLLAMA, models=("llama-*",))
    keyed = replace(GROQ, models=("llama-3*",))
    assert choose(VENDOR, far, near, keyed, model="llama-3").provider == "ollama"
    assert choose(VENDOR, far, keyed, near, model="llama-3").provider == "groq"
    assert choose(VENDOR, far, model="llama-3").provider == "openai"


def test_a_gateway_answers_for_all_models() -> None:
    """It stands at an address of its own under a built-in name: who knows what it has."""
    target = choose(GATEWAY, ANTHROPIC, key="k", model="claude-x")
    assert (target.provider, target.model, target.dialect) == ("openai", "claude-x", "")


def test_a_provider_whose_models_nobody_listed_keeps_all() -> None:
    assert choose(replace(VENDOR, models=()), ANTHROPIC, model="claude-x").provider == "openai"


def test_the_provider_in_the_url_keeps_all() -> None:
    assert choose(VENDOR, GROQ, ANTHROPIC, url="groq", model="claude-x").provider == "groq"
    assert choose(VENDOR, ANTHROPIC, url="openai", model="claude-x").provider == "openai"


def test_a_call_of_no_dialect_follows_no_pattern() -> None:
    assert choose(VENDOR, ANTHROPIC, model="claude-x", dialect="").provider == "openai"


def test_a_pattern_leads_nobody_to_a_provider_that_cannot_be_asked_so() -> None:
    target = choose(VENDOR, ANTHROPIC, model="claude-x", dialect="openai_embeddings")
    assert target.provider == "openai"


# -- the mock


def test_a_mock_model_goes_to_the_mock_whatever_the_key() -> None:
    target = choose(OPENAI, key="sk-caller", model="mock/429")
    assert (target.is_mock, target.model, target.key) == (True, "429", None)


def test_the_mock_in_the_url_takes_every_model() -> None:
    target = choose(OPENAI, key="sk-caller", url="mock", model="groq/llama")
    assert (target.is_mock, target.model) == (True, "groq/llama")


def test_with_mock_only_nothing_leads_elsewhere() -> None:
    targets = Targets([VENDOR, GROQ, ANTHROPIC], mock_only=True)
    for model, found in (("groq/m", "groq/m"), ("claude-x", "claude-x"), ("mock/429", "429")):
        for url in (None, "groq", "mock"):
            target = targets.choose(Inquiry("openai", bearer("k"), model, url, "openai_chat"))
            assert (target.is_mock, target.model) == (True, found)


@pytest.mark.parametrize(
    ("dialect", "form"),
    [("openai_chat", ""), ("openai_responses", ""), ("anthropic_messages", ""),
     ("gemini", "openai_chat")],
)  # fmt: skip
def test_the_mock_is_asked_in_a_form_it_speaks(dialect: str, form: str) -> None:
    assert choose(OPENAI, model="mock/m", dialect=dialect).dialect == form


# -- forms


@pytest.mark.parametrize(
    ("dialects", "asked", "form"),
    [
        ((), "openai_chat", ""),
        ((), "anthropic_messages", "openai_chat"),
        ((), "gemini", "openai_chat"),
        ((), "openai_responses", ""),  # it was named, and may well have it
        (("openai_chat",), "openai_responses", "openai_chat"),
        (("openai_chat", "openai_responses"), "openai_responses", ""),
        (("anthropic_messages",), "openai_responses", "anthropic_messages"),
        (("anthropic_messages", "openai_chat"), "gemini", "anthropic_messages"),
        (("gemini", "openai_chat"), "anthropic_messages", "gemini"),
        (("openai_chat",), "openai_embeddings", ""),
        (("openai_responses",), "openai_completions", ""),
        ((), "openai_embeddings", ""),
        ((), "", ""),
    ],
)
def test_a_named_provider_is_asked_in_the_first_form_it_speaks_if_not_the_callers(
    dialects: tuple[str, ...], asked: str, form: str
) -> None:
    row = replace(GROQ, dialect=dialects)
    rows = (OPENAI, ANTHROPIC, GEMINI, row)

    by_prefix = choose(*rows, model="groq/m", dialect=asked)
    by_url = choose(*rows, url="groq", dialect=asked)

    assert (by_prefix.provider, by_prefix.dialect) == ("groq", form)
    assert (by_url.provider, by_url.dialect) == ("groq", form)


def test_the_own_provider_gets_what_its_sdk_sent() -> None:
    for dialect in ("openai_chat", "openai_responses", "openai_embeddings", "openai_completions"):
        assert choose(OPENAI, dialect=dialect).dialect == ""


@pytest.mark.parametrize("dialect", ["openai_embeddings", "openai_completions"])
def test_what_cannot_be_translated_is_refused_where_it_was_named(dialect: str) -> None:
    with pytest.raises(BadRequest, match="anthropic speaks anthropic_messages"):
        choose(OPENAI, ANTHROPIC, model="anthropic/claude-x", dialect=dialect)
    with pytest.raises(BadRequest, match="cannot be translated"):
        choose(OPENAI, ANTHROPIC, url="anthropic", dialect=dialect)


def test_an_endpoint_of_one_vendor_can_be_led_to_another_by_the_url() -> None:
    target = choose(OPENAI, ANTHROPIC, url="anthropic", key="sk-ant-caller", model="claude-x")
    assert (target.dialect, target.takes_callers_key) == ("anthropic_messages", True)
    assert target.path("/v1/messages", "") == b"/v1/messages"


def test_a_client_that_was_led_elsewhere_does_not_give_away_its_vendors_key() -> None:
    headers = Headers([(b"x-api-key", b"sk-ant-caller")])
    asked = Inquiry("anthropic", headers, "llama-x", "groq", "anthropic_messages")

    configured = Targets([GROQ, ANTHROPIC]).choose(asked)
    assert (configured.key, configured.takes_callers_key) == ("gsk-own", False)
    keyless = Targets([replace(GROQ, api_key=None), ANTHROPIC]).choose(asked)
    assert (keyless.key, keyless.takes_callers_key) == (None, False)

    own = replace(asked, headers=Headers([(b"x-api-key", b"gsk-caller")]))
    assert Targets([GROQ, ANTHROPIC]).choose(own).takes_callers_key


# -- addresses


def test_the_path_goes_below_the_base_url() -> None:
    assert choose(GROQ, OPENAI, url="groq").path("/v1/chat/completions", "a=1") == (
        b"/openai/v1/chat/completions?a=1"
    )


@pytest.mark.parametrize("base", ["https://a.example/api", "https://a.example/api/v1"])
def test_anthropics_base_url_may_or_may_not_end_in_v1(base: str) -> None:
    row = ProviderSettings("anthropic", ("anthropic_messages",), base, None)
    target = Targets([row]).choose(Inquiry("anthropic", bearer("k"), "claude-x"))
    assert target.path("/v1/messages", "beta=true") == b"/api/v1/messages?beta=true"


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("http://127.0.0.1:11434/v1", b"/api/chat"),
        ("http://127.0.0.1:11434", b"/api/chat"),
        ("https://far.example/ollama/v1", b"/ollama/api/chat"),
    ],
)
def test_ollamas_own_form_is_beside_its_openai_form(base: str, path: bytes) -> None:
    row = replace(OLLAMA, dialect=("ollama_chat",), base_url=base, api_key="k")
    target = choose(OPENAI, row, model="ollama/llama3")
    assert (target.dialect, target.path("/api/chat", "")) == ("ollama_chat", path)


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
    target = native(replace(GEMINI, base_url=base, api_key=None), Headers())
    assert target.path(NATIVE, "alt=sse") == f"{path}{NATIVE}?alt=sse".encode()


def test_geminis_own_form_takes_its_key_in_its_own_header() -> None:
    own = native(GEMINI, Headers())
    assert (b"x-goog-api-key", b"AIza-own") in upstream_headers(Headers(), own)
    theirs = Headers([(b"X-Goog-Api-Key", b"AIza-caller")])
    assert (b"X-Goog-Api-Key", b"AIza-caller") in upstream_headers(theirs, native(GEMINI, theirs))
    compatible = Targets([GEMINI]).choose(Inquiry("gemini", Headers(), "m"))
    assert (b"authorization", b"Bearer AIza-own") in upstream_headers(Headers(), compatible)


def test_no_prefix_and_no_pattern_leads_geminis_own_form_elsewhere_but_to_the_mock() -> None:
    assert native(GEMINI, Headers(), "groq/llama").provider == "gemini"
    assert native(GEMINI, Headers(), "mock/429").is_mock
    vendor = replace(GEMINI, base_url="https://generativelanguage.googleapis.com/v1beta/openai")
    asked = Inquiry("gemini", Headers(), "claude-x", dialect="gemini", is_native=True)
    assert Targets([vendor, ANTHROPIC]).choose(asked).provider == "gemini"


def test_gemini_is_asked_in_openais_form_by_callers_of_that_form() -> None:
    target = choose(OPENAI, GEMINI, model="gemini/gemini-2.5-pro")
    assert (target.dialect, target.is_native) == ("", False)
    assert target.path("/v1/chat/completions", "") == b"/v1beta/openai/chat/completions"


def test_a_gemini_that_speaks_only_its_own_form_is_asked_in_it() -> None:
    target = choose(OPENAI, replace(GEMINI, dialect=("gemini",)), model="gemini/gemini-2.5-pro")
    assert (target.dialect, target.is_native) == ("gemini", True)
    assert target.path(NATIVE, "") == NATIVE.encode()
    assert target.key_header == b"x-goog-api-key"


# -- the list of models


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


def test_the_names_of_all_providers_include_the_mock() -> None:
    assert Targets([OPENAI, GROQ]).names == ("openai", "groq", "mock")
