"""The real `openai` client, answered by Claude: by name, by pattern and as a fallback.

The client must not be able to tell: what it gets is checked by OpenAI's own schemas, and has no
field that an answer of OpenAI's has not. What Claude gets is checked by the rig.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.samples import SAMPLES
from tests.dialects.samples_anthropic import block, text_block
from tests.e2e.translated_rig import (
    CHAT_TOOLS,
    CLAUDE,
    FALLBACK,
    Rig,
    check_chat,
    check_responses,
    claude_says,
    claude_streams,
    fields_of,
    started,
    tool_use,
    unwell,
)
from tests.helpers.upstream import Reply, json_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

NAMED = f"anthropic/{CLAUDE}"
HI: list[Any] = [{"role": "user", "content": "hi"}]
PIECES = ("All ", "is ", "well \U0001f600.")
TEXT = "".join(PIECES)
STREAM = claude_streams(text_block(0, *PIECES))
CALL = {**tool_use("toolu_1", ""), "input": {}}
CALL_STREAM = claude_streams(
    text_block(0, "I look."),
    block(1, CALL, *({"type": "input_json_delta", "partial_json": part}
                     for part in ("", '{"city": ', '"Oslo"}'))),
    reason="tool_use",
)  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One proxy for all; each test has a session of its own."""
    with started(tmp_path_factory.mktemp("translated")) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    """The shared rig; what went upstream is checked at the end."""
    yield shared
    shared.close()


# The ways to Claude: (model that is asked for, headers).
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "by name": (NAMED, {}),
    "as a fallback": ("gpt-4o", {FALLBACK: NAMED}),
}
ways = pytest.mark.parametrize("way", WAYS)


def begin(rig: Rig, way: str, *replies: Reply) -> tuple[str, dict[str, str]]:
    """Script the upstreams for one way; return the model to ask for, and the headers."""
    is_fallback = way == "as a fallback"
    rig.script(openai=[unwell()] * (len(replies) if is_fallback else 0), claude=replies)
    return WAYS[way]


def check_marks(rig: Rig, headers: Any, way: str, dropped: str | None = None) -> None:
    """Check what the headers say of who answered."""
    index = list(WAYS).index(way)
    assert headers["x-agentstate-provider"] == "anthropic"
    assert headers["x-agentstate-model"] == CLAUDE
    assert headers["x-agentstate-fallback-index"] == str(index)
    assert headers["x-agentstate-attempts"] == str(index + 1)
    assert headers.get("x-agentstate-dropped") == dropped
    assert "anthropic-ratelimit-requests-limit" not in headers


# --- chat -----------------------------------------------------------------------------------------


@ways
def test_a_plain_answer(rig: Rig, way: str) -> None:
    session = f"plain {way}"
    model, headers = begin(rig, way, claude_says(TEXT))
    client = rig.openai_client(session, **headers)
    body = {"model": model, "messages": HI, "seed": 7, "temperature": 0}

    raw = client.chat.completions.with_raw_response.create(**body)
    answer = raw.parse()

    assert answer.choices[0].message.content == TEXT
    assert (answer.model, answer.choices[0].finish_reason) == (CLAUDE, "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (20, 7)
    assert answer.usage.prompt_tokens_details.cached_tokens == 5
    check_marks(rig, raw.headers, way, dropped="seed")
    (request,) = rig.claude.received
    assert request.json()["temperature"] == 0
    assert (request.header("x-api-key"), request.header("authorization")) == (
        "sk-of-anthropic",
        None,
    )
    attempts = rig.step(session)["attempts"]
    assert [each["provider"] for each in attempts][-1] == "anthropic"
    assert [each["dropped"] for each in attempts][-1] == ["seed"]
    asked = rig.asked()
    for streams in (False, True):
        again = rig.post("/v1/chat/completions", {**body, "stream": streams}, session, **headers)
        check_chat(again)
        assert again.header("x-agentstate-cache-hit") == "true"
    assert rig.asked() == asked, "a replay asks nobody"


@ways
def test_a_stream(rig: Rig, way: str) -> None:
    session = f"stream {way}"
    model, headers = begin(rig, way, STREAM)
    client = rig.openai_client(session, **headers)
    body = {"model": model, "messages": HI, "stream_options": {"include_usage": True}}

    raw = client.chat.completions.with_raw_response.create(**body, stream=True)
    chunks = list(raw.parse())

    deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert [delta for delta in deltas if delta] == [*PIECES]
    assert chunks[-1].usage.total_tokens == 27
    assert {chunk.model for chunk in chunks} == {CLAUDE}
    assert len({chunk.id for chunk in chunks}) == 1
    assert raw.headers["x-agentstate-provider"] == "anthropic"
    assert raw.headers["x-agentstate-fallback-index"] == str([*WAYS].index(way))
    rig.step(session)
    asked = rig.asked()
    same = rig.post("/v1/chat/completions", {**body, "stream": True}, session, **headers)
    check_chat(same)
    whole = client.chat.completions.create(model=model, messages=HI)
    assert whole.choices[0].message.content == TEXT
    assert whole.id == chunks[0].id
    assert rig.asked() == asked, "a replay asks nobody"


def test_the_helper_for_streams_with_a_tool(rig: Rig) -> None:
    rig.script(claude=[CALL_STREAM])
    client = rig.openai_client("helper")

    with client.chat.completions.stream(model=NAMED, messages=HI, tools=CHAT_TOOLS) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()

    assert {"content.delta", "tool_calls.function.arguments.delta"} <= kinds
    message = final.choices[0].message
    (call,) = message.tool_calls
    assert (call.id, call.function.name) == ("toolu_1", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert (message.content, final.choices[0].finish_reason) == ("I look.", "tool_calls")


def test_an_answer_that_is_parsed_into_a_model(rig: Rig) -> None:
    pydantic = pytest.importorskip("pydantic")
    weather = pydantic.create_model("Weather", city=(str, ...), degrees=(int, ...))
    rig.script(claude=[claude_says('{"city": "Oslo", "degrees": 5}')])

    answer = rig.openai_client("parsed").chat.completions.parse(
        model=NAMED, messages=HI, response_format=weather
    )

    assert answer.choices[0].message.parsed == weather(city="Oslo", degrees=5)
    wanted = rig.claude.received[0].json()["output_config"]["format"]
    assert wanted["type"] == "json_schema"
    assert wanted["schema"]["required"] == ["city", "degrees"]


@pytest.mark.parametrize("streams", [False, True])
@ways
def test_an_agent_with_tools(rig: Rig, way: str, streams: bool) -> None:
    session = f"agent {way} {streams}"
    first = CALL_STREAM if streams else claude_says(
        "I look.", tool_use("toolu_1", "Oslo"), tool_use("toolu_2", "Rome"), reason="tool_use"
    )  # fmt: skip
    model, headers = begin(rig, way, first, STREAM if streams else claude_says(TEXT))
    client = rig.openai_client(session, **headers)

    texts = [run_agent(client, model, streams=streams) for _ in range(2)]

    assert texts == [TEXT, TEXT]
    assert len(rig.claude.received) == 2, "the second run is a replay"
    _, asked, results = rig.claude.received[1].json()["messages"]
    ids = [each["id"] for each in asked["content"] if each["type"] == "tool_use"]
    assert ids == (["toolu_1"] if streams else ["toolu_1", "toolu_2"])
    assert [each["content"] for each in results["content"]] == [
        "5 degrees in Oslo", "5 degrees in Rome"
    ][: len(ids)]  # fmt: skip
    assert len(rig.proxy.settled_steps(session)) == 2


def run_agent(client: Any, model: str, *, streams: bool) -> str:
    """Ask, run the tools that are called, and go on until there is a text."""
    messages = list(HI)
    while True:
        asked = {"model": model, "messages": messages, "tools": CHAT_TOOLS}
        if streams:
            with client.chat.completions.stream(**asked) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        if not message.tool_calls:
            return str(message.content)
        messages.append(message.to_dict())
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            told = f"5 degrees in {city}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": told})


@pytest.mark.parametrize("kind", ["text", "tool calls"])
def test_nobody_can_tell_by_the_shape(rig: Rig, kind: str) -> None:
    """No field is there that OpenAI's own answers have not, and none is missing that its clients
    rely on."""
    blocks = (tool_use("toolu_1", "Oslo"),) if kind == "tool calls" else (TEXT,)
    rig.script(
        openai=[json_reply(json.loads(SAMPLES["openai_chat"].bodies[kind]))],
        claude=[claude_says(*blocks, reason="tool_use" if kind == "tool calls" else "end_turn")],
    )
    client = rig.openai_client(f"shape {kind}")

    theirs, ours = (
        client.chat.completions.create(model=model, messages=HI) for model in ("gpt-4o", NAMED)
    )

    assert ours.model_dump().keys() == theirs.model_dump().keys()
    sent = [fields_of(each.to_dict(exclude_unset=True)) for each in (ours, theirs)]
    details = {field for field in sent[0] if "_details." in field}
    assert sent[0] - details <= sent[1]
    assert sent[1] - sent[0] <= {".service_tier", ".system_fingerprint"}
    assert ours.id.startswith("chatcmpl-")


# --- responses ------------------------------------------------------------------------------------


@ways
def test_a_response(rig: Rig, way: str) -> None:
    session = f"response {way}"
    model, headers = begin(rig, way, claude_says(TEXT))
    client = rig.openai_client(session, **headers)
    body = {"model": model, "instructions": "Be kind.", "input": "hi", "top_logprobs": 2}

    raw = client.responses.with_raw_response.create(**body)
    answer = raw.parse()

    assert (answer.output_text, answer.status, answer.model) == (TEXT, "completed", CLAUDE)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (20, 7)
    check_marks(rig, raw.headers, way, dropped="top_logprobs")
    assert rig.claude.received[0].json()["system"] == "Be kind."
    rig.step(session)
    asked = rig.asked()
    for streams in (False, True):
        again = rig.post("/v1/responses", {**body, "stream": streams}, session, **headers)
        check_responses(again)
    assert rig.asked() == asked


@ways
def test_a_response_as_a_stream_with_a_tool(rig: Rig, way: str) -> None:
    session = f"response stream {way}"
    model, headers = begin(rig, way, CALL_STREAM, STREAM)
    client = rig.openai_client(session, **headers)
    tool = {"type": "function", **CHAT_TOOLS[0]["function"], "strict": True}
    given: list[Any] = [{"role": "user", "content": "hi"}]

    called = final_response(client, model, given, tool)
    (call,) = [each for each in called.output if each.type == "function_call"]
    given += [each.to_dict() for each in called.output]
    given.append({"type": "function_call_output", "call_id": call.call_id, "output": "5 degrees"})
    said = final_response(client, model, given, tool)

    assert json.loads(call.arguments) == {"city": "Oslo"}
    assert said.output_text == TEXT
    rig.proxy.settled_steps(session)
    again = client.responses.create(model=model, input=given, tools=[tool])
    assert again.output_text == TEXT
    assert len(rig.claude.received) == 2
    same = {"model": model, "input": given, "tools": [tool], "stream": True}
    check_responses(rig.post("/v1/responses", same, session, **headers))


def final_response(client: Any, model: str, given: list[Any], tool: Any) -> Any:
    """Stream a response with the client's helper and return it whole."""
    with client.responses.stream(model=model, input=given, tools=[tool]) as stream:
        assert [event.type for event in stream][-1] == "response.completed"
        return stream.get_final_response()


# --- by pattern -----------------------------------------------------------------------------------


def test_a_model_goes_to_the_provider_whose_pattern_it_fits(tmp_path: Path) -> None:
    """Where OpenAI is OpenAI: behind another address anything may be."""
    with started(tmp_path, openai_base="https://api.openai.com/v1") as rig:
        rig.script(claude=[claude_says(TEXT), STREAM])
        client = rig.openai_client("pattern")

        answer = client.chat.completions.create(model=CLAUDE, messages=HI)
        chunks = client.chat.completions.create(model=CLAUDE, messages=[*HI, *HI], stream=True)

        assert answer.choices[0].message.content == TEXT
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
        assert rig.asked() == (0, 2)
        rig.close()
