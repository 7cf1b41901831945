"""Guarded calls in OpenAI's chat form and in text completions, as the gate's fuzz tests write them.

The spellings are those of upstreams that are called compatible: pieces without an index or an id,
names in two, names last, objects for arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.steps.gate_parts import (
    EDITED,
    NEXT,
    SCHEMA,
    TOOL,
    Case,
    Choices,
    Part,
    Raw,
    Script,
    Use,
    Writer,
    data,
    groups_of,
    pieces_of,
    side_by_side,
    take_turns,
    text_of,
    uses_of,
    write_case,
)

DONE = b"data: [DONE]\n\n"
_HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_BODY_HEAD = {**_HEAD, "object": "chat.completion"}
_USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}

Piece = dict[str, Any]
Form = Callable[[Use, int, Script], list[Piece]]  # a call, its place, how → its pieces


# --- the pieces of one call -----------------------------------------------------------------------


def _piece(at: int, *, call_id: str | None = None, **function: Any) -> Piece:
    piece: Piece = {"index": at, "function": function}
    return piece if call_id is None else {**piece, "id": call_id, "type": "function"}


def _by_the_book(use: Use, at: int, script: Script) -> list[Piece]:
    rest = [_piece(at, arguments=piece) for piece in script.cut(use.text)]
    return [_piece(at, call_id=f"call_{at}", name=use.name, arguments=""), *rest]


def _in_one(use: Use, at: int, script: Script) -> list[Piece]:
    return [_piece(at, call_id=f"call_{at}", name=use.name, arguments=use.text)]


def _as_object(use: Use, at: int, script: Script) -> list[Piece]:
    return [_piece(at, call_id=f"call_{at}", name=use.name, arguments=use.arguments)]


def _in_two(use: Use, at: int, script: Script) -> list[Piece]:
    first, second = split_name(use.name, script.split)
    opened, *rest = _by_the_book(use, at, script)
    opened = {**opened, "function": {"name": first, "arguments": ""}}
    return [opened, _piece(at, name=second), *rest]


def _by_letter(use: Use, at: int, script: Script) -> list[Piece]:
    first, second = split_name(use.name, 0.0)
    opened, *rest = _by_the_book(use, at, script)
    opened = {**opened, "function": {"name": first, "arguments": ""}}
    return [opened, *(_piece(at, name=letter) for letter in second), *rest]


def _named_again(use: Use, at: int, script: Script) -> list[Piece]:
    pieces = _by_the_book(use, at, script)
    return [{**each, "function": {**each["function"], "name": use.name}} for each in pieces]


def _blank_again(use: Use, at: int, script: Script) -> list[Piece]:
    opened, *rest = _by_the_book(use, at, script)
    blank = {"id": "", "type": None}
    return [
        opened,
        *({**each, **blank, "function": {**each["function"], "name": None}} for each in rest),
    ]


def _blank_first(use: Use, at: int, script: Script) -> list[Piece]:
    opened, *rest = _by_the_book(use, at, script)
    blank = {**opened, "function": {"name": "", "arguments": ""}}
    return [blank, _piece(at, name=use.name), *rest]


def _named_last(use: Use, at: int, script: Script) -> list[Piece]:
    first, *rest = script.cut(use.text)
    later = [_piece(at, arguments=piece) for piece in rest]
    return [_piece(at, arguments=first), *later, _piece(at, name=use.name)]


def _named_last_with_id(use: Use, at: int, script: Script) -> list[Piece]:
    first, *rest = _named_last(use, at, script)
    return [{**first, "id": f"call_{at}", "type": "function"}, *rest]


def _custom(use: Use, at: int, script: Script) -> list[Piece]:
    opened = {"index": at, "id": f"call_{at}", "type": "custom"}
    rest = [{"index": at, "custom": {"input": piece}} for piece in script.cut(use.free_text)]
    return [{**opened, "custom": {"name": use.name, "input": ""}}, *rest]


def _lacking(form: Form, *keys: str) -> Form:
    def write(use: Use, at: int, script: Script) -> list[Piece]:
        pieces = form(use, at, script)
        return [{key: each[key] for key in each if key not in keys} for each in pieces]

    return write


def _one_id(use: Use, at: int, script: Script) -> list[Piece]:
    return [{**each, "id": "call_0"} for each in _by_the_book(use, at, script)]


def _one_index(use: Use, at: int, script: Script) -> list[Piece]:
    pieces = _by_the_book(use, at, script)
    return [{**each, "index": 0, "id": f"call_{at}"} for each in pieces]


FORMS: dict[str, Form] = {
    "by the book": _by_the_book,
    "in one piece": _in_one,
    "object for arguments": _as_object,
    "name in two": _in_two,
    "name by letter": _by_letter,
    "name with every piece": _named_again,
    "null name and empty id with every piece": _blank_again,
    "empty name first": _blank_first,
    "arguments before the name": _named_last_with_id,
    "arguments before the name, no id": _named_last,
    "custom tool": _custom,
    "no type": _lacking(_by_the_book, "type"),
}
# Of these, other calls of the answer come so as well: who writes no index writes none at all.
FORMS_OF_ALL: dict[str, Form] = {
    "no index": _lacking(_by_the_book, "index"),
    "no index, in one piece": _lacking(_in_one, "index"),
    "no id": _lacking(_by_the_book, "id"),
    "neither index nor id": _lacking(_by_the_book, "index", "id"),
    "one id for all": _one_id,
    "one index for all": _one_index,
}
# Of these, the pieces of several calls can come side by side.
_SIDE_BY_SIDE = frozenset(
    ("by the book", "name with every piece", "empty name first", "custom tool", "no type", "no id")
)
LEGACY = "function_call"
TOGETHER = "all in one delta"


def split_name(name: str, share: float) -> tuple[str, str]:
    """Cut a name in two within its last segment: before that it cannot be told from any other."""
    begin = max(1, *(name.rfind(mark) + len(mark) for mark in ("__", ".", "/", "srv:")))
    at = begin + int(share * (len(name) - 1 - begin))
    return name[:at], name[at:]


# --- chat -----------------------------------------------------------------------------------------


def chat_writer(form: str) -> Writer:
    """Return what writes chat answers with guarded calls of this form."""

    def write(choices: Choices, script: Script) -> Case:
        queues = [_chunks(index, parts, form, script) for index, parts in enumerate(choices)]
        raws: list[Raw] = list(take_turns(queues, script.turns))
        if script.has_usage:
            raws.append((data({**_HEAD, "choices": [], "usage": _USAGE}), False))
        if script.ends:
            raws.append((DONE, False))
        whole = [_whole_choice(index, parts, form) for index, parts in enumerate(choices)]
        message = {"role": "assistant", "content": NEXT}
        last = {"index": 0, "message": message, "finish_reason": "stop"}
        return write_case(
            "/v1/chat/completions",
            _request(script, len(choices), form),
            raws,
            json.dumps({**_BODY_HEAD, "choices": whole, "usage": _USAGE}).encode(),
            choices,
            script,
            edited=EDITED if form == "custom tool" else json.dumps({"table": EDITED}),
            follow=json.dumps({**_BODY_HEAD, "choices": [last]}).encode(),
        )

    return write


def _request(script: Script, count: int, form: str) -> dict[str, Any]:
    request: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "go on"}]}
    function = {"name": TOOL, "parameters": SCHEMA}
    if script.offers and form == LEGACY:
        request["functions"] = [function]
    elif script.offers and form == "custom tool":
        request["tools"] = [{"type": "custom", "custom": {"name": TOOL}}]
    elif script.offers:
        request["tools"] = [{"type": "function", "function": function}]
    return {**request, "n": count} if count > 1 else request


def _chunks(index: int, parts: Sequence[Part], form: str, script: Script) -> list[Raw]:
    """Return the events of one choice."""
    deltas = list(_deltas(parts, form, script))
    if form == TOGETHER:
        deltas = [_merged(deltas)]
    if not script.joins_end:
        deltas.append(({}, False))
    reasons: list[str | None] = [None] * len(deltas)
    reasons[-1] = "tool_calls" if uses_of(parts) else "stop"
    raws: list[Raw] = []
    for (delta, shows), reason in zip(deltas, reasons, strict=True):
        choice = {"index": index, "delta": delta, "finish_reason": reason}
        raws.append((data({**_HEAD, "choices": [choice]}), shows))
    return raws


def _deltas(parts: Sequence[Part], form: str, script: Script) -> Iterator[tuple[Piece, bool]]:
    yield {"role": "assistant", "content": ""}, False
    waiting: list[list[tuple[Piece, bool]]] = []  # calls that follow one another
    turns = script.turns if form in _SIDE_BY_SIDE else ()
    at = 0
    for group in groups_of(parts):
        if isinstance(group, Use) and not (form == LEGACY and group.secret):
            plain = FORMS_OF_ALL.get(form, _by_the_book)
            write = FORMS.get(form, plain) if group.secret else plain
            pieces = write(group, at, script)
            waiting.append([({"tool_calls": [each]}, bool(group.secret)) for each in pieces])
            at += 1
            continue
        yield from side_by_side(waiting, turns)
        waiting = []
        if isinstance(group, Use):
            first, *rest = script.cut(group.text)
            yield {"function_call": {"name": group.name, "arguments": first}}, True
            yield from (({"function_call": {"arguments": each}}, True) for each in rest)
        else:
            yield from (({"content": each}, shows) for each, shows in pieces_of(group, script.cut))
    yield from side_by_side(waiting, turns)


def _merged(deltas: Sequence[tuple[Piece, bool]]) -> tuple[Piece, bool]:
    """Put texts and calls into one delta."""
    text = "".join(delta.get("content") or "" for delta, _ in deltas)
    calls = [call for delta, _ in deltas for call in delta.get("tool_calls", ())]
    return {"role": "assistant", "content": text, "tool_calls": calls}, True


def _whole_choice(index: int, parts: Sequence[Part], form: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text_of(parts) or None}
    uses = uses_of(parts)
    native = [use for use in uses if not (form == LEGACY and use.secret)]
    if native:
        message["tool_calls"] = [_whole_call(use, at, form) for at, use in enumerate(native)]
    for use in uses:
        if use not in native:
            message["function_call"] = {"name": use.name, "arguments": use.text}
    reason = "tool_calls" if uses else "stop"
    return {"index": index, "message": message, "finish_reason": reason}


def _whole_call(use: Use, at: int, form: str) -> dict[str, Any]:
    if form == "custom tool" and use.secret:
        named = {"name": use.name, "input": use.free_text}
        return {"id": f"call_{at}", "type": "custom", "custom": named}
    arguments = use.arguments if form == "object for arguments" and use.secret else use.text
    call = {"type": "function", "function": {"name": use.name, "arguments": arguments}}
    if form in ("no id", "neither index nor id"):
        return call
    return {"id": "call_0" if form == "one id for all" else f"call_{at}", **call}


# --- text completions -----------------------------------------------------------------------------

_TEXT_HEAD = {"id": "cmpl_1", "object": "text_completion", "created": 1, "model": "m"}


def write_completions(choices: Choices, script: Script) -> Case:
    """Write text completions: all calls of theirs are spelled."""
    queues: list[list[Raw]] = []
    whole: list[dict[str, Any]] = []
    for index, parts in enumerate(choices):
        pieces = pieces_of(parts, script.cut)
        if not script.joins_end:
            pieces.append(("", False))
        entries: list[dict[str, Any]] = [
            {"index": index, "text": piece, "logprobs": None, "finish_reason": None}
            for piece, _ in pieces
        ]
        entries[-1]["finish_reason"] = "stop"
        whole.append({**entries[-1], "text": text_of(parts)})
        queues.append(
            [
                (data({**_TEXT_HEAD, "choices": [entry]}), shows)
                for entry, (_, shows) in zip(entries, pieces, strict=True)
            ]
        )
    raws = [*take_turns(queues, script.turns), *([(DONE, False)] if script.ends else [])]
    request: dict[str, Any] = {"model": "m", "prompt": f"You may call {TOOL}.\n"}
    last = {"index": 0, "text": NEXT, "logprobs": None, "finish_reason": "stop"}
    return write_case(
        "/v1/completions",
        {**request, "n": len(choices)} if len(choices) > 1 else request,
        raws,
        json.dumps({**_TEXT_HEAD, "choices": whole}).encode(),
        choices,
        script,
        edited=None,
        follow=json.dumps({**_TEXT_HEAD, "choices": [last]}).encode(),
    )
