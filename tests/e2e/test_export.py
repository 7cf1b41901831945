"""Runs that took place come out as training data: real clients, the real proxy, all dialects.

The agent of each test asks for the weather of two cities, calls its tool for both at once, and is
told the answer. What is exported must be that conversation, whatever form it was held in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agentstate.house.export import make_line
from agentstate.house.export_base import Format, Wanted
from tests.helpers.datasets import load
from tests.helpers.people import decide, wait_for_pending
from tests.helpers.proxy import ONCE, Proxy
from tests.helpers.raw_client import Pair, ask
from tests.helpers.training_lines import faults, split_lines
from tests.helpers.upstream import Received, Reply, Upstream, json_reply, sse_reply
from tests.house.test_export import corpus

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SYSTEM = "Be brief."
ASKED = "How is the weather?\u2028Look it up."
CITIES = ("Oslo", "Zürich")
WEATHER = {"Oslo": '{"celsius": 5}', "Zürich": "7 °C, as ever"}
TEXT = "Oslo: 5 °C. Zürich: 7 °C."
NAME = "get_weather"
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Model(Upstream):
    """Calls the tool for both cities, then says how it is there; in every form."""

    def reply_to(self, request: Received) -> Reply:
        asked, path = request.json(), request.target.partition("?")[0]
        match path.rpartition("/v1/")[2]:
            case "chat/completions":
                return _chat(asked)
            case "messages":
                return json_reply(_messages(asked))
            case "responses":
                return json_reply(_responses(asked, request.number))
        return json_reply({"error": {"message": f"nothing at {path}"}}, status=404)


def arguments(city: str) -> str:
    """Write the arguments as the model does, with its own white space."""
    return json.dumps({"city": city}, ensure_ascii=False, separators=(", ", ":  "))


def _chat(asked: dict[str, Any]) -> Reply:
    head = {"id": "chatcmpl-1", "created": 1, "model": "gpt-4o-mini"}
    if asked["messages"][-1]["role"] == "tool":
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": TEXT[at : at + 5]} for at in range(0, len(TEXT), 5)]
        finish = "stop"
    else:
        deltas = [{"role": "assistant", "content": None}]
        for at, city in enumerate(CITIES):
            function = {"name": NAME, "arguments": ""}
            opened = {"index": at, "id": f"call_{at}", "type": "function", "function": function}
            deltas.append({"tool_calls": [opened]})
            deltas += [
                {"tool_calls": [{"index": at, "function": {"arguments": char}}]}
                for char in arguments(city)
            ]
        finish = "tool_calls"
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks = [{**head, "object": "chat.completion.chunk", "choices": [each]} for each in choices]
    frames = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    return sse_reply([*frames, b"data: [DONE]\n\n"])


def _messages(asked: dict[str, Any]) -> dict[str, Any]:
    is_end = isinstance(asked["messages"][-1]["content"], list)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": TEXT}]
    if not is_end:
        blocks = [
            {"type": "tool_use", "id": f"toolu_{at}", "name": NAME, "input": {"city": city}}
            for at, city in enumerate(CITIES)
        ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-6",
        "content": blocks,
        "stop_reason": "end_turn" if is_end else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 9},
    }


def _responses(asked: dict[str, Any], number: int) -> dict[str, Any]:
    said = asked["input"]
    is_end = isinstance(said, list) and said[-1].get("type") == "function_call_output"
    part = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
    output: list[dict[str, Any]] = [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    ]
    if not is_end:
        output = [
            {
                "type": "function_call",
                "id": f"fc_{at}",
                "call_id": f"call_{at}",
                "name": NAME,
                "arguments": arguments(city),
                "status": "completed",
            }
            for at, city in enumerate(CITIES)
        ]
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": asked.get("instructions"),
        "metadata": {},
        "model": "gpt-5-mini",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": asked.get("tools", []),
        "top_p": 1.0,
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 18,
        },
    }


def conversation(ids: tuple[str, str], texts: tuple[str, str]) -> dict[str, Any]:
    """Return the line that the agent's run must come out as."""
    calls = [
        {"id": each, "type": "function", "function": {"name": NAME, "arguments": text}}
        for each, text in zip(ids, texts, strict=True)
    ]
    results = [
        {"role": "tool", "tool_call_id": each, "content": WEATHER[city]}
        for each, city in zip(ids, CITIES, strict=True)
    ]
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": ASKED},
            {"role": "assistant", "content": None, "tool_calls": calls},
            *results,
            {"role": "assistant", "content": TEXT},
        ],
        "tools": [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}],
    }


WRITTEN = (arguments(CITIES[0]), arguments(CITIES[1]))
# Where arguments are objects on the wire, their text is ours.
PLAIN = ('{"city":"Oslo"}', '{"city":"Z\\u00fcrich"}')


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One proxy for all; each test has a session of its own."""
    db = tmp_path_factory.mktemp("export") / "record.db"
    with Model() as model, Proxy(upstream_url=model.url, db=db, env=ONCE) as proxy:
        yield proxy


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def client(proxy: Proxy, session: str) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(
        base_url=proxy.base_url,
        api_key="sk-test",
        max_retries=0,
        default_headers={"x-agent-session-id": session},
    ) as made:
        yield made


def export(proxy: Proxy, session: str, form: str = "openai") -> list[Any]:
    """Export a session; each line must be one that a trainer takes."""
    proxy.settled_steps(session)
    status, body = proxy.get(f"/api/sessions/{quote(session, safe='')}/export?format={form}")
    assert status == 200, body
    lines = split_lines(body)
    assert [faults(line, form) for line in lines] == [()] * len(lines)
    return [json.loads(line) for line in lines]


def run_chat(client: Any) -> None:
    """Be an agent of the chat dialect; stream what it is told."""
    tools = [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}]
    messages: list[Any] = [
        {"role": "developer", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": ASKED}]},
    ]
    while True:
        with client.chat.completions.stream(
            model="gpt-4o-mini", messages=messages, tools=tools
        ) as stream:
            said = stream.get_final_completion().choices[0].message
        messages.append(said.model_dump(exclude={"parsed"}, exclude_none=True))
        if not said.tool_calls:
            return
        for call in said.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": WEATHER[city]})


def test_a_run_of_the_chat_dialect(proxy: Proxy, client: Any, session: str) -> None:
    run_chat(client)

    expected = conversation(("call_0", "call_1"), WRITTEN)
    assert export(proxy, session) == [expected]


def test_a_run_that_was_started_over_is_one_conversation(
    proxy: Proxy, client: Any, session: str
) -> None:
    for _ in range(3):  # the second and the third are replays
        run_chat(client)

    assert len(export(proxy, session)) == 1


def test_a_run_of_the_messages_dialect(proxy: Proxy, session: str) -> None:
    anthropic = pytest.importorskip("anthropic")
    headers = {"x-agent-session-id": session}
    messages: list[Any] = [{"role": "user", "content": ASKED}]
    with anthropic.Anthropic(
        base_url=proxy.url, api_key="sk-ant-test", max_retries=0, default_headers=headers
    ) as client:
        while True:
            said = client.messages.create(
                model="claude-opus-4-6",
                max_tokens=99,
                system=SYSTEM,
                messages=messages,
                tools=[{"name": NAME, "input_schema": SCHEMA}],
            )
            messages.append({"role": "assistant", "content": said.content})
            if said.stop_reason != "tool_use":
                break
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": WEATHER[block.input["city"]],
                }
                for block in said.content
            ]
            messages.append({"role": "user", "content": results})

    assert export(proxy, session) == [conversation(("toolu_0", "toolu_1"), PLAIN)]


@pytest.mark.parametrize("is_chained", [False, True])
def test_a_run_of_the_responses_dialect(
    proxy: Proxy, client: Any, session: str, is_chained: bool
) -> None:
    tools = [{"type": "function", "name": NAME, "parameters": SCHEMA, "strict": None}]
    said: list[Any] = [{"role": "user", "content": ASKED}]
    chain: dict[str, Any] = {}
    while True:
        answer = client.responses.create(
            model="gpt-5-mini", instructions=SYSTEM, input=said, tools=tools, **chain
        )
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            break
        results = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": WEATHER[json.loads(call.arguments)["city"]],
            }
            for call in calls
        ]
        if is_chained:  # the provider keeps what came before
            said, chain = results, {"previous_response_id": answer.id}
        else:
            said += [*calls, *results]

    assert export(proxy, session) == [conversation(("call_0", "call_1"), WRITTEN)]


def test_each_conversation_form_says_the_same(proxy: Proxy, client: Any, session: str) -> None:
    run_chat(client)

    [trl] = export(proxy, session, "trl")
    [axolotl] = export(proxy, session, "axolotl")

    expected = conversation(("call_0", "call_1"), WRITTEN)
    assert axolotl == expected
    for call in expected["messages"][2]["tool_calls"]:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    assert trl == expected


# -- what people decided


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[tuple[Proxy, Any]]:
    """A proxy that holds the tool's calls, and an agent's client."""
    openai = pytest.importorskip("openai")
    env = {**ONCE, "AGENTSTATE_GATE_TOOLS": NAME, "AGENTSTATE_GATE_ON_REJECT": "continue"}
    with (
        Model() as model,
        Proxy(upstream_url=model.url, db=tmp_path / "record.db", env=env) as proxy,
        openai.OpenAI(
            base_url=proxy.base_url,
            api_key="sk-test",
            max_retries=0,
            default_headers={"x-agent-session-id": "s"},
        ) as client,
    ):
        yield proxy, client


def ask_and_decide(gated: tuple[Proxy, Any], *decisions: dict[str, Any]) -> list[Any]:
    """Let the agent ask once, decide on its calls in order; return what it asked."""
    proxy, client = gated
    tools = [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}]
    asked: list[Any] = [{"role": "user", "content": ASKED}]
    with ThreadPoolExecutor(1) as agent:
        answer = agent.submit(
            client.chat.completions.create, model="gpt-4o-mini", messages=asked, tools=tools
        )
        held = wait_for_pending(proxy, count=len(decisions))
        by_place = sorted(held, key=lambda approval: int(approval["position"]))
        for approval, decision in zip(by_place, decisions, strict=True):
            decide(proxy, approval["id"], **decision)
        answer.result(30)
    return asked


def cities(line: dict[str, Any], key: str) -> list[str]:
    """Return the cities of the calls in the one answer of a line."""
    [answer] = line[key]
    found = []
    for call in answer["tool_calls"]:
        sent = call["function"]["arguments"]
        found.append((json.loads(sent) if isinstance(sent, str) else sent)["city"])
    return found


def test_edited_arguments_are_preferred_to_the_models_own(gated: tuple[Proxy, Any]) -> None:
    approves = {"action": "APPROVED"}
    asked = ask_and_decide(gated, {**approves, "arguments": {"city": "Bergen"}}, approves)

    [line] = export(gated[0], "s", "dpo")

    assert line["input"]["messages"] == asked
    assert cities(line, "preferred_output") == ["Bergen", "Zürich"]
    assert cities(line, "non_preferred_output") == ["Oslo", "Zürich"]
    [conversation_line] = export(gated[0], "s")
    assert cities({"last": conversation_line["messages"][-1:]}, "last") == ["Bergen", "Zürich"]


def test_what_was_approved_is_labelled_true(gated: tuple[Proxy, Any]) -> None:
    asked = ask_and_decide(gated, {"action": "APPROVED"}, {"action": "APPROVED"})

    [line] = export(gated[0], "s", "kto")

    assert line["prompt"] == asked
    assert cities(line, "completion") == ["Oslo", "Zürich"]
    assert line["label"] is True
    assert export(gated[0], "s", "dpo") == []


def test_what_was_refused_is_labelled_false_and_the_next_answer_is_preferred(
    gated: tuple[Proxy, Any],
) -> None:
    refuses = {"action": "REJECTED", "then": "continue", "reason": "no"}
    asked = ask_and_decide(gated, refuses, refuses)

    [label] = export(gated[0], "s", "kto")
    [pair] = export(gated[0], "s", "dpo")

    assert label["prompt"] == pair["input"]["messages"] == asked
    assert label["label"] is False
    assert cities(label, "completion") == ["Oslo", "Zürich"]
    assert cities(pair, "non_preferred_output") == ["Oslo", "Zürich"]
    assert pair["preferred_output"] == [{"role": "assistant", "content": TEXT}]


# -- the readers of trainers


def test_files_load_with_the_real_reader(
    proxy: Proxy, client: Any, session: str, tmp_path: Path
) -> None:
    """Rows of differing shape stand in one file: with tools and without, with calls and without,
    arguments of several types; and what no file can hold."""
    run_chat(client)
    said = [
        {"role": "user", "content": "half \ud83d, whole \U0001f600, \u2028\u0085\x00"},
        {"role": "tool", "tool_call_id": "none", "content": "x"},
    ]
    headers: tuple[Pair, ...] = (
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer sk-test"),
        (b"x-agent-session-id", session.encode()),
    )
    body = json.dumps({"model": "gpt-4o-mini", "messages": said}).encode()
    ask(proxy.address, "POST", "/v1/chat/completions", headers, body)
    proxy.settled_steps(session)
    for form in ("trl", "axolotl"):
        status, body = proxy.get(f"/api/export/dataset?format={form}")
        assert status == 200
        path = tmp_path / f"{form}.jsonl"
        path.write_bytes(body)
        expected = [json.loads(line) for line in split_lines(body)]
        assert len(expected) >= 2

        found = load({"train": path}, tmp_path)["train"]

        assert [without_none(row) for row in found] == [without_none(row) for row in expected]


def without_none(value: Any) -> Any:
    """Return a value without what is None: a column that a row does not have is None."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", ["openai", "trl", "axolotl", "dpo", "kto"])
def test_every_form_of_a_large_corpus_loads(form: Format, tmp_path: Path) -> None:
    made = [make_line(each, Wanted(format=form)) for each in corpus(seed=2, count=600)]
    # In OpenAI's forms half a character survives, and no file with one can be loaded so.
    lines = [
        line
        for line in made
        if all(each.code != "half_character" or each.is_mended for each in line.findings)
    ]
    parts = {"train": lines[::2], "validation": lines[1::2]}
    files = {part: tmp_path / f"data.{part}.jsonl" for part in parts}
    for part, path in files.items():
        path.write_bytes(b"".join(line.text for line in parts[part] if line.text is not None))

    found = load(files, tmp_path)

    for part, path in files.items():
        expected = [json.loads(line) for line in split_lines(path.read_bytes())]
        assert [without_none(row) for row in found[part]] == [without_none(row) for row in expected]
