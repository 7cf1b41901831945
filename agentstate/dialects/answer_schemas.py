"""What an answer of each dialect must be like for its clients to read it: JSON schemas, by name.

Only for answers that a person wrote. A model's are stored and replayed as they came, whatever they
are like. Held to is what a client would fall over, and nothing that a provider may add; sources are
the vendors' API references.

`answer_schema` is about an answer as a whole; `parts_in` gives the calls, blocks and items in it
that are of a kind of their own, each with the schema of its kind. A kind that is not known here may
be like anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.ground.canonical import JSON

_Schema = dict[str, JSON]

_TEXT: JSON = {"type": "string"}
_MAYBE_TEXT: JSON = {"type": ["string", "null"]}
_INDEX: JSON = {"type": "integer", "minimum": 0}
_MAYBE_OBJECT: JSON = {"type": ["object", "null"]}


def answer_schema(name: str, reasons: Collection[str] = ()) -> _Schema | None:
    """Return the schema of a whole answer; None if the dialect has none.

    `reasons`: why an answer may have ended besides what the vendor of the dialect says, as others
    that speak it have words of their own.
    """
    make = _ANSWERS.get(name)
    return None if make is None else make(tuple(reasons))


def parts_in(name: str, body: JSON) -> Iterator[tuple[str, JSON, _Schema]]:
    """Yield the parts of an answer that fits `answer_schema`: where each stands, the part, and what
    it must be like."""
    if name not in _PARTS:
        return
    for place, part, kind in _PARTS[name](as_object(body)):
        if (schema := _KINDS[name].get(kind)) is not None:
            yield place, part, schema


def _object(required: list[JSON], /, **properties: JSON) -> _Schema:
    return {"type": "object", "required": required, "properties": dict(properties)}


def _list(items: JSON, least: int = 0) -> _Schema:
    return {"type": "array", "items": items, "minItems": least}


_TYPED = _object(["type"], type=_TEXT)


# --- whole answers ----------------------------------------------------------------------------


def _chat(reasons: tuple[str, ...]) -> _Schema:
    message = _object(
        ["role"],
        role={"const": "assistant"},
        content={"type": ["string", "array", "null"], "items": _TYPED},  # Mistral sends parts
        refusal=_MAYBE_TEXT,
        tool_calls={"type": ["array", "null"], "items": {"type": "object"}},
        function_call={
            "anyOf": [{"type": "null"}, _object(["name", "arguments"], name=_TEXT, arguments=_TEXT)]
        },
    )
    choice = _object(
        ["message", "finish_reason"],
        index=_INDEX,
        message=message,
        finish_reason={
            "enum": ["stop", "length", "tool_calls", "content_filter", "function_call", *reasons]
        },
    )
    return _object(["choices"], choices=_list(choice, least=1), model=_TEXT, usage=_MAYBE_OBJECT)


def _completions(reasons: tuple[str, ...]) -> _Schema:
    choice = _object(
        ["text", "finish_reason"],
        index=_INDEX,
        text=_TEXT,
        finish_reason={"enum": ["stop", "length", "content_filter", *reasons]},
    )
    return _object(["choices"], choices=_list(choice, least=1), model=_TEXT, usage=_MAYBE_OBJECT)


def _responses(reasons: tuple[str, ...]) -> _Schema:
    return _object(
        ["output"],
        status={"enum": ["completed", "incomplete"]},
        output=_list(_TYPED),
        model=_TEXT,
        usage=_MAYBE_OBJECT,
    )


def _messages(reasons: tuple[str, ...]) -> _Schema:
    return _object(
        ["content", "stop_reason"],
        role={"const": "assistant"},
        content=_list(_TYPED),
        stop_reason={
            "enum": [
                "end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn",
                "model_context_window_exceeded", *reasons,
            ]
        },
        stop_sequence=_MAYBE_TEXT,
        model=_TEXT,
        usage=_MAYBE_OBJECT,
    )  # fmt: skip


def _gemini(reasons: tuple[str, ...]) -> _Schema:
    called = _object(["name"], name=_TEXT, args={"type": ["object", "null"]})
    content = _object(
        ["parts"],
        role={"const": "model"},
        parts=_list(_object([], text=_TEXT, functionCall=called)),
    )
    candidate = _object(
        ["content"],
        index=_INDEX,
        content=content,
        finishReason={
            "enum": [
                "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "LANGUAGE", "BLOCKLIST",
                "PROHIBITED_CONTENT", "SPII", "MALFORMED_FUNCTION_CALL", *reasons,
            ]
        },
    )  # fmt: skip
    return _object(
        [],  # a prompt that was blocked has no candidates
        candidates=_list(candidate),
        modelVersion=_TEXT,
        usageMetadata=_MAYBE_OBJECT,
    )


_ANSWERS: dict[str, Callable[[tuple[str, ...]], _Schema]] = {
    "openai_chat": _chat,
    "openai_completions": _completions,
    "openai_responses": _responses,
    "anthropic_messages": _messages,
    "gemini": _gemini,
}


# --- their parts ------------------------------------------------------------------------------

_Part = tuple[str, JSON, str]  # where it stands, what it is, its kind


def _chat_parts(body: dict[str, JSON]) -> Iterator[_Part]:
    for number, choice in enumerate(as_list(body.get("choices"))):
        message = as_object(as_object(choice).get("message"))
        for place, part in enumerate(as_list(message.get("content"))):
            yield f"choices[{number}].message.content[{place}]", part, _kind_of(part)
        for place, call in enumerate(as_list(message.get("tool_calls"))):
            # Some servers that speak the form send no type.
            kind = _kind_of(call) or "function"
            yield f"choices[{number}].message.tool_calls[{place}]", call, kind


def _responses_parts(body: dict[str, JSON]) -> Iterator[_Part]:
    for number, item in enumerate(as_list(body.get("output"))):
        yield f"output[{number}]", item, _kind_of(item)
        for place, part in enumerate(as_list(as_object(item).get("content"))):
            yield f"output[{number}].content[{place}]", part, _kind_of(part)


def _messages_parts(body: dict[str, JSON]) -> Iterator[_Part]:
    for number, block in enumerate(as_list(body.get("content"))):
        yield f"content[{number}]", block, _kind_of(block)


def _kind_of(part: JSON) -> str:
    return as_text(as_object(part).get("type")) or ""


_PARTS: dict[str, Callable[[dict[str, JSON]], Iterator[_Part]]] = {
    "openai_chat": _chat_parts,
    "openai_responses": _responses_parts,
    "anthropic_messages": _messages_parts,
}

_TOOL_USE = _object(["id", "name", "input"], id=_TEXT, name=_TEXT, input={"type": "object"})

_KINDS: dict[str, dict[str, _Schema]] = {
    "openai_chat": {
        "text": _object(["text"], text=_TEXT),
        "function": _object(
            ["id", "function"],
            id=_TEXT,
            function=_object(["name", "arguments"], name=_TEXT, arguments=_TEXT),
        ),
        "custom": _object(
            ["id", "custom"], id=_TEXT, custom=_object(["name", "input"], name=_TEXT, input=_TEXT)
        ),
    },
    "openai_responses": {
        "message": _object(["content"], role={"const": "assistant"}, content=_list(_TYPED)),
        "output_text": _object(["text"], text=_TEXT),
        "refusal": _object(["refusal"], refusal=_TEXT),
        "function_call": _object(
            ["call_id", "name", "arguments"], call_id=_TEXT, name=_TEXT, arguments=_TEXT
        ),
        "custom_tool_call": _object(
            ["call_id", "name", "input"], call_id=_TEXT, name=_TEXT, input=_TEXT
        ),
        "mcp_call": _object(["name", "arguments"], name=_TEXT, arguments=_TEXT),
    },
    "anthropic_messages": {
        "text": _object(["text"], text=_TEXT),
        "thinking": _object(["thinking"], thinking=_TEXT),
        "tool_use": _TOOL_USE,
        "server_tool_use": _TOOL_USE,
        "mcp_tool_use": _TOOL_USE,
    },
}
