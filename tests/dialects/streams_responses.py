"""Streams in the Responses form: made of samples or at random, and read as clients do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st

from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.ground.chat import Answer
from agentstate.wire.sse import Frame, SSEDecoder
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

Event = tuple[str, dict[str, Any]]

RESPONSES = OpenAIResponses()
CUSTOM = {**sample.CUSTOM_CALL, "call_id": "call_3"}
LOCAL = {**sample.LOCAL_SHELL, "call_id": "call_4"}
SHELL = {**sample.SHELL, "call_id": "call_5"}
PATCH = {**sample.APPLY_PATCH, "call_id": "call_6"}
SEARCH: dict[str, Any] = sample.WEB_SEARCH


def frames_of(*raw: bytes) -> list[Frame]:
    """Decode a stream."""
    return SSEDecoder().feed(b"".join(raw))


def read(raw: bytes) -> Answer:
    """Read a stream into an answer."""
    assembler = RESPONSES.assembler()
    for frame in frames_of(raw):
        assembler.feed(frame)
    return assembler.finish(clean_end=True)


def events_of(raw: bytes) -> list[dict[str, Any]]:
    """Return what the events of a stream say."""
    return [json.loads(frame.data) for frame in frames_of(raw) if frame.data is not None]


def names_of(raw: bytes) -> list[str]:
    """Return the names of the events of a stream, without what all begin with."""
    return [each["type"].removeprefix("response.") for each in events_of(raw)]


def custom_events(place: int, item: dict[str, Any], *pieces: str) -> tuple[Event, ...]:
    """Return the events of a custom tool's call whose input comes in pieces."""
    at = {"output_index": place, "item_id": item["id"]}
    return (
        added(place, {**item, "input": ""}),
        *(("response.custom_tool_call_input.delta", {**at, "delta": piece}) for piece in pieces),
        ("response.custom_tool_call_input.done", {**at, "input": item["input"]}),
        done(place, item),
    )


def whole_events(place: int, item: dict[str, Any], *between: Event) -> tuple[Event, ...]:
    """Return the events of an item that is shown whole at once."""
    return added(place, item), *between, done(place, item)


def shell_events(place: int, item: dict[str, Any]) -> tuple[Event, ...]:
    """Return the events of a shell call, its command in pieces."""
    at = {"output_index": place, "command_index": 0}
    return (
        added(place, {**item, "action": {"commands": []}, "status": "in_progress"}),
        ("response.shell_call_command.added", {**at, "command": ""}),
        ("response.shell_call_command.delta", {**at, "delta": "ls"}),
        ("response.shell_call_command.done", {**at, "command": "ls"}),
        done(place, item),
    )


def accumulate(raw: bytes) -> Any:
    """Read a stream as the `openai` package does; return its response. It refuses a stream whose
    items do not fit together."""
    models = pytest.importorskip("openai._models")
    types = pytest.importorskip("openai.types.responses")
    streaming = pytest.importorskip("openai.lib.streaming.responses._responses")
    state = streaming.ResponseStreamState(input_tools=[], text_format=streaming.omit)
    numbers = []
    for each in events_of(raw):
        numbers.append(each["sequence_number"])
        state.handle_event(models.construct_type(type_=types.ResponseStreamEvent, value=each))
    assert numbers == list(range(len(numbers)))
    return state._completed_response


texts = st.text('ab {}"\\\n\U0001f600', max_size=12)
objects = st.dictionaries(
    st.sampled_from("abc"), st.integers() | st.text("xy", max_size=3), max_size=3
)


@st.composite
def outputs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return the items of an answer, each with an id of its own."""
    kinds = st.sampled_from(
        ("message", "thought", "search", "function", "custom", "local", "shell")
    )
    items: list[dict[str, Any]] = []
    for number, kind in enumerate(draw(st.lists(kinds, max_size=6))):
        names: dict[str, Any] = {"id": f"i_{number}", "call_id": f"call_{number}"}
        match kind:
            case "message":
                items.append(message(part(draw(texts)), id=names["id"]))
            case "thought":
                items.append(reasoning(draw(texts), id=names["id"]))
            case "search":
                items.append({**SEARCH, "id": names["id"]})
            case "function":
                items.append(call(**names, arguments=json.dumps(draw(objects))))
            case "custom":
                items.append({**CUSTOM, **names, "input": draw(texts)})
            case "local":
                items.append({**LOCAL, **names})
            case _:
                items.append({**SHELL, **names})
    return items


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, ...]:
    """Return a stream whose items come side by side."""
    items = draw(outputs())
    queues: list[list[Event]] = []
    for place, item in enumerate(items):
        match item["type"]:
            case "message":
                text = item["content"][0]["text"]
                cut = draw(st.integers(0, len(text)))
                queues.append(list(text_events(place, text[:cut], text[cut:], item=item)))
            case "function_call":
                cut = draw(st.integers(0, len(item["arguments"])))
                pieces = item["arguments"][:cut], item["arguments"][cut:]
                queues.append(list(call_events(place, item, *pieces)))
            case "custom_tool_call":
                queues.append(list(custom_events(place, item, item["input"])))
            case "shell_call":
                queues.append(list(shell_events(place, item)))
            case _:
                queues.append(list(whole_events(place, item)))
    happened: list[Event] = []
    if draw(st.booleans()):
        # Items are added in order, as the book has it; the rest comes as it will.
        happened = [queue.pop(0) for queue in queues]
        while left := [queue for queue in queues if queue]:
            happened.append(draw(st.sampled_from(left)).pop(0))
    return stream(*happened, *(each for queue in queues for each in queue), end(*items))
