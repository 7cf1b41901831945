"""Guarded calls in OpenAI's Responses form, as the gate's fuzz tests write them.

Every kind of call that the client runs, shown by every choice of the events that show one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.dialects import samples_responses as sample
from tests.steps.gate_parts import (
    EDITED,
    NEXT,
    SCHEMA,
    TOOL,
    Case,
    Choices,
    Cut,
    Part,
    Script,
    Use,
    Writer,
    groups_of,
    pieces_of,
    side_by_side,
    text_of,
    whole,
    write_case,
)

Named = tuple[str, dict[str, Any]]  # an event by name
Shown = tuple[Named, bool]  # and whether it shows part of a guarded call

# By kind of call, new arguments that fit; None = they cannot be edited.
KINDS: dict[str, str | None] = {
    "function_call": json.dumps({"table": EDITED}),
    "custom_tool_call": EDITED,
    "mcp_approval_request": None,
    "local_shell_call": json.dumps({"type": "exec", "command": [EDITED], "env": {}}),
    "shell_call": json.dumps({"commands": [EDITED]}),
    "apply_patch_call": json.dumps({"type": "delete_file", "path": EDITED}),
    "computer_call": json.dumps({"type": "type", "text": EDITED}),
}
# The kinds that say their tool's name; of the others the type is the name.
NAMED_KINDS = ("function_call", "custom_tool_call", "mcp_approval_request")
# What a rule may call the others.
BUILT_IN = ("local_shell", "shell_call", "apply_patch_call", "computer_call")

# Which of the events that show a call come, and whether the last event shows it again.
FORMS: dict[str, frozenset[str]] = {
    "by the book": frozenset(("added", "deltas", "done", "end")),
    "no deltas": frozenset(("added", "done", "end")),
    "added whole": frozenset(("whole", "done", "end")),
    "no added": frozenset(("deltas", "done", "end")),
    "done alone": frozenset(("done",)),
    "the end alone": frozenset(("end",)),
    "no output at the end": frozenset(("added", "deltas", "done")),
    "deltas, then the end": frozenset(("deltas", "end")),
    "a list before the end": frozenset(("listed", "done", "end")),
}
# What an item lacks while it is being made.
_BLANK: dict[str, dict[str, Any]] = {
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
    "mcp_approval_request": {"arguments": ""},
    "shell_call": {"action": {"commands": []}},
}


def has_form(kind: str, form: str) -> bool:
    """Say whether calls of a kind can come so: not all have deltas."""
    return form != "deltas, then the end" or bool(_deltas(_item(Use(TOOL), 0, kind), 0, whole))


def responses_writer(kind: str, form: str) -> Writer:
    """Return what writes responses with guarded calls of this kind in this form."""

    def write(choices: Choices, script: Script) -> Case:
        (parts,) = choices
        output: list[dict[str, Any]] = []
        final: list[dict[str, Any]] = []
        shown: list[Shown] = []
        waiting: list[list[Shown]] = []  # calls that follow one another
        for group in groups_of(parts):
            place = len(output)
            if isinstance(group, Use):
                item = _item(group, place, kind if group.secret else "function_call")
                wanted = FORMS[form] if group.secret else FORMS["by the book"]
                named = _call_events(item, place, wanted, output, script)
                if named:
                    waiting.append([(each, bool(group.secret)) for each in named])
            else:
                item = sample.message(sample.part(text_of(group)), id=f"msg_{place}")
                shown += side_by_side(waiting, script.turns)
                waiting = []
                shown += _text_events(group, item, place, script)
            output.append(item)
            if not (isinstance(group, Use) and group.secret) or "end" in FORMS[form]:
                final.append(item)
        shown += side_by_side(waiting, script.turns)
        end = sample.end(*(final if "end" in FORMS[form] else ()))
        events = sample.stream(*(each for each, _ in shown), end)
        flags = [False, False, *(each for _, each in shown), True]
        return write_case(
            "/v1/responses",
            _request(kind, script),
            zip(events, flags, strict=True),
            sample.body(*output),
            choices,
            script,
            edited=KINDS[kind],
            follow=sample.body(sample.message(sample.part(NEXT)), id="resp_2"),
            goes_on=kind != "computer_call",  # a screenshot cannot say that something was refused
        )

    return write


def _request(kind: str, script: Script) -> dict[str, Any]:
    request: dict[str, Any] = {"model": "m", "input": [{"role": "user", "content": "go on"}]}
    if script.offers:
        tool: dict[str, Any] = {"type": "function", "name": TOOL, "parameters": SCHEMA}
        if kind == "custom_tool_call":
            tool = {"type": "custom", "name": TOOL}
        request["tools"] = [tool]
    return request


def _item(use: Use, at: int, kind: str) -> dict[str, Any]:
    """Return a call as the item at a place."""
    secret, head = use.secret, {"call_id": f"call_{at}"}
    match kind:
        case "custom_tool_call":
            head |= {"id": f"ctc_{at}", "name": use.name, "input": use.free_text}
            return {**sample.CUSTOM_CALL, **head}
        case "mcp_approval_request":
            named = {"id": f"mcpr_{at}", "name": use.name, "arguments": use.text}
            return {**sample.MCP_APPROVAL, **named}
        case "local_shell_call":
            action: dict[str, Any] = {"type": "exec", "command": ["rm", secret], "env": {}}
            return {**sample.LOCAL_SHELL, **head, "id": f"lsh_{at}", "action": action}
        case "shell_call":
            action = {"commands": [f"rm {secret}"], "timeout_ms": 1000}
            return {**sample.SHELL, **head, "id": f"sh_{at}", "action": action}
        case "apply_patch_call":
            operation = {"type": "delete_file", "path": secret}
            return {**sample.APPLY_PATCH, **head, "id": f"apc_{at}", "operation": operation}
        case "computer_call":
            action = {"type": "type", "text": secret}
            return {**sample.COMPUTER, **head, "id": f"cu_{at}", "action": action}
    return sample.call(at, name=use.name, arguments=use.text)


def _call_events(
    item: dict[str, Any],
    place: int,
    wanted: frozenset[str],
    before: Sequence[dict[str, Any]],
    script: Script,
) -> list[Named]:
    events: list[Named] = []
    if "added" in wanted:
        blank = {**item, **_BLANK.get(item["type"], {}), "status": "in_progress"}
        events.append(sample.added(place, blank))
    if "whole" in wanted:
        events.append(sample.added(place, item))
    if "listed" in wanted:
        listed = {**sample.HEAD, "output": [*before, item]}
        events.append(("response.in_progress", {"response": listed}))
    if "deltas" in wanted:
        events += _deltas(item, place, script.cut)
    if "done" in wanted:
        events.append(sample.done(place, item))
    return events


def _deltas(item: dict[str, Any], place: int, cut: Cut) -> list[Named]:
    """Return the events that show a call in pieces; those of a patch are of no known form."""
    at: dict[str, Any] = {"output_index": place, "item_id": item["id"]}
    done: dict[str, Any]
    match item["type"]:
        case "function_call":
            stem, text = "response.function_call_arguments", item["arguments"]
            done = {"name": item["name"], "arguments": text}
        case "custom_tool_call":
            stem, text = "response.custom_tool_call_input", item["input"]
            done = {"input": text}
        case "shell_call":
            stem, (text,) = "response.shell_call_command", item["action"]["commands"]
            at, done = {**at, "command_index": 0}, {"command": text}
        case "apply_patch_call":
            stem, text = "response.apply_patch_call_operation_diff", item["operation"]["path"]
            done = {"diff": text}
        case _:
            return []
    deltas = [(f"{stem}.delta", {**at, "delta": piece}) for piece in cut(text)]
    return [*deltas, (f"{stem}.done", {**at, **done})]


def _text_events(
    texts: Sequence[Part], item: dict[str, Any], place: int, script: Script
) -> list[Shown]:
    pieces = pieces_of(texts, script.cut)
    events = sample.text_events(place, *(piece for piece, _ in pieces), item=item)
    shown = [shows for _, shows in pieces]
    # Two open the text, and three show it whole.
    return list(zip(events, [False, False, *shown, *shown[-1:] * 3], strict=True))
