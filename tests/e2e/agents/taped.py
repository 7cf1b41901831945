"""An agent that has never heard of AgentState: what its base URLs lead to is the environment's.

It prints all it was told. What it is to do otherwise than before is in the environment as well.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import anthropic
import openai

QUESTION = os.environ.get("AGENT_QUESTION", "What is in the drawer?")
SECRET = os.environ.get("AGENT_SECRET", "nothing secret")
TOOL = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}


def main() -> None:
    """Ask in every way there is."""
    chat, claude = openai.OpenAI(max_retries=1), anthropic.Anthropic(max_retries=1)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    messages: list[Any] = [
        {"role": "system", "content": f"You keep a drawer. It is {now}. Its key is {SECRET}."},
        {"role": "user", "content": QUESTION},
    ]
    for _ in range(2):
        answer = chat.chat.completions.create(model="m", messages=messages, tools=[TOOL])
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        tell(message.content)
        for call in message.tool_calls or ():
            tell(call.function.arguments)
            # A tool that never answers twice alike, as real ones do.
            result = {"at": now, "found": SECRET, "asked": json.loads(call.function.arguments)}
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}
            )
    stream = chat.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Stream."}], stream=True
    )
    tell("".join(each.choices[0].delta.content or "" for each in stream if each.choices))
    ask: list[Any] = [{"role": "user", "content": "Hallo, é?"}]
    tell(claude.messages.create(model="claude-x", max_tokens=9, messages=ask).model_dump_json())
    with claude.messages.stream(model="claude-x", max_tokens=9, messages=ask) as events:
        tell(events.get_final_message().model_dump_json())
    with ThreadPoolExecutor(4) as pool:
        for text in pool.map(lambda number: one(chat, f"Part {number}."), range(6)):
            tell(text)
    for _ in range(2):  # the same once more is another question
        tell(one(chat, "Again."))
    if os.environ.get("AGENT_SWALLOWS"):
        try:
            one(chat, "This was never asked.")
        except openai.APIError as error:
            tell(f"{type(error).__name__} {error}")


def one(chat: openai.OpenAI, text: str) -> str | None:
    """Ask one thing."""
    ask: list[Any] = [{"role": "user", "content": text}]
    return chat.chat.completions.create(model="m", messages=ask).choices[0].message.content


def tell(text: str | None) -> None:
    """Print a line."""
    sys.stdout.write(f"{text!r}\n")


main()
