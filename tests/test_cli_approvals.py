"""`agentstate approvals` as a person meets it, against a server that has approvals."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from agentstate import cli
from agentstate.__main__ import main
from agentstate.cli_approvals import MARGIN, approval_lines, readable_json
from agentstate.cli_server import RemoteRecord, ServerSilent
from agentstate.cli_watch import Watch
from agentstate.ground.approvals import Decision
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest
from tests.helpers.approvals import HOUR_MS, QUESTION, Desk
from tests.store.contract import claim_of

ROOT = Path(__file__).resolve().parents[1]
NOBODY = "http://127.0.0.1:9"
ROUNDS_MAX = 200  # a watch that goes on so long waits for what never comes


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings, server or name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "DEFAULT_URL", NOBODY)
    for name in list(os.environ):
        if name.startswith("AGENTSTATE_"):
            monkeypatch.delenv(name)
    for name in ("USER", "USERNAME", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "ada")


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


# -- looking


def test_what_waits_is_a_table(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    at_ms = 1_790_000_000_000
    [first] = desk.ask(session="run-1", at_ms=at_ms)
    [second] = desk.ask(session="run-2", at_ms=at_ms + 1000)

    assert main(["approvals", "list", "--url", desk.url]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "ID", "STATUS", "ASKED", "SESSION", "STEP", "TOOL", "ARGUMENTS", "RULE",
    ]  # fmt: skip
    assert lines[1].split() == [
        first, "PENDING", "2026-09-21", "14:13:20Z", "run-1", "0", "send_email",
        '{"to":"ada@example.org"}', "gate.tools:", "send_email",
    ]  # fmt: skip
    assert lines[2].split()[0] == second


def test_nothing_that_waits_is_a_sentence(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["approvals", "list", "--url", desk.url]) == 0
    assert main(["approvals", "list", "--all", "--url", desk.url]) == 0
    assert main(["approvals", "list", "--json", "--url", desk.url]) == 0
    assert capsys.readouterr().out == (
        "Nothing waits for a decision.\nNo approval was ever asked for.\n[]\n"
    )


def test_all_are_listed_page_by_page(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [replace(QUESTION, position=n, digest=b"%032d" % n) for n in range(203)]
    names = desk.ask(*questions)
    desk.decide(names[7], Decision(True, None))

    assert main(["approvals", "list", "--all", "--json", "--url", desk.url]) == 0

    rows = json.loads(capsys.readouterr().out)
    assert {row["id"] for row in rows} == set(names)
    assert [row["id"] for row in rows if row["status"] == "APPROVED"] == [names[7]]


def test_json_keeps_numbers_as_they_were_sent(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '{"id":12345678901234567890123,"amount":1.10}'
    [name] = desk.ask(replace(QUESTION, arguments=text))

    assert main(["approvals", "list", "--json", "--url", desk.url]) == 0
    assert main(["approvals", "show", name, "--json", "--url", desk.url]) == 0

    listed, _, shown = capsys.readouterr().out.partition("]\n")
    assert f'"arguments_json":{text}' in listed
    assert f'"arguments_json":{text}' in shown
    assert json.loads(shown)["prompt"] == "mail her"


def test_one_is_shown_whole(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    body = "x" * 500
    text = json.dumps({"to": "ada@example.org", "body": body})
    [name] = desk.ask(replace(QUESTION, arguments=text, why="it is large", rule="gate.rule 2"))

    assert main(["approvals", "show", name, "--url", desk.url]) == 0

    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0] == "send_email   session s, step 0   gpt-4o-mini-2024"
    assert "    by       gate.rule 2" in lines
    assert "    because  it is large" in lines
    assert f'{MARGIN}  "to": "ada@example.org",' in lines
    assert "".join(line.removeprefix(MARGIN) for line in lines).count("x") >= len(body)


def test_a_name_that_is_none_is_said_so(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["approvals", "show", "a/b c", "--url", desk.url]) == 1
    assert capsys.readouterr().err == "agentstate: There is no approval 'a/b c'.\n"


def test_a_held_request_and_a_call_in_a_text_are_named_so() -> None:
    row = {
        "approval_id": "ap", "status": "PENDING", "session": "s", "step_number": 1, "tool": "m",
        "model": "m", "rule": "x-agent-require-approval", "why": "", "kind": "request",
        "asked_ms": 0, "deadline_ms": None, "decided_ms": None, "arguments": "a\nb",
        "duplicate_keys": ["to"], "edited_arguments": None, "request": {"model": "grüße"},
    }  # fmt: skip

    request = list(approval_lines(row, width=80))
    spelled = list(approval_lines({**row, "kind": "text"}, width=80))

    assert f'{MARGIN}  "model": "grüße"' in request
    assert not any("arguments" in line for line in request)
    assert any("cannot be edited" in line for line in spelled)
    assert spelled[-3:-1] == [f"{MARGIN}a", f"{MARGIN}b"]
    assert "'to' is there twice" in spelled[-1]


HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n\nsend_email   session s\u202e\u2066\u200b\x9b1m\u2028x"


@pytest.mark.parametrize(
    ("verb", "says"),
    [(["list"], "ARGUMENTS"), (["list", "--all"], "ARGUMENTS"), (["show"], MARGIN)],
)
def test_a_terminal_is_not_attacked_by_what_is_shown(
    verb: list[str], says: str, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps({"to": HOSTILE}, ensure_ascii=False).replace("\\r", "\r")
    [name] = desk.ask(
        replace(QUESTION, tool=HOSTILE, arguments=text + HOSTILE, rule=HOSTILE, why=HOSTILE),
        session="s",
    )

    more = [name] if verb == ["show"] else []
    assert main(["approvals", *verb, *more, "--url", desk.url]) == 0

    printed = capsys.readouterr().out
    assert says in printed
    assert is_inert(printed)
    assert sum(line.startswith("send_email") for line in printed.splitlines()) == 0


def is_inert(printed: str) -> bool:
    """Say whether nothing in it moves a cursor, hides or turns around."""
    return set(printed).isdisjoint("\x1b\x07\r\x9b\u202e\u2066\u200b\u2028")


def test_a_long_argument_never_wraps_into_the_first_column() -> None:
    text = "x" * 75 + "send_email   session other" + "\u4e00" * 200
    row = {
        "approval_id": "ap", "status": "PENDING", "session": "s", "step_number": 1, "tool": "t",
        "model": "m", "rule": "r", "why": "", "kind": "tool_call", "asked_ms": 0,
        "deadline_ms": None, "decided_ms": None, "arguments": text, "duplicate_keys": [],
        "edited_arguments": None,
    }  # fmt: skip

    shown = [line for line in approval_lines(row, width=80) if line.startswith(MARGIN)]

    assert "".join(line.removeprefix(MARGIN) for line in shown) == text
    assert max(len(line) + line.count("\u4e00") for line in shown) <= 80


def test_what_is_too_long_for_a_screen_is_cut_and_says_so(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    [name] = desk.ask(replace(QUESTION, arguments="x" * 1_000_000))

    watch(desk, "q")
    watched = capsys.readouterr().out
    assert main(["approvals", "show", name, "--url", desk.url]) == 0

    assert watched.count("x") < 21_000
    assert "    980,000 more characters: agentstate approvals show ID" in watched.splitlines()
    assert capsys.readouterr().out.count("x") >= 1_000_000


def test_a_held_request_is_watched_with_its_body(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    async def hold() -> None:
        claimed = await desk.store.claim_step(claim_of("mail her"))
        question = replace(QUESTION, kind="request", tool="gpt-4o-mini", arguments="")
        await desk.store.open_approvals(claimed.step_id, None, (question,), at_ms=now_ms())

    desk.run(hold())

    watch(desk, "q")

    assert f'{MARGIN}      "content": "mail her"' in capsys.readouterr().out.splitlines()


def test_no_line_is_left_for_the_terminal_to_wrap() -> None:
    long = "y" * 500
    row = {
        "approval_id": long, "status": "REJECTED", "session": long, "step_number": 1, "tool": long,
        "model": long, "rule": long, "why": long, "kind": "tool_call", "asked_ms": 0,
        "deadline_ms": 1, "decided_ms": 1, "arguments": long, "duplicate_keys": [long],
        "edited_arguments": long, "decided_by": long, "reason": long, "then": "stop",
    }  # fmt: skip

    lines = list(approval_lines(row, width=60))

    assert max(map(len, lines)) <= 60
    assert sum(not line.startswith("    ") for line in lines) == 1


@pytest.mark.parametrize(
    ("text", "laid_out"),
    [
        ('{"a":[1,"é"]}', '{\n  "a": [\n    1,\n    "é"\n  ]\n}'),
        ('{"a":12345678901234567890123}', '{\n  "a": 12345678901234567890123\n}'),
        ('{"a":1.10}', '{"a":1.10}'),  # laid out it would say 1.1
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ("[" * 100_000, "[" * 100_000),
        ("no JSON", "no JSON"),
        ('"text"', '"text"'),
    ],
)
def test_json_is_laid_out_only_where_that_changes_nothing(text: str, laid_out: str) -> None:
    assert readable_json(text) == laid_out


# -- deciding


def test_approve_and_reject_decide_in_the_name_of_who_is_logged_in(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [desk.ask(session=f"s{n}")[0] for n in range(4)]
    at = ["--url", desk.url]

    assert main(["approvals", "approve", names[0], *at]) == 0
    assert main(["approvals", "approve", names[1], "--arguments", '{"to":"b"}', *at]) == 0
    assert main(["approvals", "reject", names[2], *at]) == 0
    assert (
        main(["approvals", "reject", names[3], "--continue", "--reason", "no", "--by", "Bob", *at])
        == 0
    )

    assert [desk.decision_of(name) for name in names] == [
        Decision(True, "ada"),
        Decision(True, "ada", arguments='{"to":"b"}'),
        Decision(False, "ada"),
        Decision(False, "Bob", "no", then="continue"),
    ]
    assert capsys.readouterr().out.splitlines() == [
        "send_email of session s0 was approved by ada",
        "send_email of session s1 was approved with edited arguments by ada",
        "send_email of session s2 was rejected by ada",
        "send_email of session s3 was rejected by Bob: no; the model is told and goes on",
    ]


def test_a_decision_as_json_is_the_approval(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    [name] = desk.ask()

    assert main(["approvals", "reject", name, "--stop", "--json", "--url", desk.url]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["id"], found["status"], found["then"]) == (name, "REJECTED", "stop")


def test_a_second_decision_fails_and_says_what_stands(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    [name] = desk.ask()
    desk.decide(name, Decision(True, "Bob\x1b[2J"))

    assert main(["approvals", "reject", name, "--url", desk.url]) == 1

    printed = capsys.readouterr()
    assert f"agentstate: {name} was APPROVED by 'Bob" in printed.err
    assert is_inert(printed.err)


@pytest.mark.parametrize(
    "argv",
    [["approvals"], ["approvals", "approve"], ["approvals", "reject", "x", "--stop", "--continue"],
     ["approvals", "approve", "x", "--continue"], ["approvals", "reject", "x", "--arguments", ""]],
)  # fmt: skip
def test_wrong_usage_is_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)

    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


# -- watching


class Typed:
    """Keys as a script has them: a key, a line, or something that happens meanwhile."""

    shows_lines = False

    def __init__(self, *script: str | Callable[[], object]) -> None:
        self._script = list(script)
        self._rounds = 0

    def rest(self, timeout_s: float) -> str | None:
        """Let the next thing happen, or nothing; a key for a later question stays."""
        self._count()
        if not self._script:
            raise EOFError
        if callable(happens := self._script[0]):
            self._script.pop(0)
            happens()
        elif self._script == ["q"]:
            return "q"
        return None

    def flush(self) -> None:
        """Nothing is typed ahead."""

    def press(self, timeout_s: float) -> str | None:
        """Give the next key."""
        self._count()
        if not self._script:
            raise EOFError
        next_one = self._script.pop(0)
        if callable(next_one):
            next_one()
            return None
        return next_one

    def line(self) -> str | None:
        """Give the next line."""
        if not self._script:
            return None
        line = self._script.pop(0)
        assert isinstance(line, str), "a line was asked for"
        return line

    def lent(self) -> AbstractContextManager[None]:
        """There is no terminal to lend."""
        return nullcontext()

    def _count(self) -> None:
        self._rounds += 1
        assert self._rounds < ROUNDS_MAX, f"it waits for what never comes; left: {self._script}"


def watch(desk: Desk, *script: str | Callable[[], object], editor: list[str] | None = None) -> None:
    """Watch until the script ends."""
    keys = Typed(*script)
    assert Watch(RemoteRecord(desk.url), keys, by="ada", editor=editor, poll_s=0.0).run() == 0


def test_each_key_does_what_it_says(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    names = [desk.ask(session=f"s{n}")[0] for n in range(6)]

    watch(desk, "a", "r", "c", "ask first ", "c", "", "e", '{"to":"b"}', "x", "s", "q")

    assert [desk.decision_of(name) for name in names] == [
        Decision(True, "ada"),
        Decision(False, "ada", then="stop"),
        Decision(False, "ada", "ask first", then="continue"),
        Decision(False, "ada", then="continue"),
        Decision(True, "ada", arguments='{"to":"b"}'),
        None,
    ]
    printed = capsys.readouterr().out
    assert "5 more after this one" in printed
    assert "1 more after this one" in printed
    assert "[q]uit: ?\n" in printed
    assert "send_email of session s1 was rejected by ada; the call ends with 403.\n" in printed


def test_the_end_of_the_input_ends_it_and_decides_nothing(desk: Desk) -> None:
    [name] = desk.ask()

    watch(desk)

    assert desk.decision_of(name) is None


def test_a_line_that_only_begins_like_a_key_is_none(desk: Desk) -> None:
    [name] = desk.ask()

    watch(desk, "abort", "approve", "A")

    assert desk.decision_of(name) is None


def test_what_comes_later_is_asked_and_what_was_skipped_is_not(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    [skipped] = desk.ask(session="first")

    watch(desk, "s", lambda: desk.ask(session="second"), "a", "q")

    printed = capsys.readouterr().out
    assert printed.count("session first, step 0") == 1
    assert "send_email of session second was approved by ada." in printed
    assert desk.decision_of(skipped) is None


def test_a_skipped_one_that_is_asked_again_is_new(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    question = replace(QUESTION, deadline_ms=now_ms() + HOUR_MS)
    [name] = desk.ask(question)
    approval = desk.run(desk.store.read_approval(name))
    assert approval is not None

    def ask_again() -> None:
        later = replace(question, deadline_ms=now_ms() + 2 * HOUR_MS)
        # As of a time at which the first deadline has passed.
        desk.run(
            desk.store.open_approvals(
                approval.step_id, approval.answer_id, (later,), at_ms=now_ms() + HOUR_MS + 1
            )
        )

    watch(desk, "s", ask_again, "a", "q")

    assert capsys.readouterr().out.count("session s, step 0") == 2
    assert desk.decision_of(name) == Decision(True, "ada")


def test_expired_ones_are_counted_and_not_asked(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.ask(replace(QUESTION, deadline_ms=1), at_ms=1)

    watch(desk, "q")

    printed = capsys.readouterr().out
    assert "1 expired with no decision" in printed
    assert "[a]pprove" not in printed


def test_who_was_faster_is_told(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    [first] = desk.ask(session="first")
    [second] = desk.ask(session="second")

    def decide(name: str) -> Callable[[], object]:
        return lambda: desk.decide(name, Decision(False, "Bob", then="stop"))

    # The first is noticed while waiting for a key; the second only by the key's refusal.
    class Late(Typed):
        def flush(self) -> None:
            if desk.decision_of(first) is not None:
                decide(second)()

    keys = Late(decide(first), "a")
    assert Watch(RemoteRecord(desk.url), keys, by=None, editor=None, poll_s=0.0).run() == 0

    printed = capsys.readouterr().out
    assert "Meanwhile: send_email of session first was rejected by Bob" in printed
    assert f"{second} was REJECTED by 'Bob'" in printed
    assert desk.decision_of(second) == Decision(False, "Bob", then="stop")


def test_one_whose_time_ends_under_the_question_is_left(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.ask(replace(QUESTION, deadline_ms=now_ms() + HOUR_MS))

    def later() -> None:
        monkeypatch.setattr("agentstate.doors.api.approvals.now_ms", lambda: 10**15)

    watch(desk, later, "q")

    assert "Its time is over." in capsys.readouterr().out


def test_a_server_that_goes_away_is_waited_for(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    [name] = desk.ask()

    # Away while a question is on the screen, then while nothing is.
    watch(desk, desk.stop, desk.start, "a", desk.stop, desk.start, "q")

    printed = capsys.readouterr().out
    assert printed.count("No AgentState server answers") == 2
    assert printed.count("It answers again.") == 2
    assert desk.decision_of(name) == Decision(True, "ada")


def test_a_decision_that_did_not_get_there_is_asked_again(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    [name] = desk.ask()

    class Unlucky(Typed):
        def flush(self) -> None:
            if not self._rounds:
                desk.stop()

    keys = Unlucky("a", desk.start, "r")
    assert Watch(RemoteRecord(desk.url), keys, by="ada", editor=None, poll_s=0.0).run() == 0

    printed = capsys.readouterr().out
    assert "If your decision did not get there, you are asked again." in printed
    assert printed.count("session s, step 0") == 2
    assert desk.decision_of(name) == Decision(False, "ada", then="stop")


def test_a_server_that_fails_for_now_is_waited_for(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    [name] = desk.ask()

    watch(
        desk,
        "s",
        lambda: desk.run(desk.store.close()),
        lambda: desk.run(desk.store.open()),
        "q",
    )

    printed = capsys.readouterr().out
    assert "Trying again until it answers." in printed
    assert "It answers again." in printed
    assert desk.decision_of(name) is None


def test_without_a_server_to_begin_with_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ServerSilent):
        Watch(RemoteRecord(NOBODY), Typed("q"), by=None, editor=None).run()


def test_an_edit_that_does_not_fit_can_be_mended(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    [name] = desk.ask()

    def fits() -> None:
        desk.decider.refuses = None

    desk.decider.refuses = BadRequest("to must be text; found a number.")
    watch(desk, "e", '{"to":1}', fits, "e", '{"to":"1"}')

    assert (
        "(empty: leave them): \nto must be text; found a number.\n[a]pprove"
        in capsys.readouterr().out
    )
    assert desk.decision_of(name) == Decision(True, "ada", arguments='{"to":"1"}')


@pytest.mark.parametrize("line", ["", "  ", QUESTION.arguments, '{ "to" : "ada@example.org" }'])
def test_an_edit_that_changes_nothing_decides_nothing(line: str, desk: Desk) -> None:
    [name] = desk.ask()

    watch(desk, "e", line, "q")

    assert desk.decision_of(name) is None


def test_a_call_in_a_text_is_not_edited(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    [name] = desk.ask(replace(QUESTION, kind="text"))

    watch(desk, "e", "a")

    assert "Only a call that the model made as such can be edited." in capsys.readouterr().out
    assert desk.decision_of(name) == Decision(True, "ada")


EDITOR = """
import pathlib, sys
file = pathlib.Path(sys.argv[1])
seen = pathlib.Path("seen.txt")
text = file.read_text("utf-8")
seen.write_text((seen.read_text("utf-8") if seen.exists() else "") + text, "utf-8")
assert file.stat().st_mode & 0o077 == 0
file.write_text(text.replace("ada", "bob"), "utf-8")
"""


def test_an_editor_sees_what_is_hidden_and_layout_goes_no_further(
    desk: Desk, tmp_path: Path
) -> None:
    text = '{"to":"ada\u202e","id":12345678901234567890,"note":"grüße"}'
    [name] = desk.ask(replace(QUESTION, arguments=text))
    (tmp_path / "editor.py").write_text(EDITOR)

    watch(desk, "e", editor=[sys.executable, str(tmp_path / "editor.py")])

    seen = (tmp_path / "seen.txt").read_text("utf-8")
    assert seen == (
        '{\n  "to": "ada\\u202e",\n  "id": 12345678901234567890,\n  "note": "grüße"\n}\n'
    )
    decision = desk.decision_of(name)
    assert decision is not None
    assert decision.arguments is not None
    assert "\n" not in decision.arguments
    assert '"id":12345678901234567890' in decision.arguments
    assert json.loads(decision.arguments)["to"] == "bob\u202e"


def test_a_refused_edit_is_in_the_editor_again(desk: Desk, tmp_path: Path) -> None:
    desk.ask()
    (tmp_path / "editor.py").write_text(EDITOR)

    desk.decider.refuses = BadRequest("no")
    watch(desk, "e", "e", editor=[sys.executable, str(tmp_path / "editor.py")])

    assert "bob@example.org" in (tmp_path / "seen.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("editor", "said"),
    [
        (["/nonexistent/editor"], "cannot be started"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "ended with code 3"),
    ],
)
def test_an_editor_that_fails_decides_nothing(
    editor: list[str], said: str, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    [name] = desk.ask()

    watch(desk, "e", "q", editor=editor)

    assert said in capsys.readouterr().out
    assert desk.decision_of(name) is None


def test_what_is_asked_about_cannot_attack_the_terminal(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.ask(
        replace(QUESTION, tool=HOSTILE, arguments=HOSTILE, rule=HOSTILE, why=HOSTILE),
        session="a\x1b[2J",
    )

    watch(desk, "c", HOSTILE, "q")

    assert is_inert(capsys.readouterr().out)


def test_it_works_with_a_pipe_for_a_keyboard(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [desk.ask(session=f"s{n}")[0] for n in range(3)]
    raw = cast(io.RawIOBase, io.BytesIO(b"a\nc\nno \xff\n"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(raw)))

    assert main(["approvals", "watch", "--url", desk.url]) == 0

    assert [desk.decision_of(name) for name in names] == [
        Decision(True, "ada"),
        Decision(False, "ada", "no \ufffd", then="continue"),
        None,
    ]
    assert capsys.readouterr().out.endswith("[q]uit: \n")


def test_what_is_over_is_watched_no_more(desk: Desk) -> None:
    [name] = desk.ask()
    record = RemoteRecord(desk.url)
    ends = iter((False, True, True))

    def over() -> bool:
        return next(ends)

    def nothing() -> None:
        """Let a second pass in which no key is pressed."""

    keys = Typed(nothing, "a")
    assert Watch(record, keys, by=None, editor=None, is_over=over, poll_s=0.0).run() == 0
    assert desk.decision_of(name) is None


def test_ctrl_c_ends_it_cleanly(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(desk, interrupt)

    assert capsys.readouterr().out.endswith("\n")


@pytest.mark.slow
def test_it_works_on_a_terminal(desk: Desk) -> None:
    [name] = desk.ask(replace(QUESTION, arguments=json.dumps({"to": HOSTILE})))
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "agentstate", "approvals", "watch", "--url", desk.url]
    try:
        with subprocess.Popen(
            command, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, encoding="utf-8",
        ) as process:  # fmt: skip
            try:
                # What comes too soon after the question is not taken, so the key is pressed again.
                wait_until(lambda: os.write(master, b"r") and desk.decision_of(name) is not None)
                wait_until(lambda: os.write(master, b"q") and process.poll() is not None)
            finally:
                process.kill()
            assert process.stdout is not None
            printed = process.stdout.read()
    finally:
        os.close(master)
        os.close(slave)

    assert process.returncode == 0, printed
    assert desk.decision_of(name) == Decision(False, "ada", then="stop")
    assert is_inert(printed)


def wait_until(happened: Callable[[], object]) -> None:
    """Try again every tenth of a second until it is true; fail at the limit."""
    for _ in range(100):
        if happened():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it did not happen in time")
