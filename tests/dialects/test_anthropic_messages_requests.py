"""Reading requests of the Messages form into neutral form, and writing them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.anthropic_messages_requests import read_request, write_request
from agentstate.dialects.neutral import (
    Asked,
    Audio,
    Called,
    Document,
    Format,
    Image,
    Item,
    Offer,
    Pick,
    Receiver,
    Refused,
    Result,
    Text,
    Turn,
)
from agentstate.ground.canonical import encode, parse
from agentstate.ground.errors import BadRequest
from tests.dialects.samples_anthropic import ASK
from tests.helpers.anthropic_types import check

RECEIVER = Receiver("anthropic", "claude-test")
MARK: dict[str, Any] = {"type": "ephemeral"}
HI = Turn("user", (Text("hi"),))
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


def read(*messages: dict[str, Any], **fields: Any) -> Asked:
    return read_request({"model": "m", "messages": list(messages), **fields})


def read_blocks(*blocks: dict[str, Any], role: str = "user") -> tuple[tuple[Item, ...], Any]:
    asked = read({"role": role, "content": list(blocks)})
    return tuple(item for turn in asked.turns for item in turn.items), asked.unsaid


def write(*turns: Turn, model: str = "claude-test", **fields: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a request as a provider reads it, checked, and what was dropped."""
    written = write_request(Asked("m", turns, **fields), Receiver("anthropic", model))
    body = json.loads(encode(written.value))
    check_types(body)
    check_sides(body["messages"])
    return body, written.dropped


def check_types(body: dict[str, Any]) -> None:
    """Check a request part by part: the package's type of a whole one looks into no list."""
    types = pytest.importorskip("anthropic.types.message_create_params")
    known = set(types.MessageCreateParamsStreaming.__annotations__)
    # The first three are of the API still, for older models; the package has lost them.
    known |= {"temperature", "top_p", "top_k"} | set(types.MessageCreateParamsBase.__annotations__)
    assert body.keys() <= known
    system = body.get("system", [])
    parts = [("TextBlockParam", each) for each in system if not isinstance(system, str)]
    parts += [("ToolParam", tool) for tool in body.get("tools", [])]
    for key, name in (("tool_choice", "ToolChoiceParam"), ("output_config", "OutputConfigParam")):
        parts += [(name, body[key])] if key in body else []
    for block in (block for message in body["messages"] for block in message["content"]):
        parts.append(("ContentBlockParam", block))
        if isinstance(inner := block.get("content"), list):
            parts += [("ContentBlockParam", each) for each in inner]
    for name, part in parts:
        check(name, json.dumps(part))


def check_sides(messages: list[Any]) -> None:
    """Check what the API refuses and no type says."""
    ids: set[str] = set()
    open_ids: list[str] = []
    for at, message in enumerate(messages):
        assert message["role"] == ("user", "assistant")[at % 2]
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        assert "tool_result" not in kinds[len(open_ids) :]
        results = message["content"][: len(open_ids)]
        assert [block["tool_use_id"] for block in results] == open_ids
        open_ids = [each["id"] for each in message["content"] if each["type"] == "tool_use"]
        assert not ids & set(open_ids)
        assert len(set(open_ids)) == len(open_ids)
        ids |= set(open_ids)
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
        assert all(text.strip() for text in texts)
    assert not open_ids


# Reading


def test_an_ordinary_request_is_read() -> None:
    asked = read_request(ASK)

    assert asked == Asked(
        model=ASK["model"],
        turns=(
            Turn("system", (Text("Be kind.", MARK), Text("It is 2026-11-30."))),
            Turn("user", (Text("Weather?"),)),
            Turn(
                "assistant",
                (
                    Text("I look."),
                    Called("call_1", "get_weather", '{"city":"Oslo","id":2512292042121000001}'),
                ),
            ),
            Turn(
                "user",
                (Result("call_1", (Text("5 degrees at 12:01"),)), Text("Quick!")),
            ),
        ),
        tools=(Offer("get_weather", schema={"type": "object"}),),
        output_tokens_max=64,
        temperature=0,
    )


IMAGE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


@pytest.mark.parametrize(
    ("block", "items", "unsaid"),
    [
        ({"type": "text", "text": ""}, (), ()),
        ({"type": "text", "text": "a", "citations": None}, (Text("a"),), ()),
        ({"type": "text", "text": "a", "citations": [{}]}, (Text("a"),),
         ("messages[0].content[0].citations",)),
        ({"type": "image", "source": IMAGE, "cache_control": MARK},
         (Image("iVBORw0KGgo=", "image/png", cache=MARK),), ()),
        ({"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
         (Image(url="https://x/a.png"),), ()),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, (),
         ("messages[0].content[0]",)),
        ({"type": "document", "title": "t", "source": {"type": "base64", "data": "JVBE",
          "media_type": "application/pdf"}, "context": "c"},
         (Document("JVBE", "application/pdf", name="t"),), ("messages[0].content[0].context",)),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain",
          "data": "a"}}, (Document(text="a"),), ()),
        ({"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
         (Document(url="https://x/a.pdf"),), ()),
        ({"type": "document", "source": {"type": "content", "content": [
            {"type": "text", "text": "a"}, {"type": "image", "source": IMAGE}]}},
         (Document(text="a"), Image("iVBORw0KGgo=", "image/png")), ()),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}}, (),
         ("messages[0].content[0]",)),
        ({"type": "search_result", "title": "t", "source": "https://x",
          "content": [{"type": "text", "text": "a"}]}, (Text("t\nhttps://x\na"),), ()),
        ({"type": "tool_result", "tool_use_id": "a", "content": "5C", "cache_control": MARK},
         (Result("a", (Text("5C"),), cache=MARK),), ()),
        ({"type": "tool_result", "tool_use_id": "a"}, (Result("a", ()),), ()),
        ({"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": [
            {"type": "text", "text": "no"}, {"type": "image", "source": IMAGE},
            {"type": "tool_reference", "tool_name": "f"}]},
         (Result("a", (Text("no"), Image("iVBORw0KGgo=", "image/png")), is_error=True),),
         ("messages[0].content[0].content[2]",)),
        ({"type": "container_upload", "file_id": "f"}, (), ("messages[0].content[0]",)),
        ({"type": "mcp_tool_result", "tool_use_id": "a",
          "content": [{"type": "text", "text": "found"}]}, (Text("found"),),
         ("messages[0].content[0]",)),
        ({"type": "bash_code_execution_tool_result", "tool_use_id": "a",
          "content": {"type": "bash_code_execution_result", "stdout": "42"}}, (Text("42"),),
         ("messages[0].content[0]",)),
    ],
)  # fmt: skip
def test_a_block_is_read_for_what_others_could_use(block: Any, items: Any, unsaid: Any) -> None:
    assert read_blocks(block) == (items, unsaid)


def test_thoughts_are_left_out_and_named_once_a_message() -> None:
    items, unsaid = read_blocks(
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "ok"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"b": 1},
         "caller": {"type": "direct"}},
        role="assistant",
    )  # fmt: skip

    assert items == (Text("ok"), Called("a", "f", '{"b":1}'))
    assert unsaid == ("messages[0]: thinking",)


def test_a_message_with_nothing_left_is_no_turn() -> None:
    asked = read(
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ""},
    )

    assert asked.turns == (Turn("system", (Text("Be brief."),)),)


def test_calls_and_results_without_an_id_get_the_same() -> None:
    asked = read(
        {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "a"}]},
    )

    call, result = (turn.items[0] for turn in asked.turns)
    assert isinstance(call, Called)
    assert isinstance(result, Result)
    assert call.call_id == result.call_id != ""


def test_parameters_are_read() -> None:
    body = parse(
        b'{"model":"m","messages":[],"stream":true,"max_tokens":9,"temperature":0.50,"top_p":1e-1,'
        b'"top_k":3,"stop_sequences":["END"],"metadata":{"user_id":"u"},"service_tier":"auto",'
        b'"output_config":{"effort":"max","format":{"type":"json_schema","schema":{}}},'
        b'"tool_choice":{"type":"any","disable_parallel_tool_use":true}}'
    )
    assert isinstance(body, dict)

    asked = read_request(body)

    assert str(asked.temperature) == "0.50"
    assert replace(asked, temperature=None, top_p=None) == Asked(
        "m", (), True, pick=Pick("any"), calls_in_parallel=False, output_tokens_max=9,
        top_k=3, stop=("END",), format=Format({}), effort="xhigh", user="u",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "pick"),
    [
        ({"type": "auto"}, Pick("auto")),
        ({"type": "none"}, Pick("none")),
        ({"type": "tool", "name": "f"}, Pick("named", "f")),
    ],
)
def test_a_choice_of_tools_is_read(choice: Any, pick: Pick) -> None:
    assert read(tool_choice=choice).pick == pick


def test_tools_of_the_agent_are_read_and_those_of_anthropic_named() -> None:
    asked = read(
        tools=[
            {"type": "custom", "name": "f", "description": "d", "input_schema": SCHEMA,
             "strict": True, "cache_control": MARK, "defer_loading": True},
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "mcp_toolset", "mcp_server_name": "s"},
            {"name": "g", "input_schema": {"type": "object"}, "eager_input_streaming": True},
        ]
    )  # fmt: skip

    assert asked.tools == (
        Offer("f", "d", SCHEMA, is_strict=True, cache=MARK),
        Offer("g", schema={"type": "object"}),
    )
    assert asked.unsaid == ("tools[0].defer_loading", "tools[1]", "tools[2]")


def test_what_has_no_place_is_named() -> None:
    asked = read(
        {"role": "user", "content": "a", "x": 1},
        system=[{"type": "text", "text": "s"}, {"type": "x_block"}],
        thinking={"type": "adaptive"},
        mcp_servers=[{"name": "s"}],
        container=None,
        output_config={"task_budget": {"total": 1}},
        output_format={"type": "x"},
        tool_choice={"type": "x"},
    )

    assert set(asked.unsaid) == {
        "system[1]", "messages[0].x", "thinking", "mcp_servers", "output_config.task_budget",
        "output_format", "tool_choice",
    }  # fmt: skip


# Writing


def test_a_request_keeps_what_the_form_can_say() -> None:
    asked = replace(read_request(ASK), model="claude-test")

    written = write_request(asked, RECEIVER)

    assert written.dropped == ()
    assert read_request(written.value) == asked
    assert json.loads(encode(written.value))["system"] == ASK["system"]


def test_results_come_first_in_the_order_of_their_calls() -> None:
    calls = tuple(Called(f"call_{n}", "get_weather", '{"city":"Oslo"}') for n in (1, 2, 3))
    results = [Turn("user", (Result(f"call_{n}", (Text(f"{n}C"),)),)) for n in (1, 3, 2)]

    body, dropped = write(HI, Turn("assistant", calls), *results, Turn("user", (Text("and?"),)))

    assert dropped == ()
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "1C"},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "2C"},
        {"type": "tool_result", "tool_use_id": "call_3", "content": "3C"},
        {"type": "text", "text": "and?"},
    ]


def test_ids_are_such_as_the_api_takes_and_stay_the_same() -> None:
    ids = ("functions.get_weather:0", "functions_get_weather_0", "call_1")
    turns = (
        HI,
        Turn("assistant", tuple(Called(id_, "f", "{}") for id_ in ids)),
        Turn("user", tuple(Result(id_, (Text(id_),)) for id_ in ids)),
    )

    body, _ = write(*turns)
    again, _ = write(*turns, Turn("user", (Text("more"),)))

    results = {each["content"]: each["tool_use_id"] for each in body["messages"][2]["content"]}
    calls = [each["id"] for each in body["messages"][1]["content"]]
    assert [results[id_] for id_ in ids] == calls
    assert calls[1:] == list(ids[1:])
    assert again["messages"][1] == body["messages"][1]


def test_an_id_that_comes_again_is_changed_with_its_result() -> None:
    rounds = [
        turn
        for text in ("one", "two")
        for turn in (
            Turn("assistant", (Called("call_0", "f", "{}"),)),
            Turn("user", (Result("call_0", (Text(text),)),)),
        )
    ]

    body, _ = write(HI, *rounds)

    contents = [message["content"][0].get("content") for message in body["messages"]]
    assert contents == [None, None, "one", None, "two"]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    call = Turn("assistant", (Called("a", "f", "{}"), Called("b", "f", "{}")))

    body, dropped = write(HI, call, Turn("user", (Result("b", (Text("ok"),)), Text("go on"))))
    alone, _ = write(HI, call)

    lost, found, text = body["messages"][2]["content"]
    assert (lost["tool_use_id"], lost["is_error"]) == ("a", True)
    assert (found["content"], text["text"], dropped) == ("ok", "go on", ())
    assert len(alone["messages"][2]["content"]) == 2


def test_a_result_without_its_call_becomes_text() -> None:
    body, dropped = write(Turn("user", (Result("x", (Text("5C"),)), Text("so?"))))

    texts = [block["text"] for block in body["messages"][0]["content"]]
    assert (texts[1:], dropped) == (["5C", "so?"], ())


def test_a_second_result_of_a_call_becomes_text() -> None:
    results = Turn("user", (Result("a", (Text("1"),)), Result("a", (Text("2"),))))

    body, _ = write(HI, Turn("assistant", (Called("a", "f", "{}"),)), results)

    assert [block["type"] for block in body["messages"][2]["content"]] == [
        "tool_result", "text", "text",
    ]  # fmt: skip


def test_a_late_result_goes_to_its_call() -> None:
    body, _ = write(
        HI,
        Turn("assistant", (Called("a", "f", "{}"), Called("b", "f", "{}"))),
        Turn("user", (Result("a", (Text("1"),)),)),
        Turn("assistant", (Text("wait"),)),
        Turn("user", (Result("b", (Text("2"),)),)),
    )

    assert [each["content"] for each in body["messages"][2]["content"]] == ["1", "2"]
    assert body["messages"][3]["content"][0]["text"] == "wait"


def test_turns_of_one_side_become_one_message() -> None:
    body, _ = write(
        HI, Turn("user", (Text(" "), Text("ho"))), Turn("assistant", (Text(""),)),
        Turn("user", (Text("hu"),)),
    )  # fmt: skip

    assert [block["text"] for block in body["messages"][0]["content"]] == ["hi", "ho", "hu"]


def test_a_conversation_begins_with_the_user() -> None:
    body, _ = write(Turn("assistant", (Text("Hello."),)), HI)
    empty, _ = write(Turn("system", (Text("Be kind."),)))

    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert len(empty["messages"]) == 1


def test_an_answer_that_was_begun_does_not_end_in_white_space() -> None:
    body, _ = write(HI, Turn("assistant", (Text("The answer is \n"),)))
    new, _ = write(HI, Turn("assistant", (Text("So "),)), model="claude-opus-4-8")

    assert body["messages"][-1]["content"][0]["text"] == "The answer is"
    assert new["messages"][-1] == {
        "role": "user", "content": [{"type": "text", "text": "Continue."}],
    }  # fmt: skip


def test_all_words_of_the_system_stand_at_the_top_in_order() -> None:
    turns = [Turn("system", (Text(text),)) for text in "ABC"]

    body, dropped = write(turns[0], turns[1], HI, turns[2], Turn("user", (Text("q2"),)))
    plain, _ = write(turns[0], HI)

    assert [block["text"] for block in body["system"]] == ["A", "B", "C"]
    assert len(body["messages"]) == 1
    assert (plain["system"], dropped) == ("A", ())


def test_cache_marks_stay_where_they_were() -> None:
    long: dict[str, Any] = {"type": "ephemeral", "ttl": "1h"}
    body, _ = write(
        Turn("system", (Text("static", MARK), Text("dynamic"))),
        Turn("user", (Text("q", long),)),
        Turn("assistant", (Called("a", "f", "{}", cache=MARK),)),
        Turn("user", (Result("a", (Text("5C"),), cache=MARK),)),
        tools=(Offer("f", cache=MARK),),
    )

    assert body["system"] == [
        {"type": "text", "text": "static", "cache_control": MARK},
        {"type": "text", "text": "dynamic"},
    ]
    marks = [message["content"][0]["cache_control"] for message in body["messages"]]
    assert marks == [long, MARK, MARK]
    assert body["tools"][0]["cache_control"] == MARK


@pytest.mark.parametrize(
    ("item", "source", "dropped"),
    [
        (Image("aQ==", "image/png", detail="auto"),
         {"type": "base64", "media_type": "image/png", "data": "aQ=="}, ()),
        (Image(url="https://x/a", detail="low"), {"type": "url", "url": "https://x/a"},
         ("image detail",)),
        (Image(url="http://x/a"), None, ("images",)),
        (Image("aQ==", "image/bmp"), None, ("images",)),
        (Image("aQ==", "image/jpg"),
         {"type": "base64", "media_type": "image/jpeg", "data": "aQ=="}, ()),
        (Document("aQ==", "application/pdf"),
         {"type": "base64", "media_type": "application/pdf", "data": "aQ=="}, ()),
        (Document(text="a"), {"type": "text", "media_type": "text/plain", "data": "a"}, ()),
        (Document("aMOp", "text/csv"),
         {"type": "text", "media_type": "text/plain", "data": "h\u00e9"}, ()),
        (Document("?", "text/csv"), None, ("documents",)),
        (Document(url="https://x/a"), {"type": "url", "url": "https://x/a"}, ()),
        (Document("aQ==", "application/zip"), None, ("documents",)),
        (Audio("aQ==", "wav"), None, ("audio",)),
    ],
)  # fmt: skip
def test_what_is_shown_is_written_or_named(item: Item, source: Any, dropped: Any) -> None:
    body, named = write(Turn("user", (Text("look"), item)))

    shown = [block["source"] for block in body["messages"][0]["content"][1:]]
    assert (shown, named) == ([source] if source else [], dropped)


def test_a_result_shows_images_and_says_why_it_failed() -> None:
    call = Turn("assistant", (Called("a", "f", "{}"), Called("b", "f", "{}")))
    parts = (Text("done"), Image("aQ==", "image/png"))

    body, _ = write(HI, call, Turn("user", (Result("a", parts), Result("b", (), is_error=True))))

    shown, failed = body["messages"][2]["content"]
    assert [part["type"] for part in shown["content"]] == ["text", "image"]
    assert failed["content"]


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (Called("a", "f", ""), {}),
        (Called("a", "f", '{"n": 2512292042121000001, "x": 1.50}'),
         {"n": 2512292042121000001, "x": 1.50}),
        (Called("a", "f", "*** patch", is_custom=True), {"input": "*** patch"}),
    ],
)  # fmt: skip
def test_arguments_become_an_object(call: Called, given: Any) -> None:
    body, _ = write(HI, Turn("assistant", (call,)))

    assert body["messages"][1]["content"][0]["input"] == given


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", "null", "a"])
def test_arguments_that_are_no_object_are_refused_by_the_turn(arguments: str) -> None:
    with pytest.raises(BadRequest) as caught:
        write(HI, Turn("assistant", (Called("a", "f", arguments),)))

    assert caught.value.param == "messages[1]"


def test_refusals_and_names_of_a_history() -> None:
    body, dropped = write(
        Turn("user", (Text("q"),), name="ann"), Turn("assistant", (Refused("No."),)), HI
    )

    assert body["messages"][1]["content"] == [{"type": "text", "text": "No."}]
    assert dropped == ("names of participants",)


def test_the_assistant_and_the_system_show_nothing() -> None:
    picture = Image("aQ==", "image/png")

    body, dropped = write(Turn("system", (picture,)), HI, Turn("assistant", (Text("so "), picture)))

    assert body["messages"][1]["content"] == [{"type": "text", "text": "so"}]
    assert dropped == ("all but text of the system", "all but text of the assistant")


def test_tools_are_objects_and_free_text_is_one_string() -> None:
    body, dropped = write(
        HI,
        tools=(
            Offer("f", "d"), Offer("g", schema={"properties": {}}), Offer("h", is_custom=True),
            Offer("i", schema=SCHEMA, is_strict=True),
            Offer("j", schema={"type": "object", "additionalProperties": {"type": "string"}},
                  is_strict=True),
        ),
    )  # fmt: skip

    assert [tool["input_schema"]["type"] for tool in body["tools"]] == ["object"] * 5
    assert body["tools"][2]["input_schema"]["required"] == ["input"]
    assert [tool.get("strict") for tool in body["tools"]] == [None, None, None, True, None]
    assert dropped == ("tools[4]: strict",)


@pytest.mark.parametrize(
    ("pick", "in_parallel", "choice"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (Pick("any"), False, {"type": "any", "disable_parallel_tool_use": True}),
        (Pick("none"), False, {"type": "none"}),
        (Pick("named", "f"), None, {"type": "tool", "name": "f"}),
    ],
)
def test_a_choice_of_tools_is_written(pick: Any, in_parallel: Any, choice: Any) -> None:
    body, _ = write(HI, tools=(Offer("f"),), pick=pick, calls_in_parallel=in_parallel)
    without, dropped = write(HI, pick=pick, calls_in_parallel=in_parallel)

    assert body.get("tool_choice") == choice
    assert "tool_choice" not in without
    assert dropped == (("tool choice",) if pick and pick.mode in ("any", "named") else ())


def test_a_history_with_calls_has_tools() -> None:
    body, _ = write(HI, Turn("assistant", (Called("a", "f", "{}"), Called("b", "f", "{}"))))

    assert [tool["name"] for tool in body["tools"]] == ["f"]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("fields", "model", "written", "dropped"),
    [
        ({"temperature": 0.5}, "claude-test", {"temperature": 0.5}, ()),
        ({"temperature": 1.5}, "claude-test", {"temperature": 1}, ("temperature",)),
        ({"temperature": "hot"}, "claude-test", {}, ("temperature",)),
        ({"temperature": 0, "top_p": 0.5}, "claude-test", {"temperature": 0}, ("top_p",)),
        ({"top_p": 0.5, "top_k": 3}, "claude-test", {"top_p": 0.5, "top_k": 3}, ()),
        ({"temperature": 10**400}, "claude-test", {"temperature": 1}, ("temperature",)),
        ({"temperature": 1}, "claude-opus-4-7", {}, ()),
        ({"temperature": 0, "top_k": 3}, "claude-opus-5", {}, ("temperature", "top_k")),
        ({"stop": ("END", " ")}, "claude-test", {"stop_sequences": ["END"]}, ("stop",)),
        ({"effort": "high"}, "claude-test", {}, ("reasoning effort",)),
        ({"effort": "high"}, "claude-opus-4-6", {"output_config": {"effort": "high"}}, ()),
        ({"user": "u-1"}, "claude-test", {"metadata": {"user_id": "u-1"}}, ()),
        ({"user": "a@b.c"}, "claude-test", {}, ()),
        ({"user": "+1 (555) 010-0000"}, "claude-test", {}, ()),
        ({"streams": True}, "claude-test", {"stream": True}, ()),
        ({"presence_penalty": 0, "frequency_penalty": 0}, "claude-test", {}, ()),
        ({"presence_penalty": 1, "frequency_penalty": 1, "seed": 1, "verbosity": "low",
          "choices": 2}, "claude-test", {},
         ("seed", "presence_penalty", "frequency_penalty", "verbosity", "n")),
        ({"unsaid": ("logit_bias",)}, "claude-test", {}, ("logit_bias",)),
    ],
)  # fmt: skip
def test_parameters_are_written_or_named(
    fields: Any, model: str, written: Any, dropped: tuple[str, ...]
) -> None:
    body, named = write(HI, model=model, **fields)

    rest = {key: body[key] for key in body.keys() - {"model", "max_tokens", "messages"}}
    assert (rest, named) == (written, dropped)


@pytest.mark.parametrize(
    ("asked", "known", "tokens"), [(9, 8, 8), (7, 8, 7), (None, 8, 8), (None, None, 4096)]
)
def test_there_is_always_a_limit(asked: int | None, known: int | None, tokens: int) -> None:
    receiver = Receiver("anthropic", "m", known)

    body = write_request(Asked("x", (HI,), output_tokens_max=asked), receiver).value

    assert (body["model"], body["max_tokens"]) == ("m", tokens)


def test_a_schema_of_the_answer_is_enforced() -> None:
    wanted = Format(SCHEMA, "r", "a number", is_strict=True)

    body, dropped = write(HI, format=wanted, tools=(Offer("f"),))

    assert body["output_config"] == {
        "format": {"type": "json_schema", "schema": {**SCHEMA, "description": "a number"}}
    }
    assert (dropped, "system" in body) == ((), False)


@pytest.mark.parametrize(
    ("schema", "model"), [({"type": "object"}, "claude-test"), (SCHEMA, "claude-3-5-haiku-latest")]
)
def test_a_schema_that_cannot_be_enforced_is_told(schema: Any, model: str) -> None:
    body, dropped = write(HI, model=model, format=Format(schema))

    assert json.dumps(schema, separators=(",", ":")) in body["system"]
    assert ("output_config" in body, dropped) == (False, ("response schema: told in words",))


def test_any_object_is_asked_for_in_words() -> None:
    body, dropped = write(Turn("system", (Text("s"),)), HI, format=Format())

    assert body["system"][0]["text"] == "s"
    assert "JSON" in body["system"][1]["text"]
    assert dropped == ()


# Any history

texts = st.sampled_from(("a", " ", "", "b "))
shown = st.one_of(st.builds(Text, texts), st.just(Image(url="https://x/a")))
ids = st.sampled_from(("a", "b", "functions.f:0"))
assistants = st.builds(
    Turn,
    st.just("assistant"),
    st.lists(
        st.one_of(st.builds(Text, texts), st.builds(Called, ids, st.just("f"), st.just("{}"))),
        max_size=3,
    ).map(tuple),
)
users = st.builds(
    Turn,
    st.just("user"),
    st.lists(
        st.one_of(shown, st.builds(Result, ids, st.lists(shown, max_size=2).map(tuple))),
        max_size=3,
    ).map(tuple),
)
systems = st.builds(Turn, st.just("system"), st.lists(st.builds(Text, texts)).map(tuple))


@given(st.lists(st.one_of(assistants, users, systems), max_size=6))
@settings(derandomize=True, deadline=None, database=None, max_examples=150)
def test_any_history_becomes_one_that_the_api_takes(turns: list[Turn]) -> None:
    body, dropped = write(*turns)

    assert dropped == ()
    again = write_request(replace(read_request(body), model="claude-test"), RECEIVER)
    assert json.loads(encode(again.value)) == body, "what was written is written alike again"
