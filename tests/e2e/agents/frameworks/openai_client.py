"""A loop of one's own over `AgentStateOpenAI`, in each form the client has."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agentstate import session
from tests.e2e.agents.frameworks import life

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "look_up",
        "strict": True,  # else the helper of streams refuses it
        "parameters": {
            "type": "object",
            "properties": {"key": {"type": "string"}},
            "required": ["key"],
            "additionalProperties": False,
        },
    },
}
run = session(life.SESSION, base_url=life.BASE_URL, api_key="mock-key")
plain, later = run.openai(), run.async_openai()


def first(messages: list[Any]) -> Any:
    """Ask in a raw response, as if a header were wanted."""
    raw = plain.chat.completions.with_raw_response.create(
        model=life.MODEL, messages=messages, tools=[TOOL]
    )
    return raw.parse().choices[0].message


async def second(messages: list[Any]) -> Any:
    """Ask with the helper that puts a stream together."""
    async with later.chat.completions.stream(
        model=life.MODEL, messages=messages, tools=[TOOL]
    ) as stream:
        return (await stream.get_final_completion()).choices[0].message


def ask(question: str) -> str:
    """Ask, run the tool, ask again."""
    messages: list[Any] = [{"role": "user", "content": question}]
    message = first(messages)
    messages.append({"role": "assistant", "content": None, "tool_calls": [
        {"id": call.id, "type": "function",
         "function": {"name": call.function.name, "arguments": call.function.arguments}}
        for call in message.tool_calls
    ]})  # fmt: skip
    for call in message.tool_calls:
        found = life.look_up(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
    return str(loop.run_until_complete(second(messages)).content)


loop = asyncio.new_event_loop()
life.live(ask)
