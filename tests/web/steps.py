"""Runs to look at, for tests of the page: put on record as the pipeline would."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentstate.ground.canonical import JSON
from agentstate.ground.chat import ToolCall
from agentstate.ground.records import Attempt, RequestRecord
from tests.helpers.desk import Desk
from tests.store.contract import answer_of, attempt_of, checkpoint_of, claim_of, part

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
    "hgGAWjR9awAAAABJRU5ErkJggg=="
)
SCHEMA: JSON = {"type": "object", "properties": {"to": {"type": "string"}}}
TOOL: JSON = {
    "type": "function",
    "function": {"name": "find", "description": "Finds.", "parameters": SCHEMA},
}


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """Make a chat message."""
    return {"role": role, "content": content, **more}


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Make a tool call as a message has it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def put_step(
    desk: Desk,
    messages: list[Any],
    text: str | None,
    *,
    session: str = "s",
    calls: tuple[dict[str, Any], ...] = (),
    attempts: tuple[Attempt, ...] | None = None,
    created_ms: int = 1_790_000_000_000,
    **changes: Any,
) -> int:
    """Put a whole step on record; `text` and `calls` are its answer, None = none yet. Returns the
    id of the step."""
    record = RequestRecord(
        {"model": "gpt-5", "messages": None, "tools": None},
        (("tools", part([TOOL])),),
        "messages",
        tuple(part(one) for one in messages),
    )
    claim = claim_of(
        f"{session} {created_ms} {json.dumps(messages)}",
        session=session,
        request=record,
        created_ms=created_ms,
        model="gpt-5",
    )
    claimed = desk.run(desk.store.claim_step(claim))
    if text is None:
        return claimed.step_id
    answer = message("assistant", text or None)
    if calls:
        answer["tool_calls"] = list(calls)
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5",
        "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}],
    }
    checkpoint = replace(
        checkpoint_of(claimed.step_id, attempts=attempts or (attempt_of(),)),
        answer=answer_of(json.dumps(body).encode()),
        text=text,
        tool_calls=tuple(
            (0, ToolCall(at, one["id"], one["function"]["name"], one["function"]["arguments"]))
            for at, one in enumerate(calls)
        ),
        **changes,
    )
    desk.run(desk.store.record_answer(checkpoint))
    return claimed.step_id


def put_story(desk: Desk) -> None:
    """A run of three steps: a tool call, its result with a picture, a failure."""
    asked = [
        message("system", "Be careful."),
        message(
            "user",
            [
                {"type": "text", "text": "Remind Acme."},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        ),
    ]
    arguments = '{"customer": {"name": "Acme"}, "id": 12345678901234567890}'
    made = call("c1", "find", arguments)
    put_step(desk, asked, "Looking.", calls=(made,))
    fell = attempt_of(status=503, error_code="upstream_error", error="503: overloaded")
    rest = [
        *asked,
        message("assistant", "Looking.", tool_calls=[made]),
        message("tool", '{"invoices": [{"number": 1183}]}', tool_call_id="c1"),
    ]
    put_step(desk, rest, "It is 1183.", attempts=(fell, attempt_of(model="rescue")))
    failed = put_step(desk, [*rest, message("user", "Go on.")], None)
    error = attempt_of(status=429, error_code="rate_limited", error="429: slow \u202edown")
    desk.run(desk.store.record_failure(failed, (error,), failed_ms=1_790_000_000_900))
