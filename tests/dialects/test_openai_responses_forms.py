"""The other form of a response: legal events, and a body with nothing lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.openai_responses_forms import (
    body_from_events,
    events_from_body,
    make_events,
)
from agentstate.dialects.openai_responses_reading import read_answer
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects.samples_responses import (
    BODIES,
    HEAD,
    MCP_CALL,
    STREAMS,
    body,
    call,
    cut_short,
    end,
    event,
    message,
    part,
    reasoning,
    response,
    stream,
    text_events,
)
from tests.helpers.openai_schema import check

# Delta events by the field of the `done` event that has the whole text.
WHOLE_TEXTS = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning_text": "text",
    "response.reasoning_summary_text": "text",
    "response.function_call_arguments": "arguments",
    "response.mcp_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.code_interpreter_call_code": "code",
}


def frames_of(raw: list[bytes]) -> list[Frame]:
    return SSEDecoder().feed(b"".join(raw))


def values_of(raw: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(frame.data or b"") for frame in frames_of(raw)]


def names_of(raw: list[bytes]) -> list[str]:
    return [value["type"] for value in values_of(raw)]


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("piece_chars", [None, 3])
def test_made_events_satisfy_openais_schema(name: str, piece_chars: int | None) -> None:
    whole = json.loads(BODIES[name])
    check("Response", whole)

    for value in values_of(make_events(whole, piece_chars)):
        check("ResponseStreamEvent", value)


@pytest.mark.parametrize("name", sorted(BODIES))
def test_made_events_are_named_and_numbered(name: str) -> None:
    made = events_from_body(BODIES[name])

    values = values_of(made)
    assert [frame.event.decode() for frame in frames_of(made)] == [v["type"] for v in values]
    assert [value["sequence_number"] for value in values] == list(range(len(values)))


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("piece_chars", [None, 3])
def test_a_client_that_keeps_count_accepts_made_events(name: str, piece_chars: int | None) -> None:
    """A strict state machine, as clients run one: nothing before its `added`, all of it done."""
    whole = json.loads(BODIES[name])
    opened: dict[Any, Any] = {}
    items: list[Any] = []

    values = values_of(make_events(whole, piece_chars))

    assert [value["type"] for value in values[:2]] == ["response.created", "response.in_progress"]
    assert values[0]["response"] == values[1]["response"]
    assert values[0]["response"]["status"] == "in_progress"
    assert values[0]["response"]["output"] == []
    assert "usage" not in values[0]["response"]
    for value in values[2:-1]:
        stem, _, verb = value["type"].rpartition(".")
        match stem, verb:
            case "response.output_item", "added":
                assert value["output_index"] == len(items)
                assert "item" not in opened
                opened["item"] = value["item"]
            case "response.output_item", "done":
                assert opened.pop("item")["type"] == value["item"]["type"]
                assert not opened, "a part or a text of it was left open"
                items.append(value["item"])
            case (("response.content_part" | "response.reasoning_summary_part"), "added"):
                opened[stem] = value["part"]
            case (("response.content_part" | "response.reasoning_summary_part"), "done"):
                opened.pop(stem)
            case _, "delta":
                opened[stem] = opened.get(stem, "") + value["delta"]
            case _, "done":
                assert opened.pop(stem) == value[WHOLE_TEXTS[stem]]
            case _:
                assert "item" in opened, value["type"]
        if "item_id" in value:
            assert value["item_id"] == opened["item"].get("id", opened["item"].get("call_id"))
    assert items == whole["output"]
    assert values[-1]["type"] == f"response.{whole['status']}"
    assert values[-1]["response"] == whole


def test_the_sequence_of_a_text_is_the_one_openai_sends() -> None:
    assert names_of(events_from_body(body(message(part("Hi"))))) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_the_sequence_of_a_call_is_the_one_openai_sends() -> None:
    made = events_from_body(body(call()))

    assert names_of(made)[2:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    added = values_of(made)[2]["item"]
    assert added == {**call(), "arguments": "", "status": "in_progress"}
    assert values_of(made)[4]["name"] == "get_weather"


def test_a_failed_call_fails_and_is_not_completed() -> None:
    made = events_from_body(body({**MCP_CALL, "error": {"type": "x"}, "status": "failed"}))

    assert "response.mcp_call.failed" in names_of(made)
    assert "response.mcp_call.completed" not in names_of(made)


def test_a_thought_keeps_its_secret_until_it_is_done() -> None:
    added, *_, item_done, _ = values_of(
        events_from_body(body(reasoning("Hm.", encrypted_content="gAAA")))
    )[2:]

    assert added["item"] == reasoning()
    assert item_done["item"] == reasoning("Hm.", encrypted_content="gAAA")


def test_an_unknown_part_comes_whole() -> None:
    odd = {"type": "output_audio", "data": "QUJD"}

    added, ended = (
        value for value in values_of(events_from_body(body(message(odd)))) if "part" in value
    )

    assert added["part"] == ended["part"] == odd


def test_a_response_that_says_little_of_itself_is_told_as_little() -> None:
    made = values_of(events_from_body(b'{"id":"r","output":[{"type":"function_call"},7]}'))

    assert made[0]["response"] == {"id": "r", "output": []}
    assert [value["type"] for value in made[2:]] == [
        "response.output_item.added", "response.output_item.done", "response.completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{}", b"[]", b'{"error":{"message":"x"}}',
        json.dumps(response(status="failed")).encode(),
        json.dumps(response(status="incomplete")).encode(),
        json.dumps(response(status="in_progress")).encode(),
    ],
)  # fmt: skip
def test_what_is_no_answer_gives_no_events(raw: bytes) -> None:
    assert events_from_body(raw) == []


# --- bodies ---------------------------------------------------------------------------------------


def made_body(*raw: bytes) -> Any:
    return json.loads(body_from_events(SSEDecoder().feed(b"".join(raw))))


def test_the_body_is_the_last_events_response() -> None:
    assert made_body(*STREAMS["text"]) == json.loads(BODIES["text"])
    assert made_body(*STREAMS["cut by its limit"]) == cut_short("Hi")


@pytest.mark.parametrize("name", sorted(set(STREAMS) - {"deltas alone"}))
def test_a_made_body_satisfies_openais_schema(name: str) -> None:
    check("Response", made_body(*STREAMS[name]))


def test_items_the_last_event_lacks_are_those_that_were_streamed() -> None:
    assert made_body(*STREAMS["no output at the end"]) == response(
        message(part("Hi there")), call()
    )


def test_a_last_event_without_a_response_leaves_what_the_first_said() -> None:
    made = made_body(*stream(*text_events(0, "Hi")), event("response.completed", 8))

    assert made == {**HEAD, "status": "completed", "output": [message(part("Hi"))]}


@pytest.mark.parametrize("status", ["in_progress", "x"])
def test_a_wrong_status_at_the_end_is_mended(status: str) -> None:
    made = made_body(*stream(end(status=status)))

    assert made["status"] == "completed"
    assert read_answer(json.dumps(made).encode()).is_complete


def test_a_stream_that_did_not_end_makes_no_answer() -> None:
    made = made_body(*stream(*text_events(0, "Hi")))

    assert made["status"] == "in_progress"
    assert not read_answer(json.dumps(made).encode()).is_complete


@pytest.mark.parametrize("kept", range(len(STREAMS["tool calls"])))
def test_a_stream_cut_anywhere_makes_no_answer(kept: int) -> None:
    made = made_body(*STREAMS["tool calls"][:kept])

    assert not read_answer(json.dumps(made).encode()).is_complete
