"""AgentState: checkpoint, replay and gate for agents, as a proxy in one file.

Importing this package imports nothing third-party, and nothing of the server. What is named below
comes when it is first asked for:

    from agentstate import AgentStateOpenAI      # pip install openai

    client = AgentStateOpenAI(session_id="invoice-run-42")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentstate.inprocess import Running as Running
    from agentstate.inprocess import running as running
    from agentstate.sdk.anthropic_clients import AgentStateAnthropic as AgentStateAnthropic
    from agentstate.sdk.anthropic_clients import (
        AsyncAgentStateAnthropic as AsyncAgentStateAnthropic,
    )
    from agentstate.sdk.management import ProxyRefused as ProxyRefused
    from agentstate.sdk.management import ServerUnreachable as ServerUnreachable
    from agentstate.sdk.missing import MissingPackage as MissingPackage
    from agentstate.sdk.openai_clients import AgentStateOpenAI as AgentStateOpenAI
    from agentstate.sdk.openai_clients import AsyncAgentStateOpenAI as AsyncAgentStateOpenAI
    from agentstate.sdk.session import Session as Session
    from agentstate.sdk.session import session as session
    from agentstate.sdk.tools import ToolError as ToolError
    from agentstate.sdk.tools import ToolHeld as ToolHeld
    from agentstate.sdk.tools import ToolProblem as ToolProblem
    from agentstate.sdk.tools import ToolRefused as ToolRefused
    from agentstate.sdk.tools import ToolUnknown as ToolUnknown
    from agentstate.sdk.tools import ToolUnreported as ToolUnreported
    from agentstate.sdk.tools import tool as tool
    from agentstate.sdk.wrappers import wrap_crewai as wrap_crewai
    from agentstate.sdk.wrappers import wrap_langchain as wrap_langchain
    from agentstate.sdk.wrappers import wrap_langchain_anthropic as wrap_langchain_anthropic
    from agentstate.sdk.wrappers import wrap_langchain_embeddings as wrap_langchain_embeddings

__version__ = "0.1.0"

# Where each public name is, and the package of others that its module needs; '' = none.
_PLACES = {
    "AgentStateAnthropic": ("agentstate.sdk.anthropic_clients", "anthropic"),
    "AgentStateOpenAI": ("agentstate.sdk.openai_clients", "openai"),
    "AsyncAgentStateAnthropic": ("agentstate.sdk.anthropic_clients", "anthropic"),
    "AsyncAgentStateOpenAI": ("agentstate.sdk.openai_clients", "openai"),
    "MissingPackage": ("agentstate.sdk.missing", ""),
    "ProxyRefused": ("agentstate.sdk.management", ""),
    "Running": ("agentstate.inprocess", ""),
    "Session": ("agentstate.sdk.session", ""),
    "ServerUnreachable": ("agentstate.sdk.management", ""),
    "ToolError": ("agentstate.sdk.tools", ""),
    "ToolHeld": ("agentstate.sdk.tools", ""),
    "ToolProblem": ("agentstate.sdk.tools", ""),
    "ToolRefused": ("agentstate.sdk.tools", ""),
    "ToolUnknown": ("agentstate.sdk.tools", ""),
    "ToolUnreported": ("agentstate.sdk.tools", ""),
    "running": ("agentstate.inprocess", ""),
    "session": ("agentstate.sdk.session", ""),
    "tool": ("agentstate.sdk.tools", ""),
    "wrap_crewai": ("agentstate.sdk.wrappers", ""),
    "wrap_langchain": ("agentstate.sdk.wrappers", ""),
    "wrap_langchain_anthropic": ("agentstate.sdk.wrappers", ""),
    "wrap_langchain_embeddings": ("agentstate.sdk.wrappers", ""),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agentstate.sdk.missing import load

    module, package = _PLACES[name]
    found = getattr(load(module, package, f"agentstate.{name}"), name)
    globals()[name] = found  # from now on it is an attribute like any other
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
