"""`agentstate sessions calls` and `recovery`: what models called, and where a run stands.

What is printed came from strangers (names of tools, arguments, results), so it goes through
`cell` or `inert`, and what a line of ours says begins it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from agentstate.cli_server import Record, read_pages
from agentstate.cli_table import cell, inert, moment, print_table
from agentstate.ground.canonical import JSON, encode, parse

ARGUMENTS_CHARS_MAX = 40
RESULT_CHARS_MAX = 40
NAMED_MAX = 8  # steps or calls named in one line


def print_calls(
    record: Record, session: str, *, tool: str | None, only_unanswered: bool, as_json: bool
) -> int:
    """Print the calls of a session in order; return the exit code."""
    query = "" if tool is None else f"tool={quote(tool, safe='')}&"
    query += "answered=0&" if only_unanswered else ""
    pages = list(read_pages(record, f"{_path(session)}/tool-calls", query))
    if as_json:
        rows: list[JSON] = []
        for page in pages:  # numbers keep their digits
            found = parse(page.raw)
            rows += found if isinstance(found, list) else []
        print(encode(rows).decode("ascii"))
        return 0
    shown = [row for page in pages for row in page.value]
    if not shown:
        print(f"No such call of {cell(session)} is on record.")
        return 0
    head = ("STEP", "TOOL", "ARGUMENTS", "DECISION", "RESULT", "")
    print_table(head, [_call_cells(row) for row in shown])
    return 0


def print_recovery(record: Record, session: str, *, as_json: bool) -> int:
    """Print where a session stands and what to do; return the exit code."""
    answer = record.get(f"{_path(session)}/recovery")
    if as_json:
        print(encode(parse(answer.raw)).decode("ascii"))
        return 0
    found = answer.value
    print(f"{cell(found['session']['session'])}: {found['status']}")
    for name, text in _facts(found):
        print(f"  {name:<12}  {text}")
    print()
    for sentence in found["advice"]:
        print(inert(sentence))
    return 0


def _path(session: str) -> str:
    return f"/api/sessions/{quote(session, safe='')}"


def _call_cells(row: dict[str, Any]) -> tuple[str, ...]:
    approval = row["approval"] or {}
    edited = approval.get("edited_arguments")
    by = approval.get("decided_by")
    decision = "-" if row["decision"] == "none" else row["decision"]
    return (
        str(row["step_number"]),
        cell(row["name"]),
        cell(row["arguments"] if edited is None else edited, ARGUMENTS_CHARS_MAX),
        f"{decision} by {cell(by)}" if by else decision,
        _result(row),
        "" if row["state"] == "active" else row["state"].replace("_", " "),
    )


def _result(row: dict[str, Any]) -> str:
    result = row["result"]
    if result is None:
        return "(ran upstream)" if row["runs_upstream"] else "-"
    content = result["content"]
    text = content if isinstance(content, str) else encode(content).decode("ascii")
    others = f" (+{row['results'] - 1} other)" if row["results"] > 1 else ""
    failed = "error: " if result["is_error"] else ""
    return cell(failed + text, RESULT_CHARS_MAX) + others


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known in lines, each with what it is about."""
    replay, saves, last = found["replay"], found["saves"], found["last_step"]
    facts: list[tuple[str, str]] = []
    if last is not None:
        text = f": {cell(last['response'])}" if last["response"] else ""
        finish = f", {cell(last['finish_reason'])}" if last["finish_reason"] else ""
        when, model = moment(last["answered_ms"]), cell(last["model"])
        told = f"step {last['step_number']}, {when}, {model}{finish}{text}"
        facts.append(("last answer", told))
    facts.append(("replays", f"{replay['answered']} of {replay['steps']} steps"))
    if replay["open"]:
        steps = [f"{each['step_number']} ({each['state']})" for each in replay["open"]]
        facts.append(("asked again", _some([each.replace("_", " ") for each in steps])))
    least = "at least " if found["saves_at_least"] else ""
    tokens = f"{saves['input_tokens']} tokens in, {saves['output_tokens']} out"
    facts.append(("saved", f"{least}${saves['cost_microusd'] / 1_000_000:.6f} ({tokens})"))
    waiting = [f"{cell(one['tool'])} ({one['approval_id']})" for one in found["holds"]["approvals"]]
    unanswered = [
        f"{cell(one['name'])} (step {one['step_number']})" for one in found["unanswered_calls"]
    ]
    begun: dict[str, list[str]] = {"unknown": [], "running": []}
    for one in found["unknown_calls"]:
        begun[one["state"]].append(f"{cell(one['tool'])} ({cell(one['call_id'])})")
    for name, items in (("waiting", waiting), ("no result", unanswered), *begun.items()):
        if items:
            facts.append((name, _some(items)))
    return facts


def _some(items: list[str]) -> str:
    more = len(items) - NAMED_MAX
    return ", ".join(items[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
