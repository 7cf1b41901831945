"""Anthropic's own clients, each call of which belongs to a session. Needs the package anthropic."""

from __future__ import annotations

import anthropic

from agentstate.sdk.address import Address
from agentstate.sdk.clients import Stamping


class _AtRoot(Stamping):
    """Anthropic's clients add /v1 to their base URL themselves."""

    @staticmethod
    def _base_url_at(address: Address) -> str:
        return address.anthropic_base_url


class AgentStateAnthropic(_AtRoot, anthropic.Anthropic):
    """`anthropic.Anthropic` through the proxy.

    >>> client = AgentStateAnthropic(session_id="invoice-run-42", api_key="mock-key")
    >>> client.session_id
    'invoice-run-42'
    """


class AsyncAgentStateAnthropic(_AtRoot, anthropic.AsyncAnthropic):
    """`anthropic.AsyncAnthropic` through the proxy.

    >>> client = AsyncAgentStateAnthropic(session_id="invoice-run-42", api_key="mock-key")
    >>> client.session_id
    'invoice-run-42'
    """
