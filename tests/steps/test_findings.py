"""What of an answer, or of a request, must be decided."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects.base import Tool
from agentstate.ground.chat import Answer, Choice, ToolCall
from agentstate.ground.settings import GateSettings, RuleSettings
from agentstate.steps.findings import Finding, find_guarded, find_in_request
from agentstate.steps.policy import Policy, Verdict

GUARDED = Policy(GateSettings(tools=("delete_*", "shell")))


def call(name: str, position: int = 0, arguments: str = "{}", **fields: Any) -> ToolCall:
    return ToolCall(position, f"call_{position}", name, arguments, **fields)


def found(answer: Answer, policy: Policy = GUARDED, *, scans_text: bool = False) -> list[Finding]:
    return list(find_guarded(policy, answer, scans_text=scans_text))


# --- answers --------------------------------------------------------------------------------------


def test_calls_the_policy_does_not_simply_allow_are_found_in_their_order() -> None:
    first = Choice(0, tool_calls=(call("delete_rows"), call("get_weather", 1), call("Shell", 2)))
    second = Choice(1, tool_calls=(call("get_weather"), call("delete_logs", 1)))
    findings = found(Answer((first, second)))
    assert [(each.place, each.tool) for each in findings] == [
        ((0, 0), "delete_rows"),
        ((0, 2), "Shell"),
        ((1, 1), "delete_logs"),
    ]


def test_a_finding_holds_what_a_person_is_asked() -> None:
    (finding,) = found(Answer((Choice(0, tool_calls=(call("delete_rows", 1, '{"a": 1}'),)),)))
    question = finding.question(5000, "continue", generation=2, why="again")
    assert (question.kind, question.choice, question.position) == ("tool_call", 0, 1)
    assert (question.tool, question.call_id, question.arguments) == (
        "delete_rows",
        "call_1",
        '{"a": 1}',
    )
    assert (question.deadline_ms, question.on_reject) == (5000, "continue")
    assert (question.generation, question.why) == (2, "again")
    assert question.rule == "gate.tools: delete_*"
    assert question.digest == GUARDED.digest_of("delete_rows", '{"a":1}')
    assert Finding.of(question).question(5000, "continue", generation=2) == question


def test_what_the_provider_has_run_already_is_not_asked_about() -> None:
    ran = call("delete_rows", runs_upstream=True, kind="mcp_call")
    assert not found(Answer((Choice(0, tool_calls=(ran,)),)))


def test_a_built_in_tool_is_found_by_its_type() -> None:
    shell = call("shell_call", kind="shell_call")
    assert [each.tool for each in found(Answer((Choice(0, tool_calls=(shell,)),)))] == [
        "shell_call"
    ]


def test_a_rule_that_denies_is_a_finding_too() -> None:
    policy = Policy(GateSettings(tools=(), rules=(RuleSettings("delete_*", action="deny"),)))
    (finding,) = found(Answer((Choice(0, tool_calls=(call("delete_rows"),)),)), policy)
    assert finding.verdict.action == "deny"


SPELLED = "Action: delete_rows\nAction Input: {}\nObservation: ok\nAction: get_weather\n"


def test_texts_are_looked_into_only_where_the_request_names_a_guarded_tool() -> None:
    answer = Answer((Choice(0, text=SPELLED),))
    assert not found(answer)
    (finding,) = found(answer, scans_text=True)
    assert (finding.kind, finding.place) == ("text", (0, 0))
    assert (finding.tool, finding.arguments) == ("delete_rows", "{}")
    assert finding.call_id is None


def test_texts_count_on_their_own_beside_calls() -> None:
    first = Choice(0, text="Well. ", tool_calls=(call("delete_rows"),))
    second = Choice(3, text=SPELLED, tool_calls=(call("get_weather"), call("delete_logs", 1)))
    findings = found(Answer((first, second)), scans_text=True)
    assert [(each.kind, each.place) for each in findings] == [
        ("tool_call", (0, 0)),
        ("tool_call", (3, 1)),
        ("text", (3, 0)),
    ]


def test_an_answer_that_says_nothing_has_nothing_in_it() -> None:
    assert not found(Answer(), scans_text=True)


# --- requests -------------------------------------------------------------------------------------


def in_request(*tools: Tool, policy: Policy = GUARDED, is_wanted: bool = False) -> Finding | None:
    return find_in_request(policy, tools, digest=b"d", model="m", is_wanted=is_wanted)


def upstream(name: str) -> Tool:
    return Tool(name, None, runs_upstream=True)


def test_a_request_is_held_where_the_provider_runs_a_guarded_tool() -> None:
    finding = in_request(upstream("web_search"), upstream("db.delete_rows"))
    assert finding is not None
    assert (finding.kind, finding.tool, finding.digest) == ("request", "db.delete_rows", b"d")
    assert finding.verdict.action == "ask"
    assert finding.verdict.rule == "gate.tools: delete_*"
    assert "before anybody here sees" in finding.verdict.why


def test_a_tool_that_the_client_runs_holds_nothing_up_beforehand() -> None:
    assert in_request(Tool("delete_rows", None, runs_upstream=False)) is None
    assert in_request(upstream("web_search")) is None
    assert in_request() is None


def test_several_are_asked_about_together() -> None:
    finding = in_request(upstream("delete_rows"), upstream("shell"), upstream("delete_logs"))
    assert finding is not None
    assert finding.tool == "delete_rows, shell, delete_logs"
    assert finding.verdict.rule == "gate.tools: delete_*; gate.tools: shell"


def test_one_that_a_rule_denies_decides() -> None:
    rules = (RuleSettings("shell", action="deny", then="continue", reason="no shells"),)
    policy = Policy(GateSettings(tools=("delete_*",), rules=rules))
    finding = in_request(upstream("delete_rows"), upstream("shell"), policy=policy)
    assert finding is not None
    assert finding.tool == "shell"
    assert finding.verdict == Verdict("deny", "gate.rule 1: shell", "", "continue", "no shells")


@pytest.mark.parametrize("action", ["ask", "deny"])
def test_what_depends_on_arguments_is_asked_about_since_nobody_sees_them(action: Any) -> None:
    rules = (RuleSettings("pay", "args.amount > 5000", action),)
    finding = in_request(upstream("pay"), policy=Policy(GateSettings(tools=(), rules=rules)))
    assert finding is not None
    assert finding.verdict.action == "ask"


def test_a_rule_that_allows_whatever_the_arguments_is_enough() -> None:
    rules = (RuleSettings("delete_rows", action="allow"),)
    policy = Policy(GateSettings(tools=("delete_*",), rules=rules))
    assert in_request(upstream("delete_rows"), policy=policy) is None
    rules = (RuleSettings("delete_rows", 'args.table == "tmp"', "allow"),)
    policy = Policy(GateSettings(tools=("delete_*",), rules=rules))
    assert in_request(upstream("delete_rows"), policy=policy) is not None


def test_a_caller_may_want_it() -> None:
    finding = in_request(is_wanted=True)
    assert finding is not None
    assert (finding.tool, finding.verdict.rule) == ("m", "x-agent-require-approval")
    guarded = in_request(upstream("shell"), is_wanted=True)
    assert guarded is not None
    assert guarded.tool == "shell"
