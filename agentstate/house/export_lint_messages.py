"""The messages of one line, looked at and mended: the larger half of `export_lint.py`.

Three passes, each over what the one before left: every message by itself; which result belongs to
which call; how it ends. A mend never changes what a message says. It renames, joins, moves, drops
what no trainer takes, or takes an answer out of training with weight 0. What cannot be mended so
costs the line: `Lost`. Paths name places in the line as it was handed over, findings no content.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentstate.ground.canonical import JSON, Number, encode
from agentstate.ground.errors import BadRequest
from agentstate.house.export_base import Finding

Message = dict[str, JSON]

_KEYS: Mapping[str, tuple[str, ...]] = {
    "system": ("role", "content"),
    "user": ("role", "content"),
    "assistant": ("role", "content", "tool_calls", "weight"),
    "tool": ("role", "content", "tool_call_id"),
}
_PART_KEYS: Mapping[str, tuple[str, ...]] = {
    "image_url": ("type", "image_url"),
    "input_audio": ("type", "input_audio"),
    "file": ("type", "file"),
}


class Lost(Exception):
    """The line cannot be saved; the last finding says why."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a form wants of a list of messages."""

    ends: Literal["answer", "prompt", "one"]
    # answer  with one, which may call tools           prompt  before one: all calls have results
    # one     it is one answer and nothing else
    arguments: Literal["text", "object"] = "text"
    has_weights: bool = False


class Notes:
    """The findings of one line, in the order in which they were made."""

    def __init__(self, known: Sequence[Finding] = ()) -> None:
        self.findings = list(known)

    def mended(self, code: str, path: str, message: str) -> None:
        """Note what was mended."""
        self.findings.append(Finding(code, path, message, True))

    def seen(self, code: str, path: str, message: str) -> None:
        """Note what was left as it was."""
        self.findings.append(Finding(code, path, message, False))

    def lost(self, code: str, path: str, message: str) -> Lost:
        """Note what cannot be mended; raise what this returns."""
        self.seen(code, path, message)
        return Lost(code)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A message and where it stood."""

    path: str
    message: Message

    @property
    def role(self) -> JSON:
        return self.message["role"]

    @property
    def calls(self) -> list[Message]:
        """Its tool calls; those of this very message."""
        calls = self.message.get("tool_calls")
        assert calls is None or isinstance(calls, list), "the first pass made it so"
        return [call for call in calls or () if isinstance(call, dict)]


def lint_messages(messages: JSON, path: str, rules: Rules, notes: Notes) -> list[Message]:
    """Return the messages as the form wants them.

    Raises:
        Lost: there is no such form of them.
    """
    if not isinstance(messages, list):
        raise notes.lost("no_messages", path, "Expected a list of messages.")
    placed = [
        mended
        for at, message in enumerate(messages)
        if (mended := _lint_message(message, f"{path}[{at}]", rules, notes)) is not None
    ]
    if rules.ends != "prompt":
        placed = _cut_after_answer(placed, notes)
        if not placed:
            raise notes.lost("no_answer", path, "There is no message of the assistant.")
    placed = list(_with_results(placed, rules, notes))
    if rules.ends == "one" and len(placed) != 1:
        raise notes.lost("not_one_answer", path, "Expected one message of the assistant.")
    if rules.ends != "one" and all(each.role == "assistant" for each in placed):
        if rules.ends == "prompt":
            raise notes.lost("no_prompt", path, "Nothing asks for the answer.")
        notes.seen("no_prompt", path, "Nothing asks for the answer.")
    if rules.has_weights and all(
        each.message.get("weight") == 0 for each in placed if each.role == "assistant"
    ):
        raise notes.lost("nothing_trained", path, "Every answer in it has weight 0.")
    return [each.message for each in placed]


# --- one message ----------------------------------------------------------------------------------


def _lint_message(value: JSON, path: str, rules: Rules, notes: Notes) -> _Placed | None:
    """Return a message mended; None = it says nothing."""
    if not isinstance(value, dict):
        raise notes.lost("message_type", path, "A message is an object.")
    message = dict(value)
    if message.get("role") == "developer":
        message["role"] = "system"
        notes.mended("role_renamed", path, "A developer's message is the system's.")
    role = message.get("role")
    if not isinstance(role, str) or role not in _KEYS:
        raise notes.lost("role_unknown", path, f"The role is none of {', '.join(_KEYS)}.")
    for key in [key for key in message if key not in _KEYS[role]]:
        del message[key]
        notes.mended("key_removed", path, f"A message of the {role} has no such key.")
    _lint_content(message, role, path, notes)
    if role == "assistant":
        _lint_calls(message, path, rules, notes)
        _lint_weight(message, path, rules, notes)
        if not message.get("content") and not message.get("tool_calls"):
            notes.mended("answer_empty", path, "It has neither content nor calls: left out.")
            return None
    elif role == "user" and not message["content"]:
        notes.mended("message_empty", path, "It has no content: left out.")
        return None
    return _Placed(path, message)


def _lint_content(message: Message, role: str, path: str, notes: Notes) -> None:
    """Make the content a text; of a user with pictures, a list of parts; of an answer that calls
    tools, null where there is none."""
    content, where = message.get("content"), f"{path}.content"
    match content:
        case str():
            return
        case list():
            parts = [part for at, part in _parts(content, role, where, notes)]
            if all(isinstance(part, str) for part in parts):
                message["content"] = "\n".join(part for part in parts if isinstance(part, str))
                notes.mended("content_joined", where, "Parts of text are one text.")
            else:
                message["content"] = [
                    {"type": "text", "text": part} if isinstance(part, str) else part
                    for part in parts
                ]
        case None if role == "assistant":
            if "content" not in message:
                notes.mended("content_missing", path, "Content that is not there is null.")
            # In its place, as if it had been there.
            rest = {key: value for key, value in message.items() if key not in ("role", "content")}
            message.clear()
            message.update({"role": role, "content": None, **rest})
        case None:
            message["content"] = ""
            notes.mended("content_missing", path, "Content that is not there is empty.")
        case _:
            raise notes.lost("content_type", where, "Content is a text or a list of parts.")


def _parts(
    content: Sequence[JSON], role: str, path: str, notes: Notes
) -> Iterator[tuple[int, str | Message]]:
    """Yield what a list of parts says: texts, and of a user's the other parts as they are."""
    for at, part in enumerate(content):
        where = f"{path}[{at}]"
        if not isinstance(part, dict):
            raise notes.lost("content_type", where, "A part of a content is an object.")
        kind = part.get("type")
        said = part.get("refusal" if kind == "refusal" else "text")
        if kind in ("text", "refusal") and isinstance(said, str):
            yield at, said
        elif role == "user" and isinstance(kind, str) and kind in _PART_KEYS:
            yield at, {key: part[key] for key in _PART_KEYS[kind] if key in part}
        else:
            notes.mended("part_removed", where, f"A message of the {role} has no such part.")


def _lint_weight(message: Message, path: str, rules: Rules, notes: Notes) -> None:
    if "weight" not in message:
        return
    weight = message["weight"]
    is_known = isinstance(weight, int) and not isinstance(weight, bool) and weight in (0, 1)
    if not (rules.has_weights and is_known):
        del message["weight"]
        notes.mended("weight_removed", path, "There is no such weight in this form.")


def _lint_calls(message: Message, path: str, rules: Rules, notes: Notes) -> None:
    if "tool_calls" not in message:
        return
    calls = message["tool_calls"]
    if calls is None or calls == []:
        del message["tool_calls"]
        notes.mended("key_removed", path, "It makes no calls.")
        return
    if not isinstance(calls, list):
        raise notes.lost("calls_type", path, "Calls are a list.")
    message["tool_calls"] = [
        _lint_call(call, f"{path}.tool_calls[{at}]", rules, notes) for at, call in enumerate(calls)
    ]


def _lint_call(value: JSON, path: str, rules: Rules, notes: Notes) -> Message:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(function, dict):
        raise notes.lost("call_type", path, "A call has a function.")
    kind = value.get("type", "function")
    if kind != "function":
        raise notes.lost("call_type", path, "A call is of type function.")
    call_id, name = value.get("id"), function.get("name")
    if not isinstance(call_id, str) or not call_id:
        raise notes.lost("call_id", path, "A call has an id.")
    if not isinstance(name, str) or not name:
        raise notes.lost("call_name", path, "A call names its tool.")
    has_all = "type" in value and set(value) <= {"id", "type", "function"}
    if not has_all or not set(function) <= {"name", "arguments"}:
        notes.mended("call_keys", path, "A call has an id, a type and a function, nothing else.")
    arguments = _lint_arguments(function.get("arguments"), path, rules, notes)
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


# --- arguments ------------------------------------------------------------------------------------


def _refuse(constant: str) -> JSON:
    # Whatever stood for NaN or an infinity would say something else.
    raise ValueError(constant)


# JSON as models write it, with line feeds in its strings.
_LENIENT = json.JSONDecoder(strict=False, parse_float=Number, parse_constant=_refuse)


def _lint_arguments(value: JSON, path: str, rules: Rules, notes: Notes) -> JSON:
    where = f"{path}.function.arguments"
    is_text = isinstance(value, str)
    if value is None or (isinstance(value, str) and not value.strip()):
        notes.mended("arguments_empty", where, "No arguments are an empty object.")
        value, is_text = {}, rules.arguments == "text"
    elif isinstance(value, str):
        try:
            # An integer of more than 4,300 digits a trainer in Python cannot read either.
            read: JSON = _LENIENT.decode(value)
            if not _is_strict(value):
                notes.mended("arguments_rewritten", where, "They are written as JSON has them.")
            elif rules.arguments == "text":
                if not isinstance(read, dict):
                    notes.seen("arguments_type", where, "Arguments are mostly an object.")
                return value
            value = read
        except (ValueError, RecursionError):
            raise notes.lost("arguments_json", where, "The arguments are no JSON.") from None
    if is_text != (rules.arguments == "text"):
        notes.mended("arguments_form", where, f"Arguments are {rules.arguments} in this form.")
    if rules.arguments == "object":
        if not isinstance(value, dict):
            raise notes.lost("arguments_type", where, "Arguments are an object in this form.")
        return value
    try:
        return encode(value).decode("ascii")
    except BadRequest:
        raise notes.lost("arguments_json", where, "They are nested too deeply.") from None


def _is_strict(text: str) -> bool:
    """Say whether a text that could be read has no raw control characters in its strings."""
    try:
        _STRICT.decode(text)
    except ValueError:
        return False
    return True


_STRICT = json.JSONDecoder(parse_float=str, parse_int=str)


# --- calls and their results ----------------------------------------------------------------------


def _cut_after_answer(placed: Sequence[_Placed], notes: Notes) -> list[_Placed]:
    """Leave out what comes after the last answer: nothing was said to it."""
    end = len(placed)
    while end and placed[end - 1].role != "assistant":
        end -= 1
    if end < len(placed):
        notes.mended("end_cut", placed[end].path, "What follows the last answer is left out.")
    return list(placed[:end])


def _with_results(placed: Sequence[_Placed], rules: Rules, notes: Notes) -> Iterator[_Placed]:
    """Yield the messages so that the results of calls follow the message that makes them, one for
    each; calls and results that have no counterpart are left out."""
    at = 0
    while at < len(placed):
        first = placed[at]
        end = at + 1
        while end < len(placed) and placed[end].role != "assistant":
            end += 1
        between = placed[at + (first.role == "assistant") : end]
        is_end = rules.ends != "prompt" and end == len(placed) and first.role == "assistant"
        waiting = _number_calls(first, notes)
        results, others = _sort_out(between, waiting, notes)
        if first.role == "assistant":
            left = set() if is_end else {one for ids in waiting.values() for one in ids}
            if (kept := _without_calls(first, left, rules, notes)) is not None:
                yield kept
        yield from results
        yield from others
        at = end


def _number_calls(first: _Placed, notes: Notes) -> dict[str, deque[str]]:
    """Return, by the id that results bear, the ids of the calls that wait for one, in order.

    Some models give two calls of a message one id: the later ones get another.
    """
    waiting: dict[str, deque[str]] = defaultdict(deque)
    calls = first.calls
    taken = {call["id"] for call in calls}
    for at, call in enumerate(calls):
        sent = call["id"]
        assert isinstance(sent, str), "the first pass made it so"
        if sent in waiting:
            number = 2
            while f"{sent}_{number}" in taken:
                number += 1
            call["id"] = f"{sent}_{number}"
            taken.add(call["id"])
            notes.mended("call_id_twice", f"{first.path}.tool_calls[{at}]", "It gets its own id.")
        own = call["id"]
        assert isinstance(own, str), "it was made of one"
        waiting[sent].append(own)
    return waiting


def _sort_out(
    between: Sequence[_Placed], waiting: Mapping[str, deque[str]], notes: Notes
) -> tuple[list[_Placed], list[_Placed]]:
    """Return the results among messages, and the rest; takes what has a result out of `waiting`."""
    results: list[_Placed] = []
    others: list[_Placed] = []
    for each in between:
        if each.role != "tool":
            others.append(each)
            continue
        call_id = each.message.get("tool_call_id")
        ids = waiting.get(call_id) if isinstance(call_id, str) else None
        if ids is None:
            notes.mended("result_without_call", each.path, "No call of it is before it: left out.")
        elif not ids:
            notes.mended("result_twice", each.path, "The call has a result already: left out.")
        else:
            if others:
                notes.mended("result_late", each.path, "It is moved to its call.")
            results.append(_Placed(each.path, {**each.message, "tool_call_id": ids.popleft()}))
    return results, others


def _without_calls(first: _Placed, left: set[str], rules: Rules, notes: Notes) -> _Placed | None:
    """Return an answer without calls that have no result; it is context then, and no example."""
    if not left:
        return first
    message = dict(first.message)
    kept: list[JSON] = []
    for at, call in enumerate(first.calls):
        if call["id"] in left:
            where = f"{first.path}.tool_calls[{at}]"
            notes.mended("call_without_result", where, "It has no result: left out.")
        else:
            kept.append(call)
    if kept:
        message["tool_calls"] = kept
    else:
        del message["tool_calls"]
        if not message.get("content"):
            return None
    if rules.has_weights:
        message["weight"] = 0
    return _Placed(first.path, message)
