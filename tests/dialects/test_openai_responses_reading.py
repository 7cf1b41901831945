"""How answers in the Responses form are read: their ends, their items, their usage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.base import Mark, NumbersEvents
from agentstate.dialects.openai_responses_items import RUNS_UPSTREAM
from agentstate.dialects.openai_responses_reading import ResponsesAssembler, read_answer, read_usage
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, ToolCall, Usage
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects import samples_responses as sample
from tests.dialects.samples_responses import (
    added,
    body,
    call,
    call_events,
    done,
    end,
    event,
    message,
    part,
    reasoning,
    response,
    stream,
    text_events,
)

Event = tuple[str, dict[str, Any]]


def frames_of(*raw: bytes) -> list[Frame]:
    return SSEDecoder().feed(b"".join(raw))


def marks_of(*raw: bytes) -> list[Mark]:
    assembler = ResponsesAssembler()
    return [assembler.feed(frame) for frame in frames_of(*raw)]


def read(*raw: bytes) -> Answer:
    assembler = ResponsesAssembler()
    for frame in frames_of(*raw):
        assembler.feed(frame)
    return assembler.finish(clean_end=True)


def filtered(**fields: Any) -> dict[str, Any]:
    return response(status="incomplete", incomplete_details={"reason": "content_filter"}, **fields)


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "whole", "reason"),
    [
        ("response.completed", response(), "completed"),
        ("response.completed", response(status=None), "completed"),
        ("response.completed", response(status="in_progress"), "completed"),
        ("response.completed", sample.cut_short("Hi"), "max_output_tokens"),
        ("response.incomplete", sample.cut_short("Hi"), "max_output_tokens"),
        ("response.done", response(), "completed"),
        ("response.done", sample.cut_short("Hi"), "max_output_tokens"),
        # The status and the error of one broken gateway: the event and the reason are clear.
        (
            "response.incomplete",
            {
                "status": "x",
                "incomplete_details": {"reason": "max_output_tokens"},
                "error": {"a": 1},
            },
            "max_output_tokens",
        ),
    ],
)
def test_a_response_ends_by_being_completed_or_by_its_token_limit(
    kind: str, whole: dict[str, Any], reason: str
) -> None:
    raw = (*stream(), event(kind, 2, response=whole))

    assert marks_of(*raw)[-1] is Mark.COMPLETING
    answer = read(*raw)
    assert (answer.is_complete, answer.finish_reason) == (True, reason)


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("response.incomplete", {"response": filtered()}, "content_filter"),
        ("response.completed", {"response": filtered()}, "content_filter"),
        ("response.incomplete", {"response": {"id": "r"}}, "does not say why"),
        ("response.incomplete", {}, "does not say why"),
        ("response.done", {"response": response(status="in_progress")}, "in_progress"),
        ("response.done", {}, "no response came"),
        (
            "response.failed",
            {
                "response": response(
                    status="failed", error={"code": "server_error", "message": "boom"}
                )
            },
            "boom",
        ),
        ("response.failed", {"response": response(status="failed")}, "error"),
        ("response.completed", {"response": response(error={"message": "boom"})}, "boom"),
        ("response.completed", {"response": response(status="failed")}, "failed"),
        ("response.cancelled", {"response": response(status="cancelled")}, "error"),
        ("error", {"code": "server_error", "message": "boom", "param": None}, "boom"),
        ("error", {"error": {"message": "boom"}}, "boom"),
        ("error", {}, "error"),
    ],
)
def test_any_other_end_is_an_error_and_told(kind: str, fields: dict[str, Any], says: str) -> None:
    raw = (*stream(*text_events(0, "Hi")), event(kind, 8, **fields))

    assert marks_of(*raw)[-1] is Mark.ERROR
    answer = read(*raw)
    assert not answer.is_complete
    assert answer.fault is not None
    assert says in answer.fault
    assert answer.text == "Hi"


def test_a_stream_without_its_last_event_is_no_answer() -> None:
    answer = read(*stream(*call_events(0, call(), call()["arguments"])), b"data: [DONE]\n\n")

    assert not answer.is_complete
    assert answer.fault == "the stream ended before the event that completes the response"
    assert answer.finish_reason is None


def test_how_the_body_ended_says_nothing_once_the_response_has() -> None:
    assembler = ResponsesAssembler()
    for frame in frames_of(*stream(end())):
        assembler.feed(frame)

    assert assembler.finish(clean_end=False).is_complete


def test_an_error_after_the_end_takes_the_answer_back() -> None:
    raw = (*stream(end()), event("error", 3, message="boom", code=None, param=None))

    assert marks_of(*raw)[-2:] == [Mark.COMPLETING, Mark.ERROR]
    assert read(*raw).fault == "error: boom"


def test_what_comes_after_the_end_is_its_tail() -> None:
    late = stream(end(), *text_events(0, "late"), end())

    marks = marks_of(*late, b": bye\n\n", b"data: [DONE]\n\n")

    assert marks[2] is Mark.COMPLETING
    assert set(marks[3:-1]) == {Mark.TAIL}
    assert marks[-1] is Mark.DONE


@pytest.mark.parametrize("raw", [b"data: {\n\n", b"data: x\n\n", b"event: error\ndata: x\n\n"])
def test_an_event_that_cannot_be_read_is_an_error(raw: bytes) -> None:
    assert marks_of(*stream(), raw, *stream(end()))[2:] == [Mark.ERROR] * 4


def test_an_event_may_be_named_by_its_frame_alone() -> None:
    raw = b"event: response.completed\ndata: " + json.dumps({"response": response()}).encode()

    assert read(raw + b"\n\n").is_complete


# --- marks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("happens", "mark"),
    [
        (added(0, message(status="in_progress")), Mark.PREFACE),
        (added(0, reasoning()), Mark.PREFACE),
        (added(0, call(arguments="")), Mark.TOOL),
        (added(0, sample.LOCAL_SHELL), Mark.TOOL),
        (added(0, sample.MCP_APPROVAL), Mark.TOOL),
        (added(0, sample.MCP_TOOLS), Mark.CONTENT),
        (added(0, {"type": "some_new_call"}), Mark.TOOL),
        (done(0, message(part("Hi"))), Mark.CONTENT),
        (done(0, reasoning("Hm.")), Mark.CONTENT),
        (done(0, call()), Mark.TOOL),
        (("response.content_part.added", {"part": part()}), Mark.PREFACE),
        (("response.content_part.done", {"part": part("Hi")}), Mark.CONTENT),
        (("response.output_text.delta", {"delta": "Hi"}), Mark.CONTENT),
        (("response.output_text.delta", {"delta": ""}), Mark.PREFACE),
        (("response.output_text.delta", {"delta": None}), Mark.PREFACE),
        (("response.refusal.delta", {"delta": "No"}), Mark.CONTENT),
        (("response.reasoning_text.delta", {"delta": "Hm"}), Mark.CONTENT),
        (("response.reasoning_summary_text.delta", {"delta": "Hm"}), Mark.CONTENT),
        (("response.audio.delta", {"delta": "QUJD"}), Mark.CONTENT),
        (("response.function_call_arguments.delta", {"delta": ""}), Mark.TOOL),
        (("response.function_call_arguments.delta", {"delta": {}}), Mark.TOOL),
        (("response.custom_tool_call_input.delta", {"delta": "x"}), Mark.TOOL),
        (("response.mcp_call_arguments.done", {"arguments": "{}"}), Mark.TOOL),
        (("response.web_search_call.searching", {}), Mark.TOOL),
        (("response.shell_call_command.delta", {"delta": "rm"}), Mark.TOOL),
        (("response.apply_patch_call_operation_diff.delta", {"delta": "+"}), Mark.TOOL),
        (("response.some_news", {}), Mark.PREFACE),
        (("keepalive", {}), Mark.PREFACE),
    ],
)
def test_each_event_is_marked_by_what_it_holds(happens: Event, mark: Mark) -> None:
    assert marks_of(*stream(happens))[2:] == [mark]


def test_the_events_that_open_a_stream_are_its_preface() -> None:
    assert (
        marks_of(*stream(), event("response.queued", 2, response={}), b"data:\n\n")
        == [Mark.PREFACE] * 4
    )


# --- items ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "kind", "name", "arguments", "call_id"),
    [
        (call(), "function", "get_weather", call()["arguments"], "call_1"),
        (sample.CUSTOM_CALL, "custom", "run_sql", "delete from t", "call_1"),
        (sample.MCP_CALL, "mcp_call", "find", "{}", "mcp_1"),
        (sample.MCP_APPROVAL, "mcp_approval_request", "drop_table", '{"table":"t"}', "mcpr_1"),
        (
            sample.LOCAL_SHELL, "local_shell_call", "local_shell_call",
            '{"type":"exec","command":["rm","-r","x"],"env":{}}', "call_1",
        ),
        (
            sample.SHELL, "shell_call", "shell_call",
            '{"commands":["ls"],"timeout_ms":1000,"max_output_length":null}', "call_1",
        ),
        (
            sample.APPLY_PATCH, "apply_patch_call", "apply_patch_call",
            '{"type":"delete_file","path":"a.txt"}', "call_1",
        ),
        (
            sample.COMPUTER, "computer_call", "computer_call",
            '{"type":"click","button":"left","x":1,"y":2}', "call_1",
        ),
        (
            sample.WEB_SEARCH, "web_search_call", "web_search_call",
            '{"type":"search","query":"oslo"}', "ws_1",
        ),
        (
            sample.FILE_SEARCH, "file_search_call", "file_search_call",
            '{"queries":["oslo"]}', "fs_1",
        ),
        (
            sample.INTERPRETER, "code_interpreter_call", "code_interpreter_call",
            '{"code":"print(1)"}', "ci_1",
        ),
        (sample.IMAGE, "image_generation_call", "image_generation_call", "", "ig_1"),
        (
            {"type": "tool_search_call", "id": "ts_1", "call_id": None, "arguments": {"q": 1.50}},
            "tool_search_call", "tool_search_call", '{"q":1.5}', "ts_1",
        ),
        ({"type": "function_call"}, "function", "", "", None),
    ],
)  # fmt: skip
def test_every_kind_of_call_is_a_tool_call(
    item: dict[str, Any], kind: str, name: str, arguments: str, call_id: str | None
) -> None:
    wanted = ToolCall(0, call_id, name, arguments, kind, runs_upstream=kind in RUNS_UPSTREAM)

    whole = read_answer(body(message(part("Hi")), item))
    streamed = read(*stream(*text_events(0, "Hi"), added(1, item), done(1, item), end()))

    assert [each for _, each in whole.tool_calls] == [wanted]
    assert [each for _, each in streamed.tool_calls] == [wanted]


def test_outputs_and_other_items_are_no_tool_calls() -> None:
    others = ({"type": "function_call_output"}, {"type": "compaction"}, {"type": 7}, {}, "x", None)

    answer = read_answer(body(*others, sample.MCP_TOOLS))  # type: ignore[arg-type]

    assert answer.is_complete
    assert answer.tool_calls == ()


def test_numbers_in_an_action_keep_their_text() -> None:
    raw = body({"type": "computer_call", "id": "c", "action": {"x": 10**19, "y": "Y"}})

    answer = read_answer(raw.replace(b'"Y"', b"1.50"))

    assert answer.tool_calls[0][1].arguments == '{"x":10000000000000000000,"y":1.50}'


def test_texts_refusals_and_thoughts_are_told_apart() -> None:
    answer = read_answer(
        body(
            reasoning("First.", "Then.", content=[{"type": "reasoning_text", "text": "long"}]),
            reasoning(content=[{"type": "reasoning_text", "text": "Open."}]),
            message(part("a"), part("b"), {"type": "refusal", "refusal": "no"}),
            message(part("c"), id="msg_2"),
            message(content="d", id="msg_3"),
        )
    )

    assert answer.text == "abcd"
    assert answer.choices[0].refusal == "no"
    assert answer.choices[0].reasoning == "First.\n\nThen.\n\nOpen."


def test_what_is_not_there_is_none() -> None:
    (choice,) = read_answer(body(message(part("Hi")))).choices

    assert (choice.refusal, choice.reasoning, choice.tool_calls) == (None, None, ())


def test_call_names_grow_with_the_stream() -> None:
    assembler = ResponsesAssembler()
    seen = []
    items = (call(arguments=""), sample.SHELL, call(2, arguments=""))
    for frame in frames_of(*stream(*(added(place, item) for place, item in enumerate(items)))):
        assembler.feed(frame)
        seen.append([name for _, _, name in assembler.call_names()])

    assert seen[2:] == [
        ["get_weather"],
        ["get_weather", "shell_call"],
        ["get_weather", "shell_call", "get_weather"],
    ]
    assert [at for _, at, _ in assembler.call_names()] == [0, 1, 2]


def texts_of(*happened: Event) -> list[str]:
    """Return the new text after each event."""
    assembler = ResponsesAssembler()
    told = []
    for frame in frames_of(*stream(*happened))[2:]:
        assembler.feed(frame)
        told.append("".join(piece for _, piece in assembler.new_text()))
    return told


def test_new_text_is_told_once() -> None:
    assert texts_of(*text_events(0, "H", "i"), end(message(part("Hi")))) == [
        "", "", "H", "i", "", "", "", "",
    ]  # fmt: skip


def test_a_text_that_is_shown_whole_alone_is_told_then() -> None:
    whole = message(part("Hi "), part("there"))

    assert texts_of(end(whole)) == ["Hi there"]
    assert texts_of(added(0, message()), done(0, whole), end(whole)) == ["", "Hi there", ""]
    assert texts_of(done(0, message(content="Hi"))) == ["Hi"]
    shown = ("response.content_part.done", {"output_index": 0, "part": part("Hi")})
    assert texts_of(added(0, message()), shown, end(message(part("Hi")))) == ["", "Hi", ""]


def test_the_rest_of_a_text_is_told_where_pieces_are_missing() -> None:
    at = {"output_index": 0, "content_index": 0}
    assert texts_of(
        added(0, message()),
        ("response.output_text.delta", {**at, "delta": "Hi"}),
        ("response.output_text.done", {**at, "text": "Hi there"}),
    ) == ["", "Hi", " there"]
    assert texts_of(
        added(0, message()),
        ("response.output_text.delta", {**at, "delta": "Hi"}),
        ("response.output_text.done", {**at, "text": ""}),
        done(0, message(part("Hi"))),
    ) == ["", "Hi", "", ""]


def test_a_text_that_turns_out_to_be_another_is_told_again() -> None:
    """Nothing of it may stay unseen by a gate that looks for calls in texts."""
    begun = text_events(0, "Hj", item=message(part("Hi")))[:3]

    assert texts_of(*begun, end(message(part("Hi")))) == ["", "", "Hj", "Hi"]


def test_only_what_a_message_says_is_new_text() -> None:
    assert texts_of(
        added(0, reasoning()),
        ("response.reasoning_summary_text.delta", {"output_index": 0, "delta": "Hm."}),
        done(0, reasoning("Hm.")),
        ("response.refusal.delta", {"output_index": 1, "delta": "No."}),
        done(1, message({"type": "refusal", "refusal": "No."})),
        *call_events(2, call(), "{}"),
    ) == [""] * 9  # fmt: skip


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"[]", "a list, not an object"),
        (b"{", "no JSON"),
        (b"{}", "no response came"),
        (b'{"id":null,"status":null,"output":null}', "no response came"),
        (json.dumps(response(status="in_progress")).encode(), "in_progress"),
        (json.dumps(response(status="queued")).encode(), "queued"),
        (json.dumps(response(status="cancelled")).encode(), "cancelled"),
        (json.dumps(filtered()).encode(), "content_filter"),
        (json.dumps(response(status="failed", error={"message": "boom"})).encode(), "boom"),
        (b'{"error":{"message":"boom"}}', "boom"),
    ],
)
def test_a_body_that_is_no_answer_says_why(raw: bytes, says: str) -> None:
    answer = read_answer(raw)

    assert not answer.is_complete
    assert says in (answer.fault or "")


def test_a_body_without_a_status_counts_by_its_output() -> None:
    assert read_answer(b'{"id":"r","output":[]}').is_complete


def test_the_head_is_read() -> None:
    answer = read_answer(body())

    assert answer.response_id == "resp_1"
    assert answer.model == "gpt-5-mini-2026-08-07"
    assert answer.extra == {"service_tier": "default"}
    assert answer.usage == Usage(20, 7, 8, 2, 3)


def test_a_stream_is_named_by_its_last_event() -> None:
    first, second, last = stream(
        end(model="b", service_tier="flex"), model="a", service_tier="auto"
    )

    assert read(first, second).model == "a"
    answer = read(first, second, last)
    assert (answer.model, answer.extra) == ("b", {"service_tier": "flex"})


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (None, None),
        ([], None),
        ({"input_tokens": "5"}, None),
        ({"input_tokens": -1, "output_tokens": True}, None),
        ({"input_tokens": 5}, Usage(5, 0)),
        ({"output_tokens": 2, "input_tokens_details": None}, Usage(0, 2)),
        ({"input_tokens": 5, "output_tokens": 2, "output_tokens_details": {}}, Usage(5, 2)),
    ],
)
def test_usage_is_counts_or_nothing(value: JSON, usage: Usage | None) -> None:
    assert read_usage(value) == usage


# --- nothing raises -------------------------------------------------------------------------------

NAMES = (
    "response.created", "response.completed", "response.incomplete", "response.failed",
    "response.done", "error", "response.output_item.added", "response.output_item.done",
    "response.content_part.added", "response.content_part.done", "response.output_text.delta",
    "response.output_text.done", "response.refusal.delta", "response.reasoning_text.delta",
    "response.reasoning_summary_part.added", "response.reasoning_summary_text.done",
    "response.function_call_arguments.delta", "response.function_call_arguments.done",
    "response.custom_tool_call_input.done", "response.code_interpreter_call_code.delta",
    "response.web_search_call.completed",
)  # fmt: skip
FIELDS = (
    "item", "response", "part", "output", "content", "summary", "status", "id", "item_id",
    "call_id", "output_index", "content_index", "summary_index", "delta", "text", "arguments",
    "name", "code", "input", "refusal", "incomplete_details", "reason", "usage", "type",
    "sequence_number",
)  # fmt: skip
KINDS = ("message", "reasoning", "function_call", "custom_tool_call", "shell_call", "output_text")
WORDS = (*KINDS, "completed", "incomplete", "max_output_tokens", "a", "", "\ud83d")
junk: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.sampled_from(WORDS), st.sampled_from((None, True, 0, 1, -1, 10**30, 1.5))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    ),
    max_leaves=12,
)
events = st.builds(
    lambda name, fields: {"type": name, **fields},
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(FIELDS[:-2]), junk, max_size=6),
)


@given(happened=st.lists(events, max_size=8))
@settings(derandomize=True, deadline=None, database=None, max_examples=300)
def test_no_event_of_any_shape_raises_or_moves_a_call(happened: list[dict[str, Any]]) -> None:
    assembler = ResponsesAssembler()
    before: list[tuple[int, int, str]] = []
    for each in happened:
        assembler.feed(Frame(b"", json.dumps(each).encode()))
        answer = assembler.snapshot()
        names = assembler.call_names()
        assert answer.is_complete == (answer.fault is None)
        assert [(at, call.position, call.name) for at, call in answer.tool_calls] == names
        assert len(names) >= len(before)
        before = names
    response_now = assembler.response()
    assert len(read_answer(json.dumps(response_now).encode()).tool_calls) == len(before)


def test_the_assembler_numbers_events() -> None:
    assert isinstance(ResponsesAssembler(), NumbersEvents)
