"""The mock's Responses form, against OpenAI's published schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.ground.chat import Answer
from agentstate.ground.errors import BadRequest
from agentstate.house.mock import answer
from agentstate.house.mock_reply import Reply
from agentstate.wire.sse import SSEDecoder
from tests.helpers.openai_schema import check

RESPONSES = OpenAIResponses()
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
MAIL = {"type": "function", "name": "send_email", "parameters": {"type": "object"}}
CALLED = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"}
HEARD = {"type": "function_call_output", "call_id": "c", "output": "5 degrees"}


def ask(given: Any = "Hello there", **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "input": given, **fields}


def reply(asked: dict[str, Any]) -> Reply:
    return answer("POST", b"/v1/responses", json.dumps(asked).encode())


def read(asked: dict[str, Any]) -> Answer:
    """Answer whole and as a stream; both must be legal and say the same."""
    whole, streamed = reply(asked), reply({**asked, "stream": True})
    (raw,) = whole.pieces
    check("Response", json.loads(raw))
    frames = [frame for piece in streamed.pieces for frame in SSEDecoder().feed(piece)]
    assembler = RESPONSES.assembler()
    for frame in frames:
        check("ResponseStreamEvent", json.loads(frame.data or b""))
        assembler.feed(frame)
    found = RESPONSES.read_answer(raw)
    assert found.is_complete
    assert assembler.finish(clean_end=True) == found
    return found


def test_an_answer_says_that_it_is_a_mock_and_what_it_heard() -> None:
    found = read(ask())

    assert "AgentState's mock" in found.text
    assert "Hello there" in found.text
    assert found.usage is not None
    assert found.usage.input_tokens > 0


def test_a_text_and_the_message_it_stands_for_are_answered_alike() -> None:
    assert read(ask([{"role": "user", "content": "Hello there"}])).text == read(ask()).text


def test_both_forms_and_every_time_have_one_id() -> None:
    ids = {read(ask()).response_id for _ in range(2)}

    assert len(ids) == 1
    assert read(ask("Hello")).response_id not in ids


def test_a_stream_has_several_pieces_and_ends_with_its_last_event() -> None:
    streamed = reply(ask(stream=True))

    deltas = [piece for piece in streamed.pieces if b"output_text.delta" in piece]
    assert len(deltas) > 1
    assert streamed.pieces[-1].startswith(b"event: response.completed\n")


def test_a_named_tool_is_called() -> None:
    found = read(ask("get_weather for 'Oslo', please", tools=[WEATHER, MAIL]))

    ((_, call),) = found.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Oslo"})
    assert call.call_id is not None
    assert call.call_id.startswith("call_")


def test_a_custom_tool_is_called_in_its_own_form() -> None:
    found = read(ask("run_sql now", tools=[{"type": "custom", "name": "run_sql"}]))

    assert [(call.name, call.kind) for _, call in found.tool_calls] == [("run_sql", "custom")]


def test_a_result_is_talked_about_and_its_tool_not_called_again() -> None:
    question = {"role": "user", "content": "get_weather and send_email"}

    found = read(ask([question, CALLED, HEARD], tools=[WEATHER, MAIL]))
    last = read(ask([question, CALLED, HEARD], tools=[WEATHER]))

    assert [call.name for _, call in found.tool_calls] == ["send_email"]
    assert "5 degrees" in last.text


def test_what_goes_on_from_an_earlier_response_needs_no_question() -> None:
    assert "5 degrees" in read(ask([HEARD], previous_response_id="resp_0")).text
    assert read(ask(None, conversation="conv_0")).text


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("none", []),
        ("auto", []),
        ("required", ["get_weather"]),
        ({"type": "function", "name": "send_email"}, ["send_email"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, []),
    ],
)
def test_tool_choice_is_obeyed(choice: Any, names: list[str]) -> None:
    found = read(ask("Hello", tools=[WEATHER, MAIL], tool_choice=choice))

    assert [call.name for _, call in found.tool_calls] == names


def test_parallel_calls_can_be_refused() -> None:
    asked = ask("get_weather and send_email", tools=[WEATHER, MAIL])

    assert len(read(asked).tool_calls) == 2
    assert len(read({**asked, "parallel_tool_calls": False}).tool_calls) == 1


def test_a_schema_is_kept_to() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "name": "n", "schema": schema}

    assert json.loads(read(ask("n=3", text={"format": form})).text) == {"n": 3}
    assert "mock" in json.loads(read(ask(text={"format": {"type": "json_object"}})).text)
    assert "Hello there" in read(ask(text={"format": {"type": "text"}})).text


def test_a_token_limit_makes_the_response_incomplete() -> None:
    found = read(ask("Hello " * 50, max_output_tokens=16))

    assert found.finish_reason == "max_output_tokens"
    assert len(found.text) == 64


def test_a_thought_is_shown_where_it_is_asked_for() -> None:
    assert read(ask()).choices[0].reasoning is None
    assert "mock" in (read(ask(reasoning={"summary": "auto"})).choices[0].reasoning or "")


def test_the_request_is_repeated_with_defaults() -> None:
    (raw,) = reply(ask(instructions="Be kind.", temperature=0.20, store=False)).pieces

    value = json.loads(raw)
    assert (value["instructions"], value["temperature"], value["store"]) == ("Be kind.", 0.2, False)
    assert (value["tool_choice"], value["truncation"], value["tools"]) == ("auto", "disabled", [])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["hi"]}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_a_wrong_request_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        reply({**ask(), **fields})

    assert caught.value.param == param


def test_a_fault_is_asked_for_by_the_models_name() -> None:
    assert reply(ask(model="mock/cut")).fault.kind == "cut"
