"""Requests in Gemini's own form: read into the neutral form, and written from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.gemini import Gemini
from agentstate.dialects.gemini_contents import NO_SIGNATURE, NO_SIGNATURE_BYTES
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
    Written,
    made_id,
)
from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.errors import BadRequest
from tests.helpers.gemini_types import check_request

MODEL = "gemini-2.5-flash"
WEATHER = Offer(
    "get_weather", "Tells it.", {"type": "object", "properties": {"city": {"type": "string"}}}
)
BIG = 2512292042121000001
GOOGLES_FILE = "https://generativelanguage.googleapis.com/v1beta/files/a"


def write(asked: Asked, model: str = MODEL) -> Written[dict[str, JSON]]:
    """Write a request, and check it against Google's types."""
    written = Gemini().write_request(asked, Receiver("gemini", model))
    check_request(json.loads(encode(written.value)))
    return written


def write_turns(*turns: Turn) -> list[Any]:
    """Return the contents of a conversation."""
    contents = write(Asked("m", turns)).value["contents"]
    assert isinstance(contents, list)
    return contents


def read(body: dict[str, JSON], *, streams: bool = False) -> Asked:
    """Read a request as one that came by its path."""
    action = "streamGenerateContent" if streams else "generateContent"
    dialect = Gemini().at(f"/v1beta/models/{MODEL}:{action}", "alt=sse")
    assert dialect is not None
    return dialect.read_request(dialect.read_ask(body).body)


def user(*items: Item | str) -> Turn:
    return Turn("user", tuple(Text(each) if isinstance(each, str) else each for each in items))


def model(*items: Item | str) -> Turn:
    return Turn("assistant", tuple(Text(each) if isinstance(each, str) else each for each in items))


def called(call_id: str, arguments: str = "{}") -> Called:
    return Called(call_id, "get_weather", arguments)


def result(call_id: str, text: str = "5C", **fields: Any) -> Result:
    return Result(call_id, (Text(text),), **fields)


def response(call_id: str, **given: JSON) -> dict[str, JSON]:
    """Return the part of a function's response."""
    said: JSON = given or {"result": "5C"}
    return {"functionResponse": {"id": call_id, "name": "get_weather", "response": said}}


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("streams", "path"),
    [
        (False, ("/v1beta/models/gemini-2.5-flash:generateContent", "")),
        (True, ("/v1beta/models/gemini-2.5-flash:streamGenerateContent", "alt=sse")),
    ],
)
def test_model_and_stream_stand_in_the_path(streams: bool, path: tuple[str, str]) -> None:
    assert Gemini().request_path(MODEL, streams=streams) == path
    bound = Gemini().at(*path)
    assert bound is not None
    assert bound.read_ask({"contents": [{"parts": []}]}).streams is streams


def test_a_models_name_cannot_leave_the_path() -> None:
    path, _ = Gemini().request_path("models/a/../b:c?d", streams=False)
    assert path == "/v1beta/models/a%2F..%2Fb%3Ac%3Fd:generateContent"


def test_an_ordinary_request_is_whole() -> None:
    asked = Asked(
        "gpt-4o-mini",
        (
            Turn("system", (Text("A"), Text("B"))),
            user("q"),
            model("I look.", called("call_1", '{"n":2512292042121000001,"f":1.50}')),
            user(result("call_1")),
        ),
        tools=(WEATHER,),
        pick=Pick("auto"),
        output_tokens_max=100,
        temperature=parse(b"0.70"),
        stop=("END",),
        seed=7,
    )

    written = write(asked)

    assert written.dropped == ()
    assert encode(written.value) == encode(
        {
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {
                    "role": "model",
                    "parts": [
                        {"text": "I look."},
                        {
                            "functionCall": {
                                "id": "call_1",
                                "name": "get_weather",
                                "args": {"n": BIG, "f": parse(b"1.50")},
                            },
                            "thoughtSignature": NO_SIGNATURE,
                        },
                    ],
                },
                {"role": "user", "parts": [response("call_1")]},
            ],
            "systemInstruction": {"parts": [{"text": "A"}, {"text": "B"}]},
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "get_weather",
                            "description": "Tells it.",
                            "parameters": WEATHER.schema,
                        }
                    ]
                }
            ],
            "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
            "generationConfig": {
                "maxOutputTokens": 100,
                "temperature": parse(b"0.70"),
                "seed": 7,
                "stopSequences": ["END"],
            },
        }
    )


def test_results_stand_together_in_the_order_of_the_calls() -> None:
    contents = write_turns(
        user("w?"),
        model(called("call_1"), called("call_2"), called("call_3")),
        user("and?", result("call_1")),
        user(result("call_3")),
        user(result("call_2")),
    )
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[2]["parts"] == [
        response("call_1"), response("call_2"), response("call_3"), {"text": "and?"},
    ]  # fmt: skip
    signed = ["thoughtSignature" in part for part in contents[1]["parts"]]
    assert signed == [True, False, False]


def test_a_lost_result_and_a_stray_one_are_told() -> None:
    contents = write_turns(
        user("w?"),
        model(called("call_1"), called("call_2")),
        user(result("call_2"), result("call_9", "stray")),
        model("ok", called("call_3")),
    )
    lost = {"error": "There is no result on record."}
    assert contents[2]["parts"] == [
        response("call_1", **lost), response("call_2"),
        {"text": "The result of an earlier call:"}, {"text": "stray"},
    ]  # fmt: skip
    assert contents[4] == {"role": "user", "parts": [response("call_3", **lost)]}


def test_ids_are_made_safe_alike_for_call_and_result() -> None:
    contents = write_turns(
        user("w?"), model(called("functions.f:0")), user(result("functions.f:0"))
    )
    call = contents[1]["parts"][0]["functionCall"]["id"]
    assert contents[2]["parts"][0]["functionResponse"]["id"] == call != "functions.f:0"


@pytest.mark.parametrize(
    ("text", "is_error", "said"),
    [
        ("5C", False, {"result": "5C"}),
        ("", False, {"result": ""}),
        ('{"temp": 5}', False, {"temp": 5}),
        ("[1]", False, {"result": "[1]"}),
        ("{not json", False, {"result": "{not json"}),
        # Google reads numbers as floats.
        ('{"id": 2512292042121000001}', False, {"result": '{"id": 2512292042121000001}'}),
        ('{"ids": [1, [-2512292042121000001]]}', False,
         {"result": '{"ids": [1, [-2512292042121000001]]}'}),
        ('{"temp": 5}', True, {"error": '{"temp": 5}'}),
    ],
)  # fmt: skip
def test_what_a_function_returned_is_an_object(
    text: str, is_error: bool, said: dict[str, JSON]
) -> None:
    contents = write_turns(
        user("q"), model(called("call_1")), user(result("call_1", text, is_error=is_error))
    )
    assert contents[2]["parts"] == [response("call_1", **said)]


def test_what_a_result_shows_comes_after_the_results() -> None:
    shot = Result("call_1", (Text("done"), Image("iVBORw0KGgo=", "image/png")))
    contents = write_turns(
        user("q"), model(called("call_1"), called("call_2")), user(shot, result("call_2"))
    )
    assert contents[2]["parts"] == [
        response("call_1", result="done"),
        response("call_2"),
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
    ]


@pytest.mark.parametrize(
    ("item", "part", "dropped"),
    [
        (Refused("No."), {"text": "No."}, ()),
        (Image("AAAA", "image/webp"),
         {"inlineData": {"mimeType": "image/webp", "data": "AAAA"}}, ()),
        (Image(url="https://a.b/c.PNG?d", detail="low"),
         {"fileData": {"fileUri": "https://a.b/c.PNG?d", "mimeType": "image/png"}},
         ("image detail",)),
        (Image(url="https://a.b/c"), {"fileData": {"fileUri": "https://a.b/c"}}, ()),
        (Document("AAAA", "application/pdf", name="x.pdf"),
         {"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}}, ("names of documents",)),
        (Document(text="words"), {"text": "words"}, ()),
        (Document(url="https://a.b/c.pdf"),
         {"fileData": {"fileUri": "https://a.b/c.pdf", "mimeType": "application/pdf"}}, ()),
        (Audio("AAAA", "wav"), {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}, ()),
        (Text("x", cache={"type": "ephemeral"}), {"text": "x"}, ("cache markers",)),
    ],
)  # fmt: skip
def test_every_kind_of_part_has_its_form(item: Item, part: JSON, dropped: tuple[str, ...]) -> None:
    written = write(Asked("m", (user(item),)))
    assert written.value["contents"] == [{"role": "user", "parts": [part]}]
    assert written.dropped == dropped


def test_the_systems_later_turns_are_moved_up_and_alone_they_are_the_users() -> None:
    system = Turn("system", (Text("A"),))
    later = Turn("system", (Text("C"), Image("AAAA", "image/png")))

    written = write(Asked("m", (system, user("q"), later, user("q2"))))

    assert written.value["systemInstruction"] == {"parts": [{"text": "A"}, {"text": "C"}]}
    assert written.value["contents"] == [{"role": "user", "parts": [{"text": "q"}, {"text": "q2"}]}]
    assert written.dropped == ("all but text of the system",)
    assert write(Asked("m", (system,))).value == {
        "contents": [{"role": "user", "parts": [{"text": "A"}]}]
    }


def test_the_user_begins_and_empty_turns_are_left_out() -> None:
    contents = write_turns(model("Hello."), user(""), model("Still there?"), user("Yes."))
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[1]["parts"] == [{"text": "Hello."}, {"text": "Still there?"}]


@pytest.mark.parametrize("arguments", ["{", "[1]", "null", "text"])
def test_arguments_that_are_no_object_are_refused_by_their_turn(arguments: str) -> None:
    with pytest.raises(BadRequest) as refused:
        write_turns(user("q"), model(called("call_1", arguments)))
    assert refused.value.param == "messages[1]"


def test_empty_arguments_are_an_empty_object_and_free_text_is_put_in_one() -> None:
    contents = write_turns(
        user("q"), model(called("call_1", ""), Called("call_2", "sh", "ls", True))
    )
    arguments = [part["functionCall"]["args"] for part in contents[1]["parts"]]
    assert arguments == [{}, {"input": "ls"}]


@pytest.mark.parametrize(
    ("pick", "config"),
    [
        (Pick("auto"), {"mode": "AUTO"}),
        (Pick("any"), {"mode": "ANY"}),
        (Pick("none"), {"mode": "NONE"}),
        (Pick("named", "get_weather"), {"mode": "ANY", "allowedFunctionNames": ["get_weather"]}),
    ],
)
def test_which_tools_are_called_is_said(pick: Pick, config: JSON) -> None:
    written = write(Asked("m", (user("q"),), tools=(WEATHER,), pick=pick))
    assert written.value["toolConfig"] == {"functionCallingConfig": config}


def test_what_is_lost_of_a_tool_is_named_by_its_place() -> None:
    tools = (
        Offer("bare"),
        Offer("limits", schema={"properties": {"a": {"multipleOf": 2}}}, is_strict=True),
        Offer("free", is_custom=True, cache={"type": "ephemeral"}),
    )
    written = write(Asked("m", (user("q"),), tools=tools, pick=Pick("any")))
    assert written.dropped == ("tools[1]: multipleOf", "tools[1]: strict", "cache markers")
    assert written.value["tools"] == [
        {
            "functionDeclarations": [
                {"name": "bare"},
                {
                    "name": "limits",
                    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
                },
                {
                    "name": "free",
                    "parameters": {
                        "type": "object",
                        "properties": {"input": {"type": "string"}},
                        "required": ["input"],
                    },
                },
            ]
        }
    ]


def test_one_keyword_that_google_does_not_know_does_not_fail_the_call() -> None:
    (path,) = (Path(__file__).parents[1] / "cases").glob("123-*.json")
    function = json.loads(path.read_text())["client"]["body"]["tools"][0]["function"]
    written = write(Asked("m", (user("hi"),), tools=(Offer("f", schema=function["parameters"]),)))
    assert written.value["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "f",
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "n": {"type": "integer", "minimum": 1, "nullable": True},
                            "e": {"type": "string", "enum": ["x"]},
                            "u": {"type": "array", "items": {"type": "string"}},
                        },
                        "required": ["n"],
                    },
                }
            ]
        }
    ]
    assert written.dropped == ("tools[0]: uniqueItems",)


@pytest.mark.parametrize(
    ("asked", "config", "dropped"),
    [
        ({"stop": tuple("abcdefg")}, {"stopSequences": list("abcde")}, ("stop[5:]",)),
        ({"seed": 2**31}, None, ("seed",)),
        ({"seed": -(2**31)}, {"seed": -(2**31)}, ()),
        ({"choices": 2}, {"candidateCount": 2}, ()),
        ({"top_p": 1, "top_k": 2, "presence_penalty": 0, "frequency_penalty": 1},
         {"topP": 1, "topK": 2, "presencePenalty": 0, "frequencyPenalty": 1}, ()),
        ({"effort": "low"}, {"thinkingConfig": {"thinkingBudget": 1024}}, ()),
        ({"effort": "none"}, {"thinkingConfig": {"thinkingBudget": 0}}, ()),
        ({"effort": "xhigh"}, {"thinkingConfig": {"thinkingBudget": 24576}}, ("effort xhigh",)),
        ({"effort": "odd"}, None, ("reasoning effort",)),
        ({"verbosity": "low", "calls_in_parallel": False}, None,
         ("parallel_tool_calls", "verbosity")),
        ({"pick": Pick("any")}, None, ("tool choice",)),
        ({"pick": Pick("none")}, None, ()),
        ({"unsaid": ("logit_bias",), "user": "u"}, None, ("logit_bias",)),
        ({"format": Format()}, {"responseMimeType": "application/json"}, ()),
        ({"format": Format({"type": "array", "items": {"not": {}, "type": "string"}, "minItems": 1},
                           description="d")},
         {"responseMimeType": "application/json",
          "responseSchema": {"type": "array", "items": {"type": "string"}, "minItems": 1,
                             "description": "d"}}, ()),
    ],
)  # fmt: skip
def test_what_an_answer_is_to_be_is_said_or_named(
    asked: dict[str, Any], config: JSON, dropped: tuple[str, ...]
) -> None:
    written = write(Asked("m", (user("q"),), **asked))
    assert written.value.get("generationConfig") == config
    assert written.dropped == dropped
    assert "toolConfig" not in written.value


@pytest.mark.parametrize(
    ("name", "effort", "thinking"),
    [
        ("gemini-3-pro-preview", "minimal", {"thinkingLevel": "low"}),
        ("gemini-3.1-flash", "high", {"thinkingLevel": "high"}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("gemini-2.0-flash", "high", None),
    ],
)
def test_effort_is_told_as_the_model_takes_it(name: str, effort: str, thinking: JSON) -> None:
    config = write(Asked("m", (user("q"),), effort=effort), name).value.get("generationConfig")
    assert config == (None if thinking is None else {"thinkingConfig": thinking})


@pytest.mark.parametrize(("name", "is_told"), [(MODEL, True), ("gemini-3-pro-preview", False)])
def test_a_format_beside_functions_is_told_in_words_to_older_models(
    name: str, is_told: bool
) -> None:
    schema: JSON = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = Asked("m", (user("q"),), tools=(WEATHER,), format=Format(schema))

    written = write(asked, name)

    assert ("generationConfig" not in written.value) is is_told
    assert (written.dropped == ("response schema: told in words",)) is is_told
    told = encode(written.value.get("systemInstruction"))
    assert (encode(json.dumps(schema, separators=(",", ":")))[1:-1] in told) is is_told


# --- reading --------------------------------------------------------------------------------------


def test_a_request_of_googles_is_read_whole() -> None:
    body = parse(
        json.dumps(
            {
                "systemInstruction": {"parts": [{"text": "A"}]},
                "contents": [
                    {"role": "user", "parts": [{"text": "q"}]},
                    {
                        "role": "model",
                        "parts": [
                            {"text": "Hm.", "thought": True},
                            {
                                "functionCall": {"name": "get_weather", "args": {"n": BIG}},
                                "thoughtSignature": "c2ln",
                            },
                        ],
                    },
                    {"role": "user", "parts": [{"functionResponse": {
                        "name": "get_weather", "response": {"result": "5C"}}}]},
                ],
                "tools": [
                    {"functionDeclarations": [{
                        "name": "get_weather", "description": "d",
                        "parameters": {"type": "OBJECT", "properties": {
                            "city": {"type": "STRING", "nullable": True}}},
                    }]},
                    {"googleSearch": {}},
                ],
                "toolConfig": {"functionCallingConfig": {
                    "mode": "ANY", "allowedFunctionNames": ["get_weather"]}},
                "generationConfig": {
                    "maxOutputTokens": 10, "topK": 3, "topP": 0.5, "temperature": 1, "seed": 5,
                    "presencePenalty": 0.5, "frequencyPenalty": 1, "candidateCount": 2,
                    "stopSequences": ["END"], "responseMimeType": "application/json",
                    "responseSchema": {"type": "ARRAY", "items": {"type": "STRING"}},
                    "thinkingConfig": {"thinkingBudget": 1024}, "mediaResolution": "X",
                    "responseModalities": ["TEXT"],
                },
                "safetySettings": [], "cachedContent": "cachedContents/1", "labels": {},
            }
        ).encode()
    )  # fmt: skip
    assert isinstance(body, dict)
    call_id = made_id("history", 2, 0)

    asked = read(body, streams=True)

    assert asked == Asked(
        model=MODEL,
        turns=(
            Turn("system", (Text("A"),)),
            user("q"),
            model(called(call_id, f'{{"n":{BIG}}}')),
            user(result(call_id, name="get_weather")),
        ),
        streams=True,
        tools=(
            Offer(
                "get_weather",
                "d",
                {"type": "object", "properties": {"city": {"type": ["string", "null"]}}},
            ),
        ),
        pick=Pick("named", "get_weather"),
        output_tokens_max=10,
        temperature=1,
        top_p=parse(b"0.5"),
        top_k=3,
        seed=5,
        presence_penalty=parse(b"0.5"),
        frequency_penalty=1,
        stop=("END",),
        format=Format({"type": "array", "items": {"type": "string"}}),
        effort="low",
        choices=2,
        unsaid=(
            "safetySettings",
            "cachedContent",
            "contents[1]: thinking",
            "tools[1].googleSearch",
            "generationConfig.mediaResolution",
        ),
    )


def test_both_spellings_are_read() -> None:
    body: dict[str, JSON] = {
        "system_instruction": {"text": "A"},
        "contents": [
            {"role": "model", "parts": [{"function_call": {"id": "a", "name": "f"}}]},
            {"parts": {"function_response": {"id": "a", "name": "f", "response": {"x": 1}}}},
        ],
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"a": 1}}]}],
        "tool_config": {"function_calling_config": {"mode": "none"}},
        "generation_config": {"max_output_tokens": 5, "top_p": None},
    }
    assert read(body) == Asked(
        MODEL,
        (
            Turn("system", (Text("A"),)),
            model(Called("a", "f", "{}")),
            user(Result("a", (Text('{"x":1}'),), name="f")),
        ),
        tools=(Offer("f", schema={"a": 1}),),
        pick=Pick("none"),
        output_tokens_max=5,
    )


@pytest.mark.parametrize(
    ("part", "item"),
    [
        ({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, Image("AAAA", "image/png")),
        ({"fileData": {"mimeType": "image/png", "fileUri": "https://a.b/c"}},
         Image(url="https://a.b/c")),
        ({"inlineData": {"mimeType": "audio/mpeg", "data": "AAAA"}}, Audio("AAAA", "mp3")),
        ({"inlineData": {"mimeType": "application/pdf", "data": "AAAA", "displayName": "n"}},
         Document("AAAA", "application/pdf", name="n")),
        ({"fileData": {"mimeType": "text/csv", "fileUri": "https://a.b/c"}},
         Document(media_type="text/csv", url="https://a.b/c")),
        ({"fileData": {"mimeType": "image/png", "fileUri": "gs://bucket/a"}}, None),
        ({"fileData": {"mimeType": "image/png", "fileUri": GOOGLES_FILE}}, None),
        ({"fileData": {"mimeType": "image/png", "fileUri": "https://["}}, None),
        ({"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}, None),
        ({"inlineData": {"mimeType": "audio/flac", "data": "AAAA"}}, None),
        ({"executableCode": {"language": "PYTHON", "code": "1"}}, None),
    ],
)  # fmt: skip
def test_parts_are_read_or_named(part: JSON, item: Item | None) -> None:
    asked = read({"contents": [{"parts": [{"text": "q"}, part]}]})
    assert asked.turns == (user("q", *([] if item is None else [item])),)
    assert asked.unsaid == (("contents[0].parts[1]",) if item is None else ())


def test_what_stands_beside_a_part_is_named() -> None:
    part: JSON = {"text": "q", "videoMetadata": {}, "partMetadata": {}}
    assert read({"contents": [{"parts": [part]}]}).unsaid == ("contents[0].parts[0].videoMetadata",)


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        ({"output": "x"}, (("x",), False)),
        ({"error": "x"}, (("x",), True)),
        ({"error": {"code": 1}}, (('{"error":{"code":1}}',), False)),
        ({"result": "x", "more": 1}, (('{"result":"x","more":1}',), False)),
        ({}, (("{}",), False)),
    ],
)
def test_what_a_function_returned_is_read_as_text(given: JSON, read_as: tuple[Any, bool]) -> None:
    part: JSON = {"functionResponse": {"id": "a", "name": "f", "response": given}}
    (found,) = read({"contents": [{"parts": [part]}]}).turns[0].items
    assert isinstance(found, Result)
    texts = tuple(part.text for part in found.parts if isinstance(part, Text))
    assert (texts, found.is_error) == read_as


def test_the_stand_in_for_a_signature_is_no_thinking() -> None:
    for signature in (NO_SIGNATURE, NO_SIGNATURE_BYTES):
        part: JSON = {"functionCall": {"id": "a", "name": "f"}, "thoughtSignature": signature}
        assert read({"contents": [{"role": "model", "parts": [part]}]}).unsaid == ()


@pytest.mark.parametrize(
    ("config", "effort"),
    [
        ({"thinkingLevel": "HIGH"}, "high"),
        ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, None),
        ({"thinkingBudget": -1}, None),
        ({"thinkingBudget": 0}, "none"),
        ({"thinkingBudget": 8192}, "medium"),
        ({"thinkingBudget": 9000}, "high"),
        ({"includeThoughts": True}, None),
    ],
)
def test_thinking_is_read_as_effort(config: JSON, effort: str | None) -> None:
    asked = read({"contents": [{"parts": []}], "generationConfig": {"thinkingConfig": config}})
    assert (asked.effort, asked.unsaid) == (effort, ())


@pytest.mark.parametrize(
    ("calling", "pick", "names", "unsaid"),
    [
        ({"mode": "AUTO"}, Pick("auto"), ["f", "g"], ()),
        ({"mode": "ANY"}, Pick("any"), ["f", "g"], ()),
        ({"mode": "ANY", "allowedFunctionNames": ["g", "h"]}, Pick("any"), ["g"], ()),
        ({"mode": "VALIDATED"}, Pick("auto"), ["f", "g"],
         ("toolConfig.functionCallingConfig.mode",)),
        ({"mode": "MODE_UNSPECIFIED"}, None, ["f", "g"], ()),
    ],
)  # fmt: skip
def test_which_functions_may_be_called_is_read(
    calling: JSON, pick: Pick | None, names: list[str], unsaid: tuple[str, ...]
) -> None:
    asked = read(
        {
            "contents": [{"parts": [{"text": "q"}]}],
            "tools": [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}],
            "toolConfig": {"functionCallingConfig": calling},
        }
    )
    assert (asked.pick, [tool.name for tool in asked.tools]) == (pick, names)
    assert asked.unsaid == unsaid


@pytest.mark.parametrize(
    ("config", "unsaid"),
    [
        ({"maxOutputTokens": "many"}, ("generationConfig.maxOutputTokens",)),
        ({"responseModalities": ["TEXT", "IMAGE"]}, ("generationConfig.responseModalities",)),
        ({"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING"}},
         ("generationConfig.responseMimeType", "generationConfig.responseSchema")),
        ({"responseMimeType": "text/plain"}, ()),
    ],
)  # fmt: skip
def test_settings_that_have_no_place_are_named(config: JSON, unsaid: tuple[str, ...]) -> None:
    asked = read({"contents": [{"parts": []}], "generationConfig": config})
    assert asked.unsaid == unsaid


# --- both ways ------------------------------------------------------------------------------------

TEXTS = st.text(min_size=1, max_size=9).filter(lambda text: not text.lstrip().startswith("{"))
SEEN: st.SearchStrategy[Any] = st.one_of(
    st.builds(Text, TEXTS),
    st.builds(Image, st.just("AAAA"), st.just("image/png")),
    st.builds(Document, st.just("AAAA"), st.just("application/pdf")),
    st.builds(Audio, st.just("AAAA"), st.just("wav")),
)
ARGUMENTS = st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=2).map(
    lambda value: encode(value).decode()
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Turn, ...]:
    """Conversations that keep every rule: they come back as they were."""
    turns = [Turn("system", (Text(draw(TEXTS)),))] if draw(st.booleans()) else []
    turns.append(Turn("user", tuple(draw(st.lists(SEEN, min_size=1, max_size=2)))))
    for number in range(draw(st.integers(0, 3))):
        count = draw(st.integers(0, 2))
        calls = [Called(f"c{number}_{n}", "f", draw(ARGUMENTS)) for n in range(count)]
        turns.append(model(draw(TEXTS), *calls))
        results = [
            Result(call.call_id, (Text(draw(TEXTS)),), draw(st.booleans()), name="f")
            for call in calls
        ]
        rest = draw(st.lists(SEEN, min_size=0 if calls else 1, max_size=2))
        turns.append(Turn("user", (*results, *rest)))
    return tuple(turns)


@settings(max_examples=100, deadline=None)
@given(conversations())
def test_a_conversation_comes_back_as_it_was(turns: tuple[Turn, ...]) -> None:
    asked = Asked(
        MODEL, turns, tools=(WEATHER,), pick=Pick("any"), output_tokens_max=9, temperature=1,
        stop=("a",), choices=2,
    )  # fmt: skip
    written = write(asked)
    assert written.dropped == ()
    body = parse(encode(written.value))
    assert isinstance(body, dict)
    assert read(body) == asked
    assert write(asked) == written
