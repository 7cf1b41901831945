"""`agentstate retention`: what has been kept long enough; with --run it is deleted now."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractContextManager

from agentstate.cli_server import Record
from agentstate.cli_table import cell, print_table
from agentstate.ground.clock import iso_moment
from agentstate.ground.words import counted

TARGET = "/api/retention"
_LIMITS = ("retention_days", "steps_max", "size_max_mb")


def add_retention(
    parser: argparse.ArgumentParser,
    add_url: Callable[[argparse.ArgumentParser], None],
    record: Callable[[argparse.Namespace], AbstractContextManager[Record]],
) -> None:
    """Add the flags of `retention`."""
    parser.add_argument("--run", action="store_true", help="delete them now (default: list them)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_url(parser)

    def act(asked: argparse.Namespace) -> int:
        with record(asked) as opened:
            return retention(opened, runs=asked.run, as_json=asked.json)

    parser.set_defaults(action=act)


def retention(record: Record, *, runs: bool, as_json: bool) -> int:
    """Print what goes, or went."""
    found = (record.post(TARGET, {}) if runs else record.get(TARGET)).value
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    limits = [f"store.{name} = {found[name]:g}" for name in _LIMITS if found[name] is not None]
    if not limits:
        names = ", ".join(f"store.{name}" for name in _LIMITS)
        print(f"Everything is kept: none of {names} is set.")
        return 0
    print(f"Limits: {', '.join(limits)}.")
    sessions = found["sessions"]
    what = counted(len(sessions), "session")
    if not sessions:
        print("Nothing was deleted." if runs else "Nothing has been kept longer than that.")
        return 0
    print_table(
        ("session", "last active", "steps", "why"),
        [
            (cell(row["session"]), iso_moment(row["updated_ms"]), f"{row['steps']:,}", row["why"])
            for row in sessions
        ],
    )
    print(f"{what} deleted." if runs else f"{what} would go. Delete them now with --run.")
    return 0
