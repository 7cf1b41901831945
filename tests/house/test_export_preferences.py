"""What people decided becomes pairs and labels, and nothing else does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.ground.approvals import Decision
from agentstate.ground.forks import ForkAsk
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.revisions import Revision
from agentstate.house.export_base import Wanted
from agentstate.house.export_lint import lint
from agentstate.steps.edits import Edit
from agentstate.steps.outcome import RULE
from agentstate.steps.revisions import Maker, Revisions
from agentstate.store.base import Store
from tests.helpers.recording import JSON_HEADERS, START_MS, Recorded, record, run_on
from tests.house.export_calls import (
    Body,
    asking,
    block,
    called,
    chat,
    claude,
    export,
    function_call,
    gemini,
    lines_of,
    output,
    response,
    result,
    said,
    texts_of,
    tool_of,
    user,
)
from tests.store.contract import checkpoint_of
from tests.store.contract_gate import question_of

ANN = "ann"
DPO, KTO = Wanted(format="dpo"), Wanted(format="kto")
APPROVED = Decision(True, ANN)
EDITED = Decision(True, ANN, arguments='{"q": "y"}')
REFUSED = Decision(False, ANN, "no", then="continue")
STOPPED = Decision(False, ANN, "no", then="stop")
SEND = ("c1", "send", '{"q": "x"}')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


async def ask(store: Store, step: Recorded, position: int = 0, **changes: Any) -> str:
    """Ask about a call of an answer."""
    question = question_of(f"{step.answer_id}.{position}", position=position, **changes)
    (approval,) = await store.open_approvals(
        step.step_id, step.answer_id, (question,), at_ms=START_MS
    )
    return approval.approval_id


async def decide(store: Store, step: Recorded, *decisions: Decision | None) -> None:
    """Ask about the first calls of an answer and decide; None = that one is not decided."""
    for position, decision in enumerate(decisions):
        approval_id = await ask(store, step, position)
        if decision is not None:
            await store.decide(approval_id, decision, at_ms=START_MS + 5)


async def record_call(store: Store, *calls: tuple[str, str, str], **changes: Any) -> Recorded:
    """Record an answer that calls tools."""
    body = asking(user("a"), tools=[tool_of("send")])
    return await record(store, body, chat(called(*calls or (SEND,))), **changes)


async def record_round(store: Store, step: Recorded, number: int, answer: Body) -> Recorded:
    """Record what the model said when it was told of a refusal."""
    dialect = dialect_by_name("openai_chat")
    assert dialect is not None
    recorded = as_recorded(answer)
    read = dialect.read_answer(recorded.content)
    checkpoint = checkpoint_of(
        step.step_id, answer=recorded, text=read.text, tool_calls=read.tool_calls
    )
    return Recorded(step.step_id, await store.record_round(checkpoint, step.answer_id, number))


def as_recorded(answer: Body) -> RecordedAnswer:
    return RecordedAnswer(200, JSON_HEADERS, "body", json.dumps(answer).encode())


# --- pairs ----------------------------------------------------------------------------------------


def test_an_edit_is_better_than_what_the_model_gave(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        await decide(store, step, EDITED)
        assert await lines_of(store, DPO) == [
            {
                "input": {"messages": [user("a")], "tools": [tool_of("send")]},
                "preferred_output": [called(("c1", "send", '{"q": "y"}'))],
                "non_preferred_output": [called(SEND)],
            }
        ]
        (example,) = await export(store, DPO)
        assert example.touched

    run_on(path, scenario)


def test_several_edits_of_one_answer_are_one_pair(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store, SEND, ("c2", "send", "{}"))
        await decide(store, step, EDITED, EDITED)
        (line,) = await lines_of(store, DPO)
        edited = [
            each["function"]["arguments"] for each in line["preferred_output"][0]["tool_calls"]
        ]
        assert edited == ['{"q": "y"}', '{"q": "y"}']

    run_on(path, scenario)


def test_the_answer_after_a_refusal_is_better_than_the_refused_one(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        await decide(store, step, REFUSED)
        await record_round(store, step, 1, chat("I do not."))
        (line,) = await lines_of(store, DPO)
        assert line["input"]["messages"] == [user("a")]
        assert line["preferred_output"] == [said("I do not.")]
        assert line["non_preferred_output"] == [called(SEND)]

    run_on(path, scenario)


def test_an_answer_that_was_refused_as_well_is_better_than_none(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        await decide(store, step, REFUSED)
        second = await record_round(store, step, 1, chat(called(("c2", "send", "{}"))))
        await decide(store, second, REFUSED)
        assert await export(store, DPO) == []
        await record_round(store, step, 2, chat("fine"))
        first, then = await lines_of(store, DPO)
        assert [first["preferred_output"], then["preferred_output"]] == [[said("fine")]] * 2
        assert first["non_preferred_output"] == [called(SEND)]
        assert then["non_preferred_output"] == [called(("c2", "send", "{}"))]
        # What the model was told stands before its second answer.
        roles = [each["role"] for each in then["input"]["messages"]]
        assert roles == ["user", "assistant", "tool"]

    run_on(path, scenario)


def test_what_was_left_of_an_answer_is_better_than_all_of_it(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store, SEND, ("c2", "get", "{}"))
        await decide(store, step, REFUSED)
        (line,) = await lines_of(store, DPO)
        assert line["preferred_output"] == [called(("c2", "get", "{}"))]
        assert [each["label"] for each in await lines_of(store, KTO)] == [False]

    run_on(path, scenario)


@pytest.mark.parametrize(
    "decisions", [(APPROVED,), (STOPPED,), (None,), (REFUSED,), (EDITED, None)]
)
def test_without_a_better_answer_there_is_no_pair(
    path: Path, decisions: tuple[Decision | None, ...]
) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store, SEND, ("c2", "send", "{}"))
        await decide(store, step, *decisions, *(decisions if len(decisions) == 1 else ()))
        assert await export(store, DPO) == []

    run_on(path, scenario)


def test_an_edit_to_what_it_was_is_no_pair_and_good(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        await decide(store, step, Decision(True, ANN, arguments=SEND[2]))
        assert await export(store, DPO) == []
        assert [each["label"] for each in await lines_of(store, KTO)] == [True]

    run_on(path, scenario)


def test_an_answer_is_not_better_than_itself(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        await decide(store, step, REFUSED)
        await record_round(store, step, 1, chat(called(SEND)))
        assert await export(store, DPO) == []
        assert [each["label"] for each in await lines_of(store, KTO)] == [False]

    run_on(path, scenario)


def test_what_nobody_judged_is_neither_pair_nor_label(path: Path) -> None:
    async def scenario(store: Store) -> None:
        await record_call(store)
        assert await export(store, DPO) == await export(store, KTO) == []

    run_on(path, scenario)


# --- edits ----------------------------------------------------------------------------------------


async def write(store: Store, edit: Edit, index: int = 0) -> Recorded:
    """Have a step answer what a person wrote."""
    made = await Revisions(store).edit("s", index, edit, Maker(ANN, None))
    return Recorded(made.step.step_id, made.answer_id)


async def rerun(store: Store, step: Recorded, answer: Body) -> None:
    """Have a step answer what the model said when it was asked again."""
    dialect = dialect_by_name("openai_chat")
    row = await store.find_step("s", 0)
    assert dialect is not None
    assert row is not None
    assert row.answer_id is not None
    read = dialect.read_answer(as_recorded(answer).content)
    checkpoint = checkpoint_of(step.step_id, answer=as_recorded(answer), text=read.text)
    await store.revise(
        checkpoint, Revision("rerun", row.answer_id), taken=(), seen=1, at_ms=START_MS
    )


async def pairs_of(store: Store, wanted: Wanted = DPO) -> list[tuple[Body, Body]]:
    """Return the better and the worse message of each pair."""
    return [
        (line["preferred_output"][0], line["non_preferred_output"][0])
        for line in await lines_of(store, wanted)
    ]


CALLED = called(("c1", "send", '{"q":"x"}'))
# The answer to `user("a")` in each dialect that an answer is edited in: a text, and a call.
ANSWERS: dict[str, tuple[Body, Body, Body]] = {
    "openai_chat": (asking(user("a")), chat("1"), chat(CALLED)),
    "openai_responses": (
        {"model": "m", "input": [user("a")]},
        response("resp_1", output("1")),
        response("resp_1", function_call("c1", "send", '{"q":"x"}')),
    ),
    "anthropic_messages": (
        {"model": "m", "max_tokens": 9, "messages": [user("a")]},
        claude(block("1")),
        claude({"type": "tool_use", "id": "c1", "name": "send", "input": {"q": "x"}}),
    ),
    "gemini": (
        {"contents": [{"role": "user", "parts": [{"text": "a"}]}]},
        gemini({"text": "1"}),
        gemini({"functionCall": {"id": "c1", "name": "send", "args": {"q": "x"}}}),
    ),
}


@pytest.mark.parametrize("dialect", sorted(ANSWERS))
def test_an_answer_that_a_person_wrote_is_better_than_the_models(path: Path, dialect: str) -> None:
    body, text, call = ANSWERS[dialect]

    async def scenario(store: Store) -> None:
        await record(store, body, text, dialect=dialect)
        await write(store, Edit(text="mine"))
        (line,) = await lines_of(store, DPO)
        assert line == {
            "input": {"messages": [user("a")]},
            "preferred_output": [said("mine")],
            "non_preferred_output": [said("1")],
        }
        assert lint(line, "dpo") == (line, ())
        touched = await export(store, Wanted(touched=True))
        assert [each.messages[-1] for each in touched] == [said("mine")]
        assert await export(store, Wanted(touched=False)) == []
        # It is no decision, so it says nothing of good or not.
        assert await export(store, KTO) == []

    async def of_a_call(store: Store) -> None:
        await record(store, body, call, dialect=dialect)
        await write(store, Edit(arguments='{"q":"y"}'))
        assert await pairs_of(store) == [(called(("c1", "send", '{"q":"y"}')), CALLED)]
        assert [each.touched for each in await export(store)] == [True]

    async def of_all(store: Store) -> None:
        await record(store, body, call, dialect=dialect)
        await write(store, Edit(body=text))
        assert await pairs_of(store) == [(said("1"), CALLED)]

    for number, each in enumerate((scenario, of_a_call, of_all)):
        run_on(path.with_name(f"{number}.db"), each)


def test_of_several_edits_the_last_one_is_better_than_what_the_model_gave(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record(store, asking(user("a")), chat("1"))
        await write(store, Edit(text="draft"))
        await write(store, Edit(text="mine"))
        assert await pairs_of(store) == [(said("mine"), said("1"))]
        both = Wanted(format="dpo", include_replaced=True)
        drafts = [(said("draft"), said("1")), (said("mine"), said("1"))]
        assert await pairs_of(store, both) == drafts
        await rerun(store, step, chat("2"))
        await write(store, Edit(text="again"))
        assert await pairs_of(store) == [(said("again"), said("2"))]

    run_on(path, scenario)


def test_a_rerun_is_no_edit(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record(store, asking(user("a")), chat("1"))
        await rerun(store, step, chat("2"))
        assert await export(store, DPO) == []
        assert [each.touched for each in await export(store)] == [False]
        # Nor is what takes the place of an edited answer.
        await write(store, Edit(text="mine"))
        await rerun(store, step, chat("3"))
        assert await export(store, DPO) == []

    run_on(path, scenario)


def test_an_edit_that_was_undone_or_says_what_the_model_did_is_no_pair(path: Path) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        await write(store, Edit(text="mine"))
        await store.restore("s", None, at_ms=START_MS)
        assert await export(store, DPO) == []
        assert [each.touched for each in await export(store)] == [False]
        await write(store, Edit(text="mine"))
        await write(store, Edit(text="1"))
        assert await export(store, DPO) == []

    run_on(path, scenario)


def test_an_edit_that_the_conversation_went_on_from_is_a_pair_and_the_rest_touched(
    path: Path,
) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        await write(store, Edit(text="mine"))
        await record(store, asking(user("a"), said("mine"), user("b")), chat("2"))
        assert await pairs_of(store) == [(said("mine"), said("1"))]
        (example,) = await export(store, Wanted(touched=True))
        assert [each["content"] for each in example.messages] == ["a", "mine", "b", "2"]

    run_on(path, scenario)


def test_of_several_choices_the_edited_one_is_compared(path: Path) -> None:
    async def scenario(store: Store) -> None:
        choices = [
            {"index": at, "message": said(str(at)), "finish_reason": "stop"} for at in (0, 1)
        ]
        await record(store, asking(user("a"), n=2), chat("", choices=choices))
        await write(store, Edit(text="mine", choice=1))
        assert await pairs_of(store) == [(said("mine"), said("1"))]
        left_out = Counter[str]()
        await write(store, Edit(text="mine", choice=0))
        assert await export(store, DPO, left_out) == []
        assert left_out == {"several_choices": 1}

    run_on(path, scenario)


@pytest.mark.parametrize(
    ("decision", "arguments", "label"),
    [
        (APPROVED, '{"q":"w"}', True),
        (EDITED, '{"q": "y"}', True),
        (STOPPED, None, False),
        (None, None, None),
    ],
)
def test_what_is_decided_about_an_edited_answer_counts_too(
    path: Path, decision: Decision | None, arguments: str | None, label: bool | None
) -> None:
    """What went out in the end is held against the model's; what was refused is not better."""

    async def scenario(store: Store) -> None:
        await record_call(store)
        step = await write(store, Edit(arguments='{"q":"w"}'))
        await decide(store, step, decision)
        pairs = [] if arguments is None else [(called(("c1", "send", arguments)), called(SEND))]
        assert await pairs_of(store) == pairs
        labels = [] if label is None else [label]
        assert [each["label"] for each in await lines_of(store, KTO)] == labels

    run_on(path, scenario)


def test_an_edit_stays_one_in_a_fork(path: Path) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        await write(store, Edit(text="mine"))
        await store.fork_session("s", ForkAsk(session="t"), at_ms=START_MS)
        fork = Wanted(format="dpo", session="t")
        assert await pairs_of(store, fork) == [(said("mine"), said("1"))]

    run_on(path, scenario)


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "label", "arguments"),
    [
        (APPROVED, True, {"q": "x"}),
        (EDITED, True, {"q": "y"}),
        (REFUSED, False, {"q": "x"}),
        (STOPPED, False, {"q": "x"}),
    ],
)
def test_a_decision_labels_its_answer(
    path: Path, decision: Decision, label: bool, arguments: Body
) -> None:
    """Also the one that ended the run, though its session is FAILED."""

    async def scenario(store: Store) -> None:
        step = await record_call(store)
        await decide(store, step, decision)
        (line,) = await lines_of(store, KTO)
        assert line["label"] is label
        assert line["prompt"] == [user("a")]
        (call,) = line["completion"][0]["tool_calls"]
        assert call["function"] == {"name": "send", "arguments": arguments}
        assert line["tools"] == [tool_of("send")]

    run_on(path, scenario)


def test_of_several_decisions_one_refusal_makes_the_answer_bad(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store, SEND, ("c2", "send", "{}"))
        await decide(store, step, APPROVED, STOPPED)
        assert [each["label"] for each in await lines_of(store, KTO)] == [False]

    run_on(path, scenario)


def test_each_round_that_was_decided_has_its_label(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        await decide(store, step, REFUSED)
        second = await record_round(store, step, 1, chat(called(("c2", "send", "{}"))))
        await decide(store, second, APPROVED)
        labels = [each["label"] for each in await lines_of(store, KTO)]
        assert labels == [False, True]

    run_on(path, scenario)


def test_a_further_release_and_a_whole_request_are_not_about_the_answer(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        again = await ask(store, step, generation=1)
        await store.decide(again, APPROVED, at_ms=START_MS)
        request = await ask(store, step, 1, kind="request")
        await store.decide(request, APPROVED, at_ms=START_MS)
        assert await export(store, KTO) == []

    run_on(path, scenario)


# --- conversations --------------------------------------------------------------------------------


def test_what_the_agent_got_is_what_is_said(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        await decide(store, step, EDITED)
        edited = called(("c1", "send", '{"q": "y"}'))
        await store.record_delivered(step.answer_id, as_recorded(chat(edited)))
        (example,) = await export(store)
        assert example.messages == (user("a"), edited)
        assert example.touched
        more = asking(user("a"), edited, result("c1", "ok"))
        await record(store, more, chat("sent"))
        (example,) = await export(store)
        assert (example.index, example.touched) == (1, True)
        assert len(await export(store, Wanted(touched=True))) == 1

    run_on(path, scenario)


def test_a_conversation_that_waits_for_a_person_ends_before_that(path: Path) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        body = asking(user("a"), said("1"), user("b"))
        step = await record(store, body, chat(called(SEND)))
        await decide(store, step, None)
        assert await texts_of(store) == [["a", "1"]]

    run_on(path, scenario)


def test_a_refused_call_is_not_trained_on(path: Path) -> None:
    async def scenario(store: Store) -> None:
        before = [user("a"), said("1"), user("b")]
        step = await record(store, asking(*before), chat(called(SEND)))
        await decide(store, step, STOPPED)
        assert await export(store) == []
        failed = Wanted(include_failed=True)
        (example,) = await export(store, failed)
        assert [each.get("weight") for each in example.messages] == [None, None, None, 0]
        # The other forms have no word for it.
        assert await export(store, Wanted(format="trl", include_failed=True)) == []

    run_on(path, scenario)


def test_what_a_rule_decided_is_touched_by_nobody(path: Path) -> None:
    async def scenario(store: Store) -> None:
        step = await record_call(store)
        approval_id = await ask(store, step, is_quiet=True)
        await store.decide(approval_id, Decision(False, RULE, then="continue"), at_ms=START_MS)
        (example,) = await export(store, KTO)
        assert (example.label, example.touched) == (False, False)

    run_on(path, scenario)


def test_equal_judgements_come_once_and_different_ones_of_one_answer_do_not(path: Path) -> None:
    async def scenario(store: Store) -> None:
        for session, decision in (("r", APPROVED), ("s", APPROVED), ("t", STOPPED)):
            step = await record_call(store, session=session)
            await decide(store, step, decision)
        labels = [each["label"] for each in await lines_of(store, KTO)]
        assert labels == [True, False]

    run_on(path, scenario)
