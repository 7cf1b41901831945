"""Cassettes from a terminal: `sessions cassette`, `import`, and the flags of `record` and `replay`.

What the last two do with a command is in `cli_run.py`. What is said goes to stderr, so that stdout
is the file's or the command's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from agentstate.ground.canonical import encode, parse
from agentstate.ground.errors import SettingError
from agentstate.ground.load import FILE_NAME
from agentstate.ground.words import counted

if TYPE_CHECKING:
    from agentstate.cli_server import Record

Open = Callable[[argparse.Namespace], AbstractContextManager["Record"]]
AddURL = Callable[[argparse.ArgumentParser], None]

STDIO = Path("-")


def add_cassette(parser: argparse.ArgumentParser, add_url: AddURL, open_record: Open) -> None:
    """Add the arguments of `sessions cassette`; `open_record` opens where `add_url` was told."""
    parser.set_defaults(action=_export, open_record=open_record)
    parser.add_argument("session", metavar="ID")
    parser.add_argument("--out", type=Path, default=STDIO, metavar="FILE", help="(stdout: -)")
    _add_order(parser)
    add_url(parser)


def add_import(
    parser: argparse.ArgumentParser,
    add_url: AddURL,
    open_record: Open,
    login: Callable[[], str | None],
) -> None:
    """Add the arguments of `import`."""
    parser.set_defaults(action=_import, open_record=open_record, login=login)
    parser.add_argument("file", type=Path, metavar="FILE", help="a cassette (stdin: -)")
    parser.add_argument("--as", dest="renamed", metavar="ID", help="call its one session so here")
    parser.add_argument(
        "--replace", action="store_true", help="roll back the steps of a session that is there"
    )
    parser.add_argument("--by", metavar="NAME", help="who does it (default: your login)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_url(parser)


def add_record(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `record`."""
    parser.usage = "agentstate record [options] FILE -- COMMAND ..."
    _add_command(parser, "the cassette to write")
    parser.add_argument("--mock", action="store_true", help="every provider is the mock")
    _add_order(parser)


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `replay`."""
    parser.usage = "agentstate replay [options] FILE -- COMMAND ..."
    _add_command(parser, "the cassette to answer from")
    parser.add_argument(
        "--strict", action="store_true", help="fail too if a recorded call is not asked for"
    )


def summary(end: Mapping[str, Any], *, keeps_secrets: bool) -> Iterator[str]:
    """Yield what is to be said of a cassette that was written; `end` is its last line."""
    if end.get("secrets"):
        yield f"secrets taken out: {_listed(end['secrets'])}; the agent that replays sees marks"
    if end.get("left_out"):
        yield f"steps left out, since no agent would get their answer: {_listed(end['left_out'])}"
    if keeps_secrets:
        yield "answers are as they came: the file is as secret as what they hold"


def say(text: str) -> None:
    """Say a line beside the output."""
    print(f"agentstate: {text}", file=sys.stderr, flush=True)


def _add_order(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-secrets", action="store_true", help="leave answers as they came, secrets included"
    )
    parser.add_argument(
        "--timing", action="store_true", help="also how long answers took, and the pace of streams"
    )


def _add_command(parser: argparse.ArgumentParser, said: str) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=said)
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run, after --")
    parser.add_argument(
        "--session", metavar="ID", help="of calls that name none (default: FILE's name)"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings file (default: {FILE_NAME})"
    )


def _export(asked: argparse.Namespace) -> int:
    from agentstate.cli_export import open_output
    from agentstate.cli_server import ServerSilent
    from agentstate.cli_table import inert

    query = {"secrets": "keep"} if asked.keep_secrets else {}
    query |= {"timing": "1"} if asked.timing else {}
    target = f"/api/sessions/{quote(asked.session, safe='')}/cassette?{urlencode(query)}"
    last, size = b"", 0
    with asked.open_record(asked) as record, open_output(asked.out) as file:
        with closing(record.stream(target.removesuffix("?"))) as chunks:
            for chunk in chunks:
                file.write(chunk)
                size += len(chunk)
                last = (last + chunk).rstrip(b"\n").rpartition(b"\n")[2] + b"\n"
        if not last.startswith(b'{"end":'):
            raise ServerSilent("The cassette broke off before its end; no file was written.")
    end = json.loads(last)["end"]
    where = "" if asked.out == STDIO else f" in {inert(str(asked.out))}"
    say(f"{counted(end['steps'], 'step')}{where}: {size:,} bytes")
    for line in summary(end, keeps_secrets=asked.keep_secrets):
        say(line)
    return 0


def _import(asked: argparse.Namespace) -> int:
    from agentstate.cli_table import cell
    from agentstate.house.cassette import MEDIA_TYPE

    query = {} if asked.renamed is None else {"as": asked.renamed}
    query |= {"replace": "1"} if asked.replace else {}
    by = asked.by or asked.login()
    query |= {"by": by} if by else {}
    raw = read_file(asked.file)
    with asked.open_record(asked) as record:
        answer = record.send_file(f"/api/cassettes?{urlencode(query)}", raw, MEDIA_TYPE.decode())
    if asked.json:
        print(encode(parse(answer.raw)).decode("ascii"))
        return 0
    found = json.loads(answer.raw)
    names = ", ".join(cell(row["session"]) for row in found["sessions"])
    print(f"{names}: {counted(found['steps_imported'], 'step')} imported")
    if found["steps_taken_back"]:
        print(f"{counted(found['steps_taken_back'], 'step')} that were there are taken back")
        for row in found["sessions"]:
            print(f"to undo it: agentstate sessions restore {cell(row['session'])}")
    return 0


def read_file(path: Path) -> bytes:
    """Return a file whole, or stdin. Raises `SettingError` where it cannot be read."""
    from agentstate.cli_table import inert

    if path == STDIO:
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(f"{inert(str(path))}: {error.strerror}.") from error


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
