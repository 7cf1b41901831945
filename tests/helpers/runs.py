"""Runs for tests of training data: chat calls and their answers, as the proxy records them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentstate.ground.canonical import JSON
from agentstate.store.base import Store
from tests.store.contract import answer_of, checkpoint_of, claim_of, request_of

TOOL: dict[str, JSON] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def say(text: str, role: str = "user") -> dict[str, JSON]:
    """Make a message."""
    return {"role": role, "content": text}


def call(call_id: str, arguments: str = "{}", name: str = "get_weather") -> dict[str, JSON]:
    """Make an answer that calls a tool."""
    function: JSON = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id: str, text: str) -> dict[str, JSON]:
    """Make what a tool gave."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


async def record(
    store: Store,
    messages: Sequence[dict[str, JSON]],
    answer: dict[str, JSON],
    *,
    session: str = "s",
    tools: Sequence[JSON] = (),
    **changes: Any,
) -> int:
    """Record a call and its answer; return the step's id."""
    shared: dict[str, JSON] = {"tools": list(tools)} if tools else {}
    claim = claim_of(
        json.dumps([session, *messages]),
        session=session,
        request=request_of(*messages, shared=shared),
        **changes,
    )
    claimed = await store.claim_step(claim)
    finish = "tool_calls" if "tool_calls" in answer else "stop"
    choice = {"index": 0, "message": answer, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion", "model": "gpt-4o-mini", "choices": [choice]}
    checkpoint = checkpoint_of(
        claimed.step_id, answer=answer_of(json.dumps(body).encode()), finish_reason=finish
    )
    await store.record_answer(checkpoint)
    return claimed.step_id


async def record_run(store: Store, *, session: str = "s", asks: str = "weather?") -> list[JSON]:
    """Record a run of two calls with a tool; return the conversation that took place."""
    first = [say("be brief", "system"), say(asks)]
    called = call("call_1", '{"city": "Bern"}')
    await record(store, first, called, session=session, tools=[TOOL])
    second = [*first, called, result("call_1", "5 C")]
    answer = say("It is 5 C.", "assistant")
    await record(store, second, answer, session=session, tools=[TOOL])
    return [*second, answer]
