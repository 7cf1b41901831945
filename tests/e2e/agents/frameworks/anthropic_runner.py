"""The tool runner of Anthropic's SDK."""

from __future__ import annotations

from anthropic import beta_tool

import agentstate
from tests.e2e.agents.frameworks import life

session = agentstate.session(life.SESSION, base_url=life.BASE_URL, api_key="mock-key")


def ask(question: str) -> str:
    """Let the SDK run the tool until the model is done."""
    runner = session.anthropic().beta.messages.tool_runner(
        model="claude-haiku-4-5",
        max_tokens=500,
        tools=[beta_tool(life.look_up)],
        messages=[{"role": "user", "content": question}],
    )
    return runner.until_done().content[0].text


life.live(ask)
