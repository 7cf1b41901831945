"""`agentstate approvals`: what waits for a person, and the person's answer.

`cli_watch.py` asks one after another as they come. What is shown here was written by models and
strangers, for someone about to decide on it: whatever is invisible, or could move a cursor, is
shown as what it is, and every line of it stands behind a margin that is ours.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from agentstate.cli_server import Record, Refused, read_pages
from agentstate.cli_table import cell, inert, moment, print_table, wrapped
from agentstate.ground.canonical import JSON, canonical, encode, parse
from agentstate.ground.errors import VALUE_CHARS_MAX, BadRequest

PENDING = "/api/approvals/pending"
WIDTH_MIN = 40  # narrower than that is no terminal, or one that does not say
MARGIN = "    | "
HANGING = "      "
RULE_CHARS_MAX = 400


def print_approvals(record: Record, *, wants_all: bool, as_json: bool) -> int:
    """Print what waits, the first asked first, or all there is, the last asked first."""
    pages = read_pages(record, "/api/approvals") if wants_all else [record.get(PENDING)]
    if as_json:
        _print_json([row for page in pages for row in _rows(parse(page.raw))])
        return 0
    rows = [row for page in pages for row in page.value]
    if not rows:
        print("No approval was ever asked for." if wants_all else "Nothing waits for a decision.")
        return 0
    head = ("ID", "STATUS", "ASKED", "SESSION", "STEP", "TOOL", "ARGUMENTS", "RULE")
    print_table(head, [_cells(row) for row in rows])
    if not wants_all:
        print("\nTo see one whole: agentstate approvals show ID")
    return 0


def print_approval(record: Record, approval_id: str, *, as_json: bool) -> int:
    """Print one approval, with its arguments from beginning to end."""
    answer = record.get(f"/api/approvals/{quote(approval_id, safe='')}")
    if as_json:
        print(encode(parse(answer.raw)).decode("ascii"))
        return 0
    print("\n".join(approval_lines(answer.value, width=terminal_width())))
    return 0


def decide(record: Record, approval_id: str, action: Mapping[str, JSON], *, as_json: bool) -> int:
    """Decide on one approval and say what stands."""
    answer = post_action(record, approval_id, action)
    if as_json:
        print(encode(parse(answer)).decode("ascii"))
    else:
        print(decision_line(json.loads(answer)))
    return 0


def post_action(record: Record, approval_id: str, action: Mapping[str, JSON]) -> bytes:
    """Send a decision, without what is None in it; return the approval that stands as JSON.

    Raises:
        Refused: 409 decided before, 404 no such approval, 400 it does not fit.
        ServerSilent: it may have been taken, or not.
    """
    sent: dict[str, JSON] = {name: value for name, value in action.items() if value is not None}
    return record.post(f"/api/approvals/{quote(approval_id, safe='')}/action", sent).raw


def is_over(refusal: Refused) -> bool:
    """Say whether a refused decision leaves nothing to decide."""
    return refusal.status in (404, 409)


def approval_lines(
    row: Mapping[str, Any], *, width: int, chars_max: int | None = None
) -> Iterator[str]:
    """Yield the lines that show an approval to who decides on it; none is wider than `width`.

    Of a text longer than `chars_max` the beginning is shown, and how much is missing.
    """
    place = "durable tool" if row["step_number"] is None else f"step {row['step_number']}"
    where = f"session {one_line(row['session'])}, {place}"
    facts = [f"{one_line(row['tool'])}   {where}   {one_line(row['model'])}".rstrip()]
    ends = "" if row["deadline_ms"] is None else f", until {moment(row['deadline_ms'])}"
    facts.append(f"    id       {one_line(row['approval_id'])}, {row['status']}")
    facts.append(f"    asked    {moment(row['asked_ms'])}{ends}")
    facts.append(f"    by       {cell(row['rule'], RULE_CHARS_MAX)}")
    if row["why"]:
        facts.append(f"    because  {cell(row['why'], RULE_CHARS_MAX)}")
    if row["kind"] == "request":
        facts.append("    This is a whole request: nothing of it has gone to the model yet.")
    if row["kind"] == "durable":
        facts.append("    The tool itself asks, before it acts.")
    if row["kind"] == "text":
        facts.append("    The call is spelled in the answer's text, so it cannot be edited.")
    for fact in facts:
        yield from hung(fact, width)
    if row["kind"] != "request":
        yield from _block("arguments", readable_json(row["arguments"]), width, chars_max)
    elif request := row.get("request"):
        text = json.dumps(request, indent=2, ensure_ascii=False)
        yield from _block("the request", text, width, chars_max)
    for key in row["duplicate_keys"]:
        warning = f"{one_line(key)!r} is there twice: readers differ on which one counts"
        yield from hung(f"    WARNING  {warning}", width)
    if row["edited_arguments"] is not None:
        yield from _block("edited to", readable_json(row["edited_arguments"]), width, chars_max)
    if row["decided_ms"] is not None:
        yield from hung(f"    decided  {decision_line(row)}", width)


def decision_line(row: Mapping[str, Any]) -> str:
    """Say in a line what was decided."""
    what = f"{one_line(row['tool'])} of session {one_line(row['session'])}"
    by = "" if row["decided_by"] is None else f" by {one_line(row['decided_by'])}"
    reason = "" if row["reason"] is None else f": {one_line(row['reason'])}"
    if row["status"] == "APPROVED":
        edited = "" if row["edited_arguments"] is None else " with edited arguments"
        return f"{what} was approved{edited}{by}{reason}"
    follows = {"continue": "; the model is told and goes on", "stop": "; the call ends with 403"}
    if row["kind"] == "durable":
        follows = dict.fromkeys(follows, "; the tool does not act")
    return f"{what} was rejected{by}{reason}{follows.get(row['then'], '')}"


def readable_json(text: str) -> str:
    """Return a JSON text with a line for each value, where that changes no value; else as it is."""
    try:
        value = parse(text.encode("utf-8", "surrogatepass"))
        laid_out = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        is_same = canonical(parse(laid_out.encode("utf-8", "surrogatepass"))) == canonical(value)
    except (BadRequest, ValueError, RecursionError):
        return text  # duplicate keys, no JSON, or too deep: exactly what must be seen as sent
    return laid_out if is_same and isinstance(value, dict | list) else text


def one_line(text: str) -> str:
    """Return a stranger's text as part of a line."""
    return cell(text, VALUE_CHARS_MAX)


def hung(line: str, width: int) -> Iterator[str]:
    """Yield a line; what does not fit goes below, indented."""
    first, *rest = wrapped(line, width - len(HANGING))
    yield first
    for piece in rest:
        yield HANGING + piece


def terminal_width() -> int:
    """Return how many columns there are."""
    return max(shutil.get_terminal_size().columns, WIDTH_MIN)


def _block(title: str, text: str, width: int, chars_max: int | None) -> Iterator[str]:
    yield f"    {title}"
    for line in text[:chars_max].split("\n"):
        for piece in wrapped(inert(line), width - len(MARGIN)):
            yield MARGIN + piece
    if chars_max is not None and len(text) > chars_max:
        rest = f"{len(text) - chars_max:,} more characters: agentstate approvals show ID"
        yield from hung(f"    {rest}", width)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        one_line(row["approval_id"]),
        row["status"],
        moment(row["asked_ms"]),
        cell(row["session"]),
        "-" if row["step_number"] is None else str(row["step_number"]),
        cell(row["tool"]),
        cell(row["arguments"]),
        cell(row["rule"]),
    )


def _rows(page: JSON) -> list[JSON]:
    assert isinstance(page, list), "a listing is an array"
    return page


def _print_json(rows: list[JSON]) -> None:
    """Print an array with a line for each row; numbers stay as they were sent."""
    lines = ",\n".join(f"  {encode(row).decode('ascii')}" for row in rows)
    print(f"[\n{lines}\n]" if rows else "[]")
