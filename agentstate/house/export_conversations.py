"""Conversations in neutral form, written as the messages that fine-tuning takes. Pure.

Not a translation for another model (`dialects/openai_chat_messages.py`): nothing is made to fit a
receiver, ids stay what they were, and what no trainer takes is left out. What cannot be read by one
(a picture, a file) leaves a mark in brackets where it stood, so that the answer to it still makes
sense. Whatever is not as it was said is a `Change`. Invariant: the same history gives the same
messages, whichever dialect it was recorded in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from agentstate.house.export_base import Change

Message = dict[str, JSON]

# Paths of what a history has and the neutral form has no place for: a whole message, or a call.
_LOST = re.compile(r"(?:messages|input|contents)\[(\d+)\](?:\.tool_calls\[\d+\])?")
# Items of Responses that the texts around them do without: what the provider ran by itself.
_ASIDE = frozenset(
    ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
     "mcp_list_tools", "mcp_call")
)  # fmt: skip
# Paths of parts of messages that the neutral form has no place for. Thoughts and marks for a cache
# are none of what is said.
_PART = re.compile(
    r"(?:messages|input|contents|system|systemInstruction)\b[^:]*"
    r"(?:\]|\.(?:content|output|tool_calls|audio|images))"
)
_ELSEWHERE = frozenset(("item_reference", "compaction"))
_PARAGRAPH = "\n\n"


class NoConversation(Exception):
    """What is on record is no whole conversation, or has no chat form; `reason` is a stable word
    for why, `path` the place in the request, '' where it is not of one."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


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
            _check_lost(as_object(items[int(found[1])]), path)
    return asked


def _check_lost(item: Mapping[str, JSON], path: str) -> None:
    kind = as_text(item.get("type"))
    if kind not in _ASIDE:
        reason = "history_elsewhere" if kind in _ELSEWHERE else "no_chat_form"
        raise NoConversation(reason, f"request.{path}")


def unsaid_changes(asked: Asked) -> list[Change]:
    """Return which parts of its messages a request has lost when it was read."""
    return [
        Change("content_removed", None, f"request.{path}", "It has no form here: left out.")
        for path in asked.unsaid
        if _PART.fullmatch(path) and not _LOST.fullmatch(path)
    ]


# --- messages -------------------------------------------------------------------------------------


def write_messages(turns: Sequence[Turn], *, images: bool, changes: list[Change]) -> list[Message]:
    """Write turns as messages. `images`: keep those of users. `changes` gets what is not as it was
    said."""
    writer = _Writer(images, changes)
    for is_models, group in groupby(turns, lambda turn: turn.role == "assistant"):
        if is_models:
            writer.write_models(group)
        else:
            writer.write_others(tuple(group))
    return writer.messages


class _Writer:
    """Writes turns one after the other."""

    def __init__(self, images: bool, changes: list[Change]) -> None:
        self.messages: list[Message] = []
        self._images = images
        self._changes = changes
        self._called: dict[str, str] = {}  # tools by the ids of their calls

    def write_models(self, turns: Iterable[Turn]) -> None:
        """Write what the model said."""
        for turn in join_calling(turns):
            # Blocks of a model's text go on in the middle of a sentence.
            text = "".join(item.text for item in turn.items if isinstance(item, Text | Refused))
            calls = [item for item in turn.items if isinstance(item, Called)]
            self._called |= {call.call_id: call.name for call in calls}
            self._note_name(turn.name)
            if any(isinstance(item, Refused) for item in turn.items):
                self._note(*_REFUSAL)
            for item in turn.items:
                if (kind := _KINDS.get(type(item))) and not isinstance(item, Called):
                    # A message of which nothing is left stood before the one that is there now.
                    self._note(f"{kind}_removed", ".content", _REMOVED)
            for place, call in enumerate(calls):
                if _is_blank(call.arguments, is_custom=call.is_custom):
                    self._changes.append(_no_arguments(len(self.messages), place))
            message = _assistant(text, [_write_call(call) for call in calls])
            if message is not None:
                self.messages.append(message)

    def write_others(self, turns: Sequence[Turn]) -> None:
        """Write what stands between two messages of the model, the results first."""
        for turn in turns:
            for item in turn.items:
                if isinstance(item, Result):
                    self._write_result(item)
        for turn in turns:
            items = [item for item in turn.items if not isinstance(item, Result)]
            if not items and turn.items:
                continue  # it had results only
            self._note_name(turn.name)
            has_images = any(isinstance(item, Image) for item in items)
            keeps_images = self._images and turn.role == "user" and has_images
            self._note_marks(items, keeps_images=keeps_images)
            content: JSON = _texts(items)
            if keeps_images:
                content = [
                    _image(item) if isinstance(item, Image) else _part(item) for item in items
                ]
            self.messages.append({"role": turn.role, "content": content})

    def _write_result(self, result: Result) -> None:
        text = _texts(result.parts)
        if result.is_error and not text.lstrip().lower().startswith("error"):
            # The form has no flag for it, so the words say it.
            text = f"Error: {text}" if text else "Error"
        if result.name != self._called.get(result.call_id, result.name):
            self._note_name(result.name)  # else the call says it
        self._note_marks(result.parts, keeps_images=False)
        self.messages.append({"role": "tool", "content": text, "tool_call_id": result.call_id})

    def _note(self, code: str, path: str, message: str) -> None:
        self._changes.append(Change(code, len(self.messages), path, message))

    def _note_name(self, name: str | None) -> None:
        if name:
            self._note("name_removed", "", "Messages have no names here.")

    def _note_marks(self, items: Iterable[Item], *, keeps_images: bool) -> None:
        for item in items:
            kind = _KINDS.get(type(item))
            is_kept = keeps_images and isinstance(item, Image)
            if kind is None or is_kept or (isinstance(item, Document) and item.text is not None):
                continue
            if isinstance(item, Called | Result):
                self._note(f"{kind}_removed", ".content", _REMOVED)
            else:
                self._note(f"{kind}_marked", ".content", "A mark stands where it was.")


_KINDS: dict[type[Item], str] = {
    Image: "image", Document: "document", Audio: "audio", Called: "call", Result: "result",
}  # fmt: skip
_REMOVED = "A message of this side has no place for it: left out."
_REFUSAL = ("refusal_text", ".content", "The model refused; its words are a text like any other.")


def _is_blank(arguments: str, *, is_custom: bool) -> bool:
    """Say whether a call has no arguments; models leave those of a tool without parameters out."""
    return not is_custom and not arguments.strip()


def _no_arguments(at: int, place: int) -> Change:
    path = f".tool_calls[{place}].function.arguments"
    message = "No arguments are an empty object."
    return Change("arguments_empty", at, path, message, is_mended=True)


def _assistant(text: str, calls: list[JSON]) -> Message | None:
    """Make a message of the assistant; None = it says nothing."""
    if calls:
        return {"role": "assistant", "content": text or None, "tool_calls": calls}
    return {"role": "assistant", "content": text} if text else None


def _write_call(call: Called) -> JSON:
    return _function_call(call.call_id, call.name, call.arguments, is_custom=call.is_custom)


def _function_call(call_id: str, name: str, arguments: str, *, is_custom: bool) -> JSON:
    text = wrap_free_text(arguments) if is_custom else arguments
    text = "{}" if _is_blank(arguments, is_custom=is_custom) else text
    function: JSON = {"name": name, "arguments": text}
    return {"id": call_id, "type": "function", "function": function}


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


@dataclass(frozen=True, slots=True)
class Said:
    """One alternative of an answer as a message."""

    message: Message
    changes: tuple[Change, ...] = field(default=(), compare=False)

    def changes_at(self, at: int) -> tuple[Change, ...]:
        """Return what is not as it was said, for a message at this place."""
        return tuple(replace(change, at=at) for change in self.changes)


def write_choice(choice: Choice, turn_count: int) -> Said:
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
    code, path, why = _REFUSAL
    changes = [Change(code, 0, path, why)] if choice.refusal else []
    changes += [
        _no_arguments(0, place)
        for place, call in enumerate(own)
        if _is_blank(call.arguments, is_custom=call.kind == "custom")
    ]
    return Said(message, tuple(changes))


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
