"""Floor 2: the wire forms we speak. A new one is one new file and one row here."""

from __future__ import annotations

from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.dialects.base import Dialect, reads_path
from agentstate.dialects.gemini import Gemini
from agentstate.dialects.ollama_chat import OllamaChat
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.openai_completions import OpenAICompletions
from agentstate.dialects.openai_embeddings import OpenAIEmbeddings
from agentstate.dialects.openai_responses import OpenAIResponses

DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    OpenAIResponses(),
    OpenAICompletions(),
    OpenAIEmbeddings(),
    AnthropicMessages(),
    Gemini(),
)


# Forms that providers speak and no caller does: they are only translated into, and from.
UPSTREAM_DIALECTS: tuple[Dialect, ...] = (OllamaChat(),)


def dialect_for_path(path: str, query: str = "") -> Dialect | None:
    """Return the dialect of a path below /v1, such as "/chat/completions"; None if it has none.

    A path that begins with another version, such as "/v1beta/models/m:generateContent", is whole.
    """
    for dialect in DIALECTS:
        if path in dialect.paths:
            return dialect.at(path, query) if reads_path(dialect) else dialect
    return next(
        (bound for row in DIALECTS if reads_path(row) if (bound := row.at(path, query))),
        None,
    )


def dialect_by_name(name: str) -> Dialect | None:
    """Return the dialect that settings and the record call `name`; None if there is none."""
    rows = (*DIALECTS, *UPSTREAM_DIALECTS)
    return next((dialect for dialect in rows if dialect.name == name), None)
