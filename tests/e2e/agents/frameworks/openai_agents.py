"""The OpenAI Agents SDK."""

from __future__ import annotations

from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled

import agentstate
from tests.e2e.agents.frameworks import life

session = agentstate.session(life.SESSION, base_url=life.BASE_URL, api_key="mock-key")
set_tracing_disabled(True)
set_default_openai_client(session.async_openai())
agent = Agent(
    name="clerk",
    instructions="You are terse.",
    tools=[function_tool(life.look_up)],
    model=life.MODEL,
)
life.live(lambda question: str(Runner.run_sync(agent, question).final_output))
