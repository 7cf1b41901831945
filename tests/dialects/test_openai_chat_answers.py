"""Answers written in the chat form, held against OpenAI's schemas, its SDK and our own reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from agentstate.dialects import DIALECTS
from agentstate.dialects.neutral import AnswerHead, Ending, made_id, translates
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.openai_chat_answers import (
    ChatAnswerWriter,
    ending,
    write_answer,
    write_usage,
)
from agentstate.dialects.openai_chat_forms import body_from_events
from agentstate.dialects.openai_chat_reading import ChatAssembler, read_answer, read_usage
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects.samples import SAMPLES
from tests.helpers.openai_schema import check

SEED = "5eed"
HEAD = AnswerHead(SEED, "gpt-4o-mini", 1700000000, {})
WITH_USAGE = replace(HEAD, body={"stream_options": {"include_usage": True}})
LEGACY = replace(HEAD, body={"functions": [{"name": "f"}]})
CUSTOM = replace(HEAD, body={"tools": [{"type": "custom", "custom": {"name": "patch"}}]})
USAGE = Usage(20, 7, 8, 2, 3)
CALL = ToolCall(0, "call_1", "f", '{"a":1.50,"id":2512292042121000001}')
SECOND = ToolCall(1, "call_2", "g", "")

ANSWERS: dict[str, Answer] = {
    "text": Answer((Choice(0, "Hi \u2028\U0001f600", finish_reason="end_turn"),), usage=USAGE),
    "nothing": Answer((Choice(0, finish_reason="stop"),)),
    "refusal": Answer((Choice(0, refusal="No.", finish_reason="refusal"),)),
    "reasoning": Answer((Choice(0, "a", reasoning="because", finish_reason="x"),), usage=USAGE),
    "calls": Answer((Choice(0, tool_calls=(CALL, SECOND), finish_reason="tool_use"),)),
    "text and a call": Answer((Choice(0, "a", tool_calls=(CALL,), finish_reason="tool_use"),)),
    "no ids": Answer(
        (
            Choice(
                0,
                tool_calls=(replace(CALL, call_id=None), replace(SECOND, call_id="")),
            ),
        )
    ),
    "a lone half": Answer((Choice(0, "\ud83d", tool_calls=(replace(CALL, arguments="\ude00"),)),)),
    "choices": Answer(
        (
            Choice(0, "a", finish_reason="STOP"),
            Choice(1, "b", finish_reason="MAX_TOKENS"),
            Choice(2, "", tool_calls=(CALL,), finish_reason="STOP"),
            Choice(3, "", finish_reason="SAFETY"),
        )
    ),
}


def write(answer: Answer, why: Ending = "stop", head: AnswerHead = HEAD) -> Any:
    return json.loads(write_answer(answer, why, head).value)


def write_stream(
    answer: Answer, pieces: list[Piece], why: Ending = "stop", head: AnswerHead = HEAD
) -> list[Frame]:
    """Write a stream piece by piece and return its frames."""
    writer = ChatAnswerWriter(head)
    raw = writer.begin() + b"".join(writer.write([piece]) for piece in pieces)
    decoder = SSEDecoder()
    frames = decoder.feed(raw + writer.end(answer, why))
    assert decoder.finish() is None
    return frames


def chunks(frames: list[Frame]) -> list[Any]:
    assert frames[-1].data == b"[DONE]"
    return [json.loads(frame.data or b"") for frame in frames[:-1]]


def deltas(frames: list[Frame]) -> list[Any]:
    return [chunk["choices"][0]["delta"] for chunk in chunks(frames) if chunk["choices"]]


def assemble(frames: list[Frame]) -> Answer:
    assembler = ChatAssembler()
    for frame in frames:
        assembler.feed(frame)
    return assembler.finish(clean_end=True)


def cut(text: str, size: int) -> Iterator[str]:
    yield from (text[at : at + size] for at in range(0, len(text), size))


def pieces_of(answer: Answer, size: int) -> list[Piece]:
    """Return an answer's pieces of `size` characters, the calls of a choice in turns."""
    pieces: list[Piece] = []
    for choice in answer.choices:
        at = choice.index
        pieces += [Piece(at, "reasoning", part) for part in cut(choice.reasoning or "", size)]
        pieces += [Piece(at, "text", part) for part in cut(choice.text, size)]
        pieces += [Piece(at, "refusal", part) for part in cut(choice.refusal or "", size)]
        told: list[tuple[int, int, Piece]] = []
        for call in choice.tool_calls:
            head = Piece(at, "call", "", call.position, call.call_id, call.name, call.kind)
            told.append((0, call.position, head))
            for turn, part in enumerate(cut(call.arguments, size), 1):
                told.append((turn, call.position, replace(head, text=part)))
        pieces += [piece for _, _, piece in sorted(told, key=lambda each: each[:2])]
    return pieces


# The whole answer


@pytest.mark.parametrize("why", get_args(Ending))
@pytest.mark.parametrize("name", ANSWERS)
def test_a_written_answer_satisfies_the_schema_and_the_sdk(name: str, why: Ending) -> None:
    body = write(ANSWERS[name], why)

    check("CreateChatCompletionResponse", body)
    parsed = ChatCompletion.model_validate(body)
    assert parsed.id == "chatcmpl-5eed"
    assert (parsed.created, parsed.model) == (1700000000, "gpt-4o-mini")


@pytest.mark.parametrize("dialect", [row for row in DIALECTS if translates(row)], ids=repr)
def test_an_answer_of_any_dialect_reads_back_as_it_was(dialect: OpenAIChat) -> None:
    for body in SAMPLES[dialect.name].bodies.values():
        answer = dialect.read_answer(body)
        why = dialect.ending(answer)
        written = write_answer(answer, why, HEAD).value
        again = read_answer(written)

        check("CreateChatCompletionResponse", json.loads(written))
        assert again.is_complete
        assert again.text == answer.text
        assert again.usage == answer.usage
        own = [(at, call) for at, call in answer.tool_calls if not call.runs_upstream]
        assert [(at, call.name, call.arguments) for at, call in again.tool_calls] == [
            (at, call.name, call.arguments) for at, call in own
        ]
        assert ending(again) == ("stop" if why == "stop_sequence" else why)


def test_a_text_answer_to_the_letter() -> None:
    assert write(ANSWERS["text"]) == {
        "id": "chatcmpl-5eed",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "gpt-4o-mini",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hi \u2028\U0001f600",
                    "refusal": None,
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 20,
            "completion_tokens": 7,
            "total_tokens": 27,
            "prompt_tokens_details": {
                "cached_tokens": 8, "audio_tokens": 0, "cache_write_tokens": 2,
            },
            "completion_tokens_details": {
                "reasoning_tokens": 3,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    }  # fmt: skip


def test_usage_that_was_not_told_is_not_made_up() -> None:
    assert "usage" not in write(ANSWERS["nothing"])


@pytest.mark.parametrize("usage", [USAGE, Usage(0, 0), Usage(10**12, 1)])
def test_usage_reads_back(usage: Usage) -> None:
    assert read_usage(json.loads(json.dumps(write_usage(usage)))) == usage


def test_calls_keep_their_ids_and_arguments_to_the_letter() -> None:
    (choice,) = write(ANSWERS["calls"], "tool_calls")["choices"]

    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "f", "arguments": CALL.arguments},
        },
        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]


def test_a_call_without_an_id_gets_one_and_another_one_each() -> None:
    (choice,) = write(ANSWERS["no ids"], "tool_calls")["choices"]

    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert ids == [made_id(SEED, 0, 0), made_id(SEED, 0, 1)]


def test_every_choice_tells_its_own_end() -> None:
    choices = write(ANSWERS["choices"], "stop")["choices"]

    assert [choice["finish_reason"] for choice in choices] == [
        "stop", "length", "tool_calls", "content_filter",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "why", "reason"),
    [
        (Choice(0, "a"), "stop", "stop"),
        (Choice(0, "a"), "stop_sequence", "stop"),
        (Choice(0, "a"), "length", "length"),
        (Choice(0, "a"), "filtered", "content_filter"),
        (Choice(0, refusal="No."), "filtered", "stop"),
        (Choice(0, tool_calls=(CALL,)), "tool_calls", "tool_calls"),
        (Choice(0, tool_calls=(CALL,)), "stop", "tool_calls"),
        (Choice(0, tool_calls=(CALL,)), "length", "length"),
        (Choice(0, tool_calls=(CALL,)), "filtered", "content_filter"),
        (Choice(0, "a"), "tool_calls", "stop"),
    ],
)
def test_an_ending_has_a_finish_reason(choice: Choice, why: Ending, reason: str) -> None:
    assert write(Answer((choice,)), why)["choices"][0]["finish_reason"] == reason


def test_a_call_that_ran_upstream_is_not_the_callers() -> None:
    ran = ToolCall(0, "s_1", "search", "{}", "web_search", runs_upstream=True)
    answer = Answer((Choice(0, "a", tool_calls=(ran, replace(CALL, position=1))),))

    (choice,) = write(answer, "tool_calls")["choices"]
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["call_1"]
    assert write(Answer((Choice(0, "a", tool_calls=(ran,)),)))["choices"][0]["finish_reason"] == (
        "stop"
    )
    opened = [each for each in deltas(write_stream(answer, [])) if "tool_calls" in each]
    assert [each["tool_calls"][0]["index"] for each in opened] == [0, 0]


# Why it ended


@pytest.mark.parametrize(
    ("choice", "extra", "why"),
    [
        (Choice(0, "a", finish_reason="stop"), {}, "stop"),
        (Choice(0, "a", finish_reason="eos"), {}, "stop"),
        (Choice(0, "a", finish_reason="stop"), {"stop_sequence": "END"}, "stop_sequence"),
        (Choice(0, "a", finish_reason="length"), {}, "length"),
        (Choice(0, "a", finish_reason="model_length"), {}, "length"),
        (Choice(0, "a", finish_reason="MAX_TOKENS"), {}, "length"),
        (Choice(0, "a", finish_reason="content_filter"), {}, "filtered"),
        (Choice(0, refusal="No.", finish_reason="stop"), {}, "filtered"),
        (Choice(0, "a", refusal="", finish_reason="stop"), {}, "stop"),
        (Choice(0, tool_calls=(CALL,), finish_reason="tool_calls"), {}, "tool_calls"),
        (Choice(0, tool_calls=(CALL,), finish_reason="function_call"), {}, "tool_calls"),
        (Choice(0, tool_calls=(CALL,), finish_reason="stop"), {}, "tool_calls"),
        (Choice(0, tool_calls=(CALL,), finish_reason="odd"), {}, "tool_calls"),
        (Choice(0, tool_calls=(CALL,), finish_reason="length"), {}, "length"),
        (Choice(0, tool_calls=(CALL,), finish_reason="stop"), {"stop_sequence": "E"}, "tool_calls"),
        (Choice(0, "a", finish_reason="tool_calls"), {}, "stop"),
    ],
)
def test_an_answer_says_why_it_ended(choice: Choice, extra: dict[str, str], why: Ending) -> None:
    assert ending(Answer((choice,), extra=extra)) == why


def test_no_answer_ended_for_no_reason() -> None:
    assert ending(Answer()) == "stop"


# Streams


@pytest.mark.parametrize("head", [HEAD, WITH_USAGE])
@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_is_the_whole_answer_however_it_is_cut(
    name: str, size: int, head: AnswerHead
) -> None:
    answer = ANSWERS[name]

    frames = write_stream(answer, pieces_of(answer, size), "stop", head)

    whole = write(answer, "stop", head)
    if head is HEAD:
        whole.pop("usage", None)
    assert json.loads(body_from_events(frames)) == whole
    assert assemble(frames) == read_answer(json.dumps(whole).encode())


@pytest.mark.parametrize("name", ANSWERS)
def test_chunks_satisfy_the_schema_and_the_sdk(name: str) -> None:
    answer = ANSWERS[name]
    state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()

    for chunk in chunks(write_stream(answer, pieces_of(answer, 2), "stop", WITH_USAGE)):
        check("CreateChatCompletionStreamResponse", chunk)
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))

    # The SDK puts them together as we do.
    final = state.current_completion_snapshot
    for choice, whole in zip(answer.choices, final.choices, strict=True):
        assert (whole.message.content or "") == choice.text
        calls = [
            (call.function.name, call.function.arguments)
            for call in whole.message.tool_calls or ()
            if call.type == "function"
        ]
        assert calls == [(call.name, call.arguments) for call in choice.tool_calls]


_TEXTS = st.text(st.sampled_from('{}":a\u2028\U0001f600'), max_size=6)
_CHOICES = st.builds(
    lambda text, reasoning, arguments: Choice(
        0,
        text,
        None,
        reasoning or None,
        tuple(ToolCall(at, f"c{at}", f"tool{at}", each) for at, each in enumerate(arguments)),
        "stop",
    ),
    _TEXTS,
    _TEXTS,
    st.lists(_TEXTS, max_size=3),
)


@given(_CHOICES, st.integers(1, 4), st.randoms(use_true_random=False))
@settings(derandomize=True, deadline=None, database=None, max_examples=150)
def test_calls_that_come_interleaved_read_back(choice: Choice, size: int, random: Any) -> None:
    answer = Answer((choice,))
    waiting = pieces_of(answer, size)
    pieces: list[Piece] = []
    while waiting:
        # Any piece that is the next of its kind; calls begin in the order of their positions.
        begun = max((piece.position for piece in pieces if piece.kind == "call"), default=-1)
        nexts = {(piece.kind, piece.position): piece for piece in reversed(waiting)}
        free = [piece for (_, position), piece in nexts.items() if position <= begun + 1]
        pieces.append(random.choice(free))
        waiting.remove(pieces[-1])

    again = assemble(write_stream(answer, pieces))

    assert again.is_complete
    expected = replace(choice, finish_reason="tool_calls" if choice.tool_calls else "stop")
    assert again.choices == (expected,)


def test_a_text_stream_to_the_letter() -> None:
    answer = Answer((Choice(0, "Hi", finish_reason="stop"),), usage=Usage(1, 2))
    head = {
        "id": "chatcmpl-5eed",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "gpt-4o-mini",
    }

    def choice(delta: Any, reason: str | None = None) -> list[Any]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]

    frames = write_stream(answer, [Piece(0, "text", "Hi")], "stop", WITH_USAGE)

    opening = {"role": "assistant", "content": "", "refusal": None}
    assert chunks(frames) == [
        {**head, "choices": choice(opening)},
        {**head, "choices": choice({"content": "Hi"})},
        {**head, "choices": choice({}, "stop")},
        {**head, "choices": [], "usage": write_usage(Usage(1, 2))},
    ]


def test_usage_is_told_only_where_it_was_asked_for_and_is_known() -> None:
    silent = chunks(write_stream(ANSWERS["text"], []))
    unknown = chunks(write_stream(ANSWERS["nothing"], [], "stop", WITH_USAGE))

    assert all("usage" not in chunk for chunk in silent)
    assert all(chunk["choices"] for chunk in unknown)


def test_a_call_waits_until_its_name_cannot_grow() -> None:
    writer = ChatAnswerWriter(HEAD)
    writer.begin()

    assert writer.write([Piece(0, "call", "", 0, "c1", "get_")]) == b""
    assert writer.write([Piece(0, "call", "", 0, "c1", "get_weather")]) == b""
    frames = SSEDecoder().feed(writer.write([Piece(0, "call", "{}", 0, "c1", "get_weather")]))
    calls = [json.loads(each.data or b"")["choices"][0]["delta"] for each in frames]
    assert calls == [
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
    ]


def test_a_name_that_comes_last_keeps_back_what_follows() -> None:
    answer = ANSWERS["calls"]
    pieces = [
        Piece(0, "call", '{"a":1.50,', 0, "call_1"),
        Piece(0, "call", "", 1, "call_2", "g"),
        Piece(0, "call", '"id":2512292042121000001}', 0, "call_1"),
        Piece(0, "call", "", 0, "call_1", "f"),
    ]
    writer = ChatAnswerWriter(HEAD)
    writer.begin()

    assert writer.write(pieces[:3]) == b""
    assert writer.write(pieces[3:]) != b""
    again = assemble(write_stream(answer, pieces))
    assert again.choices[0].tool_calls == answer.choices[0].tool_calls


def test_a_name_that_grows_after_its_arguments_began_is_whole_in_the_end() -> None:
    call = ToolCall(0, "c", "get_weather", "{}")
    pieces = [
        Piece(0, "call", "{", 0, "c", "get_"),
        Piece(0, "call", "}", 0, "c", "get_weather"),
    ]

    again = assemble(write_stream(Answer((Choice(0, tool_calls=(call,)),)), pieces))

    assert again.choices[0].tool_calls == (call,)


def test_what_was_never_told_in_pieces_comes_with_the_end() -> None:
    again = assemble(write_stream(ANSWERS["calls"], [], "tool_calls"))

    assert again.choices[0].tool_calls == (CALL, SECOND)


# Callers with forms of their own


def test_a_custom_call_has_its_input() -> None:
    call = ToolCall(0, "c", "patch", "*** Begin\n\u2028", "custom")
    answer = Answer((Choice(0, tool_calls=(call,)),))

    body = write(answer, "tool_calls")

    check("CreateChatCompletionResponse", body)
    expected = {"name": "patch", "input": "*** Begin\n\u2028"}
    assert body["choices"][0]["message"]["tool_calls"] == [
        {"id": "c", "type": "custom", "custom": expected}
    ]
    for size in (1, 100):
        frames = write_stream(answer, pieces_of(answer, size))
        assert assemble(frames).choices[0].tool_calls == (call,)
        assert json.loads(body_from_events(frames)) == body


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"a\\n\\u2028"}', "a\n\u2028"),
        ('{"input":1}', '{"input":1}'),
        ('{"input":"a","b":1}', '{"input":"a","b":1}'),
        ("no JSON", "no JSON"),
        ("", ""),
    ],
)
def test_a_function_that_stood_for_a_custom_tool_is_one_again(arguments: str, text: str) -> None:
    call = ToolCall(0, "c", "patch", arguments)
    answer = Answer((Choice(0, tool_calls=(call, SECOND)),))
    expected = (replace(call, arguments=text, kind="custom"), SECOND)

    body = write_answer(answer, "tool_calls", CUSTOM).value
    frames = write_stream(answer, pieces_of(answer, 2), "tool_calls", CUSTOM)

    assert read_answer(body).choices[0].tool_calls == expected
    assert assemble(frames).choices[0].tool_calls == expected


def test_who_offers_functions_gets_a_function_call() -> None:
    answer = Answer((Choice(0, tool_calls=(CALL,)),))

    body = write(answer, "tool_calls", LEGACY)

    check("CreateChatCompletionResponse", body)
    assert body["choices"][0]["message"]["function_call"] == {
        "name": "f", "arguments": CALL.arguments,
    }  # fmt: skip
    assert body["choices"][0]["finish_reason"] == "function_call"
    frames = write_stream(answer, pieces_of(answer, 5), "tool_calls", LEGACY)
    for chunk in chunks(frames):
        check("CreateChatCompletionStreamResponse", chunk)
    assert json.loads(body_from_events(frames)) == body


def test_a_function_call_has_room_for_one() -> None:
    written = write_answer(ANSWERS["calls"], "tool_calls", LEGACY)
    frames = write_stream(ANSWERS["calls"], pieces_of(ANSWERS["calls"], 5), "tool_calls", LEGACY)

    assert written.dropped == ("tool calls after the first",)
    assert json.loads(body_from_events(frames)) == json.loads(written.value)


def test_nothing_else_is_dropped() -> None:
    assert all(write_answer(answer, "stop", HEAD).dropped == () for answer in ANSWERS.values())
