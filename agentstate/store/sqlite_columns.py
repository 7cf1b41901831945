"""How values become columns that are not packed, and what they add to a session. Pure functions."""

from __future__ import annotations

from agentstate.ground.chat import Usage
from agentstate.store.base import readable

# Of a row of `session`, in an update: it has been called, so if it had ended it goes on.
GOES_ON = """
  status = case when status in ('FAILED', 'COMPLETED') then 'RUNNING' else status end,
  status_ms = case when status in ('FAILED', 'COMPLETED') then null else status_ms end
"""

Sums = tuple[int, int, int, int]  # tokens in and out, cost, unknown costs


def usage_columns(usage: Usage | None) -> tuple[int | None, ...]:
    """Return the five columns of a usage."""
    if usage is None:
        return (None, None, None, None, None)
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )


def sums_of(usage: Usage | None, cost: int | None) -> Sums:
    """Return what an answer adds to its session."""
    if usage is None:
        return column_sums(None, None, cost)
    return column_sums(usage.input_tokens, usage.output_tokens, cost)


def column_sums(input_tokens: int | None, output_tokens: int | None, cost: int | None) -> Sums:
    """Return what an answer with these columns has added to its session."""
    return input_tokens or 0, output_tokens or 0, cost or 0, int(cost is None)


def maybe_readable(text: str | None) -> str | None:
    """As `readable`; None stays None."""
    return None if text is None else readable(text)
