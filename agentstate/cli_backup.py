"""`agentstate backup FILE` and `agentstate check`: a copy of the record, and whether it is sound.

Both read the file itself, whether a server is writing to it or not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import SettingError
from agentstate.ground.load import load_settings
from agentstate.ground.settings import read_environment
from agentstate.ground.words import counted

SHOWN_EVERY_S = 0.2


def add_backup(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `backup`."""
    parser.add_argument("target", type=Path, metavar="FILE", help="where the copy goes")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")
    _add_record(parser)


def run_backup(asked: argparse.Namespace) -> int:
    """Copy the record and say what the copy holds. Raises `StoreError`."""
    from agentstate.store.sqlite_backup import back_up

    with _shown("copied") as progress:
        copied = back_up(_path_of(asked), asked.target, progress, replaces=asked.force)
    print(
        f"{asked.target}: {counted(copied.sessions, 'session')}, {counted(copied.steps, 'step')}, "
        f"{copied.bytes / 1_000_000:.1f} MB; checked, and on the disk."
    )
    return 0


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `check`."""
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="a backup (default: the record)"
    )
    _add_record(parser)


def run_check(asked: argparse.Namespace) -> int:
    """Say whether a record is sound; return 1 if it is not. Raises `StoreError`."""
    from agentstate.store.sqlite_backup import check_file

    path = asked.file or _path_of(asked)
    with _shown("read") as progress:
        faults = check_file(path, progress)
    if not faults:
        print(f"{path}: sound.")
        return 0
    print(f"{path}: damaged.")
    for fault in faults:
        print(f"  {fault}")
    print(
        "What to do: stop the server, copy the file away, and put a backup in its place. Without "
        "one, `sqlite3 FILE .recover` saves what can be read."
    )
    return 1


def _add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--db", metavar="PATH", help="the record (default: as it is configured)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="(default: agentstate.toml)")


def _path_of(asked: argparse.Namespace) -> Path:
    """Return the file of the record. Raises `SettingError` if it is in none."""
    values = {} if asked.db is None else {"store.path": asked.db}
    loaded = load_settings(values, read_environment(), Path.cwd(), asked.config)
    scheme, mark, rest = loaded.settings.store.path.partition("://")
    if mark and scheme != "sqlite":
        raise SettingError(
            f"store.path is {loaded.settings.store.path!r}, which is no file: there is nothing to "
            "read.",
            param="store.path",
        )
    return Path(rest if mark else loaded.settings.store.path)


@contextmanager
def _shown(verb: str) -> Iterator[Callable[[int, int], None]]:
    """Give what shows how far it is, in one moving line, to a terminal alone."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    last_s = 0.0

    def show(done: int, total: int) -> None:
        nonlocal last_s
        now_s = monotonic_s()
        if now_s - last_s >= SHOWN_EVERY_S:
            last_s = now_s
            share = done * 100 // max(total, 1)
            print(f"\r{share:3} % {verb}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r" + " " * 20 + "\r", end="", file=sys.stderr, flush=True)
