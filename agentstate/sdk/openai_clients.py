"""OpenAI's own clients, each call of which belongs to a session. Needs the package openai.

For openai 1, 2 and 3. All that the real ones have is there: both forms of the API, streams and
their helpers, raw responses, `with_options`.
"""

from __future__ import annotations

import openai

from agentstate.sdk.clients import Stamping


class AgentStateOpenAI(Stamping, openai.OpenAI):
    """`openai.OpenAI` through the proxy.

    >>> client = AgentStateOpenAI(session_id="invoice-run-42", api_key="mock-key")
    >>> client.session_id
    'invoice-run-42'
    """


class AsyncAgentStateOpenAI(Stamping, openai.AsyncOpenAI):
    """`openai.AsyncOpenAI` through the proxy.

    >>> client = AsyncAgentStateOpenAI(session_id="invoice-run-42", api_key="mock-key")
    >>> client.base_url.path
    '/v1/'
    """
