"""LangChain's agent with ChatOpenAI."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from agentstate import wrap_langchain
from tests.e2e.agents.frameworks import life

model = ChatOpenAI(
    model=life.MODEL,
    **wrap_langchain(session_id=life.SESSION, base_url=life.BASE_URL, api_key="mock-key"),
)
agent = create_agent(model, [tool(life.look_up)], system_prompt="You are terse.")


def ask(question: str) -> str:
    """Ask the agent."""
    found = agent.invoke({"messages": [{"role": "user", "content": question}]})
    return str(found["messages"][-1].content)


life.live(ask)
