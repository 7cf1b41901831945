"""The command line: one row a verb. What a verb does is elsewhere and imported when it is called.

So `--help` and `--version` answer at once, and a verb loads only its own half of the program. The
flags of `serve` and the list of settings in `--help` come from the table in `ground/settings.py`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentstate import __version__
from agentstate.cli_backup import add_backup, add_check, run_backup, run_check
from agentstate.cli_bench import add_bench, run_bench
from agentstate.cli_export_flags import add_filters
from agentstate.cli_retention import add_retention
from agentstate.cli_steer import add_sessions
from agentstate.cli_tape import add_import, add_record, add_replay
from agentstate.cli_tools import add_tools
from agentstate.ground.canonical import JSON
from agentstate.ground.events import EVENT_KINDS
from agentstate.ground.load import FILE_NAME, load_settings
from agentstate.ground.logs import set_up_logs
from agentstate.ground.settings import read_environment
from agentstate.ground.settings_table import REPEATED, Row, settings_table
from agentstate.house.export_base import FORMATS

if TYPE_CHECKING:
    from agentstate.cli_server import Record

DEFAULT_VERB = "serve"
DEFAULT_URL = "http://127.0.0.1:8080"
LOGIN_NAMES = ("LOGNAME", "USER", "USERNAME")  # the last one is Windows'
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
    parser.add_argument("-V", "--version", action="version", version=f"agentstate {__version__}")
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
    load = partial(load_settings, _flags(asked), read_environment(), Path.cwd())
    loaded = load(asked.config)
    set_up_logs(loaded.settings.log)
    from agentstate.app import serve

    # A file that was there is missed when it is gone: without it no rule would hold any more.
    found = Path(FILE_NAME) if Path(FILE_NAME).exists() else None
    return serve(loaded, partial(load, asked.config or found))


def _flags(asked: argparse.Namespace) -> dict[str, str]:
    return {
        row.name: text
        for row in settings_table()
        if row.flag is not None and (text := getattr(asked, row.name)) is not None
    }


# -- doctor


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    _add_serve(parser)  # what is examined is what `serve` would start with the same flags
    parser.add_argument("--json", action="store_true", help="print JSON")


def _doctor(asked: argparse.Namespace) -> int:
    from agentstate.cli_doctor import print_findings

    return print_findings(
        _flags(asked),
        read_environment(),
        asked.config,
        as_json=asked.json,
        is_offline=getattr(asked, "replay.offline") is not None,
    )


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
    hitl = demos.add_parser(
        "hitl",
        help="decide whether an agent may send an e-mail",
        allow_abbrev=False,
    )
    hitl.set_defaults(demo=_demo_hitl)
    full = demos.add_parser("full", help="show and check every feature once", allow_abbrev=False)
    full.set_defaults(demo=_demo_full)
    full.add_argument("--keep", action="store_true", help="leave the proxy running, until Ctrl-C")


def _demo(asked: argparse.Namespace) -> int:
    demo: Callable[[argparse.Namespace], int] = asked.demo
    return demo(asked)


def _demo_crash(asked: argparse.Namespace) -> int:
    from agentstate.house.demo import crash

    return crash(steps=asked.steps, kill_at=asked.kill_at, keep=asked.keep)


def _demo_hitl(asked: argparse.Namespace) -> int:
    from agentstate.house.demo_hitl import hitl

    return hitl(_watch)


def _demo_full(asked: argparse.Namespace) -> int:
    from agentstate.house.demo_full import full

    return full(keeps=asked.keep)


# -- sessions


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    add_sessions(parser, DEFAULT_URL, _add_url, _record, _login)


# -- tools


def _add_tools(parser: argparse.ArgumentParser) -> None:
    add_tools(parser, _add_url, _record, _login)


# -- approvals


def _add_approvals(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list", help="what waits for a decision, the first asked first", allow_abbrev=False
    )
    listing.set_defaults(action=_approvals_list)
    listing.add_argument("--all", action="store_true", help="what is decided too, newest first")
    showing = actions.add_parser("show", help="one of them whole", allow_abbrev=False)
    showing.set_defaults(action=_approvals_show)
    approving = actions.add_parser("approve", help="let a call go", allow_abbrev=False)
    approving.set_defaults(action=_approvals_approve)
    rejecting = actions.add_parser("reject", help="refuse a call", allow_abbrev=False)
    rejecting.set_defaults(action=_approvals_reject, then=None)
    watching = actions.add_parser(
        "watch", help="show each new one and take a key", allow_abbrev=False
    )
    watching.set_defaults(action=_approvals_watch)
    for action in (showing, approving, rejecting):
        action.add_argument("approval_id", metavar="ID")
    approving.add_argument("--arguments", metavar="JSON", help="let it go with these instead")
    follow = rejecting.add_mutually_exclusive_group()
    for then, said in (("stop", "the call ends with 403"), ("continue", "the model is told")):
        follow.add_argument(f"--{then}", dest="then", action="store_const", const=then, help=said)
    for action in (approving, rejecting):
        action.add_argument("--reason", metavar="TEXT", help="why; a rejected model is told")
    for action in (approving, rejecting, watching):
        action.add_argument("--by", metavar="NAME", help="who decides (default: your login)")
    for action in (listing, showing, approving, rejecting):
        action.add_argument("--json", action="store_true", help="print JSON")
        _add_url(action)
    _add_url(watching, reads_file=False)


def _approvals_list(asked: argparse.Namespace) -> int:
    from agentstate.cli_approvals import print_approvals

    with _record(asked) as record:
        return print_approvals(record, wants_all=asked.all, as_json=asked.json)


def _approvals_show(asked: argparse.Namespace) -> int:
    from agentstate.cli_approvals import print_approval

    with _record(asked) as record:
        return print_approval(record, asked.approval_id, as_json=asked.json)


def _approvals_approve(asked: argparse.Namespace) -> int:
    return _decide(asked, {"action": "APPROVED", "arguments": asked.arguments})


def _approvals_reject(asked: argparse.Namespace) -> int:
    return _decide(asked, {"action": "REJECTED", "then": asked.then})


def _decide(asked: argparse.Namespace, action: dict[str, JSON]) -> int:
    from agentstate.cli_approvals import decide

    action |= {"reason": asked.reason, "by": asked.by or _login()}
    with _record(asked) as record:
        return decide(record, asked.approval_id, action, as_json=asked.json)


def _approvals_watch(asked: argparse.Namespace) -> int:
    return _watch(asked.url or DEFAULT_URL, by=asked.by)


def _watch(url: str, is_over: Callable[[], bool] = lambda: False, by: str | None = None) -> int:
    from agentstate.cli_keys import editor_of, read_keys
    from agentstate.cli_server import RemoteRecord
    from agentstate.cli_watch import Watch

    # Into a pipe goes one line after another; an editor needs a terminal.
    editor = editor_of(read_environment()) if sys.stdin.isatty() else None
    with read_keys(sys.stdin) as keys:
        record = RemoteRecord(url)
        return Watch(record, keys, by=by or _login(), editor=editor, is_over=is_over).run()


def _login() -> str | None:
    environ = read_environment()
    return next((environ[name] for name in LOGIN_NAMES if environ.get(name)), None)


# -- export


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--session", metavar="ID", help="of one session (default: all)")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="(default: openai)")
    add_filters(parser)
    parser.add_argument("--out", type=Path, default=Path("-"), metavar="FILE", help="(stdout: -)")
    parser.add_argument("--manifest", action="store_true", help="write FILE's manifest beside it")
    parser.add_argument("--report", action="store_true", help="what was found in it, and no data")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    _add_url(parser)


def _export(asked: argparse.Namespace) -> int:
    from agentstate.cli_export import Order, export, print_report

    order = Order.of(vars(asked))
    with _record(asked) as record:
        if asked.report:
            return print_report(record, order, as_json=asked.json)
        return export(record, order)


# -- policy


def _add_policy(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    testing = actions.add_parser(
        "test",
        help="what it would have asked, denied and allowed of recorded calls",
        allow_abbrev=False,
    )
    testing.set_defaults(action=_policy_test)
    testing.add_argument(
        "source",
        nargs="?",
        metavar="FILE|SESSION",
        help="lines of JSON, a call or a chat message each, or a session (default: all sessions)",
    )
    testing.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the policy (default: {FILE_NAME})"
    )
    testing.add_argument("--json", action="store_true", help="print JSON")
    _add_url(testing)


def _policy_test(asked: argparse.Namespace) -> int:
    from agentstate.cli_policy import print_verdicts
    from agentstate.steps.policy import Policy

    policy = Policy(load_settings({}, read_environment(), Path.cwd(), asked.config).settings.gate)
    return print_verdicts(policy, asked.source, lambda: _record(asked), as_json=asked.json)


# -- webhook


def _add_webhook(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    testing = actions.add_parser(
        "test", help="send a sample of every event and print the answer", allow_abbrev=False
    )
    testing.set_defaults(action=_webhook_test)
    testing.add_argument("name", nargs="?", metavar="NAME", help="one webhook (default: all)")
    testing.add_argument("--kind", choices=EVENT_KINDS, help="one kind of event (default: all)")
    testing.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings file (default: {FILE_NAME})"
    )
    testing.add_argument("--json", action="store_true", help="print JSON")


def _webhook_test(asked: argparse.Namespace) -> int:
    from agentstate.cli_webhook import print_tests

    loaded = load_settings({}, read_environment(), Path.cwd(), asked.config)
    return print_tests(loaded, asked.name, asked.kind, as_json=asked.json)


# -- retention


def _add_retention(parser: argparse.ArgumentParser) -> None:
    add_retention(parser, _add_url, _record)


# -- cassettes


def _add_import(parser: argparse.ArgumentParser) -> None:
    add_import(parser, _add_url, _record, _login)


def _record_calls(asked: argparse.Namespace) -> int:
    from agentstate.cli_run import Recorder

    return Recorder(asked).run()


def _replay_calls(asked: argparse.Namespace) -> int:
    from agentstate.cli_run import Replayer

    return Replayer(asked).run()


# -- what several verbs share


def _act(asked: argparse.Namespace) -> int:
    action: Callable[[argparse.Namespace], int] = asked.action
    return action(asked)


def _add_url(parser: argparse.ArgumentParser, *, reads_file: bool = True) -> None:
    otherwise = "; if none does, the file is read" if reads_file else ""
    parser.add_argument(
        "--url", help=f"where the server listens (default: {DEFAULT_URL}{otherwise})"
    )


def _record(asked: argparse.Namespace) -> AbstractContextManager[Record]:
    from agentstate.cli_file import open_record

    config: Path | None = getattr(asked, "config", None)
    return open_record(asked.url or DEFAULT_URL, falls_back=asked.url is None, config=config)


# A new verb is one row here.
VERBS = (
    Verb("serve", "start the proxy (the default verb)", _add_serve, _serve, settings_help),
    Verb("doctor", "find out what is wrong, and say what to do", _add_doctor, _doctor),
    Verb("demo", "show what it does, with no key and no network", _add_demo, _demo),
    Verb("bench", "measure what it promises, on this machine", add_bench, run_bench),
    Verb("sessions", "look at runs and steer them: roll back, pause, resume", _add_sessions, _act),
    Verb("approvals", "decide on calls that wait for a person", _add_approvals, _act),
    Verb("tools", "calls that must not happen twice: which are unknown?", _add_tools, _act),
    Verb("export", "write runs as training data: JSON lines for fine-tuning", _add_export, _export),
    Verb("import", "read a cassette back into the record", _add_import, _act),
    Verb("backup", "copy the record while a server writes to it", add_backup, run_backup),
    Verb("check", "find out whether the record, or a backup, is sound", add_check, run_check),
    Verb("retention", "delete what was kept long enough, or list it", _add_retention, _act),
    Verb("record", "run a command and write its calls to a cassette", add_record, _record_calls),
    Verb("replay", "run a command on a cassette: no key, no network", add_replay, _replay_calls),
    Verb("policy", "try out what the gate asks about", _add_policy, _act),
    Verb("webhook", "try out who is told what happens", _add_webhook, _act),
)

_ABOUT = ("-h", "--help", "-V", "--version")  # asked of the program, not of its default verb


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
    return f"[[{section}]], one for each" if section in REPEATED else f"[{section}]"


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
