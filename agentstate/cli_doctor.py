"""`agentstate doctor`: examines configuration and surroundings, and prints what to do.

It asks no running server and starts none, makes no file and changes nothing. What is printed may
hold a stranger's words (a server's name, a certificate's fault), so it is made `inert`; no key is
in it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from agentstate import __version__
from agentstate.app import check_bind
from agentstate.cli_table import inert
from agentstate.ground.errors import SettingError
from agentstate.ground.load import FILE_NAME, load_settings
from agentstate.ground.settings import Loaded
from agentstate.ground.words import counted
from agentstate.house.doctor import examine
from agentstate.house.doctor_seen import Finding, State, Subject
from agentstate.house.doctor_upstreams import LIMIT_S
from agentstate.store import open_store

WIDTH_MAX = 100
WIDTH_MIN = 40  # a narrower terminal wraps by itself
MARKS: Mapping[State, str] = {"ok": "ok", "warn": "warn", "fault": "FAULT", "skip": "skip"}


def print_findings(
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    config: Path | None,
    *,
    as_json: bool,
    is_offline: bool,
) -> int:
    """Examine what `serve` would start with, and print it; return 1 if there is a fault."""
    subject = _subject(flags, environ, config, is_offline)
    if sys.stderr.isatty() and not is_offline and not as_json:
        print(f"Asking the providers, {LIMIT_S:g} s at most ...", file=sys.stderr, flush=True)
    findings = asyncio.run(examine(subject))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for line in _lines(findings, _width()):
            print(line)
    return 1 if any(finding.state == "fault" for finding in findings) else 0


def _subject(
    flags: Mapping[str, str], environ: Mapping[str, str], config: Path | None, is_offline: bool
) -> Subject:
    """Load the settings, and go on without them where they do not load."""
    place = str(config or FILE_NAME)
    if not (Path.cwd() / place).is_file():
        place = ""
    loaded: Loaded | None = None
    try:
        loaded = load_settings(flags, environ, Path.cwd(), config)
        check_bind(loaded.settings)
        open_store(loaded.settings.store)  # made, and not opened: its name alone is looked at
    except SettingError as error:
        problem = " ".join(part for part in (error.message, error.hint) if part)
        return Subject(__version__, environ, place, loaded, problem, is_offline)
    return Subject(__version__, environ, place, loaded, None, is_offline)


def _lines(findings: Sequence[Finding], width: int | None) -> Iterator[str]:
    """Yield a line for each check, what to do below it, and a sum. `width` None = wrap nothing."""
    name_width = max(len(finding.check) for finding in findings)
    indent = " " * (max(map(len, MARKS.values())) + 2 + name_width + 2)
    for position, finding in enumerate(findings):
        head = f"{MARKS[finding.state]:<5}  {finding.check:<{name_width}}  "
        yield from _wrapped(head, inert(finding.found), indent, width)
        after = findings[position + 1] if position + 1 < len(findings) else None
        # The same advice for several in a row is given once, below the last of them.
        is_repeated = after is not None and (after.state, after.advice) == (
            finding.state,
            finding.advice,
        )
        if finding.advice and not is_repeated:
            yield from _wrapped(indent + "→ ", inert(finding.advice), indent + "  ", width)
    yield ""
    yield _sum(findings)


def _sum(findings: Sequence[Finding]) -> str:
    faults = [finding.check for finding in findings if finding.state == "fault"]
    warnings = sum(finding.state == "warn" for finding in findings)
    said = "No fault" if not faults else f"{counted(len(faults), 'fault')}: {', '.join(faults)}"
    return said + (f"; {counted(warnings, 'warning')}." if warnings else ".")


def _wrapped(head: str, text: str, indent: str, width: int | None) -> list[str]:
    if width is None:
        return [head + text]
    return textwrap.wrap(
        text,
        max(width, len(indent) + WIDTH_MIN),
        initial_indent=head,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]


def _width() -> int | None:
    """Return how wide lines may be; None = a program reads them, or a file."""
    if not sys.stdout.isatty():
        return None
    return min(shutil.get_terminal_size().columns, WIDTH_MAX)
