"""Pydantic AI."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import agentstate
from tests.e2e.agents.frameworks import life

session = agentstate.session(life.SESSION, base_url=life.BASE_URL, api_key="mock-key")
model = OpenAIChatModel(life.MODEL, provider=OpenAIProvider(openai_client=session.async_openai()))
agent = Agent(model, system_prompt="You are terse.", tools=[life.look_up])
life.live(lambda question: str(agent.run_sync(question).output))
