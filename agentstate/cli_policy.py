"""`agentstate policy test`: what the policy in force would do to calls that were made before.

Nothing is asked, held or written. The calls come from a file of lines, or from the record: of one
session, or of the sessions that were active last. They are judged as the gate judges: calls that
the provider ran itself are left out, and a text is read for calls only if its request names a tool
that the policy could hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentstate.cli_server import Record, Refused, read_pages
from agentstate.cli_table import cell, print_table
from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import calls_tools
from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.chat import Answer, Choice
from agentstate.ground.errors import BadRequest, shorten
from agentstate.steps.findings import find_guarded
from agentstate.steps.policy import Action, Policy, Verdict

CALLS_MAX = 10_000  # of one run; a person reads the sums
LINE_BYTES_MAX = 16 * 1024 * 1024  # of a file: a message with a written file in it
STEPS_PAGE = 50  # each comes with its whole answer

SAID: Mapping[Action, str] = {"ask": "asked", "deny": "denied", "allow": "allowed"}


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call that was made, and where."""

    place: str  # for people: "run-1 step 3", "calls.jsonl:7"
    tool: str
    arguments: str  # exact text
    kind: str = "function"
    session: str | None = None  # None = it comes from a file
    index: int | None = None  # of the step; None = it comes from a file
    line: int | None = None  # of the file; None = it comes from the record


@dataclass(frozen=True, slots=True)
class Judged:
    """A call and what the policy says of it."""

    call: RecordedCall
    verdict: Verdict


def print_verdicts(
    policy: Policy,
    source: str | None,
    open_record: Callable[[], AbstractContextManager[Record]],
    *,
    as_json: bool,
) -> int:
    """Judge the calls of `source` and print each with its verdict, then the sums.

    `source` is a file if there is one of this name, else a session; None = all on record, the last
    active session first. At most `CALLS_MAX` calls are judged. Returns the exit code.

    Raises:
        BadRequest: a line of the file is neither a call nor a message.
        Refused: there is no such session, or file.
    """
    if source is not None and Path(source).is_file():
        found = list(islice(read_file(policy, Path(source)), CALLS_MAX + 1))
    else:
        with open_record() as record:
            found = list(islice(read_record(policy, record, source), CALLS_MAX + 1))
    is_cut = len(found) > CALLS_MAX
    judged = found[:CALLS_MAX]
    if as_json:
        _print_json(judged, is_cut=is_cut)
    else:
        _print_text(judged, is_cut=is_cut)
    return 0


def read_file(policy: Policy, path: Path) -> Iterator[Judged]:
    """Judge the calls of a file, line by line."""
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                if raw.strip():
                    for tool, arguments in _read_line(raw, f"{path}:{number}"):
                        call = RecordedCall(f"line {number}", tool, arguments, line=number)
                        yield Judged(call, policy.judge(tool, arguments, call.kind))
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}.") from error


def read_record(policy: Policy, record: Record, session: str | None) -> Iterator[Judged]:
    """Judge the calls on record, session by session, step by step."""
    for name in _sessions(record) if session is None else (session,):
        path = f"/api/sessions/{quote(name, safe='')}"
        for page in _pages_of(record, path, name):
            for step in page.value["steps"]:
                yield from _judge_step(policy, record, f"{path}/steps/{step['index']}", name, step)


def _sessions(record: Record) -> Iterator[str]:
    for page in read_pages(record, "/api/sessions"):
        for row in page.value:
            yield row["session"]


def _pages_of(record: Record, path: str, name: str) -> Iterator[Any]:
    try:
        yield from read_pages(record, path, "detail=1&", STEPS_PAGE)
    except Refused as error:
        if error.status != 404:
            raise
        raise BadRequest(
            f"There is no file and no session {shorten(name)!r}. `agentstate sessions list` names "
            "the sessions."
        ) from error


def _judge_step(
    policy: Policy, record: Record, path: str, session: str, step: dict[str, Any]
) -> Iterator[Judged]:
    def judged(tool: str, arguments: str, kind: str, verdict: Verdict) -> Judged:
        place = f"{session} step {step['step_number']}"
        return Judged(RecordedCall(place, tool, arguments, kind, session, step["index"]), verdict)

    spelled: list[Judged] = []
    for choice in step.get("choices") or ():
        for call in choice["tool_calls"]:
            if not call["runs_upstream"]:
                name, arguments, kind = call["name"], call["arguments"], call["kind"]
                yield judged(name, arguments, kind, policy.judge(name, arguments, kind))
        # Much of what looks like a call in a text is none, so those that pass are not counted.
        said = Answer((Choice(choice["index"], text=choice["text"]),))
        for finding in find_guarded(policy, said, scans_text=True):
            spelled.append(judged(finding.tool, finding.arguments, finding.kind, finding.verdict))
    # Seldom: so the request, which may be megabytes, is read only where it matters.
    if spelled and _scans_text(policy, step["dialect"], record.get(path).value["request"]):
        yield from spelled


def _scans_text(policy: Policy, dialect_name: str, request: JSON) -> bool:
    """Say, as the gate does, whether the answer to a request may spell a guarded tool."""
    dialect = dialect_by_name(dialect_name)
    if dialect is None or not calls_tools(dialect):
        return False
    try:
        has_hidden_part = dialect.read_ask(request).has_hidden_part
    except BadRequest:
        return True  # nobody knows what it says
    return has_hidden_part or policy.is_named_in(encode(request))


# --- files ----------------------------------------------------------------------------------------


def _read_line(raw: bytes, place: str) -> Iterator[tuple[str, str]]:
    """Yield the calls of a line as (tool, arguments)."""
    if len(raw) > LINE_BYTES_MAX:
        raise BadRequest(f"{place}: a line of over {LINE_BYTES_MAX} bytes is refused.")
    try:
        value = parse(raw)
    except BadRequest as error:
        raise BadRequest(f"{place}: {error.message}") from error
    calls = list(_calls_in(value))
    if not calls and not _is_message(value):
        raise BadRequest(
            f'{place}: expected a call such as {{"name": "send_email", "arguments": {{}}}} or a '
            "chat message."
        )
    yield from calls


def _calls_in(value: JSON) -> Iterator[tuple[str, str]]:
    """Yield the calls of `{"name"|"tool", "arguments"}`, of a chat message, or of several."""
    if not isinstance(value, dict):
        return
    messages = value.get("messages")
    for message in messages if isinstance(messages, list) else ():
        yield from _calls_in(message)
    calls = value.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from _named(call.get("function", call.get("custom", call)))
    if "function_call" in value:
        yield from _named(value["function_call"])
    if not _is_message(value):
        yield from _named(value)


def _named(value: JSON) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        return
    name = value.get("name", value.get("tool"))
    arguments = value.get("arguments", value.get("input", {}))
    if isinstance(name, str):
        yield name, arguments if isinstance(arguments, str) else encode(arguments).decode("ascii")


def _is_message(value: JSON) -> bool:
    return isinstance(value, dict) and ("role" in value or "messages" in value)


# --- printing -------------------------------------------------------------------------------------


def _print_text(judged: list[Judged], *, is_cut: bool) -> None:
    if not judged:
        print("No call of a tool is on record there.")
        return
    head = ("WHERE", "TOOL", "VERDICT", "BY", "ARGUMENTS")
    print_table(head, [_cells(one) for one in judged])
    sums = Counter(one.verdict.action for one in judged)
    parts = ", ".join(f"{sums[action]} {word}" for action, word in SAID.items())
    print(f"\n{len(judged)} {'call' if len(judged) == 1 else 'calls'}: {parts}")
    for (rule, action), count in _by_rule(judged):
        print(f"  {count:>6} {SAID[action]} by {cell(rule) or 'no rule'}")
    if is_cut:
        print(f"There are more: these are the first {CALLS_MAX}.")


def _print_json(judged: list[Judged], *, is_cut: bool) -> None:
    sums = Counter(one.verdict.action for one in judged)
    calls: list[JSON] = [
        {
            "session": one.call.session,
            "index": one.call.index,
            "line": one.call.line,
            "tool": one.call.tool,
            "arguments": one.call.arguments,
            "kind": one.call.kind,
            "action": one.verdict.action,
            "rule": one.verdict.rule,
            "why": one.verdict.why,
            "then": one.verdict.then,
            "reason": one.verdict.reason,
        }
        for one in judged
    ]
    by_rule: list[JSON] = [
        {"rule": rule, "action": action, "calls": count}
        for (rule, action), count in _by_rule(judged)
    ]
    totals: dict[str, JSON] = {word: sums[action] for action, word in SAID.items()}
    found: JSON = {"calls": calls, "sums": totals, "by_rule": by_rule, "is_cut": is_cut}
    print(encode(found).decode("ascii"))


def _by_rule(judged: Iterable[Judged]) -> list[tuple[tuple[str, Action], int]]:
    """Count by rule and action, the most frequent first."""
    return Counter((one.verdict.rule, one.verdict.action) for one in judged).most_common()


def _cells(one: Judged) -> tuple[str, ...]:
    why = f" ({one.verdict.why})" if one.verdict.why else ""
    return (
        cell(one.call.place),
        cell(one.call.tool),
        SAID[one.verdict.action],
        cell(one.verdict.rule + why) or "-",
        cell(one.call.arguments),
    )
