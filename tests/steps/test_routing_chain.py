"""Which targets a call has after its first one; and that no provider learns another one's key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.errors import BadRequest
from agentstate.ground.settings import ForwardSettings, ProviderSettings, RouteSettings
from agentstate.steps.routing import TARGETS_MAX, Chain, Inquiry, Targets
from agentstate.steps.target import upstream_headers
from agentstate.wire.message import Headers, Pair

OPENAI = ProviderSettings(
    "openai", ("openai_chat", "openai_responses"), "https://api.openai.com/v1", "sk-own", ("gpt-*",)
)
ANTHROPIC = ProviderSettings(
    "anthropic", ("anthropic_messages",), "https://anthropic.example", "sk-ant-own", ("claude-*",)
)
GEMINI = ProviderSettings(
    "gemini", ("openai_chat", "gemini"), "https://g.example/v1beta/openai", "AIza-own",
    ("gemini-*",),
)  # fmt: skip
OLLAMA = ProviderSettings("ollama", ("openai_chat",), "http://127.0.0.1:11434/v1", None)
GROQ = ProviderSettings("groq", (), "https://groq.example/openai/v1", "gsk-own", ("llama-*",))
FAR = ProviderSettings("far", (), "https://far.example/v1", None, ("far-*",))
ROWS = (OPENAI, ANTHROPIC, GEMINI, OLLAMA, GROQ, FAR)


def chain(
    *fallback: str,
    header: str | Sequence[str] | None = None,
    routes: tuple[RouteSettings, ...] = (),
    rows: Sequence[ProviderSettings] = ROWS,
    key: str = "sk-caller",
    model: str = "gpt-4o",
    dialect: str = "openai_chat",
    url: str | None = None,
    mock_only: bool = False,
) -> Chain:
    pairs: list[Pair] = [(b"Authorization", b"Bearer " + key.encode())] if key else []
    for value in [header] if isinstance(header, str) else header or ():
        pairs.append((b"X-Agent-Fallback-Model", value.encode()))
    targets = Targets(
        rows, mock_only=mock_only, forward=ForwardSettings(fallback=fallback, routes=routes)
    )
    owner = {"anthropic_messages": "anthropic", "gemini": "gemini"}.get(dialect, "openai")
    native = dialect == "gemini"
    return targets.chain(Inquiry(owner, Headers(pairs), model, url, dialect, is_native=native))


def labels(found: Chain) -> list[str]:
    return [target.label for target in found.targets]


# -- which list counts


def test_with_nothing_configured_there_is_one_target() -> None:
    assert labels(chain()) == ["openai/gpt-4o"]


def test_the_setting_names_the_fallbacks_in_order() -> None:
    found = chain("claude-x", "gpt-4o-mini", "groq/llama-3")

    assert labels(found) == [
        "openai/gpt-4o", "anthropic/claude-x", "openai/gpt-4o-mini", "groq/llama-3",
    ]  # fmt: skip
    assert found.skipped == ()


def test_a_route_goes_before_the_setting() -> None:
    routes = (RouteSettings("gpt-*", ("claude-x",)), RouteSettings("*", ("groq/llama-3",)))

    assert labels(chain("gpt-5", routes=routes)) == ["openai/gpt-4o", "anthropic/claude-x"]
    assert labels(chain("gpt-5", routes=routes, model="o3")) == ["openai/o3", "groq/llama-3"]
    assert labels(chain("gpt-5", routes=routes[:1], model="o3")) == ["openai/o3", "openai/gpt-5"]


def test_a_route_goes_by_the_name_that_was_asked_for() -> None:
    routes = (RouteSettings("groq/*", ("claude-x",)),)

    assert labels(chain(routes=routes, model="groq/llama-3")) == [
        "groq/llama-3", "anthropic/claude-x",
    ]  # fmt: skip
    assert labels(chain(routes=routes, model="llama-3")) == ["groq/llama-3"]


def test_a_route_may_name_no_fallback() -> None:
    assert labels(chain("gpt-5", routes=(RouteSettings("gpt-4*"),))) == ["openai/gpt-4o"]


def test_the_header_goes_before_route_and_setting() -> None:
    routes = (RouteSettings("*", ("claude-x",)),)

    assert labels(chain("gpt-5", header="groq/llama-3", routes=routes)) == [
        "openai/gpt-4o", "groq/llama-3",
    ]  # fmt: skip


@pytest.mark.parametrize("header", ["", " ", ",", " , ,"])
def test_an_empty_header_means_none(header: str) -> None:
    routes = (RouteSettings("*", ("claude-x",)),)

    assert labels(chain("gpt-5", header=header, routes=routes)) == ["openai/gpt-4o"]


def test_the_header_may_come_in_several_parts() -> None:
    found = chain(header=["gpt-5 ,claude-x", "groq/llama-3,"])

    assert labels(found)[1:] == ["openai/gpt-5", "anthropic/claude-x", "groq/llama-3"]


def test_a_header_that_names_too_many_is_refused() -> None:
    most = ",".join(f"gpt-{number}" for number in range(TARGETS_MAX - 1))

    assert len(chain(header=most).targets) == TARGETS_MAX
    with pytest.raises(BadRequest, match=f"at most {TARGETS_MAX - 1}") as caught:
        chain(header=most + ",gpt-x")
    assert caught.value.param == "x-agent-fallback-model"


def test_a_chain_is_never_longer_than_the_limit() -> None:
    assert len(chain(*(f"gpt-{number}" for number in range(20))).targets) == TARGETS_MAX


def test_a_call_of_no_dialect_has_no_fallback() -> None:
    assert labels(chain("gpt-5", header="claude-x", dialect="")) == ["openai/gpt-4o"]


# -- where a name leads


def test_no_target_is_in_a_chain_twice() -> None:
    found = chain("gpt-4o", "claude-x", "openai/gpt-4o", "anthropic/claude-x", "gpt-5")

    assert labels(found) == ["openai/gpt-4o", "anthropic/claude-x", "openai/gpt-5"]


def test_the_same_model_of_another_provider_is_another_target() -> None:
    assert labels(chain("groq/gpt-4o")) == ["openai/gpt-4o", "groq/gpt-4o"]


def test_a_name_that_the_own_provider_has_stays_there() -> None:
    both = replace(GROQ, models=("*",))

    assert labels(chain("gpt-5", rows=(both, OPENAI))) == ["openai/gpt-4o", "openai/gpt-5"]


def test_a_name_that_nobody_has_is_the_own_providers() -> None:
    assert labels(chain("qwen", "moonshotai/kimi-k2:free")) == [
        "openai/gpt-4o", "openai/qwen", "openai/moonshotai/kimi-k2:free",
    ]  # fmt: skip


def test_of_those_that_have_a_name_one_that_can_be_reached_is_asked() -> None:
    keyed = replace(GROQ, models=("far-*",))

    assert labels(chain("far-1", rows=(OPENAI, FAR, keyed))) == ["openai/gpt-4o", "groq/far-1"]


def test_what_needs_no_key_is_asked_without_one() -> None:
    target = chain("ollama/llama3").targets[1]

    assert (target.label, target.key, target.takes_callers_key) == ("ollama/llama3", None, False)


def test_a_fallback_that_cannot_be_reached_is_left_out_and_told() -> None:
    found = chain("far/x", "far-1", "gpt-5")

    assert labels(found) == ["openai/gpt-4o", "openai/gpt-5"]
    assert found.skipped == (
        "far/x: no key is configured for far",
        "far-1: no key is configured for far",
    )


@pytest.mark.parametrize("dialect", ["openai_embeddings", "openai_completions"])
def test_a_fallback_that_cannot_be_asked_in_any_form_is_left_out_and_told(dialect: str) -> None:
    found = chain(header="claude-x, groq/llama-3", dialect=dialect)

    assert labels(found) == ["openai/gpt-4o", "groq/llama-3"]
    assert found.skipped == ("claude-x: anthropic cannot be asked in this form",)


def test_embeddings_fall_back_only_where_a_call_or_a_route_says_so() -> None:
    route = RouteSettings("text-*", ("groq/same",))

    def found(**how: Any) -> list[str]:
        return labels(chain("gpt-5", "ollama/llama3", dialect="openai_embeddings", **how))

    assert found(model="text-3") == ["openai/text-3"]
    assert found(model="text-3", header="groq/same") == ["openai/text-3", "groq/same"]
    assert found(model="text-3", routes=(route,)) == ["openai/text-3", "groq/same"]


def test_under_the_mocks_url_a_name_that_nobody_has_leads_nowhere() -> None:
    found = chain("qwen", url="mock")

    assert labels(found) == ["mock/gpt-4o"]
    assert found.skipped == ("qwen: no provider has it",)


def test_a_gateway_in_the_vendors_place_is_asked_by_the_names_it_gives() -> None:
    gateway = replace(OPENAI, base_url="https://gateway.example/v1")
    keyless = replace(ANTHROPIC, api_key=None)

    found = chain("anthropic/claude-x", "claude-3", "openai/gpt-4o-mini", rows=(gateway, keyless))
    assert labels(found) == [
        "openai/gpt-4o",
        "openai/anthropic/claude-x",
        "openai/claude-3",
        "openai/openai/gpt-4o-mini",
    ]
    assert labels(chain("claude-3", rows=(gateway, ANTHROPIC)))[1] == "anthropic/claude-3"


def test_what_a_chain_has_no_room_for_is_told() -> None:
    found = chain(*(f"gpt-{number}" for number in range(9)))
    assert len(found.targets) == TARGETS_MAX
    assert found.skipped == tuple(f"openai/gpt-{n}: more than 8 targets" for n in (7, 8))


def test_a_long_name_is_told_short() -> None:
    (told,) = chain("far/" + "x" * 500).skipped

    assert len(told) < 150


# -- forms


@pytest.mark.parametrize(
    ("dialect", "fallback", "form", "path"),
    [
        ("openai_chat", "claude-x", "anthropic_messages", b"/v1/messages"),
        ("openai_chat", "gpt-5", "", None),
        ("openai_chat", "groq/m", "", None),
        ("openai_chat", "gemini-2.5-pro", "", None),
        ("openai_responses", "gpt-5", "", None),
        ("openai_responses", "groq/m", "openai_chat", None),  # which nearly all speak
        ("openai_responses", "claude-x", "anthropic_messages", None),
        ("anthropic_messages", "claude-y", "", None),
        ("anthropic_messages", "gpt-5", "openai_chat", None),
        ("anthropic_messages", "ollama/llama3", "openai_chat", None),
        ("gemini", "gemini-2.0-flash", "", None),
        ("gemini", "gpt-5", "openai_chat", None),
        ("gemini", "claude-x", "anthropic_messages", None),
    ],
)
def test_each_fallback_is_asked_in_a_form_it_speaks(
    dialect: str, fallback: str, form: str, path: bytes | None
) -> None:
    model = {"anthropic_messages": "claude-x1", "gemini": "gemini-2.5-pro"}.get(dialect, "gpt-4o")

    target = chain(fallback, dialect=dialect, model=model).targets[1]

    assert target.dialect == form
    assert path is None or target.path(path.decode(), "") == path


def test_a_fallback_of_geminis_own_form_keeps_it_at_gemini_and_nowhere_else() -> None:
    found = chain("gemini-2.0-flash", "gpt-5", "mock/m", dialect="gemini", model="gemini-2.5-pro")

    assert [target.is_native for target in found.targets] == [True, True, False, False]
    assert found.targets[3].dialect == "openai_chat"  # the mock speaks no other here


# -- the mock


def test_the_mock_can_be_a_fallback() -> None:
    target = chain("mock/m").targets[1]

    assert (target.is_mock, target.label) == (True, "mock/m")


def test_with_mock_only_all_fallbacks_are_the_mock() -> None:
    found = chain("claude-x", "mock/429", "groq/m", mock_only=True)

    assert all(target.is_mock for target in found.targets)
    assert [target.model for target in found.targets] == ["gpt-4o", "claude-x", "429", "groq/m"]


@pytest.mark.parametrize("key", ["mock-key", "your-api-key"])
def test_a_placeholder_key_means_the_same_for_fallbacks_of_the_own_provider(key: str) -> None:
    keyless = replace(OPENAI, api_key=None)

    mocked = chain("gpt-5", "openai/o3", key=key, rows=(keyless,))
    real = chain("gpt-5", key=key, rows=(OPENAI,))

    assert all(target.is_mock for target in mocked.targets)
    assert [target.model for target in mocked.targets] == ["gpt-4o", "gpt-5", "o3"]
    assert [target.key for target in real.targets] == ["sk-own", "sk-own"]


# -- keys


def test_a_fallback_of_the_own_provider_has_the_callers_key() -> None:
    found = chain("gpt-5")

    assert [target.takes_callers_key for target in found.targets] == [True, True]
    assert [target.is_stranger for target in found.targets] == [False, False]


def test_any_other_fallback_has_its_own_key_and_is_a_stranger() -> None:
    found = chain("claude-x", "groq/m", "gemini-2.5-pro")

    assert [target.key for target in found.targets] == [None, "sk-ant-own", "gsk-own", "AIza-own"]
    assert [target.is_stranger for target in found.targets] == [False, True, True, True]


def test_under_a_providers_url_that_one_is_the_own_one() -> None:
    found = chain("groq/llama-4", "openai/gpt-5", "claude-x", url="groq", model="llama-3")

    assert labels(found) == [
        "groq/llama-3", "groq/llama-4", "openai/gpt-5", "anthropic/claude-x",
    ]  # fmt: skip
    assert [target.takes_callers_key for target in found.targets] == [True, True, False, False]
    assert [target.key for target in found.targets] == [None, None, "sk-own", "sk-ant-own"]


CANARY = "canary-of-the-caller"
NAMES = ("openai", "anthropic", "gemini", "groq", "near")
DIALECTS = ("openai_chat", "openai_responses", "openai_embeddings", "anthropic_messages", "gemini",
            "")  # fmt: skip
MODELS = ("gpt-4o", "claude-x", "gemini-2", "x", *(f"{name}/y" for name in NAMES), "mock/z", "a/b")
KEY_HEADERS = (b"Authorization", b"x-api-key", b"Api-Key", b"X-Goog-Api-Key")


@st.composite
def rows(draw: st.DrawFn) -> tuple[ProviderSettings, ...]:
    """Draw providers, each with a key of its own or none."""
    found: list[ProviderSettings] = []
    for name in NAMES:
        forms = st.lists(st.sampled_from(DIALECTS[:2] + DIALECTS[3:5]), unique=True, max_size=3)
        own_form = {"anthropic": "anthropic_messages", "gemini": "gemini"}.get(name, "openai_chat")
        host = "127.0.0.1" if name == "near" else f"{name}.example"
        found.append(
            ProviderSettings(
                name,
                tuple(dict.fromkeys((own_form, *draw(forms)))),
                OPENAI.base_url if name == "openai" else f"https://{host}/v1",
                draw(st.sampled_from((None, f"key-of-{name}"))),
                draw(st.sampled_from(((), ("gpt-*",), ("claude-*", "x"), ("gemini-*",), ("*",)))),
            )
        )
    return tuple(draw(st.permutations(found)))


@given(
    rows(),
    st.sampled_from(DIALECTS),
    st.sampled_from(MODELS),
    st.sampled_from((None, *NAMES, "mock")),
    st.lists(st.sampled_from(MODELS), max_size=6),
    st.lists(st.sampled_from(KEY_HEADERS), max_size=3),
)
def test_no_provider_ever_gets_the_key_of_another(
    providers: tuple[ProviderSettings, ...], dialect: str, model: str, url: str | None,
    fallback: list[str], key_headers: list[bytes],
) -> None:  # fmt: skip
    owner = {"anthropic_messages": "anthropic", "gemini": "gemini"}.get(dialect, "openai")
    headers = Headers(
        [*((name, CANARY.encode()) for name in key_headers), (b"X-Custom", CANARY.encode()),
         (b"Cookie", CANARY.encode()), (b"x-agent-fallback-model", ",".join(fallback).encode())]
    )  # fmt: skip
    asked = Inquiry(owner, headers, model, url, dialect, is_native=dialect == "gemini")
    try:
        found = Targets(providers).chain(asked)
    except BadRequest:
        return
    addresses = {row.name: row.base_url for row in providers}

    for target in found.targets:
        if target.is_mock:
            continue
        sent = b" ".join(value for _, value in upstream_headers(headers, target)).decode()
        is_own = target.provider == (url or owner)
        assert target.origin.host in addresses[target.provider]
        assert is_own or CANARY not in sent
        assert all(f"key-of-{name}" not in sent for name in NAMES if name != target.provider)
        assert is_own == (not target.is_stranger)
        if not is_own:
            row = next(row for row in providers if row.name == target.provider)
            assert target.key == row.api_key
            assert row.api_key is not None or target.provider == "near"
