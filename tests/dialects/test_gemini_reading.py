"""Gemini's answers: when they are complete, and what is in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.base import Mark
from agentstate.dialects.gemini_reading import GeminiAssembler, read_answer
from agentstate.dialects.lenient import join_text
from agentstate.ground.chat import Answer, Piece, ToolCall, Usage
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects import samples_gemini as sample


def read_stream(*frames: bytes, choices: int = 1) -> tuple[list[Mark], Answer]:
    """Feed a stream; return what each frame was, and the answer."""
    assembler = GeminiAssembler(choices)
    marks = [assembler.feed(frame) for frame in SSEDecoder().feed(b"".join(frames))]
    return marks, assembler.finish(True)


def test_text_thoughts_and_calls_are_told_apart() -> None:
    _, answer = read_stream(
        sample.event(sample.candidate(sample.text("Hm.", thought=True), sample.text("I look."))),
        sample.event(sample.candidate(sample.CALL, reason="STOP"), usageMetadata=sample.USAGE),
    )

    (choice,) = answer.choices
    assert (choice.text, choice.reasoning, choice.finish_reason) == ("I look.", "Hm.", "STOP")
    assert choice.tool_calls == (
        ToolCall(0, "call_1", "get_weather", '{"city":"Oslo","id":2512292042121000001}'),
    )
    assert answer.model == "gemini-2.5-flash-001"
    assert answer.response_id == "resp-1"
    assert answer.usage == Usage(20, 7, cached_tokens=8, reasoning_tokens=3)


def test_marks_say_what_each_event_brings() -> None:
    marks, _ = read_stream(
        sample.event(sample.candidate(sample.text(""))),
        sample.event(sample.candidate(sample.text("Hi"))),
        b": ping\n",
        sample.event(sample.candidate(sample.text("x"), sample.CALL)),
        sample.event(sample.candidate({"inlineData": {}})),
        sample.event(sample.candidate(reason="STOP")),
        sample.event(usageMetadata=sample.USAGE),
    )
    assert marks == [
        Mark.PREFACE, Mark.CONTENT, Mark.PREFACE, Mark.TOOL, Mark.CONTENT, Mark.COMPLETING,
        Mark.TAIL,
    ]  # fmt: skip


def test_all_candidates_that_were_asked_for_must_end() -> None:
    first = sample.event(sample.candidate(sample.text("a"), reason="STOP", index=0))
    second = sample.event(sample.candidate(sample.text("b"), reason="STOP", index=1))

    marks, answer = read_stream(first, second, choices=2)

    assert marks == [Mark.CONTENT, Mark.COMPLETING]
    assert [choice.text for choice in answer.choices] == ["a", "b"]


@pytest.mark.parametrize("reason", [None, "", "FINISH_REASON_UNSPECIFIED"])
def test_a_candidate_that_did_not_finish_makes_no_answer(reason: str | None) -> None:
    answer = read_answer(sample.body(sample.candidate(sample.text("Hi"), reason=reason)))
    assert not answer.is_complete
    assert "candidate 0" in str(answer.fault)


@pytest.mark.parametrize(
    "reason", ["STOP", "MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL", "SOMETHING_NEW"]
)
def test_every_word_for_the_end_ends_it(reason: str) -> None:
    answer = read_answer(sample.body(sample.candidate(sample.text("Hi"), reason=reason)))
    assert (answer.is_complete, answer.finish_reason) == (True, reason)


def test_a_blocked_prompt_is_an_answer_and_nothing_at_all_is_none() -> None:
    blocked = read_answer(sample.body(promptFeedback={"blockReason": "PROHIBITED_CONTENT"}))
    assert (blocked.is_complete, blocked.finish_reason) == (True, "PROHIBITED_CONTENT")
    for feedback in ({}, {"blockReason": "BLOCK_REASON_UNSPECIFIED"}):
        assert not read_answer(sample.body(promptFeedback=feedback)).is_complete
    assert not read_answer(b"{}").is_complete


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"name": "f"}, "{}"),
        ({"name": "f", "args": None}, "{}"),
        ({"name": "f", "args": {"n": 1.50}}, '{"n":1.50}'),
        ({"name": "f", "partialArgs": [{"jsonPath": "$.a"}]}, '[{"jsonPath":"$.a"}]'),
    ],
)
def test_arguments_are_the_text_that_was_sent(call: dict[str, Any], arguments: str) -> None:
    raw = json.dumps({"candidates": [sample.candidate({"functionCall": call})]})
    answer = read_answer(raw.replace("1.5}", "1.50}").encode())
    assert answer.choices[0].tool_calls[0].arguments == arguments


def test_a_piece_without_a_name_belongs_to_the_call_before_it() -> None:
    opening = {"functionCall": {"name": "send_email", "willContinue": True}}
    more = {"functionCall": {"partialArgs": [{"jsonPath": "$.to", "stringValue": "a"}]}}
    assembler = GeminiAssembler()
    for part in (opening, more):
        assembler.feed(Frame(b"", sample.event(sample.candidate(part))[6:]))
        assert assembler.call_names() == [(0, 0, "send_email")]


@pytest.mark.parametrize(
    "data", [b"<html>", b'{"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}']
)
def test_what_is_no_event_of_an_answer_is_an_error(data: bytes) -> None:
    marks, answer = read_stream(
        sample.event(sample.candidate(sample.text("Hi"))), b"data: " + data + b"\n\n"
    )
    assert marks[-1] is Mark.ERROR
    assert not answer.is_complete


def join_pieces(pieces: list[Piece]) -> dict[tuple[int, str, int], str]:
    """Join pieces by what they are of."""
    texts: dict[tuple[int, str, int], list[str]] = {}
    for piece in pieces:
        texts.setdefault((piece.choice, piece.kind, piece.position), []).append(piece.text)
    return {key: join_text(each) for key, each in texts.items()}


def values_of(answer: Answer) -> dict[tuple[int, str, int], str]:
    """Return what the pieces of an answer have to be, joined."""
    found: dict[tuple[int, str, int], str] = {}
    for choice in answer.choices:
        for kind, text in (("text", choice.text), ("reasoning", choice.reasoning)):
            if text:
                found[choice.index, kind, 0] = text
        for call in choice.tool_calls:
            found[choice.index, "call", call.position] = call.arguments
    return found


@pytest.mark.parametrize("name", sample.STREAMS)
@pytest.mark.parametrize("asks_every", [1, 2, 99])
def test_pieces_are_the_answer_at_every_cut(name: str, asks_every: int) -> None:
    frames = SSEDecoder().feed(b"".join(sample.STREAMS[name]))
    for kept in range(len(frames) + 1):
        assembler = GeminiAssembler()
        pieces = assembler.new_pieces()
        for number, frame in enumerate(frames[:kept], start=1):
            assembler.feed(frame)
            if number % asks_every == 0:
                pieces += assembler.new_pieces()
        pieces += assembler.new_pieces()
        assert assembler.new_pieces() == []
        assert join_pieces(pieces) == values_of(assembler.snapshot())


def test_pieces_come_in_order_and_calls_with_what_is_known_of_them() -> None:
    assembler = GeminiAssembler()
    assert assembler.new_pieces() == []
    chunk = sample.candidate(sample.text("Hm.", thought=True), sample.text("I look."), sample.CALL)
    assembler.feed(Frame(b"", sample.event(chunk)[6:]))
    assert assembler.new_pieces() == [
        Piece(0, "reasoning", "Hm."),
        Piece(0, "text", "I look."),
        Piece(0, "call", '{"city":"Oslo","id":2512292042121000001}', 0, "call_1", "get_weather"),
    ]


def test_pieces_of_arguments_that_come_in_parts_are_joined() -> None:
    opening = {"functionCall": {"name": "send_email", "willContinue": True}}
    more = {"functionCall": {"partialArgs": [{"jsonPath": "$.to", "stringValue": "a"}]}}
    assembler = GeminiAssembler()
    pieces = assembler.new_pieces()
    for part in (opening, more, more):
        assembler.feed(Frame(b"", sample.event(sample.candidate(part))[6:]))
        pieces += assembler.new_pieces()
    assert join_pieces(pieces) == values_of(assembler.snapshot())


def test_nothing_is_kept_for_who_does_not_ask() -> None:
    assembler = GeminiAssembler()
    for frame in SSEDecoder().feed(b"".join(sample.STREAMS["text"])):
        assembler.feed(frame)
    assert assembler.new_pieces() == []
