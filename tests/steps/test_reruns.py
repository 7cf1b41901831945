"""Where a rerun goes, and what is said where it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.ground.errors import Conflict
from agentstate.ground.settings import ProviderSettings
from agentstate.steps.reruns import Reruns
from agentstate.steps.routing import Targets

OPENAI = ProviderSettings(
    name="openai", dialect=("openai_chat",), base_url="https://api.openai.com/v1", models=("gpt-*",)
)
CLAUDE = replace(
    OPENAI,
    name="anthropic",
    dialect=("anthropic_messages",),
    base_url="https://api.anthropic.com",
    models=("claude-*",),
    api_key="k",
)


def goes_to(model: str, asked_at: str | None, *rows: ProviderSettings, is_other: bool) -> str:
    reruns = Reruns(None, Targets(rows))  # type: ignore[arg-type]  # it asks nobody
    dialect = OpenAIChat()
    ask = dialect.read_ask({"model": model, "messages": [{"role": "user", "content": "q"}]})
    chain = reruns._chain(asked_at, dialect, ask, "/v1/chat/completions", is_other=is_other)
    return chain.targets[0].label


def test_without_a_key_it_is_said_which_setting_brings_it() -> None:
    with pytest.raises(Conflict) as refusal:
        goes_to("gpt-4o", "openai", OPENAI, is_other=False)
    assert "No key is configured for openai" in refusal.value.message
    assert "OPENAI_API_KEY" in refusal.value.message
    here = replace(OPENAI, base_url="http://127.0.0.1:9/v1")
    assert goes_to("gpt-4o", "openai", here, is_other=False) == "openai/gpt-4o"


def test_it_goes_where_the_step_went_unless_another_model_leads_elsewhere() -> None:
    keyed = replace(OPENAI, api_key="k")
    assert goes_to("gpt-4o", "mock", keyed, CLAUDE, is_other=False) == "mock/gpt-4o"
    assert goes_to("gpt-4o", "mock", keyed, CLAUDE, is_other=True) == "openai/gpt-4o"
    assert goes_to("claude-x", "openai", keyed, CLAUDE, is_other=True) == "anthropic/claude-x"
    assert goes_to("mock/m", "openai", keyed, CLAUDE, is_other=True) == "mock/m"
    assert goes_to("llama", "anthropic", keyed, CLAUDE, is_other=True) == "anthropic/llama"
