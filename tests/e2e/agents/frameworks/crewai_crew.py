"""A crew of one, with CrewAI's LLM."""

from __future__ import annotations

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from agentstate import wrap_crewai
from tests.e2e.agents.frameworks import life

llm = LLM(
    model=life.MODEL,
    **wrap_crewai(session_id=life.SESSION, base_url=life.BASE_URL, api_key="mock-key"),
)
clerk = Agent(
    role="clerk",
    goal="answer",
    backstory="You are terse.",
    tools=[tool("look_up")(life.look_up)],
    llm=llm,
)


def ask(question: str) -> str:
    """Give the crew a task."""
    task = Task(description=question, expected_output="a line", agent=clerk)
    return str(Crew(agents=[clerk], tasks=[task]).kickoff())


life.live(ask)
