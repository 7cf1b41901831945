"""`agentstate sessions edit | rerun`: another answer of a step, from a terminal.

As in `cli_steer.py`, which adds these two, the verbs speak to the running server; where none
answers an edit opens the file, and a rerun says that it needs a server.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentstate.cli_table import cell
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.errors import SettingError, shorten

STDIN = "-"


def add_edit(action: argparse.ArgumentParser) -> None:
    """Add the arguments of an edit."""
    action.add_argument("index", type=int, metavar="INDEX", help="the step, by its index from 0")
    what = action.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", metavar="TEXT", help="what the answer is to say")
    what.add_argument("--file", metavar="FILE", help="the same from a file; - is standard input")
    what.add_argument("--arguments", metavar="JSON", help="the arguments of one tool call")
    what.add_argument(
        "--body", metavar="FILE", help="the answer as JSON, from a file; what it lacks stays"
    )
    action.add_argument("--call", type=int, metavar="N", help="which call, from 0")
    action.add_argument("--choice", type=int, metavar="N", help="which choice, from 0")
    _add_shared(action)


def add_rerun(action: argparse.ArgumentParser) -> None:
    """Add the arguments of a rerun."""
    action.add_argument("index", type=int, metavar="INDEX", help="the step, by its index from 0")
    action.add_argument("--model", metavar="MODEL", help="another model")
    action.add_argument("--request", metavar="FILE", help="another request, as JSON, from a file")
    _add_shared(action)


def path_of(asked: argparse.Namespace, verb: str) -> str:
    """Return the path of a verb, below the session's own."""
    return f"steps/{quote(str(asked.index), safe='')}/{verb}"


def edit_of(asked: argparse.Namespace) -> dict[str, JSON]:
    """Return what is sent for an edit.

    Raises:
        SettingError: a file cannot be read, or is no JSON where that is wanted.
    """
    sent: dict[str, JSON] = {"choice": asked.choice, "position": asked.call}
    sent |= {"answer_id": asked.answer, "reason": asked.reason}
    if asked.arguments is not None:
        return sent | {"arguments": asked.arguments}
    if asked.body is not None:
        return sent | {"body": _read_json(asked.body)}
    return sent | {"text": asked.text if asked.file is None else _read(asked.file)}


def rerun_of(asked: argparse.Namespace) -> dict[str, JSON]:
    """Return what is sent for a rerun; raises as `edit_of`."""
    request = None if asked.request is None else _read_json(asked.request)
    sent: dict[str, JSON] = {"model": asked.model, "request": request}
    return sent | {"answer_id": asked.answer, "reason": asked.reason}


def say_made(found: dict[str, Any], asked: argparse.Namespace) -> str:
    """Return what came of it, and how it is undone."""
    name, step = cell(found["session"]["session"]), found["step"]
    change = found["rollback"]
    what = "edited" if change["kind"] == "edit" else f"asked again ({_price(found)})"
    gone = found["steps_taken_back"]
    after = "no later step goes on from it"
    if gone:
        after = f"{gone} later {'step' if gone == 1 else 'steps'} taken back"
    lines = [
        f"{name}: step {step['index']} {what}, answer {found['answer_id']} stands; {after}",
        f"it says: {cell(found['text']) if found['text'] else '(no text)'}",
        f"to undo it: agentstate sessions restore {name} {change['rollback_id']}",
    ]
    return "\n".join(lines)


def _price(found: dict[str, Any]) -> str:
    cost = found["cost_microusd"]
    price = "cost not known" if cost is None else f"${cost / 1_000_000:.6f}"
    tries = found["attempts"]
    return price if tries == 1 else f"{price}, {tries} attempts"


def _add_shared(action: argparse.ArgumentParser) -> None:
    action.add_argument("--answer", type=int, metavar="ID", help="only if this answer still stands")
    action.add_argument("--reason", metavar="TEXT", help="why")


def _read_json(name: str) -> JSON:
    return parse(_read(name).encode("utf-8", "surrogatepass"))


def _read(name: str) -> str:
    try:
        if name == STDIN:
            return sys.stdin.read()
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SettingError(f"{shorten(name)} cannot be read: {why}.") from error
