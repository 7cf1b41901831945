"""Records calls as the pipeline does, and makes cassettes of them: for tests of cassettes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from agentstate.dialects import dialect_for_path
from agentstate.ground.canonical import JSON, canonical, encode, parse
from agentstate.ground.control import About
from agentstate.ground.prices import Prices
from agentstate.ground.records import Claim, RecordedAnswer
from agentstate.house.cassette_export import Cassette, TapeOrder
from agentstate.house.cassette_import import read_sessions
from agentstate.steps.checkpoint import make_checkpoint
from agentstate.steps.identify import identify, last_prompt, read_scope
from agentstate.steps.reading import read_recorded
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from agentstate.wire.message import Headers
from tests.store.contract import START_MS

CHAT = "/v1/chat/completions"
JSON_HEADERS = ((b"content-type", b"application/json"), (b"x-request-id", b"req_1"))
EVENTS_HEADERS = ((b"content-type", b"text/event-stream"), (b"date", b"then"))


def chat_body(text: str, **message: Any) -> bytes:
    """Make an answer that is a body, laid out as OpenAI does."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    value = {"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4o-2024-08-06"}
    return json.dumps({**value, "choices": [choice], "usage": usage}, indent=2).encode()


def chat_events(*pieces: str) -> bytes:
    """Make an answer that is a stream."""
    deltas: list[tuple[dict[str, Any], str | None]] = [({"content": each}, None) for each in pieces]
    chunks = [
        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in [*deltas, ({}, "stop")]
    ]
    events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join((*events, "data: [DONE]\n\n")).encode()


def user(text: str) -> dict[str, JSON]:
    """Make a message of the user's."""
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, JSON]:
    """Make a message of the assistant's."""
    return {"role": "assistant", "content": text}


async def call(
    store: Store,
    body: dict[str, JSON],
    content: bytes,
    *,
    session: str = "s",
    path: str = CHAT,
    is_sealed: bool = True,
    **changes: Any,
) -> int:
    """Record a call that was answered; return its step id."""
    dialect = dialect_for_path(path.removeprefix("/v1"))
    assert dialect is not None
    raw = encode(body)
    ask = dialect.read_ask(parse(raw))
    scope = read_scope(dialect, path, "", None, Headers())
    identity, request = identify(dialect, scope, raw, ask, lambda text: text)
    claim = Claim(
        session=session,
        step_number=None,
        run_id=None,
        call_id=None,
        occurrence=0,
        dialect=dialect.name,
        path=path,
        model=ask.model,
        streams=ask.streams,
        identity=identity,
        request=request,
        created_ms=START_MS,
        prompt=last_prompt(ask.messages),
    )
    claimed = await store.claim_step(replace(claim, **changes))
    form, headers = ("events", EVENTS_HEADERS) if ask.streams else ("body", JSON_HEADERS)
    recorded = RecordedAnswer(
        200,
        headers,
        "events" if form == "events" else "body",
        content,
        is_sealed=is_sealed,
    )
    checkpoint = make_checkpoint(
        step_id=claimed.step_id,
        now_ms=START_MS + 1000,
        ask=ask,
        input_chars=len(raw),
        attempts=(),
        answer=read_recorded(dialect, recorded),
        recorded=recorded,
        provider="openai",
        prices=Prices({}),
        latency_ms=950,
        first_content_ms=None,
    )
    await store.record_answer(checkpoint)
    return claimed.step_id


async def chat(store: Store, *messages: JSON, answer: str = "Hello.", **more: Any) -> int:
    """Record a chat call."""
    fields: dict[str, JSON] = more.pop("fields", {})
    body: dict[str, JSON] = {"model": "gpt-4o", "messages": list(messages), **fields}
    return await call(store, body, chat_body(answer), **more)


async def tape(store: Store, *sessions: str, **order: Any) -> bytes:
    """Return the cassette of sessions."""
    cassette = Cassette(store, sessions or ("s",), TapeOrder(**order))
    await cassette.look()
    return b"".join([line async for line in cassette.lines()])


async def play(store: Store, raw: bytes, **changes: Any) -> None:
    """Import a cassette."""
    found = read_sessions(raw, at_ms=START_MS + 5000, **changes)
    await store.import_sessions(found.sessions, at_ms=START_MS + 5000, replaces=False, by=None)


async def copied(raw: bytes) -> Store:
    """Return a fresh store with a cassette in it."""
    store: Store = MemoryStore()
    await store.open()
    await play(store, raw)
    return store


def on_store(scenario: Callable[[Store], Awaitable[None]]) -> None:
    """Play a scenario on a fresh store."""

    async def main() -> None:
        store: Store = MemoryStore()
        await store.open()
        await scenario(store)

    asyncio.run(main())


def lines_of(raw: bytes) -> list[Any]:
    """Return the lines of a cassette as any reader has them."""
    return [json.loads(line) for line in raw.splitlines()]


def same(one: JSON, other: JSON) -> bool:
    """Say whether two values mean the same, numbers as they were sent."""
    return canonical(one) == canonical(other)


ABOUT = About("Invoices", "the-parent", (("team", "ops"),))
