"""Reading chat answers: the oddities of real upstreams, one by one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.base import Mark
from agentstate.dialects.lenient import join_text
from agentstate.dialects.openai_chat_reading import ChatAssembler, read_answer, read_usage
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire.sse import Frame, SSEDecoder, encode
from tests.dialects.samples import SAMPLES, call_delta, chat_body, chat_message

DONE = b"[DONE]"


def frame(data: Any, event: bytes = b"") -> Frame:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return Frame(encode(raw, event), raw, event)


def chunk(delta: Any = None, reason: Any = None, *, index: Any = 0, **top: Any) -> Frame:
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": reason}
    return frame({"id": "c1", "model": "m1", "choices": [choice], **top})


def read(*frames: Frame, choices: int = 1) -> tuple[Answer, list[Mark]]:
    assembler = ChatAssembler(choices)
    marks = [assembler.feed(each) for each in frames]
    return assembler.finish(clean_end=True), marks


def read_first(*deltas: Any) -> Choice:
    answer, _ = read(*(chunk(delta) for delta in deltas), chunk({}, "stop"))
    assert answer.is_complete
    return answer.choices[0]


def joined(pieces: Sequence[Piece]) -> dict[tuple[Any, ...], Any]:
    """Return the texts of pieces by (choice, kind, position); of a call also its id and name."""
    texts: defaultdict[tuple[int, str, int], list[str]] = defaultdict(list)
    last: dict[tuple[int, str, int], Piece] = {}
    for piece in pieces:
        at = (piece.choice, piece.kind, piece.position)
        texts[at].append(piece.text)
        last[at] = piece
    return {
        at: (join_text(texts[at]), piece.call_id, piece.name, piece.call_kind)
        for at, piece in last.items()
    }


def as_joined(answer: Answer) -> dict[tuple[Any, ...], Any]:
    """Return the same of an answer."""
    found: dict[tuple[Any, ...], Any] = {}
    for choice in answer.choices:
        named = {"text": choice.text, "refusal": choice.refusal, "reasoning": choice.reasoning}
        for kind, text in named.items():
            if text:
                found[choice.index, kind, 0] = (text, None, "", "function")
        for call in choice.tool_calls:
            told = (call.arguments, call.call_id, call.name, call.kind)
            found[choice.index, "call", call.position] = told
    return found


def body(*choices: Any, **top: Any) -> bytes:
    return json.dumps({"id": "c1", "model": "m1", "choices": list(choices), **top}).encode()


# Marks


@pytest.mark.parametrize(
    ("delta", "mark"),
    [
        ({}, Mark.PREFACE),
        (None, Mark.PREFACE),
        ("odd", Mark.PREFACE),
        ({"role": "assistant", "content": "", "refusal": None}, Mark.PREFACE),
        ({"content": None, "tool_calls": None, "function_call": None}, Mark.PREFACE),
        ({"tool_calls": [], "reasoning_content": ""}, Mark.PREFACE),
        ({"tool_calls": ["odd"], "function_call": "odd"}, Mark.PREFACE),
        ({"content": "a"}, Mark.CONTENT),
        ({"content": [{"type": "text", "text": "a"}]}, Mark.CONTENT),
        ({"refusal": "a"}, Mark.CONTENT),
        ({"reasoning_content": "a"}, Mark.CONTENT),
        ({"reasoning": "a"}, Mark.CONTENT),
        ({"audio": {"data": "UklG"}}, Mark.CONTENT),
        ({"tool_calls": [{"index": 0}]}, Mark.TOOL),
        ({"content": "a", "tool_calls": [{"index": 0}]}, Mark.TOOL),
        ({"tool_calls": [{"index": 0}], "content": "a"}, Mark.TOOL),
        ({"function_call": {"name": "f"}}, Mark.TOOL),
    ],
)
def test_a_chunk_is_marked_by_what_it_holds(delta: Any, mark: Mark) -> None:
    choice = {"index": 0, "delta": delta, "finish_reason": None}

    assert ChatAssembler().feed(frame({"choices": [choice]})) is mark


@pytest.mark.parametrize(
    "data",
    [
        {"choices": []}, {"choices": None}, {"choices": ["odd", None]}, {"usage": None}, {}, None,
        "ping", 1, [], [{"choices": []}], b"", b"  ",
    ],
)  # fmt: skip
def test_what_holds_nothing_is_preface(data: Any) -> None:
    assembler = ChatAssembler()

    assert assembler.feed(frame(data)) is Mark.PREFACE
    assert assembler.snapshot().fault == "no choice was sent"


def test_the_strongest_mark_of_several_choices_counts() -> None:
    deltas: list[dict[str, Any]] = [{"content": "a"}, {"tool_calls": [{}]}, {"content": "b"}]
    choices = [{"index": at, "delta": delta} for at, delta in enumerate(deltas)]

    assert ChatAssembler().feed(frame({"choices": choices})) is Mark.TOOL


def test_comments_are_preface_then_tail() -> None:
    comment = Frame(b": ping\n", None)

    _, marks = read(comment, chunk({"content": "a"}, "stop"), comment, frame(b""), frame([]))

    assert marks == [Mark.PREFACE, Mark.COMPLETING, Mark.TAIL, Mark.TAIL, Mark.TAIL]


def test_all_in_one_chunk_completes() -> None:
    answer, marks = read(chunk({"tool_calls": [call_delta(0, "{}", "c", "f")]}, "tool_calls"))

    assert marks == [Mark.COMPLETING]
    assert answer.tool_calls == ((0, ToolCall(0, "c", "f", "{}")),)


def test_what_comes_after_completing_is_tail_and_counts() -> None:
    answer, marks = read(
        chunk({"content": "a"}, "stop"),
        chunk({"content": "b"}),
        chunk({"tool_calls": [call_delta(0, "{}", "c", "f")]}),
        frame(DONE),
        chunk({"content": "c"}),
    )

    assert marks == [Mark.COMPLETING, Mark.TAIL, Mark.TAIL, Mark.DONE, Mark.TAIL]
    assert answer.text == "abc"
    assert answer.tool_calls == ((0, ToolCall(0, "c", "f", "{}")),)


def test_a_choice_that_starts_after_completing_makes_it_incomplete_again() -> None:
    answer, marks = read(chunk({"content": "a"}, "stop"), chunk({"content": "b"}, index=1))

    assert marks == [Mark.COMPLETING, Mark.TAIL]
    assert (answer.is_complete, answer.fault) == (False, "choice 1 has no finish reason")


def test_call_names_grow_and_are_told_by_choice_and_position() -> None:
    assembler = ChatAssembler(2)
    assembler.feed(chunk({"tool_calls": [call_delta(0, "", "c1", "delete_")]}, index=1))
    assembler.feed(chunk({"tool_calls": [call_delta(0, "", "c2", "f")]}))
    assert assembler.call_names() == [(0, 0, "f"), (1, 0, "delete_")]

    assembler.feed(chunk({"tool_calls": [call_delta(0, "{}", name="rows")]}, index=1))
    assembler.feed(chunk({"function_call": {"name": "g"}}, index=1))

    assert assembler.call_names() == [(0, 0, "f"), (1, 0, "delete_rows"), (1, 1, "g")]


# Completeness


@pytest.mark.parametrize(
    "reason",
    ["stop", "length", "tool_calls", "content_filter", "function_call", "eos", "end_turn",
     "model_context_window_exceeded", "STOP"],
)  # fmt: skip
def test_any_finish_reason_finishes(reason: str) -> None:
    answer, marks = read(chunk({"content": "a"}), chunk({}, reason), frame(DONE))

    assert (answer.is_complete, answer.fault) == (True, None)
    assert answer.finish_reason == reason
    assert marks[1:] == [Mark.COMPLETING, Mark.DONE]


@pytest.mark.parametrize(
    ("reason", "kept", "fault"),
    [
        ("", "", "choice 0 has no finish reason"),
        ("error", "error", "choice 0 has the finish reason 'error'"),
        (None, None, "choice 0 has no finish reason"),
        (True, None, "choice 0 has no finish reason"),
        ({"a": 1}, None, "choice 0 has no finish reason"),
    ],
)
def test_what_is_no_reason_finishes_nothing(reason: Any, kept: Any, fault: str) -> None:
    answer, marks = read(chunk({"content": "a"}), chunk({}, reason), frame(DONE))

    assert (answer.is_complete, answer.fault) == (False, fault)
    assert answer.finish_reason == kept
    assert marks[1:] == [Mark.PREFACE, Mark.DONE]


def test_done_alone_is_no_answer() -> None:
    answer, marks = read(frame(DONE))

    assert marks == [Mark.DONE]
    assert (answer.is_complete, answer.fault) == (False, "no choice was sent")


@pytest.mark.parametrize("done", [b"[DONE]", b" [DONE] ", b"[DONE]\n"])
def test_done_is_known_with_space_around_it(done: bytes) -> None:
    assert ChatAssembler().feed(frame(done)) is Mark.DONE


def test_a_finished_answer_needs_done_or_a_clean_end() -> None:
    cut, done = ChatAssembler(), ChatAssembler()
    for assembler in (cut, done):
        assembler.feed(chunk({"content": "a"}, "stop"))
    assert cut.snapshot().is_complete
    done.feed(frame(DONE))

    assert cut.finish(clean_end=False).fault == "the stream was cut before its end"
    assert cut.finish(clean_end=True).is_complete
    assert done.finish(clean_end=False).is_complete


def test_a_later_null_reason_does_not_reopen() -> None:
    answer, _ = read(chunk({"content": "a"}, "stop"), chunk({}, None), chunk({}, ""))

    assert answer.is_complete
    assert answer.finish_reason == "stop"


def test_a_late_error_reason_is_no_answer() -> None:
    answer, marks = read(chunk({"content": "a"}, "stop"), chunk({}, "error"))

    assert marks == [Mark.COMPLETING, Mark.TAIL]
    assert not answer.is_complete


def test_two_choices_are_put_together_by_index() -> None:
    answer, marks = read(
        chunk({"content": "Az"}),
        chunk({"content": "Bl"}, index=1),
        chunk({"content": "ue."}, index=1),
        chunk({"content": "ure."}),
        chunk({}, "stop", index=1),
        chunk({}, "length"),
        choices=2,
    )

    assert [(each.index, each.text, each.finish_reason) for each in answer.choices] == [
        (0, "Azure.", "length"), (1, "Blue.", "stop"),
    ]  # fmt: skip
    assert marks[-2:] == [Mark.PREFACE, Mark.COMPLETING]


def test_one_choice_after_the_other_completes_with_the_last() -> None:
    _, marks = read(
        chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "stop", index=1), choices=2
    )

    assert marks == [Mark.CONTENT, Mark.COMPLETING]


def test_more_choices_than_asked_for_must_all_finish() -> None:
    answer, marks = read(chunk({"content": "a"}), chunk({"content": "b"}, "stop", index=1))

    assert Mark.COMPLETING not in marks
    assert answer.fault == "choice 0 has no finish reason"


def test_fewer_choices_than_asked_for_are_complete_at_the_end() -> None:
    answer, marks = read(chunk({"content": "a"}, "stop"), frame(DONE), choices=2)

    assert marks == [Mark.CONTENT, Mark.DONE]
    assert answer.is_complete


@pytest.mark.parametrize("index", [None, "0", 1.5, True, []])
def test_a_choice_without_index_counts_by_its_place(index: Any) -> None:
    answer, _ = read(chunk({"content": "a"}, index=index), chunk({}, "stop", index=index))

    assert [(each.index, each.text) for each in answer.choices] == [(0, "a")]


# Errors in a stream


@pytest.mark.parametrize(
    ("data", "event", "fault"),
    [
        ({"error": {"message": "No images.", "type": "BadRequestError", "code": 400}}, b"",
         "error (BadRequestError, 400): No images."),
        ({"error": "overloaded"}, b"", "error: overloaded"),
        ({"error": {"message": "x"}, "choices": [{"finish_reason": "stop", "delta": {}}]}, b"",
         "error: x"),
        ({"object": "error", "message": "x", "code": 400}, b"", "error (400): x"),
        ({"message": "x"}, b"error", "error: x"),
        ({"anything": 1}, b"error", "an error that says nothing"),
        (b"gone", b"error", "an error event that is no JSON"),
        (b"<html>", b"", "an event that is no JSON"),
        (b"[" * 200_000, b"", "an event that is no JSON"),
        (b"1" * 5000, b"", "an event that is no JSON"),
        ({"choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "x"}}]}, b"",
         "error (502): x"),
    ],
)  # fmt: skip
def test_an_error_is_marked_and_keeps_the_answer_incomplete(
    data: Any, event: bytes, fault: str
) -> None:
    answer, marks = read(chunk({"content": "a"}), frame(data, event), frame(DONE))

    assert marks == [Mark.CONTENT, Mark.ERROR, Mark.DONE]
    assert (answer.is_complete, answer.fault) == (False, fault)
    assert answer.text == "a"


def test_an_error_after_completing_is_still_one() -> None:
    answer, marks = read(chunk({"content": "a"}, "stop"), frame({"error": {"message": "x"}}))

    assert marks == [Mark.COMPLETING, Mark.ERROR]
    assert not answer.is_complete


def test_a_null_error_is_none() -> None:
    answer, _ = read(chunk({"content": "a"}, "stop", error=None))

    assert answer.is_complete


# Fields


def test_texts_are_joined() -> None:
    choice = read_first(
        {"role": "assistant", "content": ""}, {"content": "a"}, {"content": None}, {"content": "b"}
    )

    assert (choice.text, choice.refusal, choice.reasoning) == ("ab", None, None)


def test_content_parts_give_their_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, "odd", {"text": 1}]

    assert read_first({"content": parts}, {"content": "b"}).text == "ab"


def test_a_refusal_is_not_text() -> None:
    choice = read_first(
        {"content": None, "refusal": None}, {"refusal": "I can't "}, {"refusal": "."}
    )

    assert (choice.text, choice.refusal) == ("", "I can't .")


def test_reasoning_content_goes_before_reasoning() -> None:
    assert read_first({"reasoning_content": "a", "reasoning": "a"}).reasoning == "a"
    assert read_first({"reasoning_content": "a"}, {"reasoning": "b"}).reasoning == "a"
    assert read_first({"reasoning": "b"}, {"reasoning": "c"}).reasoning == "bc"


@pytest.mark.parametrize("key", ["refusal", "reasoning_content", "reasoning", "content"])
def test_a_text_that_is_none_is_no_text(key: str) -> None:
    choice = read_first({key: {"text": "a"}}, {key: 7}, {key: True})

    assert (choice.text, choice.refusal, choice.reasoning) == ("", None, None)


def test_a_split_surrogate_pair_is_one_character_and_a_lone_half_stays() -> None:
    cut = [
        frame(b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}'),
        frame(b'{"choices":[{"index":0,"delta":{"content":"\\ude00 \\udc81"},'
              b'"finish_reason":"stop"}]}'),
    ]  # fmt: skip

    answer, _ = read(*cut)

    assert answer.text == "\U0001f600 \udc81"


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    answer, _ = read(
        frame(b'{"choices":[{"delta":{"content":"a\xffb\xed\xa0\x80"},"finish_reason":"stop"}]}')
    )

    assert answer.text == "a\ufffdb\ufffd\ufffd\ufffd"


def test_nan_and_raw_control_characters_are_read() -> None:
    answer, _ = read(
        frame(b'{"choices":[{"delta":{"content":"a\tb"},"logprobs":[NaN,-Infinity],'
              b'"finish_reason":"stop"}]}')
    )  # fmt: skip

    assert answer.text == "a\tb"


def test_a_legacy_function_call_has_no_id() -> None:
    choice = read_first(
        {"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}}
    )

    assert choice.tool_calls == (ToolCall(0, None, "f", "{}"),)


def test_a_custom_tool_call_has_its_input_as_arguments() -> None:
    choice = read_first(
        {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "f"}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "any "}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "text"}}]},
    )

    assert choice.tool_calls == (ToolCall(0, "c", "f", "any text", "custom"),)


def test_id_and_model_come_from_the_first_chunk_that_has_them() -> None:
    empty = frame({"id": "", "model": "", "choices": [], "prompt_filter_results": []})

    answer, _ = read(empty, chunk({"content": "a"}, "stop"), chunk({}, id="c2", model="m2"))

    assert (answer.response_id, answer.model) == ("c1", "m1")


@pytest.mark.parametrize("value", [None, 7, [], {}])
def test_odd_ids_are_none(value: Any) -> None:
    answer, _ = read(chunk({"content": "a"}, "stop", id=value, model=value))

    assert (answer.response_id, answer.model) == (None, None)


def test_the_service_tier_is_kept_for_display() -> None:
    answer, _ = read(
        chunk({"content": "a"}, "stop", service_tier="flex"),
        chunk(service_tier=None),
        chunk(service_tier=7),
    )

    assert answer.extra == {"service_tier": "flex"}


# Usage


def test_the_last_usage_counts_and_never_the_sum() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}

    answer, marks = read(
        chunk({"role": "assistant"}, usage=None),
        frame({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}),
        chunk({"content": "ok"}, "stop", usage=usage),
        frame({"choices": [], "usage": usage}),
        frame({"choices": [], "usage": None}),
        frame({"choices": [], "usage": {}}),
    )

    assert answer.usage == Usage(5, 2)
    assert marks == [Mark.PREFACE, Mark.PREFACE, Mark.COMPLETING, Mark.TAIL, Mark.TAIL, Mark.TAIL]


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2)),
        ({"prompt_tokens": 5}, Usage(5, 0)),
        ({"completion_tokens": 2, "prompt_tokens": None}, Usage(0, 2)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            Usage(9, 2, 4, 3, 1),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": None,
                "completion_tokens_details": {"reasoning_tokens": None},
            },
            Usage(9, 2),
        ),
        ({"prompt_tokens": True, "completion_tokens": "2"}, None),
        ({"prompt_tokens": -1, "completion_tokens": 10**30}, None),
        ({"total_tokens": 7}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_usage_is_read_with_its_gaps(value: JSON, usage: Usage | None) -> None:
    assert read_usage(value) == usage


# Bodies


def test_a_body_is_read() -> None:
    message = chat_message(
        content="Hi",
        reasoning_content="Hm",
        tool_calls=[
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}},
            {"id": "c", "type": "custom", "custom": {"name": "g", "input": "text"}},
        ],
    )

    answer = read_answer(chat_body({"message": message, "finish_reason": "tool_calls"}))

    assert answer == Answer(
        choices=(
            Choice(
                0,
                "Hi",
                None,
                "Hm",
                (ToolCall(0, "c", "f", '{"x": 1.0}'), ToolCall(1, "c", "g", "text", "custom")),
                "tool_calls",
            ),
        ),
        response_id="chatcmpl-1",
        model="gpt-4o-mini-2024-07-18",
        usage=Usage(20, 7, 8, 0, 3),
        is_complete=True,
        extra={"service_tier": "default"},
    )


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "the body is no JSON"),
        (b"<!DOCTYPE html><html>Sign in</html>", "the body is no JSON"),
        (b"[" * 200_000, "the body is no JSON"),
        (b"[]", "the body is a list, not an object"),
        (b"null", "the body is null or nothing, not an object"),
        (b"{}", "no choice was sent"),
        (b'{"id":null,"choices":null,"created":1,"model":null,"usage":null}', "no choice was sent"),
        (b'{"choices":[]}', "no choice was sent"),
        (b'{"choices":[null]}', "no choice was sent"),
        (b'{"error":{"message":"Provider returned error","code":502},"user_id":"u"}',
         "error (502): Provider returned error"),
        (b'{"object":"error","message":"x"}', "error: x"),
    ],
)  # fmt: skip
def test_what_is_no_answer_says_why(raw: bytes, fault: str) -> None:
    answer = read_answer(raw)

    assert (answer.is_complete, answer.fault) == (False, fault)


@pytest.mark.parametrize("reason", [None, "", "error", 1])
def test_a_body_needs_a_finish_reason_for_every_choice(reason: Any) -> None:
    good = {"index": 0, "message": chat_message(content="a"), "finish_reason": "stop"}

    answer = read_answer(body(good, {**good, "index": 1, "finish_reason": reason}))

    assert not answer.is_complete
    assert [each.text for each in answer.choices] == ["a", "a"]


def test_an_error_beside_choices_is_no_answer() -> None:
    good = {"index": 0, "message": chat_message(content="a"), "finish_reason": "stop"}

    assert not read_answer(body(good, error={"message": "x"})).is_complete
    assert not read_answer(body({**good, "error": {"message": "x"}})).is_complete
    assert read_answer(body({**good, "error": None}, error=None)).is_complete


@pytest.mark.parametrize("message", [None, {}, "odd", {"content": None, "tool_calls": None}])
def test_an_empty_message_is_an_empty_answer(message: Any) -> None:
    answer = read_answer(body({"message": message, "finish_reason": "stop"}))

    assert answer.is_complete
    assert answer.choices == (Choice(0, finish_reason="stop"),)


def test_nan_in_logprobs_does_not_hinder() -> None:
    answer = read_answer(
        b'{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":'
        b'"stop","logprobs":{"content":[{"token":"ok","logprob":-Infinity,"top":[NaN]}]}}]}'
    )

    assert (answer.text, answer.is_complete) == ("ok", True)


def test_a_byte_order_mark_before_a_body_does_not_hinder() -> None:
    good = body({"message": {"content": "ok"}, "finish_reason": "stop"})

    assert read_answer(b"\xef\xbb\xbf" + good).text == "ok"


def test_calls_of_a_body_are_never_glued_together() -> None:
    calls = [{"function": {"name": "f", "arguments": "{}"}}] * 2

    answer = read_answer(
        body({"message": {"tool_calls": [*calls, "odd"]}, "finish_reason": "tool_calls"})
    )

    assert answer.tool_calls == (
        (0, ToolCall(0, None, "f", "{}")), (0, ToolCall(1, None, "f", "{}")),
    )  # fmt: skip


# Pieces


@pytest.mark.parametrize("name", SAMPLES["openai_chat"].streams)
def test_joined_pieces_are_the_answer_at_every_cut(name: str) -> None:
    frames = SSEDecoder().feed(b"".join(SAMPLES["openai_chat"].streams[name]))
    for cut in range(len(frames) + 1):
        assembler = ChatAssembler()
        pieces = assembler.new_pieces()
        for each in frames[:cut]:
            assembler.feed(each)
            pieces += assembler.new_pieces()

        assert joined(pieces) == as_joined(assembler.snapshot())


_TEXTS = st.sampled_from(("", "a", "b\ud83d", "\ude00", "\u2028"))
_CALLS = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from((0, 1, None)),
        "id": st.sampled_from(("", "c1", "c2", None)),
        "type": st.sampled_from(("function", "custom")),
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(("", "f", "g")),
                "arguments": st.one_of(_TEXTS, st.just({"x": 1.5})),
            },
        ),
    },
)
_DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.one_of(_TEXTS, st.just([{"type": "text", "text": "p"}, "odd"])),
        "refusal": _TEXTS,
        "reasoning": _TEXTS,
        "reasoning_content": _TEXTS,
        "tool_calls": st.lists(_CALLS, max_size=2),
        "function_call": st.fixed_dictionaries({"name": _TEXTS, "arguments": _TEXTS}),
    },
)


@given(st.lists(st.tuples(st.integers(0, 1), _DELTAS), max_size=6), st.booleans())
@settings(derandomize=True, deadline=None, database=None, max_examples=200)
def test_joined_pieces_of_any_stream_are_the_answer(
    deltas: list[tuple[int, dict[str, Any]]], is_asked_once: bool
) -> None:
    assembler = ChatAssembler()
    pieces = assembler.new_pieces()
    for index, delta in deltas:
        assembler.feed(chunk(delta, index=index))
        pieces += [] if is_asked_once else assembler.new_pieces()
    pieces += assembler.new_pieces()

    assert joined(pieces) == as_joined(assembler.snapshot())


def test_a_piece_of_a_call_tells_what_is_known_of_it_by_then() -> None:
    assembler = ChatAssembler()
    assert assembler.new_pieces() == []
    assembler.feed(chunk({"tool_calls": [call_delta(0, "", "c1", "get_")]}))
    assembler.feed(chunk({"tool_calls": [call_delta(0, "{}", "", "weather")]}))

    assert assembler.new_pieces() == [
        Piece(0, "call", "", 0, "c1", "get_"),
        Piece(0, "call", "{}", 0, "c1", "get_weather"),
    ]
    assert assembler.new_pieces() == []


def test_no_pieces_are_kept_before_they_are_asked_for() -> None:
    assembler = ChatAssembler()
    assembler.feed(chunk({"content": "a"}))

    assert assembler.new_pieces() == []
    assembler.feed(chunk({"content": "b"}))
    assert assembler.new_pieces() == [Piece(0, "text", "b")]


def test_reasoning_under_a_second_name_is_told_once() -> None:
    choice = read_first({"reasoning": "a"}, {"reasoning": "b", "reasoning_content": "b"})

    assert choice.reasoning == "ab"


# What ended it


@pytest.mark.parametrize(
    ("fields", "hit"),
    [
        ({"stop_reason": "END"}, "END"),
        ({"matched_stop": "END"}, "END"),
        ({"stop_reason": None, "matched_stop": "END"}, "END"),
        ({"stop_reason": 128009}, None),
        ({"matched_stop": 128009}, None),
        ({"stop_reason": ""}, None),
        ({"stop_reason": ["END"]}, None),
        ({}, None),
    ],
)
def test_the_stop_sequence_that_was_hit_is_kept(fields: dict[str, Any], hit: str | None) -> None:
    whole = {"message": {"content": "a"}, "finish_reason": "stop", **fields}
    piece = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop", **fields}
    expected = {} if hit is None else {"stop_sequence": hit}

    assert read_answer(body(whole)).extra == expected
    assert read(frame({"choices": [piece]}))[0].extra == expected


def test_a_stop_reason_beside_another_end_is_no_stop_sequence() -> None:
    whole = {"message": {"content": "a"}, "finish_reason": "length", "stop_reason": "END"}

    assert read_answer(body(whole)).extra == {}


def test_the_stop_sequence_is_the_first_choices() -> None:
    choices = [
        {"index": at, "message": {"content": "a"}, "finish_reason": "stop", "stop_reason": hit}
        for at, hit in ((1, "B"), (0, "A"))
    ]

    assert read_answer(body(*choices)).extra == {"stop_sequence": "A"}
