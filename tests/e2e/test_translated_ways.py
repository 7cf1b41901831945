"""What else a call goes through that another vendor answers: gate, links, no session, other doors.

Real clients and a real proxy; requests that go upstream are checked by the rig.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.dialects.samples_anthropic import block, text_block
from tests.e2e.translated_rig import (
    CHAT_TOOLS,
    CLAUDE,
    FALLBACK,
    GUARDED,
    Rig,
    chat_call,
    check_chat,
    check_messages,
    check_responses,
    claude_says,
    claude_streams,
    gpt_says,
    gpt_streams,
    started,
    tool_use,
    unwell,
)
from tests.helpers.people import approve, reject
from tests.helpers.upstream import Reply, json_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

NAMED = f"anthropic/{CLAUDE}"
HI: list[Any] = [{"role": "user", "content": "hi"}]
PATH = "/v1/chat/completions"
DELETE = tool_use("toolu_1", "Oslo", GUARDED)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One proxy for all; each test has a session of its own."""
    with started(tmp_path_factory.mktemp("translated-ways")) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    """The shared rig; what went upstream is checked at the end."""
    yield shared
    shared.close()


# --- the gate -------------------------------------------------------------------------------------


def delete_reply(*, streams: bool) -> Reply:
    """Return Claude's call of the guarded tool, after a few words."""
    if not streams:
        return claude_says("I delete.", DELETE, reason="tool_use")
    parts = [{"type": "input_json_delta", "partial_json": part} for part in ('{"city"', ':"Oslo"}')]
    blocks = text_block(0, "I ", "delete."), block(1, {**DELETE, "input": {}}, *parts)
    return claude_streams(*blocks, reason="tool_use")


@pytest.mark.parametrize("streams", [False, True])
def test_a_guarded_call_of_claudes_is_held_and_goes_out_as_it_was(rig: Rig, streams: bool) -> None:
    session = f"approved {streams}"
    rig.script(claude=[delete_reply(streams=streams)])
    body = {"model": NAMED, "messages": HI, "tools": CHAT_TOOLS, "stream": streams}

    with ThreadPoolExecutor() as pool:
        asking = pool.submit(rig.post, PATH, body, session)
        row = approve(rig.proxy, session=session)
        got = asking.result()
    again = rig.post(PATH, body, session)

    check_chat(got)
    assert (row["tool"], json.loads(row["arguments"])) == (GUARDED, {"city": "Oslo"})
    assert b"toolu_1" in got.body
    assert b"toolu_1" in again.body
    held = got.body.replace(b": held\n\n", b"")
    assert held == again.body
    assert rig.asked() == (0, 1)


@pytest.mark.parametrize("streams", [False, True])
def test_a_rejected_call_is_told_to_claude_in_its_own_form(rig: Rig, streams: bool) -> None:
    session = f"rejected {streams}"
    said = claude_streams(text_block(0, "Then not.")) if streams else claude_says("Then not.")
    rig.script(claude=[delete_reply(streams=streams), said, claude_says("Bye.")])
    client = rig.openai_client(session, x_agent_on_reject="continue")
    asked = {"model": NAMED, "messages": HI, "tools": CHAT_TOOLS}

    with ThreadPoolExecutor() as pool:
        asking = pool.submit(complete, client, asked, streams)
        reject(rig.proxy, session=session, reason="Too dangerous.")
        message = asking.result()

    assert message.content is not None
    assert message.content.startswith("I delete.")
    assert message.content.endswith("Then not.")
    assert not message.tool_calls
    told = rig.claude.received[1].json()["messages"]
    assert [each["role"] for each in told] == ["user", "assistant", "user"]
    assert told[1]["content"][-1] == DELETE
    (result,) = told[2]["content"]
    assert result["tool_use_id"] == "toolu_1"
    assert "Too dangerous." in json.dumps(result)

    # What the client has of it is the end alone; Claude gets all of it.
    messages = [*HI, message.to_dict(), {"role": "user", "content": "Bye?"}]
    last = client.chat.completions.create(**{**asked, "messages": messages})

    assert last.choices[0].message.content == "Bye."
    carried = rig.claude.received[2].json()["messages"]
    assert carried[: len(told)] == told
    assert carried[-1]["content"][-1] == {"type": "text", "text": "Bye?"}
    assert rig.asked() == (0, 3)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("caller", ["messages", "responses"])
def test_every_caller_is_told_the_end_of_a_rejected_call(
    rig: Rig, caller: str, streams: bool
) -> None:
    session = f"rejected for {caller} {streams}"
    call = {"index": 0, **chat_call("call_1", "Oslo", GUARDED)}
    headers = {"x-agent-on-reject": "continue"}
    body: dict[str, Any] = {"model": NAMED, "input": "hi", "stream": streams}
    if caller == "messages":
        said = gpt_streams({"content": "Then not."}) if streams else gpt_says("Then not.")
        called = gpt_streams({"tool_calls": [call]}, reason="tool_calls")
        rig.script(openai=[called if streams else gpt_says(None, call), said])
        body = {"model": "openai/gpt-4o", "max_tokens": 9, "messages": HI, "stream": streams}
        headers["anthropic-version"] = "2023-06-01"
    else:
        said = claude_streams(text_block(0, "Then not.")) if streams else claude_says("Then not.")
        rig.script(claude=[delete_reply(streams=streams), said])

    with ThreadPoolExecutor() as pool:
        asking = pool.submit(rig.post, f"/v1/{caller}", body, session, **headers)
        reject(rig.proxy, session=session, reason="Too dangerous.")
        got = asking.result()
    again = rig.post(f"/v1/{caller}", body, session, **headers)

    (check_messages if caller == "messages" else check_responses)(got)
    assert b"Then not." in got.body
    assert GUARDED.encode() not in got.body
    assert b"Then not." in again.body
    second = (*rig.openai.received, *rig.claude.received)[1].json()
    assert "Too dangerous." in json.dumps(second["messages"][-1])
    assert sum(rig.asked()) == 2


def complete(client: Any, asked: dict[str, Any], streams: bool) -> Any:
    """Ask and return the message."""
    if not streams:
        return client.chat.completions.create(**asked).choices[0].message
    with client.chat.completions.stream(**asked) as stream:
        return stream.get_final_completion().choices[0].message


# --- from one to the other and back ---------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
def test_a_conversation_goes_to_another_vendor_and_back(rig: Rig, streams: bool) -> None:
    """A call of each; the rig checks that each history is one that its vendor takes."""
    session = f"to and fro {streams}"
    rig.script(
        openai=[
            gpt_call("call_1", streams), unwell(), gpt_call("call_3", streams),
            gpt_streams({"content": "Done."}) if streams else gpt_says("Done."),
        ],
        claude=[claude_call("toolu_2", streams)],
    )  # fmt: skip
    client = rig.openai_client(session, **{FALLBACK: NAMED})
    messages = list(HI)

    while (message := complete(client, asked_with(messages), streams)).tool_calls:
        messages.append(message.to_dict())
        for call in message.tool_calls:
            told = {"role": "tool", "tool_call_id": call.id, "content": f"of {call.id}"}
            messages.append(told)

    assert message.content == "Done."
    assert rig.asked() == (4, 1)
    heard = rig.claude.received[0].json()["messages"]
    assert [each["role"] for each in heard] == ["user", "assistant", "user"]
    assert heard[2]["content"][0]["tool_use_id"] == "call_1"
    last = rig.openai.received[-1].json()["messages"]
    ids = [call["id"] for each in last for call in each.get("tool_calls") or ()]
    assert ids == ["call_1", "toolu_2", "call_3"]
    assert last == messages, "the client's own history passes as it is"
    steps = rig.proxy.settled_steps(session)
    assert [step["provider"] for step in steps] == ["openai", "anthropic", "openai", "openai"]


def asked_with(messages: list[Any]) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": messages, "tools": CHAT_TOOLS}


def gpt_call(call_id: str, streams: bool) -> Reply:
    call = chat_call(call_id, "Oslo")
    if not streams:
        return gpt_says(None, call)
    return gpt_streams({"tool_calls": [{"index": 0, **call}]}, reason="tool_calls")


def claude_call(call_id: str, streams: bool) -> Reply:
    call = tool_use(call_id, "Rome")
    if not streams:
        return claude_says(call, reason="tool_use")
    piece = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
    return claude_streams(block(0, {**call, "input": {}}, piece), reason="tool_use")


def test_claudes_thoughts_stay_claudes(rig: Rig) -> None:
    """They go back to it as they were, and to nobody else."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "EqRk/+=="}
    rig.script(
        openai=[gpt_says(None, chat_call("call_2", "Rome"))],
        claude=[
            claude_says(thought, tool_use("toolu_1", "Oslo"), reason="tool_use"), unwell(529),
            claude_says("Done."),
        ],
    )  # fmt: skip
    client = rig.anthropic_client("thoughts", **{FALLBACK: "openai/gpt-4o"})
    messages = list(HI)

    for _ in range(3):
        answer = client.messages.create(model=CLAUDE, max_tokens=64, messages=messages)
        messages.append(
            {"role": "assistant", "content": [each.to_dict() for each in answer.content]}
        )
        results: list[Any] = [
            {"type": "tool_result", "tool_use_id": each.id, "content": "5 degrees"}
            for each in answer.content
            if each.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})

    assert answer.content[0].text == "Done."
    (elsewhere,) = (request.json() for request in rig.openai.received)
    assert "EqRk" not in json.dumps(elsewhere)
    assert "thinking" not in json.dumps(elsewhere)
    last = rig.claude.received[-1].json()["messages"]
    assert last[1]["content"][0] == thought
    assert [each["content"][-1].get("id") for each in last[1::2]] == ["toolu_1", "call_2"]


# --- links ----------------------------------------------------------------------------------------


def test_what_goes_on_from_an_answer_of_another_vendor_is_written_out(rig: Rig) -> None:
    said = json.loads(claude_says("One.").chunks[0])
    rig.script(openai=[unwell(), unwell()], claude=[json_reply(said), claude_says("Two.")])
    client = rig.openai_client("linked", **{FALLBACK: NAMED})

    first = client.responses.create(model="gpt-4o", input="Count.", instructions="Be kind.")
    second = client.responses.create(model="gpt-4o", input="Go on.", previous_response_id=first.id)

    assert (first.output_text, second.output_text) == ("One.", "Two.")
    assert second.previous_response_id == first.id
    whole = rig.claude.received[1].json()
    assert [(each["role"], each["content"][0]["text"]) for each in whole["messages"]] == [
        ("user", "Count."),
        ("assistant", "One."),
        ("user", "Go on."),
    ]
    # The vendor of the endpoint never saw the first answer either.
    asked = rig.openai.received[1].json()
    assert "previous_response_id" not in asked
    assert "One." in json.dumps(asked["input"])
    assert "Be kind." not in json.dumps(asked), "instructions are not carried over"


def test_a_link_that_is_not_on_record_is_refused_where_nobody_knows_it(rig: Rig) -> None:
    rig.script()
    body = {"model": NAMED, "input": "Go on.", "previous_response_id": "resp_of_long_ago"}

    got = rig.post("/v1/responses", body, "unlinked")

    assert got.status == 400
    error = got.json()["error"]
    assert error["param"] == "previous_response_id"
    assert "anthropic does not" in error["message"]
    assert "Send the whole conversation." in error["message"]
    assert rig.asked() == (0, 0)


def test_a_fallback_that_does_not_know_the_link_is_not_asked(rig: Rig) -> None:
    rig.script(openai=[unwell()])
    body = {"model": "gpt-4o", "input": "Go on.", "previous_response_id": "resp_of_long_ago"}

    got = rig.post("/v1/responses", body, "unlinked fallback", **{FALLBACK: NAMED})

    assert got.status == 503, "what the client sees is the first one's error"
    assert rig.asked() == (1, 0)
    assert rig.openai.received[0].json() == body, "who may know it gets it as it came"
    assert f"anthropic/{CLAUDE}" in str(got.header("x-agentstate-tried"))
    (step,) = rig.proxy.settled_steps("unlinked fallback")
    assert [each["provider"] for each in step["attempts"]] == ["openai", "anthropic"]


# --- no session -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["by name", "as a fallback"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_call_without_a_session_is_answered_and_not_recorded(
    rig: Rig, way: str, streams: bool
) -> None:
    is_fallback = way == "as a fallback"
    said = claude_streams(text_block(0, "All ", "well.")) if streams else claude_says("All well.")
    rig.script(openai=[unwell()] * is_fallback, claude=[said, said])
    model = "gpt-4o" if is_fallback else NAMED
    headers = {FALLBACK: NAMED} if is_fallback else {}
    body = {"model": model, "messages": HI, "stream": streams, "seed": 7}

    got = rig.post(PATH, body, None, **headers)

    check_chat(got)
    assert "well." in got.body.decode()
    assert got.header("x-agentstate-provider") == "anthropic"
    assert got.header("x-agentstate-dropped") == "seed"
    assert got.header("x-agentstate-fallback-index") == str(int(is_fallback))
    assert got.header("x-agentstate-session") is None
    assert rig.asked() == (int(is_fallback), 1)


def test_a_client_without_a_session_streams_with_its_helper(rig: Rig) -> None:
    rig.script(openai=[unwell()], claude=[claude_call("toolu_9", True)])
    client = rig.openai_client(None, **{FALLBACK: NAMED})

    message = complete(client, asked_with(HI), True)

    assert message.tool_calls[0].id == "toolu_9"
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Rome"}


# --- other doors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
def test_a_provider_in_the_url_gets_the_callers_key_and_its_own_form(
    rig: Rig, streams: bool
) -> None:
    anthropic = pytest.importorskip("anthropic")
    pieces = ({"content": "All "}, {"content": "well."})
    rig.script(openai=[gpt_streams(*pieces) if streams else gpt_says("All well.")])
    client = anthropic.Anthropic(
        base_url=f"{rig.proxy.url}/s/in-url-{streams}/p/groq", api_key="gsk-theirs", max_retries=0
    )
    asked = {"model": "llama-3.3-70b-versatile", "max_tokens": 9, "messages": HI}

    with client:
        if streams:
            with client.messages.stream(**asked) as stream:
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(**asked)

    assert answer.content[0].text == "All well."
    (request,) = rig.openai.received
    assert request.target == "/groq/v1/chat/completions"
    assert request.header("authorization") == "Bearer gsk-theirs"
    assert request.header("x-api-key") is None
    assert request.json()["max_tokens"] == 9


def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"5 degrees in {city}"


@pytest.mark.parametrize("provider", ["mock", "groq"])
def test_geminis_client_is_answered_in_the_chat_form(rig: Rig, provider: str) -> None:
    genai = pytest.importorskip("google.genai", reason="needs the google-genai package")
    model = "llama-3.3-70b-versatile"
    rig.script(
        openai=[
            gpt_says(None, chat_call("call_1", "Oslo")), gpt_says("It is cold."),
            gpt_streams({"content": "It is "}, {"content": "cold."}),
        ]
        * (provider == "groq")
    )  # fmt: skip
    options = genai.types.HttpOptions(base_url=f"{rig.proxy.url}/s/genai-{provider}/p/{provider}")
    client = genai.Client(api_key="gsk-theirs", http_options=options)

    def run() -> tuple[str, str]:
        text = "Please get_weather city=Oslo"
        answer = client.models.generate_content(
            model=model, contents=text, config={"tools": [get_weather]}
        )
        chunks = client.models.generate_content_stream(model=model, contents="Again.")
        return str(answer.text), "".join(chunk.text or "" for chunk in chunks)

    first = run()
    steps = rig.proxy.settled_steps(f"genai-{provider}")
    again = run()
    client.close()

    assert first == again
    assert len(steps) == 3
    assert {step["provider"] for step in steps} == {provider}
    if provider == "groq":
        assert first == ("It is cold.", "It is cold.")
        assert len(rig.openai.received) == 3
        result = rig.openai.received[1].json()["messages"][-1]
        assert (result["role"], result["tool_call_id"]) == ("tool", "call_1")
        assert "5 degrees in Oslo" in result["content"]
    else:
        assert "5 degrees in Oslo" in first[0]
