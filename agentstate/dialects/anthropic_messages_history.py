"""Conversations of the Messages form, into neutral turns and from them.

Reading keeps what any other model could use and names the rest by its path. Writing gives what the
API takes: the system's words apart, sides that alternate and begin with the user, and after every
message with calls one that begins with exactly one result for each, in the order of the calls.
What a history lacks for that (a run was cut, a client trimmed it) is put in; that takes nothing
from what was asked, so it is not named. The counterpart is `anthropic_messages_requests.py`, which
reads and writes all the rest of a request.
Source: platform.claude.com/docs/en/agents-and-tools/tool-use/{implement-tool-use,overview} and
.../build-with-claude/{vision,pdf-support,search-results}, November 2026.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from agentstate.dialects.anthropic_messages_calls import THOUGHTS
from agentstate.dialects.anthropic_models import takes_prefill
from agentstate.dialects.call_arguments import object_of_called
from agentstate.dialects.lenient import as_list, as_object, as_text
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
    map_ids,
    safe_id,
    with_ids,
)
from agentstate.ground.canonical import JSON, encode

# Keys of a block that are read, or that mean nothing to another model, by its type. `caller` says
# that code of the model made a call; call and result are the same for that.
_KNOWN_KEYS = {
    "text": ("text",),
    "image": ("source",),
    "document": ("source", "title"),
    "search_result": ("source", "title", "content"),
    "tool_use": ("id", "name", "input", "caller"),
    "tool_result": ("tool_use_id", "content", "is_error"),
}
_ALWAYS_KNOWN = ("type", "cache_control")

_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

# What stands in for what the API wants and a history does not have. It refuses a message without a
# word in it, so each says something.
_FIRST_WORDS = "Begin."
_LAST_WORDS = "Continue."
_NO_RESULT = "There is no result: the run ended before the tool gave one."
_STRAY_RESULT = "A tool's result, of a call that is not in this conversation:"
_FAILED = "The tool failed and said nothing."


def read_turns(body: Mapping[str, JSON], unsaid: list[str]) -> tuple[Turn, ...]:
    """Read the system text and the messages; what has no place is named in `unsaid`."""
    turns: list[Turn] = []
    if system := _read_content(body.get("system"), "system", unsaid):
        turns.append(Turn("system", system))
    for at, message in enumerate(as_list(body.get("messages"))):
        fields = as_object(message)
        path = f"messages[{at}]"
        place = f"{path}.content"
        items = _read_content(fields.get("content"), place, unsaid)
        name_rest(fields, ("role", "content"), path, unsaid)
        thoughts = (as_object(block).get("type") for block in as_list(fields.get("content")))
        if any(kind in THOUGHTS for kind in thoughts):
            unsaid.append(f"{path}: thinking")
        if items:
            turns.append(Turn(_read_role(fields), items))
    return with_ids(turns)


def name_rest(
    fields: Mapping[str, JSON], known: Sequence[str], path: str, unsaid: list[str]
) -> None:
    """Name the keys of an object that are not known and say something."""
    for key, value in fields.items():
        says_nothing = value is None or value is False or value in ("", [], {})
        if key not in known and not says_nothing:
            unsaid.append(f"{path}.{key}" if path else key)


def _read_role(fields: Mapping[str, JSON]) -> Literal["system", "user", "assistant"]:
    match fields.get("role"):
        case "assistant":
            return "assistant"
        case "system":
            return "system"
        case _:
            return "user"


def _read_content(content: JSON, path: str, unsaid: list[str]) -> tuple[Item, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    items: list[Item] = []
    for place, block in enumerate(as_list(content)):
        fields = as_object(block)
        if fields.get("type") not in THOUGHTS:
            items += _read_block(fields, f"{path}[{place}]", unsaid)
    return tuple(items)


def _read_block(fields: dict[str, JSON], path: str, unsaid: list[str]) -> Sequence[Item]:
    kind = as_text(fields.get("type")) or ""
    cache = fields.get("cache_control")
    if kind in _KNOWN_KEYS:
        name_rest(fields, (*_ALWAYS_KNOWN, *_KNOWN_KEYS[kind]), path, unsaid)
    match kind:
        case "text":
            text = as_text(fields.get("text"))
            return () if text is None else (Text(text, cache),)
        case "image":
            return _read_image(fields, path, unsaid)
        case "document":
            return _read_document(fields, path, unsaid)
        case "search_result":
            head = [as_text(fields.get(key)) or "" for key in ("title", "source")]
            lines = [*head, *_list_texts(fields)]
            return (Text("\n".join(filter(None, lines)), cache),)
        case "tool_use":
            arguments = encode(fields.get("input", {})).decode("ascii")
            call_id, name = as_text(fields.get("id")) or "", as_text(fields.get("name")) or ""
            return (Called(call_id, name, arguments, cache=cache),)
        case "tool_result":
            return (_read_result(fields, path, unsaid),)
    # What Anthropic ran by itself, and what is new: the words in it may be all there is.
    unsaid.append(path)
    return [Text(text) for text in _list_texts(fields)]


def _read_result(fields: dict[str, JSON], path: str, unsaid: list[str]) -> Result:
    items = _read_content(fields.get("content"), f"{path}.content", unsaid)
    return Result(
        as_text(fields.get("tool_use_id")) or "",
        tuple(item for item in items if isinstance(item, Text | Image | Document | Audio)),
        is_error=fields.get("is_error") is True,
        cache=fields.get("cache_control"),
    )


def _read_image(fields: dict[str, JSON], path: str, unsaid: list[str]) -> Sequence[Item]:
    source, cache = as_object(fields.get("source")), fields.get("cache_control")
    match source:
        case {"type": "base64", "data": str(data)}:
            return (Image(data, as_text(source.get("media_type")), cache=cache),)
        case {"type": "url", "url": str(url)}:
            return (Image(url=url, cache=cache),)
    unsaid.append(path)  # a file that only Anthropic has
    return ()


def _read_document(fields: dict[str, JSON], path: str, unsaid: list[str]) -> Sequence[Item]:
    source, cache = as_object(fields.get("source")), fields.get("cache_control")
    name = as_text(fields.get("title"))
    match source:
        case {"type": "base64", "data": str(data)}:
            media_type = as_text(source.get("media_type"))
            return (Document(data, media_type, name=name, cache=cache),)
        case {"type": "text", "data": str(text)}:
            return (Document(text=text, name=name, cache=cache),)
        case {"type": "url", "url": str(url)}:
            return (Document(url=url, name=name, cache=cache),)
        case {"type": "content"}:
            inner = _read_content(source.get("content"), f"{path}.source.content", unsaid)
            text = "\n".join(item.text for item in inner if isinstance(item, Text))
            pictures = [item for item in inner if isinstance(item, Image)]
            return (Document(text=text, name=name, cache=cache), *pictures)
    unsaid.append(path)
    return ()


def _list_texts(fields: Mapping[str, JSON]) -> list[str]:
    """Return the words in a block: its own, those of the blocks in it, what a program printed."""
    content = fields.get("content")
    found = [fields.get("text"), content, as_object(content).get("stdout")]
    found += [as_object(block).get("text") for block in as_list(content)]
    return [text for text in found if isinstance(text, str) and text]


class _Call:
    """A call of the history, and its result once it is found."""

    __slots__ = ("call_id", "original_id", "result")

    def __init__(self, original_id: str, call_id: str) -> None:
        self.original_id = original_id  # as its result names it
        self.call_id = call_id  # as it is written
        self.result: dict[str, JSON] | None = None


class _Message:
    """One message as it is put together."""

    __slots__ = ("blocks", "calls", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self.blocks: list[JSON] = []
        self.calls: list[_Call] = []  # those among the blocks

    @property
    def is_answered(self) -> bool:
        """Whether any of its calls has its result."""
        return any(call.result is not None for call in self.calls)


def write_turns(
    turns: Sequence[Turn], model: str, dropped: list[str]
) -> tuple[list[dict[str, JSON]], list[JSON]]:
    """Return (text blocks of the system, messages); what cannot be said is named in `dropped`.

    The system's later turns are moved up to its first ones, in order: not all models take them
    where they stand, and told at the top they hold as well.

    Raises:
        BadRequest: a call's arguments are no JSON object; `param` names the turn.
    """
    system: list[dict[str, JSON]] = []
    history = _History(dropped)
    for at, turn in enumerate(map_ids(turns, safe_id)):
        if turn.name is not None:
            dropped.append("names of participants")
        for item in turn.items:
            if turn.role != "system":
                history.add(turn.role, item, at)
            elif isinstance(item, Text):
                system += _write_texts(item.text, item.cache)
            else:
                dropped.append("all but text of the system")
    return system, _finished(history.messages, model)


class _History:
    """The messages so far."""

    __slots__ = ("_dropped", "_ids", "messages")

    def __init__(self, dropped: list[str]) -> None:
        self.messages: list[_Message] = []
        self._dropped = dropped
        self._ids: set[str] = set()  # of all calls

    def add(self, role: Literal["user", "assistant"], item: Item, at: int) -> None:
        """Add an item of turn `at`."""
        match item:
            case Called():
                call = _Call(item.call_id, self._unused(item.call_id))
                message = self._open("assistant")
                message.blocks.append(_write_call(item, call.call_id, at))
                message.calls.append(call)
            case Result():
                self._add_result(item)
            case Refused():
                self._add_blocks(role, _write_texts(item.text))
            case Image() | Document() | Audio() if role == "assistant":
                self._dropped.append("all but text of the assistant")
            case _:
                self._add_blocks(role, _write_seen(item, self._dropped))

    def _add_result(self, item: Result) -> None:
        call = self._find(item.call_id)
        if call is not None:
            call.result = _write_result(item, call.call_id, self._dropped)
            return
        # A result of no call, or a second one, is refused as such; its words are not.
        parts = [block for part in item.parts for block in _write_seen(part, self._dropped)]
        self._add_blocks("user", [*_write_texts(_STRAY_RESULT), *parts])

    def _find(self, call_id: str) -> _Call | None:
        """Return the latest message's first call of that id that has no result yet."""
        for message in reversed(self.messages):
            for call in message.calls:
                if call.original_id == call_id and call.result is None:
                    return call
        return None

    def _add_blocks(self, role: str, blocks: Sequence[dict[str, JSON]]) -> None:
        if blocks:
            self._open(role).blocks += blocks

    def _open(self, role: str) -> _Message:
        """Return the message that a block of one side belongs to: the last one, if it is of that
        side and no result came after it."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == role and not last.is_answered:
            return last
        self.messages.append(_Message(role))
        return self.messages[-1]

    def _unused(self, call_id: str) -> str:
        """Return the id of a call, or another if one before has it: some models begin to count
        anew in every answer, and here an id may come once only."""
        found, count = call_id, 1
        while found in self._ids:
            count += 1
            found = made_id(call_id, count)
        self._ids.add(found)
        return found


def _finished(messages: Sequence[_Message], model: str) -> list[JSON]:
    """Return the messages as they are sent."""
    sent: list[tuple[str, list[JSON]]] = []
    for message in messages:
        if message.role == "user" and sent and sent[-1][0] == "user":
            sent[-1][1].extend(message.blocks)  # after the results
        else:
            sent.append((message.role, message.blocks))
        if message.calls:
            sent.append(("user", [call.result or _lost(call) for call in message.calls]))
    if not sent or sent[0][0] == "assistant":
        sent.insert(0, ("user", [*_write_texts(_FIRST_WORDS)]))
    if sent[-1][0] == "assistant":
        # An answer that was begun; it may not end in white space.
        last = as_object(sent[-1][1][-1])
        sent[-1][1][-1] = {**last, "text": (as_text(last.get("text")) or "").rstrip()}
        if not takes_prefill(model):
            sent.append(("user", [*_write_texts(_LAST_WORDS)]))
    return [{"role": role, "content": blocks} for role, blocks in sent]


def _lost(call: _Call) -> dict[str, JSON]:
    """Stand in for a result that is not in the history: without one the whole request is refused,
    and all later ones with it."""
    return {
        "type": "tool_result",
        "tool_use_id": call.call_id,
        "content": _NO_RESULT,
        "is_error": True,
    }


def _write_call(item: Called, call_id: str, at: int) -> dict[str, JSON]:
    block: dict[str, JSON] = {
        "type": "tool_use",
        "id": call_id,
        "name": item.name,
        "input": object_of_called(item, at),
    }
    return _marked(block, item.cache)


def _write_result(item: Result, call_id: str, dropped: list[str]) -> dict[str, JSON]:
    block: dict[str, JSON] = {"type": "tool_result", "tool_use_id": call_id}
    parts = [part for each in item.parts for part in _write_seen(each, dropped)]
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        block["content"] = parts[0]["text"]
    elif parts:
        block["content"] = cast(JSON, parts)
    elif item.is_error:
        block["content"] = _FAILED  # an error without a word is refused
    if item.is_error:
        block["is_error"] = True
    return _marked(block, item.cache)


def _write_seen(item: Seen, dropped: list[str]) -> list[dict[str, JSON]]:
    """Write what a turn or a result shows as at most one block; name what cannot be shown."""
    match item:
        case Text():
            return _write_texts(item.text, item.cache)
        case Image():
            if item.detail not in (None, "auto"):
                dropped.append("image detail")
            if (source := _image_source(item)) is not None:
                return [_marked({"type": "image", "source": source}, item.cache)]
            dropped.append("images")
        case Document():
            if (source := _document_source(item)) is not None:
                title: dict[str, JSON] = {"title": item.name} if item.name else {}
                return [_marked({"type": "document", "source": source, **title}, item.cache)]
            dropped.append("documents")
        case Audio():
            dropped.append("audio")
    return []


def _write_texts(text: str, cache: JSON = None) -> list[dict[str, JSON]]:
    """Write a text as a block; as none if it is blank, which the API refuses."""
    return [_marked({"type": "text", "text": text}, cache)] if text.strip() else []


def _image_source(image: Image) -> dict[str, JSON] | None:
    media_type = "image/jpeg" if image.media_type == "image/jpg" else image.media_type
    if image.data is not None and media_type in _IMAGE_TYPES:
        return {"type": "base64", "media_type": media_type, "data": image.data}
    return _url_source(image.url)


def _document_source(document: Document) -> dict[str, JSON] | None:
    text = document.text
    if document.data is not None:
        if document.media_type == "application/pdf":
            return {"type": "base64", "media_type": document.media_type, "data": document.data}
        text = _decoded(document.data, document.media_type or "")
    if text is not None:
        return {"type": "text", "media_type": "text/plain", "data": text}
    return _url_source(document.url)


def _url_source(url: str | None) -> dict[str, JSON] | None:
    """Return a source that is fetched; it is over TLS only."""
    return {"type": "url", "url": url} if url and url.startswith("https://") else None


def _decoded(data: str, media_type: str) -> str | None:
    """Return the text of a file that is one, else None."""
    if not media_type.startswith("text/"):
        return None
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _marked(block: dict[str, JSON], cache: JSON) -> dict[str, JSON]:
    return {**block, "cache_control": cache} if isinstance(cache, dict) and cache else block
