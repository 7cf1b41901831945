"""Answers written in the Responses form: by OpenAI's schema, whole and in pieces the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.neutral import AnswerHead, Ending, TellsPieces, translates
from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.dialects.openai_responses_answers import ResponsesWriter, ending, write_answer
from agentstate.dialects.openai_responses_forms import body_from_events
from agentstate.dialects.openai_responses_reading import read_answer
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire.sse import SSEDecoder
from tests.dialects.streams_responses import accumulate, events_of, frames_of, names_of, read
from tests.helpers.openai_schema import check

HEAD = AnswerHead("5eed", "gpt-5-mini", 1767225600, {"model": "gpt-5-mini", "input": "Hi"})
USAGE = Usage(20, 7, cached_tokens=8, cache_write_tokens=2, reasoning_tokens=3)
WEATHER = ToolCall(0, "toolu_1", "get_weather", '{"city":"Oslo","id":2512292042121000001}')
MAIL = ToolCall(1, "toolu_2", "send_email", "{}")
SQL = ToolCall(0, "call_9", "run_sql", "delete from t", kind="custom")


def answer(*calls: ToolCall, text: str = "", **fields: Any) -> Answer:
    choice = Choice(0, text, tool_calls=calls, **fields)
    return Answer((choice,), "msg_1", "claude", USAGE, is_complete=True)


ANSWERS: dict[str, tuple[Answer, Ending]] = {
    "text": (answer(text="Hi \U0001f600\u2028there"), "stop"),
    "nothing": (answer(), "stop"),
    "no choice": (Answer(is_complete=True), "stop"),
    "a stop sequence": (answer(text="Hi"), "stop_sequence"),
    "cut": (answer(text="Hi"), "length"),
    "a cut call": (answer(WEATHER, replace(MAIL, arguments='{"to'), text="Hi"), "length"),
    "filtered": (answer(text="par"), "filtered"),
    "refused": (answer(refusal="I can't help."), "filtered"),
    "refused after text": (answer(text="Well. ", refusal="I can't help."), "filtered"),
    "a call": (answer(WEATHER), "tool_calls"),
    "text and calls": (answer(WEATHER, MAIL, text="I look."), "tool_calls"),
    "a custom call": (answer(SQL), "tool_calls"),
    "no arguments": (answer(replace(WEATHER, arguments="")), "tool_calls"),
    "no id": (answer(replace(WEATHER, call_id=None), replace(MAIL, call_id="")), "tool_calls"),
    "thoughts": (answer(text="Hi", reasoning="Hm."), "stop"),
    "half a character": (
        answer(replace(WEATHER, arguments='"\ud83d"'), text="\ud83d"), "tool_calls",
    ),
}  # fmt: skip


def whole(answer: Answer, ending: Ending, head: AnswerHead = HEAD) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(write_answer(answer, ending, head).value)
    return value


def piecewise(answer: Answer, size: int = 3) -> list[Piece]:
    """Return an answer in pieces of a few characters, calls told of first."""
    pieces: list[Piece] = []
    for choice in answer.choices:
        for kind, text in (
            ("reasoning", choice.reasoning), ("text", choice.text), ("refusal", choice.refusal),
        ):  # fmt: skip
            pieces += [Piece(choice.index, kind, each) for each in cut(text or "", size)]  # type: ignore[arg-type]
        for call in choice.tool_calls:
            for text in ("", *cut(call.arguments, size)):
                pieces.append(piece_of(call, text))
    return pieces


def piece_of(call: ToolCall, text: str = "", **fields: Any) -> Piece:
    named = Piece(0, "call", text, call.position, call.call_id, call.name, call.kind)
    return replace(named, **fields)


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def streamed(answer: Answer, ending: Ending, pieces: list[Piece], head: AnswerHead = HEAD) -> bytes:
    writer = ResponsesWriter(head)
    frames = [writer.begin(), *(writer.write([piece]) for piece in pieces)]
    return b"".join((*frames, writer.end(answer, ending)))


# --- whole ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_an_answer_satisfies_openais_schema_and_its_package(name: str) -> None:
    written = whole(*ANSWERS[name])

    check("Response", written)
    types = pytest.importorskip("openai.types.responses")
    read = types.Response.model_validate(written)
    assert read.output_text == (ANSWERS[name][0].text if ANSWERS[name][0].choices else "")


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_an_answer_reads_as_it_was(name: str) -> None:
    given, why = ANSWERS[name]

    found = read_answer(write_answer(given, why, HEAD).value)

    choice = given.choices[0] if given.choices else Choice(0)
    assert found.text == choice.text
    assert found.choices[0].refusal == refusal_of(choice, why)
    assert found.usage == given.usage
    assert [(c.name, c.arguments, c.kind) for _, c in found.tool_calls] == [
        (c.name, c.arguments, c.kind) for c in choice.tool_calls
    ]
    assert ending(found) == ("stop" if why == "stop_sequence" else why)
    assert found.is_complete


def refusal_of(choice: Choice, why: Ending) -> str | None:
    """Return what stands for a refusal: what a filter has cut has words of ours."""
    is_filtered = why == "filtered" and choice.refusal is None
    return "The answer was stopped by a content filter." if is_filtered else choice.refusal


def test_a_response_says_who_it_is() -> None:
    written = whole(answer(text="Hi"), "stop")

    assert written["id"].startswith("resp_")
    assert written["output"][0]["id"].startswith("msg_")
    assert (written["object"], written["model"]) == ("response", "gpt-5-mini")
    assert (written["created_at"], written["status"]) == (1767225600, "completed")
    assert whole(answer(text="Hi"), "stop") == written
    other = whole(answer(text="Hi"), "stop", replace(HEAD, seed="5eee"))
    assert other["id"] != written["id"]
    assert other["output"][0]["id"] != written["output"][0]["id"]


def test_items_are_the_vendors_own() -> None:
    written = whole(answer(WEATHER, replace(SQL, position=1), text="I look."), "tool_calls")

    text, function, custom = written["output"]
    assert text["content"] == [
        {"type": "output_text", "annotations": [], "logprobs": [], "text": "I look."}
    ]
    assert function == {
        "id": function["id"],
        "type": "function_call",
        "status": "completed",
        "arguments": '{"city":"Oslo","id":2512292042121000001}',
        "call_id": "toolu_1",
        "name": "get_weather",
    }
    assert custom["input"] == "delete from t"
    assert (function["id"][:3], custom["id"][:4]) == ("fc_", "ctc_")


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    first, second = whole(*ANSWERS["no id"])["output"]

    assert first["call_id"].startswith("call_")
    assert first["call_id"] != second["call_id"]


def test_a_cut_answer_says_where_and_why() -> None:
    written = whole(*ANSWERS["a cut call"])

    assert written["status"] == "incomplete"
    assert written["incomplete_details"] == {"reason": "max_output_tokens"}
    assert written["completed_at"] is None
    assert [item["status"] for item in written["output"]] == [
        "completed", "completed", "incomplete",
    ]  # fmt: skip


def test_a_filtered_answer_is_a_refusal_and_so_is_one_in_words() -> None:
    filtered = whole(*ANSWERS["filtered"])
    assert (filtered["status"], filtered["incomplete_details"]) == ("completed", None)
    assert [item["content"][0]["type"] for item in filtered["output"]] == ["output_text", "refusal"]
    refused = whole(*ANSWERS["refused"])
    assert refused["status"] == "completed"
    assert refused["output"][0]["content"] == [{"type": "refusal", "refusal": "I can't help."}]


def test_usage_is_counted_as_openai_does_and_left_out_where_nobody_did() -> None:
    assert whole(answer(text="Hi"), "stop")["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 27,
    }
    assert "usage" not in whole(replace(answer(text="Hi"), usage=None), "stop")


def test_a_response_repeats_its_request() -> None:
    body = as_parsed(
        b'{"model":"gpt-5-mini","input":"Hi","instructions":"Be kind.","temperature":0.50,'
        b'"tools":[{"type":"function","name":"f"},{"type":"web_search"}],"tool_choice":"none",'
        b'"metadata":{"a":"b"},"max_output_tokens":64,"store":false,"user":"u1",'
        b'"previous_response_id":"resp_0","reasoning":{"effort":"low"},"top_p":null,'
        b'"text":{"format":{"type":"json_schema","name":"a","schema":{}}}}'
    )
    raw = write_answer(answer(text="Hi"), "stop", replace(HEAD, body=body)).value

    written = json.loads(raw)
    check("Response", written)
    assert b'"temperature":0.50,' in raw
    assert written["tools"] == [
        {"description": None, "parameters": None, "strict": True, "type": "function", "name": "f"},
        {"type": "web_search"},
    ]
    assert written["reasoning"] == {"effort": "low", "summary": None}
    assert written["text"] == {
        "format": {"type": "json_schema", "name": "a", "schema": {}}, "verbosity": "medium",
    }  # fmt: skip
    same = ("instructions", "tool_choice", "metadata", "max_output_tokens", "store", "user",
            "previous_response_id")  # fmt: skip
    assert {key: written[key] for key in same} == {key: body[key] for key in same}
    assert (written["top_p"], written["truncation"]) == (1.0, "disabled")


def as_parsed(raw: bytes) -> dict[str, JSON]:
    value = parse(raw)
    assert isinstance(value, dict)
    return value


def test_what_is_left_out_is_named() -> None:
    searched = replace(WEATHER, runs_upstream=True)

    written = write_answer(answer(searched, MAIL, reasoning="Hm."), "tool_calls", HEAD)

    assert written.dropped == ("reasoning", "tool calls of the provider's own")
    assert b"get_weather" not in written.value
    assert write_answer(answer(text="Hi"), "stop", HEAD).dropped == ()
    two = Answer((Choice(0, "a"), Choice(1, "b")))
    assert write_answer(two, "stop", HEAD).dropped == ("n",)


# --- custom tools ---------------------------------------------------------------------------------

CUSTOM_HEAD = replace(HEAD, body={"model": "m", "tools": [{"type": "custom", "name": "run_sql"}]})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"delete\\n from t"}', "delete\n from t"),
        ('{"input": ""}', ""),
        ('{"input":1}', '{"input":1}'),
        ('{"input":"a","b":1}', '{"input":"a","b":1}'),
        ("select 1", "select 1"),
        ("", ""),
    ],
)
def test_a_function_that_stands_for_a_custom_tool_is_its_call_again(
    arguments: str, text: str
) -> None:
    called = answer(replace(SQL, kind="function", arguments=arguments))

    stream = streamed(called, "tool_calls", piecewise(called), CUSTOM_HEAD)
    for written in (
        whole(called, "tool_calls", CUSTOM_HEAD),
        events_of(stream)[-1]["response"],
    ):
        (item,) = written["output"]
        assert (item["type"], item["input"]) == ("custom_tool_call", text)


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (answer(finish_reason="completed"), "stop"),
        (answer(WEATHER, finish_reason="completed"), "tool_calls"),
        (answer(replace(WEATHER, runs_upstream=True), finish_reason="completed"), "stop"),
        (answer(WEATHER, finish_reason="max_output_tokens"), "length"),
        (answer(WEATHER, finish_reason="content_filter"), "filtered"),
        (answer(refusal="No.", finish_reason="completed"), "filtered"),
        (answer(WEATHER, refusal="No.", finish_reason="completed"), "tool_calls"),
        (answer(WEATHER, finish_reason="steered"), "tool_calls"),
        (answer(finish_reason="what"), "stop"),
        (Answer(), "stop"),
    ],
)
def test_an_answer_has_its_ending(given: Answer, why: Ending) -> None:
    assert ending(given) == why


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ANSWERS))
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_stream_is_the_whole_answer(name: str, size: int) -> None:
    given, why = ANSWERS[name]

    raw = streamed(given, why, piecewise(given, size))

    assert json.loads(body_from_events(frames_of(raw))) == whole(given, why)
    for value in events_of(raw):
        check("ResponseStreamEvent", value)


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_stream_reads_as_the_answer_it_was(name: str) -> None:
    given, why = ANSWERS[name]
    choice = given.choices[0] if given.choices else Choice(0)

    found = read(streamed(given, why, piecewise(given)))

    assert (found.text, found.choices[0].refusal) == (choice.text, refusal_of(choice, why))
    assert [(c.name, c.arguments) for _, c in found.tool_calls] == [
        (c.name, c.arguments) for c in choice.tool_calls
    ]
    assert found.usage == given.usage


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_the_openai_package_reads_a_stream(name: str) -> None:
    given, why = ANSWERS[name]

    response = accumulate(streamed(given, why, piecewise(given)))

    assert (response is None) is (why == "length")
    if response is not None:
        assert response.output_text == (given.text if given.choices else "")


def test_a_stream_has_the_events_of_the_vendor() -> None:
    given = answer(WEATHER, text="Hi")

    raw = streamed(given, "tool_calls", piecewise(given, 1000))

    assert names_of(raw) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_item.added",
        "function_call_arguments.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_a_stream_that_is_cut_ends_as_incomplete() -> None:
    raw = streamed(answer(text="Hi"), "length", [Piece(0, "text", "Hi")])

    assert names_of(raw)[-1] == "incomplete"


def test_what_begins_a_stream_says_nothing_yet() -> None:
    created, in_progress = events_of(ResponsesWriter(HEAD).begin())

    assert created["response"] == in_progress["response"]
    assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", [])


def test_text_goes_out_with_its_piece() -> None:
    writer = ResponsesWriter(HEAD)
    writer.begin()

    first, second = writer.write([Piece(0, "text", "Hi ")]), writer.write([Piece(0, "text", "you")])

    assert names_of(first) == ["output_item.added", "content_part.added", "output_text.delta"]
    (delta,) = events_of(second)
    assert (delta["delta"], delta["sequence_number"]) == ("you", 5)
    assert writer.write([Piece(0, "text", ""), Piece(0, "reasoning", "Hm.")]) == b""
    assert writer.write([Piece(1, "text", "another choice")]) == b""


def test_a_call_is_announced_when_its_name_can_no_longer_grow() -> None:
    writer = ResponsesWriter(HEAD)

    assert writer.write([piece_of(WEATHER, name="get_")]) == b""
    assert writer.write([piece_of(WEATHER, '{"a":', name="")]) == b""
    added, first, second = events_of(writer.write([piece_of(WEATHER, "1}")]))

    assert added["item"]["name"] == "get_weather"
    assert (first["delta"], second["delta"]) == ('{"a":', "1}")


def test_calls_are_announced_in_the_order_of_their_positions() -> None:
    writer = ResponsesWriter(HEAD)
    given = answer(WEATHER, MAIL)
    frames = writer.begin()

    held = writer.write([piece_of(WEATHER), piece_of(MAIL), piece_of(MAIL, "{}")])
    frames += writer.write([piece_of(WEATHER, WEATHER.arguments)])
    frames += writer.end(given, "tool_calls")

    assert held == b""
    assert json.loads(body_from_events(frames_of(frames))) == whole(given, "tool_calls")


def test_a_call_that_was_announced_without_its_id_keeps_the_one_it_got() -> None:
    writer = ResponsesWriter(HEAD)
    raw = writer.begin() + writer.write([piece_of(WEATHER, WEATHER.arguments, call_id=None)])
    raw += writer.end(answer(WEATHER), "tool_calls")

    ids = {
        each["item"]["call_id"] for each in events_of(raw) if "item" in each
    }  # fmt: skip
    assert len(ids) == 1
    assert events_of(raw)[-1]["response"]["output"][0]["call_id"] in ids


def test_text_after_a_call_keeps_its_place_in_the_stream() -> None:
    given = answer(WEATHER, text="Done.")
    pieces = [piece_of(WEATHER, WEATHER.arguments), Piece(0, "text", "Done.")]

    raw = streamed(given, "tool_calls", pieces)

    response = accumulate(raw)
    assert [item.type for item in response.output] == ["function_call", "message"]
    assert read(raw).text == "Done."


def halved(text: str) -> str:
    """Return a text with each character above U+FFFF in its two halves."""
    raw = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(int.from_bytes(raw[at : at + 2])) for at in range(0, len(raw), 2))


@st.composite
def mixed(draw: st.DrawFn) -> tuple[Answer, list[Piece]]:
    """Return an answer and its pieces, those of its calls side by side."""
    texts = st.text('ab {}"\\\n\ud83d\U0001f600\u2028', max_size=8)
    text = draw(texts)
    calls = tuple(
        ToolCall(at, draw(st.sampled_from((None, "", f"call_{at}"))), f"tool_{at}", draw(texts))
        for at in range(draw(st.integers(0, 3)))
    )
    queues = [
        [piece_of(call, each) for each in ("", *cut(halved(call.arguments), 2))] for call in calls
    ]
    pieces = [Piece(0, "text", each) for each in cut(halved(text), 3)]
    # Calls are opened in order; the rest comes as it will.
    pieces += [queue.pop(0) for queue in queues]
    while left := [queue for queue in queues if queue]:
        pieces.append(draw(st.sampled_from(left)).pop(0))
    return answer(*calls, text=text), pieces


@settings(max_examples=60, deadline=None)
@given(mixed(), st.sampled_from(("stop", "length", "tool_calls")))
def test_pieces_side_by_side_make_the_whole_answer(
    made: tuple[Answer, list[Piece]], why: Ending
) -> None:
    given, pieces = made

    raw = streamed(given, why, pieces)

    assert json.loads(body_from_events(frames_of(raw))) == whole(given, why)
    found = read(raw)
    assert found.text == given.text
    assert [call.arguments for _, call in found.tool_calls] == [
        call.arguments for _, call in given.tool_calls
    ]
    numbers = [each["sequence_number"] for each in events_of(raw)]
    assert numbers == list(range(len(numbers)))


# --- the dialect ----------------------------------------------------------------------------------


def test_the_dialect_translates() -> None:
    dialect = OpenAIResponses()

    assert translates(dialect)
    assembler: TellsPieces = dialect.assembler()
    assert assembler.new_pieces() == []
    assert dialect.request_path("m", streams=True) == ("/v1/responses", "")
    given = answer(WEATHER)
    assert dialect.write_answer(given, "tool_calls", HEAD) == write_answer(
        given, "tool_calls", HEAD
    )
    assert dialect.answer_writer(HEAD).begin() == ResponsesWriter(HEAD).begin()
    assert dialect.ending(given) == "tool_calls"
    assert SSEDecoder().feed(dialect.answer_writer(HEAD).begin())[0].event == b"response.created"
