"""What Claude models take, by their names."""

from __future__ import annotations

import pytest

from agentstate.dialects import anthropic_models


@pytest.mark.parametrize(
    ("model", "takes"),  # sampling, prefill, format, effort, the most effort
    [
        ("claude-3-5-haiku-latest", "yyn--"),
        ("claude-2.1", "yyn--"),
        ("claude-opus-4-20250514", "yyn--"),
        ("claude-opus-4-1-20250805", "yyn--"),
        ("claude-opus-4-5-20251101", "yyye-"),
        ("claude-sonnet-4-5", "yyy--"),
        ("claude-haiku-4-5-20251001", "yyy--"),
        ("us.anthropic.claude-sonnet-4-6-v1:0", "ynye-"),
        ("anthropic/claude-opus-4.7", "nnyex"),
        ("claude-opus-4-8", "nnyex"),
        ("claude-sonnet-5", "nnyex"),
        ("claude-fable-5", "nnyex"),
        ("claude-test", "yyy--"),
        ("deepseek-chat", "yyy--"),
    ],
)
def test_a_model_is_known_by_its_name(model: str, takes: str) -> None:
    found = [
        "y" if anthropic_models.takes_sampling(model) else "n",
        "y" if anthropic_models.takes_prefill(model) else "n",
        "y" if anthropic_models.takes_format(model) else "n",
        "e" if anthropic_models.takes_effort(model, "low") else "-",
        "x" if anthropic_models.takes_effort(model, "xhigh") else "-",
    ]

    assert "".join(found) == takes


@pytest.mark.parametrize("effort", ["none", "minimal", "x"])
def test_levels_that_anthropic_lacks_are_not_taken(effort: str) -> None:
    assert not anthropic_models.takes_effort("claude-opus-5", effort)


@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("claude-3-haiku-20240307", 4_096),
        ("claude-3-5-sonnet-20241022", 8_192),
        ("claude-3-7-sonnet-latest", 64_000),
        ("claude-opus-4-1", 32_000),
        ("claude-opus-4-5", 64_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 64_000),
        ("claude-test", None),
        ("gpt-4o", None),
    ],
)
def test_how_long_an_answer_may_be(model: str, most: int | None) -> None:
    assert anthropic_models.most_output_tokens(model) == most
