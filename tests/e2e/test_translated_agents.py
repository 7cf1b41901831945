"""Agents of real frameworks on another vendor's model: they never learn of it, and run again free.

The model is a Claude that calls the tool it is offered, and says what the tool gave.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dialects import samples_anthropic as anthropic
from tests.e2e.test_frameworks import OPENAI_AGENTS, PYDANTIC_AI, run
from tests.e2e.translated_rig import CLAUDE, check_request
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Received, Reply, Upstream, json_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]


class Claude(Upstream):
    """Calls the first tool it is offered; repeats what it gave."""

    def reply_to(self, request: Received) -> Reply:
        body = request.json()
        last = body["messages"][-1]["content"]
        results: list[Any] = [each for each in last if each["type"] == "tool_result"]
        if results:
            block = {"type": "text", "text": f"It says: {results[0]['content']}"}
            return json_reply(json.loads(anthropic.body(block)))
        name = body["tools"][0]["name"]
        call = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {"key": "k1"}}
        return json_reply(json.loads(anthropic.body(call, reason="tool_use")))


@pytest.mark.parametrize(
    ("module", "code", "form", "prefix"),
    [
        ("agents", OPENAI_AGENTS, "", "openai/"),  # it takes a prefix itself
        ("pydantic_ai", PYDANTIC_AI, "chat", ""),
    ],
)
def test_an_agent_made_for_openai_runs_on_claude(
    module: str, code: str, form: str, prefix: str, tmp_path: Path
) -> None:
    pytest.importorskip(module)
    code = code.replace("gpt-4o-mini", f"{prefix}anthropic/{CLAUDE}")
    env = {"ANTHROPIC_API_KEY": "sk-of-anthropic"}
    with (
        Claude() as claude,
        Proxy(upstream_url=claude.url, db=tmp_path / "record.db", env=env) as proxy,
    ):
        first = run(code, proxy.base_url, "run", form)
        steps = proxy.settled_steps("run")
        again = run(code, proxy.base_url, "run", form)

    assert first == again
    assert "It says: found k1" in first
    assert [step["provider"] for step in steps] == ["anthropic", "anthropic"]
    assert len(claude.received) == 2
    for request in claude.received:
        check_request(request)
