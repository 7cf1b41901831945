"""A loop of one's own over LiteLLM's SDK."""

from __future__ import annotations

import json
from typing import Any

import litellm

import agentstate
from tests.e2e.agents.frameworks import life

session = agentstate.session(life.SESSION, base_url=life.BASE_URL)
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    },
}


def ask(question: str) -> str:
    """Ask until no tool is wanted."""
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        answer = litellm.completion(
            model=f"openai/{life.MODEL}",
            messages=messages,
            tools=[TOOL],
            api_base=session.base_url,
            api_key="mock-key",
            extra_headers=session.headers(),
        )
        message = answer.choices[0].message
        messages.append(message.model_dump())
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            found = life.look_up(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


life.live(ask)
