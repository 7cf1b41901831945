"""Reading Messages answers: the oddities of real upstreams, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.anthropic_messages_reading import (
    MessagesAssembler,
    read_answer,
    read_usage,
)
from agentstate.dialects.base import Mark
from agentstate.ground.chat import Answer, Piece, ToolCall, Usage
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects.samples_anthropic import (
    BODIES,
    CALL,
    PING,
    STOP,
    STREAMS,
    USAGE,
    block,
    body,
    call_block,
    end,
    event,
    start,
    text_block,
    thinking_block,
)


def read(*events: bytes) -> tuple[Answer, list[Mark]]:
    assembler = MessagesAssembler()
    marks = [assembler.feed(frame) for frame in SSEDecoder().feed(b"".join(events))]
    return assembler.finish(clean_end=True), marks


def read_whole(*events: bytes, reason: str = "end_turn") -> Answer:
    answer, _ = read(start(), *events, end(reason), STOP)
    assert answer.is_complete
    return answer


def calls(answer: Answer) -> list[ToolCall]:
    return [call for _, call in answer.tool_calls]


# Marks


@pytest.mark.parametrize(
    ("opened", "mark"),
    [
        ({"type": "text", "text": ""}, Mark.PREFACE),
        ({"type": "text"}, Mark.PREFACE),
        ({"type": "text", "text": "a"}, Mark.CONTENT),
        ({"type": "thinking", "thinking": "", "signature": ""}, Mark.PREFACE),
        ({"type": "thinking", "thinking": "a"}, Mark.CONTENT),
        ({"type": "redacted_thinking", "data": "x"}, Mark.CONTENT),
        ({"type": "web_search_tool_result", "tool_use_id": "x", "content": []}, Mark.CONTENT),
        ({"type": "x_block"}, Mark.CONTENT),
        ({**CALL, "input": {}}, Mark.TOOL),
        ({**CALL, "type": "server_tool_use"}, Mark.TOOL),
        ({**CALL, "type": "mcp_tool_use"}, Mark.TOOL),
        ({"type": "x_tool_use"}, Mark.TOOL),
        ({"type": "x_call", "name": "f", "input": {}}, Mark.TOOL),
        ({}, Mark.CONTENT),
        ("odd", Mark.CONTENT),
    ],
)
def test_the_start_of_a_block_is_marked_by_what_it_holds(opened: Any, mark: Mark) -> None:
    _, marks = read(start(), event("content_block_start", index=0, content_block=opened))

    assert marks[-1] is mark


@pytest.mark.parametrize(
    ("delta", "mark"),
    [
        ({"type": "text_delta", "text": "a"}, Mark.CONTENT),
        ({"type": "text_delta", "text": ""}, Mark.PREFACE),
        ({"type": "text_delta"}, Mark.PREFACE),
        ({"type": "thinking_delta", "thinking": "a"}, Mark.CONTENT),
        ({"type": "thinking_delta", "thinking": ""}, Mark.PREFACE),
        ({"type": "signature_delta", "signature": "a"}, Mark.CONTENT),
        ({"type": "citations_delta", "citation": {}}, Mark.CONTENT),
        ({"type": "x_delta"}, Mark.CONTENT),
        ({"type": "input_json_delta", "partial_json": ""}, Mark.TOOL),
        ({"type": "input_json_delta", "partial_json": "{}"}, Mark.TOOL),
    ],
)
def test_a_piece_is_marked_by_what_it_holds(delta: Any, mark: Mark) -> None:
    opened = {"type": "text", "text": ""}

    _, marks = read(start(), *block(0, opened, delta)[:2])

    assert marks[-1] is mark


def test_the_end_of_a_tool_calls_block_is_part_of_it() -> None:
    _, marks = read(start(), *text_block(0, "a"), *call_block(1, "{}"))

    assert marks == [
        Mark.PREFACE,
        Mark.PREFACE, Mark.CONTENT, Mark.PREFACE,
        Mark.TOOL, Mark.TOOL, Mark.TOOL,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        PING,
        b": comment\n",
        b"event: x_event\ndata: {}\n\n",
        b'data: {"type":"x_event","content":"a"}\n\n',
        b"data: []\n\n",
        b"data: \n\n",
        b"data: [DONE]\n\n",
        event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 3}),
        event("content_block_stop", index=7),
    ],
)
def test_what_holds_nothing_is_preface_and_after_the_completing_frame_tail(raw: bytes) -> None:
    _, before = read(start(), raw)
    answer, after = read(start(), end(), raw, STOP)

    assert set(before) == {Mark.PREFACE}
    assert after[1:] == [Mark.COMPLETING, Mark.TAIL, Mark.DONE]
    assert answer.is_complete


def test_the_completing_frame_is_given_once() -> None:
    _, marks = read(start(), end(), end("max_tokens"), STOP)

    assert marks == [Mark.PREFACE, Mark.COMPLETING, Mark.TAIL, Mark.DONE]


def test_content_in_the_first_event_is_content() -> None:
    _, text = read(start(content=[{"type": "text", "text": "a"}]))
    _, call = read(start(content=[{"type": "text", "text": "a"}, CALL]))

    assert (text, call) == ([Mark.CONTENT], [Mark.TOOL])


# What is complete


def test_a_stream_without_message_stop_is_no_answer() -> None:
    """Its snapshot is one: the stop reason is what the commit waits for."""
    assembler = MessagesAssembler()
    for frame in SSEDecoder().feed(b"".join((start(), *text_block(0, "a"), end()))):
        assembler.feed(frame)

    assert assembler.snapshot().is_complete
    assert assembler.finish(True).fault == "no message_stop was sent"
    assert assembler.finish(False).fault == "the stream was cut before its end"


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ((), "no message_start was sent"),
        ((STOP,), "no message_start was sent"),
        ((*text_block(0, "a"), end(), STOP), "no message_start was sent"),
        ((start(), *text_block(0, "a"), STOP), "no stop reason was sent"),
        ((start(), end(None), STOP), "no stop reason was sent"),
        ((start(), end(""), STOP), "no stop reason was sent"),
        ((start(), end("error"), STOP), "the stop reason is 'error'"),
        ((start(), b"event: x\ndata: {\n\n", end(), STOP), "an event that is no JSON"),
    ],
)
def test_a_fault_says_what_is_missing(events: tuple[bytes, ...], fault: str) -> None:
    answer, marks = read(*events)

    assert (answer.fault, answer.is_complete) == (fault, False)
    assert fault == "an event that is no JSON" or Mark.COMPLETING not in marks


@pytest.mark.parametrize(
    "reason",
    ["end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal",
     "model_context_window_exceeded", "x_reason"],
)  # fmt: skip
def test_every_other_stop_reason_is_terminal(reason: str) -> None:
    assert read_whole(reason=reason).finish_reason == reason
    assert read_answer(body(reason=reason)).finish_reason == reason


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (event("error", error={"type": "overloaded_error", "message": "Overloaded"}), "Overloaded"),
        (b'data: {"type":"error","error":{"message":"m"}}\n\n', "m"),
        (b'event: error\ndata: {"message":"m"}\n\n', "m"),
        (b"event: error\ndata: busy\n\n", "no JSON"),
    ],
)
def test_an_error_makes_it_no_answer_wherever_it_comes(raw: bytes, words: str) -> None:
    for events in ((raw,), (start(), raw), (start(), end(), raw, STOP)):
        answer, marks = read(*events)

        assert Mark.ERROR in marks
        assert answer.fault is not None
        assert words in answer.fault


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "the body is no JSON"),
        (b"<html>", "the body is no JSON"),
        (b"[]", "the body is a list, not an object"),
        (b"{}", "the body is no message with content"),
        (b'{"type":"message","content":null,"stop_reason":"end_turn"}',
         "the body is no message with content"),
        (b'{"content":[],"stop_reason":"end_turn"}', "the body is no message with content"),
        (body(reason=None), "no stop reason was sent"),
        (body(reason="error"), "the stop reason is 'error'"),
        (b'{"error":"busy"}', "error: busy"),
    ],
)  # fmt: skip
def test_a_body_that_is_no_answer_says_why(raw: bytes, fault: str) -> None:
    answer = read_answer(raw)

    assert (answer.fault, answer.is_complete) == (fault, False)


# What is read


def test_the_head_is_read() -> None:
    for answer in (read_whole(), read_answer(body())):
        assert (answer.response_id, answer.model) == ("msg_1", "claude-opus-4-6")
        assert answer.extra == {"service_tier": "standard"}


def test_a_second_start_changes_nothing() -> None:
    answer, _ = read(start(), start(id="msg_2", model="other"), end(), STOP)

    assert (answer.response_id, answer.model) == ("msg_1", "claude-opus-4-6")


def test_the_model_is_the_one_that_went_on() -> None:
    fallback = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "claude-b"}}

    assert read_whole(*block(0, fallback)).model == "claude-b"


def test_the_input_counts_include_the_cache() -> None:
    assert read_usage(USAGE) == Usage(20, 7, cached_tokens=5, cache_write_tokens=3)


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({"output_tokens": 3}, Usage(0, 3)),
        ({"input_tokens": 3}, Usage(3, 0)),
        ({"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": None}, Usage(3, 4)),
        ({"input_tokens": 0, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
         Usage(0, 9, reasoning_tokens=4)),
        ({"input_tokens": "3", "output_tokens": -1}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_odd_counts_are_read_as_far_as_they_are_counts(fields: Any, usage: Usage | None) -> None:
    assert read_usage(fields) == usage


def test_later_counts_are_totals_and_null_says_nothing() -> None:
    final = {"input_tokens": 30, "output_tokens": 9, "cache_read_input_tokens": None}

    answer, _ = read(start(), end(usage={"output_tokens": 4}), end(usage=final), STOP)

    assert answer.usage == Usage(38, 9, cached_tokens=5, cache_write_tokens=3)


def test_texts_of_all_blocks_are_joined() -> None:
    answer = read_whole(
        *text_block(0, "a", "b"), *thinking_block(1, "x"), *text_block(2, "c"),
        *thinking_block(3, "y"),
    )  # fmt: skip

    assert (answer.text, answer.choices[0].reasoning) == ("abc", "xy")


def test_a_character_cut_in_two_becomes_one() -> None:
    assert read_whole(*text_block(0, "\ud83d", "\ude00")).text == "\U0001f600"


def test_no_thought_is_none() -> None:
    assert read_whole(*text_block(0, "a")).choices[0].reasoning is None
    assert read_whole(*thinking_block(0)).choices[0].reasoning is None


def test_a_refusal_tells_its_explanation() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "No."}

    answer, _ = read(start(), end("refusal", stop_details=details), STOP)

    assert answer.choices[0].refusal == "No."
    assert read_answer(body(reason="refusal")).choices[0].refusal == ""
    assert read_answer(body()).choices[0].refusal is None


def test_the_stop_sequence_is_told() -> None:
    answer = read_answer(body(reason="stop_sequence", stop_sequence="END"))

    assert answer.extra["stop_sequence"] == "END"


# Tool calls


def test_arguments_are_the_exact_text_that_was_sent() -> None:
    answer = read_whole(*call_block(0, "", '{"id": 2512292042121000001', ', "a" : 1.50}'))

    assert calls(answer) == [
        ToolCall(0, "call_1", "get_weather", '{"id": 2512292042121000001, "a" : 1.50}')
    ]


def test_arguments_of_a_body_keep_their_numbers() -> None:
    raw = body({**CALL, "input": {"a": 7777}}, reason="tool_use")

    for number in ("1.50", "2512292042121000001", "1E2"):
        answer = read_answer(raw.replace(b"7777", number.encode()))
        assert calls(answer)[0].arguments == f'{{"a":{number}}}'


def test_a_key_that_comes_twice_is_told_twice() -> None:
    """A client may take either one, so a gate must see that there are two."""
    raw = body({**CALL, "input": {"a": 1, "b": 2}}).replace(b'"b"', b'"a"')

    assert calls(read_answer(raw))[0].arguments == '{"a":1,"a":2}'


def test_no_arguments_are_an_empty_object() -> None:
    for events in (call_block(0), call_block(0, ""), block(0, {"type": "tool_use", "name": "f"})):
        assert calls(read_whole(*events))[0].arguments == "{}"


def test_arguments_that_come_with_the_start_are_taken() -> None:
    answer = read_whole(*block(0, {**CALL, "input": {"city": "Oslo"}}))

    assert calls(answer)[0].arguments == '{"city":"Oslo"}'


def test_arguments_that_were_cut_are_told_as_they_are() -> None:
    answer = read_whole(*call_block(0, '{"city":"Os'), reason="max_tokens")

    assert calls(answer)[0].arguments == '{"city":"Os'


def test_arguments_nested_too_deeply_are_malformed() -> None:
    deep = b'{"a":' * 700 + b"1" + b"}" * 700
    raw = body({**CALL, "input": 7777}).replace(b"7777", deep)

    def read_deep(depth: int) -> str:
        return calls(read_answer(raw))[0].arguments if depth == 0 else read_deep(depth - 1)

    # Whether it can be written again depends on how deep the call is; either way it is told.
    assert read_deep(0) in (deep.decode(), "nested too deeply")


@pytest.mark.parametrize(
    ("kind", "read_as", "runs_upstream"),
    [
        ("tool_use", "function", False),
        ("server_tool_use", "server_tool_use", True),
        ("mcp_tool_use", "mcp_tool_use", True),
        ("x_tool_use", "x_tool_use", False),
        ("x_call", "x_call", False),
    ],
)
def test_whoever_runs_a_tool_its_call_is_told(kind: str, read_as: str, runs_upstream: bool) -> None:
    answer = read_whole(*call_block(0, "{}", type=kind))

    assert calls(answer) == [
        ToolCall(0, "call_1", "get_weather", "{}", read_as, runs_upstream=runs_upstream)
    ]


def test_calls_are_counted_by_themselves() -> None:
    answer = read_whole(
        *text_block(0, "a"), *call_block(1, "{}"), *text_block(2, "b"),
        *call_block(3, "[", id="call_2", name="g"),
    )  # fmt: skip

    assert [(call.position, call.name) for call in calls(answer)] == [(0, "get_weather"), (1, "g")]


# Streams out of order


def test_blocks_may_overlap() -> None:
    first, second = text_block(0, "a", "b"), call_block(1, "{", "}")
    woven = [each for pair in zip(first, second, strict=True) for each in pair]

    answer = read_whole(*woven)

    assert (answer.text, calls(answer)[0].arguments) == ("ab", "{}")


def test_a_block_whose_start_did_not_come_is_read() -> None:
    def alone(**delta: str) -> bytes:
        return event("content_block_delta", index=0, delta=delta)

    assert read_whole(alone(type="text_delta", text="a")).text == "a"
    thought = read_whole(alone(type="thinking_delta", thinking="a"))
    assert thought.choices[0].reasoning == "a"
    call = read_whole(alone(type="input_json_delta", partial_json="{}"))
    assert calls(call) == [ToolCall(0, None, "", "{}")]
    assert read_whole(alone(type="x_delta", x="a")).is_complete


def test_pieces_without_index_belong_to_the_last_block() -> None:
    answer = read_whole(
        *text_block(0, "a"),
        event("content_block_start", content_block={**CALL, "input": {}}),
        event("content_block_delta", delta={"type": "input_json_delta", "partial_json": "[]"}),
    )

    assert (answer.text, calls(answer)[0].arguments) == ("a", "[]")


def test_an_index_used_twice_begins_another_block() -> None:
    answer = read_whole(*call_block(0, "{}"), *call_block(0, "[]", id="call_2"))

    assert [call.arguments for call in calls(answer)] == ["{}", "[]"]


def test_events_are_known_by_their_data_or_else_by_their_name() -> None:
    unnamed = [raw.partition(b"\n")[2] for raw in STREAMS["tool calls"]]
    untyped = [
        b"event: " + kind + b"\ndata: " + json.dumps(fields).encode() + b"\n\n"
        for raw in STREAMS["tool calls"]
        for kind in (raw.partition(b"\n")[0].removeprefix(b"event: "),)
        for fields in (json.loads(raw.partition(b"data: ")[2]),)
        if fields.pop("type")
    ]

    whole, _ = read(*STREAMS["tool calls"])
    assert read(*unnamed)[0] == whole
    assert read(*untyped)[0] == whole


# Pieces


def pieces_at_each(*events: bytes) -> tuple[MessagesAssembler, list[Piece]]:
    """Return an assembler that was asked for its pieces after every frame, and those."""
    assembler = MessagesAssembler()
    found = assembler.new_pieces()
    for frame in SSEDecoder().feed(b"".join(events)):
        assembler.feed(frame)
        found += assembler.new_pieces()
    return assembler, found


def joined(pieces: list[Piece], kind: str, position: int = 0) -> str:
    return "".join(
        piece.text for piece in pieces if (piece.kind, piece.position) == (kind, position)
    )


@pytest.mark.parametrize("name", STREAMS)
def test_pieces_add_up_to_the_answer_at_every_cut(name: str) -> None:
    events = STREAMS[name]
    for size in range(len(events) + 1):
        assembler, pieces = pieces_at_each(*events[:size])
        answer = assembler.snapshot()
        for choice in answer.choices:
            assert joined(pieces, "text") == choice.text
            assert joined(pieces, "reasoning") == (choice.reasoning or "")
            assert joined(pieces, "refusal") == (choice.refusal or "")
            own = [call for call in choice.tool_calls if not call.runs_upstream]
            assert {p.position for p in pieces if p.kind == "call"} == {c.position for c in own}
            for call in own:
                # Arguments nobody sent yet may be `{}` or may come.
                told = joined(pieces, "call", call.position)
                assert told == call.arguments or (told, call.arguments) == ("", "{}")
                assert size < len(events) or told == call.arguments


def test_pieces_that_nobody_asked_for_are_not_kept() -> None:
    assembler = MessagesAssembler()
    for frame in SSEDecoder().feed(b"".join(STREAMS["tool calls"])):
        assembler.feed(frame)

    assert assembler.new_pieces() == []


def test_a_call_is_told_of_before_its_arguments() -> None:
    _, pieces = pieces_at_each(start(), *text_block(0, "I"), *call_block(1, '{"a', '":1}'))

    assert pieces == [
        Piece(0, "text", "I"),
        Piece(0, "call", "", 0, "call_1", "get_weather"),
        Piece(0, "call", '{"a', 0, "call_1", "get_weather"),
        Piece(0, "call", '":1}', 0, "call_1", "get_weather"),
    ]


def test_arguments_that_came_whole_are_told_once() -> None:
    whole = block(0, {**CALL, "input": {"a": 1}})

    _, ended = pieces_at_each(start(), *whole, end("tool_use"), STOP)
    _, unended = pieces_at_each(start(content=[CALL]), end("tool_use"), STOP)

    assert [piece.text for piece in ended] == ["", '{"a":1}']
    assert len(unended) == 2


# Junk

KEYS = (
    "type", "message", "content", "content_block", "delta", "index", "id", "model", "name", "input",
    "text", "thinking", "signature", "partial_json", "citation", "citations", "stop_reason",
    "stop_sequence", "stop_details", "usage", "input_tokens", "output_tokens", "to",
)  # fmt: skip
WORDS = (
    "message_start", "content_block_start", "content_block_delta", "content_block_stop",
    "message_delta", "message_stop", "text", "thinking", "tool_use", "fallback", "text_delta",
    "input_json_delta", "citations_delta", "signature_delta", "x_delta", "message", "end_turn", "",
)  # fmt: skip
junk: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.sampled_from(WORDS), st.sampled_from((None, True, 0, 1, -1, 10**30, 1.5, "\ud83d"))
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=10,
)
events_of_junk = st.dictionaries(st.sampled_from(KEYS), junk, max_size=6).flatmap(
    lambda fields: st.sampled_from(WORDS).map(lambda kind: {**fields, "type": kind})
)


@given(st.lists(events_of_junk, max_size=8))
@settings(derandomize=True, deadline=None, database=None, max_examples=150)
def test_no_event_of_the_right_type_and_the_wrong_shape_raises(events: list[Any]) -> None:
    assembler = MessagesAssembler()
    assembler.new_pieces()

    for each in events:
        data = json.dumps(each).encode()
        assembler.feed(Frame(b"", data))
        answer = read_answer(data)
        assert answer.is_complete == (answer.fault is None)
        assert len(assembler.call_names()) == len(assembler.snapshot().tool_calls)

    assert assembler.finish(True).is_complete == (assembler.finish(True).fault is None)


def test_every_sample_has_one_choice() -> None:
    assert {len(read_answer(raw).choices) for raw in BODIES.values()} == {1}
