"""LangChain's agent with ChatAnthropic."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool

from agentstate import wrap_langchain_anthropic
from tests.e2e.agents.frameworks import life

model = ChatAnthropic(
    model="claude-haiku-4-5",
    **wrap_langchain_anthropic(session_id=life.SESSION, base_url=life.BASE_URL, api_key="mock-key"),
)
agent = create_agent(model, [tool(life.look_up)], system_prompt="You are terse.")


def ask(question: str) -> str:
    """Ask the agent."""
    found = agent.invoke({"messages": [{"role": "user", "content": question}]})
    return str(found["messages"][-1].text)


life.live(ask)
