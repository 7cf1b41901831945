"""LlamaIndex's FunctionAgent."""

from __future__ import annotations

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI

import agentstate
from tests.e2e.agents.frameworks import life

session = agentstate.session(life.SESSION, base_url=life.BASE_URL)
llm = OpenAI(
    model=life.MODEL,
    api_base=session.base_url,
    api_key="mock-key",
    default_headers=session.constant_headers(),
)
agent = FunctionAgent(tools=[life.look_up], llm=llm, system_prompt="You are terse.")
loop = asyncio.new_event_loop()


async def answer(question: str) -> str:
    """Run the agent's workflow."""
    return str(await agent.run(question))


life.live(lambda question: loop.run_until_complete(answer(question)))
