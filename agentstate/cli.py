"""The command line: one row a verb. What a verb does is elsewhere and imported when it is called.

So `--help` and `--version` answer at once, and a verb loads only its own half of the program. The
flags of `serve` and the list of settings in `--help` come from the table in `ground/settings.py`.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentstate import __version__
from agentstate.ground.load import FILE_NAME, load_settings
from agentstate.ground.logs import set_up_logs
from agentstate.ground.settings import Row, read_environment, settings_table

DEFAULT_VERB = "serve"
DEFAULT_URL = "http://127.0.0.1:8080"
WIDTH_MAX = 100
NAME_WIDTH = 34  # of the left column: the longest "key = default" that does not get its own line


@dataclass(frozen=True, slots=True)
class Verb:
    """One word after `agentstate`."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    epilog: Callable[[], str] = str  # printed below its --help


def run(argv: Sequence[str]) -> int:
    """Run the verb that `argv` names; without one, `serve`.

    Raises:
        SystemExit: argparse has printed help, the version, or what was wrong (code 2).
    """
    arguments = list(argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _ABOUT):
        arguments.insert(0, DEFAULT_VERB)
    asked = _parser().parse_args(arguments)
    chosen: Verb = asked.verb
    return chosen.run(asked)


def settings_help() -> str:
    """Return the list of all settings, as `--help` shows it."""
    lines = [
        f"settings ({FILE_NAME}; each also as AGENTSTATE_<SECTION>_<KEY> in the environment;",
        "flags > environment > file > defaults):",
    ]
    section: str | None = None
    for row in settings_table():
        if row.section != section:
            section = row.section
            lines.append("  " + _header(section))
        lines.extend(_setting_lines(row))
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentstate",
        description="A proxy between an agent and its models: every call is on record before the\n"
        "agent sees the answer, and replays after a crash.",
        epilog=f"Without a verb: {DEFAULT_VERB}, so its flags can stand first.\n\n"
        + settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"agentstate {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        below = verbs.add_parser(
            verb.name,
            help=verb.summary,
            description=verb.summary[0].upper() + verb.summary[1:] + ".",
            epilog=verb.epilog(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        below.set_defaults(verb=verb)
        verb.add_arguments(below)
    return parser


# -- serve


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings file (default: {FILE_NAME})"
    )
    for row in settings_table():
        if row.flag is None:
            continue
        if row.kind == "switch":
            parser.add_argument(
                row.flag, dest=row.name, action="store_const", const="true", help=_flag_help(row)
            )
        else:
            parser.add_argument(
                row.flag, dest=row.name, metavar=_metavar(row), help=_flag_help(row)
            )


def _serve(asked: argparse.Namespace) -> int:
    flags = {
        row.name: text
        for row in settings_table()
        if row.flag is not None and (text := getattr(asked, row.name)) is not None
    }
    loaded = load_settings(flags, read_environment(), Path.cwd(), asked.config)
    set_up_logs(loaded.settings.log)
    from agentstate.app import serve

    return serve(loaded)


# -- demo


def _add_demo(parser: argparse.ArgumentParser) -> None:
    demos = parser.add_subparsers(title="demos", metavar="NAME", required=True)
    crash = demos.add_parser(
        "crash",
        help="kill an agent in the middle of its run and watch it continue",
        allow_abbrev=False,
    )
    crash.set_defaults(demo=_demo_crash)
    crash.add_argument("--steps", type=int, default=50, metavar="N", help="length of the run (50)")
    crash.add_argument("--kill-at", type=int, metavar="N", help="step to die at (the middle)")
    crash.add_argument("--keep", type=Path, metavar="FILE", help="leave the database in FILE")


def _demo(asked: argparse.Namespace) -> int:
    demo: Callable[[argparse.Namespace], int] = asked.demo
    return demo(asked)


def _demo_crash(asked: argparse.Namespace) -> int:
    from agentstate.house.demo import crash

    return crash(steps=asked.steps, kill_at=asked.kill_at, keep=asked.keep)


# -- bench


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="fewer calls: a look, no measurement")


def _bench(asked: argparse.Namespace) -> int:
    from agentstate.house.bench import run as measure

    return measure(json_output=asked.json, quick=asked.quick)


# -- sessions


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list", help="all sessions, the last active first", allow_abbrev=False
    )
    listing.set_defaults(action=_sessions_list)
    showing = actions.add_parser("show", help="one session and its steps", allow_abbrev=False)
    showing.set_defaults(action=_sessions_show)
    showing.add_argument("session", metavar="ID")
    for action in (listing, showing):
        action.add_argument("--json", action="store_true", help="print JSON")
        action.add_argument(
            "--url", default=DEFAULT_URL, help=f"where the server listens ({DEFAULT_URL})"
        )


def _sessions(asked: argparse.Namespace) -> int:
    action: Callable[[argparse.Namespace], int] = asked.action
    return action(asked)


def _sessions_list(asked: argparse.Namespace) -> int:
    from agentstate.cli_sessions import print_sessions

    return print_sessions(asked.url, as_json=asked.json)


def _sessions_show(asked: argparse.Namespace) -> int:
    from agentstate.cli_sessions import print_session

    return print_session(asked.url, asked.session, as_json=asked.json)


# A new verb is one row here.
VERBS = (
    Verb("serve", "start the proxy (the default verb)", _add_serve, _serve, settings_help),
    Verb("demo", "show what it does, with no key and no network", _add_demo, _demo),
    Verb("bench", "measure what it promises, on this machine", _add_bench, _bench),
    Verb("sessions", "look at the sessions of a running server", _add_sessions, _sessions),
)

_ABOUT = ("-h", "--help", "--version")  # asked of the program, not of its default verb


def _flag_help(row: Row) -> str:
    default = "" if row.kind == "switch" else f" (default: {row.shown_default})"
    return (row.help + default).replace("%", "%%")  # argparse formats it once more


def _metavar(row: Row) -> str:
    if row.choices:
        return "{" + ",".join(row.choices) + "}"
    return {"integer": "N", "number": "N"}.get(row.kind, row.key.upper())


def _header(section: str) -> str:
    if not section:
        return "(at the top)"
    return "[[provider]], one for each" if section == "provider" else f"[{section}]"


def _setting_lines(row: Row) -> Iterator[str]:
    width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
    left = f"    {row.key}" + (f" = {row.shown_default}" if row.shown_default else "")
    names = [*([row.flag] if row.flag else []), *row.env[1:]]  # the first follows from the rule
    right = row.help + (f" ({', '.join(names)})" if names else "")
    lines = textwrap.wrap(right, max(width - NAME_WIDTH - 1, 20))
    if len(left) >= NAME_WIDTH:
        yield left
        left = ""
    for line in lines:
        yield f"{left:<{NAME_WIDTH}} {line}"
        left = ""
