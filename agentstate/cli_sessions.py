"""`agentstate sessions`: prints what a running server has on record.

It speaks to the server's API over HTTP and opens no file. What is printed came from strangers
(names of sessions, answers of models), so control characters are shown and never sent to a
terminal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

from agentstate.cli_budget import budget_lines
from agentstate.cli_server import PAGE, RemoteRecord, read_pages
from agentstate.cli_table import cell, moment, print_table


def print_sessions(
    url: str, filters: Mapping[str, str], *, limit: int | None, as_json: bool
) -> int:
    """Print sessions, the last active first; return the exit code. `filters` are those of the API;
    `limit` None: all that there are."""
    query = "".join(f"{name}={quote(value, safe='')}&" for name, value in filters.items())
    page_size = PAGE if limit is None else min(limit, PAGE)
    pages = read_pages(RemoteRecord(url), "/api/sessions", query, page_size)
    # What is not shown is not asked for: the page that fills the list is the last one read.
    rows = list(islice((row for page in pages for row in page.value), limit))
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    if not rows and filters:
        print("No session is like that.")
        return 0
    if not rows:
        print(f"No sessions yet. Agents name one in the x-agent-session-id header at {url}/v1.")
        return 0
    head = ("SESSION", "STATUS", "STEPS", "REPLAYS", "TOKENS", "COST", "SAVED", "LAST ACTIVE")
    print_table(head, [_session_cells(row) for row in rows])
    return 0


def print_session(url: str, session: str, *, as_json: bool) -> int:
    """Print a session and all its steps; return the exit code."""
    path = f"/api/sessions/{quote(session, safe='')}"
    pages = [page.value for page in read_pages(RemoteRecord(url), path, "detail=1&")]
    row = pages[0]["session"]
    steps = [step for page in pages for step in page["steps"]]
    budget = pages[0].get("budget")  # an older server tells nothing of it
    if as_json:
        shown = {"session": row, "steps": steps} | ({"budget": budget} if budget else {})
        print(json.dumps(shown, indent=2))
        return 0
    tokens = f"{row['input_tokens']} tokens in, {row['output_tokens']} out"
    print(f"{cell(row['session'])}: {row['status']}, {row['steps']} steps, {tokens}")
    if row.get("status_reason"):
        by = f" by {cell(row['status_by'])}" if row["status_by"] else ""
        print(f"{row['status']} since {moment(row['status_ms'])}{by}: {cell(row['status_reason'])}")
    saved = _usd(row["saved_microusd"])
    print(f"cost {_session_cost(row)}; {row['replays']} replays saved {saved}")
    if budget and budget["caps"]:
        print("\n".join(["budget", *budget_lines(budget)]))
    if steps:
        print()
        head = ("STEP", "STATE", "MODEL", "TOKENS", "COST", "MS", "REPLAYS", "ANSWER")
        print_table(head, [_step_cells(step) for step in steps])
    _print_attempts(steps)
    _print_answers(steps)
    return 0


def _print_attempts(steps: list[dict[str, Any]]) -> None:
    """Print how steps that took more than one attempt came to their answer."""
    several = [step for step in steps if len(step.get("attempts") or ()) > 1]
    if several:
        print("\nSteps that took more than one attempt:")
    for step in several:
        print(f"  {step['step_number']}  " + "; then ".join(map(_attempt, step["attempts"])))


def _print_answers(steps: list[dict[str, Any]]) -> None:
    """Print the answers of steps that have had more than one."""
    several = [step for step in steps if len(step.get("answers") or ()) > 1]
    if several:
        print("\nSteps that have had more than one answer:")
    for step in several:
        print(f"  {step['step_number']}  (index {step['index']})")
        for row in step["answers"]:
            mark = "stands" if row["stands"] else "taken back" if row["is_taken_back"] else ""
            who = f" by {cell(row['by'])}" if row["by"] else ""
            why = f" ({cell(row['reason'])})" if row["reason"] else ""
            kind = {"recorded": "recorded", "edit": "edited", "rerun": "asked again"}[row["kind"]]
            text = cell(row["response"] or "(no text)")
            print(f"     {row['answer_id']:>5}  {mark:<10} {kind}{who}{why}: {text}")


def _attempt(attempt: dict[str, Any]) -> str:
    """Return one attempt in few words: where, and how it ended."""
    place = cell(f"{attempt['provider']}/{attempt['model']}")
    if attempt["ok"]:
        return f"{place} answered"
    status = attempt["status"]
    return f"{place} {status if status else attempt['error_code']}"


def _session_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        cell(row["session"]),
        row["status"],
        str(row["steps"]),
        str(row["replays"]),
        str(row["input_tokens"] + row["output_tokens"]),
        _session_cost(row),
        _usd(row["saved_microusd"]),
        moment(row["updated_ms"]),
    )


def _step_cells(row: dict[str, Any]) -> tuple[str, ...]:
    usage = row["usage"]
    return (
        str(row["step_number"]),
        "taken back" if row.get("rolled_back_ms") else row["state"],
        cell(row["model"]),
        "-" if usage is None else str(usage["total_tokens"]),
        _usd(row["cost_microusd"]),
        "-" if row["latency"] is None else f"{row['latency']:.0f}",
        str(row["replays"]),
        # A try that failed since takes nothing from an answer that stands.
        cell((row["state"] != "complete" and row["error"]) or row["response"] or ""),
    )


def _session_cost(row: dict[str, Any]) -> str:
    # Steps whose price is unknown are not in the sum, so it says only "at least".
    return ("≥ " if row["unknown_costs"] else "") + _usd(row["cost_microusd"])


def _usd(microusd: int | None) -> str:
    return "-" if microusd is None else f"${microusd / 1_000_000:.6f}"
