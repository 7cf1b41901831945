"""Conversations in neutral form, written as the messages that fine-tuning takes. Pure.

Not a translation for another model (`dialects/openai_chat_messages.py`): nothing is made to fit a
receiver, ids stay what they were, and what no trainer takes is left out. What cannot be read by one
(a picture, a file) leaves a mark in brackets where it stood, so that the answer to it still makes
sense. Invariant: the same history gives the same messages, whichever dialect it was recorded in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from agentstate.dialects.base import Chains, Dialect
from agentstate.dialects.call_arguments import FREE_TEXT, wrap_free_text
from agentstate.dialects.lenient import as_list, as_object, as_text
from agentstate.dialects.neutral import (
    Asked,
    Audio,
    Called,
    Document,
    Image,
    Item,
    Offer,
    Refused,
    Result,
    Text,
    Turn,
    join_calling,
    made_id,
    translates,
)
from agentstate.ground.canonical import JSON, canonical
from agentstate.ground.chat import Choice
from agentstate.ground.errors import BadRequest

Message = dict[str, JSON]

# Paths of what a history has and the neutral form has no place for: a whole message, or a call.
_LOST = re.compile(r"(?:messages|input|contents)\[(\d+)\](?:\.tool_calls\[\d+\])?")
# Items of Responses that the texts around them do without: what the provider ran by itself.
_ASIDE = frozenset(
    ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
     "mcp_list_tools", "mcp_call")
)  # fmt: skip
_ELSEWHERE = frozenset(("item_reference", "compaction"))
_PARAGRAPH = "\n\n"


class NoConversation(Exception):
    """What is on record is no whole conversation, or has no chat form; `reason` is a stable word
    for why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- reading --------------------------------------------------------------------------------------


def read_conversation(dialect: Dialect, body: JSON) -> Asked:
    """Read a request into neutral form. What it goes on from by an id is for the caller to put
    before it.

    Raises:
        NoConversation: something of it is kept elsewhere, or has no form here.
    """
    if not translates(dialect):
        raise NoConversation("no_conversation")
    try:
        ask = dialect.read_ask(body)
    except BadRequest as error:  # what was fetched by its id has no request
        raise NoConversation("no_request") from error
    if isinstance(dialect, Chains):
        is_elsewhere = dialect.has_more_hidden(ask.body)
    else:
        is_elsewhere = ask.has_hidden_part
    if is_elsewhere:
        raise NoConversation("history_elsewhere")
    asked = dialect.read_request(ask.body)
    items = as_list(ask.body.get(dialect.list_key))
    for path in asked.unsaid:
        if (found := _LOST.fullmatch(path)) is not None:
            _check_lost(as_object(items[int(found[1])]))
    return asked


def _check_lost(item: Mapping[str, JSON]) -> None:
    kind = as_text(item.get("type"))
    if kind not in _ASIDE:
        raise NoConversation("history_elsewhere" if kind in _ELSEWHERE else "no_chat_form")


# --- messages -------------------------------------------------------------------------------------


def write_messages(turns: Sequence[Turn], *, images: bool) -> list[Message]:
    """Write turns as messages. `images`: keep those of users."""
    messages: list[Message] = []
    for is_models, group in groupby(turns, lambda turn: turn.role == "assistant"):
        side = tuple(group)
        messages += _write_models(side) if is_models else _write_others(side, images)
    return messages


def _write_models(turns: Iterable[Turn]) -> Iterator[Message]:
    """Write what the model said."""
    for turn in join_calling(turns):
        # Blocks of a model's text go on in the middle of a sentence.
        text = "".join(item.text for item in turn.items if isinstance(item, Text | Refused))
        calls = [_write_call(item) for item in turn.items if isinstance(item, Called)]
        if (message := _assistant(text, calls)) is not None:
            yield message


def _assistant(text: str, calls: list[JSON]) -> Message | None:
    """Make a message of the assistant; None = it says nothing."""
    if calls:
        return {"role": "assistant", "content": text or None, "tool_calls": calls}
    return {"role": "assistant", "content": text} if text else None


def _write_call(call: Called) -> JSON:
    return _function_call(call.call_id, call.name, call.arguments, is_custom=call.is_custom)


def _function_call(call_id: str, name: str, arguments: str, *, is_custom: bool) -> JSON:
    # Models leave the arguments of a tool without parameters empty.
    text = wrap_free_text(arguments) if is_custom else arguments
    text = text if text.strip() else "{}"
    function: JSON = {"name": name, "arguments": text}
    return {"id": call_id, "type": "function", "function": function}


def _write_others(turns: Sequence[Turn], images: bool) -> Iterator[Message]:
    """Write what stands between two messages of the model, the results first."""
    for turn in turns:
        for item in turn.items:
            if isinstance(item, Result):
                yield _write_result(item)
    for turn in turns:
        items = [item for item in turn.items if not isinstance(item, Result)]
        if not items and turn.items:
            continue  # it had results only
        if images and turn.role == "user" and any(isinstance(item, Image) for item in items):
            parts = [_image(item) if isinstance(item, Image) else _part(item) for item in items]
            yield {"role": "user", "content": list[JSON](parts)}
        else:
            yield {"role": turn.role, "content": _texts(items)}


def _write_result(result: Result) -> Message:
    text = _texts(result.parts)
    if result.is_error and not text.lstrip().lower().startswith("error"):
        # The form has no flag for it, so the words say it.
        text = f"Error: {text}" if text else "Error"
    return {"role": "tool", "content": text, "tool_call_id": result.call_id}


def _texts(items: Iterable[Item]) -> str:
    return _PARAGRAPH.join(text for item in items if (text := _text(item)))


def _text(item: Item) -> str:
    """Return an item as text."""
    match item:
        case Text() | Refused():
            return item.text
        case Image():
            return "[image]"
        case Audio():
            return "[audio]"
        case Document(text=str(text)):
            return f"{item.name}{_PARAGRAPH}{text}" if item.name else text
        case Document():
            return f"[document: {item.name}]" if item.name else "[document]"
        case Called() | Result():
            return ""  # in a message of another side it says nothing a trainer could take


def _part(item: Item) -> Message:
    return {"type": "text", "text": _text(item)}


def _image(image: Image) -> Message:
    url = image.url
    if image.data is not None:
        url = f"data:{image.media_type or 'image/png'};base64,{image.data}"
    said: Message = {"url": url}
    if image.detail is not None:
        said["detail"] = image.detail
    return {"type": "image_url", "image_url": said}


def write_choice(choice: Choice, turn_count: int) -> Message:
    """Write one alternative of an answer as the message it becomes in the next request.

    `turn_count`: the turns before it; calls without an id get the one that `neutral.with_ids` will
    give them there.

    Raises:
        NoConversation: it says nothing, or calls something that has no form here.
    """
    own = [call for call in choice.tool_calls if not call.runs_upstream]
    if any(call.kind not in ("function", "custom") for call in own):
        raise NoConversation("no_chat_form")
    text = choice.text + (choice.refusal or "")
    first = 1 if text else 0
    calls = [
        _function_call(
            call.call_id or made_id("history", turn_count, first + place),
            call.name,
            call.arguments,
            is_custom=call.kind == "custom",
        )
        for place, call in enumerate(own)
    ]
    message = _assistant(text, calls)
    if message is None:
        raise NoConversation("empty_answer")
    return message


# --- tools ----------------------------------------------------------------------------------------


def write_tool(offer: Offer) -> Message:
    """Write a tool that was offered."""
    function: Message = {"name": offer.name}
    if offer.description is not None:
        function["description"] = offer.description
    schema = FREE_TEXT if offer.is_custom else offer.schema
    if schema is not None:
        function["parameters"] = schema
    if offer.is_strict is not None:
        function["strict"] = offer.is_strict
    return {"type": "function", "function": function}


def called_names(messages: Iterable[Mapping[str, JSON]]) -> set[str]:
    """Return the names of the tools that are called in messages of this form."""
    calls = (as_object(call) for each in messages for call in as_list(each.get("tool_calls")))
    names = (as_object(call.get("function")).get("name") for call in calls)
    return {name for name in names if isinstance(name, str)}


# --- what names a conversation --------------------------------------------------------------------


def root_of(messages: Sequence[Message]) -> str:
    """Return a digest of how a conversation begins: all before the first answer."""
    end = next((at for at, each in enumerate(messages) if each["role"] == "assistant"), 1)
    return hashlib.sha256(_render([*messages[:end]])).hexdigest()


def digest_of(*parts: Sequence[Message] | None) -> int:
    """Return 64 bits that name what is said; ids of calls count for nothing but their order.

    Raises:
        NoConversation: it is nested so deeply that it cannot be written.
    """
    names: dict[str, str] = {}
    said: list[JSON] = [
        None if part is None else [_without_ids(message, names) for message in part]
        for part in parts
    ]
    return int.from_bytes(hashlib.sha256(_render(said)).digest()[:8], "big")


def _without_ids(message: Message, names: dict[str, str]) -> JSON:
    """Return a message with its ids counted through; `names` has those so far."""
    changed = dict(message)
    if isinstance(call_id := message.get("tool_call_id"), str):
        changed["tool_call_id"] = names.setdefault(call_id, str(len(names)))
    if calls := [as_object(call) for call in as_list(message.get("tool_calls"))]:
        changed["tool_calls"] = [
            {**call, "id": names.setdefault(str(call.get("id")), str(len(names)))} for call in calls
        ]
    return changed


def _render(value: list[JSON]) -> bytes:
    try:
        return canonical(value)
    except BadRequest as error:
        raise NoConversation("too_deep") from error
