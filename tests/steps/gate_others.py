"""Guarded calls in Anthropic's Messages form and in Gemini's own, as the gate's fuzz tests write
them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.dialects import samples_anthropic as messages
from tests.dialects import samples_gemini as gemini
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
    groups_of,
    pieces_of,
    take_turns,
    text_of,
    uses_of,
    write_case,
)

# --- Messages -------------------------------------------------------------------------------------

IN_START = "in the start of the message"
NO_START = "no start"
MESSAGES_FORMS = (
    "by the book",
    "whole input",
    "a type nobody knows",
    "a block without a type",
    "events named by their frames",
    "no stop",
    IN_START,
)


def messages_writer(form: str) -> Writer:
    """Return what writes Messages with guarded calls of this form."""

    def write(choices: Choices, script: Script) -> Case:
        (parts,) = choices
        content: list[dict[str, Any]] = []
        opening: list[dict[str, Any]] = []
        raws: list[Raw] = []
        for group in groups_of(parts):
            at = len(content)
            if not isinstance(group, Use):
                content.append({"type": "text", "text": text_of(group)})
                raws += _text_events(group, at, script)
                continue
            own = form if group.secret else ""
            content.append(_block(group, at, own))
            if own == IN_START and at == len(opening):
                opening.append(content[-1])
            else:
                raws += [(raw, bool(group.secret)) for raw in _call_events(group, at, own, script)]
        reason = "tool_use" if uses_of(parts) else "end_turn"
        started = (messages.start(content=opening), bool(opening))
        request: dict[str, Any] = {
            "model": "claude-x",
            "max_tokens": 64,
            "messages": [{"role": "user", "content": "go on"}],
        }
        if script.offers:
            request["tools"] = [{"name": TOOL, "input_schema": SCHEMA}]
        return write_case(
            "/v1/messages",
            request,
            [started, *raws, (messages.end(reason), False), (messages.STOP, False)],
            messages.body(*content, reason=reason),
            choices,
            script,
            edited=json.dumps({"table": EDITED}),
            follow=messages.body({"type": "text", "text": NEXT}),
            goes_on=form != NO_START,  # the call has no id that a result could name
        )

    return write


def _block(use: Use, at: int, form: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"call_{at}", "name": use.name, "input": use.arguments}
    match form:
        case "a type nobody knows":
            return {**block, "type": "x_tool_use"}
        case "a block without a type":
            return {key: block[key] for key in block if key != "type"}
        case "no start":
            return {"type": "tool_use", "input": use.arguments}
    return block


def _call_events(use: Use, at: int, form: str, script: Script) -> Sequence[bytes]:
    block = _block(use, at, form)
    deltas = [
        {"type": "input_json_delta", "partial_json": piece} for piece in ("", *script.cut(use.text))
    ]
    events = messages.block(at, {**block, "input": {}}, *deltas)
    match form:
        case "whole input" | "a block without a type":
            return messages.block(at, block)
        case "events named by their frames":
            return [_without_type(raw) for raw in events]
        case "no stop":
            return events[:-1]
        case "no start":
            return events[1:]
    return events


def _without_type(raw: bytes) -> bytes:
    head, _, value = raw.partition(b"data: ")
    event = json.loads(value)
    del event["type"]
    return head + b"data: " + json.dumps(event).encode() + b"\n\n"


def _text_events(texts: Sequence[Part], at: int, script: Script) -> list[Raw]:
    pieces = pieces_of(texts, script.cut)
    opened, *deltas, stopped = messages.text_block(at, *(piece for piece, _ in pieces))
    shown = [shows for _, shows in pieces]
    return [(opened, False), *zip(deltas, shown, strict=True), (stopped, shown[-1])]


# --- Gemini ---------------------------------------------------------------------------------------

BESIDE_TEXT = "beside a text"
GEMINI_FORMS = ("by the book", "snake case", "no id", "arguments in pieces", BESIDE_TEXT)


def gemini_writer(form: str) -> Writer:
    """Return what writes Gemini's answers with guarded calls of this form."""

    def write(choices: Choices, script: Script) -> Case:
        queues: list[list[Raw]] = []
        whole: list[dict[str, Any]] = []
        for index, parts in enumerate(choices):
            at = {"index": index} if index else {}  # left out where it is 0
            shown = _shown_parts(parts, form, script)
            every = [part for group, _ in shown for part in group]
            whole.append(gemini.candidate(*every, reason="STOP", **at))
            if not script.joins_end:
                shown.append(([{"text": ""}], False))
            reasons: list[str | None] = [None] * len(shown)
            reasons[-1] = "STOP"
            queues.append(
                [
                    (gemini.event(gemini.candidate(*group, reason=reason, **at)), shows)
                    for (group, shows), reason in zip(shown, reasons, strict=True)
                ]
            )
        raws: list[Raw] = list(take_turns(queues, script.turns))
        if script.has_usage:
            raws.append((gemini.event(usageMetadata=gemini.USAGE), False))
        request: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "go on"}]}]}
        if script.offers:
            declared = {"name": TOOL, "parametersJsonSchema": SCHEMA}
            request["tools"] = [{"functionDeclarations": [declared]}]
        if len(choices) > 1:
            request["generationConfig"] = {"candidateCount": len(choices)}
        return write_case(
            "/v1beta/models/gemini-x:generateContent",
            request,
            raws,
            gemini.body(*whole),
            choices,
            script,
            edited=json.dumps({"table": EDITED}),
            follow=gemini.body(gemini.candidate({"text": NEXT}, reason="STOP")),
            stream_path="/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        )

    return write


def _shown_parts(
    parts: Sequence[Part], form: str, script: Script
) -> list[tuple[list[dict[str, Any]], bool]]:
    """Return the parts of one candidate, by event."""
    shown: list[tuple[list[dict[str, Any]], bool]] = []
    for at, group in enumerate(groups_of(parts)):
        if isinstance(group, Use):
            own = _function_calls(group, at, form if group.secret else "")
            shown += [([part], bool(group.secret)) for part in own]
        else:
            shown += [([{"text": each}], shows) for each, shows in pieces_of(group, script.cut)]
    if form == BESIDE_TEXT:
        return [([part for group, _ in shown for part in group], any(each for _, each in shown))]
    return shown or [([{"text": ""}], False)]


def _function_calls(use: Use, at: int, form: str) -> list[dict[str, Any]]:
    call: dict[str, Any] = {"id": f"call_{at}", "name": use.name, "args": use.arguments}
    match form:
        case "snake case":
            return [{"function_call": call}]
        case "no id":
            return [{"functionCall": {"name": use.name, "args": use.arguments}}]
        case "arguments in pieces":
            piece = {"jsonPath": "$.table", "stringValue": use.secret}
            return [
                {"functionCall": {"id": f"call_{at}", "name": use.name, "willContinue": True}},
                {"functionCall": {"partialArgs": [piece], "willContinue": True}},
                {"functionCall": {}},
            ]
    return [{"functionCall": call, "thoughtSignature": "c2ln"}]
