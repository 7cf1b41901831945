"""Agents of the frameworks people use, with one line of ours: killed in a tool, then run again.

The proxy is killed as well, between the agent's lives. What was answered before the kill is
replayed, though the tools give other results in the second life; nothing is asked twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.environments import need_python
from tests.helpers.node import FOLDER as NODE_FOLDER
from tests.helpers.node import need_node
from tests.helpers.proxy import ROOT, Proxy

pytestmark = [pytest.mark.slow, pytest.mark.clients]

QUESTIONS = 4
BEFORE_DEATH = 5  # two calls of each question; the agent dies in the tool of the third
LIFE_TIMEOUT_S = 180  # CrewAI takes ten seconds to import

# Each agent, and the environment it runs in; "" = the tests' own, with the module it needs.
AGENTS = [
    ("openai_client", "openai1", ""),
    ("openai_client", "frameworks", ""),
    ("openai_client", "", "openai"),
    ("anthropic_runner", "", "anthropic"),
    ("openai_agents", "", "agents"),
    ("pydantic_ai_agent", "", "pydantic_ai"),
    ("langchain_chat", "langchain", ""),
    ("langchain_responses", "langchain", ""),
    ("langchain_anthropic", "langchain", ""),
    ("crewai_crew", "frameworks", ""),
    ("instructor_loop", "frameworks", ""),
    ("litellm_loop", "frameworks", ""),
    ("llamaindex_agent", "frameworks", ""),
]
# Frameworks that would call home from a test.
QUIET = {
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


def live(command: list[str], home: Path) -> tuple[int, list[str], str]:
    """Live one life; return how it ended, the answers it told, and its last words."""
    done = subprocess.run(
        command,
        cwd=home,
        env={**os.environ, **QUIET, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIFE_TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr[-3000:]


def check_that_it_resumes(command: list[str], tmp_path: Path) -> None:
    with Proxy(
        upstream_url="http://127.0.0.1:9", db=tmp_path / "record.db", flags=["--mock"]
    ) as proxy:
        line = [*command, proxy.base_url, "run"]
        code, told, words = live([*line, "dies"], tmp_path)
        assert code == -signal.SIGKILL, words
        assert len(told) == 2
        before = proxy.settled_steps("run")
        assert len(before) == BEFORE_DEATH
        proxy.restart()
        code, again, words = live(line, tmp_path)
        assert code == 0, words
        steps = proxy.settled_steps("run")
        code, third, words = live(line, tmp_path)
        assert code == 0, words
        last = proxy.settled_steps("run")
    assert again[:2] == told
    assert len(again) == QUESTIONS
    assert {step["state"] for step in steps} == {"complete"}
    assert [step["replays"] for step in steps] == [1] * BEFORE_DEATH + [0] * 3
    assert third == again
    assert [step["replays"] for step in last] == [2] * BEFORE_DEATH + [1] * 3


@pytest.mark.parametrize(
    ("agent", "environment", "module"),
    AGENTS,
    ids=[f"{agent}-{where}" for agent, where, _ in AGENTS],
)
def test_a_killed_agent_goes_on_where_it_was(
    agent: str, environment: str, module: str, tmp_path: Path
) -> None:
    if module:
        pytest.importorskip(module)
    python = need_python(environment) if environment else Path(sys.executable)
    check_that_it_resumes([str(python), "-m", f"tests.e2e.agents.frameworks.{agent}"], tmp_path)


def test_a_killed_agent_of_the_ai_sdk_goes_on_where_it_was(tmp_path: Path) -> None:
    node = need_node()
    source = ROOT / "tests" / "e2e" / "agents" / "frameworks" / "ai_sdk.mjs"
    script = NODE_FOLDER / source.name  # beside node_modules, where Node looks
    shutil.copyfile(source, script)
    check_that_it_resumes([node, str(script)], tmp_path)
