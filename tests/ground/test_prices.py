"""What tokens cost: exact, or not known."""

from __future__ import annotations

import pytest

from agentstate.ground.chat import Usage
from agentstate.ground.prices import ModelPrice, Prices, load_prices

# 2.50 and 10.00 dollars per million: 2.5 and 10 micro-dollars a token.
PLAIN = ModelPrice(2_500_000, 10_000_000)
CACHED = ModelPrice(2_500_000, 10_000_000, 1_250_000, 3_125_000, 128_000)
TABLE = Prices(
    {
        ("openai", "gpt"): CACHED,
        ("openai", "gpt-2024-05-13"): PLAIN,
        ("openai", "ft:gpt-2024-05-13"): ModelPrice(3_750_000, 0),
        ("groq", "openai/gpt-oss"): ModelPrice(1_000_000, 1_000_000),
        ("gemini", "flash"): ModelPrice(300_000, 2_500_000, context_tokens=1_048_576),
        ("gemini", "free-or-per-second"): ModelPrice(0, 0, context_tokens=8),
        ("tiny", "half"): ModelPrice(500_000, 499_999),
        ("tiny", "input only"): ModelPrice(1_000_000, 0),
        ("tiny", "output only"): ModelPrice(0, 1_000_000),
    }
)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(0, 0), 0),
        (Usage(1000, 10), 2600),
        (Usage(1000, 0, cached_tokens=1000), 1250),
        (Usage(1000, 10, cached_tokens=400), 1500 + 500 + 100),
        (Usage(1000, 0, cached_tokens=400, cache_write_tokens=600), 500 + 1875),
        (Usage(1000, 10, reasoning_tokens=10), 2600),  # they are part of the output
        (Usage(10**12, 10**12), 12_500_000_000_000),
    ],
)
def test_each_kind_of_token_has_its_price(usage: Usage, cost: int) -> None:
    assert TABLE.cost_microusd("openai", "gpt", usage) == cost


@pytest.mark.parametrize(
    ("usage", "cost"),
    [(Usage(1, 0), 1), (Usage(2, 0), 1), (Usage(3, 0), 2), (Usage(0, 1), 0), (Usage(1, 1), 1),
     (Usage(1, 2), 1), (Usage(1, 3), 2)],
)  # fmt: skip
def test_half_a_microdollar_is_rounded_up_once(usage: Usage, cost: int) -> None:
    assert TABLE.cost_microusd("tiny", "half", usage) == cost


def test_one_side_may_cost_nothing() -> None:
    assert TABLE.cost_microusd("tiny", "input only", Usage(3, 5)) == 3
    assert TABLE.cost_microusd("tiny", "output only", Usage(3, 5)) == 5


def test_cached_input_without_a_listed_price_is_not_known() -> None:
    assert TABLE.cost_microusd("openai", "gpt-2024-05-13", Usage(10, 0, cached_tokens=1)) is None
    assert TABLE.cost_microusd("openai", "gpt-2024-05-13", Usage(10, 0)) == 25


def test_a_cache_write_without_a_listed_surcharge_is_plain_input() -> None:
    usage = Usage(10, 0, cache_write_tokens=10)

    assert TABLE.cost_microusd("openai", "gpt-2024-05-13", usage) == 25


@pytest.mark.parametrize(
    "usage",
    [Usage(10, 0, cached_tokens=11), Usage(10, 0, cached_tokens=6, cache_write_tokens=6),
     Usage(-1, 0), Usage(1, -1), Usage(10, 0, cached_tokens=-1)],
)  # fmt: skip
def test_a_report_that_contradicts_itself_is_not_known(usage: Usage) -> None:
    assert TABLE.cost_microusd("openai", "gpt", usage) is None


@pytest.mark.parametrize(
    ("provider", "model", "cost"),
    [
        ("openai", "gpt", 250),
        ("openai", "openai/gpt", 250),
        ("openai", "gpt-2026-01-31", 250),
        ("openai", "gpt-20260131", 250),
        ("openai", "gpt@20260131", 250),
        ("openai", "openai/gpt-2026-01-31", 250),
        ("openai", "ft:gpt-2024-05-13:org:name:id", 375),
        ("groq", "openai/gpt-oss", 100),
        ("groq", "groq/openai/gpt-oss", 100),
        ("gemini", "models/flash", 30),
    ],
)
def test_a_model_is_found_by_what_it_is_called(provider: str, model: str, cost: int) -> None:
    assert TABLE.cost_microusd(provider, model, Usage(100, 0)) == cost


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-5"),
        ("openai", "gp"),
        ("openai", ""),
        ("openai", "GPT"),
        ("openai", "gpt-0613"),  # the undated name may be another model by now
        ("openai", "gpt-2026-01-31-preview"),
        ("openai", "ft:gpt-2026-01-31:org:name:id"),
        ("openrouter", "openai/gpt"),  # another seller's price
        ("groq", "gpt-oss"),
        ("groq", "gpt"),
        ("mock", "gpt"),
        ("", "gpt"),
        ("gemini", "free-or-per-second"),
    ],
)
def test_what_is_not_listed_is_not_known(provider: str, model: str) -> None:
    assert TABLE.cost_microusd(provider, model, Usage(100, 100)) is None


def test_a_window_is_known_without_a_price() -> None:
    assert TABLE.context_tokens("openai", "gpt-2026-01-31") == 128_000
    assert TABLE.context_tokens("gemini", "free-or-per-second") == 8
    assert TABLE.context_tokens("openai", "gpt-2024-05-13") is None
    assert TABLE.context_tokens("openai", "unknown") is None


def test_the_packaged_table_is_read_exactly() -> None:
    prices = load_prices()

    assert len(prices) > 400
    usage = Usage(1000, 100, cached_tokens=200)
    assert prices.cost_microusd("openai", "gpt-4o-2024-08-06", usage) == 2000 + 250 + 1000
    assert prices.cost_microusd("openai", "gpt-4o-2024-05-13", Usage(1000, 100)) == 5000 + 1500
    assert prices.cost_microusd("anthropic", "claude-opus-4-5", Usage(1000, 0, 0, 1000)) == 6250
    assert prices.cost_microusd("groq", "openai/gpt-oss-20b", Usage(1000, 1000)) == 75 + 300
    assert prices.cost_microusd("perplexity", "sonar", Usage(1000, 0)) == 1000
    assert prices.cost_microusd("perplexity", "anthropic/claude-opus-4-5", Usage(1000, 0)) == 5000
    assert prices.cost_microusd("gemini", "lyria-3.5", Usage(1000, 1000)) is None
    assert prices.context_tokens("gemini", "gemini-2.5-pro") == 1_048_576
