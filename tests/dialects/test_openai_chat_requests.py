"""Requests in the chat form, into the neutral form and out of it, held against OpenAI's schema."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.neutral import (
    Asked,
    Called,
    Format,
    Offer,
    Pick,
    Receiver,
    Result,
    Text,
    TranslatingDialect,
    Turn,
)
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.openai_chat_requests import read_request, write_request
from agentstate.ground.canonical import Number, encode, parse
from tests.dialects.samples import SAMPLES
from tests.helpers.openai_requests import check_chat_request

OPENAI = Receiver("openai", "gpt-4o-mini")
OTHER = Receiver("mistral", "mistral-large")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
MARK = {"type": "ephemeral"}
WEATHER = Offer("get_weather", "Say it.", SCHEMA)
PATCH = Offer("patch", is_custom=True)
ASKED = Asked("claude", (Turn("user", (Text("q"),)),))


def read(**fields: Any) -> Asked:
    """Read a request with one message and these fields."""
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], **fields}
    value = parse(json.dumps(body).encode())
    assert isinstance(value, dict)
    return read_request(value)


def write(asked: Asked, receiver: Receiver = OPENAI) -> tuple[dict[str, Any], tuple[str, ...]]:
    written = write_request(asked, receiver)
    body: dict[str, Any] = json.loads(encode(written.value))
    check_chat_request(body)
    return body, written.dropped


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


# The dialect


def test_the_dialect_can_be_translated() -> None:
    dialect: TranslatingDialect = OpenAIChat()

    assert dialect.request_headers == ()
    assert dialect.request_path("m", streams=True) == ("/v1/chat/completions", "")


# Reading


def test_a_plain_request_says_little() -> None:
    assert read() == Asked("m", (Turn("user", (Text("q"),)),))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stream": True}, {"streams": True}),
        ({"stream": False}, {}),
        ({"max_tokens": 5}, {"output_tokens_max": 5}),
        ({"max_completion_tokens": 6, "max_tokens": 5}, {"output_tokens_max": 6}),
        ({"max_completion_tokens": None, "max_tokens": 5.0}, {"output_tokens_max": 5}),
        ({"temperature": 0.10, "top_p": 1, "top_k": 3},
         {"temperature": Number("0.1"), "top_p": 1, "top_k": 3}),
        ({"seed": 2512292042121000001}, {"seed": 2512292042121000001}),
        ({"presence_penalty": -1.5, "frequency_penalty": 0},
         {"presence_penalty": Number("-1.5"), "frequency_penalty": 0}),
        ({"stop": "END"}, {"stop": ("END",)}),
        ({"stop": ["A", "B"]}, {"stop": ("A", "B")}),
        ({"stop": []}, {}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"format": Format()}),
        ({"response_format": {"type": "json_schema", "json_schema": {
            "name": "r", "description": "d", "strict": True, "schema": SCHEMA}}},
         {"format": Format(SCHEMA, "r", "d", True)}),
        ({"reasoning_effort": "minimal", "verbosity": "low"},
         {"effort": "minimal", "verbosity": "low"}),
        ({"reasoning_effort": "max"}, {"effort": "xhigh"}),
        ({"n": 2}, {"choices": 2}),
        ({"user": "u"}, {"user": "u"}),
        ({"safety_identifier": "s"}, {"user": "s"}),
        ({"parallel_tool_calls": False}, {"calls_in_parallel": False}),
        ({"metadata": {"a": "b"}, "store": True, "service_tier": "flex", "prompt_cache_key": "k",
          "stream_options": {"include_usage": True}, "prompt_cache_retention": "24h"}, {}),
        ({"logprobs": False, "logit_bias": {}, "top_logprobs": 0, "modalities": ["text"]}, {}),
        ({"temperature": None, "stop": None, "tools": None, "tool_choice": None, "odd": None}, {}),
    ],
)  # fmt: skip
def test_a_field_is_read(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read(**fields) == replace(read(), **expected)


@pytest.mark.parametrize(
    ("fields", "unsaid"),
    [
        ({"logit_bias": {"50256": -100}}, ("logit_bias",)),
        ({"logprobs": True, "top_logprobs": 2}, ("logprobs", "top_logprobs")),
        ({"prediction": {"type": "content", "content": "a"}}, ("prediction",)),
        ({"modalities": ["text", "audio"], "audio": {"voice": "a"}}, ("modalities", "audio")),
        ({"web_search_options": {}}, ("web_search_options",)),
        ({"chat_template_kwargs": {"enable_thinking": False}, "odd": False},
         ("chat_template_kwargs", "odd")),
        ({"temperature": "hot", "seed": True, "max_tokens": 1.5, "verbosity": 1,
          "parallel_tool_calls": "no", "reasoning_effort": {}},
         ("parallel_tool_calls", "reasoning_effort", "max_tokens", "temperature", "seed",
          "verbosity")),
        ({"stop": ["A", 1]}, ("stop",)),
        ({"tools": {}, "functions": [1]}, ("tools", "functions[0]")),
        ({"response_format": {"type": "grammar"}}, ("response_format",)),
        ({"tool_choice": "odd"}, ("tool_choice",)),
        ({"tool_choice": {"type": "odd"}}, ("tool_choice",)),
        ({"function_call": {}}, ("function_call",)),
    ],
)  # fmt: skip
def test_what_has_no_place_is_named(fields: dict[str, Any], unsaid: tuple[str, ...]) -> None:
    assert set(read(**fields).unsaid) == set(unsaid)


def test_each_is_named_once() -> None:
    message = {"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"}

    assert read(messages=[message]).unsaid == ("messages[0]: thinking",)


def test_tools_are_read() -> None:
    asked = read(
        tools=[
            function("get_weather", description="Say it.", parameters=SCHEMA, strict=True),
            {**function("f"), "cache_control": MARK},
            function("g", cache_control=MARK),
            {"type": "custom", "custom": {"name": "patch", "description": "d"}},
            {"type": "custom", "custom": {"name": "p", "format": {"type": "text"}}},
        ]
    )

    assert asked.tools == (
        Offer("get_weather", "Say it.", SCHEMA, True),
        Offer("f", cache=MARK),
        Offer("g", cache=MARK),
        Offer("patch", "d", is_custom=True),
        Offer("p", is_custom=True),
    )
    assert asked.unsaid == ()


def test_what_of_a_tool_has_no_place_is_named() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}
    asked = read(
        tools=[
            {"type": "web_search"},
            {"type": "custom", "custom": {"name": "p", "format": grammar}},
            {**function("f", odd=1), "defer_loading": True},
            "odd",
        ]
    )

    assert [offer.name for offer in asked.tools] == ["p", "f"]
    assert asked.unsaid == (
        "tools[0]", "tools[1].custom.format", "tools[2].defer_loading", "tools[2].function.odd",
        "tools[3]",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "pick"),
    [
        ("auto", Pick("auto")),
        ("none", Pick("none")),
        ("required", Pick("any")),
        ("any", Pick("any")),
        (function("f"), Pick("named", "f")),
        ({"type": "custom", "custom": {"name": "patch"}}, Pick("named", "patch")),
    ],
)
def test_the_choice_of_a_tool_is_read(choice: Any, pick: Pick) -> None:
    asked = read(tools=[function("f")], tool_choice=choice)

    assert (asked.pick, asked.unsaid) == (pick, ())


@pytest.mark.parametrize(("mode", "pick"), [("auto", Pick("auto")), ("required", Pick("any"))])
def test_of_allowed_tools_only_those_are_offered(mode: str, pick: Pick) -> None:
    allowed = {"mode": mode, "tools": [function("g")]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}

    asked = read(tools=[function("f"), function("g")], tool_choice=choice)

    assert (asked.tools, asked.pick, asked.unsaid) == ((Offer("g"),), pick, ())


def test_allowed_tools_that_are_not_offered_are_named() -> None:
    allowed = {"mode": "auto", "tools": [function("x")]}

    asked = read(
        tools=[function("f")],
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
    )

    assert (asked.tools, asked.pick, asked.unsaid) == ((Offer("f"),), None, ("tool_choice",))


def test_legacy_functions_are_tools_called_one_at_a_time() -> None:
    asked = read(
        functions=[{"name": "f", "description": "d", "parameters": SCHEMA}],
        function_call={"name": "f"},
    )

    assert asked.tools == (Offer("f", "d", SCHEMA),)
    assert (asked.pick, asked.calls_in_parallel) == (Pick("named", "f"), False)
    assert read(functions=[{"name": "f"}], function_call="auto").pick == Pick("auto")


# Writing


def test_a_plain_request_to_the_letter() -> None:
    messages = [{"role": "user", "content": "q"}]
    assert write(ASKED) == ({"model": "gpt-4o-mini", "messages": messages}, ())
    assert write(ASKED, OTHER) == ({"model": "mistral-large", "messages": messages}, ())


@pytest.mark.parametrize(
    ("asked", "receiver", "fields", "dropped"),
    [
        ({"streams": True}, OTHER,
         {"stream": True, "stream_options": {"include_usage": True}}, ()),
        ({"output_tokens_max": 5}, OPENAI, {"max_completion_tokens": 5}, ()),
        ({"output_tokens_max": 5}, OTHER, {"max_tokens": 5}, ()),
        ({"temperature": Number("0.10"), "top_p": 1, "seed": 7}, OTHER,
         {"temperature": 0.10, "top_p": 1, "seed": 7}, ()),
        ({"presence_penalty": 1, "frequency_penalty": Number("0.5")}, OPENAI,
         {"presence_penalty": 1, "frequency_penalty": 0.5}, ()),
        ({"top_k": 3}, OTHER, {}, ("top_k",)),
        ({"stop": tuple("ABCD")}, OTHER, {"stop": list("ABCD")}, ()),
        ({"stop": tuple("ABCDE")}, OTHER, {"stop": list("ABCD")}, ("stop[4:]",)),
        ({"format": Format()}, OTHER, {"response_format": {"type": "json_object"}}, ()),
        ({"format": Format(SCHEMA)}, OTHER, {"response_format": {
            "type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}}, ()),
        ({"format": Format(SCHEMA, "r", "d", False)}, OTHER, {"response_format": {
            "type": "json_schema", "json_schema": {
                "name": "r", "description": "d", "schema": SCHEMA, "strict": False}}}, ()),
        ({"choices": 2}, OTHER, {"n": 2}, ()),
        ({"user": "u"}, OPENAI, {"user": "u"}, ()),
        ({"user": "u"}, OTHER, {}, ()),
        ({"unsaid": ("logit_bias",), "top_k": 1}, OTHER, {}, ("logit_bias", "top_k")),
    ],
)  # fmt: skip
def test_a_field_is_written(
    asked: dict[str, Any], receiver: Receiver, fields: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    body, names = write(replace(ASKED, **asked), receiver)

    assert {key: body[key] for key in body if key not in ("model", "messages")} == fields
    assert names == dropped


def test_numbers_keep_their_text() -> None:
    asked = replace(ASKED, temperature=Number("0.10"), seed=2512292042121000001)

    raw = encode(write_request(asked, OTHER).value)

    assert b'"temperature":0.10' in raw
    assert b'"seed":2512292042121000001' in raw


SAMPLING = {
    "temperature": Number("0.5"), "top_p": Number("0.9"), "presence_penalty": 1,
    "frequency_penalty": 1, "stop": ("A",),
}  # fmt: skip


@pytest.mark.parametrize(
    "model", ["o1", "o3-mini", "o4-mini", "gpt-5", "gpt-5-mini", "gpt-5.2", "gpt-5.4-pro"]
)
def test_reasoning_models_are_not_asked_what_they_refuse(model: str) -> None:
    body, dropped = write(replace(ASKED, **SAMPLING, seed=1), Receiver("openai", model))

    assert not set(SAMPLING) & set(body)
    assert dropped == tuple(SAMPLING)
    assert body["seed"] == 1


@pytest.mark.parametrize(
    "receiver",
    [OPENAI, Receiver("openai", "gpt-5-chat-latest"), Receiver("openrouter", "openai/o3"),
     Receiver("vllm", "gpt-5")],
)  # fmt: skip
def test_other_models_are(receiver: Receiver) -> None:
    body, dropped = write(replace(ASKED, **SAMPLING), receiver)

    assert set(SAMPLING) <= set(body)
    assert dropped == ()


def test_gemini_is_not_asked_what_its_endpoint_does_not_know() -> None:
    asked = replace(ASKED, **SAMPLING, seed=1)

    body, dropped = write(asked, Receiver("gemini", "gemini-2.5-flash"))

    assert {"temperature", "top_p", "stop"} <= set(body)
    assert dropped == ("presence_penalty", "frequency_penalty", "seed")
    assert not set(dropped) & set(body)


@pytest.mark.parametrize("one", [1, Number("1.0")])
def test_the_temperature_reasoning_models_have_anyway_is_not_missed(one: Any) -> None:
    body, dropped = write(replace(ASKED, temperature=one), Receiver("openai", "o3"))

    assert ("temperature" in body, dropped) == (False, ())


@pytest.mark.parametrize(
    ("provider", "model", "effort", "written", "dropped"),
    [
        ("openai", "o3", "high", "high", ()),
        ("openai", "o3", "minimal", "low", ("effort minimal",)),
        ("openai", "o3", "xhigh", "high", ("effort xhigh",)),
        ("openai", "gpt-5", "minimal", "minimal", ()),
        ("openai", "gpt-5-mini", "none", "minimal", ("effort none",)),
        ("openai", "gpt-5.1", "none", "none", ()),
        ("openai", "gpt-5.2", "xhigh", "xhigh", ()),
        ("openai", "gpt-5.2", "odd", "odd", ()),
        ("openai", "gpt-5-chat-latest", "low", None, ("reasoning effort",)),
        ("openai", "gpt-4o", "low", None, ("reasoning effort",)),
        ("mistral", "mistral-large", "low", None, ("reasoning effort",)),
        ("groq", "openai/gpt-oss-120b", "low", "low", ()),
        ("ollama", "gpt-oss:20b", "none", "low", ("effort none",)),
        ("gemini", "gemini-2.5-flash", "medium", "medium", ()),
        ("gemini", "gemini-2.0-flash", "medium", None, ("reasoning effort",)),
    ],
)
def test_effort_goes_to_models_that_take_it(
    provider: str, model: str, effort: str, written: str | None, dropped: tuple[str, ...]
) -> None:
    value = write_request(replace(ASKED, effort=effort), Receiver(provider, model))

    assert value.value.get("reasoning_effort") == written
    assert value.dropped == dropped


@pytest.mark.parametrize(
    ("model", "is_written"), [("gpt-5.2", True), ("gpt-5.4", False), ("gpt-5.10-pro", False)]
)
def test_effort_gives_way_to_tools_where_both_are_refused(model: str, is_written: bool) -> None:
    asked = replace(ASKED, effort="low", tools=(WEATHER,))

    body, dropped = write(asked, Receiver("openai", model))

    assert ("reasoning_effort" in body) is is_written
    assert dropped == (() if is_written else ("reasoning effort",))


def test_verbosity_goes_to_models_that_take_it() -> None:
    asked = replace(ASKED, verbosity="low")

    assert write(asked, Receiver("openai", "gpt-5"))[0]["verbosity"] == "low"
    assert write(asked, OPENAI)[1] == ("verbosity",)
    assert write(asked, OTHER)[1] == ("verbosity",)


def test_tools_are_written() -> None:
    tools = (replace(WEATHER, is_strict=True), Offer("f", is_strict=False), PATCH)

    body, dropped = write(replace(ASKED, tools=tools))

    assert body["tools"] == [
        function("get_weather", description="Say it.", parameters=SCHEMA, strict=True),
        function("f", parameters={"type": "object", "properties": {}}),
        {"type": "custom", "custom": {"name": "patch"}},
    ]
    assert dropped == ()


def test_a_custom_tool_is_a_function_where_there_is_nothing_else() -> None:
    asked = replace(ASKED, tools=(PATCH,), pick=Pick("named", "patch"))

    body, dropped = write(asked, OTHER)

    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    assert body["tools"] == [function("patch", parameters=schema)]
    assert body["tool_choice"] == function("patch")
    assert dropped == ()


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (None, {"type": "object", "properties": {}}),
        (True, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        (SCHEMA, SCHEMA),
    ],
)
def test_a_schema_is_that_of_an_object_and_lists_its_properties(schema: Any, written: Any) -> None:
    body, _ = write(replace(ASKED, tools=(Offer("f", schema=schema),)))

    assert body["tools"][0]["function"]["parameters"] == written


@pytest.mark.parametrize(
    ("pick", "choice"),
    [
        (Pick("auto"), "auto"),
        (Pick("any"), "required"),
        (Pick("none"), "none"),
        (Pick("named", "get_weather"), function("get_weather")),
        (Pick("named", "patch"), {"type": "custom", "custom": {"name": "patch"}}),
    ],
)
def test_the_choice_of_a_tool_is_written(pick: Pick, choice: Any) -> None:
    body, _ = write(replace(ASKED, tools=(WEATHER, PATCH), pick=pick))

    assert body["tool_choice"] == choice


@pytest.mark.parametrize(
    ("pick", "dropped"),
    [(Pick("auto"), ()), (Pick("none"), ()), (Pick("any"), ("tool choice",)),
     (Pick("named", "f"), ("tool choice",))],
)  # fmt: skip
def test_without_tools_nothing_is_said_of_calling_them(
    pick: Pick, dropped: tuple[str, ...]
) -> None:
    asked = replace(ASKED, pick=pick, calls_in_parallel=False)

    body, names = write(asked)

    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    assert names == dropped


@pytest.mark.parametrize(
    ("model", "in_parallel", "written", "dropped"),
    [
        ("gpt-4o", False, False, ()),
        ("gpt-4o", True, True, ()),
        ("gpt-5", False, False, ()),
        ("o3-mini", True, None, ()),
        ("o3-mini", False, None, ("parallel_tool_calls",)),
    ],
)
def test_calls_one_at_a_time_are_asked_for_where_that_is_understood(
    model: str, in_parallel: bool, written: bool | None, dropped: tuple[str, ...]
) -> None:
    asked = replace(ASKED, tools=(WEATHER,), calls_in_parallel=in_parallel)

    body, names = write(asked, Receiver("openai", model))

    assert (body.get("parallel_tool_calls"), names) == (written, dropped)


def test_markers_are_named_once() -> None:
    marked = Turn("user", (Text("q", MARK), Text("r", MARK)))
    asked = replace(ASKED, turns=(marked,), tools=(replace(WEATHER, cache=MARK),))

    assert write(asked)[1] == ("cache markers",)


# Both ways


def test_the_sample_comes_back_as_it_was() -> None:
    body = SAMPLES["openai_chat"].ask

    asked = read_request(body)

    written, dropped = write(asked, Receiver("openai", asked.model))
    blank = Offer("get_weather", schema={"type": "object", "properties": {}})
    assert read_request(written) == replace(asked, unsaid=(), tools=(blank,))
    assert dropped == asked.unsaid


_NUMBERS = st.sampled_from((None, 0, 1, Number("0.50")))
_ASKED = st.builds(
    Asked,
    model=st.just("gpt-4o-mini"),
    turns=st.sampled_from(
        (
            ASKED.turns,
            (
                Turn("system", (Text("s"),)),
                *ASKED.turns,
                Turn("assistant", (Text("a"), Called("c1", "get_weather", "{"))),
                Turn("user", (Result("c1", (Text("5C"),)),)),
            ),
        )
    ),
    streams=st.booleans(),
    tools=st.just((WEATHER, PATCH)),
    pick=st.sampled_from((None, Pick("auto"), Pick("any"), Pick("none"), Pick("named", "patch"))),
    calls_in_parallel=st.sampled_from((None, True, False)),
    output_tokens_max=st.sampled_from((None, 1, 4096)),
    temperature=_NUMBERS,
    top_p=_NUMBERS,
    seed=st.sampled_from((None, 7)),
    presence_penalty=_NUMBERS,
    frequency_penalty=_NUMBERS,
    stop=st.sampled_from(((), ("A",), ("A", "\u2028"))),
    format=st.sampled_from((None, Format(), Format(SCHEMA, "r", "d", True))),
    choices=st.integers(1, 3),
    user=st.sampled_from((None, "u")),
)


@given(_ASKED)
@settings(derandomize=True, deadline=None, database=None, max_examples=100)
def test_what_the_form_can_say_comes_back(asked: Asked) -> None:
    written = write_request(asked, OPENAI)

    check_chat_request(json.loads(encode(written.value)))
    assert written.dropped == ()
    again = parse(encode(written.value))
    assert isinstance(again, dict)
    assert read_request(again) == asked
