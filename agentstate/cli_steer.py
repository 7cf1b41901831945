"""`agentstate sessions`: its actions, and how runs are steered from a terminal.

`cli_sessions.py` prints what is on record; here is what changes it. The verbs speak to the running
server; where none answers they open the file (`cli_file.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from agentstate.cli_budget import add_options as add_budget_options
from agentstate.cli_forks import add_delete, add_fork, run_delete, run_fork
from agentstate.cli_revise import add_edit, add_rerun, edit_of, path_of, rerun_of, say_made
from agentstate.cli_server import TIMEOUT_S
from agentstate.cli_tape import add_cassette
from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.errors import shorten
from agentstate.ground.records import SessionStatus
from agentstate.ground.words import counted

if TYPE_CHECKING:
    from agentstate.cli_server import Record

RERUN_TIMEOUT_S = 3600.0  # models think for minutes, and may be asked several times

Open = Callable[[argparse.Namespace], AbstractContextManager["Record"]]


def add_sessions(
    parser: argparse.ArgumentParser,
    url: str,
    add_url: Callable[[argparse.ArgumentParser], None],
    open_record: Open,
    login: Callable[[], str | None],
) -> None:
    """Add the actions; `open_record` opens where `add_url` was told."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def add(name: str, said: str, run: Callable[[argparse.Namespace], int], *also: str) -> Any:
        action = actions.add_parser(name, aliases=also, help=said, allow_abbrev=False)
        action.set_defaults(action=run, open_record=open_record, login=login)
        action.add_argument("--json", action="store_true", help="print JSON")
        return action

    listing = add("list", "sessions, the last active first; filters", _list)
    _add_filters(listing)
    showing = add("show", "one session and its steps", _show)
    for action in (listing, showing):
        action.add_argument("--url", default=url, help=f"where the server listens ({url})")
    rolling = add("rollback", "take steps back: they stay visible and no longer replay", _roll_back)
    restoring = add("restore", "undo the last rollback, edit or rerun, or the one named", _restore)
    pausing = add("pause", "hold its calls, from the next one on", _pause)
    resuming = add("resume", "let its calls go on", _resume)
    completing = add("complete", "say that it is done, until its next call", _complete)
    forking = add("fork", "make a new session that shares the steps before N", run_fork)
    deleting = add("delete", "delete it for good, with all that only it refers to", run_delete)
    editing = add("edit", "write another answer of a step, which replays from now on", _edit)
    asking = add("rerun", "ask the model again for a step; that answer replays", _rerun)
    budgeting = add("budget", "how it stands with its caps, or set them", _budget)
    add_budget_options(budgeting)
    calling = add("calls", "the tool calls its models made, and what came of them", _calls)
    recovering = add(
        "recovery", "what a re-run replays, and what to look at first", _recovery, "recover"
    )
    taping = actions.add_parser(
        "cassette", help="write what replays of it to a file", allow_abbrev=False
    )
    add_cassette(taping, add_url, open_record)
    steering = (
        rolling, restoring, pausing, resuming, completing, forking, deleting, editing, asking,
        budgeting,
    )  # fmt: skip
    looking = (calling, recovering)
    for action in (showing, *looking, *steering):
        action.add_argument("session", metavar="ID")
    calling.add_argument("--tool", metavar="GLOB", help="of tools with such a name")
    calling.add_argument("--unanswered", action="store_true", help="without a result on record")
    rolling.add_argument("step", type=int, metavar="N", help="this step and those after it")
    rolling.add_argument("--index", action="store_true", help="N is an index, not a step number")
    rolling.add_argument("--dry-run", action="store_true", help="only say what it would cost")
    add_edit(editing)
    add_rerun(asking)
    restoring.add_argument("rollback", nargs="?", type=int, metavar="NUMBER", help="which one")
    for action in (pausing, completing):
        action.add_argument("--reason", metavar="TEXT", help="why")
    for action in (rolling, restoring, pausing, completing, editing, asking, budgeting):
        action.add_argument("--by", metavar="NAME", help="who does it (default: your login)")
    add_fork(forking)
    add_delete(deleting)
    for action in (*looking, *steering):
        add_url(action)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    tag_help = "with this tag; again for further ones"
    parser.add_argument("--tag", action="append", metavar="NAME[=VALUE]", help=tag_help)
    states = get_args(SessionStatus)
    parser.add_argument("--status", choices=states, type=str.upper, help="of this status")
    parser.add_argument(
        "--search", "--name", metavar="TEXT", help="with this in their id or their name"
    )
    parser.add_argument("--parent", metavar="ID", help="that this session began")
    parser.add_argument("--forked-from", metavar="ID", help="that are forks of this session")
    parser.add_argument("--limit", type=_limit, metavar="N", help="at most so many (default: all)")


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {shorten(text)!r}")
    return int(text[:9])


def _list(asked: argparse.Namespace) -> int:
    from agentstate.cli_sessions import print_sessions

    filters = {
        "status": asked.status,
        "search": asked.search,
        "parent": asked.parent,
        "forked_from": asked.forked_from,
        "tag": ",".join(asked.tag or ()),
    }
    sought = {name: value for name, value in filters.items() if value}
    return print_sessions(asked.url, sought, limit=asked.limit, as_json=asked.json)


def _show(asked: argparse.Namespace) -> int:
    from agentstate.cli_sessions import print_session

    return print_session(asked.url, asked.session, as_json=asked.json)


def _calls(asked: argparse.Namespace) -> int:
    from agentstate.cli_calls import print_calls

    with asked.open_record(asked) as record:
        return print_calls(
            record,
            asked.session,
            tool=asked.tool,
            only_unanswered=asked.unanswered,
            as_json=asked.json,
        )


def _recovery(asked: argparse.Namespace) -> int:
    from agentstate.cli_calls import print_recovery

    with asked.open_record(asked) as record:
        return print_recovery(record, asked.session, as_json=asked.json)


def _roll_back(asked: argparse.Namespace) -> int:
    place: JSON = {"index" if asked.index else "step_number": asked.step}
    assert isinstance(place, dict), "it was just made"
    return _post(asked, "reset", place | {"dry_run": asked.dry_run}, _rolled_back)


def _restore(asked: argparse.Namespace) -> int:
    return _post(asked, "restore", {"rollback_id": asked.rollback}, _restored)


def _pause(asked: argparse.Namespace) -> int:
    return _post(asked, "pause", {"reason": asked.reason}, _paused)


def _resume(asked: argparse.Namespace) -> int:
    return _post(asked, "resume", {}, _stands)


def _complete(asked: argparse.Namespace) -> int:
    return _post(asked, "", {"status": "COMPLETED", "reason": asked.reason}, _stands)


def _edit(asked: argparse.Namespace) -> int:
    return _post(asked, path_of(asked, "edit"), edit_of(asked), say_made)


def _rerun(asked: argparse.Namespace) -> int:
    return _post(asked, path_of(asked, "rerun"), rerun_of(asked), say_made, RERUN_TIMEOUT_S)


def _budget(asked: argparse.Namespace) -> int:
    from agentstate.cli_budget import run

    return run(asked)


def _post(
    asked: argparse.Namespace,
    verb: str,
    sent: dict[str, JSON],
    say: Callable[[dict[str, Any], argparse.Namespace], str],
    timeout_s: float = TIMEOUT_S,
) -> int:
    """Send a verb, or without one a change of the session itself; say what came of it."""
    path = f"/api/sessions/{quote(asked.session, safe='')}"
    if hasattr(asked, "by"):
        sent = {**sent, "by": asked.by or asked.login()}
    sent = {name: value for name, value in sent.items() if value is not None}
    with asked.open_record(asked) as record:
        if verb:
            answer = record.post(f"{path}/{verb}", sent, timeout_s)
        else:
            answer = record.patch(path, sent)
    if asked.json:
        print(encode(parse(answer.raw)).decode("ascii"))
    else:
        print(say(json.loads(answer.raw), asked))
    return 0


def _rolled_back(found: dict[str, Any], asked: argparse.Namespace) -> str:
    if not found["steps_taken_back"]:
        return f"{_name(found)}: there is no step to take back from {asked.step} on"
    cost = f"running them again costs about {_weight(found['cost_to_rerun'])}"
    if found["rollback"] is None:
        steps = counted(found["steps_taken_back"], "step")
        return f"{_name(found)}: {steps} would be taken back; {cost}"
    number = found["rollback"]["rollback_id"]
    undo = f"agentstate sessions restore {_name(found)} {number}"
    steps = counted(found["steps_taken_back"], "step")
    return f"{_name(found)}: {steps} taken back; {cost}\nto undo it: {undo}"


def _restored(found: dict[str, Any], asked: argparse.Namespace) -> str:
    row = found["rollback"]
    back, gone = found["steps_restored"], found["steps_taken_back"]
    done = [f"answer {one['to']} of step {one['index']} stands again" for one in row["answers"]]
    if back or not done:
        done.append(f"{counted(back, 'step')} active again")
    if gone:
        done.append(f"{counted(gone, 'step')} recorded since taken back")
    return (
        f"{_name(found)}: number {row['undoes']} is undone; {', '.join(done)}\n"
        f"to undo it: agentstate sessions restore {_name(found)} {row['rollback_id']}"
    )


def _paused(found: dict[str, Any], asked: argparse.Namespace) -> str:
    undo = f"agentstate sessions resume {_name(found)}"
    return f"{_name(found)}: PAUSED, its next call is held\nto go on: {undo}"


def _stands(found: dict[str, Any], asked: argparse.Namespace) -> str:
    return f"{_name(found)}: {found['session']['status']}"


def _name(found: dict[str, Any]) -> str:
    from agentstate.cli_table import cell

    return cell(found["session"]["session"])


def _weight(weight: dict[str, Any]) -> str:
    tokens = f"{weight['input_tokens']} tokens in, {weight['output_tokens']} out"
    least = "at least " if weight["unknown_costs"] else ""
    return f"{least}${weight['cost_microusd'] / 1_000_000:.6f} ({tokens})"
