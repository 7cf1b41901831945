"""What tokens cost, from the packaged table of list prices.

A cost is exact or it is None: never a guess. The table has the standard tier; it knows no batch or
priority tiers, no surcharge for very long prompts, no charge per request or per search. Nothing is
read at import: `load_prices` is called once, at start.

A price in dollars per million tokens is the same number in micro-dollars per token. Prices are kept
as integer millionths of that (pico-dollars per token), so sums are exact whatever the counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources

from agentstate.ground.chat import Usage

PICO_PER_MICRO = 1_000_000

# The date of a snapshot: gpt-4o-2024-08-06, claude-opus-4-5-20251101. Shorter ones (-0613, -2512)
# are left alone: the undated name mostly stands for another model by now.
_SNAPSHOT = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8})$")


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """List prices of one model at one provider, in pico-dollars per token."""

    input_picousd: int
    output_picousd: int
    cache_read_picousd: int | None = None  # None = not listed
    cache_write_picousd: int | None = None  # None = no surcharge is listed
    context_tokens: int | None = None  # the window; None = not listed

    @property
    def is_known(self) -> bool:
        """False where the table has zeros: free models stand there, and others whose price is per
        second, image or request; it cannot tell which."""
        return self.input_picousd > 0 or self.output_picousd > 0


class Prices:
    """Look-up of models by the name their provider, or a request, calls them."""

    def __init__(self, models: Mapping[tuple[str, str], ModelPrice]) -> None:
        self._models = dict(models)  # by (provider, model)

    def __len__(self) -> int:
        return len(self._models)

    def cost_microusd(self, provider: str, model: str, usage: Usage) -> int | None:
        """Return the cost in micro-dollars, half a one rounded up; None = not known.

        Cached input costs its listed price; where none is listed the cost is not known. Input that
        is written to a cache costs plain input where no surcharge is listed.
        """
        price = self._find(provider, model)
        if price is None or not price.is_known:
            return None
        plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        counts = (plain, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
        if min(counts) < 0:
            return None  # the parts are more than the whole: the report contradicts itself
        cache_read = price.cache_read_picousd
        if cache_read is None:
            if usage.cached_tokens:
                return None
            cache_read = 0
        cache_write = price.cache_write_picousd
        if cache_write is None:
            cache_write = price.input_picousd
        total = (
            plain * price.input_picousd
            + usage.output_tokens * price.output_picousd
            + usage.cached_tokens * cache_read
            + usage.cache_write_tokens * cache_write
        )
        return (total + PICO_PER_MICRO // 2) // PICO_PER_MICRO

    def context_tokens(self, provider: str, model: str) -> int | None:
        """Return how many tokens a model's window holds; None = not known."""
        price = self._find(provider, model)
        return price.context_tokens if price is not None else None

    def _find(self, provider: str, model: str) -> ModelPrice | None:
        """Look for the exact name, then for it without what was put before or behind it."""
        # A prefix that names another provider is left: gpt-oss costs what Groq asks for it, and
        # what a gateway asks for openai/gpt-4o is not on OpenAI's list.
        for name in (model, model.removeprefix(f"{provider}/"), model.removeprefix("models/")):
            for candidate in (name, _base_of_tuned(name), _SNAPSHOT.sub("", name)):
                price = self._models.get((provider, candidate))
                if price is not None:
                    return price
        return None


def load_prices() -> Prices:
    """Read the packaged table."""
    table = resources.files("agentstate").joinpath("data", "model_prices.json").read_bytes()
    rows = json.loads(table, parse_float=Decimal)["models"]
    return Prices(
        {(row["provider"], _model_of(key, row)): _read_row(row) for key, row in rows.items()}
    )


def _read_row(row: Mapping[str, Decimal | int]) -> ModelPrice:
    read = row.get("cache_read")
    write = row.get("cache_write")
    context = row.get("context")
    return ModelPrice(
        input_picousd=_picousd(row["input"]),
        output_picousd=_picousd(row["output"]),
        cache_read_picousd=None if read is None else _picousd(read),
        cache_write_picousd=None if write is None else _picousd(write),
        context_tokens=None if context is None else int(context),
    )


def _model_of(key: str, row: Mapping[str, str]) -> str:
    """Return the model's name of a key: Perplexity's rows have the provider before it twice."""
    prefix = f"{row['provider']}/"
    return key.removeprefix(prefix).removeprefix(prefix)


def _picousd(usd_per_million: Decimal | int) -> int:
    picousd = usd_per_million * PICO_PER_MICRO
    assert picousd == int(picousd), "a price in the table has more than six decimals"
    return int(picousd)


def _base_of_tuned(model: str) -> str:
    """Return ft:gpt-4o-2024-08-06 of ft:gpt-4o-2024-08-06:org:name:id, which has its price."""
    return ":".join(model.split(":")[:2]) if model.startswith("ft:") else model
