"""The mock provider, against OpenAI's published schemas and the time limits of a real upstream."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import struct
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from jsonschema import Draft202012Validator

from agentstate.ground.errors import UpstreamCut, UpstreamProtocol, UpstreamTimeout
from agentstate.house.mock import FLAKY_KEPT_MAX, MockProvider, answer
from agentstate.house.mock_reply import Fault, read_fault
from agentstate.wire.message import Exchange, Origin, OutCall, TimeLimits, Transport

T = TypeVar("T")
SCHEMAS = Path(__file__).parents[1] / "schemas" / "openai"
CHAT = b"/v1/chat/completions"
BYTES_MAX = 1 << 20
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
MAIL = {"type": "function", "function": {"name": "send_email", "parameters": {"type": "object"}}}


class Clock:
    """Stands in for sleeping: notes how long was asked for, and returns at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, pause_s: float) -> None:
        self.slept.append(pause_s)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def chat(text: str = "Hello there", **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": text}], **fields}


def call(body: object, path: bytes = CHAT, method: str = "POST") -> OutCall:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return OutCall(method, Origin("mock", "mock", 0), path, (), raw)


async def ask(
    body: object, path: bytes = CHAT, method: str = "POST", mock: MockProvider | None = None
) -> tuple[Exchange, bytes]:
    exchange: Exchange = await (mock or MockProvider()).send(call(body, path, method), TimeLimits())
    return exchange, await exchange.read(BYTES_MAX)


def ask_json(body: object, path: bytes = CHAT, schema: str = "CreateChatCompletionResponse") -> Any:
    exchange, raw = run(ask(body, path))
    assert exchange.status == 200, raw
    return validated(json.loads(raw), schema)


def ask_stream(body: dict[str, Any], path: bytes = CHAT) -> list[Any]:
    """Return the stream's chunks, each checked, after checking its frames and its end."""
    exchange, raw = run(ask({**body, "stream": True}, path))
    assert exchange.headers.get(b"content-type") == b"text/event-stream; charset=utf-8"
    assert exchange.headers.get(b"content-length") is None
    assert raw.endswith(b"\n\ndata: [DONE]\n\n")
    frames = raw.decode().split("\n\n")[:-2]
    assert all(frame.startswith("data: {") for frame in frames)
    chunks = [json.loads(frame[6:]) for frame in frames]
    for chunk in chunks:
        if path == CHAT:
            validated(chunk, "CreateChatCompletionStreamResponse")
            continue
        # Completions have one schema for whole answers and chunks, and it forgets that a choice
        # which is not finished yet has no reason.
        rows = [row | {"finish_reason": row["finish_reason"] or "stop"} for row in chunk["choices"]]
        validated(chunk | {"choices": rows}, "CreateCompletionResponse")
    return chunks


def validated(value: Any, schema: str) -> Any:
    document = json.loads((SCHEMAS / f"{schema}.json").read_text())
    Draft202012Validator(document).validate(value)
    return value


def arguments_of(body: dict[str, Any]) -> Any:
    [made] = ask_json(body)["choices"][0]["message"]["tool_calls"]
    return json.loads(made["function"]["arguments"])


def test_the_mock_is_a_transport() -> None:
    transport: Transport = MockProvider()
    transport.warm(Origin("mock", "mock", 0), TimeLimits())
    run(transport.close())


def test_an_answer_says_that_it_is_a_mock_in_text_and_header() -> None:
    exchange, raw = run(ask(chat()))
    assert exchange.headers.get(b"x-agentstate-mock") == b"true"
    assert exchange.headers.get(b"content-length") == b"%d" % len(raw)
    text = json.loads(raw)["choices"][0]["message"]["content"]
    assert "mock model; no real model was asked" in text
    assert "Hello there" in text


def test_the_same_request_gets_the_same_bytes_from_another_mock() -> None:
    first, second = run(ask(chat())), run(ask(chat()))
    assert first[1] == second[1]
    assert first[0].headers.pairs == second[0].headers.pairs


def test_another_request_gets_another_id_and_time() -> None:
    one, other = ask_json(chat("one")), ask_json(chat("two"))
    assert one["id"] != other["id"]
    assert one["created"] != other["created"]


def test_key_order_and_the_stream_flag_do_not_change_the_id() -> None:
    body = chat()
    turned = dict(reversed(body.items()))
    ids = {ask_json(body)["id"], ask_json(turned)["id"], ask_stream(body)[0]["id"]}
    assert len(ids) == 1


def test_usage_is_about_a_token_for_four_characters() -> None:
    usage = ask_json(chat("x" * 400))["usage"]
    assert 100 <= usage["prompt_tokens"] <= 110
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_an_inline_image_counts_as_one_small_image() -> None:
    url = "data:image/png;base64," + "A" * 400_000
    image = {"type": "image_url", "image_url": {"url": url}}
    text = {"type": "text", "text": "What is this?"}
    asked = chat() | {"messages": [{"role": "user", "content": [text, image]}]}
    found = ask_json(asked)
    assert found["usage"]["prompt_tokens"] < 150
    assert "What is this?" in found["choices"][0]["message"]["content"]


def test_a_stream_carries_the_same_text_in_several_chunks() -> None:
    whole = ask_json(chat())["choices"][0]["message"]["content"]
    chunks = ask_stream(chat())
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    pieces = [delta["content"] for delta in deltas[1:-1]]
    assert len(pieces) >= 3
    assert "".join(pieces) == whole
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, "stop"]


def test_a_stream_comes_one_frame_at_a_time() -> None:
    async def frames() -> list[bytes]:
        exchange = await MockProvider().send(call(chat(stream=True)), TimeLimits())
        return [piece async for piece in exchange.chunks()]

    pieces = run(frames())
    assert len(pieces) > 4
    assert all(piece.endswith(b"\n\n") and piece.count(b"\n\n") == 1 for piece in pieces)


@pytest.mark.parametrize("path", [CHAT, b"/v1/completions"])
def test_a_stream_ends_with_usage_only_when_asked(path: bytes) -> None:
    body = chat() if path == CHAT else {"model": "m", "prompt": "Hello"}
    assert all(chunk["choices"] for chunk in ask_stream(body, path))
    *chunks, last = ask_stream(body | {"stream_options": {"include_usage": True}}, path)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] > 0
    assert not any("usage" in chunk for chunk in chunks)


def test_a_named_tool_is_called_with_words_of_the_prompt() -> None:
    body = chat("Use get_weather for Paris, days=3 please", tools=[WEATHER])
    [choice] = ask_json(body)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert arguments_of(body) == {"city": "Paris", "days": 3}


@pytest.mark.parametrize(
    "text", ["Get weather!", "call GET-WEATHER now", "get.weather", "(get_weather)"]
)
def test_a_tool_is_named_in_any_spelling(text: str) -> None:
    [choice] = ask_json(chat(text, tools=[WEATHER]))["choices"]
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("text", ["What is the weather?", "forget_weather", "get_weather_now"])
def test_a_tool_that_is_not_named_is_not_called(text: str) -> None:
    [choice] = ask_json(chat(text, tools=[WEATHER]))["choices"]
    assert choice["finish_reason"] == "stop"


def test_arguments_written_in_the_prompt_are_taken_as_they_stand() -> None:
    text = 'Please get_weather({"city": "Oslo",  "big": 12345678901234567890}) now'
    [made] = ask_json(chat(text, tools=[WEATHER]))["choices"][0]["message"]["tool_calls"]
    assert made["function"]["arguments"] == '{"city": "Oslo",  "big": 12345678901234567890}'


def test_braces_that_are_no_json_are_not_taken_for_arguments() -> None:
    body = chat("get_weather {of the city} in 'Rome'", tools=[WEATHER])
    assert arguments_of(body) == {"city": "Rome"}


def test_two_named_tools_are_called_side_by_side_in_the_order_named() -> None:
    body = chat("send_email after get_weather", tools=[WEATHER, MAIL])
    calls = ask_json(body)["choices"][0]["message"]["tool_calls"]
    assert [made["function"]["name"] for made in calls] == ["send_email", "get_weather"]
    assert len({made["id"] for made in calls}) == 2
    one = ask_json(body | {"parallel_tool_calls": False})["choices"][0]["message"]["tool_calls"]
    assert [made["function"]["name"] for made in one] == ["send_email"]


def after_call(text: str, **fields: Any) -> dict[str, Any]:
    """Return a request that hands back the result of the weather tool."""
    body = chat(text, tools=[WEATHER, MAIL], **fields)
    message = ask_json(chat(text, tools=[WEATHER]))["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Sunny"}
    return body | {"messages": [*body["messages"], message, result]}


def test_after_a_tool_result_comes_text_about_it() -> None:
    [choice] = ask_json(after_call("get_weather in Paris"))["choices"]
    assert choice["finish_reason"] == "stop"
    assert "Sunny" in choice["message"]["content"]


def test_after_one_tools_result_the_other_named_tool_is_called() -> None:
    [choice] = ask_json(after_call("get_weather, then send_email"))["choices"]
    [made] = choice["message"]["tool_calls"]
    assert made["function"]["name"] == "send_email"


def test_a_new_question_may_call_a_tool_again() -> None:
    body = after_call("get_weather in Paris")
    body["messages"].append({"role": "user", "content": "get_weather in Rome"})
    assert arguments_of(body) == {"city": "Rome"}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", None),
        ("auto", "get_weather"),
        ("required", "get_weather"),
        ({"type": "function", "function": {"name": "send_email"}}, "send_email"),
        ({"type": "function", "function": {"name": "unknown"}}, None),
    ],
)
def test_tool_choice_is_obeyed(choice: Any, expected: str | None) -> None:
    body = chat("get_weather in Paris", tools=[MAIL, WEATHER], tool_choice=choice)
    message = ask_json(body)["choices"][0]["message"]
    names = [made["function"]["name"] for made in message.get("tool_calls", [])]
    assert names == ([] if expected is None else [expected])


def test_a_required_tool_need_not_be_named() -> None:
    body = chat("hello", tools=[MAIL, WEATHER], tool_choice="required")
    [made] = ask_json(body)["choices"][0]["message"]["tool_calls"]
    assert made["function"]["name"] == "send_email"


def test_a_streamed_tool_call_assembles_to_the_whole_one() -> None:
    body = chat("get_weather in Paris", tools=[WEATHER])
    [whole] = ask_json(body)["choices"][0]["message"]["tool_calls"]
    chunks = ask_stream(body)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    pieces = [made for delta in deltas for made in delta.get("tool_calls", [])]
    assert (pieces[0]["id"], pieces[0]["function"]["name"]) == (whole["id"], "get_weather")
    joined = "".join(piece["function"]["arguments"] for piece in pieces)
    assert joined == whole["function"]["arguments"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert not any(delta.get("content") for delta in deltas)


def test_json_object_gives_a_json_object_that_says_it_is_a_mock() -> None:
    body = chat(response_format={"type": "json_object"})
    found = json.loads(ask_json(body)["choices"][0]["message"]["content"])
    assert "no real model was asked" in found["mock"]


FORMS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "minLength": 12, "maxLength": 12},
    {"type": "integer", "minimum": 5, "maximum": 9},
    {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    {"type": "integer", "minimum": 7, "multipleOf": 5},
    {"type": ["null", "boolean"]},
    {"type": "null"},
    {"const": {"a": 1.5}},
    {"enum": ["red", "blue"]},
    {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    {"type": "array", "items": {"type": "string", "format": "date"}, "minItems": 3},
    {"type": "array", "items": {"type": "string"}, "maxItems": 0},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 2},
    {"allOf": [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"properties": {"b": {"type": "null"}}, "required": ["b"]},
    ]},
    {"$defs": {"tree": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
        },
        "required": ["name", "children"],
        "additionalProperties": False,
     }}, "$ref": "#/$defs/tree"},
    {"type": "object", "properties": {"x": {"$ref": "#"}}},
    {"type": "object", "properties": {
        name: {"type": "string", "format": name}
        for name in ("date-time", "date", "time", "duration", "email", "ipv4", "ipv6", "uuid")
    }},
]  # fmt: skip


@pytest.mark.parametrize("schema", FORMS, ids=lambda form: next(iter(form)))
def test_json_schema_gives_an_answer_that_fits_it(schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}
    raw = ask_json(chat(response_format=form))["choices"][0]["message"]["content"]
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    validator.validate(json.loads(raw))


def test_an_enum_takes_what_the_prompt_mentions() -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"enum": ["red", "blue"]}}}
    found = ask_json(chat("the blue one", response_format=form))
    assert found["choices"][0]["message"]["content"] == '"blue"'


def test_a_schema_that_branches_without_end_is_answered_bounded() -> None:
    names = [f"p{number}" for number in range(40)]
    schema = {"properties": {name: {"$ref": "#"} for name in names}, "required": names}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    found = ask_json(chat(response_format=form))
    assert len(found["choices"][0]["message"]["content"]) < 100_000


def test_a_schema_that_refers_to_itself_is_answered() -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}
    assert json.loads(ask_json(chat(response_format=form))["choices"][0]["message"]["content"])


@pytest.mark.parametrize("bound", ["1e999", "1" + "0" * 400, '"x"', "true"])
def test_a_bound_that_is_no_finite_number_is_passed_over(bound: str) -> None:
    schema = f'{{"type": "number", "minimum": {bound}, "multipleOf": 1e-320}}'
    raw = json.dumps(chat()).replace(
        '"model"', f'"response_format": {{"json_schema": {{"schema": {schema}}}}}, "model"'
    )
    exchange, body = run(ask(raw.encode()))
    assert exchange.status == 200
    assert math.isfinite(json.loads(json.loads(body)["choices"][0]["message"]["content"]))


def test_n_gives_as_many_different_choices() -> None:
    choices = ask_json(chat(n=3))["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in choices}) == 3


def test_n_in_a_stream_finishes_every_choice_once() -> None:
    rows = [chunk["choices"][0] for chunk in ask_stream(chat(n=3))]
    finished = [row["index"] for row in rows if row["finish_reason"] is not None]
    assert sorted(finished) == [0, 1, 2]
    assert [row["index"] for row in rows[:3]] == [0, 1, 2]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_token_limit_ends_with_length(field: str) -> None:
    found = ask_json(chat() | {field: 5})
    assert found["choices"][0]["finish_reason"] == "length"
    assert found["usage"]["completion_tokens"] == 5


def test_a_token_limit_cuts_the_arguments_of_a_tool_call() -> None:
    body = chat("get_weather in Paris", tools=[WEATHER], max_tokens=2)
    [choice] = ask_json(body)["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":'


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, 400, "model"),
        ({"model": "m"}, 400, "messages"),
        ({"model": "m", "messages": []}, 400, "messages"),
        ({"model": "m", "messages": ["hello"]}, 400, "messages"),
        (chat(n=0), 400, "n"),
        (chat(n=129), 400, "n"),
        (chat(n=True), 400, "n"),
        (chat(max_tokens="many"), 400, "max_tokens"),
        ([], 400, None),
        (b"not json", 400, None),
        (b'{"model": "m", "model": "n"}', 400, "model"),
    ],
)
def test_a_wrong_request_is_refused_in_openais_form(body: Any, status: int, param: Any) -> None:
    exchange, raw = run(ask(body))
    assert exchange.status == status
    assert exchange.headers.get(b"x-agentstate-mock") == b"true"
    assert validated(json.loads(raw), "ErrorResponse")["error"]["param"] == param


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", b"/v1/images/generations", 404), ("GET", b"/", 404), ("GET", CHAT, 405)],
)
def test_an_unknown_path_or_method_is_refused(method: str, path: bytes, status: int) -> None:
    exchange, raw = run(ask(b"", path, method))
    assert exchange.status == status
    validated(json.loads(raw), "ErrorResponse")


def test_a_query_does_not_change_the_path() -> None:
    assert answer("GET", b"/v1/models?limit=5", b"").status == 200


def test_the_models_list_names_the_faults() -> None:
    _, raw = run(ask(b"", b"/v1/models", "GET"))
    found = validated(json.loads(raw), "ListModelsResponse")
    names = {row["id"] for row in found["data"]}
    assert {"mock/anything", "mock/429", "mock/flaky-3", "mock/slow-250ms"} <= names


def test_completions_answer_in_their_own_form() -> None:
    body = {"model": "m", "prompt": "Say hi", "n": 2}
    found = ask_json(body, b"/v1/completions", "CreateCompletionResponse")
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    whole = "".join(
        chunk["choices"][0]["text"]
        for chunk in ask_stream(body, b"/v1/completions")
        if chunk["choices"][0]["index"] == 0
    )
    assert whole == found["choices"][0]["text"]


def test_embeddings_have_length_one_and_tell_inputs_apart() -> None:
    body = {"model": "m", "input": ["one", "two", "one"]}
    found = ask_json(body, b"/v1/embeddings", "CreateEmbeddingResponse")
    first, second, third = (row["embedding"] for row in found["data"])
    assert math.isclose(math.hypot(*first), 1.0, abs_tol=1e-5)
    assert first == third != second


def test_embeddings_come_as_base64_when_asked() -> None:
    body = {"model": "m", "input": [1, 2, 3], "dimensions": 8}
    plain = ask_json(body, b"/v1/embeddings", "CreateEmbeddingResponse")["data"]
    _, raw = run(ask(body | {"encoding_format": "base64"}, b"/v1/embeddings"))
    [row] = json.loads(raw)["data"]
    values = struct.unpack("<8f", base64.b64decode(row["embedding"]))
    assert values == pytest.approx(plain[0]["embedding"], abs=1e-6)


@pytest.mark.parametrize("given", ["", None, [], ["x"] * 2049])
def test_embeddings_of_nothing_or_too_much_are_refused(given: Any) -> None:
    exchange, _ = run(ask({"model": "m", "input": given}, b"/v1/embeddings"))
    assert exchange.status == 400


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("mock/429", Fault("status", 429)),
        ("500", Fault("status", 500)),
        ("mock/timeout", Fault("timeout")),
        ("cut", Fault("cut")),
        ("mock/flaky-3", Fault("flaky", 3)),
        ("mock/slow-250ms", Fault("slow", 250)),
        ("mock/anything", Fault()),
        ("mock/slow-250", Fault()),
        ("mock/flaky-1000", Fault()),
        ("gpt-4o", Fault()),
    ],
)
def test_a_models_name_says_what_goes_wrong(model: str, fault: Fault) -> None:
    assert read_fault(model) == fault


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("status", [429, 500])
def test_a_status_fault_is_an_error_and_no_stream(status: int, streams: bool) -> None:
    exchange, raw = run(ask(chat(model=f"mock/{status}", stream=streams)))
    assert exchange.status == status
    assert exchange.headers.get(b"content-type") == b"application/json"
    assert exchange.headers.get(b"retry-after") == (b"1" if status == 429 else None)
    validated(json.loads(raw), "ErrorResponse")


@pytest.mark.parametrize(
    ("limits", "limit", "slept"),
    [
        (TimeLimits(first_byte_s=2.0), "first_byte", 2.0),
        (TimeLimits(first_byte_s=5.0, total_s=3.0), "total", 3.0),
        (TimeLimits(first_byte_s=0.0, total_s=3.0), "total", 3.0),
    ],
)
def test_timeout_keeps_to_the_limits(limits: TimeLimits, limit: str, slept: float) -> None:
    clock = Clock()
    with pytest.raises(UpstreamTimeout) as caught:
        run(MockProvider(clock.sleep).send(call(chat(model="mock/timeout")), limits))
    assert caught.value.limit == limit
    assert clock.slept == [slept]


def test_timeout_without_limits_hangs_until_it_is_cancelled() -> None:
    async def hang() -> bool:
        limits = TimeLimits(first_byte_s=0.0, total_s=0.0)
        task = asyncio.create_task(MockProvider().send(call(chat(model="mock/timeout")), limits))
        for _ in range(5):
            await asyncio.sleep(0)
        was_done = task.done()
        task.cancel()
        await asyncio.wait([task])
        return not was_done and task.cancelled()

    assert run(hang())


async def take_until_cut(body: dict[str, Any]) -> tuple[bytes, int]:
    """Return what came before the cut, and the length that was announced."""
    exchange = await MockProvider().send(call(body), TimeLimits())
    taken = bytearray()
    try:
        async for piece in exchange.chunks():
            taken += piece
    except UpstreamCut:
        return bytes(taken), int(exchange.headers.get(b"content-length") or 0)
    pytest.fail("the answer was not cut")


def test_cut_stops_a_stream_after_some_text() -> None:
    taken, _ = run(take_until_cut(chat(model="mock/cut", stream=True)))
    assert b'"content":"This is' in taken
    assert b'"finish_reason":"' not in taken
    assert b"[DONE]" not in taken


def test_cut_sends_less_of_a_body_than_it_announced() -> None:
    taken, announced = run(take_until_cut(chat(model="mock/cut")))
    assert 0 < len(taken) < announced


def test_flaky_fails_as_often_as_it_says_for_each_request_and_then_works() -> None:
    mock = MockProvider()
    body, other = chat(model="mock/flaky-3"), chat("other", model="mock/flaky-3")
    statuses = [run(ask(body, mock=mock))[0].status for _ in range(5)]
    assert statuses == [500, 500, 500, 200, 200]
    assert run(ask(other, mock=mock))[0].status == 500


def test_flaky_counts_a_stream_and_its_whole_form_as_one_request() -> None:
    mock = MockProvider()
    body = chat(model="mock/flaky-1")
    assert run(ask(body, mock=mock))[0].status == 500
    assert run(ask(body | {"stream": True}, mock=mock))[0].status == 200


def test_flaky_remembers_a_bounded_number_of_requests() -> None:
    async def fill() -> int:
        mock = MockProvider()
        for number in range(FLAKY_KEPT_MAX + 1):
            await ask(chat(str(number), model="mock/flaky-1"), mock=mock)
        return (await ask(chat("0", model="mock/flaky-1"), mock=mock))[0].status

    assert run(fill()) == 500


def test_slow_waits_before_a_whole_answer() -> None:
    clock = Clock()
    exchange, _ = run(ask(chat(model="mock/slow-250ms"), mock=MockProvider(clock.sleep)))
    assert exchange.status == 200
    assert clock.slept == [0.25]


def test_slow_is_spread_over_the_chunks_of_a_stream() -> None:
    clock = Clock()
    body = chat(model="mock/slow-250ms", stream=True)
    _, raw = run(ask(body, mock=MockProvider(clock.sleep)))
    assert len(clock.slept) == raw.count(b"\n\n")
    assert math.isclose(sum(clock.slept), 0.25)


def test_slow_meets_the_gap_and_total_limits_inside_a_stream() -> None:
    async def take(limits: TimeLimits) -> str:
        body = call(chat(model="mock/slow-9000ms", stream=True))
        exchange = await MockProvider(Clock().sleep).send(body, limits)
        with pytest.raises(UpstreamTimeout) as caught:
            await exchange.read(BYTES_MAX)
        return caught.value.limit

    assert run(take(TimeLimits(gap_s=0.5))) == "gap"
    assert run(take(TimeLimits(gap_s=0.0, total_s=4.0))) == "total"


def test_a_body_can_be_taken_once_and_not_after_close() -> None:
    async def take() -> tuple[bytes, bytes, bytes]:
        first = await MockProvider().send(call(chat()), TimeLimits())
        second = await MockProvider().send(call(chat()), TimeLimits())
        await second.close()
        return await first.read(BYTES_MAX), await first.read(BYTES_MAX), await second.read(1)

    whole, again, closed = run(take())
    assert whole
    assert again == closed == b""


def test_an_answer_over_the_readers_limit_is_refused() -> None:
    async def take() -> None:
        exchange = await MockProvider().send(call(chat()), TimeLimits())
        await exchange.read(10)

    with pytest.raises(UpstreamProtocol):
        run(take())


def test_a_large_body_sent_in_pieces_is_answered() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        raw = json.dumps(chat("word " * 200_000 + "get_weather", tools=[WEATHER])).encode()
        for at in range(0, len(raw), 65536):
            yield raw[at : at + 65536]

    async def take() -> Any:
        sent = OutCall("POST", Origin("mock", "mock", 0), CHAT, (), pieces())
        exchange = await MockProvider().send(sent, TimeLimits())
        return json.loads(await exchange.read(BYTES_MAX))

    assert run(take())["choices"][0]["finish_reason"] == "tool_calls"
