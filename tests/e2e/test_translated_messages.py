"""The real `anthropic` client, answered by a model that speaks the chat form.

By name and as a fallback. What the client gets is checked by its own package's types, and the chat
requests that go upstream by OpenAI's schema (in the rig).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.samples import call_delta
from tests.dialects.samples_anthropic import BODIES
from tests.e2e.translated_rig import (
    CLAUDE,
    FALLBACK,
    MESSAGES_TOOLS,
    Rig,
    chat_call,
    check_messages,
    fields_of,
    gpt_says,
    gpt_streams,
    started,
    unwell,
)
from tests.helpers.upstream import Reply, json_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

NAMED = "openai/gpt-4o"
ANSWERED_AS = "gpt-4o"
HI: list[Any] = [{"role": "user", "content": "hi"}]
PIECES = ("All ", "is ", "well \U0001f600.")
TEXT = "".join(PIECES)
STREAM = gpt_streams(*({"content": piece} for piece in PIECES))
CALL_STREAM = gpt_streams(
    {"content": "I look."},
    {"tool_calls": [call_delta(0, "", "call_1", "get_weather")]},
    {"tool_calls": [call_delta(0, '{"city": ')]},
    {"tool_calls": [call_delta(1, "", "call_2", "get_weather")]},
    {"tool_calls": [call_delta(0, '"Oslo"}'), call_delta(1, '{"city": "Rome"}')]},
    reason="tool_calls",
)
CALLS = (chat_call("call_1", "Oslo"), chat_call("call_2", "Rome"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One proxy for all; each test has a session of its own."""
    with started(tmp_path_factory.mktemp("translated-messages")) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    """The shared rig; what went upstream is checked at the end."""
    yield shared
    shared.close()


# The ways to the other vendor: (model that is asked for, headers).
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "by name": (NAMED, {}),
    "as a fallback": (CLAUDE, {FALLBACK: NAMED}),
}
ways = pytest.mark.parametrize("way", WAYS)


def begin(rig: Rig, way: str, *replies: Reply) -> tuple[str, dict[str, str]]:
    """Script the upstreams for one way; return the model to ask for, and the headers."""
    is_fallback = way == "as a fallback"
    rig.script(openai=replies, claude=[unwell(529)] * (len(replies) if is_fallback else 0))
    return WAYS[way]


@ways
def test_a_plain_answer(rig: Rig, way: str) -> None:
    session = f"plain {way}"
    model, headers = begin(rig, way, gpt_says(TEXT))
    client = rig.anthropic_client(session, **headers)
    body = {"model": model, "max_tokens": 64, "messages": HI, "system": "Be kind."}
    more = {"stop_sequences": ["END"], "thinking": {"type": "enabled", "budget_tokens": 1024}}

    raw = client.messages.with_raw_response.create(**body, **more)
    answer = raw.parse()

    assert [each.text for each in answer.content] == [TEXT]
    assert (answer.model, answer.stop_reason) == (ANSWERED_AS, "end_turn")
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (12, 8)
    assert answer.usage.output_tokens == 7
    index = [*WAYS].index(way)
    assert raw.headers["x-agentstate-provider"] == "openai"
    assert raw.headers["x-agentstate-model"] == "gpt-4o-mini-2024-07-18"
    assert raw.headers["x-agentstate-fallback-index"] == str(index)
    assert raw.headers["x-agentstate-dropped"] == "thinking"
    (request,) = rig.openai.received
    asked = request.json()
    assert asked["messages"][0] == {"role": "system", "content": "Be kind."}
    assert (asked["stop"], asked["max_completion_tokens"]) == (["END"], 64)
    assert (request.header("authorization"), request.header("x-api-key")) == (
        "Bearer sk-of-openai",
        None,
    )
    assert request.header("anthropic-version") is None
    attempts = rig.step(session)["attempts"]
    assert [each["dropped"] for each in attempts] == [*([[]] * index), ["thinking"]]
    before = rig.asked()
    version = {"anthropic-version": client.default_headers["anthropic-version"]}
    for streams in (False, True):
        same = {**body, **more, "stream": streams}
        again = rig.post("/v1/messages", same, session, **version, **headers)
        check_messages(again)
        assert again.header("x-agentstate-cache-hit") == "true"
    assert rig.asked() == before, "a replay asks nobody"


@ways
def test_a_stream(rig: Rig, way: str) -> None:
    session = f"stream {way}"
    model, headers = begin(rig, way, STREAM)
    client = rig.anthropic_client(session, **headers)
    asked = {"model": model, "max_tokens": 64, "messages": HI}

    with client.messages.stream(**asked) as stream:
        texts = list(stream.text_stream)
        streamed = stream.get_final_message()

    assert texts == [*PIECES]
    assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (12, 7)
    rig.step(session)
    before = rig.asked()
    whole = client.messages.create(**asked)
    assert whole.to_dict(exclude_none=True) == streamed.to_dict(exclude_none=True)
    version = {"anthropic-version": client.default_headers["anthropic-version"]}
    same = rig.post("/v1/messages", {**asked, "stream": True}, session, **version, **headers)
    check_messages(same)
    assert same.header("x-agentstate-provider") == "openai"
    assert rig.asked() == before, "a replay asks nobody"


@pytest.mark.parametrize("streams", [False, True])
@ways
def test_an_agent_with_tools(rig: Rig, way: str, streams: bool) -> None:
    session = f"agent {way} {streams}"
    first = CALL_STREAM if streams else gpt_says("I look.", *CALLS)
    model, headers = begin(rig, way, first, STREAM if streams else gpt_says(TEXT))
    client = rig.anthropic_client(session, **headers)

    texts = [run_agent(client, model, streams=streams) for _ in range(2)]

    assert texts == [TEXT, TEXT]
    assert len(rig.openai.received) == 2, "the second run is a replay"
    _, asked, *results = rig.openai.received[1].json()["messages"]
    assert asked["content"] == "I look."
    assert [call["id"] for call in asked["tool_calls"]] == ["call_1", "call_2"]
    assert [(each["tool_call_id"], each["content"]) for each in results] == [
        ("call_1", "5 degrees in Oslo"),
        ("call_2", "5 degrees in Rome"),
    ]
    assert len(rig.proxy.settled_steps(session)) == 2


def run_agent(client: Any, model: str, *, streams: bool) -> str:
    """Ask, run the tools that are called, and go on until there is a text."""
    messages = list(HI)
    while True:
        asked = {"model": model, "max_tokens": 64, "messages": messages, "tools": MESSAGES_TOOLS}
        if streams:
            with client.messages.stream(**asked) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**asked)
        calls = [each for each in message.content if each.type == "tool_use"]
        if not calls:
            return "".join(each.text for each in message.content)
        assert message.stop_reason == "tool_use"
        # As many agents do: all that the model has, the helper's own fields left out.
        kept = {"type", "text", "id", "name", "input"}
        blocks = [each.model_dump(include=kept, exclude_none=True) for each in message.content]
        messages.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": call.id,
             "content": f"5 degrees in {call.input['city']}"}
            for call in calls
        ]  # fmt: skip
        messages.append({"role": "user", "content": results})


@pytest.mark.parametrize("kind", ["text", "tool calls"])
def test_nobody_can_tell_by_the_shape(rig: Rig, kind: str) -> None:
    calls = CALLS if kind == "tool calls" else ()
    rig.script(openai=[gpt_says("I look.", *calls)], claude=[json_reply(json.loads(BODIES[kind]))])
    client = rig.anthropic_client(f"shape {kind}")

    theirs, ours = (
        client.messages.create(model=model, max_tokens=64, messages=HI) for model in (CLAUDE, NAMED)
    )

    assert ours.model_dump().keys() == theirs.model_dump().keys()
    sent = [fields_of(each.to_dict(exclude_unset=True)) for each in (ours, theirs)]
    # Of thoughts it tells where there were some, which is not in the sample.
    assert {path for path in sent[0] - sent[1] if "output_tokens_details" not in path} == set()
    missing = {
        path for path in sent[1] - sent[0] if not path.startswith((".usage.", ".content[]."))
    }
    assert missing == set()
    assert ours.id.startswith("msg_")
