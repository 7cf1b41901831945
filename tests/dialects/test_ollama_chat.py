"""Ollama's own form, as a target: requests written, answers read, whole and line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentstate.dialects.base import Mark, calls_tools
from agentstate.dialects.lenient import join_text
from agentstate.dialects.neutral import (
    AnswerHead,
    Asked,
    Audio,
    Called,
    Document,
    Ending,
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
    translates,
)
from agentstate.dialects.ollama_chat import OllamaChat
from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.chat import Answer, Piece, ToolCall, Usage
from agentstate.ground.errors import BadRequest
from agentstate.wire.sse import Frame

OLLAMA = OllamaChat()
WEATHER = Offer("get_weather", "Tells it.", {"properties": {"city": {"type": "string"}}})
CALL: dict[str, Any] = {
    "function": {"name": "get_weather", "arguments": {"city": "Oslo", "n": 2512292042121000001}}
}
HEAD: dict[str, Any] = {"model": "llama3.1", "created_at": "2024-12-10T13:49:29.3Z"}


def line(content: str = "", *, done: str | None = None, **fields: Any) -> bytes:
    """Render one line of a stream; `done` is its reason."""
    last = {} if done is None else {"done_reason": done, "prompt_eval_count": 5, "eval_count": 7}
    message = {"role": "assistant", "content": content, **fields}
    return json.dumps({**HEAD, "message": message, "done": done is not None, **last}).encode()


STREAMS: dict[str, tuple[bytes, ...]] = {
    "text": (line("Hi "), line("there \U0001f600"), line(done="stop")),
    "a call, then the end": (line(tool_calls=[CALL]), line(done="stop")),
    "calls in several lines": (
        line("I look."),
        line(tool_calls=[CALL]),
        line(tool_calls=[{"id": "call_1", "function": {"name": "f"}}, CALL]),
        line(done="stop"),
    ),
    "thinking": (line(thinking="Hm"), line(thinking="."), line("Hi"), line(done="length")),
    "all in the last line": (line("Hi", done="stop", tool_calls=[CALL]),),
}


def feed(lines: tuple[bytes, ...] | list[bytes]) -> tuple[list[Mark], Answer]:
    assembler = OLLAMA.assembler()
    marks = [assembler.feed(Frame(each + b"\n", each)) for each in lines]
    return marks, assembler.finish(True)


# --- answers --------------------------------------------------------------------------------------


def test_calls_before_the_last_line_are_why_it_ended() -> None:
    marks, answer = feed(STREAMS["a call, then the end"])

    assert marks == [Mark.TOOL, Mark.COMPLETING]
    assert answer.is_complete
    assert answer.choices[0].tool_calls == (
        ToolCall(0, None, "get_weather", '{"city":"Oslo","n":2512292042121000001}'),
    )
    assert (answer.finish_reason, OLLAMA.ending(answer)) == ("stop", "tool_calls")
    assert (answer.model, answer.usage) == ("llama3.1", Usage(5, 7))


def test_marks_say_what_each_line_brings() -> None:
    marks, answer = feed(
        [line(), line(thinking="x"), b"", line("Hi"), line(tool_calls=[CALL]), b"[]",
         line(done="stop"), b"", line("tail")]
    )  # fmt: skip
    assert marks == [
        Mark.PREFACE, Mark.CONTENT, Mark.PREFACE, Mark.CONTENT, Mark.TOOL, Mark.PREFACE,
        Mark.COMPLETING, Mark.TAIL, Mark.TAIL,
    ]  # fmt: skip
    assert answer.choices[0].reasoning == "x"


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_without_its_last_line_is_no_answer(name: str) -> None:
    lines = STREAMS[name]
    for kept in range(len(lines)):
        marks, answer = feed(lines[:kept])
        assert Mark.COMPLETING not in marks
        assert not answer.is_complete
        assert answer.fault
    marks, answer = feed(lines)
    assert marks.count(Mark.COMPLETING) == 1
    assert (answer.is_complete, answer.fault) == (True, None)


def test_after_the_last_line_the_connection_does_not_matter() -> None:
    assembler = OLLAMA.assembler()
    assembler.feed(Frame(b"", line("Hi", done="stop")))
    assert assembler.finish(clean_end=False).is_complete


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("asks_every", [1, 2, 99])
def test_pieces_text_and_names_are_the_snapshot_at_every_cut(name: str, asks_every: int) -> None:
    assembler = OLLAMA.assembler()
    pieces = assembler.new_pieces()
    texts: list[str] = []
    for number, each in enumerate(STREAMS[name], start=1):
        assembler.feed(Frame(each, each))
        texts += [text for _, text in assembler.new_text()]
        if number % asks_every == 0:
            pieces += assembler.new_pieces()
        (choice,) = assembler.snapshot().choices
        assert assembler.call_names() == [
            (0, call.position, call.name) for call in choice.tool_calls
        ]
        assert join_text(texts) == choice.text
        told = [*pieces, *(last := assembler.new_pieces())]
        pieces += last
        assert joined(told, "text") == choice.text
        assert joined(told, "reasoning") == (choice.reasoning or "")
        assert [
            ToolCall(piece.position, piece.call_id, piece.name, piece.text)
            for piece in told
            if piece.kind == "call"
        ] == list(choice.tool_calls)
    assert assembler.new_pieces() == []


def joined(pieces: list[Piece], kind: str) -> str:
    return join_text([piece.text for piece in pieces if piece.kind == kind])


def test_nothing_is_kept_for_who_does_not_ask() -> None:
    assembler = OLLAMA.assembler()
    assembler.feed(Frame(b"", line("Hi")))
    assert assembler.new_pieces() == []


@pytest.mark.parametrize("data", [b"<html>", b'{"error":"model runner has stopped"}'])
def test_a_line_that_is_no_answer_is_an_error(data: bytes) -> None:
    marks, answer = feed([line("Hi"), data, line(done="stop")])
    assert marks[1:] == [Mark.ERROR, Mark.ERROR]
    assert not answer.is_complete


@pytest.mark.parametrize("name", STREAMS)
def test_a_whole_answer_is_read_like_its_stream(name: str) -> None:
    _, answer = feed(STREAMS[name])
    (choice,) = answer.choices
    message: dict[str, Any] = {"role": "assistant", "content": choice.text}
    if choice.reasoning:
        message["thinking"] = choice.reasoning
    message["tool_calls"] = [
        {"id": call.call_id, "function": {"name": call.name, "arguments": parse(
            call.arguments.encode())}}
        for call in choice.tool_calls
    ]  # fmt: skip
    body = {**HEAD, "message": message, "done": True, "done_reason": answer.finish_reason,
            "prompt_eval_count": 5, "eval_count": 7}  # fmt: skip
    assert OLLAMA.read_answer(encode(body)) == answer


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"<html>", "no JSON"),
        (b"[]", "a list"),
        (b"{}", "done"),
        (line("Hi"), "done"),
        (b'{"error":"model not found"}', "model not found"),
    ],
)
def test_what_is_no_answer_says_why(body: bytes, fault: str) -> None:
    answer = OLLAMA.read_answer(body)
    assert not answer.is_complete
    assert fault in str(answer.fault)


@pytest.mark.parametrize(
    ("reason", "calls", "ending"),
    [
        ("stop", [], "stop"),
        ("stop", [CALL], "tool_calls"),
        ("length", [CALL], "length"),
        ("load", [], "stop"),
        ("", [], "stop"),
    ],
)
def test_every_reason_is_an_ending(reason: str, calls: list[Any], ending: Ending) -> None:
    answer = OLLAMA.read_answer(line(done=reason, tool_calls=calls))
    assert answer.is_complete
    assert OLLAMA.ending(answer) == ending


def test_counts_that_are_left_out_are_none_or_nothing() -> None:
    assert OLLAMA.read_answer(b'{"done":true,"eval_count":3}').usage == Usage(0, 3)
    assert OLLAMA.read_answer(b'{"done":true}').usage is None


def test_arguments_that_are_text_stay_it() -> None:
    call = {"function": {"name": "f", "arguments": '{"a": 1}'}}
    (found,) = OLLAMA.read_answer(line(done="stop", tool_calls=[call])).choices[0].tool_calls
    assert found.arguments == '{"a": 1}'


def test_errors_are_read() -> None:
    facts = OLLAMA.read_error(b'{"error":"model \\"x\\" not found, try pulling it first"}')
    assert facts is not None
    assert facts.message.startswith('model "x" not found')


# --- requests -------------------------------------------------------------------------------------


def write(*turns: Turn, **fields: Any) -> Written[dict[str, JSON]]:
    return OLLAMA.write_request(Asked("m", turns, **fields), Receiver("ollama", "llama3.1"))


def user(*items: Item | str) -> Turn:
    return Turn("user", tuple(Text(each) if isinstance(each, str) else each for each in items))


def messages_of(*turns: Turn) -> list[Any]:
    messages = write(*turns).value["messages"]
    assert isinstance(messages, list)
    return messages


def test_an_ordinary_request_is_whole() -> None:
    written = write(
        Turn("system", (Text("A"),)),
        user("w?"),
        Turn("assistant", (Text("I look."), Called("call_1", "get_weather", '{"n":1.50}'))),
        user(Result("call_1", (Text("5C"),)), "and?"),
        streams=True,
        tools=(WEATHER,),
        pick=Pick("auto"),
        output_tokens_max=100,
        temperature=parse(b"0.70"),
        top_p=1,
        top_k=2,
        seed=3,
        stop=("END",),
        presence_penalty=0,
        frequency_penalty=1,
    )
    assert written.dropped == ()
    assert OLLAMA.request_path("llama3.1", streams=True) == ("/api/chat", "")
    assert encode(written.value) == encode(
        {
            "model": "llama3.1",
            "messages": [
                {"role": "system", "content": "A"},
                {"role": "user", "content": "w?"},
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "function": {
                                "name": "get_weather",
                                "arguments": {"n": parse(b"1.50")},
                            },
                        }
                    ],
                },
                {
                    "role": "tool",
                    "content": "5C",
                    "tool_name": "get_weather",
                    "tool_call_id": "call_1",
                },
                {"role": "user", "content": "and?"},
            ],
            "stream": True,
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "get_weather",
                        "description": "Tells it.",
                        "parameters": {
                            "properties": {"city": {"type": "string"}},
                            "type": "object",
                        },
                    },
                }
            ],
            "options": {
                "temperature": parse(b"0.70"),
                "top_p": 1,
                "top_k": 2,
                "seed": 3,
                "num_predict": 100,
                "stop": ["END"],
                "presence_penalty": 0,
                "frequency_penalty": 1,
            },
        }
    )


def test_a_request_that_does_not_stream_says_so() -> None:
    assert write(user("q")).value == {
        "model": "llama3.1",
        "messages": [{"role": "user", "content": "q"}],
        "stream": False,
    }


def test_what_a_result_shows_comes_after_the_results() -> None:
    shot = Result("a", (Text("done"), Image("AAAA", "image/png")), name="shot")
    assert messages_of(user(shot, Result("b", ()))) == [
        {"role": "tool", "content": "done", "tool_name": "shot", "tool_call_id": "a"},
        {"role": "tool", "content": "", "tool_call_id": "b"},
        {"role": "user", "content": "", "images": ["AAAA"]},
    ]


@pytest.mark.parametrize(
    ("item", "message", "dropped"),
    [
        (Image("AAAA", "image/png", detail="low"), {"images": ["AAAA"]}, ("image detail",)),
        (Image(url="https://a.b/c.png"), {}, ("images by URL",)),
        (Document(text="words"), {"content": "q\nwords"}, ()),
        (Document("AAAA", "application/pdf"), {}, ("documents",)),
        (Audio("AAAA", "wav"), {}, ("audio",)),
        (Refused("No."), {"content": "q\nNo."}, ()),
        (Text("x", cache={"type": "ephemeral"}), {"content": "q\nx"}, ("cache markers",)),
    ],
)
def test_every_kind_of_part_has_its_form_or_is_named(
    item: Item, message: dict[str, JSON], dropped: tuple[str, ...]
) -> None:
    written = write(user("q", item))
    assert written.value["messages"] == [{"role": "user", "content": "q", **message}]
    assert written.dropped == dropped


def test_turns_of_which_nothing_is_left_are_no_messages() -> None:
    assert messages_of(user("q"), Turn("assistant", ()), user(Audio("AAAA", "wav"))) == [
        {"role": "user", "content": "q"}
    ]


@pytest.mark.parametrize(
    ("arguments", "is_custom", "said"),
    [("", False, {}), ('{"a":1}', False, {"a": 1}), ("ls", True, {"input": "ls"})],
)
def test_arguments_are_an_object(arguments: str, is_custom: bool, said: JSON) -> None:
    call = Called("a", "f", arguments, is_custom)
    (message,) = messages_of(Turn("assistant", (call,)))
    assert message["tool_calls"][0]["function"]["arguments"] == said


def test_arguments_that_are_no_object_are_refused_by_their_turn() -> None:
    with pytest.raises(BadRequest) as refused:
        write(user("q"), Turn("assistant", (Called("a", "f", "{"),)))
    assert refused.value.param == "messages[1]"


@pytest.mark.parametrize(
    ("schema", "parameters"),
    [
        (None, {"type": "object", "properties": {}}),
        ({"type": ["object", "null"], "properties": {"any": True, "a": {"type": "string"}}},
         {"type": "object", "properties": {"any": {}, "a": {"type": "string"}}}),
        ({"type": "object", "$defs": {}}, {"type": "object", "$defs": {}, "properties": {}}),
    ],
)  # fmt: skip
def test_schemas_are_as_narrow_as_ollamas_own(schema: JSON, parameters: JSON) -> None:
    (tool,) = as_tools(write(user("q"), tools=(Offer("f", schema=schema),)))
    assert tool["function"] == {"name": "f", "parameters": parameters}


def as_tools(written: Written[dict[str, JSON]]) -> list[Any]:
    tools = written.value["tools"]
    assert isinstance(tools, list)
    return tools


@pytest.mark.parametrize(
    ("asked", "said", "dropped"),
    [
        ({"format": Format()}, {"format": "json"}, ()),
        ({"format": Format({"type": "object"})}, {"format": {"type": "object"}}, ()),
        ({"tools": (WEATHER,), "pick": Pick("none")}, {}, ()),
        ({"choices": 2, "calls_in_parallel": False, "effort": "low", "verbosity": "low",
          "user": "u", "unsaid": ("logit_bias",)}, {},
         ("logit_bias", "n", "parallel_tool_calls", "reasoning effort", "verbosity")),
    ],
)  # fmt: skip
def test_what_an_answer_is_to_be_is_said_or_named(
    asked: dict[str, Any], said: dict[str, JSON], dropped: tuple[str, ...]
) -> None:
    written = write(user("q"), **asked)
    rest = {key: each for key, each in written.value.items() if key not in MINIMUM}
    assert (rest, written.dropped) == (said, dropped)


MINIMUM = ("model", "messages", "stream")


def test_what_cannot_be_said_of_tools_is_named() -> None:
    strict = Offer("f", is_strict=True, cache={"type": "ephemeral"})
    written = write(user("q"), tools=(WEATHER, strict), pick=Pick("named", "f"))
    assert written.dropped == ("tool choice", "tools[1]: strict", "cache markers")
    failed = Result("a", (Text("boom"),), is_error=True)
    written = write(Turn("user", (failed,), name="Ann"))
    assert written.dropped == ("names of participants", "error marks of tool results")


def test_ids_are_made_safe_alike_for_call_and_result() -> None:
    call, answer = messages_of(
        Turn("assistant", (Called("functions.f:0", "f", "{}"),)), user(Result("functions.f:0", ()))
    )
    assert call["tool_calls"][0]["id"] == answer["tool_call_id"] != "functions.f:0"
    assert answer["tool_name"] == "f"


# --- the dialect ----------------------------------------------------------------------------------


def test_it_is_a_target_and_no_callers() -> None:
    assert translates(OLLAMA)
    assert not calls_tools(OLLAMA)
    assert OLLAMA.paths == ()
    head = AnswerHead("5eed", "m", 0, {})
    for ask in (
        lambda: OLLAMA.read_request({}),
        lambda: OLLAMA.write_answer(Answer(), "stop", head),
        lambda: OLLAMA.answer_writer(head),
        lambda: OLLAMA.body_from_events([]),
        lambda: OLLAMA.events_from_body(b"{}", True),
    ):
        with pytest.raises(NotImplementedError):
            ask()


def test_what_it_wrote_can_be_looked_into() -> None:
    body = write(user(Result("a", (Text("5C"),)), "q"), streams=True).value
    ask = OLLAMA.read_ask(body)
    assert (ask.model, ask.streams, len(ask.messages)) == ("llama3.1", True, 2)
    assert OLLAMA.tool_results(ask.messages[0]) == (("a", "5C"),)


def test_the_case_of_calls_in_one_line_and_the_end_in_the_next() -> None:
    (path,) = (Path(__file__).parents[1] / "cases").glob("124-*.json")
    case = json.loads(path.read_text())
    marks, answer = feed([chunk.rstrip("\n").encode() for chunk in case["upstream"][0]["chunks"]])
    assert marks == [Mark.TOOL, Mark.COMPLETING]
    (wanted,) = case["expect"]["client"]["tool_calls"]
    ((_, call),) = answer.tool_calls
    assert json.loads(call.arguments) == wanted["arguments_json"]
    assert OLLAMA.ending(answer) == "tool_calls"
