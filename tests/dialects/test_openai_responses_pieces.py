"""What is new in a stream in the Responses form: joined, the pieces are the answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from agentstate.dialects.openai_responses_forms import events_from_body
from agentstate.dialects.openai_responses_reading import ResponsesAssembler, read_answer
from agentstate.ground.chat import Answer, Piece
from agentstate.wire.sse import SSEDecoder
from tests.dialects import samples_responses as sample
from tests.dialects.samples_responses import (
    added,
    call,
    call_events,
    done,
    end,
    message,
    part,
    reasoning,
    stream,
    text_events,
)
from tests.dialects.streams_responses import streams

Said = dict[tuple[int, str, int], str]


def pieces_of(*raw: bytes) -> list[Piece]:
    assembler = ResponsesAssembler()
    pieces = assembler.new_pieces()
    for frame in SSEDecoder().feed(b"".join(raw)):
        assembler.feed(frame)
        pieces += assembler.new_pieces()
    return pieces


def joined(pieces: list[Piece]) -> Said:
    said: Said = {}
    for each in pieces:
        key = each.choice, each.kind, each.position
        said[key] = said.get(key, "") + each.text
    return said


def said_in(answer: Answer) -> Said:
    said: Said = {}
    for choice in answer.choices:
        texts = {"text": choice.text, "refusal": choice.refusal, "reasoning": choice.reasoning}
        said |= {(choice.index, kind, 0): text for kind, text in texts.items() if text}
        said |= {
            (choice.index, "call", each.position): each.arguments
            for each in choice.tool_calls
            if not each.runs_upstream
        }
    return said


@pytest.mark.parametrize("name", sorted(sample.STREAMS))
def test_pieces_are_the_answer_so_far_at_every_frame(name: str) -> None:
    assembler = ResponsesAssembler()
    pieces = assembler.new_pieces()

    for frame in SSEDecoder().feed(b"".join(sample.STREAMS[name])):
        assembler.feed(frame)
        pieces += assembler.new_pieces()
        assert joined(pieces) == said_in(assembler.snapshot())


@pytest.mark.parametrize("name", sorted(sample.BODIES))
def test_pieces_of_a_made_stream_are_the_answer(name: str) -> None:
    body = sample.BODIES[name]

    assert joined(pieces_of(*events_from_body(body))) == said_in(read_answer(body))


@settings(max_examples=60, deadline=None)
@given(streams())
def test_pieces_of_items_side_by_side_are_the_answer(raw: tuple[bytes, ...]) -> None:
    assembler = ResponsesAssembler()
    assembler.new_pieces()
    for frame in SSEDecoder().feed(b"".join(raw)):
        assembler.feed(frame)

    found, wanted = joined(assembler.new_pieces()), said_in(assembler.snapshot())
    # Texts of several messages, or thoughts, come as they are said, not in their places.
    assert {key: sorted(text) for key, text in found.items()} == {
        key: sorted(text) for key, text in wanted.items()
    }
    assert {key: text for key, text in found.items() if key[1] == "call"} == {
        key: text for key, text in wanted.items() if key[1] == "call"
    }


def test_nothing_is_kept_until_it_is_asked_for() -> None:
    assembler = ResponsesAssembler()
    for frame in SSEDecoder().feed(b"".join(sample.STREAMS["text"])):
        assembler.feed(frame)

    assert assembler.new_pieces() == []


def test_a_call_is_told_of_before_its_arguments() -> None:
    item = call(arguments='{"a":1}')

    pieces = pieces_of(*stream(*call_events(0, item, '{"a"', ":1}"), end(item)))

    told = Piece(0, "call", "", 0, "call_1", "get_weather", "function")
    assert pieces == [
        told,
        Piece(0, "call", '{"a"', 0, "call_1", "get_weather", "function"),
        Piece(0, "call", ":1}", 0, "call_1", "get_weather", "function"),
    ]


def test_a_name_that_comes_last_is_told_when_it_comes() -> None:
    pieces = pieces_of(*sample.STREAMS["deltas alone"])

    calls = [each for each in pieces if each.kind == "call"]
    assert calls[0].name == ""
    assert (calls[-1].name, calls[-1].text) == ("get_weather", "")


def test_the_kind_of_a_custom_call_is_told() -> None:
    pieces = pieces_of(*events_from_body(sample.body(sample.CUSTOM_CALL)))

    assert {each.call_kind for each in pieces} == {"custom"}


def test_what_the_provider_runs_is_no_piece() -> None:
    body = sample.body(sample.WEB_SEARCH, sample.MCP_CALL, sample.INTERPRETER)

    assert pieces_of(*events_from_body(body)) == []


def test_arguments_written_anew_at_their_end_are_not_told_again() -> None:
    item = call(arguments='{"a": 1}')

    pieces = pieces_of(*stream(*call_events(0, item, '{"a":1}'), end(item)))

    assert joined(pieces) == {(0, "call", 0): '{"a":1}'}


def test_arguments_that_turn_out_to_be_others_are_no_json_any_more() -> None:
    item = call(arguments='{"a":2}')

    pieces = pieces_of(*stream(*call_events(0, item, '{"a":1}'), end(item)))

    assert joined(pieces) == {(0, "call", 0): '{"a":1}{"a":2}'}


def test_a_thought_is_told_in_one_of_its_two_forms() -> None:
    texts: list[dict[str, Any]] = [{"type": "reasoning_text", "text": "Hm, Oslo."}]
    item = reasoning("Look it up.", content=texts)

    pieces = pieces_of(*stream(added(0, reasoning()), done(0, item), end(item)))

    assert joined(pieces) == {(0, "reasoning", 0): "Look it up."}


def test_two_halves_of_a_character_are_not_told_again_as_one() -> None:
    whole = message(part("\U0001f600"))

    pieces = pieces_of(*stream(*text_events(0, "\ud83d", "\ude00", item=whole), end(whole)))

    assert [each.text for each in pieces] == ["\ud83d", "\ude00"]
