"""`agentstate policy test`: what a policy would have done, told without doing it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate import cli, cli_policy
from agentstate.__main__ import main
from agentstate.cli_server import Answer
from agentstate.ground.canonical import JSON
from agentstate.ground.settings import GateSettings
from agentstate.steps.policy import Policy
from tests.helpers.approvals import Desk
from tests.store.contract import answer_of, checkpoint_of, claim_of, message, request_of

POLICY = """
[gate]
tools = ["send_email"]

[[gate.rule]]
tool = "stripe_*"
when = "args.amount > 5000"
action = "deny"
then = "continue"
reason = "too much"

[[gate.rule]]
tool = "stripe_*"
action = "allow"
"""
MAIL, PAY_LITTLE, PAY_MUCH, READ = (
    ("send_email", '{"to":"ada"}'),
    ("stripe_charge", '{"amount":10}'),
    ("stripe_charge", '{"amount":9000}'),
    ("read_file", '{"path":"x"}'),
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has the policy above and none of the developer's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "DEFAULT_URL", "http://127.0.0.1:9")
    for name in list(os.environ):
        if name.startswith(("AGENTSTATE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OLLAMA_")):
            monkeypatch.delenv(name)
    (tmp_path / "agentstate.toml").write_text(POLICY)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


def record(
    desk: Desk, session: str, *calls: tuple[str, str], text: str = "", prompt: str = "go"
) -> None:
    """Record a step whose answer calls tools."""
    tool_calls: list[JSON] = [
        {"id": "call_0", "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in calls
    ]
    said: dict[str, Any] = {"role": "assistant", "content": text}
    if tool_calls:
        said["tool_calls"] = tool_calls
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if calls else "stop"}
    body = {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]}

    async def write() -> None:
        count = await desk.store.read_session(session)
        claim = claim_of(
            f"{session} {0 if count is None else count.steps}",
            session=session,
            request=request_of(message(prompt)),
        )
        claimed = await desk.store.claim_step(claim)
        answer = answer_of(json.dumps(body).encode())
        await desk.store.record_answer(checkpoint_of(claimed.step_id, answer=answer))

    desk.run(write())


def judge(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """Return what `--json` prints."""
    assert main(["policy", "test", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def actions(found: Any) -> list[tuple[str, str]]:
    return [(call["tool"], call["action"]) for call in found["calls"]]


# -- the record


def test_the_calls_of_a_session_are_judged(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    record(desk, "run-1", MAIL, READ)
    record(desk, "run-1", PAY_MUCH)
    record(desk, "run-2", PAY_LITTLE)

    assert main(["policy", "test", "run-1", "--url", desk.url]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["WHERE", "TOOL", "VERDICT", "BY", "ARGUMENTS"]
    assert lines[1].split() == [
        "run-1", "step", "0", "send_email", "asked", "gate.tools:", "send_email", '{"to":"ada"}',
    ]  # fmt: skip
    assert lines[2].split() == [
        "run-1", "step", "0", "read_file", "allowed", "-", '{"path":"x"}'
    ]  # fmt: skip
    assert lines[3].split()[:5] == ["run-1", "step", "1", "stripe_charge", "denied"]
    assert lines[4:6] == ["", "3 calls: 1 asked, 1 denied, 1 allowed"]
    assert sorted(line.split(" by ")[1] for line in lines[6:]) == [
        "gate.rule 1: stripe_* when args.amount > 5000",
        "gate.tools: send_email",
        "no rule",
    ]


def test_without_a_source_all_sessions_are_judged(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    record(desk, "run-1", MAIL)
    record(desk, "run/2 x", PAY_LITTLE)

    found = judge(capsys, "--url", desk.url)

    assert found["sums"] == {"asked": 1, "denied": 0, "allowed": 1}
    assert {(call["session"], call["index"], call["line"]) for call in found["calls"]} == {
        ("run-1", 0, None),
        ("run/2 x", 0, None),
    }
    assert not found["is_cut"]


def test_a_verdict_is_given_whole(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    record(desk, "run-1", PAY_MUCH)

    [call] = judge(capsys, "run-1", "--url", desk.url)["calls"]

    assert call == {
        "session": "run-1",
        "index": 0,
        "line": None,
        "tool": "stripe_charge",
        "arguments": '{"amount":9000}',
        "kind": "function",
        "action": "deny",
        "rule": "gate.rule 1: stripe_* when args.amount > 5000",
        "why": "",
        "then": "continue",
        "reason": "too much",
    }


def test_another_policy_gives_other_verdicts(
    desk: Desk, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    record(desk, "run-1", READ, MAIL)
    (tmp_path / "strict.toml").write_text('[gate]\ntools = ["read_*"]\n')

    found = judge(capsys, "run-1", "--config", "strict.toml", "--url", desk.url)

    assert actions(found) == [("read_file", "ask"), ("send_email", "allow")]


REACT = 'Thought: hm\nAction: send_email\nAction Input: {"to": "ada"}'


def test_a_text_is_read_for_calls_where_the_gate_reads_it(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    record(desk, "named", text=REACT, prompt="You have the tool send_email.")
    record(desk, "not-named", text=REACT)
    record(desk, "no-call", text="I would not send_email.", prompt="send_email?")

    found = judge(capsys, "--url", desk.url)

    assert [(call["session"], call["kind"], call["action"]) for call in found["calls"]] == [
        ("named", "text", "ask")
    ]


def test_calls_that_the_provider_ran_are_left_out() -> None:
    class Page:
        """A record with one step."""

        place = "here"

        def get(self, target: str) -> Answer:
            call = {"id": "c", "kind": "function", "name": "send_email", "arguments": "{}"}
            calls = [{**call, "runs_upstream": ran} for ran in (True, False)]
            choice = {"index": 0, "text": "", "tool_calls": calls}
            step = {"index": 0, "step_number": 0, "dialect": "openai_chat", "choices": [choice]}
            return Answer(json.dumps({"steps": [step]}).encode(), None)

        def post(self, target: str, value: JSON) -> Answer:
            raise AssertionError("nothing is decided")

    policy = Policy(GateSettings())

    assert len(list(cli_policy.read_record(policy, Page(), "s"))) == 1


def test_steps_without_an_answer_are_passed_over(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.run(desk.store.claim_step(claim_of("hi", session="run-1")))

    assert main(["policy", "test", "run-1", "--url", desk.url]) == 0
    assert capsys.readouterr().out == "No call of a tool is on record there.\n"


def test_only_so_many_calls_are_judged(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_policy, "CALLS_MAX", 2)
    record(desk, "run-1", MAIL, READ, PAY_MUCH)

    found = judge(capsys, "run-1", "--url", desk.url)
    assert main(["policy", "test", "run-1", "--url", desk.url]) == 0

    assert (len(found["calls"]), found["is_cut"]) == (2, True)
    assert "There are more: these are the first 2." in capsys.readouterr().out


def test_what_is_neither_file_nor_session_is_said_so(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "test", "nowhere.jsonl", "--url", desk.url]) == 1
    assert "There is no file and no session 'nowhere.jsonl'." in capsys.readouterr().err


# -- files


def test_the_lines_of_a_file_are_judged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call: JSON = {
        "id": "c",
        "type": "function",
        "function": {"name": "send_email", "arguments": "{}"},
    }
    custom: JSON = {"id": "c", "type": "custom", "custom": {"name": "read_file", "input": "x"}}
    lines: list[JSON] = [
        {"name": "send_email", "arguments": {"id": 12345678901234567890}},
        {"tool": "stripe_charge", "arguments": '{"amount": 9000}'},
        {"name": "read_file"},
        {"role": "user", "name": "send_email", "content": "not a call, but a user's name"},
        {"role": "assistant", "content": None, "tool_calls": [call, custom]},
        {"role": "assistant", "function_call": {"name": "stripe_x", "arguments": "{}"}},
        {"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": [call]}]},
    ]
    text = "\n\n".join(json.dumps(line) for line in lines)
    (tmp_path / "calls.jsonl").write_text(text)

    found = judge(capsys, "calls.jsonl")

    assert [(call["line"], call["tool"], call["action"]) for call in found["calls"]] == [
        (1, "send_email", "ask"),
        (3, "stripe_charge", "deny"),
        (5, "read_file", "allow"),
        (9, "send_email", "ask"),
        (9, "read_file", "allow"),
        (11, "stripe_x", "allow"),
        (13, "send_email", "ask"),
    ]
    assert found["calls"][0]["arguments"] == '{"id":12345678901234567890}'
    assert found["calls"][2]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "calls.jsonl:2: The body must be JSON"),
        ("[]", "calls.jsonl:2: expected a call such as"),
        ('{"arguments": {}}', "calls.jsonl:2: expected a call such as"),
        ('{"name": 1}', "calls.jsonl:2: expected a call such as"),
        ('{"name": "a", "name": "b"}', "calls.jsonl:2: The JSON body names the key 'name' twice"),
    ],
)
def test_a_line_that_is_no_call_is_named(
    line: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "calls.jsonl").write_text('{"name": "a"}\n' + line + "\n")

    assert main(["policy", "test", "calls.jsonl"]) == 1
    assert said in capsys.readouterr().err


def test_a_line_without_end_is_not_read_to_its_end(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_policy, "LINE_BYTES_MAX", 10)
    (tmp_path / "calls.jsonl").write_text('{"name": "a"}\n')

    assert main(["policy", "test", "calls.jsonl"]) == 1
    assert "over 10 bytes" in capsys.readouterr().err


def test_a_table_is_not_an_attack_on_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = {"name": "send_email\x1b[2J\u202e", "arguments": "\x1b]0;owned\x07\r\n"}
    (tmp_path / "calls.jsonl").write_text(json.dumps(line))

    assert main(["policy", "test", "calls.jsonl"]) == 0
    assert set(capsys.readouterr().out).isdisjoint("\x1b\x07\r\u202e")


@pytest.mark.parametrize("argv", [["policy"], ["policy", "test", "a", "b"]])
def test_wrong_usage_is_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)

    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_wrong_policy_is_code_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "agentstate.toml").write_text('[gate]\ntool = ["x"]\n')

    assert main(["policy", "test"]) == 2
    assert "unknown key 'tool' in [gate]" in capsys.readouterr().err
