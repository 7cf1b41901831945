"""A scene with Claude beside OpenAI, and what Claude says in its own form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentstate.ground.settings import ProviderSettings
from agentstate.wire import sse
from agentstate.wire.message import Pair
from tests.steps.scene import FakeExchange, FakeRequest, Scene

CLAUDE = ProviderSettings(
    "anthropic", ("anthropic_messages",), "http://claude.example", "sk-ant", ("claude-*",)
)


def settle_far(scene: Scene) -> None:
    """Give a scene a second provider."""
    own = (replace(row, api_key="sk-own") for row in scene.settings.providers)
    providers = (*own, CLAUDE)
    scene.settings = replace(scene.settings, providers=providers)
    scene.start()


def far_request(body: dict[str, Any], **headers: str) -> FakeRequest:
    """Make a call; header names are written with underscores, without `x-agent-`."""
    pairs: list[Pair] = [(b"x-agent-session-id", b"s"), (b"authorization", b"Bearer sk-x")]
    for name, value in headers.items():
        pairs.append((f"x-agent-{name.replace('_', '-')}".encode(), value.encode()))
    return FakeRequest(pairs, json.dumps(body).encode())


def event(kind: str, **fields: Any) -> bytes:
    """Make one event of a stream of Claude's."""
    return sse.encode(json.dumps({"type": kind, **fields}).encode(), kind.encode())


def block(index: int, kind: str, delta: str, field: str, *texts: str) -> list[bytes]:
    """Make the events of one block: begun, its pieces, ended."""
    begun = event("content_block_start", index=index, content_block={"type": kind, field: ""})
    pieces = [
        event("content_block_delta", index=index, delta={"type": delta, field: text})
        for text in texts
    ]
    return [begun, *pieces, event("content_block_stop", index=index)]


def thought(*texts: str) -> list[bytes]:
    """Make the events of a block of thinking, which comes first."""
    return block(0, "thinking", "thinking_delta", "thinking", *texts)


def said(*texts: str, index: int = 1) -> list[bytes]:
    """Make the events of a block of text."""
    return block(index, "text", "text_delta", "text", *texts)


BEGUN = event(
    "message_start",
    message={
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
        "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 1},
    },
)  # fmt: skip
ENDED = [
    event(
        "message_delta",
        delta={"stop_reason": "end_turn", "stop_sequence": None},
        usage={"output_tokens": 9},
    ),
    event("message_stop"),
]


def far_body(*content: dict[str, Any], stop: str = "end_turn") -> bytes:
    """Make a whole answer of Claude's; with no content it says "done"."""
    return json.dumps(
        {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
            "content": content or [{"type": "text", "text": "done"}],
            "stop_reason": stop, "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 9},
        }
    ).encode()  # fmt: skip


def far_exchange(*pieces: bytes | None, kind: bytes = b"text/event-stream") -> FakeExchange:
    """Make a response with these pieces, one read each; None ends it."""
    exchange = FakeExchange(200, kind)
    exchange.give(*pieces)
    return exchange
