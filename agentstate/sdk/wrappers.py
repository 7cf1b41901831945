"""Keyword arguments for the model classes of frameworks, as those take them today.

Where a framework takes an HTTP client, each call is named, as our own clients do. Where it takes
constant headers only, the run id alone is sent: then the n-th time a run asks a thing it gets the
n-th answer, and a retry is known by the count that the SDKs send. A constant number would be wrong
for all calls but the first.
"""

from __future__ import annotations

from typing import Any

from agentstate.sdk.hooks import Hooks
from agentstate.sdk.missing import load
from agentstate.sdk.session import Session


def wrap_langchain(
    session_id: str | Session, *, api_key: str | None = None, **options: Any
) -> dict[str, Any]:
    """Return what `langchain_openai.ChatOpenAI` takes.

        model = ChatOpenAI(model="gpt-4o-mini", **wrap_langchain(session_id="invoice-run-42"))

    `session_id` may be a `Session`, to share its run; else `options` are those of `Session`.

    Raises:
        MissingPackage: openai is not installed.
    """
    return {
        **wrap_langchain_embeddings(session_id, api_key=api_key, **options),
        # Else a model with a base URL or a client of its own asks for no usage in its streams, and
        # a call whose usage nobody said has no cost, so counts towards no cap of dollars.
        "stream_usage": True,
    }


def wrap_langchain_embeddings(
    session_id: str | Session, *, api_key: str | None = None, **options: Any
) -> dict[str, Any]:
    """Return what `langchain_openai.OpenAIEmbeddings` takes.

    Raises:
        MissingPackage: openai is not installed.
    """
    session = _session_of(session_id, options)
    openai: Any = load("openai", "openai", "wrap_langchain")
    hooks = Hooks(session.run)
    return {
        "base_url": session.base_url,
        **_key(api_key),
        "default_headers": session.run.constant_headers(),
        # The SDK's own, so with its limits and time-outs; of httpx or httpx2, as it wants.
        "http_client": openai.DefaultHttpxClient(event_hooks={"request": [hooks.stamp]}),
        "http_async_client": openai.DefaultAsyncHttpxClient(
            event_hooks={"request": [hooks.stamp_async]}
        ),
    }


def wrap_langchain_anthropic(
    session_id: str | Session, *, api_key: str | None = None, **options: Any
) -> dict[str, Any]:
    """Return what `langchain_anthropic.ChatAnthropic` takes.

    >>> sorted(wrap_langchain_anthropic("invoice-run-42"))
    ['base_url', 'default_headers']
    """
    session = _session_of(session_id, options)
    return {
        "base_url": session.anthropic_base_url,
        **_key(api_key),
        "default_headers": session.run.constant_headers(),
    }


def wrap_crewai(
    session_id: str | Session, *, api_key: str | None = None, **options: Any
) -> dict[str, Any]:
    """Return what `crewai.LLM` takes; any model then goes to the proxy in OpenAI's form.

    >>> wrap_crewai("invoice-run-42")["base_url"]
    'http://localhost:8080/v1'
    """
    session = _session_of(session_id, options)
    return {
        "base_url": session.base_url,
        **_key(api_key),
        "default_headers": session.run.constant_headers(),
        # Else CrewAI chooses its own client by the model's name: Anthropic's for claude-*.
        "custom_openai": True,
    }


def _session_of(session_id: str | Session, options: dict[str, Any]) -> Session:
    if isinstance(session_id, Session):
        if options:
            raise ValueError(
                f"{', '.join(sorted(options))}: say this where the session is made; what is "
                "passed here is one already."
            )
        return session_id
    return Session(session_id, **options)


def _key(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"api_key": api_key}
