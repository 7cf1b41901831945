"""What follows from the decisions about an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Dialect, Round
from agentstate.ground.approvals import Approval, ApprovalKind, Decision, Question, Then
from agentstate.ground.chat import Answer, Choice, ToolCall
from agentstate.ground.errors import HumanRejection, PolicyRejection
from agentstate.steps.outcome import (
    RULE,
    Changed,
    GoOn,
    Unchanged,
    can_go_on,
    outcome_of,
    refusal_of,
    stopped,
    tell,
)

BODY = b"the answer"
YES = Decision(True, "ada")
NO = Decision(False, "ada", "not now", None, "continue")
STOP = Decision(False, "ada", "not now", None, "stop")


def approval(
    decision: Decision | None,
    position: int = 0,
    *,
    choice: int = 0,
    kind: ApprovalKind = "tool_call",
    tool: str = "delete_rows",
) -> Approval:
    """Return a question with its decision."""
    question = Question(kind, choice, position, b"", tool, "call_0", "{}", "gate.tools", "", None)
    return Approval(
        approval_id=f"apr_{choice}{position}",
        session="s",
        step_id=1,
        step_number=0,
        index=0,
        answer_id=1,
        dialect="openai_chat",
        model="m",
        run_id=None,
        question=question,
        created_ms=0,
        asked_ms=0,
        decision=decision,
    )


def answer(*calls: int, texts: int = 1, upstream: tuple[int, ...] = ()) -> Answer:
    """Return an answer with so many calls in each of its choices; `upstream` ran in the first."""
    choices = [
        Choice(
            index,
            tool_calls=tuple(
                ToolCall(at, "call_0", "f", "{}", runs_upstream=index == 0 and at in upstream)
                for at in range(count)
            ),
        )
        for index, count in enumerate(calls)
    ]
    return Answer(tuple(choices))


# --- refusals -------------------------------------------------------------------------------------


def test_one_rejection_that_stops_is_the_end_of_the_answer() -> None:
    assert refusal_of([]) is None
    assert refusal_of([approval(None), approval(YES), approval(NO)]) is None
    error = refusal_of([approval(None), approval(YES), approval(STOP, 2)])
    assert isinstance(error, HumanRejection)
    assert error.approval_id == "apr_02"


def test_a_rejection_that_does_not_say_what_follows_stops() -> None:
    assert refusal_of([approval(Decision(False, "ada"))]) is not None


def test_a_refusal_says_who_what_why_and_the_ways_out() -> None:
    error = stopped(approval(STOP), STOP, " And again.")
    assert error.code == "human_rejection"
    assert error.message == (
        "A person (ada) refused the call of delete_rows: not now (apr_00). And again. Roll the "
        "session back, edit the step or fork before it to go on another way."
    )
    assert "A person refused" in stopped(approval(STOP), Decision(False, None)).message
    assert "refused this request" in stopped(approval(STOP, kind="request"), STOP).message
    by_rule = stopped(approval(STOP), Decision(False, RULE, "off limits"))
    assert isinstance(by_rule, PolicyRejection)
    assert by_rule.message.startswith("A rule refused the call of delete_rows: off limits (apr_00)")


def test_what_others_wrote_is_shortened() -> None:
    decision = Decision(False, "b" * 1000, "r" * 1000)
    error = stopped(approval(decision, tool="t" * 1000), decision)
    assert len(error.message) < 700


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["stop", "continue"])
def test_an_answer_of_which_all_was_approved_goes_out_as_it_is(then: Then) -> None:
    assert outcome_of(answer(2), BODY, [approval(YES), approval(YES, 1)]) == Unchanged()
    assert outcome_of(answer(0), BODY, []) == Unchanged()
    assert outcome_of(answer(0), BODY, [approval(YES, kind="text")]) == Unchanged()


def test_edits_and_refusals_beside_others_change_it() -> None:
    edited = Decision(True, "ada", None, '{"a":1}')
    assert outcome_of(answer(2), BODY, [approval(edited, 1)]) == Changed({(0, 1): '{"a":1}'})
    assert outcome_of(answer(2), BODY, [approval(NO, 1)]) == Changed({(0, 1): None})
    both = [approval(edited), approval(NO, 1)]
    assert outcome_of(answer(2), BODY, both) == Changed({(0, 0): '{"a":1}', (0, 1): None})


def test_where_all_its_calls_were_refused_the_model_is_told() -> None:
    told = {0: tell("delete_rows", NO), 1: tell("format", NO)}
    decided = [approval(NO), approval(NO, 1, tool="format")]
    assert outcome_of(answer(2), BODY, decided) == GoOn(Round(BODY, told))


def test_what_the_provider_ran_already_is_no_call_that_is_left() -> None:
    told = {1: tell("delete_rows", NO)}
    outcome = outcome_of(answer(2, upstream=(0,)), BODY, [approval(NO, 1)])
    assert outcome == GoOn(Round(BODY, told))


def test_of_several_choices_none_is_told_about() -> None:
    decided = [approval(NO), approval(NO, choice=1)]
    assert outcome_of(answer(1, 1), BODY, decided) == Changed({(0, 0): None, (1, 0): None})


def test_a_call_that_a_text_spells_is_answered_by_an_observation() -> None:
    decided = [approval(NO, kind="text", tool="format")]
    assert outcome_of(answer(0), BODY, decided) == GoOn(Round(BODY, {}, tell("format", NO)))


def test_each_refused_call_that_a_text_spells_is_spoken_of_once() -> None:
    other = Decision(False, "ada", "never", None, "continue")
    decided = [
        approval(NO, kind="text"),
        approval(NO, 1, kind="text"),
        approval(other, 2, kind="text", tool="format"),
        approval(YES, 3, kind="text"),
    ]
    outcome = outcome_of(answer(0), BODY, decided)
    assert isinstance(outcome, GoOn)
    assert outcome.told.observation == f"{tell('delete_rows', NO)} {tell('format', other)}"


def test_a_spelled_call_that_was_approved_goes_out_without_the_refused_native_ones() -> None:
    decided = [approval(NO), approval(YES, kind="text")]
    assert outcome_of(answer(1), BODY, decided) == Changed({(0, 0): None})


def test_a_model_hears_who_refused_and_why() -> None:
    assert tell("f", NO) == (
        "A person refused this call of f; it was not carried out. Reason: not now. Do not ask for "
        "the same call again: go on without it, or say what you need."
    )
    assert "Reason: Never! Do not" in tell("f", Decision(False, "ada", "Never! "))
    said = tell("f", Decision(False, RULE))
    assert said.startswith("A rule refused this call of f; it was not carried out. Do not")
    assert "ada" not in tell("f", NO), "who decided is nobody's business there"


# --- whether a model can be told ------------------------------------------------------------------


def chat_body(*calls: str, text: str | None = None, choices: int = 1) -> bytes:
    named = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for at, name in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if named:
        message["tool_calls"] = named
    entries = [
        {"index": index, "message": message, "finish_reason": "stop"} for index in range(choices)
    ]
    return json.dumps({"id": "c", "choices": entries}).encode()


def dialect(name: str) -> Dialect:
    found = dialect_by_name(name)
    assert found is not None
    return found


CHAT = dialect("openai_chat")
REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "go"}]}


def test_a_model_can_be_told_of_calls_and_of_what_a_text_spells() -> None:
    assert can_go_on(CHAT, REQUEST, chat_body("f", "g"), "tool_call") is None
    assert can_go_on(CHAT, REQUEST, chat_body(text="Action: f"), "text") is None
    completion = {"choices": [{"index": 0, "text": "Action: f", "finish_reason": "stop"}]}
    prompt: dict[str, Any] = {"model": "m", "prompt": "Go."}
    body = json.dumps(completion).encode()
    assert can_go_on(dialect("openai_completions"), prompt, body, "text") is None


@pytest.mark.parametrize(
    ("name", "request_", "body", "kind", "why"),
    [
        ("openai_embeddings", {"model": "m", "input": "x"}, b"{}", "tool_call", "no tool calls"),
        ("openai_chat", {"model": "m"}, chat_body("f"), "tool_call", "not on record"),
        ("openai_chat", REQUEST, chat_body("f", choices=2), "tool_call", "several choices"),
        ("openai_chat", REQUEST, chat_body("f", text="Action: f"), "text", "makes others"),
        ("openai_chat", {**REQUEST, "n": 2}, chat_body("f"), "tool_call", "several choices"),
        ("openai_completions", {"model": "m", "prompt": [1, 2]}, b"{}", "text", "`prompt`"),
    ],
)
def test_else_it_is_said_why_not(
    name: str, request_: dict[str, Any], body: bytes, kind: ApprovalKind, why: str
) -> None:
    hindrance = can_go_on(dialect(name), request_, body, kind)
    assert hindrance is not None
    assert why in hindrance
