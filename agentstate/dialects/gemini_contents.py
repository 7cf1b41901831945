"""The conversation of a request in Gemini's own form, into neutral form and from it.

What is written keeps the rules that Google holds conversations to: the user begins, roles
alternate, and a content with calls is followed by one that begins with as many results, in their
order. A call without a result gets one that says so, and a result without a call is told as text,
since either would have this request and every later one refused. Keys are read in both spellings
that Google takes; paths are named in camelCase, as Google's documents have it.
Source: ai.google.dev/api/caching (Content), ai.google.dev/gemini-api/docs/function-calling and
.../thought-signatures, and the types of the `google-genai` package 3.6, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from agentstate.dialects.call_arguments import object_of_called
from agentstate.dialects.lenient import Unreadable, as_list, as_object, as_text, read_exact
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
    map_ids,
    safe_id,
    with_ids,
)
from agentstate.ground.canonical import JSON, encode

# Google's stand-in for the signature of a call that one of its models did not make; newer models
# refuse a call without one. Clients that take a signature for bytes can only hold the second form,
# and send it so.
NO_SIGNATURE = "skip_thought_signature_validator"
NO_SIGNATURE_BYTES = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="

_DATA = frozenset(("text", "functionCall", "functionResponse", "inlineData", "fileData"))
_ASIDE = frozenset(("thought", "thoughtSignature", "partMetadata"))
_READ_RESULT = frozenset(("id", "name", "response", "parts"))
_SNAKE = re.compile(r"_([a-z0-9])")
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
# Under which key Google's clients send what a function returned that gave no object.
_RESULT_KEYS = ("result", "output")

_INTEGER_MAX = 2**53  # Google reads numbers as floats: beyond it digits are lost
_IMAGE_TYPES = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp",
    "gif": "image/gif", "heic": "image/heic", "heif": "image/heif",
}  # fmt: skip
_FIRST_WORDS = "(The conversation begins with the model's answer.)"
_NO_RESULT = "There is no result on record."
_STRAY_RESULT = "The result of an earlier call:"


def read_turns(fields: Mapping[str, JSON], unsaid: list[str]) -> tuple[Turn, ...]:
    """Read the system instruction and the contents of a request, whose keys are in camelCase."""
    system = _read_system(fields.get("systemInstruction"), unsaid)
    contents = as_list(fields.get("contents"))
    return with_ids(
        [*system, *(_read_content(at, each, unsaid) for at, each in enumerate(contents))]
    )


def camel(value: JSON | Mapping[str, JSON]) -> dict[str, JSON]:
    """Return an object's fields under their camelCase names; null says nothing and is left out."""
    fields = value if isinstance(value, Mapping) else {}
    return {
        _SNAKE.sub(lambda hump: hump[1].upper(), key): each
        for key, each in fields.items()
        if each is not None
    }


def is_stand_in(signature: JSON) -> bool:
    """Tell whether a thought's signature stands for none."""
    return signature in (NO_SIGNATURE, NO_SIGNATURE_BYTES)


def _read_system(value: JSON, unsaid: list[str]) -> list[Turn]:
    """Read the system instruction: a Content, one without parts, or a bare text."""
    if isinstance(value, str):
        parts: list[JSON] = [{"text": value}]
    else:
        fields = camel(value)
        parts = parts_of(fields.get("parts", [fields] if "text" in fields else None))
    items: list[Item] = []
    for at, part in enumerate(parts):
        text = camel(part).get("text")
        if isinstance(text, str):
            items.append(Text(text))
        else:
            unsaid.append(f"systemInstruction.parts[{at}]")
    return [Turn("system", tuple(items))] if items else []


def parts_of(value: JSON) -> list[JSON]:
    """Return a list of Google's, which takes one object for a list of it."""
    return [value] if isinstance(value, dict) else as_list(value)


def _read_content(at: int, content: JSON, unsaid: list[str]) -> Turn:
    fields = camel(content)
    items: list[Item] = []
    for place, part in enumerate(parts_of(fields.get("parts"))):
        path = f"contents[{at}].parts[{place}]"
        said = camel(part)
        signature = said.get("thoughtSignature")
        is_thought = said.get("thought") is True and "functionCall" not in said
        if is_thought or not (signature is None or is_stand_in(signature)):
            unsaid.append(f"contents[{at}]: thinking")
        if is_thought:
            continue
        item = _read_part(said, path, unsaid)
        if item is not None:
            items.append(item)
            unsaid += [f"{path}.{key}" for key in said if key not in _ASIDE and key not in _DATA]
        elif said.keys() - _ASIDE:
            unsaid.append(path)
    return Turn("assistant" if fields.get("role") == "model" else "user", tuple(items))


def _read_part(said: dict[str, JSON], path: str, unsaid: list[str]) -> Item | None:
    """Read one part; None = the neutral form has no place for it."""
    if isinstance(text := said.get("text"), str):
        return Text(text)
    if isinstance(call := said.get("functionCall"), dict):
        fields = camel(call)
        return Called(
            as_text(fields.get("id")) or "",
            as_text(fields.get("name")) or "",
            _render(fields.get("args") or {}),
        )
    if isinstance(result := said.get("functionResponse"), dict):
        return _read_result(camel(result), path, unsaid)
    return _read_medium(said)


def _read_medium(said: dict[str, JSON]) -> Seen | None:
    """Read what is no text: by its data or by its address, as what its type says it is."""
    inline = camel(said.get("inlineData"))
    named = camel(said.get("fileData"))
    data = as_text(inline.get("data"))
    url = as_text(named.get("fileUri"))
    media_type = as_text(inline.get("mimeType")) or as_text(named.get("mimeType")) or ""
    kind = media_type.partition("/")[0]
    name = as_text(inline.get("displayName")) or as_text(named.get("displayName"))
    if data is None and (url is None or not _is_for_all(url)):
        return None
    if kind == "image":
        return Image(data, media_type) if data is not None else Image(url=url)
    if kind == "audio" and data is not None and media_type in _SOUNDS:
        return Audio(data, _SOUNDS[media_type])
    if kind in ("application", "text"):
        return Document(data, media_type, url=url, name=name)
    return None


def _is_for_all(url: str) -> bool:
    """Tell whether others than Google can fetch what stands at a URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:  # brackets that hold no address
        return False
    return parts.scheme in ("http", "https") and not host.endswith(".googleapis.com")


def _read_result(fields: dict[str, JSON], path: str, unsaid: list[str]) -> Result:
    """Read what a function returned: the text in it where it is only a text."""
    unsaid += [f"{path}.functionResponse.{key}" for key in fields if key not in _READ_RESULT]
    response = as_object(fields.get("response"))
    key, value = next(iter(response.items()), ("", None))
    is_one_text = len(response) == 1 and isinstance(value, str)
    is_error = is_one_text and key == "error"
    text = value if is_one_text and (is_error or key in _RESULT_KEYS) else _render(response)
    parts: list[Seen] = [Text(text)] if isinstance(text, str) else []
    for at, part in enumerate(parts_of(fields.get("parts"))):
        if (medium := _read_medium(camel(part))) is not None:
            parts.append(medium)
        else:
            unsaid.append(f"{path}.functionResponse.parts[{at}]")
    call_id = as_text(fields.get("id")) or ""
    return Result(call_id, tuple(parts), is_error, name=as_text(fields.get("name")) or "")


def _render(value: JSON) -> str:
    return encode(value).decode("ascii")


# --- writing --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Content:
    """One content, as far as it is put together."""

    role: Literal["user", "model"]
    parts: list[JSON] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    # Of the calls of the content before, by place: what each gave.
    results: dict[int, JSON] = field(default_factory=dict)


def write_turns(turns: Sequence[Turn], dropped: list[str]) -> tuple[list[JSON], list[JSON]]:
    """Return (parts of the system instruction, contents); `dropped` gets what cannot be said.

    The system's later turns are moved up to its first ones, in order: there is no place for them
    between contents. A request of nothing else is the user's.

    Raises:
        BadRequest: a call's arguments are no JSON object; `param` names the turn.
    """
    system: list[JSON] = []
    writing = _Writing(dropped)
    for at, turn in enumerate(map_ids(turns, safe_id)):
        if turn.name is not None:
            dropped.append("names of participants")
        for item in turn.items:
            if has_cache(item):
                dropped.append("cache markers")
            if turn.role != "system":
                writing.add("model" if turn.role == "assistant" else "user", item, at)
            elif isinstance(item, Text):
                system += _write_text(item.text)
            else:
                dropped.append("all but text of the system")
    contents = writing.finished()
    if not contents:
        return [], [{"role": "user", "parts": system}] if system else []
    return system, contents


def has_cache(item: Item) -> bool:
    """Tell whether an item, or a part of it, is marked for a cache."""
    if isinstance(item, Audio | Refused):
        return False
    parts = item.parts if isinstance(item, Result) else ()
    return item.cache is not None or any(has_cache(part) for part in parts)


class _Writing:
    """Puts contents together, item by item."""

    __slots__ = ("_calls", "_contents", "_dropped")

    def __init__(self, dropped: list[str]) -> None:
        self._contents: list[_Content] = []
        self._calls: list[Called] = []  # of the model's last content
        self._dropped = dropped

    def add(self, role: Literal["user", "model"], item: Item, at: int) -> None:
        """Add an item of turn `at`."""
        match item:
            case Called():
                content = self._open("model")
                call: dict[str, JSON] = {"id": item.call_id, "name": item.name}
                call["args"] = object_of_called(item, at)
                part: dict[str, JSON] = {"functionCall": call}
                if not content.calls:
                    part["thoughtSignature"] = NO_SIGNATURE  # of calls in parallel the first has it
                content.parts.append(part)
                content.calls.append(item)
            case Result():
                self._add_result(item)
            case Refused():
                self._add_parts(role, _write_text(item.text))
            case _:
                self._add_parts(role, self._write_seen(item))

    def finished(self) -> list[JSON]:
        """Return the contents as they are sent."""
        contents = self._contents
        if contents and contents[-1].calls:
            contents = [*contents, _Content("user")]
        sent: list[JSON] = []
        if contents and contents[0].role == "model":
            sent.append({"role": "user", "parts": _write_text(_FIRST_WORDS)})
        calls: list[Called] = []
        for content in contents:
            results = [
                content.results.get(place) or _write_response(call, {"error": _NO_RESULT})
                for place, call in enumerate(calls)
            ]
            sent.append({"role": content.role, "parts": [*results, *content.parts]})
            calls = content.calls
        return sent

    def _add_result(self, item: Result) -> None:
        """Add a result to those of the content before; what it shows comes after all of them, since
        not all models take it inside."""
        texts = [part.text for part in item.parts if isinstance(part, Text)]
        shown = [part for part in item.parts if not isinstance(part, Text)]
        parts = [each for part in shown for each in self._write_seen(part)]
        found = self._find(item.call_id)
        if found is None:
            self._add_parts("user", [*_write_text(_STRAY_RESULT), *_write_text("\n".join(texts))])
        else:
            content, place, call = found
            response = _response_of("\n".join(texts), is_error=item.is_error)
            content.results[place] = _write_response(call, response)
        self._add_parts("user", parts)

    def _find(self, call_id: str) -> tuple[_Content, int, Called] | None:
        """Return where the result of a call belongs: after the model's last calls, once each."""
        for place, call in enumerate(self._calls):
            if call.call_id == call_id:
                content = self._open("user")
                if place not in content.results:
                    return content, place, call
        return None

    def _add_parts(self, role: Literal["user", "model"], parts: Sequence[JSON]) -> None:
        if parts:
            self._open(role).parts += parts

    def _open(self, role: Literal["user", "model"]) -> _Content:
        if not self._contents or self._contents[-1].role != role:
            self._contents.append(_Content(role))
            if role == "model":
                self._calls = self._contents[-1].calls
        return self._contents[-1]

    def _write_seen(self, item: Seen) -> list[JSON]:
        """Write what a turn or a result shows as at most one part; name what cannot be shown."""
        match item:
            case Text():
                return _write_text(item.text)
            case Image():
                if item.detail not in (None, "auto"):
                    self._dropped.append("image detail")
                if item.data is not None:
                    return [_write_data(item.media_type or "image/png", item.data)]
                return _write_url(item.url, _image_type(item.url))
            case Document():
                if item.name is not None:
                    self._dropped.append("names of documents")
                if item.text is not None:
                    return _write_text(item.text)
                if item.data is not None:
                    return [_write_data(item.media_type or "application/pdf", item.data)]
                return _write_url(item.url, item.media_type or "application/pdf")
            case Audio():
                return [_write_data(f"audio/{item.kind}", item.data)]


def _write_text(text: str) -> list[JSON]:
    """Write a text as a part; as none if it is empty, which is refused."""
    return [{"text": text}] if text else []


def _write_data(media_type: str, data: str) -> JSON:
    return {"inlineData": {"mimeType": media_type, "data": data}}


def _write_url(url: str | None, media_type: str | None) -> list[JSON]:
    if url is None:
        return []
    named: dict[str, JSON] = {"fileUri": url}
    if media_type is not None:
        named["mimeType"] = media_type
    return [{"fileData": named}]


def _image_type(url: str | None) -> str | None:
    """Return the type of an image by the end of its URL; None = it does not show."""
    path = (url or "").partition("?")[0].partition("#")[0]
    return _IMAGE_TYPES.get(path.rpartition(".")[2].lower())


def _write_response(call: Called, response: dict[str, JSON]) -> JSON:
    return {"functionResponse": {"id": call.call_id, "name": call.name, "response": response}}


def _response_of(text: str, *, is_error: bool) -> dict[str, JSON]:
    """Return the object that a function's response has to be: the text itself where it is one whose
    numbers all survive."""
    if is_error:
        return {"error": text}
    try:
        value = read_exact(text) if text.lstrip().startswith("{") else None
    except Unreadable:
        value = None
    if isinstance(value, dict) and not _has_long_integer(value):
        return value
    return {_RESULT_KEYS[0]: text}


def _has_long_integer(value: JSON) -> bool:
    waiting: list[JSON] = [value]
    while waiting:
        match waiting.pop():
            case bool():
                continue
            case int() as number if abs(number) > _INTEGER_MAX:
                return True
            case list() as each:
                waiting += each
            case dict() as each:
                waiting += each.values()
    return False
