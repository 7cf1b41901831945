"""Floor 2: the wire forms we speak. A new one is one new file and one row here."""

from __future__ import annotations

from agentstate.dialects.base import Dialect
from agentstate.dialects.openai_chat import OpenAIChat

DIALECTS: tuple[Dialect, ...] = (OpenAIChat(),)


def dialect_for_path(path: str) -> Dialect | None:
    """Return the dialect of a path below /v1, such as "/chat/completions"; None if it has none."""
    return next((dialect for dialect in DIALECTS if path in dialect.paths), None)


def dialect_by_name(name: str) -> Dialect | None:
    """Return the dialect that settings and the record call `name`; None if there is none."""
    return next((dialect for dialect in DIALECTS if dialect.name == name), None)
