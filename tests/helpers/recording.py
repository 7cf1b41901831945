"""Puts calls on record as the proxy does, without a proxy: for tests of what reads the record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from agentstate.dialects import dialect_by_name
from agentstate.ground.canonical import parse
from agentstate.ground.prices import Prices
from agentstate.ground.records import Attempt, Claim, RecordedAnswer
from agentstate.steps.checkpoint import make_checkpoint
from agentstate.steps.identify import Scope, identify, last_prompt
from agentstate.steps.reading import read_recorded
from agentstate.store.base import Store
from agentstate.store.sqlite import SqliteStore

T = TypeVar("T")
START_MS = 1_790_000_000_000
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "openai_completions": "/v1/completions",
    "anthropic_messages": "/v1/messages",
    "gemini": "/v1beta/models/gemini-3:generateContent",
}
JSON_HEADERS = ((b"content-type", b"application/json"),)
STREAM_HEADERS = ((b"content-type", b"text/event-stream"),)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step that was recorded."""

    step_id: int
    answer_id: int


async def record(
    store: Store,
    body: dict[str, Any],
    answer: dict[str, Any] | bytes,
    *,
    session: str = "s",
    dialect: str = "openai_chat",
    provider: str = "openai",
    cost_microusd: int | None = 5,
    at_ms: int = START_MS,
    step_id: int | None = None,
    **changes: Any,
) -> Recorded:
    """Record a call and its answer: a body, or the bytes of a stream. `changes` are the claim's."""
    form = dialect_by_name(dialect)
    assert form is not None
    raw = json.dumps(body).encode()
    ask = form.read_ask(parse(raw))
    scope = Scope(dialect, PATHS[dialect], "", "", ())
    identity, request = identify(form, scope, raw, ask, str)
    claim = Claim(
        session=session,
        step_number=None,
        run_id=None,
        call_id=None,
        occurrence=0,
        dialect=dialect,
        path=PATHS[dialect],
        model=ask.model or "gemini-3",
        streams=isinstance(answer, bytes),
        identity=identity,
        request=request,
        created_ms=at_ms,
        prompt=last_prompt(ask.messages),
        is_mock=provider == "mock",
        step_id=step_id,
    )
    claimed = await store.claim_step(replace(claim, **changes))
    if isinstance(answer, bytes):
        recorded = RecordedAnswer(200, STREAM_HEADERS, "events", answer)
    else:
        recorded = RecordedAnswer(200, JSON_HEADERS, "body", json.dumps(answer).encode())
    checkpoint = make_checkpoint(
        step_id=claimed.step_id,
        now_ms=at_ms + 900,
        ask=ask,
        input_chars=len(raw),
        attempts=(Attempt(provider, ask.model, at_ms, at_ms + 900, 200),),
        answer=read_recorded(form, recorded),
        recorded=recorded,
        provider=provider,
        prices=Prices({}),
        latency_ms=900,
        first_content_ms=None,
    )
    answer_id = await store.record_answer(replace(checkpoint, cost_microusd=cost_microusd))
    return Recorded(claimed.step_id, answer_id)


def run_on(path: Path, scenario: Callable[[Store], Awaitable[T]]) -> T:
    """Open a SQLite store, play a scenario on it, close it."""

    async def whole() -> T:
        store = SqliteStore(path, durability="normal")
        await store.open()
        try:
            return await scenario(store)
        finally:
            await store.close()

    return asyncio.run(whole())
