"""Writing other models' answers as messages, whole and as streams."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.dialects.anthropic_messages_answers import MessagesWriter, ending, write_answer
from agentstate.dialects.anthropic_messages_forms import body_from_events
from agentstate.dialects.anthropic_messages_reading import MessagesAssembler, read_answer
from agentstate.dialects.base import ErrorFacts
from agentstate.dialects.neutral import (
    AnswerHead,
    Ending,
    Receiver,
    TellsPieces,
    TranslatingDialect,
    translates,
)
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire.sse import SSEDecoder
from tests.dialects.samples_anthropic import BODIES
from tests.helpers.anthropic_types import check, check_stream

HEAD = AnswerHead("5eed", "claude-asked", 1_700_000_000, {})
USAGE = Usage(10, 7, cached_tokens=4, cache_write_tokens=1, reasoning_tokens=2)
CALLS = (
    ToolCall(0, "call_a", "get_weather", '{"city": "Oslo", "id": 2512292042121000001, "x": 1.50}'),
    ToolCall(1, None, "now", ""),
    ToolCall(2, "functions.patch:0", "patch", 'a "b"\n\u2028', kind="custom"),
    ToolCall(3, "call_a", "broken", '{"a":'),
)
ANSWERS: dict[str, tuple[Answer, Ending]] = {
    "text": (Answer((Choice(0, "Hi \u2028 \U0001f600"),), usage=USAGE), "stop"),
    "calls": (Answer((Choice(0, "I look.", tool_calls=CALLS),), usage=USAGE), "tool_calls"),
    "calls alone": (Answer((Choice(0, tool_calls=CALLS),)), "tool_calls"),
    "refusal": (Answer((Choice(0, refusal="I can't help."),)), "stop"),
    "refusal after text": (Answer((Choice(0, "Here is", refusal="No."),)), "filtered"),
    "reasoning": (Answer((Choice(0, "Hi", reasoning="hm"),)), "stop"),
    "reasoning alone": (Answer((Choice(0, reasoning="hm"),)), "length"),
    "nothing": (Answer((Choice(0),)), "filtered"),
    "stop sequence": (
        Answer((Choice(0, "ok"),), extra={"stop_sequence": "END"}), "stop_sequence",
    ),
}  # fmt: skip


def written(answer: Answer, why: Ending) -> dict[str, Any]:
    raw = write_answer(answer, why, HEAD).value
    body: dict[str, Any] = json.loads(raw)
    assert read_answer(raw).is_complete
    return body


def pieces_of(answer: Answer) -> list[Piece]:
    """Return an answer's pieces, one a value."""
    choice = answer.choices[0]
    pieces = [Piece(0, "reasoning", choice.reasoning)] if choice.reasoning else []
    pieces += [Piece(0, "text", choice.text)] if choice.text else []
    pieces += [Piece(0, "refusal", choice.refusal)] if choice.refusal else []
    for call in choice.tool_calls:
        pieces += [call_piece(call, ""), *([call_piece(call)] if call.arguments else [])]
    return pieces


def call_piece(call: ToolCall, text: str | None = None) -> Piece:
    text = call.arguments if text is None else text
    return Piece(0, "call", text, call.position, call.call_id, call.name, call.kind)


def cut(pieces: list[Piece], size: int) -> list[Piece]:
    """Cut the texts of pieces into parts of some length."""
    return [
        Piece(p.choice, p.kind, p.text[at : at + size], p.position, p.call_id, p.name, p.call_kind)
        for p in pieces
        for at in range(0, max(len(p.text), 1), size)
    ]


def streamed(answer: Answer, why: Ending, pieces: list[Piece], group: int = 1) -> bytes:
    writer = MessagesWriter(HEAD)
    frames = [writer.begin()]
    for at in range(0, len(pieces), group):
        frames.append(writer.write(pieces[at : at + group]))
    return b"".join((*frames, writer.end(answer, why)))


def body_of(stream: bytes) -> Any:
    return json.loads(body_from_events(SSEDecoder().feed(stream)))


def read_stream(stream: bytes) -> Answer:
    assembler = MessagesAssembler()
    for frame in SSEDecoder().feed(stream):
        assembler.feed(frame)
    return assembler.finish(clean_end=True)


def test_the_dialect_translates() -> None:
    dialect: TranslatingDialect = AnthropicMessages()
    assembler: TellsPieces = AnthropicMessages().assembler()
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    asked = dialect.read_request(cast(dict[str, JSON], body))
    answer, why = ANSWERS["text"]

    assert translates(dialect)
    assert assembler.new_pieces() == []
    assert dialect.request_headers == ((b"anthropic-version", b"2023-06-01"),)
    assert dialect.request_path("m", streams=True) == ("/v1/messages", "")
    assert dialect.write_request(asked, Receiver("anthropic", "n")).value["model"] == "n"
    assert dialect.ending(answer) == "stop"
    assert dialect.write_answer(answer, why, HEAD) == write_answer(answer, why, HEAD)
    assert dialect.answer_writer(HEAD).begin().startswith(b"event: message_start\n")
    assert b'"rate_limit_error"' in dialect.write_error(ErrorFacts("slow"), 429)


# Why an answer ended


@pytest.mark.parametrize(
    ("reason", "has_call", "why"),
    [
        ("end_turn", False, "stop"),
        ("end_turn", True, "tool_calls"),
        ("tool_use", True, "tool_calls"),
        ("tool_use", False, "stop"),
        ("max_tokens", True, "length"),
        ("model_context_window_exceeded", False, "length"),
        ("stop_sequence", False, "stop_sequence"),
        ("stop_sequence", True, "tool_calls"),
        ("refusal", False, "filtered"),
        ("refusal", True, "filtered"),
        ("pause_turn", False, "stop"),
        ("x_reason", True, "tool_calls"),
        (None, False, "stop"),
    ],
)
def test_a_reason_to_stop_is_told_in_neutral_words(
    reason: str | None, has_call: bool, why: Ending
) -> None:
    calls = CALLS[:1] if has_call else ()

    assert ending(Answer((Choice(0, tool_calls=calls, finish_reason=reason),))) == why


def test_calls_that_anthropic_ran_are_none_for_the_agent() -> None:
    assert ending(read_answer(BODIES["calls of others"])) == "stop"


# Whole


@pytest.mark.parametrize("name", ANSWERS)
def test_a_message_is_one_to_the_package(name: str) -> None:
    answer, why = ANSWERS[name]

    check("Message", write_answer(answer, why, HEAD).value)


def test_a_message_says_what_the_answer_says() -> None:
    body = written(*ANSWERS["calls"])

    assert body == {
        "id": "msg_5eed",
        "type": "message",
        "role": "assistant",
        "model": "claude-asked",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "call_a", "name": "get_weather",
             "input": {"city": "Oslo", "id": 2512292042121000001, "x": 1.5}},
            {"type": "tool_use", "id": body["content"][2]["id"], "name": "now", "input": {}},
            {"type": "tool_use", "id": body["content"][3]["id"], "name": "patch",
             "input": {"input": 'a "b"\n\u2028'}},
            {"type": "tool_use", "id": body["content"][4]["id"], "name": "broken",
             "input": {"INVALID_JSON": '{"a":'}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "cache_creation_input_tokens": 1,
                  "cache_read_input_tokens": 4, "output_tokens": 7,
                  "output_tokens_details": {"thinking_tokens": 2}},
    }  # fmt: skip
    ids = [block["id"] for block in body["content"][1:]]
    assert len(set(ids)) == 4
    assert all(id_.replace("_", "").isalnum() for id_ in ids)
    assert b'"x":1.50' in write_answer(*ANSWERS["calls"], HEAD).value


@pytest.mark.parametrize(
    ("name", "texts", "reason", "sequence"),
    [
        ("refusal", ["I can't help."], "refusal", None),
        ("refusal after text", ["Here is", "No."], "refusal", None),
        ("nothing", [""], "refusal", None),
        ("reasoning", ["Hi"], "end_turn", None),
        ("reasoning alone", [""], "max_tokens", None),
        ("stop sequence", ["ok"], "stop_sequence", "END"),
    ],
)
def test_there_is_always_a_block_and_a_reason(
    name: str, texts: list[str], reason: str, sequence: str | None
) -> None:
    body = written(*ANSWERS[name])

    assert body["content"] == [{"type": "text", "text": text} for text in texts]
    assert (body["stop_reason"], body["stop_sequence"]) == (reason, sequence)


def test_a_stop_sequence_that_nobody_names_is_an_end_like_any_other() -> None:
    assert written(Answer((Choice(0, "a"),)), "stop_sequence")["stop_reason"] == "end_turn"


def test_what_the_form_cannot_say_is_named() -> None:
    ran = ToolCall(0, "a", "web_search", "{}", "server_tool_use", runs_upstream=True)
    choice = Choice(0, "Hi", reasoning="hm", tool_calls=(ran,))

    whole = write_answer(Answer((choice, Choice(1, "Ho"))), "stop", HEAD)

    assert whole.dropped == (
        "reasoning", "calls that the provider ran", "all choices but the first",
    )  # fmt: skip
    assert json.loads(whole.value)["content"] == [{"type": "text", "text": "Hi"}]


def test_an_answer_without_a_choice_is_written_all_the_same() -> None:
    assert written(Answer(), "stop")["content"] == [{"type": "text", "text": ""}]


def test_counts_never_fall_below_nothing() -> None:
    answer = Answer((Choice(0, "a"),), usage=Usage(3, 1, cached_tokens=9))

    assert written(answer, "stop")["usage"]["input_tokens"] == 0


# Streams


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize("group", [1, 3, 1000])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_is_the_message_however_it_is_cut(name: str, group: int, size: int) -> None:
    answer, why = ANSWERS[name]

    stream = streamed(answer, why, cut(pieces_of(answer), size), group)

    check_stream("RawMessageStreamEvent", stream)
    assert body_of(stream) == written(answer, why)
    read = read_stream(stream)
    assert read.is_complete
    assert read.choices[0].text == (answer.text + (answer.choices[0].refusal or ""))
    said = [call.arguments for call in answer.choices[0].tool_calls if call.kind == "function"]
    again = [call.arguments for _, call in read.tool_calls if call.name != "patch"]
    assert again == [arguments or "{}" for arguments in said]


@pytest.mark.parametrize("name", [name for name in ANSWERS if not name.startswith("calls")])
def test_the_sdk_adds_a_stream_up_to_the_message(name: str) -> None:
    answer, why = ANSWERS[name]

    assert sdk_message(streamed(answer, why, cut(pieces_of(answer), 3))) == written(answer, why)


def test_the_sdk_reads_the_arguments_of_calls() -> None:
    answer = Answer((Choice(0, tool_calls=CALLS[:3]),))

    message = sdk_message(streamed(answer, "tool_calls", cut(pieces_of(answer), 3)))

    assert message["content"] == written(answer, "tool_calls")["content"]


def sdk_message(stream: bytes) -> Any:
    """Return the message that the client of the `anthropic` package makes of a stream."""
    messages = pytest.importorskip("anthropic.lib.streaming._messages")
    pydantic = pytest.importorskip("pydantic")
    types = pytest.importorskip("anthropic.types")
    events = pydantic.TypeAdapter(types.RawMessageStreamEvent)
    snapshot, buffers = None, dict[int, bytes]()
    for frame in SSEDecoder().feed(stream):
        event = events.validate_json(frame.data)
        snapshot = messages.accumulate_event(
            event=event, current_snapshot=snapshot, json_bufs=buffers
        )
    assert snapshot is not None
    message = json.loads(snapshot.to_json(exclude_unset=True, exclude_none=False))
    assert message.pop("stop_details", None) is None  # the client adds it
    return message


def test_half_a_character_that_stays_alone_stays() -> None:
    answer = Answer((Choice(0, "a\ud83d", tool_calls=(CALLS[2],)),))

    pieces = [Piece(0, "text", "a"), Piece(0, "text", "\ud83d"), *pieces_of(answer)[1:]]

    assert body_of(streamed(answer, "tool_calls", pieces)) == written(answer, "tool_calls")


def test_a_stream_without_pieces_is_the_message_too() -> None:
    answer, why = ANSWERS["calls alone"]

    assert body_of(streamed(answer, why, [])) == written(answer, why)


def test_text_goes_out_at_once() -> None:
    writer = MessagesWriter(HEAD)
    writer.begin()

    assert b'"text":"H"' in writer.write([Piece(0, "text", "H")])
    assert b'"text":"i"' in writer.write([Piece(0, "text", "i")])


def test_a_call_begins_with_its_first_argument_when_its_name_is_whole() -> None:
    writer = MessagesWriter(HEAD)
    writer.begin()

    assert writer.write([Piece(0, "call", "", 0, None, "get_")]) == b""
    assert writer.write([Piece(0, "call", "", 0, "call_a", "get_weather")]) == b""
    begun = writer.write([Piece(0, "call", "{", 0, "call_a", "get_weather")])
    assert b'"id":"call_a","name":"get_weather","input":{}' in begun
    assert b'"partial_json":"{"' in begun


def test_a_call_waits_for_a_name_that_comes_after_its_arguments() -> None:
    writer = MessagesWriter(HEAD)
    begun = writer.write([Piece(0, "call", '{"a":1}', 0)])
    begun += writer.write([Piece(0, "call", "", 0, "call_1", "pay")])
    assert b'"name":"pay"' in begun

    call = ToolCall(0, "call_1", "pay", '{"a":1}')
    late = MessagesWriter(HEAD)
    assert late.write([Piece(0, "call", call.arguments, 0)]) == b""
    rest = late.end(Answer((Choice(0, tool_calls=(call,)),)), "tool_calls")
    assert b'"name":"pay"' in rest


def test_interleaved_calls_come_out_one_after_the_other() -> None:
    first, second = ToolCall(0, "a", "f", '{"x":[1]}'), ToolCall(1, "b", "g", '{"y":2}')
    answer = Answer((Choice(0, tool_calls=(first, second)),))
    woven = [
        call_piece(call, part)
        for parts in zip(first.arguments, second.arguments, strict=False)
        for call, part in zip((first, second), parts, strict=True)
    ]
    woven += [call_piece(first, part) for part in first.arguments[7:]]

    stream = streamed(answer, "tool_calls", woven)

    assert body_of(stream) == written(answer, "tool_calls")
    kinds = [frame.event for frame in SSEDecoder().feed(stream)]
    starts = [at for at, kind in enumerate(kinds) if kind == b"content_block_start"]
    assert kinds[starts[1] - 1] == b"content_block_stop"
    check_stream("RawMessageStreamEvent", stream)


def test_a_second_call_is_live_once_the_first_is_whole() -> None:
    writer = MessagesWriter(HEAD)
    first, second = ToolCall(0, "a", "f", '{"x":1}'), ToolCall(1, "b", "g", '{"y":2}')
    writer.write([call_piece(first)])

    assert b'"partial_json":"{\\"y"' in writer.write([call_piece(second, '{"y')])
    assert writer.write([call_piece(first, "\n")]) == b""  # white space after a whole object


def test_an_empty_object_may_be_a_beginning() -> None:
    first, second = ToolCall(0, "a", "f", '{}{"x":1}'), ToolCall(1, "b", "g", "{}")
    answer = Answer((Choice(0, tool_calls=(first, second)),))
    pieces = [call_piece(first, "{}"), call_piece(second), call_piece(first, '{"x":1}')]

    assert body_of(streamed(answer, "tool_calls", pieces)) == written(answer, "tool_calls")


def test_text_after_an_unfinished_call_waits_for_it() -> None:
    call = ToolCall(0, "a", "f", '{"x":1}')
    answer = Answer((Choice(0, "ab", tool_calls=(call,)),))
    pieces = [
        Piece(0, "text", "a"), call_piece(call, '{"x"'), Piece(0, "text", "b"),
        call_piece(call, ":1}"),
    ]  # fmt: skip

    read = read_stream(streamed(answer, "tool_calls", pieces))

    assert (read.text, read.tool_calls[0][1].arguments) == ("ab", '{"x":1}')
    assert read.finish_reason == "tool_use"


def test_pieces_of_other_choices_are_left_out() -> None:
    writer = MessagesWriter(HEAD)

    assert writer.write([Piece(1, "text", "a")]) == b""


arguments = st.one_of(
    st.just(""),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2).map(
        json.dumps
    ),
    st.text(alphabet='{}"\\ \n\ud83d\ude00x:1', max_size=6),
)
answers = st.builds(
    lambda text, calls: Answer(
        (
            Choice(
                0,
                text,
                tool_calls=tuple(
                    ToolCall(at, call_id, "f", given, kind)
                    for at, (call_id, given, kind) in enumerate(calls)
                ),
            ),
        )
    ),
    st.text(max_size=5),
    st.lists(
        st.tuples(
            st.none() | st.sampled_from(("", "a", "b.c", "x" * 50)),
            arguments,
            st.sampled_from(("function", "function", "custom")),
        ),
        max_size=3,
    ),
)


@given(answers, st.integers(1, 4), st.integers(1, 5))
@settings(derandomize=True, deadline=None, database=None, max_examples=150)
def test_any_answer_streams_as_it_is_written(answer: Answer, size: int, group: int) -> None:
    why: Ending = "tool_calls" if answer.tool_calls else "stop"

    stream = streamed(answer, why, cut(pieces_of(answer), size), group)

    assert body_of(stream) == written(answer, why)
