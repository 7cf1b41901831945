"""What an answer of each dialect must be like for its clients to read it: JSON schemas, by name.

Only for answers that a person wrote. A model's are stored and replayed as they came, whatever they
are like. Held to is what a client would fall over, and nothing that a provider may add; sources are
the vendors' API references.
"""

from __future__ import annotations

from agentstate.ground.canonical import JSON

_TEXT: JSON = {"type": "string"}
_MAYBE_TEXT: JSON = {"type": ["string", "null"]}
_INDEX: JSON = {"type": "integer", "minimum": 0}


def _object(required: list[JSON], /, **properties: JSON) -> dict[str, JSON]:
    return {"type": "object", "required": required, "properties": dict(properties)}


def _list(items: JSON, least: int = 0) -> dict[str, JSON]:
    return {"type": "array", "items": items, "minItems": least}


def _reasons(*reasons: str) -> JSON:
    return {"enum": list(reasons)}


_CHAT_CALL = _object(
    ["id", "function"],
    id=_TEXT,
    function=_object(["name", "arguments"], name=_TEXT, arguments=_TEXT),
)
_CHAT_MESSAGE = _object(
    [],
    role={"const": "assistant"},
    content={"type": ["string", "array", "null"]},  # Mistral sends a list of parts
    refusal=_MAYBE_TEXT,
    tool_calls={"anyOf": [{"type": "null"}, _list(_CHAT_CALL)]},
)
_CHAT_REASONS = _reasons("stop", "length", "tool_calls", "content_filter", "function_call")

ANSWER_SCHEMAS: dict[str, dict[str, JSON]] = {
    "openai_chat": _object(
        ["choices"],
        choices=_list(
            _object(
                ["message", "finish_reason"],
                index=_INDEX,
                message=_CHAT_MESSAGE,
                finish_reason=_CHAT_REASONS,
            ),
            least=1,
        ),
    ),
    "openai_completions": _object(
        ["choices"],
        choices=_list(
            _object(
                ["text", "finish_reason"],
                index=_INDEX,
                text=_TEXT,
                finish_reason=_reasons("stop", "length", "content_filter"),
            ),
            least=1,
        ),
    ),
    "openai_responses": _object(
        ["output"],
        status=_reasons("completed", "incomplete"),
        output=_list(
            _object(
                ["type"],
                type=_TEXT,
                role={"const": "assistant"},
                call_id=_TEXT,
                name=_TEXT,
                arguments=_TEXT,
                content=_list(_object(["type"], type=_TEXT, text=_TEXT, refusal=_TEXT)),
            )
        ),
    ),
    "anthropic_messages": _object(
        ["content", "stop_reason"],
        role={"const": "assistant"},
        content=_list(
            _object(
                ["type"], type=_TEXT, text=_TEXT, id=_TEXT, name=_TEXT, input={"type": "object"}
            )
        ),
        stop_reason=_reasons(
            "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"
        ),
    ),
    "gemini": _object(
        ["candidates"],
        candidates=_list(
            _object(
                ["content"],
                index=_INDEX,
                finishReason=_TEXT,
                content=_object(
                    ["parts"],
                    role={"const": "model"},
                    parts=_list(
                        _object(
                            [],
                            text=_TEXT,
                            functionCall=_object(["name"], name=_TEXT, args={"type": "object"}),
                        )
                    ),
                ),
            ),
            least=1,
        ),
    ),
}
