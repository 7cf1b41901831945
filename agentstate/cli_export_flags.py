"""The flags of `agentstate export` that say which conversations are wanted, and how."""

from __future__ import annotations

import argparse

# Flag, the API's name for it, what stands for its value, and what it is.
_FILTERS = (
    ("--status", "status", "STATUS", "of sessions of this status (default: all but FAILED)"),
    ("--since", "since", "DATE", "of calls from then on, as 2026-11-30 or 2026-11-30T12:00Z"),
    ("--until", "until", "DATE", "of calls before then"),
    ("--tag", "tag", "NAME=VALUE,...", "of sessions with all of these tags"),
    ("--search", "search", "TEXT", "of sessions with this in their id or name"),
    ("--parent", "parent", "ID", "of sessions that this one began"),
    ("--forked-from", "forked_from", "ID", "of sessions that were forked from this one"),
    ("--model", "model", "GLOB", "of these models"),
    ("--tool", "tool", "GLOB", "in which such a tool is called"),
    ("--cost-max", "cost_max_usd", "USD", "that cost no more"),
    ("--include", "include", "WHAT", "also what stays out: failed,cut,rolled_back,replaced"),
    ("--split", "split", "SHARE", "two files; this share of conversations for validation"),
    ("--seed", "seed", "N", "another split of the same size (0)"),
)
_SWITCHES = (
    ("--touched", "touched", "1", "in which a person decided or edited something"),
    ("--untouched", "touched", "0", "in which nobody did"),
    ("--no-dedupe", "dedupe", "0", "equal conversations as often as they are there"),
    ("--images", "images", "1", "keep the pictures of users"),
)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add them; what they set has the names of the API."""
    for flag, name, metavar, said in _FILTERS:
        parser.add_argument(flag, dest=name, metavar=metavar, help=said)
    for flag, name, const, said in _SWITCHES:
        parser.add_argument(flag, dest=name, action="store_const", const=const, help=said)
