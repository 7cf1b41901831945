"""Answers in Gemini's own form: why they ended, and whole or as a stream."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.gemini import Gemini
from agentstate.dialects.gemini_contents import NO_SIGNATURE_BYTES
from agentstate.dialects.neutral import AnswerHead, Ending, made_id, translates
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire.sse import SSEDecoder
from tests.helpers.gemini_types import check

GEMINI = Gemini("gemini-2.5-flash")
HEAD = AnswerHead("5eed", "gemini-2.5-flash", 1_700_000_000, {"contents": []})
THINKING = replace(
    HEAD, body={"generation_config": {"thinking_config": {"include_thoughts": True}}}
)
CALLS = (
    ToolCall(0, "call_1", "get_weather", '{"n":2512292042121000001,"f":1.50}'),
    ToolCall(1, None, "send_email", ""),
)


def finished(*choices: Choice, **fields: Any) -> Answer:
    return Answer(choices, is_complete=True, **fields)


def stream(pieces: list[list[Piece]], answer: Answer, ending: Ending, head: AnswerHead) -> bytes:
    """Write a stream; each frame is one of Google's."""
    writer = GEMINI.answer_writer(head)
    frames = [writer.begin(), *(writer.write(each) for each in pieces), writer.end(answer, ending)]
    whole = b"".join(frames)
    for frame in SSEDecoder().feed(whole):
        assert frame.data is not None
        # The package's parser takes no half of a character.
        check("GenerateContentResponse", re.sub(rb"\\ud[89a-f]..", b"?", frame.data))
    return whole


def assemble(whole: bytes) -> Answer:
    assembler = GEMINI.assembler()
    for frame in SSEDecoder().feed(whole):
        assembler.feed(frame)
    return assembler.finish(True)


def test_the_dialect_can_be_translated() -> None:
    assert translates(GEMINI)


# --- endings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "calls", "ending"),
    [
        ("STOP", (), "stop"),
        ("STOP", CALLS, "tool_calls"),
        ("MAX_TOKENS", (), "length"),
        ("MAX_TOKENS", CALLS, "length"),
        ("SAFETY", CALLS, "filtered"),
        ("RECITATION", (), "filtered"),
        ("PROHIBITED_CONTENT", (), "filtered"),
        ("OTHER", (), "filtered"),
        ("MALFORMED_FUNCTION_CALL", (), "stop"),
        ("SOMETHING_NEW", (), "stop"),
        ("SOMETHING_NEW", CALLS, "tool_calls"),
    ],
)
def test_every_reason_is_an_ending(
    reason: str, calls: tuple[ToolCall, ...], ending: Ending
) -> None:
    answer = finished(Choice(0, tool_calls=calls, finish_reason=reason))
    assert GEMINI.ending(answer) == ending


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("MALFORMED_FUNCTION_CALL", "candidate 1 ended with MALFORMED_FUNCTION_CALL"),
        ("MISSING_THOUGHT_SIGNATURE", "candidate 1 ended with MISSING_THOUGHT_SIGNATURE"),
        ("STOP", None),
        ("MAX_TOKENS", None),
        ("SAFETY", None),
        ("SOMETHING_NEW", None),
    ],
)
def test_an_answer_at_which_the_model_failed_says_so(reason: str, fault: str | None) -> None:
    answer = finished(Choice(0, finish_reason="STOP"), Choice(1, finish_reason=reason))
    assert GEMINI.model_fault(answer) == fault


def test_a_blocked_prompt_is_filtered() -> None:
    answer = GEMINI.read_answer(b'{"promptFeedback":{"blockReason":"SAFETY"}}')
    assert answer.is_complete
    assert GEMINI.ending(answer) == "filtered"


# --- whole answers --------------------------------------------------------------------------------


def test_an_answer_is_of_googles_shape_to_the_letter() -> None:
    answer = finished(
        Choice(0, text="I look.", tool_calls=CALLS, finish_reason="tool_use"),
        usage=Usage(20, 7, cached_tokens=8, cache_write_tokens=2, reasoning_tokens=3),
    )

    written = GEMINI.write_answer(answer, "tool_calls", HEAD)

    assert written.dropped == ()
    value = check("GenerateContentResponse", written.value)
    made = made_id("5eed", 0, 1)
    assert value.response_id == json.loads(written.value)["responseId"]
    assert written.value == (
        b'{"candidates":[{"content":{"parts":[{"text":"I look."},'
        b'{"functionCall":{"id":"call_1","name":"get_weather",'
        b'"args":{"n":2512292042121000001,"f":1.50}},'
        b'"thoughtSignature":"' + NO_SIGNATURE_BYTES.encode() + b'"},'
        b'{"functionCall":{"id":"' + made.encode() + b'","name":"send_email","args":{}}}],'
        b'"role":"model"},"finishReason":"STOP","index":0}],'
        b'"usageMetadata":{"promptTokenCount":20,"candidatesTokenCount":4,"totalTokenCount":27,'
        b'"cachedContentTokenCount":8,"thoughtsTokenCount":3},'
        b'"modelVersion":"gemini-2.5-flash","responseId":"' + value.response_id.encode() + b'"}'
    )


def test_the_stand_in_for_a_signature_comes_back_as_it_went_out() -> None:
    answer = finished(Choice(0, tool_calls=CALLS, finish_reason="stop"))
    value = check("GenerateContentResponse", GEMINI.write_answer(answer, "tool_calls", HEAD).value)
    content = value.candidates[0].content.model_dump_json(by_alias=True, exclude_none=True)
    asked = GEMINI.read_request({"contents": [json.loads(content)]})
    assert asked.unsaid == ()


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("stop", "STOP"),
        ("stop_sequence", "STOP"),
        ("tool_calls", "STOP"),
        ("length", "MAX_TOKENS"),
        ("filtered", "SAFETY"),
    ],
)
def test_every_ending_is_a_reason(ending: Ending, reason: str) -> None:
    written = GEMINI.write_answer(finished(Choice(0, text="x")), ending, HEAD)
    assert json.loads(written.value)["candidates"][0]["finishReason"] == reason


def test_thoughts_are_shown_to_who_asked_for_them_and_else_named() -> None:
    answer = finished(Choice(0, text="Hi", reasoning="Hm."))
    hidden = GEMINI.write_answer(answer, "stop", HEAD)
    shown = GEMINI.write_answer(answer, "stop", THINKING)
    assert (hidden.dropped, shown.dropped) == (("reasoning",), ())
    assert GEMINI.read_answer(hidden.value).choices == (Choice(0, "Hi", finish_reason="STOP"),)
    assert GEMINI.read_answer(shown.value).choices == (
        Choice(0, "Hi", reasoning="Hm.", finish_reason="STOP"),
    )


def test_a_refusal_is_text() -> None:
    written = GEMINI.write_answer(finished(Choice(0, refusal="I cannot.")), "filtered", HEAD)
    (choice,) = GEMINI.read_answer(written.value).choices
    assert (choice.text, choice.finish_reason) == ("I cannot.", "SAFETY")


def test_arguments_that_are_no_object_are_put_in_one_and_the_providers_calls_left_out() -> None:
    calls = (ToolCall(0, "a", "f", '{"cut'), ToolCall(1, "b", "search", "{}", runs_upstream=True))
    written = GEMINI.write_answer(finished(Choice(0, tool_calls=calls)), "length", HEAD)
    (call,) = GEMINI.read_answer(written.value).choices[0].tool_calls
    assert call.arguments == '{"INVALID_JSON":"{\\"cut"}'


def test_an_answer_of_nothing_is_an_answer() -> None:
    for answer in (finished(), finished(Choice(0))):
        written = GEMINI.write_answer(answer, "stop", HEAD)
        assert GEMINI.read_answer(written.value).is_complete
        assert (
            GEMINI.body_from_events(SSEDecoder().feed(stream([], answer, "stop", HEAD)))
            == written.value
        )


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_is_of_googles_shape_to_the_letter() -> None:
    answer = finished(Choice(0, "Hi.", tool_calls=CALLS[:1]), usage=Usage(2, 1))
    pieces = [
        [Piece(0, "text", "Hi"), Piece(0, "text", ".")],
        [Piece(0, "call", "", 0, "call_1", "get_weather")],
    ]
    first, last = SSEDecoder().feed(stream(pieces, answer, "tool_calls", HEAD))
    assert first.data is not None
    assert last.data is not None
    assert first.data.startswith(
        b'{"candidates":[{"content":{"parts":[{"text":"Hi."}],"role":"model"},"index":0}],'
        b'"modelVersion":"gemini-2.5-flash","responseId":"'
    )
    assert last.data.startswith(
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"id":"call_1",'
    )
    assert b'"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":2,' in last.data


def test_halves_of_a_character_are_joined_and_lone_ones_survive() -> None:
    text = "a\U0001f600\ud83d"
    pieces = [[Piece(0, "text", "a\ud83d")], [Piece(0, "text", "\ude00\ud83d")]]
    whole = stream(pieces, finished(Choice(0, text)), "stop", HEAD)
    frames = SSEDecoder().feed(whole)
    texts = [json.loads(frame.data or b"")["candidates"][0]["content"] for frame in frames]
    assert [content["parts"][0]["text"] for content in texts] == [
        "a", "\U0001f600", "\ud83d", "",
    ]  # fmt: skip
    assert assemble(whole).text == text


def test_what_is_thought_is_streamed_to_who_asked_for_it() -> None:
    answer = finished(Choice(0, "Hi", reasoning="Hm."))
    pieces = [[Piece(0, "reasoning", "Hm.")], [Piece(0, "text", "Hi")]]
    assert assemble(stream(pieces, answer, "stop", HEAD)).choices[0].reasoning is None
    assert assemble(stream(pieces, answer, "stop", THINKING)).choices[0].reasoning == "Hm."


TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)
ARGUMENTS: st.SearchStrategy[str] = st.dictionaries(
    st.text(max_size=3), st.integers() | TEXTS, max_size=2
).map(lambda value: encode(value).decode())


@st.composite
def answers(draw: st.DrawFn) -> tuple[Answer, list[list[Piece]]]:
    """Answers, and their pieces cut in some way."""
    choices: list[Choice] = []
    pieces: list[Piece] = []
    for index in range(draw(st.integers(1, 2))):
        calls = tuple(
            ToolCall(n, f"c{n}", "f", draw(ARGUMENTS)) for n in range(draw(st.integers(0, 2)))
        )
        said, thought = draw(TEXTS), draw(st.none() | TEXTS.filter(bool))
        choices.append(Choice(index, said, reasoning=thought, tool_calls=calls))
        for kind, text in (("reasoning", thought), ("text", said)):
            pieces += [Piece(index, kind, each) for each in draw(cuts(text or ""))]  # type: ignore[arg-type]
        for call in calls:
            pieces += [
                Piece(index, "call", each, call.position, call.call_id, call.name)
                for each in draw(cuts(call.arguments))
            ]
    groups: list[list[Piece]] = []
    for piece in pieces:
        if not groups or draw(st.booleans()):
            groups.append([])
        groups[-1].append(piece)
    return finished(*choices, usage=Usage(3, 4, reasoning_tokens=1)), groups


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@settings(max_examples=150, deadline=None)
@given(answers(), st.sampled_from(["stop", "length", "filtered"]), st.booleans())
def test_a_stream_is_the_whole_answer_however_it_is_cut(
    case: tuple[Answer, list[list[Piece]]], ending: Ending, shows: bool
) -> None:
    answer, pieces = case
    head = THINKING if shows else HEAD
    whole = GEMINI.write_answer(answer, ending, head).value
    written = stream(pieces, answer, ending, head)

    assert json.loads(GEMINI.body_from_events(SSEDecoder().feed(written))) == json.loads(whole)
    read = assemble(written)
    assert replace(read, fault=None) == replace(GEMINI.read_answer(whole), fault=None)
    for before, after in zip(answer.choices, read.choices, strict=True):
        assert joined(after.text) == joined(before.text)
        assert after.tool_calls == before.tool_calls
    assert (read.is_complete, read.usage) == (True, answer.usage)


def joined(text: str) -> str:
    """Return a text with halves of characters that stand together as one."""
    value: JSON = json.loads(encode(text))
    assert isinstance(value, str)
    return value
