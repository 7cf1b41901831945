"""Examples come out of the record: one for each conversation, as it took place, and no other."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentstate.ground.control import About, Change, Place, Tags
from agentstate.ground.errors import BadRequest
from agentstate.ground.forks import ForkAsk
from agentstate.ground.records import Query
from agentstate.house.export import make_line
from agentstate.house.export_base import Untaken, Wanted
from agentstate.house.export_examples import examples
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from tests.helpers.recording import START_MS, record, run_on
from tests.house.export_calls import (
    Body,
    asking,
    block,
    called,
    chat,
    claude,
    export,
    function_call,
    function_output,
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
from tests.store.contract import claim_of, request_of

Run = Callable[[Callable[[Store], Awaitable[None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Play a scenario on a real file, and on the dictionary store: both must do."""

    def both(scenario: Callable[[Store], Awaitable[None]]) -> None:
        run_on(tmp_path / "record.db", scenario)

        async def in_memory() -> None:
            store = MemoryStore()
            await store.open()
            await scenario(store)
            await store.close()

        asyncio.run(in_memory())

    return both


async def record_talk(store: Store, *turns: str, **changes: Any) -> None:
    """Record a conversation without tools: what the user says, what the model says, and so on."""
    messages: list[Body] = []
    for asked, answered in zip(turns[::2], turns[1::2], strict=True):
        messages.append(user(asked))
        await record(store, asking(*messages), chat(answered), **changes)
        messages.append(said(answered))


# --- one line for a conversation ------------------------------------------------------------------


def test_a_run_with_tools_is_one_line_that_says_what_took_place(run: Run) -> None:
    asked = [{"role": "developer", "content": "be brief"}, user("weather?")]
    calls = called(("call_1", "get", ""), ("call_2", "get", '{"q": "x"}'))
    results = [result("call_1", "5C"), {**result("call_2", ""), "content": [block("6C")]}]
    tools = [tool_of("get"), tool_of("other")]

    async def scenario(store: Store) -> None:
        more = {"tools": tools, "parallel_tool_calls": True, "temperature": 0.5}
        await record(store, asking(*asked, **more), chat(calls))
        await record(store, asking(*asked, calls, *results, **more), chat("5 and 6"))
        assert await lines_of(store) == [
            {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    user("weather?"),
                    called(("call_1", "get", "{}"), ("call_2", "get", '{"q": "x"}')),
                    {"role": "tool", "content": "5C", "tool_call_id": "call_1"},
                    {"role": "tool", "content": "6C", "tool_call_id": "call_2"},
                    said("5 and 6"),
                ],
                "tools": tools,
                "parallel_tool_calls": True,
            }
        ]
        (example,) = await export(store)
        assert (example.session, example.index, example.model) == ("s", 1, "gpt-4o-2024")
        assert (example.cost_microusd, example.touched) == (10, False)

    run(scenario)


def test_a_run_that_ends_with_a_call_ends_with_the_call(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat(called(("c", "get", "{}"))))
        ((*_, last),) = [each.messages for each in await export(store)]
        assert last == called(("c", "get", "{}"))

    run(scenario)


def test_lanes_that_part_are_a_line_each(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record_talk(store, "a", "1", "b", "2")
        await record(store, asking(user("a"), said("1"), user("c")), chat("3"))
        await record(store, asking(user("other")), chat("4"))
        assert await texts_of(store) == [
            ["a", "1", "b", "2"],
            ["a", "1", "c", "3"],
            ["other", "4"],
        ]
        roots = [example.root for example in await export(store)]
        assert roots[0] == roots[1] != roots[2]

    run(scenario)


def test_messages_that_follow_without_the_answer_do_not_go_on_from_it(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        await record(store, asking(user("a"), user("b")), chat("2"))
        assert await texts_of(store) == [["a", "1"], ["a", "b", "2"]]

    run(scenario)


@pytest.mark.parametrize("results_count", [1, 5, 6, 7, 40, 1200])
def test_a_step_far_below_is_found(run: Run, results_count: int) -> None:
    calls = [(f"c{number}", "get", "{}") for number in range(results_count)]

    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat(called(*calls)))
        results = [result(call_id, "r") for call_id, _, _ in calls]
        before = [user("a"), called(*calls), *results]
        await record(store, asking(*before), chat("1"))
        await record(store, asking(*before[:-1], result(calls[-1][0], "other")), chat("2"))
        found = await export(store)
        assert [each.messages[-1]["content"] for each in found] == ["1", "2"]
        assert [each.cost_microusd for each in found] == [10, 10]

    run(scenario)


def test_many_steps_far_below_one_are_found_by_one_long_way(tmp_path: Path) -> None:
    """A way that was walked once is not walked again, and leads to what was asked since."""
    long = [user("a"), said("1"), *(user(str(number)) for number in range(60))]
    long[30] = said("middle")

    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        for number in range(4):
            await record(store, asking(*long, user(f"end {number}")), chat(f"e{number}"))
        # From now on there is something to find in the middle of the way.
        await record(store, asking(*long[:30]), chat("middle"))
        await record(store, asking(*long, user("end 4")), chat("e4"))
        found = await export(store)
        assert [each.messages[-1]["content"] for each in found] == ["e0", "e1", "e2", "e3", "e4"]
        assert [each.cost_microusd for each in found] == [10, 10, 10, 10, 15]

    run_on(tmp_path / "record.db", scenario)


def test_a_run_that_was_made_again_is_one_line(run: Run) -> None:
    async def scenario(store: Store) -> None:
        for _ in range(3):
            await record_talk(store, "a", "1", "b", "2")
        assert await texts_of(store) == [["a", "1", "b", "2"]]
        assert len(await export(store, Wanted(dedupe=False))) == 3

    run(scenario)


def test_a_run_that_was_made_again_and_died_is_no_line_of_its_own(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record_talk(store, "a", "1", "b", "2")
        await record(store, asking(user("a")), chat("1"))
        assert await texts_of(store) == [["a", "1", "b", "2"]]

    run(scenario)


def test_of_steps_that_were_asked_the_same_the_one_that_was_taken_up_is_continued(
    run: Run,
) -> None:
    first, second = called(("c1", "get", "{}")), called(("c2", "get", "{}"))

    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat(first), cost_microusd=1)
        await record(store, asking(user("a")), chat(second), cost_microusd=10)
        await record(store, asking(user("b")), chat(" one "), cost_microusd=1)
        await record(store, asking(user("b")), chat("two"), cost_microusd=10)
        await record(store, asking(user("a"), first, result("c1", "r")), chat("x"))
        await record(store, asking(user("b"), said("one"), user("?")), chat("y"))
        found = await export(store)
        assert [each.index for each in found] == [3, 4, 5]
        assert [each.cost_microusd for each in found] == [10, 6, 6]
        # Index 1 says what 0 does, but for an id that nobody sees.
        assert len(await export(store, Wanted(dedupe=False))) == 3

    run(scenario)


def test_ids_that_come_again_do_not_decide_what_words_tell(run: Run) -> None:
    first, second = called(("call_0", "get", '{"q": "x"}')), called(("call_0", "get", '{"q": "y"}'))

    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat(first), cost_microusd=1)
        await record(store, asking(user("a")), chat(second), cost_microusd=10)
        rewritten = called(("call_0", "get", '{"q":"x"}'))
        await record(store, asking(user("a"), rewritten, result("call_0", "r")), chat("end"))
        found = await export(store)
        assert [each.index for each in found] == [1, 2]
        assert found[1].cost_microusd == 6

    run(scenario)


def test_an_answer_that_the_agent_rewrote_is_continued(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("<think>hm</think> 1"))
        await record(store, asking(user("a"), said("1"), user("b")), chat("2"))
        assert await texts_of(store) == [["a", "1", "b", "2"]]
        assert await texts_of(store, Wanted(include_replaced=True)) == [
            ["a", "<think>hm</think> 1"],
            ["a", "1", "b", "2"],
        ]

    run(scenario)


def test_several_choices_are_the_first_unless_a_later_one_was_taken(run: Run) -> None:
    both = chat("one")
    both["choices"].append({"index": 1, "message": said("two"), "finish_reason": "stop"})

    async def scenario(store: Store) -> None:
        await record(store, asking(user("a"), n=2), both)
        assert await texts_of(store) == [["a", "one"]]
        await record(store, asking(user("a"), said("two"), user("b")), chat("3"))
        assert await texts_of(store) == [["a", "two", "b", "3"]]

    run(scenario)


# --- other dialects -------------------------------------------------------------------------------


def test_a_stream_says_what_a_body_says(run: Run) -> None:
    frames = (
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "he"}}]},
        {"choices": [{"index": 0, "delta": {"content": "llo \ud83d"}, "finish_reason": "stop"}]},
    )
    raw = b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in frames)

    async def scenario(store: Store) -> None:
        await record(store, asking(user("a"), stream=True), raw + b"data: [DONE]\n\n")
        assert await texts_of(store) == [["a", "hello \ud83d"]]

    run(scenario)


def test_messages_come_out_as_chat(run: Run) -> None:
    tool = {"name": "get", "description": "d", "input_schema": {"type": "object"}}
    asked: Body = {"model": "claude-test", "max_tokens": 9, "system": "be brief", "tools": [tool]}
    call = {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"q": 1.50}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    told = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True}
    history = [user("a"), {"role": "assistant", "content": [thought, block("I look."), call]}]
    more = {"role": "user", "content": [told, block("well?")]}

    async def scenario(store: Store) -> None:
        claim: Body = {"dialect": "anthropic_messages", "provider": "anthropic"}
        answer = claude(thought, block("I look."), call, stop="tool_use")
        await record(store, {**asked, "messages": history[:1]}, answer, **claim)
        await record(store, {**asked, "messages": [*history, more]}, claude(block("5")), **claim)
        function = {"name": "get", "description": "d", "parameters": {"type": "object"}}
        assert await lines_of(store) == [
            {
                "messages": [
                    {"role": "system", "content": "be brief"},
                    user("a"),
                    called(("toolu_1", "get", '{"q":1.5}'), text="I look."),
                    {"role": "tool", "content": "Error: no", "tool_call_id": "toolu_1"},
                    user("well?"),
                    said("5"),
                ],
                "tools": [{"type": "function", "function": function}],
            }
        ]

    run(scenario)


def test_gemini_comes_out_as_chat_with_the_ids_of_later_turns(run: Run) -> None:
    asked = {"role": "user", "parts": [{"text": "a"}]}
    call = {"functionCall": {"name": "get", "args": {"q": "x"}}}
    told = {"functionResponse": {"name": "get", "response": {"r": 1}}}
    claim: Body = {"dialect": "gemini", "provider": "gemini"}

    async def scenario(store: Store) -> None:
        await record(store, {"contents": [asked]}, gemini({"text": "hm"}, call), **claim)
        (early,) = await export(store)
        history = [asked, {"role": "model", "parts": [{"text": "hm"}, call]}]
        body = {"contents": [*history, {"role": "user", "parts": [told]}]}
        await record(store, body, gemini({"text": "5"}), **claim)
        (late,) = await export(store)
        assert late.messages[:2] == early.messages  # the id that was made is the same
        call_id = early.messages[1]["tool_calls"][0]["id"]  # type: ignore[index, call-overload]
        assert [each["role"] for each in late.messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert late.messages[2]["tool_call_id"] == call_id
        assert late.messages[3] == said("5")

    run(scenario)


RESPONSES: Body = {"dialect": "openai_responses"}


def test_responses_with_the_whole_input_are_one_conversation(run: Run) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    calls = [function_call("c1", "get", "{}"), function_call("c2", "get", "{}")]

    async def scenario(store: Store) -> None:
        asked: Body = {"model": "gpt-4o", "instructions": "be brief"}
        answer = response("resp_1", thought, *calls)
        await record(store, {**asked, "input": [user("a")]}, answer, **RESPONSES)
        more = [user("a"), thought, *calls, function_output("c1", "5"), function_output("c2", "6")]
        answer = response("resp_2", output("done"))
        await record(store, {**asked, "input": more}, answer, **RESPONSES)
        ((system, asked_again, called_both, *results, last),) = [
            each.messages for each in await export(store)
        ]
        assert (system["content"], asked_again) == ("be brief", user("a"))
        assert called_both == called(("c1", "get", "{}"), ("c2", "get", "{}"))
        assert [each["content"] for each in results] == ["5", "6"]
        assert last == said("done")

    run(scenario)


def test_a_text_for_an_input_is_continued_by_the_message_that_says_it(run: Run) -> None:
    async def scenario(store: Store) -> None:
        first = {"model": "gpt-4o", "input": "a"}
        await record(store, first, response("resp_1", output("1")), **RESPONSES)
        await record(store, first, response("resp_2", output("other")), **RESPONSES)
        more = {"model": "gpt-4o", "input": [user("a"), output("1"), user("b")]}
        await record(store, more, response("resp_3", output("2")), **RESPONSES)
        assert await texts_of(store) == [["a", "other"], ["a", "1", "b", "2"]]

    run(scenario)


def test_responses_that_go_on_by_an_id_are_one_conversation(run: Run) -> None:
    def linked(text: str, before: str, **changes: Any) -> Body:
        changes |= {"instructions": f"now {text}", "previous_response_id": before}
        return {"model": "gpt-4o", "input": [user(text)], **changes}

    async def scenario(store: Store) -> None:
        call = function_call("c1", "get", "{}")
        first = {"model": "gpt-4o", "instructions": "first", "input": "a"}
        await record(store, first, response("resp_1", call), **RESPONSES)
        told = {"model": "gpt-4o", "previous_response_id": "resp_1"}
        told |= {"input": [function_output("c1", "5")]}
        await record(store, told, response("resp_2", output("1")), **RESPONSES)
        # The same words after two different answers are two conversations.
        await record(store, linked("go on", "resp_2"), response("resp_3", output("2")), **RESPONSES)
        await record(store, linked("go on", "resp_3"), response("resp_4", output("3")), **RESPONSES)
        await record(store, linked("no", "resp_2"), response("resp_5", output("4")), **RESPONSES)
        before = ["a", None, "5", "1"]
        assert await texts_of(store) == [
            ["now go on", *before, "go on", "2", "go on", "3"],
            ["now no", *before, "no", "4"],
        ]
        assert [each.cost_microusd for each in await export(store)] == [20, 15]

    run(scenario)


def test_a_cut_response_in_the_middle_does_not_part_what_goes_on_by_its_id(run: Run) -> None:
    async def scenario(store: Store) -> None:
        asked: Body = {"model": "m", "input": [user("a")]}
        await record(store, asked, response("resp_1", output("1")), **RESPONSES)
        more = {"model": "m", "input": [user("a"), output("1"), user("b")]}
        half = response("resp_2", output("half"))
        half |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        await record(store, more, half, **RESPONSES)
        last = {"model": "m", "input": "go on", "previous_response_id": "resp_2"}
        await record(store, last, response("resp_3", output("2")), **RESPONSES)
        left_out = Counter[str]()
        (example,) = await export(store, left_out=left_out)
        assert [each["content"] for each in example.messages] == [
            "a", "1", "b", "half", "go on", "2",
        ]  # fmt: skip
        assert left_out == {"cut": 1}

    run(scenario)


def test_what_goes_on_from_what_is_not_on_record_is_not_either(run: Run) -> None:
    async def scenario(store: Store) -> None:
        for before, own in (("resp_?", "resp_1"), ("resp_1", "resp_2")):
            body = {"model": "m", "input": "a", "previous_response_id": before}
            await record(store, body, response(own, output(own)), **RESPONSES)
        left_out = Counter[str]()
        assert await export(store, left_out=left_out) == []
        assert left_out == {"history_elsewhere": 1}

    run(scenario)


@pytest.mark.parametrize(
    ("body", "dialect", "reason"),
    [
        (
            {"model": "m", "input": "b", "previous_response_id": "resp_?"},
            "openai_responses",
            "history_elsewhere",
        ),
        (
            {"model": "m", "input": "b", "conversation": "conv_1"},
            "openai_responses",
            "history_elsewhere",
        ),
        (
            {"model": "m", "input": [{"type": "item_reference", "id": "i"}]},
            "openai_responses",
            "history_elsewhere",
        ),
        (
            {"model": "m", "input": [{"type": "local_shell_call_output", "id": "i"}, user("b")]},
            "openai_responses",
            "no_chat_form",
        ),
        ({"model": "m", "messages": [{"role": "narrator"}]}, "openai_chat", "no_chat_form"),
    ],
)
def test_what_is_not_all_on_record_is_left_out(
    run: Run, body: Body, dialect: str, reason: str
) -> None:
    answer = chat("1") if dialect == "openai_chat" else response("resp_9", output("1"))

    async def scenario(store: Store) -> None:
        left_out = Counter[str]()
        await record(store, body, answer, dialect=dialect)
        assert await export(store, left_out=left_out) == []
        assert left_out == {reason: 1}

    run(scenario)


def test_what_could_not_be_taken_is_named(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record_talk(store, "a", "1")
        await record(store, asking(user("b"), {"role": "narrator"}), chat("2"))
        await record(store, asking(user("c")), chat(""))
        left_out = Counter[str]()
        found = [each async for each in examples(store, Wanted(), left_out)]
        assert found[1:] == [
            Untaken("s", 1, "no_chat_form", "request.messages[1]"),
            Untaken("s", 2, "empty_answer", ""),
        ]
        assert left_out == {"no_chat_form": 1, "empty_answer": 1}

    run(scenario)


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
LOOK = [block("look"), PICTURE]


@pytest.mark.parametrize(
    ("body", "dialect", "codes"),
    [
        (
            asking(
                {"role": "user", "content": LOOK, "name": "ann"},
                {"role": "assistant", "content": LOOK},
                {
                    "role": "user",
                    "content": [{"type": "file", "file": {"file_id": "f"}}, block("b")],
                },
            ),
            "openai_chat",
            {
                "content_removed": "request.messages[2].content[0]",
                "name_removed": "messages[0]",
                "image_marked": "messages[0].content",
                "image_removed": "messages[1].content",
            },
        ),
        (
            {
                "model": "m",
                "input": [
                    user("a"),
                    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
                    {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
                    user("b"),
                ],
            },
            "openai_responses",
            {
                "content_removed": "request.input[2].content[0]",
                "refusal_text": "messages[1].content",
            },
        ),
        (
            {
                "model": "m",
                "max_tokens": 9,
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64", "media_type": "image/png", "data": "AAAA"
                                },
                            }
                        ],
                    },
                    {
                        "role": "assistant",
                        "content": [block("1"), {"type": "thinking", "thinking": "hm"}],
                    },
                    user("b"),
                ],
            },
            "anthropic_messages",
            {"image_marked": "messages[0].content"},
        ),
        (
            {
                "contents": [
                    {"role": "user", "parts": [{"text": "a"}]},
                    {
                        "role": "model",
                        "parts": [
                            {"text": "1"},
                            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                        ],
                    },
                    {"role": "user", "parts": [{"text": "b"}, {"executableCode": {"code": ""}}]},
                ]
            },
            "gemini",
            {
                "content_removed": "request.contents[2].parts[1]",
                "image_removed": "messages[1].content",
            },
        ),
    ],
)  # fmt: skip
def test_what_is_not_as_it_was_said_is_found_with_its_place(
    run: Run, body: Body, dialect: str, codes: dict[str, str]
) -> None:
    answers = {
        "openai_chat": chat("1"),
        "openai_responses": response("resp_9", output("1")),
        "anthropic_messages": claude(block("1")),
        "gemini": gemini({"text": "1"}),
    }

    async def scenario(store: Store) -> None:
        await record(store, body, answers[dialect], dialect=dialect)
        (example,) = await export(store)
        line = make_line(example, Wanted())
        assert {each.code: each.path for each in line.findings} == codes
        assert not any(each.is_mended for each in line.findings)

    run(scenario)


def test_what_a_chain_has_lost_is_found_too(run: Run) -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "file_id": "f"}]
    first = {"model": "m", "input": [{"role": "user", "content": parts}]}
    refused = output("") | {"content": [{"type": "refusal", "refusal": "no"}]}
    then = {"model": "m", "input": "b", "previous_response_id": "resp_1"}

    async def scenario(store: Store) -> None:
        responses = {"dialect": "openai_responses"}
        await record(store, first, response("resp_1", refused), **responses)
        await record(store, then, response("resp_2", output("1")), **responses)
        (example,) = await export(store)
        assert [each["content"] for each in example.messages] == ["a", "no", "b", "1"]
        line = make_line(example, Wanted())
        assert [(each.code, each.path) for each in line.findings] == [
            ("content_removed", "step 0: request.input[0].content[1]"),
            ("refusal_text", "messages[1].content"),
        ]

    run(scenario)


def test_completions_are_no_conversations(run: Run) -> None:
    async def scenario(store: Store) -> None:
        answer = {"id": "c", "choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]}
        await record(store, {"model": "m", "prompt": "a"}, answer, dialect="openai_completions")
        assert await export(store) == []

    run(scenario)


# --- what stays out unless asked for --------------------------------------------------------------


def test_an_answer_that_was_cut_stays_out_and_the_one_before_it_ends_the_line(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        await record(store, asking(user("a"), said("1"), user("b")), chat("half", "length"))
        await record(store, asking(user("f")), chat("kept back", "content_filter"))
        left_out = Counter[str]()
        assert [each.messages[-1] for each in await export(store, left_out=left_out)] == [said("1")]
        assert left_out == {"cut": 2}
        kept = await texts_of(store, Wanted(include_cut=True))
        assert kept == [["a", "1", "b", "half"], ["f", "kept back"]]

    run(scenario)


def test_an_answer_at_which_the_model_failed_stays_out(run: Run) -> None:
    async def scenario(store: Store) -> None:
        asked: Body = {"role": "user", "parts": [{"text": "a"}]}
        claim: Body = {"dialect": "gemini", "provider": "gemini"}
        answer = gemini({"text": "hm"}, finish="MALFORMED_FUNCTION_CALL")
        await record(store, {"contents": [asked]}, answer, **claim)
        left_out = Counter[str]()
        assert await export(store, left_out=left_out) == []
        assert left_out == {"cut": 1}

    run(scenario)


def test_a_cut_answer_that_was_gone_on_with_does_not_part_the_conversation(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        more = [user("a"), said("1"), user("b")]
        await record(store, asking(*more), chat("half", "length"))
        await record(store, asking(*more, said("half"), user("go on")), chat("whole"))
        assert await texts_of(store) == [["a", "1", "b", "half", "go on", "whole"]]

    run(scenario)


def test_a_session_that_failed_stays_out(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("1"))
        failing = await store.claim_step(claim_of("b", request=request_of(user("b"))))
        await store.record_failure(failing.step_id, (), failed_ms=START_MS, fails_session=True)
        assert await export(store) == []
        assert len(await export(store, Wanted(include_failed=True))) == 1
        assert len(await export(store, Wanted(status="FAILED"))) == 1
        assert await export(store, Wanted(status="RUNNING")) == []

    run(scenario)


def test_an_answer_that_a_refresh_replaced_stays_out(run: Run) -> None:
    async def scenario(store: Store) -> None:
        old = await record(store, asking(user("a")), chat("old"))
        await record(store, asking(user("a")), chat("new"), step_id=old.step_id)
        assert await texts_of(store) == [["a", "new"]]
        assert await texts_of(store, Wanted(include_replaced=True)) == [["a", "old"], ["a", "new"]]

    run(scenario)


def test_an_answer_that_was_taken_back_stays_out(run: Run) -> None:
    async def scenario(store: Store) -> None:
        step = await record(store, asking(user("a")), chat("1"))
        await store.record_failure(step.step_id, (), failed_ms=START_MS)
        assert await export(store) == []
        assert await texts_of(store, Wanted(include_cut=True)) == [["a", "1"]]

    run(scenario)


def test_a_branch_that_was_rolled_back_stays_out(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record_talk(store, "a", "1", "b", "2")
        await store.roll_back("s", Place(index=1), at_ms=START_MS)
        left_out = Counter[str]()
        (example,) = await export(store, left_out=left_out)
        assert (example.index, left_out) == (0, {"rolled_back": 1})
        await record(store, asking(user("a"), said("1"), user("c")), chat("3"))
        assert await texts_of(store) == [["a", "1", "c", "3"]]
        assert await texts_of(store, Wanted(include_rolled_back=True)) == [
            ["a", "1", "b", "2"],
            ["a", "1", "c", "3"],
        ]

    run(scenario)


def test_the_mock_speaks_only_where_nobody_else_does(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record(store, asking(user("a")), chat("mocked"), provider="mock")
        assert await texts_of(store) == [["a", "mocked"]]
        await record(store, asking(user("b")), chat("real"))
        left_out = Counter[str]()
        assert [each.index for each in await export(store, left_out=left_out)] == [1]
        assert left_out == {"mock": 1}

    run(scenario)


# --- filters --------------------------------------------------------------------------------------


def test_each_filter_keeps_what_it_says(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await record_talk(store, "a", "1", session="one", at_ms=START_MS)
        call = called(("c", "mail__send", "{}"))
        later = {"session": "two", "at_ms": START_MS + 50, "cost_microusd": None}
        await record(store, asking(user("b")), chat(call, model="other/m"), **later)
        await record_talk(store, "c", "2", "d", "3", session="three", at_ms=START_MS + 99)

        async def kept(**filters: Any) -> str:
            found = await export(store, replace(Wanted(), **filters))
            return " ".join(each.session for each in found)

        assert await kept() == "one two three"
        assert await kept(session="two") == "two"
        assert await kept(session="none") == ""
        assert await kept(since_ms=START_MS + 50) == "two three"
        assert await kept(until_ms=START_MS + 50) == "one"
        assert await kept(model="GPT-*") == "one three"
        assert await kept(model="other/m") == "two"
        assert await kept(tool="send") == await kept(tool="mail__*") == "two"
        assert await kept(tool="*nothing*") == ""
        assert await kept(cost_max_microusd=5) == "one two"
        assert await kept(touched=True) == ""
        assert await kept(touched=False) == "one two three"

        tags: dict[str, Tags] = {"one": (("a", "1"),), "three": (("a", "2"), ("b", "1"))}
        for session, own in tags.items():
            await store.change_session(session, Change(tags=own), at_ms=START_MS + 100)
        assert await kept(tags=(("a", None),)) == "one three"
        assert await kept(tags=(("a", "2"),)) == "three"
        assert await kept(tags=(("a", None), ("b", "1"))) == "three"
        assert await kept(tags=(("a", "1"), ("b", "1"))) == ""

    run(scenario)


def test_sessions_are_found_as_in_their_list(run: Run) -> None:
    async def scenario(store: Store) -> None:
        about = About("Caf\u00e9 100%", "boss")
        await record(store, asking(user("a")), chat("1"), session="one", about=about)
        await record(store, asking(user("b")), chat("2"), session="two")
        await store.fork_session("two", ForkAsk(session="Fork"), at_ms=START_MS + 1)

        async def kept(**filters: Any) -> list[str]:
            found = await export(store, replace(Wanted(dedupe=False), **filters))
            listed = await store.list_sessions(Query(newest_first=False, **filters))
            names = sorted(each.session for each in found)
            assert names == sorted(row.session for row in listed.rows)
            return names

        assert await kept(search="O") == ["Fork", "one", "two"]
        assert await kept(search="fORK") == ["Fork"]
        assert await kept(search="caf\u00e9") == ["one"]
        assert await kept(search="caf\u00c9") == []  # letters of ASCII only
        assert await kept(search="0%") == ["one"]
        assert await kept(search="_") == []
        assert await kept(parent="boss") == ["one"]
        assert await kept(forked_from="two") == ["Fork"]
        assert await kept(forked_from="one", search="o") == []

    run(scenario)


@pytest.mark.parametrize("name", ["model", "tool"])
def test_what_is_no_glob_is_refused(run: Run, name: str) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(BadRequest) as caught:
            await export(store, replace(Wanted(), **{name: "[a"}))
        assert caught.value.param == name

    run(scenario)


def test_equal_conversations_of_several_sessions_come_once(run: Run) -> None:
    async def scenario(store: Store) -> None:
        for number in range(3):
            call = called((f"call_{number}", "get", "{}"))
            await record(store, asking(user("a")), chat(call), session=f"s{number}")
        assert [each.session for each in await export(store)] == ["s0"]
        assert len(await export(store, Wanted(dedupe=False))) == 3

    run(scenario)


# --- what a message may hold ----------------------------------------------------------------------

PICTURE = "data:image/png;base64,iVBORw0KGgo="


def test_pictures_are_a_mark_unless_asked_for_and_never_the_models(run: Run) -> None:
    shown = {"type": "image_url", "image_url": {"url": PICTURE}}
    told = {**result("c", ""), "content": [block("seen"), shown]}
    messages = [
        {"role": "user", "content": [block("look"), shown]},
        called(("c", "get", "{}")),
        told,
    ]

    async def scenario(store: Store) -> None:
        await record(store, asking(*messages), chat("a cat"))
        assert await texts_of(store) == [["look\n\n[image]", None, "seen\n\n[image]", "a cat"]]
        kept = await texts_of(store, Wanted(images=True))
        assert kept == [[[block("look"), shown], None, "seen\n\n[image]", "a cat"]]

    run(scenario)


def test_a_refusal_is_what_the_assistant_says(run: Run) -> None:
    async def scenario(store: Store) -> None:
        refusal = {"role": "assistant", "content": None, "refusal": "I can't help."}
        await record(store, asking(user("a")), chat(refusal))
        assert await texts_of(store) == [["a", "I can't help."]]

    run(scenario)


def test_an_answer_that_says_nothing_is_no_line(run: Run) -> None:
    async def scenario(store: Store) -> None:
        left_out = Counter[str]()
        await record(store, asking(user("a")), chat(""))
        assert await export(store, left_out=left_out) == []
        assert left_out == {"empty_answer": 1}

    run(scenario)


def test_a_tool_that_only_an_earlier_request_offered_is_offered(run: Run) -> None:
    calls = called(("c", "get", "{}"))

    async def scenario(store: Store) -> None:
        await record(store, asking(user("a"), tools=[tool_of("get")]), chat(calls))
        await record(store, asking(user("a"), calls, result("c", "5")), chat("5"))
        (line,) = await lines_of(store)
        assert line["tools"] == [tool_of("get")]

    run(scenario)


def test_a_custom_tool_is_a_function_with_a_text(run: Run) -> None:
    offered = {"type": "custom", "name": "sh", "description": "d"}
    call = {"type": "custom_tool_call", "id": "i", "call_id": "c", "name": "sh", "input": 'ls "x"'}

    async def scenario(store: Store) -> None:
        body = {"model": "m", "input": "a", "tools": [offered]}
        await record(store, body, response("resp_1", call), **RESPONSES)
        (line,) = await lines_of(store)
        assert line["messages"][-1] == called(
            ("c", "sh", json.dumps({"input": 'ls "x"'}, separators=(",", ":")))
        )
        assert line["tools"][0]["function"]["parameters"]["required"] == ["input"]

    run(scenario)
