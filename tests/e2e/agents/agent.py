"""An agent as people write them, with the official Python client: it knows nothing of a proxy.

    agent.py BASE_URL SESSION STEPS [sync | async] [RETRIES]

It holds one conversation of STEPS calls, each built on all answers before, in turn plain,
streaming, with a tool, and with the raw response. All it does for durability is to name the session
and number its steps. It remembers nothing between lives. Each line of its output is JSON: `asking`
before a call, `answered` after it, at last the transcript.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import openai

MODEL = "gpt-4o-mini"
KINDS = ("plain", "stream", "tool", "raw")
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a key up.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    },
}


def say(**line: Any) -> None:
    """Tell the one who watches."""
    print(json.dumps(line), flush=True)


class Conversation:
    """What is asked next, and what the answers make of it. No I/O."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": "You are terse."}]

    def kind_of(self, step: int) -> str:
        """Return how a step is asked."""
        return KINDS[step % len(KINDS)]

    def ask(self, step: int) -> dict[str, Any]:
        """Return the arguments of the step's call."""
        if self.messages[-1]["role"] != "tool":
            self.messages.append({"role": "user", "content": f"What comes at step {step}?"})
        arguments: dict[str, Any] = {
            "model": MODEL,
            "messages": self.messages,
            "extra_headers": {
                "x-agent-session-id": self.session,
                "x-agent-step-number": str(step),
            },
        }
        if self.kind_of(step) == "stream":
            arguments |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.kind_of(step) == "tool":
            arguments["tools"] = [TOOL]
        return arguments

    def take(self, content: str | None, calls: list[dict[str, Any]]) -> None:
        """Take in an answer; run the tools it asks for."""
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = calls
        self.messages.append(message)
        for call in calls:
            key = json.loads(call["function"]["arguments"])["key"]
            result = {"role": "tool", "tool_call_id": call["id"], "content": f"found {key}"}
            self.messages.append(result)

    def take_message(self, message: Any) -> None:
        """Take in a whole message."""
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls or []
        ]
        self.take(message.content, calls)


def run_sync(client: openai.OpenAI, talk: Conversation, steps: int) -> None:
    """Hold the conversation with the blocking client."""
    for step in range(steps):
        arguments, kind = talk.ask(step), talk.kind_of(step)
        say(asking=step)
        if kind == "stream":
            text = ""
            for chunk in client.chat.completions.create(**arguments):
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            talk.take(text, [])
        elif kind == "raw":
            raw = client.chat.completions.with_raw_response.create(**arguments)
            talk.take_message(raw.parse().choices[0].message)
            say(hit=raw.headers.get("x-agentstate-cache-hit"), step=step)
        else:
            answer = client.chat.completions.create(**arguments)
            talk.take_message(answer.choices[0].message)
        say(answered=step)


async def run_async(client: openai.AsyncOpenAI, talk: Conversation, steps: int) -> None:
    """Hold the same conversation with the asyncio client."""
    for step in range(steps):
        arguments, kind = talk.ask(step), talk.kind_of(step)
        say(asking=step)
        if kind == "stream":
            text = ""
            async for chunk in await client.chat.completions.create(**arguments):
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            talk.take(text, [])
        elif kind == "raw":
            raw = await client.chat.completions.with_raw_response.create(**arguments)
            talk.take_message(raw.parse().choices[0].message)
            say(hit=raw.headers.get("x-agentstate-cache-hit"), step=step)
        else:
            answer = await client.chat.completions.create(**arguments)
            talk.take_message(answer.choices[0].message)
        say(answered=step)


def main() -> None:
    """Live once."""
    base_url, session, steps, mode, retries = sys.argv[1:6]
    talk = Conversation(session)
    options: dict[str, Any] = {
        "base_url": base_url, "api_key": "sk-agent", "max_retries": int(retries),
    }  # fmt: skip
    if mode == "async":
        asyncio.run(run_async(openai.AsyncOpenAI(**options), talk, int(steps)))
    else:
        run_sync(openai.OpenAI(**options), talk, int(steps))
    say(transcript=talk.messages)


if __name__ == "__main__":
    main()
