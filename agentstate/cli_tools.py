"""`agentstate tools`: calls of durable tools, and a person's word on those nobody is sure of.

Arguments are what models wrote: whatever is invisible, or could move a cursor, is shown as what it
is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from agentstate.cli_steer import Open
from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.durable import DurableState
from agentstate.ground.errors import BadRequest, SettingError

if TYPE_CHECKING:
    from agentstate.cli_server import Record

_SHORT = 48


def add_tools(
    parser: argparse.ArgumentParser,
    add_url: Callable[[argparse.ArgumentParser], None],
    open_record: Open,
    login: Callable[[], str | None],
) -> None:
    """Add the actions; `open_record` opens where `add_url` was told."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def add(name: str, said: str, run: Callable[[argparse.Namespace], int]) -> Any:
        action = actions.add_parser(name, help=said, allow_abbrev=False)
        action.set_defaults(action=run, open_record=open_record, login=login)
        action.add_argument("--json", action="store_true", help="print JSON")
        add_url(action)
        return action

    listing = add("list", "calls of durable tools, the newest first", _list)
    listing.add_argument("--session", metavar="ID", help="only those of this session")
    listing.add_argument(
        "--state",
        choices=get_args(DurableState),
        metavar="STATE",
        help=f"only those that are {', '.join(get_args(DurableState))}",
    )
    showing = add("show", "one of them whole", _show)
    settling = add("settle", "say whether a call happened that was never reported", _settle)
    how = settling.add_mutually_exclusive_group(required=True)
    for outcome, said in (
        ("happened", "it did: it is not run again"),
        ("not_happened", "it did not: the next begin runs it"),
        ("skip", "go on without it: its agent is told that it was skipped"),
    ):
        flag = "--" + outcome.replace("_", "-")
        how.add_argument(flag, dest="outcome", action="store_const", const=outcome, help=said)
    settling.add_argument("--result", metavar="JSON", help="what its agent is given")
    forgetting = add("forget", "have the next equal call be run again", _forget)
    for action in (showing, settling, forgetting):
        action.add_argument("call", metavar="CALL")
    for action in (settling, forgetting):
        action.add_argument("--reason", metavar="TEXT", help="why")
        action.add_argument("--by", metavar="NAME", help="who says so (default: your login)")


def _list(asked: argparse.Namespace) -> int:
    from agentstate.cli_server import read_pages

    path = "/api/tool-calls"
    if asked.session is not None:
        path = f"/api/sessions/{quote(asked.session, safe='')}/durable-calls"
    query = "" if asked.state is None else f"state={asked.state}&"
    with asked.open_record(asked) as record:
        pages = list(read_pages(record, path, query))
        # Of a dead agent's calls no other has begun yet nobody is told, and some ask for unknown.
        begun = 0
        if asked.state == "unknown" and not asked.json:
            begun = sum(len(page.value) for page in read_pages(record, path, "state=running&"))
    if asked.json:
        lines = [encode(row).decode("ascii") for page in pages for row in _rows(parse(page.raw))]
        print("[\n  " + ",\n  ".join(lines) + "\n]" if lines else "[]")
        return 0
    rows = [row for page in pages for row in page.value]
    if not rows:
        print("No durable tool call is on record." if not query else f"None is {asked.state}.")
    else:
        _print_calls(rows)
    if begun:
        print(
            f"\n{begun} {'is' if begun == 1 else 'are'} running: begun and not reported so far. If "
            "an agent is dead, its calls can be settled too:\n  agentstate tools list --state "
            "running"
        )
    return 0


def _print_calls(rows: list[dict[str, Any]]) -> None:
    from agentstate.cli_table import print_table

    head = ("CALL", "STATE", "BEGUN", "SESSION", "TOOL", "ARGUMENTS", "RUNS", "OUTCOME")
    print_table(head, [_cells(row) for row in rows])
    states = {row["state"] for row in rows}
    if "unknown" in states:
        print("\nUnknown: begun and never reported. Look whether it happened, then:")
    elif "running" in states:
        print("\nRunning: begun and not reported so far. If its agent is dead, look, then:")
    if states & {"unknown", "running"}:
        print("  agentstate tools settle CALL --happened | --not-happened | --skip")


def _show(asked: argparse.Namespace) -> int:
    with asked.open_record(asked) as record:
        answer = record.get(_path_of(asked.call))
    if asked.json:
        print(encode(parse(answer.raw)).decode("ascii"))
    else:
        print("\n".join(_lines(answer.value, parse(answer.raw))))
    return 0


def _settle(asked: argparse.Namespace) -> int:
    sent: dict[str, JSON] = {"outcome": asked.outcome}
    if asked.result is not None:
        try:
            sent["result"] = parse(asked.result.encode("utf-8", "surrogateescape"))
        except BadRequest as error:
            raise SettingError(
                f"--result must be JSON, as '\"sent\"' or '{{\"id\": 7}}': {error.message}"
            ) from error
    return _say(asked, "settle", sent)


def _forget(asked: argparse.Namespace) -> int:
    return _say(asked, "forget", {})


def _say(asked: argparse.Namespace, verb: str, sent: dict[str, JSON]) -> int:
    """Say something of a call, and print how it stands then."""
    if asked.reason is not None:
        sent["reason"] = asked.reason
    if (by := asked.by or asked.login()) is not None:
        sent["by"] = by
    with asked.open_record(asked) as record:
        session = _session_of(record, asked.call)
        path = f"/api/sessions/{quote(session, safe='')}/tool-calls/{quote(asked.call, safe='')}"
        answer = record.post(f"{path}/{verb}", sent)
    if asked.json:
        print(encode(parse(answer.raw)).decode("ascii"))
    else:
        print(_standing(json.loads(answer.raw), verb))
    return 0


def _session_of(record: Record, call: str) -> str:
    return str(record.get(_path_of(call)).value["session"])


def _path_of(call: str) -> str:
    return f"/api/tool-calls/{quote(call, safe='')}"


def _standing(row: dict[str, Any], verb: str) -> str:
    from agentstate.cli_table import cell

    what = f"{cell(row['name'])} of session {cell(row['session'])}"
    if verb == "forget":
        return f"{what} is forgotten: the next equal call is a new one"
    follows = {
        "happened": "happened: it is not run again",
        "not_happened": "did not happen: the next begin runs it",
        "skip": "is skipped: its agent is told so",
    }
    return f"{what} {follows[row['settled_as']]}"


def _lines(row: dict[str, Any], exact: JSON) -> list[str]:
    from agentstate.cli_table import cell, inert, moment

    assert isinstance(exact, dict), "a call is an object"
    lines = [f"{cell(row['name'])}   session {cell(row['session'])}   {row['state']}"]
    lines.append(f"    id         {row['call']}")
    lines.append(f"    begun      {_begun(row)}; run: {row['runs']}")
    for key, title in (("owner", "by"), ("key", "key"), ("call_id", "model's id")):
        if row[key] is not None:
            lines.append(f"    {title:<10} {cell(row[key])}")
    for key, title in (("arguments", "arguments"), ("edited_arguments", "edited to"),
                       ("result", "result"), ("error", "error")):  # fmt: skip
        if key in row and row[key] is not None:
            lines.append(f"    {title:<10} {inert(encode(exact[key]).decode('ascii'))}")
    if row["settled_as"] is not None:
        by = "" if row["settled_by"] is None else f" by {cell(row['settled_by'])}"
        why = "" if row["settled_reason"] is None else f": {cell(row['settled_reason'], 400)}"
        lines.append(f"    settled    {row['settled_as']}{by}, {moment(row['settled_ms'])}{why}")
    if row["forgotten_ms"] is not None:
        lines.append(f"    forgotten  {moment(row['forgotten_ms'])}")
    return lines


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from agentstate.cli_table import cell

    outcome = row["settled_as"] or row["outcome"] or ""
    if row["settled_as"] == "not_happened":  # whoever ran it may have reported since that it did
        outcome = row["outcome"] or outcome
    return (
        row["call"],
        "forgotten" if row["forgotten_ms"] is not None else row["state"],
        _begun(row),
        cell(row["session"]),
        cell(row["name"]),
        cell(json.dumps(row["arguments"], ensure_ascii=False), _SHORT),
        str(row["runs"]),
        outcome,
    )


def _begun(row: dict[str, Any]) -> str:
    from agentstate.cli_table import moment

    return "never" if row["begun_ms"] is None else moment(row["begun_ms"])


def _rows(page: JSON) -> list[JSON]:
    assert isinstance(page, list), "a listing is an array"
    return page
