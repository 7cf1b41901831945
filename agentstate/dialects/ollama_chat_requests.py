"""Requests of Ollama's own form, `POST /api/chat`, written from the neutral form.

They are never read: nobody asks us in this form. Ollama takes options that it does not know, and
ids of calls that older versions pass over; it refuses a field of another type than it expects, so
schemas are mended where its own types are narrower than JSON schema. Pure functions.
Source: Ollama's docs/api.md and api/types.go (ChatRequest, Message, Tool), November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentstate.dialects.call_arguments import FREE_TEXT, object_of_called
from agentstate.dialects.gemini_contents import has_cache
from agentstate.dialects.lenient import as_object
from agentstate.dialects.neutral import (
    Asked,
    Audio,
    Called,
    Document,
    Format,
    Image,
    Offer,
    Receiver,
    Refused,
    Result,
    Seen,
    Text,
    Turn,
    Written,
    map_ids,
    safe_id,
)
from agentstate.ground.canonical import JSON

PATH = "/api/chat"


def write_request(asked: Asked, receiver: Receiver) -> Written[dict[str, JSON]]:
    """Write a request for a model.

    Raises:
        BadRequest: a call's arguments are no JSON object; `param` names the turn.
    """
    dropped = list(asked.unsaid)
    body: dict[str, JSON] = {
        "model": receiver.model,
        "messages": _write_turns(asked.turns, dropped),
        "stream": asked.streams,  # left out it means true
    }
    if tools := _write_tools(asked, dropped):
        body["tools"] = tools
    if asked.format is not None:
        body["format"] = _write_format(asked.format)
    if options := _write_options(asked):
        body["options"] = options
    dropped += _list_unknown(asked)
    return Written(body, tuple(dict.fromkeys(dropped)))


def _write_turns(turns: Sequence[Turn], dropped: list[str]) -> list[JSON]:
    messages: list[JSON] = []
    names: dict[str, str] = {}  # of the tools that were called, by the ids of the calls
    for at, turn in enumerate(map_ids(turns, safe_id)):
        if turn.name is not None:
            dropped.append("names of participants")
        if any(has_cache(item) for item in turn.items):
            dropped.append("cache markers")
        if turn.role == "assistant":
            names |= {item.call_id: item.name for item in turn.items if isinstance(item, Called)}
            messages += _write_model(turn, at, dropped)
        else:
            messages += _write_others(turn, names, dropped)
    return messages


def _write_model(turn: Turn, at: int, dropped: list[str]) -> list[JSON]:
    """Write a turn of the model as one message; as none if nothing is left of it."""
    calls: list[JSON] = [
        {
            "id": item.call_id,
            "function": {"name": item.name, "arguments": object_of_called(item, at)},
        }
        for item in turn.items
        if isinstance(item, Called)
    ]
    seen = [item for item in turn.items if not isinstance(item, Called | Result)]
    message = _write_message("assistant", seen, dropped)
    if calls:
        message["tool_calls"] = calls
    return [message] if message.keys() > {"role", "content"} or message["content"] else []


def _write_others(turn: Turn, names: Mapping[str, str], dropped: list[str]) -> list[JSON]:
    """Write a turn as its results, one message each, and one of the rest.

    What results show goes into the rest: a tool's message has text only. Which call a result is of
    older versions know by the tool's name alone.
    """
    messages: list[JSON] = []
    rest: list[Seen | Refused] = []
    for item in turn.items:
        if isinstance(item, Result):
            if item.is_error:
                dropped.append("error marks of tool results")
            texts = [part.text for part in item.parts if isinstance(part, Text)]
            result: dict[str, JSON] = {"role": "tool", "content": "\n".join(texts)}
            if name := names.get(item.call_id) or item.name:
                result["tool_name"] = name
            messages.append({**result, "tool_call_id": item.call_id})
            rest += [part for part in item.parts if not isinstance(part, Text)]
        elif not isinstance(item, Called):
            rest.append(item)
    message = _write_message(turn.role, rest, dropped)
    if message["content"] or "images" in message:
        messages.append(message)
    return messages


def _write_message(
    role: str, items: Sequence[Seen | Refused], dropped: list[str]
) -> dict[str, JSON]:
    texts: list[str] = []
    images: list[JSON] = []
    for item in items:
        match item:
            case Text() | Refused():
                texts.append(item.text)
            case Image(data=None):
                dropped.append("images by URL")
            case Image():
                images.append(item.data)
                if item.detail not in (None, "auto"):
                    dropped.append("image detail")
            case Document(text=None):
                dropped.append("documents")
            case Document():
                texts.append(item.text or "")
            case Audio():
                dropped.append("audio")
    message: dict[str, JSON] = {"role": role, "content": "\n".join(texts)}
    if images:
        message["images"] = images
    return message


def _write_tools(asked: Asked, dropped: list[str]) -> list[JSON]:
    """Write the tools. No choice of them can be told but none at all."""
    mode = asked.pick.mode if asked.pick is not None else "auto"
    if mode == "none":
        return []
    if mode != "auto":
        dropped.append("tool choice")
    dropped += [f"tools[{at}]: strict" for at, tool in enumerate(asked.tools) if tool.is_strict]
    if any(tool.cache is not None for tool in asked.tools):
        dropped.append("cache markers")
    return [_write_tool(tool) for tool in asked.tools]


def _write_tool(tool: Offer) -> JSON:
    function: dict[str, JSON] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    schema = FREE_TEXT if tool.is_custom else as_object(tool.schema)
    function["parameters"] = _write_schema(schema)
    return {"type": "function", "function": function}


def _write_schema(schema: Mapping[str, JSON]) -> JSON:
    """Return a schema of arguments: its type one word, and each property an object."""
    properties = as_object(schema.get("properties"))
    return {
        **schema,
        "type": "object",
        "properties": {
            name: each if isinstance(each, dict) else {} for name, each in properties.items()
        },
    }


def _write_format(wanted: Format) -> JSON:
    return "json" if wanted.schema is None else wanted.schema


def _write_options(asked: Asked) -> dict[str, JSON]:
    options: dict[str, JSON] = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "seed": asked.seed,
        "num_predict": asked.output_tokens_max,
        "stop": [*asked.stop] or None,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
    }
    return {key: value for key, value in options.items() if value is not None}


def _list_unknown(asked: Asked) -> list[str]:
    """Name what the form has no word for."""
    return [
        name
        for name, says in (
            ("n", asked.choices > 1),
            ("parallel_tool_calls", asked.calls_in_parallel is False),
            ("reasoning effort", asked.effort is not None),
            ("verbosity", asked.verbosity is not None),
        )
        if says
    ]
