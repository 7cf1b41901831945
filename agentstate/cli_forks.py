"""`agentstate sessions fork` and `delete`: a run that begins as another stood, and one that goes.

Beside `cli_steer.py`, which adds them. A deletion cannot be undone, so on a terminal it says what
would go and asks; elsewhere it takes `--yes`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.errors import SettingError
from agentstate.ground.words import counted

if TYPE_CHECKING:
    from agentstate.cli_server import Answer, Record


def add_fork(action: argparse.ArgumentParser) -> None:
    """Add what a fork is told."""
    action.add_argument(
        "step",
        nargs="?",
        type=int,
        metavar="N",
        help="share the steps before this one (default: all)",
    )
    action.add_argument("--index", action="store_true", help="N is an index, not a step number")
    action.add_argument("--as", dest="new", metavar="NEW", help="its id (default: ID-fork-1, ...)")
    action.add_argument(
        "--inherit-decisions",
        action="store_true",
        help="what was approved counts there as well, so nobody is asked again",
    )
    action.add_argument("--by", metavar="NAME", help="who does it (default: your login)")


def add_delete(action: argparse.ArgumentParser) -> None:
    """Add what a deletion is told."""
    action.add_argument("--yes", action="store_true", help="do not ask")
    action.add_argument("--dry-run", action="store_true", help="only say what would go")
    action.add_argument("--by", metavar="NAME", help="who does it (default: your login)")


def run_fork(asked: argparse.Namespace) -> int:
    """Fork a session; return the exit code."""
    if asked.index and asked.step is None:
        raise SettingError("--index says what N is, and there is no N.")
    place = {} if asked.step is None else {"index" if asked.index else "step_number": asked.step}
    sent: dict[str, JSON] = {**place, "session": asked.new, "by": asked.by or asked.login()}
    if asked.inherit_decisions:
        sent["inherit_decisions"] = True
    with asked.open_record(asked) as record:
        answer = record.post(f"{_path(asked)}/fork", sent)
    if not _print_json(asked, answer):
        print(_forked(json.loads(answer.raw)["session"]))
    return 0


def run_delete(asked: argparse.Namespace) -> int:
    """Delete a session; return the exit code: 1 = the person said no."""
    with asked.open_record(asked) as record:
        if asked.dry_run:
            answer = record.delete(_path(asked), {"dry_run": True})
            if not _print_json(asked, answer):
                print(f"{_would_go(json.loads(answer.raw))}")
            return 0
        if not asked.yes and not _is_wanted(asked, record):
            return 1
        answer = record.delete(_path(asked), {"by": asked.by or asked.login()})
        if not _print_json(asked, answer):
            found = json.loads(answer.raw)
            left = "" if found["is_removed"] else "; its rows are still being removed from the disk"
            print(f"{_cell(found['session'])}: deleted, {_steps(found)}{left}")
    return 0


def _is_wanted(asked: argparse.Namespace, record: Record) -> bool:
    """Say what would go and ask. Raises `SettingError`: there is nobody to ask."""
    if not sys.stdin.isatty():
        raise SettingError(
            "A deletion cannot be undone, and there is no terminal to ask on. Say --yes to delete, "
            "or --dry-run to see what would go."
        )
    found = json.loads(record.delete(_path(asked), {"dry_run": True}).raw)
    print(_would_go(found), file=sys.stderr)
    with _to_stderr():
        wanted = input("It cannot be undone. Delete it? [y/N] ").strip().lower() in ("y", "yes")
    if not wanted:
        print("nothing was deleted", file=sys.stderr)
    return wanted


@contextmanager
def _to_stderr() -> Iterator[None]:
    """Have a question go where the output of a program does not."""
    stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = stdout


def _print_json(asked: argparse.Namespace, answer: Answer) -> bool:
    """Print JSON where that is wanted, and say whether it is."""
    if asked.json:
        print(encode(parse(answer.raw)).decode("ascii"))
    return bool(asked.json)


def _forked(session: dict[str, Any]) -> str:
    origin, name = session["forked_from"], _cell(session["session"])
    shared = counted(origin["shared_steps"], "step")
    return (
        f"{name}: forked from {_cell(origin['session'])}, {shared} shared\n"
        f"to go on there, run the agent with the session id {name}"
    )


def _would_go(found: dict[str, Any]) -> str:
    spent = found["spent"]
    least = "at least " if spent["unknown_costs"] else ""
    kib = -(-found["content_bytes"] // 1024)
    told = (
        f"{_cell(found['session'])}: {_steps(found)} would go, with {kib} KiB of answers; "
        f"{least}${spent['cost_microusd'] / 1_000_000:.6f} was spent on it"
    )
    if found["forks"]:
        told += f"\n  forks that stay: {', '.join(map(_cell, found['forks']))}"
    return told


def _steps(found: dict[str, Any]) -> str:
    return counted(found["spent"]["steps"], "step")


def _path(asked: argparse.Namespace) -> str:
    return f"/api/sessions/{quote(asked.session, safe='')}"


def _cell(text: str) -> str:
    from agentstate.cli_table import cell

    return cell(text)
