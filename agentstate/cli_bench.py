"""`agentstate bench`: what it is given on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

PARTS = ("crash", "calls", "sizes", "streams", "footprint")  # rows of house/bench.py, by name


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench`."""
    parser.add_argument(
        "parts",
        nargs="*",
        type=_part,
        metavar="PART",
        help=f"measure only this: {', '.join(PARTS)} (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="fewer calls: a look, no measurement")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="FILE",
        help="measure other proxies instead, and the parts that are named; the file is written by "
        "`build.py bench --against NAMES`",
    )


def run_bench(asked: argparse.Namespace) -> int:
    """Measure; return the exit code."""
    from agentstate.house.bench import run

    return run(json_output=asked.json, quick=asked.quick, names=asked.parts, beside=asked.beside)


def _part(text: str) -> str:
    if text not in PARTS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(PARTS)}")
    return text
