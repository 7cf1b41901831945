"""The input of a Responses request, from and into neutral turns.

The larger half of `openai_responses_requests.py`, which has the other fields. Reading joins the
items of one answer (texts and calls in a row) into one turn, and the results in a row into another.
Writing keeps the order of everything. It writes the plainest form there is for a thing, text as a
string above all: what is called compatible refuses, or passes over in silence, much of the rest.
So the system speaks as `system` and not as `developer`, and an assistant's text is no `output_text`
part, which strict servers want with an id and a status.
Source: OpenAI's OpenAPI document of August 2026, schemas InputItem and FunctionToolCallOutput.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

from agentstate.dialects.call_arguments import wrap_free_text
from agentstate.dialects.lenient import as_object, as_text, split_data_url
from agentstate.dialects.neutral import (
    Audio,
    Called,
    Document,
    Image,
    Item,
    Refused,
    Result,
    Seen,
    Text,
    Turn,
    made_id,
    with_ids,
)
from agentstate.dialects.openai_responses_rounds import kind_of, list_input
from agentstate.dialects.tool_deltas import write_arguments
from agentstate.ground.canonical import JSON

_ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
}  # fmt: skip
_TEXT_KINDS = frozenset(("input_text", "output_text", "text"))
_EPHEMERAL: JSON = {"type": "ephemeral"}


_FILE_NAME = "document.pdf"  # one that comes as data has to have a name
_NAMES: dict[type[Item], str] = {
    Image: "images", Document: "documents", Audio: "audio", Refused: "refusals",
}  # fmt: skip


# --- reading --------------------------------------------------------------------------------------


def read_turns(body: Mapping[str, JSON], unsaid: list[str]) -> tuple[Turn, ...]:
    """Read instructions and input; `unsaid` gets the paths of what has no place."""
    turns: list[Turn] = []
    if instructions := as_text(body.get("instructions")):
        turns.append(Turn("system", (Text(instructions),)))
    for at, value in enumerate(list_input(body)):
        turn = _read_item(as_object(value), f"input[{at}]", unsaid)
        if turn is None:
            continue
        if turns and _is_one_turn(turns[-1], turn):
            turn = Turn(turn.role, turns.pop().items + turn.items)
        turns.append(turn)
    return with_ids(turns)


def _is_one_turn(turn: Turn, more: Turn) -> bool:
    if turn.role != more.role:
        return False
    results = (isinstance(item, Result) for item in (*turn.items, *more.items))
    return turn.role == "assistant" or (turn.role == "user" and all(results))


def _read_item(item: dict[str, JSON], path: str, unsaid: list[str]) -> Turn | None:
    call_id = as_text(item.get("call_id")) or ""
    match kind_of(item):
        case "message":
            return _read_message(item, path, unsaid)
        case "function_call" | "custom_tool_call" as kind:
            if item.get("namespace"):
                unsaid.append(f"{path}.namespace")
            is_custom = kind == "custom_tool_call"
            arguments = item.get("input" if is_custom else "arguments")
            text = arguments if isinstance(arguments, str) else _write_value(arguments)
            return Turn("assistant", (Called(call_id, _name(item), text, is_custom),))
        case "function_call_output" | "custom_tool_call_output" as kind:
            parts = _read_output(item.get("output"), f"{path}.output", unsaid)
            is_custom = kind == "custom_tool_call_output"
            return Turn("user", (Result(call_id, parts, False, is_custom, _name(item)),))
        case "reasoning":
            unsaid.append(f"{path}: thinking")
        case _:
            unsaid.append(path)
    return None


def _read_message(message: dict[str, JSON], path: str, unsaid: list[str]) -> Turn | None:
    role = _ROLES.get(as_text(message.get("role")) or "")
    if role is None:
        unsaid.append(path)
        return None
    content, path = message.get("content"), f"{path}.content"
    items = [Text(content)] if isinstance(content, str) else _read_parts(content, path, unsaid)
    # An assistant that says nothing beside its calls has said nothing.
    items = [item for item in items if role != "assistant" or item != Text("")]
    return Turn(role, tuple(items)) if items else None


def _read_output(output: JSON, path: str, unsaid: list[str]) -> tuple[Seen, ...]:
    if isinstance(output, str):
        return (Text(output),) if output else ()
    items = _read_parts(output, path, unsaid)
    return tuple(Text(item.text) if isinstance(item, Refused) else item for item in items)


def _read_parts(parts: JSON, path: str, unsaid: list[str]) -> list[Seen | Refused]:
    if not isinstance(parts, list):
        if parts is not None:
            unsaid.append(path)
        return []
    items: list[Seen | Refused] = []
    for at, part in enumerate(parts):
        item = _read_part(as_object(part))
        if item is None:
            unsaid.append(f"{path}[{at}]")
        else:
            items.append(item)
    return items


def _read_part(part: dict[str, JSON]) -> Seen | Refused | None:
    """Read a part; None = it has no place: a file that the vendor keeps, a form nobody knows."""
    # Up to here the prompt will come again: what Anthropic's marker says as well.
    cache = _EPHEMERAL if part.get("prompt_cache_breakpoint") else None
    text = part.get("text")
    match part.get("type"):
        case kind if kind in _TEXT_KINDS and isinstance(text, str):
            return Text(text, cache)
        case "refusal" if refusal := as_text(part.get("refusal")):
            return Refused(refusal)
        case "input_image" if url := as_text(part.get("image_url")):
            detail = as_text(part.get("detail"))
            media_type, data = split_data_url(url)
            if data:
                return Image(data, media_type, detail=detail, cache=cache)
            return Image(url=url, detail=detail, cache=cache)
        case "input_file" if file := as_text(part.get("file_data")):
            media_type, data = split_data_url(file)
            # Bare data is a PDF's: the one kind that was taken at first.
            data, media_type = (data, media_type) if data else (file, "application/pdf")
            return Document(data, media_type, name=as_text(part.get("filename")), cache=cache)
        case "input_file" if url := as_text(part.get("file_url")):
            return Document(url=url, name=as_text(part.get("filename")), cache=cache)
    return None


def _name(item: dict[str, JSON]) -> str:
    return as_text(item.get("name")) or ""


def _write_value(arguments: JSON) -> str:
    return "" if arguments is None else write_arguments(arguments)


# --- writing --------------------------------------------------------------------------------------


def write_input(turns: Sequence[Turn], has_custom: bool, dropped: list[str]) -> dict[str, JSON]:
    """Write turns as instructions and input; `dropped` gets the names of what cannot be said.

    The system's turns before all others are the instructions, later ones stay where they are.
    `has_custom`: the receiver knows custom tools.
    """
    if any(_has_cache(item) for turn in turns for item in turn.items):
        dropped.append("cache markers")
    if any(turn.name is not None for turn in turns):
        dropped.append("names of participants")
    count = next((at for at, turn in enumerate(turns) if not _is_instruction(turn)), 0)
    # A request has to have an input; instructions alone are none.
    texts = [_text(item) for turn in turns[:count] for item in turn.items]
    items: list[JSON] = []
    for at, turn in enumerate(turns[count:], count):
        items += _write_turn(turn, at, has_custom, dropped)
    written: dict[str, JSON] = {"instructions": "\n\n".join(texts)} if texts else {}
    return {**written, "input": items}


def _is_instruction(turn: Turn) -> bool:
    return turn.role == "system" and all(isinstance(item, Text) for item in turn.items)


def _has_cache(item: Item) -> bool:
    if isinstance(item, Audio | Refused):
        return False
    parts = item.parts if isinstance(item, Result) else ()
    return item.cache is not None or any(_has_cache(part) for part in parts)


def _write_turn(
    turn: Turn, at: int, has_custom: bool, dropped: list[str]
) -> Iterator[dict[str, JSON]]:
    """Yield the items of a turn; `at` is its place."""
    place = 0
    for kind, group in groupby(turn.items, _item_kind):
        items = list(group)
        if kind == "called":
            yield from (_write_call(item, has_custom) for item in items if isinstance(item, Called))
        elif kind == "result":
            yield from (
                _write_result(item, has_custom, dropped)
                for item in items
                if isinstance(item, Result)
            )
        elif turn.role == "assistant":
            yield from _write_models(items, at, place, dropped)
        elif parts := _write_parts(items, dropped):
            yield {"type": "message", "role": turn.role, "content": _plainest(parts)}
        place += len(items)


def _item_kind(item: Item) -> Literal["called", "result", "said"]:
    match item:
        case Called():
            return "called"
        case Result():
            return "result"
        case _:
            return "said"


def _write_models(
    items: Sequence[Item], at: int, place: int, dropped: list[str]
) -> Iterator[dict[str, JSON]]:
    """Yield what the model said: its text as one, each refusal as a message of its own."""
    for kind, group in groupby(items, type):
        if kind is Text:
            if text := "".join(_text(item) for item in group):
                yield {"type": "message", "role": "assistant", "content": text}
        elif kind is Refused:
            for number, item in enumerate(group, place):
                # A part has only the whole form of a message, which has an id.
                message_id = made_id("history", at, number).replace("call_", "msg_", 1)
                yield {
                    "type": "message",
                    "id": message_id,
                    "status": "completed",
                    "role": "assistant",
                    "content": [{"type": "refusal", "refusal": _text(item)}],
                }
        else:
            dropped.append(_NAMES[kind])


def _write_call(call: Called, has_custom: bool) -> dict[str, JSON]:
    head: dict[str, JSON] = {"call_id": call.call_id, "name": call.name}
    if call.is_custom and has_custom:
        return {"type": "custom_tool_call", **head, "input": call.arguments}
    arguments = call.arguments
    if call.is_custom:
        arguments = wrap_free_text(arguments)
    return {"type": "function_call", **head, "arguments": arguments}


def _write_result(result: Result, has_custom: bool, dropped: list[str]) -> dict[str, JSON]:
    parts = _write_parts(result.parts, dropped)
    if result.is_error:
        first = as_text(parts[0].get("text")) if parts else None
        if first is None:
            parts.insert(0, {"type": "input_text", "text": "Error"})
        elif not first.lstrip().lower().startswith("error"):
            # The form has no flag for it, so the words say it.
            parts[0] = {"type": "input_text", "text": f"Error: {first}"}
    is_custom = result.is_custom and has_custom
    kind = "custom_tool_call_output" if is_custom else "function_call_output"
    return {"type": kind, "call_id": result.call_id, "output": _plainest(parts)}


def _plainest(parts: list[dict[str, JSON]]) -> JSON:
    """Return one text, or none, as a string."""
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    if len(parts) == len(texts) < 2:
        return texts[0] if texts else ""
    return list[JSON](parts)


def _write_parts(items: Sequence[Item], dropped: list[str]) -> list[dict[str, JSON]]:
    parts: list[dict[str, JSON]] = []
    for item in items:
        match item:
            case Text() | Refused():
                parts.append({"type": "input_text", "text": item.text})
            case Image():
                parts.append(_write_image(item))
            case Document():
                parts.append(_write_document(item, dropped))
            case _:
                dropped.append(_NAMES[type(item)])
    return parts


def _write_image(image: Image) -> dict[str, JSON]:
    url = image.url
    if image.data is not None:
        url = f"data:{image.media_type or 'image/png'};base64,{image.data}"
    return {"type": "input_image", "image_url": url, "detail": image.detail or "auto"}


def _write_document(document: Document, dropped: list[str]) -> dict[str, JSON]:
    name = document.name
    if document.data is not None:
        url = f"data:{document.media_type or 'application/pdf'};base64,{document.data}"
        return {"type": "input_file", "filename": name or _FILE_NAME, "file_data": url}
    if document.text is not None:
        # Text is read by every model, a file of text only by some.
        text = f"{name}\n\n{document.text}" if name else document.text
        return {"type": "input_text", "text": text}
    if name is not None:
        dropped.append("names of documents")  # one or the other, it says of `file_url`
    return {"type": "input_file", "file_url": document.url}


def _text(item: Item) -> str:
    return item.text if isinstance(item, Text | Refused) else ""
