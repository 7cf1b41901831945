"""Streams and bodies that go on as another answer, in the Responses form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from tests.dialects.streams_responses import (
    RESPONSES,
    SEARCH,
    Event,
    accumulate,
    events_of,
    frames_of,
    names_of,
    read,
    streams,
)

ONE = call(1, arguments='{"a":1}')
HI = message(part("Hi"))
THOUGHT = reasoning("Hm.", encrypted_content="gAAAA")
OPENING = stream(*text_events(0, "I look."), id="resp_0")


def join(first: Sequence[bytes], second: Sequence[bytes]) -> bytes:
    return RESPONSES.joined_events(frames_of(*first), frames_of(*second))


def test_the_second_stream_goes_on_where_the_first_one_stopped() -> None:
    second = stream(*text_events(0, "Hi"), *call_events(1, ONE, ONE["arguments"]), end(HI, ONE))

    made = join(OPENING, second)

    assert made.startswith(b"".join(OPENING))
    events = events_of(made)
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    assert [each["output_index"] for each in events if "output_index" in each] == (
        [0] * 6 + [1] * 6 + [2] * 4
    )
    assert names_of(made).count("created") == names_of(made).count("in_progress") == 1
    whole = accumulate(made)
    assert whole.output_text == "I look.\n\nHi"
    assert [each.type for each in whole.output] == ["message", "message", "function_call"]
    # Items of the two have one id in these samples; a client must not take them for one.
    assert [each.id for each in whole.output] == ["msg_1", "msg_1_2", "fc_1"]
    assert {
        each["item_id"] for each in events if each.get("output_index") == 1 and "item_id" in each
    } == {"msg_1_2"}


def test_a_response_keeps_the_id_it_began_with() -> None:
    """openai-python refuses a stream in which it changes."""
    made = join(OPENING, stream(end(), id="resp_9"))

    assert events_of(made)[-1]["response"]["id"] == "resp_0"
    assert accumulate(made).id == "resp_0"
    assert read(made).response_id == "resp_0"


def test_a_first_stream_that_told_no_response_gets_the_second_ones() -> None:
    second = stream(*text_events(0, "Hi"), end(HI))

    assert join((b": held\n",), second) == b": held\n" + b"".join(second)


OPEN_TEXT = text_events(0, "I ", "look.")
HALF_THOUGHT = (
    added(0, reasoning()),
    ("response.reasoning_summary_part.added",
     {"output_index": 0, "item_id": "rs_1", "summary_index": 0,
      "part": {"type": "summary_text", "text": ""}}),
    ("response.reasoning_summary_text.delta",
     {"output_index": 0, "item_id": "rs_1", "summary_index": 0, "delta": "Hm."}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("events", "closing", "text"),
    [
        (OPEN_TEXT[:1], ["output_item.done"], ""),
        (OPEN_TEXT[:3], ["output_text.done", "content_part.done", "output_item.done"], "I "),
        (OPEN_TEXT[:5], ["content_part.done", "output_item.done"], "I look."),
        (OPEN_TEXT[:6], ["output_item.done"], "I look."),
        (OPEN_TEXT, [], "I look."),
        (
            HALF_THOUGHT,
            ["reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"],
            "",
        ),
        (
            (added(0, {**SEARCH, "status": "in_progress"}), *text_events(1, "Hm")),
            ["output_item.done"],
            "Hm",
        ),
    ],
)
def test_what_the_first_stream_left_open_is_closed(
    events: tuple[Event, ...], closing: list[str], text: str
) -> None:
    second = stream(*call_events(0, ONE, ONE["arguments"]), end(ONE))

    made = join(stream(*events), second)

    count = len(stream(*events))
    assert names_of(made)[count : len(names_of(made)) - 5] == closing
    whole = accumulate(made)
    assert whole.output_text == text
    assert whole.output[-1].arguments == ONE["arguments"]
    assert {each.status for each in whole.output} <= {"completed", "incomplete", None}
    assert read(made).text == text


def test_a_search_that_was_not_seen_to_end_is_incomplete() -> None:
    first = stream(added(0, {**SEARCH, "status": "in_progress"}))

    made = join(first, stream(*text_events(0, "Hi"), end(HI)))

    for item in (events_of(made)[3]["item"], events_of(made)[-1]["response"]["output"][0]):
        assert item == {**SEARCH, "status": "incomplete"}


def test_the_blank_line_moves_what_points_into_the_text() -> None:
    note = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 2}
    file = {"type": "file_citation", "file_id": "f", "filename": "n", "index": 3}
    cited = message(part(""), part("Hi", annotations=[note, file]))
    at = {"output_index": 0, "item_id": "msg_1", "content_index": 1}
    second = stream(
        added(0, message(status="in_progress")),
        ("response.content_part.added", {**at, "content_index": 0, "part": part()}),
        ("response.content_part.done", {**at, "content_index": 0, "part": part()}),
        ("response.content_part.added", {**at, "part": part()}),
        ("response.output_text.delta", {**at, "delta": "", "logprobs": []}),
        ("response.output_text.delta", {**at, "delta": "H", "logprobs": []}),
        ("response.output_text.delta", {**at, "delta": "i", "logprobs": []}),
        ("response.output_text.annotation.added",
         {**at, "annotation_index": 0, "annotation": note}),
        ("response.output_text.done", {**at, "text": "Hi", "logprobs": []}),
        ("response.content_part.done", {**at, "part": cited["content"][1]}),
        done(0, cited),
        end(cited),
    )  # fmt: skip

    events = events_of(join(OPENING, second))[len(OPENING) :]

    moved = {**note, "start_index": 2, "end_index": 4}
    want = [part(""), part("\n\nHi", annotations=[moved, file])]
    assert [each["delta"] for each in events if "delta" in each] == ["", "\n\nH", "i"]
    assert [each["annotation"] for each in events if "annotation" in each] == [moved]
    assert [each["text"] for each in events if "text" in each] == ["\n\nHi"]
    assert [each["part"] for each in events if "part" in each][-1] == want[1]
    assert events[-2]["item"]["content"] == want
    assert events[-1]["response"]["output"][1]["content"] == want


@pytest.mark.parametrize(
    "name", ["no output at the end", "deltas alone", "nothing but the end", "[DONE] after it"]
)
def test_streams_not_by_the_book_go_on_all_the_same(name: str) -> None:
    second = sample.STREAMS[name]
    before = read(b"".join(second))

    made = join(OPENING, second)

    answer = read(made)
    assert answer.text == f"I look.\n\n{before.text}"
    assert answer.tool_calls == before.tool_calls
    again = RESPONSES.read_answer(RESPONSES.body_from_events(frames_of(made)))
    assert again == answer


def test_a_last_event_without_a_list_of_items_gets_none() -> None:
    """openai-python then takes the items that were done."""
    whole = {key: value for key, value in response().items() if key != "output"}
    second = stream(*text_events(0, "Hi", item=message(part("Hi"), id="msg_2")))
    made = join(OPENING, (*second, event("response.completed", 8, response=whole)))

    assert "output" not in events_of(made)[-1]["response"]
    assert accumulate(made).output_text == "I look.\n\nHi"
    assert read(made).text == "I look.\n\nHi"


def test_streams_that_are_not_numbered_stay_so() -> None:
    def bare(*happened: Event) -> tuple[bytes, ...]:
        return tuple(event(name, None, **fields) for name, fields in happened)

    created: Event = ("response.created", {"response": sample.HEAD})
    made = join(bare(created, *OPEN_TEXT[:3]), bare(created, *text_events(0, "Hi"), end(HI)))

    assert not any("sequence_number" in each for each in events_of(made))
    assert read(made).text == "I \n\nHi"


def test_a_text_before_a_body_is_a_message_of_its_own() -> None:
    whole = json.loads(RESPONSES.joined_body("I look.", body(THOUGHT, HI)))

    first, *rest = whole["output"]
    assert rest == [THOUGHT, HI]
    assert first["content"] == [part("I look.\n\n")]
    assert first["id"].startswith("msg_")
    twice = json.loads(RESPONSES.joined_body("I look.", json.dumps(whole).encode()))
    assert len({item["id"] for item in twice["output"]}) == 4
    assert RESPONSES.read_answer(RESPONSES.joined_body("I look.", body(ONE))).text == "I look."


def test_an_id_that_a_client_answers_by_is_kept() -> None:
    asked = {**sample.MCP_APPROVAL, "id": "msg_1"}

    made = join(OPENING, stream(added(0, asked), done(0, asked), end(asked)))

    assert events_of(made)[-1]["response"]["output"][1] == asked


def test_a_message_whose_text_is_no_list_is_moved_too() -> None:
    plain = message(content="Hi", id="msg_2")

    for second in (
        stream(added(0, message(id="msg_2")), done(0, plain), end(plain)),
        stream(added(0, reasoning()), done(0, THOUGHT), added(1, plain), end(THOUGHT, plain)),
    ):
        made = join(OPENING, second)
        assert events_of(made)[-1]["response"]["output"][-1]["content"] == "\n\nHi"
        assert read(made).text == "I look.\n\nHi"


@given(first=streams(), second=streams(), kept=st.integers(2, 40))
@settings(derandomize=True, deadline=None, database=None, max_examples=80)
def test_any_beginning_goes_on_as_any_stream(
    first: tuple[bytes, ...], second: tuple[bytes, ...], kept: int
) -> None:
    opening = first[: min(kept, len(first) - 1)]
    later = read(b"".join(second))
    # A round that is gone on from has shown no call of the client's.
    opening = opening[: next((at for at, raw in enumerate(opening) if b'"call_' in raw), None)]
    begun = read(b"".join(opening))

    made = join(opening, second)

    assert made.startswith(b"".join(opening))
    answer = read(made)
    line = "\n\n" if begun.text and later.text else ""
    assert answer.text == begun.text + line + later.text
    # Ids of what the provider ran may have had to change.
    assert [call for _, call in answer.tool_calls if not call.runs_upstream] == [
        replace(call, position=call.position + len(begun.tool_calls))
        for _, call in later.tool_calls
        if not call.runs_upstream
    ]
    assert accumulate(made).output_text == answer.text
