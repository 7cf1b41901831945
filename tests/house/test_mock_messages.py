"""The mock's Anthropic form, held against the types of the `anthropic` package."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.ground.chat import Answer
from agentstate.house.mock import MockProvider, answer
from agentstate.house.mock_reply import Reply
from agentstate.wire.message import Exchange, Origin, OutCall, TimeLimits
from agentstate.wire.sse import SSEDecoder
from tests.helpers.anthropic_types import check, check_stream
from tests.helpers.reading import read_events

PATH = b"/v1/messages"
COUNT = b"/v1/messages/count_tokens"
BYTES_MAX = 1 << 20
WEATHER = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                     "required": ["city"]},
}  # fmt: skip
MAIL = {"name": "send_email", "input_schema": {"type": "object"}}


def body(text: str = "Hello there", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "claude-x", "max_tokens": 500, "messages": messages, **fields}


def reply_to(asked: dict[str, Any], path: bytes = PATH) -> Reply:
    return answer("POST", path, json.dumps(asked).encode())


def message(asked: dict[str, Any]) -> dict[str, Any]:
    """Ask for a whole answer and check it."""
    (raw,) = reply_to(asked).pieces
    check("Message", raw)
    made: dict[str, Any] = json.loads(raw)
    return made


def blocks(asked: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [each for each in message(asked)["content"] if each["type"] == kind]


def assemble(asked: dict[str, Any]) -> Answer:
    """Ask for a stream, check it, and read it."""
    reply = reply_to({**asked, "stream": True})
    assert reply.streams
    check_stream("RawMessageStreamEvent", b"".join(reply.pieces))
    assembler = AnthropicMessages().assembler()
    for frame in SSEDecoder().feed(b"".join(reply.pieces)):
        assembler.feed(frame)
    return assembler.finish(True)


ASKED = {
    "text": body(),
    "one tool": body("get_weather for city=Oslo", tools=[WEATHER, MAIL]),
    "two tools": body("get_weather and send_email, please", tools=[WEATHER, MAIL]),
    "thinking": body(thinking={"type": "enabled", "budget_tokens": 1024}),
    "schema": body(output_config={"format": {"type": "json_schema", "schema": {"type": "object",
              "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}),
    "cut": body(max_tokens=1),
}  # fmt: skip


@pytest.mark.parametrize("asked", ASKED.values(), ids=list(ASKED))
def test_both_forms_say_the_same(asked: dict[str, Any]) -> None:
    whole = AnthropicMessages().read_answer(json.dumps(message(asked)).encode())

    assert whole.is_complete
    assert assemble(asked) == whole


@pytest.mark.parametrize("asked", ASKED.values(), ids=list(ASKED))
def test_the_same_request_gets_the_same_bytes(asked: dict[str, Any]) -> None:
    assert reply_to(asked) == reply_to(asked)
    other = {**asked, "messages": [{"role": "user", "content": "Other"}]}
    assert message(other)["id"] != message(asked)["id"]


def test_it_says_that_it_is_a_mock_and_what_was_said() -> None:
    (text,) = blocks(body("Hello there"), "text")

    assert "mock" in text["text"]
    assert "Hello there" in text["text"]


def test_a_tool_the_text_names_is_called() -> None:
    made = message(ASKED["one tool"])

    (call,) = made["content"]
    assert made["stop_reason"] == "tool_use"
    assert call["id"].startswith("toolu_")
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Oslo"})


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ({"type": "auto"}, []),
        ({"type": "any"}, ["get_weather"]),
        ({"type": "tool", "name": "send_email"}, ["send_email"]),
        ({"type": "none"}, []),
        (None, []),
    ],
)
def test_tool_choice_is_honoured(choice: Any, called: list[str]) -> None:
    asked = body(tools=[WEATHER, MAIL], tool_choice=choice)

    assert [each["name"] for each in blocks(asked, "tool_use")] == called


def test_calls_side_by_side_can_be_switched_off() -> None:
    asked = ASKED["two tools"]
    alone = {**asked, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}

    assert len(blocks(asked, "tool_use")) == 2
    assert len(blocks(alone, "tool_use")) == 1


def test_what_anthropic_runs_itself_is_not_called() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}

    assert blocks(body("web_search it", tools=[search]), "tool_use") == []


def test_a_loop_of_tool_calls_ends_with_what_the_tool_said() -> None:
    asked = ASKED["one tool"]
    called = {"role": "assistant", "content": message(asked)["content"]}
    result = {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text",
              "text": "5 degrees"}]}  # fmt: skip
    asked = {**asked, "messages": [*asked["messages"], called,
                                   {"role": "user", "content": [result]}]}  # fmt: skip

    made = message(asked)

    assert made["stop_reason"] == "end_turn"
    assert "5 degrees" in made["content"][0]["text"]


def test_thinking_comes_first_and_signed() -> None:
    thought, text = message(ASKED["thinking"])["content"]

    assert (thought["type"], text["type"]) == ("thinking", "text")
    assert thought["signature"]


def test_a_schema_is_fitted_in_the_old_place_too() -> None:
    schema = ASKED["schema"]["output_config"]["format"]

    for asked in (ASKED["schema"], body(output_format=schema)):
        (text,) = blocks(asked, "text")
        assert set(json.loads(text["text"])) == {"a"}


def test_the_limit_of_tokens_cuts_text_and_arguments() -> None:
    assert message(ASKED["cut"])["stop_reason"] == "max_tokens"
    cut = {**ASKED["one tool"], "max_tokens": 1}
    assert message(cut)["content"][0]["input"] == {}
    assert assemble(cut).tool_calls[0][1].arguments == '{"ci'


def test_a_stream_comes_in_pieces_with_a_ping() -> None:
    stream = b"".join(reply_to(body(stream=True)).pieces)

    names = [event.name for event in read_events(stream)]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names.count("content_block_delta") > 2
    assert names[-2:] == ["message_delta", "message_stop"]


def test_tokens_are_counted_as_the_answer_counts_them() -> None:
    asked = body(system="Be kind.", tools=[WEATHER])
    del asked["max_tokens"]
    reply = reply_to(asked, COUNT)

    check("MessageTokensCount", reply.pieces[0])
    counted = json.loads(reply.pieces[0])["input_tokens"]
    assert counted == message({**asked, "max_tokens": 9})["usage"]["input_tokens"] > 20


# Errors


def send(asked: Any, path: bytes = PATH) -> tuple[Exchange, dict[str, Any]]:
    async def ask() -> tuple[Exchange, bytes]:
        call = OutCall("POST", Origin("mock", "mock", 0), path, (), json.dumps(asked).encode())
        exchange = await MockProvider().send(call, TimeLimits())
        return exchange, await exchange.read(BYTES_MAX)

    exchange, raw = asyncio.run(ask())
    if exchange.status != 200:
        check("ErrorResponse", raw)
    return exchange, json.loads(raw)


@pytest.mark.parametrize(
    ("asked", "status", "kind"),
    [
        (body(model="mock/429"), 429, "rate_limit_error"),
        (body(model="mock/500"), 500, "api_error"),
        (body(model="mock/flaky-3"), 500, "api_error"),
        (body(model=None), 400, "invalid_request_error"),
        (body(max_tokens=None), 400, "invalid_request_error"),
        (body(max_tokens=0), 400, "invalid_request_error"),
        (body(messages=[]), 400, "invalid_request_error"),
        (body(messages=["odd"]), 400, "invalid_request_error"),
        ([], 400, "invalid_request_error"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_errors_have_anthropics_form(asked: Any, status: int, kind: str, streams: bool) -> None:
    if isinstance(asked, dict):
        asked = {**asked, "stream": streams}

    exchange, error = send(asked)

    assert (exchange.status, error["error"]["type"]) == (status, kind)
    assert (exchange.headers.get(b"retry-after") is not None) == (status == 429)


def test_an_unknown_path_below_is_refused_in_anthropics_form() -> None:
    exchange, error = send(body(), PATH + b"/batches")

    assert (exchange.status, error["error"]["type"]) == (404, "not_found_error")


def test_an_answer_says_in_its_head_that_it_is_a_mock() -> None:
    exchange, _ = send(body())

    assert exchange.headers.get(b"x-agentstate-mock") == b"true"
    assert str(exchange.headers.text(b"request-id")).startswith("req_mock_")
