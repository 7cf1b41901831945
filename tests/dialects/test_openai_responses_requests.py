"""Requests in the Responses form, from and into the neutral form."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentstate.dialects.neutral import (
    Asked,
    Called,
    Format,
    Image,
    Offer,
    Pick,
    Receiver,
    Refused,
    Result,
    Text,
    Turn,
    Written,
)
from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.dialects.openai_responses_requests import read_request, write_request
from agentstate.ground.canonical import JSON, Number, encode, parse
from tests.helpers.openai_schema import SCHEMAS

OPENAI = Receiver("openai", "gpt-4.1")
HI = (Turn("user", (Text("Hi"),)),)
ASKED = Asked("gpt-4.1", HI)


def read(**fields: Any) -> Asked:
    body = parse(json.dumps({"model": "gpt-5-mini", "input": "Hi", **fields}).encode())
    assert isinstance(body, dict)
    return read_request(body)


def write(receiver: Receiver = OPENAI, **fields: Any) -> dict[str, Any]:
    written = write_request(replace(ASKED, **fields), receiver)
    check(written)
    value: dict[str, Any] = json.loads(encode(written.value))
    return value


def dropped(receiver: Receiver = OPENAI, **fields: Any) -> tuple[str, ...]:
    return write_request(replace(ASKED, **fields), receiver).dropped


def check(written: Written[dict[str, JSON]]) -> None:
    """Check a request against OpenAI's schemas of its parts."""
    body = json.loads(encode(written.value))
    for item in body["input"]:
        _schema("InputItem").validate(item)
    for tool in body.get("tools", []):
        _schema("Tool").validate(tool)
    for key, name in (
        ("tool_choice", "ToolChoiceParam"), ("text", "ResponseTextParam"),
        ("reasoning", "Reasoning"), ("model", "ModelIdsResponses"),
    ):  # fmt: skip
        if key in body:
            _schema(name).validate(body[key])
    OpenAIResponses().read_ask(body)


@cache
def _schema(name: str) -> Draft202012Validator:
    whole = json.loads((SCHEMAS / "Response.json").read_text(encoding="utf-8"))
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": whole["$defs"]})


# --- reading --------------------------------------------------------------------------------------


def test_a_request_is_read_whole() -> None:
    asked = read(
        stream=True,
        instructions="Be kind.",
        tools=[
            {
                "type": "function",
                "name": "f",
                "description": "d",
                "parameters": {"type": "object"},
                "strict": True,
            },
            {"type": "custom", "name": "g", "format": {"type": "text"}},
        ],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=64,
        temperature=0.5,
        top_p=1,
        text={
            "format": {
                "type": "json_schema",
                "name": "a",
                "schema": {"type": "object"},
                "strict": True,
            },
            "verbosity": "low",
        },
        reasoning={"effort": "high"},
        safety_identifier="u1",
        metadata={"a": "b"},
        store=True,
        truncation="disabled",
        include=[],
        background=False,
        prompt_cache_key="k",
        service_tier="auto",
        stream_options={"include_obfuscation": False},
    )

    assert asked == Asked(
        model="gpt-5-mini",
        turns=(Turn("system", (Text("Be kind."),)), Turn("user", (Text("Hi"),))),
        streams=True,
        tools=(
            Offer("f", "d", {"type": "object"}, is_strict=True),
            Offer("g", is_custom=True),
        ),
        pick=Pick("any"),
        calls_in_parallel=False,
        output_tokens_max=64,
        temperature=Number("0.5"),
        top_p=1,
        format=Format({"type": "object"}, "a", is_strict=True),
        effort="high",
        verbosity="low",
        user="u1",
    )


@pytest.mark.parametrize(
    ("fields", "unsaid"),
    [
        ({"previous_response_id": "resp_0"}, ("previous_response_id",)),
        ({"conversation": {"id": "conv_0"}}, ("conversation",)),
        ({"prompt": {"id": "pmpt_0"}}, ("prompt",)),
        ({"truncation": "auto"}, ("truncation",)),
        ({"background": True}, ("background",)),
        ({"include": ["reasoning.encrypted_content"]}, ("include",)),
        ({"top_logprobs": 3, "max_tool_calls": 2}, ("top_logprobs", "max_tool_calls")),
        ({"context_management": [{"type": "compaction"}]}, ("context_management",)),
        ({"moderation": {"model": "m"}}, ("moderation",)),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, ("reasoning.summary",)),
        ({"reasoning": {"effort": None, "summary": None}}, ()),
        ({"text": {"format": {"type": "grammar", "definition": "x"}}}, ("text.format",)),
        ({"text": {"format": {"type": "text"}}}, ()),
        ({"text": {"format": {"type": "json_object"}, "x": 1}}, ("text.x",)),
        ({"tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "a"}]},
         ("tools[0]", "tools[1]")),
        ({"tools": [{"type": "function"}]}, ("tools[0]",)),
        ({"tools": [{"type": "function", "name": "f", "defer_loading": True}]},
         ("tools[0].defer_loading",)),
        ({"tools": [{"type": "custom", "name": "f", "format": {"type": "grammar"}}]},
         ("tools[0].format",)),
        ({"tool_choice": {"type": "web_search"}}, ("tool_choice",)),
        ({"tool_choice": "what"}, ("tool_choice",)),
        ({"max_output_tokens": "many"}, ("max_output_tokens",)),
        ({"x_new": {"a": 1}}, ("x_new",)),
        ({"user": "u", "metadata": {"a": "b"}, "store": False, "temperature": None}, ()),
    ],
)  # fmt: skip
def test_what_has_no_place_is_named(fields: dict[str, Any], unsaid: tuple[str, ...]) -> None:
    assert read(**fields).unsaid == unsaid


@pytest.mark.parametrize(
    ("choice", "pick"),
    [
        (None, None),
        ("auto", Pick("auto")),
        ("none", Pick("none")),
        ("required", Pick("any")),
        ({"type": "function", "name": "f"}, Pick("named", "f")),
        ({"type": "custom", "name": "g"}, Pick("named", "g")),
    ],
)
def test_a_tool_choice_is_read(choice: Any, pick: Pick | None) -> None:
    assert read(tool_choice=choice).pick == pick


def test_tools_that_are_not_allowed_are_not_offered() -> None:
    tools = [{"type": "function", "name": name} for name in "abc"]
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "b"}, {"type": "web_search"}],
    }

    asked = read(tools=tools, tool_choice=allowed)

    assert [tool.name for tool in asked.tools] == ["b"]
    assert asked.pick == Pick("any")
    assert asked.unsaid == ()


def test_the_highest_effort_is_the_highest_there_is() -> None:
    assert read(reasoning={"effort": "max"}).effort == "xhigh"


# --- writing --------------------------------------------------------------------------------------


def test_a_request_is_written_whole() -> None:
    written = write(
        Receiver("openai", "gpt-5-mini"),
        streams=True,
        turns=(Turn("system", (Text("Be kind."),)), *HI),
        tools=(Offer("f", "d", {"type": "object"}), Offer("g", is_custom=True)),
        pick=Pick("named", "g"),
        calls_in_parallel=False,
        output_tokens_max=64,
        format=Format({"type": "object"}, "a", "d", is_strict=True),
        effort="high",
        verbosity="low",
        user="u1",
    )

    assert written == {
        "model": "gpt-5-mini",
        "instructions": "Be kind.",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "tools": [
            {
                "type": "function",
                "name": "f",
                "description": "d",
                "parameters": {"type": "object"},
                "strict": False,
            },
            {"type": "custom", "name": "g"},
        ],
        "tool_choice": {"type": "custom", "name": "g"},
        "parallel_tool_calls": False,
        "text": {
            "format": {
                "type": "json_schema",
                "name": "a",
                "description": "d",
                "schema": {"type": "object"},
                "strict": True,
            },
            "verbosity": "low",
        },
        "reasoning": {"effort": "high"},
        "max_output_tokens": 64,
        "user": "u1",
        "store": False,
        "stream": True,
    }


def test_a_plain_request_has_nothing_that_was_not_asked_for() -> None:
    assert write() == {
        "model": "gpt-4.1",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "store": False,
    }


def test_a_custom_tool_is_a_function_where_there_are_no_others() -> None:
    turns = (
        Turn("assistant", (Called("call_1", "g", "a\nb", is_custom=True),)),
        Turn("user", (Result("call_1", (Text("ok"),), is_custom=True),)),
    )
    tools = (Offer("g", "d", is_custom=True),)

    written = write(Receiver("vllm", "qwen3"), turns=turns, tools=tools, pick=Pick("named", "g"))

    (tool,) = written["tools"]
    assert (tool["type"], tool["parameters"]["required"]) == ("function", ["input"])
    assert written["tool_choice"] == {"type": "function", "name": "g"}
    call, result = written["input"]
    assert (call["type"], call["arguments"]) == ("function_call", '{"input":"a\\nb"}')
    assert result["type"] == "function_call_output"


@pytest.mark.parametrize(
    ("pick", "choice"),
    [
        (Pick("auto"), "auto"),
        (Pick("any"), "required"),
        (Pick("none"), "none"),
        (Pick("named", "f"), {"type": "function", "name": "f"}),
    ],
)
def test_a_tool_choice_is_written(pick: Pick, choice: Any) -> None:
    assert write(tools=(Offer("f"),), pick=pick)["tool_choice"] == choice


def test_a_choice_of_no_tools_is_left_out() -> None:
    assert "tool_choice" not in write(pick=Pick("auto"), calls_in_parallel=True)
    assert dropped(pick=Pick("auto")) == ()
    assert dropped(pick=Pick("any")) == ("tool choice",)


def test_a_tool_without_a_schema_takes_no_arguments() -> None:
    (tool,) = write(tools=(Offer("f"),))["tools"]

    assert tool["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"top_k": 5}, ("top_k",)),
        ({"seed": 1}, ("seed",)),
        ({"stop": ("END",)}, ("stop",)),
        ({"choices": 2}, ("n",)),
        ({"presence_penalty": Number("0.5"), "frequency_penalty": 1},
         ("presence_penalty", "frequency_penalty")),
        ({"presence_penalty": Number("0.0"), "frequency_penalty": 0}, ()),
        ({"presence_penalty": "much"}, ("presence_penalty",)),
        ({"unsaid": ("logit_bias",), "seed": 1}, ("logit_bias", "seed")),
        ({"effort": "high", "verbosity": "low"}, ("verbosity", "reasoning effort")),
        ({"effort": "none"}, ()),
        ({"user": "u" * 65}, ()),
        ({"tools": (Offer("f", cache={"type": "ephemeral"}),)}, ("cache markers",)),
        ({"turns": (Turn("user", (Text("Hi", {"type": "ephemeral"}),)),)}, ("cache markers",)),
        ({"turns": (Turn("user", (Text("Hi"),), "bob"),)}, ("names of participants",)),
        ({"turns": (*HI, Turn("assistant", (Image(url="https://a"), Text("Hi"))))}, ("images",)),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_named(fields: dict[str, Any], names: tuple[str, ...]) -> None:
    assert dropped(**fields) == names


def test_too_small_a_limit_is_raised_and_named() -> None:
    assert write(output_tokens_max=1)["max_output_tokens"] == 16
    assert dropped(output_tokens_max=1) == ("an output limit below 16",)
    assert dropped(output_tokens_max=16) == ()


@pytest.mark.parametrize(
    ("model", "effort", "is_kept"),
    [
        ("gpt-4.1", None, True),
        ("gpt-4o-mini", None, True),
        ("ft:gpt-4o:me", None, True),
        ("qwen3:8b", None, True),
        ("gpt-oss:20b", "low", True),
        ("gpt-5-chat-latest", None, True),
        ("gpt-5.2", "none", True),
        ("gpt-5.2", None, False),
        ("openai/gpt-5-mini", "low", False),
        ("gpt-6-astra", None, False),
        ("o1", None, False),
        ("o4-mini", "high", False),
        ("codex-mini-latest", None, False),
    ],
)
def test_sampling_is_left_out_for_models_that_think(
    model: str, effort: str | None, is_kept: bool
) -> None:
    fields = {"temperature": Number("0.5"), "top_p": 1, "effort": effort}

    written = write(Receiver("openai", model), **fields)

    assert ("temperature" in written, "top_p" in written) == (is_kept, is_kept)
    assert dropped(Receiver("openai", model), **fields) == (
        () if is_kept else ("temperature", "top_p")
    )
    assert written.get("temperature", 0.5) == 0.5


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-3.5-turbo", "chatgpt-4o-latest", "gpt-5-chat"])
def test_effort_is_left_out_for_models_that_do_not_think(model: str) -> None:
    assert "reasoning" not in write(Receiver("openai", model), effort="high")


def test_any_object_is_asked_for_as_such() -> None:
    assert write(format=Format())["text"] == {"format": {"type": "json_object"}}
    assert write(format=Format({}))["text"]["format"]["name"] == "answer"


# --- both -----------------------------------------------------------------------------------------

texts = st.text('ab \u2028\ud83d\U0001f600{"', min_size=1, max_size=6)
ids = st.from_regex(r"[a-zA-Z0-9_-]{1,40}", fullmatch=True)
objects = st.dictionaries(st.sampled_from("ab"), st.integers() | texts, max_size=2)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """Return a turn as this form has it: texts of a model are one, results come alone."""
    match draw(st.sampled_from(("system", "user", "assistant", "results"))):
        case "system":
            return Turn("system", (Text(draw(texts)),))
        case "user":
            images = st.builds(Image, texts.map(lambda _: "QUJD"), st.just("image/png"),
                               detail=st.sampled_from(("low", "auto")))  # fmt: skip
            items = st.lists(st.builds(Text, texts) | images, min_size=1, max_size=3)
            return Turn("user", tuple(draw(items)))
        case "assistant":
            said: list[Any] = draw(st.lists(st.builds(Text, texts), max_size=1))
            said += draw(st.lists(st.builds(Refused, texts), max_size=1))
            calls = st.builds(Called, ids, st.just("f"), texts, st.booleans())
            return Turn("assistant", (*said, *draw(st.lists(calls, min_size=1, max_size=2))))
        case _:
            result = st.builds(
                Result, ids, st.lists(st.builds(Text, texts), max_size=2).map(tuple),
                st.just(False), st.booleans(),
            )  # fmt: skip
            return Turn("user", tuple(draw(st.lists(result, min_size=1, max_size=2))))


def merged(turns: list[Turn]) -> tuple[Turn, ...]:
    """Return turns as they come back: what says the same in this form is one."""
    whole: list[Turn] = []
    for at, turn in enumerate(turns):
        before = whole[-1] if whole else None
        is_leading = all(each.role == "system" for each in turns[: at + 1])
        is_results = all(isinstance(item, Result) for item in turn.items)
        if before is None or before.role != turn.role:
            whole.append(turn)
        elif is_leading and any(each.role != "system" for each in turns):
            (one,), (other,) = before.items, turn.items
            assert isinstance(one, Text)
            assert isinstance(other, Text)
            whole[-1] = Turn("system", (Text(f"{one.text}\n\n{other.text}"),))
        elif turn.role == "assistant" or (
            is_results and all(isinstance(item, Result) for item in before.items)
        ):
            whole[-1] = replace(before, items=before.items + turn.items)
        else:
            whole.append(turn)
    return tuple(whole)


@settings(max_examples=40, deadline=None)
@given(st.lists(turns(), min_size=1, max_size=6))
def test_a_history_comes_back_as_it_was(history: list[Turn]) -> None:
    written = write_request(replace(ASKED, turns=tuple(history)), OPENAI)

    check(written)
    assert written.dropped == ()
    body = parse(encode(written.value))
    assert isinstance(body, dict)
    assert read_request(body).turns == merged(history)
    # The same history is the same request, whatever comes after it.
    longer = write_request(replace(ASKED, turns=(*history, *HI)), OPENAI).value
    if any(turn.role != "system" for turn in history):
        assert encode(longer["input"])[: len(encode(written.value["input"])) - 1] == encode(
            written.value["input"]
        ).removesuffix(b"]")


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        Asked,
        model=st.just("gpt-5.2"),
        turns=st.just(HI),
        streams=st.booleans(),
        tools=st.lists(
            st.builds(Offer, st.sampled_from("fg"), st.none() | texts,
                      st.just({"type": "object"}), st.booleans()),
            min_size=1, max_size=2,
        ).map(tuple),
        pick=st.sampled_from((None, Pick("auto"), Pick("any"), Pick("none"), Pick("named", "f"))),
        calls_in_parallel=st.none() | st.booleans(),
        output_tokens_max=st.none() | st.integers(16, 10**6),
        temperature=st.sampled_from((None, 1, Number("0.50"))),
        format=st.none() | st.just(Format()) | st.builds(
            Format, objects.map(dict), ids, st.none() | texts, st.none() | st.booleans()
        ),
        effort=st.just("none"),
        verbosity=st.sampled_from((None, "low", "high")),
        user=st.none() | ids,
    )
)  # fmt: skip
def test_a_request_comes_back_as_it_was(asked: Asked) -> None:
    written = write_request(asked, Receiver("openai", asked.model))

    assert written.dropped == ()
    body = parse(encode(written.value))
    assert isinstance(body, dict)
    assert read_request(body) == asked


def test_the_dialect_translates_requests() -> None:
    dialect = OpenAIResponses()
    body: dict[str, JSON] = {"model": "gpt-4.1", "input": "Hi"}

    asked = dialect.read_request(body)

    assert asked == ASKED
    assert dialect.write_request(asked, OPENAI) == write_request(ASKED, OPENAI)
    assert dialect.request_headers == ()
