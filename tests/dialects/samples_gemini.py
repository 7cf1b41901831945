"""Recorded answers of Gemini's own form; the row in `samples.py` is made of them."""

from __future__ import annotations

import json
from typing import Any

MODEL = "gemini-2.5-flash"
PATH = f"/v1beta/models/{MODEL}:generateContent"
STREAM_PATH = f"/v1beta/models/{MODEL}:streamGenerateContent"
HEAD: dict[str, Any] = {"modelVersion": "gemini-2.5-flash-001", "responseId": "resp-1"}
USAGE: dict[str, Any] = {
    "promptTokenCount": 20,
    "candidatesTokenCount": 4,
    "totalTokenCount": 27,
    "cachedContentTokenCount": 8,
    "thoughtsTokenCount": 3,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 20}],
}
CALL: dict[str, Any] = {
    "functionCall": {
        "id": "call_1",
        "name": "get_weather",
        "args": {"city": "Oslo", "id": 2512292042121000001},
    },
    "thoughtSignature": "c2lnbmF0dXJl",
}
ERROR: dict[str, Any] = {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}


def candidate(*parts: dict[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a candidate with these parts; index 0 is left out, as proto's JSON does."""
    ended = {} if reason is None else {"finishReason": reason}
    return {"content": {"role": "model", "parts": list(parts)}, **ended, **fields}


def body(*candidates: dict[str, Any], **fields: Any) -> bytes:
    """Render a body."""
    whole = {"candidates": list(candidates), "usageMetadata": USAGE, **HEAD, **fields}
    return json.dumps(whole, indent=2).encode()


def event(*candidates: dict[str, Any], **fields: Any) -> bytes:
    """Render one event as the API does."""
    data = json.dumps({"candidates": list(candidates), **HEAD, **fields})
    return b"data: " + data.encode() + b"\r\n\r\n"


def text(value: str, **fields: Any) -> dict[str, Any]:
    """Return a part that is text."""
    return {"text": value, **fields}


ASK: dict[str, Any] = {
    "contents": [
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {"role": "model", "parts": [CALL]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "call_1",
                        "name": "get_weather",
                        "response": {"output": "5 degrees at 12:01"},
                    }
                }
            ],
        },
    ],
    "systemInstruction": {"parts": [{"text": "It is 2026-11-30. Be kind."}]},
    "tools": [{"functionDeclarations": [{"name": "get_weather"}]}],
    "generationConfig": {"temperature": 0},
}
STREAMS: dict[str, tuple[bytes, ...]] = {
    "text": (
        event(candidate(text("Hi "))),
        event(candidate(text("there \U0001f600"))),
        event(candidate(text("."), reason="STOP"), usageMetadata=USAGE),
    ),
    "usage in every event": (
        event(candidate(text("Hi")), usageMetadata={"promptTokenCount": 20}),
        event(candidate(text(""), reason="MAX_TOKENS"), usageMetadata=USAGE),
    ),
    "usage after the end": (
        event(candidate(text("Hi"), reason="STOP")),
        event(usageMetadata=USAGE),
    ),
    "thoughts": (
        event(candidate(text("Let me ", thought=True))),
        event(candidate(text("think.", thought=True))),
        event(candidate(text("Hi"))),
        event(candidate(text("", thoughtSignature="c2ln"), reason="STOP"), usageMetadata=USAGE),
    ),
    "tool calls": (
        event(candidate(text("I look."))),
        event(candidate(CALL)),
        event(candidate({"functionCall": {"name": "send_email", "args": {}}}), usageMetadata=USAGE),
        event(candidate(reason="STOP"), usageMetadata=USAGE),
    ),
    "two choices": (
        event(candidate(text("Az"), index=0)),
        event(candidate(text("Bl"), index=1)),
        event(candidate(text("ure."), reason="STOP", index=0)),
        event(candidate(text("ue."), reason="STOP", index=1), usageMetadata=USAGE),
    ),
    "blocked": (event(promptFeedback={"blockReason": "SAFETY"}, usageMetadata=USAGE),),
    "unknown fields": (
        event(candidate(text("Hi", x_unknown=[1.50]))),
        event(candidate(text("."), reason="STOP", x_unknown={"a": None}), x_unknown=1e2),
    ),
}
BODIES: dict[str, bytes] = {
    "text": body(candidate(text("Hi there \U0001f600"), reason="STOP", avgLogprobs=-0.50)),
    "tool calls": body(candidate(text("I look."), CALL, CALL, reason="STOP", index=0)),
    "thoughts": body(candidate(text("Hm.", thought=True), text("Hi"), reason="STOP")),
    "two choices": body(
        candidate(text("Azure."), reason="STOP"), candidate(text("Blue."), reason="STOP", index=1)
    ),
    "blocked": body(promptFeedback={"blockReason": "SAFETY"}),
    "an image": body(
        candidate({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, reason="STOP")
    ),
    "unknown fields": body(candidate(text("Hi", x_unknown=1.50), reason="STOP"), x_unknown=[1e2]),
}
ERROR_STREAM: tuple[bytes, ...] = (
    event(candidate(text("Hi"))),
    b"data: " + json.dumps(ERROR).encode() + b"\r\n\r\n",
)
