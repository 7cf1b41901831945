"""The messages of a chat request, from and into neutral turns.

The larger half of `openai_chat_requests.py`, which has the other fields. Reading keeps every
message where it stands. Writing keeps them too, but for what the form insists on: the results of
calls come right after the message that made them, and they are text; what else was in a result
follows in a message of the user. Content that is text alone is written as one string wherever the
receiver is not OpenAI: many compatible servers take no list of parts.
Source: OpenAI's OpenAPI document of August 2026, schema ChatCompletionRequestMessage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

from agentstate.dialects.call_arguments import wrap_free_text
from agentstate.dialects.lenient import as_list, as_object, as_text, split_data_url
from agentstate.dialects.neutral import (
    Audio,
    Called,
    Document,
    Image,
    Item,
    Receiver,
    Refused,
    Result,
    Seen,
    Text,
    Turn,
    join_calling,
    map_ids,
    safe_id,
    with_ids,
)
from agentstate.dialects.tool_deltas import read_name, write_arguments
from agentstate.ground.canonical import JSON

_ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
    "tool": "user", "function": "user",
}  # fmt: skip
_KNOWN = frozenset(("role", "content", "name", "cache_control"))
_KNOWN_BY_ROLE = {
    "assistant": frozenset(("refusal", "tool_calls", "function_call")),
    "tool": frozenset(("tool_call_id",)),
    # Some name the call in the legacy form as well; its result is found by order.
    "function": frozenset(("tool_call_id",)),
}
_CALL_KEYS = frozenset(("id", "type", "index", "function", "custom", "cache_control"))
_PART_KEYS = frozenset(("type", "cache_control", "prompt_cache_breakpoint"))
# Where servers and gateways put reasoning and its signatures (Gemini's are in `extra_content`).
_THINKING_KEYS = frozenset(
    ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "extra_content")
)
_THINKING_PARTS = frozenset(("thinking", "redacted_thinking", "reasoning"))


# Google's stand-in for the signature of a call that its model did not make; newer models refuse a
# call without one. Source: ai.google.dev/gemini-api/docs/thought-signatures, November 2026.
_UNSIGNED = "skip_thought_signature_validator"

# OpenAI wants a name for a file, and everybody wants words for a result.
_FILE_NAME = "document.pdf"
_RESULT_BELOW = "The result is in the user message below."
_NAMES_OF_KINDS: dict[type[Item], str] = {
    Image: "images", Document: "documents", Audio: "audio",
}  # fmt: skip


# Reading


def read_turns(messages: JSON, unsaid: list[str]) -> tuple[Turn, ...]:
    """Read the messages of a request; `unsaid` gets the paths of what has no place."""
    custom_ids: set[str] = set()
    turns: list[Turn] = []
    for at, value in enumerate(as_list(messages)):
        message, path = as_object(value), f"messages[{at}]"
        role = as_text(message.get("role")) or ""
        if role not in _ROLES:
            unsaid.append(path)
            continue
        items = _read_parts(message.get("content"), path, unsaid)
        name = as_text(message.get("name"))
        if role == "assistant":
            refusal = as_text(message.get("refusal"))
            items += [Refused(refusal)] if refusal else []
            calls = _read_calls(message, path, unsaid)
            custom_ids |= {call.call_id for call in calls if call.is_custom}
            items += calls
        elif role in ("tool", "function"):
            items = [_read_result(message, items, custom_ids)]
            name = None
        _note_rest(message, _KNOWN | _KNOWN_BY_ROLE.get(role, frozenset()), path, path, unsaid)
        items = _with_cache(items, message.get("cache_control"), path, unsaid)
        turns.append(Turn(_ROLES[role], tuple(items), name))
    return with_ids(turns)


def _read_parts(content: JSON, path: str, unsaid: list[str]) -> list[Item]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    if content is not None and not isinstance(content, list):
        unsaid.append(f"{path}.content")
    parts = enumerate(as_list(content))
    items = (_read_part(part, path, f"{path}.content[{at}]", unsaid) for at, part in parts)
    return [item for item in items if item is not None and item != Text("")]


def _read_part(part: JSON, message: str, path: str, unsaid: list[str]) -> Item | None:
    if isinstance(part, str):
        return Text(part)
    fields = as_object(part)
    kind = as_text(fields.get("type")) or ""
    if kind in _THINKING_PARTS:
        unsaid.append(f"{message}: thinking")
        return None
    item = _read_kind(kind, fields.get(kind))
    if item is None:
        unsaid.append(path)
        return None
    _note_rest(fields, _PART_KEYS | {kind}, message, path, unsaid)
    # OpenAI's own marker says the same as Anthropic's: up to here the prompt will come again.
    cache = fields.get("cache_control")
    if not cache and fields.get("prompt_cache_breakpoint"):
        cache = {"type": "ephemeral"}
    return _with_cache([item], cache, path, unsaid)[0]


def _read_kind(kind: str, value: JSON) -> Item | None:
    """Read the value that a part of this type has under the name of its type."""
    fields = as_object(value)
    match kind:
        case "text" if isinstance(value, str):
            return Text(value)
        case "refusal" if isinstance(value, str):
            return Refused(value)
        case "image_url":
            url = as_text(value) or as_text(fields.get("url"))
            detail = as_text(fields.get("detail"))
            media_type, data = split_data_url(url or "")
            if data:
                return Image(data, media_type, detail=detail)
            return Image(url=url, detail=detail) if url else None
        case "input_audio":
            audio = as_text(fields.get("data"))
            return Audio(audio, as_text(fields.get("format")) or "wav") if audio else None
        case "file":
            file, name = as_text(fields.get("file_data")), as_text(fields.get("filename"))
            media_type, data = split_data_url(file or "")
            if data:
                return Document(data, media_type, name=name)
            # Bare data is taken for a PDF's, the kind this form was made for.
            return Document(file, "application/pdf", name=name) if file else None
    return None


def _read_calls(message: Mapping[str, JSON], path: str, unsaid: list[str]) -> list[Called]:
    calls: list[Called] = []
    listed = message.get("tool_calls")
    if listed and not isinstance(listed, list):
        unsaid.append(f"{path}.tool_calls")
    for at, value in enumerate(as_list(listed)):
        call, call_path = as_object(value), f"{path}.tool_calls[{at}]"
        custom = as_object(call.get("custom"))
        kind = as_text(call.get("type")) or ("custom" if custom else "function")
        if kind not in ("function", "custom"):
            unsaid.append(call_path)
            continue
        is_custom = kind == "custom"
        arguments = custom.get("input") if is_custom else _arguments_of(call.get("function"))
        calls.append(
            Called(
                as_text(call.get("id")) or "",
                read_name(call),
                _text_of(arguments),
                is_custom,
                call.get("cache_control"),
            )
        )
        _note_rest(call, _CALL_KEYS, path, call_path, unsaid)
    legacy = as_object(message.get("function_call"))
    if legacy:
        name = as_text(legacy.get("name")) or ""
        calls.append(Called("", name, _text_of(_arguments_of(legacy))))
    return calls


def _arguments_of(function: JSON) -> JSON:
    return as_object(function).get("arguments")


def _text_of(arguments: JSON) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else write_arguments(arguments)


def _read_result(
    message: Mapping[str, JSON], items: Sequence[Item], custom_ids: set[str]
) -> Result:
    call_id = ""
    if message.get("role") == "tool":
        call_id = as_text(message.get("tool_call_id")) or ""
    return Result(
        call_id,
        tuple(
            item if isinstance(item, Seen) else Text(item.text)
            for item in items
            if isinstance(item, Seen | Refused)
        ),
        is_custom=call_id in custom_ids,
        name=as_text(message.get("name")) or "",
    )


def _note_rest(
    fields: Mapping[str, JSON],
    known: frozenset[str],
    message: str,
    path: str,
    unsaid: list[str],
) -> None:
    """Name what else a message, a part or a call says; what is empty says nothing."""
    for key, value in fields.items():
        if key in known or not value:
            continue
        unsaid.append(f"{message}: thinking" if key in _THINKING_KEYS else f"{path}.{key}")


def _with_cache(items: list[Item], cache: JSON, path: str, unsaid: list[str]) -> list[Item]:
    """Give the last item the marker of the whole; its own is nearer."""
    if not cache:
        return items
    if not items or isinstance(items[-1], Audio | Refused):
        unsaid.append(f"{path}.cache_control")
        return items
    last = items[-1]
    return items if last.cache else [*items[:-1], replace(last, cache=cache)]


# Writing


def write_messages(turns: Sequence[Turn], receiver: Receiver, dropped: list[str]) -> list[JSON]:
    """Write turns as messages; `dropped` gets the names of what could not be said."""
    is_openai = receiver.provider == "openai"
    if any(_has_cache(item) for turn in turns for item in turn.items):
        dropped.append("cache markers")
    messages: list[JSON] = []
    for is_models, group in groupby(map_ids(turns, safe_id), lambda turn: turn.role == "assistant"):
        write = _write_models if is_models else _write_others
        messages += write(list(group), is_openai, dropped)
    if receiver.provider == "gemini":
        for message in messages:
            # Of calls in parallel the first one is signed.
            for call in as_list(as_object(message).get("tool_calls"))[:1]:
                as_object(call)["extra_content"] = {"google": {"thought_signature": _UNSIGNED}}
    return messages


def _has_cache(item: Item) -> bool:
    if isinstance(item, Audio | Refused):
        return False
    parts = item.parts if isinstance(item, Result) else ()
    return item.cache is not None or any(_has_cache(part) for part in parts)


def _write_models(turns: Sequence[Turn], is_openai: bool, dropped: list[str]) -> list[JSON]:
    """Write turns of the model that follow each other."""
    # A turn of which nothing is left (it was all thinking) says nothing, and some refuse it.
    return [_write_model(turn, is_openai, dropped) for turn in join_calling(turns) if turn.items]


def _write_model(turn: Turn, is_openai: bool, dropped: list[str]) -> JSON:
    calls: list[JSON] = []
    texts: list[str] = []
    refusals: list[str] = []
    for item in turn.items:
        match item:
            case Called():
                calls.append(_write_call(item, is_openai))
            case Text():
                texts.append(item.text)
            case Refused():
                refusals.append(item.text)
            case _:
                dropped.append(_NAMES_OF_KINDS.get(type(item), "tool results"))
    content: JSON = _write_texts([*texts, *refusals], is_openai)
    if refusals and not texts and is_openai:
        # The form has room for one.
        content = [{"type": "refusal", "refusal": "\n\n".join(refusals)}]
    # Without text it is '' and neither null nor left out: each of those some servers refuse.
    message = _write_head(turn, content)
    if calls:
        message["tool_calls"] = calls
    return message


def _write_call(call: Called, is_openai: bool) -> JSON:
    if call.is_custom and is_openai:
        custom: JSON = {"name": call.name, "input": call.arguments}
        return {"id": call.call_id, "type": "custom", "custom": custom}
    arguments = call.arguments
    if call.is_custom:
        arguments = wrap_free_text(arguments)
    function: JSON = {"name": call.name, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _write_others(turns: Sequence[Turn], is_openai: bool, dropped: list[str]) -> list[JSON]:
    """Write what stands between two turns of the model, the results first."""
    messages: list[JSON] = []
    attached: list[JSON] = []
    for turn in turns:
        for item in turn.items:
            if isinstance(item, Result):
                messages.append(_write_result(item, is_openai, attached, dropped))
    if attached:
        messages.append({"role": "user", "content": attached})
    for turn in turns:
        items = [item for item in turn.items if not isinstance(item, Result)]
        if turn.role == "system":
            content = _write_system(items, is_openai, dropped)
        else:
            content = _write_content(items, is_openai, dropped)
        # A user who says nothing is still a turn; one who only had results is not.
        if content or (turn.role == "user" and not turn.items):
            messages.append(_write_head(turn, content))
    return messages


def _write_head(turn: Turn, content: JSON) -> dict[str, JSON]:
    message: dict[str, JSON] = {"role": turn.role, "content": content}
    if turn.name is not None:
        message["name"] = turn.name
    return message


def _write_system(items: Sequence[Item], is_openai: bool, dropped: list[str]) -> JSON:
    dropped += [_NAMES_OF_KINDS[type(item)] for item in items if type(item) in _NAMES_OF_KINDS]
    return _write_texts([item.text for item in items if isinstance(item, Text)], is_openai)


def _write_content(items: Sequence[Item], is_openai: bool, dropped: list[str]) -> JSON:
    parts = _write_parts(items, dropped)
    texts = [as_text(part.get("text")) or "" for part in parts if part["type"] == "text"]
    return _write_texts(texts, is_openai) if len(texts) == len(parts) else list[JSON](parts)


def _write_texts(texts: Sequence[str], is_openai: bool) -> JSON:
    texts = [text for text in texts if text]
    if len(texts) > 1 and is_openai:
        return [{"type": "text", "text": text} for text in texts]
    return "\n\n".join(texts)


def _write_result(
    result: Result, is_openai: bool, attached: list[JSON], dropped: list[str]
) -> JSON:
    """Write a result's text as a tool's message; the rest of it goes to `attached`."""
    parts = _write_parts(result.parts, dropped)
    texts = [as_text(part.get("text")) or "" for part in parts if part["type"] == "text"]
    others: list[JSON] = [part for part in parts if part["type"] != "text"]
    if others:
        whose = f"From the result of the tool call {result.call_id}:"
        attached += [{"type": "text", "text": whose}, *others]
        texts = texts or [_RESULT_BELOW]
    if result.is_error and not "".join(texts).lstrip().lower().startswith("error"):
        # The form has no flag for it, so the words say it.
        texts = [f"Error: {texts[0]}", *texts[1:]] if texts else ["Error"]
    content = _write_texts(texts, is_openai)
    return {"role": "tool", "tool_call_id": result.call_id, "content": content}


def _write_parts(items: Sequence[Item], dropped: list[str]) -> list[dict[str, JSON]]:
    parts: list[dict[str, JSON]] = []
    for item in items:
        part = _write_part(item)
        if part is None:
            dropped.append(_NAMES_OF_KINDS.get(type(item), "tool calls"))
        else:
            parts.append(part)
    return parts


def _write_part(item: Item) -> dict[str, JSON] | None:
    """Write something the user shows; None = the form has no part for it."""
    match item:
        case Text() | Refused():
            return {"type": "text", "text": item.text}
        case Image():
            image: dict[str, JSON] = {"url": item.url}
            if item.data is not None:
                image = {"url": f"data:{item.media_type or 'image/png'};base64,{item.data}"}
            if item.detail is not None:
                image["detail"] = item.detail
            return {"type": "image_url", "image_url": image}
        case Document(text=str(text)):
            return {"type": "text", "text": f"{item.name}\n\n{text}" if item.name else text}
        case Document(data=str(data)):
            url = f"data:{item.media_type or 'application/pdf'};base64,{data}"
            file: JSON = {"filename": item.name or _FILE_NAME, "file_data": url}
            return {"type": "file", "file": file}
        case Audio():
            audio: JSON = {"data": item.data, "format": item.kind}
            return {"type": "input_audio", "input_audio": audio}
    return None
