"""Agents of real frameworks, with tools, through the proxy: killed or not, run two pays nothing.

These cannot number their calls: one session header is all that they send. The mock answers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy

pytestmark = [pytest.mark.slow, pytest.mark.clients]

OPENAI_AGENTS = """
import asyncio, sys
from openai import AsyncOpenAI
from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled

set_tracing_disabled(True)
set_default_openai_client(AsyncOpenAI(
    base_url=sys.argv[1], api_key="mock-key", default_headers={"x-agent-session-id": sys.argv[2]},
))

@function_tool
def look_up(key: str) -> str:
    "Look a key up."
    return "found " + key

agent = Agent(name="clerk", instructions="You are terse.", tools=[look_up], model="gpt-4o-mini")
result = asyncio.run(Runner.run(agent, 'Please look_up {"key": "k1"} for me.'))
print(result.final_output)
"""

PYDANTIC_AI = """
import sys
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

client = AsyncOpenAI(
    base_url=sys.argv[1], api_key="mock-key", default_headers={"x-agent-session-id": sys.argv[2]},
)
Model = OpenAIResponsesModel if sys.argv[3] == "responses" else OpenAIChatModel
agent = Agent(
    Model("gpt-4o-mini", provider=OpenAIProvider(openai_client=client)),
    system_prompt="You are terse.",
)

@agent.tool_plain
def look_up(key: str) -> str:
    "Look a key up."
    return "found " + key

print(agent.run_sync('Please look_up {"key": "k1"} for me.').output)
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    ("module", "code", "form"),
    [
        ("agents", OPENAI_AGENTS, ""),
        ("pydantic_ai", PYDANTIC_AI, "chat"),
        ("pydantic_ai", PYDANTIC_AI, "responses"),
    ],
)
def test_an_agent_with_a_tool_runs_again_for_nothing(
    module: str, code: str, form: str, tmp_path: Path
) -> None:
    pytest.importorskip(module)
    with Proxy(
        upstream_url="http://127.0.0.1:9", db=tmp_path / "record.db", flags=["--mock"]
    ) as proxy:
        first = run(code, proxy.base_url, "run", form)
        steps = proxy.settled_steps("run")
        assert len(steps) == 2, "a call that asks for the tool, and one with its result"
        assert steps[0]["choices"][0]["tool_calls"][0]["name"] == "look_up"
        assert run(code, proxy.base_url, "run", form) == first
        again = proxy.settled_steps("run")
    assert [step["replays"] for step in again] == [1, 1]
